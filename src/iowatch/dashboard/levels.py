"""What a series is measured against: the accepted level, and the steps to draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iowatch.dashboard.catalogue import Series
from iowatch.store.bulk import SeriesSamples

_TYPICAL_NIGHTS = 60
_DISPUTED = ("open", "suspected", "acknowledged")


@dataclass(frozen=True)
class Level:
    """A level with the time in which it held (epoch seconds)."""

    first: int
    last: int
    value: float


@dataclass(frozen=True)
class Accepted:
    """The level that is held to be normal, and why it is."""

    value: float
    source: str


def nightly(series: Series, samples: SeriesSamples) -> NDArray[np.float64]:
    """The value of each night that is watched: the best of its samples, shape (n,)."""
    return samples.min if series.metric.direction == "lower" else samples.max


def gain(series: Series, value: float, level: float) -> float | None:
    """value against level as performance: above 1 is better, also for times; None where one is 0 (counts)."""
    if not value or not level:
        return None
    return level / value if series.metric.direction == "lower" else value / level


def levels(series: Series, samples: SeriesSamples) -> list[Level]:
    """The levels that detection found, in order of time; none before it has said anything."""
    if series.detection is None:
        return []
    steps = [step for step in series.detection.document["steps"] if not step["suspected"]]
    first, last = int(samples.time[0]), int(samples.time[-1])
    if not steps:
        return [Level(first, last, float(np.median(nightly(series, samples))))]
    begins = [first, *(int(step["first_after"]) for step in steps)]
    ends = [*(int(step["last_before"]) for step in steps), last]
    values = [steps[0]["before"], *(step["after"] for step in steps)]
    return [Level(a, b, float(v)) for a, b, v in zip(begins, ends, values, strict=True)]


def accepted(series: Series, values: Sequence[float]) -> Accepted | None:
    """What a night of the series is compared with.

    Its reference, else the level before a change that nobody has accepted, else what is typical of its newest
    nights.

    Args:
        values: of the newest nights, oldest first.
    """
    reference = series.limits.reference
    if reference is not None:
        return Accepted(reference.value, f"reference of {reference.date} by {reference.by}")
    disputed = [f for f in series.findings if f.state in _DISPUTED]
    if disputed:
        first = min(disputed, key=lambda f: f.first_after)
        member = next(m for m in first.members if m.series_id == series.row.id)
        return Accepted(member.before, f"level before {first.id}, which is {first.state}")
    if series.detection is not None and series.detection.document["steps"]:
        steps = [step for step in series.detection.document["steps"] if not step["suspected"]]
        if steps:
            return Accepted(float(steps[-1]["after"]), "newest level")
    newest = np.asarray(values[-_TYPICAL_NIGHTS:])
    if not len(newest):
        return None
    return Accepted(float(np.median(newest)), f"median of the newest {len(newest)} nights")
