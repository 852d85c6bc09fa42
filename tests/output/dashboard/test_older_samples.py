"""Observations of earlier years: in files of their own, which the next builds link."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iowatch.core import DAY_S
from iowatch.output.dashboard import older_samples
from iowatch.output.dashboard.build import build_site
from iowatch.store import History, bulk
from tests.builders import build_session
from tests.output.dashboard import shapes
from tests.output.dashboard.browser import Browser
from tests.output.dashboard.chosen_pages import pages_named
from tests.output.dashboard.test_series import plotted

NEW_YEAR = 1_735_689_600  # 2025-01-01T00:00Z
OLDER_SESSIONS = 42
TYPES = {"time": "<u4", "headline": "<f4", "count": "<u2", "samples": "<f4", "run": "<u4", "session": "<u4"}


def fill(database: Path) -> Path:
    """The 120 sessions of each of the shapes begin 42 days before a new year."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "START", NEW_YEAR + 3600 - OLDER_SESSIONS * DAY_S)
        shapes.fill(database)
    return database


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return fill(tmp_path / "history.db")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same history, which no test changes."""
    return fill(tmp_path_factory.mktemp("older") / "history.db")


def build(database: Path, site: Path) -> dict[str, str]:
    """Build a site; returns the pages of the series by shape."""
    with History.open(str(database)) as history:
        build_site(history, site, pages=pages_named("series"))
        rows = {str(row.case.parameters.get("mode", "reference")): row.id for row in history.series()}
    return {shape: (site / f"series/{number}.html").read_text() for shape, number in rows.items()}


def files_of(site: Path, page: str) -> list[Path]:
    """Files of older sessions and samples that a page loads."""
    return [site / name for name in re.findall(r'src="\.\./(samples/\w+\.js)" defer', page)]


def content(path: Path, name: str) -> dict[str, Any]:
    found = re.fullmatch(rf"globalThis\.{name} = (.*);\n", path.read_text(), re.DOTALL)
    assert found is not None
    document: dict[str, Any] = json.loads(found[1])
    return document


def arrays(document: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.frombuffer(base64.b64decode(document[name]), kind) for name, kind in TYPES.items()}


@pytest.fixture(scope="module")
def first(kept: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A site and its pages."""
    site = tmp_path_factory.mktemp("first") / "site"
    return site, build(kept, site)


