"""A database that is away, locked or damaged, and concurrent writers: repeated, or reported with what to do."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from iowatch.core import InputError, MachineError, UsageError
from iowatch.store import History, HistoryUnavailableError, engine
from iowatch.store.history import _reads
from tests.builders import build_session
from tests.faults.concurrency import same_runs
from tests.store.test_maintenance import KINDS, fill, run

Cli = Callable[..., Result]
SESSION = build_session("s", suite="smoke", started_at=1000)


@pytest.mark.parametrize("kind", KINDS)
def test_writers_of_the_same_runs_all_succeed(new_database: Callable[[str], str], kind: str) -> None:
    _, faults = same_runs(new_database(kind), runs=20)
    assert faults == []


@pytest.mark.parametrize("kind", KINDS)
def test_run_that_another_process_stores_meanwhile_is_known(new_database: Callable[[str], str], kind: str) -> None:
    with History.open(new_database(kind)) as history:
        history.begin_session(SESSION)
        assert [history.record_runs("s", [run(1), run(1), run(2)]), history.record_runs("s", [run(2)])] == [2, 0]
        assert len(history.run_results(1)) == 2


def end_connections(url: str) -> None:
    """What a restart of the server does to its clients (FATAL 57P01)."""
    with History.existing(url) as history, history.reading() as connection:
        others = "pid <> pg_backend_pid() AND datname = current_database()"
        connection.execute(text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"))


def test_transaction_is_repeated_after_the_connection_was_lost(postgresql_url: str) -> None:
    """Lost in the pool, and lost in the middle of a transaction; psycopg notices either at the next statement."""
    attempts = []

    def lose_first(connection: Connection) -> int | None:
        attempts.append(1)
        connection.execute(text("SELECT 1"))
        if len(attempts) == 1:
            end_connections(postgresql_url)
        return connection.execute(text("SELECT 7")).scalar()

    with History.open(postgresql_url) as history:
        history.begin_session(SESSION)
        end_connections(postgresql_url)
        assert history.record_runs("s", [run(1)]) == 1
        assert _reads(lose_first)(history) == 7
    assert len(attempts) == 2


def test_server_that_is_not_there_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setattr(engine, "_REPEAT_S", 0.2)
    done = cli("history", "list", "--db", f"postgresql://iowatch@/x?host={tmp_path}")
    assert done.exit_code == 3
    assert "Check that the server runs and is reachable" in done.output


def test_missing_database_is_reported_at_once(postgresql_socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart does not create it, so that repeating is of no use."""
    monkeypatch.setattr(engine.time, "sleep", lambda _: pytest.fail("repeated"))
    with pytest.raises(MachineError, match="does not exist") as refused:
        History.open(f"postgresql://iowatch@/nothing?host={postgresql_socket}")
    assert not isinstance(refused.value, HistoryUnavailableError)


def test_lock_of_another_program_is_reported(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_BUSY_TIMEOUT_S", 0.1)
    monkeypatch.setattr(engine, "_REPEAT_S", 0.0)
    with History.open(postgresql_url) as history, History.open(postgresql_url) as other:
        history.begin_session(SESSION)
        with other.writing() as connection:
            connection.execute(text("LOCK TABLE run"))
            with pytest.raises(HistoryUnavailableError, match="lock timeout"):
                history.record_runs("s", [run(1)])
        assert history.record_runs("s", [run(1)]) == 1


def test_statement_that_never_ends_is_reported(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_STATEMENT_TIMEOUT_S", 0.1)
    with (
        History.open(postgresql_url) as history,
        pytest.raises(MachineError, match="statement timeout"),
        history.reading() as connection,
    ):
        connection.execute(text("SELECT pg_sleep(60)"))


def test_locked_file_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_BUSY_TIMEOUT_S", 0.1)
    monkeypatch.setattr(engine, "_REPEAT_S", 0.0)
    path = tmp_path / "x.db"
    with History.open(str(path)) as history, closing(sqlite3.connect(path)) as other:
        history.begin_session(SESSION)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(HistoryUnavailableError, match="locked"):
            history.record_runs("s", [run(1)])
        other.rollback()
        assert history.record_runs("s", [run(1)]) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_data_that_cannot_be_stored_are_bad_input(new_database: Callable[[str], str], kind: str) -> None:
    """A damaged case must not look like a failure of the machine, after which everything waits."""
    one = run(1)
    doubled = replace(one, output=replace(one.output, results=(one.output.results[0],) * 2))
    with History.open(new_database(kind)) as history:
        history.begin_session(SESSION)
        with pytest.raises(InputError):
            history.record_runs("s", [doubled])
        assert history.runs("s") == []


def test_missing_driver_is_reported_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UsageError, match="PostgreSQL needs the Python package psycopg") as refused:
        History.open("postgresql://iowatch@/x")
    assert "-m pip install 'psycopg[binary]" in str(refused.value.hint)


@pytest.mark.parametrize("url", ["mysql://me@host/x", "nonsense://x", "postgresql://a:secret@b:port/x"])
def test_database_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="cannot use the database") as refused:
        History.open(url)
    assert "postgresql://" in str(refused.value.hint)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("words", [("list",), ("export",), ("check",), ("backup",), ("copy",)], ids=" ".join)
@pytest.mark.sqlite_file
def test_malformed_file_is_reported_as_such(cli: Cli, var: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Page 1 is intact (SQLite opens the file); all others are overwritten."""
    path = tmp_path / "history.db"
    with History.open(str(path)) as history:
        fill(history, sessions=20)
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))
    paths = {"backup": (tmp_path / "b.db", "--db", path), "copy": (path, tmp_path / "c.db")}
    done = cli("history", *words, *paths.get(words[0], ("--db", path)))
    assert done.exit_code in (1, 2, 3)
    assert "malformed" in done.output
    assert "space" not in done.output
    assert ".b.db" not in done.output  # the draft of the backup is a copy of the damaged file
    assert words == ("check",) or "restore a backup" in done.output or "older backup" in done.output


@pytest.mark.sqlite_file
@pytest.mark.parametrize("words", ["unable to open database file", "attempt to write a readonly database"])
def test_history_of_another_account_is_reported_in_one_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """SQLite's code depends on what it needs first, the log or the file; free space is of no importance."""
    with History.open(str(tmp_path / "x.db")) as history:
        monkeypatch.setattr(os, "access", lambda *_: False)
        with pytest.raises(MachineError, match="this account may not write there") as refused, history.writing():
            raise OperationalError("SELECT 1", None, sqlite3.OperationalError(words))
    assert "Use the account" in str(refused.value.hint)
    assert "space" not in str(refused.value)
