"""Writing: sessions, runs and their results, each at most once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Any

from sqlalchemy import Connection, Table, insert, select, update
from sqlalchemy.exc import IntegrityError

from iowatch.errors import InputError
from iowatch.model import Case, Result, summarise
from iowatch.store.kinds import Kind, split
from iowatch.store.packing import pack
from iowatch.store.records import ExpectedResult, RunRecord, SessionRecord, SessionStatus, StackRecord
from iowatch.store.schema import (
    ArtefactTable,
    Base,
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


def _table(model: type[Base]) -> Table:
    table = model.__table__
    assert isinstance(table, Table)
    return table


def id_of(connection: Connection, model: type[Base], key: Mapping[str, Any], rest: Mapping[str, Any]) -> int:
    """The row with this natural key, made if absent; another process may make it at the same moment."""
    table = _table(model)
    find = select(table.c.id).where(*(table.c[name] == value for name, value in key.items()))
    found = connection.execute(find).scalar()
    if found is not None:
        return int(found)
    try:
        with connection.begin_nested():
            made = connection.execute(insert(table).values(**key, **rest)).inserted_primary_key
    except IntegrityError:
        return int(connection.execute(find).scalar_one())
    assert made is not None
    return int(made[0])


def system_id(connection: Connection, name: str) -> int:
    """Row of the system, made if absent."""
    return id_of(connection, SystemTable, {"name": name}, {})


def stack_id(connection: Connection, stack: StackRecord) -> int:
    """Row of exactly this stack.json, made if absent."""
    return id_of(
        connection, StackTable, {"digest": stack.digest}, {"name": stack.name, "document": dict(stack.document)}
    )


def case_id(connection: Connection, case: Case) -> int:
    """Row of the case, made if absent."""
    parameters = {k: v for k, v in case.parameters.items() if v is not None}
    return id_of(
        connection, CaseTable, {"key": case.key}, {"benchmark": case.benchmark, "parameters": parameters}
    )


def kind_id(connection: Connection, kind: Kind) -> int:
    """Row of the kind of run, made if absent."""
    return id_of(connection, RunKindTable, {"digest": kind.digest}, kind.columns)


def begin_session(connection: Connection, session: SessionRecord, expected: Iterable[ExpectedResult]) -> None:
    """Insert the session unless it is there; then what it expects."""
    row = id_of(
        connection,
        SessionTable,
        {"uuid": session.uuid},
        {
            "system_id": system_id(connection, session.system),
            "suite": session.suite,
            "origin": session.origin,
            "status": "running",
            "started_at": session.started_at,
            "attributes": dict(session.attributes),
        },
    )
    expect(connection, row, [list(astuple(item)) for item in expected])


def expect(connection: Connection, session: int, items: Sequence[list[str]]) -> None:
    """Add to what a session expects; `items` as in `ExpectedSetTable`, those known already are no news."""
    known = connection.execute(
        select(ExpectedSetTable.items)
        .join(ExpectedTable, ExpectedTable.set_id == ExpectedSetTable.id)
        .where(ExpectedTable.session_id == session)
    ).scalar()
    have = {tuple(item) for item in known or ()}
    wanted = [
        *(known or ()),
        *(item for item in map(list, dict.fromkeys(map(tuple, items))) if tuple(item) not in have),
    ]
    if len(wanted) == len(have):
        return
    digest = hashlib.sha256(json.dumps(wanted).encode()).hexdigest()
    chosen = id_of(connection, ExpectedSetTable, {"digest": digest}, {"items": wanted})
    table = _table(ExpectedTable)
    if known is None:
        connection.execute(insert(table).values(session_id=session, set_id=chosen))
    else:
        connection.execute(update(table).where(table.c.session_id == session).values(set_id=chosen))


def session_row(connection: Connection, uuid: str) -> tuple[int, int]:
    """(session id, system id) of a session.

    Raises:
        InputError: unknown session.
    """
    found = connection.execute(
        select(SessionTable.id, SessionTable.system_id).where(SessionTable.uuid == uuid)
    ).first()
    if found is None:
        raise InputError(f"session {uuid} is not in the history", hint="Begin it before recording runs.")
    return int(found[0]), int(found[1])


def add_attributes(connection: Connection, uuid: str, attributes: Mapping[str, object]) -> None:
    """Let them join those of the session."""
    row, _ = session_row(connection, uuid)
    known = connection.execute(select(SessionTable.attributes).where(SessionTable.id == row)).scalar_one()
    _update_session(connection, row, attributes={**known, **attributes})


def end_session(connection: Connection, uuid: str, status: SessionStatus, ended_at: int) -> None:
    """Set outcome and end of a session."""
    row, _ = session_row(connection, uuid)
    _update_session(connection, row, status=status, ended_at=ended_at)


def _update_session(connection: Connection, row: int, **values: Any) -> None:
    connection.execute(update(_table(SessionTable)).where(SessionTable.id == row).values(**values))


def record_run(connection: Connection, session_uuid: str, run: RunRecord) -> bool:
    """Store one run with results and artefacts; False where its fingerprint is known already."""
    session, system = session_row(connection, session_uuid)
    known = connection.execute(select(RunTable.id).where(RunTable.fingerprint == run.fingerprint)).scalar()
    if known is not None:
        return False
    made = connection.execute(
        insert(_table(RunTable)).values(**_run_values(connection, session, session_uuid, run))
    )
    assert made.inserted_primary_key is not None
    run_id = int(made.inserted_primary_key[0])
    if run.output.status == "ok":
        for result in run.output.results:
            _record_result(connection, system, run, run_id, result)
    for artefact in run.artefacts:
        key = {name: getattr(artefact, name) for name in ("kind", "name", "sha256", "size_bytes")}
        connection.execute(insert(_table(ArtefactTable)).values(run_id=run_id, **key))
    return True


def _run_values(connection: Connection, session: int, uuid: str, run: RunRecord) -> dict[str, Any]:
    # Samples of a run that did not end well are kept with it, but are no points of a series: nothing incomplete
    # is averaged, compared or judged.
    partial = [] if run.output.status == "ok" else [result.to_json() for result in run.output.results]
    kept = {"partial_results": partial} if partial else {}
    output = run.output
    facts, texts, own = split({**output.facts, **run.facts, **kept}, uuid)
    kind = Kind(run.name, run.partition, output.tool, output.version, facts, texts)
    return {
        "session_id": session,
        "stack_id": stack_id(connection, run.stack),
        "kind_id": kind_id(connection, kind),
        "fingerprint": run.fingerprint,
        "status": output.status,
        "reason": output.reason,
        "started_at": run.started_at,
        "wall_s": run.wall_s,
        "facts": own,
    }


def _record_result(connection: Connection, system: int, run: RunRecord, run_id: int, result: Result) -> None:
    series = id_of(
        connection,
        SeriesTable,
        {
            "system_id": system,
            "partition": run.partition,
            "stack": run.stack.name,
            "case_id": case_id(connection, result.full_case(run.output.tool)),
            "metric": result.metric,
        },
        {},
    )
    summary = summarise(result.samples)
    connection.execute(
        insert(_table(ResultTable)).values(
            run_id=run_id,
            series_id=series,
            time=run.started_at,
            n=summary.n,
            max=summary.max,
            median=summary.median,
            min=summary.min,
            mean=summary.mean,
            samples=pack(result.samples),
        )
    )
