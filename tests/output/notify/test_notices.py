"""What is told, when, and only once: findings, silence, the digest."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from iowatch.findings import update_findings
from iowatch.output import notices
from iowatch.store import History, SessionRecord
from tests.findings.conftest import STEP, Watch, morning, slower_mpiio

from .conftest import Post, far, settings


def night(history: History, uuid: str, moment: datetime, status: str = "ok", runs: int = 1) -> None:
    from tests.output.report.test_session_reports import ran

    started = int(moment.timestamp())
    history.begin_session(SessionRecord(uuid, "local", "nightly", "run", started))
    for number in range(runs):
        history.record_runs(uuid, [ran(f"{uuid}-{number}")])
    history.end_session(uuid, status, started + 600)  # type: ignore[arg-type]


def test_a_finding_is_told_when_confirmed_and_only_once(history: History, watch: Watch) -> None:
    far(history)
    post, story = Post(), slower_mpiio()
    watch(story, STEP)
    notices.send_notices(history, "planted", settings(), morning(STEP), post)
    assert post.sent == []
    since, told = STEP, []
    for days in (2, 5, 8, 12, 20):
        until = STEP + timedelta(days=days)
        found = watch(story, until, since)
        told.append([f.state for f in found])
        for _ in range(2):
            notices.send_notices(history, "planted", settings(), morning(until), post)
        since = until
    assert told[-1] == ["open"], told
    assert len(post.sent) == 1
    (notice,) = post.sent
    assert notice.kind == "finding"
    assert notice.facts["state"] == "open"
    assert notice.title == f"planted [{', '.join(notice.facts['updates'])}]: {notice.facts['line']}"
    assert any(word in notice.title for word in ("[new", "[confirmed"))
    # Said once: the details begin where the title ends.
    assert notice.facts["line"] not in "\n".join((*notice.lines, *notice.details))
    assert notice.details[0].startswith("What changed")
    assert f"iowatch review accept {notice.facts['id']} --reason …" in notice.lines[2]


def test_a_finding_that_nobody_listened_to_is_told_later(history: History, watch: Watch) -> None:
    far(history)
    post, story = Post(), slower_mpiio()
    watch(story, STEP)
    notices.send_notices(history, "planted", settings(), morning(STEP), post)
    until = STEP + timedelta(days=20)
    watch(story, until, STEP)
    # Another update, of a run by hand perhaps, takes the updates away.
    assert [f.updates for f in update_findings(history, "planted", morning(until))] == [()]
    notices.send_notices(history, "planted", settings(), morning(until), post)
    assert [notice.facts["state"] for notice in post.sent] == ["open"]


def test_the_past_is_not_told_when_notices_begin(history: History, watch: Watch) -> None:
    far(history)
    until = STEP + timedelta(days=20)
    watch(slower_mpiio(), until)
    update_findings(history, "planted", morning(until))
    post = Post()
    for _ in range(2):
        notices.send_notices(history, "planted", settings(), morning(until), post)
    assert post.sent == []


def test_silence_is_told_once_and_again_after_it_was_broken(history: History) -> None:
    post, start = Post(), datetime(2025, 6, 2, 2, tzinfo=UTC)
    watched = settings(overdue_hours=26)

    def tell(moment: datetime) -> int:
        before = len(post.sent)
        notices.send_notices(history, "local", watched, moment, post)
        return len(post.sent) - before

    assert tell(start) == 1
    assert post.sent[0].lines[0] == "No session has run yet; expected within 26 hours."
    night(history, "n1", start)
    assert tell(start + timedelta(hours=26)) == 0
    assert tell(start + timedelta(hours=27)) == 1
    assert post.sent[1].lines[0] == "No session since 2025-06-02 02:10 UTC; expected within 26 hours."
    # A session in which nothing ran is silence, too: the same one.
    night(history, "n2", start + timedelta(hours=28), "incomplete", runs=0)
    assert tell(start + timedelta(hours=50)) == 0
    night(history, "n3", start + timedelta(hours=72))
    assert tell(start + timedelta(hours=73)) == 0
    assert tell(start + timedelta(hours=120)) == 1
    assert {notice.kind for notice in post.sent} == {"overdue"}


def test_one_digest_a_week_on_its_day_or_later(history: History) -> None:
    monday = datetime(2025, 6, 2, 6, tzinfo=UTC)
    for days in range(14):
        moment = monday + timedelta(days=days, hours=-4)
        night(history, f"n{days}", moment, "ok" if days != 3 else "failed")
    post, watched = Post(), settings(digest="tuesday")
    counts = []
    for days in (0, 1, 2, 6, 7, 9, 10):
        notices.send_notices(history, "local", watched, monday + timedelta(days=days), post)
        counts.append(len(post.sent))
    # Tuesday 3 June; then Monday 9 is too early, and Tuesday 10 nobody asked: Wednesday 11.
    assert counts == [0, 1, 1, 1, 1, 2, 2]
    assert "Sessions: 1 failed, 6 ok" in post.sent[1].lines


def test_the_day_of_the_fixture() -> None:
    """The digest's test counts from this."""
    assert date(2025, 6, 2).weekday() == 0


def test_a_rehearsal_sends_and_remembers_nothing(history: History, var: Path) -> None:
    moment = datetime(2025, 6, 2, tzinfo=UTC)
    for _ in range(2):
        planned = notices.preview_notices(history, "local", settings(), moment)
        assert [notice.kind for notice in planned["issues"]] == ["overdue"]
    assert not (var / "notify").exists()
