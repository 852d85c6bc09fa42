"""Care of a history over the years: check it, keep copies of it, give room back."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, bindparam, case, delete, func, literal, not_, select, text
from sqlalchemy.exc import DatabaseError

from iowatch import artefacts
from iowatch.errors import InputError, MachineError, UsageError
from iowatch.model import summarise
from iowatch.store.copy import copy
from iowatch.store.engine import HEAD
from iowatch.store.history import History
from iowatch.store.packing import number_of_samples, unpack
from iowatch.store.schema import ArtefactTable, ResultTable, RunTable, SeriesTable, SessionTable
from iowatch.units import format_size, format_time

_NEWEST = 10_000
_LONG_S = 2 * 86400
_SAMPLE_BYTES = 8


@dataclass(frozen=True)
class Checked:
    """Faults are damage; notes are worth knowing and no damage."""

    size_bytes: int
    sessions: int
    runs: int
    results: int
    faults: tuple[str, ...]
    notes: tuple[str, ...]


def check(history: History) -> Checked:
    """Look for damage: of the file, of references, of samples and summaries, and what has been left behind.

    Raises:
        MachineError: the database cannot be read at all.
    """
    with history.reading() as connection:
        faults = [*_file(connection), *_rows(connection)]
        return Checked(
            size_bytes=size_bytes(connection),
            sessions=_count(connection, select(func.count(SessionTable.id))),
            runs=_count(connection, select(func.count(RunTable.id))),
            results=_count(connection, select(func.count()).select_from(ResultTable)),
            faults=tuple(faults),
            notes=tuple(_notes(connection)),
        )


def size_bytes(connection: Connection) -> int:
    """Size of the database, without SQLite's log."""
    if connection.dialect.name != "sqlite":
        return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
    sizes = (connection.execute(text(f"PRAGMA {name}")).scalar_one() for name in ("page_count", "page_size"))
    pages, page = sizes
    return int(pages) * int(page)


def _count(connection: Connection, statement: Any) -> int:
    return int(connection.execute(statement).scalar_one())


def _file(connection: Connection) -> Iterator[str]:
    if connection.dialect.name != "sqlite":
        return  # PostgreSQL keeps its own files and enforces references (pg_amcheck looks deeper)
    try:
        for row in connection.execute(text("PRAGMA integrity_check(20)")):
            if row[0] != "ok":
                yield f"file: {row[0]}"
        for row in connection.execute(text("PRAGMA foreign_key_check")):
            yield f"table {row[0]}: row {row[1]} refers to a row of {row[2]} that is not there"
    except DatabaseError as error:
        yield f"file: {error.orig}"


def _rows(connection: Connection) -> Iterator[str]:
    table = ResultTable
    disordered = not_((table.min <= table.median) & (table.median <= table.max) & (table.min <= table.mean))
    strangers = (
        select(func.count(table.run_id))
        .join(RunTable, RunTable.id == table.run_id)
        .join(SessionTable, SessionTable.id == RunTable.session_id)
        .join(SeriesTable, SeriesTable.id == table.series_id)
    )
    searches = {
        "results whose summaries are out of order": select(func.count(table.run_id)).where(disordered),
        "results in a series of another system": strangers.where(
            SeriesTable.system_id != SessionTable.system_id
        ),
        "results at another time than their run": strangers.where(table.time != RunTable.started_at),
    }
    numbers = {what: _count(connection, statement) for what, statement in searches.items()}
    for what, number in {"results without all their samples": _cut(connection), **numbers}.items():
        if number:
            yield f"{number} {what}"
    newest = select(
        table.run_id, table.series_id, table.samples, table.n, table.max, table.median, table.min, table.mean
    )
    for run, series, blob, *summary in connection.execute(newest.order_by(table.run_id.desc()).limit(_NEWEST)):
        if not _agrees(blob, summary):
            yield f"result of run {run} in series {series}: its summary is not that of its samples"


