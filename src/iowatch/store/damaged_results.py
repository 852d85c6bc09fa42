"""Results in a history that are not what was measured: edited summaries, lost samples, implausible values.

Sessions and imports refuse implausible samples before they record a run (`require_plausible_samples`); those in a
history came from elsewhere, or were edited. Findings read summaries only, so that an edited one would hide a change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, select

from iowatch.core import METRICS, InputError, format_count
from iowatch.store.records import RunRecord
from iowatch.store.schema import SAMPLE_BYTES, ResultTable, SeriesTable, SystemTable, decode_many_samples

# Results whose samples are in memory at once: 2 MB with five samples each.
_RESULTS_AT_ONCE = 20_000
# The mean is a sum in another order: it may differ in its last digits.
_MEAN_TOLERANCE = 1e-9
_NAMED_RUNS = 3

DamageKind = Literal["incomplete", "summary", "implausible"]
"""Why a result is not what was measured: samples are lost, its summary is another one, or a sample is implausible."""


@dataclass(frozen=True, slots=True)
class DamagedResult:
    """A result that is not what was measured."""

    run_id: int
    series_id: int
    damage: DamageKind


def require_plausible_samples(run: RunRecord) -> None:
    """Require that all samples of a complete run can have been measured.

    Raises:
        InputError: a sample is not finite, below the floor of its metric, or above its ceiling.
    """
    if run.output.status != "ok":
        return  # they are no points of a series
    for result in run.output.results:
        metric = METRICS.get(result.metric)
        if metric is None:
            continue
        for sample in result.samples:
            if not metric.is_plausible(sample):
                raise InputError(
                    f"{run.name} {result.operation} {result.metric}: a sample of {sample:g} {metric.unit} is not "
                    f"plausible; expected {metric.floor:g} to {metric.ceiling:g} {metric.unit}",
                    hint="Leave out what was not measured.",
                )


def find_damaged_results(
    connection: Connection, system: str | None = None, newest: int | None = None
) -> list[DamagedResult]:
    """Return the results that are not what was measured, newest first.

    Args:
        system: only those of this system; None for all.
        newest: examine only so many results, the newest; None for all.
    """
    statement = _select_results(system, newest)
    damaged: list[DamagedResult] = []
    for rows in connection.execution_options(yield_per=_RESULTS_AT_ONCE).execute(statement).partitions():
        damaged += _damaged_among(rows)
    return damaged


def _select_results(system: str | None, newest: int | None) -> Select[Any]:
    table = ResultTable
    columns: list[Any] = [table.run_id, table.series_id, table.n, table.max, table.median, table.min, table.mean]
    columns += [table.samples, SeriesTable.metric]
    statement: Select[Any] = select(*columns)
    statement = statement.join(SeriesTable, SeriesTable.id == table.series_id)
    statement = statement.order_by(table.run_id.desc()).limit(newest)
    if system is None:
        return statement
    return statement.join(SystemTable, SystemTable.id == SeriesTable.system_id).where(SystemTable.name == system)


def _damaged_among(rows: Sequence[Any]) -> Iterator[DamagedResult]:
    """Yield the damaged ones of some results, in their order."""
    # Samples can be compared only where all of them are there.
    whole = [row for row in rows if row.n >= 1 and len(row.samples) == SAMPLE_BYTES * row.n]
    summaries = _SampleSummaries.of(whole)
    damage_of_whole: dict[tuple[int, int], DamageKind] = {}
    for row, matches in zip(whole, summaries.match(whole).tolist(), strict=True):
        if not matches:
            damage_of_whole[row.run_id, row.series_id] = "summary"
    for row, smallest, largest in zip(whole, summaries.min.tolist(), summaries.max.tolist(), strict=True):
        metric = METRICS.get(row.metric)
        if metric is not None and not (metric.is_plausible(smallest) and metric.is_plausible(largest)):
            damage_of_whole.setdefault((row.run_id, row.series_id), "implausible")
    whole_keys = {(row.run_id, row.series_id) for row in whole}
    for row in rows:
        key = (row.run_id, row.series_id)
        if key not in whole_keys:
            yield DamagedResult(row.run_id, row.series_id, "incomplete")
        elif key in damage_of_whole:
            yield DamagedResult(row.run_id, row.series_id, damage_of_whole[key])


@dataclass(frozen=True)
class _SampleSummaries:
    """Summaries of the samples of many results, each of shape (results,)."""

    max: NDArray[np.float64]
    median: NDArray[np.float64]
    min: NDArray[np.float64]
    mean: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Sequence[Any]) -> _SampleSummaries:
        """Return the summaries of the samples of these rows, each of which has at least one."""
        if not rows:
            nothing = np.empty(0)
            return cls(nothing, nothing, nothing, nothing)
        samples = decode_many_samples([row.samples for row in rows])
        counts = np.array([row.n for row in rows])
        starts = np.cumsum(counts) - counts
        # Each result's samples in ascending order: its smallest first, its median in the middle.
        result_of_sample = np.repeat(np.arange(len(rows)), counts)
        ordered = samples[np.lexsort((samples, result_of_sample))]
        below_middle, above_middle = ordered[starts + (counts - 1) // 2], ordered[starts + counts // 2]
        with np.errstate(over="ignore", invalid="ignore"):
            median = np.where(counts % 2 == 1, below_middle, (below_middle + above_middle) / 2)
            mean = np.add.reduceat(samples, starts) / counts
        return cls(max=ordered[starts + counts - 1], median=median, min=ordered[starts], mean=mean)

    def match(self, rows: Sequence[Any]) -> NDArray[np.bool_]:
        """Return whether the stored summary of each of these rows is this one."""
        stored = np.array([(row.max, row.median, row.min, row.mean) for row in rows], dtype=float).reshape(-1, 4)
        is_exact = (stored[:, 0] == self.max) & (stored[:, 1] == self.median) & (stored[:, 2] == self.min)
        has_mean: NDArray[np.bool_] = np.isclose(stored[:, 3], self.mean, rtol=_MEAN_TOLERANCE, atol=0.0)
        matches: NDArray[np.bool_] = is_exact & has_mean
        return matches


def describe_edited_results(damaged: Sequence[DamagedResult]) -> list[str]:
    """Return one sentence about the results whose summaries are not those of their samples; none without any."""
    edited = [result for result in damaged if result.damage != "implausible"]
    if not edited:
        return []
    count = format_count(len(edited), "result")
    return [
        f"{count} in the history ({_format_runs(edited)}): the summary is not that of the samples; the history is "
        "damaged or was edited: restore a backup (docs/history.md)"
    ]


def describe_implausible_results(damaged: Sequence[DamagedResult]) -> list[str]:
    """Return one sentence about the results that cannot have been measured; none without any."""
    implausible = [result for result in damaged if result.damage == "implausible"]
    if not implausible:
        return []
    count = format_count(len(implausible), "result")
    return [
        f"{count} in the history ({_format_runs(implausible)}) cannot have been measured, and no finding uses them; "
        "`iowatch history show --run N` shows them"
    ]


def _format_runs(damaged: Sequence[DamagedResult]) -> str:
    """Name the runs of some results: `run 812`, or `runs 813, 812, …`."""
    run_ids = dict.fromkeys(result.run_id for result in damaged)
    runs = [str(run_id) for run_id in run_ids]
    if len(runs) == 1:
        return f"run {runs[0]}"
    more = ", …" if len(runs) > _NAMED_RUNS else ""
    return f"runs {', '.join(runs[:_NAMED_RUNS])}{more}"
