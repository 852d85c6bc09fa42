"""The page of a session: failures first, results against their normal bands, passed runs and phase times in folds."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import delete

from iowatch.core import Scalar
from iowatch.findings import update_findings
from iowatch.output.dashboard.build import BuildOptions, build_site
from iowatch.output.dashboard.pages import session
from iowatch.statistics import Detection
from iowatch.store import Artefact, History, RunRecord
from iowatch.store.schema import ArtefactTable
from tests.builders import (
    build_change_point,
    build_output,
    build_result,
    build_run,
    build_series_entry,
    build_session,
    build_session_row,
    build_system_entry,
    store_session,
)
from tests.output.dashboard.browser import Browser

DAY_S = 86400
START = 1_735_700_000
SESSIONS, CASES = 8, 48
# In the newest session: slower by 60 %, faster by a half, failed.
SLOW, FAST, FAILED = 5, 7, 9


def _run(number: int, day: int, begin: int) -> RunRecord:
    newest = day == SESSIONS - 1
    factor = {SLOW: 0.4, FAST: 1.5}.get(number, 1.0) if newest else 1.0
    case: dict[str, Scalar] = {"api": "POSIX", "nodes": number + 1}
    output = build_output(
        build_result(1000.0 * factor, case=case),
        build_result(2.0, metric="open_time", case=case),
        build_result(2.0, metric="close_time", case=case),
    )
    if newest and number == FAILED:
        output = build_output(status="failed", reason="No space left")
    return build_run(name=f"ior:{number}", started_at=begin, output=output)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight sessions of 48 runs with a bandwidth and two phase times each."""
    place = tmp_path_factory.mktemp("session")
    with History.open(str(place / "history.db")) as history:
        for day in range(SESSIONS):
            uuid, begin = f"night-{day}", START + day * DAY_S
            runs = [_run(number, day, begin + 60 * number) for number in range(CASES)]
            store_session(history, build_session(uuid, started_at=begin), runs)
        update_findings(history, "local", datetime.fromtimestamp(START + SESSIONS * DAY_S, UTC))
        build_site(history, place / "site", BuildOptions(sessions=2), pages=[session.PAGE])
    return place / "site"


def _page(site: Path) -> Path:
    return site / f"session/night-{SESSIONS - 1}.html"


def test_failures_are_first_then_results_then_passed_runs(site: Path) -> None:
    text = _page(site).read_text(encoding="utf-8")
    places = [text.index(part) for part in ("No space left", '<section class="run"', 'class="bars"', 'id="passed"')]
    assert places == sorted(places)
    words = re.sub(r"<[^>]+>", "", text)
    assert "1 below, 1 above, 45 as accepted." in words
    assert "47 passed runs" in words


def test_bars_begin_with_losses_then_improvements(site: Path) -> None:
    text = _page(site).read_text(encoding="utf-8")
    rows = re.findall(r'<a href="#run-(\d+)">[^<]*nodes (\d+)[^<]*</a></th>.*?<td class="gain (\w+)">([\d,]+) %', text)
    assert len(rows) == CASES - 1
    assert [row[1:] for row in rows[:2]] == [(str(SLOW + 1), "w3", "40"), (str(FAST + 1), "b3", "150")]
    assert {kind for *_, kind, _ in rows[2:]} == {"same"}
    assert text.count("of the accepted level, normal band") == 30


def test_long_session_fits_two_screens_until_it_is_unfolded(browser: Browser, site: Path) -> None:
    """48 runs with three results each; with every run shown it was more than 12,000 pixels high."""
    browser.resize(1440, 900)
    browser.open(_page(site))
    height = "return document.documentElement.scrollHeight"
    assert browser.run(height) < 1900
    browser.driver.find_element("css selector", "#passed > summary").click()
    assert browser.run(height) > 2500
    assert browser.messages() == []


def test_link_of_a_bar_opens_the_folds_of_its_run(browser: Browser, site: Path) -> None:
    browser.open(_page(site))
    browser.driver.find_element("css selector", ".bars tbody a").click()
    opened = "return [...document.querySelectorAll('details[open]')].map(one => one.id)"
    browser.wait("return document.querySelectorAll('details[open]').length === 2")
    run = browser.run("return location.hash.slice(1)")
    assert browser.run(opened) == ["passed", run]
    phases = browser.driver.find_element("css selector", f"#{run} details > summary")
    assert phases.text == "2 more results: phase times, counters"
    phases.click()
    assert "time to open" in browser.run("return document.getElementById(arguments[0]).innerText", run)


