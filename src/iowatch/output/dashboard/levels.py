"""Accepted level and results of the detection of a series: levels, transients, drifts, trends, suspected steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from iowatch.core import DAY_S, format_count, format_number
from iowatch.findings import MIN_OBSERVATIONS, current_drifts, load_observations
from iowatch.output.dashboard.data import SeriesEntry, SiteBuild, SystemEntry
from iowatch.output.text.changes import format_factor
from iowatch.statistics import ChangePoint, Detection, DetectorSettings
from iowatch.store import SeriesPoints, SeriesSamples

_TYPICAL_SESSIONS = 60
UNDECIDED_STATES = ("open", "suspected", "acknowledged")


@dataclass(frozen=True)
class DrawnLevel:
    """A level with its first and last time (epoch seconds).

    Attributes:
        value, end: value at the first and at the last observation; they differ for a drift.
        kind: `level`, `drift`, or `suspected` (too few observations to confirm it).
    """

    first: int
    last: int
    value: float
    end: float
    kind: str


@dataclass(frozen=True)
class AcceptedLevel:
    """The level that is considered normal, and its source."""

    value: float
    source: str


def sample_headlines(series: SeriesEntry, samples: SeriesSamples | SeriesPoints) -> NDArray[np.float64]:
    """Headline of each observation, its best sample by direction; shape (n,)."""
    return series.metric.best_bound(samples.min, samples.max)


def performance_ratio(series: SeriesEntry, value: float, level: float) -> float | None:
    """Gain of `value` relative to `level`: above 1 is better, also for times; None if one of them is 0 (counts)."""
    return series.metric.gain(value, level) if value and level else None


def drawn_levels(series: SeriesEntry, samples: SeriesSamples) -> list[DrawnLevel]:
    """Detected levels, drifts and suspected levels in order of time; empty before the first detection."""
    found = series.detection
    if found is None:
        return []
    last = int(samples.time[-1])
    steps = [step for step in _shown_steps(found) if step.suspected]
    suspected = [DrawnLevel(int(one.time), last, one.after, one.after, "suspected") for one in steps]
    starts = {one.first for one in suspected}
    settled = [one for one in found.levels if one.time not in starts]
    shown = [one for one in settled if not _is_within_drift(one.time, found, one.last_time)]
    levels = [DrawnLevel(int(one.time), int(one.last_time), one.value, one.value, "level") for one in shown]
    for drift in found.drifts:
        # The slope passes through the median of its observations and is linear in the logarithm.
        inside = (samples.time >= drift.time) & (samples.time <= drift.last_time)
        middle = float(np.median(sample_headlines(series, samples)[inside])) if inside.any() else 0.0
        half = drift.ratio**0.5
        levels.append(DrawnLevel(int(drift.time), int(drift.last_time), middle / half, middle * half, "drift"))
    return sorted([*levels, *suspected], key=lambda level: level.first)


def _shown_steps(found: Detection) -> list[ChangePoint]:
    """The steps, without suspected ones within a drift, whose slope fits those observations better."""
    return [step for step in found.steps if not (step.suspected and _is_within_drift(step.time, found))]


def _is_within_drift(first: float, found: Detection, last: float | None = None) -> bool:
    """Whether a drift covers the time from `first` to `last`."""
    end = first if last is None else last
    return any(drift.time <= first and end <= drift.last_time for drift in found.drifts)


@dataclass(frozen=True)
class DetectionNote:
    """One result of the detection as text; `last` is None for a lasting change."""

    first: int
    last: int | None
    kind: str
    text: str


def detection_notes(series: SeriesEntry) -> list[DetectionNote] | None:
    """All results of the detection, newest first; None before the first detection."""
    found = series.detection
    if found is None:
        return None
    notes = []
    for step in _shown_steps(found):
        kind = "suspected" if step.suspected else "change"
        confidence = "" if step.suspected else f", confidence {step.confidence:.3f}"
        levels = f"{format_number(step.before)} to {format_number(step.after)} {series.metric.unit}"
        notes.append(DetectionNote(int(step.time), None, kind, f"{levels} ({format_factor(step.ratio)}{confidence})"))
    for one in found.transients:
        text = f"{format_count(one.observations, 'observation')} at {format_factor(one.ratio)}, then returned"
        notes.append(DetectionNote(int(one.time), int(one.last_time), "transient", text))
    for drift in found.drifts:
        text = f"drifts to {format_factor(drift.ratio)}"
        notes.append(DetectionNote(int(drift.time), int(drift.last_time), "drift", text))
    return sorted(notes, key=lambda note: -note.first)


def recent_observations(site: SiteBuild, machine: SystemEntry) -> Mapping[int, SeriesPoints]:
    """Observations of the monitored series of a system by series id, from 60 days before its newest session on.

    They are read once per build.
    """
    rows = [one.row for one in machine.watched]

    def read() -> Mapping[int, SeriesPoints]:
        return load_observations(site.history, rows, _recent_since(machine), sessions=machine.sessions)

    return site.compute_once("recent", machine, read)


def _recent_since(machine: SystemEntry) -> int | None:
    return machine.newest_session.started_at - _TYPICAL_SESSIONS * DAY_S if machine.newest_session else None


def recent_part(machine: SystemEntry, time: NDArray[np.int64], values: NDArray[np.float64]) -> list[float]:
    """The values, shape (n,), that `recent_observations` has; all values of a series that ended before."""
    recent = time >= (_recent_since(machine) or 0)
    found: list[float] = (values[recent] if recent.any() else values).tolist()
    return found


def accepted_level(series: SeriesEntry, values: Sequence[float], at: int | None = None) -> AcceptedLevel | None:
    """The level with which observations of the series are compared.

    It is the reference, else the level before the first undecided change, else the newest level, else the median of
    the newest observations; None if these are too few.

    Args:
        values: values of the newest observations, oldest first.
        at: time (epoch s) of an earlier observation, compared with the level of its time instead of the newest one;
            None if that level was replaced by an accepted one.
    """
    reference = series.limits.reference
    if reference is not None:
        return AcceptedLevel(reference.value, f"reference of {reference.provenance.date} by {reference.provenance.by}")
    disputed = [f for f in series.findings if f.state in UNDECIDED_STATES]
    first = min(disputed, key=lambda f: f.first_after, default=None)
    if first is not None and (at is None or first.first_after <= at):
        member = next(m for m in first.members if m.series_id == series.row.id)
        return AcceptedLevel(member.before, f"level before {first.id}, which is {first.state}")
    found = series.detection
    if at is not None and found is not None and found.levels and at < found.levels[0].time:
        return None
    if found is not None and found.changes:
        past = [step for step in found.changes if at is None or step.time <= at]
        if not past:
            return AcceptedLevel(found.changes[0].before, "level of that time")
        newest_level = past[-1] is found.changes[-1]
        return AcceptedLevel(past[-1].after, "newest level" if newest_level else "level of that time")
    newest = np.asarray(values[-_TYPICAL_SESSIONS:])
    if len(newest) < MIN_OBSERVATIONS:
        return None
    return AcceptedLevel(float(np.median(newest)), f"median of the newest {len(newest)} observations")


# Half width of the normal band in units of the noise: from there on the detector calls an observation far away.
_BAND_NOISES = 3.0
_MIN_BAND = DetectorSettings().min_effect


@dataclass(frozen=True)
class BandClass:
    """Positions from `least` on, up to the class before it: name of the style, and words for the legend."""

    kind: str
    least: float
    words: str


BAND_CLASSES = (
    BandClass("b3", 4.0, "above by more than 4 bands"),
    BandClass("b2", 2.0, "above by 2 to 4 bands"),
    BandClass("b1", 1.0, "above by 1 to 2 bands"),
    BandClass("same", -1.0, "within the normal band"),
    BandClass("w1", -2.0, "below by 1 to 2 bands"),
    BandClass("w2", -4.0, "below by 2 to 4 bands"),
    BandClass("w3", -math.inf, "below by more than 4 bands"),
)
"""Classes of `BandPosition.multiple`, best first; a band is the distance from the accepted level to the band's edge."""


