"""The newest sessions of all series together: groups of changes before single series are sure, and the report of them.

`iowatch.statistics.panel` has the statistics; here are its observations, and how its events join the groups of changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from iowatch.core import DAY_S, METRICS, covariate_label
from iowatch.findings.case_parameters import CASE_PARAMETERS
from iowatch.findings.finding import Finding, are_sure
from iowatch.findings.grouping import ChangeGroup, SeriesChange, series_parameters
from iowatch.findings.series import headline_values, load_observations, load_tables
from iowatch.findings.text import format_moved_layer, format_outlook, format_session_loss, short_summary
from iowatch.statistics import ChangePoint, Detection, DetectorSettings
from iowatch.statistics.method import Adjustment
from iowatch.statistics.panel import PanelEvent, PanelGroup, PanelMember, PanelReport, assess_panel
from iowatch.statistics.panel_table import NEWEST_SESSIONS, PanelSeries, session_starts
from iowatch.statistics.shared_load import adjust_together, load_margin, new_load
from iowatch.store import History, SeriesPoints, SeriesRow

# Seconds; older observations say little about the usual bad sessions of a system.
_PANEL_S = 400 * DAY_S
# An event with a smaller probability at the end of its newest sessions is not taken for a lasting one.
_LASTS = 0.5
# A finding whose series are not measured stays for this time.
_UNDECIDED_S = 30 * DAY_S
# Share of the events with which a load changed for the first time that are no effect of the load: nobody knows.
_NEW_LOAD_SHARE = 0.5
# Suspected changes of single series in the other direction join an event from this share of its typical size, number
# of changes and probability that the event lasts on. In its own direction 12 of 45 belonged to it (100 panels of
# Edison, 60 of Cori, 80 of Mira and the 100 of the tests).
_LEAST_SIZE_BESIDE, _LEAST_BESIDE, _PROBABLE = 0.5, 2, 0.45
_LASTING_STATES = ("open", "acknowledged", "accepted")
# A detected step within this time of an event is part of it.
_NEAR_S = 4 * DAY_S
# A series is back with less than this share of its change (of the logarithm).
_RETURNED_SHARE = 0.3
# Observations; a longer change does not count as a burst.
_LONGEST_TRANSIENT = DetectorSettings().transient_observations
# Observations of a series that confirm a change of its level.
_CONFIRMED = DetectorSettings().confirm_observations
# Runs of one session start within this time of each other.
_SESSION_S = DAY_S // 2
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
    known: Sequence[Finding],
    level_starts: Mapping[int, int],
) -> NewestSeries:
    """Load the observations of the last 400 days of all series of one system.

    Args:
        rows: all headline series of the system.
        detections: of each series, by series id; their established steps are removed from the observations.
        known: findings of the last update.
        level_starts: starts of the accepted levels in epoch seconds, by series id; earlier observations are left out.
    """
    newest = max((row.last or 0 for row in rows), default=0)
    points = load_observations(history, rows, newest - _PANEL_S)
    starts = session_starts([points[row.id].time.astype(np.float64) for row in rows]) if rows else ()
    # Of the newest sessions the panel itself finds the events.
    established = starts[-NEWEST_SESSIONS] if len(starts) >= NEWEST_SESSIONS else 0.0
    load = _SharedLoad(history, rows, points, starts)
    measured = {row.id: np.log(headline_values(row, points[row.id])) for row in rows}
    logs, adjusted, adjustment = load.remove(measured)
    last = {row.id: METRICS[row.metric].sign * float(measured[row.id][-1]) for row in rows if len(measured[row.id])}
    # The end of an event must not look like an event after a step.
    lasting = [f for f in known if not sessions_until_back(f, last)]
    series, uncut, load_margins = [], [], []
    for row in rows:
        observations = points[row.id]
        performance = METRICS[row.metric].sign * logs[row.id]
        is_of_level = observations.time >= level_starts.get(row.id, 0)
        times, values = observations.time[is_of_level], performance[is_of_level]
        steps = _established_steps(row, detections[row.id], times, lasting, established)
        if row.id in adjusted:
            steps = _remeasure_steps(steps, times, values)
        parameters = series_parameters(row)
        series.append(PanelSeries(times, values, parameters, steps))
        uncut.append(PanelSeries(observations.time, performance, parameters, steps))
        effect_of_load = METRICS[row.metric].sign * (measured[row.id] - logs[row.id])
        load_margins.append(load_margin(effect_of_load))
    return NewestSeries(tuple(series), tuple(uncut), tuple(load_margins), load, adjustment)


def assess_newest_sessions(newest: NewestSeries, known: Sequence[Finding]) -> PanelReport:
    """Assess the newest sessions of the series of one system together; positions in the report index the series.

    Args:
        known: findings of the last update; those of newest sessions are kept with less evidence than new ones need.
    """
    current = [f for f in known if f.outlook is not None and f.outlook.is_current and f.resolution is None]
    events = [(f.first_after, side) for f in current for side in sorted({m.direction for m in f.members})]
    report = assess_panel(newest.series, events, *_count_outcomes(known), vocabulary=CASE_PARAMETERS)
    if newest.adjustment is not None:
        return replace(report, adjustment=newest.adjustment)
    return replace(report, events=tuple(newest.load.doubt(event) for event in report.events))


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

    def remove(
        self, logs: Mapping[int, NDArray[np.float64]]
    ) -> tuple[Mapping[int, NDArray[np.float64]], set[int], Adjustment | None]:
        """Values (ln) by series id, without the effect of a covariate that predicts all series together.

        Returns:
            By series id; the ids of the series from which levels of the load were removed, too, which detection keeps;
            and what was done.
        """
        found = adjust_together([logs[number] for number in self._ids], self._tables, self._sessions)
        if found is None:
            return logs, set(), None
        return {**logs, **dict(zip(self._ids, found[0], strict=True))}, set(self._ids), found[1]

    def doubt(self, event: PanelEvent) -> PanelEvent:
        """An event that a new load may explain: as probable as without it or not at all, and not open."""
        start = int(np.searchsorted(self._starts, event.first_after, side="right")) - 1
        direction = 1 if event.groups[0].direction == "up" else -1
        load = new_load(self._tables, self._sessions, start, direction)
        if load is None:
            return event
        lasting = _NEW_LOAD_SHARE * event.probability_lasting
        groups = (replace(g, probability_lasting=_NEW_LOAD_SHARE * g.probability_lasting) for g in event.groups)
        return replace(event, groups=tuple(groups), probability_lasting=lasting, is_open=False, new_load=load)


def _established_steps(
    row: SeriesRow, detection: Detection, times: NDArray[np.int64], known: Sequence[Finding], before: float
) -> tuple[tuple[float, float], ...]:
    """Steps of a series before a time (epoch seconds): detected ones, and those of events that probably lasted.

    Without the latter an event would be reported again when its first session is no longer among the newest ones. One
    after which the series was measured too seldom (`times`) to show whether it lasts counts, too.
    """
    steps = [(c.time, METRICS[row.metric].log_gain(c.ratio)) for c in detection.changes if c.time < before]
    for finding in known:
        outlook = finding.outlook if finding.resolution is None else None
        is_unknown = (times >= finding.first_after).sum() < _CONFIRMED
        may_last = outlook and (outlook.probability_lasting >= _LASTS or (outlook.is_current and is_unknown))
        may_last = may_last and not _is_over_for_panel(finding)
        moved = dict(outlook.moved) if outlook and may_last else {}
        is_known = any(abs(time - finding.first_after) <= _NEAR_S for time, _ in steps)
        if row.id in moved and finding.first_after < before and not is_known:
            steps.append((float(finding.first_after), moved[row.id]))
    return tuple(steps)


def _remeasure_steps(
    steps: Sequence[tuple[float, float]], times: NDArray[np.int64], logs: NDArray[np.float64]
) -> tuple[tuple[float, float], ...]:
    """Steps with the difference of these values beside them; without those that have no observations on one side."""
    dates = sorted({time for time, _ in steps})
    parts = np.split(logs, np.searchsorted(times, dates))
    sides = zip(dates, parts, parts[1:], strict=False)
    return tuple(
        (time, float(np.median(after) - np.median(before)))
        for time, before, after in sides
        if len(before) and len(after)
    )


def _count_outcomes(known: Sequence[Finding]) -> tuple[int, int]:
    """Numbers of earlier events of the panel that lasted, and that were over after some sessions."""
    past = [f for f in known if f.outlook is not None and not f.outlook.is_current]
    ended = sum(f.is_resolved_as("transient", "not confirmed") or _is_over_for_panel(f) for f in past)
    lasted = sum(f.is_resolved_as("returned") or f.state in _LASTING_STATES for f in past)
    return lasted, ended


def _is_over_for_panel(finding: Finding) -> bool:
    """Whether the newest sessions together show a suspected finding no longer, and the control chart alone does."""
    outlook = finding.outlook
    return finding.state == "suspected" and finding.session_loss is not None and not (outlook and outlook.is_current)


def join_events(
    groups: Sequence[ChangeGroup], report: PanelReport, rows: Sequence[SeriesRow], known: Sequence[Finding] = ()
) -> list[ChangeGroup]:
    """Groups with sure changes, and the events of the newest sessions, in order of time.

    An event joins the group with its date and most of its series, which adds the series that are not yet sure; another
    event is a group of its own. Suspected changes of single series alone are no group; several in the other direction
    that have the date of an event and half of its size join it. An event that repeats the last change of its series is
    left out.

    Args:
        groups: from `group_changes`.
        rows: the series of the panel, in its order.
        known: findings of the last update; their changes need not be sure.
    """
    newest = newest_levels(report, rows)
    left = [one for group in groups if (one := _without_returned(group, newest)).changes]
    joined = [one for one in left if any(not m.change.suspected for m in one.changes)]
    suspected = [m for one in left if one not in joined for m in one.changes]
    # A loss that the control chart alone reports does not make a weak change of single series a finding.
    current: list[Finding] = []
    for finding in known:
        is_of_chart_alone = finding.state == "suspected" and finding.outlook is None
        if finding.resolution is None and not is_of_chart_alone:
            current.append(finding)
    for event in sorted(report.events, key=lambda one: one.first_after):
        made = _group_of_event(event, rows, suspected)
        same = [one for one in joined if one.event is None and _is_same_event(one, made)]
        if not same:
            joined += [] if _is_repeated(made, joined) else [made]
            continue
        best = max(same, key=lambda one: len(one.series_ids & made.series_ids))
        more = [m for m in made.changes if m.row.id not in best.series_ids]
        changes = tuple(sorted((*best.changes, *more), key=lambda m: m.first_after))
        joined[joined.index(best)] = replace(best, changes=changes, event=event)
    kept = [one for one in joined if one.event is not None or _is_finding(one, current, report.since)]
    return sorted(kept, key=lambda one: (one.first_after, one.direction))


def newest_levels(report: PanelReport, rows: Sequence[SeriesRow]) -> dict[int, float]:
    """Performance (ln) in the newest observations, by series id."""
    return {row.id: level for row, level in zip(rows, report.newest, strict=False) if math.isfinite(level)}


def undecided_findings(
    report: PanelReport, rows: Sequence[SeriesRow], detections: Mapping[int, Detection], known: Sequence[Finding]
) -> frozenset[str]:
    """Ids of the findings about which nothing new is known, because most of their series are measured too seldom.

    The newest sessions do not reach back to them, and did not measure the series, or so seldom that the change is not
    confirmed yet (a suite that runs every week). Of an event that began in the newest sessions these decide.
    """
    if report.session is None or report.since is None:
        return frozenset()
    first, oldest = report.since, report.session - _UNDECIDED_S
    absent = {row.id for row in rows if oldest < (row.last or 0) < first}
    seldom = {
        row.id for row in rows if (row.last or 0) > oldest and _has_older_suspicion(detections.get(row.id), first)
    }
    unknown = absent | seldom
    return frozenset(
        f.id
        for f in known
        if f.first_after < first and 2 * sum(m.series_id in unknown for m in f.members) > len(f.members)
    )


def _has_older_suspicion(detection: Detection | None, time: int) -> bool:
    return detection is not None and any(one.time < time for one in detection.suspected)


def sessions_until_back(finding: Finding, newest: Mapping[int, float]) -> int:
    """Largest number of sessions that a finding lasted if most of its series are back; else 0."""
    back = [
        m.observations
        for m in finding.members
        if _is_back(m.series_id, METRICS[m.metric].sign * math.log(m.before), math.log(m.gain), m.observations, newest)
    ]
    return max(back) if 2 * len(back) > len(finding.members) else 0


def _without_returned(group: ChangeGroup, newest: Mapping[int, float]) -> ChangeGroup:
    """A group without the confirmed changes of series that are back."""
    kept = [
        m
        for m in group.changes
        if m.change.suspected
        or not _is_back(
            m.row.id, METRICS[m.row.metric].sign * math.log(m.change.before), m.log_gain, m.change.observations, newest
        )
    ]
    return replace(group, changes=tuple(kept))


def _is_back(series: int, before: float, gain: float, observations: int, newest: Mapping[int, float]) -> bool:
    """Whether a change so short that it may be a burst is over: the newest observations are at the level before it.

    Args:
        before, gain: performance (ln) before the change, and ln of its gain.
    """
    is_short = observations <= _LONGEST_TRANSIENT and series in newest
    return is_short and (newest[series] - before) / gain < _RETURNED_SHARE


def _is_finding(group: ChangeGroup, known: Sequence[Finding], since: int | None) -> bool:
    """Whether changes that the newest sessions do not show are a finding: sure, or those of a known one.

    Args:
        since: epoch seconds from which on the newest sessions would show an event of several series.
    """
    confirmed = [m for m in group.changes if not m.change.suspected]
    changed = {(m.row.id, m.direction) for m in confirmed}
    is_older = since is None or group.first_after < since
    is_known = any(
        abs(group.first_after - f.first_after) <= _SAME_DATE_S
        and changed & {(m.series_id, m.direction) for m in f.members}
        for f in known
        if is_older or f.state != "suspected"
    )
    return is_known or are_sure(((m.change.confidence, m.change.observations) for m in confirmed), is_older)


def _is_same_event(group: ChangeGroup, event: ChangeGroup) -> bool:
    """Whether a group and an event have a series in common that changed in one direction, and touching dates."""
    shared = {(m.row.id, m.direction) for m in group.changes} & {(m.row.id, m.direction) for m in event.changes}
    apart = max(group.last_before - event.first_after, event.last_before - group.first_after)
    return bool(shared) and apart <= _SESSION_S


def _is_repeated(event: ChangeGroup, groups: Sequence[ChangeGroup]) -> bool:
    """Whether most series of an event are compared with the level before their last change, which it repeats.

    After some sessions at a new level, the later ones are as far from the old level as the first one.
    """
    last = {
        m.row.id: m
        for one in sorted(groups, key=lambda one: one.first_after)
        for m in one.changes
        if one.first_after < event.first_after
    }
    repeated = 0
    for member in event.changes:
        known = last.get(member.row.id)
        if known is not None and known.direction == member.direction:
            level = math.log(member.change.before)
            from_before, from_after = (abs(level - math.log(x)) for x in (known.change.before, known.change.after))
            repeated += from_before < from_after
    return 2 * repeated > len(event.changes)


def _group_of_event(event: PanelEvent, rows: Sequence[SeriesRow], suspected: Sequence[SeriesChange]) -> ChangeGroup:
    changes = [_change_of_member(event, group, one, rows) for group in event.groups for one in group.members]
    typical = median(abs(m.log_gain) for m in changes)
    members, sides = {m.row.id for m in changes}, {m.direction for m in changes}
    beside = [
        m
        for m in suspected
        if m.row.id not in members
        and m.direction not in sides
        and abs(m.log_gain) >= typical * _LEAST_SIZE_BESIDE
        and abs(m.first_after - event.first_after) <= _SESSION_S
    ]
    if len(beside) < _LEAST_BESIDE or event.probability_lasting < _PROBABLE:
        beside = []
    return ChangeGroup((*changes, *beside), event.last_before, event.first_after, event)


def _change_of_member(
    event: PanelEvent, group: PanelGroup, member: PanelMember, rows: Sequence[SeriesRow]
) -> SeriesChange:
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


def describe_newest_session(report: PanelReport, findings: Sequence[Finding]) -> str:
    """Report of the newest session in one line.

    Args:
        findings: those of the system, after the update with this report.
    """
    if not report.measured:
        return "no series with a known level was measured"
    load = ""
    if report.adjustment is not None:
        load = f" (without the effect of {covariate_label(report.adjustment.covariate)})"
    losses: list[tuple[float, str]] = []
    events: list[tuple[float, str]] = []
    for finding in findings:
        if finding.resolution is not None:
            continue
        if finding.session_loss is not None:
            text = f"{short_summary(finding)}; last session {format_session_loss(finding)}{_format_layer(finding)}"
            losses.append((finding.session_loss.gain, f"{text}; {_format_lasting(finding)}"))
        elif finding.outlook is not None and finding.outlook.is_current:
            events.append(
                (
                    -finding.outlook.probability_lasting,
                    f"{short_summary(finding)}{_format_layer(finding)}; {format_outlook(finding)}",
                )
            )
    if losses or events:
        # The largest loss first, then the most probable event.
        texts = [text for _, text in sorted(losses) + sorted(events)]
        return f"{len(report.unusual)} of {report.measured} series far off{load}, {'; '.join(texts)}"
    if report.unusual:
        return f"{len(report.unusual)} of {report.measured} series far off, no more than usual{load}"
    return f"nothing unusual in {report.measured} series{load}"


def _format_layer(finding: Finding) -> str:
    return f"; {format_moved_layer(finding.layer)}" if finding.layer and finding.layer.named else ""


def _format_lasting(finding: Finding) -> str:
    """How probably an unusual loss lasts, as far as that is known."""
    if finding.state != "suspected":
        return finding.state
    if finding.outlook is None or not finding.outlook.is_current:
        return "too early to say whether it lasts"
    return format_outlook(finding)
