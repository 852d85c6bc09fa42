"""Which layer moved: what the series of one event are for `iowatch.statistics.layers`.

Also what the probes did, which measure the lowest layers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from iowatch.benchmarks.benchmark import LAYERS, layers_of_api
from iowatch.benchmarks.registry import BENCHMARKS
from iowatch.core import DAY_S, METRICS, MIB, Layer, Scalar
from iowatch.findings.finding import MovedLayer, ProbeResponse
from iowatch.findings.grouping import ChangeGroup, levels_around
from iowatch.findings.series import headline_series, load_detections, load_observations
from iowatch.statistics import ChangePoint, SeriesResponse
from iowatch.statistics.layers import LayerInference, LayerSeries, TransferDirection, infer_layer
from iowatch.store import History, SeriesPoints, SeriesRow

# Observations, over days with slow noise, are not as good as this many independent ones.
_MOST_INDEPENDENT = 4
# Series of one path and direction that the inference uses; its time and memory grow with their number.
_MOST_ALIKE = 16
# Noise of a series with fewer observations before the change than these.
_FEWEST, _USUAL_NOISE = 3, 0.1
# Of the difference of two medians, in standard errors of means.
_MEDIAN_ERROR = 1.25


def probe_responses(*groups: Iterable[SeriesResponse]) -> tuple[ProbeResponse, ...]:
    """What the probes among changed and unchanged series did, in the order of the registry."""
    found: dict[str, list[SeriesResponse]] = defaultdict(list)
    series = [one for group in groups for one in group]
    for tool in BENCHMARKS.values():
        for operation, what in tool.probes.items():
            case = {"benchmark": tool.name, "operation": operation}
            found[f"{what} ({tool.name})"] += [one for one in series if case.items() <= one.parameters.items()]
    gains = {what: [one.log_ratio for one in probes if one.changed] for what, probes in found.items()}
    return tuple(
        ProbeResponse(what, len(gains[what]), len(probes), math.exp(np.mean(gains[what])) if gains[what] else 1.0)
        for what, probes in found.items()
        if probes
    )


def layers_of(case: Mapping[str, Scalar]) -> tuple[Layer, ...]:
    """Layers that a series passes through, the one that it measures last.

    Args:
        case: parameters, with `benchmark`; programs that are no benchmark of iowatch have those of their interface.
    """
    tool = BENCHMARKS.get(str(case.get("benchmark")))
    return tool.layers(case) if tool else layers_of_api(case)


def series_of_change(
    row: SeriesRow, before: NDArray[np.float64], after: NDArray[np.float64], noise: float | None = None
) -> LayerSeries | None:
    """What the inference needs of a series; None if it passes through no known layer.

    Args:
        before, after: observations on both sides of the change, at least one each, in the unit of the metric.
        noise: standard deviation (natural logarithm) of an observation [default: estimated from `before`].
    """
    case = {"benchmark": row.case.benchmark, **row.case.parameters}
    path, metric = layers_of(case), METRICS[row.metric]
    old, new = float(np.median(before)), float(np.median(after))
    if not path or not metric.sign or min(old, new) <= 0:
        return None
    counts = (min(len(one), _MOST_INDEPENDENT) for one in (before, after))
    error = math.sqrt(sum((_MEDIAN_ERROR**2 if count > 2 else 1.0) / count for count in counts))
    return LayerSeries(
        path=tuple(layer.name for layer in path),
        log_gain=metric.log_gain(new / old),
        noise=error * (_noise(before) if noise is None else noise),
        seconds=old if metric.direction == "lower" else 1 / old,
        mib=_mib_per_operation(row),
        direction=_direction(str(case.get("operation", ""))),
    )


def _noise(before: NDArray[np.float64]) -> float:
    """Standard deviation (natural logarithm) of observations at one level, with the outliers: they come again."""
    if len(before) < _FEWEST:
        return _USUAL_NOISE
    logs = np.log(before[before > 0])
    return float(np.sqrt(np.mean((logs - np.median(logs)) ** 2)))


def _mib_per_operation(row: SeriesRow) -> float:
    if METRICS[row.metric].unit != "MiB/s":
        return 0.0
    size = row.case.parameters.get("total_bytes", row.case.parameters.get("transfer_bytes"))
    return float(size) / MIB if isinstance(size, int | float) and size > 0 else math.nan


def _direction(operation: str) -> TransferDirection | None:
    if "read" in operation:
        return "read"
    return "write" if "write" in operation or operation in ("append", "create") else None


def find_moved_layer(series: Sequence[LayerSeries]) -> MovedLayer | None:
    """The layer that explains the changes of all series of an event; None without any known layer."""
    if not series:
        return None
    found = infer_layer(_sample(series), LAYERS)
    likely = {one.layer for one in found.candidates}
    others = likely | ({found.named} if found.named else set())
    return MovedLayer(
        named=found.named,
        candidates=found.candidates,
        moved=tuple(one for one in found.moved if one != found.named),
        unmoved=tuple(one for one in found.unmoved if one != found.named),
        would_tell=_would_tell(found, others),
        direction=found.direction,
    )


def _sample(series: Sequence[LayerSeries]) -> list[LayerSeries]:
    """At most so many series of each path and direction, with the same distribution of changes."""
    alike: dict[tuple[object, ...], list[LayerSeries]] = defaultdict(list)
    for one in sorted(series, key=lambda one: one.log_gain):
        alike[one.path, one.direction, one.mib == 0].append(one)
    return [
        group[int(i)]
        for group in alike.values()
        for i in np.linspace(0, len(group) - 1, min(len(group), _MOST_ALIKE)).round()
    ]


def _would_tell(found: LayerInference, likely: set[str]) -> tuple[str, ...]:
    """Control series of the candidates that were not measured."""
    if found.named is not None:
        return ()
    return tuple(one.control for one in LAYERS if one.name in likely and one.name not in found.measured)


def layer_of_group(
    group: ChangeGroup,
    rows: Sequence[SeriesRow],
    changes: Mapping[int, Sequence[ChangePoint]],
    points: Mapping[int, SeriesPoints],
) -> MovedLayer | None:
    """The layer that moved with a group of changes; arguments as of `compare_around_date`."""
    own = {m.row.id: m for m in group.changes}
    series = []
    for row in rows:
        member, others = own.get(row.id), changes.get(row.id, ())
        boundary: float = group.boundary
        if member is not None:
            boundary = (member.last_before + member.first_after) / 2
            others = [c for c in others if abs(c.time - member.first_after) > DAY_S // 2]
        before, after = levels_around(row, points[row.id], others, boundary)
        if len(before) and len(after) and (one := series_of_change(row, before, after)):
            series.append(one)
    return find_moved_layer(series)


def assess_newest_layer(history: History, system: str) -> MovedLayer | None:
    """The layer that moved in the newest session of a system, from that session alone; None if nothing did."""
    rows = headline_series(history, system)
    newest = next(iter(history.sessions(system, limit=1)), None)
    if newest is None:
        return None
    points, detections = load_observations(history, rows), load_detections(history, [row.id for row in rows])
    series = []
    for row in rows:
        known = detections[row.id].changes if row.id in detections else ()
        before, after = levels_around(row, points[row.id], known, newest.started_at)
        if len(before) and len(after) and (one := series_of_change(row, before, after)):
            series.append(one)
    return find_moved_layer(series)