@dataclass(frozen=True)
class BandPosition:
    """Position of an observation relative to the accepted level of its series.

    Attributes:
        gain: performance relative to the accepted level; above 1 is better, also for times.
        multiple: ln(gain) / half width of the normal band: within -1 and 1 in the band, below -1 worse; None if the
            series has no noise estimate.
    """

    gain: float
    multiple: float | None

    @cached_property
    def kind(self) -> str:
        """Style class: one of `BAND_CLASSES`, or `unassessed` without a noise estimate."""
        return next((c.kind for c in BAND_CLASSES if self.multiple is not None and self.multiple >= c.least), NO_BAND)

    @property
    def outcome(self) -> str:
        """`below` or `above` the band, `as accepted` within it, `not assessed` without a noise estimate."""
        if self.multiple is None:
            return "not assessed"
        return "below" if self.multiple < -1 else "above" if self.multiple >= 1 else "as accepted"


NO_BAND = "unassessed"


def normal_band(series: SeriesEntry) -> float | None:
    """Half width of the normal band of a series in natural logarithm; None without a noise estimate.

    It is 3 times the noise of the detection, at least 3 %. The noise of a series that is adjusted for a covariate is
    scaled to that of the values as measured.
    """
    found = series.detection
    if found is None or found.noise is None:
        return None
    explained = found.adjustment.explained if found.adjustment else 0.0
    return max(_BAND_NOISES * found.noise / math.sqrt(1 - min(explained, 0.99)), _MIN_BAND)


