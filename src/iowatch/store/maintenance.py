"""Maintenance of a history: check, backup, copy between SQLite and PostgreSQL, and support for pruning.

A backup is a history in one SQLite file; copying it to an empty history restores it.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, insert, not_, select, text, update
from sqlalchemy.exc import DatabaseError

from iowatch.checks import quarantined_cases
from iowatch.core import (
    DAY_S,
    InputError,
    MachineError,
    UsageError,
    artefacts,
    clean_text,
    files,
    format_count,
    format_size,
    format_time,
    settings,
    utc_now,
)
from iowatch.store import read, write
from iowatch.store.damaged_results import DamageKind, find_damaged_results
from iowatch.store.engine import engine_place
from iowatch.store.history import History
from iowatch.store.partitions import require_partitions
from iowatch.store.schema import (
    SAMPLE_BYTES,
    ArtefactTable,
    Base,
    CaseTable,
    ExpectedSetTable,
    FindingTable,
    ResultTable,
    RunTable,
    SeriesTable,
    SessionTable,
    StackTable,
    SystemTable,
)
from iowatch.store.write import expected_set_digest

_LOG = logging.getLogger(__name__)

# Damaged results that are named one by one, newest first.
_NAMED_RESULTS = 20
_NAMED_FILES = 5
_UNFINISHED_AFTER_S = 2 * DAY_S
_LOW_SPACE_BYTES = 2**30
# Large chunks, because each statement reads the whole table.
_DIGESTS_AT_ONCE = 20_000


@dataclass(frozen=True)
class HistoryCheck:
    """Result of a check: faults are damage; notes need attention but are not damage."""

    size_bytes: int
    sessions: int
    runs: int
    results: int
    faults: tuple[str, ...]
    notes: tuple[str, ...]


def check_history(history: History) -> HistoryCheck:
    """Check the file, references, samples, summaries and kept files for damage; collect what needs attention.

    Raises:
        MachineError: the database cannot be read at all.
    """
    with history.reading() as connection:
        faults = [*_file_faults(connection, "integrity_check(20)")]
        faults += _row_faults(connection)
        faults += _artefact_faults(connection)
        # Outputs that the history refused lie beside it until somebody looks: something measured is not in it.
        faults += [case.text for case in quarantined_cases()]
        return HistoryCheck(
            size_bytes=database_size_bytes(connection),
            sessions=_count(connection, SessionTable),
            runs=_count(connection, RunTable),
            results=_count(connection, ResultTable),
            faults=tuple(faults),
            notes=tuple(_notes(connection)),
        )


def database_size_bytes(connection: Connection) -> int:
    """Return the size of the database without SQLite's log."""
    if connection.dialect.name != "sqlite":
        return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
    pages = connection.execute(text("PRAGMA page_count")).scalar_one()
    return int(pages) * int(connection.execute(text("PRAGMA page_size")).scalar_one())


def _count(connection: Connection, model: type[Base], *conditions: ColumnElement[bool]) -> int:
    statement = select(func.count()).select_from(model).where(*conditions)
    return int(connection.execute(statement).scalar_one())


def _file_faults(connection: Connection, pragma: str) -> Iterator[str]:
    """Yield damage of the SQLite file that `integrity_check` or `quick_check` reports."""
    if connection.dialect.name != "sqlite":
        return  # PostgreSQL checks its own files and enforces references (pg_amcheck checks more)
    try:
        for row in connection.execute(text(f"PRAGMA {pragma}")):
            if row[0] != "ok":
                yield f"file: {' '.join(row[0].split())}"
        for row in connection.execute(text("PRAGMA foreign_key_check")):
            yield f"table {row[0]}: row {row[1]} refers to a missing row of {row[2]}"
    except DatabaseError as error:
        yield f"file: {error.orig}"


def _row_faults(connection: Connection) -> Iterator[str]:
    table = ResultTable
    of_run = RunTable.id == table.run_id
    of_session = of_run & (SessionTable.id == RunTable.session_id) & (SeriesTable.id == table.series_id)
    incomplete = (table.n < 1) | (func.length(table.samples) != SAMPLE_BYTES * table.n)
    ordered = (table.min <= table.median) & (table.median <= table.max) & (table.min <= table.mean)
    searches = {
        "results without all their samples": incomplete,
        "results whose summaries are out of order": not_(ordered),
        "results in a series of another system": of_session & (SeriesTable.system_id != SessionTable.system_id),
        "results at another time than their run": of_run & (table.time != RunTable.started_at),
    }
    for fault, condition in searches.items():
        if number := _count(connection, table, condition):
            yield f"{number} {fault}"
    yield from _result_faults(connection)
    yield from _expected_set_faults(connection)


