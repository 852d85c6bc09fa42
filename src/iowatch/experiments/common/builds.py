"""Builds that `iowatch gate` compares: a stack, modules, installation prefixes, or a spec of Spack (docs/gate.md).

A build that is no stack of the system becomes one for the time of the gate: it is described by its tools, as a stack
of modules is, and named by what it contains, so that a build that changed has its own benchio and its own series.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from iowatch.core import InputError, MachineError, UsageError, settings
from iowatch.experiments.common.spack_environments import SpackEnvironment, content_digest, write_environment
from iowatch.site.stack import install as stack_install
from iowatch.site.stack import probe as stack_probe
from iowatch.site.stack.load import describe_loaded_stack, load_stack
from iowatch.site.stack.records import Stack, parse_pinned_spec, stack_directory

# Beginnings of the names of stacks that no folder contains: builds of a gate, and stacks as runs recorded them.
GATE_PREFIX, RECORDED_PREFIX = "gate-", "recorded-"
_SEARCHED = {
    "PATH": ("bin",),
    "LD_LIBRARY_PATH": ("lib", "lib64"),
    "PKG_CONFIG_PATH": ("lib/pkgconfig", "lib64/pkgconfig"),
    "CMAKE_PREFIX_PATH": ("",),
}


@dataclass(frozen=True)
class Build:
    """One side of a gate.

    Attributes:
        text: as the user named it.
        stack: installed; `is_made` if the gate made it, so that no folder of the system contains it.
    """

    text: str
    stack: Stack
    is_made: bool

    @property
    def label(self) -> str:
        """Short name of it in reports: the name of the stack, or what follows the kind."""
        if not self.is_made:
            return self.stack.name
        build_kind, _, description = self.text.partition(":")
        if build_kind != "prefix":
            return description
        return ", ".join(Path(directory).name or directory for directory in description.split(","))


def _modules_build(system: str, words: list[str]) -> Stack:
    return describe_loaded_stack(system, "build", tuple(words), {}, {})


def prefix_paths(prefixes: Iterable[Path]) -> dict[str, tuple[str, ...]]:
    """Return the search paths of installations, by variable: their directories that exist."""
    paths: dict[str, list[str]] = defaultdict(list)
    for prefix in prefixes:
        for variable, subdirectories in _SEARCHED.items():
            for subdirectory in subdirectories:
                path = prefix / subdirectory
                if path.is_dir():
                    paths[variable].append(str(path))
    return {variable: tuple(paths[variable]) for variable in _SEARCHED if variable in paths}


def _prefix_build(system: str, words: list[str]) -> Stack:
    """The stack of the libraries that are installed below some directories.

    Raises:
        UsageError: a path that is not absolute or no directory; none of them has libraries.
    """
    prefixes = [Path(word).expanduser() for word in words]
    hint = "Name the directory that contains bin, include and lib of the library."
    for prefix in prefixes:
        if not prefix.is_absolute():
            raise UsageError(f"prefix:{prefix} is not an absolute path", hint=hint)
        if not prefix.is_dir():
            raise UsageError(f"prefix:{prefix} is not a directory", hint=hint)
    paths = prefix_paths(prefixes)
    if "LD_LIBRARY_PATH" not in paths:
        raise UsageError(
            f"prefix:{','.join(words)} has no directory 'lib' or 'lib64'", hint="Name the directory of an installation."
        )
    return describe_loaded_stack(system, "build", (), {}, paths)


# What a build may be besides the name of a stack, and `spack:SPEC`.
BUILD_KINDS: Mapping[str, Callable[[str, list[str]], Stack]] = MappingProxyType(
    {"modules": _modules_build, "prefix": _prefix_build}
)
_SPACK = "spack"


def spec_environment(system: str, spec: str) -> SpackEnvironment:
    """The environment of one spec, with the packages that the system has, as `iowatch stack install --concretize`.

    What is installed is used for all other packages, so that two specs differ in as little as they can.
    """
    includes = [stack_install.spack_settings_file()]
    externals = settings.find_file("externals", system)
    if externals.is_file():
        includes.insert(0, externals)
    content = {"specs": [spec], "concretizer": {"reuse": "dependencies", "unify": True}, "view": True}
    parsed_spec = parse_pinned_spec(spec)
    pinned = {parsed_spec.name: parsed_spec.version}

    def write(target: Path) -> None:
        adapted: dict[str, Any] = dict(content)
        stack_install.adapt_to_machine(adapted, includes, target, pinned)
        write_environment(target, {"spack": adapted})

    return SpackEnvironment(system, f"{GATE_PREFIX}{content_digest(content, includes)}", write)


def _spec_build(system: str, text: str, spec: str) -> Build:
    """The build of a Spack spec; Spack makes its stack.

    Args:
        text: the build as it was given, `spack:SPEC`, for messages.
        spec: a library that uses MPI, for example `hdf5 ^zlib-ng@2.2.4`.

    Raises:
        UsageError: the stack cannot be used, or has no MPI.
    """
    stack = spec_environment(system, spec).stack()
    _require_usable(text, stack)
    if not any(stack.part(name) for name in stack_probe.MPI_PACKAGES):
        raise UsageError(
            f"the build '{text}' cannot be run: it has no MPI",
            hint="Name a library that uses MPI, with the other one below it, for example 'spack:hdf5 ^zlib-ng@2.2.4'.",
        )
    return Build(text, stack, is_made=True)


def find_build(system: str, text: str) -> Build:
    """Return the build of a text: the name of a stack, `modules:a,b`, `prefix:/opt/hdf5-a` or `spack:SPEC`.


    Raises:
        UsageError: unknown stack or kind; no such directory; a build that cannot be used, with the reason.
        InputError: a file of the stack is damaged.
    """
    build_kind, separator, description = text.partition(":")
    if not separator:
        stack = load_stack(text, system)
        _require_usable(text, stack)
        return Build(text, stack, is_made=False)
    if build_kind == _SPACK and description.strip():
        return _spec_build(system, text, description.strip())
    if build_kind not in (*BUILD_KINDS, _SPACK):
        forms = ", ".join(f"{name}:…" for name in BUILD_KINDS)
        hint = f"A build is the name of a stack (`iowatch stack list`), {forms}, spack:SPEC or git:DIR@REV."
        raise UsageError(f"'{text}' is not a build: '{build_kind}:' is unknown", hint=hint)
    words = [word.strip() for word in description.split(",") if word.strip()]
    if not words:
        raise UsageError(f"'{text}' names nothing after '{build_kind}:'", hint="For example prefix:/opt/hdf5-1.14")
    stack = BUILD_KINDS[build_kind](system, words)
    _require_usable(text, stack)
    # The name shows what the build contains: one that changed has another name, and so its own series.
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(words[0]).name)[:24].strip("-.")
    return Build(text, replace(stack, name=f"{GATE_PREFIX}{name}-{build_digest(stack)}"), is_made=True)


def _require_usable(text: str, stack: Stack) -> None:
    if stack.status != "installed":
        raise UsageError(f"the build '{text}' cannot be run: {stack.note}")


def with_package_paths(stack: Stack) -> Stack:
    """A stack of Spack with the directories of its packages in the place of its view.

    The view is that of the newest installation of the stack's name; the directories of the packages contain their
    hash. Programs find their libraries by the paths that Spack linked into them.
    """
    prefixes: list[Path] = []
    for package in stack.parts:
        if package.prefix and Path(package.prefix, ".spack").is_dir():
            prefixes.append(Path(package.prefix))
    paths = prefix_paths(prefixes)
    paths.pop("LD_LIBRARY_PATH", None)
    return replace(stack, paths=paths)


def recorded_files(system: str, recorded: Stack) -> Stack:
    """Return a stack as a run recorded it, with its files where they are now.

    Packages of Spack that are gone are installed again under their hashes, from Spack's store or a build cache.

    Args:
        recorded: from the run.

    Raises:
        UsageError: a file is missing and cannot be installed again; names what is missing.
    """
    missing_files: list[str] = []
    for package in recorded.parts:
        missing_files += [path for path in package.files if not Path(path).exists()]
    if not missing_files:
        return recorded
    message = f"stack '{recorded.name}' as recorded is no longer on this machine: {missing_files[0]} is missing"
    if recorded.kind != "spack":
        raise UsageError(message, hint="Install it again (docs/stacks.md), or compare the stacks that are left.")
    # Spack installs a package again with the same content, which its hash stands for.
    try:
        reinstalled = _reinstalled(system, recorded)
    except MachineError as error:
        raise UsageError(
            f"{message}, and {error.message}", hint="docs/gate.md describes build caches of Spack."
        ) from error
    # Parts that Spack does not know stay as they were recorded.
    reinstalled_packages = {package.hash: package for package in reinstalled.parts}
    packages = tuple(reinstalled_packages.get(package.hash, package) for package in recorded.parts)
    return replace(recorded, parts=packages, tools=reinstalled.tools)


def _reinstalled(system: str, recorded: Stack) -> Stack:
    """The packages of a stack that Spack installed, each under its recorded hash.

    Raises:
        MachineError: there is no Spack; it knows no package of that hash; what it takes from the machine is different.
    """
    specs: list[str] = []
    for package in recorded.parts:
        # Spack's directories end with the hash of their package; those of the machine have none.
        is_of_spack = package.hash and package.prefix and package.hash in package.prefix
        if is_of_spack:
            specs.append(f"{package.name}/{package.hash}")
    settings_file = stack_install.spack_settings_file()
    content = {"include": [str(settings_file)], "specs": specs, "view": False}
    name = f"{RECORDED_PREFIX}{content_digest(content, [settings_file])}"
    environment = SpackEnvironment(system, name, lambda target: write_environment(target, {"spack": content}))
    # Nothing is built before it is sure that the machine has what the packages take from it.
    stack = environment.resolved()
    if stack.status == "locked":
        lock = stack_directory(system, name) / "env" / "spack.lock"
        missing_externals: list[str] = []
        for external in stack_install.externals_of_lock(lock):
            if not external.builds_only and not external.is_true:
                missing_externals.append(str(external))
        if missing_externals:
            raise MachineError(f"it needs {', '.join(missing_externals)}, which this machine does not have")
        stack = environment.stack()
    if stack.status != "installed":
        raise MachineError(str(stack.note))
    return stack


def recorded_stack(system: str, recorded: Stack) -> Stack:
    """Return a stack as a run recorded it, under a name of its own, if it can still be used on this machine.

    Args:
        recorded: from the run.

    Raises:
        UsageError: a file is missing, or a part has another version now; names what is missing.
    """
    recorded = recorded_files(system, recorded)
    if recorded.kind == "spack":
        recorded = with_package_paths(recorded)
    elif recorded.kind == "system":
        require_recorded_versions(recorded, load_stack(recorded.name, system))
    else:
        loaded = describe_loaded_stack(system, recorded.name, recorded.modules, {}, recorded.paths)
        require_recorded_versions(recorded, loaded)
    text = json.dumps(recorded.to_json(), sort_keys=True)
    name = f"{RECORDED_PREFIX}{recorded.name[:32]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return replace(recorded, name=name, system=system)


def require_recorded_versions(recorded: Stack, current: Stack) -> None:
    """Require that a stack is still what a run recorded.

    Args:
        current: the same stack as this machine has it now.

    Raises:
        UsageError: it is not installed, or a part is gone or has another version; names each of these parts.
    """
    if current.status != "installed":
        modules = f" ({', '.join(recorded.modules)})" if recorded.modules else ""
        raise UsageError(f"stack '{recorded.name}' as recorded{modules} cannot be run: {current.note}")
    changes: list[str] = []
    for recorded_package in recorded.parts:
        current_package = current.part(recorded_package.name)
        current_version = current_package.version if current_package else "gone"
        if current_version != recorded_package.version:
            changes.append(f"{recorded_package.name} {recorded_package.version} is {current_version}")
    if changes:
        raise UsageError(
            f"stack '{recorded.name}' is no longer what was recorded: {', '.join(changes)}",
            hint="What was replaced in its place cannot be measured again; install it elsewhere.",
        )


def build_digest(stack: Stack) -> str:
    """Equal for builds with the same parts, settings and library files."""
    libraries = []
    for directory in stack.paths.get("LD_LIBRARY_PATH", ()):
        try:
            entries = [entry for entry in os.scandir(directory) if ".so" in entry.name and entry.is_file()]
        except FileNotFoundError:  # modules often name lib64 beside lib, and have one of them
            continue
        except OSError as error:
            raise InputError(f"{directory}: cannot be read: {error.strerror}") from error
        libraries += [(entry.path, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in entries]
    text = json.dumps([stack.to_json(), sorted(libraries)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
