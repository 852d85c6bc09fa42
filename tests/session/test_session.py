"""A session on disk: refused paths, and repeated ingestion."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch import checks
from iowatch.core import Output, Result, UsageError
from iowatch.session.directory import start_session
from iowatch.session.ingest import ingest_spool
from iowatch.store import History, SessionRecord

RECORD = SessionRecord("one", "local", "smoke", "run", 1_700_000_000)


def test_path_with_a_blank_is_refused_before_the_session_starts(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ReFrame splits the path of a job's script at blanks: every case would fail with "file not found"."""
    monkeypatch.setenv("IOWATCH_VAR", str(tmp_path / "my var"))
    with pytest.raises(UsageError, match="blank"):
        start_session(history, RECORD, [])
    assert not (tmp_path / "my var").exists()
    assert history.sessions() == []


def test_spooled_case_that_is_already_stored_is_not_duplicated(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = start_session(history, RECORD, [])
    output = Output("ior", "4", "ok", None, (Result("write", "bandwidth", "MiB/s", (1.5,), {"ranks": 4}),))
    case = checks.SpooledCase("ior:x", "ior", "default", "gnu", {}, 1_700_000_000, 1.0, output.to_json())
    checks.spool_case(place, case, {})
    with monkeypatch.context() as patch:
        patch.setattr(checks, "remove_spooled_case", lambda _: None)  # a kill falls here
        ingest_spool(history, place)
    ingest_spool(history, place)
    assert checks.finished_case_directories(place) == []
    assert [run.name for run in history.runs("one")] == ["ior:x"]
