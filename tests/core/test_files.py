"""Files are written atomically, with their previous or the requested permissions."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from iowatch.core import MachineError, exclusive_file_lock, write_atomically


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """The umask lets the group read new files."""
    before = os.umask(0o027)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_file_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "report.xml"
    write_atomically(target, "one")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(target, "\ud800")
    assert target.read_text() == "one"
    assert list(target.parent.iterdir()) == [target]


def test_permissions_are_kept_or_set_as_requested(tmp_path: Path) -> None:
    target = tmp_path / "file"
    write_atomically(target, "new")
    assert mode(target) == 0o640
    target.chmod(0o664)
    write_atomically(target, "again")
    assert (mode(target), target.read_text()) == (0o664, "again")
    write_atomically(target, "secret", 0o600)
    assert mode(target) == 0o600


def test_temporary_file_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    temporary = tmp_path / f".file.{os.getpid()}"
    temporary.write_text("half")
    temporary.chmod(0o400)
    write_atomically(tmp_path / "file", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_drafts_of_killed_processes_are_removed_after_a_day(tmp_path: Path) -> None:
    """A younger one may belong to a process that runs; the other names are not those of drafts of this file."""
    names = (".file.1", ".file.2-wal", ".file.3", ".file.lock", ".file.4.txt", ".files.5")
    for name in names:
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (0, 0) if name != ".file.3" else None)
    write_atomically(tmp_path / "file", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["file", *names[2:]])


def test_unwritable_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot write"):
        write_atomically(tmp_path / "file" / "report.xml", "text")


def test_file_lock_is_exclusive(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.yaml"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add_one, [target] * 40))
    assert target.read_text() == "40"


def add_one(path: Path) -> None:
    with exclusive_file_lock(path):
        number = int(path.read_text()) if path.exists() else 0
        time.sleep(0.0001)
        path.write_text(str(number + 1))


@pytest.mark.parametrize("permissions", [0o770, 0o700])
def test_lock_file_is_writable_for_writers_of_the_directory(tmp_path: Path, permissions: int) -> None:
    """The umask of the first administrator does not keep the second one out."""
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(permissions)
    with exclusive_file_lock(place / "file"):
        assert mode(place / ".file.lock") == permissions & 0o666


def test_uncreatable_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MachineError, match="cannot lock"), exclusive_file_lock(tmp_path / "file" / "x.yaml"):
        pass
