"""Stacks: the libraries of each stack, their differences, and their changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iowatch.core import InputError
from iowatch.output.dashboard import Page, SiteBuild, SystemEntry
from iowatch.site import Stack, StackDiff, diff_stacks, stack_from_json
from iowatch.store import StackUse, bulk

# Contents of stacks by digest: the name of the stack, and its document.
Documents = Mapping[str, tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True, order=True)
class _StackKey:
    """Stacks of one name may differ between partitions."""

    name: str
    partition: str


@dataclass(frozen=True)
class PartBuild:
    """A part of a stack as it was built; unknown fields are empty, an unknown version is `?`."""

    version: str
    hash: str
    compiler: str


@dataclass(frozen=True)
class PartRow:
    """A part in each stack of a system.

    Attributes:
        builds: in the order of the stacks; None in a stack without the part.
        differs: in what the stacks differ: `version`, `build` (of one version), or empty.
    """

    name: str
    builds: Sequence[PartBuild | None]
    differs: str


@dataclass(frozen=True)
class StackChange:
    """A change of the content of a stack; `differences` is None if the content was not recorded."""

    use: StackUse
    before: StackUse
    differences: StackDiff | None


def publish_stacks_page(site: SiteBuild) -> None:
    """Write `stacks.html`."""
    with site.history.reading() as connection:
        documents = bulk.stack_documents(connection)
    systems = [_system_stacks(machine, documents) for machine in site.catalogue.machines if machine.stacks]
    site.write_page("stacks.html", "stacks.html", systems=systems)


PAGE = Page("stacks.html", "Stacks", 7, publish_stacks_page)


def _system_stacks(machine: SystemEntry, documents: Documents) -> dict[str, Any]:
    newest_use: dict[_StackKey, StackUse] = {}
    for use in sorted(machine.stacks, key=lambda use: use.last):
        newest_use[_StackKey(use.name, use.partition)] = use
    uses = [newest_use[key] for key in sorted(newest_use)]
    builds_of_stacks = [_builds_by_part(documents[use.digest][1]) for use in uses]
    part_names: set[str] = set()
    for builds in builds_of_stacks:
        part_names.update(builds)
    return {
        "machine": machine,
        "stacks": [(use, documents[use.digest][1].get("kind")) for use in uses],
        "partitions": len({use.partition for use in machine.stacks}) > 1,
        "rows": [_part_row(name, builds_of_stacks) for name in sorted(part_names)],
        "changes": _stack_changes(machine, documents),
    }


def _part_row(name: str, builds_of_stacks: Sequence[Mapping[str, PartBuild]]) -> PartRow:
    """A part in each of the stacks, and in what the stacks differ."""
    builds = [builds_of_part.get(name) for builds_of_part in builds_of_stacks]
    # A part that a stack lacks is another version.
    versions = {build.version if build else None for build in builds}
    hashes = {build.hash for build in builds if build and build.hash}
    differs = ""
    if len(versions) > 1:
        differs = "version"
    elif len(hashes) > 1:
        differs = "build"
    return PartRow(name, builds, differs)


def _builds_by_part(document: Mapping[str, Any]) -> dict[str, PartBuild]:
    """The parts of a stack by name; documents are untrusted and any field may be missing."""
    parts = document.get("parts")
    if not isinstance(parts, list):
        return {}
    builds: dict[str, PartBuild] = {}
    for part in parts:
        if isinstance(part, dict):
            builds[str(part.get("name", "?"))] = PartBuild(
                version=str(part.get("version", "?")),
                hash=str(part.get("hash") or ""),
                compiler=str(part.get("compiler") or ""),
            )
    return builds


def _stack_changes(machine: SystemEntry, documents: Documents) -> list[StackChange]:
    """Changes of the content of each stack on a partition with the stack diff, newest first."""
    changes: list[StackChange] = []
    last_use: dict[_StackKey, StackUse] = {}
    # In order of time.
    for use in machine.stacks:
        key = _StackKey(use.name, use.partition)
        before = last_use.get(key)
        if before is not None and before.digest != use.digest:
            left = _stack_from_document(documents[before.digest][1])
            right = _stack_from_document(documents[use.digest][1])
            differences = None
            if left is not None and right is not None:
                differences = diff_stacks(left, right)
            changes.append(StackChange(use, before, differences))
        last_use[key] = use
    changes.reverse()
    return changes


def _stack_from_document(document: Mapping[str, Any]) -> Stack | None:
    try:
        return stack_from_json(document, "history")
    except (InputError, AttributeError):
        return None
