"""Read many results at once: series as NumPy arrays, results with all samples, whole sessions, whole histories.

Used for comparisons, exports and the pages of the dashboard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Executable, Select, bindparam, func, literal_column, select

from iowatch.store import read
from iowatch.store.facts import RunFacts
from iowatch.store.records import (
    Artefact,
    ResultFilter,
    ResultRow,
    RunRow,
    RunSessions,
    RunWithFact,
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


def query_results(connection: Connection, result_filter: ResultFilter) -> Iterator[ResultRow]:
    """Yield matching results, ordered by series and time."""
    series_by_id = {series.id: series for series in read.find_series(connection, result_filter.series)}
    for chunk in read.in_chunks(list(series_by_id)):
        for row in connection.execute(_select_results(result_filter, chunk)):
            series = series_by_id[row.series_id]
            yield ResultRow(
                session=row.session,
                time=row.time,
                system=series.system,
                partition=series.partition,
                stack=series.stack,
                case=series.case,
                metric=series.metric,
                run=row.run,
                status=row.status,
                pair=row.pair,
                side=row.side,
                samples=decode_samples(row.blob),
                content=row.content,
                number=row.number,
            )


def _select_results(result_filter: ResultFilter, series_ids: Sequence[int]) -> Select[Any]:
    """Return the statement for the results of some series with session and run, ordered by series and time."""
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
        .where(table.series_id.in_(series_ids), *_in_period(result_filter.since, result_filter.until))
        .order_by(table.series_id, table.time, table.run_id)
    )
    return statement if result_filter.session is None else statement.where(SessionTable.uuid == result_filter.session)


def _in_period(since: int | None, until: int | None) -> list[Any]:
    """Return conditions for results with `since` <= time < `until` (epoch s)."""
    limits: list[Any] = []
    if since is not None:
        limits.append(ResultTable.time >= since)
    if until is not None:
        limits.append(ResultTable.time < until)
    return limits


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
    connection: Connection, series_ids: Sequence[int], since: int | None = None, until: int | None = None
) -> dict[int, SeriesPoints]:
    """Return the summaries of each series in time order as arrays of shape (n,), empty for series without results.

    Args:
        since, until: epoch seconds; only results with `since` <= time < `until`.
    """
    table = ResultTable
    points = {series_id: _points(series_id, ()) for series_id in series_ids}
    statement: Any = select(*_POINT_COLUMNS.values()).where(*_in_period(since, until))
    for chunk in read.in_chunks(series_ids, _SERIES_AT_ONCE):
        of_chunk = statement.where(table.series_id.in_(chunk)).order_by(table.series_id, table.time, table.run_id)
        # PostgreSQL can send all numbers of a column as bytes, which spares a Python object for each.
        if connection.dialect.name == "postgresql":
            points |= _concatenated_points(connection, of_chunk)
            continue
        for series_id, rows in groupby(_driver_rows(connection, of_chunk), key=itemgetter(0)):
            points[series_id] = _points(series_id, rows)
    return points


def _concatenated_points(connection: Connection, ordered: Select[Any]) -> dict[int, SeriesPoints]:
    """Return the points of an ordered statement, which the server concatenates in binary form, one row per series.

    A Python object per number takes most of the time of reading. Aggregates read a sorted subquery in its order
    (PostgreSQL manual, section 9.21).
    """
    rows = ordered.subquery()
    names = [name for name in _POINT_COLUMNS if name != "series_id"]
    concatenated: list[Any] = []
    for name in names:
        send = func.int8send if name in _INTEGERS else func.float8send
        concatenated.append(func.string_agg(send(rows.c[_POINT_COLUMNS[name].key]), _NO_BYTES))
    points: dict[int, SeriesPoints] = {}
    for series_id, *buffers in connection.execute(select(rows.c.series_id, *concatenated).group_by(rows.c.series_id)):
        arrays: dict[str, Any] = {}
        for name, buffer in zip(names, buffers, strict=True):
            # The server sends numbers in the byte order of the network.
            sent_type = np.dtype(">i8" if name in _INTEGERS else ">f8")
            arrays[name] = np.frombuffer(buffer, sent_type).astype(sent_type.newbyteorder("="))
        points[series_id] = SeriesPoints(series_id=series_id, **arrays)
    return points


def _points(series_id: int, rows: Iterable[Sequence[Any]]) -> SeriesPoints:
    """Return the points of a series from its rows, which have the columns of `_POINT_COLUMNS`."""
    columns = _arrays(_POINT_COLUMNS, rows)
    return SeriesPoints(**{**columns, "series_id": series_id})


def _arrays(names: Iterable[str], rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """Return the columns of rows as arrays by name; empty arrays if there are no rows."""
    column_names = list(names)
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(column_names)
    arrays: dict[str, Any] = {}
    for name, column in zip(column_names, columns, strict=True):
        arrays[name] = np.array(column, dtype=np.int64 if name in _INTEGERS else np.float64)
    return arrays


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
    for series_id in series_ids:
        rows = _driver_rows(connection, _SAMPLES_OF_SERIES, {"series": series_id, **period})
        if rows:
            columns = _arrays(_SAMPLE_COLUMNS, (row[:-1] for row in rows))
            samples = decode_many_samples([row[-1] for row in rows])
            yield SeriesSamples(series_id=series_id, samples=samples, **columns)
    if connection.dialect.name == "sqlite":
        # Else every connection of the pool keeps a map of its own.
        _map_history(connection, 0)


def _map_history(connection: Connection, size_bytes: int) -> None:
    connection.exec_driver_sql(f"PRAGMA mmap_size = {size_bytes}")


_SAMPLE_COLUMNS = {name: column for name, column in _POINT_COLUMNS.items() if name not in ("series_id", "mean")}
_SAMPLES_OF_SERIES = (
    select(*_SAMPLE_COLUMNS.values(), ResultTable.samples)
    .where(
        ResultTable.series_id == bindparam("series"),
        ResultTable.time >= bindparam("since"),
        ResultTable.time <= bindparam("until"),
    )
    .order_by(ResultTable.time, ResultTable.run_id)
)


def samples_of_series(connection: Connection, series_id: int) -> list[tuple[int, int, tuple[float, ...]]]:
    """Return all samples of a series in time order: (epoch seconds, run id, samples in the order measured)."""
    results: list[tuple[int, int, tuple[float, ...]]] = []
    for series in read_series_samples(connection, [series_id]):
        samples_by_result = np.split(series.samples, np.cumsum(series.count)[:-1])
        for time, run_id, samples in zip(series.time, series.run_id, samples_by_result, strict=True):
            results.append((int(time), int(run_id), tuple(samples.tolist())))
    return results


def _of_system(system: str | None) -> list[ColumnElement[bool]]:
    """Return the condition for sessions of one system; none for all systems."""
    if system is None:
        return []
    system_id = select(SystemTable.id).where(SystemTable.name == system).scalar_subquery()
    return [SessionTable.system_id == system_id]


def sessions_by_system(connection: Connection, system: str | None = None) -> dict[str, list[SessionRow]]:
    """Return the sessions of one system or of all by system, newest first."""
    sessions: dict[str, list[SessionRow]] = {}
    for session in read.list_sessions(connection, system):
        sessions.setdefault(session.system, []).append(session)
    return sessions


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
    results: dict[int, list[tuple[int, tuple[float, ...]]]] = {}
    for row in connection.execute(statement):
        results.setdefault(row.run_id, []).append((row.series_id, decode_samples(row.samples)))
    return results


def run_sessions(connection: Connection, system: str | None = None) -> RunSessions:
    """Return the session of every run of one system or of all."""
    table = RunTable
    extents = (
        select(table.session_id, func.min(table.id), func.max(table.id), func.count())
        .join(SessionTable, SessionTable.id == table.session_id)
        .where(*_of_system(system))
        .group_by(table.session_id)
    )
    runs_by_session: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    sessions: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    for session_id, first, last, count in connection.execute(extents).all():
        # Ids of the runs of one session are nearly always consecutive; then they need not be read.
        if last - first + 1 == count:
            run_ids = np.arange(first, last + 1, dtype=np.int64)
        else:
            stored = connection.execute(select(table.id).where(table.session_id == session_id)).scalars()
            run_ids = np.array(sorted(stored), dtype=np.int64)
        runs_by_session.append(run_ids)
        sessions.append(np.full(len(run_ids), session_id, dtype=np.int64))
    all_runs, session_of_run = np.concatenate(runs_by_session), np.concatenate(sessions)
    order = np.argsort(all_runs, kind="stable")
    return RunSessions(all_runs[order], session_of_run[order])


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
        set_of_session = {row.id: row.expected_set_id for row in connection.execute(sets) if row.expected_set_id}
        # Sessions share sets: each is read once.
        set_ids = set(set_of_session.values())
        statement = select(ExpectedSetTable.id, ExpectedSetTable.items).where(ExpectedSetTable.id.in_(set_ids))
        items_of_set = {row.id: row.items for row in connection.execute(statement)}
        for session_id, set_id in sorted(set_of_session.items()):
            for name, partition, stack, operation, metric in items_of_set[set_id]:
                yield session_id, name, partition, stack, operation, metric


def run_nodes(connection: Connection, run_ids: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Return the node names of runs; runs without node names are omitted."""
    nodes_by_run: dict[int, tuple[str, ...]] = {}
    # Many runs share a list, which is checked once: a comparison of stacks reads the nodes of 10,000 runs.
    names_of_list: dict[str, tuple[str, ...]] = {}
    for chunk in read.in_chunks(run_ids):
        statement = select(RunTable.id, RunTable.facts["nodes"]).where(RunTable.id.in_(chunk))
        for run_id, recorded in connection.execute(statement):
            key = repr(recorded)
            if key not in names_of_list:
                names_of_list[key] = RunFacts.from_document({} if recorded is None else {"nodes": recorded}).nodes
            if names_of_list[key]:
                nodes_by_run[run_id] = names_of_list[key]
    return nodes_by_run


