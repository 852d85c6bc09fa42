"""The newest sessions of all series together: groups of changes before single series are sure, and their counts.

`iowatch.statistics.panel` has the statistics; here are its observations, and how its events join the groups of changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from iowatch.core import DAY_S, METRICS
from iowatch.findings.case_parameters import CASE_PARAMETERS
from iowatch.findings.detections import load_tables
from iowatch.findings.finding import SURE_STATES, Finding, PerformanceDirection, are_sure
from iowatch.findings.grouping import (
    NEAR_DATE_S,
    SESSION_S,
    ChangeGroup,
    SeriesChange,
    is_event_of_its_own,
    series_parameters,
)
from iowatch.findings.series import MEASURED_S, headline_values, load_observations
from iowatch.statistics import ChangePoint, Detection, DetectorSettings
from iowatch.statistics.method import Adjustment
from iowatch.statistics.panel import PanelEvent, PanelGroup, PanelMember, PanelReport, assess_panel
from iowatch.statistics.panel_table import NEWEST_SESSIONS, PanelSeries, session_starts
from iowatch.statistics.shared_load import adjust_together, load_margin, new_load
from iowatch.store import History, NewestSessionReport, SeriesPoints, SeriesRow

# Seconds; older observations say little about the usual bad sessions of a system.
_PANEL_S = 400 * DAY_S
# An event with a smaller probability at the end of its newest sessions is not taken for a lasting one.
_LASTS = 0.5
# Share of the events with which a load changed for the first time that are no effect of the load: nobody knows.
_NEW_LOAD_SHARE = 0.5
# Suspected changes of single series in the other direction join an event from this share of its typical size, number
# of changes and probability that the event lasts on. In its own direction 12 of 45 belonged to it (100 panels of
# Edison, 60 of Cori, 80 of Mira and the 100 of the tests).
_LEAST_SIZE_BESIDE, _LEAST_BESIDE, _PROBABLE = 0.5, 2, 0.45
# A series that moves in the other direction than an event stayed within its usual range with less than this share of
# the typical size of the event, and within so many scatters of its level.
_SMALL_SHARE, _USUAL_DISTANCE = 0.25, 3.0
# A series is back with less than this share of its change (of the logarithm).
_RETURNED_SHARE = 0.3
# Observations; a longer change does not count as a burst.
_LONGEST_TRANSIENT = DetectorSettings().transient_observations
# Observations of a series that confirm a change of its level.
_CONFIRMED = DetectorSettings().confirm_observations
# A group this near to a known finding with the same change of a series is that finding.
_SAME_DATE_S = 3 * DAY_S


@dataclass(frozen=True)
class NewestSeries:
    """The observations of all series of one system, as the newest sessions are assessed.

    Attributes:
        series: without the effect of a covariate that predicts all of them together, and with their established steps;
            in the order of the rows.
        uncut: the same, with the observations before accepted levels.
        load_margins: of each observation in `uncut`, from `shared_load.load_margin` (ln); all 0 without an adjustment.
        load: the covariates of the series.
        adjustment: what was removed; None without such a covariate.
    """

    series: tuple[PanelSeries, ...]
    uncut: tuple[PanelSeries, ...]
    load_margins: tuple[NDArray[np.float64], ...]
    load: _SharedLoad
    adjustment: Adjustment | None


def load_newest_series(
    history: History,
    rows: Sequence[SeriesRow],
    detections: Mapping[int, Detection],
    previous: Sequence[Finding],
    level_starts: Mapping[int, int],
) -> NewestSeries:
    """Load the observations of the last 400 days of all series of one system.

    Args:
        rows: all headline series of the system.
        detections: of each series, by series id; their established steps are removed from the observations.
        previous: findings of the last update.
        level_starts: starts of the accepted levels in epoch seconds, by series id; earlier observations are left out.
    """
    newest = max((row.last or 0 for row in rows), default=0)
    points = load_observations(history, rows, newest - _PANEL_S)
    starts = session_starts([points[row.id].time.astype(np.float64) for row in rows]) if rows else ()
    # Of the newest sessions the panel itself finds the events.
    established = starts[-NEWEST_SESSIONS] if len(starts) >= NEWEST_SESSIONS else 0.0
    load = _SharedLoad(history, rows, points, starts)
    measured = {row.id: np.log(headline_values(row, points[row.id])) for row in rows}
    adjusted = load.remove(measured)
    last_levels: dict[int, float] = {}
    for row in rows:
        if len(measured[row.id]):
            last_levels[row.id] = METRICS[row.metric].sign * float(measured[row.id][-1])
    # The end of an event must not look like an event after a step.
    lasting = [finding for finding in previous if not sessions_until_back(finding, last_levels)]
    panel_series: list[PanelSeries] = []
    uncut_series: list[PanelSeries] = []
    load_margins: list[NDArray[np.float64]] = []
    for row in rows:
        observations = points[row.id]
        performance = METRICS[row.metric].sign * adjusted.logs[row.id]
        is_of_level = observations.time >= level_starts.get(row.id, 0)
        times, values = observations.time[is_of_level], performance[is_of_level]
        steps = _established_steps(row, detections[row.id], times, lasting, established)
        if row.id in adjusted.series_ids:
            steps = _remeasure_steps(steps, times, values)
        parameters = series_parameters(row)
        panel_series.append(PanelSeries(times, values, parameters, steps))
        uncut_series.append(PanelSeries(observations.time, performance, parameters, steps))
        effect_of_load = METRICS[row.metric].sign * (measured[row.id] - adjusted.logs[row.id])
        load_margins.append(load_margin(effect_of_load))
    return NewestSeries(
        series=tuple(panel_series),
        uncut=tuple(uncut_series),
        load_margins=tuple(load_margins),
        load=load,
        adjustment=adjusted.adjustment,
    )


def assess_newest_sessions(newest: NewestSeries, previous: Sequence[Finding]) -> PanelReport:
    """Assess the newest sessions of the series of one system together; positions in the report index the series.

    Args:
        previous: findings of the last update; those of newest sessions are kept with less evidence than new ones need.
    """
    known_events: list[tuple[int, PerformanceDirection]] = []
    for finding in previous:
        is_current = finding.outlook is not None and finding.outlook.is_current
        if is_current and finding.resolution is None:
            directions = sorted({member.direction for member in finding.members})
            known_events += [(finding.first_after, direction) for direction in directions]
    lasted, ended = _count_outcomes(previous)
    report = assess_panel(newest.series, known_events, lasted, ended, vocabulary=CASE_PARAMETERS)
    if newest.adjustment is not None:
        return replace(report, adjustment=newest.adjustment)
    return replace(report, events=tuple(newest.load.doubt(event) for event in report.events))


@dataclass(frozen=True)
class _AdjustedValues:
    """Values of all series of a system, without the effect of a covariate that predicts them together.

    Attributes:
        logs: natural logarithms, by series id.
        series_ids: the series from which levels of the load were removed, too, which detection keeps.
        adjustment: what was done; None if there is no such covariate.
    """

    logs: Mapping[int, NDArray[np.float64]]
    series_ids: frozenset[int]
    adjustment: Adjustment | None


class _SharedLoad:
    """The covariates of all series that have some."""

    def __init__(
        self,
        history: History,
        rows: Sequence[SeriesRow],
        points: Mapping[int, SeriesPoints],
        starts: Sequence[float] | NDArray[np.float64],
    ) -> None:
        tables = load_tables(history, rows, points)
        self._ids, self._tables, self._starts = list(tables), list(tables.values()), starts
        self._sessions = [np.searchsorted(starts, points[number].time, side="right") - 1 for number in tables]

    def remove(self, logs: Mapping[int, NDArray[np.float64]]) -> _AdjustedValues:
        """Values (ln) by series id, without the effect of a covariate that predicts all series together."""
        adjusted = adjust_together([logs[series_id] for series_id in self._ids], self._tables, self._sessions)
        if adjusted is None:
            return _AdjustedValues(logs, frozenset(), None)
        adjusted_logs, adjustment = adjusted
        logs_by_series = {**logs, **dict(zip(self._ids, adjusted_logs, strict=True))}
        return _AdjustedValues(logs_by_series, frozenset(self._ids), adjustment)

    def doubt(self, event: PanelEvent) -> PanelEvent:
        """An event that a new load may explain: as probable as without it or not at all, and not open."""
        start = int(np.searchsorted(self._starts, event.first_after, side="right")) - 1
        direction = 1 if event.groups[0].direction == "up" else -1
        load = new_load(self._tables, self._sessions, start, direction)
        if load is None:
            return event
        groups: list[PanelGroup] = []
        for group in event.groups:
            groups.append(replace(group, probability_lasting=_NEW_LOAD_SHARE * group.probability_lasting))
        lasting = _NEW_LOAD_SHARE * event.probability_lasting
        return replace(event, groups=tuple(groups), probability_lasting=lasting, is_open=False, new_load=load)


def _established_steps(
    row: SeriesRow, detection: Detection, times: NDArray[np.int64], previous: Sequence[Finding], before: float
) -> tuple[tuple[float, float], ...]:
    """Steps of a series before a time (epoch seconds): detected ones, and those of events that probably lasted.

    Without the latter an event would be reported again when its first session is no longer among the newest ones. One
    after which the series was measured too seldom (`times`) to show whether it lasts counts, too.
    """
    steps: list[tuple[float, float]] = []
    for change in detection.changes:
        if change.time < before:
            steps.append((change.time, METRICS[row.metric].log_gain(change.ratio)))
    for finding in previous:
        outlook = finding.outlook
        if outlook is None or finding.resolution is not None or finding.first_after >= before:
            continue
        # Events that probably lasted, or of which this series cannot tell.
        is_unknown = (times >= finding.first_after).sum() < _CONFIRMED
        may_last = outlook.probability_lasting >= _LASTS or (outlook.is_current and is_unknown)
        if not may_last or _is_over_for_panel(finding):
            continue
        moved = dict(outlook.moved)
        is_detected = any(abs(time - finding.first_after) <= NEAR_DATE_S for time, _ in steps)
        if row.id in moved and not is_detected:
            steps.append((float(finding.first_after), moved[row.id]))
    return tuple(steps)


def _remeasure_steps(
    steps: Sequence[tuple[float, float]], times: NDArray[np.int64], logs: NDArray[np.float64]
) -> tuple[tuple[float, float], ...]:
    """Steps with the difference of these values beside them; without those that have no observations on one side."""
    dates = sorted({time for time, _ in steps})
    # The observations between the steps: one part more than there are steps.
    parts = np.split(logs, np.searchsorted(times, dates))
    remeasured: list[tuple[float, float]] = []
    for position, time in enumerate(dates):
        before, after = parts[position], parts[position + 1]
        if len(before) and len(after):
            remeasured.append((time, float(np.median(after) - np.median(before))))
    return tuple(remeasured)


def _count_outcomes(previous: Sequence[Finding]) -> tuple[int, int]:
    """Numbers of earlier events of the panel that lasted, and that were over after some sessions."""
    lasted = ended = 0
    for finding in previous:
        if finding.outlook is None or finding.outlook.is_current:
            continue
        if finding.is_resolved_as("transient", "spell", "not confirmed") or _is_over_for_panel(finding):
            ended += 1
        if finding.is_resolved_as("returned") or finding.state in SURE_STATES:
            lasted += 1
    return lasted, ended


def _is_over_for_panel(finding: Finding) -> bool:
    """Whether the newest sessions together show a suspected finding no longer, and the control chart alone does."""
    outlook = finding.outlook
    return finding.state == "suspected" and finding.session_loss is not None and not (outlook and outlook.is_current)


def join_events(
    groups: Sequence[ChangeGroup], report: PanelReport, rows: Sequence[SeriesRow], previous: Sequence[Finding] = ()
) -> list[ChangeGroup]:
    """Combine the groups of changes of single series with the events of the newest sessions.

    - A change that was short and whose series is back leaves its group (`_without_returned`).
    - An event joins the group of the same date that has most of its series, and adds its other series; without such a
      group it is a group of its own. It is left out if it repeats the last change of its series (`_join_event`).
    - A group in which all changes are suspected is left out. Its changes in the other direction than an event join the
      event if they have its date and are not small (`_group_of_event`).
    - A group without an event stays only if its changes are sure, or continue a finding (`_is_finding`).

    Args:
        groups: from `group_changes`.
        report: on the newest sessions of all series together, with the events.
        rows: the series of the report, in its order.
        previous: findings of the last update, which a group may continue.

    Returns:
        Groups in order of time, and of direction at one time.
    """
    # Groups with a confirmed change, and the changes of those in which all are suspected.
    newest = newest_levels(report, rows)
    joined: list[ChangeGroup] = []
    suspected: list[SeriesChange] = []
    for group in groups:
        lasting_group = _without_returned(group, newest)
        if any(not change.change.suspected for change in lasting_group.changes):
            joined.append(lasting_group)
        else:
            suspected += lasting_group.changes
    # Findings that a group may continue without being sure itself: those that are not over. A suspected finding without
    # an outlook is no evidence: only the control chart reports it, from the newest observations of its series.
    continued: list[Finding] = []
    for finding in previous:
        is_of_control_chart = finding.state == "suspected" and finding.outlook is None
        if finding.resolution is None and not is_of_control_chart:
            continued.append(finding)
    # Events in order of time: whether one repeats a change depends on those before it.
    for event in sorted(report.events, key=lambda event: event.first_after):
        _join_event(joined, _group_of_event(event, rows, suspected))
    kept: list[ChangeGroup] = []
    for group in joined:
        if group.event is not None or _is_finding(group, continued, report.since):
            kept.append(group)
    return sorted(kept, key=lambda group: (group.first_after, group.direction))


def _join_event(groups: list[ChangeGroup], event_group: ChangeGroup) -> None:
    """Add the group of an event to that of the same event which has most of its series, or as a group of its own."""
    same_event = [group for group in groups if group.event is None and _is_same_event(group, event_group)]
    if not same_event:
        if not _is_repeated(event_group, groups):
            groups.append(event_group)
        return
    best = max(same_event, key=lambda group: len(group.series_ids & event_group.series_ids))
    # Its own changes are better known than those of the event.
    added = [change for change in event_group.changes if change.row.id not in best.series_ids]
    changes = tuple(sorted((*best.changes, *added), key=lambda change: change.first_after))
    groups[groups.index(best)] = replace(best, changes=changes, event=event_group.event)


def newest_levels(report: PanelReport, rows: Sequence[SeriesRow]) -> dict[int, float]:
    """Performance (ln) in the newest observations, by series id."""
    levels: dict[int, float] = {}
    for row, level in zip(rows, report.newest, strict=False):
        if math.isfinite(level):
            levels[row.id] = level
    return levels


def undecided_findings(
    report: PanelReport, rows: Sequence[SeriesRow], detections: Mapping[int, Detection], previous: Sequence[Finding]
) -> frozenset[str]:
    """Ids of the findings about which nothing new is known, because most of their series are measured too seldom.

    The newest sessions do not reach back to them, and did not measure the series, or so seldom that the change is not
    confirmed yet (a suite that runs every week). Of an event that began in the newest sessions these decide.
    """
    if report.session is None or report.since is None:
        return frozenset()
    first, oldest = report.since, report.session - MEASURED_S
    unknown_series: set[int] = set()
    for row in rows:
        last = row.last or 0
        if last <= oldest:
            continue
        # Not measured in the newest sessions, or too seldom to confirm an older change.
        if last < first or _has_older_suspicion(detections.get(row.id), first):
            unknown_series.add(row.id)
    undecided: set[str] = set()
    for finding in previous:
        unknown = sum(member.series_id in unknown_series for member in finding.members)
        if finding.first_after < first and 2 * unknown > len(finding.members):
            undecided.add(finding.id)
    return frozenset(undecided)


def _has_older_suspicion(detection: Detection | None, time: int) -> bool:
    """Whether a series has a suspected change before a time (epoch seconds)."""
    return detection is not None and any(step.time < time for step in detection.suspected)


def sessions_until_back(finding: Finding, newest: Mapping[int, float]) -> int:
    """Largest number of sessions that a finding lasted if most of its series are back; else 0."""
    sessions: list[int] = []
    for member in finding.members:
        before = METRICS[member.metric].sign * math.log(member.before)
        if _is_back(member.series_id, before, math.log(member.gain), member.observations, newest):
            sessions.append(member.observations)
    return max(sessions) if 2 * len(sessions) > len(finding.members) else 0


def _without_returned(group: ChangeGroup, newest: Mapping[int, float]) -> ChangeGroup:
    """A group without the confirmed changes of series that are back."""
    kept: list[SeriesChange] = []
    for change in group.changes:
        if change.change.suspected:
            kept.append(change)
            continue
        before = METRICS[change.row.metric].sign * math.log(change.change.before)
        if not _is_back(change.row.id, before, change.log_gain, change.change.observations, newest):
            kept.append(change)
    return replace(group, changes=tuple(kept))


def _is_back(series: int, before: float, gain: float, observations: int, newest: Mapping[int, float]) -> bool:
    """Whether a change so short that it may be a burst is over: the newest observations are at the level before it.

    Args:
        before, gain: performance (ln) before the change, and ln of its gain.
    """
    is_short = observations <= _LONGEST_TRANSIENT and series in newest
    return is_short and (newest[series] - before) / gain < _RETURNED_SHARE


def _is_finding(group: ChangeGroup, previous: Sequence[Finding], since: int | None) -> bool:
    """Whether changes that the newest sessions do not show are a finding: sure, or those of a finding near their date.

    Args:
        previous: findings that the group may continue.
        since: epoch seconds from which on the newest sessions would show an event of several series.
    """
    confirmed = [change for change in group.changes if not change.change.suspected]
    changed = {(change.row.id, change.direction) for change in confirmed}
    is_older = since is None or group.first_after < since
    for finding in previous:
        if not is_older and finding.state == "suspected":
            continue
        is_near = abs(group.first_after - finding.first_after) <= _SAME_DATE_S
        if is_near and changed & {(member.series_id, member.direction) for member in finding.members}:
            return True
    return are_sure(((change.change.confidence, change.change.observations) for change in confirmed), is_older)


def _is_same_event(group: ChangeGroup, event: ChangeGroup) -> bool:
    """Whether a group and an event have a series in common that changed in one direction, and touching dates.

    A later and far larger change of a series is none of the event.
    """
    changed_in_group: set[tuple[int, str]] = set()
    for change in group.changes:
        if not is_event_of_its_own(change, event):
            changed_in_group.add((change.row.id, change.direction))
    changed_in_event = {(change.row.id, change.direction) for change in event.changes}
    apart_s = max(group.last_before - event.first_after, event.last_before - group.first_after)
    return bool(changed_in_group & changed_in_event) and apart_s <= SESSION_S


def _is_repeated(event: ChangeGroup, groups: Sequence[ChangeGroup]) -> bool:
    """Whether most series of an event are compared with the level before their last change, which it repeats.

    After some sessions at a new level, the later ones are as far from the old level as the first one.
    """
    last_changes: dict[int, SeriesChange] = {}
    for group in sorted(groups, key=lambda group: group.first_after):
        if group.first_after < event.first_after:
            last_changes |= {change.row.id: change for change in group.changes}
    repeated = 0
    for change in event.changes:
        last = last_changes.get(change.row.id)
        if last is None or last.direction != change.direction:
            continue
        level = math.log(change.change.before)
        from_before = abs(level - math.log(last.change.before))
        from_after = abs(level - math.log(last.change.after))
        if from_before < from_after:
            repeated += 1
    return 2 * repeated > len(event.changes)


def _group_of_event(event: PanelEvent, rows: Sequence[SeriesRow], suspected: Sequence[SeriesChange]) -> ChangeGroup:
    """The group of an event, with the suspected changes in the other direction that have its date."""
    event = _without_usual(event)
    changes: list[SeriesChange] = []
    for group in event.groups:
        changes += [_change_of_member(event, group, member, rows) for member in group.members]
    least_size = _LEAST_SIZE_BESIDE * median(abs(change.log_gain) for change in changes)
    series_ids = {change.row.id for change in changes}
    directions = {change.direction for change in changes}
    beside: list[SeriesChange] = []
    for change in suspected:
        is_other = change.row.id not in series_ids and change.direction not in directions
        has_date = abs(change.first_after - event.first_after) <= SESSION_S
        if is_other and has_date and abs(change.log_gain) >= least_size:
            beside.append(change)
    if len(beside) < _LEAST_BESIDE or event.probability_lasting < _PROBABLE:
        beside = []
    return ChangeGroup((*changes, *beside), event.last_before, event.first_after, event)


def _without_usual(event: PanelEvent) -> PanelEvent:
    """An event without the series of the other direction that stayed within their usual range.

    Nothing but the date says that they belong to the event. Series in the direction of the event stay: its common
    factor speaks for them, and most of the small ones have moved (docs/detection-scores.md).
    """
    sizes: list[float] = []
    for group in event.groups:
        sizes += [abs(member.log_gain) for member in group.members]
    least_size = _SMALL_SHARE * median(sizes)
    groups = [event.groups[0]]
    for group in event.groups[1:]:
        moved: list[PanelMember] = []
        for member in group.members:
            is_small = abs(member.log_gain) < least_size
            if not is_small or member.distance >= _USUAL_DISTANCE:
                moved.append(member)
        if moved:
            groups.append(replace(group, members=tuple(moved)))
    return replace(event, groups=tuple(groups))


def _change_of_member(
    event: PanelEvent, group: PanelGroup, member: PanelMember, rows: Sequence[SeriesRow]
) -> SeriesChange:
    """The suspected change of a series that an event of the newest sessions contains, in the unit of its metric.

    Args:
        group: of the event, with the probability that its changes last.
        rows: the series of the panel, in its order.
    """
    row = rows[member.series]
    sign = METRICS[row.metric].sign
    before, ratio = math.exp(sign * member.before), math.exp(sign * member.log_gain)
    change = ChangePoint(
        index=0,
        time=member.first_after,
        last_before=member.last_before,
        direction="up" if ratio > 1 else "down",
        ratio=ratio,
        before=before,
        after=before * ratio,
        confidence=group.probability_lasting,
        observations=event.observed or event.sessions,
        suspected=True,
    )
    return SeriesChange(row, change, member.log_gain)


def summarise_newest_session(report: PanelReport) -> NewestSessionReport:
    """The counts of a report of the panel that are kept with the session."""
    adjusted_for = None if report.adjustment is None else report.adjustment.covariate
    return NewestSessionReport(report.measured, len(report.unusual), adjusted_for)