def test_first_session_lists_its_runs_without_bars(tmp_path: Path) -> None:
    """No series has an accepted level: bars would have nothing to compare with."""
    with History.open(str(tmp_path / "history.db")) as history:
        runs = [_run(number, 0, START + 60 * number) for number in range(3)]
        store_session(history, build_session("first", started_at=START), runs)
        build_site(history, tmp_path / "site", pages=[session.PAGE])
    text = (tmp_path / "site/session/first.html").read_text(encoding="utf-8")
    assert 'class="bars"' not in text
    assert '<details class="runs" id="passed" open>' in text
    assert text.count("write 1000 MiB/s") == 3
    assert "of earlier sessions" not in text


def test_second_session_has_its_results_beside_the_first_one(tmp_path: Path) -> None:
    """1000 MiB/s after 800 and after 1250; the third run has no earlier session."""
    with History.open(str(tmp_path / "history.db")) as history:
        runs = [_run(number, 0, START + DAY_S + 60 * number) for number in range(3)]
        for number, earlier in enumerate((800.0, 1250.0)):
            result = build_result(earlier, case={"api": "POSIX", "nodes": number + 1})
            run = build_run(name=f"ior:{number}", started_at=START, output=build_output(result))
            store_session(history, build_session(f"first-{number}", started_at=START - number * DAY_S), [run])
        store_session(history, build_session("second", started_at=START + DAY_S), runs)
        build_site(history, tmp_path / "site", pages=[session.PAGE])
    text = (tmp_path / "site/session/second.html").read_text(encoding="utf-8")
    assert re.findall(r"(\S+) of earlier sessions", text) == ['class="soft">×1.25', 'class="soft">×0.80']


@pytest.mark.slow
def test_short_page_is_linked_until_something_in_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that get a run, sessions whose files are no longer listed, and all of a site with another title."""

    def short_pages() -> dict[str, int]:
        build_site(history, tmp_path / "site", BuildOptions(sessions=1), pages=[session.PAGE])
        return {path.stem: path.stat().st_ino for path in (tmp_path / "site/session").iterdir() if path.stem != "s3"}

    def changed() -> set[str]:
        before, after = known[-1], short_pages()
        known.append(after)
        return {name for name in after if before[name] != after[name]}

    with History.open(str(tmp_path / "history.db")) as history:
        for day in range(4):
            one = replace(_run(1, day, START + day * DAY_S), artefacts=(Artefact("stdout", "out", "0" * 64, 1),))
            store_session(history, build_session(f"s{day}", started_at=START + day * DAY_S), [one], duration_s=60)
        known = [short_pages()]
        assert changed() == set()
        history.record_runs("s1", [replace(_run(1, 1, START + DAY_S + 60), name="second", fingerprint="second")])
        assert changed() == {"s1"}
        with history.writing() as connection:
            connection.execute(delete(ArtefactTable).where(ArtefactTable.run_id == 1))
        assert changed() == {"s0"}
        assert changed() == set()
        monkeypatch.setattr("iowatch.output.dashboard.build.__version__", "9.9")
        assert changed() == {"s0", "s1", "s2"}
    assert "second" in (tmp_path / "site/session/s1.html").read_text()


@pytest.mark.parametrize(
    ("steps", "same"),
    [
        ([20, 202], True),  # two days later, in the same fortnight
        ([22, 200], True),
        ([20, 240], False),
        ([20, 296], False),  # after the session, which is on day 294
        ([20, 200, 280], False),
        ([200], False),
    ],
)
def test_a_full_page_is_written_again_when_another_level_applies(steps: list[int], same: bool) -> None:
    """Levels that begin on days 20 and 200: a new observation may move the date of an old one a little."""

    def basis(days: list[int]) -> list[object]:
        changes = tuple(build_change_point(day * DAY_S) for day in days)
        entry = build_series_entry(detection=Detection(300, "ok", changes=changes))
        row = build_session_row(started_at=294 * DAY_S)
        return session._assessment_basis(build_system_entry(series=[entry]), row)

    assert (basis(steps) == basis([20, 200])) is same


def test_address_of_a_run_opens_its_folds(browser: Browser, site: Path) -> None:
    last = re.findall(r'<details class="run" id="(run-\d+)">', _page(site).read_text(encoding="utf-8"))[-1]
    browser.open(_page(site), f"#{last}")
    visible = "const box = document.getElementById(arguments[0]).getBoundingClientRect(); return [box.top, box.height]"
    browser.wait("return document.querySelectorAll('details[open]').length === 2")
    top, height = browser.run(visible, last)
    assert height > 100
    assert top < 900
