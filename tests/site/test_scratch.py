"""Scratch: separate directories, check of free space, removal of remaining directories."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from iowatch.core import MachineError
from iowatch.site import storage


def test_free_space_is_checked_in_bytes_and_inodes(tmp_path: Path) -> None:
    storage.check_scratch_space(tmp_path, 1, 1)
    free = os.statvfs(tmp_path)
    with pytest.raises(MachineError, match="free in the file system"):
        storage.check_scratch_space(tmp_path, free.f_bavail * free.f_frsize)
    if free.f_files:
        with pytest.raises(MachineError, match="files free in the file system"):
            storage.check_scratch_space(tmp_path, 1, free.f_favail)


def put_lfs_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, code: int = 0) -> None:
    """Put an `lfs` on PATH that prints the output of `lfs quota -q` in the Lustre manual."""
    program = tmp_path / "bin" / "lfs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{printed}'\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("/mnt/lustre 1024 0 2048 - 10 0 25 -", (1024 * 1024, 15)),
        ("/mnt/lustre 4096* 0 2048 none 10 0 0 -", (-2048 * 1024, None)),
        ("/mnt/lustre 1024 0 0 - 10 0 0 -", (None, None)),
        ("nonsense", None),
    ],
)
def test_lustre_quota_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, expected: tuple[int | None, int | None] | None
) -> None:
    put_lfs_on_path(tmp_path, monkeypatch, printed)
    assert storage.lustre_quota(tmp_path) == expected


def test_suite_beyond_the_quota_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_lfs_on_path(tmp_path, monkeypatch, "/mnt/lustre 1024 0 2048 - 10 0 25 -")
    storage.check_scratch_space(tmp_path, 1000, 10)
    with pytest.raises(MachineError, match="files free in your quota"):
        storage.check_scratch_space(tmp_path, 1000, 1_048_576)


def test_quota_is_unknown_without_lustre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert storage.lustre_quota(tmp_path) is None


def test_only_directories_of_known_sessions_are_removed(tmp_path: Path) -> None:
    for name in ("iowatch-old", "iowatch-other", "precious"):
        (tmp_path / name / "x").mkdir(parents=True)
    (tmp_path / "iowatch-link").symlink_to(tmp_path / "precious")
    assert storage.remove_session_scratch(tmp_path, ["old", "link", "gone"]) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["iowatch-link", "iowatch-other", "precious"]


def test_scratch_of_ended_plain_reframe_is_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    own = storage.session_directory(tmp_path)
    ended = own.with_name(own.name.replace(str(os.getpid()), str(dead.pid)))
    others = [f"{own.name}x", own.name.replace("reframe-", "reframe-far-"), "iowatch-reframe-"]
    for name in (own.name, ended.name, *others):
        (tmp_path / name).mkdir()
    assert storage.remove_ended_scratch(tmp_path) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((own.name, *others))


@pytest.mark.parametrize("name", ["../../etc", "a b;rm -rf /", "%e=x/y"])
def test_case_directory_name_is_alphanumeric(tmp_path: Path, name: str) -> None:
    place = storage.case_directory(tmp_path, name, "gnu")
    assert place.parent.parent == tmp_path
    assert place.name.isalnum()
