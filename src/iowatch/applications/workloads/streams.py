"""What each rank does in order of time: files in families, tokens per rank, and the moments between phases."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from iowatch.applications.workloads import accesses, patterns
from iowatch.applications.workloads.inferred import ACCESS, FileUse, RankUse
from iowatch.applications.workloads.patterns import Key
from iowatch.core import InputError, format_count

# Shorter pauses are not described: they are those of the program between two calls.
PAUSE_S = 0.005
_MAX_PHASES = 32
# Ranks that differ by less have done the same share of their accesses.
_SAME_SHARE = 0.01
# A pause for another open is so many times as long as the usual one.
_LONG_PAUSE = 4.0
# More shared files than this are one file with a `count`.
_MAX_NAMED = 8
TOKEN = np.dtype([("key", "i4"), ("number", "i8"), *[(name, "i8") for name in ("offset", "size", "count", "stride")],
                  ("start", "f8"), ("end", "f8")])  # fmt: skip


TRANSFERS = ("read", "write")


@dataclass(frozen=True)
class Family:
    """Files that have one name in the description: `numbers` says which of them a rank's file is."""

    name: str
    document: dict[str, Any]
    members: tuple[int, ...]
    files: list[tuple[FileUse, Mapping[int, int]]]


def group_files(use: accesses.LogUse) -> list[Family]:
    groups: dict[tuple[Any, ...], list[FileUse]] = {}
    everyone = tuple(range(use.ranks))
    for number, file in enumerate(use.files):
        members = tuple(file.ranks)
        role = (file.api, _is_input(file), frozenset(_kinds(file)))
        alone = len(members) == 1
        groups.setdefault(("alone", *role) if alone else ("shared", *role, members, number), []).append(file)
    shared = [key for key in groups if key[0] == "shared"]
    if len(shared) > _MAX_NAMED:
        for key in shared:
            groups.setdefault(key[:-1], []).extend(groups.pop(key))
    families = []
    for number, (key, files) in enumerate(groups.items(), start=1):
        families.append(_build_family(f"file{number}", files, everyone, alone=key[0] == "alone"))
    return _merge_subsets(families, everyone)


def _build_family(name: str, files: Sequence[FileUse], everyone: tuple[int, ...], alone: bool) -> Family:
    members = tuple(sorted({rank for file in files for rank in file.ranks}))
    counts = dict.fromkeys(members, 0)
    numbered: list[tuple[FileUse, Mapping[int, int]]] = []
    for file in files:
        numbered.append((file, {rank: counts[rank] for rank in file.ranks}))
        for rank in file.ranks:
            counts[rank] += 1
    document: dict[str, Any] = {"api": files[0].api}
    if alone and len(everyone) > 1:
        document["layout"] = "per-process"
    if (chosen := patterns.select_ranks(members, everyone)) is not None:
        document["ranks"] = chosen
    if (count := max(counts.values())) > 1:
        document["count"] = count
    document["bytes"] = max(1, *(_reach(file, one) for file in files for one in file.ranks.values()))
    if _is_input(files[0]):
        document["input"] = True
    return Family(name, document, members, numbered)


def _merge_subsets(families: list[Family], everyone: tuple[int, ...]) -> list[Family]:
    """Join files that are shared by groups of ranks, each rank in one group, into one file with `group`."""
    subsets = [f for f in families if 1 < len(f.members) < len(everyone)]
    alike = {tuple(sorted((k, str(v)) for k, v in f.document.items() if k not in ("ranks", "bytes"))) for f in subsets}
    ranks = [rank for f in subsets for rank in f.members]
    if len(subsets) < 2 or len(alike) > 1 or len(set(ranks)) < len(ranks):
        return families
    first, rest = subsets[0], [f for f in families if f not in subsets]
    document = {key: value for key, value in first.document.items() if key != "ranks"}
    members = tuple(sorted(ranks))
    lowest = {rank: min(f.members) for f in subsets for rank in f.members}
    document["group"] = patterns.describe_ranks(np.array([lowest[rank] for rank in members]), members)
    if (chosen := patterns.select_ranks(members, everyone)) is not None:
        document["ranks"] = chosen
    document["bytes"] = max(f.document["bytes"] for f in subsets)
    merged = Family(first.name, document, members, [pair for f in subsets for pair in f.files])
    return [merged, *rest]


