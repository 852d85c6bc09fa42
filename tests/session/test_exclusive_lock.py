"""Restoring a history and running a session exclude each other."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result as Done

from iowatch.core import MachineError
from iowatch.store import History, locks, maintenance
from iowatch.store.locks import exclusive_lock


def test_exclusive_lock_prevents_sessions(var: Path) -> None:
    with (
        exclusive_lock(),
        pytest.raises(MachineError, match="another session is running"),
        locks.hold_lock(var / "lock" / "local.lock"),
    ):
        pass
    with locks.hold_lock(var / "lock" / "local.lock"):
        pass


@pytest.mark.sqlite_file
@pytest.mark.parametrize("name", ["local", "of-another-checkout"])
def test_history_is_not_restored_during_a_run(cli: Callable[..., Done], var: Path, tmp_path: Path, name: str) -> None:
    """Only copies into the history of this checkout exclude runs."""
    with History.open(str(tmp_path / "source.db")) as history:
        maintenance.backup_history(history, tmp_path / "b.db")
    with locks.hold_lock(var / "lock" / f"{name}.lock"):
        refused = cli("history", "copy", tmp_path / "b.db", var / "iowatch.db")
        assert not (var / "iowatch.db").exists()
        assert cli("history", "copy", tmp_path / "b.db", tmp_path / "elsewhere.db").exit_code == 0
    assert refused.exit_code == 3
    assert "another session is running" in refused.stderr
    assert cli("history", "copy", tmp_path / "b.db", var / "iowatch.db").exit_code == 0


def test_lock_holder_is_reported_despite_an_outdated_process_id(var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed run leaves its process id; the next run holds the lock shortly before it writes its own."""
    path = var / "lock" / "local.lock"
    with locks.hold_lock(path):
        path.write_text("999999999")
        monkeypatch.setattr(locks.time, "sleep", lambda _: path.write_text(str(os.getpid())))
        with pytest.raises(MachineError, match=f"process {os.getpid()},"), locks.hold_lock(path):
            pass


@pytest.mark.sqlite_file
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("history", "copy", "missing.db", "{var}/iowatch.db"), "no history at"),
        (("run", "--stack", "nothing"), "nothing"),
        (("run", "--suite", "nothing"), "nothing"),
        (("run", "--ab", "nothing", "nowhere"), "nothing"),
    ],
    ids=str,
)
def test_wrong_arguments_are_reported_before_a_lock(
    cli: Callable[..., Done], var: Path, words: tuple[str, ...], found: str
) -> None:
    with locks.hold_lock(var / "lock" / "local.lock"):
        refused = cli(*(word.format(var=var) for word in words))
    assert refused.exit_code == 2, refused.output
    assert found in refused.stderr
    assert not (var / "iowatch.db").exists()
