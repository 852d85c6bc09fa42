"""The plan of an interference run: its levels, the runs of the victim and of each aggressor, and what limits them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from iowatch.benchmarks.suites import SuiteCase, load_suite
from iowatch.core import UsageError, format_count, format_size, suggest_name
from iowatch.experiments.interference import jobs as aggressors
from iowatch.session.context import SessionContext, make_context, select_cases
from iowatch.session.file_systems import exclude_runs
from iowatch.session.options import SessionOptions
from iowatch.session.plan import ExcludedRuns, PlannedRun, SessionPlan, make_session_plan, require_runs
from iowatch.session.reframe import ReframePartition
from iowatch.site import current_allocation, is_slurm, on_file_systems


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
        common_places = [place for place in victim_runs if place in aggressor_runs]
        if not common_places:
            raise UsageError("no stack can run both victim and aggressor", hint="`iowatch stack list` shows them.")
        stacks = sorted({stack for _, stack in common_places})
        if len(stacks) > 1:
            raise UsageError(f"an interference run needs one stack: {', '.join(stacks)}", hint=f"--stack {stacks[0]}")
        first = common_places[0]
        return InterferencePlan(
            (victim_runs[first],), victim_plan.unavailable, aggressor=aggressor_runs[first], levels=self.levels
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
    partition = _partition_of(context, plan.aggressor)
    if is_slurm(partition.scheduler):
        _check_capacity(plan, partition)
        return []
    if partition.scheduler != "local":
        raise UsageError(
            f"an interference run needs Slurm or no scheduler; partition '{partition.name}' has {partition.scheduler}"
        )
    return _check_processes(context, plan)


def _partition_of(context: InterferenceContext, run: PlannedRun) -> ReframePartition:
    """The partition on which a run is planned."""
    partitions = {partition.name: partition for partition in context.session.site.partitions}
    return partitions[run.partition]


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
            f"{format_count(pair_count, 'pair')} of levels {format_levels(plan.levels)} write and read at least "
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
        partition.queue,
        aggressors.JobSize(victim.ranks, victim.nodes),
        aggressors.JobSize(aggressor.ranks, aggressor.nodes),
        is_exclusive,
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


def format_levels(levels: Sequence[int]) -> str:
    return ", ".join(map(str, levels))
