"""File systems of this machine: what is mounted, how large it is, and how Lustre stripes by default."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from iowatch.systems.machine import ask

TECHNOLOGY = {
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
PARALLEL = ("Lustre", "GPFS", "BeeGFS", "Panasas", "CephFS", "WEKA", "OrangeFS", "GlusterFS")
_KERNEL = ("/proc", "/sys", "/run")
TIMEOUT_S = 5.0
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One mounted file system.

    Attributes:
        mount: directory.
        technology: a value of `TECHNOLOGY`.
        size_bytes, free_bytes: capacity, and what users may still write; None where it does not answer.
        writable: whether this user may write at the mount point itself.
        targets, stripe_count, stripe_bytes: of Lustre, as `lfs` tells; None otherwise.
    """

    mount: str
    technology: str
    size_bytes: int | None = None
    free_bytes: int | None = None
    writable: bool = False
    targets: int | None = None
    stripe_count: int | None = None
    stripe_bytes: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _types(text: str) -> list[tuple[str, str]]:
    """(mount point, type) of the lines of /proc/self/mounts, later mounts over earlier ones."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 3:
            found[_ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), fields[1])] = fields[2]
    return sorted(found.items())


def _entries(text: str) -> list[tuple[str, str]]:
    """Those that benchmarks can write to."""
    return [(point, kind) for point, kind in _types(text) if kind in TECHNOLOGY]


def file_system_type(path: str, table: Path = Path("/proc/self/mounts")) -> str:
    """The kernel's word for the file system that an absolute path is on, as `lustre`; or `unknown`."""
    try:
        text = table.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown"
    below = [
        (point, kind)
        for point, kind in _types(text)
        if path == point or path.startswith(point.rstrip("/") + "/")
    ]
    return max(below, key=lambda entry: len(entry[0]), default=("/", "unknown"))[1]


def _statvfs(path: str) -> os.statvfs_result | None:
    """`statvfs` that gives up: a dead server must not stop the whole command."""
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


def _number(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text)
    return int(match.group(1)) if match else None


def lustre_facts(mount: str) -> dict[str, int | None]:
    """OST count and default striping of a Lustre file system, of `lfs osts` and `lfs getstripe -d`."""
    osts = re.findall(r"^\d+: \S+ ACTIVE", ask("lfs", "osts", mount, timeout_s=TIMEOUT_S) or "", re.MULTILINE)
    striping = ask("lfs", "getstripe", "-d", mount, timeout_s=TIMEOUT_S) or ""
    return {
        "targets": len(osts) or None,
        "stripe_count": _number(r"stripe_count:\s*(-?\d+)", striping),
        "stripe_bytes": _number(r"stripe_size:\s*(\d+)", striping),
    }


def _mount(point: str, kind: str) -> Mount:
    facts = _statvfs(point)
    technology = TECHNOLOGY[kind]
    return Mount(
        mount=point,
        technology=technology,
        size_bytes=facts.f_frsize * facts.f_blocks if facts else None,
        free_bytes=facts.f_frsize * facts.f_bavail if facts else None,
        writable=facts is not None and os.access(point, os.W_OK),
        **(lustre_facts(point) if technology == "Lustre" else {}),
    )


def mounts(table: Path = Path("/proc/self/mounts")) -> list[Mount]:
    """Mounted file systems that can hold data, parallel ones first; pseudo and tiny ones are left out.

    Args:
        table: the kernel's list of mounts.
    """
    try:
        text = table.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    points = [(point, kind) for point, kind in _entries(text) if not point.startswith(_KERNEL)]
    found = [_mount(point, kind) for point, kind in points]
    kept = [m for m in found if m.technology != "tmpfs" or ((m.size_bytes or 0) >= 2**26 and m.writable)]
    return sorted(kept, key=lambda m: (m.technology not in PARALLEL, m.technology == "tmpfs", m.mount))