def normal_limits(series: SeriesEntry, level: float) -> tuple[float, float] | None:
    """Lower and upper edge of the normal band around `level`, in its unit; None without a noise estimate."""
    band = normal_band(series)
    return None if band is None else (level * math.exp(-band), level * math.exp(band))


@dataclass(frozen=True)
class DrawnBand:
    """The normal band from one time to another (epoch s): its edges in the unit of the series."""

    first: int
    last: int
    low: float
    high: float


def drawn_bands(series: SeriesEntry, headlines: NDArray[np.float64], first: int, last: int) -> list[DrawnBand]:
    """Normal band around the accepted level of each time, in order of time; empty without a noise estimate.

    Args:
        headlines: of the observations, oldest first, shape (n,).
        first, last: times of the first and of the last observation, epoch s.
    """
    if (found := series.detection) is None:
        return []
    starts = [first, *(step.time for step in found.changes), *(level.time for level in found.levels[:1])]
    starts += [one.first_after for one in series.findings if one.state in UNDECIDED_STATES]
    bands: list[DrawnBand] = []
    for begin, end in pairwise(sorted({*(int(time) for time in starts if first <= time < last), last})):
        level = accepted_level(series, headlines.tolist(), begin)
        limits = normal_limits(series, level.value) if level else None
        if limits and bands and (bands[-1].low, bands[-1].high, bands[-1].last) == (*limits, begin):
            bands[-1] = replace(bands[-1], last=end)
        elif limits:
            bands.append(DrawnBand(begin, end, *limits))
    return bands


def describe_band(series: SeriesEntry) -> str | None:
    """Definition of the normal band for the legend; None without a noise estimate."""
    band = normal_band(series)
    if band is None:
        return None
    low, high = (f"{100 * abs(math.expm1(edge)):.0f} %" for edge in (-band, band))
    width = f"± {low}" if low == high else f"−{low} to +{high}"
    why = "the smallest used" if band == _MIN_BAND else f"{_BAND_NOISES:.0f} times the noise of this series"
    return f"accepted level {width}, {why}"


def band_position(series: SeriesEntry, value: float, level: float) -> BandPosition | None:
    """Position of `value` in the normal band around `level`, usually that of `accepted_level`.

    Args:
        value, level: in the unit of the series.

    Returns:
        None if one of them is 0 (counts): no ratio.
    """
    gain = performance_ratio(series, value, level)
    if not gain:
        return None
    band = normal_band(series)
    return BandPosition(gain, None if band is None else math.log(gain) / band)


@dataclass(frozen=True)
class TrendRow:
    """A drift up to the newest observation, which is not a finding; `gain` over the whole drift."""

    system: str
    series: SeriesEntry
    first: int
    gain: float


def system_trends(machine: SystemEntry) -> list[TrendRow]:
    """Drifts of the monitored series that extend to their newest observations."""
    return [
        TrendRow(machine.name, one, drift.first, drift.gain)
        for one in machine.watched
        for drift in (current_drifts(one.row, one.detection, one.stamp.last) if one.detection else ())
    ]


# Tolerance in seconds for the start times of sessions.
SESSION_SLACK_S = 6 * 3600


@dataclass(frozen=True)
class SuspectedSeries:
    """A series without a finding whose newest observations differ, and the gain."""

    series: SeriesEntry
    gain: float


def find_suspected_series(machine: SystemEntry) -> list[SuspectedSeries]:
    """Monitored series of the newest session with a suspected step that is in no finding, largest first.

    Suspected changes of single series alone are no finding (`iowatch.findings.newest`).
    """
    newest = machine.newest_session.started_at if machine.newest_session else 0
    current = [s for s in machine.watched if s.stamp.last >= newest - SESSION_SLACK_S]
    found = [SuspectedSeries(one, gained) for one in current if (gained := _suspected_gain(one)) is not None]
    return sorted(found, key=lambda one: -abs(math.log(one.gain)))


def _suspected_gain(series: SeriesEntry) -> float | None:
    members = {(m.series_id, m.first_after) for f in series.findings if f.state != "resolved" for m in f.members}
    for step in _shown_steps(series.detection) if series.detection else ():
        if step.suspected and (series.row.id, int(step.time)) not in members:
            return math.exp(series.metric.log_gain(step.ratio))
    return None
