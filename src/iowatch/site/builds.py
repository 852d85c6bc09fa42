"""Builds that `iowatch gate` compares: a stack of the system, modules, or installation prefixes (docs/gate.md).

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

from iowatch.core import InputError, UsageError
from iowatch.site.stack import Stack
from iowatch.site.stacks import describe_loaded_stack, load_stack

# Beginning of the names of stacks that a gate makes.
GATE_PREFIX = "gate-"
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


# What a build may be besides the name of a stack.
BUILD_KINDS: Mapping[str, Callable[[str, list[str]], Stack]] = MappingProxyType(
    {"modules": _modules_build, "prefix": _prefix_build}
)


def find_build(system: str, text: str) -> Build:
    """Return the build of a text: the name of a stack, `modules:a,b` or `prefix:/opt/hdf5-a`.

    Raises:
        UsageError: unknown stack or kind; no such directory; a build that cannot be used, with the reason.
        InputError: a file of the stack is damaged.
    """
    kind, separator, what = text.partition(":")
    if not separator:
        stack = load_stack(text, system)
        _require_usable(text, stack)
        return Build(text, stack, is_made=False)
    if kind not in BUILD_KINDS:
        known = ", ".join(f"{name}:…" for name in BUILD_KINDS)
        hint = f"A build is the name of a stack (`iowatch stack list`), {known}."
        if kind == "spack":
            hint = "Write the specs to stacks/NAME/spack.yaml, run `iowatch stack install NAME`, and name that stack."
        raise UsageError(f"'{text}' is not a build: '{kind}:' is unknown", hint=hint)
    words = [word.strip() for word in what.split(",") if word.strip()]
    if not words:
        raise UsageError(f"'{text}' names nothing after '{kind}:'", hint="For example prefix:/opt/hdf5-1.14")
    stack = BUILD_KINDS[kind](system, words)
    _require_usable(text, stack)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(words[0]).name)[:24].strip("-.")
    return Build(text, replace(stack, name=f"{GATE_PREFIX}{name}-{_content_digest(stack)}"), is_made=True)


def _require_usable(text: str, stack: Stack) -> None:
    if stack.status != "installed":
        raise UsageError(f"the build '{text}' cannot be run: {stack.note}")


def _content_digest(stack: Stack) -> str:
    """Equal for builds with the same parts, settings and library files."""
    listed = []
    for directory in stack.paths.get("LD_LIBRARY_PATH", ()):
        try:
            found = [entry for entry in os.scandir(directory) if ".so" in entry.name and entry.is_file()]
        except OSError as error:
            raise InputError(f"{directory}: cannot be read: {error.strerror}") from error
        listed += [(entry.path, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in found]
    text = json.dumps([stack.to_json(), sorted(listed)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
