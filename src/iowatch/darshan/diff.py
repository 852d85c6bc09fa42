"""Differences in the I/O of two runs, or of the runs of two sides, as text and numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

from iowatch.core import format_number, format_size
from iowatch.darshan.report import escape_control_characters
from iowatch.darshan.trace import Trace

FigureKind = Literal["fact", "count", "bytes", "size", "time", "share", "bandwidth"]

# Smaller differences are not reported: counts and bytes are exact except for a few housekeeping calls, times of
# single runs vary by some ten per cent on a shared file system (captured outputs: 8 to 49 %).
MIN_COUNT_RATIO = 1.02
MIN_TIME_RATIO = 1.5
MIN_TIME_DIFFERENCE_S = 0.01
MIN_SHARE_DIFFERENCE = 0.05


@dataclass(frozen=True)
class TraceChange:
    """One differing figure.

    Attributes:
        name: Darshan's counter, or the key of a derived figure or of the job.
        label: display name.
        kind: method of comparison.
        left, right: values; None if the log does not contain them.
        ratio: right / left; None if left is 0, or for non-numeric values.
        text: one line for the terminal.
    """

    name: str
    label: str
    kind: FigureKind
    left: Any
    right: Any
    ratio: float | None
    text: str


@dataclass(frozen=True)
class TraceDiff:
    """All differences between two traces: first access patterns, then times."""

    left: Trace
    right: Trace
    changes: tuple[TraceChange, ...]

    def to_json(self) -> dict[str, Any]:
        """Return `left` and `right` (status, reason, job) and `changes`."""
        document: dict[str, Any] = {"changes": [asdict(change) for change in self.changes]}
        for name, trace in (("left", self.left), ("right", self.right)):
            document[name] = {"status": trace.status, "reason": trace.reason, "job": dict(trace.job)}
        return document

    def format_lines(self) -> Iterator[str]:
        """Yield the number of changes, then one line per change."""
        for name, trace in (("left", self.left), ("right", self.right)):
            if trace.status != "ok":
                yield f"{name} is {trace.status}: {escape_control_characters(trace.reason)}"
        many = len(self.changes)
        yield f"{many} difference{'s' if many != 1 else ''}" if many else "No difference above the thresholds."
        for change in self.changes:
            yield f"  {escape_control_characters(change.text)}"


def _stripe_layouts(trace: Trace) -> str | None:
    """Return the distinct stripe layouts of the files as text."""
    parts = [part for row in trace.files for part in (row["stripes"] or {}).get("components", [])]
    found = {f"{p['LUSTRE_COMP_STRIPE_COUNT']} x {format_size(p['LUSTRE_COMP_STRIPE_SIZE'])}" for p in parts}
    return ", ".join(sorted(found)) or None


def _file_systems(trace: Trace) -> str | None:
    """Return the file systems that data was written to or read from."""
    used = {row["file_system"] for row in trace.files if any("_BYTES_" in name for name in row["counters"])}
    return ", ".join(sorted(kind for kind in used if kind)) or None


# First access patterns, then times. Each figure: kind, and name (see `Trace.figure`) to label.
_COMPARED_FIGURES: tuple[tuple[FigureKind, dict[str, str]], ...] = (
    ("fact", {
        "exe": "command",
        "ranks": "ranks",
        "darshan_version": "Darshan",
        "file_systems": "file systems",
        "stripes": "stripe layouts",
    }),
    ("bytes", {"bytes_written": "bytes written", "bytes_read": "bytes read"}),
    ("count", {
        "MPIIO_COLL_WRITES": "collective writes",
        "MPIIO_INDEP_WRITES": "independent writes",
        "MPIIO_COLL_READS": "collective reads",
        "MPIIO_INDEP_READS": "independent reads",
        "MPIIO_NB_WRITES": "non-blocking writes",
        "MPIIO_SYNCS": "MPI-IO syncs",
        "MPIIO_VIEWS": "file views",
        "MPIIO_HINTS": "files opened with hints",
        "POSIX_WRITES": "POSIX writes",
        "POSIX_READS": "POSIX reads",
        "POSIX_OPENS": "POSIX opens",
        "POSIX_STATS": "POSIX stats",
        "POSIX_FSYNCS": "fsyncs",
        "H5D_WRITES": "dataset writes",
        "H5D_READS": "dataset reads",
        "H5F_FLUSHES": "HDF5 flushes",
    }),
    ("size", {
        "POSIX_ACCESS1_ACCESS": "most frequent access",
        "MPIIO_ACCESS1_ACCESS": "most frequent MPI-IO access",
    }),
    ("share", {
        "collective_write_share": "share of writes that are collective",
        "collective_read_share": "share of reads that are collective",
        "unaligned_share": "share of accesses not aligned",
        "small_write_share": "share of writes to 100 KiB",
        "small_read_share": "share of reads to 100 KiB",
        "sequential_write_share": "share of writes in order",
        "sequential_read_share": "share of reads in order",
        "metadata_time_share": "share of I/O time in metadata",
    }),
    ("time", {
        "POSIX_F_WRITE_TIME": "time in POSIX writes, all ranks",
        "POSIX_F_READ_TIME": "time in POSIX reads, all ranks",
        "POSIX_F_META_TIME": "time in POSIX metadata, all ranks",
        "MPIIO_F_META_TIME": "time in MPI-IO open and close, all ranks",
        "H5F_F_META_TIME": "time in HDF5 open and close, all ranks",
        "close_tail_s": "time from last transfer to last close",
        "run_time_s": "run time",
    }),
    ("bandwidth", {
        "posix_bandwidth": "bandwidth at POSIX, Darshan's estimate",
        "mpiio_bandwidth": "bandwidth at MPI-IO, Darshan's estimate",
    }),
)  # fmt: skip
_OTHER_FIGURES: dict[str, Callable[[Trace], Any]] = {
    "file_systems": _file_systems,
    "stripes": _stripe_layouts,
    "posix_bandwidth": lambda trace: trace.estimate("POSIX", "bandwidth_mib_per_s"),
    "mpiio_bandwidth": lambda trace: trace.estimate("MPI-IO", "bandwidth_mib_per_s"),
}


def _compared_values(traces: Sequence[Trace]) -> Iterator[tuple[FigureKind, str, str, list[Any]]]:
    """Yield kind, name and label of each figure, and its value in each trace."""
    for kind, figures in _COMPARED_FIGURES:
        for name, label in figures.items():
            other = _OTHER_FIGURES.get(name)
            yield kind, name, label, [other(trace) if other else trace.figure(name) for trace in traces]


def _differs(kind: FigureKind, left: Any, right: Any) -> bool:
    if kind in ("fact", "size"):
        return bool(left != right)
    if left is None or right is None:
        return bool((left or 0) != (right or 0))
    if kind == "share":
        return bool(abs(right - left) >= MIN_SHARE_DIFFERENCE)
    low, high = sorted((left, right))
    if kind == "time" and high - low < MIN_TIME_DIFFERENCE_S:
        return False
    return bool(high > low * (MIN_COUNT_RATIO if kind in ("count", "bytes") else MIN_TIME_RATIO))


def _format(kind: FigureKind, value: Any) -> str:
    if value is None:
        return "none"
    if kind in ("bytes", "size"):
        return format_size(value)
    if kind == "share":
        return f"{format_number(100 * value)} %"
    unit = {"time": " s", "bandwidth": " MiB/s"}.get(kind, "")
    return str(value) if kind == "fact" else f"{format_number(value)}{unit}"


def _format_ratio(kind: FigureKind, left: Any, right: Any) -> str:
    if kind in ("fact", "share", "size"):
        return ""
    if not left:
        return " (none before)"
    if not right:
        return " (none after)"
    ratio = right / left
    return f" (x {format_number(ratio)})" if ratio >= 1 else f" (1/{format_number(1 / ratio)})"


def _make_change(kind: FigureKind, name: str, label: str, left: Any, right: Any) -> TraceChange:
    numbers = kind != "fact" and left is not None and right is not None
    ratio = right / left if numbers and left else None
    text = f"{label}: {_format(kind, left)} -> {_format(kind, right)}{_format_ratio(kind, left, right)}"
    return TraceChange(name, label, kind, left, right, ratio, text)


def diff_traces(left: Trace, right: Trace) -> TraceDiff:
    """Return the differences from left to right.

    Args:
        left, right: readable traces; counters of a module that one of them does not contain are None there.
    """
    changes = []
    for kind, name, label, values in _compared_values([left, right]):
        if _differs(kind, *values):
            changes.append(_make_change(kind, name, label, *values))
    return TraceDiff(left, right, tuple(changes))


def diff_trace_groups(left: Sequence[Trace], right: Sequence[Trace]) -> tuple[TraceChange, ...]:
    """Return figures that separate two sides: every left run differs from every right run.

    A figure that differs as much between runs of one side is omitted. Values are medians over the runs.

    Args:
        left, right: readable traces of the same case, at least one per side.
    """
    found = []
    for kind, name, label, values in _compared_values([*left, *right]):
        before, after = values[: len(left)], values[len(left) :]
        # Specific to each run: the command contains the session's scratch directory, and times are compared separately.
        if name not in ("exe", "run_time_s") and _are_separated(kind, before, after):
            typical = (_representative_value(kind, side) for side in (before, after))
            found.append(_make_change(kind, name, label, *typical))
    return tuple(found)


def _are_separated(kind: FigureKind, left: Sequence[Any], right: Sequence[Any]) -> bool:
    if kind in ("fact", "size"):
        return not set(left) & set(right)
    # The facing ends of the two ranges.
    (low, high), (first, last) = ((min(v or 0 for v in side), max(v or 0 for v in side)) for side in (left, right))
    if not (first > high or low > last):
        return False
    a, b = (high, first) if first > high else (low, last)
    known = [any(value is not None for value in side) for side in (left, right)]
    return _differs(kind, a if known[0] else None, b if known[1] else None)


def _representative_value(kind: FigureKind, values: Sequence[Any]) -> Any:
    if kind in ("fact", "size"):
        return values[-1]
    known = [value for value in values if value is not None]
    return median(known) if known else None
