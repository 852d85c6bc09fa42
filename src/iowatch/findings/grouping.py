"""Groups of changes of one system that belong to one event, and the known findings that they continue.

Changes with nearby dates form a group, gains and losses alike. At the date of a group every series is changed,
unchanged or without data; this is the input of the explanation. A finding keeps its id while its members and date are
refined. Drifts are not steps: they are trends (`iowatch.findings.trends`) and no findings.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from iowatch.core import DAY_S, METRICS, Scalar, local_day
from iowatch.findings.case_parameters import CASE_PARAMETERS, derive_parameters
from iowatch.findings.finding import Finding, FindingMember, PerformanceDirection
from iowatch.findings.series import headline_values
from iowatch.site import system_zone, with_file_system
from iowatch.statistics import ChangePoint, SeriesResponse
from iowatch.statistics.panel import PanelEvent
from iowatch.statistics.rules import find_rule
from iowatch.store import SeriesPoints, SeriesRow

Floats = NDArray[np.float64]

# A detector dates a step to within some observations; changes within this time are one event.
_NEIGHBOURHOOD_S = 3 * DAY_S
SESSION_S = DAY_S // 2
"""Runs of one session start within this time of each other, so that two events are farther apart."""

NEAR_DATE_S = 4 * DAY_S
"""Dates of one change that several methods found differ by at most this time (the detector of single series, the newest
sessions together, the control chart, patterns)."""

# Minimum share of the series of each of two events that are on its side of the rule. Smaller differences may be due to
# the uncertainty of dates in noise.
_MIN_RULE_QUALITY = 0.9
# A later change of so many times the size (of the logarithm) is an event of its own: ×0.003 beside ×0.3 is, ×0.3 beside
# ×0.5 is not. With twice as much, a series that falls to ×0.003 beside one at ×0.3 has the date of the other.
_MUCH_LARGER = 3.0
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
        gained = sum(change.log_gain for change in self.changes if change.log_gain > 0)
        lost = -sum(change.log_gain for change in self.changes if change.log_gain < 0)
        # The known direction stays until the other one is clearly larger.
        if self.known_direction == "up":
            gained *= _CLEARLY_LARGER
        elif self.known_direction == "down":
            lost *= _CLEARLY_LARGER
        return "up" if gained > lost else "down"

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
        return self.first_after - SESSION_S // 2

    @property
    def series_ids(self) -> frozenset[int]:
        """Ids of the series in the group."""
        return frozenset(m.row.id for m in self.changes)


def is_event_of_its_own(change: SeriesChange, group: ChangeGroup) -> bool:
    """Whether a change is too late and too large for the event of a group, also where its series is in the group.

    Its series was measured after the event before it changed, and changed by far more than the others of the group.
    """
    if change.last_before < group.first_after - SESSION_S:
        return False
    others = [other for other in group.changes if other.direction == change.direction]
    sizes = [abs(other.log_gain) for other in others if other.row.id != change.row.id]
    if not sizes:
        sizes = [abs(other.log_gain) for other in others]
    return bool(sizes) and abs(change.log_gain) >= _MUCH_LARGER * median(sizes)


def series_parameters(row: SeriesRow) -> dict[str, Scalar]:
    """Parameters of the case, and axes of the series."""
    return {"stack": row.stack, "partition": row.partition, **_case_parameters(row)}


def _case_parameters(row: SeriesRow) -> dict[str, Scalar]:
    parameters = with_file_system(row.system, row.case.benchmark, row.case.parameters)
    return {"benchmark": row.case.benchmark, **parameters}


def group_changes(rows: Sequence[SeriesRow], changes: Mapping[int, Sequence[ChangePoint]]) -> list[ChangeGroup]:
    """Group changes, in order of time.

    Repeatedly, the date that agrees with most of the remaining changes collects those near it.
    """
    remaining: list[SeriesChange] = []
    for row in rows:
        metric = METRICS[row.metric]
        for change in changes.get(row.id, ()):
            remaining.append(SeriesChange(row, change, metric.log_gain(change.ratio)))
    groups: list[ChangeGroup] = []
    while remaining:
        group = _separate_first_event(_without_other_sizes(_gather_group(remaining)))
        groups.append(group)
        # By identity: a series may have two equal changes.
        grouped = {id(change) for change in group.changes}
        remaining = [change for change in remaining if id(change) not in grouped]
    return sorted(groups, key=lambda group: (group.first_after, group.direction))


def _gather_group(remaining: Sequence[SeriesChange]) -> ChangeGroup:
    """The group at the strongest date: for each series the nearest change within the neighbourhood."""
    date = _strongest_date_s(remaining)
    nearest: dict[int, SeriesChange] = {}
    for candidate in sorted(remaining, key=lambda change: _distance_s(change, date)):
        if _distance_s(candidate, date) <= _NEIGHBOURHOOD_S:
            nearest.setdefault(candidate.row.id, candidate)
    near = _drop_weak_suspicions(list(nearest.values()))
    return _make_group(near, _strongest_date_s(near))


def _make_group(changes: Sequence[SeriesChange], date: int) -> ChangeGroup:
    last_before = max(change.last_before for change in changes if _distance_s(change, date) == 0)
    in_order = sorted(changes, key=lambda change: change.first_after)
    return ChangeGroup(tuple(in_order), last_before, date)


def _without_other_sizes(group: ChangeGroup) -> ChangeGroup:
    """A group without the changes of another date that are far larger or smaller than those of its date.

    They are another event of nearby days: a detector dates a change wrongly by a day or two where it is small beside
    the noise, and changes of one event by this factor apart in size are rare. Only changes in one direction compare.
    """
    on_date = [change for change in group.changes if _is_on_date(change, group.first_after)]
    kept: list[SeriesChange] = []
    for change in group.changes:
        sizes = [abs(other.log_gain) for other in on_date if other.direction == change.direction]
        if _is_on_date(change, group.first_after) or not sizes:
            kept.append(change)
            continue
        size, size_on_date = abs(change.log_gain), median(sizes)
        if max(size, size_on_date) < _MUCH_LARGER * min(size, size_on_date):
            kept.append(change)
    if len(kept) == len(group.changes):
        return group
    return _make_group(kept, group.first_after)


def _is_on_date(change: SeriesChange, date: int) -> bool:
    """Whether a change was first measured in the session of a date (epoch s), or its series was not measured then."""
    was_not_measured = _distance_s(change, date) == 0 and change.last_before < date - SESSION_S
    return was_not_measured or abs(change.first_after - date) <= SESSION_S


def _separate_first_event(group: ChangeGroup) -> ChangeGroup:
    """Remove from a group a second event of nearby days: series of another date with a common factor of their own.

    Series dated to neither date, or to the wrong one, are assigned by the rule.
    """
    late_changes: list[SeriesChange] = []
    for change in group.changes:
        if _distance_s(change, group.first_after) > SESSION_S:
            late_changes.append(change)
    if not late_changes:
        return group
    # The rule that tells the series nearer to the second date from those nearer to the first one.
    second_date = _strongest_date_s(late_changes)
    is_nearer_to_second: list[bool] = []
    parameters_of_series: list[dict[str, Scalar]] = []
    for change in group.changes:
        is_nearer_to_second.append(_distance_s(change, second_date) < _distance_s(change, group.first_after))
        parameters_of_series.append(derive_parameters(series_parameters(change.row)))
    rule = find_rule(parameters_of_series, np.asarray(is_nearer_to_second), CASE_PARAMETERS)
    if rule is None or not rule.conditions or min(rule.precision, rule.recall) < _MIN_RULE_QUALITY:
        return group
    first_event: list[SeriesChange] = []
    for change, parameters in zip(group.changes, parameters_of_series, strict=True):
        if not rule.holds(parameters):
            first_event.append(change)
    return _make_group(first_event, _strongest_date_s(first_event))


def _strongest_date_s(changes: Sequence[SeriesChange]) -> int:
    """Epoch seconds of the first run at a new level with the largest agreement.

    Of dates that agree about equally well, the one on which most of the evidence was first measured; a weak change
    before a pause does not date what the others show after it. Then the earliest.
    """
    scores = _score_dates(changes)
    is_about_best = scores.agreement >= _ABOUT_EQUAL * scores.agreement.max()
    measured = np.where(is_about_best, scores.measured, -1.0)
    return int(scores.dates[np.argmax(measured)])


@dataclass(frozen=True, eq=False)
class _DateScores:
    """How well some changes agree with dates; arrays of shape (dates,).

    Attributes:
        dates: first runs at a new level, epoch seconds.
        agreement: weight of the changes that agree with each date.
        measured: weight of the changes whose first run at the new level was in the session of each date.
    """

    dates: NDArray[np.int64]
    agreement: Floats
    measured: Floats


def _score_dates(changes: Sequence[SeriesChange]) -> _DateScores:
    """Score each first run at a new level as the date of all changes.

    A change agrees with every time between its last run before and its first run after it, plus the duration of a
    session.
    """
    weights = np.asarray([change.weight for change in changes])
    last_before = np.asarray([change.last_before for change in changes])
    first_after = np.asarray([change.first_after for change in changes])
    dates = np.unique(first_after)

    def weight_before(starts: NDArray[np.int64]) -> Floats:
        """Total weight of the `starts` before each date, shape of `dates`."""
        order = np.argsort(starts)
        totals = np.concatenate([[0.0], np.cumsum(weights[order])])
        return np.asarray(totals[np.searchsorted(starts[order], dates)])

    # Intervals that began before a date, less those that ended before it, contain the date.
    ended = weight_before(first_after + SESSION_S)
    agreement = weight_before(last_before) - ended
    measured = weight_before(first_after - SESSION_S) - ended
    return _DateScores(dates, np.round(agreement, 9), np.round(measured, 9))


def _distance_s(change: SeriesChange, date: int) -> int:
    """Seconds from `date` to the gap between runs in which a change happened; 0 inside the gap."""
    return max(0, change.last_before - date + 1, date - change.first_after - SESSION_S)


def _drop_weak_suspicions(near: list[SeriesChange]) -> list[SeriesChange]:
    """Drop suspicions that are small compared with the confirmed changes of their direction, or sessions later."""
    confirmed = [change for change in near if not change.change.suspected]
    if not confirmed:
        return near
    date = _strongest_date_s(confirmed)
    kept: list[SeriesChange] = []
    for change in near:
        is_certain = not change.change.suspected
        is_near = _distance_s(change, date) <= SESSION_S
        if is_certain or (is_near and not _is_small(change, confirmed)):
            kept.append(change)
    return kept


def _is_small(suspicion: SeriesChange, confirmed: Sequence[SeriesChange]) -> bool:
    """Whether a change is less than half of the typical confirmed one of its direction, or of all without such."""
    sizes: list[float] = []
    for change in confirmed:
        if change.direction == suspicion.direction:
            sizes.append(abs(change.log_gain))
    if not sizes:
        sizes = [abs(change.log_gain) for change in confirmed]
    return abs(suspicion.log_gain) < 0.5 * median(sizes)


# Levels of unchanged series are medians of at most this many observations on each side.
_MAX_OBSERVATIONS = 30
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
    # A series that changed by so much (of the logarithm) in the direction of a group may have changed with it.
    uncertain_gain = _uncertain_size(group, "up")
    uncertain_loss = _uncertain_size(group, "down")
    start, end = group.last_before - SESSION_S, group.first_after + SESSION_S
    unchanged: list[SeriesResponse] = []
    without_data = 0
    changed_otherwise = 0
    series_ids = group.series_ids
    for row in rows:
        if row.id in series_ids:
            continue
        series_changes = changes.get(row.id, ())
        if any(change.time > start and change.last_before < end for change in series_changes):
            changed_otherwise += 1  # neither changed with the group nor unchanged
            continue
        ratio = _median_ratio(row, points[row.id], series_changes, group)
        if ratio is None:
            without_data += 1
            continue
        gain = METRICS[row.metric].log_gain(ratio)
        if gain >= uncertain_gain or -gain >= uncertain_loss:
            changed_otherwise += 1
        else:
            unchanged.append(SeriesResponse(series_parameters(row), False, gain))
    return EventComparison(
        main=_responses(group.main),
        opposite=_responses(group.opposite),
        unchanged=unchanged,
        without_data=without_data,
        changed_otherwise=changed_otherwise,
    )


def _uncertain_size(group: ChangeGroup, direction: PerformanceDirection) -> float:
    """Least change (of the logarithm) in a direction that is not called unchanged; infinite if nothing changed so."""
    sizes = [abs(change.log_gain) for change in group.changes if change.direction == direction]
    return _UNCERTAIN_SHARE * median(sizes) if sizes else math.inf


def _responses(changes: Sequence[SeriesChange]) -> list[SeriesResponse]:
    return [SeriesResponse(series_parameters(change.row), True, change.log_gain) for change in changes]


@dataclass(frozen=True, eq=False)
class ObservationsAround:
    """Headline values of a series before and after a time, in its unit."""

    before: NDArray[np.float64]
    after: NDArray[np.float64]

    @property
    def are_on_both_sides(self) -> bool:
        """Whether there are observations before and after."""
        return bool(len(self.before)) and bool(len(self.after))


def observations_around(
    row: SeriesRow, points: SeriesPoints, changes: Sequence[ChangePoint], boundary: float
) -> ObservationsAround:
    """The last observations before a time (epoch seconds) and the first from it on, up to the adjacent changes."""
    start = max((change.time for change in changes if change.time <= boundary), default=0)
    end = min((change.time for change in changes if change.time > boundary), default=2**62)
    values = headline_values(row, points)
    is_before = (points.time >= start) & (points.time < boundary)
    is_after = (points.time >= boundary) & (points.time < end)
    return ObservationsAround(values[is_before][-_MAX_OBSERVATIONS:], values[is_after][:_MAX_OBSERVATIONS])


def _median_ratio(
    row: SeriesRow, points: SeriesPoints, changes: Sequence[ChangePoint], group: ChangeGroup
) -> float | None:
    """Median after / median before the date of the group; None without observations on both sides."""
    observations = observations_around(row, points, changes, group.boundary)
    if not observations.are_on_both_sides:
        return None
    before, after = float(np.median(observations.before)), float(np.median(observations.after))
    if before == after:
        return 1.0
    # Counts of operations can be 0.
    return after / before if before else None


def make_member(series_change: SeriesChange, points: SeriesPoints, name: str) -> FindingMember:
    """Create the member of a finding from a changed series, with the runs on both sides of the change."""
    row, change = series_change.row, series_change.change
    # Of several runs at one time the first one.
    runs: dict[int, int] = {}
    for time, run in zip(points.time.tolist(), points.run_id.tolist(), strict=True):
        runs.setdefault(time, run)
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
    groups: Sequence[ChangeGroup], previous: Sequence[Finding], decided: Collection[str] = ()
) -> dict[int, Finding]:
    """Match groups with known findings, best pairs first: finding by position in `groups`.

    The dates must be near, and series must have changed in the same direction in both; of several candidates the one
    with most of them is chosen. Without such a series the direction must be equal. A finding that was not confirmed
    recurs only with the same series on about the same date; a dismissed one does not match groups of other series.
    Bad sessions of one week are different events: a group that only the newest sessions show continues a finding of
    its own date, and of the same session if it has other series or if a person has decided about the finding.

    Args:
        decided: ids of the findings about which a person has decided.
    """
    pairs: list[_MatchPair] = []
    for position, group in enumerate(groups):
        for finding in previous:
            shared = _count_shared(group, finding)
            if _may_continue(group, finding, shared, finding.id in decided):
                pairs.append(
                    _MatchPair(shared, gap_s(group, finding.last_before, finding.first_after), position, finding)
                )
    # Most shared series first, then the nearest date.
    pairs.sort(key=lambda pair: pair.sort_key(groups))
    matched: dict[int, Finding] = {}
    used_ids: set[str] = set()
    for pair in pairs:
        if pair.position not in matched and pair.finding.id not in used_ids:
            matched[pair.position] = pair.finding
            used_ids.add(pair.finding.id)
    return matched


def _count_shared(group: ChangeGroup, finding: Finding) -> int:
    """Number of series that changed in the same direction in both.

    What only the newest sessions show, later and far larger than the change of the finding, is another event.
    """
    members = {(member.series_id, member.direction): member for member in finding.members}
    shared = 0
    for change in group.changes:
        member = members.get((change.row.id, change.direction))
        if member is None:
            continue
        is_later = change.first_after - member.first_after > SESSION_S
        is_larger = abs(change.log_gain) >= _MUCH_LARGER * abs(math.log(member.gain))
        if not (group.is_newest and is_later and is_larger):
            shared += 1
    return shared


@dataclass(frozen=True)
class _MatchPair:
    """A group (by its position) that may continue a finding, with their shared series and the seconds between them."""

    shared: int
    distance_s: int
    position: int
    finding: Finding

    def sort_key(self, groups: Sequence[ChangeGroup]) -> tuple[int, int, int, int, str]:
        """Key that sorts the best pairs first."""
        date_distance_s = abs(groups[self.position].first_after - self.finding.first_after)
        return -self.shared, self.distance_s, date_distance_s, self.position, self.finding.id


def _may_continue(group: ChangeGroup, finding: Finding, shared: int, is_decided: bool) -> bool:
    """Whether a group may be the same event as a known finding.

    Args:
        shared: number of series that changed in the same direction in both.
        is_decided: whether a person has decided about the finding.
    """
    if not shared and finding.direction != group.direction:
        return False
    # Near to the present date of the finding and to the first one: dates must not wander.
    distance_s = gap_s(group, finding.last_before, finding.first_after)
    anchor_distance_s = distance_s
    if finding.anchor != finding.first_after:
        anchor_distance_s = gap_s(group, finding.anchor, finding.anchor)
    if max(distance_s, anchor_distance_s) > _SAME_EVENT_S:
        return False
    between_dates_s = abs(group.first_after - finding.first_after)
    if group.is_newest and distance_s > 0 and between_dates_s > _SAME_DATE_S:
        return False
    # What only the newest sessions show in other series is an event of its own, unless it has the same date.
    if group.is_newest and not shared and between_dates_s > SESSION_S:
        return False
    # A decision about other series, or another session, says nothing of what only the newest sessions show.
    is_closed = group.is_newest and (is_decided or finding.state in _DECIDED_STATES)
    if is_closed and between_dates_s > SESSION_S:
        return False
    is_dismissed = finding.state == "dismissed" or is_closed
    is_missing = finding.missed_since is not None and (finding.resolution is not None or is_dismissed)
    if is_missing and distance_s > _SAME_DATE_S:
        return False
    return shared > 0 or not (is_missing or is_dismissed)


def gap_s(group: ChangeGroup, last_before: int, first_after: int) -> int:
    """Seconds between the gaps of runs in which a group and a finding happened; 0 if the gaps touch.

    A long downtime of a system is one gap, so a change dated to either end of it is the same event.
    """
    return max(0, group.last_before - first_after, last_before - group.first_after)


# Longest id in the history, and longest name of a system in it.
_ID_CHARACTERS, _SYSTEM_CHARACTERS = 40, 22


def new_finding_id(system: str, group: ChangeGroup, pattern: str | None, taken: set[str]) -> str:
    """Id from system, date and direction, `franklin-20090317-up`; a number is appended if the id is taken.

    Losses come first: `up` only if no series lost performance, also where the gains are larger.

    Args:
        pattern: kind of its pattern, which stands for the direction; None for steps.
    """
    has_losses = any(change.direction == "down" for change in group.changes)
    direction = "down" if has_losses else "up"
    day = local_day(group.first_after, system_zone(system))
    end = f"-{day:%Y%m%d}-{pattern or direction}"
    # Space for a number of three digits.
    stem = f"{system[: min(_SYSTEM_CHARACTERS, _ID_CHARACTERS - len(end) - 4)]}{end}"
    name = stem
    number = 1
    while name in taken:
        number += 1
        name = f"{stem}-{number}"
    return name
