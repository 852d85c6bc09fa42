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
from iowatch.findings import (
    MIN_OBSERVATIONS,
    Finding,
    FindingMember,
    current_drifts,
    load_observations,
    series_with_slow_losses,
)
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
    if not value or not level:
        return None
    return series.metric.gain(value, level)


def drawn_levels(series: SeriesEntry, samples: SeriesSamples) -> list[DrawnLevel]:
    """Detected levels, drifts and suspected levels in order of time; empty before the first detection."""
    detection = series.detection
    if detection is None:
        return []
    # A suspected level lasts up to the newest observation, else the detector would have decided.
    newest_time = int(samples.time[-1])
    suspected: list[DrawnLevel] = []
    for step in _shown_steps(detection):
        if step.suspected:
            suspected.append(DrawnLevel(int(step.time), newest_time, step.after, step.after, "suspected"))
    suspected_times = {level.first for level in suspected}
    drawn: list[DrawnLevel] = []
    for level in detection.levels:
        # A drift is drawn in place of the levels that it covers.
        is_replaced = level.time in suspected_times or _is_within_drift(level.time, detection, level.last_time)
        if not is_replaced:
            drawn.append(DrawnLevel(int(level.time), int(level.last_time), level.value, level.value, "level"))
    for drift in detection.drifts:
        # The slope passes through the median of its observations and is linear in the logarithm.
        is_inside = (samples.time >= drift.time) & (samples.time <= drift.last_time)
        middle = 0.0
        if is_inside.any():
            middle = float(np.median(sample_headlines(series, samples)[is_inside]))
        half = drift.ratio**0.5
        drawn.append(DrawnLevel(int(drift.time), int(drift.last_time), middle / half, middle * half, "drift"))
    return sorted([*drawn, *suspected], key=lambda level: level.first)


def _shown_steps(detection: Detection) -> list[ChangePoint]:
    """The steps, without suspected ones within a drift, whose slope fits those observations better."""
    return [step for step in detection.steps if not (step.suspected and _is_within_drift(step.time, detection))]


def _is_within_drift(first: float, detection: Detection, last: float | None = None) -> bool:
    """Whether a drift covers the time from `first` to `last`, or `first` alone without it (epoch s)."""
    end = first if last is None else last
    return any(drift.time <= first and end <= drift.last_time for drift in detection.drifts)


@dataclass(frozen=True)
class DetectionNote:
    """One result of the detection as text; `last` is None for a lasting change."""

    first: int
    last: int | None
    kind: str
    text: str


def detection_notes(series: SeriesEntry) -> list[DetectionNote] | None:
    """All results of the detection, newest first; None before the first detection."""
    detection = series.detection
    if detection is None:
        return None
    notes: list[DetectionNote] = []
    for step in _shown_steps(detection):
        values = f"{format_number(step.before)} to {format_number(step.after)} {series.metric.unit}"
        factor = format_factor(step.ratio)
        if step.suspected:
            notes.append(DetectionNote(int(step.time), None, "suspected", f"{values} ({factor})"))
        else:
            text = f"{values} ({factor}, confidence {step.confidence:.3f})"
            notes.append(DetectionNote(int(step.time), None, "change", text))
    # Transients and drifts have an end, changes last.
    for transient in detection.transients:
        observations = format_count(transient.observations, "observation")
        text = f"{observations} at {format_factor(transient.ratio)}, then returned"
        notes.append(DetectionNote(int(transient.time), int(transient.last_time), "transient", text))
    for drift in detection.drifts:
        text = f"drifts: {format_factor(drift.ratio)}"
        notes.append(DetectionNote(int(drift.time), int(drift.last_time), "drift", text))
    return sorted(notes, key=lambda note: -note.first)


def recent_observations(site: SiteBuild, machine: SystemEntry) -> Mapping[int, SeriesPoints]:
    """Observations of the monitored series of a system by series id, from 60 days before its newest session on.

    They are read once per build.
    """
    rows = [series.row for series in machine.watched]

    def read() -> Mapping[int, SeriesPoints]:
        return load_observations(
            site.history, rows, _recent_since(machine), sessions=machine.sessions, with_saturated=True
        )

    return site.compute_once("recent", machine, read)


def _recent_since(machine: SystemEntry) -> int | None:
    """Time (epoch s) from which observations are recent; None without a session."""
    if machine.newest_session is None:
        return None
    return machine.newest_session.started_at - _TYPICAL_SESSIONS * DAY_S


def recent_part(machine: SystemEntry, time: NDArray[np.int64], values: NDArray[np.float64]) -> list[float]:
    """The values that `recent_observations` has; all values of a series that ended before.

    Args:
        time: of the observations of a series, epoch s, shape (n,).
        values: of the same observations, shape (n,).
    """
    is_recent = time >= (_recent_since(machine) or 0)
    recent_values: list[float] = (values[is_recent] if is_recent.any() else values).tolist()
    return recent_values


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
    # A change that no person has accepted does not make its level normal; more noise is no level.
    undecided: list[tuple[Finding, FindingMember]] = []
    for finding in series.findings:
        member = next(member for member in finding.members if member.series_id == series.row.id)
        if finding.state in UNDECIDED_STATES and member.states_levels:
            undecided.append((finding, member))
    if undecided:
        first, member = min(undecided, key=lambda pair: pair[0].first_after)
        if at is None or first.first_after <= at:
            return AcceptedLevel(member.before, f"level before {first.id}, which is {first.state}")
    detection = series.detection
    if detection is not None:
        # Before the first level, the detection has nothing to compare with.
        if at is not None and detection.levels and at < detection.levels[0].time:
            return None
        if detection.changes:
            return _level_after_changes(detection.changes, at)
    newest_values = np.asarray(values[-_TYPICAL_SESSIONS:])
    if len(newest_values) < MIN_OBSERVATIONS:
        return None
    return AcceptedLevel(float(np.median(newest_values)), f"median of the newest {len(newest_values)} observations")


