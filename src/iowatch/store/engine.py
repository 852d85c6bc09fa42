"""Opening the history's database: default place, foreign files, version of the schema, SQLite's settings."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError

from iowatch import paths
from iowatch.errors import InputError, IowatchError, MachineError, UsageError
from iowatch.units import format_size

HEAD = "0004"
_BUSY_TIMEOUT_S = 60
# A transaction needs some pages in the log, and the log its index.
_NO_ROOM_BYTES = 2**18
MOUNTS = Path("/proc/self/mounts")
NETWORK_FILE_SYSTEMS = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "lustre",
    "gpfs",
    "beegfs",
    "panfs",
    "9p",
    "afs",
    "ceph",
}


class NoHistoryError(InputError):
    """There is no history at the place that was named."""


def database_url(place: str | None = None) -> str:
    """The database to use: `place` (path or URL), else `IOWATCH_DB`, else `var/iowatch.db` of the checkout.

    `postgresql://…`, as PostgreSQL's own programs take it, means the driver that is installed with iowatch.
    """
    chosen = place or os.environ.get("IOWATCH_DB") or str(paths.var() / "iowatch.db")
    chosen = re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", chosen)
    return chosen if "://" in chosen else f"sqlite:///{Path(chosen).absolute()}"


def open_engine(place: str | None = None, *, create: bool = True) -> Engine:
    """Open, and where needed create or upgrade, the history.

    Args:
        place: path or URL.
        create: whether to make one where there is none; else that is an error.

    Raises:
        InputError: the file is not a history, or was made by a newer iowatch; or there is none.
        MachineError: it cannot be read or written.
    """
    url = database_url(place)
    try:
        engine = create_engine(url, json_serializer=_json, **_of_a_read_only_place(url))
    except (ArgumentError, ModuleNotFoundError) as error:
        raise UsageError(f"cannot use the database '{url}': {error}", hint=_URL_HINT) from error
    if engine.dialect.name == "sqlite":
        if not create and not Path(engine.url.database or "").exists():
            raise _absent(engine)
        _prepare_sqlite(engine)
    try:
        _bring_to_head(engine, create)
    except DatabaseError as error:
        engine.dispose()
        raise _told(error, engine) from error
    except IowatchError:
        engine.dispose()
        raise
    return engine


# Without blanks: 8 bytes less in each run.
_json = partial(json.dumps, separators=(",", ":"))
HOW_TO_FILL = "`iowatch run` or `iowatch import` fills it; --db or IOWATCH_DB names another."
_URL_HINT = "Expected a path or sqlite:///path or postgresql://user@host/name."


def _of_a_read_only_place(url: str) -> dict[str, Any]:
    """How SQLite is told that a file cannot change: else it wants to write beside it even to read it.

    Only where nothing waits in the log: what lies there would not be seen.
    """
    made = make_url(url)
    path = Path(made.database or "")
    if not url.startswith("sqlite") or not path.is_file() or not _is_read_only(path):
        return {}
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        return {}
    address = f"{path.absolute().as_uri()}?immutable=1"
    return {"creator": lambda: sqlite3.connect(address, uri=True, check_same_thread=False)}


def _is_read_only(path: Path) -> bool:
    return bool(os.statvfs(path.parent).f_flag & os.ST_RDONLY)


def told_reason(error: DBAPIError, engine: Engine) -> str:
    """The driver's words, and what SQLite does not say: no room, or a place that may not be written."""
    path = Path(engine.url.database or "")
    if engine.dialect.name != "sqlite" or not path.parent.is_dir():
        return str(error.orig)
    room = os.statvfs(path.parent)
    free = room.f_bavail * room.f_frsize
    if room.f_flag & os.ST_RDONLY:
        return f"{error.orig} (its file system is read-only)"
    if free < _NO_ROOM_BYTES:
        return f"{error.orig} (no space left there: {format_size(free)})"
    if path.exists() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return f"{error.orig} (this account may not write there, which SQLite needs even to read: take a copy)"
    return str(error.orig)


def _absent(engine: Engine) -> NoHistoryError:
    place = engine.url.render_as_string(hide_password=True)
    return NoHistoryError(f"there is no history at {place}", hint=HOW_TO_FILL)


