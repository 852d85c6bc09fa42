"""`iowatch interference`: how much slower one job, the victim, is while independent jobs, the aggressors, run.

One session contains all turns. A turn is one run of the victim at a level, the number of aggressors; the schedule
(iowatch.statistics.interleaving) mixes the levels, level 0 is the reference. The aggressors are one start of ReFrame
for the whole session, whose jobs wait where they are not needed (`jobs.py`). A result of the victim is stored after
the turn, when it is known that its aggressors ran during all of it; else the run is stored as failed.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from iowatch import checks
from iowatch.benchmarks.suites import SuiteCase, load_suite
from iowatch.core import MachineError, Output, Scalar, UsageError, format_count, format_size, suggest_name
from iowatch.experiments.interference import jobs as aggressors
from iowatch.experiments.interference.aggressors import AggressorError, Aggressors, aggregate_rates
from iowatch.session.context import SessionContext, make_context, select_cases
from iowatch.session.file_systems import LockedSession, exclude_runs, format_directories, lock_file_systems
from iowatch.session.interleaved import Batch, InterleavedPlan, InterleavedRunner
from iowatch.session.options import SessionOptions
from iowatch.session.plan import ExcludedRuns, PlannedRun, SessionPlan, make_session_plan, require_runs
from iowatch.session.reframe import ReframePartition
from iowatch.session.runner import lock_system
from iowatch.site import current_allocation, is_slurm, on_file_systems
from iowatch.statistics.interleaving import AbSchedule, AbTurn, StopRule
from iowatch.store import History, SessionFacts

_LOG = logging.getLogger(__name__)

# Beyond the budget, for the last pair; without a budget.
_EXTRA_S, _DAY_S = 1800, 86400
_MAX_FAULTS = 3
_UNLIMITED = 10**9


def parse_levels(text: str) -> tuple[int, ...]:
    """Parse `0,1,2,4`: numbers of aggressors in ascending order; level 0, the reference, is added where it is missing.

    Raises:
        UsageError: not a list of whole numbers >= 0, one is named twice, or there is none above 0.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() for word in words):
        raise UsageError(f"--levels '{text}': expected numbers of aggressors >= 0", hint="For example --levels 0,1,2,4")
    levels = sorted(map(int, words))
    if len(set(levels)) < len(levels):
        raise UsageError(f"--levels '{text}': a level is named twice")
    if levels == [0]:
        raise UsageError("--levels 0: without aggressors nothing interferes", hint="For example --levels 0,1,2,4")
    return tuple(sorted({0, *levels}))


@dataclass(frozen=True, kw_only=True)
class InterferenceContext:
    """The context of an interference run.

    Attributes:
        session: its only case is the victim.
        aggressor: case of the aggressors, on the file system of the victim.
        levels: from `parse_levels`.
    """

    session: SessionContext
    aggressor: SuiteCase
    levels: tuple[int, ...]

    @property
    def victim(self) -> SuiteCase:
        """The case that is measured."""
        (case,) = self.session.cases
        return case

    @property
    def byte_budget(self) -> int | None:
        """Bytes that all jobs together may write and read: of the system, or less of the file system."""
        budgets = [self.session.limits.total_bytes]
        for measured in self.session.system.measured_file_systems:
            if measured.parameter == self.victim.file_system and measured.limits is not None:
                budgets.append(measured.limits.total_bytes)
        return min((budget for budget in budgets if budget is not None), default=None)

    @property
    def aggressor_text(self) -> str:
        """The aggressor as a case parameter: benchmark and options, the same text for the same work."""
        options = sorted((name, str(value).lower()) for name, value in self.aggressor.options.items())
        return " ".join([self.aggressor.benchmark, *(f"{name}={value}" for name, value in options)])

    def plan(self) -> InterferencePlan:
        """The run of the victim and that of each aggressor, on the first partition that can run both.

        Raises:
            UsageError: unknown stack, or several can run both; the system cannot run both, or not so many aggressors.
        """
        excluded = exclude_runs(self.session)
        victim_plan = self._plan_case(self.victim, excluded)
        aggressor_plan = self._plan_case(self.aggressor, excluded)
        victim_runs = {(run.partition, run.stack): run for run in victim_plan.runs}
        aggressor_runs = {(run.partition, run.stack): run for run in aggressor_plan.runs}
        # Both run on the same partition with the same stack.
        places = [place for place in victim_runs if place in aggressor_runs]
        if not places:
            raise UsageError("no stack can run both victim and aggressor", hint="`iowatch stack list` shows them.")
        stacks = sorted({stack for _, stack in places})
        if len(stacks) > 1:
            raise UsageError(f"an interference run needs one stack: {', '.join(stacks)}", hint=f"--stack {stacks[0]}")
        return InterferencePlan(
            (victim_runs[places[0]],), victim_plan.unavailable, aggressor=aggressor_runs[places[0]], levels=self.levels
        )

    def _plan_case(self, case: SuiteCase, excluded: ExcludedRuns) -> SessionPlan:
        session = self.session
        plan = make_session_plan(session.site, [case], session.options.stacks, session.limits, excluded)
        require_runs(session.site, plan)
        return plan