def _level_after_changes(changes: Sequence[ChangePoint], at: int | None) -> AcceptedLevel:
    """The level at a time (epoch s; None is now) of a series with at least one change."""
    earlier = [change for change in changes if at is None or change.time <= at]
    if not earlier:
        return AcceptedLevel(changes[0].before, "level of that time")
    source = "newest level" if earlier[-1] is changes[-1] else "level of that time"
    return AcceptedLevel(earlier[-1].after, source)


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
        if self.multiple is not None:
            for band_class in BAND_CLASSES:
                if self.multiple >= band_class.least:
                    return band_class.kind
        return NO_BAND

    @property
    def outcome(self) -> str:
        """`below` or `above` the band, `as accepted` within it, `not assessed` without a noise estimate."""
        if self.multiple is None:
            return "not assessed"
        if self.multiple < -1:
            return "below"
        if self.multiple >= 1:
            return "above"
        return "as accepted"


NO_BAND = "unassessed"


def normal_band(series: SeriesEntry) -> float | None:
    """Half width of the normal band of a series in natural logarithm; None without a noise estimate.

    It is 3 times the noise of the detection, at least 3 %. The noise of a series that is adjusted for a covariate is
    scaled to that of the values as measured.
    """
    detection = series.detection
    if detection is None or detection.noise is None:
        return None
    # Share of the variance that the covariate explains; 1 would make the band infinite.
    explained = 0.0
    if detection.adjustment:
        explained = min(detection.adjustment.explained, 0.99)
    half_width = _BAND_NOISES * detection.noise / math.sqrt(1 - explained)
    return max(half_width, _MIN_BAND)


def normal_limits(series: SeriesEntry, level: float) -> tuple[float, float] | None:
    """Lower and upper edge of the normal band around `level`, in its unit; None without a noise estimate."""
    band = normal_band(series)
    if band is None:
        return None
    return level * math.exp(-band), level * math.exp(band)


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
    detection = series.detection
    if detection is None:
        return []
    # Times from which on the accepted level may be another one.
    starts: list[float] = [first]
    starts += [change.time for change in detection.changes]
    starts += [level.time for level in detection.levels[:1]]
    starts += [finding.first_after for finding in series.findings if finding.state in UNDECIDED_STATES]
    edges = {int(time) for time in starts if first <= time < last}
    edges.add(last)
    bands: list[DrawnBand] = []
    for begin, end in pairwise(sorted(edges)):
        level = accepted_level(series, headlines.tolist(), begin)
        limits = None if level is None else normal_limits(series, level.value)
        if limits is None:
            continue
        low, high = limits
        previous = bands[-1] if bands else None
        # A band that continues at the same level is drawn as one.
        if previous is not None and previous.last == begin and (previous.low, previous.high) == limits:
            bands[-1] = replace(previous, last=end)
        else:
            bands.append(DrawnBand(begin, end, low, high))
    return bands


def describe_band(series: SeriesEntry) -> str | None:
    """Definition of the normal band for the legend; None without a noise estimate."""
    band = normal_band(series)
    if band is None:
        return None
    # Symmetric in the logarithm, and therefore wider above than below in per cent.
    below = f"{100 * abs(math.expm1(-band)):.0f} %"
    above = f"{100 * abs(math.expm1(band)):.0f} %"
    width = f"± {below}" if below == above else f"−{below} to +{above}"
    reason = "the smallest used" if band == _MIN_BAND else f"{_BAND_NOISES:.0f} times the noise of this series"
    return f"accepted level {width}, {reason}"


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
    multiple = None if band is None else math.log(gain) / band
    return BandPosition(gain, multiple)


@dataclass(frozen=True)
class TrendRow:
    """A drift up to the newest observation, which is not a finding; `gain` over the whole drift."""

    system: str
    series: SeriesEntry
    first: int
    gain: float


def system_trends(machine: SystemEntry) -> list[TrendRow]:
    """Drifts of the monitored series that extend to their newest observations, and are no findings."""
    with_findings = series_with_slow_losses(machine.findings)
    trends: list[TrendRow] = []
    for series in machine.watched:
        if series.detection is None or series.row.id in with_findings:
            continue
        for drift in current_drifts(series.row, series.detection, series.stamp.last):
            trends.append(TrendRow(machine.name, series, drift.first, drift.gain))
    return trends


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
    suspected: list[SuspectedSeries] = []
    for series in machine.watched:
        # The suspicion of a series that is no longer measured is not resolved by a later session.
        if series.stamp.last < newest - SESSION_SLACK_S:
            continue
        gain = _suspected_gain(series)
        if gain is not None:
            suspected.append(SuspectedSeries(series, gain))
    return sorted(suspected, key=lambda entry: -abs(math.log(entry.gain)))


def _suspected_gain(series: SeriesEntry) -> float | None:
    """Gain of the first suspected step that belongs to no unresolved finding; None without such a step."""
    if series.detection is None:
        return None
    times_in_findings: set[int] = set()
    for finding in series.findings:
        if finding.state != "resolved":
            times_in_findings.update(m.first_after for m in finding.members if m.series_id == series.row.id)
    for step in _shown_steps(series.detection):
        if step.suspected and int(step.time) not in times_in_findings:
            return math.exp(series.metric.log_gain(step.ratio))
    return None
