"""Which notices are sent, when, and only once: findings, overdue sessions, the digest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.findings import FindingUpdate, finding_document, update_findings
from iowatch.output import notices
from iowatch.output.text.decisions import format_updates
from iowatch.output.text.findings import finding_line, finding_list_lines, verdict_finding_line
from iowatch.reference import reviews
from iowatch.session.night_record import read_night_record, write_night_record
from iowatch.store import ExpectedResult, FindingRow, History, SessionFacts
from tests.builders import build_output, build_result, build_run, build_session, store_session
from tests.findings.conftest import STEP, RecordAndUpdate, slower_mpiio, update_time

from .conftest import ISSUES, Post, prevent_overdue_notice, settings


def record_session(history: History, uuid: str, moment: datetime, status: str = "ok", runs: int = 1) -> None:
    from tests.output.report.test_session_reports import ran

    started = int(moment.timestamp())
    history.begin_session(build_session(uuid, started_at=started))
    for number in range(runs):
        history.record_runs(uuid, [ran(f"{uuid}-{number}")])
    history.end_session(uuid, status, started + 600)  # type: ignore[arg-type]


def test_notice_of_a_finding_is_sent_once_when_confirmed(history: History, record_and_update: RecordAndUpdate) -> None:
    prevent_overdue_notice(history)
    post, scenario = Post(), slower_mpiio()
    record_and_update(scenario, STEP)
    notices.send_notices(history, "planted", settings(), update_time(STEP), post)
    assert post.sent == []
    since, states = STEP, []
    for days in (2, 5, 8, 12, 20):
        until = STEP + timedelta(days=days)
        found = record_and_update(scenario, until, since)
        states.append([f.state for f in found])
        for _ in range(2):
            notices.send_notices(history, "planted", settings(), update_time(until), post)
        since = until
    assert states[-1] == ["open"], states
    # A suspicion that probably lasts is sent before it is confirmed.
    assert [one.facts["state"] for one in post.sent] in (["open"], ["suspected", "open"])
    assert len({one.facts["id"] for one in post.sent}) == 1
    notice = post.sent[-1]
    assert notice.kind == "finding"
    assert notice.title == f"planted [{', '.join(notice.facts['updates'])}]: {notice.facts['line']}"
    assert any(word in notice.title for word in ("[new", "[confirmed"))
    # The details do not repeat the title.
    assert notice.facts["line"] not in "\n".join((*notice.lines, *notice.details))
    assert notice.details[0].startswith("What changed")
    assert f"iowatch review accept {notice.facts['id']} --reason …" in notice.lines[2]


def test_probable_suspicion_is_sent_although_suspicions_are_not(
    history: History, record_and_update: RecordAndUpdate
) -> None:
    """Below the site's probability nothing is sent; from it on, one notice with the probability."""
    prevent_overdue_notice(history)
    post, scenario = Post(), slower_mpiio()
    record_and_update(scenario, STEP)
    notices.send_notices(history, "planted", settings(), update_time(STEP), post)
    day = STEP + timedelta(days=1)
    (finding,) = record_and_update(scenario, day, day)
    assert (finding.state, finding.probability_lasting is None) == ("suspected", False)
    for is_alarm, sent in ((False, 0), (True, 1)):
        one = replace(finding, is_alarm=is_alarm, updates=(FindingUpdate("new"),), pending=())
        history.save_findings([FindingRow(one.id, "planted", 0, 1, one.state, finding_document(one))])
        for _ in range(2):
            notices.send_notices(history, "planted", settings(), update_time(day), post)
        assert len(post.sent) == sent
    assert post.sent[0].facts["probability_lasting"] == finding.probability_lasting
    assert any(f"iowatch review accept {finding.id}" in line for line in post.sent[0].lines)


