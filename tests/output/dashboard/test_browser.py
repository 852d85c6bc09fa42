"""In a real browser: no console errors, filters, zoom, links into runs, accessibility, no scripts from data."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch.output.dashboard.build import BuildOptions
from iowatch.output.dashboard.each_system import build_sites
from iowatch.store import History
from tests.output.dashboard.browser import Browser
from tests.output.dashboard.hostile import SCRIPT

pytestmark = pytest.mark.browser

MAIN = (
    "index.html",
    "findings.html",
    "finding/franklin-20090317-up.html",
    "overview.html",
    "overview/franklin.html",
    "coverage.html",
    "coverage/franklin.html",
    "comparisons.html",
    "published.html",
    "stacks.html",
    "series/1.html",
    "session/demo-franklin-2009-2009-04-30.html",
    # An older session, whose page is short.
    "session/demo-franklin-2009-2009-02-20.html",
    # Named by a digest.
    "comparison/*.html",
)


def page(site: Path, name: str) -> Path:
    """A page of the site; the first of those that a pattern names."""
    return min(site.glob(name))


def test_pages_open_without_console_messages(browser: Browser, franklin_site: Path) -> None:
    for name in MAIN:
        browser.open(page(franklin_site, name))
        if name.startswith("series/"):
            browser.wait("return document.documentElement.dataset.drawn === 'yes'")
        assert browser.messages() == [], name


@pytest.mark.slow
def test_hostile_pages_execute_nothing(browser: Browser, hostile_site: Path) -> None:
    names = ["index.html", "findings.html", "overview.html", "coverage.html", "stacks.html", "comparisons.html"]
    for kind in ("finding", "overview", "coverage", "series", "session"):
        names += [
            path.relative_to(hostile_site).as_posix() for path in sorted((hostile_site / kind).glob("*.html"))[:8]
        ]
    for name in names:
        browser.open(hostile_site / name)
        if name.startswith("series/"):
            browser.wait("return document.documentElement.dataset.drawn === 'yes'")
        assert browser.run("return window.hacked ?? null") is None, name
        assert browser.messages() == [], name
        # 4 KB without a blank must not push the page off a phone.
        browser.resize(390, 844)
        assert browser.run("return document.documentElement.scrollWidth") <= 390, name


def test_page_of_all_systems(
    browser: Browser, hostile_site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systems whose names are attacks, and one that cannot be built: nothing is executed, links lead to sites."""
    monkeypatch.setenv("IOWATCH_VAR", str(hostile_site.parent / "var"))
    database, sites = str(hostile_site.parent / "history.db"), tmp_path / "sites"
    with History.open(database) as history:
        names = [*history.systems()[:2], f"{SCRIPT} that does not exist"]
    options = BuildOptions("UTC", sessions=1, reports=0)
    found = build_sites(database, names, sites, options, None)
    assert [one.fault is None for one in found] == [True, True, False]
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        browser.open(sites / "index.html")
        assert browser.accessibility_faults() == [], scheme
    browser.scheme("light")
    assert browser.run("return window.hacked ?? null") is None
    links = browser.run("return [...document.querySelectorAll('tbody a')].map(a => a.getAttribute('href'))")
    assert len(links) == 2
    assert all((sites / link).exists() for link in links)
    assert browser.run("return document.querySelector('tbody tr').innerText").startswith(SCRIPT)  # the failed one first
    assert browser.messages() == []
    browser.resize(390, 844)
    assert browser.run("return document.documentElement.scrollWidth") <= 390


def test_overview_can_be_filtered_and_sorted(browser: Browser, franklin_site: Path) -> None:
    browser.open(franklin_site / "overview/franklin.html")
    every = "[...document.querySelectorAll('.filterable tbody tr')]"
    rows = f"return {every}.filter(r => !r.hidden).map(r => r.innerText)"
    everything = browser.run(rows)
    assert len(everything) == 13
    browser.run(
        "const i = document.getElementById('words'); i.value = 'ior mpiio'; i.dispatchEvent(new Event('input'))"
    )
    chosen = browser.run(rows)
    assert len(chosen) == 4
    assert all("ior" in row and "MPI-IO" in row for row in chosen)
    assert "words=ior" in browser.run("return location.hash")
    browser.run("document.querySelectorAll('thead button')[2].click()")
    values = browser.run(f"return {every}.map(r => Number(r.cells[2].dataset.sort))")
    assert values == sorted(values, reverse=True)


def test_overview_works_with_the_keyboard(browser: Browser, franklin_site: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    browser.open(franklin_site / "overview/franklin.html")
    ActionChains(browser.driver).send_keys("/").send_keys("flash").perform()
    assert browser.run("return document.querySelector('output').textContent") == "2 of 13"
    browser.run("document.activeElement.blur()")
    ActionChains(browser.driver).send_keys("j").send_keys("j").perform()
    focused = browser.run("return document.activeElement.closest('tr')?.innerText")
    assert "flash" in focused


def test_filter_is_in_the_address(browser: Browser, franklin_site: Path) -> None:
    browser.open(franklin_site / "overview/franklin.html", "#words=madbench2&sort=2a")
    assert browser.run("return document.querySelector('output').textContent") == "2 of 13"


@pytest.mark.slow_after(8)
@pytest.mark.parametrize("name", MAIN)
def test_pages_have_no_accessibility_fault(browser: Browser, franklin_site: Path, name: str) -> None:
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        browser.open(page(franklin_site, name))
        if name.startswith("series/"):
            browser.wait("return document.documentElement.dataset.drawn === 'yes'")
        # Only colours depend on the scheme.
        found = browser.accessibility_faults(**({} if scheme == "light" else {"runOnly": ["color-contrast"]}))
        assert found == [], f"{name} {scheme}"
    browser.scheme("light")


def test_pages_fit_a_phone(browser: Browser, franklin_site: Path) -> None:
    for name in MAIN:
        browser.open(page(franklin_site, name))
        browser.resize(390, 844)
        assert browser.run("return document.documentElement.scrollWidth") <= 390, name


@pytest.mark.slow
def test_screenshots_are_not_blank(browser: Browser, franklin_site: Path, screenshots: Path) -> None:
    """Save screenshots of the main pages; the test only asserts that they are not blank."""
    for name in MAIN:
        if name.startswith(("findings", "coverage.", "overview.")):
            continue
        for scheme, width in (("light", 1280), ("dark", 390)):
            browser.scheme(scheme)
            browser.resize(width, 900)
            browser.open(page(franklin_site, name))
            if name.startswith("series/"):
                browser.wait("return document.documentElement.dataset.drawn === 'yes'")
            called = name.removesuffix(".html").removesuffix("/*").replace("/", "-")
            target = screenshots / f"{called}-{scheme}-{width}.png"
            browser.picture(target, width)
            assert target.stat().st_size > 5_000
    browser.scheme("light")
