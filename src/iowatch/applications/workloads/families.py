"""Files of a description: files that ranks use in the same way have one name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from iowatch.applications.workloads import rank_expressions
from iowatch.applications.workloads.accesses import LogUse
from iowatch.applications.workloads.uses import FileUse, RankUse

# More shared files than this are one file with a `count`.
_MAX_NAMED = 8


@dataclass(frozen=True)
class Family:
    """Files that have one name in the description.

    Attributes:
        name: in the description.
        document: its entry there.
        members: the ranks that have part in the files.
        files: each file, with its number among those of each of its ranks.
        is_numbered: whether an action says which of the files of a rank it is for.
    """

    name: str
    document: dict[str, Any]
    members: tuple[int, ...]
    files: list[tuple[FileUse, Mapping[int, int]]]
    is_numbered: bool = False


@dataclass(frozen=True)
class _Role:
    """How a file is used; files of one rank with the same role are one family.

    Attributes:
        api: `posix` or `mpiio`.
        is_input: whether it existed before.
        verbs: whether it is read and written.
        members: ranks that share it; None for a file of one rank, whichever that is.
        number: of a shared file that has a name of its own, else None.
    """

    api: str
    is_input: bool
    verbs: frozenset[str]
    members: tuple[int, ...] | None
    number: int | None


def group_files(use: LogUse) -> list[Family]:
    """Return the families of the files of a log, in the order of their first use."""
    stored_files = [file for file in use.files if file.same_as is None]
    shared_count = sum(len(file.ranks) > 1 for file in stored_files)
    files_of_role: dict[_Role, list[FileUse]] = {}
    for number, file in enumerate(stored_files):
        role = _role_of(file, number, has_own_name=shared_count <= _MAX_NAMED)
        files_of_role.setdefault(role, []).append(file)
    all_ranks = tuple(range(use.ranks))
    families: list[Family] = []
    for role, files in _in_order_of_naming(files_of_role, shared_count):
        name = f"file{len(families) + 1}"
        families.append(_build_family(name, files, all_ranks, is_alone=role.members is None))
    families = _merge_subsets(families, all_ranks)
    return [*families, *_direct_families(families, use)]


def _direct_families(families: Sequence[Family], use: LogUse) -> Iterator[Family]:
    """Yield for each family of MPI-IO what the application did with its files by POSIX."""
    direct_uses = [file for file in use.files if file.same_as is not None]
    all_ranks = tuple(range(use.ranks))
    for family in families:
        files: list[tuple[FileUse, Mapping[int, int]]] = []
        members: set[int] = set()
        largest_end = 1
        for file, numbers in family.files:
            for direct in direct_uses:
                if direct.same_as is file:
                    files.append((direct, {rank: numbers[rank] for rank in direct.ranks}))
                    members |= direct.ranks.keys()
                    ends = [_end_of(direct, rank_use) for rank_use in direct.ranks.values()]
                    largest_end = max(largest_end, *ends)
        if not files:
            continue
        ordered_members = tuple(sorted(members))
        document: dict[str, Any] = {"api": "posix", "same_as": family.name}
        ranks = rank_expressions.select_ranks(ordered_members, all_ranks)
        if ranks is not None:
            document["ranks"] = ranks
        document["bytes"] = largest_end
        # The file is as long as what either interface does.
        family.document["bytes"] = max(family.document["bytes"], largest_end)
        yield Family(f"{family.name}-posix", document, ordered_members, files, family.is_numbered)


def _role_of(file: FileUse, number: int, has_own_name: bool) -> _Role:
    """How a file is used.

    Args:
        number: of the file in the log.
        has_own_name: whether a shared file has a name of its own.
    """
    members: tuple[int, ...] | None = None
    own_number: int | None = None
    if len(file.ranks) > 1:
        members = tuple(file.ranks)
        if has_own_name:
            own_number = number
    return _Role(file.api, _is_input(file), _verbs_of(file), members, own_number)


def _in_order_of_naming(
    files_of_role: Mapping[_Role, list[FileUse]], shared_files: int
) -> list[tuple[_Role, list[FileUse]]]:
    """Roles in the order of their first use; shared files that have no name of their own come last."""
    items = list(files_of_role.items())
    if shared_files > _MAX_NAMED:
        items.sort(key=lambda item: item[0].members is not None)
    return items


def _build_family(name: str, files: Sequence[FileUse], all_ranks: tuple[int, ...], is_alone: bool) -> Family:
    members: set[int] = set()
    for file in files:
        members |= file.ranks.keys()
    ordered_members = tuple(sorted(members))
    # The files of a rank are numbered in the order of their first use.
    counts = dict.fromkeys(ordered_members, 0)
    numbered_files: list[tuple[FileUse, Mapping[int, int]]] = []
    largest_end = 1
    for file in files:
        numbered_files.append((file, {rank: counts[rank] for rank in file.ranks}))
        for rank, rank_use in file.ranks.items():
            counts[rank] += 1
            largest_end = max(largest_end, _end_of(file, rank_use))

    document: dict[str, Any] = {"api": files[0].api}
    if is_alone and len(all_ranks) > 1:
        document["layout"] = "per-process"
    ranks = rank_expressions.select_ranks(ordered_members, all_ranks)
    if ranks is not None:
        document["ranks"] = ranks
    most_files = max(counts.values())
    if most_files > 1:
        document["count"] = most_files
    document["bytes"] = largest_end
    if _is_input(files[0]):
        document["input"] = True
    return Family(name, document, ordered_members, numbered_files, is_numbered=most_files > 1)


def _merge_subsets(families: list[Family], all_ranks: tuple[int, ...]) -> list[Family]:
    """Join files that are shared by groups of ranks, each rank in one group, into one file with `group`."""
    subsets = [family for family in families if 1 < len(family.members) < len(all_ranks)]
    if len(subsets) < 2 or not _are_alike(subsets):
        return families
    # A rank that is in two groups has two files: they cannot have one name.
    members: list[int] = []
    for family in subsets:
        members.extend(family.members)
    members.sort()
    if len(set(members)) < len(members):
        return families

    # The group of a rank is the number of its lowest rank.
    lowest_of_group: dict[int, int] = {}
    files: list[tuple[FileUse, Mapping[int, int]]] = []
    for family in subsets:
        files.extend(family.files)
        for rank in family.members:
            lowest_of_group[rank] = min(family.members)
    groups = np.array([lowest_of_group[rank] for rank in members])
    first = subsets[0]
    document = {key: value for key, value in first.document.items() if key != "ranks"}
    document["group"] = rank_expressions.describe_ranks(groups, tuple(members))
    ranks = rank_expressions.select_ranks(members, all_ranks)
    if ranks is not None:
        document["ranks"] = ranks
    document["bytes"] = max(family.document["bytes"] for family in subsets)
    merged = Family(first.name, document, tuple(members), files, first.is_numbered)
    return [merged, *(family for family in families if family not in subsets)]


def _are_alike(families: Sequence[Family]) -> bool:
    """Whether documents differ in ranks and sizes only."""
    documents = []
    for family in families:
        documents.append({key: value for key, value in family.document.items() if key not in ("ranks", "bytes")})
    return all(document == documents[0] for document in documents)


def _verbs_of(file: FileUse) -> frozenset[str]:
    verbs = set()
    for use in file.ranks.values():
        if use.accesses["write"].any():
            verbs.add("write")
        if not use.accesses["write"].all():
            verbs.add("read")
    return frozenset(verbs)


def _end_of(file: FileUse, use: RankUse) -> int:
    """First byte behind all accesses of a rank to a file."""
    if not len(use.accesses):
        return 0
    return int(file.ends(use.accesses).max())


def _is_input(file: FileUse) -> bool:
    """Whether the file existed: it is read before it is written, or only opened."""
    if file.is_given is not None:
        return file.is_given
    first_accesses = [use.accesses[0] for use in file.ranks.values() if len(use.accesses)]
    if not first_accesses:
        return not file.created
    first = min(first_accesses, key=lambda access: float(access["start"]))
    return not first["write"]