def test_notice_of_a_finding_is_sent_after_another_update(history: History, record_and_update: RecordAndUpdate) -> None:
    prevent_overdue_notice(history)
    post, scenario = Post(), slower_mpiio()
    record_and_update(scenario, STEP)
    notices.send_notices(history, "planted", settings(), update_time(STEP), post)
    until = STEP + timedelta(days=20)
    record_and_update(scenario, until, STEP)
    # Another update, for example of a manual run, clears the updates.
    assert [format_updates(f) for f in update_findings(history, "planted", update_time(until))] == [()]
    notices.send_notices(history, "planted", settings(), update_time(until), post)
    assert [notice.facts["state"] for notice in post.sent] == ["open"]


def test_finding_that_waits_for_a_decision_is_sent_by_the_first_call(
    history: History, record_and_update: RecordAndUpdate, var: Path
) -> None:
    """Whether notify.yaml is new or the outbox was lost: nobody may have been notified."""
    prevent_overdue_notice(history)
    until = STEP + timedelta(days=20)
    record_and_update(slower_mpiio(), until)
    update_findings(history, "planted", update_time(until))
    post = Post()
    for _ in range(2):
        notices.send_notices(history, "planted", settings(), update_time(until), post)
    assert [notice.title.partition(":")[0] for notice in post.sent] == ["planted [not reported before]"]
    (var / "notify" / "planted.json").unlink()
    notices.send_notices(history, "planted", settings(), update_time(until), post)
    assert len(post.sent) == 2


def test_decided_finding_is_not_sent_by_the_first_call(history: History, record_and_update: RecordAndUpdate) -> None:
    prevent_overdue_notice(history)
    until = STEP + timedelta(days=20)
    (finding,) = record_and_update(slower_mpiio(), until)
    entry = {"finding": finding.id, "decision": "accepted", "by": "A. Reviewer", "reason": "meant", "date": until}
    reviews.add_decision("planted", entry)
    for _ in range(2):
        update_findings(history, "planted", update_time(until))
    post = Post()
    notices.send_notices(history, "planted", settings(), update_time(until), post)
    assert post.sent == []


def record_failed_session(history: History, uuid: str, moment: datetime, missing: int = 0) -> None:
    """Four expected runs: the first `missing` were never received, the others failed."""
    started = int(moment.timestamp())
    names = [f"ior:{number}" for number in range(4)]
    expected = [ExpectedResult(name, "default", "stack", "write", "bandwidth") for name in names]
    history.begin_session(build_session(uuid, started_at=started), expected)
    for name in names[missing:]:
        output = build_output(status="failed", reason="the scratch directory is full")
        run = build_run(name=name, stack="stack", fingerprint=f"{uuid}-{name}", started_at=started + 60, output=output)
        history.record_runs(uuid, [run])
    history.end_session(uuid, "failed", started + 600)


def test_every_failed_night_is_told_and_its_end_once(history: History) -> None:
    """Two nights without a single result, one that lacks three of four runs, then two in order."""
    start, post = datetime(2025, 6, 1, 2, tzinfo=UTC), Post()
    record_session(history, "before", start - timedelta(days=1))
    for day, missing in enumerate((0, 0, 3, None, None)):
        moment = start + timedelta(days=day)
        if missing is None:
            record_session(history, f"s{day}", moment)
        else:
            record_failed_session(history, f"s{day}", moment, missing)
        for _ in range(2):
            notices.send_notices(history, "local", settings(), moment + timedelta(hours=1), post)
    assert [notice.title for notice in post.sent] == [
        "local: session of suite nightly not in order: 4 of 4 runs failed",
        "local: session of suite nightly not in order, 2 sessions in succession: 4 of 4 runs failed",
        "local: session of suite nightly not in order, 3 sessions in succession: 1 of 4 runs failed",
        "local: session of suite nightly in order again",
    ]
    assert {notice.kind for notice in post.sent} == {"session"}
    assert post.sent[0].lines == (
        "4 of 4 runs failed",
        "failed: the scratch directory is full (4 runs)",
        "iowatch history show s0",
    )
    assert post.sent[2].lines[2:4] == ("3 of 4 runs lack results", "no write bandwidth (3 runs)")
    assert post.sent[3].lines[0].startswith("All expected results were received; 3 sessions before it")


