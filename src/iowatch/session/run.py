"""`iowatch run`: one suite on one system, from the plan to the summary for the verdict.

A session is planned, started, ingested case by case while ReFrame runs, and closed; suspected runs are retested.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from iowatch import checks
from iowatch.core import (
    METRICS,
    RunKey,
    UsageError,
    format_count,
    format_number,
    format_size,
    headline_metrics,
    utc_now,
)
from iowatch.findings import state
from iowatch.session import accepted_plan, reframe
from iowatch.session.budget import (
    RunHistory,
    SessionBudget,
    SessionBudgetError,
    UsageMeter,
    fit_to_budget,
    load_run_history,
    session_budget,
)
from iowatch.session.context import SessionContext, require_darshan
from iowatch.session.extra_work import add_extra_work
from iowatch.session.file_systems import LockedSession, examine_file_systems, format_directories, lock_file_systems
from iowatch.session.options import SessionOptions
from iowatch.session.plan import (
    PlannedRun,
    SessionPlan,
    UnavailableCase,
    UnplannedRun,
    check_byte_budget,
    exceeded_byte_budget,
    lacking_features,
    make_session_plan,
    require_runs,
)
from iowatch.session.runner import SessionRunner, lock_system
from iowatch.session.surrounding_job import runs_that_wait_for_this_job
from iowatch.site import NightlyPolicy, doctor, schedulers, system_zone
from iowatch.store import ExpectedResult, History, NoHistoryError, RunFacts, SessionChoice, SessionFacts, SessionStatus

_LOG = logging.getLogger(__name__)

_WAIT_STEP_S = 1.0


@dataclass(frozen=True)
class PreparedSession:
    """A planned session that has not started.

    Attributes:
        choice: what restricts the session.
        meter: use of the budget from the start of the preparation.
        deferred_runs: runs that do not fit the budget.
        added_runs: runs with results that no earlier session expected.
    """

    context: SessionContext
    plan: SessionPlan
    choice: SessionChoice
    meter: UsageMeter
    run_history: Mapping[RunKey, RunHistory]
    deferred_runs: tuple[UnplannedRun, ...]
    added_runs: tuple[UnplannedRun, ...]


@dataclass
class SessionSummary:
    """Input of the verdict in addition to the history; filled while the session runs.

    Attributes:
        failures: tests that ReFrame could not complete.
        recovered: UUIDs of interrupted sessions that were recovered first.
        wall_s: from start to end; benchmark_s: inside the benchmark processes.
        deferred_runs: runs that do not fit the budget; they were not expected.
        added_runs: runs with results that no earlier session expected.
        stop_reason: reason why the session ended before all runs were executed, or None.
        retest_count: number of runs that were repeated because a change is suspected.
        problems: reasons for exit code 1, in addition to the attribute `problems` of the session.
        install_commands: that install what unavailable cases need and no stack of the system provides.
    """

    uuid: str
    unavailable: tuple[UnavailableCase, ...] = ()
    failures: tuple[reframe.ReframeFailure, ...] = ()
    recovered: tuple[str, ...] = ()
    wall_s: float = 0.0
    benchmark_s: float = 0.0
    runs: int = 0
    deferred_runs: tuple[UnplannedRun, ...] = ()
    added_runs: tuple[UnplannedRun, ...] = ()
    stop_reason: str | None = None
    retest_count: int = 0
    problems: tuple[str, ...] = ()
    install_commands: tuple[str, ...] = ()


def prepare_session(history: History | None, context: SessionContext) -> PreparedSession:
    """Plan the runs of a suite on a system; nothing is started, locked or written.

    Args:
        history: None before the first session.

    Raises:
        UsageError: unknown stack; no run is possible or fits the budget.
        InputError: the check of a benchmark is missing or has another class.
    """
    system = context.system
    # The time of the preparation counts.
    meter = UsageMeter(_budget_from_now(context.options))
    run_history = load_run_history(history, system.name) if history else {}
    # All runs that are possible, then those of them that fit the budget.
    excluded = examine_file_systems(history, context)
    plan = make_session_plan(context.site, context.cases, context.options.stacks, context.limits, excluded)
    runs = _with_extra_work(history, context, plan, run_history)
    fitted = fit_to_budget(runs, run_history, meter.limit)
    if plan.runs and not fitted.kept:
        raise UsageError(
            f"no run fits the budget: {fitted.deferred[0].reason}",
            hint=f"Raise the budgets in systems/{system.name}/system.yaml (`night`), or start later.",
        )
    plan = replace(plan, runs=fitted.kept)
    # Whatever would make all runs fail is reported before the first one.
    for benchmark in {run.case.benchmark for run in plan.runs}:
        reframe.check_path(benchmark)
    check_byte_budget(context.site, plan, context.limits, system.measured_file_systems)
    require_darshan(context, [run.stack for run in plan.runs])
    # What earlier sessions delivered and this one does not plan stays expected.
    added: tuple[UnplannedRun, ...] = ()
    choice = accepted_plan.session_choice(context.selection, excluded.duplicates)
    if history:
        completed = accepted_plan.compare_with_memory(history, context, choice, plan, fitted.deferred)
        plan, added = completed.plan, completed.added
    require_runs(context.site, plan)
    return PreparedSession(context, plan, choice, meter, run_history, fitted.deferred, added)


def _budget_from_now(options: SessionOptions) -> SessionBudget:
    if options.policy is None:
        return SessionBudget()
    return session_budget(options.policy, utc_now(), system_zone(options.system))


def _with_extra_work(
    history: History | None, context: SessionContext, plan: SessionPlan, run_history: Mapping[RunKey, RunHistory]
) -> tuple[PlannedRun, ...]:
    """The runs of a plan with the extra work of this session; without it where the byte budget does not allow it."""
    system = context.system
    traced_stacks: list[str] = []
    if context.is_traced:
        traced_stacks = [stack for stack, features in context.site.features.items() if "darshan" in features]
    runs = add_extra_work(
        plan.runs,
        run_history,
        len(history.sessions(system.name)) if history else 0,
        traced_stacks=traced_stacks,
        verify=context.options.policy is not None,
        total_bytes=context.limits.total_bytes,
    )
    # `add_extra_work` knows the byte budget of the system, not those of its file systems.
    exceeded = exceeded_byte_budget(context.site, replace(plan, runs=runs), None, system.measured_file_systems)
    return plan.runs if exceeded else runs


def check_plan(context: SessionContext, database: str | None) -> None:
    """Refuse wrong names before a history is created or a lock of another session is reported.

    Raises:
        UsageError: unknown stack; no case can run, and there is no history of earlier runs.
    """
    plan = make_session_plan(context.site, context.cases, context.options.stacks, context.limits)
    try:
        History.existing(database).close()
    except NoHistoryError:
        require_runs(context.site, plan)


def prepare_dry_run(context: SessionContext, database: str | None) -> PreparedSession:
    """Prepare a session for `--dry-run`, which does not need or create a history."""
    try:
        with History.existing(database) as history:
            return prepare_session(history, context)
    except NoHistoryError as error:
        _LOG.info("%s: durations are the time limits of the cases.", error.message)
        return prepare_session(None, context)


def run_suite(history: History, context: SessionContext) -> SessionSummary:
    """Run a suite and store all its results.

    Raises:
        UsageError: unknown stack; no run fits the budget.
        MachineError: another session is running; scratch cannot be used; ReFrame cannot be started.
    """
    started = time.monotonic()
    with lock_system(history, context.system) as recovered:
        prepared = prepare_session(history, context)
        # A file system may have failed since it was examined: its runs are lost, the others are executed.
        with lock_file_systems(history, context, prepared.plan) as session:
            plan = prepared.plan.without(session.unusable)
            plan = plan.without_runs(runs_that_wait_for_this_job(context.site, plan.runs))
            prepared = replace(prepared, plan=plan)
            _LOG.info("%s", opening_line(prepared))
            for subject, reason in dict.fromkeys(_subjects_of_losses(prepared.plan)):
                _LOG.warning("%s: %s; its runs are counted as missing", subject, reason)
            execution = SessionExecution(history, session, prepared)
            execution.run()
    return replace(execution.summary, recovered=recovered, wall_s=time.monotonic() - started)


def _subjects_of_losses(plan: SessionPlan) -> Iterator[tuple[str, str]]:
    """Yield the stack of each lost run, with its partition if there are several, and the reason."""
    for run in plan.lost:
        subject = f"{run.partition} {run.stack}" if plan.has_several_partitions else run.stack
        yield subject, run.reason


def opening_line(prepared: PreparedSession) -> str:
    """One line that describes the session to start."""
    context, plan, deferred = prepared.context, prepared.plan, len(prepared.deferred_runs)
    others = f" ({deferred} deferred to later sessions)" if deferred else ""
    return (
        f"{context.options.suite} on {context.system.name}: {format_count(len(plan.runs), 'run')}{others}, "
        f"{format_size(plan.volume_bytes)} written and read, {format_directories(context, plan)}"
    )


# Without a message for so long a person at a terminal wonders whether anything happens.
_WAITING_INTERVAL_S = 10.0


class SessionExecution(SessionRunner):
    """A running session of a suite: executes the plan, ingests results while ReFrame runs, fills the summary."""

    def __init__(self, history: History, session: LockedSession, prepared: PreparedSession) -> None:
        context, deferred = session.context, prepared.deferred_runs
        self.plan, self.meter = prepared.plan, prepared.meter
        facts = accepted_plan.plan_facts(history, context, prepared.choice, self.plan, deferred)
        record = session.new_record(facts)
        super().__init__(history, session, record, self.plan.expected())
        self.summary = SessionSummary(
            record.uuid,
            unavailable=self.plan.unavailable,
            deferred_runs=deferred,
            added_runs=prepared.added_runs,
            install_commands=doctor.install_commands(context.system, lacking_features(context.site, self.plan)),
        )
        self._planned_count = 0
        self._started = time.monotonic()
        self._reported_s = self._started

    def execute(self) -> None:
        """Execute all runs of the plan, then retest the suspected ones; nothing if all runs are lost."""
        if not self.plan.runs:
            return
        policy = self.context.options.policy
        try:
            self._execute_plan(self.plan, self.directory, self.session.order(self.directory))
            if policy is not None and policy.repeat_suspected:
                self._retest(policy)
        except SessionBudgetError as over:
            if self.status == "incomplete":  # the last result may have been received just before
                self.summary.stop_reason = over.message
                _LOG.warning("%s", over.message)

    def _execute_plan(
        self,
        plan: SessionPlan,
        reframe_directory: Path,
        order: checks.RunOrder,
        avoided_nodes: Mapping[RunKey, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """Execute a plan in one start of ReFrame, which writes its files to `reframe_directory`.

        Args:
            order: without runs.
        """
        site = self.context.site
        planned = {run.key: run for run in plan.runs}
        self._planned_count += len(planned)

        def poll() -> None:
            # Results are stored while ReFrame runs: a kill costs only the case that runs.
            for case in self.ingest():
                run = planned.get(case.key._replace(run=case.name.removesuffix(f"#{checks.RETEST}")))
                if run is not None:
                    self.meter.add_run(run, case.wall_s)
            self._report_waiting()
            self.meter.raise_if_exhausted()

        extra_work = {key: run.extra_work for key, run in planned.items()}
        order = replace(order, runs=checks.ordered_runs(planned, extra_work, avoided_nodes))
        try:
            reframe.execute_order(site, order, reframe_directory, poll)
        finally:  # also after the end of the budget
            failures = reframe.read_failures(reframe_directory, site)
            self.summary.failures += tuple(_name_extra_work(failure, plan.runs) for failure in failures)
            self.ingest_all()
            self.status = self._current_status()

    def _current_status(self) -> SessionStatus:
        if self.missing():
            return "incomplete"
        if any(run.status != "ok" for run in self.history.runs(self.record.uuid)):
            return "failed"
        return "ok"

    def _retest(self, policy: NightlyPolicy) -> None:
        """Retest suspected runs within the remaining budget: on other nodes if some are idle, else after the delay."""
        suspected: list[PlannedRun] = []
        for run in find_suspected_runs(self.history, self.record.uuid, self.plan):
            suspected.append(replace(run, extra_work=()))
        # On other nodes at once, or later on the same: what disturbed the first run may be gone then.
        avoided = self._avoidable_nodes(suspected)
        if policy.retest_delay_minutes and len(avoided) < len(suspected):
            self._wait(policy.retest_delay_minutes)
        run_history = load_run_history(self.history, self.context.system.name)
        runs = fit_to_budget(suspected, run_history, self.meter.remaining_budget()).kept
        if not runs:
            return
        self._report_retests(suspected, runs, avoided)
        retest = SessionPlan(runs, ())
        # The results of retests are expected, too, under names of their own.
        expected: list[ExpectedResult] = []
        for result in retest.expected():
            run_name = checks.turn_run_name(result.run_name, {checks.RETEST: True})
            expected.append(replace(result, run_name=run_name))
        self.history.begin_session(self.record, expected)
        self.summary.retest_count = len(runs)
        # Detection combines a run after this time with the first one; no job starts within this second.
        self.history.add_facts(self.record.uuid, SessionFacts(retest_since=int(utc_now().timestamp()) + 1))
        reframe_directory = self.directory / checks.RETEST
        reframe_directory.mkdir(exist_ok=True)
        order = replace(self.session.order(self.directory), is_retest=True)
        self._execute_plan(retest, reframe_directory, order, avoided)

    def _report_retests(
        self, suspected: Sequence[PlannedRun], runs: Sequence[PlannedRun], avoided: Mapping[RunKey, Sequence[str]]
    ) -> None:
        """Log the number of retests.

        Args:
            suspected: runs that differ.
            runs: those of them that are repeated.
            avoided: nodes of the first run, of the runs that can start on others.
        """
        count = format_count(len(suspected), "run")
        elsewhere = sum(run.key in avoided for run in runs)
        where = f", {elsewhere} of them on other nodes" if elsewhere else ""
        _LOG.info("%s differ from previous sessions; repeating %s%s", count, len(runs), where)

    def _avoidable_nodes(self, runs: Sequence[PlannedRun]) -> dict[RunKey, Sequence[str]]:
        """Nodes of the first run of each of these runs that can start on other nodes now."""
        first_nodes = {run.key: run.facts.nodes for run in self.history.runs(self.record.uuid)}
        partitions = {partition.name: partition for partition in self.context.site.partitions}
        avoidable: dict[RunKey, Sequence[str]] = {}
        for run in runs:
            partition, nodes = partitions[run.partition], first_nodes.get(run.key)
            if nodes and schedulers.can_avoid_nodes(partition.scheduler, partition.queue, nodes, run.case.nodes):
                avoidable[run.key] = nodes
        return avoidable

    def _wait(self, minutes: int) -> None:
        """Wait before retests, unless the budget ends before."""
        left_s = self.meter.remaining_budget().seconds
        if left_s is not None and left_s <= 60 * minutes:
            _LOG.info("the budget ends within %s minutes: retests start without a delay", minutes)
            return
        _LOG.info("retests start in %s minutes: not all can run on other nodes", minutes)
        end = time.monotonic() + 60 * minutes
        with reframe.end_signals_interrupt():
            while (left_s := end - time.monotonic()) > 0:
                time.sleep(min(_WAIT_STEP_S, left_s))

    def ingest(self) -> list[checks.SpooledCase]:
        """Move finished cases to the history, and log one line per case with the estimated remaining time."""
        cases = super().ingest()
        for case in cases:
            self.summary.runs += 1
            self.summary.benchmark_s += case.wall_s or 0.0
            self._report_case(case)
        return cases

    def _report_waiting(self) -> None:
        """Say on a terminal every ten seconds that the session goes on; a log has its results only."""
        now_s = time.monotonic()
        if now_s - self._reported_s < _WAITING_INTERVAL_S or not sys.stderr.isatty():
            return
        self._reported_s = now_s
        step = "the next run"
        if self.summary.runs == 0:
            step = "the first run, before which benchio may be built"
        elapsed_s = now_s - self._started
        _LOG.info("[%s/%s] %.0f s: waiting for %s", self.summary.runs, self._planned_count, elapsed_s, step)

    def _report_case(self, case: checks.SpooledCase) -> None:
        self._reported_s = time.monotonic()
        done, planned = self.summary.runs, self._planned_count
        remaining_s = (time.monotonic() - self._started) / done * (planned - done)
        left = f"[{done}/{planned}, {remaining_s:.0f} s left]"
        name = f"{case.stack_name} {case.name}"
        if self.plan.has_several_partitions:
            name = f"{case.partition} {name}"
        _LOG.info("%s %s: %s", left, name, _describe_result(case))


def find_suspected_runs(history: History, uuid: str, plan: SessionPlan) -> tuple[PlannedRun, ...]:
    """Runs of a session whose newest observations differ, but are too few to confirm a change.

    Updates the findings; their updates stay pending for the verdict, which reports them.
    """
    system = history.session(uuid).system
    state.update_findings(history, system, report=False)
    suspected_series = state.suspected_series_ids(history, system)
    if not suspected_series:
        return ()
    suspected_keys: set[RunKey] = set()
    for run in history.runs(uuid):
        if any(series.id in suspected_series for series, _ in history.run_results(run.id)):
            suspected_keys.add(run.key)
    return tuple(run for run in plan.runs if run.key in suspected_keys)


def _name_extra_work(failure: reframe.ReframeFailure, runs: Sequence[PlannedRun]) -> reframe.ReframeFailure:
    """The failure with the extra work of its job, which may be the reason why it did not end in time."""
    for run in runs:
        if (run.reframe_test, run.stack) == (failure.test, failure.stack):
            if run.extra_work:
                work = " and ".join(map(str, run.extra_work))
                return failure.with_remark(f"after the measurement its job also had {work}")
            return failure
    return failure


def _describe_result(case: checks.SpooledCase) -> str:
    """What a case delivered, in a few words."""
    status = case.output.get("status")
    text = _format_headline(case) if status == "ok" else f"{status}: {case.output.get('reason')}"
    restarts = RunFacts.from_document(case.facts).machine.get("requeued")
    return f"{text} (the scheduler requeued its job, restart {restarts})" if restarts else text


def _format_headline(case: checks.SpooledCase) -> str:
    """The best samples of the headline metric, for each operation."""
    results = case.output["results"]
    metrics = {result["metric"] for result in results}
    metric = next((name for name in headline_metrics() if name in metrics), None)
    if metric is None:
        return "ok"
    words: list[str] = []
    for result in results:
        if result["metric"] == metric:
            best = format_number(METRICS[metric].best(result["samples"]))
            words.append(f"{result['operation']} {best} {result['unit']}")
    return ", ".join(words)
