"""Slow targets and nodes of a system as evidence of its findings."""

from __future__ import annotations

from dataclasses import dataclass, replace

from iowatch.findings.deviations import CURRENT_S, PERIOD_S, SessionDeviations
from iowatch.findings.finding import Finding, NodeOverSessions, SlowTarget
from iowatch.findings.nodes_over_sessions import node_deviations, nodes_slow_over_sessions
from iowatch.findings.slow_targets import find_slow_targets, target_tables
from iowatch.store import History

_MAX_NAMED = 5


@dataclass(frozen=True)
class SlowParts:
    """The targets and nodes of a system that are slower than the others now.

    Attributes:
        targets, nodes: the slowest first.
        target_tables, node_tables: deviations of all of them, by file system and operation, and by partition.
    """

    targets: tuple[SlowTarget, ...]
    nodes: tuple[NodeOverSessions, ...]
    target_tables: tuple[SessionDeviations, ...]
    node_tables: tuple[SessionDeviations, ...]

    def attach(self, finding: Finding) -> Finding:
        """Return a finding with those on the file systems and partitions of its members, if it is a loss."""
        if not finding.is_loss:
            return finding
        file_systems = {member.parameters.get("file_system") for member in finding.members}
        partitions = {member.partition for member in finding.members}
        # What became slow later than this is not the cause; all targets are measured within a week.
        latest = finding.first_after + CURRENT_S
        targets = [target for target in self.targets if target.file_system in file_systems and target.since <= latest]
        nodes = [node for node in self.nodes if node.partition in partitions and node.since <= latest]
        return replace(finding, slow_targets=tuple(targets[:_MAX_NAMED]), nodes_over_sessions=tuple(nodes[:_MAX_NAMED]))


def find_slow_parts(history: History, system: str) -> SlowParts:
    """Return the targets and nodes of a system that are slower than the others now."""
    newest = next(iter(history.sessions(system, limit=1)), None)
    if newest is None:
        return SlowParts((), (), (), ())
    now = newest.started_at
    of_targets = target_tables(history, system, now - PERIOD_S)
    of_nodes = node_deviations(history, system, now - PERIOD_S)
    return SlowParts(
        targets=find_slow_targets(of_targets, now),
        nodes=nodes_slow_over_sessions(of_nodes, now),
        target_tables=tuple(table.deviations for table in of_targets),
        node_tables=of_nodes,
    )
