"""Locks of systems and file systems: only one session at a time measures on them.

- Lock files in `var/lock` exclude sessions of one checkout on one host. The kernel releases them with their process.
- In a PostgreSQL history (`History.locks`), advisory locks of the same meaning also exclude sessions of other accounts,
  checkouts and hosts. They belong to one connection that a session keeps open. The server releases them when the
  connection ends for any reason; a session that loses the connection continues, and takes them again when it is back.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import platform
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, InvalidRequestError

from iowatch.core import IowatchError, MachineError, settings
from iowatch.store.engine import NETWORK_FILE_SYSTEMS, engine_place, repeat_while_unavailable, reported_errors

_LOG = logging.getLogger(__name__)

# Held shared by every session, and exclusively while a history is restored.
ALL_SESSIONS = "all sessions"
# A host that is gone without a word releases its locks within half a minute; a site's limits for idle connections would
# end the lock. The names of settings that an older server does not have are skipped.
_SETTINGS = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "idle_session_timeout": "0",
}
_HELD_LOCK_HINT = "Wait for it to end: concurrent I/O disturbs bandwidth, so only one session may run at a time."
_PROGRAM = "iowatch: "
_CONFIGURE = "SELECT set_config(name, CAST(:values AS json) ->> name, false) FROM pg_settings WHERE name = ANY(:names)"
_HOLDER = """
SELECT activity.application_name, activity.usename FROM pg_locks JOIN pg_stat_activity AS activity USING (pid)
WHERE locktype = 'advisory' AND pg_locks.granted AND objsubid = 1 AND activity.pid <> pg_backend_pid()
AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND classid::bigint = :high AND objid::bigint = :low LIMIT 1
"""


def file_system_lock_path(directory: Path) -> Path:
    """Lock of the file system of a directory (which need not exist yet); two systems may share the lock."""
    return settings.var_directory() / "lock" / f"device-{_first_existing(directory).stat().st_dev:x}.lock"


def file_system_lock_name(directory: Path) -> str:
    """Name of the lock in a common history: on two hosts equal for the same network file system, else different."""
    from iowatch.site import storage  # here: reading a history needs no system

    existing = _first_existing(directory)
    identity = storage.find_identity(existing)
    if identity is not None and identity.type in NETWORK_FILE_SYSTEMS:
        return f"file system {identity.type} {identity.source}"
    return f"file system {existing.stat().st_dev:x} of {platform.node()}"


def _first_existing(directory: Path) -> Path:
    return next(path for path in (directory, *directory.parents) if path.exists())


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock file during the block; the kernel releases it when the process ends for any reason.

    Raises:
        MachineError: another process holds it (the message contains its PID), or the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise MachineError(f"cannot write the lock {path}: {error.strerror}") from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MachineError(
                f"another session is running (process {_lock_owner_pid(path)}, lock {path})", hint=_HELD_LOCK_HINT
            ) from None
        stream.truncate(0)
        stream.write(str(os.getpid()))
        stream.flush()
        yield


def _lock_owner_pid(path: Path) -> str:
    """PID of the process that holds the lock; the PID is written shortly after the lock is taken."""
    for _ in range(20):
        number = path.read_text(encoding="utf-8").strip()
        if number and Path("/proc", number).exists():
            return number
        time.sleep(0.05)
    return number or "unknown"


@contextmanager
def exclusive_lock() -> Iterator[None]:
    """Exclude all sessions: hold the locks of all systems of this checkout, and all other locks in this `var/`.

    Raises:
        MachineError: a session is running.
    """
    from iowatch.site import system_names  # here: reading a history needs no system

    directory = settings.var_directory() / "lock"
    file_names = {f"{name}.lock" for name in system_names()}
    file_names |= {path.name for path in directory.glob("*.lock")}
    with ExitStack() as held:
        for name in sorted(file_names):
            held.enter_context(hold_lock(directory / name))
        yield


class HeldLockError(MachineError):
    """Another session holds a lock of the history."""


def lock_key(name: str) -> int:
    """Return the number of a lock, 64 bits with sign, as PostgreSQL's functions take it."""
    return int.from_bytes(hashlib.sha256(f"iowatch {name}".encode()).digest()[:8], "big", signed=True)


