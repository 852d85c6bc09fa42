"""Files are written whole or not at all, with the permissions that they had or are to have."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from iowatch.errors import MachineError
from iowatch.files import locked, write_whole


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
    write_whole(target, "one")
    with pytest.raises(UnicodeEncodeError):
        write_whole(target, "\ud800")
    assert target.read_text() == "one"
    assert list(target.parent.iterdir()) == [target]


def test_permissions_stay_or_are_as_asked(tmp_path: Path) -> None:
    target = tmp_path / "file"
    write_whole(target, "new")
    assert mode(target) == 0o640
    target.chmod(0o664)
    write_whole(target, "again")
    assert (mode(target), target.read_text()) == (0o664, "again")
    write_whole(target, "secret", 0o600)
    assert mode(target) == 0o600


def test_what_a_killed_process_left_is_in_nobodys_way(tmp_path: Path) -> None:
    beside = tmp_path / f".file.{os.getpid()}"
    beside.write_text("half")
    beside.chmod(0o400)
    write_whole(tmp_path / "file", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_unwritable_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot write"):
        write_whole(tmp_path / "file" / "report.xml", "text")


def test_a_lock_is_held_alone_and_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.yaml"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add_one, [target] * 40))
    assert target.read_text() == "40"
    assert list(target.parent.iterdir()) == [target]


def add_one(path: Path) -> None:
    with locked(path):
        number = int(path.read_text()) if path.exists() else 0
        time.sleep(0.0001)
        path.write_text(str(number + 1))


def test_the_lock_of_a_killed_process_holds_nobody_up(tmp_path: Path) -> None:
    target = tmp_path / "file"
    (tmp_path / ".file.lock").touch()
    with locked(target):
        pass
    assert list(tmp_path.iterdir()) == []
