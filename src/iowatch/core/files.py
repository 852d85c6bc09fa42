"""Files and directories: the checkout and its `var/`, locks, atomic writes, the artefact store, mounted file systems.

The artefact store keeps each output file of a run once, by its content, in `var/artefacts/<2 digits>/<sha256>`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from iowatch.core.errors import InputError, MachineError, UsageError


def checkout_root() -> Path:
    """Return the directory that contains `systems/`, `benchmarks/` and `reference/`.

    `IOWATCH_ROOT` names it; without it, the checkout from which this package was installed, or the nearest
    parent of the working directory with these directories.

    Raises:
        MachineError: no candidate is a checkout.
    """
    named = os.environ.get("IOWATCH_ROOT")
    module_path = Path(__file__).resolve()
    candidates = [Path(named)] if named else [module_path.parents[3], Path.cwd(), *Path.cwd().parents]
    for candidate in candidates:
        if (candidate / "systems").is_dir() and (candidate / "benchmarks").is_dir():
            return candidate
    raise MachineError(
        f"no iowatch checkout found (searched {candidates[0]})",
        hint="Set IOWATCH_ROOT to the clone that holds systems/ and benchmarks/.",
    )


def var_directory() -> Path:
    """Return the directory for all files that runs write: `IOWATCH_VAR`, or `var/` in the checkout."""
    named = os.environ.get("IOWATCH_VAR")
    return Path(named) if named else checkout_root() / "var"


_HINT = "Is its directory writable, and is there free space?"
_HEXADECIMAL = frozenset("0123456789abcdef")
# A copy left by a killed process; a running copy is renamed within seconds.
_DRAFT_AGE_S = 24 * 3600.0
_OCTAL_ESCAPE = re.compile(r"\\([0-7]{3})")


def unescape_octal(text: str) -> str:
    """Return a field of a mount table with the kernel's octal escapes (`\\040` for a blank) replaced."""
    return _OCTAL_ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), text)


def mount_types(table: Path) -> list[tuple[str, str]]:
    """Return sorted (mount point, type) of a table such as /proc/self/mounts; an empty list if it is unreadable.

    If two file systems are mounted on one mount point, the later one counts.
    """
    found: dict[str, str] = {}
    try:
        lines = table.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        fields = line.split()
        if len(fields) >= 3:
            found[unescape_octal(fields[1])] = fields[2]
    return sorted(found.items())


def file_system_type(path: str, table: Path = Path("/proc/self/mounts")) -> str:
    """Return the kernel's name for the file system of an absolute path, for example `lustre`, or `unknown`."""
    mounts = mount_types(table)
    above = [(point, kind) for point, kind in mounts if path == point or path.startswith(point.rstrip("/") + "/")]
    return max(above, key=lambda entry: len(entry[0]), default=("/", "unknown"))[1]


def free_bytes(directory: Path) -> int:
    """Return the bytes that this user may still write on the file system of a directory."""
    facts = os.statvfs(directory)
    return facts.f_bavail * facts.f_frsize


@contextmanager
def exclusive_file_lock(path: Path) -> Iterator[None]:
    """Lock a file exclusively while it is read, changed and written; other processes wait.

    The lock is the file `.<name>.lock` in the same directory. It is never removed: after a removal, two hosts that
    share a file system could each hold a lock. The kernel releases the lock however the process ends.

    Args:
        path: need not exist yet; its parent directories are created.

    Raises:
        MachineError: the lock cannot be created, or the file system does not support locks.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise _lock_error(path, error) from error
    with os.fdopen(descriptor):
        try:
            with suppress(PermissionError):  # created by another user
                # Every user who may write to the directory may lock.
                os.fchmod(descriptor, path.parent.stat().st_mode & 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise _lock_error(path, error) from error
        yield


def _lock_error(path: Path, error: OSError) -> MachineError:
    return MachineError(f"cannot lock {path}: {error.strerror}", hint=_HINT)


def new_draft(path: Path) -> Path:
    """Return the path of a temporary file next to a file, which it replaces when it is complete.

    Drafts of the same file that killed processes left are removed if they are older than a day, or of this process id.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    name = re.compile(rf"\.{re.escape(path.name)}\.\d+(-wal|-shm|-journal)?")
    with suppress(OSError):
        for old in (entry for entry in os.scandir(path.parent) if name.fullmatch(entry.name)):
            if Path(old).name == draft.name or time.time() - old.stat(follow_symlinks=False).st_mtime > _DRAFT_AGE_S:
                Path(old).unlink(missing_ok=True)
    return draft


@contextmanager
def open_atomically(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """Open a temporary file for the block, then sync and rename: readers see the old or the new content.

    Args:
        path: its parent directories are created.
        mode: permissions; None keeps those of an existing file and applies the umask to a new one.

    Raises:
        MachineError: the file cannot be written; an existing file is unchanged, as after any exception of the block.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = new_draft(path)
        kept = stat.S_IMODE(path.stat().st_mode) if mode is None and path.exists() else mode
        try:
            draft.touch(mode=0o666 if kept is None else 0o600)
            with draft.open("wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            if kept is not None:
                draft.chmod(kept)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror}", hint=_HINT) from error


def write_atomically(path: Path, text: str, mode: int | None = None) -> None:
    """Write a text as `open_atomically` does.

    Raises:
        MachineError: the file cannot be written; an existing file is unchanged.
    """
    with open_atomically(path, mode) as stream:
        stream.write(text.encode())


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


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of the content of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def store_artefact(source: Path) -> tuple[str, int]:
    """Store a copy of a file; return its SHA-256 and its size in bytes.

    Equal content is stored once; storing it again resets its age, and replaces a damaged copy.
    """
    digest, size = file_sha256(source), source.stat().st_size
    target = artefact_path(digest)
    if is_intact(target, size):
        with suppress(PermissionError):  # owned by another user, in a shared var/
            os.utime(target)
        return digest, size
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = new_draft(target)
    try:
        shutil.copyfile(source, draft)
        if file_sha256(draft) != digest:
            raise MachineError(f"{source} changed while it was copied, or its copy is damaged", hint=_HINT)
        _sync(draft)
        draft.replace(target)
        _sync(target.parent)
    finally:
        draft.unlink(missing_ok=True)
    return digest, size


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
    total = left = sum(size for _, size, _ in files)
    removed: list[Path] = []
    for stored_at, size, path in files:
        old = max_age_s is not None and now - stored_at > max_age_s
        above = max_bytes is not None and left > max_bytes
        if (old or above) and path.name not in protected:
            removed.append(path)
            left -= size
    if not dry_run:
        drafts = (path for path in _store_directory().glob("??/.*") if path.is_file())
        for path in [*(path for path in drafts if now - path.stat().st_mtime > _DRAFT_AGE_S), *removed]:
            path.unlink(missing_ok=True)
    over = max(0, left - max_bytes) if max_bytes is not None else 0
    return PruneResult(tuple(path.name for path in removed), total - left, left, over)
