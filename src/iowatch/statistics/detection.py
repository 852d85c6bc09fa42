"""Detection methods: series in, `Detection` out, in several processes if there are many points.

docs/detection.md explains the method `levels`. To add a method, write a `DetectionMethod.detect` (its types are in
`iowatch.statistics.method`), here or in a file of its own, and add a row to `METHODS`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait

import numpy as np
from numpy.typing import ArrayLike

from iowatch.statistics.covariates import CovariateTable, adjust_for_covariates, align_unrecorded, with_adjustment
from iowatch.statistics.errors import StatisticsError, suggest_name
from iowatch.statistics.method import Detection, DetectionMethod, DetectorSettings, ObservedSeries
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
    fits = segment_many([one.logs for one in series], settings)
    found = []
    for one, (path, noise) in zip(series, fits, strict=True):
        fit = SeriesFit(one.logs, noise, settings, np.zeros(len(one.logs), dtype=bool))
        price = step_penalty(len(one.logs), settings)
        segments, excursions = refine_segments(fit, fit.segments(path), price)
        segments, drifts = extract_drifts(fit, segments, price)
        found.append(make_detection(one.times, one.firsts, fit, _date_steps(fit, segments), excursions, drifts))
    return found


def _date_steps(series: SeriesFit, segments: list[Segment]) -> list[Segment]:
    """Segments with dated borders.

    A new date assigns observations to another segment, so steps that are no longer credible are merged.
    """
    while True:
        dated = redate_segments(series, segments)
        segments = drop_doubtful_steps(series, dated)
        if len(segments) == len(dated):
            return dated


METHODS: dict[str, DetectionMethod] = {"levels": DetectionMethod("10", detect_levels)}
DEFAULT_METHOD = "levels"


def get_method(name: str) -> DetectionMethod:
    """Detection method by name.

    Raises:
        StatisticsError: unknown method.
    """
    if name not in METHODS:
        raise StatisticsError(f"no detection method '{name}'", hint=suggest_name(name, list(METHODS)))
    return METHODS[name]


def detect_many(
    series: Sequence[tuple[ArrayLike, ArrayLike]],
    *,
    since: Sequence[float | None] | None = None,
    settings: DetectorSettings | None = None,
    method: str = DEFAULT_METHOD,
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
        method: a name in `METHODS`.
        covariates: per series those of its points, or None; a series that they predict is adjusted for them.

    Raises:
        StatisticsError: unknown method; shapes differ, or a time or value is not finite, or a value is not positive:
            the message states the position of the series.
    """
    chosen, settings = get_method(method), settings or DetectorSettings()
    starts = since or [None] * len(series)
    inputs = [ObservedSeries(i, *one, start) for i, (one, start) in enumerate(zip(series, starts, strict=True))]
    adjusted = {
        i: one
        for i, table in enumerate(covariates or ())
        if table is not None and (one := adjust_for_covariates(*series[i], table))
    }
    incomplete = [i for i, one in adjusted.items() if np.isnan(one.levels).any()]
    for i, detection in zip(incomplete, chosen.detect([inputs[i] for i in incomplete], settings), strict=True):
        adjusted[i] = align_unrecorded(adjusted[i], detection)
    for i, one in adjusted.items():
        inputs[i] = ObservedSeries(i, one.times, one.values, starts[i])
    enough = [x for x in inputs if len(x.logs) >= settings.min_observations]
    found = dict(zip(enough, chosen.detect(enough, settings), strict=True))
    answers = [replace(found.get(x) or _unassessed(x), method=method) for x in inputs]
    return [with_adjustment(answer, adjusted[i]) if i in adjusted else answer for i, answer in enumerate(answers)]


def _unassessed(series: ObservedSeries) -> Detection:
    return Detection(series.points, "too few observations" if len(series.logs) else "no data")


def detect(times: ArrayLike, values: ArrayLike, *, since: float | None = None) -> Detection:
    """`detect_many` for one series."""
    return detect_many([(times, values)], since=[since])[0]


