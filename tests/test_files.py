"""Files are written whole or not at all, with the permissions that they had or are to have."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from iowatch.errors import MachineError
from iowatch.files import write_whole


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
