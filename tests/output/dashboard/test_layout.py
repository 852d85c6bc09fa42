"""In a real browser: no clipped column, no cut label, distinct colours, and pages that keep their meaning on paper."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.output.dashboard.browser import Browser
from tests.output.dashboard.test_browser import MAIN, page

pytestmark = pytest.mark.browser

# Published tables below the curves are as wide as printed, in two columns of pages; they scroll.
TABLES = [name for name in MAIN if name not in ("published.html",)]


@pytest.fixture
def paper(browser: Browser) -> Iterator[Browser]:
    """The browser with the styles of printing."""
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    yield browser
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 1024])
def test_no_column_is_clipped(browser: Browser, franklin_site: Path, width: int) -> None:
    browser.resize(width, 900)
    wide = "[...document.querySelectorAll('.wide')]"
    clipped = f"return {wide}.filter(e => e.scrollWidth > e.clientWidth).map(e => e.ariaLabel)"
    for path in [page(franklin_site, name) for name in TABLES] + sorted(franklin_site.glob("comparison/*.html")):
        browser.open(path)
        assert browser.run(clipped) == [], path
        assert browser.run("return document.documentElement.scrollWidth") <= width, path


def test_label_of_a_change_is_cut_only_at_the_edge_of_the_picture(browser: Browser, franklin_site: Path) -> None:
    """The title of the event in reference/events/franklin.yaml has 73 letters; a wide picture has room for 118."""
    browser.resize(1440, 900)
    browser.open(franklin_site / "finding/franklin-20090317-up.html")
    label = "[...document.querySelectorAll('.fan.for-wide .moment-name')][0]"
    title = "17 Mar 2009, scheduled maintenance: upgrade to CLE 2.1UP01 with patch sets 01, 01A and 02"
    assert browser.run(f"return {label}.textContent") == title
    inside = (
        f"const t = {label}.getBoundingClientRect(), p = {label}.closest('svg').getBoundingClientRect();"
        "return t.left >= p.left && t.right <= p.right"
    )
    assert browser.run(inside)
    # Names of groups are beside the lines, and the label ends before them.
    names = (
        "Math.min(...[...document.querySelectorAll('.fan.for-wide .group')].map(g => g.getBoundingClientRect().left))"
    )
    assert browser.run(f"return {label}.getBoundingClientRect().right <= {names}")


def test_states_of_the_coverage_have_different_colours(browser: Browser, franklin_site: Path) -> None:
    browser.open(franklin_site / "coverage/franklin.html")
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        colours = browser.run(
            "return [...document.querySelectorAll('.legend i')].map(i => getComputedStyle(i).backgroundColor)"
        )
        assert len(colours) == len(set(colours)) == 5
    browser.scheme("light")


def test_legends_keep_their_colours_on_paper(paper: Browser, franklin_site: Path) -> None:
    """Browsers leave out backgrounds when they print, unless the page asks for exact colours."""
    for name in ("coverage/franklin.html", "overview/franklin.html", "series/1.html", "index.html"):
        paper.open(franklin_site / name)
        swatches = "[...document.querySelectorAll('.legend i, .key, .state, .heat td')]"
        assert set(paper.run(f"return {swatches}.map(e => getComputedStyle(e).printColorAdjust)")) == {"exact"}, name


def test_cards_and_pictures_are_whole_on_paper(paper: Browser, franklin_site: Path) -> None:
    """A page of A4 has 700 pixels between its margins; a card is not broken and has its picture beside the text."""
    paper.resize(700, 1000)
    paper.open(franklin_site / "index.html")
    style = "const s = getComputedStyle(document.querySelector('.card')); return [s.breakInside, s.gridTemplateColumns]"
    broken, columns = paper.run(style)
    assert (broken, len(columns.split())) == ("avoid", 2)
    paper.open(franklin_site / "findings.html")
    calendar = "const one = document.querySelector('.calendar.for-wide').getBoundingClientRect()"
    assert paper.run(f"{calendar}; return one.left >= 0 && one.right <= 700")


# Tables of cards, with a class or id each.
PHONE = {
    "comparisons.html": ".cards",
    "comparison/*.html": ".pairs",
    "findings.html": ".filterable",
    "overview/franklin.html": ".heat",
    "overview.html": ".cards",
    "coverage.html": ".cards",
    "coverage/franklin.html": ".cards",
}


@pytest.mark.parametrize("name", PHONE)
def test_tables_are_cards_on_a_phone(browser: Browser, franklin_site: Path, name: str) -> None:
    """Nothing is beside the screen, or covers anything else of its row."""
    browser.resize(390, 844)
    for path in franklin_site.glob(name):
        browser.open(path)
        table = f"document.querySelector('{PHONE[name]}')"
        assert browser.run(f"const wide = {table}.closest('.wide'); return wide.scrollWidth <= wide.clientWidth"), path
        cells = f"[...{table}.tBodies[0].rows].flatMap(row => [...row.cells]).map(one => one.getBoundingClientRect())"
        assert browser.run(f"return {cells}.filter(one => one.width && (one.left < 0 || one.right > 390)).length") == 0


def test_names_are_beside_the_lines_of_a_finding_on_a_phone(browser: Browser, franklin_site: Path) -> None:
    """Factors at the right edge, then the list of their names below the axis."""
    browser.resize(390, 844)
    browser.open(franklin_site / "finding/franklin-20090317-up.html")
    box = "e => { const b = e.getBoundingClientRect(); return [b.left, b.right, b.top, b.bottom]; }"
    fan = "document.querySelector('.fan.for-narrow')"
    lines = browser.run(f"return [...{fan}.querySelectorAll('polyline')].map({box})")
    names = browser.run(f"return [...{fan}.querySelectorAll('.group')].map({box})")
    beside, below = names[: len(names) // 2], names[len(names) // 2 :]
    assert min(left for left, *_ in beside) >= max(right for _, right, *_ in lines)
    assert max(right for _, right, *_ in names) <= 390
    assert min(top for _, _, top, _ in below) >= max(bottom for *_, bottom in lines)
    assert all(one[3] <= next_one[2] + 4 for one, next_one in pairwise(below))


def test_columns_have_headings_on_paper(paper: Browser, franklin_site: Path) -> None:
    """Headings that sort are buttons, which Chromium paints on the first page of a table only: the text itself is left.

    Buttons such as "Copy" are not printed.
    """
    painted = "(th) => { const r = new Range(); r.selectNodeContents(th); return r.getClientRects().length > 0; }"
    for name in TABLES:
        paper.open(page(franklin_site, name))
        if name.startswith("series/"):
            paper.wait("return document.documentElement.dataset.drawn === 'yes'")
        headings = "[...document.querySelectorAll('thead th button')].map(b => b.parentElement)"
        assert paper.run(f"return {headings}.filter(th => !({painted})(th)).map(th => th.textContent)") == [], name
        boxes = "[...document.querySelectorAll('th button')].map(b => getComputedStyle(b).display)"
        assert set(paper.run(f"return {boxes}")) <= {"contents"}, name
    paper.open(page(franklin_site, "finding/franklin-20090317-up.html"))
    assert paper.run("return [...document.querySelectorAll('button')].every(b => !b.getClientRects().length)")
