"""The cases of a check: those of `benchmarks/<benchmark>/suites/*.yaml`, as far as the order of the session wants them.

Each case is a ReFrame test with its suite as tag; in an interleaved run each of its turns is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from iowatch.benchmarks import suites
from iowatch.benchmarks.suites import SuiteCase
from iowatch.checks.extension import find_extension
from iowatch.checks.order import CheckTurn, RunOrder, current_order, turn_run_name
from iowatch.checks.run import CheckedRun
from iowatch.checks.scratch import is_node_local, system_limits
from iowatch.checks.targets import no_targets_reason
from iowatch.core import UsageError
from iowatch.site import exceeded_limits, exceeded_partition_limit, storage, system


@dataclass(frozen=True)
class CheckEntry:
    """A case, and its turn in an interleaved run; ReFrame makes a test of it."""

    case: SuiteCase
    turn: CheckTurn | None = None


@dataclass(frozen=True)
class ReframeTasks:
    """What ReFrame's variables give for a case; 1 and None are ReFrame's defaults.

    Attributes:
        options: `-S case_options=repeat:5`.
    """

    options: Mapping[str, str]
    tasks: int
    tasks_per_node: int | None


@cache
def case_entries(benchmark: str, system_name: str | None) -> dict[str, CheckEntry]:
    """Return the entries of a benchmark by `<suite>/<case>[#<turn>]`, the turns of a case one after the other.

    Args:
        system_name: the system that ReFrame runs on; None if ReFrame does not run.
    """
    order = current_order()
    turns: Sequence[CheckTurn | None] = order.turns or (None,)
    entries = {}
    for case in _ordered_cases(benchmark, system_name, order):
        for turn in turns:
            suffix = turn_run_name("", turn.facts) if turn else ""
            entries[f"{case.suite}/{case.name}{suffix}"] = CheckEntry(case, turn)
    return entries


def _ordered_cases(benchmark: str, system_name: str | None, order: RunOrder) -> list[SuiteCase]:
    """Cases of the ordered suite and runs: ReFrame generates no tests of others."""
    cases = suites.cases_of_benchmark(benchmark, order.suite)
    if system_name in system.system_names():
        # A session may order runs on any file system, also on those that the suite does not name.
        file_systems = () if order.runs is None else (suites.ALL_FILE_SYSTEMS,)
        cases = system.cases_of_system(cases, system.load_system(system_name), file_systems)
    if order.runs is None:
        return list(cases)
    names = {run.key.run for run in order.runs}
    return [case for case in cases if case.run_name in names]


def changed_case(case: SuiteCase, order: RunOrder, tasks: ReframeTasks) -> SuiteCase:
    """Return the case with the options that ReFrame's command line or an extension changes.

    Raises:
        UsageError: the command line changes a case of a session.
        InputError: an option is unknown or has a wrong value.
        ValueError: ranks are no number, and tasks per node are given.
    """
    changed = dict(tasks.options)
    ranks: int | str = changed.get("ranks", case.ranks)
    if tasks.tasks != 1:
        ranks = tasks.tasks
        changed["ranks"] = str(ranks)
    if tasks.tasks_per_node:
        changed["nodes"] = str(-(-int(ranks) // tasks.tasks_per_node))
    if changed and order.spool is not None:
        raise UsageError(
            f"variables of ReFrame change {', '.join(changed)} of a case; a session runs cases as its suite says",
            hint="Unset RFM_SETVARS, or write a suite: docs/benchmarks.md.",
        )
    for name, settings in order.extensions.items():
        changed.update(find_extension(name).options(case, settings))
    return suites.with_options(case, changed)


def skip_reason(run: CheckedRun) -> str | None:
    """Return why a test is not executed; None if it is.

    A case may be ordered for one stack or partition and not for another; a turn has one stack. Without ordered runs,
    cases beyond the limits of the system and duplicates are skipped: `iowatch run` leaves them out of its plan already.
    """
    if run.order.runs is not None and run.order.find_run(run.key) is None:
        return "not chosen for this session"
    if run.turn is not None and run.turn.stack != run.key.stack:
        return "a turn of the other stack"
    return _impossible_reason(run) if run.order.runs is None else None


def _impossible_reason(run: CheckedRun) -> str | None:
    """Why the system cannot run a case, or has no use for it."""
    case = run.case
    exceeded_partition = exceeded_partition_limit(case, run.key.partition, run.partition_limits)
    if exceeded_partition is not None:
        return exceeded_partition
    if exceeded := exceeded_limits(case, system_limits(case, run.system)):
        return f"needs {', '.join(exceeded)}"
    if case.nodes > 1 and is_node_local(case, run.system):
        return f"{case.file_system} is local to each node"
    without_targets = no_targets_reason(case, run.system, Path(run.scratch_base))
    if without_targets is not None:
        return without_targets
    same_file_system = []
    for entry in case_entries(case.benchmark, run.system).values():
        if entry.case.file_system == case.file_system:
            same_file_system.append(entry.case)
    return storage.find_duplicate_cases(same_file_system, Path(run.scratch_base)).get(case.run_name)