class SessionLocks:
    """The locks that this process holds in a history; without effect in SQLite, which the processes of one host use."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._connection: Connection | None = None
        self._requested: dict[str, bool] = {}  # name: whether it is shared
        self._taken: set[str] = set()  # by this connection
        self._reported: set[str] = set()  # conflicts
        self._is_lost = False

    @contextmanager
    def hold(self, name: str, *, shared: bool = False) -> Iterator[None]:
        """Hold a lock during the block.

        Args:
            name: for example `system local`; equal names exclude each other in one history.
            shared: exclude only those that do not share it.

        Raises:
            HeldLockError: another session holds it; the message names its process, host and account.
            HistoryUnavailableError: the database cannot be reached.
        """
        if self.engine.dialect.name != "postgresql":
            yield
            return
        self._requested[name] = shared
        try:
            for conflict in repeat_while_unavailable(self._take_all).values():
                raise conflict
            yield
        finally:
            self._release(name)

    def check(self) -> list[str]:
        """Take the locks again if their connection was lost; without waiting for the server. Each loss is logged once.

        Returns:
            One sentence per lock that another session took meanwhile.
        """
        if not self._requested:
            return []
        is_connected = self._is_connected()
        if is_connected and self._taken == self._requested.keys():
            return []
        if not is_connected and not self._is_lost:
            names = ", ".join(self._requested)
            _LOG.warning("the connection that held the locks (%s) was lost: others may start a session", names)
        self._is_lost = True
        try:
            conflicts = self._take_all()
        except IowatchError:  # the session goes on; what stores its results reports it
            return []
        if not conflicts:
            self._is_lost = False
            _LOG.info("the locks are taken again")
        new = [error for name, error in conflicts.items() if name not in self._reported]
        self._reported |= conflicts.keys()
        problems = [f"{error.message}, after this one lost its lock: bandwidths may be disturbed" for error in new]
        for problem in problems:
            _LOG.warning("%s", problem)
        return problems

    def _take_all(self) -> dict[str, HeldLockError]:
        """Take all requested locks that the connection does not hold, and return the conflicts by name."""
        if not self._is_connected():
            self._disconnect()
            with reported_errors(self.engine):
                self._connection = self._connect()
        conflicts = {}
        for name in self._requested:
            if name in self._taken:
                continue
            if self._call("pg_try_advisory_lock", name):
                self._taken.add(name)
            else:
                conflicts[name] = self._conflict(name)
        return conflicts

    def _conflict(self, name: str) -> HeldLockError:
        key = lock_key(name)
        halves = {"high": key >> 32 & 0xFFFFFFFF, "low": key & 0xFFFFFFFF}
        with reported_errors(self.engine):
            holder = self._connection.execute(text(_HOLDER), halves).first() if self._connection else None
        holder_name = "unknown"
        if holder is not None:
            holder_name = f"{holder.application_name.removeprefix(_PROGRAM)}, account {holder.usename}"
        message = f"another session is running ({holder_name}; lock '{name}' in {engine_place(self.engine)})"
        return HeldLockError(message, hint=_HELD_LOCK_HINT)

    def _call(self, function: str, name: str) -> bool:
        """Call a function of PostgreSQL with a lock; return whether it succeeded."""
        if self._requested[name]:
            function += "_shared"
        if self._connection is None:
            return False
        with reported_errors(self.engine):
            call = text(f"SELECT {function}(:key)")
            return bool(self._connection.execute(call, {"key": lock_key(name)}).scalar())

    def _release(self, name: str) -> None:
        """Release a lock; if the connection is lost, the server has done so."""
        if name in self._taken:
            with suppress(IowatchError, InvalidRequestError):
                self._call("pg_advisory_unlock", name)
        self._taken.discard(name)
        del self._requested[name]
        if not self._requested:
            self._disconnect()

    def _connect(self) -> Connection:
        connection = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        values = {**_SETTINGS, "application_name": f"{_PROGRAM}process {os.getpid()} on {platform.node()}"}
        connection.execute(text(_CONFIGURE), {"values": json.dumps(values), "names": list(values)})
        return connection

    def _is_connected(self) -> bool:
        try:
            return self._connection is not None and self._connection.execute(text("SELECT 1")).scalar() == 1
        except (DBAPIError, InvalidRequestError):  # the latter: an earlier call found the connection lost
            return False

    def _disconnect(self) -> None:
        """Close the connection itself, and do not return it to the pool: the server then releases what it held."""
        self._taken.clear()
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None
