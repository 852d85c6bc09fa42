"""SVG plots: no line over missing sessions, nothing truncated, changed and unchanged series separated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from iowatch.output.dashboard.build import build_site
from iowatch.output.dashboard.drawing import AxisScale, split_at_gaps, svg_line_with_gaps, svg_time_axis
from iowatch.output.dashboard.pages.finding import NARROW, WIDE, FanContent, FanLabel, FanLine, fan_picture
from iowatch.store import History
from tests.output.dashboard import shapes
from tests.output.dashboard.browser import Browser
from tests.output.dashboard.chosen_pages import pages_named

DAY_S = 86400
MOMENT = 1_760_000_000
DAYS = np.arange(-60, 60)


def times(days: list[int]) -> np.ndarray:
    return MOMENT + DAY_S * np.array(days, dtype=np.int64)


@pytest.mark.parametrize(
    ("days", "lengths"),
    [
        ([0, 1, 2, 5, 6], [5]),  # two sessions missing
        ([0, 1, 2, 6, 7], [3, 2]),  # three sessions missing
        ([0, 7, 14, 21, 28], [5]),  # once a week
        ([0, 7, 14, 42, 49], [3, 2]),
        ([0, 1, 2, 20, 40, 41], [3, 1, 2]),
        ([5], [1]),
        ([], []),
    ],
)
def test_lines_have_gaps_where_sessions_are_missing(days: list[int], lengths: list[int]) -> None:
    found = split_at_gaps(times(days))
    assert [part.stop - part.start for part in found] == lengths
    assert sum(lengths) == len(days)


def test_single_observation_between_gaps_is_drawn() -> None:
    """A line of one point draws nothing; two equal points with round ends are a dot."""
    when = times([0, 1, 2, 20])
    drawn = svg_line_with_gaps("headline", when, np.array([10.0, 20.0, 30.0, 300.0]), np.array([5.0, 6.0, 6.5, 7.0]))
    assert re.findall(r'points="([^"]*)"', drawn) == ["10.0,5.0 20.0,6.0 30.0,6.5", "300.0,7.0 300.0,7.0"]


def test_date_labels_are_inside_the_plot() -> None:
    for end in range(300, 400):
        x = AxisScale(MOMENT, MOMENT + end * DAY_S / 3, 46, 294)
        for kind, place in re.findall(r'class="(date[^"]*)" x="([0-9.]+)"', svg_time_axis(x, 100, 3)):
            assert float(place) + (0 if "last" in kind else 24) <= 300


def fan(*, fall: float, later: float = 1.0, event_times: Sequence[int] = ()) -> str:
    """Three changed series, one of which has a second loss after thirty days, and six series without change."""
    rng = np.random.default_rng(3)
    lines = []
    for number in range(9):
        level = np.where((DAYS >= 0) & (number < 3), fall, 1.0)
        if number == 0:
            level = np.where(DAYS >= 30, level * later, level)
        gains = level * np.exp(rng.normal(0, 0.02, len(DAYS)))
        lines.append(FanLine((MOMENT + DAYS * DAY_S).tolist(), gains.tolist(), number < 3))
    names = [FanLabel("changed", fall, True), FanLabel("a very long name of a control group", 1.08, False)]
    return str(fan_picture(FanContent(lines, MOMENT, names, "9 Oct 2025", "label", event_times)))


def test_every_level_of_a_changed_series_is_inside_the_plot() -> None:
    """A second loss of one member must not be clipped at the edge: its points have different heights."""
    drawn = re.findall(r'<polyline class="changed" points="([^"]*)"', fan(fall=0.65, later=0.2))
    heights = [point.split(",")[1] for point in drawn[0].split()[-25:]]
    assert heights.count("270.0") <= 3  # the bottom of the picture


def test_unchanged_series_are_labelled_independent_of_their_gain() -> None:
    text = fan(fall=0.5)
    assert re.findall(r'<text class="(group[^"]*)"[^>]*>([^<]*)<', text) == [
        ("group steady", "+8.0 % a very long name of a…"),
        ("group", "×0.5 changed"),
    ]


def test_other_events_are_numbered_in_the_plot() -> None:
    text = fan(fall=0.5, event_times=[MOMENT + 20 * DAY_S, MOMENT + 400 * DAY_S])
    assert re.findall(r'<text class="mark-name event"[^>]*>(\d)<', text) == ["1"]


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Series of 30 days without sessions on ten days in the middle."""
    place = tmp_path_factory.mktemp("paused")
    shapes.fill(place / "history.db", days=30, without=range(10, 20))
    with History.open(str(place / "history.db")) as history:
        build_site(history, place / "site", pages=pages_named("series"))
    return place / "site"


@pytest.mark.browser
def test_browser_breaks_lines_where_pictures_do(tmp_path: Path, browser: Browser) -> None:
    """Sessions every third day: nine days without one are no gap, twelve are (3.5 intervals)."""
    shown = [day for day in range(0, 90, 3) if day not in (30, 33, 60, 63, 66)]
    shapes.fill(tmp_path / "history.db", days=90, without=set(range(90)) - set(shown))
    with History.open(str(tmp_path / "history.db")) as history:
        build_site(history, tmp_path / "site", pages=pages_named("series"))
    browser.open(tmp_path / "site/series/1.html")
    browser.wait("return document.documentElement.dataset.drawn === 'yes'")
    layers = "document.getElementById('plot').chart.drawn[0].layers"
    headline = browser.run(f"return {layers}.find((one) => one.kind === 'headline').points")
    ends = [part.stop for part in split_at_gaps(times(shown))]
    assert ends == [shown.index(69), len(shown)]
    assert [index for index, point in enumerate(headline) if point is None] == ends[:1]


@pytest.mark.browser
def test_browser_draws_no_line_over_a_gap(paused: Path, browser: Browser) -> None:
    browser.open(paused / "series/1.html")
    browser.wait("return document.documentElement.dataset.drawn === 'yes'")
    layers = "document.getElementById('plot').chart.drawn[0].layers"
    headline = browser.run(f"return {layers}.find((one) => one.kind === 'headline').points")
    assert headline.index(None) == 10
    assert headline.count(None) == 1
    assert len(headline) == 21


@pytest.mark.parametrize("day", range(-55, 56, 10))
def test_event_label_starts_with_the_date_and_is_inside_the_plot(day: int) -> None:
    """The text is left or right of its line, at any position; letters are about 8 wide."""
    when = (MOMENT + DAYS * DAY_S).tolist()
    what = "9 Oct 2025, scheduled maintenance: an upgrade to everything at once"
    for layout, width in ((WIDE, 960), (NARROW, 430)):
        lines = [FanLine(when, [1.0] * len(when), True)]
        text = str(fan_picture(FanContent(lines, MOMENT + day * DAY_S, [], what, "label"), layout))
        (found,) = re.findall(r'<text class="moment-name (\w+)" x="([0-9.]+)"[^>]*>([^<]*)<', text)
        side, place, words = found[0], float(found[1]), found[2]
        assert words.startswith("9 Oct 2025")
        assert (place - 8 * len(words) >= 0) if side == "left" else (place + 8 * len(words) <= width)
