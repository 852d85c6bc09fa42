"""Open the database of the history: default location, foreign files, schema version, settings, errors."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError

from iowatch.core import (
    InputError,
    IowatchError,
    MachineError,
    UsageError,
    files,
    format_size,
    hide_passwords,
    settings,
)

_LOG = logging.getLogger(__name__)
# The oldest revision of `migrations/versions` (earlier schemas are not upgraded) and the newest one.
FIRST_SCHEMA = "0102"
SCHEMA_HEAD = "0102"
MOUNT_TABLE = Path("/proc/self/mounts")
NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "panfs", "9p", "afs", "ceph"}
# SQL of the roles in PostgreSQL, for psql.
ROLES_FILE = Path(__file__).with_name("roles.sql")
EMPTY_HISTORY_HINT = "`iowatch run` or `iowatch import` fills it; use --db or IOWATCH_DB for another history."
NOT_PERMITTED_HINT = (
    "The owner of the history gives the account the role of a writer, reviewer or reader (docs/history.md, Several "
    "people)."
)
_URL_HINT = "Expected a path or sqlite:///path or postgresql://user@host/name."
_OTHER_HISTORY_HINT = "Use --db or IOWATCH_DB for another history."
_OUR_TABLES = {"alembic_version", "session", "run", "result"}
_BUSY_TIMEOUT_S = 60
# Checks and exports of a large history take minutes.
_STATEMENT_TIMEOUT_S = 900
# A server that restarts is back within seconds; the first repetition follows after _FIRST_PAUSE_S, then twice as long.
_REPEAT_S = 10.0
_FIRST_PAUSE_S = 0.1
# libpq: a server that is gone without a word is detected within half a minute, not two hours.
_CONNECT_OPTIONS = {"connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "tcp_user_timeout": 30_000}
# A transaction needs some pages in the log, and the log needs its index.
_MIN_FREE_BYTES = 2**18
# No blanks: JSON is the largest part of a run.
_compact_json = partial(json.dumps, separators=(",", ":"))


T = TypeVar("T")


class NotPermittedError(MachineError):
    """The account lacks a right in the database; nothing was written."""


class NoHistoryError(InputError):
    """The history does not exist."""


class HistoryUnavailableError(MachineError):
    """The database cannot be reached at the moment, or another program holds its lock; nothing was written."""


def database_url(place: str | None = None) -> str:
    """Return the URL of the database: `place` (path or URL), else the setting `database`.

    `postgresql://…`, as PostgreSQL's own programs accept it, selects the driver that is installed with iowatch.
    """
    database = place or settings.database_place()
    database = re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", database)
    if "://" in database:
        return database
    return f"sqlite:///{Path(database).absolute()}"


def open_engine(place: str | None = None, *, create: bool = True) -> Engine:
    """Open the history; create it or upgrade its schema if needed.

    Args:
        place: path or URL.
        create: create a missing history; if False, a missing history is an error.

    Raises:
        InputError: not a history, schema too old or too new, or no history.
        MachineError: the database cannot be read or written.
    """
    url = database_url(place)
    try:
        engine = create_engine(url, json_serializer=_compact_json, **_engine_options(url))
    except ModuleNotFoundError as error:
        raise UsageError(
            f"PostgreSQL needs the Python package {error.name}, which is not installed",
            hint=f"{sys.executable} -m pip install 'psycopg[binary]>=3.1'",
        ) from error
    except (ArgumentError, ValueError) as error:
        reason = hide_passwords(str(error))
        raise UsageError(f"cannot use the database '{hide_passwords(url)}': {reason}", hint=_URL_HINT) from error
    _refuse_ambiguous_password(engine)
    _LOG.debug("history: %s", engine_place(engine))
    if engine.dialect.name == "sqlite":
        path = Path(engine.url.database or "")
        if not create and not path.exists():
            raise _no_history_error(engine)
        _refuse_foreign_file(path)
        _refuse_network_file_system(path)
        event.listen(engine, "connect", _set_pragmas)
        event.listen(engine, "begin", _begin_transaction)
    else:
        event.listen(engine, "connect", _set_timeouts)
    try:
        repeat_while_unavailable(partial(_upgrade_to_head, engine, create))
    except IowatchError:
        engine.dispose()
        raise
    return engine


def _refuse_ambiguous_password(engine: Engine) -> None:
    """An @ in a password that is not escaped makes the rest of it part of the host, which messages show.

    Raises:
        UsageError: the host of the URL has an @.
    """
    if "@" in (engine.url.host or ""):
        raise UsageError(
            f"cannot use the database '{engine_place(engine)}': it has more than one @ before the host",
            hint="Write %40 for an @ in the password, or use ~/.pgpass.",
        )


@contextlib.contextmanager
def reported_errors(engine: Engine) -> Iterator[None]:
    """Report errors of the driver in the block as those of iowatch.

    Raises:
        HistoryUnavailableError: the database cannot be reached, or is locked.
        InputError: the data cannot be stored.
        MachineError: any other error of the database.
    """
    try:
        yield
    except DBAPIError as error:
        raise _make_error(error, engine) from error


def repeat_while_unavailable(work: Callable[[], T]) -> T:
    """Call `work`, which is one transaction, again while the database is unavailable, for some seconds.

    Raises:
        HistoryUnavailableError: it is still unavailable.
    """
    pause_s, end = _FIRST_PAUSE_S, time.monotonic() + _REPEAT_S
    while True:
        try:
            return work()
        except HistoryUnavailableError:
            if time.monotonic() + pause_s > end:
                raise
        time.sleep(pause_s)
        pause_s *= 2


def engine_place(engine: Engine) -> str:
    """Return the URL of the database for messages, without its passwords, which may also be parameters."""
    return hide_passwords(engine.url.render_as_string(hide_password=True))


def _no_history_error(engine: Engine) -> NoHistoryError:
    return NoHistoryError(f"there is no history at {engine_place(engine)}", hint=EMPTY_HISTORY_HINT)


def _engine_options(url: str) -> dict[str, Any]:
    """Return options for a server that may restart, or for SQLite on a read-only file system.

    There, SQLite could not write next to the file. A log that has content needs other options.
    """
    if url.startswith("postgresql"):
        stated = make_url(url).query
        others = {name: value for name, value in _CONNECT_OPTIONS.items() if name not in stated}
        return {"pool_pre_ping": True, "connect_args": others}
    if not url.startswith("sqlite"):
        raise ArgumentError("it is neither SQLite nor PostgreSQL")
    path = Path(make_url(url).database or "")
    if not path.is_file() or not _is_read_only(path):
        return {}
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        return {}
    address = f"{path.absolute().as_uri()}?immutable=1"
    return {"creator": lambda: sqlite3.connect(address, uri=True, check_same_thread=False)}


def _is_read_only(path: Path) -> bool:
    return bool(os.statvfs(path.parent).f_flag & os.ST_RDONLY)


_NOT_WRITTEN = "Nothing was written."
# Start of the error code (SQLite's name, PostgreSQL's SQLSTATE; None: no connection), its error, and what to do.
_CAUSES: tuple[tuple[tuple[str, ...], type[IowatchError], str], ...] = (
    (
        ("SQLITE_CORRUPT", "SQLITE_NOTADB", "XX001", "XX002"), MachineError,
        "Keep its files, and restore a backup (docs/history.md).",
    ),
    (
        ("SQLITE_BUSY", "SQLITE_LOCKED", "55P03", "40001", "40P01"), HistoryUnavailableError,
        f"Another program holds its lock. {_NOT_WRITTEN} Repeat when that program has ended.",
    ),
    (
        ("08", "57P", "53300", "no connection"), HistoryUnavailableError,
        f"{_NOT_WRITTEN} Check that the server runs and is reachable, then repeat.",
    ),
    (("57014",), MachineError, f"{_NOT_WRITTEN} No statement may take longer than {_STATEMENT_TIMEOUT_S} s."),
    (
        ("SQLITE_READONLY", "25006"), MachineError,
        f"{_NOT_WRITTEN} Use the account and the host that run the sessions, or a copy of the history (--db).",
    ),
    (
        ("42501",), NotPermittedError, f"{_NOT_WRITTEN} {NOT_PERMITTED_HINT}",
    ),
    (("28", "3D000"), MachineError, f"{_NOT_WRITTEN} Check account, password (~/.pgpass) and database."),
    (("SQLITE_FULL", "53"), MachineError, f"{_NOT_WRITTEN} Free some space, then repeat."),
    (("SQLITE_CONSTRAINT", "SQLITE_MISMATCH", "22", "23"), InputError, f"{_NOT_WRITTEN} The data are damaged."),
)  # fmt: skip


def _make_error(error: DBAPIError, engine: Engine) -> IowatchError:
    """Return the error to report for an error of the driver, with its cause and what to do."""
    reason = database_error_reason(error, engine)
    obstacle = _find_obstacle(engine)
    code = _error_code(error) if obstacle is None else obstacle.code
    message = f"the history {engine_place(engine)} cannot be used: {reason}"
    for prefixes, error_class, hint in _CAUSES:
        if code.startswith(prefixes):
            return error_class(message, hint=hint)
    return MachineError(message, hint=f"{_NOT_WRITTEN} Check that it exists, is writable and has free space.")


def _error_code(error: DBAPIError) -> str:
    """Return SQLite's name or PostgreSQL's SQLSTATE of an error; psycopg gives none for a failed connection."""
    code = getattr(error.orig, "sqlite_errorname", None) or getattr(error.orig, "sqlstate", None)
    if error.connection_invalidated:
        return "no connection"
    if code is not None or not hasattr(error.orig, "sqlstate"):
        return code or ""
    # The server's own answers are FATAL; only these are temporary.
    reason = str(error.orig)
    is_temporary = "FATAL" not in reason or "the database system is" in reason or "too many" in reason
    return "no connection" if is_temporary else "28"


def database_error_reason(error: DBAPIError, engine: Engine) -> str:
    """Return the driver's message and causes that SQLite does not report: no space left, or a read-only location."""
    if not _is_sqlite_file(engine):
        return hide_passwords(" ".join(str(error.orig).split()))
    obstacle = _find_obstacle(engine)
    return str(error.orig) if obstacle is None else f"{error.orig} ({obstacle.text})"


