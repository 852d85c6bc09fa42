"""Messages between all pairs of nodes: what a run keeps of them, and the nodes whose messages are slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

# The fact of a run: `NodePairs` as JSON.
NODE_PAIRS_FACT = "node_pairs"

# A node is slow if its typical bandwidth is below this share of what is usual for nodes: a link at half of its rate is
# found, and the noise of messages on idle nodes (some percent) is not.
_SLOW_BANDWIDTH = 2 / 3
# Latencies differ more, by the number of switches between two nodes.
_SLOW_LATENCY = 3.0
# Nodes from which on the slow pairs show whose link it is: of one pair, either node may have the slow link.
_LEAST_NODES = 3
_MAX_SLOW_NODES = 20


@dataclass(frozen=True)
class PairMessages:
    """The best figures of a pair of nodes over all repetitions."""

    nodes: tuple[str, str]
    latency_s: float
    bandwidth_mib_per_s: float


@dataclass(frozen=True)
class NodeWithSlowMessages:
    """A node whose messages are slow.

    Attributes:
        metric: `network_bandwidth` or `latency`.
        ratio: figure of its typical pair relative to that of a usual node.
        slow_pairs, pairs: number of its pairs that are slow as well, and of all of them.
    """

    node: str
    metric: str
    ratio: float
    slow_pairs: int
    pairs: int


@dataclass(frozen=True)
class NodePairs:
    """What a run keeps of the messages between its nodes.

    Attributes:
        nodes: number of nodes.
        slowest: the pair with the smallest bandwidth; farthest: that with the largest latency.
        slow_nodes: the slowest first, at most some.
    """

    nodes: int
    slowest: PairMessages
    farthest: PairMessages
    slow_nodes: tuple[NodeWithSlowMessages, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the document of the fact."""
        return asdict(self)


def assess_node_pairs(pairs: Sequence[PairMessages]) -> NodePairs:
    """Return what a run keeps of its pairs; at least one, each pair once."""
    names = list(dict.fromkeys(name for pair in pairs for name in pair.nodes))
    slow_nodes: list[NodeWithSlowMessages] = []
    if len(names) >= _LEAST_NODES:
        rates = {pair.nodes: pair.bandwidth_mib_per_s for pair in pairs}
        # A rate of messages, so that less is slow in both.
        message_rates = {pair.nodes: 1 / pair.latency_s for pair in pairs}
        slow_nodes += _slow_nodes("network_bandwidth", rates, _SLOW_BANDWIDTH)
        slow_nodes += _slow_nodes("latency", message_rates, 1 / _SLOW_LATENCY)
    return NodePairs(
        nodes=len(names),
        slowest=min(pairs, key=lambda pair: pair.bandwidth_mib_per_s),
        farthest=max(pairs, key=lambda pair: pair.latency_s),
        slow_nodes=tuple(slow_nodes[:_MAX_SLOW_NODES]),
    )


def _slow_nodes(metric: str, rates: Mapping[tuple[str, str], float], slow_share: float) -> list[NodeWithSlowMessages]:
    """Return the nodes whose typical pair is slow, the slowest first.

    A usual node is the typical one of all: a slow node makes one pair of each other node slow, not their typical pair.
    """
    rates_of_node: dict[str, list[float]] = {}
    for names, rate in rates.items():
        for name in names:
            rates_of_node.setdefault(name, []).append(rate)
    typical_rates = {name: _upper_median(node_rates) for name, node_rates in rates_of_node.items()}
    usual_rate = _upper_median(list(typical_rates.values()))
    slow_nodes: list[NodeWithSlowMessages] = []
    for name in sorted(typical_rates, key=lambda node: typical_rates[node]):
        share = typical_rates[name] / usual_rate
        if share >= slow_share:
            continue
        slow_pairs = sum(rate < slow_share * usual_rate for rate in rates_of_node[name])
        ratio = 1 / share if metric == "latency" else share
        slow_nodes.append(NodeWithSlowMessages(name, metric, ratio, slow_pairs, len(rates_of_node[name])))
    return slow_nodes


def _upper_median(values: Sequence[float]) -> float:
    """Return the middle value, of two the larger one: with three nodes, a slow one makes half of the pairs slow."""
    return sorted(values)[len(values) // 2]
