"""Accesses made up from the counters of a file, for logs without DXT: as many, as large and in as many bytes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iowatch.applications.workloads.uses import ACCESS, FileUse, Record
from iowatch.core import InputError

# The bins of Darshan's histograms of sizes, and the largest size of each.
_BINS = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M", "100M_1G", "1G_PLUS")
_BIN_ENDS = (100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30, 1 << 40)
# Darshan has so many of the most frequent sizes of a file.
_FREQUENT_SIZES = range(1, 5)


@dataclass(frozen=True)
class _SizeCount:
    """So many accesses of one size in bytes."""

    size: int
    count: int


def make_up(record: Record, prefix: str, members: Sequence[int], file: FileUse) -> bool:
    """Give each rank accesses with the counted numbers, sizes and bytes, each behind the one before.

    The largest ones are the collective ones. False if not all ranks can have the same number of those: none is, then.

    Args:
        record: the counters.
        prefix: `POSIX` or `MPIIO`.
        members: the ranks of the record.
        file: gets the accesses.
    """
    agreed = True
    written_end = 0
    for word in ("WRITE", "READ"):
        collective = 0
        if prefix == "MPIIO":
            collective = record[f"MPIIO_COLL_{word}S"] + record[f"MPIIO_SPLIT_{word}S"]
        if collective % len(members):
            agreed = False
            collective = 0
        size_counts = sorted(
            _size_counts(record, prefix, word), key=lambda entry: (entry.size, entry.count), reverse=True
        )
        together, alone = _take_first(size_counts, collective)
        start_s, end_s = _transfer_times(record, prefix, word)
        # Each rank has a part of the file, in the order of the ranks.
        part_offset = 0
        for index, rank in enumerate(members):
            rows = _make_rows(
                _deal(together, index, len(members), evenly=True),
                _deal(alone, index, len(members)),
                is_write=word == "WRITE",
            )
            moved_bytes = np.cumsum(rows["size"] * rows["count"])
            part_size = int(moved_bytes[-1]) if len(rows) else 0
            rows["offset"] = part_offset + moved_bytes - rows["size"] * rows["count"]
            if word == "READ" and written_end:
                _keep_inside(rows, written_end)
            _spread_in_time(rows, moved_bytes / max(part_size, 1), start_s, end_s)
            part_offset += part_size
            if word == "WRITE":
                written_end = max(written_end, part_offset)
            accesses = np.concatenate([file.ranks[rank].accesses, rows])
            file.ranks[rank].accesses = accesses[np.argsort(accesses["start"], kind="stable")]
    return agreed


def _spread_in_time(rows: NDArray[np.void], done_share: NDArray[np.float64], start_s: float, end_s: float) -> None:
    """Give accesses the time between two moments, by the share of the bytes that are moved when each ends."""
    rows["end"] = start_s + done_share * (end_s - start_s)
    rows["start"] = np.concatenate([[start_s], rows["end"][:-1]])[: len(rows)]


def _transfer_times(record: Record, prefix: str, word: str) -> tuple[float, float]:
    """First start and last end of reading or writing in seconds; where they overlap, reading is put behind writing."""
    start_s, end_s = _counted_times(record, prefix, word)
    if word == "WRITE":
        return start_s, end_s
    write_start_s, write_end_s = _counted_times(record, prefix, "WRITE")
    if end_s <= write_start_s or not write_end_s:
        return start_s, end_s
    start_s = max(start_s, write_end_s)
    return start_s, max(start_s, end_s)


def _counted_times(record: Record, prefix: str, word: str) -> tuple[float, float]:
    start_s = record.seconds(f"{prefix}_F_{word}_START_TIMESTAMP")
    end_s = record.seconds(f"{prefix}_F_{word}_END_TIMESTAMP")
    return start_s, max(start_s, end_s)


def _keep_inside(rows: NDArray[np.void], end: int) -> None:
    """Move reads to what was written, if they would pass its end: more was read than written, some of it again."""
    lengths = (rows["count"] - 1) * rows["stride"] + rows["size"]
    is_longer = lengths > end
    rows["stride"] = np.where(is_longer, 0, rows["stride"])
    lengths = np.where(is_longer, rows["size"], lengths)
    rows["offset"] = np.maximum(np.minimum(rows["offset"], end - lengths), 0)


def _take_first(size_counts: Sequence[_SizeCount], number: int) -> tuple[list[_SizeCount], list[_SizeCount]]:
    """The first accesses of a list, so many, and the rest."""
    first, rest = [], []
    for entry in size_counts:
        taken = min(number, entry.count)
        number -= taken
        if taken:
            first.append(_SizeCount(entry.size, taken))
        if entry.count > taken:
            rest.append(_SizeCount(entry.size, entry.count - taken))
    return first, rest


def _deal(size_counts: Sequence[_SizeCount], index: int, ranks: int, evenly: bool = False) -> list[_SizeCount]:
    """The share of one of so many ranks, dealt like cards; `evenly`: in single accesses unless all have the same."""
    is_single = evenly and any(entry.count % ranks for entry in size_counts)
    share: list[_SizeCount] = []
    dealt = 0
    for entry in size_counts:
        # Card number c goes to rank c % ranks.
        taken_before = (dealt - index + ranks - 1) // ranks
        dealt += entry.count
        taken = (dealt - index + ranks - 1) // ranks - taken_before
        if is_single:
            share += [_SizeCount(entry.size, 1)] * taken
        elif taken:
            share.append(_SizeCount(entry.size, taken))
    return share


def _make_rows(together: Sequence[_SizeCount], alone: Sequence[_SizeCount], is_write: bool) -> NDArray[np.void]:
    rows = np.zeros(len(together) + len(alone), ACCESS)
    rows["write"] = is_write
    rows["collective"][: len(together)] = True
    rows["size"] = [entry.size for entry in (*together, *alone)]
    rows["count"] = [entry.count for entry in (*together, *alone)]
    rows["stride"] = rows["size"]
    return rows


def _size_counts(record: Record, prefix: str, word: str) -> list[_SizeCount]:
    """Sizes with the counted number, bytes and histogram of sizes.

    Darshan has the four most frequent sizes of reads and writes together: those are used with which most accesses of
    this kind have a size that was counted.
    """
    histogram = _histogram(record, prefix, word)
    moved_bytes = record[f"{prefix}_BYTES_{'WRITTEN' if word == 'WRITE' else 'READ'}"]
    frequent = []
    for number in _FREQUENT_SIZES:
        entry = _SizeCount(record[f"{prefix}_ACCESS{number}_ACCESS"], record[f"{prefix}_ACCESS{number}_COUNT"])
        if entry.count:
            frequent.append(entry)
    best: list[_SizeCount] | None = None
    fewest_filled = 0
    for number in range(len(frequent), -1, -1):
        for used_sizes in itertools.combinations(frequent, number):
            rest = _without_frequent(used_sizes, histogram, moved_bytes)
            filled = _fill_bins(rest.histogram, rest.moved_bytes)
            if filled is None:
                continue
            filled_count = sum(entry.count for entry in filled)
            if best is None or filled_count < fewest_filled:
                best = [*rest.taken, *filled]
                fewest_filled = filled_count
    if best is None:
        raise InputError(f"{prefix}: the histogram of a file and its bytes contradict each other")
    return best


def _histogram(record: Record, prefix: str, word: str) -> list[int]:
    """Numbers of accesses per bin.

    Raises:
        InputError: it has another number of accesses than their counter.
    """
    # MPI-IO's has another name: it counts the transfers of all ranks together.
    aggregated = "AGG_" if prefix == "MPIIO" else ""
    histogram = [record[f"{prefix}_SIZE_{word}_{aggregated}{name}"] for name in _BINS]
    total = record[f"POSIX_{word}S"]
    if prefix == "MPIIO":
        total = sum(record[f"MPIIO_{how}_{word}S"] for how in ("COLL", "SPLIT", "INDEP", "NB"))
    if sum(histogram) != total:
        counted = f"{sum(histogram)} {word.lower()}s, its counter {total}"
        raise InputError(f"{prefix}: the histogram of a file has {counted}")
    return histogram


@dataclass(frozen=True)
class _Rest:
    """What is left of a histogram and of the bytes without the accesses that were taken."""

    taken: list[_SizeCount]
    histogram: list[int]
    moved_bytes: int


def _without_frequent(frequent: Sequence[_SizeCount], histogram: Sequence[int], moved_bytes: int) -> _Rest:
    """Take as many accesses of each frequent size as the histogram and the bytes allow."""
    taken = []
    left = list(histogram)
    for entry in frequent:
        bin_number = min(int(np.searchsorted(_BIN_ENDS, entry.size, side="left")), len(left) - 1)
        number = min(entry.count, left[bin_number])
        if entry.size:
            number = min(number, moved_bytes // entry.size)
        if number:
            taken.append(_SizeCount(entry.size, number))
            left[bin_number] -= number
            moved_bytes -= number * entry.size
    return _Rest(taken, left, moved_bytes)


def _fill_bins(histogram: Sequence[int], moved_bytes: int) -> list[_SizeCount] | None:
    """Sizes for a histogram with a sum of bytes, each bin with two sizes at most; None if there are none."""
    smallest_sizes = [0, *(end + 1 for end in _BIN_ENDS[:-1])]
    # All accesses have the smallest size of their bin; the rest of the bytes is given to the first bins.
    rest = moved_bytes
    for smallest, count in zip(smallest_sizes, histogram, strict=True):
        rest -= smallest * count
    filled: list[_SizeCount] = []
    for smallest, largest, count in zip(smallest_sizes, _BIN_ENDS, histogram, strict=True):
        added = min(max(rest, 0), (largest - smallest) * count)
        rest -= added
        if not count:
            continue
        added_per_access, larger = divmod(added, count)
        if larger:
            filled.append(_SizeCount(smallest + added_per_access + 1, larger))
        filled.append(_SizeCount(smallest + added_per_access, count - larger))
    return filled if rest == 0 else None