@pytest.fixture(scope="module")
def again_and_whole(
    kept: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str], dict[str, str]]:
    """Pages of the second build of a site, then of a site whose pages contain all observations, with its place."""
    place = tmp_path_factory.mktemp("again")
    build(kept, place / "site")
    again = build(kept, place / "site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(older_samples, "write_older_sessions", lambda *_: None)
        return place / "whole", again, build(kept, place / "whole")


@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_page_and_files_together_have_every_observation_in_order(
    first: tuple[Path, dict[str, str]], shape: str
) -> None:
    site, pages = first
    page = pages[shape]
    names, samples = files_of(site, page)
    older, recent = arrays(content(samples, "olderSamples")), arrays(plotted(page))
    assert len(older["time"]) == OLDER_SESSIONS == plotted(page)["older"]
    assert older["time"].max() < NEW_YEAR <= recent["time"].min()
    both = {name: np.concatenate([older[name], recent[name]]) for name in TYPES}
    np.testing.assert_allclose(both["headline"], shapes.values(shape), rtol=1e-6)
    np.testing.assert_allclose(both["samples"].reshape(-1, 3)[:, 2], 0.93 * shapes.values(shape), rtol=1e-6)
    sessions = content(names, "olderSessions") | plotted(page)["sessions"]
    expected = [[f"archer-{day:03d}"] for day in range(shapes.SESSIONS)]
    assert [sessions[str(number)] for number in both["session"].tolist()] == expected


@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_page_is_that_of_all_observations(
    again_and_whole: tuple[Path, dict[str, str], dict[str, str]], shape: str
) -> None:
    """Figures, levels, bands, table and notes are those of a page that contains everything; also from recent ones."""
    place, pages, whole_pages = again_and_whole
    page, whole = pages[shape], whole_pages[shape]
    inline = {*TYPES, "older", "sessions"}
    for text in (page, whole):
        assert inline < plotted(text).keys()
    assert {n: v for n, v in plotted(page).items() if n not in inline} == {
        n: v for n, v in plotted(whole).items() if n not in inline
    }
    around = re.compile(
        r'<script src="\.\./samples.*?</script>\n|<script type="application/json".*?</script>', re.DOTALL
    )
    assert around.sub("", page) == around.sub("", whole)
    assert files_of(place, whole) == []


def test_next_build_links_files_and_reads_recent_observations_only(
    history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, asked = tmp_path / "site", []
    first = files_of(site, build(history, site)["transient"])
    nodes = [path.stat().st_ino for path in first]
    read = bulk.read_series_samples

    def counted(connection: Any, numbers: Any, since: Any = None, until: Any = None) -> Any:
        asked.append((len(numbers), since))
        return read(connection, numbers, since, until)

    monkeypatch.setattr(bulk, "read_series_samples", counted)
    again = files_of(site, build(history, site)["transient"])
    assert [path.stat().st_ino for path in again] == nodes
    # All but the drift, whose level is that of its observations from the first one on.
    assert [one for one in asked if one[1] in (None, NEW_YEAR)] == [(4, NEW_YEAR), (1, None)]


@pytest.mark.slow
def test_older_run_that_arrives_late_is_in_a_new_file(history: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    before = files_of(site, build(history, site)["transient"])
    with History.open(str(history)) as written:
        session = build_session("late", system="archer", started_at=NEW_YEAR - 1800)
        written.begin_session(session, [])
        written.record_runs("late", [shapes.make_run("transient", 4000.0, 999, NEW_YEAR - 1700)])
        written.end_session("late", "ok", NEW_YEAR - 60)
    page = build(history, site)["transient"]
    names, samples = files_of(site, page)
    assert not {names, samples} & set(before)
    older = arrays(content(samples, "olderSamples"))
    assert (older["time"][-1], older["headline"][-1]) == (NEW_YEAR - 1700, 4000)
    assert content(names, "olderSessions")[str(older["session"][-1])] == ["late"]


def test_damaged_file_is_written_again(history: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    _, samples = files_of(site, build(history, site)["transient"])
    intact = samples.read_text()
    samples.write_text("globalThis.olderSamples = null;\n")
    build(history, site)
    assert samples.read_text() == intact


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("lost", [None, 0, 1], ids=["nothing", "sessions", "samples"])
def test_browser_draws_all_observations_or_says_what_is_missing(
    history: Path, tmp_path: Path, browser: Browser, lost: int | None
) -> None:
    site = tmp_path / "site"
    page = build(history, site)["transient"]
    if lost is not None:
        files_of(site, page)[lost].unlink()
    (path,) = [path for path in (site / "series").glob("*.html") if path.read_text() == page]
    browser.open(path)
    browser.wait("return document.documentElement.dataset.drawn === 'yes'")
    layers = "document.getElementById('plot').chart.drawn[0].layers"
    headline = browser.run(f"return {layers}.find((one) => one.kind === 'headline').points.length")
    hint = browser.run("return document.getElementById('hint').textContent")
    first = 0 if lost is None else OLDER_SESSIONS
    assert headline == shapes.SESSIONS - first
    assert ("The files of the 42 older sessions could not be loaded." in hint) is (lost is not None)
    chart = "document.getElementById('plot').chart"
    described = browser.run(f"return [{chart}.describe(0, 1), {chart}.link(0)]")
    assert f"session archer-{first:03d}" in described[0]
    assert described[1].startswith(f"../session/archer-{first:03d}.html#run-")