def runs_with_fact(connection: Connection, system: str, fact: str, since: int) -> list[RunWithFact]:
    """Return the runs of a system that recorded a fact, in order of the start of their sessions.

    Args:
        fact: a field of `RunFacts`.
        since: epoch seconds; only runs that began then or later.
    """
    value, file_system = RunTable.facts[fact], RunTable.facts["file_system"].as_string()
    columns = (RunTable.id, RunTable.partition, RunTable.status, SessionTable.uuid, SessionTable.started_at)
    statement = (
        select(*columns, value.label("value"), file_system.label("file_system"))
        .join(SessionTable, SessionTable.id == RunTable.session_id)
        .where(*_of_system(system), RunTable.started_at >= since, value.as_string().is_not(None))
        .order_by(SessionTable.started_at, RunTable.id)
    )
    runs: list[RunWithFact] = []
    for row in connection.execute(statement):
        document = {fact: row.value}
        if row.file_system is not None:
            document["file_system"] = row.file_system
        facts = RunFacts.from_document(document)
        runs.append(RunWithFact(row.id, row.uuid, row.started_at, row.partition, row.status, facts))
    return runs


def run_covariates(connection: Connection, run_ids: Sequence[int]) -> dict[int, CovariateNumbers]:
    """Return the stored covariates of runs; runs for which none were computed are omitted."""
    table = RunCovariatesTable
    covariates: dict[int, CovariateNumbers] = {}
    statement = select(table.run_id, table.names, table.numbers)
    # Runs of a period have near ids: reading a range, and some runs of other systems, is faster than a list of ids.
    for chunk in read.in_chunks(sorted(run_ids), _RUNS_PER_RANGE):
        requested = set(chunk)
        of_range = statement.where(table.run_id.between(chunk[0], chunk[-1]))
        for run_id, names, numbers in _driver_rows(connection, of_range):
            if run_id in requested:
                covariates[run_id] = (names, numbers)
    return covariates


