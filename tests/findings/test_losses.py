"""Losses of the newest session as findings: exit code, retests, decisions, and what a person reads."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iowatch.findings import Finding, chart_past_year, detect_system, load_findings, outside_results, update_findings
from iowatch.findings.finding import SessionLoss
from iowatch.findings.losses import SessionLosses, list_outside
from iowatch.findings.updates import with_updates
from iowatch.output.text.decisions import format_resolution, format_updates
from iowatch.output.text.findings import finding_line
from iowatch.output.text.losses import format_session_loss
from iowatch.output.text.sessions import describe_newest_session
from iowatch.reference import reviews
from iowatch.statistics.control_chart import ChartReport, UsualRange
from iowatch.store import History, RunRecord, SeriesFilter, SessionFacts, write
from tests.builders import build_finding, build_member, build_result, build_run, build_series_row, build_session

START = datetime(2025, 1, 1, 2, tzinfo=UTC)
SERIES = tuple((interface, operation) for interface in ("POSIX", "HDF5", "MPIIO") for operation in ("write", "read"))
HDF5_WRITE = SERIES.index(("HDF5", "write"))
Factors = Callable[[int, int], float]


def record(
    history: History, nights: Sequence[int], factor: Factors, *, spread: float = 0.02, retest: float | None = None
) -> None:
    """Record one session a night of six series of 1,000 MiB/s times `factor(night, series)`.

    Args:
        retest: value of the retest of HDF5 writes in the last of the nights, MiB/s.
    """
    with history.writing() as connection:
        for night in nights:
            moment = int((START + timedelta(days=night)).timestamp())
            noise = np.random.default_rng([night, 5]).normal(0, spread, len(SERIES))
            is_retested = retest is not None and night == nights[-1]
            attributes = {"retest_since": moment + 900} if is_retested else {}
            session = build_session(
                f"night-{night}", system="site", started_at=moment, facts=SessionFacts.from_document(attributes)
            )
            write.insert_session(connection, session, ())
            values = [1000 * factor(night, number) * float(np.exp(noise[number])) for number in range(len(SERIES))]
            runs = [_run(night, number, value, moment + 60 * number) for number, value in enumerate(values)]
            if is_retested:
                runs.append(_run(night, HDF5_WRITE, float(retest or 0), moment + 960, "#retest"))
            write.insert_runs(connection, f"night-{night}", runs)
            write.update_session_end(connection, f"night-{night}", "ok", moment + 1800)


def record_some(history: History, night: int, measured: Sequence[int], factor: Factors) -> None:
    """Record a session with some of the series."""
    moment = int((START + timedelta(days=night)).timestamp())
    noise = np.random.default_rng([night, 5]).normal(0, 0.02, len(SERIES))
    runs = []
    for number in measured:
        value = 1000 * factor(night, number) * float(np.exp(noise[number]))
        runs.append(_run(night, number, value, moment + 60 * number))
    with history.writing() as connection:
        write.insert_session(connection, build_session(f"night-{night}", system="site", started_at=moment), ())
        write.insert_runs(connection, f"night-{night}", runs)
        write.update_session_end(connection, f"night-{night}", "ok", moment + 1800)


def _run(night: int, number: int, value: float, moment: int, suffix: str = "") -> RunRecord:
    interface, operation = SERIES[number]
    result = build_result(value, operation=operation, case={"api": interface, "file": "shared", "ranks": 4})
    name = f"ior:{interface}-{operation}{suffix}"
    return build_run(result, name=name, partition="compute", stack="one", started_at=moment)


def record_with_load(history: History, nights: Sequence[int], factor: Factors) -> None:
    """Record sessions with the processes that waited: another program halves all series in half of the nights."""
    with history.writing() as connection:
        for night in nights:
            moment = int((START + timedelta(days=night)).timestamp())
            noise = np.random.default_rng([night, 5]).normal(0, 0.02, len(SERIES))
            waiting = {"processes_blocked": 6 * int(is_loaded(night))}
            facts = {"covariates": {"before": waiting, "after": waiting}}
            runs = []
            for number in range(len(SERIES)):
                value = 1000 * (0.5 if is_loaded(night) else 1.0) * factor(night, number) * float(np.exp(noise[number]))
                runs.append(replace(_run(night, number, value, moment + 60 * number), facts=facts))
            write.insert_session(connection, build_session(f"night-{night}", system="site", started_at=moment), ())
            write.insert_runs(connection, f"night-{night}", runs)
            write.update_session_end(connection, f"night-{night}", "ok", moment + 1800)


def is_loaded(night: int) -> bool:
    """Whether the other program is active: in half of the nights, in no order."""
    return bool(np.random.default_rng([night, 7]).random() < 0.5)


def update(history: History, night: int) -> list[Finding]:
    """The findings on the morning after a night."""
    return update_findings(history, "site", START + timedelta(days=night, hours=5))


def falls(factor: float, *, since: int, series: Sequence[int] = (HDF5_WRITE,)) -> Factors:
    """Factor of some series from a night on."""
    return lambda night, number: factor if night >= since and number in series else 1.0


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("factor", [0.7, 0.3, 0.003])
def test_fall_of_one_series_needs_action_on_every_morning(history: History, root: Path, factor: float) -> None:
    """Absence 42: a series at a thousandth was "no findings" on mornings 1, 4 and 5."""
    record(history, range(40), falls(factor, since=40))
    update(history, 39)
    ids = set()
    for night in range(40, 52):
        record(history, [night], falls(factor, since=40))
        found = [one for one in update(history, night) if one.needs_action]
        assert found, f"nothing needs action on morning {night - 39}"
        ids |= {one.id for one in found}
    assert ids == {"site-20250210-down"}


def test_line_states_the_loss_and_what_is_usual(history: History, root: Path) -> None:
    record(history, range(41), falls(0.003, since=40))
    (finding,) = update(history, 40)
    assert (finding.state, format_updates(finding)) == ("suspected", ("new",))
    assert finding.session_loss is not None
    assert finding.session_loss.lowest == pytest.approx(0.95, abs=0.03)  # of 40 deviations of 2 %
    text = format_session_loss(finding)
    assert re.match(r"×0\.0031, never below −[3-7]\.\d % in 40 sessions before", text)
    assert f"last session {text}" in finding_line(finding)
    (session,) = history.sessions("site", limit=1)
    report = session.facts.report
    assert report is not None
    line = describe_newest_session(report, [finding])
    assert text in line
    assert "too early to say whether it lasts" in line


def test_loss_that_is_over_resolves_its_finding(history: History, root: Path) -> None:
    record(history, range(41), falls(0.2, since=40))
    (lost,) = update(history, 40)
    record(history, [41], falls(1.0, since=0))
    (over,) = update(history, 41)
    assert (lost.needs_action, over.id) == (True, lost.id)
    assert (over.state, format_resolution(over), over.session_loss) == (
        "resolved",
        "transient: back after at most 1 session",
        None,
    )


def test_series_that_is_not_measured_keeps_its_loss(history: History, root: Path) -> None:
    """A later session without the series says nothing of it."""
    record(history, range(41), falls(0.2, since=40))
    update(history, 40)
    with history.writing() as connection:
        moment = int((START + timedelta(days=41)).timestamp())
        write.insert_session(connection, build_session("night-41", system="site", started_at=moment), ())
        write.insert_runs(connection, "night-41", [_run(41, 0, 1000.0, moment)])
    (kept,) = update(history, 41)
    assert kept.needs_action


@pytest.mark.parametrize(("retest", "repeated"), [(310.0, True), (990.0, False)])
def test_retest_repeats_a_loss_or_ends_it(history: History, root: Path, retest: float, repeated: bool) -> None:
    """The better of both values counts: a loss that the retest does not show is none."""
    record(history, range(41), falls(0.3, since=40), retest=retest)
    found = [one for one in update(history, 40) if one.needs_action]
    assert bool(found) is repeated
    if repeated:
        assert format_session_loss(found[0]).endswith("; repeated by the retest")


def decide(finding: Finding, decision: str) -> None:
    day = START.date() + timedelta(days=41)
    entry = {"finding": finding.id, "decision": decision, "by": "A. Administrator", "reason": "ticket 7", "date": day}
    until = day + timedelta(days=60) if decision == "acknowledged" else None
    reviews.add_decision("site", entry | {"until": until})


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("decision", ["acknowledged", "dismissed", "accepted"])
def test_decided_loss_is_silent_until_the_series_falls_further(history: History, root: Path, decision: str) -> None:
    record(history, range(41), falls(0.5, since=40))
    (finding,) = update(history, 40)
    decide(finding, decision)
    record(history, [41], falls(0.5, since=40))
    assert not any(one.needs_action for one in update(history, 41))
    nights = range(42, 50)
    record(history, nights, falls(0.5, since=40))
    assert not any(one.needs_action for one in update(history, 49))
    record(history, [50], falls(0.02, since=40))
    (further,) = (one for one in update(history, 50) if one.needs_action)
    assert further.id == "site-20250220-down"


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("decision", ["acknowledged", "dismissed", "accepted"])
@pytest.mark.parametrize("further", [42, 43, 46])
def test_further_fall_soon_after_a_decision_is_reported(
    history: History, root: Path, decision: str, further: int
) -> None:
    """The decision of day 41 knows the nights 40 and 41; from `further` on the series is at a fiftieth, and stays."""
    level = lambda night: 1.0 if night < 40 else 0.5 if night < further else 0.02  # noqa: E731
    factor: Factors = lambda night, number: level(night) if number == HDF5_WRITE else 1.0  # noqa: E731
    record(history, range(41), factor)
    (finding,) = update(history, 40)
    decide(finding, decision)
    for night in range(41, further + 8):
        record(history, [night], factor)
        red = any(one.needs_action for one in update(history, night))
        assert red is (night >= further), f"night {night}"


@pytest.mark.slow
def test_series_that_is_measured_every_week_stays_reported(history: History, root: Path) -> None:
    """Its change is confirmed after four observations, and sure after seven; it needs action on every morning."""
    weekly = 0
    for night in range(200):
        measured = [number for number in range(len(SERIES)) if number != weekly or night % 7 == 0]
        record_some(history, night, measured, lambda night, number: 0.3 if night >= 140 and number == weekly else 1.0)
        if night >= 140 and night % 5 == 0:
            assert any(one.needs_action for one in update(history, night)), f"night {night}"


def test_loss_that_a_retest_ended_stays_ended_in_later_sessions(history: History, root: Path) -> None:
    record(history, range(41), falls(0.3, since=40), retest=990.0)
    assert not any(one.needs_action for one in update(history, 40))
    others = [number for number in range(len(SERIES)) if number != HDF5_WRITE]
    record_some(history, 41, others, falls(1.0, since=0))
    assert not any(one.needs_action for one in update(history, 41))


def test_loss_of_other_series_beside_a_decided_one_is_reported(history: History, root: Path) -> None:
    record(history, range(41), falls(0.5, since=40))
    (finding,) = update(history, 40)
    decide(finding, "dismissed")
    first = falls(0.5, since=40)
    record(history, [41], lambda night, number: 0.1 if number == 0 else first(night, number))
    (other,) = (one for one in update(history, 41) if one.needs_action)
    assert [member.parameters["api"] for member in other.members] == ["POSIX"]


def test_losses_of_one_night_are_one_finding_with_their_common_factor(history: History, root: Path) -> None:
    """On the first morning the panel has no event of two series that fall to a thousandth (absence 41)."""
    posix = [number for number, (interface, _) in enumerate(SERIES) if interface == "POSIX"]
    record(history, range(41), falls(0.003, since=40, series=posix))
    (finding,) = update(history, 40)
    assert {member.parameters["api"] for member in finding.members} == {"POSIX"}
    assert finding.needs_action
    assert "ior read POSIX shared file, ior write POSIX shared file (×0.003)" in finding_line(finding)


def test_further_fall_of_an_open_finding_is_an_update(history: History, root: Path) -> None:
    record(history, range(42), falls(0.7, since=41))
    (first,) = update(history, 41)
    record(history, [42], falls(0.1, since=41))
    (second,) = update(history, 42)
    record(history, [43], falls(0.1, since=41))
    (third,) = update(history, 43)
    assert (format_updates(first), format_updates(third)) == (("new",), ())
    assert format_updates(second) == ("fell further: ior write HDF5 shared file",)


def test_fall_in_small_steps_is_an_update_when_half_of_the_reported_performance_is_gone(
    history: History, root: Path
) -> None:
    """70, 50, 34, 25 % in four nights: each is more than half of the night before; 34 % is less than half of 70."""
    levels = {41: 0.7, 42: 0.5, 43: 0.34, 44: 0.25}
    factor: Factors = lambda night, number: levels.get(night, 1.0) if number == HDF5_WRITE else 1.0  # noqa: E731
    record(history, range(41), factor)
    update(history, 40)
    updates = []
    for night in levels:
        record(history, [night], factor)
        (finding,) = update(history, night)
        updates.append([text.split(":")[0] for text in format_updates(finding)])
    assert updates == [["new"], [], ["fell further"], []]


def test_results_outside_the_usual_range_are_stored_with_the_session(history: History, root: Path) -> None:
    """Losses and gains, with the bounds: 20 % for series with a noise of 2 %."""
    record(history, range(41), lambda night, number: {1: 0.5, 3: 2.0}.get(number, 1.0) if night == 40 else 1.0)
    update(history, 40)
    (session,) = history.sessions("site", limit=1)
    low, high = sorted(outside_results(session), key=lambda result: result.value)
    assert (round(low.value, -2), round(high.value, -2)) == (500, 2000)
    assert (low.lowest_usual, low.highest_usual) == pytest.approx((800, 1250), rel=0.03)
    assert (low.earlier, high.earlier) == (40, 40)


def test_usual_range_of_a_time_has_its_lower_bound_first() -> None:
    """A write of 1,000 MiB/s and an open of 10 s, which are usual within 25 %, and a read that is within it."""
    rows = [build_series_row(1), build_series_row(2, metric="open_time"), build_series_row(3)]
    limit = math.log(1.25)
    ranges = (
        UsualRange(0, math.log(1000), limit, math.log(0.5), 40),
        # The levels are those of the performance, which is the inverse of a time.
        UsualRange(1, -math.log(10), limit, math.log(0.5), 30),
        UsualRange(2, math.log(1000), limit, math.log(0.9), 40),
    )
    outside = list_outside(SessionLosses(ChartReport((), ranges), {}, {}), rows)
    assert [(result.series_id, result.earlier) for result in outside] == [(1, 40), (2, 30)]
    write, opened = ((result.value, result.lowest_usual, result.highest_usual) for result in outside)
    assert write == pytest.approx((500, 800, 1250))
    assert opened == pytest.approx((20, 8, 12.5))


@pytest.mark.parametrize(("gain", "is_further"), [(0.14, True), (0.2, False), (0.4, False)])
def test_further_fall_is_below_half_of_the_largest_reported_loss(gain: float, is_further: bool) -> None:
    """Reported as a change of two series, to 30 and to 90 %: no unusual loss was reported yet."""
    before = with_updates(build_finding(build_member(1, gain=0.9), build_member(2, gain=0.3)), None, report=True)
    loss = SessionLoss("case", 1, gain, 0.95, earlier=40, similar=0, sessions=1, is_alone=True)
    finding = with_updates(replace(before, session_loss=loss), before, report=True)
    assert [text.split(":")[0] for text in format_updates(finding)] == (["fell further"] if is_further else [])


def test_looking_at_detections_stores_nothing(history: History, root: Path) -> None:
    """`iowatch detect`, also with an account that may not write: neither a newer point nor all of a series."""
    record(history, range(40), falls(1.0, since=0))
    detect_system(history, "site")
    ids = [row.id for row in history.series(SeriesFilter(system="site"))]
    assert history.detections(ids) == {}
    update(history, 39)
    stored = history.detections(ids)
    record(history, [40], falls(1.0, since=0))
    assert {row.n for row, _ in detect_system(history, "site")} == {41}
    assert history.detections(ids) == stored
    assert {row.points for row in stored.values()} == {40}


def test_exit_code_and_messages_of_the_command(history: History, root: Path, cli: Callable[..., Any]) -> None:
    """Losses of 30 % and more on nights 20, 40 and 60 of different series: the first of each size is one."""
    sizes = {20: 0.85, 40: 0.7, 60: 0.3}
    record(history, range(80), lambda night, number: sizes.get(night, 1.0) if number == night // 20 else 1.0)
    update(history, 79)
    years = {year.smallest_loss: year for year in chart_past_year(history, "site", [0.1, 0.2, 0.5])}
    assert [years[size].messages for size in (0.1, 0.2, 0.5)] == [3, 2, 1]
    assert years[0.2].per_year(2) == pytest.approx(2 * 365 / 79)
    answer = cli("findings", "messages", "--system", "site", "--json")
    assert answer.exit_code == 0
    document = json.loads(answer.output)
    assert document["in_force"] == 0.2
    assert [row["messages"] for row in document["smallest_losses"] if row["smallest_loss"] == 0.2] == [2]
    assert cli("findings", "list").exit_code == 0
    record(history, [80], falls(0.1, since=80))
    assert cli("findings", "list").exit_code == 1
    assert any(finding.needs_action for finding in load_findings(history, "site"))


LOADED = tuple(night for night in range(40, 60) if is_loaded(night))
CALM = tuple(night for night in range(40, 60) if not is_loaded(night))


def needs_action(history: History, night: int) -> bool:
    return any(finding.needs_action for finding in update(history, night))


def test_loss_that_the_recorded_load_explains_is_no_loss(history: History, root: Path) -> None:
    night = LOADED[0]
    record_with_load(history, range(night + 1), falls(1.0, since=0))
    assert not needs_action(history, night)


@pytest.mark.parametrize("night", [LOADED[0], CALM[0]])
def test_loss_beyond_the_effect_of_the_load_needs_action_in_its_first_session(
    history: History, root: Path, night: int
) -> None:
    """With the load on record half of what is left is enough; without it the series must be below that of the load."""
    factor = 0.5 if is_loaded(night) else 0.2
    record_with_load(history, range(night + 1), falls(factor, since=night))
    assert needs_action(history, night)


def test_loss_that_a_missed_load_explains_needs_action_when_it_is_repeated(history: History, root: Path) -> None:
    """One series at half of its performance in calm nights: what the load takes, whose record may have missed it."""
    first = next(night for night in CALM if night + 1 in CALM)
    record_with_load(history, range(first + 1), falls(0.5, since=first))
    assert not needs_action(history, first)
    record_with_load(history, [first + 1], falls(0.5, since=first))
    assert needs_action(history, first + 1)


NOISY = tuple(number for number in range(len(SERIES)) if number != HDF5_WRITE)
COLLAPSE = 40


def noisy_event_and_collapse(seed: int, days_before: int, calm_gain: float) -> Factors:
    """Five series with a noise of 25 % fall to 30 % some days before the calm one falls to ×0.003.

    Args:
        calm_gain: factor of the calm series between the two.
    """
    noise = np.random.default_rng([seed, 77]).normal(0, 0.25, (80, len(SERIES)))

    def factor(night: int, number: int) -> float:
        if number == HDF5_WRITE:
            if night >= COLLAPSE:
                return 0.003
            return calm_gain if night >= COLLAPSE - days_before else 1.0
        return float(np.exp(noise[night, number])) * (0.3 if night >= COLLAPSE - days_before else 1.0)

    return factor


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("calm_gain", [1.0, 0.93])
@pytest.mark.parametrize("days_before", [1, 2, 3])
def test_collapse_of_a_calm_series_beside_an_older_suspicion_is_an_event_of_its_own(
    history: History, root: Path, days_before: int, calm_gain: float
) -> None:
    """It was part of the suspicion of noisy series, with their date; ×0.003 needs action on its first morning."""
    factor = noisy_event_and_collapse(3, days_before, calm_gain)
    record(history, range(COLLAPSE - days_before), factor)
    suspected: list[Finding] = []
    for night in range(COLLAPSE - days_before, COLLAPSE):
        record(history, [night], factor)
        suspected = [finding for finding in update(history, night) if finding.resolution is None]
    assert suspected
    for night in range(COLLAPSE, COLLAPSE + 7):
        record(history, [night], factor)
        findings = update(history, night)
        (collapse,) = (finding for finding in findings if finding.date == "2025-02-10" and finding.resolution is None)
        assert collapse.needs_action, f"night {night}"
        assert collapse.id == "site-20250210-down"
        (member,) = (member for member in collapse.members if member.series_id == HDF5_WRITE + 1)
        assert member.gain < 0.01