@dataclass(frozen=True)
class _Obstacle:
    """Why SQLite cannot use the directory of a history, which it reports under several codes.

    Attributes:
        code: the error code of SQLite that stands for these.
    """

    text: str
    code: str


def _is_sqlite_file(engine: Engine) -> bool:
    """Whether the history is a file of SQLite in a directory that exists."""
    return engine.dialect.name == "sqlite" and Path(engine.url.database or "").parent.is_dir()


def _find_obstacle(engine: Engine) -> _Obstacle | None:
    """What prevents the use of a history of SQLite; None of other databases, and if nothing does."""
    if not _is_sqlite_file(engine):
        return None
    path = Path(engine.url.database or "")
    if _is_read_only(path):
        return _Obstacle("its file system is read-only", "SQLITE_READONLY")
    free_bytes = files.free_bytes(path.parent)
    if free_bytes < _MIN_FREE_BYTES:
        return _Obstacle(f"no space left on device: {format_size(free_bytes)}", "SQLITE_FULL")
    is_writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    if path.exists() and not is_writable:
        return _Obstacle("this account may not write there, which SQLite needs even to read", "SQLITE_READONLY")
    return None


def _set_timeouts(connection: Any, _record: Any) -> None:
    connection.autocommit = True  # else the settings would end with the first rollback
    connection.execute(f"SET lock_timeout = '{_BUSY_TIMEOUT_S}s'")
    connection.execute(f"SET statement_timeout = '{_STATEMENT_TIMEOUT_S}s'")
    connection.autocommit = False


