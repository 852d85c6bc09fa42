"""Events: what happened to a machine and when, kept in `reference/events/<system>.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iowatch.events.model import Event, EventFile, Evidence, Part
from iowatch.yamlfile import append, of_system, path_in_reference, validated

__all__ = ["Event", "Evidence", "Part", "add", "load", "path_of"]

_KNOWN = "docs/findings.md, 'Events', lists the fields."


def path_of(system: str) -> Path:
    """The file of a system's events."""
    return path_in_reference("events", system)


def load(system: str) -> tuple[Event, ...]:
    """Events of a system by date; none where there is no file.

    Raises:
        InputError: the file is damaged; every fault is named with file, line and field.
    """
    file = of_system(path_of(system), system, EventFile, _KNOWN)
    return tuple(sorted(file.events, key=lambda e: e.date)) if file else ()


def add(system: str, entry: dict[str, Any]) -> Event:
    """Append an event to the file of its system; what is in it stays as it is, comments too.

    Args:
        entry: fields of `Event`; None, empty texts and empty collections are left out.

    Raises:
        InputError: not a valid event, or the file is damaged.
    """
    path = path_of(system)
    load(system)
    kept = {name: value for name, value in entry.items() if value}
    event = validated(path, kept, Event, _KNOWN, entry=f"event of '{system}'")
    append(path, system, "events", kept)
    return event
