"""Bandwidth over the nodes of a partition: newest sessions beside earlier ones, and how well nodes are used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iowatch.findings import format_parameter_value
from iowatch.output.dashboard.scaling_curves import OwnCurve
from iowatch.store import History

# Earlier sessions whose median is the level before the newest one: a month of nights.
_EARLIER_SESSIONS = 30


@dataclass(frozen=True)
class NodeCount:
    """Results of a case on a number of nodes.

    Attributes:
        newest: newest headline, in MiB/s.
        earlier: median of the headlines of earlier sessions; None for the first session.
        earlier_sessions: number of these.
        efficiency: bandwidth per node, relative to that on the fewest nodes of the curve.
        page: of its series.
    """

    nodes: int
    newest: float
    earlier: float | None
    earlier_sessions: int
    efficiency: float
    page: str


@dataclass(frozen=True)
class NodeCurve:
    """A curve over nodes with the results at each of its points."""

    curve: OwnCurve
    counts: Sequence[NodeCount]

    @property
    def name(self) -> str:
        """Its name within the system."""
        return self.curve.name.partition(": ")[2]

    @property
    def earlier_points(self) -> list[tuple[float, float]]:
        """(nodes, median of earlier sessions) where there are any."""
        return [(float(count.nodes), count.earlier) for count in self.counts if count.earlier is not None]


def group_by_family(curves: Sequence[OwnCurve]) -> dict[str, list[OwnCurve]]:
    """Curves by benchmark, interface and operation in words (`benchio MPI-IO write`)."""
    families: dict[str, list[OwnCurve]] = defaultdict(list)
    for curve in curves:
        words = [curve.benchmark]
        if "api" in curve.shared:
            words.append(format_parameter_value("api", curve.shared["api"]))
        if "operation" in curve.shared:
            words.append(str(curve.shared["operation"]))
        families[" ".join(words)].append(curve)
    return dict(families)


def read_node_curves(history: History, curves: Sequence[OwnCurve]) -> list[NodeCurve]:
    """Add to curves over nodes what earlier sessions have measured."""
    series_ids: set[int] = set()
    for curve in curves:
        series_ids.update(series.row.id for series in curve.series)
    points_by_series = history.points(sorted(series_ids))
    node_curves: list[NodeCurve] = []
    for curve in curves:
        fewest_nodes, first_bandwidth = curve.points[0]
        counts: list[NodeCount] = []
        for (nodes, newest), series in zip(curve.points, curve.series, strict=True):
            earlier = points_by_series[series.row.id].max[:-1][-_EARLIER_SESSIONS:]
            level = float(np.median(earlier)) if len(earlier) else None
            efficiency = (newest / nodes) / (first_bandwidth / fewest_nodes)
            counts.append(NodeCount(int(nodes), newest, level, len(earlier), efficiency, series.page))
        node_curves.append(NodeCurve(curve, counts))
    return node_curves
