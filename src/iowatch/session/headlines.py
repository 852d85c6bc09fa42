"""The headline results of a session, and what puts them into proportion: earlier sessions, the peak, the raw disk.

The ratio to earlier sessions is shown from the second session on. It is a proportion, no claim of a change: changes
need `MIN_OBSERVATIONS` days (`iowatch.findings`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from iowatch.benchmarks.registry import BENCHMARKS
from iowatch.core import METRICS, IowatchError
from iowatch.findings import headline_values, load_observations
from iowatch.reference import PublishedFigure, case_peak_mib_per_s, has_peak, percent_of_peak, published_of_like_cases
from iowatch.site import FileSystem, load_system, with_file_system
from iowatch.store import ExpectedResult, History, RunRow, SeriesRow, SessionRow

USUAL_SESSIONS = 30
"""So many earlier sessions at most are what is usual: a month of nights, so that an old level is forgotten."""

# What fio measures, in the words of `Benchmark.probes`; without O_DIRECT it measures the page cache instead.
_RAW_DISK, _PAST_THE_CACHE = "raw disk", "direct"


@dataclass(frozen=True, slots=True)
class HeadlineResult:
    """The best sample of one expected result of the session (the maximum of bandwidths: [lawrence2017], section 6).

    Attributes:
        ratio_to_usual: the value relative to the median of the best values of earlier sessions; None without one.
        earlier_sessions: number of sessions of that median.
        percent_of_peak: of the file system, as `system.yaml` declares it; None if it does not.
        percent_of_raw_disk: of what fio measured in this session on the same file system and partition; None with a
            declared peak, and if fio did not measure it past the page cache.
    """

    stack: str
    run: str
    operation: str
    metric: str
    value: float
    unit: str
    samples: int
    partition: str = ""
    ratio_to_usual: float | None = None
    earlier_sessions: int = 0
    percent_of_peak: float | None = None
    percent_of_raw_disk: float | None = None


@dataclass(frozen=True)
class SessionHeadlines:
    """The headline results of a session.

    Attributes:
        published: what papers measured with cases that are like those of the results.
    """

    results: tuple[HeadlineResult, ...]
    published: tuple[PublishedFigure, ...]


@dataclass(frozen=True, slots=True)
class _MeasuredResult:
    """The samples of one series in one run of the session."""

    run: RunRow
    series: SeriesRow
    samples: tuple[float, ...]

    @property
    def operation(self) -> str:
        return str(self.series.case.parameters.get("operation", ""))

    @property
    def best(self) -> float:
        return METRICS[self.series.metric].best(self.samples)

    @property
    def disk_operation(self) -> _DiskOperation:
        case = self.series.case
        parameters = with_file_system(self.series.system, case.benchmark, case.parameters)
        file_system = str(parameters.get("file_system") or self.run.facts.file_system or "")
        return _DiskOperation(self.run.partition, file_system, self.operation)

    @property
    def measures_raw_disk(self) -> bool:
        benchmark = BENCHMARKS.get(self.series.case.benchmark)
        return benchmark is not None and benchmark.probes.get(self.operation) == _RAW_DISK


@dataclass(frozen=True, slots=True)
class _DiskOperation:
    """What a bandwidth of raw disk limits: an operation on a file system, from the nodes of a partition.

    Attributes:
        file_system: its name where a system measures several; else empty.
    """

    partition: str
    file_system: str
    operation: str


@dataclass(frozen=True, slots=True)
class UsualValue:
    """The median of the best values of the earlier sessions of a series, in the unit of its metric."""

    median: float
    sessions: int


def assess_headlines(
    history: History, session: SessionRow, runs: Sequence[RunRow], expected: Set[ExpectedResult]
) -> SessionHeadlines:
    """The expected results of a session with their proportions.

    Args:
        runs: of the session.
        expected: results of the session; its retests are none of them.
    """
    results = _expected_results(history, runs, expected)
    usual_by_series = usual_values(history, session, runs, [result.series for result in results])
    disk_bandwidths = _raw_disk_bandwidths(results)
    file_systems = _declared_file_systems(session.system)
    headlines: list[HeadlineResult] = []
    for result in results:
        metric, case = METRICS[result.series.metric], result.series.case
        headline = HeadlineResult(
            stack=result.run.stack,
            run=result.run.name,
            operation=result.operation,
            metric=metric.name,
            value=result.best,
            unit=metric.unit,
            samples=len(result.samples),
            partition=result.run.partition,
        )
        usual = usual_by_series.get(result.series.id)
        if usual is not None:
            ratio = result.best / usual.median
            headline = replace(headline, ratio_to_usual=ratio, earlier_sessions=usual.sessions)
        # What the file system can do at most says more than one process of fio.
        peak = case_peak_mib_per_s(session.system, file_systems, case, metric.name)
        if peak is not None:
            headline = replace(headline, percent_of_peak=percent_of_peak(result.best, peak))
        elif has_peak(metric.name) and not result.measures_raw_disk:
            disk_bandwidth = disk_bandwidths.get(result.disk_operation)
            headline = replace(headline, percent_of_raw_disk=percent_of_peak(result.best, disk_bandwidth))
        headlines.append(headline)
    cases = [result.series.case for result in results if has_peak(result.series.metric)]
    return SessionHeadlines(tuple(headlines), published_of_like_cases(session.system, cases))


def _expected_results(history: History, runs: Sequence[RunRow], expected: Set[ExpectedResult]) -> list[_MeasuredResult]:
    results: list[_MeasuredResult] = []
    for run in runs:
        for series, samples in history.run_results(run.id):
            result = _MeasuredResult(run, series, samples)
            if ExpectedResult(run.name, run.partition, run.stack, result.operation, series.metric) in expected:
                results.append(result)
    return results


def usual_values(
    history: History, session: SessionRow, runs: Sequence[RunRow], all_series: Iterable[SeriesRow]
) -> dict[int, UsualValue]:
    """What is usual for each series before a session, by series id; series without an earlier session are left out.

    A run and its retest are one observation of their session, and interleaved runs have series of their own. Runs on
    saturated nodes are no observations.

    Args:
        runs: of the session.
    """
    series_by_id = {series.id: series for series in all_series}
    observations = load_observations(history, list(series_by_id.values()), until=session.started_at)
    # A session that started in the same second is no earlier one than itself.
    runs_of_session = [run.id for run in runs]
    usual: dict[int, UsualValue] = {}
    for series_id, points in observations.items():
        earlier = points.only(~np.isin(points.run_id, runs_of_session))
        values = headline_values(series_by_id[series_id], earlier)[-USUAL_SESSIONS:]
        # A time or a count may be 0, which nothing can be relative to.
        if len(values) and np.median(values) > 0:
            usual[series_id] = UsualValue(float(np.median(values)), len(values))
    return usual


def _raw_disk_bandwidths(results: Sequence[_MeasuredResult]) -> dict[_DiskOperation, float]:
    """The highest bandwidth of raw disk that the session measured past the page cache, in MiB/s."""
    bandwidths: dict[_DiskOperation, float] = {}
    for result in results:
        is_past_the_cache = result.series.case.parameters.get("cache") == _PAST_THE_CACHE
        if result.measures_raw_disk and is_past_the_cache and has_peak(result.series.metric):
            disk_operation = result.disk_operation
            bandwidths[disk_operation] = max(result.best, bandwidths.get(disk_operation, 0.0))
    return bandwidths


def _declared_file_systems(system: str) -> Sequence[FileSystem]:
    """The file systems of `system.yaml`; none without it, and if it is damaged, which what needs it reports."""
    try:
        return load_system(system).file_systems
    except IowatchError:
        return ()
