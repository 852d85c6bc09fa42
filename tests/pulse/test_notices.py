"""Notices of stalls: sent once, again after a failure, one per event; pulses that no longer arrive."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from iowatch.core import DAY_S
from iowatch.output import notices
from iowatch.output.channels.notice import Notice, UndeliveredError
from iowatch.output.notice_channels import IssueChannel, NotifySettings
from iowatch.output.pulse_notices import overdue_pulse_notices, stall_notices
from iowatch.pulse.probe import Reading
from iowatch.pulse.store import Stall, open_store, store_path
from tests.pulse.simulated import START_S

SETTINGS = NotifySettings(
    dashboard="https://io.example.org/", channels=(IssueChannel(name="files", kind="issue", directory="issues"),)
)
NOON_S = START_S + DAY_S // 2


def at(time_s: float) -> datetime:
    return datetime.fromtimestamp(time_s, UTC)


def make_stall(operation: str, began: int, *, event: int, ended: int | None = None, level_ms: float = 40.0) -> Stall:
    how_ended = None if ended is None else "usual again"
    return Stall(operation, began, event, 1_200_000, round(1e6 * level_ms), "completed", "", ended, how_ended)


@pytest.fixture
def path(var: Path) -> Path:
    """The file of a file system with two overlapping stalls since noon."""
    path = store_path("local", "login", "scratch")
    with open_store(path, create=True) as store:
        store.save_stall(make_stall("stat", NOON_S, event=NOON_S, level_ms=12))
        store.save_stall(make_stall("open", NOON_S + 600, event=NOON_S))
    return path


def test_stalls_of_an_event_are_one_notice(path: Path) -> None:
    (notice,) = stall_notices("local", SETTINGS, at(NOON_S + 1800))
    # The worst first.
    assert notice.title == "local: scratch from login: since 12:10 open takes 40 ms instead of 1.2 ms; also stat"
    assert notice.lines[0] == "since 12:00 stat takes 12 ms instead of 1.2 ms"
    assert notice.lines[-1] == "iowatch pulse show --system local --file-system scratch"
    assert (notice.kind, notice.link) == ("pulse", "https://io.example.org/pulse.html")


def test_end_is_a_notice_when_the_event_has_been_over_for_an_hour(path: Path) -> None:
    end_s = NOON_S + 7200
    with open_store(path, create=True) as store:
        store.save_stall(make_stall("stat", NOON_S, event=NOON_S, ended=end_s - 600))
        store.save_stall(make_stall("open", NOON_S + 600, event=NOON_S, ended=end_s))
    assert len(stall_notices("local", SETTINGS, at(end_s + 3599))) == 1
    _, end = stall_notices("local", SETTINGS, at(end_s + 3600))
    assert end.title == "local: scratch from login: as usual again since 2026-03-02 14:00 UTC, after 2 h 0 min"
    # Days later it is no news.
    assert stall_notices("local", SETTINGS, at(end_s + 3 * DAY_S)) == []


def test_refused_notice_is_sent_by_the_next_pulse_and_once(path: Path) -> None:
    received: list[str] = []

    def refuse(channel: object, notice: Notice) -> None:
        raise UndeliveredError("the server answered 503")

    def take(channel: object, notice: Notice) -> None:
        received.append(notice.key)

    (report,) = notices.send_stall_notices("local", SETTINGS, at(NOON_S + 1800), refuse)
    assert (report.sent, report.waiting, report.reason) == ((), 1, "the server answered 503")
    for minutes in (40, 50):
        notices.send_stall_notices("local", SETTINGS, at(NOON_S + 60 * minutes), take)
    assert received == [f"pulse login scratch {NOON_S}"]


def test_pulses_that_no_longer_arrive_are_reported_once_and_only_of_login_nodes(var: Path) -> None:
    for client in ("login", "compute"):
        with open_store(store_path("local", client, "scratch"), create=True) as store:
            store.add_pulse(NOON_S, [Reading("stat", 5, (5,))], in_session=False)
    assert overdue_pulse_notices("local", SETTINGS, at(NOON_S + 6 * 3600)) == []
    (first,) = overdue_pulse_notices("local", SETTINGS, at(NOON_S + 6 * 3600 + 1))
    (later,) = overdue_pulse_notices("local", SETTINGS, at(NOON_S + 12 * 3600))
    assert first.title == "local: no pulse of scratch since 2026-03-02 12:00 UTC"
    assert first.key == later.key
    # What was given up is not expected.
    assert overdue_pulse_notices("local", SETTINGS, at(NOON_S + 31 * DAY_S)) == []
