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
# Half the width of a date in a picture.
_HALF_DATE = 24


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
            low, high, value = math.log(low), math.log(high), math.log(max(value, 1e-300))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def array(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Scale an array on a linear scale; shape (n,) in and out."""
        share = (values - self.low) / (self.high - self.low) if self.high > self.low else np.full(len(values), 0.5)
        return np.asarray(self.start + share * (self.end - self.start), dtype=np.float64)


def rounded_axis_end(highest: float) -> float:
    """End of an axis that starts at zero: a round number slightly above the highest value."""
    if not highest > 0:
        return 1.0
    step = 10 ** math.floor(math.log10(highest * 1.03))
    return float(next(m * step for m in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if m * step >= highest * 1.03))


def value_ticks(top: float) -> list[float]:
    """Four to six round values from zero to `top`."""
    step = top / 4
    size = 10 ** math.floor(math.log10(step))
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= step * 0.8)
    return [step * i for i in range(int(top / step + 1e-9) + 1)]


def date_ticks(first: float, last: float, most: int = 7, zone: tzinfo = UTC) -> list[tuple[float, str]]:
    """Starts of days, months or years in a zone within the span (epoch s), with their labels."""
    days = max((last - first) / DAY_S, 1e-9)
    day = datetime.fromtimestamp(first, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    if days <= 60:
        every = 7 * math.ceil(days / 7 / most) if days > 1.5 * most else max(1, math.ceil(days / most))
        # In local time of the zone, so that days of 23 or 25 hours do not shift midnights.
        day += timedelta(days=day.timestamp() < first)
        found = (day + timedelta(days=every * n) for n in range(math.ceil(days / every) + 1))
        return [(d.timestamp(), f"{d:%-d %b}") for d in found if d.timestamp() <= last]
    months, month = [], day.replace(day=1)
    while month.timestamp() <= last:
        months += [month] if month.timestamp() >= first else []
        month = month.replace(year=month.year + month.month // 12, month=month.month % 12 + 1)
    every = next(e for e in (1, 2, 3, 6, 12, 24, 60, 120, 1200) if len(months) / e <= most)
    chosen = [m for m in months if (m.year * 12 + m.month - 1) % every == 0]
    return [(m.timestamp(), f"{m:%b %Y}" if every < 12 else f"{m:%Y}") for m in chosen]


def svg_line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    """Straight line with a style class."""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def svg_text(kind: str, x: float, y: float, content: str) -> str:
    """Text with a style class; the content is escaped."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(escape_controls(content))}</text>'


def split_at_gaps(times: NDArray[Any]) -> list[slice]:
    """Parts of times (epoch s, in order, shape (n,)) without a gap: no line is drawn over missing observations."""
    if not len(times):
        return []
    ends = np.flatnonzero(np.diff(times) > gap_threshold_s(times)) + 1
    return [slice(a, b) for a, b in pairwise([0, *ends.tolist(), len(times)])]


def gap_threshold_s(times: NDArray[Any]) -> float:
    """Seconds without a result that break a line: more than two missing observations at the median interval."""
    gaps = np.diff(times)
    return max(MIN_GAP_S, GAP_INTERVALS * float(np.median(gaps))) if len(gaps) else MIN_GAP_S


def svg_line_with_gaps(kind: str, times: NDArray[Any], xs: NDArray[Any], ys: NDArray[Any]) -> str:
    """Line through points, shapes (n,), broken at gaps; a single observation between gaps is a dot."""
    parts = []
    for part in split_at_gaps(times):
        one = np.repeat(part.start, 2) if part.stop - part.start == 1 else part
        parts.append(f'<polyline class="{kind}" points="{svg_repeat(" @,@", xs[one], ys[one])[1:]}"/>')
    return "".join(parts)


def svg_repeat(form: str, *columns: NDArray[Any]) -> str:
    """`form` once per point, with a coordinate (one decimal, not below 0) for each `@`; shapes (n,).

    Formatting integers at once takes a third of the time of `f"{x:.1f}"` per value.
    """
    tenths = np.rint(np.maximum(np.column_stack(columns), 0.0) * 10).astype(np.int64)
    parts = np.stack(np.divmod(tenths, 10), axis=-1)
    return form.replace("@", "%d.%d") * len(tenths) % tuple(parts.ravel().tolist())


def svg_value_axis(y: AxisScale, left: float, right: float, ticks: Sequence[float], unit: str, offset: int = 6) -> str:
    """Grid lines with their values to the left, and the unit at the top."""
    parts = []
    for v in ticks:
        parts.append(svg_line("grid", left, y(v), right, y(v)))
        parts.append(svg_text("tick", left - offset, y(v) + 4, format_number(v)))
    return "".join(parts) + (svg_text("unit", 2, y(y.high) - 8, unit) if unit else "")


def svg_time_axis(x: AxisScale, bottom: float, most: int = 7) -> str:
    """Dates below the picture; a date at the right end is kept inside."""
    parts = []
    for moment, label in date_ticks(x.low, x.high, most, x.zone):
        at = x(moment)
        last = at > x.end - _HALF_DATE
        parts.append(svg_line("grid", at, bottom, at, bottom + 4))
        parts.append(svg_text("date last" if last else "date", x.end + 4 if last else at, bottom + 17, label))
    return "".join(parts)


def svg_picture(width: float, height: float, label: str, parts: Iterable[str], kind: str = "picture") -> Markup:
    """Complete picture; `label` describes it for screen readers."""
    # Strips of cells may be distorted, pictures with text may not.
    fit = ' preserveAspectRatio="none"' if kind == "strip" else ""
    described = escape(escape_controls(label))
    head = f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}"{fit} role="img" aria-label="{described}">'
    # Numbers are formatted and texts escaped where the parts are made.
    return Markup(head + "".join(parts) + "</svg>")  # noqa: S704  # nosec B704


