"""Logs are kept unchanged, or not at all where the site hides user names and paths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from iowatch import checks
from iowatch.core import UsageError, artefacts
from iowatch.darshan import DarshanReader, read_trace
from iowatch.darshan.privacy import keep_darshan_log
from iowatch.session.directory import start_session
from iowatch.session.ingest import ingest_spool
from iowatch.store import History
from tests.builders import build_session

MakeLog = Callable[..., Path]
PATH = "/home/alice/secret/a"
POSIX = [(PATH, -1, {"POSIX_WRITES": 3, "POSIX_BYTES_WRITTEN": 300})]


def test_log_is_kept_unchanged(make_log: MakeLog, var: Path) -> None:
    log = make_log(posix=POSIX)
    found = keep_darshan_log(log)
    assert found is not None
    assert artefacts.artefact_path(found.sha256).read_bytes() == log.read_bytes()


@pytest.mark.parametrize("mode", ["hash", "drop"])
def test_names_are_not_stored_with_privacy_setting(
    mode: str, make_log: MakeLog, reader: DarshanReader, var: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the spool to the artefact store: the counters are stored, path and program are not."""
    monkeypatch.setenv("IOWATCH_DARSHAN_PRIVACY", mode)
    log = make_log(posix=POSIX, exe="/home/alice/bin/program")
    with History.open(str(tmp_path / "history.db")) as history:
        place = start_session(history, build_session("one", suite="smoke", started_at=1_700_000_000), [])
        checks.spool_case(place, _case(), {"darshan": [log]})
        ingest_spool(history, place, reader)
        assert checks.finished_case_directories(place) == []
        (run,) = history.runs("one")
        assert history.artefacts(run.id) == []
    assert run.facts.darshan.status == "ok"
    assert run.facts.darshan.counts["POSIX_WRITES"] == 3
    assert "alice" not in repr(run.facts.document)
    kept = [path.read_bytes() for path in var.rglob("*") if path.is_file()]
    assert not [data for data in kept if log.read_bytes() in data]


def test_misspelt_privacy_setting_is_refused_before_the_session(
    var: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOWATCH_DARSHAN_PRIVACY", "hashed")
    with History.open(str(tmp_path / "history.db")) as history, pytest.raises(UsageError, match="hashed"):
        start_session(history, build_session("one", suite="smoke", started_at=1_700_000_000), [])
    assert not (var / "runs").exists()


def _case() -> checks.SpooledCase:
    output: dict[str, object] = {
        "tool": "ior",
        "version": None,
        "status": "ok",
        "reason": None,
        "results": [],
        "facts": {},
    }
    return checks.SpooledCase(
        name="ior:one",
        benchmark="ior",
        partition="default",
        stack_name="one",
        stack={},
        started_at=1_700_000_000,
        wall_s=1.0,
        output=output,
        facts={},
    )


def test_log_of_these_tests_contains_a_user_name(make_log: MakeLog, reader: DarshanReader) -> None:
    assert "alice" in repr(read_trace(make_log(posix=POSIX), reader))
