"""`iowatch maintenance end`: the cases of a suite, repeated in rounds until the system is known to be fit or not.

    plan ──> rounds: runs by information per minute ──> history ──> findings.fitness ──> decided, or time is up

A round is one start of ReFrame. Its runs have series of their own (`repeated`), which change detection leaves out: many
runs of one hour are no nights.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from iowatch import checks
from iowatch.core import MachineError, RunKey, RunProblem, name_without_turn
from iowatch.findings import BaselinePeriod, Expectation, FitnessAssessment, FitnessComparison
from iowatch.reference import PublishedFigure
from iowatch.session import reframe
from iowatch.session.budget import RunHistory, load_run_history
from iowatch.session.context import SessionContext
from iowatch.session.file_systems import LockedSession, lock_file_systems
from iowatch.session.headlines import HeadlineResult, assess_headlines
from iowatch.session.missing_reasons import reasons_of_failures
from iowatch.session.plan import PlannedRun, SessionPlan
from iowatch.session.run import prepare_session
from iowatch.session.runner import SessionRunner, lock_system
from iowatch.session.surrounding_job import runs_that_wait_for_this_job
from iowatch.statistics.fitness import FitnessDecision, FitnessSettings
from iowatch.store import ExpectedResult, History, MaintenanceFacts, SessionFacts, SessionRecord

_LOG = logging.getLogger(__name__)
# A round is split into starts of ReFrame of about this length, so that time and results are looked at in between.
_BATCH_S = 300.0
# More rounds say nothing that these do not: the noise within an hour is divided by 50.
_MOST_ROUNDS = 50


@dataclass(frozen=True, kw_only=True)
class FitnessRequest:
    """What is asked after a maintenance.

    Attributes:
        title: of the maintenance, for reports.
        begun_s, ended_s: epoch seconds; None if only a baseline was given.
        budget_s: seconds of the whole assessment.
    """

    title: str
    baseline: BaselinePeriod
    settings: FitnessSettings
    budget_s: float
    begun_s: int | None = None
    ended_s: int | None = None
    expectations: tuple[Expectation, ...] = ()


@dataclass(frozen=True)
class MaintenanceOutcome:
    """What was measured after a maintenance, and what it shows.

    Attributes:
        decision: of the assessment; `not fit` if a run fails, or cannot be planned, that one of the last sessions
            completed.
        rounds: number of rounds that were started; `wall_s`: seconds of all of them.
        failed: runs that failed, are missing, or cannot be planned any more.
        unmeasured: names of runs that did not fit the time.
        headlines, published: the best value of each result with the peak, and published figures of like cases, if
            there is no baseline.
    """

    system: str
    suite: str
    session: str
    request: FitnessRequest
    decision: FitnessDecision
    assessment: FitnessAssessment
    rounds: int
    wall_s: float
    failed: tuple[RunProblem, ...] = ()
    unmeasured: tuple[str, ...] = ()
    headlines: tuple[HeadlineResult, ...] = ()
    published: tuple[PublishedFigure, ...] = ()


def measure_fitness(history: History, context: SessionContext, request: FitnessRequest) -> MaintenanceOutcome:
    """Repeat the cases of a suite until it is decided whether the system is as fast as before.

    Raises:
        UsageError: unknown stack; no case can run.
        MachineError: another session is running; scratch cannot be used; ReFrame cannot be started.
    """
    with lock_system(history, context.system):
        prepared = prepare_session(history, context)
        with lock_file_systems(history, context, prepared.plan) as session:
            plan = prepared.plan.without(session.unusable)
            plan = plan.without_runs(runs_that_wait_for_this_job(context.site, plan.runs))
            runs = tuple(replace(run, extra_work=()) for run in plan.runs)
            plan = replace(plan, runs=runs)
            comparison = FitnessComparison.load(
                history,
                context.system.name,
                request.baseline,
                {run.key for run in runs},
                request.settings,
                request.expectations,
            )
            facts = MaintenanceFacts(title=request.title, begun_s=request.begun_s, ended_s=request.ended_s)
            record = session.new_record(SessionFacts(maintenance=facts))
            runner = RepeatedRunner(history, session, record, RepeatedPlan(plan, request.budget_s), comparison)
            runner.run()
    return _outcome(history, context, request, runner)


@dataclass(frozen=True)
class RepeatedPlan:
    """The runs that are repeated.

    Attributes:
        budget_s: seconds for all rounds.
    """

    plan: SessionPlan
    budget_s: float


class RepeatedRunner(SessionRunner):
    """A session of rounds.

    Attributes:
        rounds: number of rounds that were started.
        wall_s: seconds from the first round on, at the end.
    """

    def __init__(
        self,
        history: History,
        session: LockedSession,
        record: SessionRecord,
        repeated: RepeatedPlan,
        comparison: FitnessComparison,
    ) -> None:
        super().__init__(history, session, record, ())
        self.plan = repeated.plan
        self.comparison = comparison
        self.rounds = 0
        self.wall_s = 0.0
        self._budget_s = repeated.budget_s
        self._run_history: Mapping[RunKey, RunHistory] = load_run_history(history, session.context.system.name)
        self._measured_s: dict[RunKey, float] = {}
        self._recorded: set[int] = set()
        self._failures: list[reframe.ReframeFailure] = []
        self._started = time.monotonic()

    def execute(self) -> None:
        """Execute rounds until it is decided, repeating does not help, or time is up."""
        while self.rounds < _MOST_ROUNDS:
            batches = self._next_round()
            if not batches:
                break
            self.rounds += 1
            for batch in batches:
                # The first round has all runs; later ones end with the time.
                if self.rounds > 1 and self._expected_s(batch) > self._left_s():
                    continue
                self._execute_batch(batch)
            if self._is_over():
                break
        self.ingest_all()
        self.wall_s = time.monotonic() - self._started
        self.status = "incomplete" if self.missing() else "ok"

    def _is_over(self) -> bool:
        """Whether further rounds are of no use; one line about the state."""
        fitness = self.comparison.decide()
        _LOG.info("[round %s] %s, %.0f s left", self.rounds, fitness.decision, max(0.0, self._left_s()))
        if fitness.reason == "no baseline" or any(self.has_worked(problem) for problem in self.failed_runs()):
            return True
        return fitness.decision != "undecided" or not fitness.repeating_helps

    def _left_s(self) -> float:
        return self._budget_s - (time.monotonic() - self._started)

    def _next_round(self) -> list[list[PlannedRun]]:
        """The runs of the next round that fit the time, those with most information per minute first, in batches."""
        information = self.comparison.information_by_run()

        def information_per_s(run: PlannedRun) -> float:
            return information.get(run.key, 0.0) / max(self._run_s(run), 1.0)

        batches: list[list[PlannedRun]] = []
        used_s, batch_s = 0.0, 0.0
        for run in sorted(self.plan.runs, key=information_per_s, reverse=True):
            run_s = self._run_s(run)
            # What has no baseline is measured once, so that it is known to run.
            is_useless = self.rounds > 0 and information_per_s(run) <= 0
            if is_useless or used_s + run_s > self._left_s():
                continue
            if not batches or batch_s + run_s > _BATCH_S:
                batches.append([])
                batch_s = 0.0
            batches[-1].append(run)
            batch_s += run_s
            used_s += run_s
        return batches

    def _run_s(self, run: PlannedRun) -> float:
        """Expected seconds of a run: as in this session, else in earlier ones, else its time limit."""
        if run.key in self._measured_s:
            return self._measured_s[run.key]
        earlier = self._run_history.get(run.key)
        return run.expected_s(None if earlier is None else earlier.longest_wall_s)

    def _expected_s(self, batch: Sequence[PlannedRun]) -> float:
        return sum(self._run_s(run) for run in batch)

    def _execute_batch(self, batch: Sequence[PlannedRun]) -> None:
        """Start ReFrame once for some runs; their results are in the history and in the comparison then."""
        facts = {"pair": self.rounds, "side": checks.REPEATED_SIDE}
        expected: list[ExpectedResult] = []
        turns: dict[str, checks.CheckTurn] = {}
        for run in batch:
            for result in run.expected():
                expected.append(replace(result, run_name=checks.turn_run_name(result.run_name, facts)))
            # A turn has one stack.
            turns[run.stack] = checks.CheckTurn(
                self.rounds, checks.REPEATED_SIDE, run.stack, {checks.REPEATED_PARAMETER: True}
            )
        self.history.begin_session(self.record, expected)
        order = self.session.order(self.directory)
        order = replace(order, runs=checks.ordered_runs(run.key for run in batch), turns=tuple(turns.values()))
        started = time.monotonic()
        try:
            reframe.execute_order(self.context.site, order, self.directory, self._poll)
        finally:
            self._failures += reframe.read_failures(self.directory, self.context.site)
            self.ingest_all()
        startup_failure = reframe.startup_failure_reason(self.directory)
        if startup_failure is not None:
            raise MachineError(startup_failure)
        # With a share of the time that ReFrame itself takes.
        walls_s = self._record_results()
        overhead_s = max(0.0, time.monotonic() - started - sum(walls_s.values())) / len(batch)
        for run in batch:
            self._measured_s[run.key] = walls_s.get(run.key, 0.0) + overhead_s

    def _poll(self) -> None:
        self.ingest()

    def _record_results(self) -> dict[RunKey, float]:
        """Add the new results of the session to the comparison; returns the seconds of each new run."""
        walls_s: dict[RunKey, float] = {}
        for run in self.history.runs(self.record.uuid):
            if run.id in self._recorded:
                continue
            self._recorded.add(run.id)
            walls_s[run.key._replace(run=name_without_turn(run.name))] = run.wall_s or 0.0
            if run.status == "ok":
                self.comparison.record_run(self.history.run_results(run.id))
        return walls_s

    def failed_runs(self) -> tuple[RunProblem, ...]:
        """Runs of this session that failed or are missing, each once, and those that could not be planned."""
        problems: dict[RunKey, RunProblem] = {}
        for lost in self.plan.lost:
            problems[lost.key] = RunProblem("missing", lost.stack, lost.name, lost.reason, lost.partition)
        for run in self.history.runs(self.record.uuid):
            key = run.key._replace(run=name_without_turn(run.name))
            if run.status != "ok":
                reason = run.reason or run.status
                problems.setdefault(key, RunProblem("failed", run.stack, key.run, reason, run.partition))
        missing_keys = [result.key for result in self.missing()]
        reasons = reasons_of_failures(self._failures, None, missing_keys)
        for missing_key in missing_keys:
            key = missing_key._replace(run=name_without_turn(missing_key.run))
            failure = reasons.get(missing_key)
            reason = "not received"
            if failure is not None:
                reason = failure.reason
            problems.setdefault(key, RunProblem("missing", key.stack, key.run, reason, key.partition))
        return tuple(problems.values())

    def has_worked(self, problem: RunProblem) -> bool:
        """Whether one of the last sessions completed the run."""
        earlier = self._run_history.get(problem.key)
        return earlier is not None and earlier.longest_wall_s is not None

    def unmeasured_runs(self) -> tuple[str, ...]:
        """Names of the runs of the plan that no round had time for."""
        return tuple(run.name for run in self.plan.runs if run.key not in self._measured_s)


def _outcome(
    history: History, context: SessionContext, request: FitnessRequest, runner: RepeatedRunner
) -> MaintenanceOutcome:
    """The outcome of a session that has ended."""
    uuid = runner.record.uuid
    runs = history.runs(uuid)
    assessment = runner.comparison.assess(runs)
    failed = runner.failed_runs()
    # What ran before and fails now is worse than slow.
    decision: FitnessDecision = assessment.decision
    if any(runner.has_worked(problem) for problem in failed):
        decision = "not fit"
    headlines: tuple[HeadlineResult, ...] = ()
    published: tuple[PublishedFigure, ...] = ()
    if assessment.reason == "no baseline":
        of_session = assess_headlines(history, history.session(uuid), runs, set(history.expected(uuid)))
        headlines, published = of_session.results, of_session.published
    return MaintenanceOutcome(
        system=context.system.name,
        suite=context.options.suite,
        session=uuid,
        request=request,
        decision=decision,
        assessment=assessment,
        rounds=runner.rounds,
        wall_s=runner.wall_s,
        failed=failed,
        unmeasured=runner.unmeasured_runs(),
        headlines=headlines,
        published=published,
    )