def _told(error: DatabaseError, engine: Engine) -> MachineError:
    """A driver's error as one line that names the database."""
    place = engine.url.render_as_string(hide_password=True)
    return MachineError(
        f"the history {place} cannot be used: {told_reason(error, engine)}",
        hint="Check that it exists, is writable and has room; --db or IOWATCH_DB names another.",
    )


def _prepare_sqlite(engine: Engine) -> None:
    path = Path(engine.url.database or "")
    _refuse_foreign_file(path)
    _refuse_network_file_system(path)
    event.listen(engine, "connect", _set_pragmas)
    event.listen(engine, "begin", _begin)


def _set_pragmas(connection: Any, _record: Any) -> None:
    # The driver's own transactions commit before DDL, which would break migrations: we say BEGIN ourselves.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_S * 1000}")
    with contextlib.suppress(sqlite3.OperationalError):  # in a read-only place the file keeps its own mode
        cursor.execute("PRAGMA journal_mode = WAL")
    # FULL: a committed case survives a power failure, too; a night commits some hundred times at most.
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin(connection: Connection) -> None:
    """Writers take the lock at once: upgrading a read lock in the middle fails instead of waiting."""
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
        raise MachineError(
            f"cannot open the history {path}: {error.strerror}", hint="--db or IOWATCH_DB names another."
        ) from error
    if head and head != b"SQLite format 3\0":
        raise InputError(f"{path} is not an iowatch history: it is not an SQLite database")


def _refuse_network_file_system(path: Path) -> None:
    """SQLite's locks do not hold on network file systems; a damaged history is worse than none."""
    kind = file_system_type(path.parent)
    if kind in NETWORK_FILE_SYSTEMS and not os.environ.get("IOWATCH_ALLOW_NETWORK_SQLITE"):
        raise MachineError(
            f"{path} lies on a network file system ({kind}), where SQLite's locking is not reliable",
            hint="Use a local directory or PostgreSQL (IOWATCH_DB), or set IOWATCH_ALLOW_NETWORK_SQLITE=1.",
        )


def file_system_type(path: Path) -> str:
    """The type in /proc/self/mounts of the mount that holds `path`, or `unknown`."""
    best, kind = "", "unknown"
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return kind
    resolved = str(path.resolve())
    for line in lines:
        _device, mount, found, *_ = line.split()
        mount = mount.replace("\\040", " ")
        inside = resolved == mount or resolved.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def revision(connection: Connection) -> str | None:
    """The schema version in force, or None in an empty database.

    Raises:
        InputError: the database has tables, but not ours.
    """
    tables = set(inspect(connection).get_table_names())
    if "alembic_version" in tables and "session" in tables:
        return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar())
    if tables - {"alembic_version"}:
        raise InputError(
            f"{connection.engine.url.render_as_string(hide_password=True)} is a database of another program "
            f"(tables: {', '.join(sorted(tables)[:5])})",
            hint="--db or IOWATCH_DB names the history.",
        )
    return None


def _bring_to_head(engine: Engine, create: bool) -> None:
    with engine.connect() as connection:
        found = revision(connection)
    if found is None and not create:
        raise _absent(engine)
    if found == HEAD:
        return
    if found is not None and found > HEAD:
        raise InputError(
            f"the history {engine.url.render_as_string(hide_password=True)} has schema version {found}; "
            f"this iowatch knows {HEAD}",
            hint="Use the newer iowatch that wrote it.",
        )
    migrate(engine, "head")


def migrate(engine: Engine, target: str) -> None:
    """Upgrade or downgrade the schema to `target` (a revision or `head`), in one transaction."""
    # Imported here: Alembic costs 0.2 s that a night with a current schema need not pay.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    with engine.connect().execution_options(iowatch_write=True) as connection, connection.begin():
        if engine.dialect.name == "postgresql":
            # Two first starts at once: the second waits here and then finds the work done.
            connection.execute(text("SELECT pg_advisory_xact_lock(4910)"))
        found = revision(connection)
        config.attributes["connection"] = connection
        if target == "head" or found is None or (target != "base" and target > found):
            command.upgrade(config, target)
        else:
            command.downgrade(config, target)
