"""`iowatch run`: one suite on one system, from the plan to the summary for the verdict.

A session is planned, started, ingested case by case while ReFrame runs, and closed; suspected runs are retested.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
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
from iowatch.session import accepted_plan, reframe, session
from iowatch.session.extra_work import add_extra_work
from iowatch.session.plan import (
    PlannedRun,
    RunHistory,
    SessionBudget,
    SessionBudgetError,
    SessionPlan,
    UnavailableCase,
    UnplannedRun,
    UsageMeter,
    check_byte_budget,
    exceeded_byte_budget,
    fit_to_budget,
    lacking_features,
    load_run_history,
    make_session_plan,
    require_runs,
    session_budget,
)
from iowatch.site import doctor, schedulers, system_zone
from iowatch.store import History, NoHistoryError, RunFacts, SessionFacts

_LOG = logging.getLogger(__name__)

_WAIT_STEP_S = 1.0


@dataclass(frozen=True)
class PreparedSession:
    """A planned session that has not started.

    Attributes:
        meter: use of the budget from the start of the preparation.
        deferred_runs: runs that do not fit the budget.
        added_runs: runs with results that no earlier session expected.
    """

    context: session.SessionContext
    plan: SessionPlan
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


def prepare_session(history: History | None, context: session.SessionContext) -> PreparedSession:
    """Plan the runs of a suite on a system; nothing is started, locked or written.

    Args:
        history: None before the first session.

    Raises:
        UsageError: unknown stack; no run is possible or fits the budget.
        InputError: the check of a benchmark is missing or has another class.
    """
    policy = context.policy
    budget = session_budget(policy, utc_now(), system_zone(context.system_name)) if policy else SessionBudget()
    meter = UsageMeter(budget)
    site, limits, measured = context.site, context.limits, context.system.measured_file_systems
    run_history = load_run_history(history, context.system_name) if history else {}
    unusable = context.find_unusable(history)
    plan = make_session_plan(site, context.cases, context.stacks, limits, excluded=context.excluded, unusable=unusable)
    runs = add_extra_work(
        plan.runs,
        run_history,
        len(history.sessions(context.system_name)) if history else 0,
        traced_stacks=[s for s, features in site.features.items() if context.traces(()) and "darshan" in features],
        verify=context.policy is not None,
        total_bytes=limits.total_bytes if limits else None,
    )
    if exceeded_byte_budget(site, replace(plan, runs=runs), None, measured):  # of one file system
        runs = plan.runs
    runs, deferred = fit_to_budget(runs, run_history, meter.limit)
    if plan.runs and not runs:
        raise UsageError(
            f"no run fits the budget: {deferred[0].reason}",
            hint=f"Raise the budgets in systems/{context.system_name}/system.yaml (`night`), or start later.",
        )
    plan = replace(plan, runs=runs)
    for benchmark in {run.case.benchmark for run in plan.runs}:
        reframe.check_path(benchmark)
    check_byte_budget(site, plan, limits, measured)
    context.traces(run.stack for run in plan.runs)
    added: tuple[UnplannedRun, ...] = ()
    if history:
        plan, added = accepted_plan.compare_with_memory(history, context, plan, deferred)
    require_runs(site, plan)
    return PreparedSession(context, plan, meter, run_history, deferred, added)


def check_plan(context: session.SessionContext, database: str | None) -> None:
    """Refuse wrong names before a history is created or a lock of another session is reported.

    Raises:
        UsageError: unknown stack; no case can run, and there is no history of earlier runs.
    """
    plan = make_session_plan(context.site, context.cases, context.stacks, context.limits)
    try:
        History.existing(database).close()
    except NoHistoryError:
        require_runs(context.site, plan)


def prepare_dry_run(context: session.SessionContext, database: str | None) -> PreparedSession:
    """Prepare a session for `--dry-run`, which does not need or create a history."""
    try:
        with History.existing(database) as history:
            return prepare_session(history, context)
    except NoHistoryError as error:
        _LOG.info("%s: durations are the time limits of the cases.", error.message)
        return prepare_session(None, context)


def run_suite(history: History, context: session.SessionContext) -> SessionSummary:
    """Run a suite and store all its results.

    Raises:
        UsageError: unknown stack; no run fits the budget.
        MachineError: another session is running; scratch cannot be used; ReFrame cannot be started.
    """
    started = time.monotonic()
    with context.system_lock(history) as recovered:
        prepared = prepare_session(history, context)
        with context.scratch_lock(history, prepared.plan) as unusable:
            prepared = replace(prepared, plan=prepared.plan.without(unusable))
            _LOG.info("%s", opening_line(prepared))
            for stack, reason in dict.fromkeys((one.stack, one.reason) for one in prepared.plan.lost):
                _LOG.warning("%s: %s; its runs are counted as missing", stack, reason)
            execution = SessionExecution(history, prepared)
            execution.run()
    return replace(execution.summary, recovered=tuple(recovered), wall_s=time.monotonic() - started)


def opening_line(prepared: PreparedSession) -> str:
    """One line that describes the session to start."""
    plan, deferred = prepared.plan, len(prepared.deferred_runs)
    others = f" ({deferred} deferred to later sessions)" if deferred else ""
    return (
        f"{prepared.context.suite} on {prepared.context.system_name}: {format_count(len(plan.runs), 'run')}{others}, "
        f"{format_size(plan.volume_bytes)} written and read, {prepared.context.format_directories(plan)}"
    )


class SessionExecution(session.SessionRunner):
    """A running session of a suite: executes the plan, ingests results while ReFrame runs, fills the summary."""

    def __init__(self, history: History, prepared: PreparedSession) -> None:
        context, self.plan, self.meter = prepared.context, prepared.plan, prepared.meter
        facts = accepted_plan.session_facts(history, context, self.plan, prepared.deferred_runs)
        record = context.new_record(facts)
        super().__init__(history, context, record, self.plan.expected())
        self.summary = SessionSummary(
            record.uuid,
            unavailable=self.plan.unavailable,
            deferred_runs=prepared.deferred_runs,
            added_runs=prepared.added_runs,
            install_commands=doctor.install_commands(context.system, lacking_features(context.site, self.plan)),
        )
        self._planned_count = 0
        self._started = time.monotonic()

    def execute(self) -> None:
        """Execute all runs of the plan, then retest the suspected ones; nothing if all runs are lost."""
        if not self.plan.runs:
            return
        try:
            self._execute_plan(self.plan, self.directory, self.context.order(self.directory))
            if self.context.policy and self.context.policy.repeat_suspected:
                self._retest()
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
            for case in self.ingest():
                run = planned.get(case.key._replace(run=case.name.removesuffix(f"#{checks.RETEST}")))
                if run is not None:
                    self.meter.add_run(run, case.wall_s)
            self.meter.raise_if_exhausted()

        extra_work = {key: run.extra_work for key, run in planned.items()}
        order = replace(order, runs=checks.ordered_runs(planned, extra_work, avoided_nodes))
        try:
            reframe.execute_order(site, order, reframe_directory, poll)
        finally:
            failures = reframe.read_failures(reframe_directory, site)
            self.summary.failures += tuple(_name_extra_work(failure, plan.runs) for failure in failures)
            self.ingest_all()
            failed = any(run.status != "ok" for run in self.history.runs(self.record.uuid))
            self.status = "incomplete" if self.missing() else "failed" if failed else "ok"

    def _retest(self) -> None:
        """Retest suspected runs within the remaining budget: on other nodes if some are idle, else after the delay."""
        found = find_suspected_runs(self.history, self.record.uuid, self.plan)
        suspected = [replace(run, extra_work=()) for run in found]
        avoided = self._avoidable_nodes(suspected)
        delay = self.context.policy.retest_delay_minutes if self.context.policy else None
        if delay and len(avoided) < len(suspected):
            self._wait(delay)
        run_history = load_run_history(self.history, self.context.system_name)
        runs, _ = fit_to_budget(suspected, run_history, self.meter.remaining_budget())
        if not runs:
            return
        count = format_count(len(suspected), "run")
        elsewhere = sum(run.key in avoided for run in runs)
        where = f", {elsewhere} of them on other nodes" if elsewhere else ""
        _LOG.info("%s differ from previous sessions; repeating %s%s", count, len(runs), where)
        retest = SessionPlan(runs, ())
        expected = [
            replace(item, run_name=checks.turn_run_name(item.run_name, {checks.RETEST: True}))
            for item in retest.expected()
        ]
        self.history.begin_session(self.record, expected)
        self.summary.retest_count = len(runs)
        # Detection combines a run after this time with the first one; no job starts within this second.
        self.history.add_facts(self.record.uuid, SessionFacts(retest_since=int(time.time()) + 1))
        reframe_directory = self.directory / checks.RETEST
        reframe_directory.mkdir(exist_ok=True)
        order = replace(self.context.order(self.directory), is_retest=True)
        self._execute_plan(retest, reframe_directory, order, avoided)

    def _avoidable_nodes(self, runs: Sequence[PlannedRun]) -> dict[RunKey, Sequence[str]]:
        """Nodes of the first run of each of these runs that can start on other nodes now."""
        first = {run.key: run.facts.nodes for run in self.history.runs(self.record.uuid)}
        partitions = {part.name: part for part in self.context.site.partitions}
        found: dict[RunKey, Sequence[str]] = {}
        for run in runs:
            part, nodes = partitions[run.partition], first.get(run.key)
            if nodes and schedulers.can_avoid_nodes(part.scheduler, part.queue, nodes, run.case.nodes):
                found[run.key] = nodes
        return found

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
        """Move finished cases to the history, and report one line per case with the estimated remaining time."""
        cases = super().ingest()
        for case in cases:
            self.summary.runs += 1
            self.summary.benchmark_s += case.wall_s or 0.0
            done, planned = self.summary.runs, self._planned_count
            remaining_s = (time.monotonic() - self._started) / done * (planned - done)
            status = case.output.get("status")
            result = _format_headline(case) if status == "ok" else f"{status}: {case.output.get('reason')}"
            restarts = RunFacts.from_document(case.facts).machine.get("requeued")
            result += f" (the scheduler requeued its job, restart {restarts})" if restarts else ""
            left = f"[{done}/{planned}, {remaining_s:.0f} s left]"
            _LOG.info("%s %s %s: %s", left, case.stack_name, case.name, result)
        return cases


def find_suspected_runs(history: History, uuid: str, plan: SessionPlan) -> tuple[PlannedRun, ...]:
    """Runs of a session whose newest observations differ, but are too few to confirm a change.

    Updates the findings; their updates stay pending for the verdict, which reports them.
    """
    system = history.session(uuid).system
    state.update_findings(history, system, report=False)
    series = state.suspected_series_ids(history, system)
    keys = {
        run.key
        for run in (history.runs(uuid) if series else ())
        if any(row.id in series for row, _ in history.run_results(run.id))
    }
    return tuple(run for run in plan.runs if run.key in keys)


def _name_extra_work(failure: reframe.ReframeFailure, runs: Sequence[PlannedRun]) -> reframe.ReframeFailure:
    """The failure with the extra work of its job, which may be the reason why it did not end in time."""
    same = (run for run in runs if (run.reframe_test, run.stack) == (failure.test, failure.stack))
    work = next((run.extra_work for run in same), ())
    words = f" (after the measurement its job also had {' and '.join(map(str, work))})" if work else ""
    return replace(failure, reason=failure.reason + words)


def _format_headline(case: checks.SpooledCase) -> str:
    results = case.output["results"]
    metric = next((name for name in headline_metrics() if name in {result["metric"] for result in results}), None)
    words = [
        f"{result['operation']} {format_number(METRICS[metric].best(result['samples']))} {result['unit']}"
        for result in results
        if metric and result["metric"] == metric
    ]
    return ", ".join(words) or "ok"