def _kinds(file: FileUse) -> list[str]:
    return sorted(
        {"write" if write else "read" for use in file.ranks.values() for write in np.unique(use.accesses["write"])}
    )


def _reach(file: FileUse, use: RankUse) -> int:
    return int(file.ends(use.accesses).max()) if len(use.accesses) else 0


def _is_input(file: FileUse) -> bool:
    """Whether the file existed: it is read before it is written, or only opened."""
    rows = [use.accesses for use in file.ranks.values() if len(use.accesses)]
    if not rows:
        return not file.created
    return not min(rows, key=lambda one: float(one["start"][0]))["write"][0]


class Streams:
    """What each rank does, in order: `alone` has rows of TOKEN per rank; `together` what ranks do at the same time.

    `together` has one entry per action: key, and (n,) numbers, offsets, sizes, starts, ends over all ranks.
    """

    def __init__(self, use: accesses.LogUse, families: Sequence[Family], keys: list[Key], losses: list[str]) -> None:
        self.ranks, self.keys, self.losses = use.ranks, keys, losses
        self._ids: dict[Key, int] = {}
        parts: dict[int, list[NDArray[np.void]]] = {rank: [np.zeros(0, TOKEN)] for rank in range(use.ranks)}
        joint: list[NDArray[np.void]] = []
        for family in families:
            for file, numbers in family.files:
                streams = self._file_streams(family, file, numbers)
                everyone = file.api == "mpiio" and len(file.ranks) == use.ranks > 1
                tables = self._take_together(streams) if everyone else None
                joint += [tables] if tables is not None else []
                joint.append(self._barriers(file))
                for rank, rows in streams.items():
                    parts[rank].append(rows)
        self.alone = {rank: _in_order(np.concatenate(rows)) for rank, rows in parts.items()}
        table = np.concatenate([np.zeros((0, use.ranks), TOKEN), *joint])
        self.together = table[np.argsort(table["start"].max(axis=1), kind="stable")] if len(table) else table

    def key_id(self, key: Key) -> int:
        """The position of a key in `keys`."""
        if key not in self._ids:
            self._ids[key] = len(self.keys)
            self.keys.append(key)
        return self._ids[key]

    def _file_streams(self, family: Family, file: FileUse, numbers: Mapping[int, int]) -> dict[int, NDArray[np.void]]:
        found = {}
        for ranks in [[*file.ranks]] if file.api == "mpiio" else [[rank] for rank in file.ranks]:
            # MPI-IO opens together, POSIX each rank on its own.
            own = replace(file, ranks={rank: file.ranks[rank] for rank in ranks})
            turns = max(1, *(use.opens for use in own.ranks.values()))
            cuts = _open_times(own, turns)
            groups = {rank: _split_turns(use, cuts, turns) for rank, use in own.ranks.items()}
            modes = [
                self._opening(family, own, [rows[turn] for rows in groups.values()], turn) for turn in range(turns)
            ]
            times = _turn_times(own, groups, turns)
            # MPI-IO flushes together, too, also the ranks that did not write in a turn.
            writing = [turn for turn in range(turns) if any(rows[turn]["write"].any() for rows in groups.values())]
            for rank, rows in groups.items():
                flushes = _share_flushes(own.ranks[rank].flushes, writing or [turns - 1], turns)
                found[rank] = self._rank_stream(family.name, file, rank, rows, modes, times, flushes, numbers[rank])
        return found

    def _barriers(self, file: FileUse) -> NDArray[np.void]:
        """Barriers before ranks read what others have written, (n, ranks): a log does not say that they waited."""
        rows = [use.accesses for use in file.ranks.values()]
        found = np.zeros((0, self.ranks), TOKEN)
        table = np.concatenate(rows)
        if len(rows) < 2 or not table["write"].any():
            return found
        ranks = np.repeat(np.array([*file.ranks]), [len(one) for one in rows])
        order = np.argsort(table["start"], kind="stable")
        table, ranks = table[order], ranks[order]
        ended = np.maximum.accumulate(np.where(table["write"], table["end"], 0.0))
        turns = np.flatnonzero(table["write"][:-1] & ~table["write"][1:]) + 1
        times = [
            min(np.nextafter(table["start"][at], 0), (ended[at] + table["start"][at]) / 2)
            for at in turns
            if ended[at] <= table["start"][at] and len({*ranks[max(0, at - len(rows)) : at + len(rows)]}) > 1
        ]
        if not times:
            return found
        found = np.zeros((len(times), self.ranks), TOKEN)
        found["key"], found["count"] = self.key_id(Key("barrier")), 1
        found["start"] = found["end"] = np.array(times)[:, None]
        return found

    def _opening(self, family: Family, file: FileUse, rows: Sequence[NDArray[np.void]], turn: int) -> Key:
        """How the ranks open a file for one turn, which has these accesses of each."""
        kinds = {bool(write) for one in rows for write in np.unique(one["write"])}
        fresh = turn == 0 and not family.document.get("input") and (kinds != {False} or file.api == "mpiio")
        again = turn > 0 and (file.created or file.api == "mpiio") and kinds == {True} and self._rewrites(file, rows)
        if fresh or again:
            return Key("create", family.name, mode="read-write" if False in kinds else None)
        modes = {frozenset({True}): "write", frozenset({True, False}): "read-write"}
        return Key("open", family.name, mode=modes.get(frozenset(kinds)))

    def _rewrites(self, file: FileUse, rows: Sequence[NDArray[np.void]]) -> bool:
        """Whether a turn writes everything that the ranks ever write."""
        whole = [use.accesses[use.accesses["write"]] for use in file.ranks.values()]
        return _extent(file, np.concatenate(whole)) == _extent(file, np.concatenate([*rows]))

    def _rank_stream(
        self,
        name: str,
        file: FileUse,
        rank: int,
        groups: Sequence[NDArray[np.void]],
        modes: Sequence[Key],
        times: Sequence[tuple[float, float]],
        flushes: Sequence[int],
        number: int,
    ) -> NDArray[np.void]:
        use, parts = file.ranks[rank], list[NDArray[np.void]]()
        clock = 0.0

        def mark(verb: Key, start: float, end: float) -> None:
            parts.append(np.array([(self.key_id(verb), number, 0, 0, 1, 0, start, max(start, end))], TOKEN))

        alone = len(file.ranks) == 1 or file.api == "mpiio"
        for turn, found in enumerate(groups):
            first, ended = times[turn]
            # A shared record has the first open of any rank; who opens what another has created is later.
            known = turn == 0 and use.opened[0] and (alone or modes[0].verb == "create")
            begin = max(np.nextafter(min(use.opened[0], first) if known else first, 0), clock)
            if turn and modes[turn].verb == "create" and rank == min(file.ranks) and alone:
                # Deletions are not in a log. What is created again and written whole was new, or truncated.
                mark(Key("remove", name), np.nextafter(clock, np.inf), 0.0)
                begin = max(begin, np.nextafter(clock + 1e-9, np.inf))
            # The log has the start of the first open and the end of the last one.
            mark(modes[turn], begin, min(use.opened[1], first) if use.opens == 1 else begin)
            parts.append(self._accesses(name, file, found, number, flushes[turn] if file.api == "posix" else 0))
            clock = max(begin, ended)
            for _ in range(flushes[turn] if file.api == "mpiio" or not len(found) else 0):
                mark(Key("flush", name), clock, clock)
            last = turn == len(groups) - 1
            clock = max(clock, use.closed[0]) if last else clock
            mark(Key("close", name), clock, max(clock, use.closed[1]) if last else clock)
        for _ in range(use.stats if file.api == "posix" else 0):
            mark(Key("stat", name), clock, clock)
        return np.concatenate(parts) if parts else np.zeros(0, TOKEN)

    def _accesses(
        self, name: str, file: FileUse, rows: NDArray[np.void], number: int, flushes: int
    ) -> NDArray[np.void]:
        """The tokens of accesses, with so many flushes of a file of POSIX evenly among them, the rest at the end."""
        out = np.zeros(len(rows), TOKEN)
        for field in ("offset", "size", "count", "stride", "start", "end"):
            out[field] = rows[field]
        out["number"] = number
        kinds, inverse = np.unique(rows[["write", "collective", "division"]], return_inverse=True)
        for at, (write, collective, division) in enumerate(kinds.tolist()):
            key = Key("write" if write else "read", name, collective)
            chosen = file.divisions[division - 1] if division else None
            key = key._replace(
                division=chosen,
                viewed=collective and file.has_view_per_access and chosen is None,
                short=not (write or collective) and file.has_short_reads,
            )
            out["key"][inverse == at] = self.key_id(key)
        if not flushes or not len(out):
            return _join_runs(out, rows["collective"])
        if flushes < len(out):
            ends = [round((i + 1) * len(out) / flushes) for i in range(flushes)]
        else:
            ends = sorted([*range(1, len(out) + 1)] * (flushes // len(out)) + [len(out)] * (flushes % len(out)))
        pieces, first = [], 0
        for end in ends:
            pieces.append(_join_runs(out[first:end], rows["collective"][first:end]))
            time = float(out["end"][max(end - 1, 0)])
            pieces.append(np.array([(self.key_id(Key("flush", name)), number, 0, 0, 1, 0, time, time)], TOKEN))
            first = end
        return np.concatenate(pieces)

    def _take_together(self, streams: dict[int, NDArray[np.void]]) -> NDArray[np.void] | None:
        """Take what all ranks do together out of the streams of a file: (actions, ranks); None if they do not agree."""
        if (found := self._take_common(streams)) is not None:
            return found
        self._lose(
            "ranks do not agree about the order of collective accesses of a file: they are replayed as independent"
        )
        for rank, rows in streams.items():
            for at, key in enumerate([*self.keys]):
                mine = rows["key"] == at
                if key.division is not None:  # its offset is that of the whole
                    rows["offset"][mine] += key.division.bytes_before(rank)
                alone = key._replace(collective=False, viewed=False, division=None)
                if mine.any():
                    rows["key"][mine] = self.key_id(alone)
        return self._take_common(streams)

    def _take_common(self, streams: dict[int, NDArray[np.void]]) -> NDArray[np.void] | None:
        """Take what only all ranks can do; None, and nothing taken, if these are not the same actions on all ranks."""
        common = [key.collective or key.verb not in (*TRANSFERS, "stat", "remove") for key in self.keys]
        joint = {rank: np.array(common, bool)[rows["key"]] for rank, rows in streams.items()}
        taken = [rows[joint[rank]] for rank, rows in streams.items()]
        if len({rows["key"].tobytes() for rows in taken}) > 1:
            return None
        for rank, rows in streams.items():
            streams[rank] = rows[~joint[rank]]
        return np.stack(taken, axis=1)

    def _lose(self, text: str) -> None:
        if text not in self.losses:
            self.losses.append(text)


def _in_order(rows: NDArray[np.void]) -> NDArray[np.void]:
    return rows[np.argsort(rows["start"], kind="stable")]


def _extent(file: FileUse, rows: NDArray[np.void]) -> tuple[int, int]:
    """First byte and end of accesses."""
    return int(rows["offset"].min()), int(file.ends(rows).max())


def _open_times(file: FileUse, turns: int) -> list[float]:
    """When the file is opened again: at starts of accesses behind a pause of all ranks in it.

    First where writing follows reading (or the reverse), then behind the longest pauses, much longer than the usual
    one, at which all ranks have done the same share of their accesses. All have done as many collective accesses:
    ranks that need not wait for each other are not always at the same one. Further opens are not followed by accesses.
    """
    rows = [use.accesses for use in file.ranks.values() if len(use.accesses)]
    if turns < 2 or not rows:
        return []
    found = _in_order(np.concatenate(rows))
    gaps = found["start"][1:] - np.maximum.accumulate(found["end"])[:-1]
    at = np.flatnonzero(gaps > 0)
    starts = found["start"][1:][at]
    changes = (found["write"][1:] != found["write"][:-1])[at]
    shares = np.array([np.searchsorted(one["start"], starts) / len(one) for one in rows])
    usual = 0.0 if turns > len(gaps) else float(np.median(np.maximum(gaps, 0.0)))
    together = [use.accesses["start"][use.accesses["collective"]] for use in file.ranks.values()]
    agreed = np.ptp([np.searchsorted(one, starts) for one in together], axis=0) == 0
    usable = agreed & (changes | ((np.ptp(shares, axis=0) < _SAME_SHARE) & (gaps[at] > _LONG_PAUSE * usual)))
    starts, changes, gaps = starts[usable], changes[usable], gaps[at][usable]
    chosen = np.lexsort((-gaps, ~changes))[: turns - 1]
    return sorted(starts[chosen].tolist())


def _turn_times(
    file: FileUse, groups: Mapping[int, Sequence[NDArray[np.void]]], turns: int
) -> list[tuple[float, float]]:
    """First start and last end of the accesses of all ranks in each turn; an empty one is at the end of the last."""
    clock = max(use.opened[0] for use in file.ranks.values())
    times = []
    for turn in range(turns):
        rows = [found[turn] for found in groups.values() if len(found[turn])]
        first = min((float(one["start"][0]) for one in rows), default=clock)
        clock = max(clock, *(float(one["end"].max()) for one in rows), first)
        times.append((first, clock))
    return times


def _split_turns(use: RankUse, cuts: Sequence[float], turns: int) -> list[NDArray[np.void]]:
    places = np.searchsorted(use.accesses["start"], np.array(cuts))
    parts = np.split(use.accesses, places)
    return [*parts, *[np.zeros(0, ACCESS)] * (max(turns, 1) - len(parts))]


def _share_flushes(flushes: int, writing: Sequence[int], turns: int) -> list[int]:
    """How many flushes each turn has: those that write have the same number, the last one the rest."""
    shares = dict.fromkeys(writing, flushes // len(writing))
    shares[writing[-1]] += flushes % len(writing)
    return [shares.get(turn, 0) for turn in range(turns)]


def _join_runs(rows: NDArray[np.void], collective: NDArray[np.bool_]) -> NDArray[np.void]:
    """Join three or more single accesses of one kind and size, one stride apart and without a pause, into one row."""
    if len(rows) < 3:
        return rows
    step = np.diff(rows["offset"])
    same = (np.diff(rows["key"]) == 0) & (np.diff(rows["size"]) == 0) & ~collective[1:] & (rows["count"][1:] == 1)
    same &= (rows["count"][:-1] == 1) & (rows["start"][1:] - rows["end"][:-1] < PAUSE_S)
    out, at = [], 0
    # Runs of equal steps; a run takes the longest piece that begins where the last one ended.
    equal = np.concatenate([[False], same[1:] & same[:-1] & (step[1:] == step[:-1])])
    stops = np.flatnonzero(~equal)
    while at < len(rows):
        after = stops[np.searchsorted(stops, at, side="right") :][:1]
        end = int(after[0]) if len(after) else len(rows) - 1
        length = end - at + 1 if at < len(same) and same[at] else 1
        if length >= 3:
            row = rows[at : at + 1].copy()
            row["count"], row["stride"], row["end"] = length, step[at], rows["end"][at + length - 1]
            out.append(row)
            at += length
        else:
            out.append(rows[at : at + 1])
            at += 1
    return np.concatenate(out)


class _Block(NamedTuple):
    """What happens between two moments at which no rank does anything: `gap_s` is the time without any before it."""

    start: float
    gap_s: float
    label: frozenset[tuple[str, str]]


def choose_cuts(streams: Streams, wanted: int | None) -> list[float]:
    """Starts of all phases but the first, in seconds, at moments at which no rank reads or writes."""
    blocks = _find_blocks(streams, by_kind=wanted is None)
    if wanted is None:
        chosen = [after for before, after in itertools.pairwise(blocks) if before.label != after.label]
        if len(chosen) >= _MAX_PHASES:
            # What is repeated so often is one phase. Cuts remain where something begins for the first time or ended.
            chosen = _first_and_last(blocks)
        chosen = sorted(chosen, key=lambda block: -block.gap_s)[: _MAX_PHASES - 1]
    elif wanted > max(len(blocks), 1):
        found = format_count(max(len(blocks) - 1, 0), "pause")
        raise InputError(f"the log has {found} of all ranks, too few for {wanted} phases")
    else:
        chosen = sorted(blocks[1:], key=lambda block: -block.gap_s)[: wanted - 1]
    return sorted(block.start for block in chosen)


def _first_and_last(blocks: Sequence[_Block]) -> list[_Block]:
    """The blocks in which something is done for the first time, or before which it was done for the last time."""
    firsts: dict[tuple[str, str], int] = {}
    lasts: dict[tuple[str, str], int] = {}
    for number, block in enumerate(blocks):
        for label in block.label:
            firsts.setdefault(label, number)
            lasts[label] = number + 1
    return [blocks[i] for i in sorted({*firsts.values(), *lasts.values()} - {0, len(blocks)})]


def _find_blocks(streams: Streams, by_kind: bool) -> list[_Block]:
    joint = streams.together
    spans = [(rows["start"], rows["end"], rows["key"]) for rows in streams.alone.values()]
    if len(joint):
        spans.append((joint["start"].min(axis=1), joint["end"].max(axis=1), joint["key"][:, 0]))
    if by_kind:
        spans.append(_label_spans(streams))
    starts, ends, keys = (np.concatenate(column) for column in zip(*spans, strict=True))
    order = np.argsort(starts, kind="stable")
    starts, ends, keys = starts[order], np.maximum.accumulate(ends[order]), keys[order]
    firsts = np.concatenate([[0], np.flatnonzero(starts[1:] > ends[:-1]) + 1])
    blocks: list[_Block] = []
    carried: float | None = None
    for at, end in zip(firsts, [*firsts[1:], len(starts)], strict=True):
        found = [streams.keys[key] for key in np.unique(keys[at:end])]
        label = frozenset((key.verb, key.file) for key in found if key.verb in TRANSFERS)
        if not label:  # opens belong to what follows, closes to what was before
            if carried is None and any(key.verb in ("open", "create") for key in found):
                carried = float(starts[at])
            continue
        begin = carried if carried is not None else float(starts[at])
        before = int(np.searchsorted(starts, begin))
        blocks.append(_Block(begin, begin - float(ends[before - 1]) if before else 0.0, label))
        carried = None
    return blocks


def _label_spans(streams: Streams) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int32]]:
    """Starts, ends and keys of the n-th time that each rank reads (or writes) a file, from the first rank to the last.

    Ranks that do not wait for each other are not a phase each.
    """
    hulls: dict[tuple[int, int], list[float]] = {}
    transfers = np.array([key.verb in TRANSFERS for key in streams.keys], dtype=bool)
    for rank, alone in streams.alone.items():
        rows = _in_order(np.concatenate([alone, streams.together[:, rank]]))
        rows = rows[transfers[rows["key"]]]
        changes = np.flatnonzero(rows["key"][1:] != rows["key"][:-1]) + 1
        seen: dict[int, int] = {}
        for piece in np.split(rows, changes):
            if len(piece):
                key = int(piece["key"][0])
                seen[key] = seen.get(key, 0) + 1
                start, end = float(piece["start"][0]), float(piece["end"].max())
                hull = hulls.setdefault((key, seen[key]), [start, end])
                hull[:] = min(hull[0], start), max(hull[1], end)
    times = np.array([*hulls.values()]).reshape(-1, 2)
    return times[:, 0], times[:, 1], np.array([key for key, _ in hulls], np.int32)
