"""Presentation of a trace: text for the terminal, and PyDarshan's full report.

Text from a log is shown as plain characters only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from iowatch.core import PAGES, UsageError, escape_line, format_number, format_size, make_table, missing_extra_error
from iowatch.darshan.hints import derive_hints
from iowatch.darshan.summary import summarise_log
from iowatch.darshan.targets import read_targets, target_lines
from iowatch.darshan.trace import Trace
from iowatch.darshan.worker import DarshanReader

# Modules that move data; their counters have the same prefix without the hyphen.
_LAYERS = ("POSIX", "MPI-IO", "STDIO", "H5D", "PNETCDF_VAR", "DFS")
_ACCESS_KINDS = ("", "COLL_", "INDEP_", "NB_", "SPLIT_")
_SHARES = (
    ("metadata_time_share", "I/O time in metadata"),
    ("collective_write_share", "writes collective"),
    ("collective_read_share", "reads collective"),
    ("small_write_share", "writes to 100 KiB"),
    ("small_read_share", "reads to 100 KiB"),
    ("unaligned_share", "accesses unaligned"),
    ("sequential_write_share", "writes sequential"),
    ("sequential_read_share", "reads sequential"),
)


def escape_control_characters(text: str | None) -> str:
    """Return text of a log on one line, with controls shown as escapes."""
    if text is None:
        return "(not named in the log)"
    return escape_line(text)


def _layer_table(trace: Trace) -> Table:
    titles = ("writes", "written", "reads", "read", "write s", "read s", "meta s", "MiB/s", "files")
    table = make_table("layer", *titles, right=titles)
    for module in _LAYERS:
        if module not in trace.modules:
            continue
        prefix = module.replace("-", "")
        files = trace.estimate(module, "files") or {}
        table.add_row(
            module,
            format_number(_count_accesses(trace, prefix, "WRITES")),
            format_size(trace.counter(f"{prefix}_BYTES_WRITTEN") or 0),
            format_number(_count_accesses(trace, prefix, "READS")),
            format_size(trace.counter(f"{prefix}_BYTES_READ") or 0),
            format_number(trace.counter(f"{prefix}_F_WRITE_TIME")),
            format_number(trace.counter(f"{prefix}_F_READ_TIME")),
            format_number(trace.counter(f"{prefix}_F_META_TIME")),
            format_number(trace.estimate(module, "bandwidth_mib_per_s")),
            format_number(files.get("all")),
        )
    return table


def _count_accesses(trace: Trace, prefix: str, word: str) -> float:
    """The number of `READS` or `WRITES` of a layer; MPI-IO counts collective, independent and other ones apart."""
    return sum(trace.counter(f"{prefix}_{prefix_of_kind}{word}") or 0 for prefix_of_kind in _ACCESS_KINDS)


def _file_table(rows: Sequence[Mapping[str, Any]], limit: int) -> Table:
    right = ("ranks", "slowest rank", "its time (s)")
    table = make_table("file", "ranks", "on", "slowest rank", "its time (s)", right=right)
    for row in rows[:limit]:
        slowest = row["slowest"] or {}
        table.add_row(
            escape_control_characters(row["path"]),
            str(row["ranks"]),
            escape_control_characters(_file_system_text(row)),
            format_number(slowest.get("rank")),
            format_number(slowest.get("time_s")),
        )
    return table


def _file_system_text(row: Mapping[str, Any]) -> str:
    """The type of the file system, with number and size of the stripes of the first component on Lustre."""
    if not row["stripes"]:
        return row["file_system"] or ""
    components = row["stripes"]["components"] or [{}]
    stripe_size = format_size(components[0].get("LUSTRE_COMP_STRIPE_SIZE", 0))
    return f"{row['file_system']} {components[0].get('LUSTRE_COMP_STRIPE_COUNT')} x {stripe_size}"


def _remark_lines(trace: Trace) -> Iterator[Text]:
    if trace.counter("MPIIO_COLL_WRITES") is not None:
        yield Text(f"MPI-IO: {_mpiio_text(trace, 'WRITES')} writes, {_mpiio_text(trace, 'READS')} reads")
    shares = []
    for name, label in _SHARES:
        if trace.derived[name] is not None:
            shares.append(f"{label} {format_number(100 * trace.derived[name])} %")
    if shares:
        yield Text("Shares: " + ", ".join(shares))
    share_of_run = trace.derived["io_time_share_of_run"]
    if share_of_run is not None and share_of_run > 1:
        multiple = f"{format_number(share_of_run)} times ranks x run time"
        yield Text(f"Time in I/O calls: {multiple}. It is the sum over the threads of each rank.")
    slowest_of_modules = trace.derived["slowest"]
    if slowest_of_modules and trace.job["ranks"] > 1:
        times = []
        for module, slowest in slowest_of_modules.items():
            times.append(f"{module} {format_number(slowest['time_s'])} s (rank {slowest['rank']})")
        yield Text(f"Most time of one rank in one file: {', '.join(times)}")
    # Slow targets are a hint; whether there is none, or none could be found, is stated here.
    for line in target_lines([targets for targets in trace.targets if not targets.slow]):
        yield Text(f"Targets: {line}")
    for hint in derive_hints(trace):
        yield Text(f"Hint ({hint.key}): {hint.text}")
        counters = ", ".join(f"{name} {format_number(value)}" for name, value in hint.counters.items())
        yield Text(f"  {counters}; {hint.threshold}; {hint.source}")


def _mpiio_text(trace: Trace, word: str) -> str:
    collective = format_number(trace.counter(f"MPIIO_COLL_{word}"))
    independent = format_number(trace.counter(f"MPIIO_INDEP_{word}"))
    return f"{collective} collective and {independent} independent"


def render_trace(trace: Trace, files: int = 10) -> Iterator[Text | Table]:
    """Yield a trace as lines and tables for `rich`, the verdict first.

    Args:
        trace: a readable trace.
        files: number of files to show, in descending order of time.
    """
    job = trace.job
    if trace.reason:
        yield Text(f"{trace.status}: {escape_control_characters(trace.reason)}")
    else:
        yield Text(trace.status)
    yield Text(escape_control_characters(job["exe"]))
    version = escape_control_characters(str(job["darshan_version"]))
    yield Text(f"{job['ranks']} ranks, {format_number(job['run_time_s'])} s, {job['start']}, Darshan {version}")
    damaged_modules = [module for module in trace.missing if module not in trace.modules and module != "names"]
    if damaged_modules:
        modules = escape_control_characters(", ".join(damaged_modules))
        yield Text(f"Not known: what {modules} recorded, and the figures that need it (–, or absent).")
    elif not trace.modules:
        yield Text("Darshan recorded no I/O.")
    if not trace.modules:
        return
    yield _layer_table(trace)
    yield from _remark_lines(trace)
    if trace.files:
        yield _file_table(trace.files, files)
    if len(trace.files) > files:
        yield Text(f"and {len(trace.files) - files} more files (--json lists all)")


def write_pydarshan_report(
    logs: Sequence[Path], target: Path, reader: DarshanReader, privacy: str = "keep", name: str | None = None
) -> None:
    """Write PyDarshan's report of a log as one HTML file.

    Args:
        logs: exactly one log.
        target: file to write.
        reader: the reader to use.
        privacy: must be `keep`: the report shows names and paths.
        name: name of the log on the page; None for its file name.

    Raises:
        UsageError: more than one log, or names must be hidden.
        InputError: the packages of the report are not installed.
        InputError: the log is unreadable.
    """
    if len(logs) != 1:
        raise UsageError("a report is of one log", hint="Call it once for each log.")
    if privacy != "keep":
        raise UsageError("PyDarshan's report shows user names and paths", hint="Use --html without --privacy.")
    reader.call(_write_report, logs[0], target=str(target.absolute()), name=name)


def _write_report(log: Path, target: str, name: str | None) -> None:
    # PyDarshan's report imports matplotlib and PyDarshan, which only a worker process does.
    try:
        from iowatch.darshan.html import write_escaped_report
    except ImportError as error:
        raise missing_extra_error("PyDarshan's report", PAGES, error) from error
    targets = read_targets(summarise_log(log)["derived"])
    write_escaped_report(log, Path(target), name, remarks=list(target_lines(targets)))
