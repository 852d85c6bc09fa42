"""Observations of series, their detections, and the extent of the history.

A suspected run is retested in the same session (`iowatch run --night`), on other nodes or later where that is possible.
Both values are one observation, because they share the session: if both were in the series, one bad hour would count
twice. Its value is the geometric mean of the two. Whether a run is retested depends on the first value only, so neither
value may be chosen for being the better or the worse one, and none be left out: the retest alone would forget that half
of the evidence which was measured in the usual way, and the first one alone the other half. A first value that was an
outlier by chance counts half as much, a change that both show counts whole. No correlation of the two is assumed: the
mean scatters less than a single run if they are independent, and as a single run does if they are equal.
All statistics read series through `load_observations`.
"""

from __future__ import annotations

import csv
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from iowatch.checks import INTERLEAVED_PARAMETERS, RETEST
from iowatch.core import (
    COVARIATE_FACTS,
    DAY_S,
    METRICS,
    InputError,
    UsageError,
    get_covariate,
    headline_metrics,
    parse_time,
    run_covariates,
)
from iowatch.findings.statistics_errors import reported_as
from iowatch.site import load_system, system_names
from iowatch.statistics import DEFAULT_METHOD, CovariateTable, Detection, DetectorSettings, detect_many
from iowatch.statistics.detection import CollectDetections, detection_pool, extend_detection, get_method
from iowatch.store import (
    DetectionRow,
    History,
    RunRow,
    SeriesFilter,
    SeriesPoints,
    SeriesRow,
    SeriesSamples,
    SessionRow,
    bulk,
    fold_node_names,
)

_Points = TypeVar("_Points", SeriesPoints, SeriesSamples)

MIN_OBSERVATIONS = DetectorSettings().min_observations
"""Series with fewer observations are not assessed."""


def headline_series(history: History, system: str) -> list[SeriesRow]:
    """One series per case, partition and stack of the system: that of the headline metric."""
    return monitored_series(history.series(SeriesFilter(system=system)))


def monitored_series(rows: Iterable[SeriesRow]) -> list[SeriesRow]:
    """The monitored series among those of one system; interleaved runs are not monitored."""
    chosen: dict[tuple[str, str, str], SeriesRow] = {}
    order = headline_metrics()
    for row in rows:
        key = (row.partition, row.stack, row.case.key)
        if row.metric in order and row.n and not row.case.parameters.keys() & INTERLEAVED_PARAMETERS:
            known = chosen.get(key)
            if known is None or order.index(row.metric) < order.index(known.metric):
                chosen[key] = row
    return list(chosen.values())


def load_observations(
    history: History,
    rows: Sequence[SeriesRow],
    since: int | None = None,
    until: int | None = None,
    sessions: Iterable[SessionRow] | None = None,
) -> dict[int, SeriesPoints]:
    """Observations of series of one system, by series id; a run and its retest are one observation.

    Args:
        since, until: epoch seconds; only points from `since` to `until`.
        sessions: those of the system, if the caller has loaded them.
    """
    points = history.points([row.id for row in rows], since, until)
    known = history.sessions(rows[0].system, retested=True) if sessions is None and rows else sessions
    retested = retest_times(known or ())
    return {number: combine_retests(one, retested) for number, one in points.items()}


def retest_times(sessions: Iterable[SessionRow]) -> NDArray[np.int64]:
    """Start, start of the retests and end (epoch seconds) of each session with retests, shape (sessions, 3).

    One that runs, or was killed and not yet closed, ends a day after the start of its retests: the same runs and
    retests are then one observation before and after its end, which outdates no stored detection.
    """
    found = [
        (row.started_at, since, since + DAY_S if row.ended_at is None else row.ended_at)
        for row in sessions
        if (since := row.facts.retest_since) is not None
    ]
    return np.asarray(found, dtype=np.int64).reshape(-1, 3)


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
    both = (start < retest) & (retest < end)
    for begin, stop in zip(start[both], end[both], strict=True):
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
    place: Literal["other nodes", "the same nodes", "partly the same nodes", "unknown nodes"]
    later_s: int
    nodes: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def text(self) -> str:
        """For example `on other nodes (n2 instead of n1), 12 min after the first run`."""
        first, second = map(fold_node_names, self.nodes)
        which = {"other nodes": f" ({second} instead of {first})", "the same nodes": f" ({second})"}
        return f"on {self.place}{which.get(self.place, '')}, {round(self.later_s / 60)} min after the first run"


