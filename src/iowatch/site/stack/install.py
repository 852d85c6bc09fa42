"""`iowatch stack install`: builds a stack with Spack, from its committed lock or concretized for this machine.

Spack does not verify `externals:`: with another GCC at the same path it would build with that GCC and record the
stated one in every hash and every stack.json. Externals of a lock or a list are therefore compared with the machine
first. Spack is needed only here; jobs source `activate.sh`.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from iowatch.benchmarks.registry import BENCHMARKS
from iowatch.core import InputError, MachineError, UsageError, settings, yamlfile
from iowatch.site import machine
from iowatch.site.stack import probe as stack_probe
from iowatch.site.stack.distributions import included_files, lock_file, with_nested_includes
from iowatch.site.stack.load import REFERENCE_STACK, load_stack, manifest_directory
from iowatch.site.stack.records import (
    SPACK_DOCS,
    Stack,
    StackPart,
    lock_matches_manifest,
    parse_pinned_spec,
    read_lock,
    read_lock_parts,
    root_specs,
    stack_directory,
    write_stack_files,
)
from iowatch.site.stack.sources import develop_entries, lock_differences, record_commit
from iowatch.site.system import load_system

_LOG = logging.getLogger(__name__)
SPACK_URL = "https://github.com/spack/spack.git"


def bootstrap_directory() -> Path:
    """Return the directory of the clone that `--bootstrap` makes."""
    return settings.var_directory() / "spack"


def spack_settings_file() -> Path:
    """Return the path of the file with the pins and the settings that all stacks share."""
    return settings.product_root() / "benchmarks" / "spack_repo" / "common.yaml"


def pinned_spack_version() -> str:
    """Return the Spack release for the stacks, as pinned in `benchmarks/spack_repo/common.yaml`.

    Raises:
        MachineError: the file is absent or has no pin.
    """
    try:
        return str(yamlfile.read_mapping(spack_settings_file(), SPACK_DOCS)["packages"]["spack"]["require"]).lstrip("@")
    except (InputError, KeyError, TypeError) as error:
        raise MachineError(f"{spack_settings_file()}: no pin 'packages: spack: require': {error}") from error


def pinned_spack_commit() -> str:
    """Return the commit of the pinned Spack release: the one that made the committed locks.

    Raises:
        InputError: the reference lock is damaged, or was made by another release.
    """
    path = settings.product_root() / "spack.lock"
    made_by = read_lock(path).get("spack") or {}
    if made_by.get("version") != pinned_spack_version() or not made_by.get("commit"):
        raise InputError(
            f"{path} was made by Spack {made_by.get('version')} at commit {made_by.get('commit')}, "
            f"expected {pinned_spack_version()} (benchmarks/spack_repo/common.yaml) and its commit",
            hint="Concretize the stack `reference` with a clone of the pinned release.",
        )
    return str(made_by["commit"])


def spack_command() -> str | None:
    """Return the path of Spack from `SPACK_ROOT`, an earlier `--bootstrap`, or PATH; None if there is none.

    Raises:
        MachineError: SPACK_ROOT is set, but is not a Spack.
    """
    root = os.environ.get("SPACK_ROOT")
    program = (Path(root) if root else bootstrap_directory()) / "bin" / "spack"
    if program.is_file():
        return str(program)
    if root:
        raise MachineError(f"SPACK_ROOT is {root}, which has no bin/spack", hint="Correct or unset it.")
    return shutil.which("spack")


def spack_version() -> str | None:
    """Return `1.1.0 (path)` of the Spack to use, or None if there is none.

    The version is read from its sources, because starting Spack takes a second.
    """
    program = spack_command()
    if program is None:
        return None
    source = Path(program).resolve().parents[1] / "lib" / "spack" / "spack" / "__init__.py"
    try:
        lines = source.read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"unknown version ({program})"
    for line in lines:
        if line.startswith("__version__ ="):
            _, version, *_ = line.split('"')
            return f"{version} ({program})"
    return f"unknown version ({program})"


# Build-only tools: a program of each, and the arguments that print its version.
_BUILD_TOOLS = {
    "autoconf": ("autoconf", "--version"),
    "automake": ("automake", "--version"),
    "cmake": ("cmake", "--version"),
    "gmake": ("make", "--version"),
    "libtool": ("libtoolize", "--version"),
    "m4": ("m4", "--version"),
    "perl": ("perl", "-e", "print $^V"),
    # pkgconf installs this name, too; before it, distributions had pkg-config itself.
    "pkgconf": ("pkg-config", "--version"),
}
_PROGRAMS = {**_BUILD_TOOLS, "slurm": ("sinfo", "--version"), "lustre": ("lfs", "--version")}
_LIBRARIES: Mapping[str, Callable[[stack_probe.MpiInstallation], StackPart | None]] = {
    "hdf5": stack_probe.probe_hdf5,
    "netcdf-c": stack_probe.probe_netcdf,
    "parallel-netcdf": stack_probe.probe_pnetcdf,
}
# Libraries of the operating system that pkg-config knows, and their names there.
_PKG_CONFIG_NAMES = {"libyaml": "yaml-0.1", "zlib": "zlib"}
_COMPILERS = {"gcc": "-dumpfullversion", "llvm": "-dumpversion"}
ABSENT = ""


@dataclass(frozen=True)
class External:
    """A package of the machine that Spack uses.

    Attributes:
        compiler: path of the C compiler, if the package is one.
        other_compilers: paths of those of its other languages.
    """

    name: str
    version: str
    prefix: str
    compiler: str | None = None
    other_compilers: tuple[str, ...] = ()

    @property
    def builds_only(self) -> bool:
        """Whether it does not affect the installed programs."""
        return self.name in _BUILD_TOOLS

    def here(self) -> str | None:
        """Its version on this machine; `ABSENT`, or None if that cannot be queried."""
        if self.name in _COMPILERS:
            if self.compiler is None:
                return None
            if self.missing_compilers:
                return ABSENT
            return _version(stack_probe.query_tool(self.compiler, _COMPILERS[self.name]))
        if self.name in stack_probe.SPACK_MPIS:
            return self._mpi_version()
        if self.name == "glibc":
            return platform.libc_ver()[1] or None
        if self.name in _LIBRARIES:
            return _library(self.name)
        if self.name in _PKG_CONFIG_NAMES:
            return _pkg_config_version(_PKG_CONFIG_NAMES[self.name])
        if self.name in _PROGRAMS:
            program, *arguments = _PROGRAMS[self.name]
            answer = stack_probe.query_tool(str(Path(self.prefix) / "bin" / program), *arguments)
            # Spack has its own versions for Slurm: 23-11-7-1 is Slurm's 23.11.7.
            if self.name == "slurm" and answer:
                return None
            return _version(answer)
        return None

    @property
    def missing_compilers(self) -> list[str]:
        """The paths of compilers that are not here: Debian has a package per language."""
        paths = (self.compiler, *self.other_compilers)
        return [path for path in paths if path and not Path(path).exists()]

    def _mpi_version(self) -> str:
        for name in (f"mpirun.{self.name}", "mpirun"):
            program = Path(self.prefix, "bin", name)
            if not program.exists():
                continue
            identity = stack_probe.identify_mpi(str(program))
            if identity is not None and identity.mpi == self.name:
                return identity.version
        return ABSENT

    @property
    def is_true(self) -> bool:
        """Whether the machine has it in this version, as far as that can be queried."""
        version = self.here()
        return version is None or version == self.version or version.startswith(f"{self.version}.")

    def __str__(self) -> str:
        paths = self.missing_compilers or [self.compiler or self.prefix]
        return f"{self.name} {self.version} ({', '.join(paths)})"


def _version(answer: str) -> str:
    """Return the first version number in the output of a program."""
    match = re.search(r"\d+(?:\.\d+)+", answer)
    return match.group() if match else ABSENT


def _pkg_config_version(module: str) -> str | None:
    """Return the version of a library that pkg-config knows; `ABSENT`, or None without pkg-config."""
    if shutil.which("pkg-config") is None:
        return None
    return _version(stack_probe.query_tool("pkg-config", "--modversion", module))


@cache
def _library(name: str) -> str:
    """Return the version of a library of the first MPI that has it."""
    probe = _LIBRARIES[name]
    for mpi in stack_probe.installed_mpis():
        part = probe(mpi)
        if part is not None:
            return part.version
    return ABSENT


def externals_of_lock(path: Path) -> list[External]:
    """Return the packages that a `spack.lock` takes from the machine for which it was made.

    Raises:
        InputError: not a lock file.
    """
    externals = []
    for node in read_lock(path)["concrete_specs"].values():
        entry = node.get("external") or {}
        if entry.get("path"):
            externals.append(_external(node["name"], str(node["version"]), entry["path"], entry))
    return externals


def _external(name: str, version: str, prefix: str, entry: Mapping[str, Any]) -> External:
    """Return a package of the machine, with the compilers that its entry in a list or lock names."""
    attributes = entry.get("extra_attributes") or {}
    compilers: Mapping[str, str] = attributes.get("compilers") or {}
    other_compilers = [path for language, path in compilers.items() if language != "c"]
    return External(name, version, prefix, compilers.get("c"), tuple(other_compilers))


def _parse_external(entry: Mapping[str, Any]) -> External | None:
    """Return one entry of `externals:`; None if it has an unusual form."""
    pinned = parse_pinned_spec(str(entry.get("spec", "")))
    if pinned.version is None or not entry.get("prefix"):
        return None
    return _external(pinned.name, pinned.version, str(entry["prefix"]), entry)


def prepare_environment(stack: str, system: str, concretize: bool) -> Path:
    """Write the environment of a stack, with the committed lock or ready to be concretized.

    Each difference from the lock or the externals is logged.

    Args:
        concretize: omit the lock, and adapt the externals to this machine.

    Raises:
        InputError: no lock, a lock of another environment or machine, or missing externals or source directories.
    """
    folder = manifest_directory(system, stack)
    manifest, committed = folder / "spack.yaml", lock_file(folder)
    target = stack_directory(system, stack) / "env"
    sources = develop_entries(manifest)
    if not concretize:
        _check_lock(manifest, committed, sources)
    document = yamlfile.read_mapping(manifest, SPACK_DOCS)
    if sources:
        document["spack"]["develop"] = sources
    includes = included_files(manifest)
    target.mkdir(parents=True, exist_ok=True)
    if concretize:
        pinned_specs = [parse_pinned_spec(spec) for spec in root_specs(manifest)]
        pinned = {spec.name: spec.version for spec in pinned_specs}
        # Packages that the reference stack takes from the system; other stacks name them themselves.
        system_externals = settings.find_file("externals", system)
        if stack == REFERENCE_STACK and system_externals.is_file():
            includes.insert(0, system_externals)
        adapt_to_machine(document["spack"], includes, target, pinned)
    else:
        document["spack"]["include"] = [str(path) for path in includes]
    _write_yaml(target / "spack.yaml", document)
    if not concretize:
        shutil.copyfile(committed, target / "spack.lock")
    return target


def adapt_to_machine(
    environment: dict[str, Any], includes: Sequence[Path], target: Path, pinned: Mapping[str, str | None],
) -> None:  # fmt: skip
    """Make an environment include these files, with the externals and the processor of this machine.

    Args:
        environment: content of `spack:`, changed in place.
        target: directory for adapted copies.
        pinned: versions that the environment requires.

    Raises:
        InputError: a package that must not be built is absent, or not in the required version.
    """
    files = with_nested_includes(includes)
    unbuildable = _unbuildable_packages(files)
    adapted_files: list[str] = []
    for position, path in enumerate(files):
        # Two lists may have the same name: that of a stack and that of its system.
        is_repeated = path.name in [earlier.name for earlier in files[:position]]
        copy = target / (f"{position}-{path.name}" if is_repeated else path.name)
        adapted_files.append(str(_adapt_include(path, copy, pinned, unbuildable)))
    environment["include"] = adapted_files
    processor = platform.machine()
    if processor != "x86_64":
        # Overrides the requirement of the shared settings: locks and binaries for any x86_64.
        environment["packages"] = {"all": {"require": f"target={processor}"}}


def _unbuildable_packages(includes: Sequence[Path]) -> frozenset[str]:
    """Return the packages that an environment takes from the machine or not at all; any of its files may require it."""
    names: set[str] = set()
    for include in includes:
        packages = yamlfile.read_mapping(include, SPACK_DOCS).get("packages") or {}
        for name, package in packages.items():
            if isinstance(package, dict) and package.get("buildable", True) is False:
                names.add(name)
    return frozenset(names)


def _write_yaml(path: Path, document: dict[str, Any]) -> None:
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def _check_lock(manifest: Path, committed: Path, sources: Mapping[str, Mapping[str, str]]) -> None:
    """Reject a lock that is absent, belongs to another environment, or names packages that this machine lacks."""
    folder = manifest.parent
    if not committed.is_file():
        raise InputError(f"{committed}: no such file", hint="Add --concretize to resolve the stack on this machine.")
    if not lock_matches_manifest(manifest, committed):
        message = f"{committed} was not made from {manifest.name}: their specs differ"
        command = f"spack -e {folder} concretize --force"
        if committed.name != "spack.lock":
            command += f" && mv {folder / 'spack.lock'} {committed}"
        raise InputError(message, hint=f"Regenerate it: {command}")
    other_sources = list(lock_differences(committed, sources))
    if other_sources:
        message = f"{committed} was made for other sources; it builds {'; '.join(other_sources)}"
        raise InputError(message, hint="Add --concretize to use the sources that spack.yaml names.")
    # Another version of a build tool is accepted, and another glibc.
    differences: list[str] = []
    unacceptable: list[str] = []
    for external in externals_of_lock(committed):
        if external.is_true:
            continue
        version_here = external.here()
        difference = f"{external}, here {version_here or 'missing'}"
        differences.append(difference)
        is_other_build_tool = external.builds_only and bool(version_here)
        if not is_other_build_tool and external.name != "glibc":
            unacceptable.append(difference)
    if unacceptable:
        raise InputError(
            f"{committed} was made for another machine; it requires {'; '.join(unacceptable)}",
            hint="Add --concretize to keep the versions in spack.yaml and use this machine's compiler and tools.",
        )
    if differences:
        _LOG.info("the lock was made with other build tools: %s", "; ".join(differences))


def _adapt_include(
    include: Path, copy: Path, pinned: Mapping[str, str | None], unbuildable: frozenset[str]
) -> Path:  # fmt: skip
    """Return an included file, or a copy with the externals of this machine and without its own includes.

    Args:
        copy: path of the copy.
        pinned: versions that the stack requires.
        unbuildable: packages that the stack must not build.

    Raises:
        InputError: a package that must not be built is absent, or not in the version that the stack requires.
    """
    document = yamlfile.read_mapping(include, SPACK_DOCS)
    corrections = _Corrections()
    for name, package in (document.get("packages") or {}).items():
        if isinstance(package, dict) and package.get("externals"):
            _correct_package(package, name not in unbuildable, pinned, corrections)
    if corrections.absent:
        raise InputError(
            f"{include}: {'; '.join(corrections.absent)}",
            hint="Correct its version and prefix, or take it out; `spack external find NAME` looks for it.",
        )
    if corrections.other_versions:
        raise InputError(
            f"the stack requires {'; '.join(corrections.other_versions)}; {include} marks it `buildable: false`",
            hint="Copy the stack's folder to one of your own, with the versions that are here in spack.yaml.",
        )
    # The included files of this one are adapted themselves.
    has_includes = bool(document.pop("include", None))
    if not corrections.differences and not has_includes:
        return include
    for difference in corrections.differences:
        _LOG.info("%s: %s", include.name, difference)
    _write_yaml(copy, document)
    return copy


@dataclass
class _Corrections:
    """What `_correct_package` changed, as texts.

    Attributes:
        absent: packages that are not on the machine and must not be built.
        other_versions: packages that must not be built, and that the stack requires in another version.
    """

    differences: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    other_versions: list[str] = field(default_factory=list)


def _correct_package(
    package: dict[str, Any], is_buildable: bool, pinned: Mapping[str, str | None], corrections: _Corrections
) -> None:
    """Correct the externals of a package: replace versions by those of the machine, remove missing packages."""
    kept_entries = []
    for entry in package["externals"]:
        external = _parse_external(entry)
        version_here = external.here() if external else None
        if external is None or version_here is None or external.is_true:
            kept_entries.append(entry)
        elif version_here != ABSENT:
            corrections.differences.append(f"{external.name} is {version_here} here, not {external.version}")
            required_version = pinned.get(external.name, version_here)
            if not is_buildable and required_version != version_here:
                corrections.other_versions.append(f"{external.name}@{required_version}, here {version_here}")
            spec = str(entry["spec"]).replace(f"@{external.version}", f"@{version_here}", 1)
            kept_entries.append({**entry, "spec": spec})
        elif is_buildable or external.builds_only:
            corrections.differences.append(f"no {external} on this machine: Spack will build it")
        else:
            corrections.absent.append(f"no {external} on this machine, and it is not buildable")
    package["externals"] = kept_entries
    if not kept_entries:
        del package["externals"]
        package.pop("buildable", None)


# Built from the checkout: its sources change without its recipe, so it is rebuilt every time.
OWN_PACKAGE = "benchio"
_DONE = re.compile(r"^\[[+e]\] (?:\S+ \(external |\S*/)?(?P<part>[\w.-]+?)(?:-[a-z0-9]{32})?\)?(?: .*)?$")
# For a file with a wrong checksum, Spack prints hundreds of characters of its content.
_MAX_LINE_WIDTH = 300


def _is_measured(package: str) -> bool:
    """Whether a part has measured programs: the libraries that they load are checked on activation."""
    return package in ("darshan-util", *(benchmark.package for benchmark in BENCHMARKS.values()))


def _clone_spack() -> str:
    """Clone the pinned Spack and verify its commit; return the path of its program.

    Raises:
        MachineError: git is missing or cannot access the repository, or the tag is at another commit.
    """
    target, tag = bootstrap_directory(), f"v{pinned_spack_version()}"
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    hint = f"Set SPACK_ROOT to a Spack {pinned_spack_version()} that is already here."
    try:
        _clone_with_progress(SPACK_URL, tag, draft)
        # What was cloned is compared with what made the committed locks.
        commit, expected = _git("-C", str(draft), "rev-parse", "HEAD"), pinned_spack_commit()
        if commit != expected:
            raise MachineError(
                f"{SPACK_URL}: {tag} is commit {commit}, expected {expected}; it was not installed",
                hint="The tag was moved, or this is not Spack's repository. The expected commit made spack.lock.",
            )
        draft.replace(target)
    except subprocess.CalledProcessError as error:
        messages = (error.stderr or "").strip().splitlines() or [str(error)]
        raise MachineError(f"cannot read the commit of {SPACK_URL} at {tag}: {messages[-1]}", hint=hint) from error
    except ProgramError as error:
        raise MachineError(f"cannot clone {SPACK_URL} at {tag}: {error.last_line}", hint=hint) from error
    except OSError as error:
        raise MachineError(f"cannot clone Spack to {target}: {error.strerror}", hint=hint) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return str(target / "bin" / "spack")


# A clone of Spack takes some minutes; a connection that is idle for a minute is given up by git itself.
_GIT_TIMEOUT_S = 3600.0
_GIT_LIMITS = {"GIT_HTTP_LOW_SPEED_LIMIT": "1", "GIT_HTTP_LOW_SPEED_TIME": "60", "GIT_TERMINAL_PROMPT": "0"}


# git prints how far it is several times a second.
_CLONE_SILENCE_S = 600.0


def _clone_with_progress(url: str, tag: str, target: Path) -> None:
    """Clone one tag; a line every ten seconds says how far git is.

    Raises:
        MachineError: git is missing, failed, or printed nothing for too long.
    """
    command = ["git", "clone", "--progress", "--depth", "1", "--branch", tag, url, str(target)]
    try:
        with _SignsOfLife("Spack", "git clone starts", interval_s=_CLONE_SIGN_INTERVAL_S) as signs:
            # git ends each state of its progress with a carriage return, which is read as the end of a line.
            for line in stream_lines(command, _CLONE_SILENCE_S, program="git clone", environment=_GIT_LIMITS):
                signs.begin_step(f"git clone: {line}")
    except FileNotFoundError as error:
        raise _missing_git() from error


def _missing_git() -> MachineError:
    return MachineError("git is not installed", hint="Install git, or set SPACK_ROOT to a Spack.")


def _git(*arguments: str, timeout_s: float | None = None) -> str:
    limit_s = _GIT_TIMEOUT_S if timeout_s is None else timeout_s
    _LOG.debug("starts: git %s", shlex.join(arguments))
    try:
        done = subprocess.run(
            ["git", *arguments],
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=limit_s,
            env={**os.environ, **_GIT_LIMITS},
        )
    except FileNotFoundError as error:
        raise _missing_git() from error
    except subprocess.TimeoutExpired as error:
        raise MachineError(f"git {arguments[0]} did not end within {limit_s:g} s") from error
    return done.stdout.strip()


# A night without network must not wait longer.
_REACHABLE_TIMEOUT_S = 8.0


def unreachable_sources() -> str | None:
    """Return why Spack cannot get sources here, within ten seconds; None if it can.

    It can where the server of Spack's repository answers (with git's own proxy settings), or where a Spack is installed
    that has a mirror or build cache of the site.

    Raises:
        MachineError: SPACK_ROOT is set, but is not a Spack.
    """
    program = spack_command()
    if program is not None and _site_mirrors(program):
        return None
    try:
        _git("ls-remote", SPACK_URL, f"refs/tags/v{pinned_spack_version()}", timeout_s=_REACHABLE_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        messages = (error.stderr or "").strip().splitlines() or [str(error)]
        return f"{SPACK_URL} cannot be reached ({messages[-1]}), and Spack has no mirror of this site"
    except MachineError as error:
        return f"{SPACK_URL} cannot be reached ({error.message}), and Spack has no mirror of this site"
    return None


# Spack's own configuration has this one.
_PUBLIC_MIRROR = "spack-public"


def _site_mirrors(spack: str) -> list[str]:
    """Return the names of the mirrors and build caches that a site has added to its Spack."""
    answer = stack_probe.query_tool(spack, "--color", "never", "mirror", "list")
    names = [line.split()[0] for line in answer.splitlines() if line.strip()]
    return [name for name in names if name != _PUBLIC_MIRROR]


def require_spack(bootstrap: bool) -> str:
    pinned = pinned_spack_version()
    program = spack_command()
    if program is None and bootstrap:
        _LOG.info("cloning Spack %s into %s", pinned, bootstrap_directory())
        program = _clone_spack()
    if program is None:
        hint = f"Add --bootstrap to clone Spack {pinned}, or set SPACK_ROOT."
        raise MachineError("no Spack found: SPACK_ROOT is not set and spack is not on PATH", hint=hint)
    version, _, _ = (spack_version() or "").partition(" ")
    if version != pinned:
        _LOG.info("this is Spack %s; the locks were made with %s", version, pinned)
    return program


# Spack prints a line for each part that it begins or ends; the longest, a compiler, takes two hours on few cores.
_SILENCE_S = 4 * 3600.0


class ProgramError(MachineError):
    """A program failed, or printed nothing for too long.

    Attributes:
        last_line: of its output; the message has the lines before it, too.
    """

    def __init__(self, reason: str, tail: Sequence[str]) -> None:
        lines = [line for line in tail if line] or ["it printed nothing"]
        super().__init__(reason + ":\n    " + "\n    ".join(lines))
        self.last_line = lines[-1]


def stream_lines(
    command: list[str],
    silence_s: float = _SILENCE_S,
    *,
    program: str = "Spack",
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """Yield the output lines of a program as they are printed.

    Args:
        silence_s: a program that prints nothing for so many seconds is ended.
        program: its name in messages.
        environment: variables besides those of this process.

    Raises:
        ProgramError: it failed, or printed nothing for too long.
        FileNotFoundError: there is no such program.
    """
    tail: list[str] = []
    _LOG.debug("starts: %s", shlex.join(command))
    is_ended = False
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
        # Spack is Python: into a pipe it would print "Installing …" when that part is ready.
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    ) as process:

        def end_program() -> None:
            nonlocal is_ended
            is_ended = True
            # With the compilers that it started.
            machine.end_process_group(process)

        try:
            alarm = _start_alarm(silence_s, end_program)
            for line in process.stdout or ():
                alarm.cancel()
                tail = [*tail[-11:], line.rstrip()[:_MAX_LINE_WIDTH]]
                yield line.rstrip()
                alarm = _start_alarm(silence_s, end_program)
            alarm.cancel()
        except BaseException:
            # The reader stopped, for example by a signal that this group of processes did not get.
            alarm.cancel()
            end_program()
            raise
    if is_ended:
        raise ProgramError(f"{program} printed nothing for {silence_s:g} s and was ended", tail)
    if process.returncode:
        raise ProgramError(f"{program} failed with exit code {process.returncode}", tail)


def _start_alarm(seconds: float, call: Callable[[], None]) -> threading.Timer:
    alarm = threading.Timer(seconds, call)
    alarm.daemon = True
    alarm.start()
    return alarm


@dataclass
class _BuildProgress:
    """How many parts of a stack are ready, and how long the others will take.

    Attributes:
        total: number of parts; to_build: those that the machine does not provide.
        started_s: when the first part was ready, by a clock that is never set back: before, Spack reads its recipes.
    """

    total: int
    to_build: int
    started_s: float | None = None
    ready: int = 0
    built: int = 0

    @classmethod
    def of_lock(cls, lock: Path) -> _BuildProgress:
        nodes = read_lock(lock)["concrete_specs"].values()
        to_build = [node for node in nodes if not node.get("external")]
        return cls(len(nodes), len(to_build))

    def after_part(self, part: str, is_external: bool) -> str:
        """Count a part that is ready; return the text for people, with the time left once a part was built."""
        self.ready += 1
        now_s = time.monotonic()
        if self.started_s is None:
            self.started_s = now_s
        text = f"{self.ready} of {self.total} parts: {part}"
        if is_external:
            return text
        self.built += 1
        elapsed_s = now_s - self.started_s
        left = self.to_build - self.built
        # The first ones are scripts and copied libraries: their time says nothing of the others.
        if left <= 0 or elapsed_s < _SHORTEST_ESTIMATE_S:
            return text
        minutes_left = left * elapsed_s / self.built / 60
        return f"{text}; about {max(1, round(minutes_left))} min left"


# Below this an estimate from the elapsed time would only mislead.
_SHORTEST_ESTIMATE_S = 10.0


# A person at a terminal wants to see that something happens; a log is read later.
_SIGN_INTERVAL_S, _SIGN_INTERVAL_IN_LOGS_S = 10.0, 60.0
# A clone takes a minute or two, so that its log has few lines.
_CLONE_SIGN_INTERVAL_S = 10.0


class _SignsOfLife:
    """Reports the steps of a build, and in a step that takes long how long it has taken so far."""

    def __init__(self, stack: str, first_step: str, interval_s: float | None = None) -> None:
        """Prepare the reports.

        Args:
            stack: name before each message.
            first_step: what happens before the first report.
            interval_s: seconds between two signs; None for those of a build, by whether stderr is a terminal.
        """
        self._interval_s = interval_s
        self._stack = stack
        self._step = first_step
        self._step_started_s = time.monotonic()
        self._ended = threading.Event()
        self._reported = threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> _SignsOfLife:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._reported.set()
        self._thread.join()

    def begin_step(self, step: str) -> None:
        """Set the step that the next sign names, without a line of its own."""
        self._step = step

    def report(self, step: str) -> None:
        """Log a step that begins or has ended."""
        self._step = step
        self._step_started_s = time.monotonic()
        self._reported.set()
        _LOG.info("%s: %s", self._stack, step)

    def _repeat(self) -> None:
        interval_s = self._interval_s
        if interval_s is None:
            interval_s = _SIGN_INTERVAL_S if sys.stderr.isatty() else _SIGN_INTERVAL_IN_LOGS_S
        while not self._ended.is_set():
            # A report within the interval begins another one.
            if self._reported.wait(interval_s):
                self._reported.clear()
                continue
            elapsed_s = time.monotonic() - self._step_started_s
            _LOG.info("%s: for %.0f s: %s", self._stack, elapsed_s, self._step)


def build_environment(
    spack: Sequence[str], environment: Path, stack: str, jobs: int | None, *, rebuild_own: bool = True
) -> None:
    """Run `spack install` and log the number of finished parts.

    Args:
        spack: command with its own options.
        rebuild_own: build benchio again from the checkout, also where it is installed already.
    """
    progress = _BuildProgress.of_lock(environment / "spack.lock")
    install = [*spack, "--color", "never", "-e", str(environment), "install", "--only-concrete", "--fail-fast"]
    if jobs:
        install += ["--jobs", str(jobs)]
    # What is installed before this, Spack does not build again.
    is_stale = False
    if rebuild_own:
        prefixes = installed_prefixes(spack, environment).values()
        is_stale = any(f"/{OWN_PACKAGE}-" in prefix for prefix in prefixes)
    with _SignsOfLife(stack, "Spack reads its recipes, minutes at its first start") as signs:
        for line in stream_lines(install):
            done = _DONE.match(line)
            if done:
                is_external = "(external " in line
                signs.report(progress.after_part(done["part"], is_external))
            elif line.startswith(("==> Installing", "==> Error")):
                signs.report(line.removeprefix("==> "))
    if is_stale:
        _LOG.info("%s: building %s again from this checkout", stack, OWN_PACKAGE)
        for _ in stream_lines([*install, "--overwrite", "--yes-to-all", OWN_PACKAGE]):
            pass


def installed_prefixes(spack: Sequence[str], environment: Path) -> dict[str, str]:
    """Return hash to directory of every installed part."""
    command = [*spack, "--color", "never", "-e", str(environment), "find", "--no-groups", "--format"]
    prefixes: dict[str, str] = {}
    for line in stream_lines([*command, "{hash} {prefix}"]):
        package_hash, _, prefix = line.strip().partition(" ")
        # Spack also prints messages.
        if prefix.lstrip().startswith("/"):
            prefixes[package_hash] = prefix.lstrip()
    return prefixes


def _required_files(part: StackPart) -> tuple[str, ...]:
    """Return the files that a part needs: its directory, its libraries, and those that it loads."""
    if part.prefix is None:
        return ()
    # Directories such as /usr do not belong to the part; its tools are checked instead.
    prefix = Path(part.prefix)
    if prefix in (Path("/usr"), Path("/usr/local"), Path("/")):
        return ()
    libraries = {str(path) for path in (prefix / "lib").glob("lib*.so")}
    libraries.update(str(path) for path in (prefix / "lib64").glob("lib*.so"))
    for program in _measured_programs(part):
        libraries.update(re.findall(r"=> (/\S+)", stack_probe.query_tool("ldd", program)))
    return (str(prefix), *sorted(libraries))


def _measured_programs(part: StackPart) -> list[str]:
    """Return the paths of the programs of a part that are measured."""
    if not part.prefix or not _is_measured(part.name):
        return []
    return [str(path) for path in Path(part.prefix, "bin").glob("*")]


def _tool_programs(parts: tuple[StackPart, ...]) -> dict[str, str]:
    """Return name for jobs -> program, for an MPI that Spack did not build: its tools are not in a view."""
    for part in parts:
        if part.name not in stack_probe.MPI_PACKAGES or not part.prefix or Path(part.prefix, ".spack").is_dir():
            continue
        tools: dict[str, str] = {}
        for name in stack_probe.TOOLS:
            # Debian's variant of a tool has priority, since the plain name may belong to another MPI.
            for program in (Path(part.prefix, "bin", f"{name}.{part.name}"), Path(part.prefix, "bin", name)):
                if program.exists():
                    tools[name] = str(program)
                    break
        if tools:
            return tools
    return {}


def describe_installed_stack(stack: str, system: str, environment: Path, prefixes: dict[str, str]) -> Stack:
    """Return the stack of an environment that Spack has built.

    Args:
        prefixes: hash to directory of every installed part.
    """
    installed_parts = []
    for part in read_lock_parts(environment / "spack.lock", prefixes):
        checksums = stack_probe.file_checksums(_measured_programs(part))
        installed_parts.append(replace(record_commit(part), files=_required_files(part), checksums=checksums))
    parts = tuple(installed_parts)
    view = environment / ".spack-env" / "view"
    mpi = next((part.name for part in parts if part.name in stack_probe.SPACK_MPIS), "")
    return Stack(
        stack,
        system,
        "spack",
        "installed",
        parts,
        features=stack_probe.features_of_parts(parts),
        settings=stack_probe.mpi_settings(mpi),
        paths={
            "PATH": (str(view / "bin"),),
            "CMAKE_PREFIX_PATH": (str(view),),
            "PKG_CONFIG_PATH": (str(view / "lib" / "pkgconfig"), str(view / "lib64" / "pkgconfig")),
        },
        tools=_tool_programs(parts),
    )


@dataclass(frozen=True)
class InstalledStack:
    """A stack that was built, and the directory of its files."""

    stack: Stack
    directory: Path


@dataclass(frozen=True)
class NotInstalled:
    """A stack that was not built because this machine cannot, and why."""

    reason: str


def install_where_possible(stack: str, system: str, *, jobs: int | None = None) -> InstalledStack | NotInstalled:
    """Build a Spack stack with what this machine has: the first night of a newcomer.

    Spack is cloned if there is none. A lock of another machine is replaced by versions that are resolved here.

    Raises:
        UsageError: unknown stack, or not a Spack stack.
        MachineError: Spack failed. Unreachable sources and missing packages of the system are no errors.
    """
    reason = unreachable_sources()
    if reason is not None:
        return NotInstalled(reason)
    folder = manifest_directory(system, stack)
    concretize = False
    try:
        _check_lock(folder / "spack.yaml", lock_file(folder), develop_entries(folder / "spack.yaml"))
    except InputError as error:
        _LOG.info("%s: %s", stack, error.message)
        concretize = True
    try:
        return install_stack(stack, system, bootstrap=True, concretize=concretize, jobs=jobs)
    except InputError as error:
        # The machine has other packages than the stack can be built on: a site with modules, or a system without HDF5.
        return NotInstalled(error.message)


def install_stack(
    stack: str, system: str, *, bootstrap: bool = False, concretize: bool = False, jobs: int | None = None
) -> InstalledStack:
    """Build a Spack stack and write its `activate.sh` and `stack.json`.

    Args:
        stack, system: names.
        bootstrap: clone the pinned Spack if there is none.
        concretize: concretize on this machine instead of using the committed lock.
        jobs: number of parallel compile jobs.

    Raises:
        UsageError: unknown stack, or not a Spack stack.
        InputError: no lock file, or one that does not match its spack.yaml.
        MachineError: no Spack, or Spack failed.
    """
    retired = load_system(system).retired
    if retired:
        raise UsageError(f"nothing can be installed for system '{system}': {retired}")
    declared = load_stack(stack, system)
    if declared.kind != "spack":
        raise UsageError(f"stack '{stack}' is made of {declared.kind} parts: there is nothing to install")
    environment = prepare_environment(stack, system, concretize)
    spack = require_spack(bootstrap)
    if concretize:
        _LOG.info("%s: resolving versions; this takes a minute or two", stack)
        with _SignsOfLife(stack, "Spack resolves versions", interval_s=_SIGN_INTERVAL_S) as signs:
            for line in stream_lines([spack, "--color", "never", "-e", str(environment), "concretize", "--force"]):
                if line.startswith("==>"):
                    signs.report(line.removeprefix("==> "))
        if stack != REFERENCE_STACK:  # its lock is shared by all systems
            committed = lock_file(manifest_directory(system, stack))
            _LOG.info("%s: resolved; to keep it: cp %s %s", stack, environment / "spack.lock", committed)
    build_environment([spack], environment, stack, jobs)
    prefixes = installed_prefixes([spack], environment)
    described = describe_installed_stack(stack, system, environment, prefixes)
    for part in described.parts:
        directory = part.variants.get("dev_path")
        if directory is None:
            continue
        state = "not a git work tree: its state is not recorded"
        if part.variants.get("commit"):
            state = f"commit {part.variants['commit']}"
        _LOG.info("%s: %s %s is built from %s, %s", stack, part.name, part.version, directory, state)
    return InstalledStack(described, write_stack_files(described))
