"""The budget of a session: its time, node hours and bytes, which runs fit it, and what was used of it.

It is in the block `night` of `systems/<name>/system.yaml` (NightlyPolicy); the next blackout limits the time, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo

from iowatch.benchmarks.suites import current_run_name
from iowatch.core import IowatchError, RunKey, UnplannedRun, format_size
from iowatch.session.blackouts import next_blackout
from iowatch.session.plan import PlannedRun
from iowatch.site import NightlyPolicy
from iowatch.store import History

_HISTORY_SESSIONS = 10  # number of last sessions searched for durations


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
        left = (upcoming.start - start).total_seconds()
        if seconds is None or left < seconds:
            clock = f"{upcoming.start.astimezone(zone):%H:%M %Z}"
            seconds, reason = left, f"the time until the blackout '{upcoming.blackout.reason}' at {clock}"
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
            key = run.key._replace(run=current_run_name(run.name))
            before = run_history.get(key, RunHistory(run.started_at, None))
            last_start_s = max(before.last_start_s, run.started_at)
            longest_wall_s = before.longest_wall_s
            if run.status == "ok" and run.wall_s:
                longest_wall_s = max(longest_wall_s or 0.0, run.wall_s)
            run_history[key] = RunHistory(last_start_s, longest_wall_s)
    return run_history


@dataclass(frozen=True)
class FittedRuns:
    """The runs that fit a budget, and the others, with the reason of each."""

    kept: tuple[PlannedRun, ...]
    deferred: tuple[UnplannedRun, ...]


def fit_to_budget(
    runs: Sequence[PlannedRun], history: Mapping[RunKey, RunHistory], budget: SessionBudget
) -> FittedRuns:
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
        # Extra work can wait for another session, a measurement that is due cannot.
        for candidate in (run, without_work):
            use_with_it = use.plus(candidate, longest_s)
            if use_with_it.exceeded_part(budget) is None:
                use = use_with_it
                kept[run.key] = candidate
                break
        else:
            reason = f"exceeds {use_with_it.exceeded_part(budget)}"
            # A run that exceeds the budget alone would be deferred for ever: its reason says so.
            never_fits = _Use().plus(without_work, longest_s).exceeded_part(budget)
            if never_fits is not None:
                needed_s = without_work.expected_s(longest_s)
                reason = f"exceeds {never_fits} even without other runs (it needs up to {needed_s:.0f} s)"
            deferred.append(UnplannedRun(*run.key, tuple(run.case.expects), reason))
    kept_runs = tuple(kept[run.key] for run in runs if run.key in kept)
    return FittedRuns(kept_runs, tuple(deferred))


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
