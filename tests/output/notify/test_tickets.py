"""A finding opens one ticket in GitLab, GitHub or Jira, updates it and closes it, whatever is repeated or lost.

The trackers are small servers on loopback with the requests and answers of the documented interfaces:
docs.gitlab.com/api/issues, docs.github.com/en/rest/issues,
developer.atlassian.com/server/jira/platform/rest (version 2).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from iowatch.core import InputError
from iowatch.output.channels.github import GitHub
from iowatch.output.channels.gitlab import GitLab
from iowatch.output.channels.jira import Jira
from iowatch.output.channels.notice import Notice, PartlyDeliveredError, UndeliveredError
from iowatch.output.channels.tickets import TicketSettings, finding_mark, read_tickets, ticket_links
from iowatch.output.notice_channels import NOTICE_CHANNELS, deliver_notice
from tests.output.notify.test_send import serving

KINDS = ("gitlab", "github", "jira")
PROJECTS = {"gitlab": "io/operations", "github": "site/operations", "jira": "IO"}
TOKEN = "secret-token-of-a-test"
KNOWN_ACCOUNTS = ("alice", "bob")


class Tracker(ThreadingHTTPServer):
    """Tickets in memory: number -> title, text, labels, owner, closed, comments."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.tickets: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str]] = []
        self.tokens: set[str] = set()
        self.answer: Callable[[], tuple[int, str]] | None = None
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, title: str, text: str, labels: list[str], owner: str | None) -> dict[str, Any]:
        number = str(len(self.tickets) + 1)
        ticket = {"number": number, "title": title, "text": text, "labels": labels, "owner": owner}
        self.tickets[number] = {**ticket, "closed": False, "comments": []}
        return self.tickets[number]

    @property
    def only(self) -> dict[str, Any]:
        (ticket,) = self.tickets.values()
        return ticket


class _Refused(Exception):  # noqa: N818  # the answer, not an error of the test
    pass


