"""What people type and read about a system is in its time zone; what is stored, and JSON, is in UTC.

Berlin's clocks go from 02:00 CET to 03:00 CEST on 29 March 2026 (01:00 UTC), and from 03:00 CEST to 02:00 CET on
25 October 2026 (01:00 UTC), as everywhere in the European Union on the last Sundays of March and October.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import Result

from iowatch.comparison.sides import Period, parse_period
from iowatch.core import InputError, format_local_time, local_day, parse_time, start_of_day
from iowatch.findings import Finding, update_findings
from iowatch.output.dashboard.build import make_template_environment
from iowatch.output.notices import compose_notices
from iowatch.output.text.findings import finding_line, finding_lines
from iowatch.reference import events, reviews
from iowatch.session.blackouts import BlackoutWindow, blackout_windows, current_blackout, jitter_s, wait_for_start
from iowatch.session.budget import session_budget
from iowatch.session.imports import time_in_name
from iowatch.site import shared_zone, system_today, system_zone
from iowatch.site.system import Blackout, NightlyPolicy
from iowatch.store import History
from tests.builders import build_session
from tests.findings.conftest import RecordAndUpdate, level, record_and_update, root, scenario_of, update_time
from tests.output.notify.conftest import settings

__all__ = ["record_and_update", "root"]

BERLIN = ZoneInfo("Europe/Berlin")
Declare = Callable[..., None]
HOUR_S = 3600


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def epoch(text: str) -> int:
    return int(utc(text).timestamp())


# The zone of a system


def test_zone_of_a_system_is_declared_or_that_of_the_site(declared: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    declared(a="Europe/Berlin", b="Europe/Berlin", c="Asia/Tokyo")
    assert [str(system_zone(name)) for name in ("a", "c", "d")] == ["Europe/Berlin", "Asia/Tokyo", "UTC"]
    assert str(shared_zone(["a", "b"])) == "Europe/Berlin"
    monkeypatch.setenv("IOWATCH_TIMEZONE", "America/New_York")
    assert [str(system_zone(name)) for name in ("a", "d")] == ["Europe/Berlin", "America/New_York"]
    assert str(shared_zone(["a", "c"])) == str(shared_zone([])) == "America/New_York"  # several or none: of the site
    late = utc("2026-02-01T03:30")
    assert (system_today("a", late), system_today("d", late)) == (date(2026, 2, 1), date(2026, 1, 31))


def test_unknown_zone_of_the_site_is_reported_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site.yaml").write_text("title: A site\ntimezone: Europe/Brelin\n")
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path))
    with pytest.raises(InputError, match=r"site.yaml:2:11: field 'timezone'.*Did you mean 'Europe/Berlin'"):
        system_zone("nowhere")


# Days and times of a zone


@pytest.mark.parametrize(("day", "hours"), [(date(2026, 3, 29), 23), (date(2026, 10, 25), 25), (date(2026, 11, 1), 24)])
def test_days_have_the_length_of_their_zone(day: date, hours: int) -> None:
    begin, end = (start_of_day(one, BERLIN) for one in (day, day + timedelta(days=1)))
    assert end - begin == hours * HOUR_S
    assert [local_day(at, BERLIN) - day for at in (begin - 1, begin, end - 1, end)] == [
        timedelta(days=n) for n in (-1, 0, 0, 1)
    ]


def test_day_without_midnight_begins_with_the_clock_change() -> None:
    """Cairo's clocks went from 00:00 to 01:00 on 25 April 2025, at 22:00 UTC of the day before."""
    assert start_of_day(date(2025, 4, 25), ZoneInfo("Africa/Cairo")) == epoch("2025-04-24T22:00")


def test_times_without_a_zone_are_local_and_repeated_ones_are_told_apart() -> None:
    assert parse_time("2026-07-01T02:00", BERLIN) == utc("2026-07-01T00:00")
    assert parse_time("2026-07-01T02:00Z", BERLIN) == utc("2026-07-01T02:00")
    assert parse_time("1782864000", BERLIN) == utc("2026-07-01T00:00")  # date -u -d @1782864000
    assert parse_time("2026-10-25T02:30", BERLIN) == utc("2026-10-25T00:30")  # the first of two
    shown = [format_local_time(epoch(f"2026-10-25T0{hour}:30"), BERLIN) for hour in (0, 1)]
    assert shown == ["2026-10-25 02:30 CEST", "2026-10-25 02:30 CET"]


def test_days_of_a_period_are_local() -> None:
    """The day with 25 hours, and a time of day in summer."""
    day = parse_period("2026-10-25..2026-10-25", BERLIN)
    assert day == Period(epoch("2026-10-24T22:00"), epoch("2026-10-25T23:00"))
    assert parse_period("..2026-07-01T06:00", BERLIN) == Period(None, epoch("2026-07-01T04:00"))


