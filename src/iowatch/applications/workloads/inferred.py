"""Accesses, and what a log does not say of them: which are collective, offsets of MPI-IO, sizes without DXT."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from iowatch.applications.workloads.divisions import Arrays, Division, Pieces
from iowatch.core import InputError, format_count

# One row: `count` accesses of `size` bytes, the first at `offset`, each `stride` behind the one before.
ACCESS = np.dtype(
    [
        *(("write", "?"), ("collective", "?")),
        *((name, "i8") for name in ("offset", "size", "count", "stride")),
        *(("start", "f8"), ("end", "f8")),
        # Of a collective access to an array, which begins at `offset`: 1 for the first of `FileUse.divisions`; else 0.
        ("division", "i4"),
    ]
)
# Of a file and rank: opens, flushes, stats; and the times of the first open and of the last close (0: unknown).
# Collective times the other accesses of a rank: memory for finding which are which.
_MAX_PAIRS = 50_000_000
# Pieces of a rank in one collective access; a description lists them.
_MAX_PIECES = 256
_BUCKET_ENDS = (100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30, 1 << 40)
_BUCKETS = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M", "100M_1G", "1G_PLUS")


@dataclass
class RankUse:
    """What one rank did with one file.

    Attributes:
        accesses: rows of ACCESS in order of start; times in seconds since the start of the job.
        opens, flushes, stats: how often.
        opened, closed: start and end of the first open and of the last close in seconds; 0 if unknown.
    """

    accesses: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, ACCESS))
    opens: int = 0
    flushes: int = 0
    stats: int = 0
    opened: tuple[float, float] = (0.0, 0.0)
    closed: tuple[float, float] = (0.0, 0.0)


@dataclass
class FileUse:
    """One file.

    Attributes:
        api: `posix` or `mpiio`.
        created: whether it was opened to be created.
        ranks: what each did.
        made_up: whether its accesses are made up from the counters.
        path: its name in the log; it stays in the worker process.
        divisions: of arrays among its ranks, and pieces of them.
        has_views: whether a file view was set.
        has_view_per_access: whether one was set for each collective access, at least.
        has_short_reads: whether its independent reads got fewer bytes than they asked for.
    """

    api: str
    created: bool
    ranks: dict[int, RankUse]
    made_up: bool = False
    path: str = ""
    divisions: list[Division | Pieces] = field(default_factory=list)
    has_views: bool = False
    has_view_per_access: bool = False
    has_short_reads: bool = False

    def ends(self, rows: NDArray[np.void]) -> NDArray[np.int64]:
        """Return the end of each of its accesses, of the whole array where one is a part of an array."""
        ends = rows["offset"] + (rows["count"] - 1) * rows["stride"] + rows["size"]
        sizes = np.array([0, *(division.size for division in self.divisions)])
        return np.asarray(np.maximum(ends, rows["offset"] + sizes[rows["division"]]))

    def number_of(self, division: Division | Pieces) -> int:
        """Return the number of a division in accesses; one that is new is added."""
        if division not in self.divisions:
            self.divisions.append(division)
        return self.divisions.index(division) + 1


@dataclass
class Record:
    """The counters of one file by name: of one rank, or added over all (`rank` -1)."""

    identity: int
    rank: int
    values: Mapping[str, float]

    def __getitem__(self, name: str) -> int:
        return max(0, int(self.values.get(name, 0)))


def split_evenly(total: int, parts: int) -> list[int]:
    """Return whole numbers with that sum, which differ by 1 at most."""
    return [total // parts + (i < total % parts) for i in range(parts)]


def mark_collective(file: FileUse, write: bool, together: int, alone: int, arrays: Arrays) -> bool:
    """Mark the collective accesses of one kind; False if the ranks do not have the same number of them.

    Where a rank has both, the collective ones are those with sizes of accesses to arrays, if each rank has as many of
    these as collective ones, or else those that happen when those of the other ranks do.
    """
    rows = {rank: np.flatnonzero(use.accesses["write"] == write) for rank, use in file.ranks.items()}
    each, rest = divmod(together, len(rows))
    numbers = [len(one) for one in rows.values()]
    if rest or min(numbers) < each or each * (max(numbers) - each) > _MAX_PAIRS:
        return False
    sizes, times = [*arrays.lengths], _collective_times(file, rows, each)
    of_arrays = {rank: at[np.isin(file.ranks[rank].accesses["size"][at], sizes)] for rank, at in rows.items()}
    by_size = all(len(at) == each for at in of_arrays.values())
    for rank, places in rows.items():
        accesses = file.ranks[rank].accesses
        if by_size:
            places = of_arrays[rank]
        elif alone:
            places = places[_follow(_spans(accesses[places]), times)]
        accesses["collective"][places] = True
    return True


def _spans(rows: NDArray[np.void]) -> NDArray[np.float64]:
    """Starts and ends of accesses in seconds, (2, n)."""
    return np.stack([rows["start"], rows["end"]])


def _collective_times(file: FileUse, rows: Mapping[int, NDArray[np.int64]], each: int) -> NDArray[np.float64]:
    """When the collective accesses of one kind are: the mean of the ranks that have no others, or those of one rank."""
    only = [rank for rank, places in rows.items() if len(places) == each]
    if only:
        return np.asarray(np.mean([_spans(file.ranks[rank].accesses[rows[rank]]) for rank in only], axis=0))
    leader = min(rows, key=lambda rank: len(rows[rank]))
    at = rows[leader]
    at = np.sort(at[np.argsort(-_overlaps(file, leader, at), kind="stable")[:each]])
    return _spans(file.ranks[leader].accesses[at])


def _overlaps(file: FileUse, leader: int, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many other ranks have an access at the same time, for each access of a rank."""
    own = file.ranks[leader].accesses[at]
    total = np.zeros(len(at), dtype=np.int64)
    for rank, use in file.ranks.items():
        if rank != leader and len(use.accesses):
            before = np.searchsorted(use.accesses["start"], own["end"])
            total += before > np.searchsorted(np.maximum.accumulate(use.accesses["end"]), own["start"])
    return total