def make_interference_context(
    options: SessionOptions, victim: str, aggressor: str, levels: tuple[int, ...]
) -> InterferenceContext:
    """Make the context of an interference run.

    Args:
        options: without cases.
        victim, aggressor: cases of the suite, as `--dry-run` lists them.
        levels: from `parse_levels`.

    Raises:
        UsageError: unknown case; both are not on one file system; the command was started inside of a job.
    """
    suite_cases = load_suite(options.suite)
    victim_case = _find_case(suite_cases, options.suite, victim)
    aggressor_case = _find_case(suite_cases, options.suite, aggressor)
    selection = select_cases(replace(options, case_names=(victim_case.run_name,)))
    placed = on_file_systems([aggressor_case], selection.system, options.file_systems)
    victim_file_systems = [case.file_system for case in selection.cases]
    if len(victim_file_systems) != 1 or [case.file_system for case in placed] != victim_file_systems:
        raise UsageError(
            "victim and aggressor must be on one and the same file system", hint="--file-system chooses one."
        )
    if current_allocation() is not None:
        raise UsageError(
            "an interference run submits jobs of its own: start it outside of a job",
            hint="For example on a login node.",
        )
    return InterferenceContext(session=make_context(selection), aggressor=placed[0], levels=levels)


def _find_case(suite_cases: Sequence[SuiteCase], suite: str, name: str) -> SuiteCase:
    """The case of a suite with this name, which may be that of the run.

    Raises:
        UsageError: there is none, or several.
    """
    cases = [case for case in suite_cases if name in (case.name, case.run_name)]
    if not cases:
        hint = suggest_name(name, [case.run_name for case in suite_cases])
        raise UsageError(f"suite '{suite}' has no case '{name}'", hint=hint)
    if len(cases) > 1:
        run_names = " and ".join(case.run_name for case in cases)
        raise UsageError(f"suite '{suite}' has several cases '{name}'", hint=f"Name one: {run_names}")
    return cases[0]


@dataclass(frozen=True, kw_only=True)
class InterferencePlan(SessionPlan):
    """The run of the victim, and the run that each aggressor repeats."""

    aggressor: PlannedRun
    levels: tuple[int, ...]

    def on(self, file_system: str | None) -> SessionPlan:
        """The plan itself: all jobs are on one file system."""
        return self

    @property
    def file_bytes(self) -> int:
        """Maximum bytes in scratch at the same time: the files of all jobs."""
        case = self.aggressor.case
        return super().file_bytes + max(self.levels) * case.tool.file_bytes(case.options)

    @property
    def inodes(self) -> int:
        """Maximum number of files in scratch at the same time."""
        case = self.aggressor.case
        return super().inodes + max(self.levels) * case.tool.inodes(case.options)

    @property
    def pair_bytes(self) -> int:
        """Bytes written and read by one pair, if every aggressor starts once per level."""
        return len(self.levels) * self.volume_bytes + sum(self.levels) * self.aggressor.volume_bytes


def check_interference(context: InterferenceContext, plan: InterferencePlan, pairs: int | None) -> list[str]:
    """Check bytes, processors and nodes before anything is written; returns warnings.

    Args:
        pairs: their number, if it is known.

    Raises:
        UsageError: nothing limits what the aggressors write; it exceeds the byte budget; the jobs cannot run at the
            same time, or not with this scheduler.
    """
    _check_byte_budget(context, plan, pairs)
    partition = next(part for part in context.session.site.partitions if part.name == plan.aggressor.partition)
    if is_slurm(partition.scheduler):
        _check_capacity(plan, partition)
        return []
    if partition.scheduler != "local":
        raise UsageError(
            f"an interference run needs Slurm or no scheduler; partition '{partition.name}' has {partition.scheduler}"
        )
    return _check_processes(context, plan)


