"""What the thresholds for exit code 1 cost: the stored findings of a system, as events of `statistics.alarm_cost`.

Each update records with a finding when it became more probable to last than before (`updates.with_probable_morning`),
so that the morning on which another threshold would have reported it is known later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from iowatch.core import DAY_S, Scalar, settings
from iowatch.findings import state
from iowatch.findings.finding import SURE_STATES, Finding
from iowatch.findings.grouping import series_parameters
from iowatch.findings.series import headline_series
from iowatch.statistics.alarm_cost import AlarmEvent, AlarmPrices, CostCurve, cost_of_thresholds
from iowatch.store import History, SeriesRow, SessionRow

# Thresholds of the curve: the setting may have any value up to 0.9.
THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(1, 19))

AlarmOutcome = Literal["lasting", "over", "undecided"]


@dataclass(frozen=True)
class AlarmCost:
    """What the stored findings of a system say about the cost of its thresholds.

    Attributes:
        in_force: the present `suspected_probability`.
        days: from the first session whose morning was recorded to the newest one.
        lasting_losses, gains, over: findings that the curve counts: losses that last, gains that last, and findings
            that were over, not confirmed or dismissed.
        undecided: findings about which it is not known yet whether they last, or that became part of others.
        unrecorded: findings that began before mornings were recorded, or with sessions that had no update of their own.
        curve: in hours per year; None without a day or a finding to count.
    """

    system: str
    prices: settings.Prices
    in_force: float
    days: float
    lasting_losses: int
    gains: int
    over: int
    undecided: int
    unrecorded: int
    curve: CostCurve | None

    @property
    def counted(self) -> int:
        """Number of findings that the curve counts."""
        return self.lasting_losses + self.gains + self.over


def assess_alarm_cost(history: History, system: str) -> AlarmCost:
    """What each threshold of the probability would have cost a system, by its stored findings.

    Raises:
        UsageError: the system is not in the history.
    """
    history.require_system(system)
    # Patterns have no probability to last: they are reported with any threshold.
    findings = [finding for finding in state.load_findings(history, system) if finding.pattern is None]
    rows = headline_series(history, system)
    prices = settings.site_settings().prices
    in_force = state.alarm_limits(system).suspected_probability
    newest_s = max((row.last or 0 for row in rows), default=0)
    sessions = history.sessions(system)
    since = _recorded_since(sessions, findings)
    days = 0.0 if since is None else (newest_s - since) / DAY_S
    shares = SeriesShares(rows)
    number: Counter[str] = Counter()
    events: list[AlarmEvent] = []
    for finding in findings:
        if since is None or finding.first_after < since or not _has_its_mornings(finding, sessions):
            number["unrecorded"] += 1
            continue
        outcome = outcome_of(finding)
        if outcome == "undecided" or days <= 0:
            number["undecided"] += 1
            continue
        event = alarm_event(finding, shares.lost_share(finding), newest_s, 365 / days)
        events.append(event)
        if outcome == "over":
            number["over"] += 1
        else:
            number["lasting" if event.lost_share else "gain"] += 1
    curve = None
    if events:
        thresholds = sorted({*THRESHOLDS, in_force})
        hours = AlarmPrices(prices.half_speed_day_hours, prices.false_message_minutes / 60)
        curve = cost_of_thresholds(events, thresholds, hours)
    return AlarmCost(
        system=system,
        prices=prices,
        in_force=in_force,
        days=days,
        lasting_losses=number["lasting"],
        gains=number["gain"],
        over=number["over"],
        undecided=number["undecided"],
        unrecorded=number["unrecorded"],
        curve=curve,
    )


def outcome_of(finding: Finding) -> AlarmOutcome:
    """What became of a finding: it lasted, or it was over, not confirmed or dismissed, or that is not known."""
    if finding.state == "dismissed" or finding.is_resolved_as("transient", "spell", "not confirmed"):
        return "over"
    if finding.state in SURE_STATES or finding.is_resolved_as("returned"):
        return "lasting"
    return "undecided"


def alarm_event(finding: Finding, lost_share: float, newest_s: int, per_year: float) -> AlarmEvent:
    """A finding as an event whose cost is counted.

    Args:
        lost_share: performance of one file system that it takes, as a share of it.
        newest_s: time of the newest run of the system, epoch seconds.
        per_year: number of years of which the history is one, inverted.
    """
    days: list[float] = []
    probabilities: list[float] = []
    for morning in finding.probable_mornings or ():
        days.append(max(0.0, (morning.time - finding.first_after) / DAY_S))
        probabilities.append(morning.probability)
    end_s = finding.end()
    if end_s is None:
        end_s = newest_s
    return AlarmEvent(
        mornings=tuple(days),
        probabilities=tuple(probabilities),
        is_lasting=outcome_of(finding) == "lasting",
        lost_share=lost_share,
        end=max(0.0, (end_s - finding.first_after) / DAY_S),
        per_year=per_year,
    )


def _recorded_since(sessions: Sequence[SessionRow], findings: Sequence[Finding]) -> int | None:
    """Start of the first session whose morning is recorded with all findings, epoch seconds; None without one.

    An update records what the newest session shows with that session. Sessions that were imported together have it in
    the newest one only: what the mornings before would have stated is not known.
    """
    starts = [session.started_at for session in sessions if session.facts.report is not None]
    if not starts:
        return None
    older = [finding.first_after for finding in findings if finding.probable_mornings is None]
    return max(min(starts), *older) if older else min(starts)


def _has_its_mornings(finding: Finding, sessions: Sequence[SessionRow]) -> bool:
    """Whether most sessions from the first run of a finding to its last probable morning had an update of their own.

    Else its delay is that of the updates and not that of a threshold.
    """
    mornings = finding.probable_mornings
    if mornings is None:
        return False
    if not mornings:
        return True
    between = [session for session in sessions if finding.first_after < session.started_at <= mornings[-1].time]
    updated = sum(session.facts.report is not None for session in between)
    return 2 * updated >= len(between)


class SeriesShares:
    """The share of each series in the performance of its file system: all series of one count alike."""

    def __init__(self, rows: Sequence[SeriesRow]) -> None:
        self._file_systems: dict[int, Scalar] = {}
        for row in rows:
            self._file_systems[row.id] = series_parameters(row).get("file_system", "")
        self._series: Mapping[Scalar, int] = Counter(self._file_systems.values())

    def lost_share(self, finding: Finding) -> float:
        """Performance of one file system that a finding takes, as a share of it; of several file systems the sum."""
        # Noise, latencies and counts are no performance.
        if finding.lost_performance == 0:
            return 0.0
        lost = 0.0
        for member in finding.members:
            if member.series_id in self._file_systems:
                lost += member.lost_share / self._series[self._file_systems[member.series_id]]
        return lost
