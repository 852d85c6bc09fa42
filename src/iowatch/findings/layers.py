"""Which layer moved: what the series of one event are for `iowatch.statistics.layers`.

Also what the probes did, which measure the lowest layers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from iowatch.benchmarks.benchmark import LAYERS, layers_of_api
from iowatch.benchmarks.registry import BENCHMARKS
from iowatch.core import DAY_S, METRICS, MIB, Layer, Scalar
from iowatch.findings.detections import load_detections
from iowatch.findings.finding import MovedLayer, ProbeResponse
from iowatch.findings.grouping import ChangeGroup, observations_around
from iowatch.findings.series import headline_series, load_observations
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
    series = list(chain.from_iterable(groups))
    # The probes of one thing, by its name: raw disk may be measured by several operations.
    probes_by_name: dict[str, list[SeriesResponse]] = defaultdict(list)
    for tool in BENCHMARKS.values():
        for operation, what in tool.probes.items():
            case = {"benchmark": tool.name, "operation": operation}
            for response in series:
                if case.items() <= response.parameters.items():
                    probes_by_name[f"{what} ({tool.name})"].append(response)
    return tuple(_probe_response(name, probes) for name, probes in probes_by_name.items())


def _probe_response(name: str, probes: Sequence[SeriesResponse]) -> ProbeResponse:
    log_gains = [probe.log_ratio for probe in probes if probe.changed]
    gain = math.exp(np.mean(log_gains)) if log_gains else 1.0
    return ProbeResponse(name, len(log_gains), len(probes), gain)


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
    # Standard error of the difference of the medians, in standard deviations of an observation.
    error = math.sqrt(_median_variance(len(before)) + _median_variance(len(after)))
    return LayerSeries(
        path=tuple(layer.name for layer in path),
        log_gain=metric.log_gain(new / old),
        noise=error * (_noise(before) if noise is None else noise),
        seconds=old if metric.direction == "lower" else 1 / old,
        mib=_mib_per_operation(row),
        direction=_direction(str(case.get("operation", ""))),
    )


def _median_variance(observations: int) -> float:
    """Variance of a median of so many observations, in variances of an observation; of one or two it is the mean."""
    independent = min(observations, _MOST_INDEPENDENT)
    return (_MEDIAN_ERROR**2 if independent > 2 else 1.0) / independent


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
    if "write" in operation or operation in ("append", "create"):
        return "write"
    return None


def find_moved_layer(series: Sequence[LayerSeries]) -> MovedLayer | None:
    """The layer that explains the changes of all series of an event; None without any known layer."""
    if not series:
        return None
    inference = infer_layer(_sample(series), LAYERS)
    return MovedLayer(
        named=inference.named,
        candidates=inference.candidates,
        moved=tuple(layer for layer in inference.moved if layer != inference.named),
        unmoved=tuple(layer for layer in inference.unmoved if layer != inference.named),
        would_tell=_would_tell(inference),
        direction=inference.direction,
    )


def _sample(series: Sequence[LayerSeries]) -> list[LayerSeries]:
    """At most so many series of each path and direction, with the same distribution of changes."""
    alike: dict[tuple[object, ...], list[LayerSeries]] = defaultdict(list)
    for layer_series in sorted(series, key=lambda layer_series: layer_series.log_gain):
        alike[layer_series.path, layer_series.direction, layer_series.mib == 0].append(layer_series)
    sample: list[LayerSeries] = []
    for group in alike.values():
        # In the order of their changes, at equal distances.
        positions = np.linspace(0, len(group) - 1, min(len(group), _MOST_ALIKE)).round()
        sample += [group[int(position)] for position in positions]
    return sample


def _would_tell(inference: LayerInference) -> tuple[str, ...]:
    """Control series of the candidates that were not measured; empty if a layer is named."""
    if inference.named is not None:
        return ()
    missing_layers = {candidate.layer for candidate in inference.candidates} - set(inference.measured)
    return tuple(layer.control for layer in LAYERS if layer.name in missing_layers)


def layer_of_group(
    group: ChangeGroup,
    rows: Sequence[SeriesRow],
    changes: Mapping[int, Sequence[ChangePoint]],
    points: Mapping[int, SeriesPoints],
) -> MovedLayer | None:
    """The layer that moved with a group of changes; arguments as of `compare_around_date`."""
    change_of_series = {change.row.id: change for change in group.changes}
    series: list[LayerSeries] = []
    for row in rows:
        adjacent_changes = list(changes.get(row.id, ()))
        boundary: float = group.boundary
        member = change_of_series.get(row.id)
        if member is not None:
            # A changed series is compared around the date of its own change, which therefore does not end its levels.
            boundary = (member.last_before + member.first_after) / 2
            adjacent_changes = [c for c in adjacent_changes if abs(c.time - member.first_after) > DAY_S // 2]
        observations = observations_around(row, points[row.id], adjacent_changes, boundary)
        if observations.are_on_both_sides:
            layer_series = series_of_change(row, observations.before, observations.after)
            if layer_series is not None:
                series.append(layer_series)
    return find_moved_layer(series)


def assess_newest_layer(history: History, system: str) -> MovedLayer | None:
    """The layer that moved in the newest session of a system, from that session alone; None if nothing did."""
    rows = headline_series(history, system)
    newest = next(iter(history.sessions(system, limit=1)), None)
    if newest is None:
        return None
    points, detections = load_observations(history, rows), load_detections(history, [row.id for row in rows])
    series: list[LayerSeries] = []
    for row in rows:
        changes = detections[row.id].changes if row.id in detections else ()
        observations = observations_around(row, points[row.id], changes, newest.started_at)
        if observations.are_on_both_sides:
            layer_series = series_of_change(row, observations.before, observations.after)
            if layer_series is not None:
                series.append(layer_series)
    return find_moved_layer(series)
