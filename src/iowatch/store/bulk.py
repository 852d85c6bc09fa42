"""Reading a lot at once, as arrays: what the dashboard's pages are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, func, select

from iowatch.model import Case
from iowatch.store.kinds import unfolded
from iowatch.store.packing import unpack, unpack_all
from iowatch.store.query import driver_rows
from iowatch.store.records import Artefact, RunRow, SeriesRow, SessionRow
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

_CHUNK = 100
_MAPPED_BYTES = 2**29


@dataclass(frozen=True, slots=True)
class Stamp:
    """Extent of a series: number of results, times of the first and last (epoch s), highest number of a run.

    Two readings with the same stamp are the same results, because results are never changed.
    """

    n: int
    first: int
    last: int
    newest: int


@dataclass(frozen=True, slots=True)
class SeriesSamples:
    """One series in time order, all samples included; values in the metric's unit, times in epoch seconds.

    Attributes:
        time, run_id, max, median, min, count: shape (n,).
        samples: shape (sum of count,), night after night in the order measured.
    """

    series_id: int
    time: NDArray[np.int64]
    run_id: NDArray[np.int64]
    max: NDArray[np.float64]
    median: NDArray[np.float64]
    min: NDArray[np.float64]
    count: NDArray[np.int64]
    samples: NDArray[np.float64]

    def only(self, nights: NDArray[np.bool_]) -> SeriesSamples:
        """The same of some of its results, shape (n,)."""
        if nights.all():
            return self
        return SeriesSamples(
            self.series_id,
            self.time[nights],
            self.run_id[nights],
            self.max[nights],
            self.median[nights],
            self.min[nights],
            self.count[nights],
            self.samples[np.repeat(nights, self.count)],
        )


@dataclass(frozen=True, slots=True)
class StackUse:
    """One content of a stack's `stack.json` on one system: `first` and `last` run with it (epoch s)."""

    system: str
    partition: str
    name: str
    digest: str
    first: int
    last: int
    runs: int


def stamps(connection: Connection) -> dict[int, Stamp]:
    """Extent of every series that has results."""
    table = ResultTable
    statement = select(
        table.series_id, func.count(), func.min(table.time), func.max(table.time), func.max(table.run_id)
    ).group_by(table.series_id)
    return {row[0]: Stamp(*row[1:]) for row in connection.execute(statement)}


def samples_of(
    connection: Connection, series_ids: Sequence[int], since: int | None = None, until: int | None = None
) -> Iterator[SeriesSamples]:
    """Series by series, in the order of the numbers; series without results are left out.

    Args:
        since, until: epoch seconds; only results from `since` to `until` are read.
    """
    if connection.dialect.name == "sqlite":
        # Rows of a series lie far from each other: through a map of the file reading takes a third of the time.
        connection.exec_driver_sql(f"PRAGMA mmap_size = {_MAPPED_BYTES}")
    for number in series_ids:
        found = _of_one(connection, number, since, until)
        if found is not None:
            yield found


_T = ResultTable
_EVER = 2**62
_OF_ONE = (
    select(_T.time, _T.run_id, _T.max, _T.median, _T.min, _T.n, _T.samples)
    .where(_T.series_id == bindparam("number"), _T.time >= bindparam("since"), _T.time <= bindparam("until"))
    .order_by(_T.time, _T.run_id)
)


def _of_one(connection: Connection, number: int, since: int | None, until: int | None) -> SeriesSamples | None:
    values = {
        "number": number,
        "since": -_EVER if since is None else since,
        "until": _EVER if until is None else until,
    }
    rows = driver_rows(connection, _OF_ONE, values)
    if not rows:
        return None
    time, run_id, highest, median, lowest, count, blobs = zip(*rows, strict=True)
    return SeriesSamples(
        number,
        np.array(time, dtype=np.int64),
        np.array(run_id, dtype=np.int64),
        np.array(highest),
        np.array(median),
        np.array(lowest),
        np.array(count, dtype=np.int64),
        unpack_all(blobs),
    )


