"""Groups of changes of one system that belong to one event, and the known findings that they continue.

Changes with nearby dates form a group, gains and losses alike. At the date of a group every series is changed,
unchanged or without data; this is the input of the explanation. A finding keeps its id while its members and date are
refined. Drifts are not steps, so they are listed as trends and not as findings.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import median

import numpy as np
from numpy.typing import NDArray

from iowatch.core import DAY_S, METRICS, Scalar, local_day
from iowatch.findings.case_parameters import CASE_PARAMETERS, derive_parameters, short_case_names
from iowatch.findings.finding import Finding, FindingMember, PerformanceDirection
from iowatch.findings.series import headline_series, headline_values, load_detections
from iowatch.findings.text import format_day, format_factor
from iowatch.site import system_zone, with_file_system
from iowatch.statistics import ChangePoint, Detection, SeriesResponse
from iowatch.statistics.panel import PanelEvent
from iowatch.statistics.rules import find_rule
from iowatch.store import History, SeriesPoints, SeriesRow

Floats = NDArray[np.float64]

# A detector dates a step to within some observations; changes within this time are one event.
_NEIGHBOURHOOD_S = 3 * DAY_S
# Runs of one session start within this time of each other.
_SESSION_S = DAY_S // 2
# Minimum distance of two events, and minimum share of the series of each that are on its side of the rule. Smaller
# differences may be due to the uncertainty of dates in noise.
_SEPARATE_EVENTS_S, _MIN_RULE_QUALITY = DAY_S // 2, 0.9
# Dates whose agreement is at least this share of the best are about equal.
_ABOUT_EQUAL = 0.9
# States in which a person has decided about a finding.
_DECIDED_STATES = ("acknowledged", "accepted", "dismissed")
# Ratio of the two directions of a group from which the direction of a known finding changes.
_CLEARLY_LARGER = 1.5
# Largest weight of the confidence of a change in dating (nats; 0.999 is 6.9).
_MAX_EVIDENCE = 7.0


@dataclass(frozen=True)
class SeriesChange:
    """A change with its series; `log_gain` is the natural logarithm of the performance ratio."""

    row: SeriesRow
    change: ChangePoint
    log_gain: float

    @property
    def direction(self) -> PerformanceDirection:
        """Of the performance."""
        return "up" if self.log_gain > 0 else "down"

    @property
    def weight(self) -> float:
        """Weight in dating: |log gain| times the evidence of the confidence in nats."""
        return abs(self.log_gain) * min(-math.log(max(1 - self.change.confidence, 1e-9)), _MAX_EVIDENCE)

    @property
    def last_before(self) -> int:
        """Epoch seconds of the last run before the change."""
        return int(self.change.last_before)

    @property
    def first_after(self) -> int:
        """Epoch seconds of the first run at the new level."""
        return int(self.change.time)


@dataclass(frozen=True)
class ChangeGroup:
    """Changes of one event; the event happened between `last_before` and `first_after` (epoch seconds).

    `changes` are those of both directions, in order of time. `event` is what the newest sessions of all series show,
    `known_direction` is that of the finding that the group continues.
    """

    changes: tuple[SeriesChange, ...]
    last_before: int
    first_after: int
    event: PanelEvent | None = None
    known_direction: PerformanceDirection | None = None

    @property
    def is_newest(self) -> bool:
        """Whether only the newest sessions show it (all series together, or the control chart), and no sure change."""
        return all(m.change.suspected for m in self.changes)

    @property
    def direction(self) -> PerformanceDirection:
        """Direction of most of the change, summed as |log gain|; a known one unless the other is clearly larger."""
        up, down = (sum(max(sign * m.log_gain, 0.0) for m in self.changes) for sign in (1, -1))
        share = {None: 1.0, "up": _CLEARLY_LARGER, "down": 1 / _CLEARLY_LARGER}[self.known_direction]
        return "up" if up * share > down else "down"

    @property
    def main(self) -> tuple[SeriesChange, ...]:
        """The changes in the direction of the group."""
        return tuple(m for m in self.changes if m.direction == self.direction)

    @property
    def opposite(self) -> tuple[SeriesChange, ...]:
        """The changes in the other direction."""
        return tuple(m for m in self.changes if m.direction != self.direction)

    @property
    def boundary(self) -> int:
        """Time that separates the observations before and after the event, for series that are not in the group."""
        return self.first_after - _HALF_DAY_S // 2

    @property
    def series_ids(self) -> frozenset[int]:
        """Ids of the series in the group."""
        return frozenset(m.row.id for m in self.changes)


def series_parameters(row: SeriesRow) -> dict[str, Scalar]:
    """Parameters of the case, and axes of the series."""
    return {"stack": row.stack, "partition": row.partition, **_case_parameters(row)}


def _case_parameters(row: SeriesRow) -> dict[str, Scalar]:
    known = with_file_system(row.system, row.case.benchmark, row.case.parameters)
    return {"benchmark": row.case.benchmark, **known}


def group_changes(rows: Sequence[SeriesRow], changes: Mapping[int, Sequence[ChangePoint]]) -> list[ChangeGroup]:
    """Group changes, in order of time.

    Repeatedly, the date that agrees with most of the remaining changes collects those near it.
    """
    remaining = [
        SeriesChange(row, c, METRICS[row.metric].log_gain(c.ratio)) for row in rows for c in changes.get(row.id, ())
    ]
    groups: list[ChangeGroup] = []
    while remaining:
        group = _separate_first_event(_gather_group(remaining))
        groups.append(group)
        taken = set(map(id, group.changes))
        remaining = [m for m in remaining if id(m) not in taken]
    return sorted(groups, key=lambda g: (g.first_after, g.direction))


def _gather_group(left: Sequence[SeriesChange]) -> ChangeGroup:
    """The group at the strongest date: for each series the nearest change within the neighbourhood."""
    date = _strongest_date_s(left)
    nearest: dict[int, SeriesChange] = {}
    for candidate in sorted(left, key=lambda m: _distance_s(m, date)):
        if _distance_s(candidate, date) <= _NEIGHBOURHOOD_S:
            nearest.setdefault(candidate.row.id, candidate)
    near = _drop_weak_suspicions(list(nearest.values()))
    return _make_group(near, _strongest_date_s(near))


def _make_group(changes: Sequence[SeriesChange], date: int) -> ChangeGroup:
    last_before = max(m.last_before for m in changes if _distance_s(m, date) == 0)
    return ChangeGroup(tuple(sorted(changes, key=lambda m: m.first_after)), last_before, date)


def _separate_first_event(group: ChangeGroup) -> ChangeGroup:
    """Remove from a group a second event of nearby days: series of another date with a common factor of their own.

    Series dated to neither date, or to the wrong one, are assigned by the rule.
    """
    late = [m for m in group.changes if _distance_s(m, group.first_after) > _SEPARATE_EVENTS_S]
    if not late:
        return group
    other = _strongest_date_s(late)
    nearer = [_distance_s(m, other) < _distance_s(m, group.first_after) for m in group.changes]
    derived = [derive_parameters(series_parameters(m.row)) for m in group.changes]
    rule = find_rule(derived, np.asarray(nearer), CASE_PARAMETERS)
    if rule is None or not rule.conditions or min(rule.precision, rule.recall) < _MIN_RULE_QUALITY:
        return group
    first_event = [
        m
        for m, parameters in zip(group.changes, derived, strict=True)
        if not all(c.holds(parameters) for c in rule.conditions)
    ]
    return _make_group(first_event, _strongest_date_s(first_event))


def _strongest_date_s(changes: Sequence[SeriesChange]) -> int:
    """Epoch seconds of the first run at a new level with the largest agreement.

    Of dates that agree about equally well, the one on which most of the evidence was first measured; a weak change
    before a pause does not date what the others show after it. Then the earliest.
    """
    dates, agreement, measured = _score_dates(changes)
    return int(dates[np.argmax(np.where(agreement >= _ABOUT_EQUAL * agreement.max(), measured, -1.0))])


def _score_dates(changes: Sequence[SeriesChange]) -> tuple[NDArray[np.int64], Floats, Floats]:
    """First runs at a new level (epoch seconds); per date the weight that agrees, and that was first measured then.

    A change agrees with every time between its last run before and its first run after it, plus the duration of a
    session.
    """
    weights = np.asarray([m.weight for m in changes])
    dates = np.unique([m.first_after for m in changes])

    def begun(starts: Sequence[int]) -> Floats:
        """Total weight of the `starts` before each date, shape of `dates`."""
        order = np.argsort(starts)
        total = np.concatenate([[0.0], np.cumsum(weights[order])])
        return np.asarray(total[np.searchsorted(np.asarray(starts)[order], dates)])

    ended = begun([m.first_after + _SESSION_S for m in changes])
    agreement = begun([m.last_before for m in changes]) - ended
    measured = begun([m.first_after - _SESSION_S for m in changes]) - ended
    return dates, np.round(agreement, 9), np.round(measured, 9)


def _distance_s(change: SeriesChange, date: int) -> int:
    """Seconds from `date` to the gap between runs in which a change happened; 0 inside the gap."""
    return max(0, change.last_before - date + 1, date - change.first_after - _SESSION_S)


def _drop_weak_suspicions(near: list[SeriesChange]) -> list[SeriesChange]:
    """Drop suspicions that are small compared with the confirmed changes of their direction, or sessions later."""
    confirmed = [m for m in near if not m.change.suspected]
    if not confirmed:
        return near
    date = _strongest_date_s(confirmed)

    def is_small(one: SeriesChange) -> bool:
        same = [abs(m.log_gain) for m in confirmed if m.direction == one.direction]
        return abs(one.log_gain) < 0.5 * median(same or [abs(m.log_gain) for m in confirmed])

    return [m for m in near if not m.change.suspected or not (is_small(m) or _distance_s(m, date) > _SEPARATE_EVENTS_S)]


# Levels of unchanged series are medians of at most this many observations on each side.
_MAX_OBSERVATIONS = 30
_HALF_DAY_S = DAY_S // 2
# A series whose level differs in the same direction by this share of the size of the event is not called unchanged,
# even without a detected change: noise may hide a change, or the series is too short to be assessed.
_UNCERTAIN_SHARE = 0.5


@dataclass(frozen=True)
class EventComparison:
    """Every series before and after the date of a group.

    Attributes:
        main, opposite: responses of the changed series, as in the group.
        unchanged: responses of the unchanged series.
        without_data: number of series without runs on both sides.
        changed_otherwise: number of other series that changed at that time, or uncertainly.
    """

    main: list[SeriesResponse]
    opposite: list[SeriesResponse]
    unchanged: list[SeriesResponse]
    without_data: int
    changed_otherwise: int


def compare_around_date(
    group: ChangeGroup,
    rows: Sequence[SeriesRow],
    changes: Mapping[int, Sequence[ChangePoint]],
    points: Mapping[int, SeriesPoints],
) -> EventComparison:
    """Compare every series before and after the date of the group.

    Args:
        rows: all headline series of the system.
        changes: changes of each series, by series id.
        points: observations of each series, by series id, around the date.
    """
    unchanged: list[SeriesResponse] = []
    without_data = changed_otherwise = 0
    # Least change by sign that is not called unchanged.
    least = {
        1 if one[0].direction == "up" else -1: _UNCERTAIN_SHARE * median(abs(m.log_gain) for m in one)
        for one in (group.main, group.opposite)
        if one
    }
    start, end = group.last_before - _HALF_DAY_S, group.first_after + _HALF_DAY_S
    for row in [row for row in rows if row.id not in group.series_ids]:
        series_changes = changes.get(row.id, ())
        ratio = _median_ratio(row, points[row.id], series_changes, group)
        gain = None if ratio is None else METRICS[row.metric].log_gain(ratio)
        if any(c.time > start and c.last_before < end for c in series_changes):
            changed_otherwise += 1  # neither changed with the group nor unchanged
        elif gain is None:
            without_data += 1
        elif any(gain * sign >= size for sign, size in least.items()):
            changed_otherwise += 1
        else:
            unchanged.append(SeriesResponse(series_parameters(row), False, gain))
    main, opposite = (
        [SeriesResponse(series_parameters(m.row), True, m.log_gain) for m in one]
        for one in (group.main, group.opposite)
    )
    return EventComparison(main, opposite, unchanged, without_data, changed_otherwise)


def levels_around(
    row: SeriesRow, points: SeriesPoints, changes: Sequence[ChangePoint], boundary: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The last observations before a time (epoch seconds) and the first from it on, up to the adjacent changes."""
    start = max((c.time for c in changes if c.time <= boundary), default=0)
    end = min((c.time for c in changes if c.time > boundary), default=2**62)
    values = headline_values(row, points)
    before = values[(points.time >= start) & (points.time < boundary)][-_MAX_OBSERVATIONS:]
    return before, values[(points.time >= boundary) & (points.time < end)][:_MAX_OBSERVATIONS]


