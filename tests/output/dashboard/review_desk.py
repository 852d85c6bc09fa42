"""A site with findings, its review server, and requests to it, for the tests of review."""

from __future__ import annotations

import http.client
import json
import logging
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from waitress import wasyncore
from waitress.server import TcpWSGIServer

from iowatch.demo.scenarios import generate_sessions
from iowatch.findings import update_findings
from iowatch.output.dashboard import Page, SiteBuild
from iowatch.output.dashboard.build import build_site
from iowatch.output.dashboard.pages.finding import PAGE as FINDINGS
from iowatch.output.dashboard.review import PageBuild, ReviewService
from iowatch.output.dashboard.review_server import ReviewAccess, SignOn, make_review_server
from iowatch.store import History, write
from tests.findings.conftest import STEP, level, scenario_of, update_time

LATER = STEP + timedelta(days=20)
END = date(2025, 4, 1)
# Findings of the history: two of one system.
LOSS, GAIN = "planted-20250210-down", "planted-20250302-up"


def fill(database: Path) -> None:
    """MPI-IO loses half of its bandwidth on STEP, POSIX doubles on LATER."""
    scenario = scenario_of(
        *(level("MPIIO", operation, (STEP, 0.5)) for operation in ("write", "read")),
        *(level("POSIX", operation, (LATER, 2.0)) for operation in ("write", "read")),
        *(level("HDF5", operation) for operation in ("write", "read")),
    )
    with History.open(str(database)) as history:
        with history.writing() as connection:
            for session in generate_sessions(scenario, seed=5):
                write.insert_session(connection, session.session, ())
                write.insert_runs(connection, session.session.uuid, session.runs)
        found = update_findings(history, "planted", update_time(END))
    assert sorted(f.id for f in found) == [LOSS, GAIN]


_CARDS = """{% extends "base.html" %}{% from "review.html" import review_head, review_form with context %}
{% block head %}{{ review_head() }}{% endblock %}
{% block main %}<h1>Cards</h1>{% for f in findings %}<h2>{{ f.id }}
<span class="state" data-state-of="{{ f.id }}">{{ f.state }}</span>
<span data-owner-of="{{ f.id }}">none</span></h2>{{ review_form([f]) }}{% endfor %}{% endblock %}"""
_ROWS = """{% extends "base.html" %}{% from "review.html" import review_head, review_tick, review_bulk with context %}
{% block head %}{{ review_head() }}{% endblock %}
{% block main %}<h1>Rows</h1>{{ review_bulk() }}
{% for f in findings %}<p>{{ review_tick(f) }}{{ f.id }}</p>{% endfor %}{% endblock %}"""


def _publish(site: SiteBuild) -> None:
    findings = [finding for machine in site.catalogue.machines for finding in machine.findings]
    for name, text in (("index.html", _CARDS), ("rows.html", _ROWS)):
        page = site.templates.from_string(text).render(root="", page=name, findings=findings)
        site.writer.write(name, page)


def build(database: Path, site: Path) -> None:
    """A small site: cards with forms, rows with ticks, the pages of the findings."""
    with History.open(str(database)) as history:
        build_site(history, site, pages=[Page("index.html", "Cards", 1, _publish), FINDINGS])


class CountedBuild(PageBuild):
    """Counts builds instead of starting them."""

    count = 0

    def start(self) -> None:
        """Count."""
        self.count += 1


@dataclass
class Desk:
    """A running review server.

    Attributes:
        root: the checkout with the files of reviews and events.
        said: what the server said on its terminal.
    """

    root: Path
    database: Path
    server: TcpWSGIServer
    access: ReviewAccess
    builds: CountedBuild
    said: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        """Where the server listens."""
        return int(self.server.effective_port)

    def url(self, page: str = "index.html") -> str:
        """Address of a page for the person with the key."""
        return f"http://127.0.0.1:{self.port}/{page}?key={self.access.key}"

    @property
    def headers(self) -> dict[str, str]:
        """Those of a request by a page of this server, in the browser of the person with the key."""
        return {
            "Origin": f"http://127.0.0.1:{self.port}",
            "Content-Type": "application/json",
            "X-Iowatch-Token": self.access.token,
            "Cookie": f"iowatch-review-{self.port}={self.access.key}",
        }

    def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] = {},
        body: str | None = None,
        source: str = "127.0.0.1",
    ) -> tuple[int, str, http.client.HTTPMessage]:
        """Status, content and headers of the answer to a request from an address of this machine."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30, source_address=(source, 0))
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        content = answer.read().decode()
        connection.close()
        return answer.status, content, answer.headers

    def state(self) -> dict[str, Any]:
        """What the server knows about both findings."""
        found: dict[str, Any] = json.loads(
            self.request("GET", f"/review?finding={LOSS}&finding={GAIN}", self.headers)[1]
        )["findings"]
        return found

    def post(self, headers: Mapping[str, str | None] = {}, **document: Any) -> tuple[int, dict[str, Any]]:
        """Decide like a page; `headers` replace its own, None omits one."""
        if "findings" not in document:
            document["findings"] = {name: basis for name, basis in self.state().items() if name == LOSS}
        given = {name: value for name, value in {**self.headers, **headers}.items() if value is not None}
        status, content, _ = self.request("POST", "/review", given, json.dumps(document))
        return status, json.loads(content)

    def reviews(self) -> str:
        """Content of the file of reviews; empty without one."""
        path = self.root / "reference/reviews/planted.yaml"
        return path.read_text() if path.exists() else ""

    def git(self, *words: str) -> str:
        """Output of git in the checkout."""
        return subprocess.run(["git", *words], cwd=self.root, check=True, capture_output=True, text=True).stdout


@contextmanager
def open_desk(
    place: Path, made: Path, patch: pytest.MonkeyPatch, sign_on: SignOn | None = None, database: str | None = None
) -> Iterator[Desk]:
    """Serve a copy of the site and the history in `made`, with a checkout in `place`."""
    root = place / "checkout"
    for name in ("systems", "benchmarks", "reference/reviews", "reference/events"):
        (root / name).mkdir(parents=True)
    patch.setenv("IOWATCH_ROOT", str(root))
    shutil.copy(made / "history.db", place / "history.db")
    shutil.copytree(made / "site", place / "site")
    builds = CountedBuild(place / "site", None)
    service = ReviewService(builds, database or str(place / "history.db"), commits_as_person=sign_on is not None)
    access = ReviewAccess(service, "A. Reviewer", sign_on)
    with running(make_review_server(place / "site", 0, access)) as server, logged() as said:
        yield Desk(root, place / "history.db", server, access, builds, said)


@contextmanager
def running(server: TcpWSGIServer) -> Iterator[TcpWSGIServer]:
    """Run a server in a thread until the end of the block."""
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        # In the thread of the server, which ends when no connection is left. An answer that ends at this moment wakes
        # the thread too: it may have closed the trigger before this thread writes to it.
        with suppress(OSError):
            server.trigger.pull_trigger(lambda: wasyncore.close_all(server._map, ignore_all=True))
        thread.join()
        server.task_dispatcher.shutdown()


@contextmanager
def logged() -> Iterator[list[str]]:
    """What iowatch logs within the block."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("iowatch")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
