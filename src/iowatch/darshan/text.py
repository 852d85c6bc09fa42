"""A trace for people, as text. What comes from the log is shown as plain characters and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from iowatch.darshan.hints import hints
from iowatch.darshan.trace import Trace
from iowatch.units import format_number, format_size

# Modules that move data, and the prefix of their counters.
_LAYERS = {
    "POSIX": "POSIX",
    "MPI-IO": "MPIIO",
    "STDIO": "STDIO",
    "H5D": "H5D",
    "PNETCDF_VAR": "PNETCDF_VAR",
    "DFS": "DFS",
}
_KINDS = ("", "COLL_", "INDEP_", "NB_", "SPLIT_")
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


def plain(text: str | None) -> str:
    """Text of a log with everything that a terminal might obey shown as `\\x1b`."""
    if text is None:
        return "(not named in the log)"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _operations(trace: Trace, prefix: str, word: str) -> float:
    return sum(trace.counter(f"{prefix}_{kind}{word}") or 0 for kind in _KINDS)


def _layer_table(trace: Trace) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("layer")
    for title in ("writes", "written", "reads", "read", "write s", "read s", "meta s", "MiB/s", "files"):
        table.add_column(title, justify="right")
    for module, prefix in _LAYERS.items():
        if module not in trace.modules:
            continue
        performance = trace.derived["performance"].get(module, {})
        table.add_row(
            module,
            format_number(_operations(trace, prefix, "WRITES")),
            format_size(trace.counter(f"{prefix}_BYTES_WRITTEN") or 0),
            format_number(_operations(trace, prefix, "READS")),
            format_size(trace.counter(f"{prefix}_BYTES_READ") or 0),
            *(format_number(trace.counter(f"{prefix}_F_{word}_TIME")) for word in ("WRITE", "READ", "META")),
            format_number(performance.get("bandwidth_mib_per_s")),
            format_number(performance.get("files", {}).get("all")),
        )
    return table


def _layout(row: dict[str, Any]) -> str:
    if not row["stripes"]:
        return row["file_system"] or ""
    first = row["stripes"]["components"][0] if row["stripes"]["components"] else {}
    size = format_size(first.get("LUSTRE_COMP_STRIPE_SIZE", 0))
    return f"{row['file_system']} {first.get('LUSTRE_COMP_STRIPE_COUNT')} x {size}"


def _file_table(files: Sequence[Any], limit: int) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("file", "ranks", "on", "slowest rank", "its time (s)"):
        table.add_column(title, justify="left" if title in ("file", "on") else "right")
    for row in files[:limit]:
        slowest = row["slowest"] or {}
        table.add_row(
            Text(plain(row["path"])),
            str(row["ranks"]),
            Text(plain(_layout(row))),
            format_number(slowest.get("rank")),
            format_number(slowest.get("time_s")),
        )
    return table


def _head(trace: Trace) -> Iterator[Text]:
    job = trace.job
    yield Text(f"{trace.status}" + (f": {plain(trace.reason)}" if trace.reason else ""))
    yield Text(plain(job["exe"]))
    yield Text(
        f"{job['ranks']} ranks, {format_number(job['run_time_s'])} s, {job['start']}, "
        f"Darshan {plain(str(job['darshan_version']))}"
    )


def _remarks(trace: Trace) -> Iterator[Text]:
    writes = (trace.counter("MPIIO_COLL_WRITES"), trace.counter("MPIIO_INDEP_WRITES"))
    reads = (trace.counter("MPIIO_COLL_READS"), trace.counter("MPIIO_INDEP_READS"))
    if writes[0] is not None:
        yield Text(
            f"MPI-IO: {format_number(writes[0])} collective and {format_number(writes[1])} independent writes, "
            f"{format_number(reads[0])} collective and {format_number(reads[1])} independent reads"
        )
    shares = [(trace.derived[key], label) for key, label in _SHARES]
    known = [f"{label} {format_number(100 * share)} %" for share, label in shares if share is not None]
    if known:
        yield Text("Shares: " + ", ".join(known))
    slowest = trace.derived["slowest"]
    if slowest and trace.job["ranks"] > 1:
        told = (f"{module} {_slowest(one)}" for module, one in slowest.items())
        yield Text(f"Most time of one rank in one file: {', '.join(told)}")
    for hint in hints(trace):
        yield Text(f"Hint ({hint.key}): {hint.text}")
        said = ", ".join(f"{name} {format_number(value)}" for name, value in hint.counters.items())
        yield Text(f"  {said}; {hint.threshold}; {hint.source}")


def _slowest(one: Mapping[str, Any]) -> str:
    return f"{format_number(one['time_s'])} s (rank {one['rank']})"


def render(trace: Trace, files: int = 10) -> Iterator[Text | Table]:
    """A trace as lines and tables for `rich`, the verdict first.

    Args:
        trace: that could be read.
        files: how many files to show, those with most time first.
    """
    yield from _head(trace)
    if not trace.modules:
        yield Text("Darshan saw no I/O.")
        return
    yield _layer_table(trace)
    yield from _remarks(trace)
    if trace.files:
        yield _file_table(trace.files, files)
    if len(trace.files) > files:
        yield Text(f"and {len(trace.files) - files} more files (--json lists all)")
