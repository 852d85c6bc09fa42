"""Changes of series that are no step of their best repetition: patterns, each kind with findings of its own.

    observations, detections ── find_patterns ──> changes of each kind ── groups by date ──> findings (`state`)

The best repetition of a session is monitored for steps. A file system can become much worse without one:

- repetitions: the best one is as before, the others are slower; the median / the best is monitored.
- alternating: some sessions are bad, the others are as before.
- noise: more noise between sessions.
- drift: a slow loss without a step, from the setting `slow_loss` on.
- latency: the times to open, to sync and to close, and of the slowest transfers, which a bandwidth hardly contains.
- operations: counts of operations that were the same in each session (Darshan), and are others now.

Of one series the first kind in this list is stated, and none where a step of the same case has its date, so that an
event makes few findings. Gains are no patterns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from iowatch.core import DAY_S, METRICS
from iowatch.findings.finding import BadSessions, Finding, PatternKind, Resolution
from iowatch.findings.grouping import NEAR_DATE_S, ChangeGroup, SeriesChange
from iowatch.findings.resolution import CONFIRMATION_PERIOD_S
from iowatch.findings.series import MEASURED_S, load_observations
from iowatch.findings.trends import current_drifts
from iowatch.statistics import ChangePoint, Detection, detect_many
from iowatch.statistics.patterns import find_alternation, find_noise_increase
from iowatch.store import History, SeriesFilter, SeriesPoints, SeriesRow

Floats = NDArray[np.float64]

# Observations so long before the newest one are assessed; those of a finding that is not over also before its date.
_ASSESSED_S, _BEFORE_FINDING_S = 400 * DAY_S, 90 * DAY_S
# Dates of patterns are less exact than those of steps: changes of one kind within this time are one event.
_SAME_EVENT_S = 14 * DAY_S
# The other repetitions must lose this share against the best one, and latencies grow by this factor to at least
# so many seconds, which a person would notice.
_LEAST_LOSS, _LEAST_FACTOR, _LEAST_TIME_S = 0.25, 2.0, 0.005
_LATENCY_METRICS = ("open_time", "sync_time", "close_time", "transfer_latency_p99")
_OPERATION_METRICS = ("collective_count", "independent_count", "posix_count")
# A count is a fact if so many sessions before, and since then, have the same one.
_SESSIONS_BEFORE, _SESSIONS_SINCE = 5, 2
# Medians of so many observations show whether a derived series can have a step at all.
_BLOCK = 7
# A change of an alternating series by up to this factor of its bad sessions (of ln) is one of them: these differ.
_ALTERNATING_MARGIN = 1.5
# Confidence in a count that changed: it is exact.
_CERTAIN = 0.999


@dataclass(frozen=True)
class PatternChange:
    """The change of one series by a pattern.

    Attributes:
        kind: of the pattern.
        change: with levels in `unit`; its gain is below 1.
        unit: of the levels, where it is not that of the metric.
        bad_sessions: of an alternating series.
    """

    kind: PatternKind
    change: SeriesChange
    unit: str | None = None
    bad_sessions: BadSessions | None = None


@dataclass(frozen=True)
class PatternGroup:
    """The changes of one kind that belong to one event, and the series with which they are compared.

    Attributes:
        compared: the series of the same metrics, changed or not.
    """

    kind: PatternKind
    group: ChangeGroup
    changes: tuple[PatternChange, ...]
    compared: tuple[SeriesRow, ...]


@dataclass(frozen=True)
class _AssessedSeries:
    """A series with its observations since its accepted level; `logs` is ln of the performance, shape (n,)."""

    row: SeriesRow
    points: SeriesPoints
    logs: Floats
    detection: Detection

    def is_at_step(self, time: float) -> bool:
        """Whether a confirmed step has this date (epoch seconds)."""
        return any(abs(step.time - time) <= NEAR_DATE_S for step in self.detection.changes)


def find_patterns(
    history: History,
    rows: Sequence[SeriesRow],
    detections: Mapping[int, Detection],
    level_starts: Mapping[int, int],
    previous: Sequence[Finding],
    slow_loss: float,
) -> list[PatternGroup]:
    """Find the patterns that the series of a system show now, in groups by kind and date.

    Args:
        rows, detections: headline series of the system, and the detection of each by series id.
        level_starts: start of the accepted level in epoch seconds, by series id.
        previous: findings of patterns of the last update.
        slow_loss: share of the performance from which on a slow loss is stated.
    """
    if not rows:
        return []
    since = _assessed_since(rows, previous)
    series = _load_assessed(history, rows, detections, level_starts, since)
    if not series:
        return []
    changes: list[PatternChange] = []
    for assessed in series:
        change = _first_pattern(assessed, slow_loss)
        if change is not None:
            changes.append(change)
    # Patterns of other metrics of the same cases; each is compared with the other series of its metrics.
    others = _load_other_metrics(history, series, level_starts, since)
    changes += _find_latency_changes(others)
    changes += _find_operation_changes(others)
    changes = [change for change in changes if not _has_other_pattern(change, previous)]
    groups: list[PatternGroup] = []
    for kind in get_args(PatternKind):
        changes_of_kind = [change for change in changes if change.kind == kind]
        compared = list(rows)
        if kind in ("latency", "operations"):
            compared = others.only([change.change.row.metric for change in changes_of_kind])
        groups += _group_by_date(kind, changes_of_kind, compared, previous)
    return groups


def _has_other_pattern(change: PatternChange, previous: Sequence[Finding]) -> bool:
    """Whether a series has a finding of another kind with this date: one that ends may look like another one."""
    for finding in previous:
        is_near = abs(change.change.first_after - finding.first_after) <= _SAME_EVENT_S
        has_series = any(member.series_id == change.change.row.id for member in finding.members)
        if finding.pattern != change.kind and is_near and has_series:
            return True
    return False


def _assessed_since(rows: Sequence[SeriesRow], previous: Sequence[Finding]) -> int:
    """Epoch seconds from which on observations are assessed: also those before a known pattern."""
    since = max(row.last or 0 for row in rows) - _ASSESSED_S
    for finding in previous:
        if finding.resolution is None:
            since = min(since, finding.first_after - _BEFORE_FINDING_S)
    return since


def _load_assessed(
    history: History,
    rows: Sequence[SeriesRow],
    detections: Mapping[int, Detection],
    level_starts: Mapping[int, int],
    since: int,
) -> list[_AssessedSeries]:
    """The series that are still measured, with their observations since `since` (epoch seconds)."""
    newest = max(row.last or 0 for row in rows)
    measured = [row for row in rows if (row.last or 0) > newest - MEASURED_S and row.id in detections]
    observations = load_observations(history, measured, since)
    series: list[_AssessedSeries] = []
    for row in measured:
        points = observations[row.id]
        points = points.only(points.time >= level_starts.get(row.id, 0))
        metric = METRICS[row.metric]
        values = metric.best_bound(points.min, points.max)
        series.append(_AssessedSeries(row, points, metric.sign * np.log(values), detections[row.id]))
    return series


def _first_pattern(series: _AssessedSeries, slow_loss: float) -> PatternChange | None:
    """The first one in the order of the module that a headline series shows; None without one."""
    for find in (_find_slower_repetitions, _find_alternation, _find_noise):
        change = find(series)
        if change is not None:
            return change
    return _find_drift(series, slow_loss)


def _find_slower_repetitions(series: _AssessedSeries) -> PatternChange | None:
    """The median of the repetitions falls against the best one."""
    # A session with one repetition has no other ones.
    points = series.points.only(series.points.count > 1)
    if not len(points.time):
        return None
    metric = METRICS[series.row.metric]
    best = metric.best_bound(points.min, points.max)
    shares = (points.median / best) ** metric.sign
    step = _newest_step(points.time, shares, -math.log(1 - _LEAST_LOSS))
    if step is None or step.ratio > 1 - _LEAST_LOSS or series.is_at_step(step.time):
        return None
    # Levels as a person reads them: medians of the repetitions on both sides.
    is_since = points.time >= step.time
    before, after = float(np.median(points.median[~is_since])), float(np.median(points.median[is_since]))
    point = replace(step, before=before, after=after, ratio=after / before)
    return PatternChange("repetitions", SeriesChange(series.row, point, math.log(step.ratio)))


def _newest_step(times: NDArray[np.int64], values: Floats, least_size: float) -> ChangePoint | None:
    """The last confirmed step of a derived series with at least this size (of ln); None without one.

    The detector is only asked where medians of consecutive observations differ so much.
    """
    # The oldest observations that fill no block do not matter: a step in them is long over.
    complete = len(values) - len(values) % _BLOCK
    if not complete:
        return None
    blocks = np.median(np.log(values[-complete:]).reshape(-1, _BLOCK), axis=1)
    if blocks.max() - blocks.min() < least_size:
        return None
    steps = detect_many([(times, values)])[0].changes
    if not steps or abs(math.log(steps[-1].ratio)) < least_size:
        return None
    return steps[-1]


def _find_alternation(series: _AssessedSeries) -> PatternChange | None:
    """Some sessions are bad since a date, the others are as before."""
    alternation = find_alternation(series.logs)
    if alternation is None:
        return None
    sign = METRICS[series.row.metric].sign
    point = _change_point(
        series.points.time,
        alternation.index,
        before=math.exp(sign * alternation.level),
        after=math.exp(sign * alternation.bad_level),
        confidence=1 - alternation.chance,
    )
    bad_sessions = BadSessions(
        bad=alternation.bad,
        sessions=alternation.observations,
        bad_before=alternation.bad_before,
        sessions_before=alternation.observations_before,
    )
    log_gain = alternation.bad_level - alternation.level
    return PatternChange("alternating", SeriesChange(series.row, point, log_gain), bad_sessions=bad_sessions)


def _find_noise(series: _AssessedSeries) -> PatternChange | None:
    """The sessions differ more from each other since a date."""
    increase = find_noise_increase(series.logs)
    if increase is None or series.is_at_step(series.points.time[increase.index]):
        return None
    before, since = 100 * increase.before, 100 * increase.since
    point = _change_point(series.points.time, increase.index, before, since, confidence=1 - increase.chance)
    return PatternChange("noise", SeriesChange(series.row, point, math.log(before / since)), unit="% noise")


def _find_drift(series: _AssessedSeries, slow_loss: float) -> PatternChange | None:
    """The newest drift of a series that continues, if it has lost enough."""
    newest = series.row.last or 0
    losses = [drift for drift in current_drifts(series.row, series.detection, newest) if drift.gain <= 1 - slow_loss]
    if not losses or not len(series.logs):
        return None
    drift = losses[-1]
    # From its beginning, which may be older than what is assessed, to the level of the newest observations.
    sign = METRICS[series.row.metric].sign
    level, log_gain = float(np.median(series.logs[-_BLOCK:])), math.log(drift.gain)
    point = _change_point(
        np.array([drift.first, drift.last]),
        0,
        before=math.exp(sign * (level - log_gain)),
        after=math.exp(sign * level),
        confidence=_CERTAIN,
    )
    point = replace(point, observations=len(series.logs))
    return PatternChange("drift", SeriesChange(series.row, point, log_gain))


def _change_point(times: NDArray[np.int64], index: int, before: float, after: float, confidence: float) -> ChangePoint:
    """A confirmed change at an observation, from one positive value to another one in the same unit."""
    return ChangePoint(
        index=index,
        time=float(times[index]),
        last_before=float(times[max(0, index - 1)]),
        direction="up" if after > before else "down",
        ratio=after / before,
        before=before,
        after=after,
        confidence=confidence,
        observations=len(times) - index,
    )


CaseOfSeries = tuple[str, str, str]
"""Partition, stack and key of the case of a series."""


def _case_of(row: SeriesRow) -> CaseOfSeries:
    return row.partition, row.stack, row.case.key


@dataclass(frozen=True)
class _OtherMetrics:
    """The series of other metrics of the monitored cases, with their observations since the accepted level.

    Attributes:
        points: by series id.
        steps: dates of the confirmed steps of the headline series, epoch seconds, by case.
    """

    rows: tuple[SeriesRow, ...]
    points: Mapping[int, SeriesPoints]
    steps: Mapping[CaseOfSeries, Sequence[float]]

    def only(self, metrics: Sequence[str]) -> list[SeriesRow]:
        """The series of these metrics."""
        return [row for row in self.rows if row.metric in metrics]

    def is_at_step(self, row: SeriesRow, time: float) -> bool:
        """Whether the headline series of the same case has a step at a date (epoch seconds)."""
        return any(abs(step - time) <= NEAR_DATE_S for step in self.steps.get(_case_of(row), ()))


def _load_other_metrics(
    history: History, series: Sequence[_AssessedSeries], level_starts: Mapping[int, int], since: int
) -> _OtherMetrics:
    steps: dict[CaseOfSeries, list[float]] = {}
    for assessed in series:
        steps[_case_of(assessed.row)] = [step.time for step in assessed.detection.changes]
    rows: list[SeriesRow] = []
    metrics = (*_LATENCY_METRICS, *_OPERATION_METRICS)
    for row in history.series(SeriesFilter(system=series[0].row.system)):
        if row.n and row.metric in metrics and _case_of(row) in steps:
            rows.append(row)
    points: dict[int, SeriesPoints] = {}
    for series_id, series_points in load_observations(history, rows, since).items():
        points[series_id] = series_points.only(series_points.time >= level_starts.get(series_id, 0))
    return _OtherMetrics(tuple(rows), points, steps)


def _find_latency_changes(others: _OtherMetrics) -> list[PatternChange]:
    """Times to open, sync or close, and of the slowest transfers, that grew, by their medians over the repetitions."""
    changes: list[PatternChange] = []
    for row in others.only(_LATENCY_METRICS):
        points = others.points[row.id]
        if not len(points.time):
            continue
        # Less than a microsecond is no time that a file system takes.
        step = _newest_step(points.time, np.maximum(points.median, 1e-6), math.log(_LEAST_FACTOR))
        if step is None or step.ratio < _LEAST_FACTOR or step.after < _LEAST_TIME_S:
            continue
        if not others.is_at_step(row, step.time):
            changes.append(PatternChange("latency", SeriesChange(row, step, -math.log(step.ratio))))
    return changes


def _find_operation_changes(others: _OtherMetrics) -> list[PatternChange]:
    """Counts of operations that were the same in each session, and are others in the newest ones."""
    changes: list[PatternChange] = []
    for row in others.only(_OPERATION_METRICS):
        points = others.points[row.id]
        counts = np.round(points.median)
        borders = np.flatnonzero(np.diff(counts)) + 1
        if not len(borders):
            continue
        # The newest sessions with one count, and those before with another one.
        index = int(borders[-1])
        start = int(borders[-2]) if len(borders) > 1 else 0
        is_fact = index - start >= _SESSIONS_BEFORE and len(counts) - index >= _SESSIONS_SINCE
        if not is_fact or others.is_at_step(row, float(points.time[index])):
            continue
        # One more, so that a count of 0 has a ratio.
        before, after = float(counts[index - 1]) + 1, float(counts[index]) + 1
        point = _change_point(points.time, index, before, after, _CERTAIN)
        point = replace(point, before=before - 1, after=after - 1)
        changes.append(PatternChange("operations", SeriesChange(row, point, -abs(math.log(after / before)))))
    return changes


def _group_by_date(
    kind: PatternKind, changes: Sequence[PatternChange], compared: Sequence[SeriesRow], previous: Sequence[Finding]
) -> list[PatternGroup]:
    """Groups of the changes of one kind: those of known findings, then the others by date."""
    groups: list[PatternGroup] = []
    remaining = sorted(changes, key=lambda change: change.change.first_after)
    for finding in previous:
        if finding.pattern != kind or finding.resolution is not None or finding.state == "accepted":
            continue
        # A known finding keeps its date: those of patterns move by some sessions from morning to morning.
        series_ids = {member.series_id for member in finding.members}
        if not any(change.change.row.id in series_ids for change in remaining):
            continue
        belonging: list[PatternChange] = []
        for change in remaining:
            is_near = abs(change.change.first_after - finding.first_after) <= _SAME_EVENT_S
            if is_near or change.change.row.id in series_ids:
                belonging.append(change)
        remaining = [change for change in remaining if change not in belonging]
        groups.append(_make_group(kind, belonging, compared, finding.last_before, finding.first_after))
    while remaining:
        latest = remaining[0].change.first_after + _SAME_EVENT_S
        near = [change for change in remaining if change.change.first_after <= latest]
        remaining = remaining[len(near) :]
        # The date of the middle one.
        middle = near[len(near) // 2].change
        groups.append(_make_group(kind, near, compared, middle.last_before, middle.first_after))
    return groups


def _make_group(
    kind: PatternKind,
    changes: Sequence[PatternChange],
    compared: Sequence[SeriesRow],
    last_before: int,
    first_after: int,
) -> PatternGroup:
    group = ChangeGroup(tuple(change.change for change in changes), last_before, first_after)
    return PatternGroup(kind, group, tuple(changes), tuple(compared))


@dataclass(frozen=True)
class AlternatingSeries:
    """Since when a series alternates (epoch seconds), and the gain of its bad sessions (ln, below 0)."""

    since: int
    log_gain: float

    def explains(self, change: SeriesChange) -> bool:
        """Whether a change of this series is one more bad session, or one more good session."""
        is_like = abs(change.log_gain) <= _ALTERNATING_MARGIN * abs(self.log_gain)
        return change.first_after >= self.since and is_like


def alternating_series(groups: Sequence[PatternGroup]) -> dict[int, AlternatingSeries]:
    """The series that alternate, by id."""
    series: dict[int, AlternatingSeries] = {}
    for group in groups:
        if group.kind == "alternating":
            for change in group.group.changes:
                series[change.row.id] = AlternatingSeries(change.first_after - NEAR_DATE_S, change.log_gain)
    return series


def without_steps_between(
    changes: Mapping[int, Sequence[ChangePoint]], alternating: Mapping[int, AlternatingSeries]
) -> dict[int, Sequence[ChangePoint]]:
    """Changes by series id, without the steps of alternating series since they began to alternate.

    Where every second session is bad, the detector may find steps down and up between the two levels.

    Args:
        alternating: by series id.
    """
    kept: dict[int, Sequence[ChangePoint]] = {}
    for series_id, steps in changes.items():
        beginning = alternating[series_id].since if series_id in alternating else math.inf
        kept[series_id] = [step for step in steps if step.time < beginning]
    return kept


def without_newest_of_alternating(
    groups: Sequence[ChangeGroup], alternating: Mapping[int, AlternatingSeries]
) -> list[ChangeGroup]:
    """Groups without those that only the newest sessions of alternating series show, by a session like those before.

    Args:
        alternating: by series id.
    """
    kept: list[ChangeGroup] = []
    for group in groups:
        unexplained: list[SeriesChange] = []
        for change in group.changes:
            series = alternating.get(change.row.id)
            if series is None or not series.explains(change):
                unexplained.append(change)
        if unexplained or not group.is_newest:
            kept.append(group)
    return kept


def as_pattern(finding: Finding, group: PatternGroup) -> Finding:
    """The finding of a group of steps as that of a pattern, with the units and counts of its members.

    Probes and layers compare levels before and after a date, which a pattern need not change.
    """
    facts = {change.change.row.id: change for change in group.changes}
    members = []
    for member in finding.members:
        change = facts.get(member.series_id)
        if change is not None:
            member = replace(member, unit=change.unit or member.unit, bad_sessions=change.bad_sessions)
        members.append(member)
    return replace(finding, pattern=group.kind, members=tuple(members), probes=(), layer=None)


def resolve_patterns(detected: Sequence[Finding], previous: Sequence[Finding], newest_s: int) -> list[Finding]:
    """The findings of patterns with their resolution: one that is not seen for the confirmation period is over.

    Args:
        detected: findings of this update.
        previous: findings of patterns of the last update.
        newest_s: time of the newest run, epoch seconds.
    """
    detected_ids = {finding.id for finding in detected}
    findings = [replace(finding, resolution=None, missed_since=None) for finding in detected]
    for finding in previous:
        if finding.id in detected_ids:
            continue
        missed_since = finding.missed_since or newest_s
        resolution = finding.resolution
        is_over = newest_s - missed_since >= CONFIRMATION_PERIOD_S and finding.state != "accepted"
        if resolution is None and is_over:
            resolution = Resolution("over", since=missed_since)
        findings.append(replace(finding, missed_since=missed_since, resolution=resolution))
    return findings