def _cut(connection: Connection) -> int:
    """Results whose blob does not hold as many samples as they say: forms of blobs are few, results are not."""
    table = ResultTable
    length = func.length(table.samples)
    # What a blob of floats begins with says nothing, and would make each a form of its own.
    head = case((length % _SAMPLE_BYTES == 0, literal(b"")), else_=func.substr(table.samples, 1, 2))
    forms = select(head, length, table.n, func.count()).group_by(head, length, table.n)
    return sum(
        number
        for begin, size, n, number in connection.execute(forms)
        if n < 1 or number_of_samples(begin, size) != n
    )


def _agrees(blob: bytes, stored: list[float]) -> bool:
    if number_of_samples(blob[:2], len(blob)) != stored[0]:
        return True  # told already
    try:
        found = summarise(unpack(blob))
    except InputError:
        return False
    return [found.n, found.max, found.median, found.min] == stored[:4]


def _notes(connection: Connection) -> Iterator[str]:
    unfinished = select(SessionTable.uuid).where(
        SessionTable.status == "running", SessionTable.started_at < time.time() - _LONG_S
    )
    for uuid in connection.execute(unfinished).scalars():
        yield f"session {uuid} never ended; the next run on its system closes it"
    table = SessionTable
    ahead = select(table.uuid, table.started_at).where(table.started_at > time.time() + _LONG_S)
    for uuid, moment in connection.execute(ahead):
        began = format_time(datetime.fromtimestamp(moment, UTC))
        yield f"session {uuid} lies in the future ({began}): the clock was wrong"
    backwards = select(func.count(table.id)).where(table.ended_at < table.started_at)
    if number := _count(connection, backwards):
        yield f"{number} sessions ended before they began: the clock was set back meanwhile"
    kept = select(ArtefactTable.sha256, func.max(ArtefactTable.size_bytes)).group_by(ArtefactTable.sha256)
    gone = [size for digest, size in connection.execute(kept) if not artefacts.path_of(digest).exists()]
    if gone:
        size = format_size(sum(gone))
        yield f"{len(gone)} files of runs ({size}) are not in var/artefacts: pruned, or kept elsewhere"


def vacuum(history: History) -> tuple[int, int]:
    """Give room back and refresh statistics; returns the sizes before and after, in bytes.

    SQLite needs as much free space as the history is large, and nobody writes meanwhile.

    Raises:
        MachineError: no room, or somebody writes for too long.
    """
    with history.reading() as connection:
        before = size_bytes(connection)
    if history.engine.dialect.name == "sqlite":
        with _raw(history) as raw:
            raw.execute("VACUUM")
            raw.execute("ANALYZE")
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    else:
        with history.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
            # Series grow in the middle of their index and fingerprints come in no order: pages stay half empty.
            for table in ("run", "result"):
                connection.execute(text(f"REINDEX TABLE CONCURRENTLY {table}"))
    with history.reading() as connection:
        return before, size_bytes(connection)


@contextmanager
def _driver(history: History) -> Iterator[sqlite3.Connection]:
    """SQLite's own connection, outside any transaction."""
    pooled = history.engine.raw_connection()
    try:
        driver = pooled.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        yield driver
    finally:
        pooled.close()


@contextmanager
def _raw(history: History) -> Iterator[sqlite3.Connection]:
    """The same for writing into the history, with its errors told."""
    try:
        with _driver(history) as driver:
            yield driver
    except sqlite3.Error as error:
        raise MachineError(
            f"the history {history.engine.url.database} refused: {error}",
            hint="Free room there, or wait for who writes, then repeat.",
        ) from error


def backup(history: History, target: Path) -> int:
    """Write the whole history into a new SQLite file while others go on; returns its size in bytes.

    The file appears under its name when it is whole. From PostgreSQL it is what `iowatch history copy`
    makes: enough to go on with iowatch elsewhere; a site backs up its server with the server's own means, too.

    Raises:
        UsageError: the target exists.
        MachineError: it cannot be written.
    """
    if target.exists():
        raise UsageError(f"{target} exists already", hint="Name a new file: a backup replaces nothing.")
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if history.engine.dialect.name == "sqlite":
            with _driver(history) as raw, closing(sqlite3.connect(beside)) as copied:
                raw.backup(copied)
        else:
            with History.open(str(beside)) as made:
                copy(history, made)
        _settle(beside)
        beside.replace(target)
    except (sqlite3.Error, OSError) as error:
        raise MachineError(
            f"cannot write {target}: {error}", hint="Check the directory and its room."
        ) from error
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{beside}{suffix}").unlink(missing_ok=True)
    return target.stat().st_size