def _median_ratio(
    row: SeriesRow, points: SeriesPoints, changes: Sequence[ChangePoint], group: ChangeGroup
) -> float | None:
    """Median after / median before the date of the group; None without observations on both sides."""
    before, after = levels_around(row, points, changes, group.boundary)
    return float(np.median(after) / np.median(before)) if len(before) and len(after) else None


def make_member(series_change: SeriesChange, points: SeriesPoints, name: str) -> FindingMember:
    """Create the member of a finding from a changed series, with the runs on both sides of the change."""
    row, change = series_change.row, series_change.change
    runs = dict(zip(points.time[::-1].tolist(), points.run_id[::-1].tolist(), strict=True))
    return FindingMember(
        series_id=row.id,
        name=name,
        partition=row.partition,
        stack=row.stack,
        case_key=row.case.key,
        parameters=_case_parameters(row),
        metric=row.metric,
        unit=METRICS[row.metric].unit,
        last_before=series_change.last_before,
        first_after=series_change.first_after,
        before=change.before,
        after=change.after,
        ratio=change.ratio,
        gain=math.exp(series_change.log_gain),
        confidence=change.confidence,
        suspected=change.suspected,
        observations=change.observations,
        run_before=runs.get(series_change.last_before),
        run_after=runs.get(series_change.first_after),
    )


