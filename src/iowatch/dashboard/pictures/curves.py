"""Bandwidth against processes, as the papers draw it: published curves, and this site's own over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from markupsafe import Markup

from iowatch.dashboard.drawing import Scale, line, nice_top, picture, polyline, text, value_axis, value_ticks
from iowatch.units import format_number

_WIDTH, _HEIGHT = 620, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 14, 30, 44
PALETTE = 7  # classes c0 … c6 of the style sheet
DASHES = 5  # o0 … o4


@dataclass(frozen=True)
class Curve:
    """One curve: (x, value) in order of x; `ours` for this site's own measurements."""

    name: str
    points: Sequence[tuple[float, float]]
    ours: bool = False


def curves_picture(curves: Sequence[Curve], axis: str, unit: str, label: str) -> Markup:
    """Draw curves over a logarithmic axis of `axis` (writers, nodes, …)."""
    xs = sorted({x for curve in curves for x, _ in curve.points})
    top = nice_top(max(v for curve in curves for _, v in curve.points))
    x = Scale(xs[0], xs[-1], _LEFT + 8, _WIDTH - _RIGHT - 8, logarithmic=xs[0] > 0)
    y = Scale(0.0, top, _HEIGHT - _BOTTOM, _TOP)
    parts = [
        value_axis(y, _LEFT, _WIDTH - _RIGHT, value_ticks(top), unit),
        *_ticks(xs, x),
        text("date", (_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, axis),
        *_curves(curves, x, y),
    ]
    return picture(_WIDTH, _HEIGHT, label, parts, "picture curves")


def _ticks(xs: Sequence[float], x: Scale) -> Iterator[str]:
    """Values that were measured, as many as fit."""
    last = -1000.0
    for value in xs:
        if x(value) - last >= 44:
            last = x(value)
            yield line("grid", last, _HEIGHT - _BOTTOM, last, _HEIGHT - _BOTTOM + 4)
            yield text("date", last, _HEIGHT - _BOTTOM + 17, format_number(value))


def curve_kinds(curves: Sequence[Curve]) -> list[str]:
    """Classes of the style sheet: colours of published curves, dashes of ours."""
    printed, ours = count(), count()
    return [f"ours o{next(ours) % DASHES}" if one.ours else f"c{next(printed) % PALETTE}" for one in curves]


def _curves(curves: Sequence[Curve], x: Scale, y: Scale) -> Iterator[str]:
    """Ours over the published ones."""
    for kind, curve in sorted(zip(curve_kinds(curves), curves, strict=True), key=lambda pair: pair[1].ours):
        places = [(x(a), y(b)) for a, b in curve.points]
        yield polyline(f"curve {kind}", places)
        yield "".join(
            f'<circle class="dot {kind}" cx="{a:.1f}" cy="{b:.1f}" r="{4 if curve.ours else 3}"/>'
            for a, b in places
        )
