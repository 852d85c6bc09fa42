"""The plan of a session: its runs, and the expected results.

The plan follows from the suites, not from ReFrame: a case that ReFrame skips, filters or loses is therefore missing
and is reported. Which runs fit the budget is decided by `iowatch.session.budget`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from iowatch.benchmarks.suites import SuiteCase
from iowatch.checks import ExtraWork
from iowatch.core import RunKey, UnplannedRun, UsageError, format_size, suggest_name
from iowatch.session.reframe import ReframeSite
from iowatch.site import (
    MeasuredFileSystem,
    PartitionLimits,
    SystemLimits,
    exceeded_limits,
    exceeded_partition_limit,
    load_stack,
)
from iowatch.store import ExpectedResult


@dataclass(frozen=True)
class PlannedRun:
    """One case on one stack of one partition, with the work that its job does besides."""

    case: SuiteCase
    partition: str
    stack: str
    extra_work: tuple[ExtraWork, ...] = ()

    @property
    def name(self) -> str:
        """The run's name in expected set and history."""
        return self.case.run_name

    @property
    def key(self) -> RunKey:
        """Identity of the run: partition, stack, name."""
        return RunKey(self.partition, self.stack, self.name)

    @property
    def reframe_test(self) -> str:
        """ReFrame's name of its test."""
        return f"{self.case.tool.check} %entry={self.case.suite}/{self.case.name}"

    @property
    def volume_bytes(self) -> int:
        """Bytes written and read."""
        measured_bytes = self.case.tool.volume_bytes(self.case.options)
        return measured_bytes + sum(work.volume_bytes for work in self.extra_work)

    def expected_s(self, longest_s: float | None) -> float:
        """Expected seconds, of the measurement those of the last sessions, or the time limit if none is known."""
        measured_s = float(self.case.time_limit_s) if longest_s is None else longest_s
        return measured_s + sum(work.expected_s for work in self.extra_work)

    def expected(self) -> list[ExpectedResult]:
        """The results of a complete run."""
        return [
            ExpectedResult(self.name, self.partition, self.stack, operation, metric)
            for operation, metric in self.case.expects
        ]


@dataclass(frozen=True)
class UnavailableCase:
    """A case that cannot run on a stack of a partition, and the reason.

    Attributes:
        partition: empty if it is so on all partitions.
        lacking: features that the stack lacks.
        expected: its results that stay expected, because the machine and not the suite is the reason.
    """

    name: str
    stack: str
    reason: str
    lacking: frozenset[str] = frozenset()
    expected: tuple[ExpectedResult, ...] = ()
    partition: str = ""


@dataclass(frozen=True)
class ExcludedRuns:
    """Runs of the selected cases that a session cannot or need not measure.

    Attributes:
        duplicates: reasons by name of the runs that would only repeat another in the directory of their file system.
        not_allowed: reasons by name of the runs that need more than their file system allows.
        unusable: reasons by file system, None for the default one, why nothing can be written to it.
    """

    duplicates: Mapping[str, str] = field(default_factory=dict)
    not_allowed: Mapping[str, str] = field(default_factory=dict)
    unusable: Mapping[str | None, str] = field(default_factory=dict)

    def reason(self, run_name: str) -> str | None:
        """Why a run is left out; None if it is not, or if the reason is its file system."""
        return self.not_allowed.get(run_name) or self.duplicates.get(run_name)


NOTHING_EXCLUDED = ExcludedRuns()


