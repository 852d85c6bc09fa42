"""Reading requires an existing history: a misspelt name must not look like a session without changes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from sqlalchemy.exc import OperationalError

from iowatch.core import InputError, MachineError, UsageError
from iowatch.store import History, engine
from iowatch.store.engine import database_error_reason
from tests.builders import build_session

Cli = Callable[..., Result]

READING = [
    ("findings",),
    ("findings", "list"),
    ("findings", "list", "--json"),
    ("findings", "show", "x"),
    ("history", "list"),
    ("history", "list", "--series", "--json"),
    ("history", "show", "x"),
    ("history", "export"),
    ("history", "check"),
    ("history", "backup", "/nowhere/b.db"),
    ("history", "prune", "--days", "1"),
    ("detect", "--system", "local"),
    ("compare", "stack:a", "stack:b"),
    ("review", "note", "x", "--reason", "y"),
    ("reference", "propose", "--system", "local"),
    ("reference", "check"),
    ("dashboard", "build"),
]


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_reading_a_missing_history_is_refused_and_creates_nothing(cli: Cli, var: Path, words: tuple[str, ...]) -> None:
    absent = var / "mispelt" / "iowatch.db"
    found = cli(*words, "--db", absent)
    assert found.exit_code == 2
    assert found.stdout == ""
    assert f"there is no history at sqlite:///{absent}" in found.stderr
    assert "iowatch run" in found.stderr
    assert not absent.parent.exists()


def test_empty_file_is_no_history(tmp_path: Path) -> None:
    path = tmp_path / "touched.db"
    path.touch()
    with pytest.raises(InputError, match="there is no history"):
        History.existing(str(path))


def test_empty_database_on_a_server_is_no_history(postgresql_url: str) -> None:
    with pytest.raises(InputError, match="there is no history"):
        History.existing(postgresql_url)
    History.open(postgresql_url).close()
    History.existing(postgresql_url).close()


def test_copying_a_missing_history_creates_nothing(cli: Cli, var: Path, tmp_path: Path) -> None:
    found = cli("history", "copy", tmp_path / "from.db", tmp_path / "to.db")
    assert (found.exit_code, list(tmp_path.glob("*.db"))) == (2, [])


def test_reference_files_can_be_checked_before_the_first_session(cli: Cli, var: Path) -> None:
    found = cli("reference", "check", "--json")
    assert (found.exit_code, "only the files are checked" in found.stderr) == (0, True)
    assert not (var / "iowatch.db").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("history", "list"),
        ("history", "list", "--series"),
        ("history", "export"),
        ("detect",),
        ("findings", "list"),
        ("reference", "propose"),
    ],
    ids=" ".join,
)
def test_misspelt_system_is_reported_by_every_command(cli: Cli, history: History, words: tuple[str, ...]) -> None:
    empty = cli(*words, "--system", "arhcer")
    assert (empty.exit_code, empty.stdout) == (2, "")
    assert "Nothing is in it yet" in empty.stderr
    history.begin_session(build_session("s", system="archer", started_at=0))
    found = cli(*words, "--system", "arhcer")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "the history has no system 'arhcer'" in found.stderr
    assert "Did you mean 'archer'?" in found.stderr


def test_system_of_the_history_is_accepted(history: History) -> None:
    history.begin_session(build_session("s", system="archer", started_at=0))
    history.require_system("archer")
    with pytest.raises(UsageError):
        history.require_system("franklin")


def test_history_of_another_account_is_reported(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite only reports "attempt to write a readonly database", even for a read."""
    error = OperationalError("SELECT 1", None, sqlite3.OperationalError("attempt to write a readonly database"))
    assert database_error_reason(error, history.engine) == "attempt to write a readonly database"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "this account may not write there" in database_error_reason(error, history.engine)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_postgresql_url_needs_no_driver_name(postgresql_url: str, scheme: str) -> None:
    """libpq accepts both schemes (PostgreSQL manual, 34.1.1.2)."""
    History.open(postgresql_url.replace("postgresql+psycopg", scheme)).close()
    History.existing(postgresql_url).close()


@pytest.mark.parametrize(
    ("place", "kind"), [("home/me/var", "nfs4"), ("lustre/x", "lustre"), ("home/local disk", "ext4")]
)
def test_history_on_a_network_file_system_is_refused_unless_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, kind: str
) -> None:
    """The innermost mount counts; /proc/self/mounts writes a blank as \\040."""
    table = tmp_path / "mounts"
    inner = str(tmp_path / "home/local disk").replace(" ", "\\040")
    table.write_text(
        "/dev/vda1 / ext4 rw 0 0\n"
        f"server:/home {tmp_path}/home nfs4 rw 0 0\n/dev/vdb {inner} ext4 rw 0 0\n"
        f"10.0.0.1@o2ib:/scratch {tmp_path}/lustre lustre rw 0 0\n"
    )
    monkeypatch.setattr(engine, "MOUNT_TABLE", table)
    monkeypatch.delenv("IOWATCH_ALLOW_NETWORK_SQLITE", raising=False)
    path = tmp_path / place / "iowatch.db"
    if kind == "ext4":
        History.open(str(path)).close()
        return
    with pytest.raises(MachineError, match=rf"network file system \({kind}\)") as refused:
        History.open(str(path))
    assert "PostgreSQL" in (refused.value.hint or "")
    assert not path.exists()
    monkeypatch.setenv("IOWATCH_ALLOW_NETWORK_SQLITE", "1")
    History.open(str(path)).close()
    assert path.exists()
