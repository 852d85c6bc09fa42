"""A finding at one look: series relative to their level before the date, changed ones against the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo

import numpy as np
from markupsafe import Markup

from iowatch.dashboard.drawing import DAY_S, Scale, broken_line, line, picture, text, time_axis
from iowatch.findings.wording import factor

_HEIGHT = 300
_LEFT, _TOP, _BOTTOM = 52, 30, 30
_MOST_LINES = 24
_BETWEEN_NAMES = 16
# As many as fit beside the lines; bold ones are wide.
_MOST_LETTERS = 27
# Width of a bold letter of the date's name.
_LETTER = 8.0
# Percent of a changed line's nights at either end that may leave the picture.
_OUTSIDE = 3
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)


@dataclass(frozen=True)
class Shape:
    """Where things are: for a screen with the names of groups beside the lines, for a phone over them."""

    width: int
    right: int
    names_inside: bool
    kind: str
    most_dates: int


WIDE = Shape(960, 190, False, "picture fan for-wide", 7)
NARROW = Shape(430, 10, True, "picture fan for-narrow", 4)


@dataclass(frozen=True)
class Line:
    """One series in order of time: epoch s, and performance relative to the level before (1 is the same)."""

    times: Sequence[int]
    gains: Sequence[float]
    changed: bool


@dataclass(frozen=True)
class Name:
    """Words for a group of lines, its typical gain, and whether it changed."""

    words: str
    gain: float
    changed: bool


def fan_picture(
    lines: Sequence[Line],
    moment: int,
    names: Sequence[Name],
    what: str,
    label: str,
    others: Sequence[tuple[int, str]] = (),
    shape: Shape = WIDE,
    zone: tzinfo = UTC,
) -> Markup:
    """Draw a finding.

    Args:
        lines: series with data.
        moment: of the change, epoch seconds.
        names: groups of lines; written at the right edge.
        what: happened there; written at the line of the date.
        label: the finding in words.
        others: other moments (epoch seconds) with the number that they have below the picture.
        zone: dates stand at its midnights.
    """
    drawn = _chosen(lines)
    times = [t for one in drawn for t in (one.times[0], one.times[-1])] or [moment - DAY_S, moment + DAY_S]
    x = Scale(min(times), max(times), _LEFT, shape.width - shape.right, zone=zone)
    y = Scale(*_extent(drawn), _HEIGHT - _BOTTOM, _TOP, logarithmic=True)
    dates = time_axis(x, _HEIGHT - _BOTTOM, shape.most_dates)
    parts = [_axis(x, y), dates, *_others(others, x), *_lines(drawn, x, y), *_moment(moment, what, x)]
    return picture(shape.width, _HEIGHT, label, [*parts, *_names(names, x, y, shape)], shape.kind)


def _chosen(lines: Sequence[Line]) -> list[Line]:
    """Of very many series some of each kind: more lines say no more."""
    found = []
    for changed in (False, True):
        kind = [one for one in lines if one.changed is changed and len(one.times)]
        found += kind[:: max(1, -(-len(kind) // (_MOST_LINES // 2)))]
    return found


def _extent(drawn: Sequence[Line]) -> tuple[float, float]:
    """Lowest and highest gain of the axis: it holds every level of the changed lines, not each bad night."""
    found = [np.asarray(one.gains) for one in drawn if one.changed]
    ends = [np.percentile(gains, (_OUTSIDE, 100 - _OUTSIDE)) for gains in found]
    if drawn:
        ends.append(np.percentile(np.concatenate([np.asarray(one.gains) for one in drawn]), (2, 99.5)))
    low = min((float(low) for low, _ in ends), default=1.0)
    high = max((float(high) for _, high in ends), default=1.0)
    return min(low / 1.2, 0.6), max(high * 1.2, 1.7)


def _others(others: Sequence[tuple[int, str]], x: Scale) -> Iterator[str]:
    """What else happened: numbered lines behind the series, explained below the picture."""
    for moment, number in others:
        if x.low <= moment <= x.high:
            yield line("mark event", x(moment), _TOP, x(moment), _HEIGHT - _BOTTOM)
            yield text("mark-name event", x(moment) + 7, _TOP + 10, number)


def _axis(x: Scale, y: Scale) -> str:
    ticks = [t for t in _TICKS if y.low <= t <= y.high]
    return "".join(
        line("grid one" if t == 1.0 else "grid", _LEFT, y(t), x.end, y(t))
        + text("tick", _LEFT - 6, y(t) + 4, f"×{t:g}")
        for t in ticks
    )


def _lines(drawn: Sequence[Line], x: Scale, y: Scale) -> Iterator[str]:
    for one in drawn:
        times, gains = np.asarray(one.times), np.clip(np.asarray(one.gains), y.low, y.high)
        kind = "changed" if one.changed else "steady"
        yield broken_line(kind, times, x.array(times), np.array([y(gain) for gain in gains.tolist()]))


def _moment(moment: int, what: str, x: Scale) -> Iterator[str]:
    yield line("moment", x(moment), _TOP - 6, x(moment), _HEIGHT - _BOTTOM)
    side = "left" if x(moment) > (x.start + x.end) / 2 else "right"
    offset = -6 if side == "left" else 6
    room = x(moment) - 6 if side == "left" else x.end - x(moment) - 6
    yield text(f"moment-name {side}", x(moment) + offset, _TOP - 10, _cut(what, int(room / _LETTER)))


def _names(names: Sequence[Name], x: Scale, y: Scale, shape: Shape) -> Iterator[str]:
    """Names at the height of their lines, pushed apart where they would lie over each other."""
    lowest = float(_TOP)
    for name in sorted(names, key=lambda n: -n.gain):
        above = 18 if shape.names_inside else 0
        height = max(min(y(min(max(name.gain, y.low), y.high)) - above, _HEIGHT - _BOTTOM), lowest)
        lowest = height + _BETWEEN_NAMES
        kind = "group" if name.changed else "group steady"
        side = " inside" if shape.names_inside else ""
        most = _MOST_LETTERS if name.changed else _MOST_LETTERS + 2
        place = x.end - 2 if shape.names_inside else x.end + 8
        yield text(kind + side, place, height + 4, _cut(f"{factor(name.gain)} {name.words}", most))


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 1].rstrip()}…"