class _Handler(BaseHTTPRequestHandler):
    server: Tracker

    def _respond(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        document = json.loads(self.rfile.read(length)) if length else {}
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        self.server.requests.append((self.command, address.path))
        self.server.tokens.add(self.headers.get("PRIVATE-TOKEN") or self.headers.get("Authorization") or "")
        if self.server.answer is not None:
            code, text = self.server.answer()
            return self._send(code, text)
        try:
            answer = getattr(self, f"_{self.server.kind}")(unquote(address.path), query, document)
        except _Refused as refused:
            return self._send(int(str(refused)), "{}")
        except KeyError:
            return self._send(404, "{}")
        return self._send(200, "" if answer is None else json.dumps(answer))

    do_GET = do_POST = do_PUT = do_PATCH = _respond  # noqa: N815

    def _send(self, code: int, text: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass

    def _gitlab(self, path: str, query: dict[str, str], document: dict[str, Any]) -> Any:
        def issue(ticket: dict[str, Any]) -> dict[str, Any]:
            state = "closed" if ticket["closed"] else "opened"
            number = int(ticket["number"])
            web_url = f"https://gitlab.example.org/io/operations/-/issues/{number}"
            return {"iid": number, "state": state, "description": ticket["text"], "web_url": web_url}

        if path == "/api/v4/users":
            return [{"id": 7}] if query["username"] in KNOWN_ACCOUNTS else []
        rest = path.removeprefix("/api/v4/projects/io/operations/issues")
        if rest == path:
            raise KeyError(path)
        if rest == "" and self.command == "GET":
            return [issue(ticket) for ticket in self.server.tickets.values() if query["search"] in ticket["text"]]
        if rest == "":
            owner = "alice" if document.get("assignee_ids") else None
            labels = document["labels"].split(",")
            return issue(self.server.add(document["title"], document["description"], labels, owner))
        ticket = self.server.tickets[rest.split("/")[1]]
        if rest.endswith("/notes"):
            if self.command == "GET":
                return [{"body": text} for text in reversed(ticket["comments"])]
            ticket["comments"].append(document["body"])
        elif self.command == "PUT":
            ticket["closed"] = document["state_event"] == "close"
        return issue(ticket)

    def _github(self, path: str, query: dict[str, str], document: dict[str, Any]) -> Any:
        def issue(ticket: dict[str, Any]) -> dict[str, Any]:
            number = int(ticket["number"])
            html_url = f"https://github.com/site/operations/issues/{number}"
            state = "closed" if ticket["closed"] else "open"
            return {"number": number, "state": state, "body": ticket["text"], "html_url": html_url}

        rest = path.removeprefix("/repos/site/operations/issues")
        if rest == path:
            raise KeyError(path)
        page = int(query.get("page", 1))
        selected = slice(100 * (page - 1), 100 * page)
        if rest == "" and self.command == "GET":
            labelled = [ticket for ticket in self.server.tickets.values() if query["labels"] in ticket["labels"]]
            return [issue(ticket) for ticket in labelled[selected]]
        if rest == "":
            owner = (document.get("assignees") or [None])[0]
            if owner not in (None, *KNOWN_ACCOUNTS):
                raise _Refused(422)
            return issue(self.server.add(document["title"], document["body"], document["labels"], owner))
        ticket = self.server.tickets[rest.split("/")[1]]
        if rest.endswith("/comments"):
            if self.command == "GET":
                return [{"body": text} for text in ticket["comments"][selected]]
            ticket["comments"].append(document["body"])
        elif self.command == "PATCH":
            ticket["closed"] = document["state"] == "closed"
        return issue(ticket)

    def _jira(self, path: str, query: dict[str, str], document: dict[str, Any]) -> Any:
        def issue(ticket: dict[str, Any]) -> dict[str, Any]:
            category = "done" if ticket["closed"] else "new"
            fields = {"status": {"statusCategory": {"key": category}}, "description": ticket["text"]}
            return {"key": f"IO-{ticket['number']}", "fields": fields}

        if path == "/rest/api/2/search":
            label = re.search(r'labels = "([^"]+)"', query["jql"])
            assert label is not None
            matching = [ticket for ticket in self.server.tickets.values() if label[1] in ticket["labels"]]
            return {"issues": [issue(ticket) for ticket in matching]}
        rest = path.removeprefix("/rest/api/2/issue")
        if rest == "":
            fields = document["fields"]
            owner = fields.get("assignee", {}).get("name")
            if owner not in (None, *KNOWN_ACCOUNTS):
                raise _Refused(400)
            return issue(self.server.add(fields["summary"], fields["description"], fields["labels"], owner))
        ticket = self.server.tickets[rest.split("/")[1].removeprefix("IO-")]
        if rest.endswith("/comment"):
            if self.command == "GET":
                return {"comments": [{"body": text} for text in ticket["comments"]]}
            ticket["comments"].append(document["body"])
            return {}
        if rest.endswith("/transitions"):
            if self.command == "GET":
                steps = [("11", "new"), ("21", "indeterminate"), ("31", "done")]
                return {"transitions": [{"id": n, "to": {"statusCategory": {"key": key}}} for n, key in steps]}
            ticket["closed"] = document["transition"]["id"] == "31"
            return None
        return issue(ticket)


@pytest.fixture(params=KINDS)
def tracker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, var: Path) -> Iterator[Tracker]:
    monkeypatch.setenv("TEST_TICKETS", TOKEN)
    with serving(Tracker(request.param)) as server:
        yield server


def channel(tracker: Tracker, **changed: Any) -> TicketSettings:
    document = {
        "name": "tickets",
        "kind": tracker.kind,
        "server": tracker.url,
        "project": PROJECTS[tracker.kind],
        "token": {"environment": "TEST_TICKETS"},
        **changed,
    }
    settings = NOTICE_CHANNELS[tracker.kind].settings.model_validate(document)
    assert isinstance(settings, TicketSettings)
    return settings


def notice(state: str = "open", key: str = "new", **facts: Any) -> Notice:
    return Notice(
        kind="finding",
        key=f"finding local-20250210-down {key}",
        system="local",
        title=f"local [{key}]: 10 Feb 2025: 2 of 8 series down",
        lines=("local-20250210-down: new; open", "@everyone"),
        details=("```", "{noformat}"),
        link="https://io.example.org/finding/local-20250210-down.html",
        facts={
            "id": "local-20250210-down",
            "state": state,
            "benchmarks": ["ior"],
            "file_systems": ["scratch1"],
            **facts,
        },
        made_at=1_740_000_000,
    )


def test_a_finding_has_one_ticket_from_its_first_notice_to_its_end(tracker: Tracker) -> None:
    settings = channel(tracker)
    deliver_notice(settings, notice())
    ticket = tracker.only
    assert "2 of 8 series down" in ticket["title"]
    assert "local-20250210-down: new; open" in ticket["text"]
    assert "iowatch" in ticket["labels"]
    assert not ticket["comments"]
    # Confirmed, then resolved, then it recurs.
    deliver_notice(settings, notice(key="confirmed"))
    assert len(ticket["comments"]) == 1
    assert "confirmed" in ticket["comments"][0]
    deliver_notice(settings, notice("resolved", key="returned"))
    assert ticket["closed"]
    deliver_notice(settings, notice(key="recurred"))
    assert not ticket["closed"]
    assert len(ticket["comments"]) == 3
    assert len(tracker.tickets) == 1
    # Only the token is sent, and only in the header.
    assert tracker.tokens <= {TOKEN, f"Bearer {TOKEN}"}


def test_a_repeated_notice_changes_nothing(tracker: Tracker) -> None:
    settings = channel(tracker)
    for key in ("new", "confirmed", "new", "confirmed"):
        deliver_notice(settings, notice(key=key))
    # The first one opened the ticket, the second one is its only comment.
    (comment,) = tracker.only["comments"]
    assert "confirmed" in comment


def test_a_notice_that_opened_a_ticket_is_no_comment_after_a_kill(tracker: Tracker, var: Path) -> None:
    settings = channel(tracker)
    deliver_notice(settings, notice())
    # Killed before anything was stored: the outbox sends the notice again.
    (var / "notify" / "local-tickets.json").unlink()
    deliver_notice(settings, notice())
    assert not tracker.only["comments"]


def test_the_ticket_is_found_again_after_the_loss_of_var(tracker: Tracker, var: Path) -> None:
    settings = channel(tracker)
    for other in range(120):
        tracker.add(f"other {other}", f"{finding_mark(str(other))}", ["iowatch"], None)
    deliver_notice(settings, notice())
    (var / "notify" / "local-tickets.json").unlink()
    deliver_notice(settings, notice("resolved", key="returned"))
    assert len(tracker.tickets) == 121
    assert tracker.tickets["121"]["closed"]
    assert [ticket.number for ticket in ticket_links("local", "local-20250210-down")] == [
        "IO-121" if tracker.kind == "jira" else "121"
    ]


def test_a_deleted_ticket_is_opened_again(tracker: Tracker) -> None:
    settings = channel(tracker)
    deliver_notice(settings, notice())
    tracker.tickets.clear()
    tracker.add("another", "another", ["other"], None)
    del tracker.tickets["1"]
    deliver_notice(settings, notice(key="confirmed"))
    assert "2 of 8 series down" in tracker.only["title"]


@pytest.mark.parametrize("state", ["resolved", "accepted", "dismissed"])
def test_what_is_over_opens_no_ticket(tracker: Tracker, state: str) -> None:
    deliver_notice(channel(tracker), notice(state))
    assert not tracker.tickets


@pytest.mark.parametrize("state", ["accepted", "dismissed"])
def test_a_decision_closes_the_ticket_and_an_acknowledgement_does_not(tracker: Tracker, state: str) -> None:
    settings = channel(tracker)
    deliver_notice(settings, notice())
    deliver_notice(settings, notice("acknowledged", key="acknowledged"))
    assert not tracker.only["closed"]
    deliver_notice(settings, notice(state, key=state))
    assert tracker.only["closed"]


def test_a_ticket_that_a_person_closed_is_reopened_only_while_the_finding_needs_action(tracker: Tracker) -> None:
    settings = channel(tracker)
    deliver_notice(settings, notice())
    tracker.only["closed"] = True
    deliver_notice(settings, notice("acknowledged", key="acknowledged", needs_action=False))
    assert tracker.only["closed"]
    assert len(tracker.only["comments"]) == 1
    deliver_notice(settings, notice("open", key="grown", needs_action=True))
    assert not tracker.only["closed"]


def test_a_late_notice_does_not_change_the_state_of_the_ticket(tracker: Tracker) -> None:
    """The notice that it is over was refused, and is delivered after a later one: the finding has recurred."""
    settings = channel(tracker)
    deliver_notice(settings, notice())
    deliver_notice(settings, replace(notice(key="recurred"), made_at=1_740_200_000))
    deliver_notice(settings, replace(notice("resolved", key="returned"), made_at=1_740_100_000))
    assert not tracker.only["closed"]
    assert len(tracker.only["comments"]) == 2


def test_a_workflow_that_cannot_close_does_not_keep_other_tickets_waiting(
    tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = channel(tracker)
    deliver_notice(settings, notice())

    def refuse(*_: Any) -> None:
        raise UndeliveredError("no transition")

    for ticket_class in (GitLab, GitHub, Jira):
        monkeypatch.setattr(ticket_class, "set_closed", refuse)
    for _ in range(2):
        with pytest.raises(PartlyDeliveredError, match="no transition"):
            deliver_notice(settings, notice("resolved", key="returned"))
    # The comment is written once, however often the state is tried again.
    assert len(tracker.only["comments"]) == 1


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        ([{"benchmark": "mdtest", "to": "bob"}, {"file_system": "scratch1", "to": "alice"}], "alice"),
        ([{"benchmark": "ior", "system": "other", "to": "alice"}], None),
        ([{"system": "local", "to": "alice"}, {"benchmark": "ior", "to": "bob"}], "alice"),
        # An account that left must not keep the ticket from being opened.
        ([{"system": "local", "to": "gone"}], None),
    ],
)
def test_the_first_owner_that_applies_gets_the_ticket(
    tracker: Tracker, owners: list[dict[str, str]], expected: str | None
) -> None:
    deliver_notice(channel(tracker, owners=owners), notice())
    assert tracker.only["owner"] == expected


