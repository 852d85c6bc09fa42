"""`iowatch report`: what a quarter of a system delivered, and what its losses cost.

Expected hours follow from the definition in docs/notices.md: days x share of the performance lost / half x 10 hours.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.core import UsageError
from iowatch.findings import Resolution
from iowatch.reference import events, reviews
from iowatch.session.service_report import Period, parse_quarter, quarter_of, report_period
from iowatch.store import History
from tests.builders import build_expected_result, build_output, build_result, build_run, build_session, store_session
from tests.findings.conftest import STEP, RecordAndUpdate, level, scenario_of, slower_mpiio

Cli = Callable[..., Result]
TODAY = date(2025, 12, 31)
FIRST_QUARTER = parse_quarter("2025-Q1")


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2025-Q1", date(2025, 1, 1), date(2025, 3, 31)),
        ("2024q4", date(2024, 10, 1), date(2024, 12, 31)),
        ("2025-Q3", date(2025, 7, 1), date(2025, 9, 30)),
    ],
)
def test_a_quarter_is_three_months_of_the_calendar(text: str, first: date, last: date) -> None:
    quarter = parse_quarter(text)
    assert (quarter.first, quarter.last) == (first, last)
    # Of each of its days it is the same quarter, and of the days beside it another one.
    assert quarter_of(first) == quarter_of(last) == quarter


@pytest.mark.parametrize("text", ["2025", "2025-Q5", "0000-Q1", "9999-Q4", "25-Q1", "2025-Q1-Q2"])
def test_what_is_no_quarter_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a quarter"):
        parse_quarter(text)


def test_the_period_before_a_quarter_is_a_quarter_and_of_days_as_many_days() -> None:
    # The fourth quarter has 92 days, the first of 2025 90.
    assert FIRST_QUARTER.before() == parse_quarter("2024-Q4")
    assert Period(date(2025, 3, 11), date(2025, 3, 20)).before() == Period(date(2025, 3, 1), date(2025, 3, 10))


def test_a_loss_costs_its_days_in_the_period_times_its_share(
    record_and_update: RecordAndUpdate, history: History
) -> None:
    # From 10 February, 2 of 8 series of the file system have half of their performance: a share of 1/8 of the file
    # system, which costs 2.5 hours a day at 10 hours for half of it. The last run is in the night of 30 March.
    record_and_update(slower_mpiio(), date(2025, 3, 31))
    report = report_period(history, "planted", FIRST_QUARTER, TODAY)
    (part,) = [part for part in report.findings if part.lost_hours > 0]
    assert part.days == pytest.approx(48, abs=1)
    assert part.lost_hours == pytest.approx(2.5 * part.days, rel=0.1)
    assert (part.began, part.ended, report.open_at_end) == (True, False, 1)
    # Demonstrations have no nights of their own.
    assert report.availability is None


def test_nothing_is_lost_after_the_newest_run(record_and_update: RecordAndUpdate, history: History) -> None:
    record_and_update(slower_mpiio(), date(2025, 3, 31))
    later = report_period(history, "planted", parse_quarter("2025-Q3"), TODAY)
    assert later.is_empty
    # The loss is not over because nobody measures it any more.
    assert (later.lost_hours, later.open_at_end, later.began) == (0.0, 1, 0)
    assert report_period(history, "planted", parse_quarter("2024-Q4"), TODAY).is_empty


def test_a_loss_that_returned_ended_on_that_day(record_and_update: RecordAndUpdate, history: History) -> None:
    back = date(2025, 3, 7)
    series = [level("MPIIO", operation, (STEP, 0.5), (back, 2.0)) for operation in ("write", "read")]
    series += [level(api, operation) for api in ("POSIX", "HDF5", "NETCDF4") for operation in ("write", "read")]
    # The updates of both mornings: a loss, then its recovery.
    record_and_update(scenario_of(*series), date(2025, 3, 1))
    record_and_update(scenario_of(*series), date(2025, 3, 31), since=date(2025, 3, 1))
    report = report_period(history, "planted", FIRST_QUARTER, TODAY)
    (part,) = [part for part in report.findings if part.lost_hours > 0]
    assert part.ended
    assert part.days == pytest.approx((back - STEP).days, abs=1)
    assert report.open_at_end == 0


def test_an_accepted_loss_costs_until_it_is_accepted(record_and_update: RecordAndUpdate, history: History) -> None:
    (finding,) = [finding for finding in record_and_update(slower_mpiio(), date(2025, 2, 24)) if finding.is_loss]
    entry = {"finding": finding.id, "decision": "accepted", "by": "A. Admin", "reason": "meant"}
    reviews.add_decision("planted", {**entry, "date": date(2025, 2, 25)})
    events.add_event("planted", {"date": date(2025, 2, 10), "kind": "upgrade", "title": "MPI 5"})
    record_and_update(slower_mpiio(), date(2025, 3, 31), since=date(2025, 2, 24))
    report = report_period(history, "planted", FIRST_QUARTER, TODAY)
    (part,) = [part for part in report.findings if part.finding.id == finding.id]
    assert part.ended
    # From 10 February to the end of the 25th.
    assert part.days == pytest.approx(16, abs=1)
    assert report.days_until_decision == (15,)
    assert [event.title for event in report.events] == ["MPI 5"]
    assert [decision.by for decision in report.decisions] == ["A. Admin"]


def _store_night(history: History, day: date, received: bool = True) -> None:
    started_at = int(datetime(day.year, day.month, day.day, 2, tzinfo=UTC).timestamp())
    session = build_session(f"session-{day}", started_at=started_at)
    runs = [build_run(build_result(), started_at=started_at)] if received else []
    expected = [build_expected_result(), build_expected_result(operation="read")]
    store_session(history, session, runs, expected=expected)


def test_nights_count_from_the_first_session_to_yesterday(history: History, root: Path) -> None:
    for day in (date(2025, 1, 10), date(2025, 1, 11), date(2025, 1, 14)):
        _store_night(history, day)
    # It started, and received nothing.
    _store_night(history, date(2025, 1, 13), received=False)
    report = report_period(history, "local", FIRST_QUARTER, date(2025, 1, 16))
    # 10 to 15 January: that of the 16th may still come.
    assert report.availability is not None
    assert (report.availability.nights, report.availability.measured) == (6, 3)
    # Each session expected two results, three sessions received one of them.
    assert (report.availability.expected, report.availability.received) == (8, 3)
    assert report_period(history, "local", FIRST_QUARTER.before(), date(2025, 1, 16)).is_empty


def test_nights_of_a_blackout_are_not_missed(history: History, root: Path) -> None:
    (root / "systems" / "local").mkdir(parents=True)
    lines = (
        "night:\n  blackouts:\n  - {reason: move, since: 2025-01-11, until: 2025-01-12, start: '00:00', end: '12:00'}\n"
    )
    (root / "systems" / "local" / "system.yaml").write_text(f"name: local\ntitle: mine\n{lines}", encoding="utf-8")
    for day in (date(2025, 1, 10), date(2025, 1, 14)):
        _store_night(history, day)
    report = report_period(history, "local", FIRST_QUARTER, date(2025, 1, 15))
    assert report.availability is not None
    assert (report.availability.nights, report.availability.blackouts) == (3, 2)


def test_a_blackout_at_another_hour_excludes_no_night(history: History, root: Path) -> None:
    """The sessions start at 02:00; a blackout of the working hours of each day hides no missed night."""
    (root / "systems" / "local").mkdir(parents=True)
    lines = "night:\n  blackouts:\n  - {reason: work, start: '08:00', end: '18:00'}\n"
    (root / "systems" / "local" / "system.yaml").write_text(f"name: local\ntitle: mine\n{lines}", encoding="utf-8")
    for day in (date(2025, 1, 10), date(2025, 1, 14)):
        _store_night(history, day)
    # A session that a person started in the working hours does not move the usual start.
    by_hand = int(datetime(2025, 1, 14, 11, tzinfo=UTC).timestamp())
    store_session(history, build_session("by hand", started_at=by_hand), [])
    report = report_period(history, "local", FIRST_QUARTER, date(2025, 1, 15))
    assert report.availability is not None
    # 10 to 14 January, of which the 11th to the 13th were missed.
    assert (report.availability.nights, report.availability.measured, report.availability.blackouts) == (5, 2, 0)


def test_a_night_whose_runs_all_failed_is_not_measured(history: History, root: Path) -> None:
    _store_night(history, date(2025, 1, 10))
    started_at = int(datetime(2025, 1, 11, 2, tzinfo=UTC).timestamp())
    failed = build_run(output=build_output(status="failed", reason="no space"), started_at=started_at)
    store_session(history, build_session("failed", started_at=started_at), [failed], expected=[build_expected_result()])
    report = report_period(history, "local", FIRST_QUARTER, date(2025, 1, 12))
    assert report.availability is not None
    assert (report.availability.nights, report.availability.measured) == (2, 1)


def test_no_night_of_a_retired_system_is_missed(history: History, root: Path) -> None:
    (root / "systems" / "local").mkdir(parents=True)
    text = "name: local\ntitle: mine\nretired: switched off in January\n"
    (root / "systems" / "local" / "system.yaml").write_text(text, encoding="utf-8")
    for day in (date(2025, 1, 10), date(2025, 1, 12)):
        _store_night(history, day)
    report = report_period(history, "local", FIRST_QUARTER, TODAY)
    assert report.availability is not None
    assert (report.availability.nights, report.availability.measured) == (3, 2)


def test_a_loss_of_two_sessions_ends_with_the_third(record_and_update: RecordAndUpdate, history: History) -> None:
    """Its first run is an hour after the start of its first session."""
    (finding, *_) = [finding for finding in record_and_update(slower_mpiio(), date(2025, 2, 24)) if finding.is_loss]
    day_s = 86_400
    starts = [number * day_s for number in range(10)]
    short = replace(finding, first_after=3 * day_s + 3600, resolution=Resolution("transient", sessions=2))
    assert short.end(starts) == 5 * day_s
    # Without a session after it, and without the sessions, its end is not known.
    assert short.end(starts[:5]) is None
    assert short.end() is None
    assert replace(short, resolution=Resolution("not confirmed")).end(starts) is None


def test_the_sheet_has_the_same_figures_in_all_forms(
    record_and_update: RecordAndUpdate, history: History, cli: Cli, tmp_path: Path
) -> None:
    record_and_update(slower_mpiio(), date(2025, 3, 31))
    html, markdown = tmp_path / "q.html", tmp_path / "q.md"
    words = ("report", "--system", "planted", "--quarter", "2025-Q1")
    text = cli(*words, "--html", html, "--markdown", markdown)
    assert text.exit_code == 0, text.output
    (document,) = json.loads(cli(*words, "--json").output)
    hours = f"{document['lost_hours']:.0f} h"
    assert document["findings"][0]["began"] is True
    for form in (text.output, html.read_text(encoding="utf-8"), markdown.read_text(encoding="utf-8")):
        assert hours in form
        assert "2025-Q1" in form
        assert "since 10 Feb 2025: 48 days of this period" in form


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--quarter", "2025-Q5"), "is not a quarter"),
        (("--quarter", "2025-Q1", "--from", "2025-01-01"), "exclude each other"),
        (("--to", "2025-01-01"), "--to without --from"),
        (("--from", "2025-02-01", "--to", "2025-01-01"), "before it begins"),
        (("--from", "2024-01-01", "--to", "2024-01-31"), "no system has a session or a finding"),
        (("--system", "other"), "other"),
        (("--from", "0001-01-01"), "is not in the years 2000 to 2099"),
        (("--from", "2025-01-01", "--to", "9999-12-31"), "is not in the years 2000 to 2099"),
    ],
)
def test_wrong_periods_are_refused(
    record_and_update: RecordAndUpdate, history: History, cli: Cli, options: tuple[str, ...], message: str
) -> None:
    record_and_update(slower_mpiio(), date(2025, 1, 10), update=False)
    result = cli("report", *options)
    assert result.exit_code == 2
    assert message in result.output
