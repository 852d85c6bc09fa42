"""Several checkouts or hosts with one PostgreSQL history: their sessions exclude each other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from sqlalchemy import text

from iowatch.core import MachineError
from iowatch.session.context import make_context, select_cases
from iowatch.session.file_systems import lock_file_systems
from iowatch.session.options import SessionOptions
from iowatch.session.plan import SessionPlan
from iowatch.session.reframe import ReframeSite
from iowatch.session.runner import lock_system
from iowatch.site import FileSystemIdentity, load_system, storage
from iowatch.store import History, locks, maintenance
from iowatch.store.locks import ALL_SESSIONS, HeldLockError, SessionLocks
from tests.faults.outages import Session
from tests.store.test_availability import end_connections

SYSTEM = "system local"
# Another checkout: the lock of its session, until its input ends.
HOLDER = """
import sys
from iowatch.session.runner import lock_system
from iowatch.site import load_system
from iowatch.store import History
with History.open() as history, lock_system(history, load_system("local")):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def other_checkout(place: Path, url: str) -> Iterator[subprocess.Popen[str]]:
    """A process with an `IOWATCH_VAR` of its own that holds the lock of the system `local`."""
    environment = {**os.environ, "IOWATCH_VAR": str(place / "other"), "IOWATCH_DB": url}
    words = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(words, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def wait_until_free(locks: SessionLocks, name: str) -> None:
    """The server notices the end of a process at once, but not before its clients go on."""
    for _ in range(200):
        try:
            with locks.hold(name):
                return
        except HeldLockError:
            continue
    raise AssertionError(name)


def test_checkouts_with_one_history_exclude_each_other(
    postgresql_url: str, tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the other session ends, here by a kill."""
    monkeypatch.setenv("IOWATCH_DB", postgresql_url)
    system = load_system("local")
    with History.open() as history:
        with other_checkout(tmp_path, postgresql_url) as other:
            with pytest.raises(MachineError) as refused, lock_system(history, system):
                pass
            assert re.match(
                rf"another session is running \(process {other.pid} on \S+, account iowatch; "
                r"lock 'system local' in postgresql\S+\)$",
                refused.value.message,
            )
            with history.locks.hold("system another"):
                pass
            other.kill()
        wait_until_free(history.locks, SYSTEM)


@pytest.mark.sqlite_file
def test_restore_excludes_the_sessions_of_all_hosts(
    postgresql_url: str, tmp_path: Path, var: Path, cli: Callable[..., Result]
) -> None:
    """And a session excludes the restore; two sessions of different systems do not exclude each other."""
    with History.open(str(tmp_path / "source.db")) as source:
        maintenance.backup_history(source, tmp_path / "backup.db")
    with History.open(postgresql_url) as first, History.open(postgresql_url) as second:
        system = load_system("local")
        with lock_system(first, system), second.locks.hold(ALL_SESSIONS, shared=True):
            refused = cli("history", "copy", tmp_path / "backup.db", postgresql_url)
        assert (refused.exit_code, "another session is running" in refused.stderr) == (3, True)
        with (
            first.locks.hold(ALL_SESSIONS),
            pytest.raises(HeldLockError, match=ALL_SESSIONS),
            lock_system(second, system),
        ):
            pass
    assert cli("history", "copy", tmp_path / "backup.db", postgresql_url).exit_code == 0


@pytest.mark.parametrize(
    ("here", "there", "same"),
    [
        (("lustre", "10.0.0.1@o2ib:/work"), ("lustre", "10.0.0.1@o2ib:/work"), True),
        (("lustre", "10.0.0.1@o2ib:/work"), ("lustre", "10.0.0.1@o2ib:/home"), False),
        (("nfs4", "server:/export"), ("nfs4", "server:/export"), True),
        (("ext4", "/dev/sda1"), ("ext4", "/dev/sda1"), False),  # each host has one
    ],
)
def test_only_network_file_systems_are_the_same_on_two_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: tuple[str, str], there: tuple[str, str], same: bool
) -> None:
    names = []
    for host, (kind, source) in (("login1", here), ("login2", there)):
        identity = FileSystemIdentity(mount="/x", type=kind, source=source)
        monkeypatch.setattr(storage, "find_identity", lambda _, found=identity: found)
        monkeypatch.setattr(locks.platform, "node", lambda name=host: name)
        names.append(locks.file_system_lock_name(tmp_path / "not made yet"))
    assert (names[0] == names[1]) == same


def test_two_systems_on_one_file_system_exclude_each_other(
    postgresql_url: str, tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, plan = tmp_path / "scratch", SessionPlan((), ())
    selection = select_cases(SessionOptions(system="local", suite="smoke", scratch=scratch))
    # ReFrame's configuration plays no role.
    context = make_context(selection, ReframeSite("local", tmp_path / "reframe.py", (), {}))
    with (
        History.open(postgresql_url) as first,
        History.open(postgresql_url) as second,
        lock_file_systems(first, context, plan),
    ):
        monkeypatch.setenv("IOWATCH_VAR", str(tmp_path / "other"))
        with (
            pytest.raises(HeldLockError, match=locks.file_system_lock_name(scratch)),
            lock_file_systems(second, context, plan),
        ):
            pass


class _LosingSession(Session):
    """A session that loses its connections after the first case, and during which `meanwhile` happens."""

    def __init__(self, history: History, place: Path, url: str, meanwhile: Callable[[], object]) -> None:
        super().__init__(history, place, 3, "lost")
        self.url, self.meanwhile, self.losses = url, meanwhile, 0

    def ingest(self) -> list[Any]:
        stored = super().ingest()
        if stored and not self.losses:
            self.losses += 1
            end_connections(self.url)
            self.meanwhile()
        return stored


def test_session_continues_after_its_lock_was_lost(
    postgresql_url: str, tmp_path: Path, var: Path, messages: list[str]
) -> None:
    with History.open(postgresql_url) as history, History.open(postgresql_url) as other:
        with history.locks.hold(SYSTEM):
            one = _LosingSession(history, tmp_path, postgresql_url, lambda: None)
            one.run()
            with pytest.raises(HeldLockError), other.locks.hold(SYSTEM):
                pass
        assert (one.status, one.missing()) == ("ok", [])
        assert messages == [
            "the connection that held the locks (system local) was lost: others may start a session",
            "the locks are taken again",
        ]
        assert not history.session("lost").facts.problems
        with other.locks.hold(SYSTEM):
            pass


def test_session_that_met_another_one_after_the_loss_has_a_problem(
    postgresql_url: str, tmp_path: Path, var: Path, messages: list[str]
) -> None:
    with History.open(postgresql_url) as history, History.open(postgresql_url) as other:
        taken = other.locks.hold(SYSTEM)
        with history.locks.hold(SYSTEM):
            one = _LosingSession(history, tmp_path, postgresql_url, taken.__enter__)
            one.run()
        (problem,) = history.session("lost").facts.problems
        taken.__exit__(None, None, None)
        assert (one.status, one.missing()) == ("ok", [])
    assert problem.startswith(f"another session is running (process {os.getpid()} on ")
    assert problem.endswith("after this one lost its lock: bandwidths may be disturbed")
    assert messages[1:] == [problem]


def test_lock_that_was_released_is_free_and_can_be_taken_again(
    postgresql_url: str, var: Path, messages: list[str]
) -> None:
    """While the connection still holds another lock; no lock counts as lost."""
    with (
        History.open(postgresql_url) as history,
        History.open(postgresql_url) as other,
        history.locks.hold(ALL_SESSIONS, shared=True),
    ):
        with history.locks.hold(SYSTEM):
            pass
        assert history.locks.check() == []
        with other.locks.hold(SYSTEM), pytest.raises(HeldLockError), history.locks.hold(SYSTEM):
            pass
        with history.locks.hold(SYSTEM), pytest.raises(HeldLockError), other.locks.hold(SYSTEM):
            pass
    assert messages == []


def test_locks_need_no_server_in_a_local_history(history: History) -> None:
    if history.engine.dialect.name == "sqlite":
        with history.locks.hold(SYSTEM), history.locks.hold(SYSTEM):
            assert history.locks.check() == []


def test_lock_does_not_count_as_an_open_transaction(postgresql_url: str) -> None:
    """A session lasts hours; a transaction as long would keep the server from cleaning up."""
    with History.open(postgresql_url) as history, history.locks.hold(SYSTEM), history.reading() as connection:
        found = connection.execute(
            text("SELECT state FROM pg_stat_activity WHERE application_name LIKE 'iowatch: process%'")
        )
        assert found.scalars().all() == ["idle"]