def _follow(times: NDArray[np.float64], wanted: NDArray[np.float64]) -> list[int]:
    """Increasing positions in `times` (2, n), one for each of `wanted` (2, k), with the smallest sum of differences."""
    spare = times.shape[1] - wanted.shape[1]
    total, origins = np.zeros(spare + 1), []
    for at, time in enumerate(wanted.T):
        # `total[d]`: the best sum if this time is at position `at + d`; the one before is at most d behind its own.
        lowest = np.minimum.accumulate(total)
        origins.append(np.maximum.accumulate(np.where(total == lowest, np.arange(spare + 1), 0)).astype(np.int32))
        total = lowest + np.abs(times[:, at : at + spare + 1] - time[:, None]).sum(axis=0)
    place, chosen = int(np.argmin(total)), []
    for at in range(wanted.shape[1] - 1, -1, -1):
        chosen.append(at + place)
        place = int(origins[at][place])
    return chosen[::-1]


def _collective_turns(file: FileUse, write: bool) -> Iterator[tuple[int, ...]]:
    """The positions of the accesses of one kind that all ranks of the file make together, one per rank."""
    yield from zip(
        *(
            np.flatnonzero(use.accesses["collective"] & (use.accesses["write"] == write)).tolist()
            for use in file.ranks.values()
        ),
        strict=True,
    )


def divide_arrays(file: FileUse, arrays: Arrays) -> None:
    """Mark the collective accesses that are parts of arrays, by their offsets."""
    for write in (True, False):
        for turn in _collective_turns(file, write):
            rows = [use.accesses[at] for use, at in zip(file.ranks.values(), turn, strict=True)]
            sizes, offsets = ([int(row[name]) for row in rows] for name in ("size", "offset"))
            if division := arrays.find([*file.ranks], sizes, offsets):
                _set_division(file, turn, division, min(o for o, size in zip(offsets, sizes, strict=True) if size))


