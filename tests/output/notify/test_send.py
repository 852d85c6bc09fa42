"""Channels with local HTTP and SMTP servers that answer and fail like real ones."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest
from markdown_it import MarkdownIt

from iowatch.core import InputError
from iowatch.output.channels import web as web_requests
from iowatch.output.channels.markdown import issue_text
from iowatch.output.channels.notice import Notice, PartlyDeliveredError, Secret, UndeliveredError
from iowatch.output.notice_channels import IssueChannel, MailChannel, WebhookChannel, deliver_notice, mail_message

NOTICE = Notice(
    kind="finding",
    key="finding x 5 new",
    system="local",
    title="local: <!channel> & 3 series\r\nBcc: evil@example.org down ×0.5",
    lines=("x: new; open", "@all <script>alert(1)</script>"),
    details=("```", "</pre> details"),
    link="https://io.example.org/finding/x.html",
    facts={"id": "x"},
    made_at=5,
)
PATH = "/services/T0/SECRETPATH"
AnyServer = TypeVar("AnyServer", bound=socketserver.BaseServer)


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


class Web(HTTPServer):
    """Answers with the given codes, then always with the last one, and with a body; records the requests."""

    def __init__(self, codes: list[int], body: bytes = b"", content_type: str = "text/plain") -> None:
        self.codes, self.seen = codes, []  # type: ignore[var-annotated]
        self.body, self.content_type = body, content_type
        super().__init__(("127.0.0.1", 0), _Answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}{PATH}"


class _Answer(BaseHTTPRequestHandler):
    server: Web

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, dict(self.headers), json.loads(body)))
        codes = self.server.codes
        code = codes.pop(0) if len(codes) > 1 else codes[0]
        self.send_response(code)
        if code == 302:
            self.send_header("Location", self.server.url)
        self.send_header("Content-Type", self.server.content_type)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_GET = do_POST  # noqa: N815  # the name that http.server requires

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(server: AnyServer) -> Iterator[AnyServer]:
    """Serve in a thread until the end of the block."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def web(*codes: int, body: bytes = b"", content_type: str = "text/plain") -> AbstractContextManager[Web]:
    return serving(Web(list(codes), body, content_type))


def hook(monkeypatch: pytest.MonkeyPatch, url: str, kind: str = "webhook", token: str | None = None) -> WebhookChannel:
    monkeypatch.setenv("TEST_URL", url)
    document: dict[str, Any] = {"name": "chat", "kind": kind, "url": {"environment": "TEST_URL"}}
    if token is not None:
        monkeypatch.setenv("TEST_TOKEN", token)
        document["token"] = {"environment": "TEST_TOKEN"}
    return WebhookChannel.model_validate(document)


def test_webhook_receives_the_complete_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    with web(200) as server:
        deliver_notice(hook(monkeypatch, server.url, token="TOKEN"), NOTICE)
    ((path, headers, document),) = server.seen
    assert path == PATH
    assert headers["Authorization"] == "Bearer TOKEN"
    assert headers["Content-Type"] == "application/json"
    assert (document["version"], document["kind"], document["facts"]) == (1, "finding", {"id": "x"})


