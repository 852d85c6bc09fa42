"""A session on disk: refused paths, and repeated ingestion."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch import checks
from iowatch.core import UsageError
from iowatch.session.directory import start_session
from iowatch.session.ingest import ingest_spool
from iowatch.store import History
from tests.builders import build_result, build_session, build_spooled_case

RECORD = build_session("one", suite="smoke", started_at=1_700_000_000)


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
    case = build_spooled_case(build_result(1.5, case={"ranks": 4}), name="ior:x", started_at=1_700_000_000)
    checks.spool_case(place, case, {})
    with monkeypatch.context() as patch:
        patch.setattr(checks, "remove_spooled_case", lambda _: None)  # a kill falls here
        ingest_spool(history, place)
    ingest_spool(history, place)
    assert checks.finished_case_directories(place) == []
    assert [run.name for run in history.runs("one")] == ["ior:x"]
