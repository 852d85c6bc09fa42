"""Scratch directories: named after the session that made them, so that leftovers can be told and swept."""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from iowatch.errors import MachineError
from iowatch.units import format_size

_PREFIX = "iowatch-"
_RESERVE = 1.1  # metadata and halves of stripes: a file system that is exactly full fails


def session_directory(base: str | Path, session: str | None = None) -> Path:
    """The directory below `base` that holds all scratch of one session (default: this one)."""
    return Path(base) / f"{_PREFIX}{session or os.environ.get('IOWATCH_SESSION') or _of_reframe()}"


def _of_reframe(process: int | None = None) -> str:
    """A session of a ReFrame that nobody gave one: its host and process tell whether it still goes on."""
    return f"reframe-{platform.node()}-{process or os.getpid()}"


def case_directory(base: str | Path, test: str, environment: str) -> Path:
    """The directory of one case; short and free of special characters, whatever the names are."""
    digest = hashlib.sha256(f"{test}\0{environment}".encode()).hexdigest()[:12]
    return session_directory(base) / digest


def check(base: Path, needed_bytes: int, needed_inodes: int = 1) -> None:
    """See that `base` can be written to and has room.

    Raises:
        MachineError: it cannot be made or written, or less than 1.1 x what is needed is free: bytes or inodes
            of the file system, or of the user's quota on Lustre.
    """
    probe = base / f"{_PREFIX}probe-{os.getpid()}"
    try:
        base.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"iowatch")
        probe.unlink()
        free = os.statvfs(base)
    except OSError as error:
        raise MachineError(
            f"the scratch directory {base} cannot be written: {error.strerror}",
            hint="Name another with --scratch or IOWATCH_SCRATCH.",
        ) from error
    inodes_free = free.f_favail if free.f_files else None  # some file systems do not count inodes
    quota = lustre_quota(base)
    room: list[tuple[str, tuple[int | None, int | None]]] = [
        ("the file system", (free.f_bavail * free.f_frsize, inodes_free)),
        ("your quota", quota or (None, None)),
    ]
    for what, (bytes_left, inodes_left) in room:
        _refuse_if_short(base, what, needed_bytes, bytes_left, format_size)
        _refuse_if_short(base, what, needed_inodes, inodes_left, lambda n: f"{n:,.0f} files")


def _refuse_if_short(
    base: Path, what: str, needed: int, left: int | None, words: Callable[[float], str]
) -> None:
    if left is not None and left < needed * _RESERVE:
        raise MachineError(
            f"the scratch directory {base} has {words(left)} free in {what}; what is to run needs "
            f"{words(needed * _RESERVE)} at the same time",
            hint="Make room there, or name another directory with --scratch or IOWATCH_SCRATCH.",
        )


def lustre_quota(base: Path) -> tuple[int | None, int | None] | None:
    """(bytes, inodes) that the user's quota leaves on a Lustre file system; None where there is none to ask.

    `lfs quota -q -u UID DIR` prints: file system, kbytes, quota, limit, grace, files, quota, limit, grace
    (Lustre Operations Manual, "Configuring and Managing Quotas"); a limit of 0 is none, `*` marks an excess.
    """
    try:
        words = ["lfs", "quota", "-q", "-u", str(os.getuid()), str(base)]
        asked = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=30, check=True)
        numbers = [int(word.rstrip("*")) for word in asked.stdout.split()[1:] if word.rstrip("*").isdecimal()]
    except (OSError, subprocess.SubprocessError):
        return None
    if len(numbers) < 6:
        return None
    kbytes, _, kbytes_limit, files, _, files_limit = numbers[:6]
    return (
        (kbytes_limit - kbytes) * 1024 if kbytes_limit else None,
        files_limit - files if files_limit else None,
    )


def sweep_ended(base: Path) -> int:
    """Remove what ended processes of plain ReFrame on this host left below `base`; returns how many went."""
    prefix = session_directory(base, _of_reframe()).name.removesuffix(str(os.getpid()))
    processes = [path.name.removeprefix(prefix) for path in base.glob(f"{glob.escape(prefix)}*")]
    ended = [process for process in processes if process.isdecimal() and not _goes_on(int(process))]
    return sweep(base, [_of_reframe(int(process)) for process in ended])


def _goes_on(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def sweep(base: Path, sessions: list[str]) -> int:
    """Remove what ended sessions left below `base`; returns how many directories went."""
    swept = 0
    for session in sessions:
        leftover = session_directory(base, session)
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)
            swept += 1
    return swept