# Observations of a level, and after a transient, from which one more like the others changes no estimate noticeably.
_SETTLED = 30
# Most observations that are added without a new estimate, also as a share of those of the level.
_MOST_ADDED, _MOST_ADDED_SHARE = 14, 0.1
# Largest distance from the level of an observation, and of the sum of n of them divided by the root of n, in units of
# the noise. Of observations like the others four of a hundred are farther away, and one sum of ten is.
_FAR, _SHIFTED = 2.5, 2.0


def extend_detection(
    known: Detection, times: ArrayLike, values: ArrayLike, most: int = _MOST_ADDED
) -> Detection | None:
    """Add observations that are within the noise of the last level to it; None if the series must be assessed again.

    The estimates of a long series hardly differ after one more observation that is like all others, and take a
    thousand times as long as this. After a step, a transient, a drift or an adjustment, and for a short level, every
    observation is assessed.

    Args:
        known: result for all observations before these, and for those since `known.added_since`.
        times, values: observations from `known.added_since`, or those after it was made, in ascending order of time;
            shape (n,).
        most: observations that are added at most, before all are assessed; different numbers for different series
            spread the work.
    """
    if known.method != DEFAULT_METHOD or known.status != "ok" or not known.noise:
        return None
    if known.suspected or known.drifts or known.adjustment:
        return None
    last, t, v = known.levels[-1], np.asarray(times, dtype=float), np.asarray(values, dtype=float)
    new = int((t > last.last_time).sum())
    assessed = last.observations - (len(t) - new)
    is_settled = assessed >= _SETTLED and (not known.transients or known.n - known.transients[-1].last_index > _SETTLED)
    if not is_settled or not 0 < len(t) <= min(most, _MOST_ADDED_SHARE * assessed) or not (v > 0).all():
        return None
    if (np.diff(t) == 0).any():  # samples of one observation
        return None
    distances = np.log(v / last.value) / known.noise
    if np.abs(distances).max() > _FAR or abs(distances.sum()) > _SHIFTED * np.sqrt(len(t)):
        return None
    longer = replace(last, last_index=known.n + new - 1, last_time=float(t[-1]), observations=last.observations + new)
    return replace(known, n=known.n + new, levels=(*known.levels[:-1], longer), added_since=float(t[0]))


# Starting a process takes 0.5 s, about a tenth of the time for this number of points (10 microseconds each).
_MIN_POINTS_PER_PROCESS = 400_000
_MAX_PROCESSES = 8

CollectDetections = Callable[[], list[Detection]]
SubmitDetection = Callable[
    [Sequence[tuple[ArrayLike, ArrayLike]], Sequence[float | None], Sequence[CovariateTable | None]], CollectDetections
]


@contextmanager
def detection_pool(
    points: int, *, method: str = DEFAULT_METHOD, processes: int | None = None
) -> Iterator[SubmitDetection]:
    """Yield a function that submits series, `since` and covariates to `detect_many`; its result collects detections.

    Args:
        points: total number of points of all series that will be submitted.
        processes: with 1, series are assessed in this process when they are collected [default: one per core if
            there are enough points, else 1; 1 in a process that is itself one of several].
    """
    if not processes:
        cores = min(len(os.sched_getaffinity(0)), _MAX_PROCESSES)
        processes = cores if points >= _MIN_POINTS_PER_PROCESS and parent_process() is None else 1
    if processes == 1:
        yield lambda *one: partial(_detect_submitted, method, *one)
        return
    # Spawned, not forked: a forked worker would inherit the open connections to the history.
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=_exit_with_parent) as pool:
        yield lambda *one: pool.submit(_detect_submitted, method, *one).result


def _detect_submitted(
    method: str,
    series: Sequence[tuple[ArrayLike, ArrayLike]],
    since: Sequence[float | None],
    covariates: Sequence[CovariateTable | None] | None = None,
) -> list[Detection]:
    return detect_many(series, since=since, method=method, covariates=covariates)


def _exit_with_parent() -> None:
    """Exit when the parent process ends; otherwise workers of a killed process wait for work forever."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()
