"""Stacks: the libraries of each stack, their differences, and their changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iowatch.core import InputError
from iowatch.output.dashboard import Page, SiteBuild, SystemEntry
from iowatch.site import Stack, diff_stacks, stack_from_json
from iowatch.store import StackUse, bulk

Documents = Mapping[str, tuple[str, Mapping[str, Any]]]
# Partition and name: stacks of one name may differ between partitions.
Key = tuple[str, str]


def publish_stacks_page(site: SiteBuild) -> None:
    """Write `stacks.html`."""
    with site.history.reading() as connection:
        documents = bulk.stack_documents(connection)
    systems = [_system_stacks(machine, documents) for machine in site.catalogue.machines if machine.stacks]
    site.write_page("stacks.html", "stacks.html", systems=systems)


PAGE = Page("stacks.html", "Stacks", 7, publish_stacks_page)


def _system_stacks(machine: SystemEntry, documents: Documents) -> dict[str, Any]:
    newest: dict[Key, StackUse] = {(u.partition, u.name): u for u in sorted(machine.stacks, key=lambda u: u.last)}
    uses = [newest[key] for key in sorted(newest, key=lambda key: (key[1], key[0]))]
    builds = [_builds_by_part(documents[use.digest][1]) for use in uses]
    rows = []
    for name in sorted({part for known in builds for part in known}):
        found = [known.get(name) for known in builds]
        # The difference between the stacks: the version, the build of one version, or none.
        hashes = {build["hash"] for build in found if build is not None} - {""}
        differs = "build" if len(hashes) > 1 else ""
        rows.append((name, found, "version" if len({build and build["version"] for build in found}) > 1 else differs))
    return {
        "machine": machine,
        "stacks": [(use, documents[use.digest][1].get("kind")) for use in uses],
        "partitions": len({use.partition for use in machine.stacks}) > 1,
        "rows": rows,
        "changes": _stack_changes(machine, documents),
    }


def _builds_by_part(document: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Version, hash and compiler by name of the part; documents are untrusted and any field may be missing."""
    parts = document.get("parts")
    known = [part for part in (parts if isinstance(parts, list) else ()) if isinstance(part, dict)]
    return {
        str(part.get("name", "?")): {
            "version": str(part.get("version", "?")),
            **{key: str(part.get(key) or "") for key in ("hash", "compiler")},
        }
        for part in known
    }


def _stack_changes(machine: SystemEntry, documents: Documents) -> list[dict[str, Any]]:
    """Changes of the content of each stack on a partition with the stack diff, newest first."""
    found = []
    last: dict[Key, StackUse] = {}
    for use in machine.stacks:
        before = last.get((use.partition, use.name))
        if before is not None and before.digest != use.digest:
            left, right = (_stack_from_document(documents[one.digest][1]) for one in (before, use))
            differences = diff_stacks(left, right) if left and right else None
            found.append({"use": use, "before": before, "differences": differences})
        last[use.partition, use.name] = use
    return found[::-1]


def _stack_from_document(document: Mapping[str, Any]) -> Stack | None:
    try:
        return stack_from_json(document, "history")
    except (InputError, AttributeError):
        return None
