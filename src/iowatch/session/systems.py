"""Findings of many systems: one task per system in this process, in local processes, or on the workers of Dask.

A task reads and writes the history itself, so that results of all engines merge there and nothing is sent back but a
summary. A task that fails is the fault of one system; the others go on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

from iowatch.core import IowatchError, format_count, settings
from iowatch.findings import update_findings
from iowatch.store import History

Engine = Callable[[], AbstractContextManager[tuple[Executor, int]]]
_REPORT_S = 10.0


@dataclass(frozen=True, slots=True)
class SystemUpdate:
    """Result of the task of one system.

    Attributes:
        findings, need_action: numbers of findings that are not closed, and of those that need action.
        seconds: of the task.
        fault: why it failed, or None.
        exit_code: of the command line for this fault alone.
    """

    system: str
    findings: int = 0
    need_action: int = 0
    seconds: float = 0.0
    fault: str | None = None
    exit_code: int = 0


def update_system(place: str | None, system: str, newest_only: bool, variables: Mapping[str, str]) -> SystemUpdate:
    """Update the findings of one system; their updates stay pending for the next notices.

    Args:
        place: of the history, as for `History.open`.
        variables: environment variables that select site and files, for workers on other hosts.
    """
    os.environ.update(variables)
    start = time.perf_counter()
    try:
        with History.existing(place) as history:
            found = update_findings(history, system, report=False, newest_only=newest_only)
    except IowatchError as error:
        return SystemUpdate(system, fault=str(error), exit_code=error.exit_code)
    shown = [one for one in found if one.state in ("open", "suspected", "acknowledged")]
    need_action, seconds = sum(one.needs_action for one in found), round(time.perf_counter() - start, 3)
    return SystemUpdate(system, len(shown), need_action, seconds)


def summarise_updates(updates: Sequence[SystemUpdate], seconds: float) -> str:
    """For example `99 of 100 systems updated in 48 s; 3 findings of 2 systems need action`."""
    done = [one for one in updates if one.fault is None]
    number = sum(one.need_action for one in done)
    need = f"{number} finding{' needs' if number == 1 else 's need'} action"
    of_systems = f" in {format_count(sum(one.need_action > 0 for one in done), 'system')}" if number else ""
    return f"{len(done)} of {format_count(len(updates), 'system')} updated in {seconds:.0f} s; {need}{of_systems}"


@contextmanager
def local_processes(workers: int) -> Iterator[tuple[Executor, int]]:
    """Yield an executor of processes on this host, and their number."""
    # Spawned, not forked: a forked process would inherit open connections to the history.
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        yield pool, workers


def update_systems(
    place: str | None,
    systems: Sequence[str],
    engine: Engine | None,
    *,
    newest_only: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> list[SystemUpdate]:
    """Update the findings of systems, one task each; the results are in the order of the systems.

    Args:
        place: of the history, as for `History.open`.
        engine: opens an executor, with its number of workers; None updates one system after the other here.
        newest_only: as for `update_findings`.
        report: receives one line of progress every ten seconds.

    Raises:
        MachineError: the engine does not start.
    """
    variables = {"IOWATCH_SITE": str(settings.site_root()), "IOWATCH_VAR": str(settings.var_directory().absolute())}
    work = _Work(place, newest_only, variables)
    if engine is None:
        done = {name: work.in_this_process(name) for name in systems}
    else:
        done = work.run(systems, engine, report)
        # A process that is killed ends those of all other systems: each of these gets a process of its own.
        for name in [name for name in systems if name not in done]:
            done |= work.run([name], engine, report)
            done.setdefault(
                name, SystemUpdate(name, fault="its process was killed; is there enough memory?", exit_code=3)
            )
    return [done[name] for name in systems]


@dataclass(frozen=True)
class _Work:
    """What the tasks of all systems have in common."""

    place: str | None
    newest_only: bool
    variables: Mapping[str, str]

    def in_this_process(self, system: str) -> SystemUpdate:
        return _result(system, partial(update_system, self.place, system, self.newest_only, {}))

    def run(self, systems: Sequence[str], engine: Engine, report: Callable[[str], None]) -> dict[str, SystemUpdate]:
        """Results by system, without those of systems whose process was ended by another one."""
        done: dict[str, SystemUpdate] = {}
        start = reported = time.monotonic()
        with engine() as (executor, _):
            tasks: dict[Future[SystemUpdate], str] = {
                executor.submit(update_system, self.place, name, self.newest_only, self.variables): name
                for name in systems
            }
            for task in as_completed(tasks):
                try:
                    done[tasks[task]] = _result(tasks[task], task.result)
                except BrokenProcessPool:
                    continue
                now = time.monotonic()
                if now - reported >= _REPORT_S:
                    reported, left_s = now, (now - start) / len(done) * (len(systems) - len(done))
                    report(f"{len(done)} of {len(systems)} systems, {left_s:.0f} s left")
        return done


def _result(system: str, work: Callable[[], SystemUpdate]) -> SystemUpdate:
    """Result of a task; whatever it raises is the fault of its system."""
    try:
        return work()
    except BrokenProcessPool:
        raise
    except Exception as error:  # of the engine, of an installation that lacks iowatch, or a fault of iowatch
        reason = " ".join(str(error).split())[:300]
        return SystemUpdate(system, fault=f"{type(error).__name__}: {reason}", exit_code=3)