def _set_division(file: FileUse, turn: Sequence[int], division: Division | Pieces, offset: int) -> None:
    # A view for one piece of the file says that it was several in memory.
    if (
        isinstance(division, Division)
        and division.is_contiguous
        and not (file.has_view_per_access and len(division.shape) > 1)
    ):
        return
    for use, at in zip(file.ranks.values(), turn, strict=True):
        use.accesses["division"][at] = file.number_of(division)
        use.accesses["offset"][at] = offset


def infer_offsets(file: FileUse, below: Mapping[int, NDArray[np.void]], arrays: Arrays) -> str:
    """Set the unknown offsets of a file of MPI-IO from the POSIX accesses below; return in words what was not found.

    Accesses to arrays that the ranks divide in a known way are marked.
    """
    reach, guessed = dict.fromkeys(file.ranks, 0), 0
    for rank, use in file.ranks.items():
        for row in use.accesses:
            if not row["collective"]:
                pieces = _pieces([below.get(rank)], bool(row["write"]), [(row["start"], row["end"])])
                fits = len(pieces) and pieces[-1].sum() - pieces[0][0] >= row["size"]
                guessed += int(not fits and row["size"] > 0)
                row["offset"] = pieces[0][0] if fits else reach[rank]
                reach[rank] = int(row["offset"] + row["size"])
    members = list(file.ranks)
    for write in (True, False):
        for turn in _collective_turns(file, write):
            rows = [file.ranks[rank].accesses[at] for rank, at in zip(members, turn, strict=True)]
            spans = [(row["start"], row["end"]) for row in rows]
            pieces = _pieces([below.get(rank) for rank in members], write, spans)
            sizes = np.array([int(row["size"]) for row in rows])
            starts = _hand_out(pieces, sizes)
            guessed += int(starts is None and bool(sizes.any()))
            base = max(reach.values())
            found = base + np.cumsum(sizes) - sizes if starts is None else starts
            for rank, at, offset in zip(members, turn, found.tolist(), strict=True):
                file.ranks[rank].accesses["offset"][at] = offset
                reach[rank] = int(offset + file.ranks[rank].accesses["size"][at])
            is_range = len(pieces) == 1 and pieces[0][1] == sizes.sum()
            division = arrays.find(members, sizes.tolist(), None) if is_range else None
            if chosen := division or (_own_pieces(below, members, write, spans, sizes) if file.has_views else None):
                _set_division(file, turn, chosen, int(pieces[0][0]))
    return f"; {format_count(guessed, 'transfer')} without any below are put behind the one before" if guessed else ""


def _own_pieces(
    below: Mapping[int, NDArray[np.void]],
    members: Sequence[int],
    write: bool,
    spans: Sequence[tuple[float, float]],
    sizes: NDArray[np.int64],
) -> Pieces | None:
    """The pieces of each rank if every one accessed its own bytes in POSIX; None if not, or if they are in a row."""
    found = [_pieces([below.get(rank)], write, [span]) for rank, span in zip(members, spans, strict=True)]
    most = max(map(len, found))
    together = np.array(sorted(piece.tolist() for own in found for piece in own))
    if not 1 < most <= _MAX_PIECES or [sum(int(n) for _, n in own) for own in found] != sizes.tolist():
        return None
    if (together[1:, 0] < together[:-1].sum(axis=1)).any():
        return None
    first = int(together[0, 0])
    lists = [[(int(start) - first, int(size)) for start, size in own] or [(0, 0)] for own in found]
    padded = [(*own, *[(sum(own[-1]), 0)] * (most - len(own))) for own in lists]
    return Pieces(tuple(members), tuple(padded))


def _pieces(
    tables: Sequence[NDArray[np.void] | None], write: bool, spans: Sequence[tuple[float, float]]
) -> list[NDArray[np.int64]]:
    """Ranges (offset, size) accessed within the spans, one span per rank; adjacent and overlapping ones are one."""
    rows = []
    for table, (start, end) in zip(tables, spans, strict=True):
        if table is not None:
            lo, hi = np.searchsorted(table["start"], [start, end], side="left")
            rows.append(table[lo : max(hi, lo)])
    kept = np.concatenate(rows) if rows else np.zeros(0, ACCESS)
    kept = kept[(kept["write"] == write) & (kept["size"] > 0)]
    merged: list[NDArray[np.int64]] = []
    for offset, size in sorted(zip(kept["offset"].tolist(), kept["size"].tolist(), strict=True)):
        if merged and offset <= merged[-1].sum():
            merged[-1][1] = max(merged[-1].sum(), offset + size) - merged[-1][0]
        else:
            merged.append(np.array([offset, size]))
    return merged


