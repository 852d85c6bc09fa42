"""What a log does not say of accesses through MPI-IO: which ones are collective, and their offsets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iowatch.applications.workloads.divisions import Arrays, Division, Pieces
from iowatch.applications.workloads.uses import ACCESS, FileUse
from iowatch.core import format_count

# Collective times the other accesses of a rank: memory for finding which are which.
_MAX_PAIRS = 50_000_000
# Pieces of a rank in one collective access; a description lists them.
_MAX_PIECES = 256


@dataclass(frozen=True)
class VerbCounts:
    """How many transfers of one verb the ranks of a file made through MPI-IO, all ranks together."""

    is_write: bool
    collective: int
    independent: int


def mark_collective(file: FileUse, counts: VerbCounts, arrays: Arrays) -> bool:
    """Mark the collective accesses of one verb; False if the ranks do not have the same number of them.

    Where a rank has both, the collective ones are those with sizes of accesses to arrays, if each rank has as many of
    these as collective ones, or else those that happen when those of the other ranks do.

    Args:
        file: whose accesses are marked.
        counts: of reads or of writes; these are marked.
        arrays: those of the log.
    """
    positions_of_rank: dict[int, NDArray[np.int64]] = {}
    for rank, use in file.ranks.items():
        positions_of_rank[rank] = np.flatnonzero(use.accesses["write"] == counts.is_write)
    # Each rank takes part in every collective transfer.
    per_rank, remainder = divmod(counts.collective, len(file.ranks))
    access_counts = [len(positions) for positions in positions_of_rank.values()]
    most_others = max(access_counts) - per_rank
    if remainder or min(access_counts) < per_rank or per_rank * most_others > _MAX_PAIRS:
        return False

    # By their sizes, else by their times; without independent ones all accesses are collective.
    array_positions = _positions_of_array_sizes(file, positions_of_rank, arrays)
    if all(len(positions) == per_rank for positions in array_positions.values()):
        positions_of_rank = array_positions
    elif counts.independent:
        times = _collective_times(file, positions_of_rank, per_rank)
        for rank, positions in positions_of_rank.items():
            times_of_rank = _times(file.ranks[rank].accesses[positions])
            positions_of_rank[rank] = positions[_nearest_in_order(times_of_rank, times)]
    for rank, positions in positions_of_rank.items():
        file.ranks[rank].accesses["collective"][positions] = True
    return True


def _positions_of_array_sizes(
    file: FileUse, positions_of_rank: Mapping[int, NDArray[np.int64]], arrays: Arrays
) -> dict[int, NDArray[np.int64]]:
    """Those of the positions at which an access has the size of an access to an array."""
    array_sizes = list(arrays.lengths)
    array_positions = {}
    for rank, positions in positions_of_rank.items():
        sizes = file.ranks[rank].accesses["size"][positions]
        array_positions[rank] = positions[np.isin(sizes, array_sizes)]
    return array_positions


def _times(rows: NDArray[np.void]) -> NDArray[np.float64]:
    """Starts and ends of accesses in seconds, (2, n)."""
    return np.stack([rows["start"], rows["end"]])


def _collective_times(
    file: FileUse, positions_of_rank: Mapping[int, NDArray[np.int64]], per_rank: int
) -> NDArray[np.float64]:
    """When the collective accesses of one kind are, (2, per_rank)."""
    # Ranks that have no others agree about it: their mean.
    times_without_others = []
    for rank, positions in positions_of_rank.items():
        if len(positions) == per_rank:
            times_without_others.append(_times(file.ranks[rank].accesses[positions]))
    if times_without_others:
        return np.asarray(np.mean(times_without_others, axis=0))
    # Else those of the rank with the fewest others, at which most ranks have an access.
    leader = min(positions_of_rank, key=lambda rank: len(positions_of_rank[rank]))
    positions = positions_of_rank[leader]
    most_overlaps = np.argsort(-_count_overlaps(file, leader, positions), kind="stable")[:per_rank]
    return _times(file.ranks[leader].accesses[np.sort(positions[most_overlaps])])


def _count_overlaps(file: FileUse, leader: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many other ranks have an access at the same time, for each of these accesses of a rank."""
    accesses = file.ranks[leader].accesses[positions]
    overlaps = np.zeros(len(positions), dtype=np.int64)
    for rank, use in file.ranks.items():
        if rank == leader or not len(use.accesses):
            continue
        started_before_end = np.searchsorted(use.accesses["start"], accesses["end"])
        ended_before_start = np.searchsorted(np.maximum.accumulate(use.accesses["end"]), accesses["start"])
        overlaps += started_before_end > ended_before_start
    return overlaps