def _settle(path: Path) -> None:
    """One file without a log beside it, on the disk, readable again."""
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA journal_mode = DELETE")
    judge_backup(path)
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def judge_backup(path: Path) -> None:
    """Refuse a file that is no whole history of a version known here.

    Raises:
        InputError: it is not.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            damage = opened.execute("PRAGMA quick_check(1)").fetchone()[0]
            tables = {row[0] for row in opened.execute("SELECT name FROM sqlite_master")}
            ours = {"alembic_version", "session", "result"} <= tables
            version = opened.execute("SELECT version_num FROM alembic_version").fetchone()[0] if ours else None
    except (sqlite3.Error, TypeError) as error:
        raise InputError(f"{path} is not a backup of a history: {error}") from error
    if damage != "ok":
        raise InputError(f"{path} is damaged: {damage}", hint="Take an older backup.")
    if version is None:
        raise InputError(f"{path} is not a backup of a history: it is a database of another program")
    if version > HEAD:
        raise InputError(f"{path} has schema version {version}; this iowatch knows {HEAD}")


def restore(source: Path, place: str | None = None, replace: bool = False) -> Path | None:
    """Put a backup into a history: an empty one, or with `replace` instead of what is there.

    Returns:
        Where what was there has been kept (SQLite), or None if it was empty.

    Raises:
        InputError: the source is no whole backup.
        UsageError: the history is not empty.
        MachineError: it cannot be written.
    """
    judge_backup(source)
    with History.open(place) as history:
        if history.engine.dialect.name != "sqlite":
            _refuse_filled(history, "Empty the database first (dropdb, createdb), or add with `history copy`.")
            with History.open(str(source)) as backed_up:
                copy(backed_up, history)
            return None
        kept = None
        if not replace:
            _refuse_filled(history, "--replace puts the backup in its place and keeps the old one beside it.")
        elif history.sessions(limit=1):
            file = Path(str(history.engine.url.database))
            kept = file.with_name(f"{file.name}.before-restore-{time.time_ns()}")
            backup(history, kept)
        with (
            _raw(history) as raw,
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as opened,
        ):
            opened.backup(raw)
    History.open(place).close()  # an older schema is brought up to date
    return kept


def _refuse_filled(history: History, hint: str) -> None:
    if history.sessions(limit=1):
        place = history.engine.url.render_as_string(hide_password=True)
        raise UsageError(f"the history {place} is not empty", hint=hint)


def protected(history: History) -> set[str]:
    """SHA-256 of the files on both sides of every finding: its evidence stays, however old."""
    runs: set[int] = set()
    for row in history.findings():
        for member in row.document["members"]:
            runs |= {member[end] for end in ("run_before", "run_after")} - {None}
    found: set[str] = set()
    numbers = sorted(runs)
    with history.reading() as connection:
        for start in range(0, len(numbers), 500):
            chosen = ArtefactTable.run_id.in_(numbers[start : start + 500])
            found |= set(connection.execute(select(ArtefactTable.sha256).where(chosen)).scalars())
    return found


def forget(history: History, digests: Collection[str]) -> int:
    """Forget names and digests of files that are gone; returns how many. Runs and results stay as they are."""
    gone = set(digests)
    table = ArtefactTable
    with history.writing() as connection:
        known = connection.execute(select(table.run_id, table.kind, table.name, table.sha256))
        keys = [{"run": row[0], "kind_of": row[1], "called": row[2]} for row in known if row[3] in gone]
        if keys:
            one = (table.run_id == bindparam("run")) & (table.kind == bindparam("kind_of"))
            connection.execute(delete(table).where(one & (table.name == bindparam("called"))), keys)
    return len(keys)
