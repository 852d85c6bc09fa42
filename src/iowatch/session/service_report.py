"""The service report of a period: what a system delivered, what changed, what it cost its users, and what was done.

Data flow: the history (sessions, findings), the decisions and events of the site -> `ServiceReport` of a system and a
period -> `iowatch.output.service_report` prints it. Everything is computed when it is asked for; nothing is stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import chain
from statistics import median_low

from iowatch.core import DAY_S, UsageError, local_day, missing_results, settings, start_of_day
from iowatch.findings import SURE_STATES, Finding, ResolutionKind, SeriesShares, headline_series, load_findings
from iowatch.reference import DecisionKind, Event, events, reviews
from iowatch.session.blackouts import current_blackout
from iowatch.session.last_sessions import own_sessions
from iowatch.site import NightlyPolicy, load_system, system_zone
from iowatch.statistics.alarm_cost import lost_user_hours
from iowatch.store import History, SessionRow

_DAY = timedelta(days=1)
_MONTHS_OF_QUARTER = 3
# Of this century: dates beyond the calendar of Python have no quarter before or after them.
_QUARTER = re.compile(r"(?P<year>20\d\d)-?Q(?P<number>[1-4])", re.IGNORECASE)
# Findings that were resolved for these reasons were no loss that its users had.
_NO_LOSS: tuple[ResolutionKind, ...] = ("not confirmed", "part of another", "recovery")
# Decisions that say what is done about a finding; a note or an owner does not.
_DECIDING: tuple[DecisionKind, ...] = ("acknowledged", "accepted", "dismissed")


@dataclass(frozen=True)
class Period:
    """Days in the zone of a system, both included."""

    first: date
    last: date

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise UsageError(f"the period ends on {self.last}, before it begins on {self.first}")

    @property
    def days(self) -> int:
        """Number of days."""
        return (self.last - self.first).days + 1

    def before(self) -> Period:
        """The period of the same kind before it: of a quarter the one before, else as many days."""
        quarter = quarter_of(self.first)
        if quarter == self:
            return quarter_of(self.first - _DAY)
        return Period(self.first - self.days * _DAY, self.first - _DAY)


def quarter_of(day: date) -> Period:
    """The quarter of the calendar that contains a day."""
    first_month = _MONTHS_OF_QUARTER * ((day.month - 1) // _MONTHS_OF_QUARTER) + 1
    first = date(day.year, first_month, 1)
    next_first = (first + timedelta(days=95)).replace(day=1)
    return Period(first, next_first - _DAY)


def parse_quarter(text: str) -> Period:
    """A quarter as `2026-Q3`.

    Raises:
        UsageError: no quarter.
    """
    match = _QUARTER.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"'{text}' is not a quarter", hint="Expected for example 2026-Q3.")
    return quarter_of(date(int(match["year"]), _MONTHS_OF_QUARTER * int(match["number"]), 1))


@dataclass(frozen=True)
class Availability:
    """How much of the nightly measurement a period has.

    Attributes:
        nights: days of the period on which a session was due: from the first session of the system on (of a retired
            system to its last one), before today, without those on which a blackout excluded it.
        measured: how many of them have a session that received results.
        blackouts: days that were left out because nothing was measured, and a blackout contains the usual start.
        expected, received: number of results that the sessions of the period expected, and how many of them came.
    """

    nights: int
    measured: int
    blackouts: int
    expected: int
    received: int


@dataclass(frozen=True)
class FindingInPeriod:
    """A finding that needed action, and the part of it that lies in a period.

    Attributes:
        days: number of days of the period on which it was there, to the newest run of the system at most.
        lost_hours: of the users in these days, by the prices of the site; 0 of a gain.
        began, ended: whether it began or ended in the period.
    """

    finding: Finding
    days: float
    lost_hours: float
    began: bool
    ended: bool


@dataclass(frozen=True)
class ServiceReport:
    """What a system delivered in a period.

    Attributes:
        until: last day that is reported on: the last one of the period, or today.
        availability: None for a system that iowatch does not measure itself (imported).
        findings: those that were there in the period, the most expensive first.
        open_at_end: number of those that were not over at its end.
        days_until_decision: of each loss that began in the period and has a decision, days from its beginning to it.
        decisions, events: those of the period, by date.
        faults: what could not be read of decisions and events.
    """

    system: str
    period: Period
    until: date
    prices: settings.Prices
    availability: Availability | None
    findings: tuple[FindingInPeriod, ...]
    open_at_end: int
    days_until_decision: tuple[int, ...]
    decisions: tuple[reviews.Decision, ...]
    events: tuple[Event, ...]
    faults: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether the period has no night in which a session was due, no measured day of a finding and no decision."""
        has_nights = self.availability is not None and self.availability.nights > 0
        has_findings = any(part.days > 0 for part in self.findings)
        return not (has_nights or has_findings or self.decisions)

    @property
    def lost_hours(self) -> float:
        """Hours of the users that all losses cost in the period."""
        return sum(part.lost_hours for part in self.findings)

    @property
    def began(self) -> int:
        """Number of findings that began in the period."""
        return sum(part.began for part in self.findings)

    @property
    def ended(self) -> int:
        """Number of findings that ended in the period."""
        return sum(part.ended for part in self.findings)


