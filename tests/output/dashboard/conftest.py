"""Sites of the Franklin demonstration and of a hostile history, built once; and a browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from iowatch.core import exclusive_file_lock
from iowatch.demo import scenarios
from iowatch.demo.scenarios import generate_sessions
from iowatch.findings import update_findings
from iowatch.output.dashboard.build import build_site
from iowatch.store import History
from tests.conftest import ROOT
from tests.output.dashboard import hostile, mornings, review_desk, shapes
from tests.output.dashboard.browser import Browser, unusable


class SharedDirectories:
    """Directories that one of the parallel workers fills and all of them read."""

    def __init__(self, request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> None:
        self.root = factory.getbasetemp()
        # Each worker has a directory of its own in that of the test run, and a PostgreSQL server of its own.
        is_worker = "PYTEST_XDIST_WORKER" in os.environ
        if is_worker and request.config.getoption("--history") == "sqlite":
            self.root = self.root.parent

    def make(self, name: str, fill: Callable[[Path], object]) -> Path:
        """The directory of this name; the first worker that needs it fills it, the others wait."""
        directory = self.root / f"shared-{name}" / name
        is_complete = directory.with_name("complete")
        with exclusive_file_lock(is_complete):
            if not is_complete.exists():
                # What a worker left that failed meanwhile; the next one shows the same fault.
                shutil.rmtree(directory, ignore_errors=True)
                directory.mkdir(parents=True)
                fill(directory)
                is_complete.touch()
        return directory


@pytest.fixture(scope="session")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SharedDirectories:
    """Directories that are filled once for all workers."""
    return SharedDirectories(request, tmp_path_factory)


def _fill_franklin(directory: Path) -> None:
    path = directory / "history.db"
    with History.open(str(path)) as history:
        for session in generate_sessions(scenarios.franklin_scenario(), 2009):
            if session.session.started_at >= datetime(2009, 2, 10, tzinfo=UTC).timestamp():
                history.begin_session(session.session, session.expected)
                history.record_runs(session.session.uuid, session.runs)
                history.end_session(session.session.uuid, "ok", session.session.started_at + 3600)
        update_findings(
            history, scenarios.FRANKLIN_SYSTEM, datetime.combine(date(2009, 5, 1), datetime.min.time(), UTC)
        )


@pytest.fixture(scope="session")
def franklin_history(shared: SharedDirectories) -> Path:
    """Franklin from mid-February 2009 on, as `iowatch demo franklin` records it, updated on 1 May."""
    return shared.make("franklin", _fill_franklin) / "history.db"


def _build(database: Path, site: Path) -> None:
    with History.open(str(database)) as history:
        build_site(history, site)


@pytest.fixture(scope="session")
def franklin_site(shared: SharedDirectories, franklin_history: Path) -> Path:
    """The site of Franklin."""
    return shared.make("franklin-site", lambda directory: _build(franklin_history, directory / "site")) / "site"


def _fill_hostile(directory: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IOWATCH_VAR", str(directory / "var"))
        hostile.fill(directory / "history.db")
        _build(directory / "history.db", directory / "site")


@pytest.fixture(scope="session")
def hostile_site(shared: SharedDirectories) -> Path:
    """The site of a history whose every name is an attack."""
    return shared.make("hostile", _fill_hostile) / "site"


def _fill_shapes(directory: Path) -> None:
    shapes.fill(directory / "history.db")
    _build(directory / "history.db", directory / "site")


@pytest.fixture(scope="session")
def shapes_site(shared: SharedDirectories) -> Path:
    """The site of series with a reference, a transient, a drift, a suspicion."""
    return shared.make("shapes", _fill_shapes) / "site"


@pytest.fixture(scope="session")
def fleet(shared: SharedDirectories) -> Path:
    """The site of eight systems, three of them with one event."""
    return shared.make("fleet", lambda directory: mornings.build(directory, mornings.eight_systems)) / "site"


@pytest.fixture(scope="session")
def first_results(shared: SharedDirectories) -> Path:
    """The site after the first session."""
    return shared.make("first", lambda directory: mornings.build(directory, mornings.first_session)) / "site"


@pytest.fixture(scope="session")
def bad_morning(shared: SharedDirectories) -> Path:
    """The site after the first session of an event."""
    return shared.make("bad", lambda directory: mornings.build(directory, mornings.first_bad_morning)) / "site"


def _fill_review(directory: Path) -> None:
    review_desk.fill(directory / "history.db")
    review_desk.build(directory / "history.db", directory / "site")


@pytest.fixture(scope="session")
def review_site(shared: SharedDirectories) -> Path:
    """A directory with `history.db` and `site`, to copy, for tests of review."""
    return shared.make("review", _fill_review)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A headless Chromium; its profile is removed afterwards."""
    why = unusable()
    if why:
        pytest.skip(why)
    with Browser() as opened:
        yield opened


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """The browser at the size of a laptop, without the page of the test before and its messages."""
    # That page may still ask its server, which has ended, and the answer would count as a fault of this test.
    chromium.driver.get("about:blank")
    chromium.resize(1280, 900)
    chromium.clock(None)
    chromium.messages()
    return chromium


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """The directory of screenshots: `var/screenshots/` of the checkout."""
    place = ROOT / "var" / "screenshots"
    place.mkdir(parents=True, exist_ok=True)
    return place
