"""The review server: what it records, who may decide, and what it refuses; its commits."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.core import InputError, MachineError, UsageError, utc_now
from iowatch.findings import update_findings
from iowatch.output.dashboard import review_server
from iowatch.output.dashboard.review import PageBuild
from iowatch.output.dashboard.review_server import SignOn, make_review_server
from iowatch.output.dashboard.serve import make_server
from iowatch.reference import events, reviews
from iowatch.store import History
from tests import postgresql
from tests.findings.conftest import update_time
from tests.output.dashboard import review_desk
from tests.output.dashboard.review_desk import END, GAIN, LOSS, Desk

pytestmark = pytest.mark.sqlite_file

# An acknowledgement ends within a year.
DAY = (utc_now().date() + timedelta(days=60)).isoformat()


@pytest.fixture
def desk(tmp_path: Path, review_site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with review_desk.open_desk(tmp_path, review_site, monkeypatch) as opened:
        yield opened


@pytest.fixture
def signed_on(tmp_path: Path, review_site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    sign_on = SignOn("X-Remote-User", "https://iowatch.example.org", ("127.0.0.1",))
    with review_desk.open_desk(tmp_path, review_site, monkeypatch, sign_on) as opened:
        yield opened


def start_repository(desk: Desk) -> Desk:
    """Make the checkout a git repository with one commit."""
    desk.git("init", "--quiet")
    desk.git("config", "user.name", "A. Reviewer")
    desk.git("config", "user.email", "a@example.org")
    (desk.root / "other.txt").write_text("one\n")
    desk.git("add", "other.txt")
    desk.git("commit", "--quiet", "--message", "First")
    return desk


@pytest.fixture
def repository(desk: Desk) -> Desk:
    """A desk whose checkout is a git repository with one commit."""
    return start_repository(desk)


@pytest.mark.parametrize(
    ("fields", "state", "written"),
    [
        ({"action": "accept", "reason": "intended"}, "accepted", "decision: accepted"),
        ({"action": "acknowledge", "reason": "case 1", "until": DAY}, "acknowledged", f"until: {DAY}\n"),
        ({"action": "dismiss", "reason": "wrong"}, "dismissed", "decision: dismissed"),
        ({"action": "note", "reason": "vendor asked"}, "open", "decision: note"),
        ({"action": "assign", "to": "B. Operator"}, "open", "to: B. Operator"),
        ({"action": "assign", "to": ""}, "open", "decision: unassigned"),
    ],
)
def test_decision_is_recorded_as_by_the_command(desk: Desk, fields: dict[str, str], state: str, written: str) -> None:
    status, answer = desk.post(**fields)
    assert (status, answer["findings"][LOSS]["state"], answer["conflicts"]) == (200, state, {})
    assert written in desk.reviews()
    assert "by: A. Reviewer" in desk.reviews()
    assert desk.builds.count == 1
    owner = fields.get("to") or None
    assert (desk.state()[LOSS]["owner"], desk.state()[GAIN]["owner"]) == (owner, None)


def test_event_is_recorded_and_is_a_cause(desk: Desk) -> None:
    event = {"title": "new MPI", "date": "2025-02-10", "kind": "upgrade", "scope": "api=MPIIO ranks=64"}
    status, answer = desk.post(action="event", systems=["planted"], **event)
    assert (status, answer["messages"]) == (200, ["Recorded for planted: new MPI."])
    (recorded,) = events.load_events("planted")
    assert (recorded.scope, recorded.by) == ({"api": "MPIIO", "ranks": 64}, "A. Reviewer")
    with History.open(str(desk.database)) as history:
        found = {f.id: f for f in update_findings(history, "planted", update_time(END))}
    assert found[LOSS].causes[0].event == "upgrade"


def test_several_findings_are_decided_at_once(repository: Desk) -> None:
    status, answer = repository.post(action="dismiss", reason="test system", findings=repository.state())
    assert (status, {one["state"] for one in answer["findings"].values()}) == (200, {"dismissed"})
    assert {d.finding for d in reviews.load_decisions("planted")} == {LOSS, GAIN}
    message = repository.git("log", "-1", "--format=%B").strip()
    assert sorted(message.splitlines()) == ["", "Dismiss 2 findings: test system", LOSS, GAIN]


def test_decision_of_another_person_meanwhile_is_a_conflict(desk: Desk) -> None:
    """Of two findings, Jane decided about one: only the other is recorded; asked again, both are."""
    seen = desk.state()
    entry = {"finding": LOSS, "decision": "note", "by": "Jane", "reason": "vendor asked", "date": END}
    reviews.add_decision("planted", entry)
    status, answer = desk.post(action="accept", reason="intended", findings=seen)
    assert (status, answer["conflicts"]) == (
        409,
        {LOSS: f"{LOSS} was meanwhile noted by Jane on 2025-04-01: vendor asked"},
    )
    assert [(d.finding, d.decision) for d in reviews.load_decisions("planted")] == [(LOSS, "note"), (GAIN, "accepted")]
    again = {LOSS: answer["findings"][LOSS]}
    assert desk.post(action="accept", reason="intended", findings=again)[0] == 200
    assert [(d.finding, d.decision) for d in reviews.load_decisions("planted")][2:] == [(LOSS, "accepted")]


def test_text_that_no_file_can_hold_is_recorded_without_it(repository: Desk) -> None:
    """NUL and half of a pair of surrogates, of which JSON can write escapes; line ends in the subject of a commit."""
    status, answer = repository.post(action="assign", to="B\x00\ud800\n\nC")
    assert (status, answer["findings"][LOSS]["owner"]) == (200, "B\ufffd\ufffd\n\nC")
    assert repository.git("log", "-1", "--format=%B").strip() == f"Assign {LOSS} to B\ufffd\ufffd C"


def test_of_decisions_at_once_one_is_recorded(desk: Desk) -> None:
    """All were made on the same state: the first is a conflict of the others."""
    seen = {LOSS: desk.state()[LOSS]}
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda n: desk.post(action="note", reason=f"note {n}", findings=seen), range(4)))
    (first,) = reviews.load_decisions("planted")
    assert sorted(status for status, _ in answers) == [200, 409, 409, 409]
    conflicts = {answer["conflicts"].get(LOSS) for _, answer in answers} - {None}
    assert conflicts == {f"{LOSS} was meanwhile noted by A. Reviewer on {first.date}: {first.reason}"}


def test_new_state_meanwhile_is_a_conflict(desk: Desk) -> None:
    seen = {LOSS: {**desk.state()[LOSS], "state": "suspected"}}
    status, answer = desk.post(action="accept", reason="intended", findings=seen)
    assert (status, answer["conflicts"]) == (409, {LOSS: f"{LOSS} is meanwhile open"})
    assert (desk.reviews(), desk.builds.count) == ("", 0)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"action": "forgive"}, "unknown action 'forgive'"),
        ({"action": "accept"}, "must have a 'reason'"),
        ({"action": "accept", "reason": ["a"]}, "field 'reason': expected a text"),
        ({"action": "acknowledge", "reason": "a"}, "needs 'until'"),
        ({"action": "acknowledge", "reason": "a", "until": "2125-02-30"}, "'2125-02-30' is no date"),
        ({"action": "acknowledge", "reason": "a", "until": "2020-02-01"}, "before 'date'"),
        ({"action": "acknowledge", "reason": "a", "until": "9999-12-31"}, "more than a year after 'date'"),
        ({"action": "dismiss", "reason": "a", "until": "9999-12-31"}, "more than 10 years after 'date'"),
        (
            {"action": "event", "systems": ["planted"], "title": "a", "date": "9999-12-31", "kind": "outage"},
            "a year ahead",
        ),
        ({"action": "accept", "reason": "a", "findings": {}}, "expected 1 to"),
        ({"action": "accept", "reason": "a", "findings": {LOSS: None}}, "does not know the state"),
        ({"action": "accept", "reason": "a", "findings": {"other": {}}}, "does not know the state"),
        ({"action": "event", "systems": ["plantd"], "title": "a", "date": "2025-01-01", "kind": "outage"}, "no system"),
        (
            {"action": "event", "systems": ["../x"], "title": "a", "date": "2025-01-01", "kind": "outage"},
            "not the name",
        ),
        ({"action": "event", "systems": ["planted"], "title": "a", "date": "2025-01-01", "kind": "party"}, "kind"),
        (
            {
                "action": "event",
                "systems": [f"s{number}" for number in range(51)],
                "title": "a",
                "date": "2025-01-01",
                "kind": "outage",
            },
            "51 systems; expected 1 to 50",
        ),
        (
            {"action": "event", "systems": ["planted", "plantd"], "title": "a", "date": "2025-01-01", "kind": "outage"},
            "no system",
        ),
        ({"action": "event", "systems": [], "title": "a", "date": "2025-01-01", "kind": "outage"}, "names of systems"),
    ],
)
def test_wrong_request_is_refused_in_plain_words(desk: Desk, document: dict[str, object], message: str) -> None:
    status, answer = desk.post(**document)
    assert (status, message in answer["error"]) == (400, True), answer
    assert (desk.reviews(), desk.builds.count) == ("", 0)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": None},
        {"Origin": "null"},
        {"X-Iowatch-Token": None},
        {"X-Iowatch-Token": "of-an-earlier-start"},
        {"Cookie": None},
        {"Cookie": "iowatch-review-1=x"},
        # A name of an attacker that resolves to 127.0.0.1 (DNS rebinding).
        {"Host": "evil.example", "Origin": "http://evil.example"},
        {"Content-Type": "text/plain"},
        {"Content-Type": None},
        # The header of a sign-on that this server was not told about.
        {"Cookie": None, "X-Remote-User": "jane"},
    ],
)
def test_request_of_another_web_site_is_refused(desk: Desk, headers: dict[str, str | None]) -> None:
    document = {"action": "accept", "reason": "a", "findings": desk.state()}
    status, answer = desk.post(headers, **document)
    assert status in (403, 415)
    assert answer["error"]
    assert (desk.reviews(), desk.builds.count) == ("", 0)
    assert desk.post(**document)[0] == 200


def test_reading_needs_neither_key_nor_token(desk: Desk) -> None:
    """The page of somebody without the key is the file as it is: no token, and it does not ask this server."""
    status, content, headers = desk.request("GET", "/index.html")
    assert (status, desk.access.token in content, headers["Content-Security-Policy"]) == (200, False, None)
    assert "default-src 'none'" in content
    assert desk.request("GET", "/review")[0] == 403
    status, content, headers = desk.request("GET", "/", desk.headers)
    assert (status, f'content="{desk.access.token}"' in content) == (200, True)
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; ")
    assert headers["Content-Security-Policy"].endswith("connect-src 'self'; frame-ancestors 'none'")


def test_key_becomes_a_cookie_that_other_sites_do_not_send(desk: Desk) -> None:
    for path in ("//evil.example/finding/", "/\\evil.example/finding/"):
        status, _, headers = desk.request("GET", f"{path}?key={desk.access.key}")
        assert (status, headers["Location"]) == (303, "/evil.example/finding/")
    value, *attributes = headers["Set-Cookie"].split("; ")
    assert value == f"iowatch-review-{desk.port}={desk.access.key}"
    assert sorted(attributes) == ["HttpOnly", "Path=/", "SameSite=Strict"]
    assert desk.request("GET", "/?key=guessed")[2]["Set-Cookie"] is None


@pytest.mark.parametrize(
    "path",
    [
        "/../history.db",
        "/%2e%2e/history.db",
        "/..%2fhistory.db",
        "/static/",
        "/finding/",
        "//etc/passwd",
        "/static/../..",
    ],
)
def test_server_sends_files_of_the_site_only(desk: Desk, path: str) -> None:
    assert desk.request("GET", path, desk.headers)[0] in (301, 404)


def test_large_and_damaged_requests_are_refused(desk: Desk) -> None:
    assert desk.request("POST", "/review", desk.headers, "x" * 70_000)[0] == 413
    assert desk.request("POST", "/review", desk.headers, "[" * 60_000)[0] == 400
    assert desk.request("POST", "/review", desk.headers, "[]")[0] == 400
    assert desk.request("POST", "/other", desk.headers, "{}")[0] == 405
    assert desk.request("PUT", "/review", desk.headers, "{}")[0] == 405
    assert (desk.reviews(), desk.builds.count) == ("", 0)


@pytest.mark.parametrize("sent", [b"GET /index.html HT", b"POST /review HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"])
def test_silent_client_is_disconnected(
    tmp_path: Path, review_site: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Half of a request; others are answered meanwhile."""
    monkeypatch.setattr(review_server, "TIMEOUT_S", 1)
    monkeypatch.setattr(review_server, "_CLEANUP_INTERVAL_S", 1)
    with (
        review_desk.open_desk(tmp_path, review_site, monkeypatch) as desk,
        socket.create_connection(("127.0.0.1", desk.port), timeout=20) as client,
    ):
        client.sendall(sent)
        assert desk.request("GET", "/index.html")[0] == 200
        assert client.recv(1) == b""


