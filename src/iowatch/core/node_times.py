"""Times of the nodes of one run, which show a slow node (docs/benchio.md, "Times of nodes")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any

# The fact of a run: operation -> `NodeTimes` as JSON.
NODE_TIMES_FACT = "node_times"

# Limits of what a run keeps, so that the fact has at most some 20 kB: of more nodes the slowest ones and quartiles of
# all, of more repetitions some at equal distances.
_MAX_NODES, _KEPT_NODES = 64, 32
_MAX_REPETITIONS = 16
# Digits that are kept of a time.
_DIGITS = 4


@dataclass(frozen=True)
class Quartiles:
    """The quartiles over all nodes of the times of one repetition, in s."""

    lower: float
    median: float
    upper: float


@dataclass(frozen=True)
class NodeTimes:
    """Times of the nodes of one run in one operation, each without waiting for other nodes.

    Attributes:
        nodes: number of all nodes of the run.
        repetitions: number of all repetitions.
        names: of the nodes whose times are kept: all, or the slowest ones of many.
        sizes: bytes that each of these moved in a repetition.
        seconds: times of each of these, one for each kept repetition.
        quartiles: of all nodes, for each kept repetition; empty if the times of all nodes are kept.
    """

    nodes: int
    repetitions: int
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]
    quartiles: tuple[Quartiles, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the document of the fact."""
        return asdict(self)


def reduce_node_times(
    names: Sequence[str], sizes: Sequence[int], repetitions: Sequence[Sequence[float]]
) -> NodeTimes | None:
    """Return what a run keeps of the times of its nodes; None if they cannot be compared.

    They cannot for a single node, for nodes with the same name, and if a time is not above 0.

    Args:
        names, sizes: of each node; its bytes in a repetition.
        repetitions: of each repetition the times of all nodes, in s and in the order of `names`.
    """
    has_times = all(seconds > 0 for times in repetitions for seconds in times)
    if len(names) < 2 or len(set(names)) < len(names) or not repetitions or not has_times:
        return None
    kept_repetitions = [repetitions[index] for index in _spread_indices(len(repetitions))]
    kept_nodes = list(range(len(names)))
    quartiles: tuple[Quartiles, ...] = ()
    if len(names) > _MAX_NODES:
        typical_s: list[float] = []
        for node in kept_nodes:
            typical_s.append(median(times[node] for times in kept_repetitions))
        slowest_first = sorted(kept_nodes, key=lambda node: -typical_s[node])
        kept_nodes = sorted(slowest_first[:_KEPT_NODES])
        quartiles = tuple(_quartiles(times) for times in kept_repetitions)
    seconds: list[tuple[float, ...]] = []
    for node in kept_nodes:
        seconds.append(tuple(_rounded(times[node]) for times in kept_repetitions))
    return NodeTimes(
        nodes=len(names),
        repetitions=len(repetitions),
        names=tuple(names[node] for node in kept_nodes),
        sizes=tuple(sizes[node] for node in kept_nodes),
        seconds=tuple(seconds),
        quartiles=quartiles,
    )


def _spread_indices(count: int) -> list[int]:
    """Indices of at most as many of `count` items as are kept, at equal distances."""
    kept = min(count, _MAX_REPETITIONS)
    return [index * count // kept for index in range(kept)]


def _quartiles(times: Sequence[float]) -> Quartiles:
    lower, middle, upper = quantiles(times, n=4, method="inclusive")
    return Quartiles(_rounded(lower), _rounded(middle), _rounded(upper))


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.{_DIGITS}g}")
