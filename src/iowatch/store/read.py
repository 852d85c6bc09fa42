"""Read records from the tables: sessions, runs, series, detections, findings. Read-only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, func, select

from iowatch.core import Case, ExpectedResult, RunKey, Scalar, UsageError
from iowatch.store.facts import RunFacts, SessionFacts
from iowatch.store.records import (
    ALL_SERIES,
    Artefact,
    DetectionRow,
    FindingRow,
    RunRow,
    SeriesExtent,
    SeriesFilter,
    SeriesRow,
    SessionRow,
)
from iowatch.store.schema import (
    ArtefactTable,
    Base,
    CaseTable,
    DetectionTable,
    ExpectedSetTable,
    FindingTable,
    ResultTable,
    RunTable,
    SeriesTable,
    SessionTable,
    StackTable,
    SystemTable,
    decode_samples,
)

T = TypeVar("T")
# SQLite allows 32,766 bound variables per statement; far fewer keep statements readable in logs.
_CHUNK = 500


def in_chunks(values: Sequence[T], size: int = _CHUNK) -> Iterator[list[T]]:
    """Split values into lists of at most `size`, for `column IN (…)`."""
    for start in range(0, len(values), size):
        yield list(values[start : start + size])


def _records(connection: Connection, statement: Select[Any], record: type[T]) -> list[T]:
    """Return rows as records whose fields are the names of the columns."""
    return [record(**row) for row in connection.execute(statement).mappings()]


def record_columns(record: type[Any], table: type[Base], **others: Any) -> list[Any]:
    """Return columns for the fields of a record: `others` by name, the rest from the table."""
    columns: list[Any] = []
    for field in fields(record):
        if field.name in others:
            columns.append(others[field.name].label(field.name))
        else:
            columns.append(getattr(table, field.name))
    return columns


def system_names_in_history(connection: Connection) -> list[str]:
    """Return the names of all systems."""
    return list(connection.execute(select(SystemTable.name).order_by(SystemTable.name)).scalars())


def _select_sessions() -> Select[Any]:
    runs = select(func.count(RunTable.id)).where(RunTable.session_id == SessionTable.id).scalar_subquery()
    others = {"system": SystemTable.name, "facts": SessionTable.attributes, "runs": runs}
    columns = record_columns(SessionRow, SessionTable, **others)
    return select(*columns).join(SystemTable, SessionTable.system_id == SystemTable.id)


def _session_rows(connection: Connection, statement: Select[Any]) -> list[SessionRow]:
    rows = connection.execute(statement).mappings()
    return [SessionRow(**{**row, "facts": SessionFacts.from_document(row["facts"])}) for row in rows]


def list_sessions(
    connection: Connection, system: str | None = None, limit: int | None = None, *, retested: bool = False
) -> list[SessionRow]:
    """Return the sessions of one system or of all, newest first.

    Args:
        limit: at most this many; None for all.
        retested: only those that repeated some of their runs.
    """
    statement = _select_sessions().order_by(SessionTable.started_at.desc(), SessionTable.id.desc()).limit(limit)
    if retested:
        statement = statement.where(SessionTable.attributes["retest_since"].as_string().is_not(None))
    if system is not None:
        statement = statement.where(SystemTable.name == system)
    return _session_rows(connection, statement)


def find_session(connection: Connection, uuid: str) -> SessionRow:
    """Return the session whose UUID is or begins with `uuid`.

    Raises:
        UsageError: no session or several sessions match.
    """
    begins = SessionTable.uuid.startswith(uuid, autoescape=True)
    sessions = _session_rows(connection, _select_sessions().where(begins))
    # The whole UUID of a session may be the beginning of another one.
    matching = [session for session in sessions if session.uuid == uuid] or sessions
    if len(matching) != 1:
        count = f"{len(matching)} sessions" if matching else "no session"
        raise UsageError(f"{count} with UUID '{uuid}'", hint="`iowatch history list` shows them.")
    return matching[0]


def expected_results(connection: Connection, uuid: str) -> list[ExpectedResult]:
    """Return the expected set of a session."""
    statement = (
        select(ExpectedSetTable.items)
        .join(SessionTable, SessionTable.expected_set_id == ExpectedSetTable.id)
        .where(SessionTable.uuid == uuid)
    )
    return [ExpectedResult(*item) for item in connection.execute(statement).scalar() or ()]


def received_results(connection: Connection, uuid: str) -> list[ExpectedResult]:
    """Return the results of a session in the form of its expected set."""
    return [item for item, _ in received_cases(connection, uuid)]


def received_cases(connection: Connection, uuid: str) -> list[tuple[ExpectedResult, Mapping[str, Scalar]]]:
    """Return the results of a session with the parameters of their case, which determine the series."""
    operation = func.coalesce(CaseTable.parameters["operation"].as_string(), "")
    others = {"run_name": RunTable.name, "partition": RunTable.partition, "operation": operation}
    statement = (
        select(*record_columns(ExpectedResult, SeriesTable, **others), CaseTable.parameters)
        .select_from(RunTable)
        .join(ResultTable, ResultTable.run_id == RunTable.id)
        .join(SeriesTable, SeriesTable.id == ResultTable.series_id)
        .join(CaseTable, CaseTable.id == SeriesTable.case_id)
        .join(SessionTable, SessionTable.id == RunTable.session_id)
        .where(SessionTable.uuid == uuid)
        .order_by(ResultTable.run_id, ResultTable.series_id)
    )
    return [(ExpectedResult(*item), parameters) for *item, parameters in connection.execute(statement)]


def find_runs(connection: Connection, *conditions: ColumnElement[bool], documents: bool = True) -> list[RunRow]:
    """Return the runs that meet all conditions, by start.

    Args:
        documents: also read facts and stack.json, which take longer than all other columns.
    """
    others = {"session_uuid": SessionTable.uuid, "system": SystemTable.name, "stack": StackTable.name}
    columns = record_columns(RunRow, RunTable, **others, stack_document=StackTable.document)
    statement = (
        select(*(column for column in columns if documents or column.key not in ("stack_document", "facts")))
        .join(SessionTable, SessionTable.id == RunTable.session_id)
        .join(SystemTable, SystemTable.id == SessionTable.system_id)
        .join(StackTable, StackTable.id == RunTable.stack_id)
        .where(*conditions)
        .order_by(RunTable.started_at, RunTable.id)
    )
    rows = map(dict, connection.execute(statement).mappings())
    return [RunRow(**{**row, "facts": RunFacts.from_document(row.get("facts", {}))}) for row in rows]


def runs_of_session(connection: Connection, session_uuid: str) -> list[RunRow]:
    """Return the runs of a session by start."""
    return find_runs(connection, SessionTable.uuid == session_uuid)


def find_run(connection: Connection, run_id: int) -> RunRow:
    """Return one run.

    Raises:
        UsageError: no run with this id.
    """
    runs = find_runs(connection, RunTable.id == run_id)
    if not runs:
        raise UsageError(f"no run {run_id} in the history", hint="`iowatch history show SESSION` lists runs.")
    return runs[0]


def run_facts(connection: Connection, run_ids: Sequence[int], names: Sequence[str]) -> dict[int, RunFacts]:
    """Return the facts of runs, by run id, but only those with these names: all are large documents."""
    columns = [RunTable.facts[name].label(f"fact_{i}") for i, name in enumerate(names)]
    facts_by_run: dict[int, RunFacts] = {}
    for chunk in in_chunks(run_ids):
        statement = select(RunTable.id, *columns).where(RunTable.id.in_(chunk))
        for run_id, *values in connection.execute(statement):
            recorded = {name: value for name, value in zip(names, values, strict=True) if value is not None}
            facts_by_run[run_id] = RunFacts.from_document(recorded)
    return facts_by_run


def session_of_runs(connection: Connection, run_ids: Sequence[int] | None = None) -> dict[int, str]:
    """Return the UUID of the session of these runs, or of all runs, by run id; unknown runs are omitted."""
    of_all = select(RunTable.id, SessionTable.uuid).join(SessionTable, SessionTable.id == RunTable.session_id)
    if run_ids is None:
        return {row.id: row.uuid for row in connection.execute(of_all)}
    uuids: dict[int, str] = {}
    for chunk in in_chunks(run_ids):
        for row in connection.execute(of_all.where(RunTable.id.in_(chunk))):
            uuids[row.id] = row.uuid
    return uuids


def stack_of_runs(connection: Connection, run_ids: Sequence[int]) -> dict[int, int]:
    """Return the id of the stack.json of runs by run id; equal ids are equal contents. Unknown runs are omitted."""
    stack_ids: dict[int, int] = {}
    for chunk in in_chunks(run_ids):
        for row in connection.execute(select(RunTable.id, RunTable.stack_id).where(RunTable.id.in_(chunk))):
            stack_ids[row.id] = row.stack_id
    return stack_ids


def runs_near(connection: Connection, series_id: int, moment: int, most: int) -> list[int]:
    """Return the ids of the last `most` runs of a series before `moment` (epoch s), and of as many from then on."""
    of_series = select(ResultTable.run_id).where(ResultTable.series_id == series_id)
    time, run_id = ResultTable.time, ResultTable.run_id
    newest_before = of_series.where(time < moment).order_by(time.desc(), run_id.desc()).limit(most)
    oldest_after = of_series.where(time >= moment).order_by(time, run_id).limit(most)
    before = list(connection.execute(newest_before).scalars())
    return [*reversed(before), *connection.execute(oldest_after).scalars()]


def last_run_times(connection: Connection, system: str) -> dict[RunKey, int]:
    """Return the start of the last successful run (epoch seconds) by its key."""
    columns = RunTable.partition, StackTable.name.label("stack"), RunTable.name
    statement = (
        select(*columns, func.max(RunTable.started_at).label("last"))
        .join(SessionTable, SessionTable.id == RunTable.session_id)
        .join(SystemTable, SystemTable.id == SessionTable.system_id)
        .join(StackTable, StackTable.id == RunTable.stack_id)
        .where(SystemTable.name == system, RunTable.status == "ok")
        .group_by(*columns)
    )
    return {RunKey(row.partition, row.stack, row.name): row.last for row in connection.execute(statement)}


def artefacts_by_run(connection: Connection, *conditions: ColumnElement[bool]) -> dict[int, list[Artefact]]:
    """Return the artefacts of runs that meet all conditions (columns of `run` and `artefact`), by run id."""
    table = ArtefactTable
    statement = select(table.run_id, table.kind, table.name, table.sha256, table.size_bytes)
    statement = statement.join(RunTable, RunTable.id == table.run_id).where(*conditions)
    artefacts: dict[int, list[Artefact]] = {}
    for row in connection.execute(statement.order_by(table.run_id, table.kind, table.name)):
        artefact = Artefact(kind=row.kind, name=row.name, sha256=row.sha256, size_bytes=row.size_bytes)
        artefacts.setdefault(row.run_id, []).append(artefact)
    return artefacts


def artefacts_of_runs(connection: Connection, run_ids: Sequence[int]) -> dict[int, list[Artefact]]:
    """Return the artefacts of runs by run id; runs without artefacts are omitted."""
    return artefacts_by_run(connection, RunTable.id.in_(run_ids))


def artefacts_of_run(connection: Connection, run_id: int) -> list[Artefact]:
    """Return the artefacts of one run."""
    return artefacts_of_runs(connection, [run_id]).get(run_id, [])


def results_of_system(system: str | None) -> list[ColumnElement[bool]]:
    """Return the condition for results of one system; none for all systems."""
    if system is None:
        return []
    of_system = select(SeriesTable.id).join(SystemTable, SystemTable.id == SeriesTable.system_id)
    return [ResultTable.series_id.in_(of_system.where(SystemTable.name == system))]


def series_extents(connection: Connection, *conditions: ColumnElement[bool]) -> dict[int, SeriesExtent]:
    """Return the extents of series with results that meet all conditions (columns of `result`), by series id."""
    # Only columns of the index of `result`: with the runs of its results, PostgreSQL takes five times as long.
    table = ResultTable
    statement = select(
        table.series_id.label("id"),
        func.count().label("n"),
        func.min(table.time).label("first"),
        func.max(table.time).label("last"),
        select(func.max(RunTable.id)).scalar_subquery().label("newest"),
    )
    rows = connection.execute(statement.where(*conditions).group_by(table.series_id))
    return {row.id: SeriesExtent(n=row.n, first=row.first, last=row.last, newest=row.newest) for row in rows}


_FILTER_COLUMNS = {
    "system": SystemTable.name,
    "partition": SeriesTable.partition,
    "stack": SeriesTable.stack,
    "benchmark": CaseTable.benchmark,
    "metric": SeriesTable.metric,
    "case_key": CaseTable.key,
}


def find_series(connection: Connection, chosen: SeriesFilter = ALL_SERIES) -> list[SeriesRow]:
    """Return series that match every field set in `chosen`, ordered by system, benchmark, case and stack."""
    conditions: list[ColumnElement[bool]] = []
    for name, column in _FILTER_COLUMNS.items():
        value = getattr(chosen, name)
        if value is not None:
            conditions.append(column == value)
    return _series_rows(connection, None, conditions)


def series_of_extents(connection: Connection, extents: Mapping[int, SeriesExtent]) -> list[SeriesRow]:
    """Return the series with these extents, in the order of `find_series`."""
    return [row for row in _series_rows(connection, extents) if row.id in extents]


def _series_rows(
    connection: Connection, extents: Mapping[int, SeriesExtent] | None, conditions: Collection[ColumnElement[bool]] = ()
) -> list[SeriesRow]:
    statement = (
        select(
            SeriesTable.id,
            SystemTable.name.label("system"),
            SeriesTable.partition,
            SeriesTable.stack,
            CaseTable.benchmark,
            CaseTable.parameters,
            SeriesTable.metric,
        )
        .join(SystemTable, SystemTable.id == SeriesTable.system_id)
        .join(CaseTable, CaseTable.id == SeriesTable.case_id)
        .where(*conditions)
    )
    if extents is None and conditions:
        extents = series_extents(connection, ResultTable.series_id.in_(statement.with_only_columns(SeriesTable.id)))
    elif extents is None:
        extents = series_extents(connection)
    all_series: list[SeriesRow] = []
    for row in connection.execute(statement):
        extent = extents.get(row.id)
        series = SeriesRow(
            id=row.id,
            system=row.system,
            partition=row.partition,
            stack=row.stack,
            case=Case(row.benchmark, row.parameters),
            metric=row.metric,
            n=extent.n if extent else 0,
            first=extent.first if extent else None,
            last=extent.last if extent else None,
        )
        all_series.append(series)
    return sorted(all_series, key=_series_order)


def _series_order(series: SeriesRow) -> tuple[str, ...]:
    case = series.case
    return series.system, case.benchmark, case.canonical, series.partition, series.stack, series.metric


def run_results(connection: Connection, run_id: int) -> list[tuple[SeriesRow, tuple[float, ...]]]:
    """Return the results of a run: series with all samples, in the order in which the series were created."""
    statement = select(ResultTable.series_id, ResultTable.samples).where(ResultTable.run_id == run_id)
    results = connection.execute(statement.order_by(ResultTable.series_id)).all()
    of_results = SeriesTable.id.in_([result.series_id for result in results])
    series_by_id = {series.id: series for series in _series_rows(connection, None, [of_results])}
    return [(series_by_id[result.series_id], decode_samples(result.samples)) for result in results]


def last_stack_documents(connection: Connection, series_ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """Return stack.json of the last run of each series that has one, by series id."""
    last = (
        select(ResultTable.run_id)
        .where(ResultTable.series_id == SeriesTable.id)
        .order_by(ResultTable.time.desc(), ResultTable.run_id.desc())
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
    documents: dict[int, Mapping[str, Any]] = {}
    for chunk in in_chunks(series_ids):
        for row in connection.execute(statement.where(SeriesTable.id.in_(chunk))):
            documents[row.id] = row.document
    return documents


def load_detections(connection: Connection, series_ids: Sequence[int]) -> dict[int, DetectionRow]:
    """Return the stored detections of these series by series id; series without one are omitted."""
    statement = select(*DetectionTable.__table__.c)
    detections: dict[int, DetectionRow] = {}
    for chunk in in_chunks(series_ids):
        for row in _records(connection, statement.where(DetectionTable.series_id.in_(chunk)), DetectionRow):
            detections[row.series_id] = row
    return detections


def load_finding_rows(connection: Connection, system: str | None = None) -> list[FindingRow]:
    """Return the findings of one system or of all, newest first."""
    table = FindingTable
    statement = (
        select(*record_columns(FindingRow, table, system=SystemTable.name))
        .join(SystemTable, SystemTable.id == table.system_id)
        .order_by(table.first_seen_at.desc(), table.id.desc())
    )
    if system is not None:
        statement = statement.where(SystemTable.name == system)
    return _records(connection, statement, FindingRow)
