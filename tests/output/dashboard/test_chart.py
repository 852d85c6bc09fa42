"""Interactive charts in a real browser: zoom, range, address, pointer, keys, touch, covariates, print; real input."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iowatch.findings import update_findings
from iowatch.output.dashboard.build import build_site
from iowatch.output.dashboard.pages.series import rank_correlations
from iowatch.store import History
from tests.builders import build_result, build_run, build_session, store_session
from tests.output.dashboard.browser import Browser
from tests.output.dashboard.chosen_pages import pages_named
from tests.output.dashboard.test_series import plotted

pytestmark = pytest.mark.browser

DAY_S = 86400
LOADED_DAYS, WITHOUT = 150, range(41, 61)
RANGE = "return document.getElementById('plot').chart.range"
TIP = "return document.querySelector('.tip:not([hidden])')?.innerText ?? null"
HASH = "return decodeURIComponent(location.hash)"


class Chart:
    """The chart of a page, with the pointer and the keyboard of a person."""

    def __init__(self, browser: Browser, page: Path, fragment: str = "") -> None:
        self.browser = browser
        browser.open(page, fragment)
        browser.wait("return document.documentElement.dataset.drawn === 'yes'")
        self.run, self.wait = browser.run, browser.wait
        self.run("document.querySelector('.surface').scrollIntoView({block: 'center'})")

    @property
    def surface(self) -> Any:
        return self.browser.driver.find_element("css selector", ".surface")

    def actions(self) -> Any:
        from selenium.webdriver.common.action_chains import ActionChains

        return ActionChains(self.browser.driver, duration=20)

    def click(self, label: str) -> None:
        """Click the button with this label."""
        self.browser.driver.find_element("xpath", f"//*[@class='ranges']/button[text()='{label}']").click()

    def place(self, i: int) -> tuple[float, float]:
        """Pixels of the headline of observation `i`, from the middle of the surface."""
        found: list[float] = self.run(PLACE, i)
        return found[0], found[1]

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.keys import Keys

        self.surface.send_keys(*(getattr(Keys, key, key) for key in keys))


PLACE = """
const surface = document.querySelector('.surface'), chart = document.getElementById('plot').chart;
const box = surface.getBoundingClientRect(), [x, y] = chart.place(arguments[0]);
return [x - box.width / 2, y - box.height / 2];
"""


@pytest.fixture
def chart(browser: Browser, franklin_site: Path) -> Iterator[Chart]:
    """A series of 80 sessions of Franklin."""
    yield Chart(browser, franklin_site / "series/1.html")
    assert browser.messages() == []


def utc(*day: int) -> float:
    return datetime(*day, tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]


def test_range_in_the_address_is_restored(browser: Browser, franklin_site: Path) -> None:
    """Both days are inclusive; links of findings and old bookmarks have this form."""
    chart = Chart(browser, franklin_site / "series/1.html", "#from=2009-03-01&to=2009-03-31")
    assert chart.run(RANGE) == [utc(2009, 3, 1), utc(2009, 4, 1)]
    chart.run("location.hash = '#from=2009-03-10T06:00&to=2009-03-11T18:30'")
    chart.wait(f"{RANGE}[1] === {utc(2009, 3, 11, 18, 30)}")
    assert chart.run(RANGE)[0] == utc(2009, 3, 10, 6)


@pytest.mark.parametrize("fragment", ["#from=x&to=y", "#from=2009-03-10&to=2009-03-01", "#words=mpiio"])
def test_invalid_range_shows_everything(browser: Browser, franklin_site: Path, fragment: str) -> None:
    chart = Chart(browser, franklin_site / "series/1.html", fragment)
    times = chart.run("return document.getElementById('plot').chart.range")
    assert times[0] < utc(2009, 2, 12)
    assert times[1] > utc(2009, 4, 29)


def test_drag_zooms_to_whole_days_and_double_click_shows_all(chart: Chart) -> None:
    everything = chart.run(RANGE)
    a, b = chart.place(20), chart.place(30)
    chart.actions().move_to_element_with_offset(chart.surface, a[0] - 3, 0).click_and_hold().move_by_offset(
        b[0] - a[0] + 6, 10
    ).perform()
    assert chart.run("return document.querySelectorAll('.surface .chosen').length") == 1
    chart.actions().release().perform()
    first, last = chart.run("return [20, 30].map((i) => document.getElementById('plot').chart.times[i])")
    begin, end = chart.run(RANGE)
    assert begin % DAY_S == end % DAY_S == 0
    assert first - DAY_S < begin <= first
    assert last <= end < last + 1.1 * DAY_S
    day = [datetime.fromtimestamp(one, UTC).date().isoformat() for one in (begin, end - 1)]
    assert chart.run(HASH) == f"#from={day[0]}&to={day[1]}"
    # The address gives exactly what was seen.
    chart.browser.driver.refresh()
    chart.wait("return document.documentElement.dataset.drawn === 'yes'")
    assert chart.run(RANGE) == [begin, end]
    assert "Every dot is one sample" in chart.run("return document.getElementById('hint').textContent")
    chart.actions().move_to_element_with_offset(chart.surface, 0, 130).double_click().perform()
    assert chart.run(RANGE) == everything
    assert chart.run(HASH) == ""


def test_shift_drag_moves_the_view(browser: Browser, franklin_site: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    chart = Chart(browser, franklin_site / "series/1.html", "#from=2009-03-01&to=2009-03-20")
    before = chart.run(RANGE)
    actions = chart.actions().move_to_element(chart.surface).key_down(Keys.SHIFT).click_and_hold()
    actions.move_by_offset(-200, 0).release().key_up(Keys.SHIFT).perform()
    after = chart.run(RANGE)
    assert after[0] > before[0] + DAY_S
    assert after[1] - after[0] == pytest.approx(before[1] - before[0], abs=DAY_S)


def test_range_buttons_end_at_the_newest_session(chart: Chart) -> None:
    times = chart.run("return Array.from(document.getElementById('plot').chart.times)")
    labels = chart.run("return [...document.querySelectorAll('.ranges button')].map((one) => one.textContent)")
    # 80 days: no year.
    assert labels[:2] == ["30 d", "All"]
    pressed = "return document.querySelector('.ranges [aria-pressed=true]').textContent"
    assert chart.run(pressed) == "All"
    chart.click("30 d")
    begin, end = chart.run(RANGE)
    assert begin <= times[-1] - 29 * DAY_S
    assert begin >= times[-1] - 32 * DAY_S
    assert end > times[-1]
    assert chart.run(pressed) == "30 d"
    chart.click("‹")
    assert chart.run(RANGE)[1] < end
    assert chart.run("return document.querySelectorAll('.ranges [data-range][aria-pressed=true]').length") == 0
    chart.click("All")
    assert chart.run(HASH) == ""


def test_values_can_fill_the_panel(chart: Chart) -> None:
    """The axis starts at zero unless the reader asks; the choice is in the address."""
    lowest = "return document.querySelector('.surface .tick').textContent"
    assert chart.run(lowest) == "0"
    chart.click("Fit values")
    assert chart.run(lowest) != "0"
    assert chart.run(HASH) == "#y=fit"
    chart.click("Fit values")
    assert chart.run(lowest) == "0"


def test_axis_is_that_of_the_values_in_view(browser: Browser, franklin_site: Path) -> None:
    """Unaligned MPI-IO writes rose from 484 to 1,432 MiB/s on 17 March: the line to the next point is cut off."""
    pages = {path: path.read_text(encoding="utf-8") for path in (franklin_site / "series").glob("*.html")}
    (page,) = [path for path, text in pages.items() if "<h1>ior write MPI-IO shared file transfer 1,000,000 B<" in text]
    highest = "return Math.max(...[...document.querySelectorAll('.surface .grid ~ .tick')].map(({textContent}) => "
    highest += "Number(textContent.replace(',', '')) || 0))"
    chart = Chart(browser, page, "#from=2009-02-20&to=2009-03-16")
    assert 400 <= chart.run(highest) <= 600
    chart.click("All")
    assert chart.run(highest) >= 1500


def test_pointer_gets_value_times_session_stack_and_run(chart: Chart) -> None:
    x, y = chart.place(25)
    chart.actions().move_to_element_with_offset(chart.surface, x, y).perform()
    text = chart.run(TIP)
    at = chart.run("return document.getElementById('plot').chart.times[25]")
    day = datetime.fromtimestamp(at, UTC)
    assert re.match(r"[\d,.]+ MiB/s\n", text)
    assert f"{day:%Y-%m-%d %H:%M} UTC" in text
    assert f"session demo-franklin-2009-{day:%Y-%m-%d}" in text
    assert "stack cray-xt" in text
    assert re.search(r"run \d+", text)
    chart.actions().move_to_element_with_offset(chart.surface, 0, -400).perform()
    assert chart.run(TIP) is None


LOWEST = """
const {times, drawn} = document.getElementById('plot').chart;
const {points} = drawn[0].layers.find((one) => one.kind === 'sample');
const [at] = points[8];
return [times.indexOf(at), Math.min(...points.filter((one) => one[0] === at).map(([, value]) => value))];
"""


def test_pointer_finds_the_single_sample(browser: Browser, franklin_site: Path) -> None:
    chart = Chart(browser, franklin_site / "series/1.html", "#from=2009-03-10&to=2009-03-20")
    i, value = chart.run(LOWEST)
    x, y = chart.run(PLACE.replace("arguments[0]", "arguments[0], arguments[1]"), i, value)
    chart.actions().move_to_element_with_offset(chart.surface, x, y).perform()
    assert chart.run(TIP).startswith(f"{float(f'{value:.4g}'):,.10g} MiB/s, one sample\n")


def test_click_on_a_point_opens_its_run(chart: Chart) -> None:
    newest = chart.run("return document.getElementById('plot').chart.times.length") - 1
    run = chart.run("return document.getElementById('plot').chart.link(arguments[0]).split('#')[1]", newest)
    x, y = chart.place(newest)
    chart.actions().move_to_element_with_offset(chart.surface, x, y).click().perform()
    chart.wait("return location.pathname.includes('/session/')")
    assert chart.run("return location.hash.slice(1)") == run
    assert chart.run("return document.getElementById(location.hash.slice(1)) !== null")


def test_click_beside_the_points_opens_nothing(chart: Chart) -> None:
    chart.actions().move_to_element_with_offset(chart.surface, 0, 150).click().perform()
    assert chart.run("return location.pathname").endswith("/series/1.html")


def test_keys_go_through_sessions_zoom_and_open_the_run(chart: Chart) -> None:
    chart.press("ARROW_RIGHT")
    first = chart.run(TIP)
    chart.press("ARROW_RIGHT")
    assert chart.run(TIP) != first
    chart.press("ARROW_LEFT")
    assert chart.run(TIP) == first
    # Read out by a screen reader, unlike what the pointer passes over.
    assert chart.run("return document.querySelector('.tip').getAttribute('role')") == "status"
    everything = chart.run(RANGE)
    chart.press("END", "+", "+")
    zoomed = chart.run(RANGE)
    assert zoomed[1] - zoomed[0] < 0.3 * (everything[1] - everything[0])
    chart.press("HOME")
    assert chart.run(RANGE)[0] <= chart.run("return document.getElementById('plot').chart.times[0]")
    assert chart.run(TIP) == first
    chart.press("ESCAPE")
    assert chart.run(TIP) is None
    chart.press("0")
    assert chart.run(RANGE) == everything
    chart.press("END", "ENTER")
    chart.wait("return location.pathname.includes('/session/')")


def test_tap_shows_a_link_instead_of_opening(browser: Browser, franklin_site: Path) -> None:
    browser.resize(390, 844)
    browser.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        chart = Chart(browser, franklin_site / "series/1.html")
        box = chart.run("const b = document.querySelector('.surface').getBoundingClientRect(); return [b.x, b.y]")
        x, y = chart.run("return document.getElementById('plot').chart.place(40)")
        for kind, points in (("touchStart", [{"x": box[0] + x, "y": box[1] + y}]), ("touchEnd", [])):
            event = {"type": kind, "touchPoints": points}
            browser.driver.execute_cdp_cmd("Input.dispatchTouchEvent", event)
        chart.wait("return document.querySelector('.tip.held:not([hidden])') !== null")
        assert chart.run("return document.documentElement.scrollWidth") <= 390
        assert (
            chart.run("return getComputedStyle(document.querySelector('.surface')).touchAction") == "pan-y pinch-zoom"
        )
        browser.driver.find_element("css selector", ".tip a").click()
        chart.wait("return location.pathname.includes('/session/')")
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def test_picture_is_saved_with_its_colours(chart: Chart) -> None:
    """A PNG twice as large as on the screen; the policy of the page forbids a picture from a blob."""
    chart.run(
        "HTMLAnchorElement.prototype.click = function () { window.saved = [this.download, this.href]; };"
        "window.clicked = true"
    )
    chart.click("Save picture")
    chart.wait("return window.saved !== undefined")
    name, address = chart.run("return window.saved")
    assert name.endswith(".png")
    head, encoded = address.split(",", 1)
    assert head == "data:image/png;base64"
    width = chart.run("return document.querySelector('.surface svg').viewBox.baseVal.width")
    picture = base64.b64decode(encoded)
    assert int.from_bytes(picture[16:20], "big") == 2 * int(width)
    assert len(picture) > 10_000


def test_chart_is_printed_on_white_also_from_a_dark_screen(chart: Chart) -> None:
    browser = chart.browser
    media = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": media})
    try:
        assert chart.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert chart.run("return getComputedStyle(document.querySelector('.surface .unit')).fill") == "rgb(51, 51, 51)"
        assert chart.run("return document.querySelector('.ranges').offsetParent") is None
        # The colours of the light scheme: light blue lines of the dark one would be pale on paper.
        assert (
            chart.run("return getComputedStyle(document.querySelector('path.headline')).stroke") == "rgb(11, 92, 173)"
        )
        chart.run(
            "addEventListener('beforeprint', () => { window.printed = document.getElementById('plot').chart.scale; })"
        )
        printed = browser.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
        assert len(base64.b64decode(printed["data"])) > 10_000
        # Drawn anew for the width of paper, so that texts keep their size.
        assert chart.run("return window.printed.right") == 712
        assert chart.run("return document.getElementById('plot').chart.scale.right") > 1000
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def test_chart_follows_the_width_of_the_window(chart: Chart) -> None:
    width = "return document.querySelector('.surface svg').viewBox.baseVal.width"
    before = chart.run(width)
    chart.browser.resize(700, 900)
    chart.wait(f"{width} < {before}")
    assert chart.run(width) <= 700


@pytest.fixture(scope="module")
def loaded_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A series that loses 1 % per running job; other covariates explain nothing, are constant, or unknown."""
    place, random = tmp_path_factory.mktemp("loaded"), np.random.default_rng(5)
    with History.open(str(place / "history.db")) as history:
        for day in (n for n in range(LOADED_DAYS) if n not in WITHOUT):
            begin, jobs = 1_735_700_000 + day * DAY_S, float(random.integers(10, 60))
            value = float(1000 * np.exp(-0.01 * jobs + 0.05 * random.standard_normal()))
            before = {"time_s": begin, "jobs_running": jobs, "load_1m": random.uniform(), "fill": 50.0}
            own = {"client_written_bytes": 0.0, "unknown": 1.0}
            after = {"time_s": begin + 10, "client_written_bytes": 1e9 * value}
            facts = {"covariates": {"before": {**before, **own}, "after": after}}
            session = build_session(f"day-{day:03d}", system="site", started_at=begin)
            run = build_run(build_result(value, case={"ranks": 4}), name="ior:x", started_at=begin, facts=facts)
            store_session(history, session, [run], duration_s=60)
        update_findings(history, "site", datetime.fromtimestamp(1_735_700_000 + LOADED_DAYS * DAY_S, UTC))
        build_site(history, place / "site", pages=pages_named("series"))
    return place / "site"


