"""The phases of a workload: what all ranks do together, what each does on its own, and the repeats in it."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from iowatch.applications.workloads import patterns
from iowatch.applications.workloads.cuts import choose_cuts
from iowatch.applications.workloads.patterns import Key
from iowatch.applications.workloads.streams import PAUSE_S, TRANSFERS, Streams
from iowatch.core import format_count

# Numbers in one phase of a description; what needs more is described by sizes and counts, at scattered offsets.
MAX_NUMBERS = 20_000
# Actions of one rank in which patterns are searched in any case; more only if the first `_SAMPLE` have some.
_MAX_STEPS = 200_000
_SAMPLE = 1_000
# A description of several ranks together that has more numbers than this per rank is compared with one of each.
_MANY_NUMBERS_PER_RANK = 64
# The order of scattered accesses: a step of this share of their number visits all places in turn and looks random.
_GOLDEN_SHARE = 0.618


@dataclass(frozen=True)
class Phase:
    """A phase: its name, and what the ranks do in it."""

    name: str
    nodes: list[patterns.Node]


def describe_phases(streams: Streams, phases: int | None) -> Iterator[Phase]:
    """Yield the phases of a log in order.

    Args:
        streams: the actions of the ranks; what a phase does not have is added to its losses.
        phases: how many; None: one for each change of what is read or written.

    Raises:
        InputError: there are fewer pauses than are needed for so many phases.
    """
    boundaries = [-math.inf, *choose_cuts(streams, phases), math.inf]
    phases_of_name: Counter[str] = Counter()
    ended_s = 0.0
    for start_s, end_s in itertools.pairwise(boundaries):
        actions = _actions_between(streams, start_s, end_s)
        # The second phase that writes is `write-2`.
        name = _phase_name(streams, actions)
        phases_of_name[name] += 1
        if phases_of_name[name] > 1:
            name = f"{name}-{phases_of_name[name]}"
        builder = _PhaseBuilder(streams, ended_s)
        builder.add(actions)
        ended_s = max(ended_s, builder.ended_s)
        yield Phase(name, patterns.fold_steps(_without_outer_barriers(builder.nodes)))


@dataclass(frozen=True)
class _PhaseActions:
    """What ranks do in one phase.

    Attributes:
        common: (actions, ranks), rows of TOKEN: the actions of all ranks together.
        by_rank: rank to rows of TOKEN: what it does on its own.
    """

    common: NDArray[np.void]
    by_rank: Mapping[int, NDArray[np.void]]


def _actions_between(streams: Streams, start_s: float, end_s: float) -> _PhaseActions:
    """The actions that begin within a time."""
    common = streams.common
    if len(common):
        first_start = common["start"].min(axis=1)
        common = common[(first_start >= start_s) & (first_start < end_s)]
    by_rank: dict[int, NDArray[np.void]] = {}
    for rank, rows in streams.by_rank.items():
        by_rank[rank] = rows[(rows["start"] >= start_s) & (rows["start"] < end_s)]
    return _PhaseActions(common, by_rank)


def _phase_name(streams: Streams, actions: _PhaseActions) -> str:
    """`read`, `write` or `read-write`; `metadata` for a phase without transfers."""
    keys = set(np.unique(actions.common["key"]).tolist())
    for rows in actions.by_rank.values():
        keys |= set(np.unique(rows["key"]).tolist())
    verbs = {streams.keys[key].verb for key in keys}
    return "-".join(verb for verb in TRANSFERS if verb in verbs) or "metadata"


@dataclass
class _PhaseBuilder:
    """Collects what ranks do in one phase.

    Attributes:
        streams: the actions of the log.
        ended_s: when the last action that was added ended; at first, when the phase before did.
        clocks: (ranks,), when the last action of each rank ended.
        nodes: what was added, in order.
    """

    streams: Streams
    ended_s: float
    clocks: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    nodes: list[patterns.Node] = field(default_factory=list)

    @property
    def _all_ranks(self) -> tuple[int, ...]:
        return tuple(range(self.streams.ranks))

    def add(self, actions: _PhaseActions) -> None:
        """Add all actions of the phase: before each action of all ranks what each of them does on its own."""
        self._begin(actions)
        segments = _segments_between(actions)
        for number, action in enumerate(actions.common):
            self._add_segment(segments.get(number, {}))
            self._add_common_action(action)
        self._add_segment(segments.get(len(actions.common), {}))
        ends = [self.ended_s, *actions.common["end"].ravel().tolist()]
        ends += [float(rows["end"].max()) for rows in actions.by_rank.values() if len(rows)]
        self.ended_s = max(ends)

    def _begin(self, actions: _PhaseActions) -> None:
        """Set the clocks to the first start, and add the pause before it."""
        starts = [float(rows["start"][0]) for rows in actions.by_rank.values() if len(rows)]
        if len(actions.common):
            # Of all ranks the first one, in the first action.
            starts.append(float(actions.common["start"][0, 0]))
        first_start = min(starts, default=0.0)
        self.clocks = np.full(self.streams.ranks, first_start)
        # There is no pause before the first phase: the job begins with it.
        pause_s = first_start - self.ended_s
        if starts and self.ended_s and pause_s >= PAUSE_S:
            self.nodes.append(_pause(self._all_ranks, pause_s))

    def _add_common_action(self, action: NDArray[np.void]) -> None:
        pause_s = float((action["start"] - self.clocks).min())
        if pause_s >= PAUSE_S:
            self.nodes.append(_pause(self._all_ranks, pause_s))
        np.maximum(self.clocks, action["end"], out=self.clocks)
        self.nodes.append(_node(self.streams.keys[action["key"][0]], self._all_ranks, action))

    def _add_segment(self, rows_of_rank: Mapping[int, NDArray[np.void]]) -> None:
        """Add what ranks do on their own between two common actions: ranks that do the same are one group."""
        groups: dict[tuple[bytes, ...], list[int]] = {}
        for rank, rows in rows_of_rank.items():
            actions = tuple(rows[name].tobytes() for name in ("key", "count", "size"))
            groups.setdefault(actions, []).append(rank)
        for ranks in groups.values():
            table = np.stack([rows_of_rank[rank] for rank in ranks], axis=1)
            self.nodes += self._describe_group(_RankGroup.of(tuple(ranks), table, self.clocks))

    def _describe_group(self, group: _RankGroup) -> list[patterns.Node]:
        """The actions of ranks that do the same, in as few numbers as possible."""
        action_count = len(group.table)
        if action_count <= MAX_NUMBERS or (action_count <= _MAX_STEPS and self._has_patterns(group)):
            folded = self._fold_group(group)
            if folded.numbers <= MAX_NUMBERS:
                return folded.nodes
        # Without patterns only sizes and counts are described.
        paused_s = float(group.pauses_s[group.pauses_s >= PAUSE_S].sum())
        scattered: list[patterns.Node] = []
        for index, rank in enumerate(group.ranks):
            scattered += self._scatter(rank, group.table[:, index], paused_s)
        return scattered

    def _fold_group(self, group: _RankGroup) -> _FoldedGroup:
        """The patterns of all ranks together, or of each rank if these have fewer numbers."""
        nodes = self._fold(group)
        numbers = patterns.count_numbers(nodes)
        if len(group.ranks) < 2 or numbers <= _MANY_NUMBERS_PER_RANK * len(group.ranks):
            return _FoldedGroup(nodes, numbers)
        # Ranks whose offsets follow no common rule may each follow one of their own.
        nodes_of_ranks: list[patterns.Node] = []
        for index in range(len(group.ranks)):
            nodes_of_ranks += self._fold(group.of_rank(index))
        numbers_of_ranks = patterns.count_numbers(nodes_of_ranks)
        if numbers_of_ranks < numbers:
            return _FoldedGroup(nodes_of_ranks, numbers_of_ranks)
        return _FoldedGroup(nodes, numbers)

    def _has_patterns(self, group: _RankGroup) -> bool:
        """Whether the first actions become fewer: searching many without patterns for some takes minutes."""
        folded = self._fold(_RankGroup(group.ranks, group.table[:_SAMPLE], group.pauses_s[:_SAMPLE]))
        return 2 * len(folded) < len(group.table[:_SAMPLE])

    def _fold(self, group: _RankGroup) -> list[patterns.Node]:
        steps: list[patterns.Node] = []
        for row, pause_s in zip(group.table, group.pauses_s.tolist(), strict=True):
            if pause_s >= PAUSE_S:
                steps.append(_pause(group.ranks, pause_s))
            steps.append(_node(self.streams.keys[row["key"][0]], group.ranks, row))
        return patterns.fold_steps(steps)

    def _scatter(self, rank: int, rows: NDArray[np.void], paused_s: float) -> Iterator[patterns.Node]:
        """The same accesses in another order: per key, file and size as many, at scattered places of the same range."""
        actions = format_count(int(rows["count"].sum()), "action")
        self.streams.losses.append(
            f"rank {rank}: {actions} have no pattern of {MAX_NUMBERS:,} numbers: the same sizes and numbers at "
            "scattered offsets of the same range, without their order"
        )
        if paused_s >= PAUSE_S:
            yield _pause((rank,), paused_s)
        transfer_keys = [number for number, key in enumerate(self.streams.keys) if key.verb in TRANSFERS]
        is_transfer = np.isin(rows["key"], transfer_keys)
        # Opens come before the transfers, all other actions behind them.
        is_before = ~is_transfer & (np.arange(len(rows)) < np.argmax(is_transfer))
        for row in rows[is_before]:
            yield _node(self.streams.keys[row["key"]], (rank,), row[None])
        transfers = rows[is_transfer]
        accesses, access_of_row = np.unique(transfers[["key", "number", "size"]], return_inverse=True)
        for index, access in enumerate(accesses):
            yield self._scattered_step(rank, access, transfers[access_of_row == index])
        for row in rows[~is_transfer & ~is_before]:
            yield _node(self.streams.keys[row["key"]], (rank,), row[None])

    def _scattered_step(self, rank: int, access: np.void, rows: NDArray[np.void]) -> patterns.Step:
        """All transfers of one key, file and size: as many in the same range, in an order without a pattern."""
        total = int(rows["count"].sum())
        first_offset = int(rows["offset"].min())
        last_offset = int((rows["offset"] + (rows["count"] - 1) * rows["stride"]).max())
        stride = 0
        if total > 1:
            stride = (last_offset - first_offset) // (total - 1)
        key = self.streams.keys[access["key"]]._replace(scatter=(total, _visiting_step(total)), division=None)
        places = np.array([[access["number"]], [first_offset], [access["size"]], [stride]], np.int64)
        return patterns.Step(key, (rank,), places)


@dataclass(frozen=True)
class _FoldedGroup:
    """The patterns of a group, and how many numbers a description of them has."""

    nodes: list[patterns.Node]
    numbers: int


@dataclass(frozen=True)
class _RankGroup:
    """Ranks that do the same actions on their own.

    Attributes:
        ranks: n ranks.
        table: (actions, n), rows of TOKEN.
        pauses_s: (actions,), before each action: the shortest of all ranks.
    """

    ranks: tuple[int, ...]
    table: NDArray[np.void]
    pauses_s: NDArray[np.float64]

    @staticmethod
    def of(ranks: tuple[int, ...], table: NDArray[np.void], clocks: NDArray[np.float64]) -> _RankGroup:
        """Return the group of these ranks, and move their clocks to the ends of their actions."""
        clocks_of_group = clocks[list(ranks)]
        ends = np.maximum.accumulate(np.concatenate([clocks_of_group[None, :], table["end"]]), axis=0)
        pauses_s = (table["start"] - ends[:-1]).min(axis=1)
        clocks[list(ranks)] = ends[-1]
        return _RankGroup(ranks, table, pauses_s)

    def of_rank(self, index: int) -> _RankGroup:
        """Return a group of one of the ranks, with the same pauses."""
        return _RankGroup((self.ranks[index],), self.table[:, index : index + 1], self.pauses_s)


def _segments_between(actions: _PhaseActions) -> dict[int, dict[int, NDArray[np.void]]]:
    """The actions of each rank before each common action, by its number; behind the last one: number of them."""
    starts = actions.common["start"]
    if len(starts):
        # The time of a rank at each common action, which never runs backwards.
        starts = np.maximum.accumulate(starts, axis=0)
    segments: dict[int, dict[int, NDArray[np.void]]] = {}
    for rank, rows in actions.by_rank.items():
        if not len(rows):
            continue
        following_action = np.searchsorted(starts[:, rank], rows["start"], side="left")
        numbers, first_rows = np.unique(following_action, return_index=True)
        for number, segment in zip(numbers.tolist(), np.split(rows, first_rows[1:]), strict=True):
            segments.setdefault(number, {})[rank] = segment
    return segments


def _without_outer_barriers(nodes: Sequence[patterns.Node]) -> list[patterns.Node]:
    """Nodes without barriers before the first and behind the last transfer: ranks wait between phases anyway."""
    transfer_positions: list[int] = []
    for position, node in enumerate(nodes):
        if any(step.key.verb in TRANSFERS for step in node.steps):
            transfer_positions.append(position)
    # Without a transfer no barrier is needed.
    first, last = 0, 0
    if transfer_positions:
        first, last = transfer_positions[0], transfer_positions[-1]
    needed_nodes: list[patterns.Node] = []
    for position, node in enumerate(nodes):
        is_barrier = node.steps[0].key.verb == "barrier"
        if not is_barrier or first < position < last:
            needed_nodes.append(node)
    return needed_nodes


def _pause(ranks: tuple[int, ...], seconds: float) -> patterns.Step:
    places = np.zeros((patterns.PLACE_ROWS, len(ranks)), np.int64)
    return patterns.Step(Key("compute"), ranks, places, seconds=seconds)


def _node(key: Key, ranks: tuple[int, ...], rows: NDArray[np.void]) -> patterns.Node:
    """One action of each rank; their counts are equal."""
    zero = np.zeros(len(rows), np.int64)
    places = np.stack([rows["number"], rows["offset"], rows["size"], zero])
    step = patterns.Step(key, ranks, places)
    count = int(rows["count"][0])
    if count <= 1:
        return step
    moves = np.stack([zero, rows["stride"], zero, zero])
    return patterns.repeat_step(step, count, moves)


def _visiting_step(total: int) -> int:
    """A step with which every one of so many places is visited once, modulo their number."""
    step = max(int(total * _GOLDEN_SHARE), 1)
    while math.gcd(step, total) != 1:
        step += 1
    return step