def _expected_set_faults(connection: Connection) -> Iterator[str]:
    """The expected results of a session show what is missing: a shortened list would hide lost results."""
    edited = 0
    for row in connection.execute(select(ExpectedSetTable.digest, ExpectedSetTable.items)):
        edited += row.digest != expected_set_digest(row.items)
    if edited:
        yield f"{format_count(edited, 'list')} of expected results does not have the content that its digest states"


_DAMAGES: dict[DamageKind, str] = {
    "incomplete": "samples are lost",
    "summary": "its summary is not that of its samples",
    "implausible": "its samples cannot have been measured",
}


def _result_faults(connection: Connection) -> Iterator[str]:
    """Yield one sentence per damaged result, for the newest of them, and their number; incomplete ones are counted."""
    damaged = [result for result in find_damaged_results(connection) if result.damage != "incomplete"]
    for result in damaged[:_NAMED_RESULTS]:
        yield f"result of run {result.run_id} in series {result.series_id}: {_DAMAGES[result.damage]}"
    if len(damaged) > _NAMED_RESULTS:
        yield f"{len(damaged) - _NAMED_RESULTS} more results are damaged like these"


def _artefacts(connection: Connection) -> list[tuple[Path, int]]:
    """Return path and size in bytes of every file that the history names, kept or not."""
    kept = select(ArtefactTable.sha256, func.max(ArtefactTable.size_bytes).label("size")).group_by(ArtefactTable.sha256)
    return [(artefacts.artefact_path(row.sha256), row.size) for row in connection.execute(kept)]


def _artefact_faults(connection: Connection) -> Iterator[str]:
    damaged = [path for path, size in _artefacts(connection) if path.exists() and not artefacts.is_intact(path, size)]
    if damaged:
        paths = ", ".join(map(str, damaged[:_NAMED_FILES]))
        more = f" and {len(damaged) - _NAMED_FILES} more" if len(damaged) > _NAMED_FILES else ""
        yield f"{len(damaged)} kept files do not have the content that their names state; remove them: {paths}{more}"


def _notes(connection: Connection) -> Iterator[str]:
    table, now = SessionTable, utc_now().timestamp()
    unfinished = (table.status == "running") & (table.started_at < now - _UNFINISHED_AFTER_S)
    for uuid in connection.execute(select(table.uuid).where(unfinished)).scalars():
        yield f"session {uuid} never ended; the next run on its system closes it"
    in_future = select(table.uuid, table.started_at).where(table.started_at > now + _UNFINISHED_AFTER_S)
    for row in connection.execute(in_future):
        start = format_time(datetime.fromtimestamp(row.started_at, UTC))
        yield f"session {row.uuid} starts in the future ({start}): wrong system clock"
    if number := _count(connection, table, table.ended_at < table.started_at):
        yield f"{number} sessions ended before they started: the system clock was set back"
    missing = [size for path, size in _artefacts(connection) if not path.exists()]
    if missing:
        size = format_size(sum(missing))
        yield f"{len(missing)} files of runs ({size}) are not in var/artefacts: pruned, or kept elsewhere"
    var = settings.var_directory()
    if var.exists() and (free := files.free_bytes(var)) < _LOW_SPACE_BYTES:
        yield f"{var} is low on disk space ({format_size(free)}): `iowatch history prune`, or move it (IOWATCH_VAR)"


