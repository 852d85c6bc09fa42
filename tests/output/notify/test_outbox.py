"""The outbox: no failure, kill or second process loses a notice or sends it twice."""

from __future__ import annotations

import json
import socketserver
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import pytest

from iowatch.core import InputError, MachineError
from iowatch.findings import update_findings
from iowatch.output import notices
from iowatch.output.channels.notice import Notice, PartlyDeliveredError
from iowatch.store import History
from tests.findings.conftest import STEP, RecordAndUpdate, slower_mpiio, update_time

from .conftest import ISSUES, Post, prevent_overdue_notice, settings


def test_refused_notice_is_sent_the_next_time(history: History, record_and_update: RecordAndUpdate) -> None:
    prevent_overdue_notice(history)
    until = STEP + timedelta(days=20)
    record_and_update(slower_mpiio(), until)
    post = Post()
    post.refuses = True
    (outcome,) = notices.send_notices(history, "planted", settings(), update_time(until), post)
    assert (outcome.sent, outcome.waiting, outcome.reason) == ((), 1, "the server answered 503")
    post.refuses = False
    # The updates are no longer pending in the history; the outbox contains them.
    update_findings(history, "planted", update_time(until))
    (outcome,) = notices.send_notices(history, "planted", settings(), update_time(until), post)
    assert (len(outcome.sent), outcome.waiting, outcome.reason) == (1, 0, None)


def test_refused_recipient_does_not_hold_back_later_notices(history: History) -> None:
    """Each notice waits for the refused recipient; both are sent to the others, once."""
    attempts: list[tuple[str, tuple[str, ...]]] = []

    def send(_channel: Any, notice: Notice) -> None:
        attempts.append((notice.kind, notice.recipients))
        raise PartlyDeliveredError("the mail server refused 1 of 2 recipients (550)", ["b@example.org"])

    monday = datetime(2025, 6, 2, tzinfo=UTC)
    with_digest = settings(digest="monday", overdue_hours=26)
    (report,) = notices.send_notices(history, "local", with_digest, monday, send)
    assert attempts == [("overdue", ()), ("digest", ())]
    assert (report.sent, report.waiting) == ((), 2)
    assert report.reason == "the mail server refused 1 of 2 recipients (550)"
    attempts.clear()
    notices.send_notices(history, "local", with_digest, monday, send)
    assert attempts == [("overdue", ("b@example.org",)), ("digest", ("b@example.org",))]


def test_old_waiting_notices_are_dropped(history: History, var: Path) -> None:
    post, start = Post(), datetime(2025, 6, 2, tzinfo=UTC)
    post.refuses = True
    notices.send_notices(history, "local", settings(), start, post)
    assert len(notices.read_outbox("local").waiting["issues"]) == 1
    notices.send_notices(history, "local", settings(), start + timedelta(days=15), post)
    assert notices.read_outbox("local").waiting["issues"] == []


def test_notice_is_equal_after_json() -> None:
    notice = Notice("digest", "k", "s", "t", ("a", "b"), (), None, {"n": 1}, 5)
    assert Notice.from_json(json.loads(json.dumps(notice.to_json()))) == notice


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 9}', "\x00"])
def test_damaged_outbox_is_reported(history: History, var: Path, text: str) -> None:
    (var / "notify").mkdir(parents=True)
    (var / "notify" / "local.json").write_text(text)
    with pytest.raises(InputError, match=r"local\.json"):
        notices.send_notices(history, "local", settings(), deliver=Post())


def test_failed_channel_does_not_stop_the_next(history: History) -> None:
    both = settings(channels=[ISSUES, {**ISSUES, "name": "second"}])
    post = Post()

    def send(channel: Any, notice: Notice) -> None:
        if channel.name == "issues":
            raise MachineError("disk full")
        post(channel, notice)

    outcomes = notices.send_notices(history, "local", both, datetime(2025, 6, 2, tzinfo=UTC), send)
    assert [(o.channel, len(o.sent), o.reason) for o in outcomes] == [("issues", 0, "disk full"), ("second", 1, None)]


class Killed(BaseException):
    """Simulates the end of the process."""


@pytest.mark.parametrize("delivered", [False, True])
def test_kill_during_sending_loses_no_notice(history: History, delivered: bool) -> None:
    """Three notices wait; the process ends at the second, before or after its delivery."""
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


def test_concurrent_processes_send_a_notice_once(history: History) -> None:
    post = Post()

    def slowly(channel: Any, notice: Notice) -> None:
        sleep(0.05)
        post(channel, notice)

    def send_all() -> None:
        with History.open() as own:
            notices.send_notices(own, "local", settings(), datetime(2025, 6, 2, tzinfo=UTC), slowly)

    threads = [Thread(target=send_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [notice.key for notice in post.sent] == ["overdue never"]


class _Drip(socketserver.StreamRequestHandler):
    """Sends the bytes of a header, one every 20 ms, and never its end."""

    def handle(self) -> None:
        with suppress(OSError):
            while True:
                self.wfile.write(self.server.drip)  # type: ignore[attr-defined]
                sleep(0.02)


@pytest.mark.parametrize(("kind", "drip"), [("webhook", b"H"), ("mail", b"2"), ("mail", b"220-x\r\n")])
def test_a_server_that_never_ends_does_not_stop_the_others(
    history: History, monkeypatch: pytest.MonkeyPatch, var: Path, kind: str, drip: bytes
) -> None:
    """Each byte satisfies the timeout of the socket; the issue behind this channel is written all the same."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Drip) as server:
        server.daemon_threads, server.block_on_close, server.drip = True, False, drip  # type: ignore[attr-defined]
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        port = server.server_address[1]
        monkeypatch.setenv("TEST_URL", f"http://127.0.0.1:{port}/")
        hook = {"name": "a", "kind": "webhook", "url": {"environment": "TEST_URL"}}
        mail = {"name": "a", "kind": "mail", "host": "127.0.0.1", "port": port, "security": "none"}
        mail |= {"sender": "a@example.org", "to": ["b@example.org"]}
        monkeypatch.setattr(notices, "DELIVERY_TIMEOUT_S", 1.0)
        both = settings(channels=[hook if kind == "webhook" else mail, ISSUES])
        stuck, issue = notices.send_notices(history, "local", both)
        server.shutdown()
    assert (stuck.sent, stuck.waiting) == ((), 1)
    assert "did not answer completely within 1 s" in str(stuck.reason)
    assert (issue.sent, issue.waiting) == (("overdue never",), 0)
    with notices.lock_outbox("local") as box:  # free again
        assert len(box.waiting["a"]) == 1
