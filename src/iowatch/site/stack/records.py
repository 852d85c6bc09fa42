"""A stack (the pinned libraries of a ReFrame environment): its record, lock file, activation script and diff.

`spack.yaml` and `spack.lock` are read without Spack. Jobs need only `activate.sh`, which checks the files of the parts
and exports variables, and `stack.json` next to it; neither Spack nor Python runs in a job.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from iowatch.core import InputError, files, parse_json, settings, write_atomically, yamlfile

STACK_FORMAT = 1

StackKind = Literal["system", "modules", "spack"]
StackStatus = Literal["installed", "locked", "declared", "broken"]


@dataclass(frozen=True)
class StackPart:
    """One library or program of a stack.

    Attributes:
        name: Spack's name of the package (`openmpi`, `hdf5`, `netcdf-c`, `parallel-netcdf`, `ior`…).
        version: as reported by the part itself or the lock file.
        variants: Spack variants, or the configuration that the part reports.
        hash: Spack's hash, or None for a part that Spack did not build.
        prefix: installation directory, or None for a stack that is only a lock file.
        compiler, target: if known.
        files: files that the part needs; checked on activation.
        checksums: SHA-256 of the measured programs by path, as installed or, for a stack that Spack did not build, as
            found when the stack was described.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    name: str
    version: str
    variants: Mapping[str, str] = field(default_factory=dict)
    hash: str | None = None
    prefix: str | None = None
    compiler: str | None = None
    target: str | None = None
    files: tuple[str, ...] = ()
    checksums: Mapping[str, str] = field(default_factory=dict)


_ROMIO_MPIS = ("mpich", "cray-mpich", "intel-oneapi-mpi", "mvapich", "mvapich2")


@dataclass(frozen=True)
class Stack:
    """A named set of parts and the job environment that they need.

    Attributes:
        name: name of the ReFrame environment.
        system: the system to which it belongs.
        kind: `system` (packages of the operating system), `modules` (environment modules) or `spack`.
        status: `installed` (ready), `locked` (only a lock file), `declared` (no lock file), `broken`.
        parts: every library and program, sorted by name.
        features: features that checks can require: `openmpi`, `mpich`, `hdf5`, `netcdf4`, `pnetcdf`, `benchio`,
            `ior`, `mdtest`, `h5bench`, `fio`, `hpcc`, `darshan`.
        settings: environment variables to set.
        paths: environment variables to which directories are prepended.
        modules: environment modules to load first.
        tools: names that jobs use (`mpicc`) to programs (`/usr/bin/mpicc.openmpi`), if the two differ.
        note: why it is not `installed`, or other remarks.
        unanswered: features that it may have, although it does not list them, and the tool that did not answer. Not
            in `stack.json`: it is a fact of this moment, not of the stack.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    name: str
    system: str
    kind: StackKind
    status: StackStatus
    parts: tuple[StackPart, ...]
    features: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    tools: Mapping[str, str] = field(default_factory=dict)
    note: str | None = None
    unanswered: Mapping[str, str] = field(default_factory=dict)

    def part(self, name: str) -> StackPart | None:
        """Return the part with this name, or None."""
        for part in self.parts:
            if part.name == name:
                return part
        return None

    @property
    def mpi_io(self) -> str | None:
        """Return the MPI-IO that serves the stack's MPI_File_open: ROMIO or OMPIO; None without a known MPI."""
        if self.part("openmpi"):
            uses_romio = self.settings.get("OMPI_MCA_io", "").startswith("romio")
            return "ROMIO" if uses_romio else "OMPIO"
        if any(self.part(name) for name in _ROMIO_MPIS):
            return "ROMIO"
        return None

    def identity(self) -> dict[str, Any]:
        """Return what can make measurements differ: parts, modules, settings and paths; no notes, features or files."""
        parts = [[part.name, part.version, dict(part.variants), part.hash, part.compiler] for part in self.parts]
        paths = {name: list(values) for name, values in self.paths.items()}
        return {"parts": parts, "modules": [*self.modules], "settings": dict(self.settings), "paths": paths}

    def to_json(self) -> dict[str, Any]:
        """Return the document of `stack.json`, the input of `stack_from_json`."""
        document = asdict(self)
        del document["unanswered"]
        return {"format": STACK_FORMAT, **document}


