"""Reads `systems/<name>/system.yaml`; faults are told with file, line and field, all of a file together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from iowatch import paths
from iowatch.errors import InputError, UsageError, near_miss
from iowatch.systems.model import System

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


def _line(document: Any, location: Sequence[int | str]) -> int:
    """Line (from 1) of the deepest part of `location` that the document has."""
    line = 0
    for key in location:
        marks = getattr(document, "lc", None)
        if marks is None or not isinstance(document, (dict, list)):
            break
        try:
            line = marks.item(key)[0] if isinstance(document, list) else marks.key(key)[0]
            document = document[key]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            break
    return line + 1


def _faults(path: Path, document: Any, error: ValidationError) -> str:
    """One line a fault: file, line, field, what was expected, what was found."""
    lines = []
    for fault in error.errors(include_url=False):
        field = ".".join(str(key) for key in fault["loc"])
        found = "" if fault["type"] in ("missing", "extra_forbidden") else f" (found {fault['input']!r})"
        message = "unknown field" if fault["type"] == "extra_forbidden" else fault["msg"]
        lines.append(f"{path}:{_line(document, fault['loc'])}: field '{field}': {message}{found}")
    return "\n".join(lines)


def read(path: Path) -> System:
    """A system of one file.

    Raises:
        InputError: not readable, not YAML, or against the schema.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        document = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not readable: {error}") from error
    except YAMLError as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    try:
        system = System.model_validate(document)
    except ValidationError as error:
        raise InputError(_faults(path, document, error), hint="docs/systems.md lists the fields.") from error
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