def find_retests(runs: Iterable[RunRow]) -> list[Retest]:
    """The retests among the runs of one session, each with its first run."""
    by_key = {run.key: run for run in runs}
    found = []
    for key, second in by_key.items():
        first = by_key.get(key._replace(run=key.run.removesuffix(f"#{RETEST}")))
        if first is not None and first is not second:
            nodes = first.facts.nodes, second.facts.nodes
            place = _compare_nodes(*map(set, nodes))
            found.append(
                Retest(first.name, key.partition, key.stack, place, second.started_at - first.started_at, nodes)
            )
    return found


def _compare_nodes(
    first: set[str], second: set[str]
) -> Literal["other nodes", "the same nodes", "partly the same nodes", "unknown nodes"]:
    if not first or not second:
        return "unknown nodes"
    return "the same nodes" if first == second else "partly the same nodes" if first & second else "other nodes"


def headline_values(row: SeriesRow, points: SeriesPoints) -> NDArray[np.float64]:
    """Value of each observation, its best sample by direction; shape (n,)."""
    return METRICS[row.metric].best_bound(points.min, points.max)


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
        method: a name in `iowatch.statistics.METHODS`.
        save: write new detections to the history.
        most_new: stored detections of series with at most so many newer points are used, too.

    Raises:
        UsageError: unknown method.
    """
    adjusted = bool(rows) and _adjusts_for_covariates(rows[0].system)
    version = _detection_version(method, adjusted)
    # Inputs of each detection: number of points, time of the last point, method and accepted level.
    keys = {row.id: (row.n, row.last or 0, f"{version} since {accepted_since.get(row.id, 0)}") for row in rows}
    stored = history.detections(list(keys))
    current = {
        number: Detection.from_json(one.document)
        for number, one in stored.items()
        if _is_current(one, keys[number], most_new)
    }
    newer = [row for row in rows if row.id not in current and row.id in stored]
    extended = _extend_detections(history, newer, stored, keys)
    if save:
        history.save_detections([DetectionRow(id_, *keys[id_], one.to_json()) for id_, one in extended.items()])
    current |= extended
    outdated = [row for row in rows if row.id not in current]
    # Chunks of few series limit memory, and a killed update keeps finished chunks. Reading overlaps with detection.
    pending: deque[tuple[Sequence[SeriesRow], CollectDetections]] = deque()

    def collect_first() -> dict[int, Detection]:
        chunk, collect = pending.popleft()
        with reported_as(InputError):
            detections = collect()
        found = dict(zip((row.id for row in chunk), detections, strict=True))
        if save:
            history.save_detections([DetectionRow(id_, *keys[id_], one.to_json()) for id_, one in found.items()])
        return found

    with detection_pool(sum(row.n for row in outdated), method=method) as submit:
        for start in range(0, len(outdated), _CHUNK):
            chunk = outdated[start : start + _CHUNK]
            points = load_observations(history, chunk)
            series = [(points[row.id].time, headline_values(row, points[row.id])) for row in chunk]
            runs = {number: one.run_id for number, one in points.items()}
            covariates = load_covariates(history, chunk, runs, save=save) if adjusted else [None] * len(chunk)
            pending.append((chunk, submit(series, [accepted_since.get(row.id) for row in chunk], covariates)))
            if len(pending) > _READS_AHEAD:
                current |= collect_first()
        while pending:
            current |= collect_first()
    return {row.id: current[row.id] for row in rows}


# Most observations that are added to a detection: of each series another number from 7 to 14, so that not all of them
# are assessed in the same update.
_FEWEST_ADDED, _ADDED_NUMBERS = 7, 8
# Seconds; with fewer observations than one in this time a series is assessed at each update.
_ADDED_S = 30 * DAY_S


def _extend_detections(
    history: History,
    rows: Sequence[SeriesRow],
    stored: Mapping[int, DetectionRow],
    keys: Mapping[int, tuple[int, int, str]],
) -> dict[int, Detection]:
    """Stored detections with the newer points of their series, by series id, where these need no new assessment."""
    known: dict[int, Detection] = {}
    since: dict[int, int] = {}
    for row in rows:
        made, (points, last_time, version) = stored[row.id], keys[row.id]
        if made.version == version and made.points < points and made.last_time < last_time:
            detection = Detection.from_json(made.document)
            start = int(detection.added_since or made.last_time + 1)
            if last_time - start <= _ADDED_S:
                known[row.id], since[row.id] = detection, start
    chosen = [row for row in rows if row.id in known]
    # From the last assessed run on: one in the same session as its retest is one observation with it.
    observations = load_observations(history, chosen, min(since.values()) - 1) if chosen else {}
    found: dict[int, Detection] = {}
    for row in chosen:
        newest, made = observations[row.id], stored[row.id]
        # Runs that were added before the last one, and retests, change observations that were assessed.
        if int((newest.time > made.last_time).sum()) == row.n - made.points:
            part, most = newest.time >= since[row.id], _FEWEST_ADDED + row.id % _ADDED_NUMBERS
            longer = extend_detection(known[row.id], newest.time[part], headline_values(row, newest)[part], most)
            if longer is not None:
                found[row.id] = longer
    return found


def _is_current(stored: DetectionRow, key: tuple[int, int, str], most_new: int) -> bool:
    points, last_time, version = key
    has_newer = 0 < points - stored.points <= most_new and stored.last_time < last_time
    return stored.version == version and ((stored.points, stored.last_time) == (points, last_time) or has_newer)


def detection_version(system: str, method: str = DEFAULT_METHOD) -> str:
    """Return the version of a detection of a system's series; stored ones of another version are computed again."""
    return _detection_version(method, _adjusts_for_covariates(system))


