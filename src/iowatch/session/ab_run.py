"""`iowatch run --ab`: an interleaved A/B run of two stacks, on the nodes of one allocation if possible.

One session contains all turns (iowatch.session.interleaved). Its sides are `left` and `right`.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from iowatch.comparison import ComparisonOptions, Outcome, compare_sides, parse_side
from iowatch.core import MachineError, UsageError, format_count, format_size
from iowatch.findings import reported_as
from iowatch.session import reframe
from iowatch.session.context import SessionContext, make_context, require_darshan, select_cases
from iowatch.session.deadline import Deadline
from iowatch.session.file_systems import LockedSession, exclude_runs, format_directories, lock_file_systems
from iowatch.session.interleaved import Batch, InterleavedPlan, InterleavedRunner
from iowatch.session.options import SessionOptions
from iowatch.session.placement import RunPlacement, place_in_allocation, salloc_command
from iowatch.session.plan import SessionPlan, check_byte_budget, make_session_plan, require_runs
from iowatch.session.runner import lock_system
from iowatch.site import current_allocation
from iowatch.statistics.interleaving import AbSchedule, AbTurn, StopRule
from iowatch.store import History, SessionFacts, SessionRecord, fold_node_names

_LOG = logging.getLogger(__name__)
# Default end: intervals that exclude differences of about 10 %, or one hour.
_HALF_WIDTH = 0.10
_BUDGET_MIN = 60.0


@dataclass(frozen=True)
class AbContext:
    """The context of an A/B run.

    Attributes:
        session: with the partitions, the limits and the tracing of both sides.
        placement: where the turns are executed.
        left, right: names of the stacks (two equal stacks test the method).
    """

    session: SessionContext
    placement: RunPlacement
    left: str
    right: str

    @property
    def stacks(self) -> tuple[str, str]:
        """Names of the stacks."""
        return self.left, self.right

    def plan_sides(self) -> dict[str, SessionPlan]:
        """Plan the same cases on both stacks.

        Raises:
            UsageError: unknown stack, or no case that both stacks can run.
        """
        session = self.session
        excluded = exclude_runs(session)
        plans: dict[str, SessionPlan] = {}
        for side, stack in (("left", self.left), ("right", self.right)):
            plans[side] = make_session_plan(session.site, session.cases, [stack], session.limits, excluded)
        for plan in plans.values():
            require_runs(session.site, plan)
        return _common_cases(plans)


def make_ab_context(options: SessionOptions, site: reframe.ReframeSite | None = None) -> AbContext:
    """Make the context of an A/B run of the two stacks of the options.

    Args:
        site: partitions and stacks of the system, if they are loaded already, or with stacks that no folder contains.

    Raises:
        UsageError: as `select_cases`; no partition, or several, belong to the queue of the allocation.
    """
    selection = select_cases(options)
    if site is None:
        site = reframe.load_site(options.system)
    placement = place_in_allocation(site, current_allocation())
    context = make_context(selection, placement.site)
    left, right = options.stacks
    # Both sides are traced or none: a trace on one side would be a difference between them.
    can_trace = all("darshan" in placement.site.features.get(stack, ()) for stack in (left, right))
    context = replace(context, limits=placement.limits(context.limits), is_traced=context.is_traced and can_trace)
    return AbContext(context, placement, left, right)


def _common_cases(plans: Mapping[str, SessionPlan]) -> dict[str, SessionPlan]:
    """Only cases that both stacks can run on the same partition."""

    left_cases = {(run.partition, run.name) for run in plans["left"].runs}
    right_cases = {(run.partition, run.name) for run in plans["right"].runs}
    common_cases = left_cases & right_cases
    if not common_cases:
        raise UsageError("no case of this suite can run on both stacks", hint="`iowatch stack list` shows them.")
    common_plans: dict[str, SessionPlan] = {}
    for side, plan in plans.items():
        common_runs = tuple(run for run in plan.runs if (run.partition, run.name) in common_cases)
        common_plans[side] = replace(plan, runs=common_runs)
    return common_plans


@dataclass(frozen=True)
class AbRunResult:
    """A finished A/B run.

    Attributes:
        stopped: `pairs`, `interval`, `budget` or `most`; None if it was interrupted.
        pairs: number of pairs that were started.
        missing: names of runs that failed or were not received.
    """

    session: str
    left: str
    right: str
    pairs: int
    stopped: str | None
    missing: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "missing": [*self.missing]}


def make_stop_rule(pairs: int | None, half_width: float | None, minutes: float | None) -> StopRule:
    """Stop rule from number of pairs, half width of all intervals as a fraction, and minutes; or the defaults."""
    if pairs is None and half_width is None:
        half_width = _HALF_WIDTH
    if pairs is None and minutes is None:
        minutes = _BUDGET_MIN
    with reported_as(UsageError):
        return StopRule(pairs, half_width, None if minutes is None else minutes * 60)


def request_allocation(context: AbContext, stop_rule: StopRule) -> None:
    """Restart this command in a Slurm allocation; returns if there is one, or none is needed or possible."""
    if not context.placement.queued:
        return
    arguments = salloc_command(context.session.site, context.plan_sides()["left"].runs, stop_rule)
    if arguments is None:
        return
    _LOG.info("requesting one allocation from Slurm: %s", shlex.join(arguments))
    command = [sys.executable, "-c", "from iowatch.cli.main import main; main()", *sys.argv[1:]]
    try:  # the other program receives the signals and returns the exit code
        os.execvp(arguments[0], [*arguments, *command])  # noqa: S606 - arguments, no shell
    except OSError as error:
        raise MachineError(f"cannot start {arguments[0]}: {error}") from error


def run_ab(
    history: History,
    context: AbContext,
    schedule: AbSchedule,
    attributes: Mapping[str, object] = MappingProxyType({}),
    deadline: Deadline | None = None,
) -> AbRunResult:
    """Measure two stacks alternately until the schedule ends.

    Args:
        schedule: its seed is stored with the session.
        attributes: stored with the session, too.
        deadline: when a batch that is executing is ended; None lets it end.

    Raises:
        UsageError: unknown stack, no case that both stacks can run.
        MachineError: another session is running; scratch cannot be used; ReFrame cannot be started.
    """
    session_context = context.session
    system = session_context.system
    with lock_system(history, system):
        sides = context.plan_sides()
        plan = sides["left"]
        require_darshan(session_context, context.stacks)
        check_byte_budget(session_context.site, plan, session_context.limits, system.measured_file_systems)
        # Both sides write the same volume to the same file systems, one after the other.
        with lock_file_systems(history, session_context, plan) as session:
            if session.unusable:
                raise MachineError("; ".join(session.unusable.values()), hint="An A/B run needs all its file systems.")
            _LOG.info("%s", _opening_line(context, plan))
            record = session.new_record(_session_facts(context, schedule, attributes))
            # A schedule may read the results that it asks for.
            schedule.session = record.uuid
            runner = _AbRunner(history, session, record, InterleavedPlan(sides, schedule, deadline), context)
            runner.run()
            return runner.result()


def _opening_line(context: AbContext, plan: SessionPlan) -> str:
    """One line that describes the A/B run to start.

    Args:
        plan: of one side; a pair moves twice its volume.
    """
    options = context.session.options
    traced = "" if context.session.is_traced else ", without Darshan"
    # The placement is a clause of its own, "; all in job 17 …", or empty without a scheduler.
    return (
        f"{options.suite} on {options.system}, {context.left} and {context.right} interleaved{traced}: "
        f"{format_count(len(plan.runs), 'case')}, {format_size(2 * plan.volume_bytes)} "
        f"written and read per pair, {format_directories(context.session, plan)}{context.placement.describe()}"
    )


def _session_facts(context: AbContext, schedule: AbSchedule, attributes: Mapping[str, object]) -> SessionFacts:
    """Facts of an A/B run: the attributes of its caller, its sides and its allocation."""
    sides = {"left": context.left, "right": context.right, "seed": schedule.seed}
    document: dict[str, object] = {**attributes, "ab_run": sides}
    allocation = context.placement.allocation
    if allocation is not None:
        document["allocation"] = {"job": allocation.job, "nodes": fold_node_names(allocation.nodes)}
    return SessionFacts.from_document(document)


class _AbRunner(InterleavedRunner):
    def __init__(
        self,
        history: History,
        session: LockedSession,
        record: SessionRecord,
        interleaved: InterleavedPlan,
        ab_context: AbContext,
    ) -> None:
        super().__init__(history, session, record, interleaved)
        self.ab_context = ab_context

    def label(self, turn: AbTurn) -> str:
        return self.ab_context.left if turn.side == "left" else self.ab_context.right

    def batches(self) -> Iterator[Batch]:
        """Batches of the schedule, of the runs that it names."""
        all_plans = self.plans
        for batch in self.schedule.batches():
            names = self.schedule.run_names()
            if names is not None:
                self.plans = {
                    side: replace(plan, runs=tuple(run for run in plan.runs if run.name in names))
                    for side, plan in all_plans.items()
                }
            yield batch

    def execute(self) -> None:
        # Only now is there a directory for the configuration.
        placement = self.ab_context.placement
        self.site = placement.configured(self.directory)
        self.environment = placement.environment()
        self.execute_turns()

    def result(self) -> AbRunResult:
        """The result of the run that has ended."""
        left, right = self.ab_context.stacks
        return AbRunResult(self.record.uuid, left, right, self.pairs, self.schedule.stopped, self.missing_runs())


def compare_ab_run(history: History, result: AbRunResult) -> Outcome:
    """The comparison of the two sides.

    Raises:
        MachineError: no case has results on both sides.
    """
    left, right = (parse_side(f"session:{result.session},side={side}") for side in ("left", "right"))
    try:
        return compare_sides(left, right, lambda: history, ComparisonOptions())
    except UsageError as error:
        raise MachineError(
            "the A/B run has no case with results on both sides: "
            f"{format_count(len(result.missing), 'run')} failed or missing",
            hint=f"`iowatch history show {result.session}` shows the reasons.",
        ) from error