def test_client_that_leaves_does_not_disturb_others(desk: Desk) -> None:
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", desk.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(b"GET /index.html HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert desk.request("GET", "/index.html")[0] == 200
    assert desk.said == []


def test_internal_error_is_answered_and_logged(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> dict[str, object]:
        raise RuntimeError("private")

    monkeypatch.setattr(desk.access.service, "state", fail)
    status, content, _ = desk.request("GET", "/review", desk.headers)
    assert (status, json.loads(content)["error"]) == (500, "The server failed: RuntimeError.")
    assert "Exception on /review [GET]" in "".join(desk.said)


def test_sign_on_names_the_person(signed_on: Desk) -> None:
    start_repository(signed_on)
    headers = {"Origin": "https://iowatch.example.org", "X-Remote-User": "jane@example.org", "Cookie": None}
    document = {"action": "note", "reason": "seen"}
    findings = json.loads(
        signed_on.request("GET", f"/review?finding={LOSS}", {"X-Remote-User": "jane@example.org"})[1]
    )["findings"]
    assert signed_on.post(headers, findings=findings, **document)[0] == 200
    assert "by: jane@example.org" in signed_on.reviews()
    assert signed_on.git("log", "-1", "--format=%ae, %ce") == "jane@example.org, a@example.org\n"
    # The key of the loopback address counts for nothing here.
    assert signed_on.post({**headers, "X-Remote-User": None}, findings=findings, **document)[0] == 403
    assert signed_on.post({**headers, "X-Remote-User": " "}, findings=findings, **document)[0] == 403
    wrong = f"http://127.0.0.1:{signed_on.port}"
    assert signed_on.post({**headers, "Origin": wrong}, findings=findings, **document)[0] == 403


def test_header_of_an_address_that_is_not_the_proxy_is_ignored(signed_on: Desk) -> None:
    headers = {**signed_on.headers, "Origin": "https://iowatch.example.org", "X-Remote-User": "jane"}
    document = json.dumps({"action": "note", "reason": "forged", "findings": {}})
    for method, path, body in (("POST", "/review", document), ("GET", "/index.html", None), ("GET", "/review", None)):
        status, content, _ = signed_on.request(method, path, headers, body, source="127.0.0.2")
        assert (status, signed_on.access.token in content) == (403, False)
    assert signed_on.reviews() == ""
    assert signed_on.request("GET", "/index.html", headers)[0] == 200


def test_two_headers_with_a_name_are_refused(signed_on: Desk) -> None:
    """The proxy added its own to one that a client sent; it may have joined them with a comma."""
    assert signed_on.request("GET", "/review", {"X-Remote-User": "root, jane"})[0] == 403
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", signed_on.port, timeout=30)
    connection.putrequest("GET", "/review")
    for name in ("root", "jane"):
        connection.putheader("X-Remote-User", name)
    connection.endheaders()
    assert connection.getresponse().status == 403
    connection.close()


def test_only_the_file_of_reviews_is_committed(repository: Desk) -> None:
    (repository.root / "other.txt").write_text("staged\n")
    repository.git("add", "other.txt")
    (repository.root / "other.txt").write_text("not staged\n")
    assert repository.post(action="accept", reason="new  striping,\n intended")[1]["messages"][1].startswith(
        "Committed"
    )
    assert repository.git("log", "-1", "--format=%an <%ae>%n%s", "--name-only").split("\n") == [
        "A. Reviewer <a@example.org>",
        f"Accept {LOSS}: new striping, intended",
        "",
        "reference/reviews/planted.yaml",
        "",
    ]
    assert repository.git("diff", "--cached").splitlines()[-1] == "+staged"
    assert repository.git("diff").splitlines()[-1] == "+not staged"
    repository.post(action="assign", to="B. Operator")
    assert repository.git("log", "--format=%s").splitlines()[0] == f"Assign {LOSS} to B. Operator"


def test_refused_commit_is_reported_and_the_decision_kept(repository: Desk) -> None:
    hook = repository.root / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'reviews are frozen' >&2\nexit 1\n")
    hook.chmod(0o755)
    status, answer = repository.post(action="accept", reason="intended")
    assert (status, answer["findings"][LOSS]["state"]) == (200, "accepted")
    assert any("is written, but not committed: reviews are frozen" in text for text in answer["messages"])
    assert "decision: accepted" in repository.reviews()
    assert repository.git("log", "--format=%s") == "First\n"


def test_person_of_the_sign_on_is_the_author(repository: Desk) -> None:
    path = repository.root / "reference/reviews/planted.yaml"
    for person, author in (("jane@example.org", "jane@example.org <jane@example.org>"), ("J. <D>\n", "J. D <>")):
        path.write_text(f"system: planted # {person.strip()}\n")
        reviews.commit_file(path, "Test", person)
        assert repository.git("log", "-1", "--format=%an <%ae>, %cn") == f"{author}, A. Reviewer\n"


def test_outside_a_repository_nothing_is_committed(desk: Desk) -> None:
    assert desk.post(action="accept", reason="intended")[1]["messages"] == [f"{LOSS} is accepted."]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_read_only_directory_is_reported(desk: Desk) -> None:
    (desk.root / "reference/reviews").chmod(0o555)
    status, answer = desk.post(action="accept", reason="intended")
    assert (status, "Permission denied" in answer["error"]) == (500, True)


def test_directory_that_is_a_file_is_reported(desk: Desk) -> None:
    """As a read-only one, also where tests run as root."""
    (desk.root / "reference/reviews").rmdir()
    (desk.root / "reference/reviews").write_text("")
    status, answer = desk.post(action="accept", reason="intended")
    assert (status, str(desk.root / "reference/reviews/planted.yaml") in answer["error"]) == (500, True)


def test_reader_of_a_postgresql_history_is_refused(
    postgresql_url: str, tmp_path: Path, review_site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with History.open(postgresql_url) as history, History.open(str(review_site / "history.db")) as made:
        history.save_findings(made.findings())
    postgresql.create_roles(postgresql_url, rosa="reader")
    url = postgresql_url.replace("//iowatch@", "//rosa@")
    with review_desk.open_desk(tmp_path, review_site, monkeypatch, database=url) as desk:
        basis = {"state": "open", "owner": None, "decisions": 0, "last": None}
        status, answer = desk.post(action="accept", reason="a", findings={LOSS: basis})
        assert (status, "this account may only read the history" in answer["error"]) == (500, True), answer
        assert desk.reviews() == ""


def test_pages_are_built_with_the_options_of_the_site(
    review_site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests while a build runs lead to one more build, by the real command."""
    (review_site / "site/build.json").read_text()
    monkeypatch.setattr(sys, "executable", "/bin/echo")
    builds = PageBuild(review_site / "site", "some.db")
    assert builds._command()[1:] == [
        *("-m", "iowatch", "dashboard", "build", "--output", str(review_site / "site"), "--db", "some.db"),
        *("--sessions", "30", "--reports", "6"),
    ]
    started: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        started.append(command)
        if len(started) == 1:
            builds.start()
            builds.start()
        return subprocess.CompletedProcess(command, 3 if len(started) == 2 else 0, "", "disk full\n")

    monkeypatch.setattr(subprocess, "run", run)
    builds.running = True
    builds._is_requested = True
    builds._run()
    assert (len(started), builds.running, builds.failed) == (2, False, "disk full")


def test_directory_without_a_site_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no dashboard"):
        make_server(tmp_path, 0)


def test_port_in_use_is_reported(desk: Desk) -> None:
    site = desk.database.parent / "site"
    with pytest.raises(MachineError, match=f"port {desk.port}"):
        make_review_server(site, desk.port, desk.access)
    with pytest.raises(MachineError, match=f"port {desk.port}"):
        make_server(site, desk.port)


@pytest.mark.parametrize("package", ["flask", "waitress"])
def test_review_without_its_extra_names_what_to_install(
    cli: Callable[..., Result], review_site: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    """Reading needs neither package."""
    monkeypatch.delitem(sys.modules, "iowatch.output.dashboard.review_server")
    monkeypatch.delattr("iowatch.output.dashboard.review_server")
    monkeypatch.setitem(sys.modules, package, None)
    database = review_site / "history.db"
    result = cli("dashboard", "serve", "--review", "--site", review_site / "site", "--db", database)
    assert (result.exit_code, f"--review needs {package}" in result.stderr) == (3, True)
    assert "pip install 'iowatch[review]'" in result.stderr
    make_server(review_site / "site", 0).server_close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--origin", "https://a"), "are for --review"),
        (("--review", "--user-header", "X-Remote-User"), "belong together"),
        (("--review", "--trusted-proxy", "127.0.0.1"), "belong together"),
        (("--bind", "0.0.0.0"), "needs --review with --user-header"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    cli: Callable[..., Result], review_site: Path, words: tuple[str, ...], message: str
) -> None:
    done = cli("dashboard", "serve", "--site", review_site / "site", "--db", review_site / "history.db", *words)
    assert (done.exit_code, message in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("origin", "proxy"), [("iowatch.example.org", "127.0.0.1"), ("https://a/b", "127.0.0.1"), ("https://a", "a")]
)
def test_wrong_sign_on_is_refused(origin: str, proxy: str) -> None:
    with pytest.raises(UsageError, match="is no"):
        SignOn("X-Remote-User", origin, (proxy,))


def test_networks_and_mapped_addresses_of_proxies_are_known() -> None:
    sign_on = SignOn("X-Remote-User", "https://a", ("192.0.2.0/24", "::1"))
    addresses = ("192.0.2.7", "::ffff:192.0.2.7", "::1", "192.0.3.7", "127.0.0.1")
    assert [sign_on.trusts(one) for one in addresses] == [True, True, True, False, False]
