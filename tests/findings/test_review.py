"""Decisions: the effect of each on its finding only; the decision files."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.core import InputError, utc_now
from iowatch.findings import finding_document, state, update_findings
from iowatch.findings.state import accepted_since_by_series
from iowatch.output.notices import compose_notices
from iowatch.output.text.decisions import describe_orphaned_decision, format_updates
from iowatch.output.text.findings import finding_lines, finding_list_lines, remaining_change_lines
from iowatch.reference import events, reviews
from iowatch.reference.reviews import Decision
from iowatch.store import History
from tests.builders import build_finding, build_member
from tests.findings.conftest import STEP, RecordAndUpdate, level, scenario_of, slower_mpiio, update_time
from tests.output.notify.conftest import prevent_overdue_notice, settings

END = date(2025, 4, 1)
NAME = "planted-20250210-down"


def decide(decision: str, on: date, until: date | None = None, finding: str = NAME) -> None:
    reviews.add_decision(
        "planted",
        {"finding": finding, "decision": decision, "by": "A. Reviewer", "reason": "why", "date": on, "until": until},
    )


def test_acknowledgement_expires_with_an_update(record_and_update: RecordAndUpdate, history: History) -> None:
    record_and_update(slower_mpiio(), END, None)
    decide("acknowledged", END, until=END + timedelta(days=7))
    (held,) = update_findings(history, "planted", update_time(END + timedelta(days=7)))
    (back,) = update_findings(history, "planted", update_time(END + timedelta(days=8)))
    (quiet,) = update_findings(history, "planted", update_time(END + timedelta(days=9)))
    assert (held.state, back.state) == ("acknowledged", "open")
    assert format_updates(back) == ("decision expired: acknowledged by A. Reviewer",)
    assert format_updates(quiet) == ()


def test_dismissing_affects_only_that_finding(record_and_update: RecordAndUpdate, history: History) -> None:
    later = STEP + timedelta(days=20)
    scenario = scenario_of(
        *(level("MPIIO", op, (STEP, 0.5)) for op in ("write", "read")),
        *(level("POSIX", op, (later, 0.5)) for op in ("write", "read")),
    )
    record_and_update(scenario, END, None)
    decide("dismissed", END)
    second, first = update_findings(history, "planted", update_time(END))
    assert (first.state, second.state) == ("dismissed", "open")
    assert first.review is not None
    assert first.review.reason == "why"


def test_dismissed_finding_that_remains_is_stated(
    record_and_update: RecordAndUpdate, history: History, cli: Callable[..., Result]
) -> None:
    """Two series lost half of their bandwidth; a dismissed finding is not open, but not normal either."""
    record_and_update(slower_mpiio(), END, None)
    decide("dismissed", END)
    (text,) = remaining_change_lines(update_findings(history, "planted", update_time(END)))
    decided = f"dismissed by A. Reviewer on {END}: why; {NAME}"
    # Half, with the noise of the simulation.
    assert re.sub("5[01] %", "50 %", text) == f"2 series remain 50 % below the level before 10 Feb 2025 ({decided})"
    done = cli("findings", "list", "--system", "planted")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, text)
    prevent_overdue_notice(history)
    (digest,) = compose_notices(history, "planted", settings(digest="monday"), {}, update_time(END))[0]
    assert digest.lines == ("Sessions: none", "Findings: 1 first seen this week, 0 open", text)


def test_dismissed_finding_whose_level_returned_is_not_stated(
    record_and_update: RecordAndUpdate, history: History
) -> None:
    back = STEP + timedelta(days=25)
    scenario = scenario_of(
        *(level("MPIIO", op, (STEP, 0.5), (back, 2.0)) for op in ("write", "read")),
        *(level("POSIX", op) for op in ("write", "read")),
    )
    record_and_update(scenario, back, None)
    decide("dismissed", back)
    assert len(remaining_change_lines(update_findings(history, "planted", update_time(back)))) == 1
    assert remaining_change_lines(record_and_update(scenario, END, back)) == ()


def test_dismissed_finding_has_no_updates(record_and_update: RecordAndUpdate, history: History) -> None:
    """Neither pending updates nor the return of its level are reported."""
    back = STEP + timedelta(days=25)
    scenario = scenario_of(
        *(level("MPIIO", op, (STEP, 0.5), (back, 2.0)) for op in ("write", "read")),
        *(level("POSIX", op) for op in ("write", "read")),
    )
    record_and_update(scenario, back, None, report=False)
    decide("dismissed", back)
    (dismissed,) = update_findings(history, "planted", update_time(back))
    assert (dismissed.state, format_updates(dismissed)) == ("dismissed", ())
    recovery, loss = record_and_update(scenario, END, back)
    assert (recovery.state, format_updates(recovery)) == ("resolved", ())
    assert (loss.state, format_updates(loss)) == ("dismissed", ())


def test_detection_starts_at_the_accepted_level(record_and_update: RecordAndUpdate, history: History) -> None:
    """After acceptance the old step is ignored, and a step down from the new level is detected."""
    second = STEP + timedelta(days=30)
    scenario = scenario_of(
        *(level("MPIIO", op, (STEP, 0.5), (second, 0.5)) for op in ("write", "read")),
        *(level("POSIX", op) for op in ("write", "read")),
        last=date(2025, 4, 30),
    )
    record_and_update(scenario, second, None)
    decide("accepted", second)
    (accepted,) = (f for f in update_findings(history, "planted", update_time(second)) if f.id == NAME)
    assert (accepted.state, accepted.session_loss) == ("accepted", None)
    starts = state.accepted_level_starts(history, "planted", second)
    assert starts == {m.series_id: m.first_after for m in accepted.members}
    new, old = record_and_update(scenario, date(2025, 4, 30), second)
    assert (old.id, old.state) == (NAME, "accepted")
    assert (new.direction, new.state) == ("down", "open")
    # An outlier just before a step may be dated as its first observation.
    assert abs(date.fromisoformat(new.date) - second) <= timedelta(days=2)
    assert [m.ratio for m in new.members] == pytest.approx([0.5, 0.5], rel=0.1)


def test_expired_acceptance_reopens_the_finding(record_and_update: RecordAndUpdate, history: History) -> None:
    record_and_update(slower_mpiio(), END, None)
    decide("accepted", END, until=END + timedelta(days=5))
    (held,) = update_findings(history, "planted", update_time(END + timedelta(days=5)))
    (back,) = update_findings(history, "planted", update_time(END + timedelta(days=6)))
    assert (held.state, back.state, back.id) == ("accepted", "open", NAME)


def test_note_is_shown_and_does_not_change_the_state(record_and_update: RecordAndUpdate, history: History) -> None:
    record_and_update(slower_mpiio(), END, None)
    decide("note", END)
    (found,) = update_findings(history, "planted", update_time(END))
    assert found.state == "open"
    assert [n.reason for n in found.notes] == ["why"]
    (note,) = found.notes
    lines = finding_lines(replace(found, notes=(replace(note, reason="one line\nand another"),)))
    assert any(line.endswith("one line and another") for line in lines)


def assign(to: str | None, on: date, until: date | None = None) -> None:
    decision = "assigned" if to else "unassigned"
    entry = {"finding": NAME, "decision": decision, "to": to, "by": "A. Reviewer", "date": on, "until": until}
    reviews.add_decision("planted", entry)


def test_owner_is_that_of_the_newest_assignment_in_force(record_and_update: RecordAndUpdate, history: History) -> None:
    """Like other decisions: the last unexpired one applies; the state stays open, and a reason is not needed."""
    (found,) = record_and_update(slower_mpiio(), END, None)
    assert (found.state, found.owner) == ("open", None)
    assign("B. Operator", END)
    assign("C. Operator", END, until=END + timedelta(days=1))
    (both,) = update_findings(history, "planted", update_time(END))
    assert (both.state, both.review, both.owner, finding_document(both)["owner"]) == (
        "open",
        None,
        *["C. Operator"] * 2,
    )
    assert any(line.split(maxsplit=1) == ["Owner", "C. Operator"] for line in finding_lines(both))
    assert "    owner: C. Operator" in finding_list_lines([both])
    (expired,) = update_findings(history, "planted", update_time(END + timedelta(days=2)))
    assert expired.owner == "B. Operator"
    assign(None, END)
    assert update_findings(history, "planted", update_time(END + timedelta(days=2)))[0].owner is None


def test_later_decision_overrides_an_earlier_one(record_and_update: RecordAndUpdate, history: History) -> None:
    record_and_update(slower_mpiio(), END, None)
    decide("dismissed", END)
    decide("acknowledged", END, until=END + timedelta(days=7))
    assert update_findings(history, "planted", update_time(END))[0].state == "acknowledged"


def test_orphaned_decision_is_reported(record_and_update: RecordAndUpdate, history: History) -> None:
    record_and_update(slower_mpiio(), END, None)
    decide("dismissed", END, finding="planted-20250211-down")
    (orphaned,) = state.orphaned_decisions(history)
    assert orphaned.finding == "planted-20250211-down"
    assert describe_orphaned_decision(orphaned) == (
        f"{orphaned.path}: a decision on 'planted-20250211-down', which is not in this history"
    )


def test_comments_and_order_survive_a_decision(root: Path) -> None:
    path = root / "reference/reviews/planted.yaml"
    before = (
        "# Ask before you dismiss.\n"
        "system: planted\n"
        "decisions:\n"
        "  - finding: old   # the one of last year\n"
        "    decision: dismissed\n"
        "    by: B\n"
        "    reason: 'quoted: as it was'\n"
        "    date: 2024-01-01\n"
    )
    path.write_text(before)
    decide("dismissed", END)
    after = path.read_text()
    assert after.startswith(before)
    assert [d.finding for d in reviews.load_decisions("planted")] == ["old", NAME]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("  - {finding: a, decision: dismissed, by: B, reason: r, date: 2025-01-01, reson: x}\n", 3, "unknown field"),
        ("  - {finding: a, decision: forgiven, by: B, reason: r, date: 2025-01-01}\n", 3, "'accepted'"),
        ("  - {finding: a, decision: dismissed, by: B, date: 2025-01-01}\n", 3, "reason"),
        ("  - {finding: a, decision: dismissed, by: B, reason: '  ', date: 2025-01-01}\n", 3, "at least 1 character"),
        ("  - {finding: a, decision: acknowledged, by: B, reason: r, date: 2025-01-01}\n", 3, "needs 'until'"),
        (
            "  - {finding: a, decision: dismissed, by: B, reason: r, date: 2025-01-02, until: 2025-01-01}\n",
            3,
            "before 'date'",
        ),
        ("  - finding: a\n    decision: dismissed\n    by: B\n    reason: r\n    date: soon\n", 7, "date"),
        ("  - {finding: a, decision: assigned, by: B, date: 2025-01-01}\n", 3, "'to' names the owner"),
        ("  - {finding: a, decision: note, to: C, by: B, reason: r, date: 2025-01-01}\n", 3, "'to' names the owner"),
    ],
)
def test_damaged_review_file_is_refused_with_its_line(root: Path, text: str, line: int, message: str) -> None:
    path = root / "reference/reviews/planted.yaml"
    path.write_text("system: planted\ndecisions:\n" + text)
    with pytest.raises(InputError) as caught:
        reviews.load_decisions("planted")
    assert caught.value.message.startswith(f"{path}:{line}:")
    assert message in caught.value.message


TODAY = utc_now().date()
YEAR = timedelta(days=366)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"date": TODAY + timedelta(days=3)}, "in the future; expected the day on which it was decided"),
        ({"date": date(9999, 12, 31)}, "in the future"),
        ({"date": date(1, 1, 1)}, "expected a day from 1970-01-01 on"),
        ({"decision": "acknowledged", "date": TODAY, "until": TODAY + YEAR + timedelta(days=1)}, "more than a year"),
        ({"decision": "acknowledged", "date": date(2020, 1, 1), "until": date(9999, 12, 31)}, "more than a year"),
        ({"date": TODAY, "until": date(9999, 12, 31)}, "more than 10 years after"),
    ],
)
def test_days_of_decisions_have_bounds(root: Path, fields: dict[str, object], message: str) -> None:
    entry = {"finding": "a", "decision": "dismissed", "by": "B", "reason": "r", **fields}
    with pytest.raises(InputError, match=message):
        reviews.add_decision("planted", entry)
    assert not (root / "reference/reviews/planted.yaml").exists()


def test_an_acknowledgement_may_last_a_year_and_is_renewed(root: Path) -> None:
    decide("acknowledged", TODAY, until=TODAY + YEAR)
    decide("acknowledged", TODAY, until=TODAY + YEAR)
    assert len(reviews.load_decisions("planted")) == 2
    decide("accepted", TODAY + timedelta(days=1))  # the day of a system may be the next one in UTC


@pytest.mark.parametrize("field", ["date", "until"])
@pytest.mark.parametrize("day", [date(9999, 12, 31), date(1, 1, 1), TODAY + YEAR + timedelta(days=1)])
def test_days_of_events_have_bounds(root: Path, cli: Callable[..., Result], field: str, day: date) -> None:
    """At the command line, and by `add_event`, which the forms of the pages call."""
    entry = {"date": END, "until": END, "kind": "outage", "title": "typo", field: day}
    if field == "date":
        entry["until"] = None
    with pytest.raises(InputError, match=f"'{field}' is .*; expected a day from 1970-01-01 to|before 'date'"):
        events.add_event("planted", entry)
    days = [f"--{name}={value}" for name, value in entry.items() if name in ("date", "until") and value]
    done = cli("event", "add", "typo", "--system", "franklin", "--kind", "outage", *days)
    assert (done.exit_code, "internal error" in done.output) == (2, False)
    assert events.load_events("planted") == ()


DECISIONS = """\
system: planted
decisions:
  - {finding: planted-20250210-down, decision: accepted, by: B, reason: typo, date: 2099-01-01}
  - {finding: other, decision: note, by: B, reason: kept, date: 2025-04-01}
  - {finding: planted-20250210-down, decision: acknowledged, by: B, reason: y, date: 2025-02-30, until: 2025-03-01}
