"""One session at a time on a system and on a file system: bandwidth is measured alone."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iowatch import paths
from iowatch.errors import MachineError


def of_file_system(directory: Path) -> Path:
    """The lock of the file system that a directory is, or will be, on: two systems may share it."""
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    return paths.var() / "lock" / f"device-{existing.stat().st_dev:x}.lock"


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold the lock file for the time of the block; the kernel gives it back however the process ends.

    Raises:
        MachineError: another process holds it (its number is told), or the file cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise MachineError(f"cannot make the lock {path}: {error.strerror}") from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MachineError(
                f"another run is going on (process {_holder(path)}, lock {path})",
                hint="Bandwidth is measured alone: wait for it to end.",
            ) from None
        stream.truncate(0)
        stream.write(str(os.getpid()))
        stream.flush()
        yield


def _holder(path: Path) -> str:
    """Number of the process that holds the lock; it has the lock a moment before its number is in the file."""
    for _ in range(20):
        number = path.read_text(encoding="utf-8").strip()
        if number and Path("/proc", number).exists():
            return number
        time.sleep(0.05)
    return number or "unknown"
