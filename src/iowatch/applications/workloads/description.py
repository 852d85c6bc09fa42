"""A description (docs/workloads.md) of the workload that a Darshan log shows. Runs in the worker process.

    log ──> accesses: per file and rank ──> streams: per rank in order of time, phases ──> patterns ──> actions

No name of the log goes into the description: files are file1, file2, … in the order of their first use.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iowatch.applications.workloads import patterns
from iowatch.applications.workloads.accesses import LogUse, read_use
from iowatch.applications.workloads.divisions import Division, Pieces
from iowatch.applications.workloads.inferred import ACCESS, FileUse
from iowatch.applications.workloads.patterns import Key
from iowatch.applications.workloads.scaling import make_scalable
from iowatch.applications.workloads.streams import PAUSE_S, TRANSFERS, Family, Streams, choose_cuts, group_files
from iowatch.core import InputError, format_count

# Numbers in one phase of a description; what needs more is described by sizes and counts, at scattered offsets.
MAX_NUMBERS = 20_000
_MAX_STEPS, _SAMPLE = 200_000, 1_000
_NO_DXT = (
    "no DXT: order, offsets and pauses are not in the log; each rank accesses its part of a file from beginning to end"
)
# Sizes of transfers whose durations a profile has, and quantiles of these.
_TIMED_SIZES, _DECILES = 64, tuple(n / 10 for n in range(1, 10))
# Rows of `Step.places`.
_ROWS = ("number", "offset", "size", "stride")


def describe_log(path: Path, name: str, phases: int | None = None, grid: Sequence[int] = ()) -> dict[str, Any]:
    """Return the description of the workload in a log.

    Args:
        name: of the workload.
        phases: how many; None: one for each change of what is read or written.
        grid: into how many parts the ranks divide the last dimensions of arrays; empty: what the log says.

    Returns:
        `description`, and `losses`: sentences about what it does not have.

    Raises:
        InputError: the log is unreadable or incomplete, or it has fewer pauses than are needed for so many phases.
    """
    use = read_use(path, grid)
    losses = list(use.losses)
    if not use.traced:
        losses.insert(0, _NO_DXT)
    families = group_files(use)
    keys: list[Key] = []
    streams = Streams(use, families, keys, losses)
    described = [
        {"name": title, "actions": _Actions({f.name: f for f in families}, use.ranks).emit(nodes)}
        for title, nodes in _describe_phases(streams, phases)
    ]
    method = "every access (DXT)" if use.traced else "counters"
    scales = use.traced and not losses and make_scalable(families, described, use.ranks)
    document = {
        "name": name,
        "description": " ".join([f"Made from {method} of {format_count(use.ranks, 'rank')}"
                                 f"{', for any number' if scales else ', for these only'}.",
                                 *(f"{loss[0].upper()}{loss[1:]}." for loss in losses)]),
        "source": f"log of Darshan {use.version or '(unknown version)'}, {use.ranks} ranks, {use.run_time_s:.3f} s",
        **({} if scales else {"ranks": use.ranks}),
        "parameters": {"traced_ranks": use.ranks},
        "files": {family.name: family.document for family in families},
        "phases": described,
    }  # fmt: skip
    return {"description": document, "losses": losses}


# Files of a replay: `data.NAME.NUMBER.OWNER` of benchio.
_REPLAYED = re.compile(r"/data\.([a-z][a-z0-9_-]*)\.\d+\.\d+$")


def profile_log(
    path: Path, prepared: Mapping[str, tuple[bool, int]] | None = None, phases: int | None = None
) -> dict[str, Any]:
    """Return how much I/O of which kind a log has, as it is described.

    Args:
        prepared: of the log of a replay: per file of the description whether benchio writes it before the first phase,
            and how often it opens it to see whether it is in the page cache; both are left out, and so are other files.
            None: the log of an application.
        phases: how many, as for `describe_log`; if there are not so many pauses, all is one phase.

    Returns:
        `ranks`; `layers`: per api (`mpiio`, `posix`) numbers of files by sharing, operations and bytes, and `sizes`:
        `read` and `write` to (size in bytes, number), the most frequent first; `phases`: the seconds of each in which
        at least one rank reads or writes; `below`: that of `LogUse`; `durations`, None without DXT: of `read` and
        `write`, for the sizes that take most of the time, (size, seconds of all, deciles .1 to .9 of one transfer).
    """
    use = read_use(path)
    if prepared is not None:
        found = [
            (file, match[1]) for file in use.files if (match := _REPLAYED.search(file.path)) and match[1] in prepared
        ]
        use.files = [file for file, _ in found]
        for file, name in found:
            if file.api == "posix":
                _drop_preparation(file, *prepared[name])
    # benchio writes an input through POSIX, or a library, in seconds that are those of the same file.
    writes_inputs = any(written for written, _ in (prepared or {}).values())
    layers = {api: [file for file in use.files if file.api == api] for api in ("mpiio", "posix")}
    counts = {api: _count_layer(files, use.ranks) for api, files in layers.items()}
    streams = Streams(use, group_files(use), [], [])
    return {
        "ranks": use.ranks,
        "layers": counts,
        "phases": _phase_times(use, streams, phases),
        "below": {verb: share for verb, share in use.below.items() if not (writes_inputs and verb == "write")},
        "durations": {verb: [*_durations(_transfers(use, verb))] for verb in TRANSFERS} if use.traced else None,
    }


def _durations(rows: NDArray[np.void]) -> Iterator[tuple[int, float, list[float]]]:
    seconds = rows["end"] - rows["start"]
    sizes, places = np.unique(rows["size"], return_inverse=True)
    spent = np.bincount(places, seconds, len(sizes))
    for at in np.argsort(-spent, kind="stable")[:_TIMED_SIZES].tolist():
        yield int(sizes[at]), float(spent[at]), np.quantile(seconds[places == at], _DECILES).tolist()


def _drop_preparation(file: FileUse, written: bool, inspections: int) -> None:
    """Leave out what benchio's first rank of a file does before phases: write an input, ask for the page cache."""
    use = file.ranks[min(file.ranks)]
    use.opens = max(use.opens - inspections - written, 0)
    if not written:
        return
    use.opened = (0.0, 0.0)
    reads = np.flatnonzero(~use.accesses["write"])
    before = use.accesses[: reads[0] if len(reads) else len(use.accesses)]
    # The file is written from beginning to end, which no write of the workload before a read continues.
    ends = np.cumsum(before["size"])
    again = np.flatnonzero(before["offset"] != ends - before["size"])
    use.accesses = use.accesses[again[0] if len(again) else len(before) :]


