"""The series that statistics see, what detection finds in them, and how much history there is.

A run is tested a second time when its first value looked different (`iowatch run --night`). If both values were in
the series, one bad hour would count as two observations; if the better one were used, only one direction could be
cleared. So the retest counts, which was not chosen by its value; the first run stays in the history.
Every reader of series gets them from `load_observations`.
"""

from __future__ import annotations

import csv
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from iowatch.core import HEADLINE_METRICS, METRICS, InputError, parse_time
from iowatch.stats import (
    DEFAULT_METHOD,
    CollectDetections,
    Detection,
    DetectorSettings,
    detect_many,
    detection_pool,
    get_method,
)
from iowatch.store import DetectionRow, History, SeriesFilter, SeriesPoints, SeriesRow, SessionRow

# Attribute of a session: epoch seconds from which on its runs are retests.
RETEST_SINCE = "again_since"

MIN_OBSERVATIONS = DetectorSettings().min_observations
"""Series with fewer observations are not assessed."""

_DAY_S = 86400


def headline_series(history: History, system: str) -> list[SeriesRow]:
    """One series per case, partition and stack of the system: that of the headline metric."""
    return monitored_series(history.series(SeriesFilter(system=system)))


def monitored_series(rows: Iterable[SeriesRow]) -> list[SeriesRow]:
    """Of the series of one system those that are monitored; A/B runs never are."""
    chosen: dict[tuple[str, str, str], SeriesRow] = {}
    for row in rows:
        key = (row.partition, row.stack, row.case.key)
        if row.metric in HEADLINE_METRICS and row.n and not row.case.parameters.get("ab_run"):
            known = chosen.get(key)
            if known is None or HEADLINE_METRICS.index(row.metric) < HEADLINE_METRICS.index(known.metric):
                chosen[key] = row
    return list(chosen.values())


def load_observations(
    history: History, rows: Sequence[SeriesRow], since: int | None = None, until: int | None = None
) -> dict[int, SeriesPoints]:
    """The points of series of one system that statistics see, by series id: without runs that have a retest.

    Args:
        since, until: epoch seconds; only points from `since` to `until`.
    """
    points = history.points([row.id for row in rows], since, until)
    retested = retest_times(history.sessions(rows[0].system) if rows else ())
    return {number: _select(one, observation_mask(one.time, retested)) for number, one in points.items()}


def _select(points: SeriesPoints, chosen: NDArray[np.bool_]) -> SeriesPoints:
    arrays = {f.name: getattr(points, f.name)[chosen] for f in fields(points) if f.name != "series_id"}
    return points if chosen.all() else replace(points, **arrays)


def retest_times(sessions: Iterable[SessionRow]) -> NDArray[np.int64]:
    """Start, start of the retests and end (epoch seconds) of each session with retests, shape (sessions, 3)."""
    retested = [row for row in sessions if RETEST_SINCE in row.attributes and row.ended_at is not None]
    found = [(row.started_at, row.attributes[RETEST_SINCE], row.ended_at) for row in retested]
    return np.asarray(found, dtype=np.int64).reshape(-1, 3)


