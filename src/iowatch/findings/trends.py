"""Slow trends that detection remembers: no step, hence no finding, but somebody should know."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iowatch.explain import names
from iowatch.findings.detection import headline_series
from iowatch.findings.grouping import log_gain, parameters
from iowatch.findings.wording import day, factor
from iowatch.store import History, SeriesRow

# A trend that ended longer ago than this before its series did is past.
_PAST_S = 14 * 86400


@dataclass(frozen=True)
class Trend:
    """A slope of one series that goes on: epoch seconds; `gain` as performance, from first to last night."""

    system: str
    series_id: int
    name: str
    first: int
    last: int
    gain: float


def going_on(row: SeriesRow, document: Mapping[str, Any], newest: int) -> Iterator[tuple[int, int, float]]:
    """First and last night (epoch seconds) and gain of each remembered slope that reaches to the newest night.

    Args:
        document: what detection remembers of the series.
        newest: epoch seconds of its newest night.
    """
    for drift in document.get("drifts", ()):
        if drift["last"] >= newest - _PAST_S:
            yield drift["first"], drift["last"], math.exp(log_gain(row, drift["ratio"]))


def trends(history: History, systems: Sequence[str]) -> list[Trend]:
    """Trends that reach to the newest nights, strongest first, as the last update of findings saw them."""
    found: list[Trend] = []
    for system in systems:
        rows = headline_series(history, system)
        called = dict(zip((row.id for row in rows), names([parameters(row) for row in rows]), strict=True))
        remembered = history.detections([row.id for row in rows])
        for row in rows:
            said = remembered[row.id].document if row.id in remembered else {}
            slopes = going_on(row, said, row.last or 0)
            found += [Trend(system, row.id, called[row.id], *slope) for slope in slopes]
    return sorted(found, key=lambda t: -abs(math.log(t.gain)))


def listing(found: Iterable[Trend]) -> Iterator[str]:
    """A line a trend, with a heading; nothing where there is none."""
    for position, trend in enumerate(found):
        if position == 0:
            yield "Slow trends, no step and no finding:"
        yield f"  {trend.system}: {trend.name} {factor(trend.gain)} since {day(trend.first)}"
