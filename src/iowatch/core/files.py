"""Files: locks, atomic writes, checksums, mounted file systems."""

from __future__ import annotations

import fcntl
import grp
import hashlib
import logging
import os
import pwd
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from iowatch.core.errors import MachineError

_LOG = logging.getLogger(__name__)
DRAFT_HINT = "Is its directory writable, and is there free space?"
# A copy left by a killed process; a running copy is renamed within seconds.
DRAFT_AGE_S = 24 * 3600.0
_OCTAL_ESCAPE = re.compile(r"\\([0-7]{3})")


def unescape_octal(text: str) -> str:
    """Return a field of a mount table with the kernel's octal escapes (`\\040` for a blank) replaced."""
    return _OCTAL_ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), text)


def mount_types(table: Path) -> list[tuple[str, str]]:
    """Return sorted (mount point, type) of a table such as /proc/self/mounts; an empty list if it is unreadable.

    If two file systems are mounted on one mount point, the later one counts.
    """
    types: dict[str, str] = {}
    try:
        lines = table.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        fields = line.split()
        if len(fields) >= 3:
            types[unescape_octal(fields[1])] = fields[2]
    return sorted(types.items())


def file_system_type(path: str, table: Path = Path("/proc/self/mounts")) -> str:
    """Return the kernel's name for the file system of an absolute path, for example `lustre`, or `unknown`."""
    nearest, nearest_type = "", "unknown"
    for mount_point, mounted_type in mount_types(table):
        contains_path = path == mount_point or path.startswith(mount_point.rstrip("/") + "/")
        if contains_path and len(mount_point) > len(nearest):
            nearest, nearest_type = mount_point, mounted_type
    return nearest_type


def free_bytes(directory: Path) -> int:
    """Return the bytes that this user may still write on the file system of a directory."""
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


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
    return MachineError(f"cannot lock {path}: {error.strerror}", hint=DRAFT_HINT)


def new_draft(path: Path) -> Path:
    """Return the path of a temporary file next to a file, which it replaces when it is complete.

    Drafts of the same file that killed processes left are removed if they are older than a day, or of this process id.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    name = re.compile(rf"\.{re.escape(path.name)}\.\d+(-wal|-shm|-journal)?")
    with suppress(OSError):
        for entry in os.scandir(path.parent):
            if not name.fullmatch(entry.name):
                continue
            age_s = time.time() - entry.stat(follow_symlinks=False).st_mtime
            if entry.name == draft.name or age_s > DRAFT_AGE_S:
                Path(entry).unlink(missing_ok=True)
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
    _refuse_special_file(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = new_draft(path)
        if mode is None and path.exists():
            mode = stat.S_IMODE(path.stat().st_mode)
        try:
            # Nobody else may open the draft of a file with stated permissions.
            draft.touch(mode=0o666 if mode is None else 0o600)
            with draft.open("wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            if mode is not None:
                draft.chmod(mode)
            draft.replace(path)
            _LOG.debug("wrote %s", path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror}", hint=DRAFT_HINT) from error


_SPECIAL_FILES = {
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
}


def special_file_kind(path: Path) -> str | None:
    """What a path is that a file must not replace ("a device"); None for a regular file or none at all.

    Links are followed: `/dev/stdout` is what the standard output is.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return None
    return _SPECIAL_FILES.get(stat.S_IFMT(mode))


def _refuse_special_file(path: Path) -> None:
    """The renamed file would replace a device or a pipe of that name: as root also `/dev/null` for all programs."""
    kind = special_file_kind(path)
    if kind is not None:
        raise MachineError(f"cannot write {path}: it is {kind}, not a file", hint="Name a file.")


def write_atomically(path: Path, text: str, mode: int | None = None) -> None:
    """Write a text as `open_atomically` does.

    Raises:
        MachineError: the file cannot be written; an existing file is unchanged.
    """
    with open_atomically(path, mode) as stream:
        stream.write(text.encode())


def writable_by_others(path: Path) -> str | None:
    """Return how accounts other than this one and root can change a file or directory ("can be written by …"), or None.

    A group with the name of this account is private (the default of Debian and Red Hat): it has no other members.
    """
    status, user = path.stat(), os.geteuid()
    if status.st_uid not in (0, user):
        return f"belongs to the account {_account_name(status.st_uid)}"
    if status.st_mode & stat.S_IWOTH:
        return "can be written by every account"
    if not status.st_mode & stat.S_IWGRP or status.st_gid == 0:
        return None
    group = _group_name(status.st_gid)
    if group != _account_name(user):
        return f"can be written by the group {group}"
    return None


def _account_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return f"with the number {number}"


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of the content of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
