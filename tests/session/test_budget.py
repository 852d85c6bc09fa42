"""The night's policy: jitter, blackouts, budgets, what fits; all with the present as an argument."""

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

from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import InputError
from iowatch.core.yamlfile import YamlDocument
from iowatch.session.plan import (
    PlannedRun,
    RunHistory,
    SessionBudget,
    SessionBudgetError,
    UsageMeter,
    current_blackout,
    fit_to_budget,
    jitter_s,
    next_blackout,
    session_budget,
    wait_for_start,
)
from iowatch.site.system import Blackout, NightlyPolicy
from tests.conftest import ROOT

NIGHT = """
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
    return YamlDocument(path).validated(NightlyPolicy, hint="docs/operations.md")


@pytest.fixture
def night(tmp_path: Path) -> NightlyPolicy:
    return read(tmp_path, NIGHT)


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
def test_blackouts(night: NightlyPolicy, moment: str, reason: str | None, end: str | None) -> None:
    found = current_blackout(night, at(moment))
    assert (found and found[0].reason, found and found[1]) == (reason, end and at(end))


def test_the_next_blackout_ends_the_night_early(night: NightlyPolicy) -> None:
    coming = next_blackout(night, at("2026-11-24 03:00"))
    assert coming is not None
    assert (coming[0].reason, coming[1]) == ("maintenance", at("2026-11-24 06:00"))
    tuesday = session_budget(night, at("2026-11-24 03:00"))
    assert (tuesday.seconds, tuesday.node_hours, tuesday.bytes) == (3 * 3600, 2.5, 4 * 2**40)
    assert tuesday.limit_reason == "the time until the blackout 'maintenance' at 06:00 UTC"
    wednesday = session_budget(night, at("2026-11-25 03:00"))
    assert (wednesday.seconds, wednesday.limit_reason) == (240 * 60, "the budget of 240 minutes")
    assert session_budget(NightlyPolicy(), at("2026-11-25 03:00")).seconds is None


@given(st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)))
def test_no_moment_is_both_open_and_past_the_next_begin(moment: datetime) -> None:
    night = NightlyPolicy(blackouts=(Blackout(reason="x", days=("mon", "fri"), start="23:00", end="04:00"),))
    coming = next_blackout(night, moment)
    assert coming is not None
    assert moment < coming[1] <= moment + timedelta(days=8)
    assert current_blackout(night, coming[1]) is not None
    if current_blackout(night, moment) is None:
        assert current_blackout(night, coming[1] - timedelta(microseconds=1)) is None


def test_jitter_is_the_same_when_asked_again_and_another_each_night(night: NightlyPolicy) -> None:
    days = [date(2026, 1, 1) + timedelta(days=n) for n in range(365)]
    waits = [jitter_s(night, "archer2", day) for day in days]
    assert waits == [jitter_s(night, "archer2", day) for day in days]
    assert all(0 <= seconds < 1800 for seconds in waits)
    # Uniform: the mean of 365 has a standard error of 1800 / sqrt(12 * 365) = 27 s.
    assert abs(fmean(waits) - 900) < 4 * 27
    assert len({round(seconds) for seconds in waits}) > 300
    assert waits != [jitter_s(night, "cirrus", day) for day in days]
    assert jitter_s(NightlyPolicy(), "archer2", days[0]) == 0


def test_waiting(night: NightlyPolicy) -> None:
    said: list[str] = []
    slept: list[float] = []
    now = at("2026-11-25 02:00")
    assert wait_for_start(night, "archer2", now, said.append, slept.append) is None
    assert slept == [jitter_s(night, "archer2", now.date())]
    assert said[0].startswith("the session on archer2 starts at 2026-11-25T02:")
    assert wait_for_start(NightlyPolicy(), "archer2", now, said.append, slept.append) is None
    assert len(slept) == 1  # no jitter, no wait
    reason = wait_for_start(night, "archer2", at("2026-11-24 06:30"), said.append, slept.append)
    assert reason == "no session on archer2: blackout 'maintenance' until 2026-11-24T18:00:00Z"
    assert len(slept) == 1


def test_a_night_that_does_not_take_place_is_told_and_makes_no_history(
    cli: Callable[..., Result], var: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "checkout"
    shutil.copytree(ROOT / "systems" / "local", place / "systems" / "local")
    (place / "benchmarks").symlink_to(ROOT / "benchmarks")
    with (place / "systems" / "local" / "system.yaml").open("a") as facts:
        facts.write("night: {jitter_minutes: 60, blackouts: [{start: 00:00, end: 00:00, reason: repairs}]}\n")
    monkeypatch.setenv("IOWATCH_ROOT", str(place))
    done = cli("run", "--night", "--no-jitter", "--json")
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert document["reason"].startswith("no session on local: blackout 'repairs' until ")
    assert (document["status"], done.stderr) == ("none", "")
    assert "blackout 'repairs'" in cli("run", "--night").stderr
    assert not (var / "iowatch.db").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("minutes: 0", "night.yaml:1:10: field 'minutes'"),
        ("node-hours: 3", "night.yaml:1:1: field 'node-hours': unknown field"),
        ("bytes: much", "'much' is not a size"),
        ("blackouts:\n  - {start: 06:00}", "night.yaml:2:5: field 'blackouts.0.reason': Field required"),
        ("blackouts:\n  - {reason: x, start: 25:00}", "field 'blackouts.0.start'"),
        ("blackouts:\n  - {reason: x, start: 06:00Z}", "times are UTC and have no zone"),
        ("blackouts:\n  - {reason: x, days: [tuesday]}", "field 'blackouts.0.days.0'"),
        ("blackouts:\n  - {reason: x, since: 2026-02-02, until: 2026-02-01}", "is before 'since'"),
    ],
)
def test_faults_are_told_with_line_and_field(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    assert told in error.value.message


def run(name: str, nodes: int = 1) -> PlannedRun:
    """Written and read once by 4 ranks: 2 x 4 x 8^3 doubles = 32 KiB; at most 600 s."""
    options = {"api": "posix", "op": "both", "local": "8x8x8", "ranks": 4, "nodes": nodes, "repeat": 1}
    return PlannedRun(SuiteCase("nightly", "benchio", name, options, "optional", 600), "default", "gnu")


RUNS = [run("a"), run("b"), run("c", nodes=2), run("d")]
PAST = {one.key: RunHistory(last, 100.0) for one, last in zip(RUNS, (40, 30, 20, 10), strict=True)}


def names(limit: SessionBudget, past: dict[tuple[str, str, str], RunHistory] = PAST) -> tuple[str, set[str]]:
    kept, out = fit_to_budget(RUNS, past, limit)
    assert {one.key for one in kept} | {one.run.key for one in out} == {one.key for one in RUNS}
    return "".join(one.case.name for one in kept), {one.reason for one in out}


def test_what_fits_comes_in_the_suites_order_and_the_longest_not_measured_first() -> None:
    assert names(SessionBudget()) == ("abcd", set())
    assert names(SessionBudget(seconds=250, limit_reason="the budget of 4 minutes")) == (
        "cd",
        {"exceeds the budget of 4 minutes"},
    )
    # c takes two nodes: 100 s of d and 100 s of c are 300 node seconds; a and b have no room left.
    assert names(SessionBudget(node_hours=300 / 3600)) == ("cd", {"exceeds the budget of 0.0833333 node hours"})
    assert names(SessionBudget(bytes=65 * 1024)) == ("cd", {"exceeds the budget of 65 KiB"})


def test_a_run_that_nobody_knows_goes_first_and_counts_with_its_limit() -> None:
    past = {k: v for k, v in PAST.items() if k != RUNS[0].key}
    assert names(SessionBudget(seconds=750), past)[0] == "ad"
    assert names(SessionBudget(seconds=590), past)[0] == "bcd"  # too large for tonight; the others are not kept waiting


def test_everything_has_its_turn_after_some_nights() -> None:
    past: dict[tuple[str, str, str], RunHistory] = {}
    seen: set[str] = set()
    for night_number in range(4):
        kept, _ = fit_to_budget(RUNS, past, SessionBudget(seconds=650))
        for one in kept:
            past[one.key] = RunHistory(night_number, None)  # never ends well: still not measured again at once
        seen |= {one.case.name for one in kept}
    assert seen == set("abcd")


def test_the_meter_ends_the_night() -> None:
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
    meter.add_run(RUNS[0], None)  # did not tell: counted with its limit
    with pytest.raises(SessionBudgetError, match=r"0\.2 node hours"):
        meter.raise_if_exhausted()