# Largest distance between gaps of runs; gaps of consecutive sessions touch. The additional half day allows for
# different start times of sessions.
_SAME_EVENT_S = 4.5 * DAY_S
_SAME_DATE_S = 1.5 * DAY_S


def match_findings(
    groups: Sequence[ChangeGroup], known: Sequence[Finding], decided: Collection[str] = ()
) -> dict[int, Finding]:
    """Match groups with known findings, best pairs first: finding by position in `groups`.

    The dates must be near, and series must have changed in the same direction in both; of several candidates the one
    with most of them is chosen. Without such a series the direction must be equal. A finding that was not confirmed
    recurs only with the same series on about the same date; a dismissed one does not match groups of other series.
    Bad sessions of one week are different events: a group that only the newest sessions show continues a finding of
    its own date, and of the same session if a person has decided about the finding.

    Args:
        decided: ids of the findings about which a person has decided.
    """
    pairs = []
    for position, group in enumerate(groups):
        changed = {(m.row.id, m.direction) for m in group.changes}
        for finding in known:
            distance_s = gap_s(group, finding.last_before, finding.first_after)
            is_redated = finding.anchor != finding.first_after
            anchor_distance_s = gap_s(group, finding.anchor, finding.anchor) if is_redated else distance_s
            shared = len(changed & {(m.series_id, m.direction) for m in finding.members})
            is_other = not shared and finding.direction != group.direction
            is_near = distance_s == 0 or abs(group.first_after - finding.first_after) <= _SAME_DATE_S
            is_far = max(distance_s, anchor_distance_s) > _SAME_EVENT_S or (group.is_newest and not is_near)
            if is_other or is_far:
                continue
            # A decision about other series, or another session, says nothing of what only the newest sessions show.
            is_decided = group.is_newest and (finding.id in decided or finding.state in _DECIDED_STATES)
            if is_decided and abs(group.first_after - finding.first_after) > _SESSION_S:
                continue
            dismissed = finding.state == "dismissed" or is_decided
            is_missing = finding.missed_since is not None and (finding.resolution is not None or dismissed)
            if (shared or not (is_missing or dismissed)) and (not is_missing or distance_s <= _SAME_DATE_S):
                distance = (distance_s, abs(group.first_after - finding.first_after))
                pairs.append((-shared, distance, position, finding))
    matched: dict[int, Finding] = {}
    used: set[str] = set()
    for _, _, position, finding in sorted(pairs, key=lambda p: (p[0], p[1], p[2], p[3].id)):
        if position not in matched and finding.id not in used:
            matched[position] = finding
            used.add(finding.id)
    return matched


