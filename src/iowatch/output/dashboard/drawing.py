"""SVG pictures of the dashboard: scales, axes, lines, strips, curves, ranges, forest plots. Styles: style.css."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import count, groupby, pairwise
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from iowatch.core import DAY_S, escape_controls, format_count, format_number

# So many usual intervals without a result break a line, and at least so many seconds: two missing observations do not.
GAP_INTERVALS = 3.5
MIN_GAP_S = GAP_INTERVALS * DAY_S
# Half the width of a date in a picture, and the width of a letter of it.
_HALF_DATE, _DATE_LETTER = 24, 7.5


def sampling_step(count: int, max_count: int) -> int:
    """The step of a slice that takes at most `max_count` of `count` items, at equal distances."""
    return max(1, math.ceil(count / max_count))


@dataclass(frozen=True)
class AxisScale:
    """Scale from data to picture, linear or logarithmic; a single value is in the middle.

    `zone` is the time zone of the dates on a scale of times (epoch s).
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False
    zone: tzinfo = UTC

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            # A logarithmic axis has no zero: it is drawn far outside.
            low, high, value = math.log(low), math.log(high), math.log(max(value, 1e-300))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def limited(self, value: float) -> float:
        """Scale a value; one outside the axis is drawn at its end."""
        return self(min(max(value, self.low), self.high))

    def array(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Scale an array on a linear scale; shape (n,) in and out."""
        shares = np.full(len(values), 0.5)
        if self.high > self.low:
            shares = (values - self.low) / (self.high - self.low)
        return np.asarray(self.start + shares * (self.end - self.start), dtype=np.float64)


def rounded_axis_end(highest: float) -> float:
    """End of an axis that starts at zero: a round number slightly above the highest value."""
    if not highest > 0:
        return 1.0
    # At least 3 % above, so that the highest value is not drawn on the edge.
    least = highest * 1.03
    power = 10 ** math.floor(math.log10(least))
    return float(next(m * power for m in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if m * power >= least))


def value_ticks(top: float) -> list[float]:
    """Four to six round values from zero to `top`."""
    exact_step = top / 4
    power = 10 ** math.floor(math.log10(exact_step))
    # A round step may be up to a fifth smaller than the exact one: six values instead of five.
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= exact_step * 0.8)
    return [step * number for number in range(int(top / step + 1e-9) + 1)]


@dataclass(frozen=True)
class DateTick:
    """A date on an axis of times: epoch s, and its label."""

    time: float
    label: str


# Axes of up to so many days have days, longer ones months or years.
_MAX_DAYS = 60
# Steps between labelled months.
_MONTH_STEPS = (1, 2, 3, 6, 12, 24, 60, 120, 1200)


def date_ticks(first: float, last: float, most: int = 7, zone: tzinfo = UTC) -> list[DateTick]:
    """Starts of days, months or years in a zone within the span (epoch s), with their labels.

    Args:
        most: about so many dates fit.
    """
    days = max((last - first) / DAY_S, 1e-9)
    midnight = datetime.fromtimestamp(first, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    if days > _MAX_DAYS:
        return _month_ticks(midnight.replace(day=1), first, last, most)
    if midnight.timestamp() < first:
        midnight += timedelta(days=1)
    # Single days, as long as nearly all of them fit; else whole weeks.
    step_days = max(1, math.ceil(days / most))
    if days > 1.5 * most:
        step_days = 7 * math.ceil(days / 7 / most)
    ticks: list[DateTick] = []
    for number in range(math.ceil(days / step_days) + 1):
        # In local time of the zone, so that days of 23 or 25 hours do not shift midnights.
        day = midnight + timedelta(days=step_days * number)
        if day.timestamp() <= last:
            ticks.append(DateTick(day.timestamp(), f"{day:%-d %b}"))
    return ticks


def _month_ticks(month: datetime, first: float, last: float, most: int) -> list[DateTick]:
    """Starts of months within a span (epoch s), at most `most`.

    Args:
        month: start of the month that contains `first`.
    """
    months: list[datetime] = []
    while month.timestamp() <= last:
        if month.timestamp() >= first:
            months.append(month)
        month = month.replace(year=month.year + month.month // 12, month=month.month % 12 + 1)
    step_months = next(step for step in _MONTH_STEPS if len(months) / step <= most)
    ticks: list[DateTick] = []
    for start in months:
        # Counted from year 0, so that steps of a year begin in January.
        if (start.year * 12 + start.month - 1) % step_months == 0:
            label = f"{start:%b %Y}" if step_months < 12 else f"{start:%Y}"
            ticks.append(DateTick(start.timestamp(), label))
    return ticks


def svg_line(style_class: str, x1: float, y1: float, x2: float, y2: float) -> str:
    """Straight line with a style class."""
    return f'<line class="{style_class}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def svg_text(style_class: str, x: float, y: float, content: str) -> str:
    """Text with a style class; the content is escaped."""
    return f'<text class="{style_class}" x="{x:.1f}" y="{y:.1f}">{escape(escape_controls(content))}</text>'


def split_at_gaps(times: NDArray[Any]) -> list[slice]:
    """Segments of times (epoch s, in order, shape (n,)) without a gap: no line is drawn over missing observations."""
    if not len(times):
        return []
    after_gaps = np.flatnonzero(np.diff(times) > gap_threshold_s(times)) + 1
    edges = [0, *after_gaps.tolist(), len(times)]
    return [slice(start, stop) for start, stop in pairwise(edges)]


def gap_threshold_s(times: NDArray[Any]) -> float:
    """Seconds without a result that break a line: more than two missing observations at the median interval."""
    intervals = np.diff(times)
    if not len(intervals):
        return MIN_GAP_S
    return max(MIN_GAP_S, GAP_INTERVALS * float(np.median(intervals)))


def svg_line_with_gaps(style_class: str, times: NDArray[Any], xs: NDArray[Any], ys: NDArray[Any]) -> str:
    """Line through points, shapes (n,), broken at gaps; a single observation between gaps is a dot."""
    elements: list[str] = []
    for segment in split_at_gaps(times):
        points: slice | NDArray[Any] = segment
        if segment.stop - segment.start == 1:
            # A line from a point to itself is drawn as a dot, with the round ends of the style.
            points = np.repeat(segment.start, 2)
        coordinates = svg_repeat(" @,@", xs[points], ys[points]).removeprefix(" ")
        elements.append(f'<polyline class="{style_class}" points="{coordinates}"/>')
    return "".join(elements)


def svg_repeat(form: str, *columns: NDArray[Any]) -> str:
    """`form` once per point, with a coordinate (one decimal, not below 0) for each `@`; shapes (n,).

    Formatting integers at once takes a third of the time of `f"{x:.1f}"` per value.
    """
    tenths = np.rint(np.maximum(np.column_stack(columns), 0.0) * 10).astype(np.int64)
    # Each coordinate is two integers: the digits before and after the point.
    digits = np.stack(np.divmod(tenths, 10), axis=-1)
    all_points = form.replace("@", "%d.%d") * len(tenths)
    return all_points % tuple(digits.ravel().tolist())


def svg_value_axis(y: AxisScale, left: float, right: float, ticks: Sequence[float], unit: str, offset: int = 6) -> str:
    """Grid lines with their values to the left, and the unit at the top.

    Args:
        left, right: ends of the grid lines; the values are `offset` to the left of them.
        ticks: values of the lines.
    """
    elements: list[str] = []
    for value in ticks:
        elements.append(svg_line("grid", left, y(value), right, y(value)))
        elements.append(svg_text("tick", left - offset, y(value) + 4, format_number(value)))
    if unit:
        elements.append(svg_text("unit", 2, y(y.high) - 8, unit))
    return "".join(elements)


def svg_time_axis(x: AxisScale, bottom: float, most: int = 7) -> str:
    """Dates below the picture; a date at the right end is kept inside, and left out where it would cover another."""
    elements: list[str] = []
    end_of_last = -math.inf
    for tick in date_ticks(x.low, x.high, most, x.zone):
        at = x(tick.time)
        elements.append(svg_line("grid", at, bottom, at, bottom + 4))
        width = _DATE_LETTER * len(tick.label)
        is_at_end = at > x.end - _HALF_DATE
        start = x.end + 4 - width if is_at_end else at - width / 2
        if start < end_of_last:
            continue
        end_of_last = start + width
        if is_at_end:
            elements.append(svg_text("date last", x.end + 4, bottom + 17, tick.label))
        else:
            elements.append(svg_text("date", at, bottom + 17, tick.label))
    return "".join(elements)


def svg_picture(
    width: float, height: float, label: str, elements: Iterable[str], style_class: str = "picture"
) -> Markup:
    """Complete picture with a style class; `label` describes it for screen readers."""
    # Strips of cells may be distorted, pictures with text may not.
    fit = ' preserveAspectRatio="none"' if style_class == "strip" else ""
    description = escape(escape_controls(label))
    head = f'<svg class="{style_class}" viewBox="0 0 {width:g} {height:g}"{fit} role="img" aria-label="{description}">'
    # Numbers are formatted and texts escaped where the elements are made.
    return Markup(head + "".join(elements) + "</svg>")  # noqa: S704  # nosec B704


# Width of a cell with the space beside it, and height of a strip.
_CELL, _STRIP_HEIGHT = 7, 20


def strip_picture(style_classes: Sequence[str], what: str = "days", usual: str = "the normal band") -> Markup:
    """Cells from the oldest to the newest observation (or of series).

    Args:
        style_classes: of `levels.BAND_CLASSES`, `none` (a dash) without data, `unassessed` (an outline).
        what: what a cell is, in the plural, for the description.
        usual: what a cell is below or above of.
    """
    elements: list[str] = []
    first = 0
    # Adjacent cells of one class are one rectangle.
    for style_class, run in groupby(style_classes):
        end = first + len(list(run))
        if style_class == "none":
            # Without data, each cell is a dash of its own.
            for cell in range(first, end):
                x, y = cell * _CELL + 2, _STRIP_HEIGHT // 2
                elements.append(f'<rect class="none" x="{x}" y="{y}" width="{_CELL - 4}" height="2"/>')
        else:
            width = (end - first) * _CELL - 1
            box = f'x="{first * _CELL}" y="0" width="{width}" height="{_STRIP_HEIGHT}"'
            elements.append(f'<rect class="{style_class}" {box}/>')
        first = end
    # Classes of `levels.BAND_CLASSES` below the band begin with w (worse), those above with b (better).
    below = sum(name.startswith("w") for name in style_classes)
    above = sum(name.startswith("b") for name in style_classes)
    counts = f"{below} below, {above} above {usual}, {style_classes.count('none')} without data"
    label = f"{len(style_classes)} {what}: {counts}"
    return svg_picture(len(style_classes) * _CELL, _STRIP_HEIGHT, label, elements, "strip")


# Size of a picture of curves, and its margins.
_CURVES_WIDTH, _CURVES_HEIGHT = 620, 330
_CURVES_LEFT, _CURVES_RIGHT, _CURVES_TOP, _CURVES_BOTTOM = 66, 14, 30, 44
# Width of a tick with its number.
_TICK_WIDTH = 44
PALETTE = 7  # classes c0 … c6 of the style sheet
DASHES = 5  # o0 … o4


@dataclass(frozen=True)
class Curve:
    """One curve: (x, value) in order of x; `ours` for this site's in a published figure, `behind` for the reverse.

    `earlier` is for earlier values of the curve before it, in its colour.
    """

    name: str
    points: Sequence[tuple[float, float]]
    ours: bool = False
    behind: bool = False
    earlier: bool = False


def curves_picture(curves: Sequence[Curve], axis: str, unit: str, label: str) -> Markup:
    """Draw curves over a logarithmic axis (writers, nodes, …), those of this site over the published ones.

    Args:
        axis: label of the axis.
        unit: of the values.
        label: description for screen readers.
    """
    xs: set[float] = set()
    values: list[float] = []
    for curve in curves:
        for point_x, value in curve.points:
            xs.add(point_x)
            values.append(value)
    positions = sorted(xs)
    top = rounded_axis_end(max(values))
    right, bottom = _CURVES_WIDTH - _CURVES_RIGHT, _CURVES_HEIGHT - _CURVES_BOTTOM
    x = AxisScale(positions[0], positions[-1], _CURVES_LEFT + 8, right - 8, logarithmic=positions[0] > 0)
    y = AxisScale(0.0, top, bottom, _CURVES_TOP)
    elements = [svg_value_axis(y, _CURVES_LEFT, right, value_ticks(top), unit)]
    elements += _measured_ticks(x, positions, bottom)
    elements.append(svg_text("date", (_CURVES_LEFT + right) / 2, _CURVES_HEIGHT - 6, axis))
    # What is drawn later lies above.
    classes = zip(curve_classes(curves), curves, strict=True)
    for style_class, curve in sorted(classes, key=lambda pair: pair[1].ours):
        elements += _curve_elements(curve, style_class, x, y)
    return svg_picture(_CURVES_WIDTH, _CURVES_HEIGHT, label, elements, "picture curves")


def _measured_ticks(x: AxisScale, positions: Sequence[float], bottom: float) -> list[str]:
    """Ticks at measured values (in order), as many as fit."""
    elements: list[str] = []
    previous = -math.inf
    for position in positions:
        at = x(position)
        if at - previous >= _TICK_WIDTH:
            elements.append(svg_line("grid", at, bottom, at, bottom + 4))
            elements.append(svg_text("date", at, bottom + 17, format_number(position)))
            previous = at
    return elements


def _curve_elements(curve: Curve, style_class: str, x: AxisScale, y: AxisScale) -> list[str]:
    """The line of a curve, and a dot at each of its points."""
    points = [(f"{x(position):.1f}", f"{y(value):.1f}") for position, value in curve.points]
    line = " ".join(f"{cx},{cy}" for cx, cy in points)
    radius = 4 if curve.ours else 3
    elements = [f'<polyline class="curve {style_class}" points="{line}"/>']
    for cx, cy in points:
        elements.append(f'<circle class="dot {style_class}" cx="{cx}" cy="{cy}" r="{radius}"/>')
    return elements


def curve_classes(curves: Sequence[Curve]) -> list[str]:
    """Style classes: colours, dashes for `ours`, grey with dashes for `behind`, the colour before for `earlier`."""
    # Each of the three groups is numbered from 0.
    coloured, ours, behind = count(), count(), count()
    classes: list[str] = []
    for curve in curves:
        if curve.ours:
            classes.append(f"ours o{next(ours) % DASHES}")
        elif curve.behind:
            classes.append(f"behind o{next(behind) % DASHES}")
        elif curve.earlier:
            classes.append(f"{classes[-1]} earlier")
        else:
            classes.append(f"c{next(coloured) % PALETTE}")
    return classes


# Width of a picture of rows, its margins, and the height of a row.
_RANGES_WIDTH, _RANGES_RIGHT, _RANGES_TOP, _RANGES_BOTTOM, _ROW = 620, 14, 10, 40, 20
# Width of a letter, and maximum width of the names of rows.
_LETTER, _MAX_LEFT = 7.2, 380
# Width on a phone; an axis that is not longer than the second figure shows every second value.
_NARROW_WIDTH, _FULL_AXIS = 340, 300
# Space for the value beside a bar.
_BAR_VALUE_WIDTH = 56


@dataclass(frozen=True)
class ValueRange:
    """One row; `low` and `high` are None if only one value was published."""

    name: str
    value: float
    low: float | None
    high: float | None


def ranges_picture(rows: Sequence[ValueRange], unit: str, label: str) -> Markup:
    """Draw rows from top to bottom over an axis that starts at zero; `label` is for screen readers."""
    left = min(_MAX_LEFT, 12 + _LETTER * max(len(row.name) for row in rows))
    right = _RANGES_WIDTH - _RANGES_RIGHT
    bottom = _RANGES_TOP + _ROW * len(rows)
    top = rounded_axis_end(max(row.high or row.value for row in rows))
    x = AxisScale(0.0, top, left, right)
    elements = _horizontal_axis(x, value_ticks(top), bottom, unit)
    # Longer names are cut at the edge of the picture.
    longest_name = int(_MAX_LEFT / _LETTER)
    for number, row in enumerate(rows):
        middle = _RANGES_TOP + _ROW * (number + 0.5)
        if row.low is not None and row.high is not None:
            elements.append(svg_line("spread", x(row.low), middle, x(row.high), middle))
        elements.append(svg_text("tick", left - 8, middle + 4, row.name[:longest_name]))
        elements.append(f'<circle class="dot c0" cx="{x(row.value):.1f}" cy="{middle:.1f}" r="4"/>')
    return svg_picture(_RANGES_WIDTH, bottom + _RANGES_BOTTOM, label, elements, "picture curves")


def _horizontal_axis(x: AxisScale, ticks: Sequence[float], bottom: float, unit: str) -> list[str]:
    """Vertical grid lines of rows with their values and the unit below."""
    elements: list[str] = []
    for value in ticks:
        elements.append(svg_line("grid", x(value), _RANGES_TOP, x(value), bottom))
        elements.append(svg_text("date", x(value), bottom + 16, format_number(value)))
    elements.append(svg_text("date", (x.start + x.end) / 2, bottom + 33, unit))
    return elements


@dataclass(frozen=True)
class Bar:
    """One bar; `limit` is marked beside it, for example the peak of the file system."""

    name: str
    value: float
    limit: float | None = None


def bars_pictures(bars: Sequence[Bar], unit: str, label: str) -> Markup:
    """Draw horizontal bars with their values from top to bottom over an axis that starts at zero; also for phones."""
    wide = _bars_picture(bars, unit, label, _RANGES_WIDTH, "picture curves for-wide")
    narrow = _bars_picture(bars, unit, label, _NARROW_WIDTH, "picture curves for-narrow")
    return wide + narrow


def _bars_picture(bars: Sequence[Bar], unit: str, label: str, width: float, style_class: str) -> Markup:
    """One picture of a width, with a style class."""
    max_left = min(_MAX_LEFT, 0.55 * width)
    left = min(max_left, 12 + _LETTER * max(len(bar.name) for bar in bars))
    right = width - _BAR_VALUE_WIDTH
    bottom = _RANGES_TOP + _ROW * len(bars)
    x = AxisScale(0.0, rounded_axis_end(max(bar.limit or bar.value for bar in bars)), left, right)
    ticks = value_ticks(x.high)
    if right - left <= _FULL_AXIS:
        ticks = ticks[::2]
    elements = _horizontal_axis(x, ticks, bottom, unit)
    longest_name = int(max_left / _LETTER)
    for number, bar in enumerate(bars):
        top, end = _RANGES_TOP + _ROW * number, x(bar.value)
        elements.append(svg_text("tick", left - 8, top + 14, bar.name[:longest_name]))
        # At least as wide as a point, so that the smallest value is seen.
        box = f'x="{left:g}" y="{top + 3:g}" width="{max(end - left, 1):.1f}" height="14"'
        elements.append(f'<rect class="bar" {box}/>')
        elements.append(svg_text("bar-value", end + 5, top + 14, format_number(bar.value)))
        if bar.limit is not None:
            elements.append(svg_line("peak", x(bar.limit), top, x(bar.limit), top + _ROW))
    return svg_picture(width, bottom + _RANGES_BOTTOM, label, elements, style_class)


# Size of a row of a forest plot, its margin on both sides, and the limits of its axis.
_FOREST_WIDTH, _FOREST_HEIGHT, _MARGIN = 152, 26, 10
_MIN_RATIO, _MAX_RATIO = 0.01, 100.0
# Ticks of a long and of a short axis of ratios.
_COARSE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_FINE = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 1.6, 2)
# Width of the label of a tick.
_LABEL = 34

Interval = Sequence[float] | None


def forest_scale(ratios: Iterable[tuple[float | None, Interval]], width: float = _FOREST_WIDTH) -> AxisScale:
    """Logarithmic axis of a width that contains all ratios and intervals, and 1; it is limited to 0.01 … 100.

    Args:
        ratios: each with its interval; None for a pair without.
    """
    # At least ± 10 %, so that small differences look small.
    values = [1 / 1.1, 1.1]
    for ratio, interval in ratios:
        # None and 0 have no logarithm.
        values += [value for value in (ratio, *(interval or ())) if value]
    low = max(_MIN_RATIO, min(values))
    high = min(_MAX_RATIO, max(values))
    return AxisScale(low, high, _MARGIN, width - _MARGIN, logarithmic=True)


def forest_axis(scale: AxisScale) -> Markup:
    """Axis for the head of the column."""
    is_narrow = scale.low > _FINE[0] and scale.high < _FINE[-1]
    candidates = _FINE if is_narrow else _COARSE
    inside = [tick for tick in candidates if scale.low <= tick <= scale.high]
    # 1 first, then from the ends inwards, each where there is enough space next to those before.
    inside.sort(key=lambda tick: (tick != 1, -abs(np.log(tick))))
    elements_by_position: dict[float, str] = {}
    for tick in inside:
        at = scale(tick)
        if all(abs(at - other) >= _LABEL for other in elements_by_position):
            elements_by_position[at] = svg_line("grid", at, 14, at, 20) + svg_text("date", at, 10, f"×{tick:g}")
    elements = [elements_by_position[at] for at in sorted(elements_by_position)]
    return svg_picture(scale.end + _MARGIN, 20, "axis of the ratios, logarithmic", elements, "picture forest")


_BAR_HEIGHT = 18


def band_bar(gain: float, band: float | None, style_class: str, scale: AxisScale) -> Markup:
    """Draw a result as a bar from its accepted level (1) to its gain, over its normal band.

    Args:
        band: half width of the band in natural logarithm; None without a noise estimate.
        style_class: of `levels.BAND_CLASSES`, or `unassessed`.
    """
    level_x, gain_x = scale(1), scale.limited(gain)
    # Without a noise estimate the band is the accepted level only.
    half_width = band or 0.0
    low, high = scale.limited(math.exp(-half_width)), scale.limited(math.exp(half_width))
    left, width = min(level_x, gain_x), abs(gain_x - level_x)
    elements = [
        f'<rect class="normal" x="{low:.1f}" y="2" width="{high - low:.1f}" height="{_BAR_HEIGHT - 4}"/>',
        f'<rect class="{style_class}" x="{left:.1f}" y="5" width="{width:.1f}" height="8"/>',
        svg_line("grid one", level_x, 0, level_x, _BAR_HEIGHT),
        svg_line("end", gain_x, 3, gain_x, _BAR_HEIGHT - 3),
    ]
    description = f"{100 * gain:.0f} % of the accepted level"
    if band is not None:
        description += f", normal band {100 * math.exp(-band):.0f} to {100 * math.exp(band):.0f} %"
    return svg_picture(scale.end + _MARGIN, _BAR_HEIGHT, description, elements, "picture bar")


def forest_picture(
    ratio: float | None, interval: Interval, verdict: str, scale: AxisScale, simultaneous: Interval = None
) -> Markup:
    """Draw one row: a line at 1, the interval as a bar, the ratio as a dot.

    Args:
        verdict: `faster` or `slower`; others are undecided and drawn hollow.
        simultaneous: the interval that holds together with those of all rows, drawn as a thin line.
    """
    middle = _FOREST_HEIGHT / 2
    elements = [svg_line("grid one", scale(1), 0, scale(1), _FOREST_HEIGHT)]
    description = "no ratio"
    # What is beyond the axis is drawn at its end.
    if simultaneous:
        low, high = simultaneous
        elements.append(svg_line("together", scale.limited(low), middle, scale.limited(high), middle))
    if interval:
        low, high = interval
        elements.append(svg_line(f"interval {verdict}", scale.limited(low), middle, scale.limited(high), middle))
    if ratio:
        elements.append(f'<circle class="ratio {verdict}" cx="{scale.limited(ratio):.1f}" cy="{middle:g}" r="4.5"/>')
        description = f"ratio {ratio:.3g}"
    if ratio and interval:
        description += f", interval {interval[0]:.3g} to {interval[1]:.3g}"
    if ratio and simultaneous:
        description += f", with all cases {simultaneous[0]:.3g} to {simultaneous[1]:.3g}"
    return svg_picture(_FOREST_WIDTH, _FOREST_HEIGHT, description, elements, "picture forest")


def samples_picture(left: Sequence[float], right: Sequence[float], names: tuple[str, str]) -> Markup:
    """Draw each sample of both sides of a pair as a stroke, left above right, on a common axis from zero.

    Args:
        names: of the left and of the right side, for screen readers.
    """
    scale = AxisScale(0.0, max(*left, *right), _MARGIN, _FOREST_WIDTH - _MARGIN)
    elements = [svg_line("grid", scale(0.0), 0, scale(0.0), _FOREST_HEIGHT)]
    # The left side in the upper half, the right side in the lower half.
    elements.append(_sample_strokes(left, "before", 1, scale))
    elements.append(_sample_strokes(right, "after", _FOREST_HEIGHT / 2 + 1, scale))
    descriptions: list[str] = []
    for name, samples in zip(names, (left, right), strict=True):
        samples_count = format_count(len(samples), "sample")
        descriptions.append(f"{name}: {samples_count} from {min(samples):.4g} to {max(samples):.4g}")
    return svg_picture(_FOREST_WIDTH, _FOREST_HEIGHT, "; ".join(descriptions), elements, "picture forest")


def _sample_strokes(samples: Sequence[float], style_class: str, top: float, scale: AxisScale) -> str:
    """One stroke per sample, as a path with a style class."""
    # Strokes at the same tenth of a point are merged.
    positions = np.unique(np.round(scale.array(np.asarray(samples)), 1))
    strokes = "".join(f"M{position:g} {top:g}v11" for position in positions.tolist())
    return f'<path class="strokes {style_class}" d="{strokes}"/>'
