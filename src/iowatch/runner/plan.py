"""What a session will run and what it expects, worked out before anything starts and without asking ReFrame.

ReFrame generates its tests from the same suites; because this list does not come from it, a case that ReFrame
skips, filters or loses is noticed as absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from iowatch import stacks as stacks_of_system
from iowatch.errors import UsageError, near_miss
from iowatch.runner.site import Site
from iowatch.store import ExpectedResult
from iowatch.suites import SuiteCase
from iowatch.systems.limits import beyond
from iowatch.systems.model import Limits
from iowatch.units import format_size


@dataclass(frozen=True)
class PlannedRun:
    """One case on one stack of one partition."""

    case: SuiteCase
    partition: str
    stack: str

    @property
    def name(self) -> str:
        """The run's name in expected set and history."""
        return f"{self.case.benchmark}:{self.case.name}"

    def expected(self) -> list[ExpectedResult]:
        """What a complete run brings."""
        return [
            ExpectedResult(self.name, self.partition, self.stack, operation, metric)
            for operation, metric in self.case.expects
        ]


@dataclass(frozen=True)
class Unavailable:
    """A case that cannot run: features that the stack lacks, what it needs beyond the limits, or what else."""

    name: str
    stack: str
    missing: tuple[str, ...]
    beyond: tuple[str, ...] = ()
    other: str = ""

    @property
    def reason(self) -> str:
        """Why, in words."""
        lacks = [f"this stack has no {', '.join(self.missing)}"] if self.missing else []
        needs = [f"needs {', '.join(self.beyond)}"] if self.beyond else []
        return "; ".join([*lacks, *needs, *([self.other] if self.other else [])])


@dataclass(frozen=True)
class Plan:
    """The runs of a session, what is not available here, and what is expected of broken stacks in vain."""

    runs: tuple[PlannedRun, ...]
    unavailable: tuple[Unavailable, ...]
    lost: tuple[PlannedRun, ...] = ()

    @property
    def file_bytes(self) -> int:
        """Bytes in scratch at the same time, at most: cases run one after the other."""
        return max((run.case.tool.file_bytes(run.case.options) for run in self.runs), default=0)

    @property
    def inodes(self) -> int:
        """Files in scratch at the same time, at most."""
        return max((run.case.tool.inodes(run.case.options) for run in self.runs), default=1)

    @property
    def volume_bytes(self) -> int:
        """Bytes written and read in all."""
        return sum(run.case.tool.volume_bytes(run.case.options) for run in self.runs)

    def expected(self) -> list[ExpectedResult]:
        """The expected set of the session."""
        return [item for run in (*self.runs, *self.lost) for item in run.expected()]


def _unusable(site: Site, stack: str) -> UsageError:
    """Why a stack cannot be run: unknown, only a lock file, or broken; and what to do about it."""
    try:
        known = stacks_of_system.load(stack, site.system)
    except UsageError:
        return UsageError(
            f"system '{site.system}' has no stack '{stack}'", hint=near_miss(stack, [*site.features])
        )
    hint = "--bootstrap fetches Spack where there is none." if known.status == "locked" else None
    return UsageError(f"stack '{stack}' of system '{site.system}' cannot be run: {known.note}", hint=hint)


def make_plan(
    site: Site,
    cases: Sequence[SuiteCase],
    stacks: Sequence[str] = (),
    limits: Limits | None = None,
    *,
    doubles: Mapping[str, str] = MappingProxyType({}),
    at_least_one: bool = True,
) -> Plan:
    """All cases on all partitions and stacks that can run them.

    Args:
        stacks: only these; empty means all.
        limits: what one case may use on the system; a case beyond them is not available.
        doubles: names of runs that would only repeat another, and why; they are not available.
        at_least_one: refuse a plan without runs.

    Raises:
        UsageError: a stack is not known on this system, or no case can run at all.
    """
    for stack in stacks:
        if stack not in site.features:
            raise _unusable(site, stack)
    runs: list[PlannedRun] = []
    unavailable: list[Unavailable] = []
    for partition in site.partitions:
        for stack in partition.stacks:
            if stacks and stack not in stacks:
                continue
            for case in cases:
                run = PlannedRun(case, partition.name, stack)
                missing = tuple(sorted(set(case.requires) - site.features[stack]))
                needed, other = beyond(case, limits), doubles.get(run.name, "")
                if missing or needed or other:
                    unavailable.append(Unavailable(run.name, stack, missing, needed, other))
                else:
                    runs.append(run)
    if not runs and at_least_one:
        reasons = sorted({item.reason for item in unavailable})
        raise UsageError(
            f"no case of this suite can run on '{site.system}': {'; '.join(reasons) or 'it has no stack'}",
            hint="`iowatch doctor` tells how to add a library; its system.yaml has the limits.",
        )
    return Plan(tuple(runs), tuple(unavailable))


def refuse_beyond_budget(site: Site, plan: Plan, limits: Limits | None) -> None:
    """See that the session does not write and read more than the system's `limits.total_bytes`.

    Raises:
        UsageError: it does.
    """
    budget = limits.total_bytes if limits else None
    if budget is not None and plan.volume_bytes > budget:
        raise UsageError(
            f"this suite writes and reads {format_size(plan.volume_bytes)}; the byte budget of "
            f"'{site.system}' is {format_size(budget)} a session",
            hint="Choose a smaller suite or fewer stacks, or raise limits.total_bytes in its system.yaml.",
        )
