"""`iowatch run --ab`: an interleaved A/B run of two stacks, on the nodes of one allocation if possible.

One session contains all turns. A turn is one execution of all cases with one stack; a batch of turns is one start of
ReFrame. The schedule (iowatch.statistics.interleaving) determines the order of turns and the end. Warm-ups are executed
like any turn, and discarded.
"""

from __future__ import annotations

import logging
import math
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from iowatch import checks
from iowatch.comparison import ComparisonOptions, Outcome, compare_sides, parse_side
from iowatch.core import (
    MachineError,
    Result,
    Scalar,
    UsageError,
    format_count,
    format_size,
    headline_metrics,
    write_atomically,
)
from iowatch.findings import reported_as
from iowatch.session import reframe, session
from iowatch.session.plan import PlannedRun, SessionPlan, check_byte_budget, make_session_plan, require_runs
from iowatch.site import Allocation, SystemLimits, current_allocation, is_slurm
from iowatch.statistics.interleaving import AbSchedule, AbTurn, StopRule
from iowatch.store import History, SessionFacts, SessionRecord, fold_node_names

_LOG = logging.getLogger(__name__)

# Minutes of an allocation beyond the budget: the first turn compiles programs, the last pair has to end.
_EXTRA_MINUTES = 10
# Default end: intervals that exclude differences of about 10 %, or one hour.
_HALF_WIDTH = 0.10
_BUDGET_MIN = 60.0


Batch = Sequence[AbTurn]


