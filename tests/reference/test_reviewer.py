"""Who decides: git's name, else the login name; where there is neither, that is told."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from iowatch.core import UsageError
from iowatch.reference.reviews import current_author


@pytest.fixture(autouse=True)
def without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def test_the_login_name_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "alice")
    assert current_author() == "alice"


def test_git_is_asked_first(tmp_path: Path) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\nprintf 'Zo\\353 K.\\n'\n")  # not UTF-8
    (tmp_path / "git").chmod(0o755)
    assert current_author() == "Zo\ufffd K."


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 4711"), OSError("no login name")])
def test_a_container_without_names_asks_for_one(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def nobody() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", nobody)
    with pytest.raises(UsageError, match="name") as told:
        current_author()
    assert "--by" in str(told.value)
