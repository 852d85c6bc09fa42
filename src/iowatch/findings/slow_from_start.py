"""Series that are far slower than their siblings since their first session: slow from the start, or configured so.

A level that was never better is no change, so no finding reports it. In the first sessions of a series its siblings
are what there is to compare it with: the series of the same partition whose case is the same but for one parameter,
measured in the same sessions. This is a hint for a person, and never a finding.

    observations of young series and their siblings ── ratio in each session ──> median, first ──> slow series
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from iowatch.core import METRICS, Scalar
from iowatch.findings.case_parameters import short_case_names
from iowatch.findings.grouping import series_parameters
from iowatch.findings.series import headline_series, headline_values, load_observations
from iowatch.reference import PublishedRatio, published_ratio
from iowatch.statistics.panel_table import session_starts
from iowatch.store import History, SeriesRow

SIBLING_PARAMETERS = ("api", "stack")
"""Parameters in which siblings differ: interface and stack. Both move the same bytes between the same processes and the
same file system; other parameters (transfer size, ranks, striping) change how much a file system can do."""

# Ratio to the median of the siblings below which a series is reported. None of the 374 published ratios of two
# interfaces is below; the lowest is 1/19.5 (bartz2014, Table A.1). With twice as much, 1/15, two of them are.
_SLOW = 1 / 30
# A series with as many results is no longer young: a person has seen the line for about three weeks of nights, and what
# changes from now on is a finding. With twice as many the line stays for six weeks.
_YOUNG_RESULTS = 20
# The interface that moves no data, and the parameter that only interfaces over MPI-IO have.
_WITHOUT_DATA, _ONLY_OF_MPIIO = "NULL", "collective"


@dataclass(frozen=True)
class SlowSeries:
    """A series that is far slower than its siblings since its first session.

    Attributes:
        name: short, unique among the series of its system.
        parameter: in which the siblings differ from it.
        siblings: their values of this parameter.
        ratio: its performance / median of the siblings in the same session; median over the sessions.
        sessions: that measured it and a sibling.
        first: start of the first of them, epoch seconds.
        published: the range of this ratio in papers, where there is one sibling; None if no paper has both interfaces.
    """

    system: str
    series_id: int
    name: str
    parameter: str
    siblings: tuple[str, ...]
    ratio: float
    sessions: int
    first: int
    published: PublishedRatio | None = None


def find_slow_from_start(history: History, systems: Sequence[str]) -> list[SlowSeries]:
    """The young series of these systems that are far slower than their siblings since their first session.

    Returns:
        The slowest first.
    """
    slow: list[SlowSeries] = []
    for system in systems:
        slow += _slow_series_of_system(history, system)
    return sorted(slow, key=lambda series: series.ratio)


def _slow_series_of_system(history: History, system: str) -> list[SlowSeries]:
    rows = headline_series(history, system)
    young_ids = {row.id for row in rows if row.n < _YOUNG_RESULTS}
    groups = _sibling_groups(rows, young_ids)
    if not groups:
        return []
    compared_rows: list[SeriesRow] = []
    for group in groups:
        compared_rows += group.rows
    performance = _performance_by_session(history, compared_rows, young_ids)
    names = dict(zip((row.id for row in rows), short_case_names([series_parameters(row) for row in rows]), strict=True))
    # Of a series that is slow beside two kinds of siblings the larger difference.
    slowest: dict[int, SlowSeries] = {}
    for group in groups:
        for row in group.rows:
            if row.id not in young_ids:
                continue
            slow = _compare_with_siblings(row, group, performance, names[row.id])
            if slow is not None and (row.id not in slowest or slow.ratio < slowest[row.id].ratio):
                slowest[row.id] = slow
    return list(slowest.values())


@dataclass(frozen=True)
class _SiblingGroup:
    """Series whose cases differ in one parameter only."""

    parameter: str
    rows: tuple[SeriesRow, ...]


def _sibling_groups(rows: Sequence[SeriesRow], young_ids: set[int]) -> list[_SiblingGroup]:
    """The groups of siblings that have a young series."""
    groups: list[_SiblingGroup] = []
    for parameter in SIBLING_PARAMETERS:
        by_case: dict[tuple[str, ...], list[SeriesRow]] = defaultdict(list)
        for row in rows:
            parameters = series_parameters(row)
            if parameter in parameters and parameters.get("api") != _WITHOUT_DATA:
                by_case[_sibling_case(row, parameters, parameter)].append(row)
        for siblings in by_case.values():
            if len(siblings) > 1 and any(row.id in young_ids for row in siblings):
                groups.append(_SiblingGroup(parameter, tuple(siblings)))
    return groups


def _sibling_case(row: SeriesRow, parameters: Mapping[str, Scalar], parameter: str) -> tuple[str, ...]:
    """What the siblings of a series share: metric, and all parameters but one."""
    ignored = {parameter}
    if parameter == "api":
        # POSIX has none; `_siblings_of` compares it where both have it.
        ignored.add(_ONLY_OF_MPIIO)
    if parameters.get("ranks") == 1:
        # The file of one process is both shared and its own.
        ignored.add("file")
    shared = [f"{name}={value}" for name, value in parameters.items() if name not in ignored]
    return (row.metric, *sorted(shared))


_Performance = Mapping[int, Mapping[int, float]]
"""Performance (higher is better) by series id and number of the session."""


def _performance_by_session(history: History, rows: Sequence[SeriesRow], young_ids: set[int]) -> _Performance:
    """Performance of some series of one system since the first observation of a young one."""
    unique_rows = list({row.id: row for row in rows}.values())
    since = min(row.first or 0 for row in unique_rows if row.id in young_ids)
    points = load_observations(history, unique_rows, since)
    starts = session_starts([points[row.id].time.astype(np.float64) for row in unique_rows])
    performance: dict[int, dict[int, float]] = {}
    for row in unique_rows:
        sessions = np.searchsorted(starts, points[row.id].time, side="right") - 1
        gains = headline_values(row, points[row.id]) ** METRICS[row.metric].sign
        performance[row.id] = dict(zip(sessions.tolist(), gains.tolist(), strict=True))
    return performance


def _compare_with_siblings(
    row: SeriesRow, group: _SiblingGroup, performance: _Performance, name: str
) -> SlowSeries | None:
    """A young series beside its siblings; None if it is not far slower than they are, or was not so from the start."""
    siblings = _siblings_of(row, group)
    ratios: dict[int, float] = {}
    for session, value in performance[row.id].items():
        measured = [performance[other.id][session] for other in siblings if session in performance[other.id]]
        if measured:
            ratios[session] = value / median(measured)
    if not ratios or ratios[min(ratios)] >= _SLOW:
        return None
    ratio = median(ratios.values())
    values = tuple(dict.fromkeys(str(series_parameters(other)[group.parameter]) for other in siblings))
    published = _published(row, group.parameter, values)
    # Where papers have measured even less, it is what this interface does.
    least_expected = _SLOW if published is None else min(_SLOW, published.lowest)
    if ratio >= least_expected:
        return None
    return SlowSeries(
        system=row.system,
        series_id=row.id,
        name=name,
        parameter=group.parameter,
        siblings=values,
        ratio=ratio,
        sessions=len(ratios),
        first=row.first or 0,
        published=published,
    )


def _siblings_of(row: SeriesRow, group: _SiblingGroup) -> list[SeriesRow]:
    """The series of a group that differ from one of them in the parameter of the group alone."""
    parameters = series_parameters(row)
    siblings: list[SeriesRow] = []
    for other in group.rows:
        other_parameters = series_parameters(other)
        if other_parameters[group.parameter] == parameters[group.parameter]:
            continue
        transfers = {parameters.get(_ONLY_OF_MPIIO), other_parameters.get(_ONLY_OF_MPIIO)}
        if len(transfers) == 1 or None in transfers:
            siblings.append(other)
    return siblings


def _published(row: SeriesRow, parameter: str, values: Sequence[str]) -> PublishedRatio | None:
    """The published ratios of the interface of a series to that of its siblings, if these have one."""
    if parameter != "api" or len(values) != 1 or row.metric != "bandwidth":
        return None
    operation, api = str(row.case.parameters.get("operation")), str(row.case.parameters["api"])
    return published_ratio(operation, api, values[0])
