"""Read many results at once: series as NumPy arrays, results with all samples, whole sessions, whole histories.

Used for comparisons, exports and the pages of the dashboard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Executable, Select, bindparam, func, literal_column, select

from iowatch.store import read
from iowatch.store.records import (
    Artefact,
    ResultFilter,
    ResultRow,
    RunRow,
    RunSessions,
    SeriesPoints,
    SeriesSamples,
    SessionRow,
    StackUse,
)
from iowatch.store.schema import (
    ArtefactTable,
    ExpectedSetTable,
    ResultTable,
    RunCovariatesTable,
    RunTable,
    SessionTable,
    StackTable,
    SystemTable,
    decode_many_samples,
    decode_samples,
    encode_samples,
)

CovariateNumbers = tuple[str, bytes]
"""Names of covariates, separated by line breaks, and their values as little-endian float64."""

# The points of these series are in memory as rows: 50 MB for ten years of sessions.
_SERIES_AT_ONCE = 50
_RUNS_PER_RANGE = 5000
_MAPPED_BYTES = 2**29
_ALL_TIMES = 2**62
_SERIES_FIELDS = ("system", "partition", "stack", "case", "metric")


def query_results(connection: Connection, chosen: ResultFilter) -> Iterator[ResultRow]:
    """Yield matching results, ordered by series and time."""
    series = {row.id: row for row in read.find_series(connection, chosen.series)}
    for chunk in read.in_chunks(list(series)):
        for row in connection.execute(_select_results(chosen, chunk)).mappings():
            fields = dict(row)
            one, samples = series[fields.pop("series_id")], decode_samples(fields.pop("blob"))
            of_series = {name: getattr(one, name) for name in _SERIES_FIELDS}
            yield ResultRow(**fields, **of_series, samples=samples)


def _select_results(chosen: ResultFilter, series_ids: Sequence[int]) -> Select[Any]:
    table = ResultTable
    statement = (
        select(
            table.series_id,
            SessionTable.uuid.label("session"),
            table.time,
            RunTable.name.label("run"),
            RunTable.status,
            RunTable.facts["pair"].as_integer().label("pair"),
            RunTable.facts["side"].as_string().label("side"),
            table.samples.label("blob"),
            RunTable.stack_id.label("content"),
            table.run_id.label("number"),
        )
        .join(RunTable, RunTable.id == table.run_id)
        .join(SessionTable, SessionTable.id == RunTable.session_id)
        .where(table.series_id.in_(series_ids), *_in_period(chosen.since, chosen.until))
        .order_by(table.series_id, table.time, table.run_id)
    )
    return statement if chosen.session is None else statement.where(SessionTable.uuid == chosen.session)


def _in_period(since: int | None, until: int | None) -> list[Any]:
    """Return conditions for results with `since` <= time < `until` (epoch s)."""
    limits = [] if since is None else [ResultTable.time >= since]
    return limits if until is None else [*limits, ResultTable.time < until]


_POINT_COLUMNS = {
    "series_id": ResultTable.series_id,
    "time": ResultTable.time,
    "max": ResultTable.max,
    "median": ResultTable.median,
    "min": ResultTable.min,
    "mean": ResultTable.mean,
    "count": ResultTable.n,
    "run_id": ResultTable.run_id,
}
_INTEGERS = {"time", "count", "run_id"}
_NO_BYTES: ColumnElement[Any] = literal_column("''::bytea")


def series_points(
    connection: Connection, series_ids: Sequence[int], since: int | None, until: int | None
) -> dict[int, SeriesPoints]:
    """Return the summaries of each series as arrays, empty for series without results; `since` <= time < `until`."""
    table = ResultTable
    found: dict[int, SeriesPoints] = {}
    statement: Any = select(*_POINT_COLUMNS.values()).where(*_in_period(since, until))
    for chunk in read.in_chunks(series_ids, _SERIES_AT_ONCE):
        of_chunk = statement.where(table.series_id.in_(chunk)).order_by(table.series_id, table.time, table.run_id)
        if connection.dialect.name == "postgresql":
            found |= _concatenated_points(connection, of_chunk)
            continue
        for number, rows in groupby(_driver_rows(connection, of_chunk), key=itemgetter(0)):
            found[number] = _points(number, rows)
    return {number: found.get(number) or _points(number, ()) for number in series_ids}


def _concatenated_points(connection: Connection, ordered: Select[Any]) -> dict[int, SeriesPoints]:
    """Return the points of an ordered statement, which the server concatenates in binary form, one row per series.

    A Python object per number takes most of the time of reading. Aggregates read a sorted subquery in its order
    (PostgreSQL manual, section 9.21).
    """
    rows = ordered.subquery()
    names = [name for name in _POINT_COLUMNS if name != "series_id"]
    sent = [
        (func.int8send if name in _INTEGERS else func.float8send)(rows.c[_POINT_COLUMNS[name].key]) for name in names
    ]
    kinds = [np.dtype(">i8" if name in _INTEGERS else ">f8") for name in names]
    joined = select(rows.c.series_id, *(func.string_agg(one, _NO_BYTES) for one in sent)).group_by(rows.c.series_id)
    found = {}
    for number, *values in connection.execute(joined):
        arrays = [
            np.frombuffer(one, kind).astype(kind.newbyteorder("=")) for one, kind in zip(values, kinds, strict=True)
        ]
        found[number] = SeriesPoints(**{"series_id": number, **dict(zip(names, arrays, strict=True))})
    return found


def _points(series_id: int, rows: Iterable[Sequence[Any]]) -> SeriesPoints:
    columns = _arrays(_POINT_COLUMNS, rows)
    return SeriesPoints(**{**columns, "series_id": series_id})


def _arrays(names: Iterable[str], rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """Return the columns of rows as arrays by name; empty arrays if there are no rows."""
    wanted = list(names)
    columns = list(zip(*rows, strict=True)) or [()] * len(wanted)
    kinds = (np.int64 if name in _INTEGERS else np.float64 for name in wanted)
    return {name: np.array(c, dtype=kind) for name, c, kind in zip(wanted, columns, kinds, strict=True)}


def _driver_rows(connection: Connection, statement: Executable, values: Mapping[str, Any] | None = None) -> list[Any]:
    """Return rows as the driver's own tuples: SQLAlchemy's rows take four times as long for a million rows."""
    result = connection.execute(statement, values)
    rows = result.cursor.fetchall() if result.cursor is not None else []
    result.close()
    return list(rows)


def read_series_samples(
    connection: Connection, series_ids: Sequence[int], since: int | None = None, until: int | None = None
) -> Iterator[SeriesSamples]:
    """Yield series in the order of the ids; series without results are omitted.

    Args:
        since, until: epoch seconds; only results from `since` to `until`, both inclusive.
    """
    if connection.dialect.name == "sqlite":
        # Rows of one series are scattered in the file: reading through a memory map takes a third of the time.
        _map_history(connection, _MAPPED_BYTES)
    period = {"since": -_ALL_TIMES if since is None else since, "until": _ALL_TIMES if until is None else until}
    for number in series_ids:
        rows = _driver_rows(connection, _SAMPLES_OF_SERIES, {"number": number, **period})
        if rows:
            columns = _arrays(_SAMPLE_COLUMNS, (row[:-1] for row in rows))
            yield SeriesSamples(series_id=number, samples=decode_many_samples([row[-1] for row in rows]), **columns)
    if connection.dialect.name == "sqlite":
        # Else every connection of the pool keeps a map of its own.
        _map_history(connection, 0)


def _map_history(connection: Connection, size_bytes: int) -> None:
    connection.exec_driver_sql(f"PRAGMA mmap_size = {size_bytes}")


_SAMPLE_COLUMNS = {name: c for name, c in _POINT_COLUMNS.items() if name not in ("series_id", "mean")}
_SAMPLES_OF_SERIES = (
    select(*_SAMPLE_COLUMNS.values(), ResultTable.samples)
    .where(
        ResultTable.series_id == bindparam("number"),
        ResultTable.time >= bindparam("since"),
        ResultTable.time <= bindparam("until"),
    )
    .order_by(ResultTable.time, ResultTable.run_id)
)


def samples_of_series(connection: Connection, series_id: int) -> list[tuple[int, int, tuple[float, ...]]]:
    """Return (time, run id, samples) of a series in time order."""
    found = []
    for one in read_series_samples(connection, [series_id]):
        parts = np.split(one.samples, np.cumsum(one.count)[:-1])
        runs = zip(one.time.tolist(), one.run_id.tolist(), parts, strict=True)
        found = [(time, run, tuple(part.tolist())) for time, run, part in runs]
    return found


def _of_system(system: str | None) -> list[ColumnElement[bool]]:
    """Return the condition for sessions of one system; none for all systems."""
    chosen = select(SystemTable.id).where(SystemTable.name == system).scalar_subquery()
    return [] if system is None else [SessionTable.system_id == chosen]


def sessions_by_system(connection: Connection, system: str | None = None) -> dict[str, list[SessionRow]]:
    """Return the sessions of one system or of all by system, newest first."""
    found: dict[str, list[SessionRow]] = {}
    for row in read.list_sessions(connection, system):
        found.setdefault(row.system, []).append(row)
    return found


def session_runs(connection: Connection, session_id: int) -> list[RunRow]:
    """Return the runs of a session by start, without facts and stack.json."""
    return read.find_runs(connection, RunTable.session_id == session_id, documents=False)


def session_artefacts(connection: Connection, session_id: int) -> dict[int, list[Artefact]]:
    """Return the artefacts of a session by run id."""
    return read.artefacts_by_run(connection, RunTable.session_id == session_id)


def artefact_counts(connection: Connection, system: str | None = None) -> dict[int, int]:
    """Return the number of artefacts by session id, of the sessions of one system or of all that have some."""
    statement = (
        select(RunTable.session_id, func.count().label("files"))
        .join(ArtefactTable, ArtefactTable.run_id == RunTable.id)
        .join(SessionTable, SessionTable.id == RunTable.session_id)
        .where(*_of_system(system))
        .group_by(RunTable.session_id)
    )
    return {row.session_id: row.files for row in connection.execute(statement)}


def session_results(connection: Connection, session_id: int) -> dict[int, list[tuple[int, tuple[float, ...]]]]:
    """Return (series id, samples) of every result of a session by run id, in the order of their series."""
    statement = (
        select(ResultTable.run_id, ResultTable.series_id, ResultTable.samples)
        .join(RunTable, RunTable.id == ResultTable.run_id)
        .where(RunTable.session_id == session_id)
        .order_by(ResultTable.run_id, ResultTable.series_id)
    )
    found: dict[int, list[tuple[int, tuple[float, ...]]]] = {}
    for row in connection.execute(statement):
        found.setdefault(row.run_id, []).append((row.series_id, decode_samples(row.samples)))
    return found


def run_sessions(connection: Connection, system: str | None = None) -> RunSessions:
    """Return the session of every run of one system or of all."""
    table = RunTable
    extents = (
        select(table.session_id, func.min(table.id), func.max(table.id), func.count())
        .join(SessionTable, SessionTable.id == table.session_id)
        .where(*_of_system(system))
        .group_by(table.session_id)
    )
    runs, sessions = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for session, first, last, count in connection.execute(extents).all():
        # Ids of the runs of one session are nearly always consecutive; then they need not be read.
        if last - first + 1 == count:
            found = np.arange(first, last + 1, dtype=np.int64)
        else:
            listed = connection.execute(select(table.id).where(table.session_id == session)).scalars()
            found = np.array(sorted(listed), dtype=np.int64)
        runs.append(found)
        sessions.append(np.full(len(found), session, dtype=np.int64))
    run, of = np.concatenate(runs), np.concatenate(sessions)
    order = np.argsort(run, kind="stable")
    return RunSessions(run[order], of[order])


def received_by_session(connection: Connection, session_ids: Sequence[int]) -> Iterator[tuple[int, str, int]]:
    """Yield (session id, run name, series id) of every result of these sessions."""
    statement = select(RunTable.session_id, RunTable.name, ResultTable.series_id).join(
        ResultTable, ResultTable.run_id == RunTable.id
    )
    for chunk in read.in_chunks(session_ids):
        yield from _driver_rows(connection, statement.where(RunTable.session_id.in_(chunk)))


def run_statuses(connection: Connection, session_ids: Sequence[int]) -> Iterator[tuple[int, str, str, str]]:
    """Yield (session id, name, status, stack) of every run of these sessions."""
    statement = select(RunTable.session_id, RunTable.name, RunTable.status, StackTable.name.label("stack")).join(
        StackTable, StackTable.id == RunTable.stack_id
    )
    for chunk in read.in_chunks(session_ids):
        yield from _driver_rows(connection, statement.where(RunTable.session_id.in_(chunk)))


def session_expectations(
    connection: Connection, session_ids: Sequence[int]
) -> Iterator[tuple[int, str, str, str, str, str]]:
    """Yield (session id, run name, partition, stack, operation, metric) of all expected results."""
    for chunk in read.in_chunks(session_ids):
        sets = select(SessionTable.id, SessionTable.expected_set_id).where(SessionTable.id.in_(chunk))
        of_session = {row.id: row.expected_set_id for row in connection.execute(sets) if row.expected_set_id}
        chosen = ExpectedSetTable.id.in_(set(of_session.values()))
        items = connection.execute(select(ExpectedSetTable.id, ExpectedSetTable.items).where(chosen))
        by_set = {row.id: row.items for row in items}
        for session, number in sorted(of_session.items()):
            for name, partition, stack, operation, metric in by_set[number]:
                yield session, name, partition, stack, operation, metric


def run_nodes(connection: Connection, run_ids: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Return the node names of runs; runs without node names are omitted."""
    found: dict[int, tuple[str, ...]] = {}
    for chunk in read.in_chunks(run_ids):
        statement = select(RunTable.id, RunTable.facts["nodes"].label("nodes")).where(RunTable.id.in_(chunk))
        found |= {row.id: tuple(map(str, row.nodes)) for row in connection.execute(statement) if row.nodes}
    return found