def _nearest_in_order(times: NDArray[np.float64], targets: NDArray[np.float64]) -> list[int]:
    """Increasing positions in `times` (2, n), one for each of `targets` (2, k), with the smallest sum of differences.

    Dynamic programming over the targets: target `t` can be at the positions `t` to `t + spare`, and the state is the
    number of positions that were passed over up to it, which never becomes smaller.
    """
    target_count = targets.shape[1]
    spare = times.shape[1] - target_count
    smallest_sums = np.zeros(spare + 1)
    passed_before: list[NDArray[np.int32]] = []
    for number, target in enumerate(targets.T):
        # The best state before each one: with as many positions passed over, or fewer.
        best_sums = np.minimum.accumulate(smallest_sums)
        states = np.where(smallest_sums == best_sums, np.arange(spare + 1), 0)
        passed_before.append(np.maximum.accumulate(states).astype(np.int32))
        differences = np.abs(times[:, number : number + spare + 1] - target[:, None]).sum(axis=0)
        smallest_sums = best_sums + differences
    # From the best end back to the first target.
    passed = int(np.argmin(smallest_sums))
    positions = []
    for number in reversed(range(target_count)):
        positions.append(number + passed)
        passed = int(passed_before[number][passed])
    return positions[::-1]


def _collective_turns(file: FileUse, write: bool) -> Iterator[tuple[int, ...]]:
    """Yield the positions of the accesses of one kind that all ranks of the file make together, one per rank."""
    positions_of_ranks = []
    for use in file.ranks.values():
        is_in_turn = use.accesses["collective"] & (use.accesses["write"] == write)
        positions_of_ranks.append(np.flatnonzero(is_in_turn).tolist())
    yield from zip(*positions_of_ranks, strict=True)


def _accesses_of_turn(file: FileUse, turn: Sequence[int]) -> list[np.void]:
    """The access of each rank in a collective turn."""
    return [use.accesses[position] for use, position in zip(file.ranks.values(), turn, strict=True)]


def divide_arrays(file: FileUse, arrays: Arrays) -> None:
    """Mark the collective accesses that are parts of arrays, by their offsets."""
    ranks = list(file.ranks)
    for write in (True, False):
        for turn in _collective_turns(file, write):
            accesses = _accesses_of_turn(file, turn)
            sizes = [int(access["size"]) for access in accesses]
            offsets = [int(access["offset"]) for access in accesses]
            division = arrays.find(ranks, sizes, offsets)
            if division is not None:
                first_offset = min(offset for offset, size in zip(offsets, sizes, strict=True) if size)
                _set_division(file, turn, division, first_offset)


def _set_division(file: FileUse, turn: Sequence[int], division: Division | Pieces, offset: int) -> None:
    if isinstance(division, Division) and division.is_contiguous:
        # A view for one piece of the file says that it was several in memory.
        is_divided_in_memory = file.has_view_per_access and len(division.shape) > 1
        if not is_divided_in_memory:
            return
    for use, position in zip(file.ranks.values(), turn, strict=True):
        use.accesses["division"][position] = file.number_of(division)
        use.accesses["offset"][position] = offset


def infer_offsets(file: FileUse, below: Mapping[int, NDArray[np.void]], arrays: Arrays) -> str:
    """Set the unknown offsets of a file of MPI-IO from the POSIX accesses below; return in words what was not found.

    Accesses to arrays that the ranks divide in a known way are marked.

    Args:
        file: whose accesses have no offsets.
        below: rank to its accesses to the file through POSIX.
        arrays: those of the log.
    """
    inference = _OffsetInference(file, below, arrays, ends=dict.fromkeys(file.ranks, 0))
    for rank in file.ranks:
        inference.place_independent(rank)
    for write in (True, False):
        for turn in _collective_turns(file, write):
            inference.place_collective(turn, write)
    if not inference.guessed:
        return ""
    return f"; {format_count(inference.guessed, 'transfer')} without any below are put behind the one before"


