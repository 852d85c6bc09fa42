"""The author of a decision: git's name, else the login name; an error if there is neither."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from iowatch.core import UsageError
from iowatch.reference.reviews import current_author


@pytest.fixture(autouse=True)
def without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def test_login_name_is_the_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "alice")
    assert current_author() == "alice"


def test_git_user_name_is_used_first(tmp_path: Path) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\nprintf 'Zo\\353 K.\\n'\n")  # not UTF-8
    (tmp_path / "git").chmod(0o755)
    assert current_author() == "Zo\ufffd K."


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 4711"), OSError("no login name")])
def test_missing_user_name_is_an_error_with_a_hint(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def unknown_user() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", unknown_user)
    with pytest.raises(UsageError, match="name") as raised:
        current_author()
    assert "--by" in str(raised.value)
