"""tests/slow_storage.py keeps the rates that are set; skipped where the machine cannot make the storage."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.slow_storage import (
    PacedDisk,
    SlowStorageError,
    ThrottledStore,
    mount_paced_disk,
    throttled_store,
    unmount_paced_disk,
)

MIB = 2**20
WRITTEN_BYTES = 4 * MIB

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount file systems")


@pytest.fixture
def paced_disk(tmp_path: Path) -> Iterator[PacedDisk]:
    try:
        disk = mount_paced_disk(tmp_path)
    except SlowStorageError as error:
        unmount_paced_disk(tmp_path)
        pytest.skip(f"needs FUSE (a compiler, libfuse3) and loop devices: {error}")
    yield disk
    unmount_paced_disk(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ThrottledStore]:
    if not Path("/sys/fs/cgroup/blkio").is_dir():
        pytest.skip("needs the blkio control group of version 1, which limits the device")
    with ExitStack() as opened:
        try:
            store = opened.enter_context(throttled_store(tmp_path, f"iowatch-test-{os.getpid()}"))
        except (SlowStorageError, OSError) as error:
            pytest.skip(f"needs loop devices that the control group can limit: {error}")
        yield store


def seconds_of_write(file: Path, before: str = "true") -> float:
    """Time of a write past the page cache, after a command in the same process."""
    program = f"{before}; exec dd if=/dev/zero of={file} bs=64k count={WRITTEN_BYTES // 2**16} oflag=direct"
    started = time.monotonic()
    subprocess.run(["bash", "-c", program], check=True, capture_output=True)
    return time.monotonic() - started


def test_paced_disk_keeps_its_rate(paced_disk: PacedDisk) -> None:
    paced_disk.set_rate(8 * MIB)
    assert seconds_of_write(paced_disk.mount_point / "file") >= WRITTEN_BYTES / (8 * MIB)


def test_throttled_store_limits_the_processes_of_its_group(store: ThrottledStore) -> None:
    """The group may exceed its limit for 0.1 s."""
    store.limit(4 * MIB)
    limited = seconds_of_write(store.directory / "limited", f"echo $$ > {store.tasks_file}")
    assert limited >= WRITTEN_BYTES / (4 * MIB) - 0.2
