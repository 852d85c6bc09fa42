"""Stacks: what was measured with which libraries, where they differ, when they changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iowatch.dashboard.catalogue import Machine
from iowatch.dashboard.context import Site
from iowatch.errors import InputError
from iowatch.stacks.diff import StackDiff, diff
from iowatch.stacks.model import Stack, from_json
from iowatch.store import bulk
from iowatch.store.bulk import StackUse

Documents = Mapping[str, tuple[str, Mapping[str, Any]]]
# A stack of one name may be another one on another partition.
Key = tuple[str, str]


@dataclass(frozen=True)
class Build:
    """A part of a stack as it was measured with; documents come from outside and may lack anything."""

    version: str
    hash: str
    compiler: str


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
    newest: dict[Key, StackUse] = {
        (u.partition, u.name): u for u in sorted(machine.stacks, key=lambda u: u.last)
    }
    uses = [newest[key] for key in sorted(newest, key=lambda key: (key[1], key[0]))]
    builds = [_builds(documents[use.digest][1]) for use in uses]
    rows = [
        (name, [known.get(name) for known in builds], _differs([known.get(name) for known in builds]))
        for name in sorted({part for known in builds for part in known})
    ]
    return {
        "machine": machine,
        "stacks": [(use, documents[use.digest][1].get("kind")) for use in uses],
        "partitions": len({use.partition for use in machine.stacks}) > 1,
        "rows": rows,
        "changes": list(_changes(machine, documents)),
    }


def _differs(builds: Sequence[Build | None]) -> str:
    """What is not the same in all stacks: the version, the build of one version, or nothing."""
    if len({build and build.version for build in builds}) > 1:
        return "version"
    hashes = {build.hash for build in builds if build is not None} - {""}
    return "build" if len(hashes) > 1 else ""


def _builds(document: Mapping[str, Any]) -> dict[str, Build]:
    """Builds by the name of their part."""
    parts = document.get("parts")
    known = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return {
        str(part.get("name", "?")): Build(
            str(part.get("version", "?")), str(part.get("hash") or ""), str(part.get("compiler") or "")
        )
        for part in known
    }


def _changes(machine: Machine, documents: Documents) -> Iterator[dict[str, Any]]:
    """Where one name came with another content on one partition: what differs, newest first."""
    found = []
    last: dict[Key, StackUse] = {}
    for use in machine.stacks:
        before = last.get((use.partition, use.name))
        if before is not None and before.digest != use.digest:
            found.append({"use": use, "before": before, "differences": _differences(documents, before, use)})
        last[use.partition, use.name] = use
    yield from found[::-1]


def _differences(documents: Documents, before: StackUse, after: StackUse) -> StackDiff | None:
    stacks = [_stack(documents[use.digest][1]) for use in (before, after)]
    return diff(stacks[0], stacks[1]) if stacks[0] and stacks[1] else None


def _stack(document: Mapping[str, Any]) -> Stack | None:
    try:
        return from_json(document, "history")
    except (InputError, AttributeError):
        return None
