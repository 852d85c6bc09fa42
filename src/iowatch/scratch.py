"""Scratch directories: named after the session that made them, so that leftovers can be told and swept."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from iowatch.errors import MachineError
from iowatch.units import format_size

_PREFIX = "iowatch-"
_RESERVE = 1.1  # metadata and halves of stripes: a file system that is exactly full fails


def session_directory(base: str | Path, session: str | None = None) -> Path:
    """The directory below `base` that holds all scratch of one session (default: `IOWATCH_SESSION`)."""
    return Path(base) / f"{_PREFIX}{session or os.environ.get('IOWATCH_SESSION', 'reframe')}"


def case_directory(base: str | Path, test: str, environment: str) -> Path:
    """The directory of one case; short and free of special characters, whatever the names are."""
    digest = hashlib.sha256(f"{test}\0{environment}".encode()).hexdigest()[:12]
    return session_directory(base) / digest


def check(base: Path, needed_bytes: int) -> None:
    """See that `base` can be written to and has room.

    Raises:
        MachineError: it cannot be made or written, or has less than 1.1 x `needed_bytes` free.
    """
    probe = base / f"{_PREFIX}probe-{os.getpid()}"
    try:
        base.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"iowatch")
        probe.unlink()
        free = shutil.disk_usage(base).free
    except OSError as error:
        raise MachineError(
            f"the scratch directory {base} cannot be written: {error.strerror}",
            hint="Name another with --scratch or IOWATCH_SCRATCH.",
        ) from error
    if free < needed_bytes * _RESERVE:
        raise MachineError(
            f"the scratch directory {base} has {format_size(free)} free; this suite needs "
            f"{format_size(needed_bytes * _RESERVE)} at the same time",
            hint="Free space there, or name another directory with --scratch or IOWATCH_SCRATCH.",
        )


def sweep(base: Path, sessions: list[str]) -> int:
    """Remove what ended sessions left below `base`; returns how many directories went."""
    swept = 0
    for session in sessions:
        leftover = session_directory(base, session)
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)
            swept += 1
    return swept