def test_dates_in_file_names_are_local() -> None:
    assert time_in_name(Path("ior-2026-03-17T00:15:09.out"), BERLIN) == utc("2026-03-16T23:15:09")


# Nightly sessions


@pytest.mark.parametrize(
    ("day", "start", "end", "window"),
    [
        # Both clock changes; one hour and three hours.
        (date(2026, 3, 29), "01:30", "03:30", ("2026-03-29T00:30", "2026-03-29T01:30")),
        (date(2026, 10, 25), "01:30", "03:30", ("2026-10-24T23:30", "2026-10-25T02:30")),
        # 02:30 does not exist, and exists twice: the longer period counts.
        (date(2026, 3, 29), "02:30", "06:00", ("2026-03-29T00:30", "2026-03-29T04:00")),
        (date(2026, 10, 25), "02:30", "06:00", ("2026-10-25T00:30", "2026-10-25T05:00")),
        (date(2026, 10, 25), "01:00", "02:30", ("2026-10-24T23:00", "2026-10-25T01:30")),
        # Over midnight into the day of the change; whole days of 23 hours.
        (date(2026, 3, 28), "22:30", "04:00", ("2026-03-28T21:30", "2026-03-29T02:00")),
        (date(2026, 3, 29), "00:00", "00:00", ("2026-03-28T23:00", "2026-03-29T22:00")),
    ],
)
def test_blackouts_over_clock_changes(day: date, start: str, end: str, window: tuple[str, str]) -> None:
    blackout = Blackout(reason="backup", start=start, end=end, since=day, until=day)  # type: ignore[arg-type]
    expected = tuple(map(utc, window))
    window_of_day = BlackoutWindow(blackout, *expected)
    assert list(blackout_windows(blackout, day, 1, BERLIN)) == [window_of_day]
    policy = NightlyPolicy(blackouts=(blackout,))
    minute = timedelta(minutes=1)
    inside = [current_blackout(policy, at, BERLIN) for at in (expected[0], expected[1] - minute)]
    assert inside == [window_of_day] * 2
    assert [current_blackout(policy, at, BERLIN) for at in (expected[0] - minute, expected[1])] == [None, None]


def test_nightly_session_names_local_times(declared: Declare, messages: list[str]) -> None:
    declared(here="Europe/Berlin")
    blackout = Blackout(reason="backup", days=("tue",), start="00:30", end="03:00")  # type: ignore[arg-type]
    policy = NightlyPolicy(blackouts=(blackout,), jitter_minutes=30)
    # Tuesday, 7 July, 01:00 in Berlin is Monday in UTC.
    reason = wait_for_start(policy.model_copy(update={"jitter_minutes": None}), "here", utc("2026-07-06T23:00"))
    assert reason == "no session on here: blackout 'backup' until 2026-07-07 03:00 CEST"
    slept: list[float] = []
    assert wait_for_start(policy, "here", utc("2026-07-07T22:00"), slept.append) is None
    assert slept == [jitter_s(policy, "here", date(2026, 7, 8))]
    assert messages[0].startswith("the session on here starts at 2026-07-08 00:")
    budget = session_budget(policy, utc("2026-07-06T20:00"), BERLIN)
    assert budget.seconds == 2.5 * HOUR_S
    assert budget.limit_reason == "the time until the blackout 'backup' at 00:30 CEST"


# Events, findings, reviews

STEP, END = date(2025, 3, 30), date(2025, 5, 1)


@pytest.fixture
def slower(record_and_update: RecordAndUpdate) -> list[Finding]:
    """MPI-IO loses half of its bandwidth between the sessions of 29 and 30 March 2025, 22:00 UTC."""
    scenario = scenario_of(
        *(level("MPIIO", operation, (STEP, 0.5)) for operation in ("write", "read")),
        *(level(api, operation) for api in ("POSIX", "HDF5") for operation in ("write", "read")),
        last=END,
    )
    return record_and_update(scenario, END)


def test_finding_and_events_use_the_same_day(
    declared: Declare, slower: list[Finding], history: History, root: Path
) -> None:
    """22:00 UTC on 30 March, the day of the clock change, is midnight in Berlin: the first run of 31 March."""
    for day in (31, 28):
        title = f"of the {day}th"
        events.add_event("planted", {"date": date(2025, 3, day), "kind": "upgrade", "title": title, "by": "A"})
    (before,) = update_findings(history, "planted", update_time(END))
    assert (before.date, finding_line(before).partition(":")[0]) == ("2025-03-30", "30 Mar 2025")
    assert {cause.name: cause.when for cause in before.causes} == {
        "of the 31th": "1 day after the change",  # from 2 hours after the first changed run
        "of the 28th": "1 day before the change",
    }
    declared(planted="Europe/Berlin")
    (after,) = update_findings(history, "planted", update_time(END))
    assert (after.id, after.first_after) == (before.id, before.first_after)  # ids and times stay
    assert (after.date, finding_line(after).partition(":")[0]) == ("2025-03-31", "31 Mar 2025")
    assert {cause.name: cause.when for cause in after.causes} == {
        "of the 31th": "at the change",  # its first second is that of the first changed run
        "of the 28th": "1 day before the change",
    }
    text = "\n".join(finding_lines(after))
    assert re.search(r"between the runs of 2025-03-29 23:\d\d CET and 2025-03-31 00:\d\d CEST", text)