def stack_from_json(document: Mapping[str, Any], where: str) -> Stack:
    """Return the stack described by a `stack.json`.

    Args:
        document: the parsed file.
        where: its path, for messages.

    Raises:
        InputError: another format, or a missing or unknown field.
    """
    hint = "Reinstall the stack."
    fields = dict(document)
    stack_format = fields.pop("format", None)
    if stack_format != STACK_FORMAT:
        raise InputError(f"{where}: field 'format' is {stack_format!r}, expected {STACK_FORMAT}", hint=hint)
    try:
        return TypeAdapter(Stack).validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InputError(f"{where}: not a stack: field '{field}': {first['msg']}", hint=hint) from error


# Spack documents the form of its files; this page, which of them iowatch reads.
SPACK_DOCS = "docs/stacks.md#pinned-versions"
LOCKFILE_VERSIONS = (5, 6)
# `iowatch.h5bench`: the recipe of another repository than Spack's own, where both have one.
_NAMESPACE = r"^(?:[a-z]\w*\.)?"
_VERSION = re.compile(_NAMESPACE + r"(?P<name>[a-z0-9][a-z0-9_-]*)(?:@=?(?P<version>[\w.-]+))?")
_LANGUAGES = {"c", "cxx", "fortran"}
# The lists of flags are mostly empty, and the build system does not affect the binaries.
_IGNORED_VARIANTS = {"build_system", "cflags", "cppflags", "cxxflags", "fflags", "ldflags", "ldlibs"}


def root_specs(path: Path) -> tuple[str, ...]:
    """Return the root specs of a `spack.yaml`, in its order.

    Raises:
        InputError: not a Spack environment.
    """
    document = yamlfile.read_mapping(path, SPACK_DOCS)
    try:
        specs = document["spack"]["specs"]
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: no 'spack: specs:'") from error
    return tuple(str(spec) for spec in specs)


@dataclass(frozen=True)
class PinnedSpec:
    """Package and version of a spec of Spack.

    Attributes:
        version: None if the spec has none.
    """

    name: str
    version: str | None


def parse_pinned_spec(spec: str) -> PinnedSpec:
    """Return package and version of a spec such as `hdf5@1.14.6 +hl` or `iowatch.h5bench@1.6`.

    Raises:
        InputError: not a spec.
    """
    match = _VERSION.match(spec)
    if match is None:
        raise InputError(f"'{spec}' is not a spec of Spack")
    return PinnedSpec(match["name"], match["version"])


def read_lock(path: Path) -> dict[str, Any]:
    """Return the document of a `spack.lock`.

    Raises:
        InputError: not readable, not JSON, or of an unknown format.
    """
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
        version = document["_meta"]["lockfile-version"]
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not readable as a lock file of Spack: {error}") from error
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: not a lock file of Spack: no _meta: lockfile-version") from error
    if version not in LOCKFILE_VERSIONS:
        supported = ", ".join(map(str, LOCKFILE_VERSIONS))
        hint = "Regenerate it with the pinned Spack."
        raise InputError(f"{path}: lock file version {version}, expected one of {supported}", hint=hint)
    return dict(document)