def report_period(history: History, system: str, period: Period, today: date) -> ServiceReport:
    """The report of a system and a period, until today at most.

    Raises:
        UsageError: the system is not in the history, or the period has not begun.
    """
    history.require_system(system)
    if period.first > today:
        raise UsageError(f"the period from {period.first} to {period.last} has not begun; today is {today}")
    until = min(period.last, today)
    zone = system_zone(system)
    begin_s, end_s = start_of_day(period.first, zone), start_of_day(until + _DAY, zone)
    rows = headline_series(history, system)
    newest_s = max((row.last or 0 for row in rows), default=0)
    decisions = reviews.read_decisions(system)
    recorded_events = events.read_events(system)
    times = _PeriodTimes(begin_s, end_s, newest_s)
    of_findings = _FindingsOfPeriod(history, system, times, decisions.decisions, SeriesShares(rows))
    parts = list(of_findings.parts())
    return ServiceReport(
        system=system,
        period=period,
        until=until,
        prices=settings.site_settings().prices,
        availability=_assess_availability(history, system, Period(period.first, until), today),
        findings=tuple(sorted(parts, key=lambda part: -part.lost_hours)),
        open_at_end=sum(of_findings.end_of(part.finding) is None for part in parts),
        days_until_decision=tuple(of_findings.days_until_decision()),
        decisions=tuple(decision for decision in decisions.decisions if period.first <= decision.date <= until),
        events=tuple(event for event in recorded_events.events if event.start < end_s and event.end > begin_s),
        faults=(*decisions.faults, *recorded_events.faults),
    )


@dataclass(frozen=True)
class _PeriodTimes:
    """A period in epoch seconds.

    Attributes:
        begin: its first moment.
        end: the first moment after it.
        newest_run: time of the newest run of the system; what was not measured any more is not counted as lost.
    """

    begin: int
    end: int
    newest_run: int


class _FindingsOfPeriod:
    """The findings of a system that needed action and were there in a period."""

    def __init__(
        self,
        history: History,
        system: str,
        times: _PeriodTimes,
        decisions: Sequence[reviews.Decision],
        shares: SeriesShares,
    ) -> None:
        self._times = times
        self._decisions = decisions
        self._zone = system_zone(system)
        self._shares = shares
        self._price = settings.site_settings().prices.half_speed_day_hours
        self._session_starts = sorted(session.started_at for session in history.sessions(system))
        self._findings = [finding for finding in load_findings(history, system) if _counts(finding)]

    def parts(self) -> Iterator[FindingInPeriod]:
        """Each finding with the part of it that lies in the period."""
        begin_s = self._times.begin
        for finding in self._findings:
            end_s = self.end_of(finding)
            is_over_before = end_s is not None and end_s <= begin_s
            if finding.first_after >= self._times.end or is_over_before:
                continue
            # The days on which it was there and the system was measured.
            first_s = max(finding.first_after, begin_s)
            last_s = self._times.end if end_s is None else end_s
            last_s = min(last_s, self._times.newest_run)
            days = max(0.0, (last_s - first_s) / DAY_S)
            lost_hours = lost_user_hours(self._shares.lost_share(finding), days, self._price)
            began = finding.first_after >= begin_s
            yield FindingInPeriod(finding, days, lost_hours, began, ended=end_s is not None)

    def end_of(self, finding: Finding) -> int | None:
        """When it was over, or decided to be no loss any more (epoch seconds); None if that was not before the end."""
        end_s = finding.end(self._session_starts)
        if finding.is_resolved_as("superseded") and finding.resolution is not None:
            # The level of that time is accepted, and this loss with it.
            end_s = finding.resolution.since
        elif finding.state == "accepted":
            end_s = self._decided_s(finding)
        if end_s is None or end_s >= self._times.end:
            return None
        return max(end_s, finding.first_after)

    def _decided_s(self, finding: Finding) -> int | None:
        """End of the day on which a finding was accepted, epoch seconds; None if that is not recorded."""
        days = [decision.date for decision in self._decisions_about(finding, (finding.state,))]
        return start_of_day(max(days) + _DAY, self._zone) if days else None

    def days_until_decision(self) -> Iterator[int]:
        """Days from the beginning of each loss of the period to the first decision about it until its end."""
        last = local_day(self._times.end - 1, self._zone)
        for finding in self._findings:
            if not finding.is_loss or not self._times.begin <= finding.first_after < self._times.end:
                continue
            decided = [decision.date for decision in self._decisions_about(finding, _DECIDING)]
            if decided and min(decided) <= last:
                began = local_day(finding.first_after, self._zone)
                yield max(0, (min(decided) - began).days)

    def _decisions_about(self, finding: Finding, kinds: Sequence[str]) -> Iterator[reviews.Decision]:
        """The decisions of some kinds about a finding."""
        for decision in self._decisions:
            if decision.finding == finding.id and decision.decision in kinds:
                yield decision