def _set_pragmas(connection: Any, _record: Any) -> None:
    # The driver's own transactions commit before DDL, which would break migrations: iowatch issues BEGIN itself.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_S * 1000}")
    with contextlib.suppress(sqlite3.OperationalError):  # a read-only file keeps its own mode
        cursor.execute("PRAGMA journal_mode = WAL")
    # FULL: a committed case survives also a power failure; a session commits some hundred times at most.
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_transaction(connection: Connection) -> None:
    """Begin a transaction; writers take the lock at once, because upgrading a read lock fails instead of waiting."""
    writes = connection.get_execution_options().get("iowatch_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _refuse_foreign_file(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            return
        with path.open("rb") as stream:
            head = stream.read(16)
    except OSError as error:
        raise MachineError(f"cannot open the history {path}: {error.strerror}", hint=_OTHER_HISTORY_HINT) from error
    if head and head != b"SQLite format 3\0":
        raise InputError(f"{path} is not an iowatch history: it is not an SQLite database", hint=_OTHER_HISTORY_HINT)


def _refuse_network_file_system(path: Path) -> None:
    """Refuse network file systems, where SQLite's locks do not work and the history would be damaged."""
    file_system = files.file_system_type(str(path.parent.resolve()), MOUNT_TABLE)
    if file_system in NETWORK_FILE_SYSTEMS and not os.environ.get("IOWATCH_ALLOW_NETWORK_SQLITE"):
        raise MachineError(
            f"{path} is on a network file system ({file_system}), where SQLite's locking is not reliable",
            hint="Use a local directory or PostgreSQL (IOWATCH_DB), or set IOWATCH_ALLOW_NETWORK_SQLITE=1.",
        )


def schema_revision(connection: Connection) -> str | None:
    """Return the current schema version, or None for an empty database.

    Raises:
        InputError: the database has tables, but not those of a history.
    """
    tables = set(inspect(connection).get_table_names())
    if tables >= _OUR_TABLES:
        return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar())
    if tables - {"alembic_version"}:
        raise InputError(
            f"{engine_place(connection.engine)} is a database of another program "
            f"(tables: {', '.join(sorted(tables)[:5])})",
            hint=_OTHER_HISTORY_HINT,
        )
    return None


