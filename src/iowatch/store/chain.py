"""The chain of the sessions of a system: each one names the one before, so that a deleted session leaves a gap.

    session 1 <── session 2 <── session 3      number, and UUID, digest, runs and results of the one before

The digest of a session covers what does not change after its start, and the digest before it. Its last sessions can be
cut off without a gap, as by the restore of an older backup: what a checkout knows of the sessions that it ran
(`iowatch.session.ledger`) shows that. Where two histories were copied into one, a system has two chains.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Row, Select, func, select, text

from iowatch.core import canonical_json
from iowatch.store.schema import ResultTable, RunTable, SessionTable, SystemTable

# First key of the advisory locks of PostgreSQL that a system's chain has while a session is added to it.
_LOCK_OF_CHAIN = 4911

GapKind = Literal["missing", "edited", "runs lost", "results lost"]
"""What is wrong with the session before another one: it is not there, it is another one, or it has fewer rows."""


@dataclass(frozen=True, slots=True)
class ChainedSession:
    """A session in the chain of its system.

    Attributes:
        number: sessions of the chain up to this one.
        previous_uuid, previous_digest, previous_runs, previous_results: of the session before, when this one began;
            None for the first.
        runs, results: how many it has.
    """

    uuid: str
    system: str
    suite: str
    origin: str
    started_at: int
    number: int
    previous_uuid: str | None
    previous_digest: str | None
    previous_runs: int | None
    previous_results: int | None
    runs: int
    results: int

    @property
    def digest(self) -> str:
        """SHA-256 of what does not change after the start of the session."""
        stated = asdict(self)
        # Cases may be added after the session ended.
        del stated["runs"], stated["results"]
        return hashlib.sha256(canonical_json(stated).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ChainGap:
    """A session that is not what the next one in the chain names as the one before it.

    Attributes:
        session: UUID of the next one, which began at `started_at` (epoch seconds).
        previous: UUID of the session that is missing or was changed, with its `number` in the chain.
        recorded_runs, runs: of the previous session when the next one began, and now; 0 if it is missing.
        recorded_results, results: likewise.
    """

    kind: GapKind
    session: str
    started_at: int
    previous: str
    number: int
    recorded_runs: int
    runs: int
    recorded_results: int
    results: int


def next_link(connection: Connection, system: str, system_id: int) -> dict[str, Any]:
    """Return the columns with which a new session is added to the chain of its system.

    No other process can add one before the transaction ends.
    """
    if connection.dialect.name == "postgresql":
        lock = text("SELECT pg_advisory_xact_lock(:chain, :system)")
        connection.execute(lock, {"chain": _LOCK_OF_CHAIN, "system": system_id})
    newest = (
        select(SessionTable.id)
        .where(SessionTable.system_id == system_id)
        .order_by(SessionTable.number.desc(), SessionTable.id.desc())
        .limit(1)
    )
    session_id = connection.execute(newest).scalar()
    if session_id is None:
        names = ("previous_uuid", "previous_digest", "previous_runs", "previous_results")
        return {"number": 1, **dict.fromkeys(names)}
    (row,) = connection.execute(_select_chain().where(SessionTable.id == session_id))
    before = _chained(row)
    return {
        "number": before.number + 1,
        "previous_uuid": before.uuid,
        "previous_digest": before.digest,
        "previous_runs": before.runs,
        "previous_results": before.results,
    }


def _select_chain() -> Select[Any]:
    runs = select(func.count(RunTable.id)).where(RunTable.session_id == SessionTable.id).scalar_subquery()
    of_session = (RunTable.session_id == SessionTable.id) & (ResultTable.run_id == RunTable.id)
    results = select(func.count(ResultTable.run_id)).where(of_session).scalar_subquery()
    table = SessionTable
    columns: list[Any] = [
        table.uuid, SystemTable.name.label("system"), table.suite, table.origin, table.started_at, table.number,
        table.previous_uuid, table.previous_digest, table.previous_runs, table.previous_results,
        runs.label("runs"), results.label("results"),
    ]  # fmt: skip
    return select(*columns).join(SystemTable, SystemTable.id == table.system_id)


def _chained(row: Row[Any]) -> ChainedSession:
    return ChainedSession(**row._mapping)


def chained_sessions(connection: Connection, system: str) -> dict[str, ChainedSession]:
    """Return the sessions of a system by UUID, in the order of their numbers."""
    statement = _select_chain().where(SystemTable.name == system)
    rows = connection.execute(statement.order_by(SessionTable.number, SessionTable.id))
    return {row.uuid: _chained(row) for row in rows}


def find_gaps(sessions: Mapping[str, ChainedSession]) -> Iterator[ChainGap]:
    """Yield the gaps in the chain of a system.

    Args:
        sessions: all of the system, by UUID.
    """
    for session in sessions.values():
        if session.previous_uuid is None:
            continue
        before = sessions.get(session.previous_uuid)
        kind = _kind_of_gap(session, before)
        if kind is not None:
            yield ChainGap(
                kind=kind,
                session=session.uuid,
                started_at=session.started_at,
                previous=session.previous_uuid,
                number=session.number - 1,
                recorded_runs=session.previous_runs or 0,
                runs=0 if before is None else before.runs,
                recorded_results=session.previous_results or 0,
                results=0 if before is None else before.results,
            )


def _kind_of_gap(session: ChainedSession, before: ChainedSession | None) -> GapKind | None:
    """What is wrong with the session before another one; None if nothing is."""
    if before is None:
        return "missing"
    if before.digest != session.previous_digest:
        return "edited"
    # Cases of a job that ended late may have been added since.
    if before.runs < (session.previous_runs or 0):
        return "runs lost"
    if before.results < (session.previous_results or 0):
        return "results lost"
    return None