def gap_s(group: ChangeGroup, last_before: int, first_after: int) -> int:
    """Seconds between the gaps of runs in which a group and a finding happened; 0 if the gaps touch.

    A long downtime of a system is one gap, so a change dated to either end of it is the same event.
    """
    return max(0, group.last_before - first_after, last_before - group.first_after)


def new_finding_id(system: str, group: ChangeGroup, taken: set[str]) -> str:
    """Id from system, date and direction, `franklin-20090317-up`; a number is appended if the id is taken."""
    stem = f"{system[:22]}-{local_day(group.first_after, system_zone(system)):%Y%m%d}-{group.direction}"
    return next(name for n in count(1) if (name := stem if n == 1 else f"{stem}-{n}") not in taken)


# Seconds; a trend that ends earlier than this before the newest observation of its series is not current.
_MAX_AGE_S = 14 * DAY_S


@dataclass(frozen=True)
class Trend:
    """A slope of one series that continues; times in epoch seconds, `gain` from first to last observation."""

    system: str
    series_id: int
    name: str
    first: int
    last: int
    gain: float


def current_trends(row: SeriesRow, detection: Detection, newest: int) -> Iterator[tuple[int, int, float]]:
    """First and last observation (epoch seconds) and gain of each drift that extends to the newest observation.

    Args:
        newest: epoch seconds of the newest observation.
    """
    for drift in detection.drifts:
        if drift.last_time >= newest - _MAX_AGE_S:
            yield int(drift.time), int(drift.last_time), math.exp(METRICS[row.metric].log_gain(drift.ratio))


def find_trends(history: History, systems: Sequence[str]) -> list[Trend]:
    """Trends that extend to the newest observations, largest first, as of the last update of findings."""
    found: list[Trend] = []
    for system in systems:
        rows = headline_series(history, system)
        names = short_case_names([series_parameters(row) for row in rows])
        detections = load_detections(history, [row.id for row in rows])
        for row, name in zip(rows, names, strict=True):
            if row.id in detections:
                slopes = current_trends(row, detections[row.id], row.last or 0)
                found += [Trend(system, row.id, name, *slope) for slope in slopes]
    return sorted(found, key=lambda t: -abs(math.log(t.gain)))


def format_trends(found: Iterable[Trend]) -> Iterator[str]:
    """One line per trend, with a heading; empty without trends."""
    for position, trend in enumerate(found):
        if position == 0:
            yield "Slow trends, no step and no finding:"
        since = format_day(trend.first, system_zone(trend.system))
        yield f"  {trend.system}: {trend.name} {format_factor(trend.gain)} since {since}"
