"""A restore and a run keep each other away."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result as Done

from iowatch.errors import MachineError
from iowatch.runner import lock
from iowatch.runner.alone import alone
from iowatch.store import History, care


def test_no_run_starts_meanwhile(var: Path) -> None:
    with alone(), pytest.raises(MachineError, match="going on"), lock.hold(var / "lock" / "local.lock"):
        pass
    with lock.hold(var / "lock" / "local.lock"):
        pass


@pytest.mark.sqlite_file
@pytest.mark.parametrize("name", ["local", "of-another-checkout"])
def test_a_restore_waits_for_no_run(cli: Callable[..., Done], var: Path, tmp_path: Path, name: str) -> None:
    with History.open() as history:
        care.backup(history, tmp_path / "b.db")
    with lock.hold(var / "lock" / f"{name}.lock"):
        refused = cli("history", "restore", tmp_path / "b.db")
    assert refused.exit_code == 3
    assert "going on" in refused.stderr
    assert cli("history", "restore", tmp_path / "b.db").exit_code == 0


def test_who_holds_the_lock_is_told_though_an_older_run_is_named_there(
    var: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed run leaves its number; the next one has the lock a moment before it has written its own."""
    path = var / "lock" / "local.lock"
    with lock.hold(path):
        path.write_text("999999999")
        monkeypatch.setattr(lock.time, "sleep", lambda _: path.write_text(str(os.getpid())))
        with pytest.raises(MachineError, match=f"process {os.getpid()},"), lock.hold(path):
            pass