class WarmUpError(MachineError):
    """A side cannot be measured: its first turn produced no result.

    Args:
        side: `left`, `right` or the level.
    """

    def __init__(self, message: str, *, side: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.side = side


@dataclass(frozen=True)
class RunPlacement:
    """Where the turns of an A/B run are executed.

    Attributes:
        site: in an allocation only its partition, without a scheduler.
        allocation: None if there is no scheduler, or if each case is a separate job.
    """

    site: reframe.ReframeSite
    allocation: Allocation | None

    @property
    def queued(self) -> tuple[str, ...]:
        """Schedulers that start each case of each turn as a separate job."""
        return tuple(sorted({part.scheduler for part in self.site.partitions} - {"local"}))

    def limits(self, known: SystemLimits) -> SystemLimits:
        """Limits of the system, with no more nodes than the allocation has."""
        if self.allocation is None:
            return known
        nodes = len(self.allocation.nodes)
        return known.model_copy(update={"nodes": min(nodes, known.nodes or nodes)})

    def configured(self, directory: Path) -> reframe.ReframeSite:
        """The site with the ReFrame configuration, which is written to the directory of the session."""
        if self.allocation is None:
            return self.site
        (part,) = self.site.partitions
        path = directory / "in_allocation.py"
        words = (str(self.site.configuration), self.site.system, part.name)
        write_atomically(path, _CONFIGURATION.format(*map(repr, words)))
        return replace(self.site, configuration=path)

    def environment(self) -> dict[str, str]:
        """Variables of the launchers in `iowatch.site.reframe_config`; job steps may overlap with a shell's step."""
        nodes = ",".join(self.allocation.nodes) if self.allocation else ""
        return {"IOWATCH_NODES": nodes, "SLURM_OVERLAP": "1"} if nodes else {}


_CONFIGURATION = """from iowatch.site.reframe_config import allocation_configuration

site_configuration = allocation_configuration({}, {}, {})
"""


def place_in_allocation(site: reframe.ReframeSite, allocation: Allocation | None) -> RunPlacement:
    """Place the site on this machine: in an allocation only its partition, and no case is queued.

    Raises:
        UsageError: no partition, or several, belong to the queue of the allocation.
    """
    batch = [part for part in site.partitions if part.scheduler != "local"]
    if allocation is None or not batch:
        return RunPlacement(site, None)
    chosen = [part for part in batch if part.queue == allocation.queue]
    if not chosen:
        chosen = [part for part in batch if part.queue is None or allocation.queue is None]
    if len(chosen) != 1:
        named = ", ".join(f"{part.name} ({part.queue or 'any queue'})" for part in batch)
        raise UsageError(
            f"job {allocation.job} is in {allocation.title}'s queue '{allocation.queue}', which "
            f"{'several partitions' if chosen else 'no partition'} of '{site.system}' use",
            hint=f"Partitions of {site.system}: {named}.",
        )
    return RunPlacement(replace(site, partitions=(replace(chosen[0], scheduler="local"),)), allocation)


def salloc_command(site: reframe.ReframeSite, runs: Sequence[PlannedRun], stop_rule: StopRule) -> list[str] | None:
    """Prefix of a command that requests nodes for all these runs from Slurm.

    None if this machine has no Slurm, or the runs are of several partitions.
    """
    names = {run.partition for run in runs}
    parts = [part for part in site.partitions if part.name in names]
    if len(parts) != 1 or not is_slurm(parts[0].scheduler) or shutil.which("salloc") is None:
        return None
    nodes = max(run.case.nodes for run in runs)
    ranks = max(math.ceil(run.case.ranks / run.case.nodes) for run in runs)
    # An interactive job is never requeued, and salloc refuses the options of sbatch about it.
    access = [option for option in parts[0].access if not option.endswith("requeue")]
    words = ["salloc", "--job-name=iowatch-ab", *access]
    words += [f"--nodes={nodes}", f"--ntasks-per-node={ranks}"]
    minutes = None if stop_rule.budget_s is None else math.ceil(stop_rule.budget_s / 60) + _EXTRA_MINUTES
    return words if minutes is None else [*words, f"--time={minutes}"]


@dataclass
class AbContext(session.SessionContext):
    """Context of an A/B run; `stacks` are left and right (two equal stacks test the method)."""

    @cached_property
    def placement(self) -> RunPlacement:
        return place_in_allocation(reframe.load_site(self.system_name), current_allocation())

    @cached_property
    def site(self) -> reframe.ReframeSite:
        return self.placement.site

    @property
    def limits(self) -> SystemLimits:
        return self.placement.limits(self.system.limits)

    def traces(self, stacks: Iterable[str]) -> bool:
        """Both sides or none: a trace on one side would be a difference between them."""
        both = all("darshan" in self.site.features.get(stack, ()) for stack in self.stacks)
        return super().traces(stacks) and both

    def stack_of(self, turn: AbTurn) -> str:
        return self.stacks[0 if turn.side == "left" else 1]

    def plans(self) -> dict[str, SessionPlan]:
        """The same cases on both stacks.

        Raises:
            UsageError: unknown stack, or no case that both stacks can run.
        """
        left, right = (
            make_session_plan(self.site, self.cases, [stack], self.limits, excluded=self.excluded)
            for stack in self.stacks
        )
        for plan in (left, right):
            require_runs(self.site, plan)
        return _common_cases(left, right)


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


def run_ab(history: History, context: AbContext, schedule: AbSchedule, **attributes: object) -> AbRunResult:
    """Measure two stacks alternately until the schedule ends.

    Args:
        schedule: its seed is stored with the session.
        attributes: stored with the session, too.

    Raises:
        UsageError: unknown stack, no case that both stacks can run.
        MachineError: another session is running; scratch cannot be used; ReFrame cannot be started.
    """
    with context.system_lock(history):
        plans = context.plans()
        plan = plans["left"]
        traced = "" if context.traces(context.stacks) else ", without Darshan"
        check_byte_budget(context.site, plan, context.limits, context.system.measured_file_systems)
        with context.scratch_lock(history, plan) as unusable:
            if unusable:
                raise MachineError("; ".join(unusable.values()), hint="An A/B run needs all its file systems.")
            words = (
                f"{context.suite} on {context.system_name}, {context.stacks[0]} and {context.stacks[1]} interleaved"
                f"{traced}: "
                f"{format_count(len(plan.runs), 'case')}, {format_size(2 * plan.volume_bytes)} "
                f"written and read per pair, {context.format_directories(plan)}{_format_placement(context.placement)}"
            )
            _LOG.info("%s", words)
            runner = _AbRunner(history, context, plans, schedule, attributes)
            runner.run()
            return runner.result()


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


def request_allocation(context: AbContext, stop_rule: StopRule) -> None:
    """Restart this command in a Slurm allocation; returns if there is one, or none is needed or possible."""
    if not context.placement.queued:
        return
    arguments = salloc_command(context.site, context.plans()["left"].runs, stop_rule)
    if arguments is not None:
        _LOG.info("requesting one allocation from Slurm: %s", shlex.join(arguments))
        command = [sys.executable, "-c", "from iowatch.cli.main import main; main()", *sys.argv[1:]]
        try:  # the other program receives the signals and returns the exit code
            os.execvp(arguments[0], [*arguments, *command])  # noqa: S606 - arguments, no shell
        except OSError as error:
            raise MachineError(f"cannot start {arguments[0]}: {error}") from error


def _common_cases(left: SessionPlan, right: SessionPlan) -> dict[str, SessionPlan]:
    """Only cases that both stacks can run on the same partition."""

    def key(run: PlannedRun) -> tuple[str, str]:
        return run.partition, run.name

    both = {key(run) for run in left.runs} & {key(run) for run in right.runs}
    if not both:
        raise UsageError("no case of this suite can run on both stacks", hint="`iowatch stack list` shows them.")
    sides = {"left": left, "right": right}
    return {
        side: replace(plan, runs=tuple(run for run in plan.runs if key(run) in both)) for side, plan in sides.items()
    }


def _format_placement(placement: RunPlacement) -> str:
    if placement.allocation is not None:
        job, nodes = placement.allocation.job, placement.allocation.nodes
        return f"; all in job {job} of {placement.allocation.title} on {fold_node_names(nodes)}"
    if placement.queued:
        return (
            f"; each case is a separate job in {', '.join(placement.queued)} and may run on other nodes; "
            "start the command inside an allocation (docs/comparison.md)"
        )
    return ""


class InterleavedRunner(session.SessionRunner):
    """A session of turns: each executes the plan of its side, ingests its results and reports to the schedule.

    Attributes:
        pairs: number of pairs that were started.
    """

    pairs = 0
    site: reframe.ReframeSite
    # Variables for the launchers of the ReFrame configuration.
    environment: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        history: History,
        context: session.SessionContext,
        record: SessionRecord,
        plans: Mapping[str, SessionPlan],
        schedule: AbSchedule,
    ) -> None:
        super().__init__(history, context, record, ())
        self.plans, self.schedule = plans, schedule

    def label(self, turn: AbTurn) -> str:
        """The side of a turn in messages."""
        raise NotImplementedError

    def parameters_of(self, turn: AbTurn) -> dict[str, Scalar]:
        """Case parameters of the runs of a turn: series of their own, which change detection leaves out."""
        return {"ab_run": True}

    def measure(self, batch: Batch, order: checks.RunOrder) -> list[checks.SpooledCase]:
        """Execute the turns of a batch; returns the cases, which are in the history then.

        Args:
            order: without runs and turns; warm-ups have another spool.
        """
        cases: list[checks.SpooledCase] = []
        self.execute_plan(batch, order, lambda: cases.extend(self.ingest()))
        return cases

    def execute_plan(self, batch: Batch, order: checks.RunOrder, each_poll: Callable[[], None]) -> None:
        """Start ReFrame once for the plans of all turns of a batch.

        Raises:
            MachineError: ReFrame itself failed: every other turn would fail, too.
        """
        keys = dict.fromkeys(run.key for turn in batch for run in self.plans[turn.side].runs)
        turns = []
        for turn in batch:
            stack = self.plans[turn.side].runs[0].stack
            turns.append(checks.CheckTurn(turn.pair, turn.side, stack, self.parameters_of(turn)))
        order = replace(order, runs=checks.ordered_runs(keys), turns=tuple(turns))
        reframe.execute_order(self.site, order, self.directory, each_poll, self.environment)
        if reason := reframe.startup_failure_reason(self.directory):
            raise MachineError(reason)

    def batches(self) -> Iterator[Batch]:
        """The turns to execute, those of one start of ReFrame together."""
        return self.schedule.batches()

    def missing_runs(self) -> tuple[str, ...]:
        """Names of runs with results that were not received."""
        return tuple(sorted({item.run_name for item in self.missing()}))

    def execute_turns(self) -> None:
        """Execute the turns of the schedule to its end; determines the status."""
        for batch in self.batches():
            for turn in batch:
                if not turn.warm_up:
                    facts, expected = {"pair": turn.pair, "side": turn.side}, self.plans[turn.side].expected()
                    named = [replace(item, run_name=checks.turn_run_name(item.run_name, facts)) for item in expected]
                    self.history.begin_session(self.record, named)
            self._execute(batch)
        self.ingest_all()
        self.status = "incomplete" if self.missing() else "ok"

    def _execute(self, batch: Batch) -> None:
        """Execute a batch: run, ingest case by case, report to the schedule."""
        order = self.context.order(self.directory)
        warm_up_spool = self.directory / "warm-up"
        if batch[0].warm_up:
            order = replace(order, spool=warm_up_spool)
        started = time.monotonic()
        cases = self.measure(batch, order)
        seconds = (time.monotonic() - started) / len(batch)
        if batch[0].warm_up:
            self._require_warm_ups(batch, warm_up_spool)
            shutil.rmtree(warm_up_spool)
        for turn in batch:
            self.pairs = max(self.pairs, turn.pair)
            own = [case for case in cases if (case.facts["pair"], case.facts["side"]) == (turn.pair, turn.side)]
            samples = _samples_by_case(own)
            self.schedule.record(turn, samples, seconds)
            self._report_turn(turn, seconds, samples)

    def _require_warm_ups(self, batch: Batch, spool: Path) -> None:
        """Without a result of a side, other turns would only cost time.

        Raises:
            WarmUpError: a side has none.
        """
        found = {checks.read_spooled_case(place).facts["side"] for place in checks.finished_case_directories(spool)}
        for turn in batch:
            if turn.side not in found:
                stack, failures = self.plans[turn.side].runs[0].stack, reframe.read_failures(self.directory, self.site)
                reasons = [f": {failure.reason}" for failure in failures if failure.stack in (stack, "")]
                raise WarmUpError(
                    f"the warm-up of {self.label(turn)} produced no result{''.join(reasons[:1])}",
                    side=turn.side,
                    hint=f"{self.directory / 'reframe.log'} contains ReFrame's output.",
                )

    def _report_turn(self, turn: AbTurn, seconds: float, samples: dict[str, tuple[float, ...]]) -> None:
        label = self.label(turn)
        if turn.warm_up:
            _LOG.info("%s: %.0f s (warm-up, discarded)", label, seconds)
            return
        remaining_s = self.schedule.left_s(turn.pair)
        widest = max(self.schedule.half_widths().values(), default=1.0)
        reached = f", intervals within {100 * widest:.0f} %" if widest < 1 else ""
        remaining = f", at most {remaining_s:.0f} s left" if remaining_s is not None else ""
        count = format_count(len(samples), "result")
        _LOG.info("[pair %s] %s: %s in %.0f s%s%s", turn.pair, label, count, seconds, reached, remaining)


