"""Files are written whole or not at all, with the permissions that they had or are to have."""

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
    """A group may read what this user makes."""
    before = os.umask(0o027)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_written_whole_or_not(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "report.xml"
    write_atomically(target, "one")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(target, "\ud800")
    assert target.read_text() == "one"
    assert list(target.parent.iterdir()) == [target]


def test_permissions_stay_or_are_as_asked(tmp_path: Path) -> None:
    target = tmp_path / "file"
    write_atomically(target, "new")
    assert mode(target) == 0o640
    target.chmod(0o664)
    write_atomically(target, "again")
    assert (mode(target), target.read_text()) == (0o664, "again")
    write_atomically(target, "secret", 0o600)
    assert mode(target) == 0o600


def test_what_a_killed_process_left_is_in_nobodys_way(tmp_path: Path) -> None:
    beside = tmp_path / f".file.{os.getpid()}"
    beside.write_text("half")
    beside.chmod(0o400)
    write_atomically(tmp_path / "file", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_unwritable_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot write"):
        write_atomically(tmp_path / "file" / "report.xml", "text")


def test_a_lock_is_held_by_one_at_a_time(tmp_path: Path) -> None:
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
def test_whoever_may_write_into_the_directory_may_lock(tmp_path: Path, permissions: int) -> None:
    """The umask of the first administrator does not keep the second one out."""
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(permissions)
    with exclusive_file_lock(place / "file"):
        assert mode(place / ".file.lock") == permissions & 0o666


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MachineError, match="cannot lock"), exclusive_file_lock(tmp_path / "file" / "x.yaml"):
        pass
