"""Sessions and series as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from iowatch import core
from iowatch.core import artefacts
from iowatch.output.text.problems import describe_run
from iowatch.site import system_zone
from iowatch.store import Artefact, ExpectedResult, RunRow, SeriesRow, SessionRow

if TYPE_CHECKING:
    from rich.console import Console

    from iowatch.darshan import BandwidthComparison
    from iowatch.session.imports import TablePreview

# An extension may say much about a run; its page shows more.
_MAX_LINES_OF_EXTENSION = 12
ResultsOfRun = Sequence[tuple[SeriesRow, tuple[float, ...]]]
"""Each result of a run: its series and its samples."""


@dataclass(frozen=True)
class PrintedRun:
    """A run of a session with its results and its artefacts."""

    run: RunRow
    results: ResultsOfRun
    files: Sequence[Artefact]


def format_case_name(case: core.Case) -> str:
    """A case as text: `benchio write MPIIO shared ranks=4 …`."""
    parameters = dict(case.parameters)
    words = [case.benchmark]
    for name in ("operation", "api", "file"):
        if name in parameters:
            words.append(str(parameters.pop(name)))
    for name, value in sorted(parameters.items()):
        text = str(value)
        if isinstance(value, bool):
            text = text.lower()  # as in JSON and in reference files: `true`, not Python's `True`
        words.append(f"{name}={text}")
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
    session: SessionRow,
    runs: Sequence[PrintedRun],
    missing: Sequence[ExpectedResult],
    every_file: bool,
) -> None:
    """Print a session, its runs with all results, missing results, and the paths of artefacts.

    Args:
        every_file: list the artefacts of all runs; else only those of failed or incomplete runs.
    """
    started = _format_time(session.started_at, session.system)
    heading = f"{session.uuid}  {session.system}  {session.suite}  {session.status}  {started}"
    console.print(heading, markup=False)
    partitions = {result.partition for result in missing}
    partitions |= {printed.run.partition for printed in runs}
    with_partition = len(partitions) > 1
    console.print(_make_result_table(runs, with_partition))
    # What is to be known about the numbers.
    lines = [*_saturation_lines(runs), *_bandwidth_lines(runs), *_slow_node_lines(runs), *_slow_message_lines(runs)]
    lines += _slow_target_lines(runs)
    lines += [*_retest_lines(runs), *_extension_lines(runs), *_node_lines(runs)]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    for result in missing:
        missing_line = f"missing: {describe_run(result.key, with_partition)} {result.operation} {result.metric}"
        console.print(missing_line, markup=False)
    _print_files(console, runs, every_file)


def _make_result_table(runs: Sequence[PrintedRun], with_partition: bool) -> core.PlainTable:
    """A table with one line per result, and one per run without results.

    Args:
        with_partition: whether there are several partitions.
    """
    names = ("run", "partition", "stack") if with_partition else ("run", "stack")
    table = _make_history_table(*names, "status", "result", "max", "median", "min", "unit", "n")
    for printed in runs:
        run = printed.run
        cells = (run.name, run.partition, run.stack) if with_partition else (run.name, run.stack)
        if not printed.results:
            table.add_row(*cells, run.status, run.reason or "", "", "", "", "", "")
        for series, samples in printed.results:
            summary = core.summarise_samples(samples)
            numbers = [core.format_number(value) for value in (summary.max, summary.median, summary.min)]
            result = f"{series.case.parameters.get('operation', '')} {series.metric}"
            # A history may have metrics of a plugin that is not installed here.
            unit = core.METRICS[series.metric].unit if series.metric in core.METRICS else ""
            table.add_row(*cells, run.status, result, *numbers, unit, str(summary.n))
    return table


def _bandwidth_lines(runs: Iterable[PrintedRun]) -> Iterator[str]:
    """The runs of which Darshan and the benchmark measured different bandwidths."""
    for printed in runs:
        bandwidths = compare_run_bandwidths(printed.results)
        if bandwidths is not None and bandwidths.disagree:
            yield f"bandwidth of {printed.run.name}, {printed.run.stack}: {bandwidths.text}"


def _saturation_lines(runs: Iterable[PrintedRun]) -> Iterator[str]:
    """The runs of which others used the processors of the node."""
    from iowatch.output.text.sessions import format_saturation

    for printed in runs:
        pressure = core.processor_saturation(printed.run.facts.document)
        if pressure is not None:
            yield f"{printed.run.name}, {printed.run.stack}: {format_saturation([pressure])}"


def _slow_node_lines(runs: Iterable[PrintedRun]) -> Iterator[str]:
    """The runs of which a node was slower than the others."""
    from iowatch.output.text.evidence import slow_node_lines

    for printed in runs:
        for line in slow_node_lines(printed.run.facts):
            yield f"slow node of {printed.run.name}, {printed.run.stack}: {line}"


def _node_lines(runs: Iterable[PrintedRun]) -> Iterator[str]:
    """What was not the same on all nodes of a run."""
    from iowatch.output.text.sessions import format_node_difference

    for printed in runs:
        for difference in core.find_node_differences(printed.run.facts.each_node):
            yield f"nodes of {printed.run.name}, {printed.run.stack}, differ: {format_node_difference(difference)}"


def _slow_message_lines(runs: Iterable[PrintedRun]) -> Iterator[str]:
    """The runs that found nodes whose messages are slow."""
    from iowatch.output.text.sessions import format_slow_nodes

    for printed in runs:
        pairs = printed.run.facts.node_pairs
        if pairs is not None and pairs.slow_nodes:
            yield f"{printed.run.name}, {printed.run.stack}: {format_slow_nodes(pairs)}"


def _slow_target_lines(runs: Iterable[PrintedRun]) -> Iterator[str]:
    """The runs that found slow targets."""
    from iowatch.output.text.evidence import slow_target_lines

    for printed in runs:
        for line in slow_target_lines(printed.run.facts):
            yield f"{printed.run.name}, {printed.run.stack}: {line}"


def _retest_lines(runs: Iterable[PrintedRun]) -> Iterator[str]:
    # Imported here: the list of sessions is printed without lower packages.
    from iowatch.findings import find_retests
    from iowatch.output.text.sessions import format_retest

    for retest in find_retests([printed.run for printed in runs]):
        measured = f"retest of {retest.name}, {retest.stack}: {format_retest(retest)}"
        yield f"{measured}; both are one observation, their geometric mean"


def _extension_lines(runs: Iterable[PrintedRun]) -> Iterator[str]:
    """What the extensions of checks recorded about the runs."""
    from iowatch.checks import EXTENSIONS

    for printed in runs:
        for extension in EXTENSIONS.values():
            section = extension.describe(printed.run.facts.document, _MAX_LINES_OF_EXTENSION)
            if section is None:
                continue
            _title, lines = section
            for line in lines:
                yield f"{extension.name} of {printed.run.name}, {printed.run.stack}: {line}"


def _print_files(console: Console, runs: Sequence[PrintedRun], every_file: bool) -> None:
    """Print the artefacts of all runs, or of those that are not ok, and how to see the others."""
    has_unlisted_files = False
    for printed in runs:
        run = printed.run
        if not printed.files:
            continue
        if run.status == "ok" and not every_file:
            has_unlisted_files = True
            continue
        heading = f"files of {run.name} on {run.partition}, {run.stack} ({run.status}):"
        console.print(heading, markup=False)
        for file in printed.files:
            location = artefact_location(file) or f"{file.sha256} no longer kept"
            size = core.format_size(file.size_bytes)
            console.print(f"  {file.kind:8} {size:>9}  {location}", markup=False, soft_wrap=True)
    if has_unlisted_files:
        console.print("Where the outputs and Darshan logs of all runs lie: --files", markup=False)


def compare_run_bandwidths(results: ResultsOfRun) -> BandwidthComparison | None:
    """Compare the bandwidth of a run as measured by Darshan and by the benchmark."""
    from iowatch.darshan import compare_bandwidths

    measured: list[tuple[str, str, tuple[float, ...]]] = []
    for series, samples in results:
        operation = str(series.case.parameters.get("operation", ""))
        measured.append((operation, series.metric, samples))
    return compare_bandwidths(measured)


def artefact_location(file: Artefact) -> Path | None:
    """Path of an artefact; None if it was pruned, or is on another machine."""
    try:
        path = artefacts.artefact_path(file.sha256).absolute()
    except core.InputError:
        return None
    return path if path.is_file() else None


def print_table_preview(console: Console, preview: TablePreview) -> None:
    """Print what tables would become: totals, conversions, one series per line."""
    counts = [core.format_count(preview.sessions, "session"), core.format_count(preview.runs, "run")]
    if preview.failed:
        counts.append(f"{preview.failed} failed")
    counts.append(core.format_count(len(preview.series), "series"))
    refused = sum(problem.refused for problem in preview.troubles)
    console.print(f"map {preview.map}: {', '.join(counts)}; {refused} refused; nothing is stored", markup=False)
    # Rows of the tables that are no values.
    numbers_by_reason = {
        "excluded by the map": preview.skipped,
        "without a value": preview.empty,
        "repeated": preview.repeated,
    }
    for reason, number in numbers_by_reason.items():
        if number:
            console.print(f"  {core.format_count(number, 'row')} {reason}")
    if preview.ambiguous:
        console.print(f"  times that occur twice, when summer time ends (the first is used): {preview.ambiguous}")
    for unit, metric, stored_unit, number in preview.units:
        values = core.format_count(number, "value")
        console.print(f"  {metric}: {values} in {unit}, stored in {stored_unit}", markup=False)
    table = core.make_table(
        "partition", "stack", "case", "metric", "n", "first", "last", "min", "median", "max", "unit",
        right=("n", "min", "median", "max"),
    )  # fmt: skip
    for row in preview.series:
        numbers = [core.format_number(value) for value in (row.min, row.median, row.max)]
        times = [_format_time(time, preview.system) for time in (row.first, row.last)]
        case = format_case_name(row.case)
        table.add_row(row.partition, row.stack, case, row.metric, str(row.n), *times, *numbers, row.unit)
    console.print(table if preview.series else "No series.")