def _check_byte_budget(context: InterferenceContext, plan: InterferencePlan, pairs: int | None) -> None:
    """Check what all jobs write and read.

    Raises:
        UsageError: nothing limits what the aggressors write, or it exceeds the byte budget.
    """
    budget, system = context.byte_budget, context.session.system.name
    if budget is None:
        if plan.aggressor.volume_bytes:
            raise UsageError(
                f"nothing limits what the aggressors write: '{system}' has no limits.total_bytes",
                hint="Aggressors are started again until the victim has ended; set the limit in its system.yaml.",
            )
        return
    pair_count = pairs or 1
    # The warm-up is a run of the victim.
    needed = pair_count * plan.pair_bytes + plan.volume_bytes
    if needed > budget:
        raise UsageError(
            f"{format_count(pair_count, 'pair')} of levels {_listed(plan.levels)} write and read at least "
            f"{format_size(needed)}; the byte budget of '{system}' is {format_size(budget)} per session",
            hint="Choose fewer pairs or levels or smaller cases, or raise limits.total_bytes in its system.yaml.",
        )


def _check_capacity(plan: InterferencePlan, partition: ReframePartition) -> None:
    """Check that Slurm can run the victim and all aggressors at the same time, as far as it reports it.

    Raises:
        UsageError: it cannot.
    """
    victim, aggressor, level = plan.runs[0].case, plan.aggressor.case, max(plan.levels)
    is_exclusive = any(option.startswith("--exclusive") for option in partition.access)
    possible = aggressors.most_aggressors(
        partition.queue, (victim.ranks, victim.nodes), (aggressor.ranks, aggressor.nodes), is_exclusive
    )
    if possible is not None and level > possible:
        raise UsageError(
            f"level {level} is not possible: besides the victim, partition '{partition.name}' can run "
            f"{format_count(possible, 'aggressor')} at the same time",
            hint=f"--levels 0,…,{possible}" if possible else "Choose smaller cases.",
        )


def _check_processes(context: InterferenceContext, plan: InterferencePlan) -> list[str]:
    """Check that this node may run all processes; returns a warning if they share cores.

    Raises:
        UsageError: there are more than the limit of the system.
    """
    victim, aggressor, level = plan.runs[0].case, plan.aggressor.case, max(plan.levels)
    limits = context.session.limits
    limit = limits.ranks_per_node or limits.ranks
    processes = victim.ranks + level * aggressor.ranks
    if limit and processes > limit:
        raise UsageError(
            f"level {level} is not possible: {processes} processes on this node; the limit of "
            f"'{context.session.system.name}' is {limit}",
            hint=f"At most {max(0, (limit - victim.ranks) // aggressor.ranks)} aggressors.",
        )
    cores = len(os.sched_getaffinity(0))
    if processes > cores:
        return [f"{processes} processes at level {level} share {cores} cores, too"]
    return []


def _listed(levels: Sequence[int]) -> str:
    return ", ".join(map(str, levels))