def test_session_that_was_killed_is_reported(history: History) -> None:
    """It has no verdict; the next command of iowatch closed it."""
    start, post = datetime(2025, 6, 1, 2, tzinfo=UTC), Post()
    record_session(history, "s0", start, "incomplete")
    notices.send_notices(history, "local", settings(), start + timedelta(hours=1), post)
    assert post.titles == ["session: the session ended with status 'incomplete'"]


def test_night_without_a_verdict_is_told_and_its_end_once(
    history: History, cli: Callable[..., Result], tmp_path: Path
) -> None:
    """The scratch directory is not mounted, for two nights: no session is recorded. Then a night has a verdict."""
    start, post = datetime.now(UTC), Post()
    scratch = tmp_path / "unmounted" / "scratch"
    record_session(history, "before", start - timedelta(days=1))
    for _ in range(2):
        done = cli("run", "--night", "--no-jitter", "--suite", "tiny", "--scratch", str(scratch))
        assert done.exit_code == 3
        for _ in range(2):
            notices.send_notices(history, "local", settings(), start, post)
    first, second = post.sent
    assert first.title == (
        f"local: the night failed with exit code 3: the scratch directory {scratch} cannot be used: "
        f"No such file or directory: {scratch.parent}"
    )
    assert "1 night before it failed, too." not in first.lines
    assert second.lines[-1] == "1 night before it failed, too."
    write_night_record("local", 0)
    for _ in range(2):
        notices.send_notices(history, "local", settings(), start, post)
    assert [notice.title for notice in post.sent[2:]] == ["local: the night has a verdict again"]
    assert post.sent[2].lines == ("2 nights before it ended with an error.",)
    # The next night has nothing to report.
    write_night_record("local", 0)
    notices.send_notices(history, "local", settings(), start, post)
    assert len(post.sent) == 3


@pytest.mark.parametrize("words", [("--suite", "tinny"), ("--case", "nothing")])
def test_wrong_options_of_a_night_are_reported(
    history: History, cli: Callable[..., Result], words: tuple[str, str]
) -> None:
    record_session(history, "before", datetime.now(UTC) - timedelta(hours=2))
    assert cli("run", "--night", "--no-jitter", *words).exit_code == 2
    post = Post()
    notices.send_notices(history, "local", settings(), datetime.now(UTC), post)
    (notice,) = post.sent
    assert notice.title.startswith("local: the night failed with exit code 2: ")
    assert words[1] in notice.title


def test_damaged_record_of_the_last_night_stops_no_notice(history: History, var: Path) -> None:
    (var / "night").mkdir()
    (var / "night" / "local.json").write_text('{"format":')
    post = Post()
    notices.send_notices(history, "local", settings(overdue_hours=26), datetime.now(UTC), post)
    assert [notice.kind for notice in post.sent] == ["overdue"]
    write_night_record("local", 3, "no space")
    assert read_night_record("local") is not None


def test_running_session_lacks_nothing_yet(history: History) -> None:
    start, post = datetime(2025, 6, 1, 2, tzinfo=UTC), Post()
    expected = [ExpectedResult("ior:a", "default", "stack", "write", "bandwidth")]
    history.begin_session(build_session("s0", started_at=int(start.timestamp())), expected)
    notices.send_notices(history, "local", settings(), start + timedelta(hours=1), post)
    assert post.sent == []


