"""Copy a history into another store, SQLite or PostgreSQL: by identity, so twice is the same as once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, insert, select, update

from iowatch.errors import UsageError
from iowatch.store.history import History
from iowatch.store.ingest import expect, id_of
from iowatch.store.schema import (
    ArtefactTable,
    Base,
    CaseTable,
    ExpectedSetTable,
    ExpectedTable,
    FindingTable,
    ResultTable,
    RunKindTable,
    RunTable,
    SeriesTable,
    SessionTable,
    StackTable,
    SystemTable,
)

_CHUNK = 500
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Copied:
    """How much of each the source has for the target that the target had not; sessions count when looked at."""

    sessions: int
    runs: int
    results: int
    findings: int


def copy(source: History, target: History, system: str | None = None, say: Say = lambda _text: None) -> Copied:
    """Copy what the target lacks, one transaction a session: a copy that was cut off is simply repeated.

    Sessions are told apart by UUID, runs by fingerprint, findings by id (the one updated last stays). What
    detection remembers is not copied: the next update works it out again.

    Args:
        system: only this one; None for all.

    Raises:
        UsageError: both are the same store, or the source has no such system.
        MachineError: one of them refused.
    """
    if source.engine.url == target.engine.url:
        raise UsageError("source and target are the same history")
    known = source.systems()
    if system is not None and system not in known:
        raise UsageError(f"the history has no system '{system}'", hint=f"Known: {', '.join(known)}.")
    work = _Copy(source, target)
    sessions = sorted(source.sessions(system), key=lambda row: (row.started_at, row.id))
    for position, session in enumerate(sessions, 1):
        work.session(session.id)
        if position % 100 == 0 or position == len(sessions):
            say(f"{position} of {len(sessions)} sessions, {work.runs} new runs")
    findings = work.findings(system)
    return Copied(len(sessions), work.runs, work.results, findings)


def _rows(
    connection: Connection, model: type[Base], column: Any, values: Iterable[Any]
) -> Iterator[dict[str, Any]]:
    """Rows of a table whose column has one of the values."""
    table, wanted = model.__table__, list(values)
    assert isinstance(table, Table)
    for start in range(0, len(wanted), _CHUNK):
        chosen = wanted[start : start + _CHUNK]
        for row in connection.execute(select(table).where(column.in_(chosen)).order_by(*table.primary_key)):
            yield dict(row._mapping)


class _Copy:
    """One copy: the numbers of rows differ between stores, so every reference is looked up by its identity."""

    def __init__(self, source: History, target: History) -> None:
        self.source, self.target = source, target
        self.runs = self.results = 0
        self._ids: dict[tuple[type[Base], int], int] = {}

    def session(self, number: int) -> None:
        """Copy one session with all that hangs on it."""
        with self.source.reading() as left, self.target.writing() as right:
            (row,) = _rows(left, SessionTable, SessionTable.id, [number])
            here = self._session_row(left, right, row)
            self._expected(left, right, number, here)
            self._runs(left, right, number, here)

    def _session_row(self, left: Connection, right: Connection, row: dict[str, Any]) -> int:
        del row["id"]
        row["system_id"] = self._moved(left, right, SystemTable, row["system_id"])
        here = id_of(right, SessionTable, {"uuid": row.pop("uuid")}, row)
        if row["status"] != "running":
            ended = {"status": row["status"], "ended_at": row["ended_at"]}
            unfinished = (SessionTable.id == here) & (SessionTable.status == "running")
            right.execute(update(SessionTable).where(unfinished).values(ended))
        return here

    def _expected(self, left: Connection, right: Connection, number: int, here: int) -> None:
        for row in _rows(left, ExpectedTable, ExpectedTable.session_id, [number]):
            for found in _rows(left, ExpectedSetTable, ExpectedSetTable.id, [row["set_id"]]):
                expect(right, here, found["items"])

    def _runs(self, left: Connection, right: Connection, number: int, here: int) -> None:
        rows = {row["fingerprint"]: row for row in _rows(left, RunTable, RunTable.session_id, [number])}
        for known in _rows(right, RunTable, RunTable.fingerprint, list(rows)):
            del rows[known["fingerprint"]]
        if not rows:
            return
        numbers = {row.pop("id"): fingerprint for fingerprint, row in rows.items()}
        for row in rows.values():
            row["session_id"] = here
            row["stack_id"] = self._moved(left, right, StackTable, row["stack_id"])
            row["kind_id"] = self._moved(left, right, RunKindTable, row["kind_id"])
        made = right.execute(insert(RunTable).returning(RunTable.fingerprint, RunTable.id), list(rows.values()))
        new = {row.fingerprint: row.id for row in made}
        run_of = {old: new[fingerprint] for old, fingerprint in numbers.items()}
        self._hanging(left, right, ArtefactTable, ArtefactTable.run_id, run_of)
        self.results += self._hanging(left, right, ResultTable, ResultTable.run_id, run_of)
        self.runs += len(run_of)

    def _hanging(
        self, left: Connection, right: Connection, model: type[Base], column: Any, run_of: Mapping[int, int]
    ) -> int:
        """Copy rows that hang on runs; returns how many."""
        rows = list(_rows(left, model, column, run_of))
        for row in rows:
            row["run_id"] = run_of[row["run_id"]]
            if "series_id" in row:
                row["series_id"] = self._moved(left, right, SeriesTable, row["series_id"])
        _insert(right, model, rows)
        return len(rows)

    def _moved(self, left: Connection, right: Connection, model: type[Base], number: int) -> int:
        """Number in the target of the same system, stack, kind, case or series, made there if absent."""
        found = self._ids.get((model, number))
        if found is not None:
            return found
        (row,) = _rows(left, model, model.__table__.c.id, [number])
        del row["id"]
        if model is SeriesTable:
            row["system_id"] = self._moved(left, right, SystemTable, row["system_id"])
            row["case_id"] = self._moved(left, right, CaseTable, row["case_id"])
        names = {SystemTable: ("name",), CaseTable: ("key",), SeriesTable: tuple(row)}
        key = {name: row.pop(name) for name in names.get(model, ("digest",))}
        here = self._ids[model, number] = id_of(right, model, key, row)
        return here

    def findings(self, system: str | None) -> int:
        """Copy findings that the target has not, or has older; returns how many."""
        there = {row.id: row.updated_at for row in self.target.findings()}
        fresh = [row for row in self.source.findings(system) if there.get(row.id, -1) < row.updated_at]
        with self.source.reading() as left, self.target.writing() as right:
            for row in fresh:
                document = {**row.document, "members": self._members(left, right, row.document["members"])}
                values = {"first_seen_at": row.first_seen_at, "updated_at": row.updated_at, "state": row.state}
                values["document"] = document
                values["system_id"] = id_of(right, SystemTable, {"name": row.system}, {})
                if row.id in there:
                    right.execute(update(FindingTable).where(FindingTable.id == row.id).values(values))
                else:
                    right.execute(insert(FindingTable).values(id=row.id, **values))
        return len(fresh)

    def _members(self, left: Connection, right: Connection, members: Sequence[dict[str, Any]]) -> list[Any]:
        """Members of a finding with the target's numbers of series and runs."""
        ends = ("run_before", "run_after")
        asked = {member[end] for member in members for end in ends} - {None}
        old = {row["fingerprint"]: row["id"] for row in _rows(left, RunTable, RunTable.id, asked)}
        run_of = {old[r["fingerprint"]]: r["id"] for r in _rows(right, RunTable, RunTable.fingerprint, old)}
        return [
            {
                **member,
                "series_id": self._moved(left, right, SeriesTable, member["series_id"]),
                **{end: run_of.get(member[end]) for end in ends},
            }
            for member in members
        ]


def _insert(connection: Connection, model: type[Base], rows: Sequence[dict[str, Any]]) -> None:
    for start in range(0, len(rows), _CHUNK):
        connection.execute(insert(model), list(rows[start : start + _CHUNK]))
