"""The plan of an interference run: its levels, the runs of the victim and of each aggressor, and what limits them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from iowatch.benchmarks.case_names import require_case_names
from iowatch.benchmarks.suites import SuiteCase, load_suite
from iowatch.core import UsageError, format_count, format_size
from iowatch.experiments.interference import jobs as aggressors
from iowatch.experiments.interference.placement import has_whole_nodes
from iowatch.session.context import SessionContext, make_context, select_cases
from iowatch.session.file_systems import exclude_runs
from iowatch.session.options import SessionOptions
from iowatch.session.plan import ExcludedRuns, PlannedRun, SessionPlan, make_session_plan, require_runs
from iowatch.session.reframe import ReframePartition
from iowatch.site import cases_of_system, current_allocation, is_slurm


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
        budgets: list[int] = []
        system_budget = self.session.limits.total_bytes
        if system_budget is not None:
            budgets.append(system_budget)
        for measured in self.session.system.measured_file_systems:
            if measured.parameter != self.victim.file_system or measured.limits is None:
                continue
            if measured.limits.total_bytes is not None:
                budgets.append(measured.limits.total_bytes)
        return min(budgets, default=None)

    @property
    def aggressor_text(self) -> str:
        """The aggressor as a case parameter: benchmark and options, the same text for the same work."""
        words = [self.aggressor.benchmark]
        option_texts = [(name, str(value).lower()) for name, value in self.aggressor.options.items()]
        for name, value in sorted(option_texts):
            words.append(f"{name}={value}")
        return " ".join(words)

    def plan(self) -> InterferencePlan:
        """The run of the victim and that of each aggressor, on the first partition that can run both.

        Raises:
            UsageError: unknown stack, or several can run both; the system cannot run both, or not so many aggressors.
        """
        excluded = exclude_runs(self.session)
        victim_plan = self._plan_case(self.victim, excluded)
        aggressor_plan = self._plan_case(self.aggressor, excluded)
        # Both run on the same partition with the same stack.
        aggressor_runs = {(run.partition, run.stack): run for run in aggressor_plan.runs}
        victim_runs = [run for run in victim_plan.runs if (run.partition, run.stack) in aggressor_runs]
        if not victim_runs:
            raise UsageError("no stack can run both victim and aggressor", hint="`iowatch stack list` shows them.")
        stacks = sorted({run.stack for run in victim_runs})
        if len(stacks) > 1:
            raise UsageError(f"an interference run needs one stack: {', '.join(stacks)}", hint=f"--stack {stacks[0]}")
        victim_run = victim_runs[0]
        return InterferencePlan(
            (victim_run,),
            victim_plan.unavailable,
            aggressor=aggressor_runs[victim_run.partition, victim_run.stack],
            levels=self.levels,
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
    # Both cases on the file systems that were chosen: it must be one, and the same.
    victim_file_systems = [case.file_system for case in selection.cases]
    aggressor_cases = cases_of_system([aggressor_case], selection.system, options.file_systems)
    aggressor_file_systems = [case.file_system for case in aggressor_cases]
    if len(victim_file_systems) != 1 or aggressor_file_systems != victim_file_systems:
        raise UsageError(
            "victim and aggressor must be on one and the same file system", hint="--file-system chooses one."
        )
    if current_allocation() is not None:
        raise UsageError(
            "an interference run submits jobs of its own: start it outside of a job",
            hint="For example on a login node.",
        )
    return InterferenceContext(session=make_context(selection), aggressor=aggressor_cases[0], levels=levels)


def _find_case(suite_cases: Sequence[SuiteCase], suite: str, name: str) -> SuiteCase:
    """The case of a suite with this name, which may be that of the run.

    Raises:
        UsageError: there is none, or several.
    """
    cases = [case for case in suite_cases if name in (case.name, case.run_name)]
    if not cases:
        suite_run_names = [case.run_name for case in suite_cases]
        require_case_names(
            [name], suite_run_names, owner=f"suite '{suite}'", listing=f"iowatch run --suite {suite} --dry-run"
        )
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
    partition = partition_of(context, plan.aggressor)
    if is_slurm(partition.scheduler):
        _check_capacity(plan, partition)
        return []
    if partition.scheduler != "local":
        raise UsageError(
            f"an interference run needs Slurm or no scheduler; partition '{partition.name}' has {partition.scheduler}"
        )
    return _check_processes(context, plan)


def partition_of(context: InterferenceContext, run: PlannedRun) -> ReframePartition:
    """The partition on which a run is planned."""
    partitions = {partition.name: partition for partition in context.session.site.partitions}
    return partitions[run.partition]


def _check_byte_budget(context: InterferenceContext, plan: InterferencePlan, pairs: int | None) -> None:
    """Check what all jobs write and read.

    Raises:
        UsageError: nothing limits what the aggressors write, or it exceeds the byte budget.
    """
    system = context.session.system.name
    budget = context.byte_budget
    if budget is None:
        if plan.aggressor.volume_bytes:
            raise UsageError(
                f"nothing limits what the aggressors write: '{system}' has no limits.total_bytes",
                hint="Aggressors are started again until the victim has ended; set the limit in its system.yaml.",
            )
        return
    # Without a number of pairs at least one is measured.
    pair_count = pairs or 1
    # The warm-up is a run of the victim.
    needed_bytes = pair_count * plan.pair_bytes + plan.volume_bytes
    if needed_bytes > budget:
        raise UsageError(
            f"{format_count(pair_count, 'pair')} of levels {format_levels(plan.levels)} write and read at least "
            f"{format_size(needed_bytes)}; the byte budget of '{system}' is {format_size(budget)} per session",
            hint="Choose fewer pairs or levels or smaller cases, or raise limits.total_bytes in its system.yaml.",
        )


def _check_capacity(plan: InterferencePlan, partition: ReframePartition) -> None:
    """Check that Slurm can run the victim and all aggressors at the same time, as far as it reports it.

    Raises:
        UsageError: it cannot.
    """
    victim = plan.runs[0].case
    aggressor = plan.aggressor.case
    level = max(plan.levels)
    # Jobs that share nodes are limited by processors, others by nodes.
    possible_count = aggressors.most_aggressors(
        partition.queue,
        aggressors.JobSize(victim.ranks, victim.nodes),
        aggressors.JobSize(aggressor.ranks, aggressor.nodes),
        has_whole_nodes(partition),
    )
    if possible_count is None or level <= possible_count:
        return
    hint = "Choose smaller cases."
    if possible_count:
        hint = f"--levels 0,…,{possible_count}"
    raise UsageError(
        f"level {level} is not possible: besides the victim, partition '{partition.name}' can run "
        f"{format_count(possible_count, 'aggressor')} at the same time",
        hint=hint,
    )


def _check_processes(context: InterferenceContext, plan: InterferencePlan) -> list[str]:
    """Check that this node may run all processes; returns a warning if they share cores.

    Raises:
        UsageError: there are more than the limit of the system.
    """
    victim_ranks = plan.runs[0].case.ranks
    aggressor_ranks = plan.aggressor.case.ranks
    level = max(plan.levels)
    process_count = victim_ranks + level * aggressor_ranks
    # All jobs are on this node, so the narrower limit of a node counts first.
    limits = context.session.limits
    limit = limits.ranks_per_node or limits.ranks
    if limit and process_count > limit:
        raise UsageError(
            f"level {level} is not possible: {process_count} processes on this node; the limit of "
            f"'{context.session.system.name}' is {limit}",
            hint=f"At most {max(0, (limit - victim_ranks) // aggressor_ranks)} aggressors.",
        )
    core_count = len(os.sched_getaffinity(0))
    if process_count > core_count:
        return [f"{process_count} processes at level {level} share {core_count} cores, too"]
    return []


def format_levels(levels: Sequence[int]) -> str:
    return ", ".join(map(str, levels))
