"""Detectors: series in, `Detection` out, in several processes if there are many points.

docs/detection.md explains the method `levels`. To add a method, write a `Detector.detect` (its types are in
`iowatch.statistics.method`), here or in a file of its own, and add its `Detector` to `METHODS`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait

import numpy as np
from numpy.typing import ArrayLike

from iowatch.statistics.covariates import (
    AdjustedSeries,
    CovariateTable,
    adjust_for_covariates,
    align_unrecorded,
    with_adjustment,
)
from iowatch.statistics.errors import StatisticsError
from iowatch.statistics.method import DEFAULT_METHOD, Detection, Detector, DetectorSettings, ObservedSeries
from iowatch.statistics.segments import Segment, SeriesFit, segment_many, step_penalty
from iowatch.statistics.steps import (
    drop_doubtful_steps,
    extract_drifts,
    make_detection,
    redate_segments,
    refine_segments,
)


def detect_levels(series: Sequence[ObservedSeries], settings: DetectorSettings) -> list[Detection]:
    """Detect steps between levels, transients and drift: the method `levels` (docs/detection.md)."""
    fits = segment_many([observed.logs for observed in series], settings)
    detections = []
    for observed, (path, noise) in zip(series, fits, strict=True):
        observations = len(observed.logs)
        fit = SeriesFit(observed.logs, noise, settings, np.zeros(observations, dtype=bool))
        price = step_penalty(observations, settings)
        # The most probable path has levels of any length: what is too short or too weak for a level is taken out.
        segments, transients = refine_segments(fit, fit.segments(path), price)
        # Several steps in one direction may be a slope.
        segments, drifts = extract_drifts(fit, segments, price)
        dated = _date_steps(fit, segments)
        detections.append(make_detection(observed, fit, dated, transients, drifts))
    return detections


def _date_steps(series: SeriesFit, segments: list[Segment]) -> list[Segment]:
    """Segments with dated borders.

    A new date assigns observations to another segment, so steps that are no longer credible are merged.
    """
    while True:
        dated = redate_segments(series, segments)
        segments = drop_doubtful_steps(series, dated)
        if len(segments) == len(dated):
            return dated


LEVELS = Detector(DEFAULT_METHOD, "11", detect_levels)
# By name. Their functions are those of modules, so that worker processes can import them.
METHODS: Mapping[str, Detector] = {detector.name: detector for detector in (LEVELS,)}


def detect_many(
    series: Sequence[tuple[ArrayLike, ArrayLike]],
    *,
    since: Sequence[float | None] | None = None,
    settings: DetectorSettings | None = None,
    detector: Detector = LEVELS,
    covariates: Sequence[CovariateTable | None] | None = None,
) -> list[Detection]:
    """Detect changes, transients and drift of many series at once, which is much faster than one by one.

    Args:
        series: times and values of each series. Times in epoch seconds, shape (n,), in any order, gaps allowed;
            points with the same time are samples of one observation, whose value is their median. Values of shape
            (n,), finite and > 0, in any unit: only ratios matter.
        since: epoch seconds per series; earlier observations are left out (the level at that time was accepted).
            Indices still refer to the whole series.
        settings: assumptions [default: `DetectorSettings()`].
        detector: one of `METHODS`, or another one.
        covariates: per series those of its points, or None; a series that they predict is adjusted for them.

    Raises:
        StatisticsError: shapes differ, or a time or value is not finite, or a value is not positive: the message
            states the position of the series. The detector does not return one detection per series.
    """
    settings = settings or DetectorSettings()
    starts = since or [None] * len(series)
    observed: list[ObservedSeries] = []
    for number, ((times, values), start) in enumerate(zip(series, starts, strict=True)):
        observed.append(ObservedSeries(number, times, values, start))
    # Series that a covariate predicts are assessed without its effect.
    adjusted: dict[int, AdjustedSeries] = {}
    for number, table in enumerate(covariates or ()):
        without_effect = None if table is None else adjust_for_covariates(*series[number], table)
        if without_effect is not None:
            adjusted[number] = without_effect
    # Observations without covariates keep the levels that are found without an adjustment.
    incomplete = [number for number, without_effect in adjusted.items() if np.isnan(without_effect.levels).any()]
    as_measured = _apply_detector(detector, [observed[number] for number in incomplete], settings)
    for number, detection in zip(incomplete, as_measured, strict=True):
        adjusted[number] = align_unrecorded(adjusted[number], detection)
    for number, without_effect in adjusted.items():
        observed[number] = ObservedSeries(number, without_effect.times, without_effect.values, starts[number])
    # The detector gets all series at once that are long enough.
    assessed = [given for given in observed if len(given.logs) >= settings.min_observations]
    detection_of = dict(zip(assessed, _apply_detector(detector, assessed, settings), strict=True))
    detections: list[Detection] = []
    for number, given in enumerate(observed):
        detection = replace(detection_of.get(given) or _unassessed(given), method=detector.name)
        if number in adjusted:
            detection = with_adjustment(detection, adjusted[number])
        detections.append(detection)
    return detections


def _apply_detector(
    detector: Detector, series: Sequence[ObservedSeries], settings: DetectorSettings
) -> list[Detection]:
    """Detections of these series by a detector.

    Raises:
        StatisticsError: what it returns is not one detection per series.
    """
    # A detector need not know what to do without series.
    if not series:
        return []
    detections = list(detector.detect(series, settings))
    hint = "A detector returns one Detection per series, in the order of the series."
    if len(detections) != len(series):
        fault = f"detector '{detector.name}' returned {len(detections)} results for {len(series)} series"
        raise StatisticsError(fault, hint=hint)
    for detection in detections:
        if not isinstance(detection, Detection):
            fault = f"detector '{detector.name}' returned an object of type {type(detection).__name__}"
            raise StatisticsError(fault, hint=hint)
    return detections


def _unassessed(series: ObservedSeries) -> Detection:
    return Detection(series.points, "too few observations" if len(series.logs) else "no data")


def detect(times: ArrayLike, values: ArrayLike, *, since: float | None = None) -> Detection:
    """`detect_many` for one series."""
    return detect_many([(times, values)], since=[since])[0]


# Constants of `extend_detection`, by bench/statistics/detect_added.py.
# Observations of a level, and after a transient, from which one more like the others changes no estimate noticeably.
# With twice as many, levels of up to 60 observations are assessed anew after every one.
_SETTLED = 30
# Most observations that are added without a new estimate, also as a share of those of the level. With twice as many a
# slow drift is assessed two weeks later.
MOST_ADDED, _MOST_ADDED_SHARE = 14, 0.1
# Largest distance from the level of an observation, and of the sum of n of them divided by the root of n, in units of
# the noise. Of observations like the others four of a hundred are farther away, and one sum of ten is. With twice as
# much a step of four times the noise could be added to the level.
_FAR, _SHIFTED = 2.5, 2.0


def extend_detection(
    detection: Detection, times: ArrayLike, values: ArrayLike, max_added: int = MOST_ADDED
) -> Detection | None:
    """Add observations that are within the noise of the last level to it; None if the series must be assessed again.

    The estimates of a long series hardly differ after one more observation that is like all others, and take a
    thousand times as long as this. After a step, a transient, a drift or an adjustment, and for a short level, every
    observation is assessed.

    Args:
        detection: result for all observations before these, and for those since `detection.added_since`.
        times, values: observations from `detection.added_since`, or those after it was made, in ascending order of
            time; shape (n,).
        max_added: number of observations that are added before all are assessed; different numbers for different
            series spread the work.
    """
    if detection.method != DEFAULT_METHOD or detection.status != "ok" or not detection.noise:
        return None
    if detection.suspected or detection.drifts or detection.adjustment:
        return None
    level = detection.levels[-1]
    moments, measured = np.asarray(times, dtype=float), np.asarray(values, dtype=float)
    new = int((moments > level.last_time).sum())
    # The level must rest on many observations that were assessed, and the last transient must be long over.
    assessed = level.observations - (len(moments) - new)
    is_long_over = not detection.transients or detection.n - detection.transients[-1].last_index > _SETTLED
    if assessed < _SETTLED or not is_long_over:
        return None
    if not 0 < len(moments) <= min(max_added, _MOST_ADDED_SHARE * assessed) or not (measured > 0).all():
        return None
    has_samples_of_one_observation = (np.diff(moments) == 0).any()
    if has_samples_of_one_observation:
        return None
    # All observations that were added must be like those of the level, also together.
    distances = np.log(measured / level.value) / detection.noise
    if np.abs(distances).max() > _FAR or abs(distances.sum()) > _SHIFTED * np.sqrt(len(moments)):
        return None
    longer_level = replace(
        level, last_index=detection.n + new - 1, last_time=float(moments[-1]), observations=level.observations + new
    )
    levels = (*detection.levels[:-1], longer_level)
    return replace(detection, n=detection.n + new, levels=levels, added_since=float(moments[0]))


# Starting a process takes 0.5 s, about a tenth of the time for this number of points (10 microseconds each).
_MIN_POINTS_PER_PROCESS = 400_000
_MAX_PROCESSES = 8

CollectDetections = Callable[[], list[Detection]]
SubmitDetection = Callable[
    [Sequence[tuple[ArrayLike, ArrayLike]], Sequence[float | None], Sequence[CovariateTable | None]], CollectDetections
]


@contextmanager
def detection_pool(
    points: int, *, detector: Detector = LEVELS, processes: int | None = None
) -> Iterator[SubmitDetection]:
    """Yield a function that submits series, `since` and covariates to `detect_many`; its result collects detections.

    Args:
        points: total number of points of all series that will be submitted.
        detector: used for all of them; worker processes must be able to import its function.
        processes: with 1, series are assessed in this process when they are collected [default: one per core if
            there are enough points, else 1; 1 in a process that is itself one of several].
    """
    if not processes:
        processes = 1
        if points >= _MIN_POINTS_PER_PROCESS and parent_process() is None:
            processes = min(len(os.sched_getaffinity(0)), _MAX_PROCESSES)
    if processes == 1:
        yield lambda *series: partial(_detect_submitted, detector, *series)
        return
    # Spawned, not forked: a forked worker would inherit the open connections to the history.
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=_exit_with_parent) as pool:
        yield lambda *series: pool.submit(_detect_submitted, detector, *series).result


def _detect_submitted(
    detector: Detector,
    series: Sequence[tuple[ArrayLike, ArrayLike]],
    since: Sequence[float | None],
    covariates: Sequence[CovariateTable | None] | None = None,
) -> list[Detection]:
    return detect_many(series, since=since, detector=detector, covariates=covariates)


def _exit_with_parent() -> None:
    """Exit when the parent process ends; otherwise workers of a killed process wait for work forever."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()
