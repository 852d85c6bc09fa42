"""The plan of a session: its runs, the expected results, and the runs that fit the budget.

The plan follows from the suites, not from ReFrame: a case that ReFrame skips, filters or loses is therefore missing
and is reported. Budget, blackouts and jitter are the block `night` of `systems/<name>/system.yaml` (NightlyPolicy).
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import get_args

from iowatch.benchmarks.suites import SuiteCase
from iowatch.checks import ExtraWork
from iowatch.core import IowatchError, RunKey, UnplannedRun, UsageError, format_local_time, format_size, suggest_name
from iowatch.session.reframe import ReframeSite
from iowatch.site import (
    Blackout,
    MeasuredFileSystem,
    NightlyPolicy,
    SystemLimits,
    Weekday,
    exceeded_limits,
    load_stack,
    system_zone,
)
from iowatch.store import ExpectedResult, History

_LOG = logging.getLogger(__name__)

_HISTORY_SESSIONS = 10  # number of last sessions searched for durations
_DAY = timedelta(days=1)
_WEEKDAYS = get_args(Weekday)
_BLACKOUT_LOOKAHEAD_DAYS = 8  # includes each weekday


@dataclass(frozen=True)
class PlannedRun:
    """One case on one stack of one partition, with the work that its job does besides."""

    case: SuiteCase
    partition: str
    stack: str
    extra_work: tuple[ExtraWork, ...] = ()

    @property
    def name(self) -> str:
        """The run's name in expected set and history."""
        return self.case.run_name

    @property
    def key(self) -> RunKey:
        """Identity of the run: partition, stack, name."""
        return RunKey(self.partition, self.stack, self.name)

    @property
    def reframe_test(self) -> str:
        """ReFrame's name of its test."""
        return f"{self.case.tool.check} %entry={self.case.suite}/{self.case.name}"

    @property
    def volume_bytes(self) -> int:
        """Bytes written and read."""
        measured_bytes = self.case.tool.volume_bytes(self.case.options)
        return measured_bytes + sum(work.volume_bytes for work in self.extra_work)

    def expected_s(self, longest_s: float | None) -> float:
        """Expected seconds, of the measurement those of the last sessions, or the time limit if none is known."""
        measured_s = float(self.case.time_limit_s) if longest_s is None else longest_s
        return measured_s + sum(work.expected_s for work in self.extra_work)

    def expected(self) -> list[ExpectedResult]:
        """The results of a complete run."""
        return [
            ExpectedResult(self.name, self.partition, self.stack, operation, metric)
            for operation, metric in self.case.expects
        ]


@dataclass(frozen=True)
class UnavailableCase:
    """A case that cannot run on a stack, and the reason.

    Attributes:
        lacking: features that the stack lacks.
        expected: its results that stay expected, because the machine and not the suite is the reason.
    """

    name: str
    stack: str
    reason: str
    lacking: frozenset[str] = frozenset()
    expected: tuple[ExpectedResult, ...] = ()


@dataclass(frozen=True)
class ExcludedRuns:
    """Runs of the selected cases that a session cannot or need not measure.

    Attributes:
        duplicates: reasons by name of the runs that would only repeat another in the directory of their file system.
        not_allowed: reasons by name of the runs that need more than their file system allows.
        unusable: reasons by file system, None for the default one, why nothing can be written to it.
    """

    duplicates: Mapping[str, str] = field(default_factory=dict)
    not_allowed: Mapping[str, str] = field(default_factory=dict)
    unusable: Mapping[str | None, str] = field(default_factory=dict)

    def reason(self, run_name: str) -> str | None:
        """Why a run is left out; None if it is not, or if the reason is its file system."""
        return self.not_allowed.get(run_name) or self.duplicates.get(run_name)


NOTHING_EXCLUDED = ExcludedRuns()