def _require_history(engine: Engine, create: bool) -> str | None:
    """Return the schema version, None if empty; reject versions that this iowatch can neither read nor upgrade."""
    with reported_errors(engine), engine.connect() as connection:
        revision = schema_revision(connection)
    if revision is None and not create:
        raise _no_history_error(engine)
    message = _schema_message(engine, revision)
    if revision is not None and revision > SCHEMA_HEAD:
        raise InputError(message, hint="Use the newer iowatch that wrote it.")
    if revision is not None and revision < FIRST_SCHEMA:
        hint = "Export it with the iowatch that wrote it (`iowatch history export`), and begin a new history."
        raise InputError(f"{message}, and upgrades from {FIRST_SCHEMA} on", hint=hint)
    return revision


def _schema_message(engine: Engine, revision: str | None) -> str:
    return f"the history {engine_place(engine)} has schema version {revision}; this version supports {SCHEMA_HEAD}"


def _upgrade_to_head(engine: Engine, create: bool) -> None:
    """Upgrade an older or empty history."""
    revision = _require_history(engine, create)
    if revision == SCHEMA_HEAD:
        return
    try:
        _run_migrations(engine)
    except NotPermittedError as error:
        action = f"upgrade: {_schema_message(engine, revision)}"
        if revision is None:
            action = f"create a history at {engine_place(engine)}"
        raise NotPermittedError(
            f"this account may not {action}",
            hint="Its owner does, with any command of this version, and then runs `iowatch history roles`.",
        ) from error


def _run_migrations(engine: Engine) -> None:
    """Upgrade the schema to the newest version, in one transaction."""
    # Imported here: Alembic takes 0.2 s, which sessions with a current schema save.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    with reported_errors(engine), engine.execution_options(iowatch_write=True).begin() as connection:
        if engine.dialect.name == "postgresql":
            # Two concurrent first starts: the second waits here and then finds the current schema.
            connection.execute(text("SELECT pg_advisory_xact_lock(4910)"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