def _count_layer(files: Sequence[FileUse], ranks: int) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    sizes: dict[str, Counter[int]] = {verb: Counter() for verb in TRANSFERS}
    for file in files:
        sharing = "one rank" if len(file.ranks) == 1 else "all ranks" if len(file.ranks) == ranks else "some ranks"
        counts[f"files of {sharing}"] += 1
        for one in file.ranks.values():
            counts["opens"] += one.opens
            counts["flushes"] += one.flushes
            for write, together, size, count in one.accesses[["write", "collective", "size", "count"]].tolist():
                verb = "write" if write else "read"
                counts[f"{'collective' if together else 'independent'} {verb}s"] += count
                counts[f"bytes {'written' if write else 'read'}"] += size * count
                sizes[verb][size] += count
    ordered = {verb: sorted(found.items(), key=lambda pair: (-pair[1], pair[0])) for verb, found in sizes.items()}
    return {**counts, "sizes": ordered} if files else {}


def _phase_times(use: LogUse, streams: Streams, wanted: int | None) -> list[float]:
    cuts = choose_cuts(streams, None)
    if wanted is not None and len(cuts) + 1 != wanted:
        with contextlib.suppress(InputError):
            cuts = choose_cuts(streams, wanted)
    cuts = cuts if wanted in (None, len(cuts) + 1) else []
    rows = _transfers(use, *TRANSFERS)
    return [float(part.sum()) for part in np.split(_busy_seconds(rows), np.searchsorted(rows["start"], cuts))]