@dataclass(frozen=True)
class SessionPlan:
    """The runs of a session, the cases that are not available, and the lost runs, which stay expected."""

    runs: tuple[PlannedRun, ...]
    unavailable: tuple[UnavailableCase, ...]
    lost: tuple[UnplannedRun, ...] = ()

    @property
    def file_systems(self) -> tuple[str | None, ...]:
        """The file systems that its runs write to, None for the default one."""
        return tuple(dict.fromkeys(run.case.file_system for run in self.runs))

    def on(self, file_system: str | None) -> SessionPlan:
        """The runs on one file system."""
        return SessionPlan(tuple(run for run in self.runs if run.case.file_system == file_system), ())

    def without(self, reasons: Mapping[str | None, str]) -> SessionPlan:
        """The plan without the runs on these file systems, which are lost for the reason of theirs."""
        kept: list[PlannedRun] = []
        lost = [*self.lost]
        for run in self.runs:
            if run.case.file_system in reasons:
                lost.append(UnplannedRun(*run.key, run.case.expects, reasons[run.case.file_system]))
            else:
                kept.append(run)
        return replace(self, runs=tuple(kept), lost=tuple(lost))

    @property
    def file_bytes(self) -> int:
        """Maximum bytes in scratch at the same time; cases run one after the other."""
        return max((run.case.tool.file_bytes(run.case.options) for run in self.runs), default=0)

    @property
    def inodes(self) -> int:
        """Maximum number of files in scratch at the same time."""
        return max((run.case.tool.inodes(run.case.options) for run in self.runs), default=1)

    @property
    def volume_bytes(self) -> int:
        """Total bytes written and read."""
        return sum(run.volume_bytes for run in self.runs)

    def expected(self) -> list[ExpectedResult]:
        """The expected set of the session."""
        expected: list[ExpectedResult] = []
        for run in (*self.runs, *self.lost):
            expected += run.expected()
        return expected


def make_session_plan(
    site: ReframeSite,
    cases: Sequence[SuiteCase],
    stacks: Sequence[str] = (),
    limits: SystemLimits | None = None,
    excluded: ExcludedRuns = NOTHING_EXCLUDED,
) -> SessionPlan:
    """Plan all cases on all partitions and stacks that can run them.

    Args:
        stacks: only these; empty means all.
        limits: limits of one case on the system; a case that exceeds them is not available.
        excluded: runs that are not available, either.

    Raises:
        UsageError: a stack is not known on this system.
    """
    for stack in stacks:
        if stack not in site.features:
            raise _unusable_stack_error(site, stack)
    runs: list[PlannedRun] = []
    unavailable: list[UnavailableCase] = []
    for run in _possible_runs(site, cases, stacks):
        obstacle = _find_obstacle(run, site.features[run.stack], limits, excluded)
        if obstacle is None:
            runs.append(run)
        else:
            unavailable.append(obstacle)
    return SessionPlan(tuple(runs), tuple(unavailable))


def _possible_runs(site: ReframeSite, cases: Sequence[SuiteCase], stacks: Sequence[str]) -> Iterator[PlannedRun]:
    """Yield each case with each stack of each partition.

    Args:
        stacks: only these; empty means all.
    """
    for partition in site.partitions:
        for stack in partition.stacks:
            if stacks and stack not in stacks:
                continue
            for case in cases:
                yield PlannedRun(case, partition.name, stack)


def _find_obstacle(
    run: PlannedRun, features: frozenset[str], limits: SystemLimits | None, excluded: ExcludedRuns
) -> UnavailableCase | None:
    """Return why a run is not possible; None if it is.

    Args:
        features: of its stack.
    """
    reasons: list[str] = []
    lacking = frozenset(run.case.requires) - features
    if lacking:
        reasons.append(f"the stack does not provide {', '.join(sorted(lacking))}")
    exceeded = exceeded_limits(run.case, limits)
    if exceeded:
        reasons.append(f"requires {', '.join(exceeded)}")
    excluded_reason = excluded.reason(run.name)
    if excluded_reason is not None:
        reasons.append(excluded_reason)
    if reasons:
        return UnavailableCase(run.name, run.stack, "; ".join(reasons), lacking)
    if run.case.file_system in excluded.unusable:
        # The machine and not the suite is the reason: the results stay expected.
        reason = excluded.unusable[run.case.file_system]
        return UnavailableCase(run.name, run.stack, reason, expected=tuple(run.expected()))
    return None


def lacking_features(site: ReframeSite, plan: SessionPlan) -> frozenset[str]:
    """Features that unavailable cases need and no stack of the system has."""
    lacking = frozenset[str]().union(*(case.lacking for case in plan.unavailable))
    return lacking.difference(*site.features.values())


