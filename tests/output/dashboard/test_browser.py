"""In a real browser: no console errors, filters, zoom, links into runs, accessibility, no scripts from data."""

from __future__ import annotations

from importlib import resources, util
from pathlib import Path

import pytest

from tests.output.dashboard.browser import Browser

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
    "scaling.html",
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


@pytest.mark.parametrize("name", MAIN)
def test_pages_have_no_accessibility_fault(browser: Browser, franklin_site: Path, name: str) -> None:
    if util.find_spec("axe_core_python") is None:
        pytest.skip("needs axe-core-python (requirements-dev.lock)")
    axe = (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        browser.open(page(franklin_site, name))
        if name.startswith("series/"):
            browser.wait("return document.documentElement.dataset.drawn === 'yes'")
        browser.run(axe)
        found = browser.driver.execute_async_script(
            "const [rules, done] = arguments; axe.run({resultTypes: ['violations'], ...rules})"
            ".then(r => done(r.violations.map(v => `${v.id}: ${v.nodes[0].html}`)))",
            # Only colours depend on the scheme.
            {} if scheme == "light" else {"runOnly": ["color-contrast"]},
        )
        assert found == [], f"{name} {scheme}"
    browser.scheme("light")


def test_pages_fit_a_phone(browser: Browser, franklin_site: Path) -> None:
    for name in MAIN:
        browser.open(page(franklin_site, name))
        browser.resize(390, 844)
        assert browser.run("return document.documentElement.scrollWidth") <= 390, name


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