def _variant(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def _is_compiler(dependency: Mapping[str, Any]) -> bool:
    return bool(_LANGUAGES & set(dependency["parameters"].get("virtuals", ())))


def _make_part(node: Mapping[str, Any], nodes: Mapping[str, Any], prefixes: Mapping[str, str]) -> StackPart:
    variants = {}
    for name, value in sorted(node["parameters"].items()):
        if name not in _IGNORED_VARIANTS:
            variants[name] = _variant(value)
    # Of several compilers (C, Fortran) the first.
    compiler = None
    for dependency in node.get("dependencies", ()):
        if _is_compiler(dependency):
            compiler_node = nodes[dependency["hash"]]
            compiler = f"{compiler_node['name']}@{compiler_node['version']}"
            break
    target = node["arch"]["target"]
    if isinstance(target, dict):
        target = target["name"]
    external = node.get("external") or {}
    return StackPart(
        name=node["name"],
        version=str(node["version"]),
        variants=variants,
        hash=node["hash"],
        prefix=prefixes.get(node["hash"]) or external.get("path"),
        compiler=compiler,
        target=str(target),
    )


def _runtime_hashes(document: Mapping[str, Any]) -> set[str]:
    """Return the hashes of runtime packages: roots, their link and run dependencies, and compilers; no build tools."""
    nodes = document["concrete_specs"]
    waiting = [root["hash"] for root in document["roots"]]
    runtime: set[str] = set()
    while waiting:
        package_hash = waiting.pop()
        if package_hash in runtime:
            continue
        runtime.add(package_hash)
        for dependency in nodes[package_hash].get("dependencies", ()):
            is_at_run_time = bool({"link", "run"} & set(dependency["parameters"]["deptypes"]))
            if is_at_run_time or _is_compiler(dependency):
                waiting.append(dependency["hash"])
    return runtime


def read_lock_parts(path: Path, prefixes: Mapping[str, str] | None = None) -> tuple[StackPart, ...]:
    """Return all runtime parts of a stack from its `spack.lock`, sorted by name.

    Args:
        path: the lock file.
        prefixes: hash to directory, for an installed stack.

    Raises:
        InputError: not a lock file, or damaged.
    """
    document = read_lock(path)
    try:
        nodes = document["concrete_specs"]
        parts = [_make_part(nodes[key], nodes, prefixes or {}) for key in _runtime_hashes(document)]
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: damaged lock file: {error!r}", hint="Regenerate it with Spack.") from error
    return tuple(sorted(parts, key=lambda part: (part.name, part.hash or "")))


def lock_matches_manifest(manifest: Path, lock: Path) -> bool:
    """Return whether a lock file has the roots of this `spack.yaml`.

    Raises:
        InputError: a file is damaged.
    """
    try:
        roots = sorted(str(root["spec"]) for root in read_lock(lock)["roots"])
    except (KeyError, TypeError) as error:
        raise InputError(f"{lock}: damaged lock file: {error!r}", hint="Regenerate it with Spack.") from error
    # Spack prints specs without their repository and without blanks before variants.
    specs_without_namespace = [re.sub(_NAMESPACE, "", spec) for spec in root_specs(manifest)]
    return roots == sorted(re.sub(r"\s+(?=[+~])", "", spec) for spec in specs_without_namespace)


# Jobs run in non-login shells, but sites define `module` in login shells.
_MODULES = """\
if ! command -v module >/dev/null 2>&1; then
  for _iowatch_file in "${LMOD_PKG:-}/init/sh" "${MODULESHOME:-}/init/sh" /etc/profile.d/modules.sh \\
    /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /usr/share/modules/init/sh \\
    /usr/share/lmod/lmod/init/sh; do
    if [ -r "$_iowatch_file" ]; then . "$_iowatch_file"; break; fi
  done
  unset _iowatch_file
  if ! command -v module >/dev/null 2>&1; then
    echo "iowatch: this stack is made of modules, and this shell has no command 'module': set MODULESHOME" >&2
    exit 1
  fi
fi
"""
_CHECK = """\
_iowatch_missing=
for _iowatch_file in {files}; do
  [ -e "$_iowatch_file" ] || _iowatch_missing="$_iowatch_missing $_iowatch_file"
done
if [ -n "$_iowatch_missing" ]; then
  echo {message}"$_iowatch_missing" >&2
  echo {hint} >&2
  # A job ends here; a person's shell stays open.
  case $- in *i*) return 1 ;; *) exit 1 ;; esac
fi
unset _iowatch_missing _iowatch_file
"""


def load_module_commands(modules: Sequence[str]) -> list[str]:
    """Return the lines of sh or bash that load environment modules in a job, and end it if one does not load."""
    if not modules:
        return []
    load_commands = [f"module load {shlex.quote(module)} || exit 1" for module in modules]
    return [_MODULES.rstrip(), *load_commands]


def prepend_commands(paths: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the lines of sh or bash that prepend directories to variables."""
    return [
        f'export {name}={shlex.quote(":".join(directories))}"${{{name}:+:${name}}}"'
        for name, directories in sorted(paths.items())
        if directories
    ]


def stack_directory(system: str, name: str) -> Path:
    """Return the directory of a stack's generated files: `var/stacks/<system>/<stack>`."""
    return settings.var_directory() / "stacks" / system / name


def activation_script(stack: Stack, bin_directory: Path | None) -> str:
    """Return the text of `activate.sh`, to be sourced by sh or bash.

    Args:
        stack: an installed stack.
        bin_directory: directory of the tools with other names, or None.
    """
    lines = [f"# Stack {stack.name} of {stack.system}; written by iowatch, to be sourced."]
    lines += load_module_commands(stack.modules)
    files: set[str] = set()
    for part in stack.parts:
        files.update(part.files)
    if files:
        hint = "  Install what is missing (iowatch doctor lists it), or load the stack's modules."
        if stack.kind == "spack":
            hint = f"  Install it again: iowatch stack install {stack.name} --system {stack.system}"
        message = f"iowatch: stack '{stack.name}' is broken; missing:"
        check = _CHECK.format(files=shlex.join(sorted(files)), message=shlex.quote(message), hint=shlex.quote(hint))
        lines.append(check.rstrip())
    prepended = {name: list(directories) for name, directories in stack.paths.items()}
    if bin_directory:
        prepended["PATH"] = [str(bin_directory), *prepended.get("PATH", [])]
    lines += prepend_commands(prepended)
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(stack.settings.items())]
    lines.append(f"export IOWATCH_STACK={shlex.quote(stack.name)}")
    return "\n".join(lines) + "\n"


def _replace_file(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file atomically, and only if it differs: other jobs may be reading it.

    The files of a stack are readable for all users who run it, whatever the umask.
    """
    if path.is_symlink() or not path.is_file() or path.read_bytes() != text.encode():
        write_atomically(path, text, mode)


def _link_tools(stack: Stack, directory: Path) -> None:
    """Create tools under the names that jobs use.

    Open MPI's wrappers find their settings by the name under which they are called, so they are linked; MPICH's
    launcher searches its proxy in its own directory, so the other tools are started by their own path.
    """
    directory.mkdir(parents=True, exist_ok=True)
    linked = stack.part("openmpi") is not None
    for name, target in stack.tools.items():
        path = directory / name
        if not linked:
            _replace_file(path, f'#!/bin/sh\nexec {shlex.quote(target)} "$@"\n', 0o755)
        elif not path.is_symlink() or path.readlink() != Path(target):
            draft = files.new_draft(path)
            draft.symlink_to(target)
            draft.replace(path)


def write_stack_files(stack: Stack) -> Path:
    """Write `activate.sh`, `stack.json` and the tool names of an installed stack.

    Returns:
        The directory of these files.
    """
    directory = stack_directory(stack.system, stack.name)
    bin_directory = directory / "bin" if stack.tools else None
    if bin_directory:
        _link_tools(stack, bin_directory)
    _replace_file(directory / "activate.sh", activation_script(stack, bin_directory))
    _replace_file(directory / "stack.json", json.dumps(stack.to_json(), indent=2, sort_keys=True) + "\n")
    return directory


@dataclass(frozen=True)
class PartDifference:
    """One field of one part, or one variable of the part `environment`; None if that stack does not have it."""

    part: str
    field: str
    left: str | None
    right: str | None


@dataclass(frozen=True)
class StackDiff:
    """All differences between two stacks.

    Attributes:
        left, right: names of the stacks.
        differences: versions first, then the settings of the environment, variants, compilers and targets.
        rebuilt: parts equal in all of these fields, but with another hash: a dependency differs.
        same: number of equal parts.
    """

    left: str
    right: str
    differences: tuple[PartDifference, ...]
    rebuilt: tuple[str, ...]
    same: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _part_differences(left: StackPart, right: StackPart) -> Iterator[PartDifference]:
    for name in ("version", "compiler", "target"):
        left_value, right_value = getattr(left, name), getattr(right, name)
        # Compiler and target of a stack of the operating system are unknown: not a difference.
        if left_value is not None and right_value is not None and left_value != right_value:
            yield PartDifference(left.name, name, left_value, right_value)
    # Only Spack lists all variants of a part.
    all_listed = bool(left.hash and right.hash)
    for variant in sorted({*left.variants, *right.variants}):
        left_value, right_value = left.variants.get(variant), right.variants.get(variant)
        is_stated = left_value is not None and right_value is not None
        if left_value != right_value and (all_listed or is_stated):
            yield PartDifference(left.name, f"variant {variant}", left_value, right_value)


def _is_rebuilt(left: StackPart, right: StackPart) -> bool:
    """Whether a part of equal fields has another hash of Spack, or programs of the same path with other contents."""
    if left.hash and right.hash and left.hash != right.hash:
        return True
    common_paths = left.checksums.keys() & right.checksums.keys()
    return any(left.checksums[path] != right.checksums[path] for path in common_paths)


def _setting_differences(left: Stack, right: Stack) -> Iterator[PartDifference]:
    """Variables and modules, where both are known; `paths` are directories, which the parts describe."""
    if {left.status, right.status} & {"locked", "declared"}:
        return
    left_settings, right_settings = _settings_with_modules(left), _settings_with_modules(right)
    for name in sorted({*left_settings, *right_settings}):
        left_value, right_value = left_settings.get(name), right_settings.get(name)
        if left_value != right_value:
            yield PartDifference("environment", name, left_value, right_value)


def _settings_with_modules(stack: Stack) -> dict[str, str | None]:
    return {**stack.settings, "modules": " ".join(stack.modules) or None}


def diff_stacks(left: Stack, right: Stack) -> StackDiff:
    """Compare two stacks part by part, by name, and the environment that they set."""
    left_parts = {part.name: part for part in left.parts}
    right_parts = {part.name: part for part in right.parts}
    differences = list(_setting_differences(left, right))
    rebuilt: list[str] = []
    same = 0
    for name in sorted({*left_parts, *right_parts}):
        if name not in right_parts:
            differences.append(PartDifference(name, "version", left_parts[name].version, None))
            continue
        if name not in left_parts:
            differences.append(PartDifference(name, "version", None, right_parts[name].version))
            continue
        left_part, right_part = left_parts[name], right_parts[name]
        part_differences = list(_part_differences(left_part, right_part))
        differences += part_differences
        if part_differences:
            continue
        if _is_rebuilt(left_part, right_part):
            rebuilt.append(name)
        else:
            same += 1
    differences.sort(key=_difference_order)
    return StackDiff(left.name, right.name, tuple(differences), tuple(rebuilt), same)


def _difference_order(row: PartDifference) -> tuple[bool, bool, bool, str]:
    """Sort key: versions, then the environment, then compilers and targets, then variants; by part."""
    return row.field != "version", row.part != "environment", row.field.startswith("variant"), row.part
