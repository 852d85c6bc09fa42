"""Locks of systems and file systems in `var/lock`: one session at a time; the kernel releases them with their process.

A PostgreSQL history holds locks of the same meaning (`History.locks`), which other checkouts and hosts see.
"""

from __future__ import annotations

import fcntl
import os
import platform
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from iowatch.core import MachineError, settings
from iowatch.site import storage, system_names
from iowatch.store import HELD_LOCK_HINT, NETWORK_FILE_SYSTEMS


def file_system_lock_path(directory: Path) -> Path:
    """Lock of the file system of a directory (which need not exist yet); two systems may share the lock."""
    return settings.var_directory() / "lock" / f"device-{_first_existing(directory).stat().st_dev:x}.lock"


def file_system_lock_name(directory: Path) -> str:
    """Name of the lock in a common history: on two hosts equal for the same network file system, else different."""
    existing = _first_existing(directory)
    found = storage.find_identity(existing)
    if found is not None and found.type in NETWORK_FILE_SYSTEMS:
        return f"file system {found.type} {found.source}"
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
                f"another session is running (process {_lock_owner_pid(path)}, lock {path})", hint=HELD_LOCK_HINT
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
    directory = settings.var_directory() / "lock"
    known = {f"{name}.lock" for name in system_names()} | {path.name for path in directory.glob("*.lock")}
    with ExitStack() as held:
        for name in sorted(known):
            held.enter_context(hold_lock(directory / name))
        yield