def require_runs(site: ReframeSite, plan: SessionPlan) -> None:
    """Check that a plan has runs, or lost ones.

    Raises:
        UsageError: it has none.
    """
    if not (plan.runs or plan.lost):
        reasons = sorted({case.reason for case in plan.unavailable})
        why = "; ".join(reasons) or "it has no stack"
        raise UsageError(
            f"no case of this suite can run on '{site.system}': {why}",
            hint="`iowatch doctor` shows how to install a library; the limits are in system.yaml.",
        )


def _unusable_stack_error(site: ReframeSite, stack: str) -> UsageError:
    """Error with the reason why a stack cannot be run (unknown, only a lock file, broken), and a hint."""
    try:
        described = load_stack(stack, site.system)
    except UsageError:
        return UsageError(f"system '{site.system}' has no stack '{stack}'", hint=suggest_name(stack, [*site.features]))
    hint = "Use --bootstrap to clone Spack." if described.status == "locked" else None
    return UsageError(f"stack '{stack}' of system '{site.system}' cannot be run: {described.note}", hint=hint)


def exceeded_byte_budget(
    site: ReframeSite, plan: SessionPlan, limits: SystemLimits | None, measured: Sequence[MeasuredFileSystem] = ()
) -> str | None:
    """The `limits.total_bytes`, of the system or of a file system, that a plan exceeds, as a sentence; or None."""
    exceeded: list[str | None] = []
    if limits is not None:
        exceeded.append(_exceeded_bytes(f"'{site.system}'", plan.volume_bytes, limits.total_bytes))
    for file_system in measured:
        if file_system.limits is not None:
            volume_bytes = plan.on(file_system.parameter).volume_bytes
            subject = f"file system '{file_system.name}'"
            exceeded.append(_exceeded_bytes(subject, volume_bytes, file_system.limits.total_bytes))
    return next((text for text in exceeded if text is not None), None)


def _exceeded_bytes(subject: str, volume_bytes: int, budget_bytes: int | None) -> str | None:
    """The sentence about an exceeded byte budget; None if it is not exceeded.

    Args:
        subject: whose budget it is.
    """
    if budget_bytes is None or volume_bytes <= budget_bytes:
        return None
    return (
        f"this suite writes and reads {format_size(volume_bytes)}; the byte budget of {subject} is "
        f"{format_size(budget_bytes)} per session"
    )


def check_byte_budget(
    site: ReframeSite, plan: SessionPlan, limits: SystemLimits | None, measured: Sequence[MeasuredFileSystem] = ()
) -> None:
    """Check the volume of a plan against `limits.total_bytes` of the system, and of each of its file systems.

    Raises:
        UsageError: the plan writes and reads more.
    """
    exceeded = exceeded_byte_budget(site, plan, limits, measured)
    if exceeded is not None:
        raise UsageError(
            exceeded, hint="Choose a smaller suite or fewer stacks, or raise limits.total_bytes in its system.yaml."
        )


# Start of a nightly session