def test_covariates_are_offered_in_order_of_their_use(loaded_site: Path) -> None:
    """The one that the detection uses, others by correlation, those with the run's own traffic last; no constant."""
    page = (loaded_site / "series/1.html").read_text(encoding="utf-8")
    assert [one["name"] for one in plotted(page)["covariates"]] == ["jobs_running", "load_1m", "client_written_bytes"]
    assert re.search(r"jobs running on the system \(used by the detection, predicts \d+ % of the variance\)", page)
    assert "data written by the client (rank correlation +1.00, includes the run itself)" in page


def test_covariate_is_drawn_below_and_chosen_by_the_reader(browser: Browser, loaded_site: Path) -> None:
    from selenium.webdriver.support.select import Select

    chart = Chart(browser, loaded_site / "series/1.html")
    panels = "return document.getElementById('plot').chart.drawn.map((one) => one.title)"
    assert chart.run(panels) == ["Bandwidth (MiB/s)", "jobs running on the system"]
    # One axis of time for both panels, and one answer.
    edges = "const panels = [...document.querySelectorAll('.surface svg svg')];"
    edges += "return panels.map(({x, width}) => `${x.baseVal.value} ${width.baseVal.value}`)"
    assert len(set(chart.run(edges))) == 1
    chart.press("HOME")
    assert re.search(r"jobs running on the system: \d\d", chart.run(TIP))
    assert chart.run("return document.querySelectorAll('.surface circle.here').length") == 2
    select = Select(browser.driver.find_element("id", "covariate"))
    select.select_by_value("load_1m")
    assert chart.run(panels)[1] == "load average of the node (1 minute)"
    assert chart.run(HASH) == "#below=load_1m"
    browser.driver.refresh()
    chart.wait("return document.documentElement.dataset.drawn === 'yes'")
    assert chart.run(panels)[1] == "load average of the node (1 minute)"
    Select(browser.driver.find_element("id", "covariate")).select_by_visible_text("nothing")
    assert len(chart.run(panels)) == 1
    assert browser.messages() == []


