"""Files that runs left: kept once by content in `var/artefacts/<2 digits>/<sha256>`; how long they stay."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from iowatch import paths
from iowatch.errors import InputError, UsageError

_HEXADECIMAL = frozenset("0123456789abcdef")
# A copy that was cut off by a kill; a living one is renamed within seconds.
_DRAFT_AGE_S = 24 * 3600.0


def _store() -> Path:
    return paths.var() / "artefacts"


def _is_sha256(text: str) -> bool:
    return len(text) == 64 and set(text) <= _HEXADECIMAL


def path_of(sha256: str) -> Path:
    """Where the content with this SHA-256 lies.

    Raises:
        InputError: not 64 hexadecimal digits (it becomes part of a path).
    """
    if not _is_sha256(sha256):
        raise InputError(f"'{sha256}' is not a SHA-256")
    return _store() / sha256[:2] / sha256


def keep(source: Path) -> tuple[str, int]:
    """Keep a copy of a file; returns its SHA-256 and its size in bytes.

    The same content again takes no more room, and is as young as if it were new.
    """
    with source.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    target = path_of(digest)
    size = source.stat().st_size
    if target.exists():
        with contextlib.suppress(PermissionError):  # another user's, in a shared var/
            os.utime(target)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{digest}.{os.getpid()}")
        shutil.copyfile(source, beside)
        beside.replace(target)
    return digest, size


@dataclass(frozen=True)
class Pruned:
    """What became of the kept files.

    Attributes:
        removed: SHA-256 of each file that was (or, in a rehearsal, would be) removed, oldest first.
        freed_bytes: their size in all.
        kept_bytes: size of what is left.
        over_bytes: by how much that is above the limit because the rest is protected; 0 where it is not.
    """

    removed: tuple[str, ...]
    freed_bytes: int
    kept_bytes: int
    over_bytes: int


@dataclass(frozen=True)
class _File:
    path: Path
    size_bytes: int
    kept_at: float


def _files() -> Iterator[_File]:
    """Every kept file; nothing else that may lie in the directory."""
    for path in _store().glob("??/*"):
        if _is_sha256(path.name) and path.is_file() and not path.is_symlink():
            facts = path.stat()
            yield _File(path, facts.st_size, facts.st_mtime)


def _remove_drafts(now: float) -> None:
    for path in _store().glob("??/.*"):
        if path.is_file() and now - path.stat().st_mtime > _DRAFT_AGE_S:
            path.unlink(missing_ok=True)


def prune(
    *,
    max_age_s: float | None = None,
    max_bytes: int | None = None,
    protected: Collection[str] = (),
    rehearse: bool = False,
) -> Pruned:
    """Remove kept files that are older than an age; then the oldest, until the rest is within a size.

    The history keeps every result and a removed file's SHA-256; only the file itself is gone.

    Args:
        max_age_s: since a file was kept; None for no limit.
        max_bytes: of all kept files together; None for no limit.
        protected: SHA-256 of files that stay whatever their age, such as the logs of findings.
        rehearse: say what would go, and remove nothing.

    Raises:
        UsageError: a limit below 0.
    """
    if (max_age_s is not None and max_age_s < 0) or (max_bytes is not None and max_bytes < 0):
        raise UsageError("a limit of kept files cannot be below 0")
    now = time.time()
    files = sorted(_files(), key=lambda file: file.kept_at)
    left = sum(file.size_bytes for file in files)
    gone: list[_File] = []
    for file in files:
        old = max_age_s is not None and now - file.kept_at > max_age_s
        above = max_bytes is not None and left > max_bytes
        if (old or above) and file.path.name not in protected:
            gone.append(file)
            left -= file.size_bytes
    if not rehearse:
        _remove_drafts(now)
        for file in gone:
            file.path.unlink(missing_ok=True)
    over = max(0, left - max_bytes) if max_bytes is not None else 0
    freed = sum(file.size_bytes for file in gone)
    return Pruned(tuple(file.path.name for file in gone), freed, left, over)
