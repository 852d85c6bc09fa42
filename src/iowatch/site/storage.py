"""File systems of this machine: mounts, striping, and scratch directories of sessions.

Striping applies to Lustre; elsewhere cases that differ only in their striping are one case. Scratch directories are
named after their session, so that leftovers can be found and removed.
"""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import re
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import MachineError, file_system_type, format_size, mount_types
from iowatch.site.machine import query_command

TECHNOLOGY_BY_TYPE = {
    "lustre": "Lustre",
    "gpfs": "GPFS",
    "beegfs": "BeeGFS",
    "beegfs_nodev": "BeeGFS",
    "panfs": "Panasas",
    "ceph": "CephFS",
    "wekafs": "WEKA",
    "pvfs2": "OrangeFS",
    "fuse.glusterfs": "GlusterFS",
    "nfs": "NFS",
    "nfs4": "NFS",
    "ext4": "ext4",
    "xfs": "xfs",
    "btrfs": "btrfs",
    "zfs": "ZFS",
    "overlay": "overlay",
    "tmpfs": "tmpfs",
}
PARALLEL_TECHNOLOGIES = ("Lustre", "GPFS", "BeeGFS", "Panasas", "CephFS", "WEKA", "OrangeFS", "GlusterFS")
_KERNEL = ("/proc", "/sys", "/run")
TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Mount:
    """One mounted file system.

    Attributes:
        mount: directory.
        technology: a value of `TECHNOLOGY_BY_TYPE`.
        size_bytes, free_bytes: capacity, and space that users may still write; None if it does not respond.
        writable: whether this user may write to the mount point itself.
        targets, stripe_count, stripe_bytes: for Lustre, as printed by `lfs`; otherwise None.
    """

    mount: str
    technology: str
    size_bytes: int | None = None
    free_bytes: int | None = None
    writable: bool = False
    targets: int | None = None
    stripe_count: int | None = None
    stripe_bytes: int | None = None