def _counts(finding: Finding) -> bool:
    """Whether a finding needed action and was a change that users had."""
    if finding.is_resolved_as(*_NO_LOSS) or finding.state == "dismissed":
        return False
    return finding.needed_action or finding.state in SURE_STATES


def _assess_availability(history: History, system: str, period: Period, today: date) -> Availability | None:
    """Which nights of a period were measured, and which results came; None without any session of its own."""
    zone = system_zone(system)
    by_day: dict[date, list[SessionRow]] = {}
    for session in own_sessions(history, system):
        by_day.setdefault(local_day(session.started_at, zone), []).append(session)
    if not by_day:
        return None
    first, last = max(period.first, min(by_day)), period.last
    if _is_retired(system):
        last = min(last, max(by_day))
    excluded = _BlackoutNights(system, _usual_start(by_day, period, zone))
    nights = measured = blackouts = expected = received = 0
    day = first
    while day <= last:
        is_measured = False
        for session in by_day.get(day, []):
            due = history.expected(session.uuid)
            session_results = set(history.received(session.uuid))
            expected += len(due)
            received += len(due) - len(missing_results(due, session_results))
            is_measured = is_measured or bool(session_results)
        if is_measured:
            nights += 1
            measured += 1
        elif excluded.contains(day):
            blackouts += 1
        elif day < today:
            # The session of today may still come.
            nights += 1
        day += _DAY
    return Availability(nights, measured, blackouts, expected, received)


def _usual_start(by_day: Mapping[date, Sequence[SessionRow]], period: Period, zone: tzinfo) -> time:
    """The time of the day at which the sessions of a period start, or of all days where the period has none.

    It is the start of one of them, the middle one: a few sessions that a person started do not change it.
    """
    sessions: list[SessionRow] = []
    for day, sessions_of_day in by_day.items():
        if period.first <= day <= period.last:
            sessions += sessions_of_day
    if not sessions:
        sessions = list(chain.from_iterable(by_day.values()))
    return median_low(datetime.fromtimestamp(session.started_at, zone).time() for session in sessions)


class _BlackoutNights:
    """The days on which a blackout excludes the session of a system; none if the system is not described any more.

    Args:
        start: the time of the day, in the zone of the system, at which its sessions start.
    """

    def __init__(self, system: str, start: time) -> None:
        self._zone = system_zone(system)
        self._start = start
        self._policy: NightlyPolicy | None = None
        with suppress(UsageError):
            self._policy = load_system(system).night

    def contains(self, day: date) -> bool:
        """Whether a blackout contains the usual start on a day."""
        if self._policy is None:
            return False
        moment = datetime.combine(day, self._start, self._zone).astimezone(UTC)
        return current_blackout(self._policy, moment, self._zone) is not None


def _is_retired(system: str) -> bool:
    """Whether a system is not measured any more; False if it is not described any more."""
    try:
        return load_system(system).retired is not None
    except UsageError:
        return False