@pytest.mark.parametrize("kind", ["slack", "mattermost"])
def test_chat_text_contains_no_mentions(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    with web(200, body=b"ok") as server:
        deliver_notice(hook(monkeypatch, server.url, kind), NOTICE)
    ((_, _, document),) = server.seen
    assert set(document) == {"text"}
    assert "<!channel>" not in document["text"]
    assert "<script>" not in document["text"]
    assert "https://io.example.org/finding/x.html" in document["text"]


LOGIN_PAGE = b"<!DOCTYPE html><html><title>Sign in</title></html>"


@pytest.mark.parametrize(
    ("kind", "code", "body", "content_type"),
    [
        ("slack", 200, b'{"ok":false,"error":"channel_not_found"}', "application/json"),  # as Slack's Web API answers
        ("slack", 200, b"invalid_token", "text/plain"),
        ("slack", 200, b"", "text/plain"),
        ("slack", 200, LOGIN_PAGE, "text/html"),
        ("mattermost", 200, b'{"id":"api.context.invalid","status_code":400}', "application/json"),
        ("mattermost", 200, LOGIN_PAGE, "text/html"),
        ("teams", 200, b"Webhook message delivery failed with error: rate limit", "text/plain"),
        ("teams", 200, LOGIN_PAGE, "text/html"),
        ("webhook", 200, b'{"ok": false}', "application/json"),
        ("webhook", 200, b'{"success": false}', "application/json"),
        ("webhook", 200, b'{"error": "no such channel"}', "text/plain"),
        ("webhook", 200, b'{"status": "error"}', "application/json"),
        ("webhook", 200, LOGIN_PAGE, "text/html"),
        ("webhook", 200, LOGIN_PAGE, "text/plain"),
    ],
)
def test_answer_that_confirms_nothing_is_no_delivery(
    monkeypatch: pytest.MonkeyPatch, kind: str, code: int, body: bytes, content_type: str
) -> None:
    """A proxy's page or an error in the body has code 200, too; the words of the answer may have the address."""
    with web(code, body=body, content_type=content_type) as server:
        channel = hook(monkeypatch, server.url, kind)
        with pytest.raises(UndeliveredError, match=f"answered {code}, but not as {kind} confirms") as error:
            deliver_notice(channel, NOTICE)
    assert "channel" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "code", "body", "content_type"),
    [
        ("slack", 200, b"ok", "text/html"),  # Slack's webhooks state this type
        ("mattermost", 200, b"ok\n", "text/plain"),
        ("teams", 202, b"", "text/plain"),
        ("teams", 200, b"1", "text/plain"),
        ("webhook", 204, b"", "text/plain"),
        ("webhook", 200, b'{"ok": true, "errors": []}', "application/json"),
        ("webhook", 201, b"created", "text/plain"),
        ("webhook", 200, b"[1]", "application/json"),
    ],
)
def test_answer_that_confirms_is_a_delivery(
    monkeypatch: pytest.MonkeyPatch, kind: str, code: int, body: bytes, content_type: str
) -> None:
    with web(code, body=body, content_type=content_type) as server:
        deliver_notice(hook(monkeypatch, server.url, kind), NOTICE)
    assert len(server.seen) == 1


def test_card_of_teams_has_title_lines_and_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """The form that a workflow of Teams takes: a message with one Adaptive Card."""
    with web(202) as server:
        deliver_notice(hook(monkeypatch, server.url, "teams"), NOTICE)
    ((_, _, document),) = server.seen
    (attachment,) = document["attachments"]
    assert (document["type"], attachment["contentType"]) == ("message", "application/vnd.microsoft.card.adaptive")
    card = attachment["content"]
    assert [block["type"] for block in card["body"]] == ["TextBlock"] * 3
    assert card["body"][1]["text"] == "x: new; open"
    assert card["actions"] == [
        {"type": "Action.OpenUrl", "title": "Dashboard", "url": "https://io.example.org/finding/x.html"}
    ]


