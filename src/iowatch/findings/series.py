"""Observations of series, their detections, and the extent of the history.

A suspected run is retested in the same session (`iowatch run --night`), on other nodes or later where that is possible.
Both values are one observation, because they share the session: if both were in the series, one bad hour would count
twice. Its value is the geometric mean of the two. Whether a run is retested depends on the first value only, so neither
value may be chosen for being the better or the worse one, and none be left out: the retest alone would forget that half
of the evidence which was measured in the usual way, and the first one alone the other half. A first value that was an
outlier by chance counts half as much, a change that both show counts whole. No correlation of the two is assumed: the
mean scatters less than a single run if they are independent, and as a single run does if they are equal.
A run on a node that others saturated is no observation of the file system: statistics leave it out (`saturation.py`).
All statistics read series through `load_observations`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from iowatch.checks import RETEST, UNMONITORED_PARAMETERS
from iowatch.core import DAY_S, METRICS, headline_metrics
from iowatch.findings.saturation import leave_out_saturated
from iowatch.statistics import DetectorSettings
from iowatch.store import History, RunRow, SeriesFilter, SeriesPoints, SeriesRow, SeriesSamples, SessionRow

_Points = TypeVar("_Points", SeriesPoints, SeriesSamples)

MIN_OBSERVATIONS = DetectorSettings().min_observations
"""Series with fewer observations are not assessed."""

MEASURED_S = 30 * DAY_S
"""A series that was not measured for this time has no newest session and shows nothing new. With twice as much, a case
that a suite no longer has keeps its findings for two months."""


def headline_series(history: History, system: str) -> list[SeriesRow]:
    """One series per case, partition and stack of the system: that of the headline metric."""
    return monitored_series(history.series(SeriesFilter(system=system)))


def monitored_series(rows: Iterable[SeriesRow]) -> list[SeriesRow]:
    """The monitored series among those of one system; those of interleaved runs are not monitored."""
    monitored: dict[tuple[str, str, str], SeriesRow] = {}
    metrics = headline_metrics()
    unmonitored_parameters = {*UNMONITORED_PARAMETERS}
    for row in rows:
        is_interleaved = bool(row.case.parameters.keys() & unmonitored_parameters)
        if row.metric not in metrics or not row.n or is_interleaved:
            continue
        # Of several headline metrics of a case the first one.
        key = (row.partition, row.stack, row.case.key)
        other = monitored.get(key)
        if other is None or metrics.index(row.metric) < metrics.index(other.metric):
            monitored[key] = row
    return list(monitored.values())


def load_observations(
    history: History,
    rows: Sequence[SeriesRow],
    since: int | None = None,
    until: int | None = None,
    sessions: Iterable[SessionRow] | None = None,
    *,
    with_saturated: bool = False,
    save_covariates: bool = False,
) -> dict[int, SeriesPoints]:
    """Observations of series of one system, by series id; a run and its retest are one observation.

    Args:
        since, until: epoch seconds; only points from `since` to `until`.
        sessions: those of the system, if the caller has loaded them.
        with_saturated: also the observations on saturated nodes, to show them.
        save_covariates: keep the numbers of covariates that were read to find these nodes.
    """
    points = load_plausible_points(history, rows, since, until)
    if not with_saturated:
        points = leave_out_saturated(history, points, save=save_covariates)
    if sessions is None:
        sessions = history.sessions(rows[0].system, retested=True) if rows else ()
    retested = retest_times(sessions)
    return {series_id: combine_retests(series_points, retested) for series_id, series_points in points.items()}


def load_plausible_points(
    history: History, rows: Sequence[SeriesRow], since: int | None = None, until: int | None = None
) -> dict[int, SeriesPoints]:
    """Points of series by series id, without results that cannot have been measured.

    Sessions and imports refuse such results. A history that has some from elsewhere is still assessed: one bad result
    must not block the findings of a system (`damaged_result_problems` reports it).

    Args:
        since, until: epoch seconds; only points from `since` to `until`.
    """
    points = history.points([row.id for row in rows], since, until)
    plausible: dict[int, SeriesPoints] = {}
    for row in rows:
        metric, measured = METRICS[row.metric], points[row.id]
        is_plausible = (metric.floor <= measured.min) & (measured.max <= metric.ceiling)
        plausible[row.id] = measured.only(is_plausible)
    return plausible


def retest_times(sessions: Iterable[SessionRow]) -> NDArray[np.int64]:
    """Start, start of the retests and end (epoch seconds) of each session with retests, shape (sessions, 3).

    One that runs, or was killed and not yet closed, ends a day after the start of its retests: the same runs and
    retests are then one observation before and after its end, which outdates no stored detection.
    """
    times: list[tuple[int, int, int]] = []
    for session in sessions:
        retest_since = session.facts.retest_since
        if retest_since is None:
            continue
        end = retest_since + DAY_S if session.ended_at is None else session.ended_at
        times.append((session.started_at, retest_since, end))
    return np.asarray(times, dtype=np.int64).reshape(-1, 3)


def observation_starts(times: NDArray[np.int64], retested: NDArray[np.int64]) -> NDArray[np.intp]:
    """Index of the first point of each observation of a series, shape (observations,).

    All points of a session in which the series has a run and a retest are one observation.

    Args:
        times: epoch seconds in ascending order, shape (n,).
        retested: times of the sessions of the system, from `retest_times`.
    """
    start, retest = np.searchsorted(times, retested[:, :2]).T
    end = np.searchsorted(times, retested[:, 2], side="right")
    first = np.ones(len(times), dtype=bool)
    has_retest = (start < retest) & (retest < end)
    for begin, stop in zip(start[has_retest], end[has_retest], strict=True):
        first[begin + 1 : stop] = False
    return np.flatnonzero(first)


def combine_retests(points: _Points, retested: NDArray[np.int64]) -> _Points:
    """One point per observation: the geometric mean of a run and its retest, with time and id of the first run.

    Args:
        retested: times of the sessions of the system, from `retest_times`.
    """
    starts = observation_starts(points.time, retested)
    if len(starts) == len(points.time):
        return points
    sizes = np.diff(starts, append=len(points.time))
    arrays: dict[str, Any] = {"time": points.time[starts], "run_id": points.run_id[starts]}
    arrays["count"] = np.add.reduceat(points.count, starts)
    with np.errstate(divide="ignore"):  # of a value of 0 the mean is 0
        for name in ("max", "median", "min", "mean"):
            if hasattr(points, name):
                arrays[name] = np.exp(np.add.reduceat(np.log(getattr(points, name)), starts) / sizes)
    return replace(points, **arrays)


RetestNodes = Literal["other nodes", "the same nodes", "partly the same nodes", "unknown nodes"]
"""Nodes of a retest, compared with those of the first run."""


@dataclass(frozen=True, slots=True)
class Retest:
    """A retest in the history.

    Attributes:
        name: of the first run.
        place: where it ran, compared with the first run; `unknown nodes` if the nodes of one of them are not known.
        later_s: seconds from the start of the first run to its own.
        nodes: of the first run and of the retest.
    """

    name: str
    partition: str
    stack: str
    place: RetestNodes
    later_s: int
    nodes: tuple[tuple[str, ...], tuple[str, ...]]


def find_retests(runs: Iterable[RunRow]) -> list[Retest]:
    """The retests among the runs of one session, each with its first run."""
    runs_by_key = {run.key: run for run in runs}
    retests: list[Retest] = []
    for key, retest_run in runs_by_key.items():
        first_run = runs_by_key.get(key._replace(run=key.run.removesuffix(f"#{RETEST}")))
        if first_run is None or first_run is retest_run:
            continue
        first_nodes, retest_nodes = first_run.facts.nodes, retest_run.facts.nodes
        retests.append(
            Retest(
                name=first_run.name,
                partition=key.partition,
                stack=key.stack,
                place=_compare_nodes(set(first_nodes), set(retest_nodes)),
                later_s=retest_run.started_at - first_run.started_at,
                nodes=(first_nodes, retest_nodes),
            )
        )
    return retests


def _compare_nodes(first: set[str], retest: set[str]) -> RetestNodes:
    if not first or not retest:
        return "unknown nodes"
    if first == retest:
        return "the same nodes"
    if first & retest:
        return "partly the same nodes"
    return "other nodes"


def headline_values(row: SeriesRow, points: SeriesPoints) -> NDArray[np.float64]:
    """Value of each observation, its best sample by direction; shape (n,)."""
    return METRICS[row.metric].best_bound(points.min, points.max)
