"""Nodes of an interference run: the victim stays on those of its warm-up, and the aggressors run on others.

    warm-up (level 0) ──> nodes of the victim ──> required by its next turn, avoided by the aggressors

Otherwise Slurm can place level 0 on one node and the other levels, beside aggressors that have whole nodes, on another
one: their ratio would also be that of two nodes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from iowatch.core import format_count
from iowatch.experiments.interference.jobs import JobSize
from iowatch.session.reframe import ReframePartition
from iowatch.site import schedulers

# Options of sbatch(1) that limit a job to some nodes of its partition.
_NODE_OPTION = re.compile(r"(?<!\S)(?:--(?:constraint|exclude|nodefile|nodelist|reservation)\b|-[CFwx])")
# The only such option whose nodes Slurm lists beside the others: the name of one feature.
_FEATURE_OPTION = re.compile(r"(?<!\S)(?:--constraint[= ]|-C ?)(\w+)(?!\S)")


def has_whole_nodes(partition: ReframePartition) -> bool:
    """Return whether the jobs of a partition of Slurm share their nodes with no other job."""
    return any(option.startswith("--exclusive") for option in partition.access)


@dataclass(frozen=True)
class JobPlacement:
    """What determines on which nodes of a partition of Slurm the jobs can run.

    Attributes:
        victim, aggressor: what a job of each needs.
        aggressor_count: number of aggressors of the highest level, which all have a node during the whole session.
    """

    partition: ReframePartition
    victim: JobSize
    aggressor: JobSize
    aggressor_count: int

    def find_obstacle(self, victim_nodes: Sequence[str]) -> str | None:
        """Return why the aggressors cannot all run on other nodes than the victim at the same time; None if they can.

        Args:
            victim_nodes: names; empty if they are not known.
        """
        if not victim_nodes:
            return "the nodes of its warm-up are not known"
        name = self.partition.name
        nodes = self._usable_nodes()
        if nodes is None:
            options = " ".join(self.partition.access)
            return f"which nodes of partition '{name}' its options allow is not known: {options}"
        possible_count = self._count_aggressors(nodes, victim_nodes)
        if possible_count >= self.aggressor_count:
            return None
        count = format_count(self.aggressor_count, "aggressor")
        return f"the other nodes of partition '{name}' have room for {possible_count} of {count}"

    def busy_nodes(self, victim_nodes: Sequence[str]) -> list[str]:
        """Return those of the victim's nodes on which it cannot start now; empty if Slurm does not report nodes."""
        nodes = {node.name: node for node in schedulers.partition_nodes(self.partition.queue)}
        if not nodes:
            return []
        return [name for name in victim_nodes if name not in nodes or self._is_busy(nodes[name])]

    def _is_busy(self, node: schedulers.PartitionNode) -> bool:
        if not node.is_working:
            return True
        # The job that ends may be the last turn of the victim.
        if node.is_completing or node.state in ("idle", "plnd"):
            return False
        if has_whole_nodes(self.partition):
            return True
        return node.idle_processors < _ranks_per_node(self.victim)

    def _usable_nodes(self) -> list[schedulers.PartitionNode] | None:
        """The nodes on which Slurm starts jobs of the partition; None if its options do not tell."""
        options = " ".join(self.partition.access)
        nodes = [node for node in schedulers.partition_nodes(self.partition.queue) if node.is_working]
        node_options = _NODE_OPTION.findall(options)
        if not node_options:
            return nodes
        feature = _FEATURE_OPTION.search(options)
        if feature is None or len(node_options) > 1:
            return None
        return [node for node in nodes if feature.group(1) in node.features]

    def _count_aggressors(self, nodes: Collection[schedulers.PartitionNode], victim_nodes: Sequence[str]) -> int:
        """The largest number of aggressors that can run on these nodes without those of the victim."""
        slots = 0
        for node in nodes:
            if node.name in victim_nodes:
                continue
            if has_whole_nodes(self.partition):
                slots += 1
            else:
                slots += node.processors // _ranks_per_node(self.aggressor)
        # An aggressor needs a slot on each of its nodes.
        return slots // self.aggressor.nodes


def _ranks_per_node(size: JobSize) -> int:
    return math.ceil(size.ranks / size.nodes)
