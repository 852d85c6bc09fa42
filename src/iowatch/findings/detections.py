"""Detections of the series of a system, stored and computed, and the extent of the history on which they are based.

Stored detections are used as they are, or with their newer points, where that is possible; all others are computed.
Series are adjusted for the covariates of their runs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iowatch.core import DAY_S, METRICS, InputError, get_covariate
from iowatch.findings.detectors import detector_key, get_detector, runs_in_workers
from iowatch.findings.saturation import run_numbers, series_with_covariates
from iowatch.findings.series import MIN_OBSERVATIONS, headline_series, headline_values, load_observations
from iowatch.findings.statistics_errors import reported_as
from iowatch.site import load_system, system_names
from iowatch.statistics import DEFAULT_METHOD, CovariateTable, Detection, Detector
from iowatch.statistics.detection import MOST_ADDED, CollectDetections, detection_pool, extend_detection
from iowatch.store import DetectionRow, History, SeriesPoints, SeriesRow, bulk

# Series per read, and number of reads ahead of detection.
_CHUNK, _READS_AHEAD = 50, 4
# Format of stored detections; a new number makes all of them outdated.
_FORMAT = 6


def detect_series(
    history: History,
    rows: Sequence[SeriesRow],
    accepted_since: Mapping[int, int],
    method: str = DEFAULT_METHOD,
    *,
    save: bool = True,
    most_new: int = 0,
) -> dict[int, Detection]:
    """Detection of each series of one system, by series id; stored detections are used if they are current.

    Series are adjusted for the covariates of their runs unless `system.yaml` switches it off.

    Args:
        accepted_since: start of the accepted level in epoch seconds, by series id.
        method: a name in `iowatch.findings.DETECTORS`.
        save: write new detections to the history.
        most_new: stored detections of series with at most so many newer points are used, too.

    Raises:
        UsageError: unknown method.
    """
    detector = get_detector(method)
    is_adjusted = bool(rows) and _adjusts_for_covariates(rows[0].system)
    version = _detection_version(detector, is_adjusted)
    inputs: dict[int, _DetectionInputs] = {}
    for row in rows:
        level_start = accepted_since.get(row.id, 0)
        inputs[row.id] = _DetectionInputs(row.n, row.last or 0, f"{version} since {level_start}")
    # Stored detections as they are, then those to which the newer points can be added.
    stored = history.detections(list(inputs))
    detections: dict[int, Detection] = {}
    for series_id, stored_row in stored.items():
        if inputs[series_id].is_current(stored_row, most_new):
            detections[series_id] = Detection.from_json(stored_row.document)
    newer = [row for row in rows if row.id not in detections and row.id in stored]
    extended = _extend_detections(history, newer, stored, inputs)
    if save:
        _save_detections(history, extended, inputs)
    detections |= extended
    # All others are computed.
    outdated = [row for row in rows if row.id not in detections]
    chunks = _detect_in_chunks(history, outdated, accepted_since, detector, load=is_adjusted, save_load=save)
    for computed in chunks:
        if save:
            _save_detections(history, computed, inputs)
        detections |= computed
    return {row.id: detections[row.id] for row in rows}


@dataclass(frozen=True)
class _DetectionInputs:
    """What determines the detection of a series: points, time of the last one (epoch seconds), method with version."""

    points: int
    last_time: int
    version: str

    def is_current(self, stored: DetectionRow, most_new: int) -> bool:
        """Whether a stored detection can be used as it is; with `most_new` also if it lacks so many newer points."""
        if stored.version != self.version:
            return False
        if (stored.points, stored.last_time) == (self.points, self.last_time):
            return True
        return 0 < self.points - stored.points <= most_new and stored.last_time < self.last_time

    def has_newer_points(self, stored: DetectionRow) -> bool:
        """Whether points were added after those of a stored detection."""
        is_same_method = stored.version == self.version
        return is_same_method and stored.points < self.points and stored.last_time < self.last_time


def _save_detections(
    history: History, detections: Mapping[int, Detection], inputs: Mapping[int, _DetectionInputs]
) -> None:
    rows: list[DetectionRow] = []
    for series_id, detection in detections.items():
        key = inputs[series_id]
        rows.append(DetectionRow(series_id, key.points, key.last_time, key.version, detection.to_json()))
    history.save_detections(rows)


def _detect_in_chunks(
    history: History,
    rows: Sequence[SeriesRow],
    accepted_since: Mapping[int, int],
    detector: Detector,
    *,
    load: bool,
    save_load: bool,
) -> Iterator[dict[int, Detection]]:
    """Compute detections by series id, some series at a time.

    Chunks of few series limit memory, and a killed update keeps finished chunks. Reading overlaps with detection.

    Args:
        load: adjust for the covariates of the runs.
        save_load: keep the covariates that were read.
    """
    pending: deque[_PendingChunk] = deque()
    points_of_all = sum(row.n for row in rows)
    processes = None if runs_in_workers(detector) else 1
    with detection_pool(points_of_all, detector=detector, processes=processes) as submit:
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            points = load_observations(history, chunk, save_covariates=save_load)
            covariates: list[CovariateTable | None] = [None] * len(chunk)
            if load:
                run_ids = {series_id: series_points.run_id for series_id, series_points in points.items()}
                covariates = load_covariates(history, chunk, run_ids, save=save_load)
            series = [(points[row.id].time, headline_values(row, points[row.id])) for row in chunk]
            level_starts = [accepted_since.get(row.id) for row in chunk]
            pending.append(_PendingChunk(chunk, submit(series, level_starts, covariates)))
            if len(pending) > _READS_AHEAD:
                yield pending.popleft().collect()
        while pending:
            yield pending.popleft().collect()


@dataclass(frozen=True)
class _PendingChunk:
    """Series whose detection runs in other processes."""

    rows: Sequence[SeriesRow]
    collect_detections: CollectDetections

    def collect(self) -> dict[int, Detection]:
        """Wait for the detections; by series id.

        Raises:
            InputError: a series cannot be assessed.
        """
        with reported_as(InputError):
            detections = self.collect_detections()
        return {row.id: detection for row, detection in zip(self.rows, detections, strict=True)}


# Most observations that are added to a detection: of each series another number from this one to `MOST_ADDED`, so that
# not all of them are assessed in the same update.
_FEWEST_ADDED = 7
# Seconds; with fewer observations than one in this time a series is assessed at each update.
_ADDED_S = 30 * DAY_S


def _extend_detections(
    history: History,
    rows: Sequence[SeriesRow],
    stored: Mapping[int, DetectionRow],
    inputs: Mapping[int, _DetectionInputs],
) -> dict[int, Detection]:
    """Stored detections with the newer points of their series, by series id, where these need no new assessment."""
    extendable: list[SeriesRow] = []
    detections: dict[int, Detection] = {}
    added_since: dict[int, int] = {}
    for row in rows:
        stored_row = stored[row.id]
        if not inputs[row.id].has_newer_points(stored_row):
            continue
        detection = Detection.from_json(stored_row.document)
        start = int(detection.added_since or stored_row.last_time + 1)
        if inputs[row.id].last_time - start <= _ADDED_S:
            extendable.append(row)
            detections[row.id], added_since[row.id] = detection, start
    if not extendable:
        return {}
    # From the last assessed run on: one in the same session as its retest is one observation with it.
    observations = load_observations(history, extendable, min(added_since.values()) - 1)
    extended: dict[int, Detection] = {}
    for row in extendable:
        points, stored_row = observations[row.id], stored[row.id]
        # Runs that were added before the last one, and retests, change observations that were assessed.
        if int((points.time > stored_row.last_time).sum()) != row.n - stored_row.points:
            continue
        is_added = points.time >= added_since[row.id]
        most = _FEWEST_ADDED + row.id % (MOST_ADDED - _FEWEST_ADDED + 1)
        values = headline_values(row, points)[is_added]
        longer = extend_detection(detections[row.id], points.time[is_added], values, most)
        if longer is not None:
            extended[row.id] = longer
    return extended


def detection_version(system: str, method: str = DEFAULT_METHOD) -> str:
    """Return the version of a detection of a system's series; stored ones of another version are computed again.

    Raises:
        UsageError: unknown method.
    """
    return _detection_version(get_detector(method), _adjusts_for_covariates(system))


def _detection_version(detector: Detector, adjusted: bool) -> str:
    version = f"{detector_key(detector)}/{_FORMAT}"
    return version if adjusted else f"{version} unadjusted"


def _adjusts_for_covariates(system: str) -> bool:
    return system not in system_names() or load_system(system).covariates.adjust


def load_covariates(
    history: History, rows: Sequence[SeriesRow], run_ids: Mapping[int, NDArray[np.int64]], *, save: bool = True
) -> list[CovariateTable | None]:
    """Covariates of the runs of each series; None where the newest of them recorded none.

    Args:
        run_ids: of the points of each series in order of time, shape (n,), by series id.
        save: keep the numbers of runs whose facts were read.
    """
    # The newest runs tell which series have covariates at all.
    with_covariates = series_with_covariates(history, {row.id: run_ids[row.id] for row in rows}, save)
    if not with_covariates:
        return [None] * len(rows)
    runs = np.unique(np.concatenate([run_ids[series_id] for series_id in with_covariates]))
    matrix = bulk.covariate_matrix(runs, run_numbers(history, runs.tolist(), save))
    columns = [column for column, name in enumerate(matrix.names) if not _is_consequence(name)]
    used_names, used_values = [matrix.names[column] for column in columns], matrix.values[:, columns]
    tables: list[CovariateTable | None] = []
    for row in rows:
        if row.id not in with_covariates:
            tables.append(None)
            continue
        positions = np.searchsorted(runs, run_ids[row.id])
        tables.append(_covariate_table(row, used_names, used_values[positions]))
    return tables


def _is_consequence(name: str) -> bool:
    """Whether a covariate is a time that the run itself waited: any slow run increases it."""
    covariate = get_covariate(name)
    return covariate is not None and covariate.includes_run and covariate.unit == "s"


def _covariate_table(row: SeriesRow, names: Sequence[str], values: NDArray[np.float64]) -> CovariateTable:
    """Table of a series; what includes the run's own traffic may only lower the performance."""
    includes_run: list[bool] = []
    for name in names:
        covariate = get_covariate(name)
        includes_run.append(covariate is not None and covariate.includes_run)
    return CovariateTable(tuple(names), values, np.where(includes_run, -METRICS[row.metric].sign, 0.0))


