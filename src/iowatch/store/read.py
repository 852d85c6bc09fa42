"""Read records from the tables: sessions, runs, series, detections, findings. Read-only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, func, select

from iowatch.core import Case, ExpectedResult, RunKey, Scalar, UsageError
from iowatch.store.facts import RunFacts, SessionFacts
from iowatch.store.records import (
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
    names = [one.name for one in fields(record)]
    return [others[name].label(name) if name in others else getattr(table, name) for name in names]


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
    """Return sessions, newest first; with `retested` only those that repeated some of their runs."""
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
    found = _session_rows(connection, _select_sessions().where(begins))
    chosen = [row for row in found if row.uuid == uuid] or found
    if len(chosen) != 1:
        count = "no session" if not chosen else f"{len(chosen)} sessions"
        raise UsageError(f"{count} with UUID '{uuid}'", hint="`iowatch history list` shows them.")
    return chosen[0]


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


def find_run(connection: Connection, run_id: int) -> RunRow:
    """Return one run.

    Raises:
        UsageError: no run with this id.
    """
    found = find_runs(connection, RunTable.id == run_id)
    if not found:
        raise UsageError(f"no run {run_id} in the history", hint="`iowatch history show SESSION` lists runs.")
    return found[0]


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
    """Return run id to session UUID, of these runs or of all runs; unknown runs are omitted."""
    statement = select(RunTable.id, SessionTable.uuid).join(SessionTable, SessionTable.id == RunTable.session_id)
    parts = (
        [statement] if run_ids is None else [statement.where(RunTable.id.in_(chunk)) for chunk in in_chunks(run_ids)]
    )
    return {row.id: row.uuid for part in parts for row in connection.execute(part)}


def stack_of_runs(connection: Connection, run_ids: Sequence[int]) -> dict[int, int]:
    """Return run id to the id of its stack content; unknown runs are omitted."""
    statement = select(RunTable.id, RunTable.stack_id)
    parts = [statement.where(RunTable.id.in_(chunk)) for chunk in in_chunks(run_ids)]
    return {row.id: row.stack_id for part in parts for row in connection.execute(part)}


def runs_near(connection: Connection, series_id: int, moment: int, most: int) -> list[int]:
    """Return the ids of the last `most` runs of a series before `moment` (epoch s), and of as many from then on."""
    of_series = select(ResultTable.run_id).where(ResultTable.series_id == series_id)
    time, run = ResultTable.time, ResultTable.run_id
    before = of_series.where(time < moment).order_by(time.desc(), run.desc()).limit(most)
    after = of_series.where(time >= moment).order_by(time, run).limit(most)
    return [*reversed(connection.execute(before).scalars().all()), *connection.execute(after).scalars()]


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
    found: dict[int, list[Artefact]] = {}
    for row in connection.execute(statement.order_by(table.run_id, table.kind, table.name)):
        one = Artefact(kind=row.kind, name=row.name, sha256=row.sha256, size_bytes=row.size_bytes)
        found.setdefault(row.run_id, []).append(one)
    return found


def results_of_system(system: str | None) -> list[ColumnElement[bool]]:
    """Return the condition for results of one system; none for all systems."""
    chosen = select(SeriesTable.id).join(SystemTable, SystemTable.id == SeriesTable.system_id)
    return [] if system is None else [ResultTable.series_id.in_(chosen.where(SystemTable.name == system))]


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


def find_series(connection: Connection, chosen: SeriesFilter) -> list[SeriesRow]:
    """Return series that match every field set in `chosen`, ordered by system, benchmark, case and stack."""
    wanted = {name: getattr(chosen, name) for name in _FILTER_COLUMNS}
    conditions = [_FILTER_COLUMNS[name] == value for name, value in wanted.items() if value is not None]
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
    if extents is None:
        chosen = ResultTable.series_id.in_(statement.with_only_columns(SeriesTable.id))
        extents = series_extents(connection, *((chosen,) if conditions else ()))
    found = []
    for row in connection.execute(statement).mappings():
        fields = dict(row)
        fields["case"] = Case(fields.pop("benchmark"), fields.pop("parameters"))
        extent = extents.get(fields["id"])
        n, first, last = (extent.n, extent.first, extent.last) if extent else (0, None, None)
        found.append(SeriesRow(**fields, n=n, first=first, last=last))
    return sorted(found, key=lambda r: (r.system, r.case.benchmark, r.case.canonical, r.partition, r.stack, r.metric))


def run_results(connection: Connection, run_id: int) -> list[tuple[SeriesRow, tuple[float, ...]]]:
    """Return the results of a run: series with all samples, in the order in which the series were created."""
    statement = select(ResultTable.series_id, ResultTable.samples).where(ResultTable.run_id == run_id)
    found = connection.execute(statement.order_by(ResultTable.series_id)).all()
    rows = _series_rows(connection, None, [SeriesTable.id.in_([row.series_id for row in found])])
    by_id = {row.id: row for row in rows}
    return [(by_id[row.series_id], decode_samples(row.samples)) for row in found]


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
    parts = [statement.where(SeriesTable.id.in_(chunk)) for chunk in in_chunks(series_ids)]
    return {row.id: row.document for part in parts for row in connection.execute(part)}


def load_detections(connection: Connection, series_ids: Sequence[int]) -> dict[int, DetectionRow]:
    """Return the stored detections of these series by series id; series without one are omitted."""
    statement = select(*DetectionTable.__table__.c)
    parts = [statement.where(DetectionTable.series_id.in_(chunk)) for chunk in in_chunks(series_ids)]
    return {row.series_id: row for part in parts for row in _records(connection, part, DetectionRow)}


def load_finding_rows(connection: Connection, system: str | None) -> list[FindingRow]:
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
