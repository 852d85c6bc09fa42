"""File systems on which writing fails: full ones and read-only ones (mounts: root only)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _mount(*words: str) -> bool:
    return subprocess.run(["mount", *words], check=False, capture_output=True).returncode == 0


@contextmanager
def small(place: Path, size: str = "32m") -> Iterator[Path | None]:
    """A separate file system at `place`; None where mounting is not allowed."""
    place.mkdir(parents=True, exist_ok=True)
    if not _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)):
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def full(place: Path, left_bytes: int) -> Iterator[None]:
    """Leave only `left_bytes` free in the file system during the block."""
    filler = place / "filler"
    free_space = os.statvfs(place)
    wanted, end = max(1, free_space.f_bavail * free_space.f_frsize - left_bytes), 0
    step = wanted
    with filler.open("wb") as stream:
        # Other processes may write at the same time: allocate in smaller pieces if one large piece fails.
        while end < wanted and step >= 4096:
            try:
                os.posix_fallocate(stream.fileno(), end, min(step, wanted - end))
                end += min(step, wanted - end)
            except OSError:
                step //= 2
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """Mount the file system read-only during the block."""
    assert _mount("-o", "remount,ro", str(place))
    try:
        yield
    finally:
        assert _mount("-o", "remount,rw", str(place))
