"""A forest plot in the cells of a table: ratios and intervals on one axis, and the samples of both sides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from markupsafe import Markup

from iowatch.dashboard.drawing import Scale, line, picture, text
from iowatch.units import counted

_WIDTH, _HEIGHT, _MARGIN = 152, 26, 10
_LEAST, _MOST = 0.01, 100.0
_COARSE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_FINE = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 1.6, 2)
# Room that the label of a tick needs.
_LABEL = 34

Interval = Sequence[float] | None


def forest_scale(ratios: Iterable[tuple[float | None, Interval]]) -> Scale:
    """A logarithmic axis that holds all ratios and intervals, and 1; ends beyond a hundredfold are cut off."""
    values = [1 / 1.1, 1.1]
    for ratio, interval in ratios:
        values += [one for one in (ratio, *(interval or ())) if one]
    low, high = max(_LEAST, min(values)), min(_MOST, max(values))
    return Scale(low, high, _MARGIN, _WIDTH - _MARGIN, logarithmic=True)


def forest_axis(scale: Scale) -> Markup:
    """The axis for the head of the column."""
    parts = []
    for tick in _ticks(scale):
        at = scale(tick)
        parts.append(line("grid", at, 14, at, 20) + text("date", at, 10, f"×{tick:g}"))
    return picture(_WIDTH, 20, "axis of the ratios, logarithmic", parts, "picture forest")


def _ticks(scale: Scale) -> list[float]:
    """1 first, then what has room beside what is there."""
    known = _FINE if scale.low > _FINE[0] and scale.high < _FINE[-1] else _COARSE
    inside = [tick for tick in known if scale.low <= tick <= scale.high]
    chosen: list[float] = []
    for tick in sorted(inside, key=lambda value: (value != 1, -abs(np.log(value)))):
        if all(abs(scale(tick) - scale(other)) >= _LABEL for other in chosen):
            chosen.append(tick)
    return sorted(chosen)


def forest_picture(ratio: float | None, interval: Interval, kind: str, scale: Scale) -> Markup:
    """One row: a line at 1, the interval as a bar, the ratio as a dot.

    Args:
        kind: `faster`, `slower` or anything else, which is drawn hollow: nothing was decided.
    """
    middle = _HEIGHT / 2
    one = scale(1)
    parts = [line("grid one", one, 0, one, _HEIGHT)]
    if interval:
        low, high = (scale(min(max(end, scale.low), scale.high)) for end in interval)
        parts.append(line(f"interval {kind}", low, middle, high, middle))
    if ratio:
        at = scale(min(max(ratio, scale.low), scale.high))
        parts.append(f'<circle class="ratio {kind}" cx="{at:.1f}" cy="{middle:g}" r="4.5"/>')
    return picture(_WIDTH, _HEIGHT, _told(ratio, interval), parts, "picture forest")


def _told(ratio: float | None, interval: Interval) -> str:
    if not ratio:
        return "no ratio"
    return f"ratio {ratio:.3g}" + (f", interval {interval[0]:.3g} to {interval[1]:.3g}" if interval else "")


def samples_picture(left: Sequence[float], right: Sequence[float], names: tuple[str, str]) -> Markup:
    """Every sample of both sides as a stroke, the left above the right, on one axis from zero."""
    both = [*left, *right]
    scale = Scale(0.0, max(both), _MARGIN, _WIDTH - _MARGIN)
    parts = [line("grid", scale(0.0), 0, scale(0.0), _HEIGHT)]
    told = []
    for name, kind, top, values in (
        (names[0], "before", 1, left),
        (names[1], "after", _HEIGHT / 2 + 1, right),
    ):
        # Strokes on the same tenth of a point are one.
        places = np.unique(np.round(scale.array(np.asarray(values)), 1))
        strokes = "".join(f"M{place:g} {top:g}v11" for place in places.tolist())
        parts.append(f'<path class="strokes {kind}" d="{strokes}"/>')
        told.append(f"{name}: {counted(len(values), 'sample')} from {min(values):.4g} to {max(values):.4g}")
    return picture(_WIDTH, _HEIGHT, "; ".join(told), parts, "picture forest")