@dataclass(frozen=True)
class SessionPlan:
    """The runs of a session, the cases that are not available, and the lost runs, which stay expected."""

    runs: tuple[PlannedRun, ...]
    unavailable: tuple[UnavailableCase, ...]
    lost: tuple[UnplannedRun, ...] = ()

    @property
    def has_several_partitions(self) -> bool:
        """Whether names of runs need their partition to be unambiguous."""
        partitions = {run.partition for run in self.runs}
        partitions |= {run.partition for run in self.lost}
        partitions |= {case.partition for case in self.unavailable}
        return len(partitions - {""}) > 1

    @property
    def file_systems(self) -> tuple[str | None, ...]:
        """The file systems that its runs write to, None for the default one."""
        return tuple(dict.fromkeys(run.case.file_system for run in self.runs))

    def on(self, file_system: str | None) -> SessionPlan:
        """The runs on one file system."""
        return SessionPlan(tuple(run for run in self.runs if run.case.file_system == file_system), ())

    def without(self, reasons: Mapping[str | None, str]) -> SessionPlan:
        """The plan without the runs on these file systems, which are lost for the reason of theirs."""
        kept: list[PlannedRun] = []
        lost = [*self.lost]
        for run in self.runs:
            if run.case.file_system in reasons:
                lost.append(UnplannedRun(*run.key, run.case.expects, reasons[run.case.file_system]))
            else:
                kept.append(run)
        return replace(self, runs=tuple(kept), lost=tuple(lost))

    def without_runs(self, reasons: Mapping[RunKey, str]) -> SessionPlan:
        """The plan without these runs, which are lost for their reasons."""
        lost = [*self.lost]
        for run in self.runs:
            if run.key in reasons:
                lost.append(UnplannedRun(*run.key, run.case.expects, reasons[run.key]))
        kept = tuple(run for run in self.runs if run.key not in reasons)
        return replace(self, runs=kept, lost=tuple(lost))

    @property
    def file_bytes(self) -> int:
        """Maximum bytes in scratch at the same time; cases run one after the other."""
        return max((run.case.tool.file_bytes(run.case.options) for run in self.runs), default=0)

    @property
    def inodes(self) -> int:
        """Maximum number of files in scratch at the same time."""
        return max((run.case.tool.inodes(run.case.options) for run in self.runs), default=1)

    @property
    def volume_bytes(self) -> int:
        """Total bytes written and read."""
        return sum(run.volume_bytes for run in self.runs)

    def expected(self) -> list[ExpectedResult]:
        """The expected set of the session."""
        expected: list[ExpectedResult] = []
        for run in self.runs:
            expected += run.expected()
        # What cannot be planned stays expected until a person accepts its loss.
        for lost_run in self.lost:
            expected += lost_run.expected()
        return expected


def make_session_plan(
    site: ReframeSite,
    cases: Sequence[SuiteCase],
    stacks: Sequence[str] = (),
    limits: SystemLimits | None = None,
    excluded: ExcludedRuns = NOTHING_EXCLUDED,
) -> SessionPlan:
    """Plan all cases on all partitions and stacks that can run them.

    Args:
        stacks: only these; empty means all.
        limits: limits of one case on the system; a case that exceeds them is not available.
        excluded: runs that are not available, either.

    Raises:
        UsageError: a stack is not known on this system.
    """
    # A misspelt stack is an error, not a plan without runs.
    for stack in stacks:
        if stack not in site.features:
            raise _unusable_stack_error(site, stack)
    partitions = {partition.name: partition for partition in site.partitions}
    runs: list[PlannedRun] = []
    unavailable: list[UnavailableCase] = []
    for run in _possible_runs(site, cases, stacks):
        unanswered = site.unanswered.get(run.stack, {})
        capabilities = _Capabilities(site.features[run.stack], unanswered, partitions[run.partition].limits, limits)
        obstacle = _find_obstacle(run, capabilities, excluded)
        if obstacle is None:
            runs.append(run)
        else:
            unavailable.append(obstacle)
    return SessionPlan(tuple(runs), tuple(unavailable))


def _possible_runs(site: ReframeSite, cases: Sequence[SuiteCase], stacks: Sequence[str]) -> Iterator[PlannedRun]:
    """Yield each case with each stack of each partition.

    Args:
        stacks: only these; empty means all.
    """
    for partition in site.partitions:
        for stack in partition.stacks:
            if stacks and stack not in stacks:
                continue
            for case in cases:
                yield PlannedRun(case, partition.name, stack)


@dataclass(frozen=True)
class _Capabilities:
    """What a run can have: features of its stack, limits of its partition and of the system (None: no limits).

    Attributes:
        unanswered: features that the stack may have, and why that is not known.
    """

    features: frozenset[str]
    unanswered: Mapping[str, str]
    partition_limits: PartitionLimits
    system_limits: SystemLimits | None


