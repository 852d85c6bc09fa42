"""Accesses made up from the counters of a file, for logs without DXT: as many, as large and in as many bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
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
    is_equal_number = True
    written_end = 0
    # Writes first: what is read was written before, where the file has both.
    for word in ("WRITE", "READ"):
        collective_count = 0
        if prefix == "MPIIO":
            collective_count = record[f"MPIIO_COLL_{word}S"] + record[f"MPIIO_SPLIT_{word}S"]
        if collective_count % len(members):
            is_equal_number = False
            collective_count = 0
        size_counts = _size_counts(record, prefix, word)
        size_counts.sort(key=lambda entry: (entry.size, entry.count), reverse=True)
        split = _split_first(size_counts, collective_count)
        start_s, end_s = _transfer_times(record, prefix, word)
        # Each rank has a part of the file, in the order of the ranks.
        part_offset = 0
        for index, rank in enumerate(members):
            rows = _make_rows(
                _deal(split.first, index, len(members), evenly=True),
                _deal(split.others, index, len(members)),
                is_write=word == "WRITE",
            )
            # Each access begins where the one before ended.
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
    return is_equal_number


def _spread_in_time(rows: NDArray[np.void], moved_share: NDArray[np.float64], start_s: float, end_s: float) -> None:
    """Give accesses the time between two moments, by the share of the bytes that are moved when each ends."""
    rows["end"] = start_s + moved_share * (end_s - start_s)
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


@dataclass(frozen=True)
class _SplitCounts:
    """Accesses of a list, divided in two."""

    first: list[_SizeCount]
    others: list[_SizeCount]


def _split_first(size_counts: Sequence[_SizeCount], number: int) -> _SplitCounts:
    """The first accesses of a list, so many, and the others."""
    first: list[_SizeCount] = []
    others: list[_SizeCount] = []
    for entry in size_counts:
        first_count = min(number, entry.count)
        number -= first_count
        if first_count:
            first.append(_SizeCount(entry.size, first_count))
        if entry.count > first_count:
            others.append(_SizeCount(entry.size, entry.count - first_count))
    return _SplitCounts(first, others)


def _deal(size_counts: Sequence[_SizeCount], index: int, ranks: int, evenly: bool = False) -> list[_SizeCount]:
    """The share of one of so many ranks, dealt like cards; `evenly`: in single accesses unless all have the same."""
    is_single = evenly and any(entry.count % ranks for entry in size_counts)
    share: list[_SizeCount] = []
    dealt = 0
    for entry in size_counts:
        # Card number c goes to rank c % ranks.
        own_before = (dealt - index + ranks - 1) // ranks
        dealt += entry.count
        own_count = (dealt - index + ranks - 1) // ranks - own_before
        if is_single:
            share += [_SizeCount(entry.size, 1)] * own_count
        elif own_count:
            share.append(_SizeCount(entry.size, own_count))
    return share


def _make_rows(collective: Sequence[_SizeCount], independent: Sequence[_SizeCount], is_write: bool) -> NDArray[np.void]:
    """Rows of ACCESS without offsets and times, the collective accesses first."""
    entries = [*collective, *independent]
    rows = np.zeros(len(entries), ACCESS)
    rows["write"] = is_write
    rows["collective"][: len(collective)] = True
    rows["size"] = [entry.size for entry in entries]
    rows["count"] = [entry.count for entry in entries]
    rows["stride"] = rows["size"]
    return rows


def _size_counts(record: Record, prefix: str, word: str) -> list[_SizeCount]:
    """Sizes with the counted number, bytes and histogram of sizes.

    Darshan has the four most frequent sizes of reads and writes together: those are used with which most accesses of
    this kind have a size that was counted.

    Raises:
        InputError: no sizes have this histogram and these bytes.
    """
    histogram = _histogram(record, prefix, word)
    bytes_counter = "BYTES_WRITTEN" if word == "WRITE" else "BYTES_READ"
    moved_bytes = record[f"{prefix}_{bytes_counter}"]
    frequent_sizes: list[_SizeCount] = []
    for number in _FREQUENT_SIZES:
        entry = _SizeCount(record[f"{prefix}_ACCESS{number}_ACCESS"], record[f"{prefix}_ACCESS{number}_COUNT"])
        if entry.count:
            frequent_sizes.append(entry)
    # All sets of frequent sizes are tried; the fewest accesses of a size that is only inferred are best.
    best: list[_SizeCount] | None = None
    fewest_inferred = 0
    for used_sizes in _subsets(frequent_sizes):
        counted = _take_frequent(used_sizes, histogram, moved_bytes)
        inferred = _fill_bins(counted.histogram_left, counted.bytes_left)
        if inferred is None:
            continue
        inferred_count = sum(entry.count for entry in inferred)
        if best is None or inferred_count < fewest_inferred:
            best = [*counted.accesses, *inferred]
            fewest_inferred = inferred_count
    if best is None:
        raise InputError(f"{prefix}: the histogram of a file and its bytes contradict each other")
    return best


def _subsets(sizes: Sequence[_SizeCount]) -> Iterator[tuple[_SizeCount, ...]]:
    """All subsets, the largest first."""
    for number in range(len(sizes), -1, -1):
        yield from itertools.combinations(sizes, number)


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
class _CountedAccesses:
    """Accesses of the frequent sizes, and what is left of a histogram and of the bytes without them."""

    accesses: list[_SizeCount]
    histogram_left: list[int]
    bytes_left: int


def _take_frequent(
    frequent_sizes: Sequence[_SizeCount], histogram: Sequence[int], moved_bytes: int
) -> _CountedAccesses:
    """Take as many accesses of each frequent size as the histogram and the bytes allow."""
    accesses: list[_SizeCount] = []
    histogram_left = list(histogram)
    bytes_left = moved_bytes
    for entry in frequent_sizes:
        bin_of_size = int(np.searchsorted(_BIN_ENDS, entry.size, side="left"))
        bin_number = min(bin_of_size, len(histogram_left) - 1)
        count = min(entry.count, histogram_left[bin_number])
        if entry.size:
            count = min(count, bytes_left // entry.size)
        if count:
            accesses.append(_SizeCount(entry.size, count))
            histogram_left[bin_number] -= count
            bytes_left -= count * entry.size
    return _CountedAccesses(accesses, histogram_left, bytes_left)


def _fill_bins(histogram: Sequence[int], moved_bytes: int) -> list[_SizeCount] | None:
    """Sizes for a histogram with a sum of bytes, each bin with two sizes at most; None if there are none."""
    smallest_sizes = [0, *(end + 1 for end in _BIN_ENDS[:-1])]
    # All accesses have the smallest size of their bin; the other bytes are given to the first bins.
    bytes_left = moved_bytes
    for smallest, count in zip(smallest_sizes, histogram, strict=True):
        bytes_left -= smallest * count
    accesses: list[_SizeCount] = []
    for smallest, largest, count in zip(smallest_sizes, _BIN_ENDS, histogram, strict=True):
        added_bytes = min(max(bytes_left, 0), (largest - smallest) * count)
        bytes_left -= added_bytes
        if not count:
            continue
        # Some accesses of a bin are one byte larger than the others.
        added_per_access, larger_count = divmod(added_bytes, count)
        if larger_count:
            accesses.append(_SizeCount(smallest + added_per_access + 1, larger_count))
        accesses.append(_SizeCount(smallest + added_per_access, count - larger_count))
    return accesses if bytes_left == 0 else None
