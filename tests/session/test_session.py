"""A session on disk: refused paths, and repeated ingestion."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch import checks
from iowatch.core import UsageError
from iowatch.session import run as session_run
from iowatch.session.directory import start_session
from iowatch.session.ingest import ingest_spool
from iowatch.session.run import SessionExecution, SessionSummary
from iowatch.store import History
from tests.builders import build_result, build_session, build_spooled_case

RECORD = build_session("one", suite="smoke", started_at=1_700_000_000)


def _waiting_execution(now_s: list[float]) -> SessionExecution:
    """A session that has started at 0 s and has six runs, none of which has ended."""
    execution = SessionExecution.__new__(SessionExecution)
    execution.summary = SessionSummary("one")
    execution._planned_count = 6
    execution._started = execution._reported_s = now_s[0]
    return execution


@pytest.mark.parametrize("is_terminal", [True, False])
def test_terminal_says_every_ten_seconds_that_the_session_runs(
    is_terminal: bool, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`poll` is called ten times in a second; a log has the results only."""
    now_s = [0.0]
    monkeypatch.setattr(session_run.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(session_run.sys.stderr, "isatty", lambda: is_terminal)
    execution = _waiting_execution(now_s)
    for tenth in range(251):
        now_s[0] = tenth / 10
        execution._report_waiting()
    expected = [f"[0/6] {s} s: waiting for the first run, before which benchio may be built" for s in (10, 20)]
    assert messages == (expected if is_terminal else [])


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