"""
EVENTS = """\
system: planted
events:
  - {date: 9999-12-31, kind: outage, title: far}
  - {date: 2025-02-10, kind: upgrade, title: new MPI}
  - {date: 2025-02-30, kind: outage, title: no such day}
"""


def test_invalid_entries_are_skipped_and_reported(
    root: Path, record_and_update: RecordAndUpdate, history: History, cli: Callable[..., Result]
) -> None:
    """The event is a cause, and the note is kept; what was typed wrong decides nothing."""
    (root / "reference/reviews/planted.yaml").write_text(DECISIONS)
    (root / "reference/events/planted.yaml").write_text(EVENTS)
    (found,) = record_and_update(slower_mpiio(), END)
    assert (found.state, [cause.event for cause in found.causes]) == ("open", ["upgrade"])
    assert [decision.finding for decision in reviews.read_decisions("planted").decisions] == ["other"]
    listed = cli("findings", "list")
    assert listed.exit_code == 1
    for place in ("reviews/planted.yaml:3", "reviews/planted.yaml:5", "events/planted.yaml:3", "events/planted.yaml:5"):
        assert place in listed.output
    assert "this entry has no effect until it is corrected" in listed.output
    listed = cli("event", "list", "--system", "planted")
    assert (listed.exit_code, "upgrade: new MPI" in listed.output) == (2, True)


def test_invalid_date_is_refused_with_its_line(root: Path) -> None:
    path = root / "reference/events/planted.yaml"
    path.write_text("system: planted\nevents:\n  - date: 2025-02-30\n    kind: outage\n    title: a\n")
    with pytest.raises(InputError) as caught:
        events.load_events("planted")
    assert caught.value.message.startswith(f"{path}:3:11: '2025-02-30' is not a valid timestamp")


def test_list_without_entries_is_empty(root: Path) -> None:
    (root / "reference/reviews/planted.yaml").write_text("system: planted\ndecisions:\n")
    (root / "reference/events/planted.yaml").write_text("# none yet\nsystem: planted\nevents:\n")
    assert (reviews.load_decisions("planted"), events.load_events("planted")) == ((), ())
    decide("note", END)
    assert len(reviews.load_decisions("planted")) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("system: planted\ndecisions:\n  finding: a\n", ":2:1: field 'decisions': Input should be a valid tuple"),
        ("system: planted\ndecisions:\n  - a\n", ":3:5: field 'decisions.0': Input should be a valid dictionary"),
        ("- finding: a\n", ":1:1: Input should be a valid dictionary"),
    ],
)
def test_file_of_wrong_structure_is_refused(root: Path, text: str, message: str) -> None:
    path = root / "reference/reviews/planted.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        reviews.load_decisions("planted")
    assert caught.value.message.startswith(f"{path}{message}")


def test_all_faults_of_an_event_file_are_reported_together(root: Path) -> None:
    path = root / "reference/events/planted.yaml"
    path.write_text(
        "system: planted\nevents:\n"
        "  - date: 2025-01-01\n    kind: party\n    title: a\n"
        "  - date: 2025-01-02\n    kind: outage\n"
    )
    with pytest.raises(InputError) as caught:
        events.load_events("planted")
    first, second = caught.value.message.splitlines()
    assert first.startswith(f"{path}:4:11: field 'events.0.kind'")
    assert second.startswith(f"{path}:6:5: field 'events.1.title'")


def test_file_of_another_system_is_refused(root: Path) -> None:
    (root / "reference/events/planted.yaml").write_text("system: other\nevents: []\n")
    with pytest.raises(InputError, match="expected 'planted'"):
        events.load_events("planted")


def test_event_is_added_and_read_back(root: Path) -> None:
    added = events.add_event(
        "new", {"date": END, "kind": "hardware", "title": "new OST", "scope": {"file_system": "s1"}}
    )
    assert events.load_events("new") == (added,)


def test_invalid_event_does_not_change_the_file(root: Path) -> None:
    path = root / "reference/events/franklin.yaml"
    before = path.read_bytes()
    with pytest.raises(InputError):
        events.add_event("franklin", {"date": END, "kind": "party", "title": "x"})
    assert path.read_bytes() == before


# One of several administrators: adds events and a decision like the commands.
ADMINISTRATOR = """
import datetime, sys
from iowatch.reference import events, reviews
name, day = sys.argv[1], datetime.date(2025, 4, 1)
for number in range(3):
    events.add_event("planted", {"date": day, "kind": "other", "title": f"{name}{number}", "by": name})
reviews.add_decision("planted", {"finding": name, "decision": "note", "by": name, "reason": "why", "date": day})
"""


def test_concurrent_writers_lose_no_entry(root: Path) -> None:
    """Processes, not threads, as with several users of one checkout."""
    names = [f"p{number}" for number in range(4)]
    running = [subprocess.Popen([sys.executable, "-c", ADMINISTRATOR, name]) for name in names]
    assert [process.wait() for process in running] == [0] * len(names)
    assert {e.title for e in events.load_events("planted")} == {f"{name}{n}" for name in names for n in range(3)}
    assert {d.finding for d in reviews.load_decisions("planted")} == set(names)


def test_newer_of_two_accepted_levels_applies() -> None:
    """Independent of the order of the findings."""
    decisions = [
        Decision(finding=name, decision="accepted", by="me", reason="known", date=date(2025, 3, 1))
        for name in ("old", "new")
    ]
    findings = [
        build_finding(build_member(1, first_after=moment), id=name) for name, moment in (("new", 200), ("old", 100))
    ]
    assert accepted_since_by_series(findings, decisions, date(2025, 3, 2)) == {1: 200}
    assert accepted_since_by_series(findings[::-1], decisions, date(2025, 3, 2)) == {1: 200}
