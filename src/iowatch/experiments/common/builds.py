"""Builds that `iowatch gate` compares: a stack, modules, installation prefixes, or a spec of Spack (docs/gate.md).

A build that is no stack of the system becomes one for the time of the gate: it is described by its tools, as a stack
of modules is, and named by what it contains, so that a build that changed has its own benchio and its own series.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
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
        kind, _, what = self.text.partition(":")
        if not self.is_made:
            return self.stack.name
        return ", ".join(Path(one).name or one for one in what.split(",")) if kind == "prefix" else what


def _modules_build(system: str, words: list[str]) -> Stack:
    return describe_loaded_stack(system, "build", tuple(words), {}, {})


def prefix_paths(places: Iterable[Path]) -> dict[str, tuple[str, ...]]:
    """Return the search paths of installations, by variable: their directories that exist."""
    places = list(places)
    found = {
        name: tuple(str(path) for place in places for part in parts if (path := place / part).is_dir())
        for name, parts in _SEARCHED.items()
    }
    return {name: directories for name, directories in found.items() if directories}


def _prefix_build(system: str, words: list[str]) -> Stack:
    places = [Path(word).expanduser() for word in words]
    for place in places:
        if not place.is_absolute() or not place.is_dir():
            what = "is not an absolute path" if not place.is_absolute() else "is not a directory"
            raise UsageError(
                f"prefix:{place} {what}", hint="Name the directory that contains bin, include and lib of the library."
            )
    paths = prefix_paths(places)
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
    externals = settings.find_file("externals", system)
    includes = [*([externals] if externals.is_file() else []), stack_install.spack_settings_file()]
    content = {"specs": [spec], "concretizer": {"reuse": "dependencies", "unify": True}, "view": True}
    pinned = dict([parse_pinned_spec(spec)])

    def write(target: Path) -> None:
        adapted: dict[str, Any] = dict(content)
        stack_install.adapt_to_machine(adapted, includes, target, pinned)
        write_environment(target, {"spack": adapted})

    return SpackEnvironment(system, f"{GATE_PREFIX}{content_digest(content, includes)}", write)


def _spec_build(system: str, text: str, spec: str) -> Build:
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

    Spack builds a spec once.

    Raises:
        UsageError: unknown stack or kind; no such directory; a build that cannot be used, with the reason.
        InputError: a file of the stack is damaged.
    """
    kind, separator, what = text.partition(":")
    if not separator:
        stack = load_stack(text, system)
        _require_usable(text, stack)
        return Build(text, stack, is_made=False)
    if kind == _SPACK and what.strip():
        return _spec_build(system, text, what.strip())
    if kind not in (*BUILD_KINDS, _SPACK):
        known = ", ".join(f"{name}:…" for name in BUILD_KINDS)
        hint = f"A build is the name of a stack (`iowatch stack list`), {known}, spack:SPEC or git:DIR@REV."
        raise UsageError(f"'{text}' is not a build: '{kind}:' is unknown", hint=hint)
    words = [word.strip() for word in what.split(",") if word.strip()]
    if not words:
        raise UsageError(f"'{text}' names nothing after '{kind}:'", hint="For example prefix:/opt/hdf5-1.14")
    stack = BUILD_KINDS[kind](system, words)
    _require_usable(text, stack)
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
    prefixes = [Path(part.prefix) for part in stack.parts if part.prefix and Path(part.prefix, ".spack").is_dir()]
    found = prefix_paths(prefixes)
    return replace(stack, paths={name: found[name] for name in found if name != "LD_LIBRARY_PATH"})


def recorded_files(system: str, recorded: Stack) -> Stack:
    """Return a stack as a run recorded it, with its files where they are now.

    Packages of Spack that are gone are installed again under their hashes, from Spack's store or a build cache.

    Args:
        recorded: from the run.

    Raises:
        UsageError: a file is missing and cannot be installed again; names what is missing.
    """
    missing = [path for part in recorded.parts for path in part.files if not Path(path).exists()]
    if not missing:
        return recorded
    gone = f"stack '{recorded.name}' as recorded is no longer on this machine: {missing[0]} is missing"
    if recorded.kind != "spack":
        raise UsageError(gone, hint="Install it again (docs/stacks.md), or compare the stacks that are left.")
    try:
        found = _installed_again(system, recorded)
    except MachineError as error:
        raise UsageError(
            f"{gone}, and {error.message}", hint="docs/gate.md describes build caches of Spack."
        ) from error
    parts = {part.hash: part for part in found.parts}
    return replace(recorded, parts=tuple(parts.get(part.hash, part) for part in recorded.parts), tools=found.tools)


def _installed_again(system: str, recorded: Stack) -> Stack:
    """The packages of a stack that Spack installed, each under its recorded hash.

    Raises:
        MachineError: there is no Spack; it knows no package of that hash; what it takes from the machine is different.
    """
    specs = [
        f"{part.name}/{part.hash}" for part in recorded.parts if part.hash and part.prefix and part.hash in part.prefix
    ]
    settings_file = stack_install.spack_settings_file()
    content = {"include": [str(settings_file)], "specs": specs, "view": False}
    name = f"{RECORDED_PREFIX}{content_digest(content, [settings_file])}"
    environment = SpackEnvironment(system, name, lambda target: write_environment(target, {"spack": content}))
    found = environment.resolved()
    if found.status == "locked":
        lock = stack_directory(system, name) / "env" / "spack.lock"
        externals = [one for one in stack_install.externals_of_lock(lock) if not (one.is_true or one.builds_only)]
        if externals:
            raise MachineError(f"it needs {', '.join(map(str, externals))}, which this machine does not have")
        found = environment.stack()
    if found.status != "installed":
        raise MachineError(str(found.note))
    return found


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
    else:
        own = recorded.kind == "system"
        found = (
            load_stack(recorded.name, system)
            if own
            else describe_loaded_stack(system, recorded.name, recorded.modules, {}, recorded.paths)
        )
        require_recorded_versions(recorded, found)
    text = json.dumps(recorded.to_json(), sort_keys=True)
    name = f"{RECORDED_PREFIX}{recorded.name[:32]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return replace(recorded, name=name, system=system)


def require_recorded_versions(recorded: Stack, found: Stack) -> None:
    """Require that a stack is still what a run recorded.

    Args:
        found: the same stack as this machine has it now.

    Raises:
        UsageError: it is not installed, or a part is gone or has another version; names each of these parts.
    """
    if found.status != "installed":
        modules = f" ({', '.join(recorded.modules)})" if recorded.modules else ""
        raise UsageError(f"stack '{recorded.name}' as recorded{modules} cannot be run: {found.note}")
    changed = [
        f"{part.name} {part.version} is {other.version if (other := found.part(part.name)) else 'gone'}"
        for part in recorded.parts
        if (other := found.part(part.name)) is None or other.version != part.version
    ]
    if changed:
        raise UsageError(
            f"stack '{recorded.name}' is no longer what was recorded: {', '.join(changed)}",
            hint="What was replaced in its place cannot be measured again; install it elsewhere.",
        )


def build_digest(stack: Stack) -> str:
    """Equal for builds with the same parts, settings and library files."""
    listed = []
    for directory in stack.paths.get("LD_LIBRARY_PATH", ()):
        try:
            found = [entry for entry in os.scandir(directory) if ".so" in entry.name and entry.is_file()]
        except FileNotFoundError:  # modules often name lib64 beside lib, and have one of them
            continue
        except OSError as error:
            raise InputError(f"{directory}: cannot be read: {error.strerror}") from error
        listed += [(entry.path, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in found]
    text = json.dumps([stack.to_json(), sorted(listed)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