_CELL, _STRIP_HEIGHT = 7, 20


def strip_picture(kinds: Sequence[str], what: str = "days") -> Markup:
    """Cells from the oldest to the newest observation (or of series).

    Args:
        kinds: style classes: of `levels.BAND_CLASSES`, `none` (a dash) without data, `unassessed` (an outline).
    """
    below, above = (sum(kind[0] == name for kind in kinds) for name in "wb")
    counts = f"{below} below, {above} above the normal band, {kinds.count('none')} without data"
    parts, at = [], 0
    for kind, run in groupby(kinds):
        end = at + len(list(run))
        if kind == "none":
            place = f'y="{_STRIP_HEIGHT // 2}" width="{_CELL - 4}" height="2"'
            parts += [f'<rect class="none" x="{n * _CELL + 2}" {place}/>' for n in range(at, end)]
        else:
            place = f'x="{at * _CELL}" y="0" width="{(end - at) * _CELL - 1}" height="{_STRIP_HEIGHT}"'
            parts.append(f'<rect class="{kind}" {place}/>')
        at = end
    return svg_picture(len(kinds) * _CELL, _STRIP_HEIGHT, f"{len(kinds)} {what}: {counts}", parts, "strip")


_CURVES_WIDTH, _CURVES_HEIGHT = 620, 330
_CURVES_LEFT, _CURVES_RIGHT, _CURVES_TOP, _CURVES_BOTTOM = 66, 14, 30, 44
PALETTE = 7  # classes c0 … c6 of the style sheet
DASHES = 5  # o0 … o4


@dataclass(frozen=True)
class Curve:
    """One curve: (x, value) in order of x; `ours` for this site's in a published figure, `behind` for the reverse."""

    name: str
    points: Sequence[tuple[float, float]]
    ours: bool = False
    behind: bool = False


