"""Work on many systems: one task per system in this process, in local processes, or on the workers of Dask.

A task reads and writes the history itself, so that results of all engines merge there and nothing is sent back but a
summary and what it logged. A task that fails is the fault of one system; the others go on.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from logging.handlers import QueueHandler
from queue import SimpleQueue
from typing import TypeVar

from iowatch.core import IowatchError, format_count, settings
from iowatch.findings import update_findings
from iowatch.session.workers import Engine
from iowatch.store import History

_LOG = logging.getLogger(__name__)
_REPORT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemResult:
    """Result of the task of one system.

    Attributes:
        seconds: of the task.
        fault: why it failed, or None.
        exit_code: of the command line for this fault alone.
    """

    system: str
    seconds: float = 0.0
    fault: str | None = None
    exit_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemUpdate(SystemResult):
    """Result of an update: numbers of findings that are not closed, and of those that need action."""

    findings: int = 0
    need_action: int = 0


R = TypeVar("R", bound=SystemResult)


def update_systems(
    database: str | None, systems: Sequence[str], engine: Engine | None, *, newest_only: bool = False
) -> list[SystemUpdate]:
    """Update the findings of systems, one task each; their updates stay pending for the next notices.

    Args:
        database: of the history, as for `History.open`.
        newest_only: as for `update_findings`.
        engine: as for `run_for_systems`.
    """
    return run_for_systems(partial(_update_system, database, newest_only), SystemUpdate, systems, engine)


def _update_system(database: str | None, newest_only: bool, system: str) -> SystemUpdate:
    with History.existing(database) as history:
        findings = update_findings(history, system, report=False, newest_only=newest_only)
    current = [finding for finding in findings if finding.state in ("open", "suspected", "acknowledged")]
    need_action = [finding for finding in findings if finding.needs_action]
    return SystemUpdate(system=system, findings=len(current), need_action=len(need_action))


def format_faults(results: Iterable[SystemResult]) -> list[str]:
    """One line per system that failed."""
    return [f"{result.system} failed: {result.fault}" for result in results if result.fault is not None]


def summarise_updates(updates: Sequence[SystemUpdate], seconds: float) -> str:
    """For example `99 of 100 systems updated in 48 s; 3 findings of 2 systems need action`."""
    updated = [update for update in updates if update.fault is None]
    number = sum(update.need_action for update in updated)
    text = f"{len(updated)} of {format_count(len(updates), 'system')} updated in {seconds:.0f} s; "
    text += "1 finding needs action" if number == 1 else f"{number} findings need action"
    if number:
        systems = sum(update.need_action > 0 for update in updated)
        text += f" in {format_count(systems, 'system')}"
    return text


def run_for_systems(
    task: Callable[[str], R], result_type: type[R], systems: Sequence[str], engine: Engine | None
) -> list[R]:
    """Run a task for each system; the results are in the order of the systems.

    Progress is logged every ten seconds, and what a task logs when it has ended.

    Args:
        task: from the name of a system to its result; a module's function or a `partial` of one, for other processes.
        result_type: class of the results, also of those of systems that failed.
        engine: opens an executor, with its number of workers; None runs one task after the other here.

    Raises:
        MachineError: the engine does not start.
    """
    if engine is None:
        return [_run_task(name, task, result_type) for name in systems]
    submitted = partial(_run_submitted, task, result_type)
    result_of_system = submitted(systems, engine)
    # A process that is killed ends those of all other systems: each of these gets a process of its own.
    lost_systems = [name for name in systems if name not in result_of_system]
    for name in lost_systems:
        result_of_system |= submitted([name], engine)
        killed = result_type(system=name, fault="its process was killed; is there enough memory?", exit_code=3)
        result_of_system.setdefault(name, killed)
    return [result_of_system[name] for name in systems]


def _run_task(system: str, task: Callable[[str], R], result_type: type[R]) -> R:
    """Run the task of a system; whatever it raises is the fault of the system."""
    start = time.perf_counter()
    try:
        return replace(task(system), seconds=round(time.perf_counter() - start, 3))
    except IowatchError as error:
        return result_type(system=system, fault=str(error), exit_code=error.exit_code)
    except Exception as error:  # a fault of iowatch
        return _failed(system, result_type, error)


@dataclass(frozen=True)
class _RemoteSettings:
    """What a process on this or another host needs of this one.

    Attributes:
        variables: select site and files.
        log_level: lowest level of messages that this process shows.
    """

    variables: Mapping[str, str]
    log_level: int


def _run_remote_task(
    system: str, task: Callable[[str], R], result_type: type[R], remote: _RemoteSettings
) -> tuple[R, list[logging.LogRecord]]:
    """Run the task of a system in a process of the engine; returns its result, and what it logged."""
    os.environ.update(remote.variables)
    # A queue handler makes records that can be sent to another process.
    messages: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handler = QueueHandler(messages)
    # A worker of Dask may run several tasks, each in a thread.
    own_thread = threading.get_ident()
    handler.addFilter(lambda record: record.thread == own_thread)
    logger = logging.getLogger("iowatch")
    logger.setLevel(remote.log_level)
    logger.addHandler(handler)
    try:
        result = _run_task(system, task, result_type)
    finally:
        logger.removeHandler(handler)
    return result, [messages.get() for _ in range(messages.qsize())]


def _failed(system: str, result_type: type[R], error: Exception) -> R:
    reason = " ".join(str(error).split())[:300]
    return result_type(system=system, fault=f"{type(error).__name__}: {reason}", exit_code=3)


def _run_submitted(
    task: Callable[[str], R], result_type: type[R], systems: Sequence[str], engine: Engine
) -> dict[str, R]:
    """Results by system, without those of systems whose process was ended by another one."""
    done: dict[str, R] = {}
    variables = {"IOWATCH_SITE": str(settings.site_root()), "IOWATCH_VAR": str(settings.var_directory().absolute())}
    remote = _RemoteSettings(variables, logging.getLogger("iowatch").getEffectiveLevel())
    start = reported = time.monotonic()
    with engine() as (executor, _):
        tasks = {executor.submit(_run_remote_task, name, task, result_type, remote): name for name in systems}
        for ended in as_completed(tasks):
            name = tasks[ended]
            try:
                done[name], records = ended.result()
            except BrokenProcessPool:
                continue
            except Exception as error:  # of the engine, or of an installation that lacks iowatch
                done[name] = _failed(name, result_type, error)
            else:
                # As if the task had run in this process.
                for record in records:
                    logging.getLogger(record.name).handle(record)
            now = time.monotonic()
            if now - reported >= _REPORT_S:
                reported, left_s = now, (now - start) / len(done) * (len(systems) - len(done))
                _LOG.info("%s of %s systems, %.0f s left", len(done), len(systems), left_s)
    return done
