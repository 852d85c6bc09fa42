"""What a series is measured against: the accepted level, and the steps to draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iowatch.dashboard.catalogue import Machine, Series
from iowatch.findings.grouping import log_gain
from iowatch.findings.trends import going_on
from iowatch.findings.wording import factor
from iowatch.store.bulk import SeriesSamples
from iowatch.units import format_number
from iowatch.verdict import NIGHTS_TO_JUDGE

_TYPICAL_NIGHTS = 60
_DISPUTED = ("open", "suspected", "acknowledged")


@dataclass(frozen=True)
class Level:
    """A level with the time in which it held (epoch seconds).

    Attributes:
        value, end: at its first and last night; they differ where the series drifts.
        kind: `level`, `drift`, or `suspected`: the newest nights look so, but are too few to say.
    """

    first: int
    last: int
    value: float
    end: float
    kind: str


@dataclass(frozen=True)
class Away:
    """Nights away from a level that came back to it; `ratio` is theirs to that level."""

    first: int
    last: int
    ratio: float
    nights: int


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
    """Levels, drifts and what is suspected, as detection found them; none before it has said anything."""
    if series.detection is None:
        return []
    said = series.detection.document
    drifts = [_drift(series, samples, one) for one in said.get("drifts", ())]
    last = int(samples.time[-1])
    suspected = [
        Level(step["first_after"], last, step["after"], step["after"], "suspected")
        for step in _steps(said)
        if step["suspected"]
    ]
    starts = {one.first for one in suspected}
    found = [
        Level(one["first"], one["last"], one["value"], one["value"], "level")
        for one in said.get("levels", ())
        if one["first"] not in starts and not _within(one["first"], said, one["last"])
    ]
    return sorted([*found, *drifts, *suspected], key=lambda level: level.first)


def _steps(said: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The steps, without suspicions within a drift: its slope describes those nights better."""
    return [s for s in said["steps"] if not (s["suspected"] and _within(s["first_after"], said))]


def _within(first: int, said: Mapping[str, Any], last: int | None = None) -> bool:
    """Whether a drift covers the time from `first` to `last`."""
    end = first if last is None else last
    return any(drift["first"] <= first and end <= drift["last"] for drift in said.get("drifts", ()))


def _drift(series: Series, samples: SeriesSamples, said: Mapping[str, Any]) -> Level:
    """The slope through the middle of its nights, even in its logarithm."""
    inside = (samples.time >= said["first"]) & (samples.time <= said["last"])
    middle = float(np.median(nightly(series, samples)[inside])) if inside.any() else 0.0
    half = float(said["ratio"]) ** 0.5
    return Level(said["first"], said["last"], middle / half, middle * half, "drift")


def transients(series: Series) -> list[Away]:
    """Nights away from the level and back, in order of time."""
    said = {} if series.detection is None else series.detection.document
    return [Away(**one) for one in said.get("transients", ())]


@dataclass(frozen=True)
class Said:
    """One thing that detection says of a series, in words; `last` is None where it lasts."""

    first: int
    last: int | None
    kind: str
    text: str


def said(series: Series) -> list[Said] | None:
    """Everything that detection says, the newest first; None where it has not looked."""
    if series.detection is None:
        return None
    document, unit = series.detection.document, series.metric.unit
    found = []
    for step in _steps(document):
        told = f"{format_number(step['before'])} to {format_number(step['after'])} {unit}"
        kind = "suspected" if step["suspected"] else "change"
        sure = "" if step["suspected"] else f", confidence {step['confidence']:.3f}"
        found.append(Said(step["first_after"], None, kind, f"{told} ({factor(step['ratio'])}{sure})"))
    for one in transients(series):
        nights = f"{one.nights} night{'' if one.nights == 1 else 's'}"
        found.append(Said(one.first, one.last, "transient", f"{nights} at {factor(one.ratio)}, and back"))
    for drift in document.get("drifts", ()):
        found.append(Said(drift["first"], drift["last"], "drift", f"slowly to {factor(drift['ratio'])}"))
    return sorted(found, key=lambda one: -one.first)


def accepted(series: Series, values: Sequence[float]) -> Accepted | None:
    """What a night of the series is compared with.

    Its reference, else the level before a change that nobody has accepted, else what is typical of its newest
    nights; None where these are too few to say what is normal.

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
    if len(newest) < NIGHTS_TO_JUDGE:
        return None
    return Accepted(float(np.median(newest)), f"median of the newest {len(newest)} nights")


@dataclass(frozen=True)
class Trend:
    """A slope that goes on: no step and no finding; `gain` as performance, from its first to its last night."""

    system: str
    series: Series
    first: int
    gain: float


def trends(machine: Machine) -> list[Trend]:
    """Slopes of the watched series that reach to their newest nights."""
    found: list[Trend] = []
    for one in machine.watched:
        slopes = going_on(one.row, one.detection.document, one.stamp.last) if one.detection else ()
        found += [Trend(machine.name, one, first, gain) for first, _, gain in slopes]
    return found


# Sessions do not begin at the same second every night.
NIGHT_SLACK_S = 6 * 3600


@dataclass(frozen=True)
class Suspicion:
    """A series whose newest nights look different and that no finding tells of; `gain` as performance."""

    series: Series
    gain: float


def suspicions(machine: Machine) -> list[Suspicion]:
    """Watched series of the newest night that detection suspects, strongest first.

    Findings need more of them at once than chance makes (`iowatch.findings.grouping`); a page that stayed
    silent about the rest would say that nothing is suspected.
    """
    newest = machine.night.started_at if machine.night else 0
    seen = [s for s in machine.watched if s.stamp.last >= newest - NIGHT_SLACK_S]
    found = [Suspicion(one, gained) for one in seen if (gained := _suspected_gain(one)) is not None]
    return sorted(found, key=lambda one: -abs(math.log(one.gain)))


def _suspected_gain(series: Series) -> float | None:
    for step in _steps(series.detection.document) if series.detection else ():
        if step["suspected"] and not _told(series, step["first_after"]):
            return math.exp(log_gain(series.row, step["ratio"]))
    return None


def _told(series: Series, first_after: int) -> bool:
    """Whether a finding holds this change of the series."""
    at = (series.row.id, first_after)
    members = (m for f in series.findings if f.state != "resolved" for m in f.members)
    return any((m.series_id, m.first_after) == at for m in members)
