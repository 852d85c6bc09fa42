"""Why runs of a session are missing: its plan lost them, they failed, or the session ended before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from iowatch.benchmarks import registry, suites
from iowatch.core import MissingReason, RunKey, format_day, name_without_turn
from iowatch.site import system_zone

if TYPE_CHECKING:
    from iowatch.session.context import SessionContext
    from iowatch.session.plan import SessionPlan
    from iowatch.session.reframe import ReframeFailure
    from iowatch.site import Stack
    from iowatch.store import History, SessionRow


def recorded_reasons(session: SessionRow) -> dict[RunKey, MissingReason]:
    """What a session recorded: what its verdict found, and why runs could not be planned."""
    reasons = {reason.key: reason for reason in session.facts.missing_reasons}
    return {**reasons, **recorded_losses(session)}


def recorded_losses(session: SessionRow) -> dict[RunKey, MissingReason]:
    """Why runs that a session expected could not be planned."""
    return {run.key: run.missing_reason for run in session.facts.lost}


def reasons_of_losses(
    history: History, context: SessionContext, plan: SessionPlan, stacks: Mapping[str, Stack], keys: Iterable[RunKey]
) -> dict[RunKey, MissingReason]:
    """Why each lost run is not planned any more, and when it ran last.

    Args:
        stacks: all stacks of the system by name, also those that cannot be used.
        keys: the lost runs.
    """
    lost_keys = [*keys]
    # The query below takes long in a long history.
    if not lost_keys:
        return {}
    zone = system_zone(context.system.name)
    last_runs = history.last_run_times(context.system.name)
    reasons: dict[RunKey, MissingReason] = {}
    for key in lost_keys:
        when = "it never delivered a result"
        if key in last_runs:
            when = f"last run on {format_day(last_runs[key], zone)}"
        reasons[key] = MissingReason(*key, f"{_loss_reason(context, plan, stacks, key)}; {when}")
    return reasons


def _loss_reason(context: SessionContext, plan: SessionPlan, stacks: Mapping[str, Stack], key: RunKey) -> str:
    """Reason why a run, or some of its results, are not planned any more."""
    if key.run not in context.selection.known_run_names:
        return f"suite '{context.options.suite}' no longer contains the case"
    if key.stack not in context.site.features:
        stack = stacks.get(key.stack)
        if stack is None:
            return "the stack no longer exists"
        return f"the stack is {stack.status}: {stack.note}"
    stacks_of_partition = {partition.name: partition.stacks for partition in context.site.partitions}
    if key.partition not in stacks_of_partition:
        return f"partition '{key.partition}' no longer exists"
    if key.stack not in stacks_of_partition[key.partition]:
        return f"partition '{key.partition}' no longer offers the stack"
    for case in plan.unavailable:
        if (case.name, case.stack, case.partition) == (key.run, key.stack, key.partition):
            return case.reason
    return "the case no longer reports these results"


def reasons_of_failures(
    failures: Sequence[ReframeFailure], stop_reason: str | None, keys: Iterable[RunKey]
) -> dict[RunKey, MissingReason]:
    """Why planned runs are missing; those for which no reason is known are left out.

    Args:
        failures: of the whole session.
        stop_reason: why the session ended before all runs were executed; None if it did not.
        keys: the missing runs.
    """
    reasons: dict[RunKey, MissingReason] = {}
    for key in keys:
        reason = _failure_reason(failures, stop_reason, key)
        if reason is not None:
            reasons[key] = reason
    return reasons


def _failure_reason(failures: Sequence[ReframeFailure], stop_reason: str | None, key: RunKey) -> MissingReason | None:
    """The failure of the run, else the end of the session, else a failed build of its stack or a failure of ReFrame."""
    failures_of_stack = [failure for failure in failures if failure.stack in (key.stack, "")]
    failures_of_run = [failure for failure in failures_of_stack if _is_test_of_run(failure.test, key.run)]
    if stop_reason and not failures_of_run:
        return MissingReason(*key, stop_reason)
    # Tests of cases have an entry; the others are builds, or ReFrame itself.
    other_failures = [failure for failure in failures_of_stack if "%entry=" not in failure.test]
    for failure in failures_of_run or other_failures:
        return MissingReason(*key, f"{failure.phase}: {failure.reason}")
    return None


def _is_test_of_run(test: str, run: str) -> bool:
    """Whether a ReFrame test name, `<check> %entry=<suite>/<case>`, is that of a run, `<benchmark>:<case>#<turn>`."""
    name = name_without_turn(run)
    benchmark = registry.BENCHMARKS.get(name.partition(":")[0])
    if benchmark is None:
        return False
    check, _, entry = test.partition(" %entry=")
    _suite, _, case_name = entry.partition("/")
    return check == benchmark.check and bool(case_name) and suites.run_name(benchmark.name, case_name) == name