@pytest.mark.parametrize("code", [500, 503, 429, 404, 302, 403])
def test_refused_notice_is_one_request_and_no_redirect_is_followed(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    with web(code) as server, pytest.raises(UndeliveredError, match=f"answered {code}") as error:
        deliver_notice(hook(monkeypatch, server.url, token="TOKEN"), NOTICE)
    assert len(server.seen) == 1
    assert "SECRETPATH" not in str(error.value)
    assert error.value.__cause__ is None


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/SECRETPATH",
        "file:///etc/SECRETPATH",
        "SECRETPATH",
        "https://[SECRETPATH",
        "http://127.0.0.1:1/SECRETPATH",
        "http://127.0.0.1:x/SECRETPATH",
        "http://127.0.0.1/a b/SECRETPATH\x7f",
    ],
)
def test_error_message_does_not_contain_the_address(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    with pytest.raises(UndeliveredError) as error:
        deliver_notice(hook(monkeypatch, url), NOTICE)
    assert "SECRETPATH" not in str(error.value)


def test_token_with_a_line_end_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with web(200) as server, pytest.raises(UndeliveredError) as error:
        deliver_notice(hook(monkeypatch, server.url, token="TOKEN\r\nX: y"), NOTICE)
    assert server.seen == []
    assert "TOKEN" not in str(error.value)


def test_unresponsive_server_ends_with_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_requests, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        url = f"http://127.0.0.1:{silent_server.getsockname()[1]}/"
        with pytest.raises(UndeliveredError, match="reached"):
            deliver_notice(hook(monkeypatch, url), NOTICE)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """What a proxy for all requests receives; it refuses them."""
    seen: list[bytes] = []

    class Proxy(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while (line := self.rfile.readline()).strip():
                seen.append(line)
            self.wfile.write(b"HTTP/1.1 403 no\r\nContent-Length: 0\r\n\r\n")

    with serving(socketserver.TCPServer(("127.0.0.1", 0), Proxy)) as server:
        monkeypatch.delenv("no_proxy")
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{server.server_address[1]}")
        yield seen


def test_proxy_receives_no_request_to_this_machine(monkeypatch: pytest.MonkeyPatch, proxy: list[bytes]) -> None:
    with web(200) as server:
        deliver_notice(hook(monkeypatch, server.url, token="TOKEN"), NOTICE)
    assert len(server.seen) == 1
    assert proxy == []


def test_proxy_receives_no_token_and_no_path(monkeypatch: pytest.MonkeyPatch, proxy: list[bytes]) -> None:
    channel = hook(monkeypatch, f"https://hook.example.org{PATH}", token="TOKEN")
    with pytest.raises(UndeliveredError):
        deliver_notice(channel, NOTICE)
    assert proxy[0].startswith(b"CONNECT hook.example.org:443 ")
    assert not any(secret in line for line in proxy for secret in (b"TOKEN", b"SECRETPATH"))


# Mail


class Postbox(socketserver.ThreadingTCPServer):
    """The part of RFC 5321 that a delivery needs; `answers` replaces the reply to a verb or to a whole line."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers, self.mails = answers, []  # type: ignore[var-annotated]
        super().__init__(("127.0.0.1", 0), _Session)


class _Session(socketserver.StreamRequestHandler):
    server: Postbox

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())

    def handle(self) -> None:
        self._say(self.server.answers.get("CONNECT", "220 here"))
        while line := self.rfile.readline():
            verb = line.split()[0].decode().upper().split(":")[0]
            answer = self.server.answers.get(line.decode().strip()) or self.server.answers.get(verb)
            if answer:
                self._say(answer)
            elif verb == "DATA":
                self._say("354 go on")
                lines = []
                while (text := self.rfile.readline()) not in (b".\r\n", b""):
                    lines.append(text.removeprefix(b"."))
                self.server.mails.append(b"".join(lines))
                self._say("250 taken")
            else:
                self._say("250 ok")


def postbox(**answers: str) -> AbstractContextManager[Postbox]:
    return serving(Postbox(answers))


MAIL = MailChannel.model_validate(
    {
        "name": "admins",
        "kind": "mail",
        "host": "127.0.0.1",
        "security": "none",
        "sender": "iowatch@example.org",
        "to": ["a@example.org", "b@example.org"],
    }
)


def mail(server: Postbox, **changed: Any) -> MailChannel:
    return MailChannel.model_validate({**MAIL.model_dump(), "port": server.server_address[1], **changed})


def test_mail_has_text_and_html_and_no_injected_header() -> None:
    with postbox() as server:
        for _ in range(2):
            deliver_notice(mail(server), NOTICE)
    first, second = (message_from_bytes(raw, policy=policy.default) for raw in server.mails)
    assert isinstance(first, EmailMessage)
    assert first["Bcc"] is None
    assert first["To"] == "a@example.org, b@example.org"
    assert first["Message-ID"] == second["Message-ID"]
    assert first["Date"] is not None
    text, html = first.get_body(("plain",)), first.get_body(("html",))
    assert text is not None
    assert html is not None
    assert "×0.5" in text.get_content()
    assert "<script>" not in html.get_content()
    assert html.get_content().count("</pre>") == 1
    # The link to the dashboard is before the details, in both.
    for content, details in ((text.get_content(), "</pre>"), (html.get_content(), "<pre")):
        assert 0 < content.index(str(NOTICE.link)) < content.index(details)


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        (
            "local [new]: 17 Mar 2009: 20 of 30 series down; common factor api=MPIIO (×0.48); writes unchanged (9)",
            "iowatch: local [new]: 17 Mar 2009: 20 of 30 series down; common factor api=MPIIO (×0.48)",
        ),
        ("local: scratch is not mounted. Found ext4. Mount it.", "iowatch: local: scratch is not mounted; Found ext4"),
        ("local: " + "word " * 40, "iowatch: local: " + "word " * 19 + "word…"),
        ("x" * 500, "iowatch: " + "x" * 110 + "…"),
        ("a\x1b[31m\u202eb\r\nBcc: c", r"iowatch: a\x1b[31m\u202eb\r\nBcc: c"),
    ],
)
def test_subject_is_short_and_without_controls(title: str, expected: str) -> None:
    message = mail_message(replace(NOTICE, title=title), MAIL)
    assert message["Subject"] == expected
    assert len(expected) <= 120
    parsed = message_from_bytes(message.as_bytes(), policy=policy.default)
    assert (parsed["Subject"], parsed["Bcc"]) == (expected, None)


@pytest.mark.parametrize(
    ("answers", "code"), [({"MAIL": "451 later"}, "451"), ({"MAIL": "550 never"}, "550"), ({"RCPT": "550 who"}, "550")]
)
def test_mail_refused_by_the_server_is_reported(answers: dict[str, str], code: str) -> None:
    with postbox(**answers) as server, pytest.raises(UndeliveredError, match=code):
        deliver_notice(mail(server), NOTICE)
    assert server.mails == []


def test_refused_recipient_is_reported_and_the_others_get_no_second_mail() -> None:
    """SMTP accepts a mail for some of its recipients; the library reports the others and raises nothing."""
    with postbox(**{"rcpt TO:<b@example.org>": "550 who"}) as server:
        channel = mail(server)
        with pytest.raises(PartlyDeliveredError, match=r"refused 1 of 2 recipients \(550\)") as error:
            deliver_notice(channel, NOTICE)
        assert error.value.refused == ("b@example.org",)
        assert len(server.mails) == 1
        # The next attempt is for the refused one only: its mail server has it then alone.
        with pytest.raises(UndeliveredError, match=r"refused all recipients \(550\)"):
            deliver_notice(channel, replace(NOTICE, recipients=error.value.refused))
        assert len(server.mails) == 1


def test_password_is_never_sent_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server offers no STARTTLS: neither mail nor password is sent."""
    monkeypatch.setenv("TEST_PASSWORD", "hunter2")
    secret = {"environment": "TEST_PASSWORD"}
    seen: list[bytes] = []
    with postbox(AUTH="235 welcome") as server:
        channel = mail(server, security="starttls", user="me", password=secret)
        with pytest.raises(UndeliveredError) as error:
            deliver_notice(channel, NOTICE)
        seen += server.mails
    assert seen == []
    assert "hunter2" not in str(error.value)


def test_unreachable_mail_server_is_reported() -> None:
    with postbox() as server:
        channel = mail(server)
    with pytest.raises(UndeliveredError, match="reached"):
        deliver_notice(channel, NOTICE)


# Files and secrets


def test_issue_is_written_as_a_file_in_var(var: Path) -> None:
    deliver_notice(IssueChannel(name="i", kind="issue", directory="issues"), NOTICE)
    (path,) = (var / "issues").iterdir()
    text = path.read_text()
    assert path.name == "finding-x-5-new.md"
    assert text.splitlines()[0].startswith("# local: ")
    assert "@all" not in text


@pytest.mark.parametrize("details", [("```", "x"), ("````text", "`"), ("- a", "    b")])
def test_details_of_an_issue_are_escaped(details: tuple[str, ...]) -> None:
    """In CommonMark, machine output is one code block, never a link, an element or a list."""
    hostile = ('<img src="x">', "[a](https://evil.example)", "@all", *details, "<b>end</b>")
    tokens = MarkdownIt().parse(issue_text(replace(NOTICE, details=hostile)))
    (block,) = [token for token in tokens if token.type in ("fence", "code_block")]
    assert block.level == 0
    assert block.content == "\n".join(hostile) + "\n"
    links = [child for token in tokens for child in token.children or () if child.type == "link_open"]
    assert [link.attrs["href"] for link in links] == [NOTICE.link]
    assert not [token for token in tokens if token.type.startswith("html")]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o700 | 0o001])
def test_secret_readable_by_others_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_text("hunter2\n")
    path.chmod(mode)
    with pytest.raises(InputError, match="owner only") as error:
        Secret(file=str(path)).read()
    assert "hunter2" not in str(error.value)
    path.chmod(0o600)
    assert Secret(file=str(path)).read() == "hunter2"


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe"])
def test_empty_or_unreadable_secret_is_reported(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(InputError):
        Secret(file=str(path)).read()


def test_missing_secret_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_ABSENT", raising=False)
    for secret in (Secret(file=str(tmp_path / "no")), Secret(environment="TEST_ABSENT")):
        with pytest.raises(InputError):
            secret.read()