def _transfers(use: LogUse, *verbs: str) -> NDArray[np.void]:
    """Reads, writes or both of all ranks, by their start: single ones, between which the ranks do something else."""
    parts = [one.accesses for file in use.files for one in file.ranks.values()]
    rows = np.concatenate([np.zeros(0, ACCESS), *parts])
    rows = rows[np.isin(rows["write"], [verb == "write" for verb in verbs])]
    ordered: NDArray[np.void] = rows[np.argsort(rows["start"], kind="stable")]
    return ordered


def _busy_seconds(rows: NDArray[np.void]) -> NDArray[np.float64]:
    """Seconds of each transfer in which no earlier one was going on; their sum is the time with at least one."""
    ends = np.maximum.accumulate(np.concatenate([[0.0], rows["end"]]))
    busy: NDArray[np.float64] = np.maximum(rows["end"] - np.maximum(rows["start"], ends[:-1]), 0.0)
    return busy


def _describe_phases(streams: Streams, wanted: int | None) -> Iterator[tuple[str, list[patterns.Node]]]:
    cuts = choose_cuts(streams, wanted)
    names: dict[str, int] = {}
    ended = 0.0
    for number in range(len(cuts) + 1):
        low = cuts[number - 1] if number else -math.inf
        high = cuts[number] if number < len(cuts) else math.inf
        first = streams.together["start"].min(axis=1) if len(streams.together) else np.zeros(0)
        together = streams.together[(first >= low) & (first < high)]
        alone = {rank: rows[(rows["start"] >= low) & (rows["start"] < high)] for rank, rows in streams.alone.items()}
        verbs = {streams.keys[key].verb for rows in alone.values() for key in np.unique(rows["key"])}
        verbs |= {streams.keys[key].verb for key in np.unique(together["key"])}
        kind = "-".join(verb for verb in TRANSFERS if verb in verbs) or "metadata"
        names[kind] = names.get(kind, 0) + 1
        nodes, ended = _phase_nodes(streams, together, alone, ended)
        yield (f"{kind}-{names[kind]}" if names[kind] > 1 else kind), nodes


def _phase_nodes(
    streams: Streams, together: NDArray[np.void], alone: Mapping[int, NDArray[np.void]], ended: float
) -> tuple[list[patterns.Node], float]:
    """The steps of one phase, folded; and when its last action ends. `ended`: when that of the phase before did."""
    starts = [float(rows["start"][0]) for rows in alone.values() if len(rows)] + together["start"].ravel().tolist()[:1]
    ends = [
        ended,
        *(float(rows["end"].max()) for rows in alone.values() if len(rows)),
        *together["end"].ravel().tolist(),
    ]
    nodes: list[patterns.Node] = []
    everyone = tuple(range(streams.ranks))
    if starts and ended and min(starts) - ended >= PAUSE_S:
        nodes.append(_pause(everyone, min(starts) - ended))
    clocks = np.full(streams.ranks, min(starts, default=0.0))
    # A rank's own time of each common action, which never runs backwards.
    times = np.maximum.accumulate(together["start"], axis=0) if len(together) else together["start"]
    segments: dict[int, dict[int, NDArray[np.void]]] = {}
    for rank, rows in alone.items():
        places = np.searchsorted(times[:, rank], rows["start"], side="left") if len(rows) else np.zeros(0, np.int64)
        turns, firsts = np.unique(places, return_index=True)
        for turn, part in zip(turns.tolist(), np.split(rows, firsts[1:]), strict=False):
            segments.setdefault(turn, {})[rank] = part
    for turn in range(len(together) + 1):
        nodes += _segment_nodes(streams, segments.get(turn, {}), clocks)
        if turn < len(together):
            row = together[turn]
            gap = float((row["start"] - clocks).min())
            if gap >= PAUSE_S:
                nodes.append(_pause(everyone, gap))
            np.maximum(clocks, row["end"], out=clocks)
            nodes.append(_node(streams.keys[row["key"][0]], everyone, row))
    return patterns.fold_steps(_without_outer_barriers(nodes)), max(ends)


