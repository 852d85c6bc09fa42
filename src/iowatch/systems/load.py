"""Reads `systems/<name>/system.yaml`; faults are told with file, line and field, all of a file together."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from iowatch import paths
from iowatch.errors import InputError, UsageError, near_miss
from iowatch.systems.model import System
from iowatch.yamlfile import read_document, validated

TEMPLATE = "_template"


def names() -> list[str]:
    """Names of all systems, sorted: the folders of `systems/` with a `system.yaml`."""
    return sorted(
        p.parent.name for p in (paths.root() / "systems").glob("*/system.yaml") if p.parent.name != TEMPLATE
    )


def directory(name: str) -> Path:
    """The folder of a system.

    Raises:
        UsageError: no such system.
    """
    known = names()
    if name not in known:
        raise UsageError(
            f"no system '{name}'", hint=f"{near_miss(name, known)} `iowatch system init` makes one."
        )
    return paths.root() / "systems" / name


def read(path: Path) -> System:
    """A system of one file.

    Raises:
        InputError: not readable, not YAML, or against the schema.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    system = validated(path, read_document(path), System, "docs/systems.md lists the fields.")
    if system.name != path.parent.name:
        raise InputError(f"{path}: field 'name' is '{system.name}', expected '{path.parent.name}' (its folder)")
    return system


@cache
def _cached(path: Path, _changed_ns: int) -> System:
    return read(path)


def load(name: str) -> System:
    """The facts of a system.

    Raises:
        UsageError: no such system.
        InputError: its file is damaged.
    """
    path = directory(name) / "system.yaml"
    return _cached(path, path.stat().st_mtime_ns)
