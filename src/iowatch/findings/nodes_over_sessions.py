"""Nodes over sessions: which node is slower than the others night after night, wherever it ran.

    fact `node_times` of runs ── mean per session ──> nodes x sessions ── slow_over_tables ──> NodeOverSessions

One run names a node only beyond its noise (`iowatch.findings.slow_nodes`). Here a smaller difference counts, because it
is repeated, and runs with few repetitions are of use, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from iowatch.core import NODE_TIMES_FACT, NodeTimes
from iowatch.findings.deviations import CURRENT_S, SessionDeviations, SessionMark, rows_by_name
from iowatch.findings.finding import NodeOverSessions
from iowatch.findings.slow_nodes import are_comparable
from iowatch.statistics.slow_siblings import sibling_deviations, slow_over_tables
from iowatch.store import History


def node_deviations(history: History, system: str, since: int) -> tuple[SessionDeviations, ...]:
    """Return the deviations of the nodes of a system over its sessions, by partition.

    The value of a node in a session is the mean over all its runs and their operations. Of very many nodes a run keeps
    the slowest ones; the others are absent.

    Args:
        since: epoch seconds.
    """
    # Partition -> session -> node -> deviations in its runs.
    values: dict[str, dict[SessionMark, dict[str, list[float]]]] = {}
    for run in history.runs_with_fact(system, NODE_TIMES_FACT, since):
        if run.status != "ok":
            continue
        of_session = values.setdefault(run.partition, {}).setdefault(SessionMark.of_run(run), {})
        for times in run.facts.node_times.values():
            for node, deviation in _deviations_of_run(times).items():
                of_session.setdefault(node, []).append(deviation)
    tables: list[SessionDeviations] = []
    for partition, sessions in sorted(values.items()):
        means: list[Mapping[str, float]] = []
        for nodes in sessions.values():
            means.append({node: fmean(deviations) for node, deviations in nodes.items()})
        rows = rows_by_name(means)
        tables.append(SessionDeviations(partition, "", rows.names, {}, tuple(sessions), rows.values))
    return tuple(tables)


def _deviations_of_run(times: NodeTimes) -> dict[str, float]:
    """Typical deviation of each node of a run in one operation; empty if they cannot be compared by their times."""
    if not are_comparable(times) or len(times.names) < 2:
        return {}
    seconds = np.array(times.seconds, dtype=np.float64)
    if times.quartiles:
        # One node of very many does not move the median.
        medians = np.array([quartile.median for quartile in times.quartiles], dtype=np.float64)
        deviations = np.log(seconds) - np.log(medians)
    else:
        deviations = sibling_deviations(seconds)
    typical = np.median(deviations, axis=1)
    return dict(zip(times.names, map(float, typical), strict=True))


def nodes_slow_over_sessions(tables: Sequence[SessionDeviations], now: int) -> tuple[NodeOverSessions, ...]:
    """Return the nodes that are the slowest ones of their sessions far too often, the slowest first.

    Args:
        now: start of the newest session of the system, epoch seconds; a node that none has used for `CURRENT_S` is
            left out.
    """
    slow: list[NodeOverSessions] = []
    for table in tables:
        for row in slow_over_tables(table.deviations):
            used = np.flatnonzero(np.isfinite(table.deviations[row.row]))
            newest = table.sessions[used[-1]]
            if now - newest.start > CURRENT_S:
                continue
            slow.append(
                NodeOverSessions(
                    node=table.names[row.row],
                    partition=table.owner,
                    ratio=row.ratio,
                    slowest=row.slowest,
                    sessions=row.tables,
                    since=table.sessions[row.first].start,
                    session=newest.uuid,
                    probability=row.probability,
                )
            )
    return tuple(sorted(slow, key=lambda node: -node.ratio))
