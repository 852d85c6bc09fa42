"""`iowatch nightly --check`: whether the last session in order is new enough, for a second scheduler."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from click.testing import Result

from iowatch.core import utc_now
from iowatch.session.last_sessions import last_in_order, last_measured_s
from iowatch.store import ExpectedResult, History, SessionFacts, SessionStatus
from tests.builders import build_run, build_session

EXPECTED = ExpectedResult("ior:a", "default", "stack", "write", "bandwidth")


def record(
    history: History, uuid: str, hours_ago: float, status: SessionStatus = "ok", runs: int = 1, system: str = "local"
) -> int:
    """Record a session of one minute; returns its start."""
    started = int((utc_now() - timedelta(hours=hours_ago)).timestamp())
    history.begin_session(build_session(uuid, system=system, started_at=started), [] if runs else [EXPECTED])
    for number in range(runs):
        history.record_runs(uuid, [build_run(name=f"ior:{number}", fingerprint=f"{uuid}-{number}", started_at=started)])
    history.end_session(uuid, status, started + 60)
    return started


def test_sessions_that_failed_or_have_problems_are_not_in_order(history: History) -> None:
    record(history, "good", 100)
    record(history, "empty", 70, "incomplete", runs=0)
    record(history, "problem", 40)
    history.add_facts("problem", SessionFacts(problems=("another file system",)))
    last = last_in_order(history, "local")
    assert last.session is not None
    assert (last.session.uuid, last.later) == ("good", 2)


def test_session_that_received_nothing_measured_nothing(history: History) -> None:
    started = record(history, "good", 100)
    record(history, "empty", 70, "incomplete", runs=0)
    assert last_measured_s(history, "local") == started
    assert last_measured_s(history, "other") is None


@pytest.mark.parametrize(("hours_ago", "options", "code"), [(20, (), 0), (30, (), 1), (30, ("--hours", "40"), 0)])
def test_age_of_the_last_session_in_order_is_the_exit_code(
    cli: Callable[..., Result], history: History, hours_ago: float, options: tuple[str, ...], code: int
) -> None:
    record(history, "good", hours_ago)
    record(history, "failed", 2, "incomplete", runs=0)
    done = cli("nightly", "--check", "--system", "local", *options)
    assert done.exit_code == code
    assert f"local: the last session in order ended {hours_ago} h ago" in done.stdout
    assert "1 session after it had failed or missing runs, or problems" in done.stdout
    assert ("OVERDUE" in done.stdout) == (code == 1)


def test_every_system_with_sessions_is_checked(cli: Callable[..., Result], history: History) -> None:
    record(history, "a", 2, system="amber")
    record(history, "b", 200, system="beryl")
    done = cli("nightly", "--check", "--json")
    assert done.exit_code == 1
    rows = {row["system"]: row["overdue"] for row in json.loads(done.stdout)["systems"]}
    assert rows == {"amber": False, "beryl": True}


def test_history_without_sessions_is_not_in_order(cli: Callable[..., Result], history: History) -> None:
    """Another database, or one that was created anew: nothing is supervised."""
    done = cli("nightly", "--check")
    assert (done.exit_code, done.stdout) == (1, "no system has sessions of its own\n")
    done = cli("nightly", "--check", "--suite", "smoke")
    assert done.exit_code == 2
    assert "leave --suite smoke out" in done.stderr