def _detection_version(method: str, adjusted: bool) -> str:
    with reported_as(UsageError):
        method_version = get_method(method).version
    return f"{method}-{method_version}/{_FORMAT}" + ("" if adjusted else " unadjusted")


def _adjusts_for_covariates(system: str) -> bool:
    return system not in system_names() or load_system(system).covariates.adjust


# Newest runs of each series that are examined for covariates; without any, older runs are not read.
_EXAMINED_RUNS = 3


def load_covariates(
    history: History, rows: Sequence[SeriesRow], run_ids: Mapping[int, NDArray[np.int64]], *, save: bool = True
) -> list[CovariateTable | None]:
    """Covariates of the runs of each series; None where the newest of them recorded none.

    Args:
        run_ids: of the points of each series in order of time, shape (n,), by series id.
        save: keep the numbers of runs whose facts were read.
    """
    newest = {row.id: run_ids[row.id][-_EXAMINED_RUNS:].tolist() for row in rows}
    examined = _run_numbers(history, [run for runs in newest.values() for run in runs], save)
    chosen = {row.id for row in rows if any(examined[run][0] for run in newest[row.id])}
    if not chosen:
        return [None] * len(rows)
    runs = np.unique(np.concatenate([run_ids[number] for number in chosen]))
    names, values = bulk.covariate_matrix(runs, _run_numbers(history, runs.tolist(), save))
    used = [i for i, name in enumerate(names) if not _is_consequence(name)]
    names, values = tuple(names[i] for i in used), values[:, used]
    return [
        _covariate_table(row, names, values[np.searchsorted(runs, run_ids[row.id])]) if row.id in chosen else None
        for row in rows
    ]


def _run_numbers(history: History, run_ids: Sequence[int], save: bool) -> dict[int, bulk.CovariateNumbers]:
    """Covariates of all these runs; those that are not stored are computed, and stored unless all are empty."""
    known = history.run_covariates(run_ids)
    missing = sorted(set(run_ids) - known.keys())
    computed = {
        run: run_covariates(facts.document) for run, facts in history.run_facts(missing, COVARIATE_FACTS).items()
    }
    new = {run: bulk.encode_covariates(one) for run, one in computed.items()}
    if save and any(computed.values()):
        history.save_run_covariates(new)
    return known | new


def _is_consequence(name: str) -> bool:
    """Whether a covariate is a time that the run itself waited: any slow run increases it."""
    known = get_covariate(name)
    return known is not None and known.includes_run and known.unit == "s"


