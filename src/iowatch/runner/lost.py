"""Runs of stacks that no longer work: nothing can make them, and the night must not be green without them.

ReFrame hears of usable stacks only, so a module that is gone after a maintenance takes all its cases with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from iowatch.errors import InputError
from iowatch.runner.plan import Plan, PlannedRun, Unavailable, make_plan
from iowatch.runner.reframe import Failure
from iowatch.runner.site import Partition, Site
from iowatch.stacks import Stack, discover
from iowatch.stacks.activate import home
from iowatch.stacks.discover import read_stack_json
from iowatch.store import History, SeriesFilter
from iowatch.suites import SuiteCase
from iowatch.systems.model import Limits

_SESSIONS = 10


def broken_stacks(system: str) -> list[Stack]:
    """Stacks that somebody described or installed, and that cannot be used."""
    return [stack for stack in discover(system) if stack.status == "broken"]


def with_lost(
    history: History, site: Site, plan: Plan, cases: Sequence[SuiteCase], limits: Limits | None
) -> tuple[Plan, list[Failure]]:
    """The plan with what broken stacks would have run, and the reason of each such run.

    What a stack could do is what it could when it was last used. One that never ran has nothing to lose: its
    cases are not available, and that is told. So is, once, that a stack is not even described any more.
    """
    lost: list[PlannedRun] = []
    unavailable: list[Unavailable] = []
    failures: list[Failure] = []
    broken = broken_stacks(site.system)
    for name in _last_stacks(history, site.system) - {*site.features, *(stack.name for stack in broken)}:
        unavailable += [Unavailable(_name(case), name, (), (), "this stack is gone") for case in cases]
    for stack in broken:
        reason = f"this stack is broken: {stack.note}"
        known = history.series(SeriesFilter(system=site.system, stack=stack.name))
        partitions = sorted({p.name for p in site.partitions} & {row.partition for row in known})
        if not partitions:
            unavailable += [Unavailable(_name(case), stack.name, (), (), reason) for case in cases]
            continue
        runs = _runs(site, stack, partitions, cases, limits)
        lost += runs
        failures += [Failure(_test(run), stack.name, "stack", reason) for run in runs]
    return Plan(plan.runs, (*plan.unavailable, *unavailable), tuple(lost)), failures


def _last_stacks(history: History, system: str) -> set[str]:
    """Stacks that the last night on this system could use; imports and fair runs do not say."""
    sessions = history.sessions(system, limit=_SESSIONS)
    return set(next((s.attributes["stacks"] for s in sessions if "stacks" in s.attributes), ()))


def _runs(
    site: Site, stack: Stack, partitions: Sequence[str], cases: Sequence[SuiteCase], limits: Limits | None
) -> tuple[PlannedRun, ...]:
    places = tuple(Partition(name, "", (stack.name,), None) for name in partitions)
    as_it_was = Site(site.system, site.configuration, places, {stack.name: _features(stack)})
    return make_plan(as_it_was, cases, (), limits, at_least_one=False).runs


def _features(stack: Stack) -> frozenset[str]:
    """What the stack offered when it was last used."""
    try:
        last = read_stack_json(home(stack.system, stack.name) / "stack.json")
    except InputError:
        last = stack
    return frozenset({"mpi", *last.features})


def _name(case: SuiteCase) -> str:
    return f"{case.benchmark}:{case.name}"


def _test(run: PlannedRun) -> str:
    """As ReFrame would call it."""
    return f"{run.case.benchmark.capitalize()}Check %entry={run.case.suite}/{run.case.name}"