def _hand_out(pieces: Sequence[NDArray[np.int64]], sizes: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Where each rank's bytes begin if the ranks fill the pieces in order; None if the pieces are too small."""
    if not pieces or sum(int(size) for _, size in pieces) < sizes.sum():
        return None
    starts = np.array([start for start, _ in pieces])
    filled = np.concatenate([[0], np.cumsum([size for _, size in pieces])])
    firsts = np.cumsum(sizes) - sizes
    at = np.minimum(np.searchsorted(filled, firsts, side="right") - 1, len(starts) - 1)
    found = starts[at] + firsts - filled[at]
    # A rank without data: any place will do, and one that others have makes a shorter description.
    return np.asarray(np.where(sizes > 0, found, found[np.argmax(sizes > 0)]))


def make_up(record: Record, prefix: str, members: Sequence[int], file: FileUse) -> bool:
    """Give each rank accesses with the counted numbers, sizes and bytes, each behind the one before.

    The largest ones are the collective ones. False if not all ranks can have the same number of those: none is, then.
    """
    agreed, written = True, 0
    for kind in ("WRITE", "READ"):
        together = 0 if prefix == "POSIX" else record[f"MPIIO_COLL_{kind}S"] + record[f"MPIIO_SPLIT_{kind}S"]
        agreed &= together % len(members) == 0
        runs = sorted(_sizes_of(record, prefix, kind), reverse=True)
        joint, alone = _split_runs(runs, together if together % len(members) == 0 else 0)
        start, end = _kind_times(record, prefix, kind)
        base = 0
        for place, rank in enumerate(members):
            rows = _rows_of(
                _deal(joint, place, len(members), even=True), _deal(alone, place, len(members)), kind == "WRITE"
            )
            moved = rows["size"] * rows["count"]
            rows["offset"] = base + np.cumsum(moved) - moved
            if written and kind == "READ":
                _keep_inside(rows, written)
            share = np.cumsum(moved) / max(int(moved.sum()), 1)
            rows["end"] = start + share * (end - start)
            rows["start"] = np.concatenate([[start], rows["end"][:-1]])[: len(rows)]
            base += int(moved.sum())
            written = max(written, base) if kind == "WRITE" else written
            both = np.concatenate([file.ranks[rank].accesses, rows])
            file.ranks[rank].accesses = both[np.argsort(both["start"], kind="stable")]
    return agreed


def _kind_times(record: Record, prefix: str, kind: str) -> tuple[float, float]:
    """First start and last end of reading or writing in seconds; where they overlap, reading is put behind writing."""

    def times(of: str) -> tuple[float, float]:
        start, end = (float(record.values.get(f"{prefix}_F_{of}_{at}_TIMESTAMP", 0.0)) for at in ("START", "END"))
        return max(0.0, start), max(0.0, start, end)

    own, other = times(kind), times("WRITE")
    if kind == "WRITE" or own[1] <= other[0] or not other[1]:
        return own
    start = max(own[0], other[1])
    return start, max(start, own[1])


def _keep_inside(rows: NDArray[np.void], end: int) -> None:
    """Move reads to what was written, if they would pass its end: more was read than written, some of it again."""
    span = (rows["count"] - 1) * rows["stride"] + rows["size"]
    rows["stride"] = np.where(span > end, 0, rows["stride"])
    span = np.where(span > end, rows["size"], span)
    rows["offset"] = np.maximum(np.minimum(rows["offset"], end - span), 0)


_Runs = list[tuple[int, int]]


def _split_runs(runs: _Runs, first: int) -> tuple[_Runs, _Runs]:
    """(size, count) of the first accesses, and of the rest."""
    heads, tails = [], []
    for size, count in runs:
        taken = min(first, count)
        first -= taken
        heads += [(size, taken)] if taken else []
        tails += [(size, count - taken)] if count > taken else []
    return heads, tails


def _deal(runs: _Runs, place: int, parts: int, even: bool = False) -> _Runs:
    """The share of one of so many ranks, dealt like cards; `even`: in single accesses unless all have the same."""
    dealt, at = [], 0
    single = even and any(count % parts for _, count in runs)
    for size, count in runs:
        mine = (at + count - place + parts - 1) // parts - (at - place + parts - 1) // parts
        at += count
        dealt += [(size, 1)] * mine if single else [(size, mine)] * (mine > 0)
    return dealt


def _rows_of(joint: _Runs, alone: _Runs, write: bool) -> NDArray[np.void]:
    rows = np.zeros(len(joint) + len(alone), ACCESS)
    rows["write"] = write
    rows["collective"][: len(joint)] = True
    if len(rows):
        rows["size"], rows["count"] = np.array([*joint, *alone]).T
    rows["stride"] = rows["size"]
    return rows


def _sizes_of(record: Record, prefix: str, kind: str) -> list[tuple[int, int]]:
    """(size, count) with the counted number, bytes and histogram of sizes.

    Darshan has the four most frequent sizes of reads and writes together: those are used with which most accesses of
    this kind have a size that was counted.
    """
    bucket = f"{prefix}_SIZE_{kind}_" + ("AGG_" if prefix == "MPIIO" else "")
    counts = [record[f"{bucket}{name}"] for name in _BUCKETS]
    moved = record[f"{prefix}_BYTES_{'WRITTEN' if kind == 'WRITE' else 'READ'}"]
    names = (f"{how}_{kind}S" for how in ("COLL", "SPLIT", "INDEP", "NB"))
    total = record[f"POSIX_{kind}S"] if prefix == "POSIX" else sum(record[f"MPIIO_{name}"] for name in names)
    if sum(counts) != total:
        raise InputError(f"{prefix}: the histogram of a file has {sum(counts)} {kind.lower()}s, its counter {total}")
    slots = [(record[f"{prefix}_ACCESS{i}_ACCESS"], record[f"{prefix}_ACCESS{i}_COUNT"]) for i in range(1, 5)]
    slots = [(size, count) for size, count in slots if count]
    found = []
    for n in range(len(slots), -1, -1):
        for chosen in itertools.combinations(slots, n):
            runs, rest = _use_frequent(chosen, [*counts], moved)
            filled = _fill_buckets(*rest)
            if filled is not None:
                found.append((sum(count for _, count in filled), [*runs, *filled]))
    if not found:
        raise InputError(f"{prefix}: the histogram of a file and its bytes contradict each other")
    return min(found, key=lambda pair: pair[0])[1]


def _use_frequent(
    slots: Sequence[tuple[int, int]], counts: list[int], moved: int
) -> tuple[list[tuple[int, int]], tuple[list[int], int]]:
    """Take frequent sizes out of a histogram: (size, count), and what is left of the histogram and of the bytes."""
    runs = []
    for size, count in slots:
        at = min(int(np.searchsorted(_BUCKET_ENDS, size, side="left")), len(counts) - 1)
        if used := min(count, counts[at], moved // size if size else count):
            runs.append((size, used))
            counts[at] -= used
            moved -= used * size
    return runs, (counts, moved)


def _fill_buckets(counts: Sequence[int], moved: int) -> list[tuple[int, int]] | None:
    """(size, count) for a histogram with a sum of bytes, each bucket with two sizes at most; None if there are none."""
    lows = [0, *(end + 1 for end in _BUCKET_ENDS[:-1])]
    rest = moved - sum(low * count for low, count in zip(lows, counts, strict=True))
    runs: list[tuple[int, int]] = []
    for low, end, count in zip(lows, _BUCKET_ENDS, counts, strict=True):
        more = min(max(rest, 0), (end - low) * count)
        rest -= more
        if count:
            sizes = ((low + more // count + 1, more % count), (low + more // count, count - more % count))
            runs += [(size, share) for size, share in sizes if share]
    return runs if rest == 0 else None