def _without_outer_barriers(nodes: Sequence[patterns.Node]) -> list[patterns.Node]:
    """Nodes without barriers before the first and behind the last transfer: ranks wait between phases anyway."""
    moving = [at for at, node in enumerate(nodes) if any(step.key.verb in TRANSFERS for step in node.steps)] or [0]
    return [node for at, node in enumerate(nodes) if node.steps[0].key.verb != "barrier" or moving[0] < at < moving[-1]]


def _pause(ranks: tuple[int, ...], seconds: float) -> patterns.Step:
    return patterns.Step(Key("compute"), ranks, np.zeros((len(_ROWS), len(ranks)), np.int64), seconds=seconds)


def _node(key: Key, ranks: tuple[int, ...], rows: NDArray[np.void]) -> patterns.Node:
    """One token of each rank; their counts are equal."""
    zero = np.zeros(len(rows), np.int64)
    step = patterns.Step(key, ranks, np.stack([*(rows[name] for name in ("number", "offset", "size")), zero]))
    count = int(rows["count"][0])
    return patterns.repeat_step(step, count, np.stack([zero, rows["stride"], zero, zero])) if count > 1 else step


def _segment_nodes(
    streams: Streams, rows: Mapping[int, NDArray[np.void]], clocks: NDArray[np.float64]
) -> list[patterns.Node]:
    """What ranks do on their own between two common actions: ranks that do the same are one group."""
    if not rows:
        return []
    groups: dict[tuple[bytes, ...], list[int]] = {}
    for rank, mine in rows.items():
        groups.setdefault(tuple(mine[name].tobytes() for name in ("key", "count", "size")), []).append(rank)
    nodes: list[patterns.Node] = []
    for ranks in groups.values():
        table = np.stack([rows[rank] for rank in ranks], axis=1)
        nodes += _fold_group(streams, tuple(ranks), table, clocks)
    return nodes


def _fold_group(
    streams: Streams, ranks: tuple[int, ...], table: NDArray[np.void], clocks: NDArray[np.float64]
) -> list[patterns.Node]:
    own = clocks[list(ranks)]
    ends = np.maximum.accumulate(np.concatenate([own[None, :], table["end"]]), axis=0)
    gaps = (table["start"] - ends[:-1]).min(axis=1)
    clocks[list(ranks)] = ends[-1]
    if len(table) <= MAX_NUMBERS or (len(table) <= _MAX_STEPS and _has_patterns(streams, ranks, table[:_SAMPLE], gaps)):
        nodes = patterns.fold_steps([*_table_nodes(streams, ranks, table, gaps)])
        size = patterns.count_numbers(nodes)
        if size > 64 * len(ranks) and len(ranks) > 1:
            single = [
                patterns.fold_steps([*_table_nodes(streams, (rank,), table[:, i : i + 1], gaps)])
                for i, rank in enumerate(ranks)
            ]
            total = sum(map(patterns.count_numbers, single))
            if total < size:
                nodes, size = [node for one in single for node in one], total
        if size <= MAX_NUMBERS:
            return nodes
    return [
        node
        for i, rank in enumerate(ranks)
        for node in _scatter(streams, rank, table[:, i], float(gaps[gaps >= PAUSE_S].sum()))
    ]


def _has_patterns(
    streams: Streams, ranks: tuple[int, ...], sample: NDArray[np.void], gaps: NDArray[np.float64]
) -> bool:
    """Whether the first actions become fewer: searching many without patterns for some takes minutes."""
    return 2 * len(patterns.fold_steps([*_table_nodes(streams, ranks, sample, gaps[: len(sample)])])) < len(sample)


def _table_nodes(
    streams: Streams, ranks: tuple[int, ...], table: NDArray[np.void], gaps: NDArray[np.float64]
) -> Iterator[patterns.Node]:
    for row, gap in zip(table, gaps.tolist(), strict=True):
        if gap >= PAUSE_S:
            yield _pause(ranks, gap)
        yield _node(streams.keys[row["key"][0]], ranks, row)


