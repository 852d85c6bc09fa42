"""SVG plots: no line over missing sessions, nothing truncated, changed and unchanged series separated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from iowatch.findings.finding import PerformanceDirection
from iowatch.output.dashboard.build import build_site
from iowatch.output.dashboard.drawing import AxisScale, split_at_gaps, svg_line_with_gaps, svg_time_axis
from iowatch.output.dashboard.finding_pictures import (
    CARD,
    NARROW,
    WIDE,
    FanContent,
    FanGroup,
    FanLine,
    MemberTimes,
    fan_picture,
    member_picture,
)
from iowatch.store import History
from tests.builders import build_member
from tests.conftest import ROOT
from tests.output.dashboard import shapes
from tests.output.dashboard.browser import Browser
from tests.output.dashboard.chosen_pages import pages_named

DAY_S = 86400
MOMENT = 1_760_000_000
DAYS = np.arange(-60, 60)
# Upper and lower edge of the lines of a finding.
TOP, BOTTOM = 56.0, 298.0


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


def test_dates_do_not_cover_each_other() -> None:
    """At any length; a letter is taken to be 7 wide (11 pixels high)."""
    for days in range(60, 700, 7):
        x = AxisScale(MOMENT, MOMENT + days * DAY_S, 56, 368)
        end = -1.0
        for style, position, label in re.findall(
            r'class="(date[^"]*)" x="([0-9.]+)"[^>]*>([^<]*)<', svg_time_axis(x, 100, 4)
        ):
            width = 7 * len(label)
            start = float(position) - (width if "last" in style else width / 2)
            assert start >= end
            end = start + width


def test_date_labels_are_inside_the_plot() -> None:
    for end in range(300, 400):
        x = AxisScale(MOMENT, MOMENT + end * DAY_S / 3, 46, 294)
        for kind, place in re.findall(r'class="(date[^"]*)" x="([0-9.]+)"', svg_time_axis(x, 100, 3)):
            assert float(place) + (0 if "last" in kind else 24) <= 300


def fan(*, fall: float, later: float = 1.0, event_times: Sequence[int] = (), end_time: int | None = None) -> str:
    """Three changed series, one of which has a second loss after thirty days, and six series without change."""
    rng = np.random.default_rng(3)
    changed: PerformanceDirection = "down" if fall < 1 else "up"
    lines = []
    for number in range(9):
        level = np.where((DAYS >= 0) & (number < 3), fall, 1.0)
        if number == 0:
            level = np.where(DAYS >= 30, level * later, level)
        gains = level * np.exp(rng.normal(0, 0.02, len(DAYS)))
        levels = (1.0, fall, fall * later) if number == 0 else ()
        direction = changed if number < 3 else None
        lines.append(FanLine((MOMENT + DAYS * DAY_S).tolist(), gains.tolist(), direction, levels))
    groups = [
        FanGroup("changed", fall, changed, (0, 1, 2)),
        FanGroup("a very long name of a control group", 1.08, None, range(3, 9)),
    ]
    return str(fan_picture(FanContent(lines, MOMENT, groups, "9 Oct 2025", "label", event_times, end_time)))


def points_of(picture: str, style: str) -> list[list[tuple[float, float]]]:
    """The points (x, y) of each line of a style."""
    lines = []
    for coordinates in re.findall(rf'<polyline class="{style}" points="([^"]*)"', picture):
        pairs = [pair.split(",") for pair in coordinates.split()]
        lines.append([(float(x), float(y)) for x, y in pairs])
    return lines


def test_every_level_of_a_changed_series_is_inside_the_plot() -> None:
    """A second loss of one member must not be clipped at the edge: its points have different heights."""
    picture = fan(fall=0.65, later=0.2)
    (line,) = points_of(picture, "loss member")[:1]
    assert len(line) == len(DAYS)
    assert max(y for _, y in line[-25:]) < BOTTOM
    assert "outlier" not in picture


def one_step(outliers: float, size: float = 0.9) -> str:
    """Four series with a step of 10 %, each with every tenth session at a gain of `outliers`."""
    rng = np.random.default_rng(5)
    lines = []
    for number in range(4):
        gains = np.where(DAYS >= 0, size, 1.0) * np.exp(rng.normal(0, 0.01, len(DAYS)))
        gains[number::10] = outliers
        lines.append(FanLine((MOMENT + DAYS * DAY_S).tolist(), gains.tolist(), "down", (1.0, size)))
    groups = [FanGroup("changed", size, "down", (0, 1, 2, 3))]
    return str(fan_picture(FanContent(lines, MOMENT, groups, "9 Oct 2025", "label")))


def test_outliers_do_not_flatten_a_step() -> None:
    """A step of 10 % is at least a sixth of the height, and each outlier is a tick at the lower edge."""
    picture = one_step(0.05)
    (median,) = points_of(picture, "loss median")
    before = [y for x, y in median][:55]
    after = [y for x, y in median][-55:]
    assert np.median(after) - np.median(before) > (BOTTOM - TOP) / 6
    ticks = re.findall(r'<path class="outlier loss" d="([^"]*)"', picture)
    assert len(ticks) == 4
    assert {path.count("M") for path in ticks} == {len(DAYS) // 10}
    assert "outlier" not in one_step(0.95)


def test_sessions_that_are_the_change_are_not_left_out() -> None:
    """Of an alternating series the bad sessions are drawn, not marked at the edge."""
    gains = np.where((DAYS >= 0) & (DAYS % 3 == 0), 0.3, 1.0)
    lines = [FanLine((MOMENT + DAYS * DAY_S).tolist(), gains.tolist(), "down")]
    groups = [FanGroup("changed", 0.3, "down", (0,))]
    content = FanContent(lines, MOMENT, groups, "9 Oct 2025", "label", are_outliers_content=True)
    picture = str(fan_picture(content))
    (line,) = points_of(picture, "loss member")
    assert len({y for _, y in line}) == 2
    assert "outlier" not in picture


def test_directions_differ_by_colour_and_by_shape() -> None:
    """Triangles point up for gains and down for losses, also in the labels; the classes have colours of their own."""
    for picture, style, arrow, sign in ((fan(fall=0.5), "loss", "▼", 1), (fan(fall=2.0), "gain", "▲", -1)):
        assert f'<polyline class="{style} median"' in picture
        (path,) = re.findall(rf'<path class="sign {style}" d="([^"]*)"', picture)
        tips = [float(tip) for tip in re.findall(r"l-7 (-?\d+)z", path)]
        assert len(tips) >= 3
        # Only since the change, which is in the middle of an axis from 56 to 740.
        assert min(float(x) for x in re.findall(r"M([0-9.]+) ", path)) > (56 + 740) / 2 - 7
        assert all(tip * sign > 0 for tip in tips)
        assert f"{arrow} ×" in picture
    css = (ROOT / "dashboards/static/style.css").read_text(encoding="utf-8")
    assert ".picture .sign.loss { fill: var(--changed); } .picture .sign.gain { fill: var(--headline); }" in css


def test_axis_has_a_title_and_the_end_of_a_change_is_marked() -> None:
    picture = fan(fall=0.5)
    assert "performance relative to the level before" in picture
    assert ">over<" not in picture
    over = fan(fall=0.5, end_time=MOMENT + 40 * DAY_S)
    assert over.count('<line class="moment"') == 2
    assert ">over<" in over


def test_long_times_are_drawn_in_as_many_points_as_can_be_seen() -> None:
    """Three years of daily sessions: a card has at most 90 points per line, and a bounded weight."""
    days = np.arange(-60, 3 * 365)
    gains = np.where(days >= 0, 0.5, 1.0).tolist()
    lines = [FanLine((MOMENT + days * DAY_S).tolist(), gains, "down", (1.0, 0.5))] * 30
    content = FanContent(lines, MOMENT, [FanGroup("changed", 0.5, "down", range(30))], "9 Oct 2025", "label")
    picture = str(fan_picture(content, CARD))
    assert {len(line) <= 91 for line in points_of(picture, "loss member")} == {True}
    assert len(points_of(picture, "loss member")) <= 5
    assert len(picture) < 15_000


def test_member_picture_goes_to_the_newest_session() -> None:
    """The axis ends at the given time, and the new level where it ended or the change is over."""
    when = times([-60, 0, 200])
    member = build_member(before=100.0, gain=0.5, last_before=MOMENT - DAY_S, first_after=MOMENT)
    for end_day, level_day, expected in ((100, None, 100), (None, 70, 70), (100, 70, 70), (None, None, 200)):
        end = None if end_day is None else MOMENT + end_day * DAY_S
        level_end = None if level_day is None else MOMENT + level_day * DAY_S
        axis = MemberTimes(int(when[0]), int(when[-1]), end, level_end)
        picture = str(member_picture(member, when, np.array([100.0, 50.0, 100.0]), axis))
        ends = re.findall(r'<line class="level loss" x1="([0-9.]+)" [^>]*x2="([0-9.]+)"', picture)
        # 300 wide, 46 of it for the axis and 6 at the right: 248 for 260 days.
        days = [60, 60 + expected]
        assert [float(x) for x in ends[0]] == pytest.approx([46 + 248 * day / 260 for day in days], abs=0.1)


def test_unchanged_series_are_labelled_independent_of_their_gain() -> None:
    text = fan(fall=0.5)
    assert re.findall(r'<text class="(group[^"]*)"[^>]*>([^<]*)<', text) == [
        ("group steady", "+8.0 % a very long name…"),
        ("group loss", "▼ ×0.5 changed"),
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
        lines = [FanLine(when, [1.0] * len(when), "down")]
        text = str(fan_picture(FanContent(lines, MOMENT + day * DAY_S, [], what, "label"), layout))
        (found,) = re.findall(r'<text class="moment-name (\w+)" x="([0-9.]+)"[^>]*>([^<]*)<', text)
        side, place, words = found[0], float(found[1]), found[2]
        assert words.startswith("9 Oct 2025")
        assert (place - 8 * len(words) >= 0) if side == "left" else (place + 8 * len(words) <= width)
