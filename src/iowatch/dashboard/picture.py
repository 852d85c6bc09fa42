"""A drawn picture of a series as SVG: what a reader without JavaScript, a printer or a ticket sees."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from markupsafe import Markup, escape

from iowatch.dashboard.collect import SeriesView
from iowatch.units import format_number

_WIDTH, _HEIGHT = 960, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 28
_MOST_POINTS = 2000  # more cannot be told apart at this width


def series_picture(view: SeriesView, samples: Sequence[tuple[int, int, tuple[float, ...]]]) -> Markup:
    """Samples as dots, the headline as a line; y starts at zero, axes carry units."""
    times = view.points.time.tolist()
    headline = (view.points.max if view.metric.direction != "lower" else view.points.min).tolist()
    top = max((max(values) for _t, _r, values in samples), default=1.0) or 1.0
    x = _Axis(times[0], times[-1], _LEFT, _WIDTH - _RIGHT)
    y = _Axis(0.0, top * 1.05, _HEIGHT - _BOTTOM, _TOP)
    dots = [(time, value) for time, _run, values in samples for value in values]
    dots = dots[:: max(1, len(dots) // _MOST_POINTS)]
    parts = [_grid(y, view.metric.unit), _dates(x, times[0], times[-1])]
    parts.append(
        Markup("").join(
            Markup('<circle class="sample" cx="{:.1f}" cy="{:.1f}" r="2"/>').format(x(t), y(v)) for t, v in dots
        )
    )
    line = " ".join(f"{x(t):.1f},{y(v):.1f}" for t, v in zip(times, headline, strict=True))
    parts.append(Markup('<polyline class="headline" points="{}"/>').format(line))
    label = (
        f"{view.metric.label} of {len(times)} nights, newest {format_number(headline[-1])} {view.metric.unit}"
    )
    head = Markup('<svg class="picture" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
        _WIDTH, _HEIGHT, label
    )
    return head + Markup("").join(parts) + Markup("</svg>")


class _Axis:
    """Linear scale from data to picture; one single value lies in the middle."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high, self.start, self.end = low, high, start, end

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + share * (self.end - self.start)


def _grid(y: _Axis, unit: str) -> Markup:
    lines = []
    for step in range(5):
        value = y.high * step / 4
        lines.append(
            Markup(
                '<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>'
                '<text class="tick" x="{3}" y="{4:.1f}">{5}</text>'
            ).format(_LEFT, _WIDTH - _RIGHT, y(value), _LEFT - 6, y(value) + 4, format_number(value))
        )
    return Markup("").join(lines) + Markup('<text class="unit" x="4" y="12">{}</text>').format(escape(unit))


def _dates(x: _Axis, first: int, last: int) -> Markup:
    marks = [(first, "start"), (last, "end")] if last > first else [(first, "middle")]
    return Markup("").join(
        Markup('<text class="tick date" x="{:.1f}" y="{}" text-anchor="{}">{}</text>').format(
            x(moment), _HEIGHT - 8, anchor, datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")
        )
        for moment, anchor in marks
    )