def _scatter(streams: Streams, rank: int, rows: NDArray[np.void], paused: float) -> Iterator[patterns.Node]:
    """The same accesses in another order: per kind, file and size as many, at scattered places of the same range."""
    streams.losses.append(
        f"rank {rank}: {format_count(int(rows['count'].sum()), 'action')} have no pattern of {MAX_NUMBERS:,} numbers: "
        "the same sizes and numbers at scattered offsets of the same range, without their order"
    )
    if paused >= PAUSE_S:
        yield _pause((rank,), paused)
    accesses = np.isin(rows["key"], [i for i, key in enumerate(streams.keys) if key.verb in TRANSFERS])
    before = ~accesses & (np.arange(len(rows)) < np.argmax(accesses))
    for row in rows[before]:
        yield _node(streams.keys[row["key"]], (rank,), row[None])
    kinds, inverse = np.unique(rows[accesses][["key", "number", "size"]], return_inverse=True)
    for i, kind in enumerate(kinds):
        mine = rows[accesses][inverse == i]
        total = int(mine["count"].sum())
        low = int(mine["offset"].min())
        last = int((mine["offset"] + (mine["count"] - 1) * mine["stride"]).max())
        stride = (last - low) // (total - 1) if total > 1 else 0
        order = next(s for s in range(max(int(total * 0.618), 1), total + 2) if math.gcd(s, total) == 1)
        key = streams.keys[kind["key"]]._replace(scatter=(total, order), division=None)
        places = np.array([[kind["number"]], [low], [kind["size"]], [stride]], np.int64)
        yield patterns.Step(key, (rank,), places)
    for row in rows[~accesses & ~before]:
        yield _node(streams.keys[row["key"]], (rank,), row[None])


@dataclass
class _Actions:
    """Writes nodes as actions of a description."""

    families: Mapping[str, Family]
    ranks: int

    def emit(self, nodes: Sequence[patterns.Node], indices: tuple[str, ...] = ()) -> list[Any]:
        """Return the actions; `indices` are those of the repeats around, the outermost first."""
        actions: list[Any] = []
        at = 0
        while at < len(nodes):
            node = nodes[at]
            if isinstance(node, patterns.Repeat):
                actions.append(self._repeat(node, indices))
                at += 1
                continue
            run = self._run_of(nodes[at:]) if not node.strides else [node]
            actions.append(self._list(run) if len(run) > 2 else self._step(node, indices))
            at += len(run) if len(run) > 2 else 1
        return actions

    def _run_of(self, nodes: Sequence[patterns.Node]) -> list[patterns.Step]:
        """The first accesses of one key and file number, which can be one list."""
        run: list[patterns.Step] = []
        for node in nodes:
            first = run[0] if run else node
            if not isinstance(node, patterns.Step) or not isinstance(first, patterns.Step):
                break
            if not node.key.is_row or (node.key, node.ranks) != (first.key, first.ranks):
                break
            if not np.array_equal(node.places[0], first.places[0]):
                break
            run.append(node)
        return run

    def _list(self, run: Sequence[patterns.Step]) -> dict[str, Any]:
        first = run[0]
        pairs = [[self._value(step, 1, ()), self._value(step, 2, ())] for step in run]
        return {first.key.verb: first.key.file, "list": pairs, **self._common(first, ())}

    def _repeat(self, node: patterns.Repeat, indices: tuple[str, ...]) -> dict[str, Any]:
        only = node.body[0]
        if len(node.body) == 1 and isinstance(only, patterns.Step) and only.key.is_row:
            stride = only.strides[-1] if not indices else only.strides[0]
            inner = replace(only, strides=only.strides[1:])
            if not stride[[0, 2]].any():
                action = self._step(inner, indices)
                step = patterns.describe_ranks(stride[1], only.ranks)
                size = action["size"]
                return _placed(
                    action, {"count": node.count, **({"stride": _number(step)} if _number(step) != size else {})}
                )
        index = "ijklmnopqrstuvwx"[len(indices)]
        used = any(step.strides[len(step.strides) - len(indices) - 1].any() for step in node.steps)
        body = self.emit(node.body, (*indices, index))
        return {"repeat": node.count, **({"index": index} if used else {}), "actions": body}

    def _step(self, step: patterns.Step, indices: tuple[str, ...]) -> Any:
        key = step.key
        assert isinstance(key, Key)
        if key.verb == "barrier":
            return "barrier"
        if key.verb == "compute":
            chosen = patterns.select_ranks(step.ranks, range(self.ranks))
            return {"compute": round(step.seconds / step.times, 6), **({"ranks": chosen} if chosen is not None else {})}
        action: dict[str, Any] = {key.verb: key.file}
        if key.mode:
            action["mode"] = key.mode
        if key.verb in TRANSFERS:
            action["offset"] = self._value(step, 1, indices)
            if isinstance(key.division, Division):
                action |= _part(key.division, step.ranks)
            elif key.division:
                action["list"] = _pieces(key.division, step.ranks, str(action.pop("offset")))
            else:
                action["size"] = self._value(step, 2, indices)
            action |= {"view": True} if key.viewed or isinstance(key.division, Pieces) else {}
        action |= self._common(step, indices)
        if key.scatter is None:
            return action
        count, order = key.scatter
        stride = int(step.places[3][0])
        action["offset"] = f"{action['offset']} + i * {order} % {count} * {stride}"
        return {"repeat": count, "index": "i", "actions": [action]}

    def _common(self, step: patterns.Step, indices: tuple[str, ...]) -> dict[str, Any]:
        family = self.families[step.key.file]
        found: dict[str, Any] = {}
        if step.key.collective:
            found["collective"] = True
        if step.key.short:
            found["short"] = True
        if "count" in family.document:
            found["number"] = self._value(step, 0, indices)
        if (chosen := patterns.select_ranks(step.ranks, family.members)) is not None:
            found["ranks"] = chosen
        return found

    def _value(self, step: patterns.Step, row: int, indices: tuple[str, ...]) -> int | str:
        """The expression of one of `_ROWS`: that of the first turn, and what each repeat around it adds."""
        terms = [patterns.describe_ranks(step.places[row], step.ranks)]
        # The outermost repeat is the first index and the last stride.
        for index, stride in zip(indices, reversed(step.strides), strict=True):
            factor = patterns.describe_ranks(stride[row], step.ranks)
            if factor != "0":
                terms.append(f"{index} * {factor if factor.lstrip('-').isdigit() else f'({factor})'}")
        terms = [term for term in terms if term != "0"] or ["0"]
        return _number(" + ".join(terms))


