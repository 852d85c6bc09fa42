"""The policy of nightly sessions: jitter, blackouts, budgets, selection of runs; the current time is an argument."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from statistics import fmean

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from iowatch.core import InputError
from iowatch.core.yamlfile import YamlDocument
from iowatch.session.blackouts import current_blackout, jitter_s, next_blackout, too_long_unmeasured, wait_for_start
from iowatch.session.budget import (
    RunHistory,
    SessionBudget,
    SessionBudgetError,
    UsageMeter,
    fit_to_budget,
    session_budget,
)
from iowatch.session.plan import PlannedRun
from iowatch.site.system import Blackout, NightlyPolicy
from tests.builders import build_planned_run, build_suite_case
from tests.conftest import ROOT

POLICY = """
minutes: 240
node_hours: 2.5
bytes: 4t
jitter_minutes: 30
blackouts:
  - {reason: backup, start: 22:30, end: 01:00}
  - {reason: holidays, since: 2026-12-24, until: 2026-12-26}
  - {reason: maintenance, days: [tue], start: 06:00, end: 18:00}
"""


def read(place: Path, text: str) -> NightlyPolicy:
    path = place / "night.yaml"
    path.write_text(text)
    return YamlDocument(path).validated(NightlyPolicy)


@pytest.fixture
def policy(tmp_path: Path) -> NightlyPolicy:
    return read(tmp_path, POLICY)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "reason", "end"),
    [
        ("2026-11-21 22:29", None, None),
        ("2026-11-21 22:30", "backup", "2026-11-22 01:00"),
        ("2026-11-22 00:59", "backup", "2026-11-22 01:00"),  # over midnight
        ("2026-11-22 01:00", None, None),
        ("2026-11-24 06:00", "maintenance", "2026-11-24 18:00"),  # a Tuesday
        ("2026-11-25 06:00", None, None),
        ("2026-12-23 23:59", "backup", "2026-12-24 01:00"),
        ("2026-12-26 12:00", "holidays", "2026-12-27 00:00"),  # the last day is part of it
        ("2026-12-27 12:00", None, None),
    ],
)
def test_current_blackout_is_found(policy: NightlyPolicy, moment: str, reason: str | None, end: str | None) -> None:
    found = current_blackout(policy, at(moment), UTC)
    assert (found and found.blackout.reason, found and found.end) == (reason, end and at(end))


def test_next_blackout_limits_the_budget(policy: NightlyPolicy) -> None:
    coming = next_blackout(policy, at("2026-11-24 03:00"), UTC)
    assert coming is not None
    assert (coming.blackout.reason, coming.start) == ("maintenance", at("2026-11-24 06:00"))
    tuesday = session_budget(policy, at("2026-11-24 03:00"), UTC)
    assert (tuesday.seconds, tuesday.node_hours, tuesday.bytes) == (3 * 3600, 2.5, 4 * 2**40)
    assert tuesday.limit_reason == "the time until the blackout 'maintenance' at 06:00 UTC"
    wednesday = session_budget(policy, at("2026-11-25 03:00"), UTC)
    assert (wednesday.seconds, wednesday.limit_reason) == (240 * 60, "the budget of 240 minutes")
    assert session_budget(NightlyPolicy(), at("2026-11-25 03:00"), UTC).seconds is None


@given(st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)))
def test_next_blackout_begins_after_any_time_outside_blackouts(moment: datetime) -> None:
    policy = NightlyPolicy(blackouts=(Blackout(reason="x", days=("mon", "fri"), start="23:00", end="04:00"),))
    coming = next_blackout(policy, moment, UTC)
    assert coming is not None
    assert moment < coming.start <= moment + timedelta(days=8)
    assert current_blackout(policy, coming.start, UTC) is not None
    if current_blackout(policy, moment, UTC) is None:
        assert current_blackout(policy, coming.start - timedelta(microseconds=1), UTC) is None


def test_jitter_is_reproducible_and_differs_per_day(policy: NightlyPolicy) -> None:
    days = [date(2026, 1, 1) + timedelta(days=n) for n in range(365)]
    waits = [jitter_s(policy, "archer2", day) for day in days]
    assert waits == [jitter_s(policy, "archer2", day) for day in days]
    assert all(0 <= seconds < 1800 for seconds in waits)
    # Uniform: the mean of 365 has a standard error of 1800 / sqrt(12 * 365) = 27 s.
    assert abs(fmean(waits) - 900) < 4 * 27
    assert len({round(seconds) for seconds in waits}) > 300
    assert waits != [jitter_s(policy, "cirrus", day) for day in days]
    assert jitter_s(NightlyPolicy(), "archer2", days[0]) == 0


def test_wait_for_start_sleeps_for_the_jitter(policy: NightlyPolicy, messages: list[str]) -> None:
    slept: list[float] = []
    now = at("2026-11-25 02:00")
    assert wait_for_start(policy, "archer2", now, slept.append) is None
    assert slept == [jitter_s(policy, "archer2", now.date())]
    assert messages[0].startswith("the session on archer2 starts at 2026-11-25 02:")
    assert wait_for_start(NightlyPolicy(), "archer2", now, slept.append) is None
    assert len(slept) == 1  # no jitter, no wait
    reason = wait_for_start(policy, "archer2", at("2026-11-24 06:30"), slept.append)
    assert reason == "no session on archer2: blackout 'maintenance' until 2026-11-24 18:00 UTC"
    assert len(slept) == 1


def test_blackouts_of_single_nights_are_no_problem(policy: NightlyPolicy) -> None:
    """Three holidays, of which this is the first; the night before was measured."""
    start = at("2026-12-24 02:00")
    assert current_blackout(policy, start, UTC) is not None
    assert too_long_unmeasured(policy, "archer2", start, start - timedelta(days=1, minutes=5)) is not None
    longer = policy.model_copy(update={"unmeasured_nights": 4})
    assert too_long_unmeasured(longer, "archer2", start, start - timedelta(days=1, minutes=5)) is None
    assert too_long_unmeasured(policy, "archer2", start, start - timedelta(hours=20)) is None


@pytest.mark.parametrize(
    "blackouts",
    [
        # Each day but for the last minute, which another blackout covers.
        "[{reason: a, start: 00:00, end: 23:59}, {reason: b, start: 23:00, end: 01:00}]",
        "[{reason: a, since: 2020-01-01, until: 2099-12-31}]",
        "[{reason: a, days: [mon, tue, wed, thu], start: 01:00, end: 04:00}]",
    ],
)
def test_blackouts_that_exclude_too_many_nights_are_told_on_the_first(tmp_path: Path, blackouts: str) -> None:
    """Monday 30 November 2026, measured the night before: four nights in succession will be excluded."""
    policy = read(tmp_path, f"blackouts: {blackouts}")
    start = at("2026-11-30 02:00")
    problem = too_long_unmeasured(policy, "archer2", start, start - timedelta(hours=24, minutes=-10))
    assert problem is not None
    assert problem.startswith("blackouts leave archer2 without a session for more than 3 nights; the last one was on")
    assert "2026-11-29 02:10" in problem


def test_nights_that_were_missed_before_a_blackout_count(tmp_path: Path) -> None:
    """One excluded night, after three without a session for another reason."""
    policy = read(tmp_path, "blackouts: [{reason: a, days: [mon]}]")
    start = at("2026-11-30 02:00")
    assert too_long_unmeasured(policy, "archer2", start, start - timedelta(days=3, minutes=5)) is not None
    assert too_long_unmeasured(policy, "archer2", start, start - timedelta(days=2, minutes=5)) is None


def test_nightly_session_in_a_blackout_is_reported_and_not_recorded(
    cli: Callable[..., Result], var: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "checkout"
    shutil.copytree(ROOT / "systems" / "local", place / "systems" / "local")
    (place / "benchmarks").symlink_to(ROOT / "benchmarks")
    with (place / "systems" / "local" / "system.yaml").open("a") as facts:
        facts.write("night: {jitter_minutes: 60, blackouts: [{start: 00:00, end: 00:00, reason: repairs}]}\n")
    monkeypatch.setenv("IOWATCH_ROOT", str(place))
    done = cli("run", "--night", "--no-jitter", "--json")
    assert done.exit_code == 1  # it excludes every night
    document = json.loads(done.stdout)
    assert document["exit_code"] == 1
    assert "more than 3 nights; no session has measured anything yet" in document["reason"]
    assert document["reason"].startswith("no session on local: blackout 'repairs' until ")
    assert (document["status"], done.stderr) == ("none", "")
    assert "blackout 'repairs'" in cli("run", "--night").stderr
    assert not (var / "iowatch.db").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("minutes: 0", "night.yaml:1:10: field 'minutes'"),
        ("node-hours: 3", "night.yaml:1:1: field 'node-hours': unknown field"),
        ("bytes: much", "'much' is not a size"),
        ("blackouts:\n  - {start: 06:00}", "night.yaml:2:5: field 'blackouts.0.reason': Field required"),
        ("blackouts:\n  - {reason: x, start: 25:00}", "field 'blackouts.0.start'"),
        ("blackouts:\n  - {reason: x, start: 06:00Z}", "times are in the zone of the system and name none"),
        ("blackouts:\n  - {reason: x, days: [tuesday]}", "field 'blackouts.0.days.0'"),
        ("blackouts:\n  - {reason: x, since: 2026-02-02, until: 2026-02-01}", "is before 'since'"),
    ],
)
def test_faults_are_reported_with_line_and_field(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    assert message in error.value.message


def run(name: str, nodes: int = 1) -> PlannedRun:
    """A run written and read once by 4 ranks: 2 x 4 x 8^3 doubles = 32 KiB; at most 600 s."""
    case = build_suite_case(
        name, time_limit_s=600, api="posix", op="both", local="8x8x8", ranks=4, nodes=nodes, repeat=1
    )
    return build_planned_run(case)


RUNS = [run("a"), run("b"), run("c", nodes=2), run("d")]
HISTORY = {one.key: RunHistory(last, 100.0) for one, last in zip(RUNS, (40, 30, 20, 10), strict=True)}


def names(limit: SessionBudget, history: dict[tuple[str, str, str], RunHistory] = HISTORY) -> tuple[str, set[str]]:
    fitted = fit_to_budget(RUNS, history, limit)
    kept, out = fitted.kept, fitted.deferred
    assert {one.key for one in kept} | {one.key for one in out} == {one.key for one in RUNS}
    return "".join(one.case.name for one in kept), {one.reason for one in out}


def test_runs_in_budget_keep_the_suite_order_and_prefer_the_oldest() -> None:
    assert names(SessionBudget()) == ("abcd", set())
    assert names(SessionBudget(seconds=250, limit_reason="the budget of 4 minutes")) == (
        "cd",
        {"exceeds the budget of 4 minutes"},
    )
    # c takes two nodes: 100 s of d and 100 s of c are 300 node seconds; the rest is too small for a and b.
    assert names(SessionBudget(node_hours=300 / 3600)) == ("cd", {"exceeds the budget of 0.0833333 node hours"})
    assert names(SessionBudget(bytes=65 * 1024)) == ("cd", {"exceeds the budget of 65 KiB"})


def test_run_without_history_is_first_and_counts_with_its_limit() -> None:
    history = {k: v for k, v in HISTORY.items() if k != RUNS[0].key}
    assert names(SessionBudget(seconds=750), history)[0] == "ad"
    assert names(SessionBudget(seconds=590), history)[0] == "bcd"  # too large for this session; the others still run


def test_every_run_is_selected_within_some_sessions() -> None:
    history: dict[tuple[str, str, str], RunHistory] = {}
    seen: set[str] = set()
    for session_number in range(4):
        kept = fit_to_budget(RUNS, history, SessionBudget(seconds=650)).kept
        for one in kept:
            history[one.key] = RunHistory(session_number, None)  # never successful: not repeated at once
        seen |= {one.case.name for one in kept}
    assert seen == set("abcd")


def test_usage_meter_ends_the_session() -> None:
    now = [0.0]
    meter = UsageMeter(
        SessionBudget(seconds=1000, node_hours=0.2, bytes=100 * 1024, limit_reason="the budget of 17 minutes"),
        lambda: now[0],
    )
    meter.raise_if_exhausted()
    now[0] = 400
    meter.add_run(RUNS[2], 300.0)  # two nodes: 600 node seconds of 720
    meter.raise_if_exhausted()
    left = meter.remaining_budget()
    assert (left.seconds, left.node_hours, left.bytes) == (600, pytest.approx(120 / 3600), 68 * 1024)
    now[0] = 1001
    with pytest.raises(SessionBudgetError, match="ended early: the budget of 17 minutes is used up"):
        meter.raise_if_exhausted()
    now[0] = 500
    meter.add_run(RUNS[0], None)  # without wall time: counted with its limit
    with pytest.raises(SessionBudgetError, match=r"0\.2 node hours"):
        meter.raise_if_exhausted()
