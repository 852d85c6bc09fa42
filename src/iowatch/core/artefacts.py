"""The artefact store: each output file of a run once, by its content, in `var/artefacts/<2 digits>/<sha256>`."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from iowatch.core.errors import InputError, MachineError, UsageError
from iowatch.core.files import DRAFT_AGE_S, DRAFT_HINT, file_sha256, new_draft
from iowatch.core.settings import var_directory

_HEXADECIMAL = frozenset("0123456789abcdef")


def _store_directory() -> Path:
    return var_directory() / "artefacts"


def _is_sha256(text: str) -> bool:
    return len(text) == 64 and set(text) <= _HEXADECIMAL


def artefact_path(sha256: str) -> Path:
    """Return the path of the content with this SHA-256.

    Raises:
        InputError: not 64 hexadecimal digits (the digest becomes part of a path).
    """
    if not _is_sha256(sha256):
        raise InputError(f"'{sha256}' is not a SHA-256")
    return _store_directory() / sha256[:2] / sha256


@dataclass(frozen=True)
class StoredFile:
    """A file in the artefact store."""

    sha256: str
    size_bytes: int


def store_artefact(source: Path) -> StoredFile:
    """Store a copy of a file.

    Equal content is stored once; storing it again resets its age, and replaces a damaged copy.
    """
    digest, size = file_sha256(source), source.stat().st_size
    target = artefact_path(digest)
    if is_intact(target, size):
        with suppress(PermissionError):  # owned by another user, in a shared var/
            os.utime(target)
        return StoredFile(digest, size)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = new_draft(target)
    try:
        shutil.copyfile(source, draft)
        if file_sha256(draft) != digest:
            raise MachineError(f"{source} changed while it was copied, or its copy is damaged", hint=DRAFT_HINT)
        _sync(draft)
        draft.replace(target)
        _sync(target.parent)
    finally:
        draft.unlink(missing_ok=True)
    return StoredFile(digest, size)


def is_intact(artefact: Path, size_bytes: int) -> bool:
    """Whether an artefact exists with this size and the content that its name states."""
    try:
        return artefact.stat().st_size == size_bytes and file_sha256(artefact) == artefact.name
    except OSError:
        return False


def damaged_artefacts(sample: int) -> list[Path]:
    """Return artefacts whose content is not what their names state, of one of the 256 directories of the store.

    Args:
        sample: number of the directory, modulo 256; the number of the day checks all files in 256 days.
    """
    directory = _store_directory() / f"{sample % 256:02x}"
    return [path for path in sorted(directory.glob("?" * 64)) if not _is_intact_or_pruned(path)]


def _is_intact_or_pruned(path: Path) -> bool:
    try:
        return file_sha256(path) == path.name
    except FileNotFoundError:
        return True
    except OSError:  # a disk that cannot read it
        return False


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class PruneResult:
    """Removed and remaining artefacts.

    Attributes:
        removed: SHA-256 of each removed file (in a dry run: each file that would be removed), oldest first.
        freed_bytes: total size of the removed files.
        kept_bytes: total size of the remaining files.
        over_bytes: excess of `kept_bytes` over the limit, because the remaining files are protected; 0 if none.
    """

    removed: tuple[str, ...]
    freed_bytes: int
    kept_bytes: int
    over_bytes: int


def prune_artefacts(
    *,
    max_age_s: float | None = None,
    max_bytes: int | None = None,
    protected: Collection[str] = (),
    dry_run: bool = False,
) -> PruneResult:
    """Remove artefacts above an age, then the oldest until the total size is within a limit.

    The history keeps every result and the SHA-256 of removed files.

    Args:
        max_age_s: maximum age since a file was stored; None for no limit.
        max_bytes: maximum total size; None for no limit.
        protected: SHA-256 of files that are kept at any age, such as the logs of findings.
        dry_run: report what would be removed, and remove nothing.

    Raises:
        UsageError: a limit below 0.
    """
    if (max_age_s is not None and max_age_s < 0) or (max_bytes is not None and max_bytes < 0):
        raise UsageError("a limit of kept files cannot be below 0")
    now = time.time()
    # Time of storage, size and path of each artefact, oldest first; other files in the directory are ignored.
    paths = (path for path in _store_directory().glob("??/*") if _is_sha256(path.name) and not path.is_symlink())
    files = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in paths if path.is_file())
    total_bytes = sum(size for _, size, _ in files)
    remaining_bytes = total_bytes
    removed: list[Path] = []
    for stored_at, size, path in files:
        is_old = max_age_s is not None and now - stored_at > max_age_s
        is_above_limit = max_bytes is not None and remaining_bytes > max_bytes
        if (is_old or is_above_limit) and path.name not in protected:
            removed.append(path)
            remaining_bytes -= size
    if not dry_run:
        # Drafts are files that a killed process did not finish.
        drafts = (path for path in _store_directory().glob("??/.*") if path.is_file())
        abandoned = [path for path in drafts if now - path.stat().st_mtime > DRAFT_AGE_S]
        for path in [*abandoned, *removed]:
            path.unlink(missing_ok=True)
    over_bytes = 0
    if max_bytes is not None:
        over_bytes = max(0, remaining_bytes - max_bytes)
    return PruneResult(
        removed=tuple(path.name for path in removed),
        freed_bytes=total_bytes - remaining_bytes,
        kept_bytes=remaining_bytes,
        over_bytes=over_bytes,
    )