def curves_picture(curves: Sequence[Curve], axis: str, unit: str, label: str) -> Markup:
    """Draw curves over a logarithmic axis (writers, nodes, …), those of this site over the published ones."""
    xs = sorted({x for curve in curves for x, _ in curve.points})
    top = rounded_axis_end(max(v for curve in curves for _, v in curve.points))
    right, bottom = _CURVES_WIDTH - _CURVES_RIGHT, _CURVES_HEIGHT - _CURVES_BOTTOM
    x = AxisScale(xs[0], xs[-1], _CURVES_LEFT + 8, right - 8, logarithmic=xs[0] > 0)
    y = AxisScale(0.0, top, bottom, _CURVES_TOP)
    parts = [svg_value_axis(y, _CURVES_LEFT, right, value_ticks(top), unit)]
    last = -1000.0
    # Ticks at measured values, as many as fit.
    for value in xs:
        if x(value) - last >= 44:
            last = x(value)
            parts += [svg_line("grid", last, bottom, last, bottom + 4)]
            parts += [svg_text("date", last, bottom + 17, format_number(value))]
    parts.append(svg_text("date", (_CURVES_LEFT + right) / 2, _CURVES_HEIGHT - 6, axis))
    for kind, curve in sorted(zip(curve_classes(curves), curves, strict=True), key=lambda pair: pair[1].ours):
        places = [(f"{x(a):.1f}", f"{y(b):.1f}") for a, b in curve.points]
        parts.append(f'<polyline class="curve {kind}" points="{" ".join(map(",".join, places))}"/>')
        radius = 4 if curve.ours else 3
        parts += [f'<circle class="dot {kind}" cx="{a}" cy="{b}" r="{radius}"/>' for a, b in places]
    return svg_picture(_CURVES_WIDTH, _CURVES_HEIGHT, label, parts, "picture curves")


def curve_classes(curves: Sequence[Curve]) -> list[str]:
    """Style classes: colours, dashes for `ours`, grey with dashes for `behind`."""
    main, ours, behind = count(), count(), count()
    return [
        f"ours o{next(ours) % DASHES}"
        if one.ours
        else f"behind o{next(behind) % DASHES}"
        if one.behind
        else f"c{next(main) % PALETTE}"
        for one in curves
    ]


_RANGES_WIDTH, _RANGES_RIGHT, _RANGES_TOP, _RANGES_BOTTOM, _ROW = 620, 14, 10, 40, 20
# Width of a letter, and maximum width of the names of rows.
_LETTER, _MAX_LEFT = 7.2, 380
# On a phone every second value of the axis is shown.
_NARROW_WIDTH, _FULL_AXIS = 340, 300


@dataclass(frozen=True)
class ValueRange:
    """One row; `low` and `high` are None if only one value was published."""

    name: str
    value: float
    low: float | None
    high: float | None


def ranges_picture(rows: Sequence[ValueRange], unit: str, label: str) -> Markup:
    """Draw rows from top to bottom over an axis that starts at zero."""
    left = min(_MAX_LEFT, 12 + _LETTER * max(len(row.name) for row in rows))
    bottom = _RANGES_TOP + _ROW * len(rows)
    top = rounded_axis_end(max(row.high or row.value for row in rows))
    x = AxisScale(0.0, top, left, _RANGES_WIDTH - _RANGES_RIGHT)
    most = int(_MAX_LEFT / _LETTER)
    parts = []
    for v in value_ticks(top):
        parts.append(svg_line("grid", x(v), _RANGES_TOP, x(v), bottom))
        parts.append(svg_text("date", x(v), bottom + 16, format_number(v)))
    parts.append(svg_text("date", (left + _RANGES_WIDTH - _RANGES_RIGHT) / 2, bottom + 33, unit))
    for number, row in enumerate(rows):
        y = _RANGES_TOP + _ROW * (number + 0.5)
        if row.low is not None and row.high is not None:
            parts.append(svg_line("spread", x(row.low), y, x(row.high), y))
        parts.append(svg_text("tick", left - 8, y + 4, row.name[:most]))
        parts.append(f'<circle class="dot c0" cx="{x(row.value):.1f}" cy="{y:.1f}" r="4"/>')
    return svg_picture(_RANGES_WIDTH, bottom + _RANGES_BOTTOM, label, parts, "picture curves")


