"""Whether a description of a trace holds for other numbers of ranks, too.

One trace shows one number of ranks. Only where every rank does the same in files of its own, or in a part of its own of
a shared file that is as long as that of all others, another number can be meant in one way only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from iowatch.applications.workloads.inferred import FileUse
from iowatch.applications.workloads.streams import Family

_PLACES = ["write", "collective", "offset", "size", "count", "stride"]
# Members of an action that may depend on the rank: places in a rank's own part.
_PLACED = ("offset", "list")


def make_scalable(families: Iterable[Family], phases: Iterable[dict[str, Any]], ranks: int) -> bool:
    """Write sizes of files as expressions of `ranks` if the description holds for any number; False if it does not."""
    families = list(families)
    if ranks < 2 or not all(_is_regular(family, ranks) for family in families):
        return False
    if any(_names_ranks(action) for phase in phases for action in _actions(phase["actions"])):
        return False
    for family in families:
        if not _is_own(family):
            family.document["bytes"] = f"ranks * {family.document['bytes'] // ranks}"
    return True


def _is_own(family: Family) -> bool:
    return family.document.get("layout") == "per-process"


def _is_regular(family: Family, ranks: int) -> bool:
    if {"ranks", "group"} & family.document.keys():
        return False
    if _is_own(family):
        # Each file has one rank; those with the same number are the same file of the description.
        parts: dict[int, list[bytes]] = {}
        for file, numbers in family.files:
            for rank, number in numbers.items():
                parts.setdefault(number, []).append(_part(file, rank, 0))
        return all(len(found) == ranks and len(set(found)) == 1 for found in parts.values())
    length, rest = divmod(family.document["bytes"], ranks)
    return not rest and all(
        len({_part(file, rank, length) for rank in file.ranks}) == 1 and _stays_inside(file, length)
        for file, _ in family.files
    )


def _part(file: FileUse, rank: int, length: int) -> bytes:
    """What a rank does, with offsets in its own part of the file."""
    rows = file.ranks[rank].accesses[_PLACES].copy()
    rows["offset"] -= rank * length
    return rows.tobytes()


def _stays_inside(file: FileUse, length: int) -> bool:
    rows = file.ranks[0].accesses
    ends = rows["offset"] + (rows["count"] - 1) * rows["stride"] + rows["size"]
    return bool((rows["offset"] >= 0).all() and (np.asarray(ends) <= length).all())


def _actions(actions: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for action in actions:
        if isinstance(action, dict):
            yield action
            yield from _actions(action.get("actions", ()))


def _names_ranks(action: dict[str, Any]) -> bool:
    """Whether an action is one of some ranks only, or does another thing on each rank."""
    others = {name: value for name, value in action.items() if name not in (*_PLACED, "actions")}
    sizes = [size for _, size in action.get("list", ())]
    return "ranks" in action or any("rank" in str(value) for value in (*others.values(), *sizes))
