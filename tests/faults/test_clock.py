"""Wrong clocks: set back during a session, or a year ahead for one session."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from iowatch.core import format_time, utc_now
from iowatch.findings import update_findings
from iowatch.output.dashboard.build import build_site
from iowatch.output.notice_channels import notify_settings_model
from iowatch.output.notices import compose_notices
from iowatch.session.directory import close_session
from iowatch.session.ingest import ingest_spool
from iowatch.store import History, maintenance
from tests.conftest import ROOT
from tests.datasets import cases_if
from tests.faults import material
from tests.faults.conftest import LONG, only_long

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
SETTINGS = notify_settings_model().model_validate(
    {"digest": "never", "channels": [{"name": "i", "kind": "issue", "directory": "issues"}]}
)


def overdue_notices(history: History, hours: int) -> list[str]:
    """Titles of overdue notices in `hours` from now."""
    made, _ = compose_notices(history, material.SYSTEM, SETTINGS, {}, utc_now() + timedelta(hours=hours))
    return [notice.title for notice in made if notice.kind == "overdue"]


def ingested_session(history: History, draw: Random, begin: int) -> str:
    """Ingest a complete session; return its UUID."""
    place = material.spooled_session(history, draw, 3, begin)
    ingest_spool(history, place)
    close_session(history, place, "ok")
    return place.name


def test_clock_set_back_during_a_session_is_noted(var: Path) -> None:
    """Its end time is two days before its start time; all commands work nevertheless."""
    now = int(utc_now().timestamp())
    with History.open() as history:
        uuid = ingested_session(history, Random(1), now + 2 * 86400 - 60)
        row = history.session(uuid)
        assert (row.ended_at or 0) < row.started_at
        assert row.runs == 3
        update_findings(history, material.SYSTEM)
        assert build_site(history, var / "site").written
        checked = maintenance.check_history(history)
        assert checked.faults == ()
        assert any("set back" in note for note in checked.notes)


def test_clock_ahead_does_not_suppress_later_overdue_notices(var: Path) -> None:
    now = int(utc_now().timestamp())
    with History.open() as history:
        draw = Random(2)
        ahead = ingested_session(history, draw, now + 365 * 86400)
        ingested_session(history, draw, now - 60)
        assert overdue_notices(history, 1) == []
        assert overdue_notices(history, 30) == [f"{material.SYSTEM}: session overdue"]
        assert any(ahead in note and "future" in note for note in maintenance.check_history(history).notes)
        update_findings(history, material.SYSTEM)
        assert build_site(history, var / "site").written


def test_points_are_ordered_by_time_not_by_ingestion(var: Path) -> None:
    now = int(utc_now().timestamp())
    with History.open() as history:
        draw = Random(3)
        moments = [now - 86400 * n for n in (5, 4, 8, 3, 2)]  # the clock was wrong in the third session
        for moment in moments:
            ingested_session(history, draw, moment)
        for series in history.series():
            times = history.points([series.id])[series.id].time
            assert list(times) == sorted(times)


@pytest.mark.skipif(not LIBRARIES, reason="needs libfaketime (Debian: apt-get install libfaketime)")
@only_long
@pytest.mark.parametrize("days", cases_if(LONG, [-400, 400]))
def test_commands_work_with_a_wrong_clock(var: Path, days: int) -> None:
    """All commands work with another clock, and the history is unchanged."""
    with History.open() as history:
        ingested_session(history, Random(4), int(utc_now().timestamp()) - 3600)
        before = material.content(history)
    moment = format_time(utc_now() + timedelta(days=days)).replace("T", " ").rstrip("Z")
    environment = {
        **os.environ, "IOWATCH_VAR": str(var), "LD_PRELOAD": str(LIBRARIES[0]), "FAKETIME": f"@{moment}",
        "TZ": "UTC", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip
    for words in ("history check", "history list", "detect --system local", "dashboard build"):
        done = subprocess.run(
            [str(ROOT / ".venv" / "bin" / "iowatch"), *words.split()],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
    with History.open() as history:
        assert material.content(history) == before