@dataclass(frozen=True)
class Bar:
    """One bar; `limit` is marked beside it, for example the peak of the file system."""

    name: str
    value: float
    limit: float | None = None


def bars_pictures(bars: Sequence[Bar], unit: str, label: str) -> Markup:
    """Draw horizontal bars with their values from top to bottom over an axis that starts at zero; also for phones."""
    kinds = ((_RANGES_WIDTH, "picture curves for-wide"), (_NARROW_WIDTH, "picture curves for-narrow"))
    return Markup().join(_bars_picture(bars, unit, label, width, kind) for width, kind in kinds)


def _bars_picture(bars: Sequence[Bar], unit: str, label: str, width: float, kind: str) -> Markup:
    most = min(_MAX_LEFT, 0.55 * width)
    left = min(most, 12 + _LETTER * max(len(bar.name) for bar in bars))
    bottom, right = _RANGES_TOP + _ROW * len(bars), width - 56
    x = AxisScale(0.0, rounded_axis_end(max(bar.limit or bar.value for bar in bars)), left, right)
    parts = []
    for v in value_ticks(x.high)[:: 1 if right - left > _FULL_AXIS else 2]:
        parts.append(svg_line("grid", x(v), _RANGES_TOP, x(v), bottom))
        parts.append(svg_text("date", x(v), bottom + 16, format_number(v)))
    parts.append(svg_text("date", (left + right) / 2, bottom + 33, unit))
    for number, bar in enumerate(bars):
        y, end = _RANGES_TOP + _ROW * number, x(bar.value)
        parts.append(svg_text("tick", left - 8, y + 14, bar.name[: int(most / _LETTER)]))
        parts.append(f'<rect class="bar" x="{left:g}" y="{y + 3:g}" width="{max(end - left, 1):.1f}" height="14"/>')
        parts.append(svg_text("bar-value", end + 5, y + 14, format_number(bar.value)))
        if bar.limit is not None:
            parts.append(svg_line("peak", x(bar.limit), y, x(bar.limit), y + _ROW))
    return svg_picture(width, bottom + _RANGES_BOTTOM, label, parts, kind)


_FOREST_WIDTH, _FOREST_HEIGHT, _MARGIN = 152, 26, 10
_MIN_RATIO, _MAX_RATIO = 0.01, 100.0
_COARSE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_FINE = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 1.6, 2)
# Width of the label of a tick.
_LABEL = 34

Interval = Sequence[float] | None


def forest_scale(ratios: Iterable[tuple[float | None, Interval]], width: float = _FOREST_WIDTH) -> AxisScale:
    """Logarithmic axis of a width that contains all ratios and intervals, and 1; it is limited to 0.01 … 100."""
    values = [1 / 1.1, 1.1]
    for ratio, interval in ratios:
        values += [one for one in (ratio, *(interval or ())) if one]
    low, high = max(_MIN_RATIO, min(values)), min(_MAX_RATIO, max(values))
    return AxisScale(low, high, _MARGIN, width - _MARGIN, logarithmic=True)


def forest_axis(scale: AxisScale) -> Markup:
    """Axis for the head of the column."""
    known = _FINE if scale.low > _FINE[0] and scale.high < _FINE[-1] else _COARSE
    inside = [tick for tick in known if scale.low <= tick <= scale.high]
    chosen: dict[float, str] = {}
    # 1 first, then ticks with enough space next to those already chosen.
    for tick in sorted(inside, key=lambda value: (value != 1, -abs(np.log(value)))):
        at = scale(tick)
        if all(abs(at - other) >= _LABEL for other in chosen):
            chosen[at] = svg_line("grid", at, 14, at, 20) + svg_text("date", at, 10, f"×{tick:g}")
    parts = [part for _, part in sorted(chosen.items())]
    return svg_picture(scale.end + _MARGIN, 20, "axis of the ratios, logarithmic", parts, "picture forest")