@dataclass
class _OffsetInference:
    """Finds the offsets of one file.

    Attributes:
        file, below, arrays: as for `infer_offsets`.
        ends: rank to the end of its last transfer that has a place, in bytes.
        guessed: number of transfers without any access below.
    """

    file: FileUse
    below: Mapping[int, NDArray[np.void]]
    arrays: Arrays
    ends: dict[int, int]
    guessed: int = 0

    def place_independent(self, rank: int) -> None:
        """Give each independent transfer of a rank the offset of what the rank accesses below it, else of its end."""
        for access in self.file.ranks[rank].accesses:
            if access["collective"]:
                continue
            ranges = self._ranges_below([rank], bool(access["write"]), [access])
            access["offset"] = self.ends[rank]
            if ranges and ranges[-1].end - ranges[0].offset >= access["size"]:
                access["offset"] = ranges[0].offset
            elif access["size"] > 0:
                self.guessed += 1
            self.ends[rank] = int(access["offset"] + access["size"])

    def place_collective(self, turn: Sequence[int], write: bool) -> None:
        """Give the ranks their offsets in one collective transfer, in the order of the ranks."""
        ranks = list(self.file.ranks)
        accesses = _accesses_of_turn(self.file, turn)
        sizes = np.array([int(access["size"]) for access in accesses])
        ranges = self._ranges_below(ranks, write, accesses)
        offsets = _fill_ranges(ranges, sizes)
        if offsets is None:
            self.guessed += int(bool(sizes.any()))
            offsets = max(self.ends.values()) + np.cumsum(sizes) - sizes
        for rank, position, size, offset in zip(ranks, turn, sizes.tolist(), offsets.tolist(), strict=True):
            self.file.ranks[rank].accesses["offset"][position] = offset
            self.ends[rank] = offset + size

        division: Division | Pieces | None = None
        if len(ranges) == 1 and ranges[0].size == sizes.sum():
            division = self.arrays.find(ranks, sizes.tolist(), None)
        if division is None and self.file.has_views:
            division = self._pieces_of_ranks(ranks, write, accesses)
        if division is not None:
            _set_division(self.file, turn, division, ranges[0].offset)

    def _pieces_of_ranks(self, ranks: Sequence[int], write: bool, accesses: Sequence[np.void]) -> Pieces | None:
        """The pieces of each rank if each accessed its own bytes in POSIX; None if not, or if they are in a row."""
        ranges_of_ranks = []
        for rank, access in zip(ranks, accesses, strict=True):
            ranges = self._ranges_below([rank], write, [access])
            if sum(piece.size for piece in ranges) != access["size"]:
                return None
            ranges_of_ranks.append(ranges)
        most_pieces = max(map(len, ranges_of_ranks))
        if not 1 < most_pieces <= _MAX_PIECES or _overlap(ranges_of_ranks):
            return None
        first_offset = min(ranges[0].offset for ranges in ranges_of_ranks if ranges)
        pieces_of_ranks = [_padded_pieces(ranges, first_offset, most_pieces) for ranges in ranges_of_ranks]
        return Pieces(tuple(ranks), tuple(pieces_of_ranks))

    def _ranges_below(self, ranks: Sequence[int], write: bool, accesses: Sequence[np.void]) -> list[_ByteRange]:
        """Ranges that ranks access through POSIX during their transfers; adjacent and overlapping ones are one."""
        tables = [np.zeros(0, ACCESS)]
        for rank, access in zip(ranks, accesses, strict=True):
            if rank in self.below:
                table = self.below[rank]
                first, end = np.searchsorted(table["start"], [access["start"], access["end"]], side="left")
                tables.append(table[first : max(end, first)])
        rows = np.concatenate(tables)
        rows = rows[(rows["write"] == write) & (rows["size"] > 0)]
        ranges: list[_ByteRange] = []
        for offset, size in sorted(zip(rows["offset"].tolist(), rows["size"].tolist(), strict=True)):
            if ranges and offset <= ranges[-1].end:
                longer_end = max(ranges[-1].end, offset + size)
                ranges[-1] = _ByteRange(ranges[-1].offset, longer_end - ranges[-1].offset)
            else:
                ranges.append(_ByteRange(offset, size))
        return ranges


@dataclass(frozen=True)
class _ByteRange:
    """Bytes of a file in a row."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """First byte behind it."""
        return self.offset + self.size


def _overlap(ranges_of_ranks: Sequence[Sequence[_ByteRange]]) -> bool:
    """Whether a byte is in the ranges of two ranks."""
    ranges: list[_ByteRange] = []
    for ranges_of_rank in ranges_of_ranks:
        ranges += ranges_of_rank
    # In order, an overlap is always with the next range.
    ranges.sort(key=lambda piece: (piece.offset, piece.end))
    return any(following.offset < piece.end for piece, following in itertools.pairwise(ranges))


def _padded_pieces(ranges: Sequence[_ByteRange], first_offset: int, length: int) -> tuple[tuple[int, int], ...]:
    """(start, size) of each piece behind an offset, filled up with empty ones at the end of the last piece."""
    pieces = [(piece.offset - first_offset, piece.size) for piece in ranges] or [(0, 0)]
    end = sum(pieces[-1])
    pieces += [(end, 0)] * (length - len(pieces))
    return tuple(pieces)


def _fill_ranges(ranges: Sequence[_ByteRange], sizes: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Where each rank's bytes begin if the ranks fill the ranges in order; None if the ranges are too small."""
    if not ranges or sum(piece.size for piece in ranges) < sizes.sum():
        return None
    range_offsets = np.array([piece.offset for piece in ranges])
    # Bytes that are in the ranges before each one, and bytes of the ranks before each one.
    bytes_before_range = np.concatenate([[0], np.cumsum([piece.size for piece in ranges])])
    bytes_before_rank = np.cumsum(sizes) - sizes
    range_of_rank = np.searchsorted(bytes_before_range, bytes_before_rank, side="right") - 1
    range_of_rank = np.minimum(range_of_rank, len(ranges) - 1)
    offsets = range_offsets[range_of_rank] + bytes_before_rank - bytes_before_range[range_of_rank]
    # A rank without data: any place will do, and one that others have makes a shorter description.
    first_with_data = np.argmax(sizes > 0)
    return np.asarray(np.where(sizes > 0, offsets, offsets[first_with_data]))