def encode_covariates(values: Mapping[str, float]) -> CovariateNumbers:
    """Return the covariates of a run, by name, as they are stored."""
    return "\n".join(values), encode_samples(list(values.values()))


@dataclass(frozen=True, eq=False)
class CovariateMatrix:
    """Covariates of runs.

    Attributes:
        names: sorted.
        values: shape (runs, names), NaN where absent.
    """

    names: tuple[str, ...]
    values: NDArray[np.float64]


def covariate_matrix(run_ids: NDArray[np.int64], covariates: Mapping[int, CovariateNumbers]) -> CovariateMatrix:
    """Return all covariates of runs.

    Args:
        run_ids: ascending, shape (runs,).
        covariates: of runs by their ids.
    """
    # Most runs have the same covariates: those of a group are decoded together.
    runs_by_names: dict[str, list[int]] = {}
    for run_id in run_ids.tolist():
        names, _ = covariates.get(run_id, ("", b""))
        if names:
            runs_by_names.setdefault(names, []).append(run_id)
    names_of_group = {names: names.split("\n") for names in runs_by_names}
    columns = sorted(set(chain.from_iterable(names_of_group.values())))
    values = np.full((len(run_ids), len(columns)), np.nan)
    for joined_names, runs_of_group in runs_by_names.items():
        names_of_columns = names_of_group[joined_names]
        rows = np.searchsorted(run_ids, runs_of_group)
        numbers = decode_many_samples([covariates[run_id][1] for run_id in runs_of_group])
        block = numbers.reshape(len(rows), len(names_of_columns))
        values[np.ix_(rows, np.searchsorted(columns, names_of_columns))] = block
    return CovariateMatrix(tuple(columns), values)