_BAR_HEIGHT = 18


def band_bar(gain: float, band: float | None, kind: str, scale: AxisScale) -> Markup:
    """Draw a result as a bar from its accepted level (1) to its gain, over its normal band.

    Args:
        band: half width of the band in natural logarithm; None without a noise estimate.
        kind: style class of `levels.BAND_CLASSES`, or `unassessed`.
    """
    one, at = scale(1), scale(min(max(gain, scale.low), scale.high))
    low, high = (scale(min(max(math.exp(end), scale.low), scale.high)) for end in (-(band or 0.0), band or 0.0))
    parts = [f'<rect class="normal" x="{low:.1f}" y="2" width="{high - low:.1f}" height="{_BAR_HEIGHT - 4}"/>']
    parts.append(f'<rect class="{kind}" x="{min(one, at):.1f}" y="5" width="{abs(at - one):.1f}" height="8"/>')
    parts += [svg_line("grid one", one, 0, one, _BAR_HEIGHT), svg_line("end", at, 3, at, _BAR_HEIGHT - 3)]
    described = f"{100 * gain:.0f} % of the accepted level"
    if band is not None:
        described += f", normal band {100 * math.exp(-band):.0f} to {100 * math.exp(band):.0f} %"
    return svg_picture(scale.end + _MARGIN, _BAR_HEIGHT, described, parts, "picture bar")


def forest_picture(ratio: float | None, interval: Interval, kind: str, scale: AxisScale) -> Markup:
    """Draw one row: a line at 1, the interval as a bar, the ratio as a dot.

    Args:
        kind: `faster` or `slower`; others are undecided and drawn hollow.
    """
    middle = _FOREST_HEIGHT / 2
    one = scale(1)
    parts = [svg_line("grid one", one, 0, one, _FOREST_HEIGHT)]
    if interval:
        low, high = (scale(min(max(end, scale.low), scale.high)) for end in interval)
        parts.append(svg_line(f"interval {kind}", low, middle, high, middle))
    if ratio:
        at = scale(min(max(ratio, scale.low), scale.high))
        parts.append(f'<circle class="ratio {kind}" cx="{at:.1f}" cy="{middle:g}" r="4.5"/>')
    described = f"ratio {ratio:.3g}" if ratio else "no ratio"
    if ratio and interval:
        described += f", interval {interval[0]:.3g} to {interval[1]:.3g}"
    return svg_picture(_FOREST_WIDTH, _FOREST_HEIGHT, described, parts, "picture forest")


def samples_picture(left: Sequence[float], right: Sequence[float], names: tuple[str, str]) -> Markup:
    """Draw each sample of both sides as a stroke, left above right, on a common axis from zero."""
    both = [*left, *right]
    scale = AxisScale(0.0, max(both), _MARGIN, _FOREST_WIDTH - _MARGIN)
    parts = [svg_line("grid", scale(0.0), 0, scale(0.0), _FOREST_HEIGHT)]
    texts = []
    for name, kind, top, values in ((names[0], "before", 1, left), (names[1], "after", _FOREST_HEIGHT / 2 + 1, right)):
        # Strokes at the same tenth of a point are merged.
        places = np.unique(np.round(scale.array(np.asarray(values)), 1))
        strokes = "".join(f"M{place:g} {top:g}v11" for place in places.tolist())
        parts.append(f'<path class="strokes {kind}" d="{strokes}"/>')
        texts.append(f"{name}: {format_count(len(values), 'sample')} from {min(values):.4g} to {max(values):.4g}")
    return svg_picture(_FOREST_WIDTH, _FOREST_HEIGHT, "; ".join(texts), parts, "picture forest")
