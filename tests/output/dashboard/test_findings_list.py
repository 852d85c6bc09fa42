"""The list of findings with its filters, and the calendar of findings and events."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from iowatch.findings import finding_document, load_findings
from iowatch.findings.finding import Resolution
from iowatch.output.dashboard import year_calendar
from iowatch.output.dashboard.build import build_site
from iowatch.output.dashboard.data import SystemEntry
from iowatch.output.dashboard.pages import finding as finding_page
from iowatch.output.dashboard.pages import findings as list_page
from iowatch.store import FindingRow, History
from tests.builders import build_event, build_session_row, build_system_entry
from tests.output.dashboard.browser import Browser

SYSTEM, GAIN = "franklin", "franklin-20090317-up"
LOSS, OLD = "franklin-20090301-down", "franklin-20070601-down"


def _time(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, 6, tzinfo=UTC).timestamp())


@pytest.fixture(scope="module")
def site(franklin_history: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Franklin's improvement, and two losses made from it: one acknowledged with an owner, one resolved in 2007."""
    place = tmp_path_factory.mktemp("list")
    shutil.copyfile(franklin_history, place / "history.db")
    with History.open(str(place / "history.db")) as history:
        (gain,) = load_findings(history, SYSTEM)
        flash = tuple(one for one in gain.members if one.parameters["benchmark"] == "flash")
        lost = replace(gain, id=LOSS, state="acknowledged", size=0.5, first_after=_time(2009, 3, 1))
        old = replace(lost, id=OLD, state="resolved", resolution=Resolution("not confirmed"), size=0.8, members=flash)
        stored = [replace(lost, owner="B. Operator"), replace(old, first_after=_time(2007, 6, 1))]
        history.save_findings([FindingRow(f.id, SYSTEM, 0, 1, f.state, finding_document(f)) for f in stored])
        build_site(history, place / "site", pages=[list_page.PAGE, finding_page.PAGE])
    return place / "site"


SHOWN = """return [...document.querySelectorAll('.filterable tbody tr')].filter(row => !row.hidden)
    .map(row => row.querySelector('a').getAttribute('href').slice(8, -5))"""


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("direction", "loss", [LOSS, OLD]),
        ("direction", "improvement", [GAIN]),
        ("state", "resolved", [OLD]),
        ("owner", "B. Operator", [LOSS]),
        ("owner", "nobody", [GAIN, OLD]),
        # The resolved one has series of FLASH only.
        ("benchmark", "ior", [LOSS, GAIN]),
        ("benchmark", "flash", [LOSS, GAIN, OLD]),
    ],
)
def test_findings_are_filtered_and_the_address_keeps_it(
    browser: Browser, site: Path, name: str, value: str, expected: list[str]
) -> None:
    from selenium.webdriver.support.select import Select

    browser.open(site / "findings.html")
    Select(browser.driver.find_element("id", f"f-{name}")).select_by_value(value)
    assert browser.run(SHOWN) == expected
    address = browser.run("return location.hash")
    browser.open(site / "findings.html", address)
    assert browser.run(SHOWN) == expected
    assert browser.messages() == []


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        # Numbers start with the largest, others with the first; no age is last.
        ("size", [LOSS, OLD, GAIN]),
        ("since", [GAIN, LOSS, OLD]),
        ("age", [LOSS, GAIN, OLD]),
    ],
)
def test_findings_are_sorted_and_the_address_keeps_it(
    browser: Browser, site: Path, heading: str, expected: list[str]
) -> None:
    browser.open(site / "findings.html")
    browser.driver.find_element("xpath", f"//th/button[starts-with(., '{heading}')]").click()
    assert browser.run(SHOWN) == expected
    address = browser.run("return location.hash")
    browser.open(site / "findings.html", address)
    assert browser.run(SHOWN) == expected


def test_mark_of_a_finding_leads_to_its_page(browser: Browser, site: Path) -> None:
    browser.open(site / "findings.html")
    browser.driver.find_element("css selector", ".calendar a[href^='finding/'] path.loss").click()
    browser.wait(f"return location.pathname.endsWith('finding/{LOSS}.html')")


def test_mark_of_an_event_opens_its_row_of_the_table(browser: Browser, site: Path) -> None:
    browser.open(site / "findings.html")
    browser.driver.find_element("css selector", ".calendar a[href$='franklin-2']").click()
    browser.wait("return document.querySelectorAll('details[open]').length === 1")
    row = browser.run("return document.querySelector(location.hash)")
    # The second entry of reference/events/franklin.yaml.
    assert "scheduled maintenance" in row.text
    assert row.rect["height"] > 10


def test_calendar_on_a_phone_begins_at_the_newest_month(browser: Browser, site: Path) -> None:
    browser.resize(390, 844)
    browser.open(site / "findings.html")
    for mark in ("path.gain", "text.name"):
        box = browser.run(f"return document.querySelector('.calendar.for-narrow {mark}').getBoundingClientRect()")
        assert 0 < box["left"] < box["right"] < 390, mark
    assert browser.run("return document.documentElement.scrollWidth") <= 390


def test_calendar_has_twelve_months_to_the_newest_session_and_folds_earlier_ones(site: Path) -> None:
    text = (site / "findings.html").read_text(encoding="utf-8")
    assert 'aria-label="Calendar, May 2008 to Apr 2009"' in text
    assert "<summary>May 2007 to Apr 2008</summary>" in text
    assert text.count('<svg class="picture calendar for-wide"') == 2


def _marks(*days: int) -> list[year_calendar.CalendarMark]:
    return [year_calendar.CalendarMark("local", day * 86400, day * 86400, "loss", "open", "", "") for day in days]


def test_marks_of_near_days_do_not_cover_each_other() -> None:
    """2 pixels per day, marks of 11: six days after the first is room in its lane, five days after the second not."""
    scale: Any = lambda moment: moment / 86400 * 2  # noqa: E731
    found = year_calendar._assign_lanes(_marks(0, 2, 6, 7), scale)
    assert [[mark.time // 86400 for mark in lane] for lane in found] == [[0, 6], [2], [7]]


def test_systems_share_the_axis_of_the_newest_session() -> None:
    """A system that stopped in January is shown beside one of March, both up to March."""

    def machine(name: str, *month: int) -> SystemEntry:
        session = build_session_row(started_at=_time(2025, month[-1], 10))
        event = build_event(date(2025, month[0], 5), title="<b>")
        return build_system_entry(name, sessions=[session], events=[event])

    (year,) = year_calendar.calendar_years([machine("old", 1), machine("new", 2, 3)])
    assert year.title == "Apr 2024 to Mar 2025"
    assert [mark.system for mark in year.marks] == ["new", "old"]
    assert "<b>" not in year.picture
