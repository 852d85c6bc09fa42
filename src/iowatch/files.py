"""Files that others read: written whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from iowatch.errors import MachineError


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
        raise MachineError(
            f"cannot write {path}: {error.strerror}", hint="Is its directory writable, and is there room?"
        ) from error


def _mode_of(path: Path) -> int | None:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None