def _find_obstacle(run: PlannedRun, capabilities: _Capabilities, excluded: ExcludedRuns) -> UnavailableCase | None:
    """Return why a run is not possible; None if it is."""
    features = capabilities.features
    reasons: list[str] = []
    lacking = run.case.lacking_features(features)
    absent = lacking.difference(capabilities.unanswered)
    if absent:
        reasons.append(f"the stack does not provide {', '.join(sorted(absent))}")
    elif lacking:
        remarks = dict.fromkeys(capabilities.unanswered[feature] for feature in sorted(lacking))
        features_text = ", ".join(sorted(lacking))
        reasons.append(f"it is not known whether the stack provides {features_text}: {'; '.join(remarks)}")
    # Of a library that the stack does not have, no program has an interface.
    elif lacking_interfaces := run.case.lacking_interfaces(features):
        reasons.append(f"this {run.case.benchmark} has no {' and no '.join(lacking_interfaces)}")
    exceeded_partition = exceeded_partition_limit(run.case, run.partition, capabilities.partition_limits)
    exceeded = exceeded_limits(run.case, capabilities.system_limits)
    # The limits of the system are not below those of its partitions: one reason is enough.
    if exceeded_partition is not None:
        reasons.append(exceeded_partition)
    elif exceeded:
        reasons.append(f"requires {', '.join(exceeded)}")
    excluded_reason = excluded.reason(run.name)
    if excluded_reason is not None:
        reasons.append(excluded_reason)
    if reasons:
        # What may be there is expected: a tool that does not answer is no evidence that nothing is.
        is_unknown = bool(lacking) and not absent and len(reasons) == 1
        expected = tuple(run.expected()) if is_unknown else ()
        return UnavailableCase(run.name, run.stack, "; ".join(reasons), lacking, expected, run.partition)
    if run.case.file_system in excluded.unusable:
        # The machine and not the suite is the reason: the results stay expected.
        reason = excluded.unusable[run.case.file_system]
        expected = tuple(run.expected())
        return UnavailableCase(run.name, run.stack, reason, expected=expected, partition=run.partition)
    return None


def lacking_features(site: ReframeSite, plan: SessionPlan) -> frozenset[str]:
    """Features that unavailable cases need and no stack of the system has."""
    lacking = frozenset[str]().union(*(case.lacking for case in plan.unavailable))
    return lacking.difference(*site.features.values())


def require_runs(site: ReframeSite, plan: SessionPlan) -> None:
    """Check that a plan has runs, or lost ones.

    Raises:
        UsageError: it has none.
    """
    if not (plan.runs or plan.lost):
        reasons = sorted({case.reason for case in plan.unavailable})
        why = "; ".join(reasons) or "it has no stack"
        raise UsageError(
            f"no case of this suite can run on '{site.system}': {why}",
            hint="`iowatch doctor` shows how to install a library; the limits are in system.yaml.",
        )


def _unusable_stack_error(site: ReframeSite, stack: str) -> UsageError:
    """Error with the reason why a stack cannot be run (unknown, only a lock file, broken), and a hint."""
    try:
        described = load_stack(stack, site.system)
    except UsageError:
        return UsageError(f"system '{site.system}' has no stack '{stack}'", hint=suggest_name(stack, [*site.features]))
    hint = "Use --bootstrap to clone Spack." if described.status == "locked" else None
    return UsageError(f"stack '{stack}' of system '{site.system}' cannot be run: {described.note}", hint=hint)


def exceeded_byte_budget(
    site: ReframeSite, plan: SessionPlan, limits: SystemLimits | None, measured: Sequence[MeasuredFileSystem] = ()
) -> str | None:
    """The `limits.total_bytes`, of the system or of a file system, that a plan exceeds, as a sentence; or None."""
    # The budget of the system first, then that of each file system.
    exceeded: list[str | None] = []
    if limits is not None:
        exceeded.append(_exceeded_bytes(f"'{site.system}'", plan.volume_bytes, limits.total_bytes))
    for file_system in measured:
        if file_system.limits is not None:
            volume_bytes = plan.on(file_system.parameter).volume_bytes
            subject = f"file system '{file_system.name}'"
            exceeded.append(_exceeded_bytes(subject, volume_bytes, file_system.limits.total_bytes))
    return next((text for text in exceeded if text is not None), None)


def _exceeded_bytes(subject: str, volume_bytes: int, budget_bytes: int | None) -> str | None:
    """The sentence about an exceeded byte budget; None if it is not exceeded.

    Args:
        subject: whose budget it is.
    """
    if budget_bytes is None or volume_bytes <= budget_bytes:
        return None
    return (
        f"this suite writes and reads {format_size(volume_bytes)}; the byte budget of {subject} is "
        f"{format_size(budget_bytes)} per session"
    )


def check_byte_budget(
    site: ReframeSite, plan: SessionPlan, limits: SystemLimits | None, measured: Sequence[MeasuredFileSystem] = ()
) -> None:
    """Check the volume of a plan against `limits.total_bytes` of the system, and of each of its file systems.

    Raises:
        UsageError: the plan writes and reads more.
    """
    exceeded = exceeded_byte_budget(site, plan, limits, measured)
    if exceeded is not None:
        raise UsageError(
            exceeded, hint="Choose a smaller suite or fewer stacks, or raise limits.total_bytes in its system.yaml."
        )
