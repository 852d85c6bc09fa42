"""Stacks: what was measured with which libraries, where they differ, when they changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iowatch.dashboard.catalogue import Machine
from iowatch.dashboard.context import Site
from iowatch.errors import InputError
from iowatch.stacks.diff import StackDiff, diff
from iowatch.stacks.model import Stack, from_json
from iowatch.store import bulk
from iowatch.store.bulk import StackUse

Documents = Mapping[str, tuple[str, Mapping[str, Any]]]


def publish(site: Site) -> None:
    """Write `stacks.html`."""
    basis = [
        (m.name, [(u.partition, u.name, u.digest, u.first, u.last, u.runs) for u in m.stacks])
        for m in site.catalogue.machines
    ]
    site.page("stacks.html", "stacks.html", basis, lambda: _values(site))


def _values(site: Site) -> dict[str, Any]:
    with site.history.reading() as connection:
        documents = bulk.stack_documents(connection)
    return {"systems": [_system(machine, documents) for machine in site.catalogue.machines if machine.stacks]}


def _system(machine: Machine, documents: Documents) -> dict[str, Any]:
    newest: dict[str, StackUse] = {use.name: use for use in sorted(machine.stacks, key=lambda u: u.last)}
    parts = {name: _parts(documents[use.digest][1]) for name, use in newest.items()}
    names = sorted({part for known in parts.values() for part in known})
    rows = [(name, [known.get(name) for known in parts.values()]) for name in names]
    return {
        "machine": machine,
        "stacks": list(newest.values()),
        "rows": [(name, cells, len(set(cells)) > 1) for name, cells in rows],
        "changes": list(_changes(machine, documents)),
    }


def _parts(document: Mapping[str, Any]) -> dict[str, str]:
    """Version by part; documents come from outside and may hold anything."""
    parts = document.get("parts")
    known = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return {str(part.get("name", "?")): str(part.get("version", "?")) for part in known}


def _changes(machine: Machine, documents: Documents) -> list[dict[str, Any]]:
    """Where one name came with another content: what differs, newest first."""
    found = []
    last: dict[tuple[str, str], StackUse] = {}
    for use in machine.stacks:
        before = last.get((use.partition, use.name))
        if before is not None and before.digest != use.digest:
            found.append({"use": use, "differences": _differences(documents, before, use)})
        last[use.partition, use.name] = use
    return found[::-1]


def _differences(documents: Documents, before: StackUse, after: StackUse) -> StackDiff | None:
    stacks = [_stack(documents[use.digest][1]) for use in (before, after)]
    return diff(stacks[0], stacks[1]) if stacks[0] and stacks[1] else None


def _stack(document: Mapping[str, Any]) -> Stack | None:
    try:
        return from_json(document, "history")
    except (InputError, AttributeError):
        return None
