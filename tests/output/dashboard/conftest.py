"""Sites of the Franklin demonstration and of a hostile history, built once; and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from iowatch.demo import scenarios
from iowatch.demo.scenarios import generate_sessions
from iowatch.findings import update_findings
from iowatch.output.dashboard.build import build_site
from iowatch.store import History
from tests.conftest import ROOT
from tests.output.dashboard import hostile, mornings, review_desk, shapes
from tests.output.dashboard.browser import Browser, unusable


@pytest.fixture(scope="session")
def franklin_history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Franklin from mid-February 2009 on, as `iowatch demo franklin` records it, updated on 1 May."""
    path = tmp_path_factory.mktemp("franklin") / "history.db"
    with History.open(str(path)) as history:
        for session in generate_sessions(scenarios.franklin_scenario(), 2009):
            if session.session.started_at >= datetime(2009, 2, 10, tzinfo=UTC).timestamp():
                history.begin_session(session.session, session.expected)
                history.record_runs(session.session.uuid, session.runs)
                history.end_session(session.session.uuid, "ok", session.session.started_at + 3600)
        update_findings(
            history, scenarios.FRANKLIN_SYSTEM, datetime.combine(date(2009, 5, 1), datetime.min.time(), UTC)
        )
    return path


def _built(database: Path, site: Path) -> Path:
    with History.open(str(database)) as history:
        build_site(history, site)
    return site


@pytest.fixture(scope="session")
def franklin_site(franklin_history: Path) -> Path:
    """The site of Franklin."""
    return _built(franklin_history, franklin_history.parent / "site")


@pytest.fixture(scope="session")
def hostile_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of a history whose every name is an attack."""
    place = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IOWATCH_VAR", str(place / "var"))
        hostile.fill(place / "history.db")
        return _built(place / "history.db", place / "site")


@pytest.fixture(scope="session")
def shapes_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of series with a reference, a transient, a drift, a suspicion."""
    place = tmp_path_factory.mktemp("shapes")
    shapes.fill(place / "history.db")
    return _built(place / "history.db", place / "site")


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of eight systems, three of them with one event."""
    return mornings.build(tmp_path_factory.mktemp("fleet"), mornings.eight_systems)


@pytest.fixture(scope="session")
def first_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site after the first session."""
    return mornings.build(tmp_path_factory.mktemp("first"), mornings.first_session)


@pytest.fixture(scope="session")
def bad_morning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site after the first session of an event."""
    return mornings.build(tmp_path_factory.mktemp("bad"), mornings.first_bad_morning)


@pytest.fixture(scope="session")
def review_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `history.db` and `site`, to copy, for tests of review."""
    place = tmp_path_factory.mktemp("review")
    review_desk.fill(place / "history.db")
    review_desk.build(place / "history.db", place / "site")
    return place


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
