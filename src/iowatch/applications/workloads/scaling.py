"""Whether a description of a trace holds for other numbers of ranks, too.

One trace shows one number of ranks. Only where every rank does the same in files of its own, or in a part of its own of
a shared file that is as long as that of all others, another number can be meant in one way only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from iowatch.applications.workloads.families import Family
from iowatch.applications.workloads.uses import FileUse

_COMPARED_FIELDS = ["write", "collective", "offset", "size", "count", "stride"]
# Members of an action that may depend on the rank: places in a rank's own part.
_PLACES = ("offset", "list")


def make_scalable(families: Iterable[Family], phases: Iterable[dict[str, Any]], ranks: int) -> bool:
    """Write sizes of files as expressions of `ranks` if the description holds for any number; False if it does not."""
    all_families = list(families)
    if ranks < 2 or not all(_is_regular(family, ranks) for family in all_families):
        return False
    for phase in phases:
        if any(_names_ranks(action) for action in _actions(phase["actions"])):
            return False
    for family in all_families:
        if not _is_per_process(family):
            part_bytes = family.document["bytes"] // ranks
            family.document["bytes"] = f"ranks * {part_bytes}"
    return True


def _is_per_process(family: Family) -> bool:
    return family.document.get("layout") == "per-process"


def _is_regular(family: Family, ranks: int) -> bool:
    """Whether all ranks do the same, in files of their own or in equal parts of a shared file."""
    if {"ranks", "group", "same_as"} & family.document.keys():
        return False
    if _is_per_process(family):
        return _are_same_files(family, ranks)
    part_bytes, remainder = divmod(family.document["bytes"], ranks)
    if remainder:
        return False
    return all(_has_equal_parts(file, part_bytes) for file, _ in family.files)


def _are_same_files(family: Family, ranks: int) -> bool:
    """Whether each rank does the same with its files: those with the same number are the same file."""
    uses_of_number: dict[int, list[bytes]] = {}
    for file, numbers in family.files:
        for rank, number in numbers.items():
            uses_of_number.setdefault(number, []).append(_use_of_part(file, rank, part_bytes=0))
    return all(len(uses) == ranks and len(set(uses)) == 1 for uses in uses_of_number.values())


def _has_equal_parts(file: FileUse, part_bytes: int) -> bool:
    """Whether each rank does the same in its part of a file, and nothing outside."""
    uses = {_use_of_part(file, rank, part_bytes) for rank in file.ranks}
    return len(uses) == 1 and _stays_inside(file, part_bytes)


def _use_of_part(file: FileUse, rank: int, part_bytes: int) -> bytes:
    """What a rank does, with offsets in its own part of the file."""
    rows = file.ranks[rank].accesses[_COMPARED_FIELDS].copy()
    rows["offset"] -= rank * part_bytes
    return rows.tobytes()


def _stays_inside(file: FileUse, part_bytes: int) -> bool:
    rows = file.ranks[0].accesses
    ends = rows["offset"] + (rows["count"] - 1) * rows["stride"] + rows["size"]
    return bool((rows["offset"] >= 0).all() and (np.asarray(ends) <= part_bytes).all())


def _actions(actions: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield all actions, those inside of repeats too; barriers are texts."""
    for action in actions:
        if isinstance(action, dict):
            yield action
            yield from _actions(action.get("actions", ()))


def _names_ranks(action: dict[str, Any]) -> bool:
    """Whether an action is one of some ranks only, or does another thing on each rank."""
    if "ranks" in action:
        return True
    values = [value for name, value in action.items() if name not in (*_PLACES, "actions")]
    values += [size for _, size in action.get("list", ())]
    return any("rank" in str(value) for value in values)
