"""Runs whose samples are those of an earlier run, to the last digit: an output that was printed again.

A program that was replaced, a cache of outputs or a file that was left behind can show a night that did not happen.
Measured times never repeat: three different samples of four digits agree by chance in one of 10^12 nights.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select
from sqlalchemy.orm import aliased

from iowatch.core import DAY_S, METRICS, RunKey
from iowatch.store.schema import ResultTable, RunTable, SeriesTable, SessionTable, StackTable, decode_samples

# A limit of bandwidth can make few samples equal, and a test program prints a constant.
_MIN_DIFFERENT_SAMPLES = 3
_DAYS = 100


@dataclass(frozen=True, slots=True)
class RepeatedRun:
    """A run of which all headline samples equal those of an earlier run.

    Attributes:
        earlier_started_at: epoch seconds of the earlier run.
    """

    key: RunKey
    run_id: int
    earlier_run_id: int
    earlier_started_at: int


def find_repeated_runs(connection: Connection, uuid: str) -> list[RepeatedRun]:
    """Return the runs of a session that repeat the samples of a run of the hundred days before, by their ids."""
    series_of_run, samples_of_run = _measured_results(connection, uuid)
    repeated: dict[int, RepeatedRun] = {}
    for (run_id, earlier_run_id), equal_series in _equal_results(connection, uuid).items():
        different_samples = samples_of_run[run_id]
        is_complete = equal_series == series_of_run[run_id]
        if is_complete and len(different_samples) >= _MIN_DIFFERENT_SAMPLES:
            # The newest one is the last of them.
            repeated[run_id] = _repeated_run(connection, run_id, earlier_run_id)
    return [repeated[run_id] for run_id in sorted(repeated)]


def _headline_names() -> list[str]:
    """Metrics that are measured: counts and sizes are the same in every night."""
    return [name for name, metric in METRICS.items() if metric.headline]


def _measured_results(connection: Connection, uuid: str) -> tuple[dict[int, set[int]], dict[int, set[float]]]:
    """Return the series and the different samples of each run of a session, by run id."""
    statement = (
        select(ResultTable.run_id, ResultTable.series_id, ResultTable.samples)
        .join(RunTable, RunTable.id == ResultTable.run_id)
        .join(SessionTable, SessionTable.id == RunTable.session_id)
        .join(SeriesTable, SeriesTable.id == ResultTable.series_id)
        .where(SessionTable.uuid == uuid, SeriesTable.metric.in_(_headline_names()))
    )
    series_of_run: dict[int, set[int]] = {}
    samples_of_run: dict[int, set[float]] = {}
    for row in connection.execute(statement):
        series_of_run.setdefault(row.run_id, set()).add(row.series_id)
        samples_of_run.setdefault(row.run_id, set()).update(decode_samples(row.samples))
    return series_of_run, samples_of_run


def _equal_results(connection: Connection, uuid: str) -> dict[tuple[int, int], set[int]]:
    """Return the series in which a run of the session and an earlier one have the same samples, by both run ids."""
    earlier = aliased(ResultTable)
    statement = (
        select(ResultTable.run_id, earlier.run_id.label("earlier_run_id"), ResultTable.series_id)
        .join(RunTable, RunTable.id == ResultTable.run_id)
        .join(SessionTable, SessionTable.id == RunTable.session_id)
        .join(SeriesTable, SeriesTable.id == ResultTable.series_id)
        .join(earlier, earlier.series_id == ResultTable.series_id)
        .where(SessionTable.uuid == uuid, SeriesTable.metric.in_(_headline_names()))
        .where(earlier.time < ResultTable.time, earlier.time >= ResultTable.time - _DAYS * DAY_S)
        .where(earlier.samples == ResultTable.samples)
        .order_by(earlier.time)
    )
    equal: dict[tuple[int, int], set[int]] = {}
    for row in connection.execute(statement):
        equal.setdefault((row.run_id, row.earlier_run_id), set()).add(row.series_id)
    return equal


def _repeated_run(connection: Connection, run_id: int, earlier_run_id: int) -> RepeatedRun:
    statement = (
        select(RunTable.partition, StackTable.name.label("stack"), RunTable.name)
        .join(StackTable, StackTable.id == RunTable.stack_id)
        .where(RunTable.id == run_id)
    )
    row = connection.execute(statement).one()
    started_at = connection.execute(select(RunTable.started_at).where(RunTable.id == earlier_run_id)).scalar_one()
    return RepeatedRun(RunKey(row.partition, row.stack, row.name), run_id, earlier_run_id, started_at)