def run_covariates(connection: Connection, run_ids: Sequence[int]) -> dict[int, CovariateNumbers]:
    """Return the stored covariates of runs; runs for which none were computed are omitted."""
    table = RunCovariatesTable
    found: dict[int, CovariateNumbers] = {}
    statement = select(table.run_id, table.names, table.numbers)
    # Runs of a period have near ids: reading a range, and some runs of other systems, is faster than a list of ids.
    for chunk in read.in_chunks(sorted(run_ids), _RUNS_PER_RANGE):
        of_range, wanted = statement.where(table.run_id.between(chunk[0], chunk[-1])), set(chunk)
        rows = _driver_rows(connection, of_range)
        found |= {number: (names, numbers) for number, names, numbers in rows if number in wanted}
    return found


def encode_covariates(values: Mapping[str, float]) -> CovariateNumbers:
    """Return the covariates of a run, by name, as they are stored."""
    return "\n".join(values), encode_samples(list(values.values()))


def covariate_matrix(
    run_ids: NDArray[np.int64], found: Mapping[int, CovariateNumbers]
) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Return the sorted names of all covariates, and their values, shape (runs, names), NaN where absent.

    Args:
        run_ids: ascending, shape (runs,).
        found: covariates of runs by their ids.
    """
    groups: dict[str, list[int]] = {}
    for number in run_ids.tolist():
        groups.setdefault(found[number][0] if number in found else "", []).append(number)
    recorded = {names: names.split("\n") for names in groups if names}
    columns = sorted({name for names in recorded.values() for name in names})
    values = np.full((len(run_ids), len(columns)), np.nan)
    for joined, names in recorded.items():
        rows = np.searchsorted(run_ids, groups[joined])
        numbers = decode_many_samples([found[number][1] for number in groups[joined]])
        values[np.ix_(rows, np.searchsorted(columns, names))] = numbers.reshape(len(rows), len(names))
    return tuple(columns), values


def run_files(connection: Connection, run_ids: Sequence[int], kind: str) -> dict[int, list[str]]:
    """Return the SHA-256 of the artefacts of one kind by run id, in the order of their names."""
    found: dict[int, list[str]] = {}
    for chunk in read.in_chunks(run_ids):
        kept = read.artefacts_by_run(connection, ArtefactTable.run_id.in_(chunk), ArtefactTable.kind == kind)
        found |= {run: [one.sha256 for one in artefacts] for run, artefacts in kept.items()}
    return found


def stack_uses(connection: Connection, system: str | None = None) -> list[StackUse]:
    """Return every version of every stack of one system or of all, with its period of use, in time order."""
    first, last = func.min(RunTable.started_at), func.max(RunTable.started_at)
    others = {"system": SystemTable.name, "partition": RunTable.partition, "first": first, "last": last}
    statement = (
        select(*read.record_columns(StackUse, StackTable, **others, runs=func.count()))
        .join(SessionTable, SessionTable.id == RunTable.session_id)
        .join(SystemTable, SystemTable.id == SessionTable.system_id)
        .join(StackTable, StackTable.id == RunTable.stack_id)
        .where(*_of_system(system))
        .group_by(SystemTable.name, RunTable.partition, StackTable.id)
    )
    found = [StackUse(**row) for row in connection.execute(statement).mappings()]
    return sorted(found, key=lambda use: use.first)


def stack_documents(connection: Connection) -> dict[str, tuple[str, dict[str, object]]]:
    """Return name and stack.json of every stack by digest."""
    statement = select(StackTable.digest, StackTable.name, StackTable.document)
    return {row.digest: (row.name, row.document) for row in connection.execute(statement)}


def stack_contents(connection: Connection, stack_ids: Sequence[int]) -> dict[int, dict[str, object]]:
    """Return stack.json of stacks by their ids in this history (`ResultRow.content`)."""
    statement = select(StackTable.id, StackTable.document).where(StackTable.id.in_(set(stack_ids)))
    return {row.id: row.document for row in connection.execute(statement)}
