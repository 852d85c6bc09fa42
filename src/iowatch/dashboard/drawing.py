"""The parts of every picture: scales, ticks, elements. SVG without styles: those are in the style sheet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from iowatch.dashboard.plain import plain
from iowatch.units import format_number

DAY_S = 86400
# Two missing nights of a daily series are a gap like any other; more are a pause.
_PAUSE_S = 3.5 * DAY_S
# Half of a date's width in a picture.
_HALF_DATE = 24


@dataclass(frozen=True)
class Scale:
    """From data to picture, linear or logarithmic; one single value lies in the middle.

    `zone` is that of the dates on a scale of times (epoch s).
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
        """The same for many, on a linear scale; shape (n,) in and out."""
        share = (
            (values - self.low) / (self.high - self.low) if self.high > self.low else np.full(len(values), 0.5)
        )
        return np.asarray(self.start + share * (self.end - self.start), dtype=np.float64)


def nice_top(highest: float) -> float:
    """The end of an axis that starts at zero: a round number a little above the highest value."""
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
    """Beginnings of days, months or years of a zone within the span, with their labels."""
    days = max((last - first) / DAY_S, 1e-9)
    if days <= 60:
        every = 7 * math.ceil(days / 7 / most) if days > 1.5 * most else max(1, math.ceil(days / most))
        return [(d.timestamp(), f"{d:%-d %b}") for d in _days(first, last, every, zone)]
    months = _months(first, last, zone)
    every = next(e for e in (1, 2, 3, 6, 12, 24, 60, 120, 1200) if len(months) / e <= most)
    chosen = [m for m in months if (m.year * 12 + m.month - 1) % every == 0]
    return [(m.timestamp(), f"{m:%b %Y}" if every < 12 else f"{m:%Y}") for m in chosen]


def _days(first: float, last: float, every: int, zone: tzinfo) -> list[datetime]:
    """Midnights by the clock of a zone: days of 23 or 25 hours move none of them."""
    start = datetime.fromtimestamp(first, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    start += timedelta(days=start.timestamp() < first)
    count = math.ceil((last - first) / DAY_S / every) + 1
    found = (start + timedelta(days=every * n) for n in range(count))
    return [moment for moment in found if moment.timestamp() <= last]


def _months(first: float, last: float, zone: tzinfo) -> list[datetime]:
    moment = datetime.fromtimestamp(first, zone).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    found = []
    while moment.timestamp() <= last:
        if moment.timestamp() >= first:
            found.append(moment)
        moment = moment.replace(year=moment.year + moment.month // 12, month=moment.month % 12 + 1)
    return found


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    """A straight line of a class."""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def text(kind: str, x: float, y: float, content: str) -> str:
    """A text of a class; whatever it holds is shown, not interpreted."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(plain(content))}</text>'


def stretches(times: NDArray[Any]) -> list[slice]:
    """Parts of times (epoch s, in order, shape (n,)) without a pause: no line is drawn over missing nights."""
    if not len(times):
        return []
    ends = np.flatnonzero(np.diff(times) > pause_s(times)) + 1
    return [slice(a, b) for a, b in pairwise([0, *ends.tolist(), len(times)])]


def pause_s(times: NDArray[Any]) -> float:
    """Seconds without a result that break a line: more than two nights missing, in the rhythm of the series."""
    gaps = np.diff(times)
    return max(_PAUSE_S, 3.5 * float(np.median(gaps))) if len(gaps) else _PAUSE_S


def broken_line(kind: str, times: NDArray[Any], xs: NDArray[Any], ys: NDArray[Any]) -> str:
    """A line through points, shapes (n,), broken where nights are missing; a night alone is a dot."""
    parts = []
    for part in stretches(times):
        one = np.repeat(part.start, 2) if part.stop - part.start == 1 else part
        parts.append(f'<polyline class="{kind}" points="{repeated(" @,@", xs[one], ys[one])[1:]}"/>')
    return "".join(parts)


def polyline(kind: str, points: Iterable[tuple[float, float]]) -> str:
    """A line through points."""
    return f'<polyline class="{kind}" points="{" ".join([f"{x:.1f},{y:.1f}" for x, y in points])}"/>'


def repeated(form: str, *columns: NDArray[Any]) -> str:
    """`form` once a point, with a coordinate (one decimal, not below 0) in the place of each `@`; shapes (n,).

    Whole numbers in one go take a third of the time of `f"{x:.1f}"` for each.
    """
    tenths = np.rint(np.maximum(np.column_stack(columns), 0.0) * 10).astype(np.int64)
    parts = np.stack(np.divmod(tenths, 10), axis=-1)
    return form.replace("@", "%d.%d") * len(tenths) % tuple(parts.ravel().tolist())


def value_axis(y: Scale, left: float, right: float, ticks: Sequence[float], unit: str) -> str:
    """Grid lines with their values, and the unit at the top."""
    parts = [
        line("grid", left, y(v), right, y(v)) + text("tick", left - 6, y(v) + 4, format_number(v))
        for v in ticks
    ]
    return "".join(parts) + (text("unit", 2, y(y.high) - 8, unit) if unit else "")


def time_axis(x: Scale, bottom: float, most: int = 7) -> str:
    """Dates under the picture; one at its right end stays inside."""
    parts = []
    for moment, label in date_ticks(x.low, x.high, most, x.zone):
        at = x(moment)
        last = at > x.end - _HALF_DATE
        parts.append(line("grid", at, bottom, at, bottom + 4))
        parts.append(text("date last" if last else "date", x.end + 4 if last else at, bottom + 17, label))
    return "".join(parts)


def picture(width: float, height: float, label: str, parts: Iterable[str], kind: str = "picture") -> Markup:
    """A whole picture; `label` says in words what it shows."""
    # Cells may be pressed or drawn out; text may not.
    fit = ' preserveAspectRatio="none"' if kind == "strip" else ""
    said = escape(plain(label))
    head = f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}"{fit} role="img" aria-label="{said}">'
    # Numbers are formatted and texts escaped where the parts are made.
    return Markup(head + "".join(parts) + "</svg>")  # noqa: S704  # nosec B704
