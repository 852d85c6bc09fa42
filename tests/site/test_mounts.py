"""File systems of /proc/self/mounts, and Lustre's striping by `lfs`."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch.site.storage import list_mounts

# Output of lfs osts and lfs getstripe -d as in the Lustre manual.
OSTS = """OBDS:
0: work-OST0000_UUID ACTIVE
1: work-OST0001_UUID ACTIVE
2: work-OST0002_UUID INACTIVE
"""
STRIPE = """stripe_count:  4 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "a b").mkdir()
    (tmp_path / "lustre").mkdir()
    (tmp_path / "hosts").touch()
    path = tmp_path / "mounts"
    escaped = str(tmp_path / "a b").replace(" ", "\\040")
    path.write_text(
        "proc /proc proc rw 0 0\n"
        "cgroup /sys/fs/cgroup tmpfs rw 0 0\n"
        f"/dev/vda {escaped} ext4 rw 0 0\n"
        f"/dev/vda {tmp_path / 'hosts'} ext4 rw 0 0\n"
        f"10.0.0.1@tcp:/work {tmp_path / 'lustre'} lustre rw 0 0\n"
        "server:/gone /no/such/mount nfs4 rw 0 0\n"
        "short line\n"
    )
    return path


def test_file_systems_are_listed_with_parallel_ones_first(table: Path, tmp_path: Path) -> None:
    found = list_mounts(table)
    assert [mount.technology for mount in found] == ["Lustre", "NFS", "ext4"] or [
        mount.technology for mount in found
    ] == ["Lustre", "ext4", "NFS"]
    by_technology = {mount.technology: mount for mount in found}
    assert by_technology["ext4"].mount == str(tmp_path / "a b")
    assert by_technology["ext4"].writable
    assert (by_technology["ext4"].free_bytes or 0) > 0


def test_file_that_a_container_mounts_is_no_file_system(table: Path, tmp_path: Path) -> None:
    """As /etc/hosts, /etc/hostname and /etc/resolv.conf in Docker and Kubernetes."""
    assert str(tmp_path / "hosts") not in {mount.mount for mount in list_mounts(table)}


def test_unresponsive_file_system_has_no_size(table: Path) -> None:
    unresponsive = next(mount for mount in list_mounts(table) if mount.technology == "NFS")
    assert (unresponsive.size_bytes, unresponsive.free_bytes, unresponsive.writable) == (None, None, False)


def test_lustre_striping_is_read(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lfs = tmp_path / "lfs"
    lfs.write_text(f"#!/bin/sh\nif [ $1 = osts ]; then cat <<'E'\n{OSTS}E\nelse cat <<'E'\n{STRIPE}E\nfi\n")
    lfs.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    lustre = list_mounts(table)[0]
    assert (lustre.targets, lustre.stripe_count, lustre.stripe_bytes) == (2, 4, 1048576)


def test_lustre_striping_is_unknown_without_lfs(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    lustre = list_mounts(table)[0]
    assert (lustre.targets, lustre.stripe_count, lustre.stripe_bytes) == (None, None, None)