def test_no_line_over_missing_sessions_where_a_point_is_of_two(browser: Browser, loaded_site: Path) -> None:
    """130 sessions on a small phone: a bar spans two, but not the last before the gap and the first after it."""
    browser.resize(320, 700)
    chart = Chart(browser, loaded_site / "series/1.html")
    points = "document.getElementById('plot').chart.drawn[0].layers.find((one) => one.kind === arguments[0]).points"
    assert "A bar spans all samples of 2 sessions" in chart.run("return document.getElementById('hint').textContent")
    line = chart.run(f"return {points}", "headline")
    gap = line.index(None)
    assert line.count(None) == 1
    # The point after the gap shows the more different one of two sessions.
    assert (line[gap + 1][0] - line[gap - 1][0]) / DAY_S in (len(WITHOUT) + 1, len(WITHOUT) + 2)
    assert len(chart.run(f"return {points}", "sample")) == len(line) - 1 == 66
    assert chart.run("return document.documentElement.scrollWidth") <= 320


def test_pages_without_covariates_offer_none(franklin_site: Path) -> None:
    page = (franklin_site / "series/1.html").read_text(encoding="utf-8")
    assert plotted(page)["covariates"] == []
    assert 'id="covariate"' not in page


def test_rank_correlation_ignores_what_is_absent_or_constant() -> None:
    """1, 2, … against the same, the reverse, a constant, and 11 values only."""
    values = np.arange(1.0, 21.0)
    few = np.where(values <= 11, values, np.nan)
    enough = np.where(values <= 12, values**3, np.nan)
    table = np.column_stack([values**2, -values, np.ones(20), few, enough])
    np.testing.assert_allclose(rank_correlations(values, table), [1, -1, np.nan, np.nan, 1])