def test_event_lasts_as_long_as_its_local_days(declared: Declare, root: Path) -> None:
    declared(planted="Europe/Berlin")
    for day in (date(2026, 3, 29), date(2026, 10, 25)):
        events.add_event("planted", {"date": day, "kind": "outage", "title": "x", "by": "A"})
    spans = [(event.start, event.end) for event in events.load_events("planted")]
    assert spans == [
        (epoch("2026-03-28T23:00"), epoch("2026-03-29T22:00")),
        (epoch("2026-10-24T22:00"), epoch("2026-10-25T23:00")),
    ]


def test_new_findings_are_named_after_the_local_day(declared: Declare, record_and_update: RecordAndUpdate) -> None:
    declared(planted="Asia/Tokyo")
    scenario = scenario_of(
        *(level("MPIIO", op, (STEP, 0.5)) for op in ("write", "read")), level("POSIX", "read"), last=END
    )
    (found,) = record_and_update(scenario, END)
    # 22:00 UTC is 07:00 of the next day in Tokyo.
    assert (found.id, found.date) == ("planted-20250331-down", "2025-03-31")


def test_decision_holds_until_the_end_of_its_last_local_day(
    declared: Declare, slower: list[Finding], history: History
) -> None:
    """The day of the change in autumn ends at 23:00 UTC, that in spring at 22:00 UTC."""
    declared(planted="Europe/Berlin")
    decision = {"finding": slower[0].id, "decision": "acknowledged", "by": "A", "reason": "why", "date": END}
    for until, last, over in (
        (date(2025, 10, 26), "2025-10-26T22:59", "2025-10-26T23:00"),
        (date(2026, 3, 29), "2026-03-29T21:59", "2026-03-29T22:00"),
    ):
        reviews.add_decision("planted", {**decision, "until": until})
        states = [update_findings(history, "planted", utc(moment))[0].state for moment in (last, over)]
        assert states == ["acknowledged", "open"]


# Notices


def test_digest_is_sent_on_the_local_day(declared: Declare, history: History) -> None:
    """Monday, 5 January 2026, begins in Tokyo at 15:00 UTC on Sunday."""
    history.begin_session(build_session("one", system="here", suite="smoke", started_at=epoch("2026-01-04T10:00")))
    weekly = settings(digest="monday")

    declared(here="Asia/Tokyo")
    found = [compose_notices(history, "here", weekly, None, utc(f"2026-01-04T{at}"))[0] for at in ("14:59", "15:00")]
    keys = [notice.key for notices in found for notice in notices]
    assert keys == ["digest here 2026-W01", "digest here 2026-W02"]
    assert found[1][0].title.startswith("here: the week to 2026-01-05: 1 session")


# Pages and commands


def test_pages_show_days_of_the_system_and_times_of_the_site(declared: Declare) -> None:
    """22:00 UTC is midnight in Berlin in summer, and 07:00 of the next day in Tokyo."""
    declared(a="Asia/Tokyo", b="America/New_York")
    template = make_template_environment(BERLIN).from_string("{{ at | day('a') }} {{ at | day('b') }} {{ at | when }}")
    shown = re.sub("<[^>]*>", "", template.render(at=epoch("2026-07-01T22:00")))
    assert shown == "2 Jul 2026 1 Jul 2026 2026-07-02 00:00"


def test_commands_read_and_write_local_times_and_json_is_utc(
    declared: Declare, var: Path, cli: Callable[..., Result]
) -> None:
    declared(local="Europe/Berlin")
    output = Path(__file__).parent / "benchmarks/data/ior-3.2.1-json.txt"
    stored = cli("import", "ior", output, "--system", "local", "--time", "2026-07-01T00:30")
    assert stored.exit_code == 0, stored.output
    assert "2026-07-01 00:30 CEST" in cli("history", "list").stdout
    (row,) = json.loads(cli("history", "list", "--json").stdout)
    assert row["started_at"] == "2026-06-30T22:30:00Z"
    lines = [
        cli("history", "export", "--since", since, "--until", "2026-07-02").stdout.count("2026-06-30T22:30:00Z")
        for since in ("2026-07-01", "2026-07-01T00:31", "2026-06-30T22:30Z")
    ]
    assert lines[0] > 0
    assert lines == [lines[0], 0, lines[0]]