def test_overdue_notice_is_sent_once_per_gap(history: History) -> None:
    post, start = Post(), datetime(2025, 6, 2, 2, tzinfo=UTC)
    settings_ = settings(overdue_hours=26)

    def sent_kinds(moment: datetime) -> list[str]:
        before = len(post.sent)
        notices.send_notices(history, "local", settings_, moment, post)
        return [notice.kind for notice in post.sent[before:]]

    assert sent_kinds(start) == ["overdue"]
    assert post.sent[0].lines[0] == "No session has run yet; expected within 26 hours."
    record_session(history, "n1", start)
    assert sent_kinds(start + timedelta(hours=26)) == []
    assert sent_kinds(start + timedelta(hours=27)) == ["overdue"]
    assert post.sent[1].lines[0] == "No session since 2025-06-02 02:10 UTC; expected within 26 hours."
    # A session without runs is reported as one that is not in order; it causes no second notice that one is overdue.
    record_session(history, "n2", start + timedelta(hours=28), "incomplete", runs=0)
    assert sent_kinds(start + timedelta(hours=50)) == ["session"]
    record_session(history, "n3", start + timedelta(hours=72))
    assert sent_kinds(start + timedelta(hours=73)) == ["session"]
    assert sent_kinds(start + timedelta(hours=120)) == ["overdue"]


def test_an_ab_run_does_not_delay_the_overdue_notice(history: History) -> None:
    """The last night began on 2 June at 02:00, an A/B run the day after; 26 hours after the night it is overdue."""
    post, night = Post(), datetime(2025, 6, 2, 2, tzinfo=UTC)
    record_session(history, "night", night)
    facts = SessionFacts.from_document({"ab_run": {"left": "a", "right": "b"}})
    begin = int((night + timedelta(hours=24)).timestamp())
    run = build_run(build_result(), started_at=begin)
    store_session(history, build_session("ab", started_at=begin, facts=facts), [run])
    notices.send_notices(history, "local", settings(overdue_hours=26), night + timedelta(hours=30), post)
    assert [notice.kind for notice in post.sent] == ["overdue"]
    assert post.sent[0].lines[0] == "No session since 2025-06-02 02:10 UTC; expected within 26 hours."


def test_digest_is_sent_once_a_week_on_its_day_or_later(history: History) -> None:
    monday = datetime(2025, 6, 2, 6, tzinfo=UTC)
    for days in range(14):
        moment = monday + timedelta(days=days, hours=-4)
        record_session(history, f"n{days}", moment, "ok" if days != 3 else "failed")
    post, settings_ = Post(), settings(digest="tuesday")
    counts = []
    for days in (0, 1, 2, 6, 7, 9, 10):
        notices.send_notices(history, "local", settings_, monday + timedelta(days=days), post)
        counts.append(len(post.sent))
    # Tuesday 3 June; then Monday 9 is too early, and on Tuesday 10 the command is not called: Wednesday 11.
    assert counts == [0, 1, 1, 1, 1, 2, 2]
    assert "Sessions: 1 failed, 6 ok" in post.sent[1].lines


def test_first_day_of_the_digest_test_is_a_monday() -> None:
    """The test of the digest depends on this weekday."""
    assert date(2025, 6, 2).weekday() == 0


def test_dry_run_sends_and_stores_nothing(history: History, var: Path) -> None:
    moment = datetime(2025, 6, 2, tzinfo=UTC)
    for _ in range(2):
        planned = notices.preview_notices(history, "local", settings(), moment)
        assert [notice.kind for notice in planned["issues"]] == ["overdue"]
    assert not (var / "notify").exists()


def test_problems_of_a_session_are_sent_until_they_change(history: History) -> None:
    """One notice per kind of problem, and one of its end: only a count differs between the second and the third."""
    start, post = datetime(2025, 6, 1, 2, tzinfo=UTC), Post()
    problems_by_day = [[], ["deferred in 3 sessions"], ["deferred in 4 sessions"], [], ["deferred in 3 sessions"]]
    sent = []
    for day, problems in enumerate(problems_by_day):
        moment = start + timedelta(days=day)
        record_session(history, f"s{day}", moment)
        history.add_facts(f"s{day}", SessionFacts(problems=tuple(problems)))
        notices.send_notices(history, "local", settings(), moment + timedelta(hours=1), post)
        sent.append(len(post.sent))
    assert sent == [0, 1, 1, 2, 3]
    deferred = "session: deferred in 3 sessions"
    in_order = (
        "session: All expected results were received; 2 sessions before it had failed or missing runs, or problems."
    )
    assert post.titles == [deferred, in_order, deferred]


