"""Losses of the newest session against what is usual for these very series, and the findings that report them.

`iowatch.statistics.control_chart` has the statistics. A loss belongs to the finding of its date and series where there
is one; the others of one date are a finding of their own, which is suspected until changes of single series confirm it.

    observations ── chart ──> unusual losses ── join_losses ──> groups ──> findings ── attach_losses ──> needs action
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from iowatch.core import DAY_S, METRICS
from iowatch.findings import grouping
from iowatch.findings.finding import Finding, FindingMember, SessionLoss
from iowatch.findings.grouping import ChangeGroup, SeriesChange
from iowatch.findings.newest import NewestSeries, load_newest_series
from iowatch.findings.series import RETEST_SINCE, headline_series, load_detections
from iowatch.statistics import ChangePoint, Detection
from iowatch.statistics.control_chart import ChartReport, UnusualLoss, chart_losses
from iowatch.statistics.panel_table import PanelSeries
from iowatch.store import History, SeriesRow

# A series that was not measured for this time has no newest session.
_MEASURED_S = 30 * DAY_S
# Runs of one session start within this time of each other.
_SESSION_S = DAY_S // 2
# The date of a finding may differ by so much from the first session in which a series was outside.
_SAME_DATE_S = 4 * DAY_S
# States in which a person or the detection says that a change lasts.
_LASTING_STATES = ("open", "acknowledged", "accepted", "dismissed")
# States in which a person has decided about a finding.
_DECIDED_STATES = ("acknowledged", "accepted", "dismissed")
_NO_DETECTION = Detection(0, "no data")
# A retest repeats a loss if it shows this share of it (of the logarithm).
_REPEATED_SHARE = 0.5


@dataclass(frozen=True)
class RetestedValue:
    """Performance (ln) of the first run of a series in the newest session, and of its retest."""

    first: float
    retest: float

    @property
    def better(self) -> float:
        """The better one: a loss that the retest does not show is no loss of this session."""
        return max(self.first, self.retest)


@dataclass(frozen=True)
class OutsideResult:
    """A result of the newest session outside the usual range of its series; values in the unit of the series."""

    series_id: int
    value: float
    lowest_usual: float
    highest_usual: float
    earlier: int


@dataclass(frozen=True)
class SessionLosses:
    """The losses of one system in its newest session.

    Attributes:
        chart: of all series; positions index the rows.
        by_series: the unusual losses, by series id.
        retests: by series id.
    """

    chart: ChartReport
    by_series: Mapping[int, UnusualLoss]
    retests: Mapping[int, RetestedValue]


def assess_losses(
    history: History,
    rows: Sequence[SeriesRow],
    newest: NewestSeries,
    groups: Sequence[ChangeGroup],
    known: Sequence[Finding],
    smallest_loss: float,
) -> SessionLosses:
    """Compare the newest session of each series of one system with what is usual for it.

    Args:
        rows: all headline series of the system.
        newest: their observations, in the order of the rows.
        groups: those that become findings, from `newest.join_events`.
        known: findings of the last update. A fall that neither reports is no new level.
        smallest_loss: share of the performance from which on a loss of a calm series is worth a message.
    """
    retests = _load_retests(history, rows)
    series: list[PanelSeries] = []
    for row, observed in zip(rows, newest.series, strict=True):
        steps = _reported_steps(row, observed.steps, groups, known)
        logs = observed.logs
        if row.id in retests and len(logs):
            # The observation is the mean of both runs.
            value = retests[row.id]
            logs = logs.copy()
            logs[-1] += value.better - (value.first + value.retest) / 2
        series.append(replace(observed, logs=logs, steps=steps))
    chart = chart_losses(series, [_group_name(one) for one in series], smallest_loss)
    last = max((row.last or 0 for row in rows), default=0)
    by_series: dict[int, UnusualLoss] = {}
    for loss in chart.losses:
        row = rows[loss.series]
        if last - loss.times[-1] <= _MEASURED_S:
            by_series[row.id] = loss
    return SessionLosses(chart, by_series, retests)


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
        bounds = [math.exp(sign * (usual.level + side * usual.limit)) for side in (-1, 1)]
        value = math.exp(sign * (usual.level + usual.log_gain))
        outside.append(OutsideResult(row.id, value, min(bounds), max(bounds), usual.earlier))
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
    known = {row.id: detections.get(row.id, _NO_DETECTION) for row in rows}
    observed = load_newest_series(history, rows, known, (), {})
    groups = [_group_name(series) for series in observed.series]
    years: list[ChartYear] = []
    for smallest_loss in smallest_losses:
        report = chart_losses(observed.series, groups, smallest_loss)
        days = (report.starts[-1] - report.starts[0]) / DAY_S if len(report.starts) else 0.0
        red, messages = int((report.unusual > 0).sum()), int((report.begun > 0).sum())
        years.append(ChartYear(smallest_loss, len(report.starts), float(days), red, messages))
    return years


def _group_name(series: PanelSeries) -> str:
    """Series of one file system of a partition share their bad sessions."""
    return f"{series.parameters.get('partition')} {series.parameters.get('file_system')}"


def _reported_steps(
    row: SeriesRow, steps: Sequence[tuple[float, float]], groups: Sequence[ChangeGroup], known: Sequence[Finding]
) -> tuple[tuple[float, float], ...]:
    """Established steps without the newest falls that no finding reports: these would become a new level in silence."""
    reported = [
        member.first_after
        for group in groups
        for member in group.changes
        if member.row.id == row.id and member.direction == "down" and not member.change.suspected
    ]
    for finding in known:
        is_lasting = finding.state in _LASTING_STATES or finding.is_resolved_as("returned")
        if is_lasting:
            reported += [m.first_after for m in finding.members if m.series_id == row.id and m.gain < 1]
    kept = list(steps)
    while kept:
        time, gain = kept[-1]
        if gain > 0 or any(abs(moment - time) <= _SAME_DATE_S for moment in reported):
            break
        kept.pop()
    return tuple(kept)


def _load_retests(history: History, rows: Sequence[SeriesRow]) -> dict[int, RetestedValue]:
    """First value and retest of the series that were retested in the newest session, by series id."""
    if not rows:
        return {}
    newest = next(iter(history.sessions(rows[0].system, limit=1)), None)
    retest_since = newest.attributes.get(RETEST_SINCE) if newest is not None else None
    if newest is None or retest_since is None:
        return {}
    points = history.points([row.id for row in rows], newest.started_at)
    found: dict[int, RetestedValue] = {}
    for row in rows:
        metric, measured = METRICS[row.metric], points[row.id]
        values = metric.sign * np.log(metric.best_bound(measured.min, measured.max))
        first, second = values[measured.time < retest_since], values[measured.time >= retest_since]
        if len(first) and len(second):
            found[row.id] = RetestedValue(float(first[-1]), float(second[-1]))
    return found


def join_losses(
    groups: Sequence[ChangeGroup], losses: SessionLosses, rows: Sequence[SeriesRow], known: Sequence[Finding]
) -> list[ChangeGroup]:
    """Groups with the unusual losses: in a group of their date, or as groups of their own, in order of time.

    A loss that a person has decided about is a new one where the series fell further since.

    Args:
        groups: from `newest.join_events`.
        rows: the series of the chart, in its order.
        known: findings of the last update, with their decisions.
    """
    joined = list(groups)
    matched = grouping.match_findings(joined, known)
    decided = [position for position, finding in matched.items() if finding.state in _DECIDED_STATES]
    remaining: list[SeriesChange] = []
    for loss in losses.by_series.values():
        row = rows[loss.series]
        position = _position_of_series(joined, row, loss)
        if position is None:
            remaining.append(_change_of_loss(row, loss, 0, loss.level))
        elif position in decided:
            further = _start_of_further_fall(matched[position], row, loss)
            if further is not None:
                start, level = further
                remaining.append(_change_of_loss(row, loss, start, level))
    for change in remaining:
        position = _position_of_date(joined, change, decided)
        if position is None:
            joined.append(ChangeGroup((change,), change.last_before, change.first_after))
        else:
            joined[position] = _with_change(joined[position], change)
    return sorted(joined, key=lambda group: (group.first_after, group.direction))


def _position_of_series(groups: Sequence[ChangeGroup], row: SeriesRow, loss: UnusualLoss) -> int | None:
    """The group that has the fall of a series, the newest if several have one."""
    found = None
    for position, group in enumerate(groups):
        for member in group.changes:
            is_same_series = member.row.id == row.id and member.direction == "down"
            if is_same_series and member.first_after >= loss.times[0] - _SAME_DATE_S:
                found = position
    return found


def _start_of_further_fall(finding: Finding, row: SeriesRow, loss: UnusualLoss) -> tuple[int, float] | None:
    """First observation of a further fall since a decision, and the level (ln) decided about; None without one."""
    member = next((m for m in finding.members if m.series_id == row.id and m.gain < 1), None)
    if member is None:
        return 0, loss.level
    decided = math.log(member.gain)
    start = len(loss.log_gains)
    while start > 0 and loss.log_gains[start - 1] < decided - loss.limit:
        start -= 1
    return None if start == len(loss.log_gains) else (start, loss.level + decided)


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


def _position_of_date(groups: Sequence[ChangeGroup], change: SeriesChange, decided: Sequence[int]) -> int | None:
    """The group that began in the same session; not one that a person has decided about."""
    for position, group in enumerate(groups):
        apart = max(group.last_before - change.first_after, change.last_before - group.first_after)
        is_same = apart <= _SESSION_S and abs(group.first_after - change.first_after) <= _SESSION_S
        if is_same and position not in decided:
            return position
    return None


def _with_change(group: ChangeGroup, change: SeriesChange) -> ChangeGroup:
    others = [member for member in group.changes if member.row.id != change.row.id]
    changes = tuple(sorted((*others, change), key=lambda member: member.first_after))
    return replace(group, changes=changes)


def attach_losses(finding: Finding, losses: SessionLosses, rows: Sequence[SeriesRow]) -> Finding:
    """The finding with the loss of its series in their newest session; without one if none is unusual.

    The largest loss stands for all. That of a decided finding is the one that was decided about.
    """
    found: list[tuple[UnusualLoss, FindingMember]] = []
    for member in finding.members:
        loss = losses.by_series.get(member.series_id)
        if loss is not None and member.gain < 1 and member.first_after >= loss.times[0] - _SAME_DATE_S:
            found.append((loss, member))
    if not found:
        return replace(finding, session_loss=None)
    loss, member = min(found, key=lambda pair: pair[0].log_gains[-1])
    retest = losses.retests.get(rows[loss.series].id)
    repeated = None
    if retest is not None:
        lost = [retest.first - loss.level, retest.retest - loss.level]
        repeated = max(lost) <= _REPEATED_SHARE * min(lost)
    return replace(
        finding,
        session_loss=SessionLoss(
            name=member.name,
            series=len(found),
            gain=math.exp(loss.log_gains[-1]),
            lowest=math.exp(loss.lowest),
            earlier=loss.earlier,
            similar=loss.similar,
            sessions=len(loss.times),
            is_alone=loss.is_alone,
            repeated=repeated,
        ),
    )