def _number(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text


def _part(division: Division, ranks: Sequence[int]) -> dict[str, Any]:
    """The members of an action that say which part of an array each rank has."""
    rows = [division.ranks.index(rank) for rank in ranks]
    start, count = (
        [_number(patterns.describe_ranks(column, ranks)) for column in np.array(parts, np.int64)[rows].T]
        for parts in (division.starts, division.counts)
    )
    return {"shape": [*division.shape], "start": start, "count": count}


def _pieces(found: Pieces, ranks: Sequence[int], offset: str) -> list[list[int | str]]:
    """Offset and size of each piece behind an offset: expressions of the rank."""
    rows = [found.ranks.index(rank) for rank in ranks]
    columns = np.moveaxis(np.array(found.pieces, np.int64)[rows], 0, -1)
    return [
        [
            _add_expressions(offset, patterns.describe_ranks(starts, ranks)),
            _number(patterns.describe_ranks(sizes, ranks)),
        ]
        for starts, sizes in columns
    ]


def _add_expressions(left: str, right: str) -> int | str:
    """The sum of two expressions; numbers at the beginning are added."""
    (number, *more), (other, *rest) = left.split(" + "), right.split(" + ")
    if number.isdigit() and other.isdigit():
        number, rest = str(int(number) + int(other)), [*more, *rest]
        return _number(" + ".join([number, *rest]))
    return _number(" + ".join(one for one in (left, right) if one != "0") or "0")


def _placed(action: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The action with members behind its size, where a reader expects them."""
    out: dict[str, Any] = {}
    for key, value in action.items():
        out[key] = value
        if key == "size":
            out |= more
    return out