def jitter_s(policy: NightlyPolicy, system: str, day: date) -> float:
    """Seconds to wait before the session of `day`: within `jitter_minutes`, the same for each call."""
    digest = hashlib.sha256(f"{system}\0{day.isoformat()}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 * 60 * (policy.jitter_minutes or 0)


def blackout_windows(blackout: Blackout, first: date, days: int, zone: tzinfo) -> Iterator[tuple[datetime, datetime]]:
    """Start and end (UTC) of the blackout on each of its days from `first` on.

    A local time that a clock change skips or repeats has two moments; the blackout starts at the first and ends at
    the second, so that it is never shorter than meant.
    """
    for number in range(days):
        day = first + number * _DAY
        weekday = _WEEKDAYS[day.weekday()]  # not strftime: a site's configuration may have set a locale
        other_day = blackout.days and weekday not in blackout.days
        if other_day or not (blackout.since or day) <= day <= (blackout.until or day):
            continue
        # An end that is not after the start is on the next day; 00:00 to 00:00 is the whole day.
        last = day if blackout.end > blackout.start else day + _DAY
        start, end = datetime.combine(day, blackout.start), datetime.combine(last, blackout.end)
        yield min(_moments(start, zone)), max(_moments(end, zone))


def _moments(local: datetime, zone: tzinfo) -> list[datetime]:
    """Both interpretations (UTC) of a local time; they are equal unless clocks change then."""
    return [local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]


def current_blackout(policy: NightlyPolicy, moment: datetime, zone: tzinfo) -> tuple[Blackout, datetime] | None:
    """The blackout (times in `zone`) that contains `moment`, and its end (UTC); None outside all blackouts."""
    for blackout in policy.blackouts:
        for start, end in blackout_windows(blackout, moment.astimezone(zone).date() - _DAY, 3, zone):
            if start <= moment < end:
                return blackout, end
    return None


def next_blackout(policy: NightlyPolicy, moment: datetime, zone: tzinfo) -> tuple[Blackout, datetime] | None:
    """The first blackout (times in `zone`) of the next days that starts after `moment`, and its start (UTC)."""
    today = moment.astimezone(zone).date()
    upcoming: list[tuple[Blackout, datetime]] = []
    for blackout in policy.blackouts:
        for start, _ in blackout_windows(blackout, today, _BLACKOUT_LOOKAHEAD_DAYS, zone):
            if start > moment:
                upcoming.append((blackout, start))
    return min(upcoming, key=lambda blackout_and_start: blackout_and_start[1], default=None)


def wait_for_start(
    policy: NightlyPolicy, system: str, now: datetime, sleep: Callable[[float], None] = time.sleep
) -> str | None:
    """Wait for the start time of a nightly session; if a blackout excludes it, return the reason without waiting."""
    zone = system_zone(system)
    seconds = jitter_s(policy, system, now.astimezone(zone).date())
    start = now + timedelta(seconds=seconds)
    blackout = current_blackout(policy, start, zone)
    if blackout is not None:
        end = format_local_time(blackout[1].timestamp(), zone)
        return f"no session on {system}: blackout '{blackout[0].reason}' until {end}"
    if seconds >= 1:
        _LOG.info("the session on %s starts at %s", system, format_local_time(start.timestamp(), zone))
        sleep(seconds)
    return None


# Budget


class SessionBudgetError(IowatchError):
    """The session must end: its time or node hours are used up, or a blackout starts."""


@dataclass(frozen=True)
class SessionBudget:
    """Budget of a session; None is no limit. `limit_reason` describes the time limit."""

    seconds: float | None = None
    node_hours: float | None = None
    bytes: int | None = None
    limit_reason: str = "the time budget of the session"

    def exceeded_part(self, seconds: float, node_hours: float, volume_bytes: int = 0) -> str | None:
        """The part of the budget that this use exceeds, as text; None if it fits."""
        if self.bytes is not None and volume_bytes > self.bytes:
            return f"the budget of {format_size(self.bytes)}"
        if self.node_hours is not None and node_hours > self.node_hours:
            return f"the budget of {self.node_hours:g} node hours"
        if self.seconds is not None and seconds > self.seconds:
            return self.limit_reason
        return None


def session_budget(policy: NightlyPolicy, start: datetime, zone: tzinfo) -> SessionBudget:
    """Budget of a session that starts at `start`; the next blackout (times in `zone`) limits its time."""
    seconds = None if policy.minutes is None else 60.0 * policy.minutes
    reason = f"the budget of {policy.minutes} minutes"
    upcoming = next_blackout(policy, start, zone)
    if upcoming is not None:
        left = (upcoming[1] - start).total_seconds()
        if seconds is None or left < seconds:
            clock = f"{upcoming[1].astimezone(zone):%H:%M %Z}"
            seconds, reason = left, f"the time until the blackout '{upcoming[0].reason}' at {clock}"
    return SessionBudget(seconds, policy.node_hours, policy.bytes, reason)


@dataclass(frozen=True)
class RunHistory:
    """Earlier executions of a run: start of the last (epoch s); longest wall time of the successful ones, or None."""

    last_start_s: int
    longest_wall_s: float | None


def load_run_history(history: History, system: str) -> dict[RunKey, RunHistory]:
    """Executions of each run in the last sessions of a system."""
    run_history: dict[RunKey, RunHistory] = {}
    for session in history.sessions(system, limit=_HISTORY_SESSIONS):
        if session.origin != "run":
            continue
        for run in history.runs(session.uuid):
            before = run_history.get(run.key, RunHistory(run.started_at, None))
            last_start_s = max(before.last_start_s, run.started_at)
            longest_wall_s = before.longest_wall_s
            if run.status == "ok" and run.wall_s:
                longest_wall_s = max(longest_wall_s or 0.0, run.wall_s)
            run_history[run.key] = RunHistory(last_start_s, longest_wall_s)
    return run_history


def fit_to_budget(
    runs: Sequence[PlannedRun], history: Mapping[RunKey, RunHistory], budget: SessionBudget
) -> tuple[tuple[PlannedRun, ...], tuple[UnplannedRun, ...]]:
    """The runs that fit the budget, in their order, and the others.

    Runs with the earliest last execution have precedence, so that several sessions together execute all runs. A run
    that fits without its extra work only is executed without it.
    """
    never_executed = RunHistory(-1, None)
    use = _Use()
    kept: dict[RunKey, PlannedRun] = {}
    deferred: list[UnplannedRun] = []
    for run in sorted(runs, key=lambda run: history.get(run.key, never_executed).last_start_s):
        longest_s = history.get(run.key, never_executed).longest_wall_s
        without_work = replace(run, extra_work=())
        for candidate in (run, without_work):
            use_with_it = use.plus(candidate, longest_s)
            if use_with_it.exceeded_part(budget) is None:
                use = use_with_it
                kept[run.key] = candidate
                break
        else:
            reason = f"exceeds {use_with_it.exceeded_part(budget)}"
            never_fits = _Use().plus(without_work, longest_s).exceeded_part(budget)
            if never_fits is not None:
                needed_s = without_work.expected_s(longest_s)
                reason = f"exceeds {never_fits} even without other runs (it needs up to {needed_s:.0f} s)"
            deferred.append(UnplannedRun(*run.key, tuple(run.case.expects), reason))
    return tuple(kept[run.key] for run in runs if run.key in kept), tuple(deferred)


@dataclass(frozen=True)
class _Use:
    """Expected use of some runs."""

    seconds: float = 0.0
    node_hours: float = 0.0
    bytes: int = 0

    def plus(self, run: PlannedRun, longest_s: float | None) -> _Use:
        """The use with a further run.

        Args:
            longest_s: of the run in the last sessions, or None.
        """
        run_s = run.expected_s(longest_s)
        node_hours = run.case.nodes * run_s / 3600
        return _Use(self.seconds + run_s, self.node_hours + node_hours, self.bytes + run.volume_bytes)

    def exceeded_part(self, budget: SessionBudget) -> str | None:
        """The part of a budget that this use exceeds, as text; None if it fits."""
        return budget.exceeded_part(self.seconds, self.node_hours, self.bytes)


@dataclass
class UsageMeter:
    """Use of the session since the creation of the meter.

    Attributes:
        limit: budget of the whole session.
        clock: monotonic seconds.
    """

    limit: SessionBudget
    clock: Callable[[], float] = time.monotonic
    node_hours: float = 0.0
    bytes: int = 0
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def add_run(self, run: PlannedRun, wall_s: float | None) -> None:
        """Add a finished run; one without wall time counts with its time limit."""
        seconds = run.expected_s(wall_s)
        self.node_hours += run.case.nodes * seconds / 3600
        self.bytes += run.volume_bytes

    def raise_if_exhausted(self) -> None:
        """Check that the session may continue.

        Raises:
            SessionBudgetError: time or node hours are used up. (`fit_to_budget` limits bytes in advance.)
        """
        exceeded = self.limit.exceeded_part(self.clock() - self.started, self.node_hours)
        if exceeded:
            raise SessionBudgetError(f"ended early: {exceeded} is used up")

    def remaining_budget(self) -> SessionBudget:
        """Remaining budget for further runs."""
        seconds, node_hours, volume_bytes = self.limit.seconds, self.limit.node_hours, self.limit.bytes
        if seconds is not None:
            seconds -= self.clock() - self.started
        if node_hours is not None:
            node_hours -= self.node_hours
        if volume_bytes is not None:
            volume_bytes -= self.bytes
        return replace(self.limit, seconds=seconds, node_hours=node_hours, bytes=volume_bytes)