@pytest.mark.parametrize(
    ("code", "text", "reason"),
    [
        (200, "<html>login</html>", "but not as"),
        (200, '{"message": "moved"}', "does not answer as"),
        (200, "[]", "does not answer as"),
        (401, "{}", "answered 401"),
        (500, "", "answered 500"),
    ],
)
def test_what_no_tracker_answers_is_undelivered_and_shows_no_secret(
    tracker: Tracker, code: int, text: str, reason: str
) -> None:
    tracker.answer = lambda: (code, text)
    with pytest.raises(UndeliveredError) as error:
        deliver_notice(channel(tracker), notice())
    if text != "[]":
        assert reason in error.value.message
    assert TOKEN not in str(error.value)
    assert "127.0.0.1" not in str(error.value)
    assert read_tickets("local") == {}


def test_text_of_the_machine_is_no_mark(tracker: Tracker) -> None:
    deliver_notice(channel(tracker), notice())
    text = tracker.only["text"]
    if tracker.kind == "jira":
        # One block, which its content cannot end.
        assert text.count("{noformat}") == 2
    else:
        assert "\\@everyone" in text or "@\u200beveryone" in text or "&#64;everyone" in text
        assert "\n````text\n" in text


def test_a_missing_token_is_reported(tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_TICKETS")
    with pytest.raises(InputError, match="TEST_TICKETS"):
        deliver_notice(channel(tracker), notice())
    assert not tracker.requests


def test_an_owner_without_a_condition_is_refused(tracker: Tracker) -> None:
    with pytest.raises(ValueError, match="expected a condition"):
        channel(tracker, owners=[{"to": "alice"}])