def run_files(connection: Connection, run_ids: Sequence[int], kind: str) -> dict[int, list[str]]:
    """Return the SHA-256 of the artefacts of one kind by run id, in the order of their names."""
    digests_by_run: dict[int, list[str]] = {}
    for chunk in read.in_chunks(run_ids):
        of_chunk = read.artefacts_by_run(connection, ArtefactTable.run_id.in_(chunk), ArtefactTable.kind == kind)
        for run_id, artefacts in of_chunk.items():
            digests_by_run[run_id] = [artefact.sha256 for artefact in artefacts]
    return digests_by_run


def stack_uses(connection: Connection, system: str | None = None) -> list[StackUse]:
    """Return every version of every stack of one system or of all, with its period of use, in time order."""
    others = {
        "system": SystemTable.name,
        "partition": RunTable.partition,
        "first": func.min(RunTable.started_at),
        "last": func.max(RunTable.started_at),
        "runs": func.count(),
    }
    statement = (
        select(*read.record_columns(StackUse, StackTable, **others))
        .join(SessionTable, SessionTable.id == RunTable.session_id)
        .join(SystemTable, SystemTable.id == SessionTable.system_id)
        .join(StackTable, StackTable.id == RunTable.stack_id)
        .where(*_of_system(system))
        .group_by(SystemTable.name, RunTable.partition, StackTable.id)
    )
    uses = [StackUse(**row) for row in connection.execute(statement).mappings()]
    return sorted(uses, key=lambda use: use.first)


def stack_session_starts(connection: Connection, system: str) -> dict[str, list[int]]:
    """Return the starts (epoch s) of the sessions that ran each stack of a system, newest first, by its name."""
    start = func.min(RunTable.started_at)
    statement = (
        select(StackTable.name, start)
        .select_from(RunTable)
        .join(SessionTable, SessionTable.id == RunTable.session_id)
        .join(StackTable, StackTable.id == RunTable.stack_id)
        .where(*_of_system(system))
        .group_by(StackTable.name, RunTable.session_id)
    )
    starts: dict[str, list[int]] = {}
    for name, first_run in connection.execute(statement):
        starts.setdefault(name, []).append(first_run)
    for times in starts.values():
        times.sort(reverse=True)
    return starts


def stack_documents(connection: Connection) -> dict[str, tuple[str, dict[str, object]]]:
    """Return name and stack.json of every stack by digest."""
    statement = select(StackTable.digest, StackTable.name, StackTable.document)
    return {row.digest: (row.name, row.document) for row in connection.execute(statement)}


def stack_contents(connection: Connection, stack_ids: Sequence[int]) -> dict[int, dict[str, object]]:
    """Return stack.json of stacks by their ids in this history (`ResultRow.content`)."""
    statement = select(StackTable.id, StackTable.document).where(StackTable.id.in_(set(stack_ids)))
    return {row.id: row.document for row in connection.execute(statement)}
