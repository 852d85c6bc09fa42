"""A series: all samples, the headline line, levels, reference, published figure, peak, what happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from iowatch.dashboard.catalogue import Series
from iowatch.dashboard.drawing import (
    DAY_S,
    Scale,
    broken_line,
    line,
    nice_top,
    picture,
    repeated,
    text,
    time_axis,
    value_axis,
    value_ticks,
)
from iowatch.dashboard.levels import Level, levels, nightly, transients
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


def series_picture(series: Series, samples: SeriesSamples, marks: Sequence[Mark], zone: tzinfo = UTC) -> Markup:
    """Samples as bars from lowest to highest a night, the headline as a line; the value axis starts at zero.

    Dates stand at the midnights of `zone`.
    """
    values = nightly(series, samples)
    x = Scale(float(samples.time[0]), float(samples.time[-1]), _LEFT, _WIDTH - _RIGHT, zone=zone)
    near = drawn_limits(series, samples)
    y = Scale(0.0, nice_top(axis_top(series, samples)), _HEIGHT - _BOTTOM, _TOP)
    held = levels(series, samples)
    parts = [
        value_axis(y, _LEFT, _WIDTH - _RIGHT, value_ticks(y.high), series.metric.unit),
        time_axis(x, _HEIGHT - _BOTTOM),
        *_limits(series, near, y),
        _spread(samples, x, y),
        _headline(samples, values, x, y),
        *(line(one.kind, x(one.first), y(one.value), x(one.last), y(one.end)) for one in held),
        *_away(series, samples, x, y),
        *_marks(marks, x),
    ]
    return picture(_WIDTH, _HEIGHT, _words(series, len(samples.time), float(values[-1]), held), parts)


def _words(series: Series, n: int, newest: float, held: Sequence[Level]) -> str:
    unit = series.metric.unit
    told = ", then ".join(format_number(one.value) for one in held if one.kind == "level")
    levels_told = f"; levels {told} {unit}" if told else ""
    return f"{series.metric.label} of {n} nights, newest {format_number(newest)} {unit}{levels_told}"


def _away(series: Series, samples: SeriesSamples, x: Scale, y: Scale) -> Iterator[str]:
    """A ring around each night of a transient."""
    values = nightly(series, samples)
    for one in transients(series):
        inside = (samples.time >= one.first) & (samples.time <= one.last)
        for time, value in zip(samples.time[inside].tolist(), values[inside].tolist(), strict=True):
            yield f'<circle class="away" cx="{x(time):.1f}" cy="{y(value):.1f}" r="4"/>'


def drawn_limits(series: Series, samples: SeriesSamples) -> dict[str, float]:
    """Published figure and peak, as far as drawn: far above the data they would press it to the ground."""
    limits = series.limits
    known = {"published": limits.published.value if limits.published else None, "peak": limits.peak}
    most = 1.5 * float(samples.max.max())
    return {name: value for name, value in known.items() if value is not None and value <= most}


def axis_top(series: Series, samples: SeriesSamples) -> float:
    """What the value axis has to reach: samples, the reference however far it is, and limits that are near."""
    reference = series.limits.reference
    accepted = [reference.value] if reference is not None else []
    return max([float(samples.max.max()), *accepted, *drawn_limits(series, samples).values()])


def _limits(series: Series, near: Mapping[str, float], y: Scale) -> Iterator[str]:
    reference = series.limits.reference
    if reference is not None:
        low, high = (min(v, y.high) if v is not None else v for v in (reference.lower, reference.upper))
        top, bottom = y(y.high if high is None else high), y(0.0 if low is None else low)
        if low is not None or high is not None:
            width = _WIDTH - _RIGHT - _LEFT
            yield f'<rect class="band" x="{_LEFT}" y="{top:.1f}" width="{width}" height="{bottom - top:.1f}"/>'
        yield line("reference", _LEFT, y(reference.value), _WIDTH - _RIGHT, y(reference.value))
    for kind, value in near.items():
        yield line(kind, _LEFT, y(value), _WIDTH - _RIGHT, y(value))
        yield text(f"{kind}-name", _WIDTH - _RIGHT, y(value) - 4, f"{kind} {format_number(value)}")


def _spread(samples: SeriesSamples, x: Scale, y: Scale) -> str:
    """A bar a night; of very many nights one bar reaches over the samples of several."""
    starts = np.arange(0, len(samples.time), max(1, -(-len(samples.time) // _MOST_BARS)))
    low, high = np.minimum.reduceat(samples.min, starts), np.maximum.reduceat(samples.max, starts)
    tops, bottoms = y.array(high), y.array(low)
    drawn = repeated("M@ @V@", x.array(samples.time[starts]), bottoms, np.minimum(tops, bottoms - 2))
    return f'<path class="sample" d="{drawn}"/>'


def _headline(samples: SeriesSamples, values: NDArray[np.float64], x: Scale, y: Scale) -> str:
    return broken_line("headline", samples.time, x.array(samples.time), y.array(values))


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
