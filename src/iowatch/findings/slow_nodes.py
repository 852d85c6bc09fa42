"""Slow nodes: which node of a run took longer than the others, and in how many runs around a change it did.

    fact `node_times` of a run -> ratios of its nodes (statistics.slow_rows) -> evidence of a finding

A node that is slower in every repetition of the runs since a change, and was not before, is where to look first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from iowatch.core import NODE_TIMES_FACT, NodeTimes
from iowatch.findings.evidence import runs_around_change
from iowatch.findings.finding import FindingMember, SlowNode, strongest_first
from iowatch.statistics.slow_rows import SlowRow, WholeTable, slow_rows
from iowatch.store import NO_RUN_FACTS, History, RunFacts, SeriesPoints

# Members of one event have their runs on the same nodes, so a few of them name all slow nodes.
_MAX_MEMBERS, _MAX_SLOW_NODES = 4, 5
# Nodes whose bytes differ by less are compared by their times alone.
_SIMILAR_SIZE = 1.1


@dataclass(frozen=True)
class NodeRatio:
    """A node of one run that was slower than the other nodes of the run.

    Attributes:
        ratio: its time / median of the other nodes, median over the repetitions.
        slow_repetitions: repetitions in which it was slow, of the `repetitions` that the run kept.
        other_nodes: number of the other nodes of the run.
        other: the other node, if there is only one; then it is not known which of the two is not as it should be.
    """

    node: str
    ratio: float
    slow_repetitions: int
    repetitions: int
    other_nodes: int
    other: str | None = None


def slow_nodes_of_run(times: NodeTimes) -> tuple[NodeRatio, ...]:
    """Return the nodes of a run that were slower than the others, the slowest first; none if the run cannot show any.

    With fewer than three repetitions it cannot. Of nodes that moved other numbers of bytes, a slow one has both the
    longer time and the longer time per byte.
    """
    if not _is_table(times):
        return ()
    seconds = np.array(times.seconds, dtype=np.float64)
    sizes = np.array(times.sizes, dtype=np.float64)
    rows = slow_rows(seconds, _whole_table(times))
    if sizes.max() > _SIMILAR_SIZE * sizes.min():
        # The quartiles of all nodes are those of times only.
        if times.quartiles:
            return ()
        rows = tuple(_rows_in_both(rows, slow_rows(seconds / sizes[:, np.newaxis])))
    return tuple(_node_ratio(times, row) for row in rows)


def are_comparable(times: NodeTimes) -> bool:
    """Return whether the nodes of a run can be compared by their times alone: they moved about as many bytes."""
    return _is_table(times) and max(times.sizes) <= _SIMILAR_SIZE * min(times.sizes)


def _is_table(times: NodeTimes) -> bool:
    """Return whether there is a time above 0 for each node and repetition: facts may be of other programs."""
    columns = {len(seconds) for seconds in times.seconds}
    if len(columns) != 1 or not len(times.names) == len(times.sizes) == len(times.seconds):
        return False
    if times.quartiles and len(times.quartiles) not in columns:
        return False
    values: list[float] = [*times.sizes]
    for seconds in times.seconds:
        values += seconds
    values += [quartile.lower for quartile in times.quartiles]
    return min(values, default=math.inf) > 0


def _whole_table(times: NodeTimes) -> WholeTable | None:
    if not times.quartiles:
        return None
    quartiles = [[quartile.lower, quartile.median, quartile.upper] for quartile in times.quartiles]
    return WholeTable(times.nodes, np.array(quartiles, dtype=np.float64))


def _rows_in_both(by_time: Sequence[SlowRow], by_time_per_byte: Sequence[SlowRow]) -> Iterable[SlowRow]:
    """Rows that are slow in both tables, each as it is in the table in which it is less so."""
    per_byte = {slow_row.row: slow_row for slow_row in by_time_per_byte}
    for slow_row in by_time:
        if slow_row.row in per_byte:
            yield min(slow_row, per_byte[slow_row.row], key=lambda either: either.ratio)


def _node_ratio(times: NodeTimes, row: SlowRow) -> NodeRatio:
    other = None
    if times.nodes == 2:
        other = times.names[1 - row.row]
    return NodeRatio(
        node=times.names[row.row],
        ratio=row.ratio,
        slow_repetitions=row.columns,
        repetitions=len(times.seconds[row.row]),
        other_nodes=times.nodes - 1,
        other=other,
    )


def slow_node_evidence(
    history: History, members: Sequence[FindingMember], points: Mapping[int, SeriesPoints]
) -> tuple[SlowNode, ...]:
    """Nodes that were slow in at least half of the runs on them since the change, of the members with the largest ones.

    Args:
        points: by series id, observations of each member on both sides of the change.
    """
    by_node: dict[str, SlowNode] = {}
    for member in strongest_first(members)[:_MAX_MEMBERS]:
        runs = runs_around_change(member, points[member.series_id])
        facts = history.run_facts([*runs.before, *runs.after], (NODE_TIMES_FACT,))
        operation = str(member.parameters.get("operation"))
        before = [_times_of(facts.get(run, NO_RUN_FACTS), operation) for run in runs.before]
        after = [_times_of(facts.get(run, NO_RUN_FACTS), operation) for run in runs.after]
        for slow_node in _slow_since_change(member.name, before, after):
            # Each node once, as the member with the largest change shows it.
            by_node.setdefault(slow_node.node, slow_node)
    slowest_first = sorted(by_node.values(), key=lambda slow_node: -slow_node.ratio)
    return tuple(slowest_first[:_MAX_SLOW_NODES])


def _times_of(facts: RunFacts, operation: str) -> NodeTimes | None:
    return facts.node_times.get(operation)


def _slow_since_change(
    name: str, before: Sequence[NodeTimes | None], after: Sequence[NodeTimes | None]
) -> Iterable[SlowNode]:
    """The slow nodes of the runs of one member.

    Args:
        name: of the member, for display.
        before, after: times of each run on both sides of the change, in order of time; None where a run has none.
    """
    slow_after = _SlowCounts(after)
    slow_before = _SlowCounts(before)
    for node, ratio in slow_after.newest.items():
        if 2 * slow_after.slow[node] < slow_after.used[node]:
            continue
        yield SlowNode(
            node=node,
            series=name,
            ratio=ratio.ratio,
            slow_repetitions=ratio.slow_repetitions,
            repetitions=ratio.repetitions,
            other_nodes=ratio.other_nodes,
            other=ratio.other,
            slow_after=slow_after.slow[node],
            runs_after=slow_after.used[node],
            slow_before=slow_before.slow[node],
            runs_before=slow_before.used[node],
        )


class _SlowCounts:
    """How many of some runs used each node, and in how many of these it was slow.

    Attributes:
        newest: by node, the newest run in which it was slow.
    """

    def __init__(self, runs: Sequence[NodeTimes | None]) -> None:
        self.used: Counter[str] = Counter()
        self.slow: Counter[str] = Counter()
        self.newest: dict[str, NodeRatio] = {}
        for times in runs:
            if times is None:
                continue
            # Of very many nodes only the slowest ones are known by name.
            self.used.update(times.names)
            for ratio in slow_nodes_of_run(times):
                self.slow[ratio.node] += 1
                self.newest[ratio.node] = ratio
