"""Files that others read: written whole or not at all, and by one process after the other."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from iowatch.errors import MachineError

_HINT = "Is its directory writable, and is there room?"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """A file for this process alone while it is read, changed and written; a second process waits.

    The lock is a file beside it, `.<name>.lock`, which stays: removing it could give two hosts that share a
    file system a lock each. The kernel gives the lock back however the process ends.

    Args:
        path: need not exist yet; directories above it are made.

    Raises:
        MachineError: the lock cannot be made, or the file system has none.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise _not_locked(path, error) from error
    with os.fdopen(descriptor):
        try:
            with suppress(PermissionError):  # another user made it
                # Whoever may write into the directory may lock.
                os.fchmod(descriptor, path.parent.stat().st_mode & 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise _not_locked(path, error) from error
        yield


def _not_locked(path: Path, error: OSError) -> MachineError:
    return MachineError(f"cannot lock {path}: {error.strerror}", hint=_HINT)


def write_whole(path: Path, text: str, mode: int | None = None) -> None:
    """Write beside, sync and rename: a reader sees the old file or the new one, never half of it.

    Args:
        path: directories above it are made.
        mode: permissions; None keeps those of the file that is there, and leaves a new one to the umask.

    Raises:
        MachineError: it cannot be written; what was there is as before.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = mode if mode is not None else _mode_of(path)
        try:
            beside.unlink(missing_ok=True)  # of a killed process that had our number
            beside.touch(mode=0o666 if kept is None else 0o600)
            with beside.open("w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            if kept is not None:
                beside.chmod(kept)
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror}", hint=_HINT) from error


def _mode_of(path: Path) -> int | None:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None
