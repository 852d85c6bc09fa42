"""Reading: records and arrays out of the tables. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from sqlalchemy import Connection, Executable, Select, func, select

from iowatch.errors import UsageError
from iowatch.model import Case
from iowatch.store.kinds import whole
from iowatch.store.packing import unpack
from iowatch.store.records import (
    Artefact,
    ExpectedResult,
    RunRow,
    SeriesFilter,
    SeriesPoints,
    SeriesRow,
    SessionRow,
)
from iowatch.store.schema import (
    ArtefactTable,
    CaseTable,
    ExpectedSetTable,
    ExpectedTable,
    ResultTable,
    RunKindTable,
    RunTable,
    SeriesTable,
    SessionTable,
    StackTable,
    SystemTable,
)

# SQLite allows 32,766 bound variables a statement; far fewer keeps statements readable in logs.
_CHUNK = 500
# All their points are in memory as rows: 50 MB for ten years of nights.
_SERIES_AT_ONCE = 50
_KIND = RunKindTable


def systems(connection: Connection) -> list[str]:
    """Names of all systems."""
    return list(connection.execute(select(SystemTable.name).order_by(SystemTable.name)).scalars())


def _sessions() -> Select[Any]:
    runs = select(func.count(RunTable.id)).where(RunTable.session_id == SessionTable.id).scalar_subquery()
    return select(
        SessionTable.id,
        SessionTable.uuid,
        SystemTable.name,
        SessionTable.suite,
        SessionTable.origin,
        SessionTable.status,
        SessionTable.started_at,
        SessionTable.ended_at,
        SessionTable.attributes,
        runs,
    ).join(SystemTable, SessionTable.system_id == SystemTable.id)


def sessions(connection: Connection, system: str | None, limit: int | None) -> list[SessionRow]:
    """Sessions, newest first."""
    statement = _sessions().order_by(SessionTable.started_at.desc(), SessionTable.id.desc())
    if system is not None:
        statement = statement.where(SystemTable.name == system)
    if limit is not None:
        statement = statement.limit(limit)
    return [SessionRow(*row) for row in connection.execute(statement)]


def session(connection: Connection, uuid: str) -> SessionRow:
    """The one session whose UUID is or begins with `uuid`.

    Raises:
        UsageError: none or several.
    """
    escaped = uuid.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    found = list(connection.execute(_sessions().where(SessionTable.uuid.like(f"{escaped}%", escape="\\"))))
    exact = [row for row in found if row[1] == uuid]
    chosen = exact or found
    if len(chosen) != 1:
        how = "no session" if not chosen else f"{len(chosen)} sessions"
        raise UsageError(f"{how} with UUID '{uuid}'", hint="`iowatch history list` shows them.")
    return SessionRow(*chosen[0])


def expected(connection: Connection, uuid: str) -> list[ExpectedResult]:
    """Expected set of a session."""
    statement = (
        select(ExpectedSetTable.items)
        .join(ExpectedTable, ExpectedTable.set_id == ExpectedSetTable.id)
        .join(SessionTable, SessionTable.id == ExpectedTable.session_id)
        .where(SessionTable.uuid == uuid)
    )
    return [ExpectedResult(*item) for item in connection.execute(statement).scalar() or ()]


def received(connection: Connection, uuid: str) -> list[ExpectedResult]:
    """Results of a session in the terms of its expected set."""
    statement = (
        select(_KIND.name, _KIND.partition, SeriesTable.stack, CaseTable.parameters, SeriesTable.metric)
        .select_from(RunTable)
        .join(_KIND, _KIND.id == RunTable.kind_id)
        .join(ResultTable, ResultTable.run_id == RunTable.id)
        .join(SeriesTable, SeriesTable.id == ResultTable.series_id)
        .join(CaseTable, CaseTable.id == SeriesTable.case_id)
        .join(SessionTable, SessionTable.id == RunTable.session_id)
        .where(SessionTable.uuid == uuid)
        .order_by(ResultTable.run_id, ResultTable.series_id)
    )
    return [
        ExpectedResult(name, partition, stack, str(parameters.get("operation", "")), metric)
        for name, partition, stack, parameters, metric in connection.execute(statement)
    ]


def _runs() -> Select[Any]:
    return (
        select(
            RunTable.id,
            SessionTable.uuid,
            SystemTable.name,
            _KIND.name,
            _KIND.partition,
            StackTable.name,
            StackTable.document,
            _KIND.tool,
            _KIND.version,
            RunTable.status,
            RunTable.reason,
            RunTable.started_at,
            RunTable.wall_s,
            _KIND.facts,
            _KIND.texts,
            RunTable.facts,
        )
        .join(_KIND, _KIND.id == RunTable.kind_id)
        .join(SessionTable, SessionTable.id == RunTable.session_id)
        .join(SystemTable, SystemTable.id == SessionTable.system_id)
        .join(StackTable, StackTable.id == RunTable.stack_id)
    )


def _run_row(row: Sequence[Any]) -> RunRow:
    *columns, kind, texts, own = row
    return RunRow(*[*columns, whole(kind, texts, own, columns[1])])


def runs(connection: Connection, uuid: str) -> list[RunRow]:
    """Runs of a session by start."""
    statement = _runs().where(SessionTable.uuid == uuid).order_by(RunTable.started_at, RunTable.id)
    return [_run_row(row) for row in connection.execute(statement)]


def session_of_runs(connection: Connection, run_ids: Sequence[int] | None = None) -> dict[int, str]:
    """Run id to session UUID, of these runs or of all; runs that are not there are left out."""
    statement = select(RunTable.id, SessionTable.uuid).join(
        SessionTable, SessionTable.id == RunTable.session_id
    )
    if run_ids is None:
        parts = [statement]
    else:
        chunks = (run_ids[start : start + _CHUNK] for start in range(0, len(run_ids), _CHUNK))
        parts = [statement.where(RunTable.id.in_(chunk)) for chunk in chunks]
    return {int(run_id): str(uuid) for part in parts for run_id, uuid in connection.execute(part)}


def run(connection: Connection, run_id: int) -> RunRow:
    """One run.

    Raises:
        UsageError: there is none.
    """
    found = connection.execute(_runs().where(RunTable.id == run_id)).first()
    if found is None:
        raise UsageError(f"no run {run_id} in the history", hint="`iowatch history show SESSION` lists runs.")
    return _run_row(found)


def artefacts(connection: Connection, run_id: int) -> list[Artefact]:
    """Files of a run."""
    table = ArtefactTable
    statement = select(table.kind, table.name, table.sha256, table.size_bytes).where(table.run_id == run_id)
    return [Artefact(*row) for row in connection.execute(statement.order_by(table.kind, table.name))]


def _series() -> Select[Any]:
    return (
        select(
            SeriesTable.id,
            SystemTable.name,
            SeriesTable.partition,
            SeriesTable.stack,
            CaseTable.benchmark,
            CaseTable.parameters,
            SeriesTable.metric,
            func.count(ResultTable.time),
            func.min(ResultTable.time),
            func.max(ResultTable.time),
        )
        .join(SystemTable, SystemTable.id == SeriesTable.system_id)
        .join(CaseTable, CaseTable.id == SeriesTable.case_id)
        .outerjoin(ResultTable, ResultTable.series_id == SeriesTable.id)
        .group_by(SeriesTable.id, SystemTable.name, CaseTable.id)
    )


def _series_row(row: Any) -> SeriesRow:
    number, system, partition, stack, benchmark, parameters, *rest = row
    return SeriesRow(number, system, partition, stack, Case(benchmark, parameters), *rest)


_FILTER_COLUMNS = {
    "system": SystemTable.name,
    "partition": SeriesTable.partition,
    "stack": SeriesTable.stack,
    "benchmark": CaseTable.benchmark,
    "metric": SeriesTable.metric,
    "case_key": CaseTable.key,
}


def series(connection: Connection, chosen: SeriesFilter) -> list[SeriesRow]:
    """Series that match every field set in `chosen`."""
    statement = _series()
    for name, column in _FILTER_COLUMNS.items():
        wanted = getattr(chosen, name)
        if wanted is not None:
            statement = statement.where(column == wanted)
    rows = [_series_row(row) for row in connection.execute(statement)]
    return sorted(
        rows, key=lambda r: (r.system, r.case.benchmark, r.case.canonical, r.partition, r.stack, r.metric)
    )


def points(
    connection: Connection, series_ids: Sequence[int], since: int | None, until: int | None
) -> dict[int, SeriesPoints]:
    """Arrays of each asked series, also of one without points; `since` <= time < `until`."""
    table = ResultTable
    found: dict[int, SeriesPoints] = {}
    columns = (
        table.series_id,
        table.time,
        table.max,
        table.median,
        table.min,
        table.mean,
        table.n,
        table.run_id,
    )
    for start in range(0, len(series_ids), _SERIES_AT_ONCE):
        chunk = list(series_ids[start : start + _SERIES_AT_ONCE])
        statement = (
            select(*columns)
            .where(table.series_id.in_(chunk))
            .order_by(table.series_id, table.time, table.run_id)
        )
        if since is not None:
            statement = statement.where(table.time >= since)
        if until is not None:
            statement = statement.where(table.time < until)
        for number, rows in groupby(driver_rows(connection, statement), key=itemgetter(0)):
            found[number] = _points(number, zip(*rows, strict=True))
    return {number: found.get(number) or _points(number, [()] * len(columns)) for number in series_ids}


def driver_rows(
    connection: Connection, statement: Executable, values: Mapping[str, Any] | None = None
) -> Sequence[Any]:
    """Rows as the driver's own tuples: a million of SQLAlchemy's cost four times as long."""
    result = connection.execute(statement, values)
    rows = result.cursor.fetchall() if result.cursor is not None else []
    result.close()
    return rows


def _points(number: int, columns: Iterable[Sequence[Any]]) -> SeriesPoints:
    _, time, high, median, low, mean, count, run_id = columns
    return SeriesPoints(
        series_id=number,
        time=np.array(time, dtype=np.int64),
        max=np.array(high, dtype=np.float64),
        median=np.array(median, dtype=np.float64),
        min=np.array(low, dtype=np.float64),
        mean=np.array(mean, dtype=np.float64),
        count=np.array(count, dtype=np.int64),
        run_id=np.array(run_id, dtype=np.int64),
    )


def last_stacks(connection: Connection, series_ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """The stack (its document) of the last run of each series that has one."""
    table = ResultTable
    last = (
        select(table.run_id)
        .where(table.series_id == SeriesTable.id)
        .order_by(table.time.desc(), table.run_id.desc())
        .limit(1)
        .correlate(SeriesTable)
        .scalar_subquery()
    )
    statement = (
        select(SeriesTable.id, StackTable.document)
        .select_from(SeriesTable)
        .join(RunTable, RunTable.id == last)
        .join(StackTable, StackTable.id == RunTable.stack_id)
    )
    found: dict[int, Mapping[str, Any]] = {}
    for start in range(0, len(series_ids), _CHUNK):
        chunk = statement.where(SeriesTable.id.in_(series_ids[start : start + _CHUNK]))
        found |= {int(number): document for number, document in connection.execute(chunk)}
    return found


def samples(connection: Connection, series_id: int) -> list[tuple[int, int, tuple[float, ...]]]:
    """(time, run id, samples) of a series in time order."""
    table = ResultTable
    statement = (
        select(table.time, table.run_id, table.samples)
        .where(table.series_id == series_id)
        .order_by(table.time, table.run_id)
    )
    return [(time, run_id, unpack(blob)) for time, run_id, blob in connection.execute(statement)]


def run_results(connection: Connection, run_id: int) -> list[tuple[SeriesRow, tuple[float, ...]]]:
    """Results of a run in the order in which their series were first seen."""
    found = connection.execute(
        select(ResultTable.series_id, ResultTable.samples)
        .where(ResultTable.run_id == run_id)
        .order_by(ResultTable.series_id)
    ).all()
    rows = connection.execute(_series().where(SeriesTable.id.in_([number for number, _ in found])))
    by_id = {row[0]: _series_row(row) for row in rows}
    return [(by_id[number], unpack(blob)) for number, blob in found]