def _covariate_table(row: SeriesRow, names: Sequence[str], values: NDArray[np.float64]) -> CovariateTable:
    """Table of a series; what includes the run's own traffic may only lower the performance."""
    own = [(known := get_covariate(name)) is not None and known.includes_run for name in names]
    return CovariateTable(tuple(names), values, np.where(own, -METRICS[row.metric].sign, 0.0))


def load_tables(
    history: History, rows: Sequence[SeriesRow], points: Mapping[int, SeriesPoints]
) -> dict[int, CovariateTable]:
    """Covariates of these observations, by series id, all with the same names; only of series that have some."""
    if not rows or not _adjusts_for_covariates(rows[0].system):
        return {}
    tables = load_covariates(history, rows, {number: one.run_id for number, one in points.items()})
    return {row.id: table for row, table in zip(rows, tables, strict=True) if table is not None}


def load_detections(history: History, series_ids: Sequence[int]) -> dict[int, Detection]:
    """Detections stored by the last update of findings, by series id; series without one are left out."""
    stored = history.detections(series_ids)
    current = {number: row.document for number, row in stored.items() if f"/{_FORMAT} " in row.version}
    return {number: Detection.from_json(document) for number, document in current.items()}


@dataclass(frozen=True)
class HistoryExtent:
    """Extent of the history, without A/B runs.

    Attributes:
        days: UTC days with observations, in the series with most of them; several runs per day count once.
        series: number of monitored series.
        assessable: number of series with enough observations, as of the last update of findings.
    """

    days: int
    series: int
    assessable: int

    @property
    def is_assessed(self) -> bool:
        """Whether changes can be detected in some series."""
        return self.assessable > 0


def history_extent(history: History, systems: Sequence[str]) -> HistoryExtent:
    """Combined extent of the history of several systems."""
    days = series = assessable = 0
    for system in systems:
        rows, longest = headline_series(history, system), 0
        for row in sorted(rows, key=lambda row: -row.n):
            if row.n <= longest:
                break
            longest = max(longest, len(np.unique(load_observations(history, [row])[row.id].time // DAY_S)))
        # Detection counts observations irrespective of the time between them; many runs within an hour are no history.
        detections = load_detections(history, [row.id for row in rows]) if longest >= MIN_OBSERVATIONS else {}
        days, series = max(days, longest), series + len(rows)
        assessable += sum(one.status == "ok" for one in detections.values())
    return HistoryExtent(days, series, assessable)


def detect_csv(path: Path, method: str = DEFAULT_METHOD) -> dict[str, Detection]:
    """Detection of each series of a CSV file, by series name.

    Raises:
        InputError: the file is not UTF-8 text, or has faults (see `read_series_csv`).
        UsageError: unknown method.
    """
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            series = read_series_csv(lines, str(path))
    except UnicodeDecodeError as error:
        text = f"{path}: not UTF-8 text ({error.reason} at byte {error.start})"
        raise InputError(text, hint="Save it as UTF-8, for example with iconv -t UTF-8.") from error
    with reported_as(UsageError):
        get_method(method)
    with reported_as(InputError):
        detections = detect_many(list(series.values()), method=method)
    return dict(zip(series, detections, strict=True))


CSV_COLUMNS = ("series", "time", "value")
_MAX_FAULTS = 10

TimesAndValues = tuple[list[float], list[float]]
"""Times (epoch seconds) and values."""


def read_series_csv(lines: Iterable[str], name: str) -> dict[str, TimesAndValues]:
    """Series by name, in the order of their first rows.

    Args:
        lines: the text; additional columns and empty lines are ignored.
        name: name of the text in messages.

    Raises:
        InputError: all faults, each with its line (the first ten, and the number of the others).
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
                # A decimal comma splits a number into two fields; the truncated number must not be accepted.
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
    repeated = [column for column in CSV_COLUMNS if names.count(column) > 1]
    if repeated:
        raise InputError(f"{where} {', '.join(repeated)} more than once")
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
        value = float(value_text.replace("_", "?"))  # 1_000 is a number in Python, but not in a CSV file
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        faults.append(f"{where}: value '{value_text}' is not a finite number > 0")
    if len(faults) == known:
        times, values = series.setdefault(label, ([], []))
        times.append(moment)
        values.append(value)
