"""Slow targets: which target of a file system is slower than the others, and since when.

    fact `target_rates` of runs ──> targets x sessions of two months ── statistics.slow_siblings ──> SlowTarget

All targets of a session were measured within minutes by the same node, so that common load cancels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iowatch.core import TARGET_OPERATIONS, TARGET_RATES_FACT, TargetRates
from iowatch.findings.deviations import CURRENT_S, SessionDeviations, SessionMark, rows_by_name
from iowatch.findings.finding import SlowTarget
from iowatch.statistics.slow_siblings import newest_slow_tables, sibling_deviations, slow_siblings
from iowatch.store import History, RunWithFact


@dataclass(frozen=True)
class TargetRatio:
    """A target that was slower than the other targets of one run, in all of its repetitions.

    Attributes:
        ratio: its time per byte / median of the other targets, median over the repetitions.
        others: number of the other targets of the run.
    """

    target: str
    location: str
    operation: str
    ratio: float
    others: int
    repetitions: int


def slow_targets_of_run(rates: TargetRates) -> tuple[TargetRatio, ...]:
    """Return the targets of a run that were slower than the others, the slowest first; its past is not looked at."""
    slow: list[TargetRatio] = []
    for operation in TARGET_OPERATIONS:
        times = _times(rates, operation)
        if times is None:
            continue
        for row in slow_siblings(times):
            name, location = rates.names[row.row], rates.locations[row.row]
            slow.append(TargetRatio(name, location, operation, row.ratio, len(times) - 1, times.shape[1]))
    return tuple(sorted(slow, key=lambda target: -target.ratio))


def _times(rates: TargetRates, operation: str) -> NDArray[np.float64] | None:
    """Times per MiB, shape (targets, repetitions); None without any: facts may be of other programs."""
    of_targets = rates.rates_of(operation)
    columns = {len(of_target) for of_target in of_targets}
    is_complete = len(of_targets) == len(rates.names) == len(rates.locations) and len(columns) == 1 and 0 not in columns
    if not is_complete:
        return None
    table = np.array(of_targets, dtype=np.float64)
    return 1 / table if np.all(table > 0) else None


@dataclass(frozen=True, eq=False)
class SessionTimes:
    """Times per MiB of the targets of a session, at least two; shape (names, repetitions of all its runs)."""

    names: tuple[str, ...]
    times: NDArray[np.float64]

    def typical(self) -> dict[str, float]:
        """Typical deviation of each target from the others."""
        medians = np.median(sibling_deviations(self.times), axis=1)
        return dict(zip(self.names, map(float, medians), strict=True))


@dataclass(frozen=True, eq=False)
class TargetTable:
    """Sessions of one operation on one file system: typical deviations of the targets, and their times.

    Attributes:
        times: of each session of `deviations`.
    """

    deviations: SessionDeviations
    times: Sequence[SessionTimes]


def target_tables(history: History, system: str, since: int) -> tuple[TargetTable, ...]:
    """Return what sessions measured of the targets of a system, by file system and operation.

    Args:
        since: epoch seconds.
    """
    by_file_system: dict[str, list[RunWithFact]] = {}
    for run in history.runs_with_fact(system, TARGET_RATES_FACT, since):
        by_file_system.setdefault(run.facts.file_system or "", []).append(run)
    tables: list[TargetTable] = []
    for file_system, runs_on_it in sorted(by_file_system.items()):
        for operation in TARGET_OPERATIONS:
            table = _target_table(file_system, operation, runs_on_it)
            if table is not None:
                tables.append(table)
    return tuple(tables)


def find_slow_targets(tables: Sequence[TargetTable], now: int) -> tuple[SlowTarget, ...]:
    """Return the targets that are slow in the newest session that measured them, the slowest first.

    Args:
        now: start of the newest session of the system, epoch seconds; earlier ones count for `CURRENT_S`.
    """
    slow: list[SlowTarget] = []
    for table in tables:
        slow += _slow_targets(table, now)
    return tuple(sorted(slow, key=lambda target: -target.ratio))


def _target_table(file_system: str, operation: str, runs: Sequence[RunWithFact]) -> TargetTable | None:
    """The table of an operation; None if no run measured it.

    Args:
        runs: of all sessions, in order of time.
    """
    runs_by_session: dict[SessionMark, list[TargetRates]] = {}
    locations: dict[str, str] = {}
    for run in runs:
        rates = run.facts.target_rates
        if rates is None or _times(rates, operation) is None:
            continue
        runs_by_session.setdefault(SessionMark.of_run(run), []).append(rates)
        locations.update(zip(rates.names, rates.locations, strict=True))
    times: dict[SessionMark, SessionTimes] = {}
    for mark, rates_of_session in runs_by_session.items():
        of_session = _joined_times(rates_of_session, operation)
        # A single target has no sibling.
        if len(of_session.names) > 1:
            times[mark] = of_session
    if not times:
        return None
    rows = rows_by_name([of_session.typical() for of_session in times.values()])
    table = SessionDeviations(file_system, operation, rows.names, locations, tuple(times), rows.values)
    return TargetTable(table, tuple(times.values()))


def _joined_times(runs: Sequence[TargetRates], operation: str) -> SessionTimes:
    """The times of the targets that all runs of a session measured: of several stacks, each repetition confirms."""
    common = set(runs[0].names).intersection(*(set(rates.names) for rates in runs[1:]))
    names = tuple(name for name in runs[0].names if name in common)
    columns: list[NDArray[np.float64]] = []
    for rates in runs:
        times = _times(rates, operation)
        assert times is not None
        rows = [rates.names.index(name) for name in names]
        columns.append(times[rows])
    return SessionTimes(names, np.concatenate(columns, axis=1))


def _slow_targets(target_table: TargetTable, now: int) -> Iterator[SlowTarget]:
    """The slow targets of one table, each in the newest session that measured it; `now` as for all tables."""
    table = target_table.deviations
    positions = {name: position for position, name in enumerate(table.names)}
    newest_of_target = _newest_sessions(table.deviations)
    for column, of_session in enumerate(target_table.times):
        rows = [positions[name] for name in of_session.names]
        is_newest_of_any = any(newest_of_target[row] == column for row in rows)
        is_recent = now - table.sessions[column].start <= CURRENT_S
        if not (is_newest_of_any and is_recent):
            continue
        for slow_row in slow_siblings(of_session.times, table.deviations[rows, :column]):
            row = rows[slow_row.row]
            if newest_of_target[row] != column:
                continue
            measured = np.flatnonzero(np.isfinite(table.deviations[row]))
            # The newest session is one of them, because all of its repetitions were slow.
            slow_sessions = newest_slow_tables(table.deviations[row, measured])
            name = table.names[row]
            yield SlowTarget(
                target=name,
                location=table.locations[name],
                file_system=table.owner or None,
                operation=table.operation,
                ratio=slow_row.ratio,
                usual_ratio=slow_row.usual_ratio,
                others=len(rows) - 1,
                repetitions=of_session.times.shape[1],
                session=table.sessions[column].uuid,
                since=table.sessions[measured[-slow_sessions]].start,
                slow_sessions=slow_sessions,
                sessions=len(measured),
            )


def _newest_sessions(deviations: NDArray[np.float64]) -> NDArray[np.int64]:
    """Position of the newest session of each target; shape (targets,)."""
    is_known = np.isfinite(deviations)
    return np.asarray(deviations.shape[1] - 1 - np.argmax(is_known[:, ::-1], axis=1), dtype=np.int64)
