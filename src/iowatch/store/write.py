"""Write sessions, runs with their results, detections and findings; idempotent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Insert, Select, Transaction, bindparam, insert, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import IntegrityError

from iowatch.core import Case, ExpectedResult, InputError, Result, summarise_samples
from iowatch.store import chain, read, records
from iowatch.store.bulk import CovariateNumbers
from iowatch.store.facts import SessionFacts
from iowatch.store.partitions import require_partitions
from iowatch.store.schema import (
    ArtefactTable,
    Base,
    CaseTable,
    DetectionTable,
    ExpectedSetTable,
    FindingTable,
    ResultTable,
    RunCovariatesTable,
    RunTable,
    SeriesTable,
    SessionTable,
    StackTable,
    SystemTable,
    encode_samples,
)

# Ids that a transaction read or inserted: rows with a natural key do not change, and an import or a session names the
# same few of them for every run. An id of another transaction may have been rolled back, or deleted since.
_IDS_OF_TRANSACTIONS: WeakKeyDictionary[Transaction, dict[tuple[object, ...], int]] = WeakKeyDictionary()


@cache
def _find_id(model: type[Base], names: tuple[str, ...]) -> Select[Any]:
    """The id of the row with this natural key; made once, because that takes longer than its execution."""
    columns = model.__table__.c
    return select(columns.id).where(*(columns[name] == bindparam(name) for name in names))


@cache
def _insert_into(model: type[Base]) -> Insert:
    return insert(model.__table__)  # type: ignore[arg-type]


def get_or_create_id(connection: Connection, model: type[Base], key: Mapping[str, Any], rest: Mapping[str, Any]) -> int:
    """Return the id of the row with this natural key, inserted if absent; safe against concurrent inserts."""
    transaction = connection.get_nested_transaction() or connection.get_transaction()
    if transaction is None:
        return _read_or_insert_id(connection, model, key, rest)
    ids = _IDS_OF_TRANSACTIONS.setdefault(transaction, {})
    identity = (model, *key.items())
    if identity not in ids:
        ids[identity] = _read_or_insert_id(connection, model, key, rest)
    return ids[identity]


def _read_or_insert_id(
    connection: Connection, model: type[Base], key: Mapping[str, Any], rest: Mapping[str, Any]
) -> int:
    find = _find_id(model, tuple(key))
    row_id = connection.execute(find, key).scalar()
    if row_id is not None:
        return int(row_id)
    # Another process may insert the same row before this one does.
    try:
        with connection.begin_nested():
            return insert_row(connection, model, {**key, **rest})
    except IntegrityError:
        return int(connection.execute(find, key).scalar_one())


def insert_row(connection: Connection, model: type[Base], values: Mapping[str, Any]) -> int:
    """Insert one row; return the first column of its key."""
    key = connection.execute(_insert_into(model), values).inserted_primary_key
    assert key is not None
    return int(key[0])


def get_or_create_system(connection: Connection, name: str) -> int:
    """Return the id of the system."""
    return get_or_create_id(connection, SystemTable, {"name": name}, {})


def get_or_create_stack(connection: Connection, stack: records.StackRecord) -> int:
    """Return the id of exactly this stack.json."""
    values = {"name": stack.name, "document": dict(stack.document)}
    return get_or_create_id(connection, StackTable, {"digest": stack.digest}, values)


def get_or_create_case(connection: Connection, case: Case) -> int:
    """Return the id of the case."""
    parameters = {name: value for name, value in case.parameters.items() if value is not None}
    values = {"benchmark": case.benchmark, "parameters": parameters}
    return get_or_create_id(connection, CaseTable, {"key": case.key}, values)


def insert_session(
    connection: Connection, session: records.SessionRecord, expected: Sequence[ExpectedResult] = ()
) -> None:
    """Insert the session if absent; then add its expected results."""
    key = {"uuid": session.uuid}
    session_id = connection.execute(_find_id(SessionTable, ("uuid",)), key).scalar()
    if session_id is None:
        system_id = get_or_create_system(connection, session.system)
        values = {
            "system_id": system_id,
            "suite": session.suite,
            "origin": session.origin,
            "status": "running",
            "started_at": session.started_at,
            "attributes": dict(session.facts.document),
            **chain.next_link(connection, session.system, system_id),
        }
        session_id = get_or_create_id(connection, SessionTable, key, values)
    add_expected_results(connection, session_id, [list(astuple(result)) for result in expected])


def expected_set_digest(items: Sequence[Sequence[str]]) -> str:
    """SHA-256 of an expected set, in the order of its items."""
    return hashlib.sha256(json.dumps(items).encode()).hexdigest()


def add_expected_results(connection: Connection, session_id: int, items: Sequence[list[str]]) -> None:
    """Add items (as in `ExpectedSetTable`) to the expected set of a session, each once."""
    stored = connection.execute(
        select(ExpectedSetTable.items)
        .join(SessionTable, SessionTable.expected_set_id == ExpectedSetTable.id)
        .where(SessionTable.id == session_id)
    ).scalar()
    stored_items: list[list[str]] = stored or []
    all_items = [list(item) for item in dict.fromkeys(map(tuple, [*stored_items, *items]))]
    if len(all_items) == len(stored_items):
        return
    # Sessions with equal expected sets share one row.
    digest = expected_set_digest(all_items)
    set_id = get_or_create_id(connection, ExpectedSetTable, {"digest": digest}, {"items": all_items})
    _update_session(connection, session_id, expected_set_id=set_id)


@dataclass(frozen=True)
class SessionIds:
    """Ids of a session and of its system."""

    session: int
    system: int


def find_session_ids(connection: Connection, uuid: str) -> SessionIds:
    """Return the ids of a session.

    Raises:
        InputError: unknown session.
    """
    statement = select(SessionTable.id, SessionTable.system_id).where(SessionTable.uuid == uuid)
    session = connection.execute(statement).first()
    if session is None:
        raise InputError(f"session {uuid} is not in the history", hint="Begin it before recording runs.")
    return SessionIds(session.id, session.system_id)


def add_session_facts(connection: Connection, uuid: str, facts: SessionFacts) -> None:
    """Add facts to those of the session; those that it has already are replaced."""
    session_id = find_session_ids(connection, uuid).session
    stored = connection.execute(select(SessionTable.attributes).where(SessionTable.id == session_id)).scalar_one()
    _update_session(connection, session_id, attributes={**stored, **facts.document})


def update_session_end(connection: Connection, uuid: str, status: records.SessionStatus, ended_at: int) -> None:
    """Set status and end (epoch seconds) of a session."""
    session_id = find_session_ids(connection, uuid).session
    _update_session(connection, session_id, status=status, ended_at=ended_at)


def _update_session(connection: Connection, session_id: int, **values: Any) -> None:
    connection.execute(update(SessionTable).where(SessionTable.id == session_id).values(**values))


def insert_runs(connection: Connection, session_uuid: str, runs: Sequence[records.RunRecord]) -> int:
    """Insert runs with results and artefacts; return the number of runs whose fingerprints were not known.

    Raises:
        InputError: unknown session.
    """
    ids = find_session_ids(connection, session_uuid)
    return sum(_insert_run(connection, ids.session, ids.system, run) for run in runs)


def _insert_run(connection: Connection, session_id: int, system_id: int, run: records.RunRecord) -> bool:
    """Insert a run with results and artefacts; return False if its fingerprint is in the history."""
    values = _run_values(connection, session_id, run)
    run_id = connection.execute(_insert_new_run(connection.dialect.name), values).scalar()
    if run_id is None:
        return False
    if run.output.status == "ok" and run.output.results:
        require_partitions(connection, [run.started_at])
        rows = [_result_values(connection, system_id, run, result) for result in run.output.results]
        connection.execute(_insert_into(ResultTable), [{"run_id": run_id, **row} for row in rows])
    for artefact in run.artefacts:
        insert_row(connection, ArtefactTable, {"run_id": run_id, **asdict(artefact)})
    return True


def insert_if_new(connection: Connection, model: type[Base], key: str) -> Any:
    """Return an INSERT that skips rows whose key exists, also if another process inserts them at the same moment."""
    return _insert_if_new(connection.dialect.name, model, key)


def _insert_of_dialect(dialect: str, model: type[Base]) -> Any:
    """An INSERT that can say what happens to rows whose key exists, in the words of the database."""
    if dialect == "postgresql":
        # Half a tenth of a second, which commands with an SQLite file save.
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(model)
    return sqlite.insert(model)


@cache
def _insert_if_new(dialect: str, model: type[Base], key: str) -> Any:
    return _insert_of_dialect(dialect, model).on_conflict_do_nothing(index_elements=[key])


@cache
def _insert_new_run(dialect: str) -> Any:
    return _insert_if_new(dialect, RunTable, "fingerprint").returning(RunTable.id)


def _run_values(connection: Connection, session_id: int, run: records.RunRecord) -> dict[str, Any]:
    output = run.output
    facts = {**output.facts, **run.facts}
    # Samples of a failed or incomplete run are kept with the run, but are not points of a series: incomplete results
    # are never averaged, compared or assessed.
    if output.status != "ok" and output.results:
        facts["partial_results"] = [result.to_json() for result in output.results]
    return {
        "session_id": session_id,
        "stack_id": get_or_create_stack(connection, run.stack),
        "fingerprint": run.fingerprint,
        "name": run.name,
        "partition": run.partition,
        "started_at": run.started_at,
        "wall_s": run.wall_s,
        "tool": output.tool,
        "version": output.version,
        "status": output.status,
        "reason": output.reason,
        "facts": facts,
    }


def _result_values(connection: Connection, system_id: int, run: records.RunRecord, result: Result) -> dict[str, Any]:
    series = {
        "system_id": system_id,
        "partition": run.partition,
        "stack": run.stack.name,
        "case_id": get_or_create_case(connection, result.full_case(run.output.tool)),
        "metric": result.metric,
    }
    return {
        "series_id": get_or_create_id(connection, SeriesTable, series, {}),
        "time": run.started_at,
        **asdict(summarise_samples(result.samples)),
        "samples": encode_samples(result.samples),
    }


def insert_or_replace(connection: Connection, model: type[Base], key: str) -> Any:
    """Return an INSERT that replaces rows whose key exists; several processes may do so at the same moment."""
    statement = _insert_of_dialect(connection.dialect.name, model)
    replaced = {column.name: column for column in statement.excluded if column.name != key}
    return statement.on_conflict_do_update(index_elements=[key], set_=replaced)


def save_detections(connection: Connection, rows: Sequence[records.DetectionRow]) -> None:
    """Write or replace detections of series."""
    values = [{name: getattr(row, name) for name in records.DetectionRow.__slots__} for row in rows]
    for chunk in read.in_chunks(values):
        connection.execute(insert_or_replace(connection, DetectionTable, "series_id"), chunk)


def save_run_covariates(connection: Connection, covariates: Mapping[int, CovariateNumbers]) -> None:
    """Write the covariates of runs, by run id; those that are stored are kept."""
    rows = [{"run_id": run_id, "names": names, "numbers": blob} for run_id, (names, blob) in covariates.items()]
    for chunk in read.in_chunks(rows):
        connection.execute(insert_if_new(connection, RunCovariatesTable, "run_id"), chunk)


def save_findings(connection: Connection, rows: Sequence[records.FindingRow]) -> None:
    """Write or replace findings."""
    for row in rows:
        values = {name: getattr(row, name) for name in records.FindingRow.__slots__ if name != "system"}
        values["system_id"] = get_or_create_system(connection, row.system)
        connection.execute(insert_or_replace(connection, FindingTable, "id"), values)
