"""What differs between the nodes of a run: other software or settings than most nodes have, and unusual states.

    fact `each_node` of a run ── find_node_differences ──> NodeDifference: values, and the nodes that have each

Scratch and MPI are not among them: nodes with others measure something else, and fail the run.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from iowatch.core.units import format_number

NOT_THERE = "none"
"""Value of a fact that a node does not have, although others do."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """The nodes that have one value of a fact."""

    value: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeDifference:
    """A fact that is not the same on all nodes of a run.

    Attributes:
        fact: in `each_node`.
        label: in reports.
        usual: what most nodes have, or the median of the other nodes; None if no value is more frequent than another.
        others: the outliers, or without a usual value all groups.
    """

    fact: str
    label: str
    usual: NodeGroup | None
    others: tuple[NodeGroup, ...]

    @property
    def outliers(self) -> tuple[str, ...]:
        """The nodes that are named."""
        nodes: list[str] = []
        for group in self.others:
            nodes += group.nodes
        return tuple(nodes)


# Texts that must be equal, and what they are called. The second ones are lists `a,b=1`: only what differs is shown.
_TEXTS = {"kernel": "kernel", "file_system_client": "client of the file system", "libraries": "libraries (SHA-256)"}
_LISTS = {"mount_options": "mount options of scratch", "writeback": "write-back settings (vm.dirty_*)"}

CLOCK_TOLERANCE_S = 2.0
"""Clocks that NTP keeps differ by milliseconds; dates of files and logs mean the same second."""


@dataclass(frozen=True, slots=True)
class _StateRule:
    """When a state of a node is unusual: beyond `factor` times the median of the other nodes plus `margin`.

    Attributes:
        is_upper: whether larger values are unusual.
    """

    fact: str
    label: str
    factor: float
    margin: float = 0.0
    is_upper: bool = True

    def finds_unusual(self, value: float, median: float) -> bool:
        """Whether a value is unusual beside the median of the other nodes."""
        limit = self.factor * median + self.margin
        return value > limit if self.is_upper else value < limit


# Such a node does something else than the others. Idle nodes differ by less.
_STATES = (
    _StateRule("load_1m", "load average", factor=2.0, margin=2.0),
    # In percent of all memory, because nodes of one job may have different sizes.
    _StateRule("memory_available", "available memory", factor=0.5, is_upper=False),
    # In percent of the time.
    _StateRule("cpu_pressure", "processor pressure", factor=1.0, margin=50.0),
)


def find_node_differences(each_node: Mapping[str, Mapping[str, str]]) -> tuple[NodeDifference, ...]:
    """Return what differs between the nodes of a run; empty for one node.

    Args:
        each_node: the facts of each node by its name, as `checks/nodes.py` records them; those that are absent on all
            nodes are not compared.
    """
    differences: list[NodeDifference] = []
    for fact, label in (_TEXTS | _LISTS).items():
        values = {node: facts.get(fact, "") for node, facts in each_node.items()}
        if len(set(values.values())) > 1:
            differences.append(_compare_texts(fact, label, values))
    differences += _clock_differences(each_node)
    differences += _unusual_states(each_node)
    return tuple(differences)


def _compare_texts(fact: str, label: str, values: Mapping[str, str]) -> NodeDifference:
    """Group the nodes by their value; the value of most nodes is the usual one."""
    nodes_of_value: dict[str, list[str]] = {}
    for node in sorted(values):
        nodes_of_value.setdefault(values[node], []).append(node)
    # Of lists of options only those that some nodes do not have.
    common: set[str] = set()
    if fact in _LISTS:
        common = set.intersection(*(set(value.split(",")) for value in nodes_of_value))
    groups: list[NodeGroup] = []
    for value, nodes in nodes_of_value.items():
        shown = ",".join(option for option in value.split(",") if option not in common)
        groups.append(NodeGroup(shown or NOT_THERE, tuple(nodes)))
    groups.sort(key=lambda group: (-len(group.nodes), group.nodes))
    first, second = groups[:2]
    if len(first.nodes) == len(second.nodes):
        return NodeDifference(fact, label, None, tuple(groups))
    return NodeDifference(fact, label, first, tuple(groups[1:]))


def _clock_differences(each_node: Mapping[str, Mapping[str, str]]) -> Iterator[NodeDifference]:
    """The nodes whose clock is certainly not that of the first node: the whole range of the difference is too large."""
    groups: list[NodeGroup] = []
    for node, facts in sorted(each_node.items()):
        least, most = _number(facts.get("clock_ahead_min_s")), _number(facts.get("clock_ahead_max_s"))
        if least is None or most is None:
            continue
        if least > CLOCK_TOLERANCE_S:
            groups.append(NodeGroup(f"at least {format_number(least)} s ahead of the first node's", (node,)))
        elif most < -CLOCK_TOLERANCE_S:
            groups.append(NodeGroup(f"at least {format_number(-most)} s behind the first node's", (node,)))
    if groups:
        yield NodeDifference("clock", "clock", None, tuple(groups))


def _unusual_states(each_node: Mapping[str, Mapping[str, str]]) -> Iterator[NodeDifference]:
    """Load, memory and processor pressure of nodes that are far from the median of the others."""
    for rule in _STATES:
        values: dict[str, float] = {}
        for node, facts in sorted(each_node.items()):
            value = _number(facts.get(rule.fact))
            if value is not None:
                values[node] = value
        outliers: list[str] = []
        ordered = sorted(values.values())
        for node, value in values.items():
            others = ordered.copy()
            others.remove(value)
            if others and rule.finds_unusual(value, statistics.median(others)):
                outliers.append(node)
        if outliers:
            usual_nodes = [node for node in values if node not in outliers]
            yield _describe_states(rule, values, outliers, usual_nodes)


def _describe_states(
    rule: _StateRule, values: Mapping[str, float], outliers: Sequence[str], usual_nodes: Sequence[str]
) -> NodeDifference:
    groups = tuple(NodeGroup(_format_state(rule.fact, values[node]), (node,)) for node in outliers)
    if not usual_nodes:
        return NodeDifference(rule.fact, rule.label, None, groups)
    median = statistics.median(values[node] for node in usual_nodes)
    usual = NodeGroup(_format_state(rule.fact, median), tuple(usual_nodes))
    return NodeDifference(rule.fact, rule.label, usual, groups)


def _format_state(fact: str, value: float) -> str:
    return format_number(value) if fact == "load_1m" else f"{format_number(value)} %"


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
