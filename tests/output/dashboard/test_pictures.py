"""Pictures drawn on the server: nothing over missing nights, nothing cut off, changed and unchanged apart."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from iowatch.output.dashboard.build import build_site
from iowatch.output.dashboard.drawing import (
    AxisScale,
    gap_threshold_s,
    split_at_gaps,
    svg_line_with_gaps,
    svg_time_axis,
)
from iowatch.output.dashboard.pages.finding import NARROW, WIDE, FanLabel, FanLine, fan_picture
from iowatch.store import History
from tests.output.dashboard import shapes
from tests.output.dashboard.browser import Browser

DAY_S = 86400
MOMENT = 1_760_000_000
NIGHTS = np.arange(-60, 60)


def times(nights: list[int]) -> np.ndarray:
    return MOMENT + DAY_S * np.array(nights, dtype=np.int64)


@pytest.mark.parametrize(
    ("nights", "lengths"),
    [
        ([0, 1, 2, 5, 6], [5]),  # two nights missing
        ([0, 1, 2, 6, 7], [3, 2]),  # three nights missing
        ([0, 7, 14, 21, 28], [5]),  # once a week
        ([0, 7, 14, 42, 49], [3, 2]),
        ([0, 1, 2, 20, 40, 41], [3, 1, 2]),
        ([5], [1]),
        ([], []),
    ],
)
def test_lines_break_where_nights_are_missing(nights: list[int], lengths: list[int]) -> None:
    found = split_at_gaps(times(nights))
    assert [part.stop - part.start for part in found] == lengths
    assert sum(lengths) == len(nights)


def test_a_night_alone_is_still_drawn() -> None:
    """A line of one point draws nothing; two equal points with round ends are a dot."""
    when = times([0, 1, 2, 20])
    drawn = svg_line_with_gaps("headline", when, np.array([10.0, 20.0, 30.0, 300.0]), np.array([5.0, 6.0, 6.5, 7.0]))
    assert re.findall(r'points="([^"]*)"', drawn) == ["10.0,5.0 20.0,6.0 30.0,6.5", "300.0,7.0 300.0,7.0"]


def test_dates_stay_inside_the_picture() -> None:
    for end in range(300, 400):
        x = AxisScale(MOMENT, MOMENT + end * DAY_S / 3, 46, 294)
        for kind, place in re.findall(r'class="(date[^"]*)" x="([0-9.]+)"', svg_time_axis(x, 100, 3)):
            assert float(place) + (0 if "last" in kind else 24) <= 300


def fan(*, fall: float, later: float = 1.0, others: list[tuple[int, str]] | None = None) -> str:
    """Three changed series of which one falls again after thirty nights, six others without change."""
    rng = np.random.default_rng(3)
    lines = []
    for number in range(9):
        level = np.where((NIGHTS >= 0) & (number < 3), fall, 1.0)
        if number == 0:
            level = np.where(NIGHTS >= 30, level * later, level)
        gains = level * np.exp(rng.normal(0, 0.02, len(NIGHTS)))
        lines.append(FanLine((MOMENT + NIGHTS * DAY_S).tolist(), gains.tolist(), number < 3))
    names = [FanLabel("changed", fall, True), FanLabel("a very long name of a control group", 1.08, False)]
    return str(fan_picture(lines, MOMENT, names, "9 Oct 2025", "label", others or []))


def test_every_level_of_a_changed_series_is_in_the_picture() -> None:
    """A second fall of one member must not be flattened at the edge: its nights lie at different heights."""
    drawn = re.findall(r'<polyline class="changed" points="([^"]*)"', fan(fall=0.65, later=0.2))
    heights = [point.split(",")[1] for point in drawn[0].split()[-25:]]
    assert heights.count("270.0") <= 3  # the bottom of the picture


def test_unchanged_series_are_named_as_such_whatever_their_gain() -> None:
    text = fan(fall=0.5)
    assert re.findall(r'<text class="(group[^"]*)"[^>]*>([^<]*)<', text) == [
        ("group steady", "×1.1 a very long name of a c…"),
        ("group", "×0.5 changed"),
    ]


def test_other_events_are_numbered() -> None:
    text = fan(fall=0.5, others=[(MOMENT + 20 * DAY_S, "1"), (MOMENT + 400 * DAY_S, "2")])
    assert re.findall(r'<text class="mark-name event"[^>]*>(\d)<', text) == ["1"]


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Series of 30 nights of which ten in the middle never ran."""
    place = tmp_path_factory.mktemp("paused")
    shapes.fill(place / "history.db", nights=30, without=range(10, 20))
    with History.open(str(place / "history.db")) as history:
        build_site(history, place / "site")
    return place / "site"


def test_a_series_has_no_line_over_a_pause(paused: Path) -> None:
    text = (paused / "series/1.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    assert data["pause"] == gap_threshold_s(times(list(range(20)))) == 3.5 * DAY_S


@pytest.mark.browser
def test_the_browser_draws_no_line_over_a_pause(paused: Path, browser: Browser) -> None:
    browser.open(paused / "series/1.html")
    browser.wait("return document.documentElement.dataset.drawn === 'yes'")
    headline = browser.run("return document.getElementById('plot').data[1].y")
    assert headline.index(None) == 10
    assert headline.count(None) == 1
    assert len(headline) == 21
    drawn = "return [...document.querySelectorAll('#plot .scatterlayer .trace:nth-child(2) .lines path')].length"
    assert browser.run(drawn) == 2


@pytest.mark.parametrize("night", range(-55, 56, 10))
def test_what_happened_begins_with_the_date_and_ends_in_the_picture(night: int) -> None:
    """The words stand left or right of their line, wherever it is; letters are about 8 wide."""
    when = (MOMENT + NIGHTS * DAY_S).tolist()
    what = "9 Oct 2025, scheduled maintenance: an upgrade to everything at once"
    for shape, width in ((WIDE, 960), (NARROW, 430)):
        lines = [FanLine(when, [1.0] * len(when), True)]
        text = str(fan_picture(lines, MOMENT + night * DAY_S, [], what, "label", shape=shape))
        (found,) = re.findall(r'<text class="moment-name (\w+)" x="([0-9.]+)"[^>]*>([^<]*)<', text)
        side, place, words = found[0], float(found[1]), found[2]
        assert words.startswith("9 Oct 2025")
        assert (place - 8 * len(words) >= 0) if side == "left" else (place + 8 * len(words) <= width)