def _statvfs(path: str) -> os.statvfs_result | None:
    """Call `statvfs` with a time limit, so that an unresponsive server does not block the command."""
    answers: list[os.statvfs_result] = []

    def stat() -> None:
        try:
            answers.append(os.statvfs(path))
        except OSError:
            return

    thread = threading.Thread(target=stat, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    return answers[0] if answers else None


def lustre_facts(mount: str) -> dict[str, int | None]:
    """Return OST count and default striping of a Lustre file system, from `lfs osts` and `lfs getstripe -d`."""
    osts = re.findall(r"(?m)^\d+: \S+ ACTIVE", query_command("lfs", "osts", mount, timeout_s=TIMEOUT_S) or "")
    striping = query_command("lfs", "getstripe", "-d", mount, timeout_s=TIMEOUT_S) or ""
    default = dict(re.findall(r"stripe_(count|size):\s*(-?\d+)", striping)[::-1])  # keeps the first of each
    count, size = (int(default[name]) if name in default else None for name in ("count", "size"))
    return {"targets": len(osts) or None, "stripe_count": count, "stripe_bytes": size}


def _describe_mount(point: str, kind: str) -> Mount:
    facts = _statvfs(point)
    technology = TECHNOLOGY_BY_TYPE[kind]
    size, free = (facts.f_frsize * facts.f_blocks, facts.f_frsize * facts.f_bavail) if facts else (None, None)
    writable = facts is not None and os.access(point, os.W_OK)
    return Mount(point, technology, size, free, writable, **(lustre_facts(point) if technology == "Lustre" else {}))


def list_mounts(table: Path = Path("/proc/self/mounts")) -> list[Mount]:
    """Return mounted file systems that can hold data, parallel ones first; pseudo and tiny ones are omitted.

    Args:
        table: the kernel's list of mounts.
    """
    points = [(point, kind) for point, kind in mount_types(table) if not point.startswith(_KERNEL)]
    found = [_describe_mount(point, kind) for point, kind in points if kind in TECHNOLOGY_BY_TYPE]
    kept = [m for m in found if m.technology != "tmpfs" or ((m.size_bytes or 0) >= 2**26 and m.writable)]
    return sorted(kept, key=lambda m: (m.technology not in PARALLEL_TECHNOLOGIES, m.technology == "tmpfs", m.mount))


STRIPING_OPTIONS = ("stripe-count", "stripe-size")


def file_system_without_striping(directory: Path) -> str | None:
    """Return the file system type of a directory (which may not exist yet) without striping; None on Lustre."""
    kind = file_system_type(os.path.realpath(directory))
    technology = TECHNOLOGY_BY_TYPE.get(kind, kind)
    return None if technology == "Lustre" else technology


def find_duplicate_cases(cases: Sequence[SuiteCase], directory: Path) -> dict[str, str]:
    """Return runs that would repeat another run of their suite in this directory, and the reason.

    Returns:
        `<benchmark>:<case>` -> reason, for all but the first of the cases that differ only in their striping;
        empty on Lustre.
    """
    technology = file_system_without_striping(directory)
    if technology is None:
        return {}
    reason = f"no striping on {technology}: duplicates another case of the suite"
    seen: set[tuple[object, ...]] = set()
    found = {}
    for case in cases:
        rest = {name: value for name, value in case.options.items() if name not in STRIPING_OPTIONS}
        key = (case.suite, case.benchmark, *sorted((name, str(value)) for name, value in rest.items()))
        if key in seen:
            found[f"{case.benchmark}:{case.name}"] = reason
        seen.add(key)
    return found


_PREFIX = "iowatch-"
_RESERVE = 1.1  # for metadata and partial stripes: a file system that is exactly full fails


def session_directory(base: str | Path, session: str | None = None) -> Path:
    """Return the directory below `base` for all scratch data of one session (default: the current one)."""
    return Path(base) / f"{_PREFIX}{session or os.environ.get('IOWATCH_SESSION') or _reframe_session_name()}"


def _reframe_session_name(process: int | None = None) -> str:
    """Return the session name of a plain ReFrame run: host and process show whether it still runs."""
    return f"reframe-{platform.node()}-{process or os.getpid()}"


def case_directory(base: str | Path, test: str, environment: str) -> Path:
    """Return the directory of one case; short and without special characters."""
    digest = hashlib.sha256(f"{test}\0{environment}".encode()).hexdigest()[:12]
    return session_directory(base) / digest


def check_scratch_space(base: Path, needed_bytes: int, needed_inodes: int = 1) -> None:
    """Check that `base` is writable and has enough free space.

    Raises:
        MachineError: it cannot be created or written, or less than 1.1 x the required bytes or inodes are free on the
            file system, or in the user's quota on Lustre.
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
    quota = lustre_quota(base) or (None, None)
    for what, needed, left, text in (
        ("the file system", needed_bytes, free.f_bavail * free.f_frsize, format_size),
        ("the file system", needed_inodes, inodes_free, _format_files),
        ("your quota", needed_bytes, quota[0], format_size),
        ("your quota", needed_inodes, quota[1], _format_files),
    ):
        if left is not None and left < needed * _RESERVE:
            raise MachineError(
                f"the scratch directory {base} has {text(left)} free in {what}; the session needs "
                f"{text(needed * _RESERVE)} at the same time",
                hint="Free space there, or choose another directory with --scratch or IOWATCH_SCRATCH.",
            )


def _format_files(number: float) -> str:
    return f"{number:,.0f} files"


def lustre_quota(base: Path) -> tuple[int | None, int | None] | None:
    """Return (bytes, inodes) left in the user's quota on a Lustre file system; None if there is no quota to query.

    `lfs quota -q -u UID DIR` prints: file system, kbytes, quota, limit, grace, files, quota, limit, grace
    (Lustre Operations Manual, "Configuring and Managing Quotas"); a limit of 0 means no limit, `*` marks an excess.
    """
    answer = query_command("lfs", "quota", "-q", "-u", str(os.getuid()), str(base), timeout_s=30) or ""
    numbers = [int(word.rstrip("*")) for word in answer.split()[1:] if word.rstrip("*").isdecimal()]
    if len(numbers) < 6:
        return None
    kbytes, _, kbytes_limit, files, _, files_limit = numbers[:6]
    return ((kbytes_limit - kbytes) * 1024 if kbytes_limit else None, files_limit - files if files_limit else None)


def remove_ended_scratch(base: Path) -> int:
    """Remove directories of ended plain ReFrame runs of this host below `base`; return their number."""
    prefix = session_directory(base, _reframe_session_name()).name.removesuffix(str(os.getpid()))
    processes = [path.name.removeprefix(prefix) for path in base.glob(f"{glob.escape(prefix)}*")]
    ended = [process for process in processes if process.isdecimal() and not _is_process_running(int(process))]
    return remove_session_scratch(base, [_reframe_session_name(int(process)) for process in ended])


def _is_process_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def remove_session_scratch(base: Path, sessions: list[str]) -> int:
    """Remove directories of ended sessions below `base`; return their number."""
    removed = 0
    for session in sessions:
        leftover = session_directory(base, session)
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)
            removed += 1
    return removed