def test_imports_are_no_sessions_that_never_started(history: History) -> None:
    """A history of imports: nothing is overdue, as on the pages; the digest counts them."""
    now = datetime(2025, 6, 2, 6, tzinfo=UTC)  # a Monday
    history.begin_session(build_session("import", suite="ior", origin="import", started_at=int(now.timestamp()) - 3600))
    history.end_session("import", "ok", int(now.timestamp()) - 3600)
    post = Post()
    notices.send_notices(history, "local", settings(digest="monday", overdue_hours=26), now, post)
    assert [(one.kind, one.lines[0]) for one in post.sent] == [
        ("digest", "Sessions: none; 1 import of runs of this week")
    ]


def test_digest_counts_sessions_with_problems_apart(history: History) -> None:
    now = datetime(2025, 6, 2, 6, tzinfo=UTC)
    for number in range(2):
        record_session(history, f"s{number}", now - timedelta(days=2 - number))
    history.add_facts("s1", SessionFacts(problems=("x",)))
    (_, digest) = notices.compose_notices(history, "local", settings(digest="monday"), {}, now)[0]
    assert digest.lines[0] == "Sessions: 1 ok, 1 with problems"


def test_expired_acknowledgement_returns_with_who_ticket_and_date(
    history: History, record_and_update: RecordAndUpdate
) -> None:
    prevent_overdue_notice(history)
    day, until = STEP + timedelta(days=20), STEP + timedelta(days=27)
    record_and_update(slower_mpiio(), day)
    words = {"decision": "acknowledged", "by": "A. Reviewer", "reason": "case 4711", "date": day, "until": until}
    reviews.add_decision("planted", {"finding": "planted-20250210-down", **words})
    update_findings(history, "planted", update_time(day))
    (back,) = update_findings(history, "planted", update_time(until + timedelta(days=1)))
    decided = f"acknowledged by A. Reviewer on {day} until {until} (expired): case 4711"
    (notice,) = notices.compose_notices(history, "planted", settings(), {}, update_time(until))[0]
    assert notice.lines[0] == f"{back.id}: decision expired: acknowledged by A. Reviewer; open (planted)"
    assert notice.lines[1] == decided
    assert decided in "\n".join(finding_list_lines([back]))
    assert verdict_finding_line(back) == f"{back.id}: {finding_line(back)} ({decided})"


def test_a_decision_is_a_notice_where_a_channel_asks_for_it(
    history: History, record_and_update: RecordAndUpdate
) -> None:
    first, decided = date(2025, 3, 1), date(2025, 3, 3)
    (finding,) = record_and_update(slower_mpiio(), first)
    prevent_overdue_notice(history)
    post = Post()
    notices.send_notices(history, "planted", settings(), update_time(first), post)
    assert [notice.kind for notice in post.sent] == ["finding"]
    entry = {"finding": finding.id, "decision": "accepted", "by": "A. Admin", "reason": "meant"}
    reviews.add_decision("planted", {**entry, "date": date(2025, 3, 2)})
    record_and_update(slower_mpiio(), decided, since=first)
    with_decisions = settings(channels=[ISSUES, {**ISSUES, "name": "decisions", "send": ["decision"]}])
    reports = notices.send_notices(history, "planted", with_decisions, update_time(decided), post)
    # The usual channel does not get it.
    assert [len(report.sent) for report in reports] == [0, 1]
    notice = post.sent[-1]
    assert (notice.kind, notice.facts["state"]) == ("decision", "accepted")
    assert "A. Admin" in notice.lines[1]
    # What owners of tickets depend on.
    assert notice.facts["benchmarks"] == ["ior"]
