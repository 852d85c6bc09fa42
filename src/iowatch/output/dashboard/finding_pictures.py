"""Pictures of a finding: its series relative to their level before the change, and one small picture per member.

`pages/finding.py` reads the series and makes a `FanContent`; this file draws it, for screens, phones and cards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from iowatch.core import format_number
from iowatch.findings import FindingMember, PerformanceDirection
from iowatch.output.dashboard import drawing
from iowatch.output.text.changes import format_factor


@dataclass(frozen=True)
class FanLayout:
    """Layout of the picture: factors of groups beside the lines, with their names there, or listed below on a phone.

    Attributes:
        right: distance of the lines from the right edge, in which labels are.
        names_below: whether the names of groups are listed below the lines, because there is no room beside them.
        classes: style classes of the picture.
        max_dates: number of dates at the axis.
        max_columns: number of periods in which lines have a value; more cannot be seen at this width.
        max_lines: number of lines of each direction, and of unchanged ones.
        has_labels: whether the groups and other events are labelled.
    """

    width: int
    right: int
    names_below: bool
    classes: str
    max_dates: int
    max_columns: int
    max_lines: int
    has_labels: bool = True


WIDE = FanLayout(960, 220, False, "picture fan for-wide", 7, 240, 12)
NARROW = FanLayout(430, 86, True, "picture fan for-narrow", 4, 120, 8)
# The text of a card names the groups. A status page has three of these pictures and should stay below 120 kB.
CARD = FanLayout(430, 10, True, "picture fan", 4, 90, 5, has_labels=False)


@dataclass(frozen=True)
class FanLine:
    """One series in order of time: epoch s, and performance relative to the level before (1 is the same).

    Attributes:
        direction: in which its performance changed; None if it did not.
        levels: of the detection, relative to the level before; they are always inside the picture.
    """

    times: Sequence[int]
    gains: Sequence[float]
    direction: PerformanceDirection | None
    levels: Sequence[float] = ()


@dataclass(frozen=True)
class FanGroup:
    """Lines that changed by about the same factor, or that did not change: their name, and their typical gain.

    Attributes:
        lines: positions of its lines, whose median is drawn.
    """

    text: str
    gain: float
    direction: PerformanceDirection | None
    lines: Sequence[int] = ()


@dataclass(frozen=True)
class FanContent:
    """What the picture of a finding shows.

    Attributes:
        lines: series with observations.
        change_time: time of the change, epoch seconds.
        groups: of lines, labelled at the right edge.
        change_text: text at the line of the change.
        description: of the picture, for readers who do not see it.
        event_times: times (epoch seconds) of other events, numbered from 1 on.
        end_time: epoch seconds from which on the change is over; None while it is not.
        are_outliers_content: whether single sessions are what changed (alternating ones, noise): nothing is averaged or
            left out.
    """

    lines: Sequence[FanLine]
    change_time: int
    groups: Sequence[FanGroup]
    change_text: str
    description: str
    event_times: Sequence[int] = ()
    end_time: int | None = None
    are_outliers_content: bool = False


# Style classes by direction: colours that colour-blind readers can tell apart. Triangles show the direction as well.
_CLASSES: dict[PerformanceDirection | None, str] = {"down": "loss", "up": "gain", None: "steady"}
_ARROWS: dict[PerformanceDirection | None, str] = {"down": "▼ ", "up": "▲ ", None: ""}
_FAN_HEIGHT = 330
_FAN_LEFT, _FAN_TOP, _FAN_BOTTOM = 56, 56, 32
_Y_TITLE = "performance relative to the level before"
# Distance of labels beside the lines.
_LABEL_DISTANCE = 18
# Labels below the lines: their distance, their longest text, and the space below the last one.
_LISTED_DISTANCE, _MAX_LISTED_LETTERS, _BELOW_LISTED = 21, 46, 8
# Maximum length of a label beside the lines; bold letters, of changed groups, are wider. On paper they are the largest.
_MAX_BOLD_LETTERS, _MAX_LETTERS = 23, 25
# Width of a bold letter of the text at the change.
_BOLD_LETTER = 8.5
# Percent of the medians of a changed group, and of the unchanged lines, that may be outside the picture at either end.
# With twice as much, single bad weeks of a small group would be outside; with half, single sessions are inside and
# make a step of 10 % flat.
_OUTSIDE_OF_GROUP, _OUTSIDE_OF_STEADY = 5, 10
# The same of each changed line where outliers are what changed.
_OUTSIDE_OF_PATTERN = 2
# The unchanged lines are assessed this close to the change: later they may change in other findings.
_STEADY_S = 60 * drawing.DAY_S
# Free space above and below as a share of the height, and the gains that are always inside: a smaller change is drawn
# small.
_MARGIN, _LEAST_RANGE = 0.06, (0.85, 1.18)
# The finest of these scales of the axis that has at most `_MAX_TICKS` lines is used.
_FINE_TICKS = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5)
_MEDIUM_TICKS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0)
_COARSE_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
_MAX_TICKS = 7
# Height of the tick of an outlier at the edge; height of the triangles on a median, and their distance.
_OUTLIER_HEIGHT, _SIGN_SIZE, _SIGN_DISTANCE = 7, 12, 80


def fan_picture(content: FanContent, layout: FanLayout = WIDE, zone: tzinfo = UTC) -> Markup:
    """Draw a finding; dates are shown at midnights of `zone`."""
    first, last = _time_range(content)
    medians = [_group_median(group, content, layout, first, last) for group in content.groups]
    lowest_gain, highest_gain = _gain_range(content, medians)
    x = drawing.AxisScale(first, last, _FAN_LEFT, layout.width - layout.right, zone=zone)
    y = drawing.AxisScale(lowest_gain, highest_gain, _FAN_HEIGHT - _FAN_BOTTOM, _FAN_TOP, logarithmic=True)
    parts = list(_draw_gain_axis(x, y))
    parts.append(drawing.svg_time_axis(x, _FAN_HEIGHT - _FAN_BOTTOM, layout.max_dates))
    parts += _draw_event_marks(content.event_times, x)
    # Members are drawn over the axes and events, medians over the members, the change over all.
    for line in _drawn_lines(content, layout):
        parts += _draw_fan_line(line, content, layout, x, y)
    for group, median in zip(content.groups, medians, strict=True):
        parts += _draw_median(group, median, content, x, y)
    parts += _draw_change(content.change_time, content.change_text, x, layout.width)
    parts += _draw_end(content.end_time, x)
    height = _FAN_HEIGHT
    if layout.has_labels:
        groups = sorted(content.groups, key=lambda group: -group.gain)
        parts += _draw_labels(groups, x, y, layout)
        if layout.names_below and groups:
            parts += _list_labels(groups)
            height += _LISTED_DISTANCE * len(groups) + _BELOW_LISTED
    return drawing.svg_picture(layout.width, height, content.description, parts, layout.classes)


@dataclass(frozen=True)
class _Points:
    """Points of a line in order of time: epoch s, and gains; shapes (n,)."""

    times: NDArray[np.float64]
    gains: NDArray[np.float64]


def _time_range(content: FanContent) -> tuple[int, int]:
    """First and last time of the axis (epoch s): those of all lines, or a day around the change without lines."""
    first_times = [line.times[0] for line in content.lines if len(line.times)]
    last_times = [line.times[-1] for line in content.lines if len(line.times)]
    first = min(first_times, default=content.change_time - drawing.DAY_S)
    last = max(last_times, default=content.change_time + drawing.DAY_S)
    return first, last


def _group_median(group: FanGroup, content: FanContent, layout: FanLayout, first: int, last: int) -> _Points:
    """The median of the lines of a group per period of whole days; empty without lines.

    A single line of which single sessions are what changed stays as it is.
    """
    times: list[float] = []
    gains: list[float] = []
    for position in group.lines:
        times += content.lines[position].times
        gains += content.lines[position].gains
    order = np.argsort(np.asarray(times, dtype=np.float64), kind="stable")
    points = _Points(np.asarray(times, dtype=np.float64)[order], np.asarray(gains, dtype=np.float64)[order])
    if content.are_outliers_content and len(group.lines) == 1:
        return points
    return _period_medians(points, _period_s(first, last, layout.max_columns))


def _period_s(first: float, last: float, max_columns: int) -> float:
    """Length in seconds of the periods, at least a day, of which `max_columns` fit between two times (epoch s)."""
    days = (last - first) / drawing.DAY_S
    return float(drawing.DAY_S * max(1, np.ceil(days / max_columns)))


def _period_medians(points: _Points, period_s: float) -> _Points:
    """Median time and gain of the points of each period."""
    if not len(points.times):
        return points
    periods = np.floor((points.times - points.times[0]) / period_s)
    starts = np.flatnonzero(np.diff(periods, prepend=-1.0))
    ends = np.append(starts[1:], len(periods))
    times = np.empty(len(starts))
    gains = np.empty(len(starts))
    for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        times[number] = np.median(points.times[start:end])
        gains[number] = np.median(points.gains[start:end])
    return _Points(times, gains)


def _drawn_lines(content: FanContent, layout: FanLayout) -> list[FanLine]:
    """A sample of the unchanged lines, then of gains and of losses, which are drawn over them."""
    sample: list[FanLine] = []
    for direction in (None, "up", "down"):
        lines = [line for line in content.lines if line.direction == direction and len(line.times)]
        sample += lines[:: drawing.sampling_step(len(lines), layout.max_lines)]
    return sample


def _gain_range(content: FanContent, medians: Sequence[_Points]) -> tuple[float, float]:
    """Lowest and highest gain of the axis: the levels of all changed lines are inside, single outliers are not."""
    inside: list[float] = list(_LEAST_RANGE)
    for line in content.lines:
        if line.direction is not None:
            inside += line.levels
            if content.are_outliers_content and len(line.gains):
                inside += np.percentile(line.gains, (_OUTSIDE_OF_PATTERN, 100 - _OUTSIDE_OF_PATTERN)).tolist()
    for group, median in zip(content.groups, medians, strict=True):
        if group.direction is None or not len(median.gains):
            continue
        inside += np.percentile(median.gains, (_OUTSIDE_OF_GROUP, 100 - _OUTSIDE_OF_GROUP)).tolist()
        # The size of noise is no gain of the series.
        if not content.are_outliers_content:
            inside.append(group.gain)
    steady_gains: list[float] = []
    for line in content.lines:
        if line.direction is None:
            for time, gain in zip(line.times, line.gains, strict=True):
                if abs(time - content.change_time) <= _STEADY_S:
                    steady_gains.append(gain)
    if steady_gains:
        inside += np.percentile(steady_gains, (_OUTSIDE_OF_STEADY, 100 - _OUTSIDE_OF_STEADY)).tolist()
    lowest, highest = min(inside), max(inside)
    margin = (highest / lowest) ** _MARGIN
    return lowest / margin, highest * margin


def _draw_gain_axis(x: drawing.AxisScale, y: drawing.AxisScale) -> Iterator[str]:
    """Title and grid lines with their factors; the line at ×1, the level before the change, has a style of its own."""
    yield drawing.svg_text("axis-title", 4, 14, _Y_TITLE)
    for tick in _gain_ticks(y.low, y.high):
        style = "grid one" if tick == 1.0 else "grid"
        yield drawing.svg_line(style, _FAN_LEFT, y(tick), x.end, y(tick))
        yield drawing.svg_text("tick", _FAN_LEFT - 6, y(tick) + 4, f"×{tick:g}")


def _gain_ticks(low: float, high: float) -> list[float]:
    """Gains with a grid line, of the finest scale that has not too many of them."""
    for scale in (_FINE_TICKS, _MEDIUM_TICKS):
        ticks = [tick for tick in scale if low <= tick <= high]
        # A scale that ends inside the picture would leave a part of it without lines.
        is_covered = scale[0] <= low * 1.2 and scale[-1] >= high / 1.2
        if is_covered and len(ticks) <= _MAX_TICKS:
            return ticks
    return [tick for tick in _COARSE_TICKS if low <= tick <= high]


def _draw_event_marks(event_times: Sequence[int], x: drawing.AxisScale) -> Iterator[str]:
    """Vertical lines with the numbers of the events in the list below the picture."""
    for number, time in enumerate(event_times, start=1):
        if x.low <= time <= x.high:
            yield drawing.svg_line("mark event", x(time), _FAN_TOP, x(time), _FAN_HEIGHT - _FAN_BOTTOM)
            yield drawing.svg_text("mark-name event", x(time) + 7, _FAN_TOP + 12, str(number))


def _draw_fan_line(
    line: FanLine, content: FanContent, layout: FanLayout, x: drawing.AxisScale, y: drawing.AxisScale
) -> Iterator[str]:
    """The thin line of a series, interrupted where sessions are missing; outliers are ticks at the edge."""
    style = _CLASSES[line.direction]
    points = _Points(np.asarray(line.times, dtype=np.float64), np.asarray(line.gains, dtype=np.float64))
    is_inside = (points.gains >= y.low) & (points.gains <= y.high)
    shown = _Points(points.times[is_inside], points.gains[is_inside])
    if not content.are_outliers_content:
        shown = _period_medians(shown, _period_s(x.low, x.high, layout.max_columns))
    heights = np.array([y(gain) for gain in shown.gains.tolist()])
    yield drawing.svg_line_with_gaps(f"{style} member", shown.times, x.array(shown.times), heights)
    if line.direction is not None:
        yield from _draw_outliers(style, points, x, y)


def _draw_outliers(style: str, points: _Points, x: drawing.AxisScale, y: drawing.AxisScale) -> Iterator[str]:
    """A tick at the lower or upper edge for each observation outside the picture."""
    for is_outside, top in (
        (points.gains < y.low, _FAN_HEIGHT - _FAN_BOTTOM - _OUTLIER_HEIGHT),
        (points.gains > y.high, _FAN_TOP),
    ):
        # Ticks at one pixel are merged.
        positions = np.unique(np.round(x.array(points.times[is_outside]))).tolist()
        if positions:
            strokes = "".join(f"M{position:g} {top}v{_OUTLIER_HEIGHT}" for position in positions)
            yield f'<path class="outlier {style}" d="{strokes}"/>'


def _draw_median(
    group: FanGroup, median: _Points, content: FanContent, x: drawing.AxisScale, y: drawing.AxisScale
) -> Iterator[str]:
    """The thick line of a group; triangles on it since the change show the direction without a colour.

    Parts outside the picture are left out: the ticks of the members show them.
    """
    is_inside = (median.gains >= y.low) & (median.gains <= y.high)
    times = median.times[is_inside]
    if not len(times):
        return
    style = _CLASSES[group.direction]
    xs = x.array(times)
    heights = np.array([y(gain) for gain in median.gains[is_inside].tolist()])
    # A thick line through each session would be a bar.
    weight = " pattern" if content.are_outliers_content and group.direction is not None else ""
    yield drawing.svg_line_with_gaps(f"{style} median{weight}", times, xs, heights)
    if group.direction is None:
        return
    next_x = x(content.change_time) + _SIGN_DISTANCE / 4
    triangles: list[str] = []
    for sign_x, sign_y in zip(xs.tolist(), heights.tolist(), strict=True):
        if sign_x >= next_x:
            tip = _SIGN_SIZE if group.direction == "down" else -_SIGN_SIZE
            triangles.append(f"M{sign_x - 7:.0f} {sign_y - tip / 2:.0f}h14l-7 {tip}z")
            next_x = sign_x + _SIGN_DISTANCE
    yield f'<path class="sign {style}" d="{"".join(triangles)}"/>'


def _draw_change(time: int, text: str, x: drawing.AxisScale, width: float) -> Iterator[str]:
    """Line with its text on the side with more room or, if it is too long for that, above the line and the lines."""
    line_x = x(time)
    yield drawing.svg_line("moment", line_x, _FAN_TOP - 6, line_x, _FAN_HEIGHT - _FAN_BOTTOM)
    text_width = _BOLD_LETTER * len(text)
    alignment = "right"
    text_x = line_x + 6
    room = x.end - line_x - 6
    if line_x > (x.start + x.end) / 2:
        # The text ends at the line instead of starting there.
        alignment = "left"
        text_x = line_x - 6
        room = line_x - 6
    if text_width > room:
        alignment = "right"
        text_x = max(4.0, x.end - text_width)
    if alignment == "right":
        text = _shorten(text, int((width - text_x) / _BOLD_LETTER))
    yield drawing.svg_text(f"moment-name {alignment}", text_x, _FAN_TOP - 12, text)


def _draw_end(time: int | None, x: drawing.AxisScale) -> Iterator[str]:
    """Line at the time from which on the change is over (epoch s); nothing while it is not."""
    if time is None or not x.low <= time <= x.high:
        return
    yield drawing.svg_line("moment", x(time), _FAN_TOP, x(time), _FAN_HEIGHT - _FAN_BOTTOM)
    alignment = "right" if x(time) < (x.start + x.end) / 2 else "left"
    distance = 6 if alignment == "right" else -6
    yield drawing.svg_text(f"moment-name {alignment}", x(time) + distance, _FAN_HEIGHT - _FAN_BOTTOM - 14, "over")


def _draw_labels(
    groups: Sequence[FanGroup], x: drawing.AxisScale, y: drawing.AxisScale, layout: FanLayout
) -> Iterator[str]:
    """Labels, the largest gain first, at the height of their lines, moved apart if they would overlap."""
    highest_free = float(_FAN_TOP)
    for group in groups:
        height = min(y.limited(group.gain), _FAN_HEIGHT - _FAN_BOTTOM)
        height = max(height, highest_free)
        highest_free = height + _LABEL_DISTANCE
        text = _ARROWS[group.direction] + format_factor(group.gain)
        if not layout.names_below:
            text += f" {group.text}"
        max_letters = _MAX_LETTERS if group.direction is None else _MAX_BOLD_LETTERS
        yield drawing.svg_text(f"group {_CLASSES[group.direction]}", x.end + 8, height + 4, _shorten(text, max_letters))


def _list_labels(groups: Sequence[FanGroup]) -> Iterator[str]:
    """Factors and names of the groups as lines of text below the picture."""
    for line_number, group in enumerate(groups, start=1):
        text = f"{_ARROWS[group.direction]}{format_factor(group.gain)} {group.text}"
        style = f"group {_CLASSES[group.direction]}"
        height = _FAN_HEIGHT + _LISTED_DISTANCE * line_number
        yield drawing.svg_text(style, 4, height, _shorten(text, _MAX_LISTED_LETTERS))


def _shorten(text: str, max_letters: int) -> str:
    if len(text) <= max_letters:
        return text
    return f"{text[: max_letters - 1].rstrip()}…"


_MEMBER_WIDTH, _MEMBER_HEIGHT = 300, 132
_MEMBER_LEFT, _MEMBER_RIGHT, _MEMBER_TOP, _MEMBER_BOTTOM = 46, 6, 14, 22
# Periods with a value: a line of more is denser than the picture. With twice as many a page of 60 members is 120 kB
# heavier.
_MEMBER_COLUMNS = 130


@dataclass(frozen=True)
class MemberTimes:
    """The time axis that all members of a finding share; epoch s.

    Attributes:
        end: from which on the change is over; None while it is not.
        level_end: the last observation of the new level of the member that is drawn; None: the end of the axis.
    """

    first: int
    last: int
    end: int | None = None
    level_end: int | None = None
    zone: tzinfo = UTC


def member_picture(
    member: FindingMember, times: NDArray[Any], values: NDArray[Any], axis: MemberTimes, *, has_steps: bool = True
) -> Markup:
    """Draw a member.

    Args:
        times, values: shape (n,), in epoch seconds and in the unit of the metric.
        has_steps: whether its change is one of the level; else each session is drawn.
    """
    highest = float(values.max(initial=0.0))
    if member.states_levels:
        highest = max(highest, member.before, member.after)
    top = drawing.rounded_axis_end(highest)
    bottom = _MEMBER_HEIGHT - _MEMBER_BOTTOM
    right = _MEMBER_WIDTH - _MEMBER_RIGHT
    x = drawing.AxisScale(axis.first, axis.last, _MEMBER_LEFT, right, zone=axis.zone)
    y = drawing.AxisScale(0.0, top, bottom, _MEMBER_TOP)
    points = _Points(np.asarray(times, dtype=np.float64), np.asarray(values, dtype=np.float64))
    if has_steps:
        points = _period_medians(points, _period_s(axis.first, axis.last, _MEMBER_COLUMNS))
    parts = [
        drawing.svg_value_axis(y, _MEMBER_LEFT, right, (0.0, top / 2, top), "", 4),
        drawing.svg_time_axis(x, bottom, 3),
        drawing.svg_line_with_gaps("headline", points.times, x.array(points.times), y.array(points.gains)),
        drawing.svg_line("moment", x(member.first_after), _MEMBER_TOP, x(member.first_after), bottom),
    ]
    level_end = axis.last if axis.level_end is None else axis.level_end
    if axis.end is not None and member.first_after < axis.end <= axis.last:
        level_end = min(level_end, axis.end)
        parts.append(drawing.svg_line("moment", x(axis.end), _MEMBER_TOP, x(axis.end), bottom))
    if member.states_levels:
        style = f"level {_CLASSES[member.direction]}"
        parts += [
            drawing.svg_line("level before", x(axis.first), y(member.before), x(member.last_before), y(member.before)),
            drawing.svg_line(style, x(member.first_after), y(member.after), x(level_end), y(member.after)),
        ]
    label = f"{format_number(member.before)} to {format_number(member.after)} {member.unit}"
    return drawing.svg_picture(_MEMBER_WIDTH, _MEMBER_HEIGHT, label, parts, "picture small")