def load_tables(
    history: History, rows: Sequence[SeriesRow], points: Mapping[int, SeriesPoints]
) -> dict[int, CovariateTable]:
    """Covariates of these observations, by series id, all with the same names; only of series that have some."""
    if not rows or not _adjusts_for_covariates(rows[0].system):
        return {}
    run_ids = {series_id: series_points.run_id for series_id, series_points in points.items()}
    tables = load_covariates(history, rows, run_ids)
    return {row.id: table for row, table in zip(rows, tables, strict=True) if table is not None}


def load_detections(history: History, series_ids: Sequence[int]) -> dict[int, Detection]:
    """Detections stored by the last update of findings, by series id; series without one are left out."""
    detections: dict[int, Detection] = {}
    for series_id, stored in history.detections(series_ids).items():
        # Of another format it cannot be read.
        if f"/{_FORMAT} " in stored.version:
            detections[series_id] = Detection.from_json(stored.document)
    return detections


@dataclass(frozen=True)
class HistoryExtent:
    """Extent of the history, without A/B runs.

    Attributes:
        days: UTC days with observations, in the series with most of them; several runs per day count once.
        series: number of monitored series.
        assessable: number of series with enough observations, as of the last update of findings.
        stepped: number of series in which the last update found a step, where none is assessable yet: many sessions of
            one day are no history, but what was found in them is reported.
        largest_step: gain of the largest of these steps; 1 without any.
    """

    days: int
    series: int
    assessable: int
    stepped: int = 0
    largest_step: float = 1.0

    @property
    def is_assessed(self) -> bool:
        """Whether changes can be detected in some series."""
        return self.assessable > 0


