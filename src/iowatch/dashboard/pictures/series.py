"""A series: all samples, the headline line, levels, reference, published figure, peak, what happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from iowatch.dashboard.catalogue import Series
from iowatch.dashboard.drawing import (
    DAY_S,
    Scale,
    line,
    nice_top,
    picture,
    polyline,
    text,
    time_axis,
    value_axis,
    value_ticks,
)
from iowatch.dashboard.levels import Level, levels, nightly
from iowatch.store.bulk import SeriesSamples
from iowatch.units import format_number

_WIDTH, _HEIGHT = 960, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 12, 34, 30
_MOST_BARS = 450


@dataclass(frozen=True)
class Mark:
    """Something that happened at a time (epoch s): an event, a change of the stack; `kind` is its class."""

    time: int
    kind: str
    label: str


def series_picture(series: Series, samples: SeriesSamples, marks: Sequence[Mark]) -> Markup:
    """Samples as bars from lowest to highest a night, the headline as a line; the value axis starts at zero."""
    values = nightly(series, samples)
    x = Scale(float(samples.time[0]), float(samples.time[-1]), _LEFT, _WIDTH - _RIGHT)
    y = Scale(0.0, nice_top(_highest(series, samples)), _HEIGHT - _BOTTOM, _TOP)
    held = levels(series, samples)
    parts = [
        value_axis(y, _LEFT, _WIDTH - _RIGHT, value_ticks(y.high), series.metric.unit),
        time_axis(x, _HEIGHT - _BOTTOM),
        *_limits(series, y),
        _spread(samples, x, y),
        polyline(
            "headline", [(x(t), y(v)) for t, v in zip(samples.time.tolist(), values.tolist(), strict=True)]
        ),
        *(line("level", x(one.first), y(one.value), x(one.last), y(one.value)) for one in held),
        *_marks(marks, x),
    ]
    return picture(_WIDTH, _HEIGHT, _words(series, len(samples.time), float(values[-1]), held), parts)


def _words(series: Series, n: int, newest: float, held: Sequence[Level]) -> str:
    unit = series.metric.unit
    told = ", then ".join(format_number(one.value) for one in held)
    levels_told = f"; levels {told} {unit}" if held else ""
    return f"{series.metric.label} of {n} nights, newest {format_number(newest)} {unit}{levels_told}"


def _highest(series: Series, samples: SeriesSamples) -> float:
    """What the axis has to reach; a peak far above the data would press them to the ground and is only told."""
    highest = float(samples.max.max())
    near = (series.limits.peak, _printed(series))
    return max([highest, *(v for v in near if v is not None and v <= 1.5 * highest)])


def _printed(series: Series) -> float | None:
    return None if series.limits.published is None else series.limits.published.value


def _limits(series: Series, y: Scale) -> Iterator[str]:
    reference = series.limits.reference
    if reference is not None:
        low, high = (min(v, y.high) if v is not None else v for v in (reference.lower, reference.upper))
        top, bottom = y(y.high if high is None else high), y(0.0 if low is None else low)
        if low is not None or high is not None:
            width = _WIDTH - _RIGHT - _LEFT
            yield f'<rect class="band" x="{_LEFT}" y="{top:.1f}" width="{width}" height="{bottom - top:.1f}"/>'
        if reference.value <= y.high:
            yield line("reference", _LEFT, y(reference.value), _WIDTH - _RIGHT, y(reference.value))
    for kind, value in (
        ("published", _printed(series)),
        ("peak", series.limits.peak),
    ):
        if value is not None and value <= y.high:
            yield line(kind, _LEFT, y(value), _WIDTH - _RIGHT, y(value))
            yield text(f"{kind}-name", _WIDTH - _RIGHT, y(value) - 4, f"{kind} {format_number(value)}")


def _spread(samples: SeriesSamples, x: Scale, y: Scale) -> str:
    """A bar a night; of very many nights one bar reaches over the samples of several."""
    starts = np.arange(0, len(samples.time), max(1, -(-len(samples.time) // _MOST_BARS)))
    low, high = np.minimum.reduceat(samples.min, starts), np.maximum.reduceat(samples.max, starts)
    tops, bottoms = y.array(high), y.array(low)
    rows = zip(
        x.array(samples.time[starts]).tolist(),
        bottoms.tolist(),
        np.minimum(tops, bottoms - 2).tolist(),
        strict=True,
    )
    return f'<path class="sample" d="{"".join([f"M{a:.1f} {b:.1f}V{c:.1f}" for a, b, c in rows])}"/>'


def _headline(samples: SeriesSamples, values: NDArray[np.float64], x: Scale, y: Scale) -> str:
    return polyline("headline", zip(x.array(samples.time).tolist(), y.array(values).tolist(), strict=True))


def grouped(marks: Sequence[Mark]) -> list[tuple[Mark, str]]:
    """Marks of one day as one, with the numbers that they have in the list below the picture."""
    found: list[tuple[Mark, str]] = []
    for number, mark in enumerate(marks, start=1):
        if found and found[-1][0].time // DAY_S == mark.time // DAY_S:
            found[-1] = (found[-1][0], f"{found[-1][1].partition('–')[0]}–{number}")
        else:
            found.append((mark, str(number)))
    return found


def _marks(marks: Sequence[Mark], x: Scale) -> Iterator[str]:
    """Lines numbered as in the list below the picture."""
    for mark, numbers in grouped(marks):
        if x.low <= mark.time <= x.high:
            yield line(f"mark {mark.kind}", x(mark.time), _TOP - 4, x(mark.time), _HEIGHT - _BOTTOM)
            yield text(f"mark-name {mark.kind}", x(mark.time), _TOP - 8, numbers)
