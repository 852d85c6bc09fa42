"""What waits to be told: no failure, kill or second process loses a notice or tells it twice."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import pytest

from iowatch.core import InputError, MachineError
from iowatch.findings import update_findings
from iowatch.output import notices
from iowatch.output.notice_channels import Notice
from iowatch.store import History
from tests.findings.conftest import STEP, Watch, morning, slower_mpiio

from .conftest import ISSUES, Post, far, settings


def test_what_a_server_refuses_is_sent_the_next_time(history: History, watch: Watch) -> None:
    far(history)
    until = STEP + timedelta(days=20)
    watch(slower_mpiio(), until)
    post = Post()
    post.refuses = True
    (outcome,) = notices.send_notices(history, "planted", settings(), morning(until), post)
    assert (outcome.sent, outcome.waiting, outcome.reason) == ((), 1, "the server answered 503")
    post.refuses = False
    # The updates are gone from the history by now; the outbox has them.
    update_findings(history, "planted", morning(until))
    (outcome,) = notices.send_notices(history, "planted", settings(), morning(until), post)
    assert (len(outcome.sent), outcome.waiting, outcome.reason) == (1, 0, None)


def test_old_waiting_notices_are_given_up(history: History, var: Path) -> None:
    post, start = Post(), datetime(2025, 6, 2, tzinfo=UTC)
    post.refuses = True
    notices.send_notices(history, "local", settings(), start, post)
    assert len(notices.read_outbox("local").waiting["issues"]) == 1
    notices.send_notices(history, "local", settings(), start + timedelta(days=15), post)
    assert notices.read_outbox("local").waiting["issues"] == []


def test_a_notice_survives_its_json() -> None:
    notice = Notice("digest", "k", "s", "t", ("a", "b"), (), None, {"n": 1}, 5)
    assert Notice.from_json(json.loads(json.dumps(notice.to_json()))) == notice


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 9}', "\x00"])
def test_a_damaged_outbox_is_told(history: History, var: Path, text: str) -> None:
    (var / "notify").mkdir(parents=True)
    (var / "notify" / "local.json").write_text(text)
    with pytest.raises(InputError, match=r"local\.json"):
        notices.send_notices(history, "local", settings(), send=Post())


def test_a_failing_channel_does_not_stop_the_next(history: History) -> None:
    both = settings(channels=[ISSUES, {**ISSUES, "name": "second"}])
    post = Post()

    def send(channel: Any, notice: Notice) -> None:
        if channel.name == "issues":
            raise MachineError("disk full")
        post(channel, notice)

    outcomes = notices.send_notices(history, "local", both, datetime(2025, 6, 2, tzinfo=UTC), send)
    assert [(o.channel, len(o.sent), o.reason) for o in outcomes] == [("issues", 0, "disk full"), ("second", 1, None)]


class Killed(BaseException):
    """As if the process had ended there."""


@pytest.mark.parametrize("delivered", [False, True])
def test_a_kill_while_sending_loses_nothing(history: History, delivered: bool) -> None:
    """Three notices wait; the process ends at the second, before or after the server took it."""
    post, both = Post(), settings(digest="monday", overdue_hours=26)
    weeks = [datetime(2025, 6, 2, tzinfo=UTC) + timedelta(days=7 * n) for n in range(2)]
    post.refuses = True
    for week in weeks:
        notices.send_notices(history, "local", both, week, post)
    assert len(notices.read_outbox("local").waiting["issues"]) == 3
    post.refuses = False

    def send(channel: Any, notice: Notice) -> None:
        if len(post.sent) == 1:
            if delivered:
                post(channel, notice)
            raise Killed
        post(channel, notice)

    with pytest.raises(Killed):
        notices.send_notices(history, "local", both, weeks[1], send)
    notices.send_notices(history, "local", both, weeks[1], post)
    keys = [notice.key for notice in post.sent]
    assert len(set(keys)) == 3
    assert len(keys) == (4 if delivered else 3)


def test_two_at_once_tell_once(history: History) -> None:
    post = Post()

    def slowly(channel: Any, notice: Notice) -> None:
        sleep(0.05)
        post(channel, notice)

    def tell() -> None:
        with History.open() as own:
            notices.send_notices(own, "local", settings(), datetime(2025, 6, 2, tzinfo=UTC), slowly)

    threads = [Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [notice.key for notice in post.sent] == ["overdue never"]
