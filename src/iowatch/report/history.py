"""Sessions and series as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from iowatch import artefacts, tables
from iowatch.darshan.results import Bandwidths, bandwidths
from iowatch.errors import InputError
from iowatch.metrics import METRICS
from iowatch.model import Case, summarise
from iowatch.store import ExpectedResult, RunRow, SeriesRow, SessionRow
from iowatch.store.records import Artefact
from iowatch.tables import Plain
from iowatch.units import format_number, format_size, format_time

Files = Mapping[int, Sequence[Artefact]]
Results = Sequence[tuple[SeriesRow, tuple[float, ...]]]


def case_words(case: Case) -> str:
    """A case for people: `benchio write MPIIO shared ranks=4 …`."""
    parameters = dict(case.parameters)
    words = [case.benchmark] + [str(parameters.pop(k)) for k in ("operation", "api", "file") if k in parameters]
    return " ".join(words + [f"{name}={_word(value)}" for name, value in sorted(parameters.items())])


def _word(value: object) -> str:
    """As in JSON and in reference files: `true`, not Python's `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _when(seconds: int | None) -> str:
    return "–" if seconds is None else format_time(datetime.fromtimestamp(seconds, UTC))


def _table(*columns: str) -> Plain:
    return tables.table(*columns, right=("n", "runs", "max", "median", "min"))


def print_sessions(console: Console, rows: Sequence[SessionRow]) -> None:
    """Sessions, one a line."""
    table = _table("session", "system", "suite", "status", "started (UTC)", "runs")
    for row in rows:
        table.add_row(row.uuid, row.system, row.suite, row.status, _when(row.started_at), str(row.runs))
    console.print(table if rows else "No sessions yet: `iowatch run` or `iowatch import` makes some.")


def print_series(console: Console, rows: Sequence[SeriesRow]) -> None:
    """Series, one a line."""
    table = _table("id", "system", "stack", "case", "metric", "n", "last (UTC)")
    for row in rows:
        table.add_row(
            str(row.id), row.system, row.stack, case_words(row.case), row.metric, str(row.n), _when(row.last)
        )
    console.print(table if rows else "No series yet: `iowatch run` or `iowatch import` makes some.")


def print_session(
    console: Console,
    row: SessionRow,
    runs: Sequence[tuple[RunRow, Results]],
    absent: Sequence[ExpectedResult],
    files: Files,
    every_file: bool,
) -> None:
    """A session, its runs with all results, what is absent, and where the files of runs lie.

    Args:
        files: by run.
        every_file: of all runs; else only of those that did not end well.
    """
    console.print(f"{row.uuid}  {row.system}  {row.suite}  {row.status}  {_when(row.started_at)}", markup=False)
    table = _table("run", "stack", "status", "result", "max", "median", "min", "unit", "n")
    for run, results in runs:
        if not results:
            table.add_row(run.name, run.stack, run.status, run.reason or "", "", "", "", "", "")
        for series, samples in results:
            s = summarise(samples)
            operation = series.case.parameters.get("operation", "")
            unit = METRICS[series.metric].unit if series.metric in METRICS else ""
            numbers = [format_number(value) for value in (s.max, s.median, s.min)]
            table.add_row(
                run.name, run.stack, run.status, f"{operation} {series.metric}", *numbers, unit, str(s.n)
            )
    console.print(table)
    for run, results in runs:
        both = run_bandwidths(results)
        if both is not None and both.far:
            console.print(f"bandwidth of {run.name}, {run.stack}: {both.text}", markup=False, soft_wrap=True)
    for item in absent:
        console.print(f"absent: {item.stack} {item.run_name} {item.operation} {item.metric}", markup=False)
    told = [run for run, _ in runs if files.get(run.id) and (every_file or run.status != "ok")]
    for run in told:
        console.print(f"files of {run.name} on {run.partition}, {run.stack} ({run.status}):", markup=False)
        for one in files[run.id]:
            where = kept(one) or f"{one.sha256} no longer kept"
            size = format_size(one.size_bytes)
            console.print(f"  {one.kind:8} {size:>9}  {where}", markup=False, soft_wrap=True)
    if len(told) < sum(run.id in files for run, _ in runs):
        console.print("Where the outputs and Darshan logs of all runs lie: --files", markup=False)


def run_bandwidths(results: Results) -> Bandwidths | None:
    """A run's bandwidth by Darshan and by the benchmark."""
    rows = ((str(one.case.parameters.get("operation", "")), one.metric, samples) for one, samples in results)
    return bandwidths(rows)


def kept(file: Artefact) -> Path | None:
    """Where a file of a run lies; None where it was pruned, or is on another machine."""
    try:
        path = artefacts.path_of(file.sha256).absolute()
    except InputError:
        return None
    return path if path.is_file() else None