def observation_mask(times: NDArray[np.int64], retested: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which points of a series are observations: all but first runs with a retest in the same session.

    Args:
        times: epoch seconds in ascending order, shape (n,).
        retested: of the system's sessions, from `retest_times`.
    """
    start, retest = np.searchsorted(times, retested[:, :2]).T
    end = np.searchsorted(times, retested[:, 2], side="right")
    keep = np.ones(len(times), dtype=bool)
    for first, second in zip(start[end > retest], retest[end > retest], strict=True):
        keep[first:second] = False
    return keep


def headline_values(row: SeriesRow, points: SeriesPoints) -> NDArray[np.float64]:
    """The value of each observation: the best of its samples, shape (n,)."""
    return METRICS[row.metric].best_bound(points.min, points.max)


# Series per read, and reads ahead of detection.
_CHUNK, _READS_AHEAD = 50, 4
# Of stored detections; another number makes all of them outdated.
_FORMAT = 3


def detect_series(
    history: History,
    rows: Sequence[SeriesRow],
    accepted_since: Mapping[int, int],
    method: str = DEFAULT_METHOD,
    *,
    save: bool = True,
) -> dict[int, Detection]:
    """The detection of each series of one system, by series id; only those without a current one are detected.

    Args:
        accepted_since: epoch seconds by series id, from which on the level is the accepted one.
        method: a name in `iowatch.stats.METHODS`.
        save: write new detections to the history.

    Raises:
        UsageError: no such method.
    """
    version = f"{method}-{get_method(method).version}/{_FORMAT}"
    # What each detection follows from: the number of points, the last of them, method and accepted level.
    keys = {row.id: (row.n, row.last or 0, f"{version} since {accepted_since.get(row.id, 0)}") for row in rows}
    current = {
        number: Detection.from_json(stored.document)
        for number, stored in history.detections(list(keys)).items()
        if (stored.points, stored.last_time, stored.version) == keys[number]
    }
    outdated = [row for row in rows if row.id not in current]
    # Few series at a time: memory stays small, and a killed update keeps its work. Reading overlaps with detection.
    pending: deque[tuple[Sequence[SeriesRow], CollectDetections]] = deque()

    def collect_first() -> dict[int, Detection]:
        chunk, collect = pending.popleft()
        found = dict(zip((row.id for row in chunk), collect(), strict=True))
        if save:
            history.save_detections([DetectionRow(id_, *keys[id_], one.to_json()) for id_, one in found.items()])
        return found

    with detection_pool(sum(row.n for row in outdated), method=method) as submit:
        for start in range(0, len(outdated), _CHUNK):
            chunk = outdated[start : start + _CHUNK]
            points = load_observations(history, chunk)
            series = [(points[row.id].time, headline_values(row, points[row.id])) for row in chunk]
            pending.append((chunk, submit(series, [accepted_since.get(row.id) for row in chunk])))
            if len(pending) > _READS_AHEAD:
                current |= collect_first()
        while pending:
            current |= collect_first()
    return {row.id: current[row.id] for row in rows}


def load_detections(history: History, series_ids: Sequence[int]) -> dict[int, Detection]:
    """The detections that the last update of findings stored; series without one are left out."""
    stored = history.detections(series_ids)
    current = {number: row.document for number, row in stored.items() if f"/{_FORMAT} " in row.version}
    return {number: Detection.from_json(document) for number, document in current.items()}


@dataclass(frozen=True)
class HistoryExtent:
    """How much history there is, without A/B runs.

    Attributes:
        days: UTC days with observations, in the series that has most; several runs in one day are one.
        series: monitored series.
        assessable: those of them with enough observations, as of the last update of findings.
    """

    days: int
    series: int
    assessable: int


def history_extent(history: History, systems: Sequence[str]) -> HistoryExtent:
    """How much history there is of some systems, all together."""
    days = series = assessable = 0
    for system in systems:
        rows, longest = headline_series(history, system), 0
        for row in sorted(rows, key=lambda row: -row.n):
            if row.n <= longest:
                break
            longest = max(longest, len(np.unique(load_observations(history, [row])[row.id].time // _DAY_S)))
        # Detection counts observations, whatever the time between them; the same hour seen many times is no history.
        detections = load_detections(history, [row.id for row in rows]) if longest >= MIN_OBSERVATIONS else {}
        days, series = max(days, longest), series + len(rows)
        assessable += sum(one.status == "ok" for one in detections.values())
    return HistoryExtent(days, series, assessable)


def detect_csv(path: Path, method: str = DEFAULT_METHOD) -> dict[str, Detection]:
    """The detection of each series of a CSV file, by its name.

    Raises:
        InputError: the file is not UTF-8 text, or has faults: see `read_series_csv`.
        UsageError: no such method.
    """
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            series = read_series_csv(lines, str(path))
    except UnicodeDecodeError as error:
        text = f"{path}: not UTF-8 text ({error.reason} at byte {error.start})"
        raise InputError(text, hint="Save it as UTF-8, for example with iconv -t UTF-8.") from error
    return dict(zip(series, detect_many(list(series.values()), method=method), strict=True))


CSV_COLUMNS = ("series", "time", "value")
_MAX_FAULTS = 10

TimesAndValues = tuple[list[float], list[float]]
"""Times (epoch seconds) and values."""


def read_series_csv(lines: Iterable[str], name: str) -> dict[str, TimesAndValues]:
    """Series by name, in the order of their first rows.

    Args:
        lines: the text; further columns are ignored, and so are empty lines.
        name: what to call the text in messages.

    Raises:
        InputError: all faults together, each with its line (the first ten, and how many more).
    """
    rows = csv.reader(lines, strict=True)
    series: dict[str, TimesAndValues] = {}
    faults: list[str] = []
    try:
        header = next(rows, [])
        columns = _column_positions(header, name)
        for row in rows:
            where = f"{name}:{rows.line_num}"
            if not any(field.strip() for field in row):
                continue
            if len(row) == len(header):
                _add_row(row, columns, where, series, faults)
            else:
                # A decimal comma makes two fields of one number: what is left of it must not pass.
                faults.append(f"{where}: {len(row)} fields, the header has {len(header)}")
    except csv.Error as error:
        faults.append(f"{name}:{rows.line_num}: {error}")
    if faults:
        more = [f"and {len(faults) - _MAX_FAULTS} more"] if len(faults) > _MAX_FAULTS else []
        raise InputError(
            "\n".join(faults[:_MAX_FAULTS] + more), hint="Expected for example: ior write,2009-03-17T02:00:00Z,1240.5"
        )
    return series


def _column_positions(header: Sequence[str], name: str) -> list[int]:
    names = [field.strip().lstrip("\ufeff") for field in header]
    absent = [column for column in CSV_COLUMNS if column not in names]
    where = f"{name}:1: header '{','.join(header)}' has"
    if absent:
        raise InputError(f"{where} no column {', '.join(absent)}", hint="The first line is: series,time,value")
    twice = [column for column in CSV_COLUMNS if names.count(column) > 1]
    if twice:
        raise InputError(f"{where} {', '.join(twice)} more than once")
    return [names.index(column) for column in CSV_COLUMNS]


def _add_row(
    row: Sequence[str], columns: Sequence[int], where: str, series: dict[str, TimesAndValues], faults: list[str]
) -> None:
    label, time_text, value_text = (row[column].strip() for column in columns)
    known = len(faults)
    if not label:
        faults.append(f"{where}: series has no name")
    try:
        moment = parse_time(time_text).timestamp()
    except InputError:
        faults.append(f"{where}: time '{time_text}' is neither ISO 8601 nor epoch seconds")
    try:
        value = float(value_text.replace("_", "?"))  # Python's 1_000 is no number of a CSV file
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        faults.append(f"{where}: value '{value_text}' is not a finite number > 0")
    if len(faults) == known:
        times, values = series.setdefault(label, ([], []))
        times.append(moment)
        values.append(value)
