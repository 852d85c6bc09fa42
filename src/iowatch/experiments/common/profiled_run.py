"""Cases under a profiler or counters, in a session of its own whose runs have no results.

The session has the origin `profile`: it is neither expected, nor compared, nor part of the run history.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from iowatch import checks
from iowatch.core import MachineError, format_count
from iowatch.experiments.common import counters
from iowatch.session import reframe
from iowatch.session.context import SessionContext
from iowatch.session.deadline import Deadline, TimeIsUpError
from iowatch.session.file_systems import LockedSession, exclude_runs, lock_file_systems
from iowatch.session.plan import SessionPlan, check_byte_budget, make_session_plan, require_runs
from iowatch.session.runner import SessionRunner, lock_system
from iowatch.store import History, RunRow, SessionFacts

_LOG = logging.getLogger(__name__)


def run_profile(
    history: History,
    context: SessionContext,
    profiler: str = "auto",
    *,
    deadline: Deadline | None = None,
    **attributes: object,
) -> dict[str, Any]:
    """Profile the chosen cases on every chosen stack that can run them.

    Args:
        profiler: `auto`, or `counts:perf` to count what they do (`iowatch.experiments.common.counters`).
        deadline: when a run that is executing is ended, and those after it are left out; None lets all end.
        attributes: stored with the session.

    Returns:
        session, and of each run that ended name, stack, status, reason, number, profile and counts (None if it failed).

    Raises:
        UsageError: unknown stack; no stack can run the case.
        MachineError: another session is running; scratch cannot be used; ReFrame cannot be started, or ran nothing.
    """
    with lock_system(history, context.system):
        # A profiled run writes as much as a measured one, so the same limits hold.
        excluded = exclude_runs(context)
        plan = make_session_plan(context.site, context.cases, context.options.stacks, context.limits, excluded)
        require_runs(context.site, plan)
        check_byte_budget(context.site, plan, context.limits)
        with lock_file_systems(history, context, plan) as session:
            _LOG.info("%s", _start_message(profiler, context, plan))
            runner = _ProfileRunner(history, session, plan, profiler, attributes)
            runner.deadline = deadline
            runner.run()
    runs = history.runs(runner.record.uuid)
    if not runs and not runner.is_time_up:
        raise MachineError(
            f"no run ended: {runner.reason or 'ReFrame ran nothing'}",
            hint=f"{runner.directory / 'reframe.log'} contains ReFrame's output.",
        )
    return {"session": runner.record.uuid, "runs": [_run_entry(run) for run in runs]}


def _start_message(profiler: str, context: SessionContext, plan: SessionPlan) -> str:
    if profiler.startswith(counters.COUNTS):
        return f"counting what {format_count(len(plan.runs), 'run')} do"
    names = ", ".join(f"{run.name} on {run.stack}" for run in plan.runs)
    return f"profiling {names}, scratch {context.scratch}"


def _run_entry(run: RunRow) -> dict[str, Any]:
    """What is returned of a run; of a failed one neither profile nor counts, which are not complete."""
    is_ok = run.status == "ok"
    return {
        "name": run.name,
        "stack": run.stack,
        "run": run.id,
        "status": run.status,
        "reason": run.reason,
        "profile": run.facts.profile if is_ok else None,
        "counts": run.facts.counts if is_ok else None,
    }


class _ProfileRunner(SessionRunner):
    """The session of the profiled runs.

    Attributes:
        deadline: as of `run_profile`.
        is_time_up: whether it ended them.
        reason: why no run ended.
    """

    deadline: Deadline | None = None
    is_time_up = False
    reason: str | None = None
    _ended_count = 0

    def __init__(
        self,
        history: History,
        session: LockedSession,
        plan: SessionPlan,
        profiler: str,
        attributes: Mapping[str, object],
    ) -> None:
        facts = {"profile": [run.name for run in plan.runs], **attributes}
        document = session.new_record(SessionFacts.from_document(facts))
        record = replace(document, origin="profile")
        super().__init__(history, session, record, ())
        self.plan, self.profiler = plan, profiler

    def execute(self) -> None:
        planned_runs = [run.key for run in self.plan.runs]
        order = replace(
            self.session.order(self.directory),
            runs=checks.ordered_runs(planned_runs),
            extensions=_extensions(self.profiler),
        )
        try:
            reframe.execute_order(self.context.site, order, self.directory, self._each_poll)
        except TimeIsUpError:
            self.is_time_up = True
        finally:
            # The first failure of ReFrame is the reason if no run ended.
            failures = reframe.read_failures(self.directory, self.context.site)
            self.reason = next((failure.reason for failure in failures), self.reason)
            self.ingest_all()
            runs = self.history.runs(self.record.uuid)
            if len(runs) != len(planned_runs):
                self.status = "incomplete"
            elif any(run.status != "ok" for run in runs):
                self.status = "failed"
            else:
                self.status = "ok"

    def _each_poll(self) -> None:
        """Store the runs that have ended, report how many they are, and end the others at the deadline."""
        ended_cases = self.ingest()
        if ended_cases:
            self._ended_count += len(ended_cases)
            names = ", ".join(f"{case.name} on {case.stack_name}" for case in ended_cases)
            _LOG.info("[%s of %s] %s", self._ended_count, len(self.plan.runs), names)
        if self.deadline is not None:
            self.deadline.check()


def _extensions(profiler: str) -> dict[str, dict[str, Any]]:
    """The check extension that does it, with its settings."""
    name, _, counter = profiler.partition(":")
    if name == counters.COUNTS:
        return {"counter": {"counter": counter}}
    # No names: the extension tries all profilers.
    names = [] if profiler == "auto" else profiler.split(",")
    return {"profiler": {"profilers": names}}