@dataclass(frozen=True, slots=True)
class RunSessions:
    """Which session each run belongs to; `run` is sorted, both have shape (runs,)."""

    run: NDArray[np.int64]
    session: NDArray[np.int64]

    def of(self, runs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of the sessions of runs, shape (n,); -1 for runs that came after this was read."""
        if not len(self.run):
            return np.full(len(runs), -1, dtype=np.int64)
        places = np.minimum(np.searchsorted(self.run, runs), len(self.run) - 1)
        return np.where(self.run[places] == runs, self.session[places], -1)


def run_sessions(connection: Connection) -> RunSessions:
    """The session of every run."""
    table = RunTable
    extents = select(table.session_id, func.min(table.id), func.max(table.id), func.count()).group_by(
        table.session_id
    )
    runs, sessions = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for session, first, last, count in connection.execute(extents).all():
        # Runs of one session nearly always follow each other: then its index says all.
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


def session_arrivals(connection: Connection, session_ids: Sequence[int]) -> Iterator[tuple[int, str, int]]:
    """(session, name of the run, series) of every result of these sessions."""
    for start in range(0, len(session_ids), _CHUNK):
        chunk = list(session_ids[start : start + _CHUNK])
        statement = (
            select(RunTable.session_id, RunKindTable.name, ResultTable.series_id)
            .select_from(RunTable)
            .join(RunKindTable, RunKindTable.id == RunTable.kind_id)
            .join(ResultTable, ResultTable.run_id == RunTable.id)
            .where(RunTable.session_id.in_(chunk))
        )
        for row in connection.execute(statement):
            yield row[0], row[1], row[2]


def session_results(connection: Connection, session_id: int) -> dict[int, list[tuple[int, tuple[float, ...]]]]:
    """(series, samples) of every result of a session, by run, in the order of their series."""
    table = ResultTable
    statement = (
        select(table.run_id, table.series_id, table.samples)
        .join(RunTable, RunTable.id == table.run_id)
        .where(RunTable.session_id == session_id)
        .order_by(table.run_id, table.series_id)
    )
    found: dict[int, list[tuple[int, tuple[float, ...]]]] = {}
    for run, number, blob in connection.execute(statement):
        found.setdefault(run, []).append((number, unpack(blob)))
    return found


def session_runs(connection: Connection, session_id: int) -> list[RunRow]:
    """Runs of a session by start, without facts and contents of stacks: those cost most to read."""
    table, kind = RunTable, RunKindTable
    nothing: dict[str, Any] = {}
    statement = (
        select(
            table.id,
            SessionTable.uuid,
            SystemTable.name,
            kind.name,
            kind.partition,
            StackTable.name,
            kind.tool,
            kind.version,
            table.status,
            table.reason,
            table.started_at,
            table.wall_s,
        )
        .join(kind, kind.id == table.kind_id)
        .join(SessionTable, SessionTable.id == table.session_id)
        .join(SystemTable, SystemTable.id == SessionTable.system_id)
        .join(StackTable, StackTable.id == table.stack_id)
        .where(table.session_id == session_id)
        .order_by(table.started_at, table.id)
    )
    rows: list[list[Any]] = [[*row[:6], nothing, *row[6:], nothing] for row in connection.execute(statement)]
    return [RunRow(*row) for row in rows]


def session_artefacts(connection: Connection, session_id: int) -> dict[int, list[Artefact]]:
    """Files that the runs of a session left, by run."""
    table = ArtefactTable
    statement = (
        select(table.run_id, table.kind, table.name, table.sha256, table.size_bytes)
        .join(RunTable, RunTable.id == table.run_id)
        .where(RunTable.session_id == session_id)
        .order_by(table.run_id, table.kind, table.name)
    )
    found: dict[int, list[Artefact]] = {}
    for run, kind, name, sha256, size_bytes in connection.execute(statement):
        found.setdefault(run, []).append(Artefact(kind, name, sha256, size_bytes))
    return found


def session_expectations(
    connection: Connection, session_ids: Sequence[int]
) -> Iterator[tuple[int, str, str, str, str, str]]:
    """(session, name of the run, partition, stack, operation, metric) of all that was to be measured."""
    table = ExpectedTable
    items: dict[int, list[list[str]]] = {}
    for start in range(0, len(session_ids), _CHUNK):
        chunk = list(session_ids[start : start + _CHUNK])
        sets = connection.execute(
            select(table.session_id, table.set_id).where(table.session_id.in_(chunk))
        ).all()
        unknown = {number for _, number in sets} - set(items)
        of_sets = select(ExpectedSetTable.id, ExpectedSetTable.items).where(ExpectedSetTable.id.in_(unknown))
        items |= {row[0]: row[1] for row in connection.execute(of_sets)}
        for session, number in sorted((row[0], row[1]) for row in sets):
            for name, partition, stack, operation, metric in items[number]:
                yield session, name, partition, stack, operation, metric


def run_outcomes(connection: Connection, session_ids: Sequence[int]) -> Iterator[tuple[int, str, str, str]]:
    """(session, name, status, stack) of every run of these sessions."""
    for start in range(0, len(session_ids), _CHUNK):
        chunk = list(session_ids[start : start + _CHUNK])
        statement = (
            select(RunTable.session_id, RunKindTable.name, RunTable.status, StackTable.name)
            .join(RunKindTable, RunKindTable.id == RunTable.kind_id)
            .join(StackTable, StackTable.id == RunTable.stack_id)
            .where(RunTable.session_id.in_(chunk))
        )
        for row in connection.execute(statement):
            yield row[0], row[1], row[2], row[3]


def run_nodes(connection: Connection, numbers: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Nodes of some runs by their numbers; those of which none are known are left out."""
    found = {}
    for start in range(0, len(numbers), _CHUNK):
        chunk = list(numbers[start : start + _CHUNK])
        statement = select(RunTable.id, RunTable.facts).where(RunTable.id.in_(chunk))
        for number, facts in connection.execute(statement):
            if nodes := unfolded(facts or {}).get("nodes"):
                found[number] = tuple(map(str, nodes))
    return found


def run_files(connection: Connection, numbers: Sequence[int], kind: str) -> dict[int, list[str]]:
    """SHA-256 of the files of one kind that some runs left, by run in the order of their names."""
    table = ArtefactTable
    found: dict[int, list[str]] = {}
    for start in range(0, len(numbers), _CHUNK):
        chunk = list(numbers[start : start + _CHUNK])
        statement = select(table.run_id, table.sha256).where(table.run_id.in_(chunk), table.kind == kind)
        for number, sha256 in connection.execute(statement.order_by(table.run_id, table.name)):
            found.setdefault(number, []).append(sha256)
    return found


def stack_uses(connection: Connection) -> list[StackUse]:
    """Every content of every stack with the time in which it was used, in order of time."""
    statement = (
        select(
            SystemTable.name,
            RunKindTable.partition,
            StackTable.name,
            StackTable.digest,
            func.min(RunTable.started_at),
            func.max(RunTable.started_at),
            func.count(),
        )
        .join(SessionTable, SessionTable.id == RunTable.session_id)
        .join(SystemTable, SystemTable.id == SessionTable.system_id)
        .join(StackTable, StackTable.id == RunTable.stack_id)
        .join(RunKindTable, RunKindTable.id == RunTable.kind_id)
        .group_by(SystemTable.name, RunKindTable.partition, StackTable.id)
    )
    return sorted((StackUse(*row) for row in connection.execute(statement)), key=lambda use: use.first)


def stack_documents(connection: Connection) -> dict[str, tuple[str, dict[str, object]]]:
    """Name and `stack.json` of every stack by digest."""
    columns = (StackTable.digest, StackTable.name, StackTable.document)
    return {row[0]: (row[1], row[2]) for row in connection.execute(select(*columns))}


def stack_contents(connection: Connection, numbers: Sequence[int]) -> dict[int, dict[str, object]]:
    """`stack.json` of some stacks by their numbers in this history (`ResultRow.content`)."""
    statement = select(StackTable.id, StackTable.document).where(StackTable.id.in_(set(numbers)))
    return {row[0]: row[1] for row in connection.execute(statement)}


def sessions(connection: Connection) -> dict[str, list[SessionRow]]:
    """All sessions by system, newest first."""
    counted = select(RunTable.session_id, func.count()).group_by(RunTable.session_id)
    runs = {row[0]: row[1] for row in connection.execute(counted)}
    table = SessionTable
    statement = (
        select(
            table.id,
            table.uuid,
            SystemTable.name,
            table.suite,
            table.origin,
            table.status,
            table.started_at,
            table.ended_at,
            table.attributes,
        )
        .join(SystemTable, SystemTable.id == table.system_id)
        .order_by(table.started_at.desc(), table.id.desc())
    )
    found: dict[str, list[SessionRow]] = {}
    for row in connection.execute(statement):
        values: list[Any] = [*row, runs.get(row[0], 0)]
        found.setdefault(row[2], []).append(SessionRow(*values))
    return found


def series(connection: Connection, extents: Mapping[int, Stamp]) -> list[SeriesRow]:
    """Every series that has results, in the order of `History.series`."""
    statement = (
        select(
            SeriesTable.id,
            SystemTable.name,
            SeriesTable.partition,
            SeriesTable.stack,
            CaseTable.benchmark,
            CaseTable.parameters,
            SeriesTable.metric,
        )
        .join(SystemTable, SystemTable.id == SeriesTable.system_id)
        .join(CaseTable, CaseTable.id == SeriesTable.case_id)
    )
    found = []
    for number, system, partition, stack, benchmark, parameters, metric in connection.execute(statement):
        extent = extents.get(number)
        if extent is not None:
            case = Case(benchmark, parameters)
            n, first, last = extent.n, extent.first, extent.last
            found.append(SeriesRow(number, system, partition, stack, case, metric, n, first, last))
    return sorted(
        found, key=lambda r: (r.system, r.case.benchmark, r.case.canonical, r.partition, r.stack, r.metric)
    )
