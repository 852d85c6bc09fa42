"""Losses of the newest session against what is usual for these very series, and the findings that report them.

`iowatch.statistics.control_chart` has the statistics. A loss belongs to the finding of its date and series where there
is one; the others of one date are a finding of their own, which is suspected until changes of single series confirm it.

    observations ── chart ──> unusual losses ── join_losses ──> groups ──> findings ── attach_losses ──> needs action
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from iowatch.core import DAY_S, METRICS
from iowatch.findings import grouping
from iowatch.findings.detections import load_detections
from iowatch.findings.finding import SURE_STATES, DecisionKind, Finding, FindingMember, SessionLoss, are_sure
from iowatch.findings.grouping import NEAR_DATE_S, SESSION_S, ChangeGroup, SeriesChange
from iowatch.findings.newest import NewestSeries, load_newest_series
from iowatch.findings.series import MEASURED_S, headline_series, load_plausible_points, retest_times
from iowatch.statistics import ChangePoint, Detection
from iowatch.statistics.control_chart import ChartReport, NewLevel, UnusualLoss, chart_losses
from iowatch.statistics.panel_table import PanelSeries
from iowatch.store import History, OutsideResult, SeriesRow

# States in which a person or the detection says that a change lasts.
_LASTING_STATES = (*SURE_STATES, "dismissed")
# A series is still measured if it was within so many of its usual intervals.
_MISSED_RUNS = 2.5
# Observations with this share of the newest loss (of the logarithm) belong to it.
_ABOUT_AS_BAD = 0.6
_NO_DETECTION = Detection(0, "no data")
# A retest repeats a loss if it shows this share of it (of the logarithm).
_REPEATED_SHARE = 0.5


@dataclass(frozen=True)
class DecisionInForce:
    """What a person decided about a finding (accepted, dismissed, acknowledged).

    Attributes:
        made_until: epoch seconds; what was measured before was known to the person.
    """

    kind: DecisionKind
    made_until: float


@dataclass(frozen=True)
class RetestedValue:
    """Performance (ln) of the first run of a series in the newest session, and of its retest."""

    first: float
    retest: float

    @property
    def better(self) -> float:
        """The better one: a loss that the retest does not show is no loss of this session."""
        return max(self.first, self.retest)

    @property
    def mean(self) -> float:
        """Of both, which is the observation."""
        return (self.first + self.retest) / 2


@dataclass(frozen=True)
class SessionLosses:
    """The losses of one system in its newest session.

    Attributes:
        chart: of all series; positions index the rows.
        by_series: the unusual losses, by series id.
        retests: by series id and time of the observation (epoch seconds).
    """

    chart: ChartReport
    by_series: Mapping[int, UnusualLoss]
    retests: Mapping[int, Mapping[int, RetestedValue]]


def assess_losses(
    history: History,
    rows: Sequence[SeriesRow],
    newest: NewestSeries,
    groups: Sequence[ChangeGroup],
    known: Sequence[Finding],
    decisions: Mapping[str, DecisionInForce],
    smallest_loss: float,
) -> SessionLosses:
    """Compare the newest session of each series of one system with what is usual for it.

    Args:
        rows: all headline series of the system.
        newest: their observations, in the order of the rows.
        groups: those that become findings, from `newest.join_events`.
        known: findings of the last update. A fall that neither reports is no new level.
        decisions: in force, by id of their finding.
        smallest_loss: share of the performance from which on a loss of a calm series is worth a message.
    """
    retests = _load_retests(history, rows)
    series: list[PanelSeries] = []
    new_levels: list[list[NewLevel]] = []
    load_margins: list[NDArray[np.float64]] = []
    for row, observed, margin in zip(rows, newest.uncut, newest.load_margins, strict=True):
        logs, margin = np.asarray(observed.logs).copy(), margin.copy()
        for time, retested in retests.get(row.id, {}).items():
            # The observation is the mean of both runs.
            logs[observed.times == time] += retested.better - retested.mean
            # A load that the record has missed in a run is hardly missed in its retest, too.
            margin[observed.times == time] = 0.0
        series.append(replace(observed, logs=logs))
        load_margins.append(margin)
        levels = [NewLevel(time) for time, _ in _reported_steps(row, observed.steps, groups, known)]
        new_levels.append(levels + _accepted_levels(row, known, decisions))
    groups_of_series = [file_system_key(observed) for observed in series]
    chart = chart_losses(series, groups_of_series, smallest_loss, new_levels, load_margins)
    last = max((row.last or 0 for row in rows), default=0)
    by_series: dict[int, UnusualLoss] = {}
    for loss in chart.losses:
        row = rows[loss.series]
        if last - loss.times[-1] <= max(MEASURED_S, _MISSED_RUNS * _usual_interval_s(row)):
            by_series[row.id] = loss
    return SessionLosses(chart, by_series, retests)


def _usual_interval_s(row: SeriesRow) -> float:
    """Mean time between the observations of a series."""
    return ((row.last or 0) - (row.first or 0)) / max(row.n - 1, 1)


def _accepted_levels(
    row: SeriesRow, known: Sequence[Finding], decisions: Mapping[str, DecisionInForce]
) -> list[NewLevel]:
    """The levels of a series that a person accepted."""
    levels: list[NewLevel] = []
    for finding in known:
        decision = decisions.get(finding.id)
        if decision is None or decision.kind != "accepted":
            continue
        for member in finding.members:
            if member.series_id == row.id:
                levels.append(NewLevel(member.first_after, decision.made_until))
    return levels


def list_outside(losses: SessionLosses, rows: Sequence[SeriesRow]) -> tuple[OutsideResult, ...]:
    """The results of the newest session that are outside the usual range of their series, losses and gains.

    Args:
        rows: the series of the chart, in its order.
    """
    outside: list[OutsideResult] = []
    for usual in losses.chart.ranges:
        if abs(usual.log_gain) < usual.limit:
            continue
        row = rows[usual.series]
        sign = METRICS[row.metric].sign
        value = math.exp(sign * (usual.level + usual.log_gain))
        # Of a time the worst usual value is the highest one.
        bounds = sorted(math.exp(sign * (usual.level + limit)) for limit in (-usual.limit, usual.limit))
        outside.append(OutsideResult(row.id, value, bounds[0], bounds[1], usual.earlier))
    return tuple(outside)


@dataclass(frozen=True)
class ChartYear:
    """What the control chart of a system would have said in its own past.

    Attributes:
        smallest_loss: share of the performance from which on the loss of a calm series is worth a message.
        sessions: number of sessions that were assessed, over `days`.
        red: sessions after which a series or a group was unusual.
        messages: sessions in which one became unusual.
    """

    smallest_loss: float
    sessions: int
    days: float
    red: int
    messages: int

    def per_year(self, number: int) -> float:
        """A number of sessions as one per year."""
        return number * 365 / max(self.days, 1.0)


def chart_past_year(history: History, system: str, smallest_losses: Sequence[float]) -> list[ChartYear]:
    """What each smallest loss would have meant in the newest 400 sessions of a system, as of the last update.

    Established changes of level are known to it from the day they happened.

    Raises:
        UsageError: the system is not in the history.
    """
    history.require_system(system)
    rows = headline_series(history, system)
    detections = load_detections(history, [row.id for row in rows])
    of_all = {row.id: detections.get(row.id, _NO_DETECTION) for row in rows}
    observed = load_newest_series(history, rows, of_all, (), {})
    groups: list[str] = []
    new_levels: list[list[NewLevel]] = []
    for series in observed.uncut:
        groups.append(file_system_key(series))
        new_levels.append([NewLevel(time) for time, _ in series.steps])
    years: list[ChartYear] = []
    for smallest_loss in smallest_losses:
        report = chart_losses(observed.uncut, groups, smallest_loss, new_levels, observed.load_margins)
        days = (report.starts[-1] - report.starts[0]) / DAY_S if len(report.starts) else 0.0
        red, messages = int((report.unusual > 0).sum()), int((report.begun > 0).sum())
        years.append(ChartYear(smallest_loss, len(report.starts), float(days), red, messages))
    return years


def file_system_key(series: PanelSeries) -> str:
    """Partition and file system of a series: those with the same ones share their bad sessions, and their level."""
    return f"{series.parameters.get('partition')} {series.parameters.get('file_system')}"


def _reported_steps(
    row: SeriesRow, steps: Sequence[tuple[float, float]], groups: Sequence[ChangeGroup], findings: Sequence[Finding]
) -> tuple[tuple[float, float], ...]:
    """Established steps without the newest falls that no finding reports: these would become a new level in silence."""
    reported: list[int] = []
    for group in groups:
        confirmed = [member.change for member in group.changes if not member.change.suspected]
        if not are_sure((change.confidence, change.observations) for change in confirmed):
            continue
        for member in group.changes:
            if member.row.id == row.id and member.direction == "down" and not member.change.suspected:
                reported.append(member.first_after)
    for finding in findings:
        if finding.state in _LASTING_STATES and finding.resolution is None:
            reported += [m.first_after for m in finding.members if m.series_id == row.id and m.gain < 1]
    # The newest falls go until one was reported.
    remaining = list(steps)
    while remaining:
        time, gain = remaining[-1]
        is_reported = any(abs(moment - time) <= NEAR_DATE_S for moment in reported)
        if gain > 0 or is_reported:
            break
        remaining.pop()
    return tuple(remaining)


def _load_retests(history: History, rows: Sequence[SeriesRow]) -> dict[int, dict[int, RetestedValue]]:
    """First value and retest of each session with retests, by series id and time of the first run (epoch seconds)."""
    sessions = history.sessions(rows[0].system, retested=True) if rows else []
    if not sessions:
        return {}
    first_start = min(session.started_at for session in sessions)
    points = load_plausible_points(history, rows, first_start)
    values_by_series: dict[int, dict[int, RetestedValue]] = {}
    for row in rows:
        metric, measured = METRICS[row.metric], points[row.id]
        values = metric.sign * np.log(metric.best_bound(measured.min, measured.max))
        for begin, retest, end in retest_times(sessions):
            is_first = (measured.time >= begin) & (measured.time < retest)
            is_retest = (measured.time >= retest) & (measured.time <= end)
            if is_first.any() and is_retest.any():
                time = int(measured.time[is_first][0])
                value = RetestedValue(float(values[is_first][0]), float(values[is_retest][-1]))
                values_by_series.setdefault(row.id, {})[time] = value
    return values_by_series


def join_losses(
    groups: Sequence[ChangeGroup],
    losses: SessionLosses,
    rows: Sequence[SeriesRow],
    known: Sequence[Finding],
    decisions: Mapping[str, DecisionInForce],
) -> list[ChangeGroup]:
    """Groups with the unusual losses: in a group of their date, or as groups of their own, in order of time.

    A far larger loss than that of an earlier event which has its series is an event of its own date.
    A loss that a person has decided about is a new one where the series fell further since.

    Args:
        groups: from `newest.join_events`.
        rows: the series of the chart, in its order.
        known: findings of the last update.
        decisions: in force, by id of their finding.
    """
    joined = list(groups)
    matched = grouping.match_findings(joined, known, decisions)
    closed = {position for position, finding in matched.items() if finding.id in decisions}
    remaining: list[SeriesChange] = []
    decided: dict[str, list[SeriesChange]] = {}
    for loss in losses.by_series.values():
        row = rows[loss.series]
        finding = _decided_finding(known, decisions, row, loss)
        if finding is None:
            change = _change_of_loss(row, loss, _start_of_loss(known, row, loss), loss.level)
            reported = _position_of_series(joined, row, loss)
            if reported is None:
                remaining.append(change)
            elif grouping.is_event_of_its_own(change, joined[reported]):
                joined[reported] = _without_suspicion(joined[reported], row)
                remaining.append(change)
            continue
        start, level = _start_of_further_fall(decisions[finding.id], loss)
        if start < len(loss.times):
            remaining.append(_change_of_loss(row, loss, start, level))
        elif _position_of_series(joined, row, loss) is None:
            # It stays with its finding, which no other series may join.
            decided.setdefault(finding.id, []).append(_change_of_loss(row, loss, 0, loss.level))
    for changes in decided.values():
        closed.add(len(joined))
        first = min(changes, key=lambda change: change.first_after)
        joined.append(ChangeGroup(tuple(changes), first.last_before, first.first_after))
    for change in remaining:
        position = _position_of_date(joined, change, closed)
        if position is None:
            joined.append(ChangeGroup((change,), change.last_before, change.first_after))
        else:
            joined[position] = _with_change(joined[position], change)
    return sorted(joined, key=lambda group: (group.first_after, group.direction))


def _decided_finding(
    known: Sequence[Finding], decisions: Mapping[str, DecisionInForce], row: SeriesRow, loss: UnusualLoss
) -> Finding | None:
    """The finding with this loss of a series about which a person has decided."""
    for finding in known:
        if finding.id not in decisions:
            continue
        for member in finding.members:
            is_loss_of_series = member.series_id == row.id and member.gain < 1
            if is_loss_of_series and abs(member.first_after - loss.times[0]) <= NEAR_DATE_S:
                return finding
    return None


def _start_of_loss(known: Sequence[Finding], row: SeriesRow, loss: UnusualLoss) -> int:
    """Position of the first observation of a loss: that of the finding that reports it already.

    Else the one from which on all are about as far off as the newest one, because an excursion may begin with less.
    """
    for finding in known:
        if finding.resolution is not None:
            continue
        for member in finding.members:
            if member.series_id == row.id and member.gain < 1 and member.first_after in loss.times:
                return loss.times.index(member.first_after)
    start = len(loss.log_gains) - 1
    while start > 0 and loss.log_gains[start - 1] <= _ABOUT_AS_BAD * loss.log_gains[-1]:
        start -= 1
    return start


def _position_of_series(groups: Sequence[ChangeGroup], row: SeriesRow, loss: UnusualLoss) -> int | None:
    """The group that has the fall of a series, the newest if several have one."""
    newest = None
    for position, group in enumerate(groups):
        for member in group.changes:
            is_same_series = member.row.id == row.id and member.direction == "down"
            if is_same_series and member.first_after >= loss.times[0] - NEAR_DATE_S:
                newest = position
    return newest


def _start_of_further_fall(decision: DecisionInForce, loss: UnusualLoss) -> tuple[int, float]:
    """Position of the first observation of a further fall since a decision, and the level (ln) that was decided about.

    Without a further fall the position is the number of observations.
    """
    seen = sum(time < decision.made_until for time in loss.times)
    if seen == 0:
        return 0, loss.level
    decided_gain = float(np.median(loss.log_gains[:seen]))
    start = len(loss.log_gains)
    while start > seen and loss.log_gains[start - 1] < decided_gain - loss.limit:
        start -= 1
    return start, loss.level + decided_gain


def _change_of_loss(row: SeriesRow, loss: UnusualLoss, start: int, level: float) -> SeriesChange:
    """The change of a series from observation `start` of its excursion on, against a level (ln)."""
    sign = METRICS[row.metric].sign
    values = loss.level + np.asarray(loss.log_gains[start:])
    log_gain = float(np.median(values)) - level
    before, ratio = math.exp(sign * level), math.exp(sign * log_gain)
    change = ChangePoint(
        index=0,
        time=loss.times[start],
        last_before=loss.times[start - 1] if start else loss.last_before,
        direction="up" if ratio > 1 else "down",
        ratio=ratio,
        before=before,
        after=before * ratio,
        # Of a change that is real and whose duration is not known.
        confidence=0.5,
        observations=len(values),
        suspected=True,
    )
    return SeriesChange(row, change, log_gain)


def _position_of_date(groups: Sequence[ChangeGroup], change: SeriesChange, closed: Set[int]) -> int | None:
    """The group that began in the same session; not one that a person has decided about."""
    for position, group in enumerate(groups):
        apart = max(group.last_before - change.first_after, change.last_before - group.first_after)
        is_same = apart <= SESSION_S and abs(group.first_after - change.first_after) <= SESSION_S
        if is_same and position not in closed:
            return position
    return None


def _without_suspicion(group: ChangeGroup, row: SeriesRow) -> ChangeGroup:
    """A group without the suspected change of a series, if it has others."""
    others = [member for member in group.changes if member.row.id != row.id or not member.change.suspected]
    return replace(group, changes=tuple(others)) if others else group


def _with_change(group: ChangeGroup, change: SeriesChange) -> ChangeGroup:
    others = [member for member in group.changes if member.row.id != change.row.id]
    changes = tuple(sorted((*others, change), key=lambda member: member.first_after))
    return replace(group, changes=changes)


def attach_losses(finding: Finding, losses: SessionLosses, rows: Sequence[SeriesRow]) -> Finding:
    """The finding with the loss of its series in their newest session; without one if none is unusual.

    The largest loss stands for all. That of a decided finding is the one that was decided about.
    """
    lost: list[tuple[UnusualLoss, FindingMember]] = []
    for member in finding.members:
        loss = losses.by_series.get(member.series_id)
        if loss is not None and member.gain < 1 and member.first_after >= loss.times[0] - NEAR_DATE_S:
            lost.append((loss, member))
    if not lost:
        return replace(finding, session_loss=None)
    loss, member = min(lost, key=lambda pair: pair[0].log_gains[-1])
    retest = losses.retests.get(rows[loss.series].id, {}).get(loss.times[-1])
    repeated = None
    if retest is not None:
        # The newest value is the better one of both.
        better, difference = loss.log_gains[-1], abs(retest.first - retest.retest)
        repeated = better <= _REPEATED_SHARE * (better - difference)
    return replace(
        finding,
        session_loss=SessionLoss(
            name=member.name,
            series=len(lost),
            gain=math.exp(loss.log_gains[-1]),
            lowest=math.exp(loss.lowest),
            earlier=loss.earlier,
            similar=loss.similar,
            sessions=len(loss.times),
            is_alone=loss.is_alone,
            repeated=repeated,
        ),
    )
