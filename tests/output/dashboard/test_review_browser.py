"""Review in a real browser: commands to copy, each action with clicks, several findings, two people, the real one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from iowatch.core import utc_now
from iowatch.output.dashboard.serve import make_server
from iowatch.reference import events, reviews
from tests.output.dashboard import review_desk
from tests.output.dashboard.browser import Browser
from tests.output.dashboard.review_desk import END, GAIN, LOSS, Desk

# An acknowledgement ends within a year.
DAY = (utc_now().date() + timedelta(days=60)).isoformat()
pytestmark = [pytest.mark.browser, pytest.mark.sqlite_file]


@pytest.fixture
def desk(tmp_path: Path, review_site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with review_desk.open_desk(tmp_path, review_site, monkeypatch) as opened:
        yield opened


class Form:
    """The form of one finding, or of the ticked ones, as a person uses it."""

    def __init__(self, browser: Browser, number: int = 0) -> None:
        self.browser = browser
        details = browser.driver.find_elements("css selector", "details.review")[number]
        if not details.get_attribute("open"):
            details.find_element("css selector", "summary").click()
        # It is made by an event after the click.
        browser.wait("return arguments[0].querySelector('form') !== null", details)
        self.details = details

    def find(self, selector: str) -> Any:
        return self.details.find_element("css selector", selector)

    def choose(self, action: str, **fields: str) -> Form:
        self.find(f"input[value={action}]").click()
        for name, text in fields.items():
            field = self.find(f"[name={name}]")
            if field.get_attribute("type") == "date":
                # What keys do in a date field depends on the language of the browser.
                script = (
                    "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))"
                )
                self.browser.run(script, field, text)
            else:
                field.send_keys(text)
        return self

    @property
    def command(self) -> str:
        return str(self.find("code").text)

    @property
    def said(self) -> str:
        return str(self.find("[role=status]").text)

    def record(self, expected: str) -> None:
        """Click the button, and wait until the page says this."""
        self.browser.wait("return arguments[0].textContent.startsWith('Record')", self.find("button[type=submit]"))
        self.find("button[type=submit]").click()
        self.browser.wait("return arguments[0].innerText.includes(arguments[1])", self.find("[role=status]"), expected)


def form_of(browser: Browser, finding: str) -> Form:
    first = browser.run("return document.querySelector('details.review data').value")
    return Form(browser, 0 if first == finding else 1)


def open_page(browser: Browser, desk: Desk, page: str = "index.html") -> None:
    """Open a page, and wait until it knows the person."""
    browser.driver.get("about:blank")
    browser.driver.get(desk.url(page))
    assert desk.access.key not in browser.driver.current_url
    browser.wait("return [...document.querySelectorAll('details.review')].every((one) => one.dataset.user)")


def test_nothing_is_preselected_for_a_loss(browser: Browser, review_site: Path) -> None:
    """A gain is mostly accepted; a loss must not be accepted by a habit."""
    browser.open(review_site / "site/index.html")
    loss, gain = form_of(browser, LOSS), form_of(browser, GAIN)
    assert not loss.details.find_elements("css selector", "input:checked")
    assert loss.command == "Choose a decision first."
    assert not loss.find("button[type=button]").is_enabled()
    assert not loss.find("button[type=submit]").is_enabled()
    assert gain.find("input:checked").get_attribute("value") == "accept"
    assert gain.command.startswith(f"iowatch review accept {GAIN}")
    loss.choose("acknowledge")
    assert loss.command.startswith(f"iowatch review acknowledge {LOSS}")
    assert loss.find("button[type=button]").is_enabled()
    assert browser.messages() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "fields", "command"),
    [
        ("accept", {"reason": "it's intended"}, rf"review accept {LOSS} --reason 'it'\''s intended'"),
        ("acknowledge", {"reason": "1", "until": DAY}, f"review acknowledge {LOSS} --reason 1 --until {DAY}"),
        ("dismiss", {}, rf"review dismiss {LOSS} --reason '…'"),
        ("note", {"reason": "$(reboot)"}, rf"review note {LOSS} --reason '$(reboot)'"),
        ("assign", {"to": "B. Operator"}, rf"review assign {LOSS} --to 'B. Operator'"),
        ("assign", {}, rf"review assign {LOSS} --nobody"),
        (
            "event",
            {"title": "new MPI", "scope": "api=MPIIO ranks=64"},
            "event add 'new MPI' --system planted --date 2025-02-10 --kind maintenance"
            " --scope api=MPIIO --scope ranks=64",
        ),
    ],
)  # fmt: skip
def test_file_offers_the_command(
    browser: Browser, review_site: Path, action: str, fields: dict[str, str], command: str
) -> None:
    """Without a server: the complete command, and no button that records."""
    browser.open(review_site / "site/index.html")
    form = form_of(browser, LOSS).choose(action, **fields)
    assert form.command == f"iowatch {command} --db {review_site / 'history.db'}"
    assert not form.find("button[type=submit]").is_displayed()
    form.find("button[type=button]").click()
    browser.wait("return arguments[0].innerText !== ''", form.find("[role=status]"))
    assert browser.messages() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "fields", "said", "state"),
    [
        ("accept", {"reason": "intended"}, "is accepted.", "accepted"),
        ("acknowledge", {"reason": "case 1", "until": DAY}, "is acknowledged.", "acknowledged"),
        ("dismiss", {"reason": "wrong"}, "is dismissed.", "dismissed"),
        ("note", {"reason": "seen"}, "is open.", "open"),
        ("assign", {"to": "B. Operator"}, "is open.", "open"),
        ("event", {"title": "new MPI"}, "Recorded for planted: new MPI.", "open"),
    ],
)
def test_every_action_is_recorded_with_clicks(
    browser: Browser, desk: Desk, action: str, fields: dict[str, str], said: str, state: str
) -> None:
    open_page(browser, desk)
    form_of(browser, LOSS).choose(action, **fields).record(said)
    badge = f"return document.querySelector('[data-state-of=\"{LOSS}\"]').textContent"
    owner = f"return document.querySelector('[data-owner-of=\"{LOSS}\"]').textContent"
    assert (browser.run(badge), browser.run(owner)) == (state, fields.get("to", "none"))
    if action == "event":
        assert [event.title for event in events.load_events("planted")] == ["new MPI"]
    else:
        (decision,) = reviews.load_decisions("planted")
        assert (decision.finding, decision.by, decision.reason) == (LOSS, "A. Reviewer", fields.get("reason"))
    assert browser.messages() == []


def test_ticked_findings_are_decided_together(browser: Browser, desk: Desk) -> None:
    open_page(browser, desk, "rows.html")
    form = Form(browser)
    assert form.command == "Tick findings first."
    assert not form.find("button[type=submit]").is_enabled()
    for tick in browser.driver.find_elements("css selector", "input.review-tick"):
        tick.click()
    form.choose("dismiss", reason="test system")
    assert len(form.command.splitlines()) == 2
    form.record("is dismissed.")
    assert {(d.finding, d.decision) for d in reviews.load_decisions("planted")} == {
        (LOSS, "dismissed"),
        (GAIN, "dismissed"),
    }


def test_ticked_card_is_decided_with_another(browser: Browser, desk: Desk) -> None:
    open_page(browser, desk)
    browser.driver.find_elements("css selector", "label.review-tick-label input")[1].click()
    Form(browser).choose("note", reason="one cause").record("is open.")
    assert {d.finding for d in reviews.load_decisions("planted")} == {LOSS, GAIN}


def test_conflict_is_shown_and_asked_again(browser: Browser, desk: Desk) -> None:
    """Jane decides about one of two findings while this page is open; nothing is recorded twice."""
    open_page(browser, desk, "rows.html")
    for tick in browser.driver.find_elements("css selector", "input.review-tick"):
        tick.click()
    form = Form(browser).choose("accept", reason="intended")
    entry = {"finding": LOSS, "decision": "dismissed", "by": "Jane", "reason": "noise", "date": END}
    reviews.add_decision("planted", entry)
    form.record(f"{LOSS} was meanwhile dismissed by Jane on 2025-04-01: noise")
    assert form.find("button[type=submit]").text == "Record all the same"
    assert f"accept {LOSS}" in form.command
    assert GAIN not in form.command
    # A refused decision leaves one line on the console of the browser: the status 409.
    assert len([text for text in browser.messages() if "409" not in text]) == 0
    form.record(f"{LOSS} is accepted.")
    found = [(d.finding, d.decision) for d in reviews.load_decisions("planted")]
    assert found == [(LOSS, "dismissed"), (GAIN, "accepted"), (LOSS, "accepted")]


def test_refusal_is_shown_in_plain_words(browser: Browser, desk: Desk) -> None:
    open_page(browser, desk)
    form = form_of(browser, LOSS).choose("acknowledge", reason="case", until="2020-01-31")
    form.record("'until' (2020-01-31) is before 'date'")
    assert "refused" in form.find("[role=status]").get_attribute("class")
    assert desk.reviews() == ""


def test_page_of_another_server_cannot_decide(browser: Browser, desk: Desk, tmp_path: Path) -> None:
    """It is on this machine, so that the browser sends it the cookie of the review server; and it knows the token."""
    open_page(browser, desk)
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil/index.html").write_text("<p>Look at this</p>")
    attack = (
        "const [url, mode, kind, token, body, done] = arguments; fetch(url, {method: 'POST', credentials: 'include',"
        " mode, body, headers: {'Content-Type': kind, ...(token && {'X-Iowatch-Token': token})}})"
        ".then((answer) => done(`${answer.type} ${answer.status}`), () => done('blocked'))"
    )
    body = json.dumps({"action": "dismiss", "reason": "evil", "findings": {LOSS: desk.state()[LOSS]}})
    with make_server(tmp_path / "evil", 0) as evil:
        threading.Thread(target=evil.serve_forever, kwargs={"poll_interval": 0.02}).start()
        browser.driver.get(f"http://127.0.0.1:{evil.server_port}/")
        answers = [
            browser.driver.execute_async_script(attack, f"http://127.0.0.1:{desk.port}/review", *given, body)
            for given in (("no-cors", "text/plain", None), ("cors", "application/json", desk.access.token))
        ]
        evil.shutdown()
    assert answers == ["opaque 0", "blocked"]
    assert (desk.reviews(), desk.said) == ("", [])
    browser.messages()


def test_page_of_a_server_without_review_asks_nobody(browser: Browser, review_site: Path) -> None:
    with make_server(review_site / "site", 0) as plain:
        threading.Thread(target=plain.serve_forever, kwargs={"poll_interval": 0.02}).start()
        browser.driver.get(f"http://127.0.0.1:{plain.server_port}/")
        is_offered = Form(browser).find("button[type=submit]").is_displayed()
        plain.shutdown()
    assert (is_offered, browser.messages()) == (False, [])


def test_page_shows_a_decision_that_is_newer_than_it(browser: Browser, desk: Desk) -> None:
    desk.post(action="dismiss", reason="noise")
    open_page(browser, desk)
    assert browser.run(f"return document.querySelector('[data-state-of=\"{LOSS}\"]').className") == "state dismissed"
    (note,) = browser.driver.find_elements("css selector", ".review-now")
    assert note.text.startswith("Decided since this page was built: dismissed by A. Reviewer on ")


def test_forms_fit_a_phone_and_have_no_accessibility_fault(browser: Browser, desk: Desk) -> None:
    browser.open(desk.database.parent / "site/index.html")
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        browser.resize(390, 844)
        Form(browser, 0).choose("event")
        assert browser.run("return document.documentElement.scrollWidth") <= 390
        assert browser.accessibility_faults() == [], scheme
    browser.scheme("light")


@pytest.mark.slow
def test_decision_on_the_pages_of_the_command(browser: Browser, review_site: Path, tmp_path: Path) -> None:
    """`iowatch dashboard serve --review` in the repository of a site: commit, pages built again, page loaded again."""
    site, database = tmp_path / "site", tmp_path / "history.db"
    database.write_bytes((review_site / "history.db").read_bytes())
    iowatch = [sys.executable, "-m", "iowatch"]
    git = ["git", "-C", str(site), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run([*iowatch, "init", str(site)], check=True, capture_output=True)
    subprocess.run([*git, "init", "--quiet"], check=True)
    for name, value in (("user.name", "A. Reviewer"), ("user.email", "a@example.org")):
        subprocess.run([*git, "config", name, value], check=True)
    review_desk.build(database, tmp_path / "pages")
    words = ["dashboard", "serve", "--review", "--port", "0", "--site", str(tmp_path / "pages"), "--db", str(database)]
    with subprocess.Popen([*iowatch, *words], cwd=site, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            assert server.stderr.readline().startswith("Decisions are recorded as A. Reviewer.")
            url = server.stderr.readline().split()[0]
            browser.driver.get(url.replace("/?", f"/finding/{LOSS}.html?"))
            browser.run("window.isOld = true")
            Form(browser).choose("accept", reason="intended").record("Committed as ")
            browser.wait("return !window.isOld && document.readyState === 'complete'")
            table = "return document.querySelector('[aria-label=Decisions] tbody').innerText.split('\t').slice(1, 4)"
            assert browser.run(table) == ["accepted", "A. Reviewer", "intended"]
            assert "accepted" in browser.run("return document.querySelector('.state').textContent")
            # Before the server ends: the browser may still ask for the icon of the page.
            assert browser.messages() == []
        finally:
            server.terminate()  # it inherits that SIGINT is ignored, where the tests run in the background
            said = server.stderr.read()
    assert re.search(rf"^A\. Reviewer: Accept {LOSS}: intended$", said, re.MULTILINE)
    done = subprocess.run([*git, "log", "--format=%an %s", "--name-only"], capture_output=True, text=True, check=True)
    assert done.stdout == f"A. Reviewer Accept {LOSS}: intended\n\nreviews/planted.yaml\n"