@dataclass(frozen=True)
class InterferenceResult:
    """A finished interference run.

    Attributes:
        stopped: as of the schedule; None if it was interrupted.
        failed: runs that failed or were not received.
    """

    session: str
    victim: str
    aggressor: str
    levels: tuple[int, ...]
    pairs: int
    stopped: str | None
    failed: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {name: [*value] if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def run_interference(
    history: History, context: InterferenceContext, stop_rule: StopRule, seed: int
) -> InterferenceResult:
    """Measure the victim at all levels in turn until the schedule ends.

    Args:
        seed: of the order of turns; stored with the session.

    Raises:
        UsageError: see `InterferenceContext.plan` and `check_interference`.
        MachineError: another session is running; scratch cannot be used; ReFrame or the aggressors cannot be started.
    """
    session_context = context.session
    with lock_system(history, session_context.system):
        plan = context.plan()
        warnings = tuple(check_interference(context, plan, stop_rule.pairs))
        with lock_file_systems(history, session_context, plan) as session:
            _LOG.info("%s", _opening_line(context, plan))
            for warning in warnings:
                _LOG.warning("warning: %s: part of a slowdown may not be of the file system", warning)
            schedule = AbSchedule(stop_rule, seed, sides=[str(level) for level in context.levels])
            runner = _InterferenceRunner(history, session, context, plan, schedule)
            runner.run()
            return runner.result(warnings)


def _opening_line(context: InterferenceContext, plan: InterferencePlan) -> str:
    """One line that describes the interference run to start."""
    victim, system = plan.runs[0], context.session.system.name
    return (
        f"{victim.name} with {_listed(context.levels)} x {plan.aggressor.name} on {system}, {victim.stack}: "
        f"at least {format_size(plan.pair_bytes)} written and read per pair, "
        f"{format_directories(context.session, plan)}"
    )


class _InterferenceRunner(InterleavedRunner):
    def __init__(
        self,
        history: History,
        session: LockedSession,
        context: InterferenceContext,
        plan: InterferencePlan,
        schedule: AbSchedule,
    ) -> None:
        self.interference, self.plan = context, plan
        self.aggressors: Aggressors | None = None
        self._launched = 0  # number of starts of all aggressors
        self._written = 0  # bytes, by aggressors that have ended and by the victim
        self._faults = 0  # number of turns in a row with faults of aggressors
        self._stack: Mapping[str, Any] = {}  # as the last case of the victim described it
        victim = plan.runs[0]
        facts: dict[str, Any] = {
            "victim": victim.name,
            "aggressor": plan.aggressor.name,
            "stack": victim.stack,
            "levels": [*context.levels],
            "seed": schedule.seed,
        }
        record = session.new_record(SessionFacts(interference=facts))
        sides = dict.fromkeys(schedule.sides, SessionPlan(plan.runs, ()))
        super().__init__(history, session, record, InterleavedPlan(sides, schedule))

    def label(self, turn: AbTurn) -> str:
        return f"level {turn.side}"

    def parameters_of(self, turn: AbTurn) -> dict[str, Scalar]:
        """The level, which is the number of aggressors, and what they do."""
        return {"aggressors": int(turn.side), "aggressor": self.interference.aggressor_text}

    def execute(self) -> None:
        try:
            self.execute_turns()
        finally:
            if self.aggressors is not None:
                self.aggressors.close()

    def batches(self) -> Iterator[Batch]:
        """Single turns of the schedule, without warm-ups above level 0, while the byte budget allows one more."""
        for turn in self.schedule.turns():
            if turn.warm_up and turn.side != "0":
                continue
            if self._starts_left(int(turn.side)) < 1:
                self.schedule.stopped = "bytes"
                return
            yield (turn,)

    def result(self, warnings: tuple[str, ...]) -> InterferenceResult:
        return InterferenceResult(
            session=self.record.uuid,
            victim=self.plan.runs[0].name,
            aggressor=self.plan.aggressor.name,
            levels=self.interference.levels,
            pairs=self.pairs,
            stopped=self.schedule.stopped,
            failed=self.missing_runs(),
            warnings=warnings,
        )

    def measure(self, batch: Batch, order: checks.RunOrder) -> list[checks.SpooledCase]:
        """The victim at the level of the turn; it is ingested when its aggressors are checked."""
        (turn,) = batch
        level, turn_spool = int(turn.side), self.directory / "turn"
        self._prepare_aggressors(level)
        if not turn.warm_up:
            order = replace(order, spool=turn_spool)
        fault = self._execute_turn(batch, order)
        self._written += self.plan.volume_bytes
        case_directories = checks.finished_case_directories(self.directory if turn.warm_up else turn_spool)
        cases = {directory: checks.read_spooled_case(directory) for directory in case_directories}
        for case in cases.values():
            self._stack = case.stack
        if turn.warm_up:
            return []
        # What was measured counts only if the aggressors ran during all of it.
        faults = [fault]
        for directory, case in cases.items():
            faults.append(self._store(directory, case, level, fault))
        if fault and not cases:  # the victim was not started
            self._store(turn_spool, self._empty_case(turn), level, fault)
        shutil.rmtree(turn_spool, ignore_errors=True)
        if level:
            self._take_faults(faults)
        return self.ingest()

    def _prepare_aggressors(self, level: int) -> None:
        """Launch the aggressors for a turn that needs some, new ones if the time limit of the others may end in it."""
        if self.aggressors is not None and self.aggressors.is_expiring:
            self._dismiss(self.aggressors.close)
        if level and self.aggressors is None:
            self._launch()

    def _execute_turn(self, batch: Batch, order: checks.RunOrder) -> str | None:
        """Run the victim while the aggressors of its level run; returns why they did not run as they should."""
        (turn,) = batch
        level, jobs = int(turn.side), self.aggressors
        try:
            if level and jobs:
                jobs.start(level, self._starts_left(level))
            self.execute_plan(batch, order, jobs.renew if jobs else lambda: None)
            if level and jobs:
                jobs.stop()
        except AggressorError as error:
            return error.message
        return None

    def _empty_case(self, turn: AbTurn) -> checks.SpooledCase:
        """The case of a victim that was not started."""
        run = self.plan.runs[0]
        facts = {"pair": turn.pair, "side": turn.side}
        return checks.SpooledCase(
            name=checks.turn_run_name(run.name, facts),
            benchmark=run.case.benchmark,
            partition=run.partition,
            stack_name=run.stack,
            stack=self._stack,
            started_at=int(time.time()),
            wall_s=None,
            output=Output(run.case.benchmark, None, "failed", None, ()).to_json(),
            facts=facts,
        )

    def _launch(self) -> None:
        budget_s = self.schedule.until.budget_s
        time_limit_s = _DAY_S if budget_s is None else math.ceil(budget_s) + _EXTRA_S
        minutes = self.context.limits.minutes
        time_limit_s = min(time_limit_s, 60 * minutes) if minutes else time_limit_s
        self._launched += 1
        directory = self.directory / f"aggressors-{self._launched}"
        self.aggressors = Aggressors(self.context, self.plan.aggressor, max(self.plan.levels), directory, time_limit_s)
        self.aggressors.launch(self.session.order(self.directory))

    def _take_faults(self, faults: Sequence[str | None]) -> None:
        """End all aggressors after one has failed: what it left behind must not disturb later turns.

        Raises:
            MachineError: the aggressors failed in several turns in a row.
        """
        messages = [fault for fault in faults if fault]
        if not messages:
            self._faults = 0
            return
        self._faults += 1
        if self.aggressors is not None:
            self._dismiss(self.aggressors.cancel)
        if self._faults == _MAX_FAULTS:
            self.ingest_all()
            raise MachineError(
                f"the aggressors failed in {_MAX_FAULTS} turns in a row: {messages[0]}",
                hint=f"Their outputs are in {self.directory / f'aggressors-{self._launched}'}.",
            )

    def _dismiss(self, end: Callable[[], None]) -> None:
        """End all aggressors; the next turn that needs some submits new ones."""
        if self.aggressors is not None:
            self._written += self.aggressors.starts * self.plan.aggressor.volume_bytes
            end()
            self.aggressors = None

    def _starts_left(self, level: int) -> int:
        """Starts of each aggressor that the byte budget allows in the next turn."""
        budget, volume = self.interference.byte_budget, self.plan.aggressor.volume_bytes
        started = self.aggressors.starts if self.aggressors else 0
        if budget is None:
            return _UNLIMITED
        left = budget - self._written - started * volume - self.plan.volume_bytes
        if level and volume:
            return left // (level * volume)
        return _UNLIMITED if left >= 0 else 0

    def _store(self, directory: Path, case: checks.SpooledCase, level: int, fault: str | None) -> str | None:
        """Put a case of the victim into the spool of the session: with its aggressors' results, or failed.

        Returns:
            Why its aggressors did not run as they should, if that is so.
        """
        files = {kind: [directory / name for name in names] for kind, names in case.files.items()}
        if level and self.aggressors and fault is None and case.output["status"] == "ok":
            try:
                load = self._measure_load(case, level)
                checks.spool_case(self.directory, load, {})
            except AggressorError as error:
                fault = error.message
        if fault is not None:
            victim_reason = case.output.get("reason")
            reason = f"{fault}; {victim_reason}" if victim_reason else fault
            case = replace(case, output={**case.output, "status": "failed", "reason": reason})
            _LOG.warning("%s: %s", case.name, reason)
        checks.spool_case(self.directory, case, files)
        return fault

    def _measure_load(self, case: checks.SpooledCase, level: int) -> checks.SpooledCase:
        """The bandwidths of the aggressors during a case of the victim, as a case of its own.

        Raises:
            AggressorError: one did not run during the whole measurement, or its output is not ok.
        """
        assert self.aggressors is not None
        if "measured" not in case.facts:
            raise AggressorError("the times of the measurement are not known")
        starts = self.aggressors.check(level, *case.facts["measured"])
        outputs: list[list[Output]] = []
        for number, starts_of_job in enumerate(starts, 1):
            outputs.append([self.aggressors.output(number, start) for start in starts_of_job])
        for outputs_of_job in outputs:
            for output in outputs_of_job:
                if output.status != "ok":
                    raise AggressorError(f"the output of an aggressor is {output.status}: {output.reason}")
        run = self.plan.aggressor
        totals, shares = aggregate_rates(outputs)
        # Series of their own: level and victim are parameters of the case.
        parameters: dict[str, Scalar] = {"aggressors": level, "victim": self.plan.runs[0].name}
        results = tuple(replace(total, case={**total.case, **parameters}) for total in totals)
        output = Output(run.case.benchmark, outputs[0][0].version, "ok", None, results)
        facts = {
            "pair": case.facts["pair"],
            "side": case.facts["side"],
            "nodes": self.aggressors.hosts(level),
            "bandwidth_by_job": shares,
            "starts": [len(starts_of_job) for starts_of_job in starts],
            "tracing": "none",
        }
        name = checks.turn_run_name(run.name, facts) + "-aggressors"
        return replace(case, name=name, benchmark=run.case.benchmark, output=output.to_json(), facts=facts, files={})
