"""A session on disk: where it cannot be, and what is taken in twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch import spool
from iowatch.errors import UsageError
from iowatch.model import Output, Result
from iowatch.runner import session
from iowatch.store import History, SessionRecord

RECORD = SessionRecord("one", "local", "smoke", "run", 1_700_000_000, {})


def test_a_place_with_a_blank_is_refused_before_anything_is_made(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ReFrame splits the path of a job's script at blanks: every case would fail with "file not found"."""
    monkeypatch.setenv("IOWATCH_VAR", str(tmp_path / "my var"))
    with pytest.raises(UsageError, match="blank"):
        session.begin(history, RECORD, [])
    assert not (tmp_path / "my var").exists()
    assert history.sessions() == []


def test_a_case_that_was_committed_and_not_removed_is_the_same_case(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = session.begin(history, RECORD, [])
    output = Output("ior", "4", "ok", None, (Result("write", "bandwidth", "MiB/s", (1.5,), {"ranks": 4}),))
    case = spool.SpooledCase("ior:x", "ior", "default", "gnu", {}, 1_700_000_000, 1.0, output.to_json())
    spool.put(place, case, {})
    with monkeypatch.context() as patch:
        patch.setattr(spool, "remove", lambda _: None)  # a kill falls here
        session.ingest(history, place)
    session.ingest(history, place)
    assert spool.finished(place) == []
    assert [run.name for run in history.runs("one")] == ["ior:x"]