def backup_history(history: History, target: Path) -> int:
    """Write the whole history to a new SQLite file during concurrent use; return its size in bytes.

    The file is renamed into place when it is complete and checked. From PostgreSQL it is a copy by `copy_history`;
    sites also back up their server with its own tools.

    Raises:
        UsageError: the target exists.
        MachineError: the target cannot be written.
    """
    if target.exists():
        raise UsageError(f"{target} exists already", hint="Choose a new file: backup does not overwrite.")
    draft = files.new_draft(target)
    try:
        if history.engine.dialect.name == "sqlite":
            # Page by page: a consistent state despite concurrent writers.
            with closing(history.engine.raw_connection()) as pooled, closing(sqlite3.connect(draft)) as copied:
                driver = pooled.driver_connection
                assert isinstance(driver, sqlite3.Connection)
                driver.backup(copied)
        else:
            with History.open(str(draft)) as draft_history:
                copy_history(history, draft_history)
        with History.existing(str(draft)) as draft_history:
            refuse_damaged_history(draft_history, history)
        with closing(sqlite3.connect(draft)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")  # a single file without a separate log
        with draft.open("rb") as stream:
            os.fsync(stream.fileno())
        draft.replace(target)
    except (sqlite3.Error, OSError) as error:
        raise MachineError(f"cannot write {target}: {error}", hint="Check the directory and its free space.") from error
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{draft}{suffix}").unlink(missing_ok=True)
    return target.stat().st_size


def refuse_damaged_history(history: History, source: History | None = None) -> None:
    """Reject a damaged SQLite file.

    Args:
        source: the history to report as damaged, if this is a copy of its file [default: this one].

    Raises:
        InputError: the file is damaged.
    """
    with history.reading() as connection:
        damage = next(_file_faults(connection, "quick_check(1)"), None)
    if damage is not None:
        place = engine_place((source or history).engine)
        raise InputError(f"{place} is damaged: {damage}", hint="Use an older backup.")


@dataclass(frozen=True, slots=True)
class CopyResult:
    """Number of compared sessions, and of runs, results and findings that were new in the target."""

    sessions: int
    runs: int
    results: int
    findings: int


def copy_history(source: History, target: History, system: str | None = None) -> CopyResult:
    """Copy data missing in the target, one transaction per session: an interrupted copy can be repeated.

    Sessions are identified by UUID, runs by fingerprint, findings by id (the last updated one is kept). Detections are
    not copied: the next update computes them again.

    Args:
        system: copy only this system; None for all.

    Raises:
        UsageError: both are the same history, or the source does not contain the system.
        InputError: the source is damaged.
        MachineError: the source or the target cannot be read or written.
    """
    if source.engine.url == target.engine.url:
        raise UsageError("source and target are the same history")
    systems = source.systems()
    if system is not None and system not in systems:
        raise UsageError(f"the history has no system '{system}'", hint=f"Known: {', '.join(systems)}.")
    refuse_damaged_history(source)
    copier = _HistoryCopier(source, target)
    sessions = sorted(source.sessions(system), key=lambda row: (row.started_at, row.id))
    for position, session in enumerate(sessions, 1):
        copier.copy_session(session.id)
        if position % 100 == 0 or position == len(sessions):
            _LOG.info("%s of %s sessions, %s new runs", position, len(sessions), copier.runs)
    return CopyResult(len(sessions), copier.runs, copier.results, copier.copy_findings(system))


def _select_rows(connection: Connection, column: Any, values: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a column's table in which it has one of the values, ordered by key; texts are cleaned."""
    table = column.class_.__table__
    for chunk in read.in_chunks(list(values)):
        statement = select(table).where(column.in_(chunk)).order_by(*table.primary_key)
        for row in connection.execute(statement).mappings():
            # Results contain no text.
            yield dict(row) if column.class_ is ResultTable else clean_text(dict(row))


# Id column -> the table that it refers to, and the columns that identify a row there in every history.
_REFERENCES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "system_id": (SystemTable, ("name",)),
    "stack_id": (StackTable, ("digest",)),
    "case_id": (CaseTable, ("key",)),
    "series_id": (SeriesTable, ("system_id", "partition", "stack", "case_id", "metric")),
}


class _HistoryCopier:
    """One copy: ids differ between histories, so every reference is translated through the identity of its row."""

    def __init__(self, source: History, target: History) -> None:
        self.source, self.target = source, target
        self.runs = self.results = 0
        self._ids: dict[tuple[str, int], int] = {}

    def copy_session(self, number: int) -> None:
        """Copy one session with its expected set, runs, results and artefacts."""
        with self.source.reading() as left, self.target.writing() as right:
            (row,) = _select_rows(left, SessionTable.id, [number])
            sets = _select_rows(left, ExpectedSetTable.id, [row.pop("expected_set_id")])
            del row["id"]
            self._translate(left, right, row)
            target_id = write.get_or_create_id(right, SessionTable, {"uuid": row.pop("uuid")}, row)
            if row["status"] != "running":
                ended = {"status": row["status"], "ended_at": row["ended_at"]}
                unfinished = (SessionTable.id == target_id) & (SessionTable.status == "running")
                right.execute(update(SessionTable).where(unfinished).values(ended))
            for expected_set in sets:
                write.add_expected_results(right, target_id, expected_set["items"])
            self._copy_runs(left, right, number, target_id)

    def _copy_runs(self, left: Connection, right: Connection, number: int, target_id: int) -> None:
        rows = {row["fingerprint"]: row for row in _select_rows(left, RunTable.session_id, [number])}
        for copied in _select_rows(right, RunTable.fingerprint, rows):
            del rows[copied["fingerprint"]]
        if not rows:
            return
        old_ids = {fingerprint: row.pop("id") for fingerprint, row in rows.items()}
        for row in rows.values():
            row["session_id"] = target_id
            self._translate(left, right, row)
        new = write.insert_if_new(right, RunTable, "fingerprint").returning(RunTable.fingerprint, RunTable.id)
        inserted = right.execute(new, list(rows.values()))
        run_ids = {old_ids[row.fingerprint]: row.id for row in inserted}
        self._copy_rows_of_runs(left, right, ArtefactTable.run_id, run_ids)
        self.results += self._copy_rows_of_runs(left, right, ResultTable.run_id, run_ids)
        self.runs += len(run_ids)

    def _copy_rows_of_runs(self, left: Connection, right: Connection, column: Any, run_ids: Mapping[int, int]) -> int:
        """Copy the rows of a table that belong to runs; return their number."""
        rows = list(_select_rows(left, column, run_ids))
        for row in rows:
            row["run_id"] = run_ids[row["run_id"]]
            self._translate(left, right, row)
        if column.class_ is ResultTable:
            require_partitions(right, [row["time"] for row in rows])
        for chunk in read.in_chunks(rows):
            right.execute(insert(column.class_), chunk)
        return len(rows)

    def _translate(self, left: Connection, right: Connection, row: dict[str, Any]) -> None:
        """Replace the source ids in a row by the target ids of the same rows, which are inserted if absent."""
        for name, (model, identity) in _REFERENCES.items():
            if name not in row:
                continue
            if (name, row[name]) not in self._ids:
                (source_row,) = _select_rows(left, model.id, [row[name]])
                del source_row["id"]
                self._translate(left, right, source_row)
                key = {column: source_row.pop(column) for column in identity}
                self._ids[name, row[name]] = write.get_or_create_id(right, model, key, source_row)
            row[name] = self._ids[name, row[name]]

    def copy_findings(self, system: str | None) -> int:
        """Copy findings that are missing or older in the target; return their number."""
        updated = {row.id: row.updated_at for row in self.target.findings()}
        outdated = [row for row in self.source.findings(system) if updated.get(row.id, -1) < row.updated_at]
        with self.source.reading() as left, self.target.writing() as right:
            for row in _select_rows(left, FindingTable.id, [row.id for row in outdated]):
                self._translate(left, right, row)
                row["document"] = {**row["document"], "members": self._members(left, right, row["document"]["members"])}
                right.execute(write.insert_or_replace(right, FindingTable, "id"), row)
        return len(outdated)

    def _members(self, left: Connection, right: Connection, members: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the members of a finding with the series and run ids of the target."""
        copies = [dict(member) for member in members]
        # The same run has the same fingerprint in both histories.
        source_runs = _runs_of_members(copies)
        fingerprints = {row["id"]: row["fingerprint"] for row in _select_rows(left, RunTable.id, source_runs)}
        target_runs = _select_rows(right, RunTable.fingerprint, fingerprints.values())
        run_ids = {row["fingerprint"]: row["id"] for row in target_runs}
        for member in copies:
            self._translate(left, right, member)
            for name in _RUNS_OF_MEMBER:
                member[name] = run_ids.get(fingerprints.get(member[name], ""))
        return copies


def protected_digests(history: History) -> set[str]:
    """Return the SHA-256 of the artefacts before and after the change of each finding: evidence, never pruned."""
    run_ids: set[int] = set()
    for finding in history.findings():
        run_ids |= _runs_of_members(finding.document["members"])
    with history.reading() as connection:
        return {row["sha256"] for row in _select_rows(connection, ArtefactTable.run_id, sorted(run_ids))}


# Fields of a member of a finding: ids of the runs before and after the change, or None.
_RUNS_OF_MEMBER = ("run_before", "run_after")


def _runs_of_members(members: Iterable[Mapping[str, Any]]) -> set[int]:
    """Return the ids of the runs before and after the change of members of a finding."""
    run_ids: set[int] = set()
    for member in members:
        run_ids |= {member[name] for name in _RUNS_OF_MEMBER if member[name] is not None}
    return run_ids


def delete_artefact_rows(history: History, digests: Collection[str]) -> int:
    """Delete names and digests of removed files; return their number. Runs and results are kept."""
    with history.writing() as connection:
        removed = 0
        for chunk in read.in_chunks(sorted(digests), _DIGESTS_AT_ONCE):
            statement = delete(ArtefactTable).where(ArtefactTable.sha256.in_(chunk))
            removed += connection.execute(statement).rowcount
        return removed