def history_extent(history: History, systems: Sequence[str]) -> HistoryExtent:
    """Combined extent of the history of several systems."""
    days = series = assessable = 0
    early_gains: list[float] = []
    for system in systems:
        rows = headline_series(history, system)
        days_of_system = _most_days(history, rows)
        # Detection counts observations irrespective of the time between them; many runs within an hour are no history.
        detections = load_detections(history, [row.id for row in rows])
        if days_of_system >= MIN_OBSERVATIONS:
            assessable += sum(detection.status == "ok" for detection in detections.values())
        else:
            early_gains += _gains_of_steps(rows, detections)
        days = max(days, days_of_system)
        series += len(rows)
    if assessable or not early_gains:
        return HistoryExtent(days, series, assessable)
    largest = max(early_gains, key=lambda gain: abs(math.log(gain)))
    return HistoryExtent(days, series, assessable, len(early_gains), largest)


def _gains_of_steps(rows: Sequence[SeriesRow], detections: Mapping[int, Detection]) -> list[float]:
    """Gain of the largest confirmed step of each series that has one."""
    gains: list[float] = []
    for row in rows:
        detection = detections.get(row.id)
        if detection is None:
            continue
        sign = METRICS[row.metric].sign
        gains_of_series = [step.ratio**sign for step in detection.steps if not step.suspected]
        if gains_of_series:
            gains.append(max(gains_of_series, key=lambda gain: abs(math.log(gain))))
    return gains


def _most_days(history: History, rows: Sequence[SeriesRow]) -> int:
    """Number of UTC days with observations, in the series with most of them."""
    most_days = 0
    for row in sorted(rows, key=lambda row: -row.n):
        # A series has at most as many days as points.
        if row.n <= most_days:
            break
        times = load_observations(history, [row])[row.id].time
        most_days = max(most_days, len(np.unique(times // DAY_S)))
    return most_days