class _AbRunner(InterleavedRunner):
    context: AbContext

    def __init__(
        self,
        history: History,
        context: AbContext,
        plans: Mapping[str, SessionPlan],
        schedule: AbSchedule,
        attributes: dict[str, object],
    ) -> None:
        left, right = context.stacks
        attributes = {**attributes, "ab_run": {"left": left, "right": right, "seed": schedule.seed}}
        allocation = context.placement.allocation
        if allocation is not None:
            attributes["allocation"] = {"job": allocation.job, "nodes": fold_node_names(allocation.nodes)}
        super().__init__(history, context, context.new_record(SessionFacts.from_document(attributes)), plans, schedule)
        schedule.session = self.record.uuid

    def label(self, turn: AbTurn) -> str:
        return self.context.stack_of(turn)

    def batches(self) -> Iterator[Batch]:
        """Batches of the schedule, of the runs that it names."""
        everything = self.plans
        for batch in self.schedule.batches():
            if (names := self.schedule.run_names()) is not None:
                self.plans = {
                    side: replace(plan, runs=tuple(run for run in plan.runs if run.name in names))
                    for side, plan in everything.items()
                }
            yield batch

    def execute(self) -> None:
        self.site = self.context.placement.configured(self.directory)
        self.environment = self.context.placement.environment()
        self.execute_turns()

    def result(self) -> AbRunResult:
        left, right = self.context.stacks
        return AbRunResult(self.record.uuid, left, right, self.pairs, self.schedule.stopped, self.missing_runs())


def _samples_by_case(cases: Sequence[checks.SpooledCase]) -> dict[str, tuple[float, ...]]:
    """Samples of the compared metric by case; the key is the same on all sides."""
    found: dict[str, Result] = {}
    order = headline_metrics()
    for case in cases:
        output = checks.spooled_output(case)
        for result in output.results if output.status == "ok" else ():
            if result.metric in order:
                key = result.full_case(output.tool).without("aggressors").key
                found[key] = min(found.get(key, result), result, key=lambda r: order.index(r.metric))
    return {key: result.samples for key, result in found.items()}
