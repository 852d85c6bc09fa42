"""Sessions and series as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from iowatch import core
from iowatch.core import artefacts
from iowatch.site import system_zone
from iowatch.store import Artefact, ExpectedResult, RunRow, SeriesRow, SessionRow

if TYPE_CHECKING:
    from rich.console import Console

    from iowatch.darshan import BandwidthComparison
    from iowatch.session.imports import TablePreview

# An extension may say much about a run; its page shows more.
_MAX_LINES_OF_EXTENSION = 12
FilesByRun = Mapping[int, Sequence[Artefact]]
ResultsByRun = Sequence[tuple[SeriesRow, tuple[float, ...]]]


def format_case_name(case: core.Case) -> str:
    """A case as text: `benchio write MPIIO shared ranks=4 …`."""
    parameters = dict(case.parameters)
    words = [case.benchmark] + [str(parameters.pop(k)) for k in ("operation", "api", "file") if k in parameters]
    for name, value in sorted(parameters.items()):
        # As in JSON and in reference files: `true`, not Python's `True`.
        words.append(f"{name}={str(value).lower() if isinstance(value, bool) else value}")
    return " ".join(words)


def _format_time(seconds: int | None, system: str) -> str:
    return "–" if seconds is None else core.format_local_time(seconds, system_zone(system))


def _make_history_table(*columns: str) -> core.PlainTable:
    return core.make_table(*columns, right=("n", "runs", "max", "median", "min"))


def print_sessions(console: Console, rows: Sequence[SessionRow]) -> None:
    """Print sessions, one per line."""
    table = _make_history_table("session", "system", "suite", "status", "started", "runs")
    zones = {system: system_zone(system) for system in {row.system for row in rows}}
    for row in rows:
        started = core.format_local_time(row.started_at, zones[row.system])
        table.add_row(row.uuid, row.system, row.suite, row.status, started, str(row.runs))
    console.print(table if rows else "No sessions yet: `iowatch run` or `iowatch import` makes some.")


def print_series(console: Console, rows: Sequence[SeriesRow]) -> None:
    """Print series, one per line."""
    table = _make_history_table("id", "system", "stack", "case", "metric", "n", "last")
    for row in rows:
        case, last = format_case_name(row.case), _format_time(row.last, row.system)
        table.add_row(str(row.id), row.system, row.stack, case, row.metric, str(row.n), last)
    console.print(table if rows else "No series yet: `iowatch run` or `iowatch import` makes some.")


def print_session(
    console: Console,
    row: SessionRow,
    runs: Sequence[tuple[RunRow, ResultsByRun]],
    missing: Sequence[ExpectedResult],
    files: FilesByRun,
    every_file: bool,
) -> None:
    """Print a session, its runs with all results, missing results, and the paths of artefacts.

    Args:
        files: artefacts by run.
        every_file: list the artefacts of all runs; else only those of failed or incomplete runs.
    """
    # What only this function needs of lower packages; the list of sessions is printed without.
    from iowatch.checks import EXTENSIONS
    from iowatch.findings import find_retests
    from iowatch.output.text.sessions import format_retest

    started = _format_time(row.started_at, row.system)
    console.print(f"{row.uuid}  {row.system}  {row.suite}  {row.status}  {started}", markup=False)
    table = _make_history_table("run", "stack", "status", "result", "max", "median", "min", "unit", "n")
    for run, results in runs:
        if not results:
            table.add_row(run.name, run.stack, run.status, run.reason or "", "", "", "", "", "")
        for series, samples in results:
            s = core.summarise_samples(samples)
            operation = series.case.parameters.get("operation", "")
            unit = core.METRICS[series.metric].unit if series.metric in core.METRICS else ""
            numbers = [core.format_number(value) for value in (s.max, s.median, s.min)]
            table.add_row(run.name, run.stack, run.status, f"{operation} {series.metric}", *numbers, unit, str(s.n))
    console.print(table)
    for run, results in runs:
        both = compare_run_bandwidths(results)
        if both is not None and both.disagree:
            console.print(f"bandwidth of {run.name}, {run.stack}: {both.text}", markup=False, soft_wrap=True)
    for retest in find_retests([run for run, _ in runs]):
        measured = f"retest of {retest.name}, {retest.stack}: {format_retest(retest)}"
        console.print(f"{measured}; both are one observation, their geometric mean", markup=False, soft_wrap=True)
    for run, _ in runs:
        for extension in EXTENSIONS.values():
            _title, lines = extension.describe(run.facts.document, _MAX_LINES_OF_EXTENSION) or ("", [])
            for line in lines:
                console.print(f"{extension.name} of {run.name}, {run.stack}: {line}", markup=False, soft_wrap=True)
    for item in missing:
        console.print(f"missing: {item.stack} {item.run_name} {item.operation} {item.metric}", markup=False)
    listed = [run for run, _ in runs if files.get(run.id) and (every_file or run.status != "ok")]
    for run in listed:
        console.print(f"files of {run.name} on {run.partition}, {run.stack} ({run.status}):", markup=False)
        for one in files[run.id]:
            where = artefact_location(one) or f"{one.sha256} no longer kept"
            size = core.format_size(one.size_bytes)
            console.print(f"  {one.kind:8} {size:>9}  {where}", markup=False, soft_wrap=True)
    if len(listed) < sum(run.id in files for run, _ in runs):
        console.print("Where the outputs and Darshan logs of all runs lie: --files", markup=False)


def compare_run_bandwidths(results: ResultsByRun) -> BandwidthComparison | None:
    """Compare the bandwidth of a run as measured by Darshan and by the benchmark."""
    from iowatch.darshan import compare_bandwidths

    rows = ((str(one.case.parameters.get("operation", "")), one.metric, samples) for one, samples in results)
    return compare_bandwidths(rows)


def artefact_location(file: Artefact) -> Path | None:
    """Path of an artefact; None if it was pruned, or is on another machine."""
    try:
        path = artefacts.artefact_path(file.sha256).absolute()
    except core.InputError:
        return None
    return path if path.is_file() else None


def print_table_preview(console: Console, preview: TablePreview) -> None:
    """Print what tables would become: totals, conversions, one series per line."""
    failed = f", {preview.failed} failed" if preview.failed else ""
    refused = sum(problem.refused for problem in preview.troubles)
    console.print(
        f"map {preview.map}: {core.format_count(preview.sessions, 'session')}, {core.format_count(preview.runs, 'run')}"
        f"{failed}, {core.format_count(len(preview.series), 'series')}; {refused} refused; nothing is stored",
        markup=False,
    )
    rows = (
        ("excluded by the map", preview.skipped),
        ("without a value", preview.empty),
        ("repeated", preview.repeated),
    )
    for what, number in rows:
        if number:
            console.print(f"  {core.format_count(number, 'row')} {what}")
    if preview.ambiguous:
        console.print(f"  times that occur twice, when summer time ends (the first is used): {preview.ambiguous}")
    for unit, metric, stored, number in preview.units:
        console.print(f"  {metric}: {core.format_count(number, 'value')} in {unit}, stored in {stored}", markup=False)
    table = core.make_table(
        "partition", "stack", "case", "metric", "n", "first", "last", "min", "median", "max", "unit",
        right=("n", "min", "median", "max"),
    )  # fmt: skip
    for row in preview.series:
        numbers = [core.format_number(value) for value in (row.min, row.median, row.max)]
        times = [_format_time(moment, preview.system) for moment in (row.first, row.last)]
        case = format_case_name(row.case)
        table.add_row(row.partition, row.stack, case, row.metric, str(row.n), *times, *numbers, row.unit)
    console.print(table if preview.series else "No series.")
