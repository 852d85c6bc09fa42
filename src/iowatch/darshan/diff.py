"""Differences in the I/O of two runs, or of the runs of two sides, as text and numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

from iowatch.core import format_count, format_number, format_size
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
        if self.changes:
            yield format_count(len(self.changes), "difference")
        else:
            yield "No difference above the thresholds."
        for change in self.changes:
            yield f"  {escape_control_characters(change.text)}"


def _stripe_layouts(trace: Trace) -> str | None:
    """Return the distinct stripe layouts of the files as text."""
    layouts: set[str] = set()
    for row in trace.files:
        if row["stripes"] is None:
            continue
        for component in row["stripes"]["components"]:
            size = format_size(component["LUSTRE_COMP_STRIPE_SIZE"])
            layouts.add(f"{component['LUSTRE_COMP_STRIPE_COUNT']} x {size}")
    return ", ".join(sorted(layouts)) or None


def _file_systems(trace: Trace) -> str | None:
    """Return the types of the file systems that data was written to or read from."""
    types: set[str] = set()
    for row in trace.files:
        has_data = any("_BYTES_" in counter for counter in row["counters"])
        if has_data and row["file_system"]:
            types.add(row["file_system"])
    return ", ".join(sorted(types)) or None


# First access patterns, then times. Of each kind: name (see `Trace.figure`) to label.
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
# Figures that `Trace.figure` does not have.
_OTHER_FIGURES: dict[str, Callable[[Trace], Any]] = {
    "file_systems": _file_systems,
    "stripes": _stripe_layouts,
    "posix_bandwidth": lambda trace: trace.estimate("POSIX", "bandwidth_mib_per_s"),
    "mpiio_bandwidth": lambda trace: trace.estimate("MPI-IO", "bandwidth_mib_per_s"),
}


@dataclass(frozen=True)
class _Figure:
    """A figure that is compared; `name` and `label` as in `TraceChange`."""

    kind: FigureKind
    name: str
    label: str

    def value(self, trace: Trace) -> Any:
        """Return its value in a trace; None if the log does not contain it."""
        if self.name in _OTHER_FIGURES:
            return _OTHER_FIGURES[self.name](trace)
        return trace.figure(self.name)


_FIGURES = tuple(
    _Figure(kind, name, label) for kind, label_of_name in _COMPARED_FIGURES for name, label in label_of_name.items()
)


def _differs(kind: FigureKind, left: Any, right: Any) -> bool:
    """Whether two values differ by more than the threshold of their kind."""
    if kind in ("fact", "size"):
        return bool(left != right)
    if left is None or right is None:
        # A log without the module has no accesses of it.
        return bool((left or 0) != (right or 0))
    if kind == "share":
        return bool(abs(right - left) >= MIN_SHARE_DIFFERENCE)
    low, high = sorted((left, right))
    if kind in ("count", "bytes"):
        return bool(high > low * MIN_COUNT_RATIO)
    if kind == "time" and high - low < MIN_TIME_DIFFERENCE_S:
        return False
    return bool(high > low * MIN_TIME_RATIO)


def _format_value(kind: FigureKind, value: Any) -> str:
    if value is None:
        return "none"
    if kind == "fact":
        return str(value)
    if kind in ("bytes", "size"):
        return format_size(value)
    if kind == "share":
        return f"{format_number(100 * value)} %"
    unit = {"time": " s", "bandwidth": " MiB/s"}.get(kind, "")
    return f"{format_number(value)}{unit}"


def _format_ratio(kind: FigureKind, left: Any, right: Any) -> str:
    if kind in ("fact", "share", "size"):
        return ""
    if not left:
        return " (none before)"
    if not right:
        return " (none after)"
    ratio = right / left
    if ratio >= 1:
        return f" (x {format_number(ratio)})"
    return f" (1/{format_number(1 / ratio)})"


def _make_change(figure: _Figure, left: Any, right: Any) -> TraceChange:
    ratio = None
    if figure.kind != "fact" and left and right is not None:
        ratio = right / left
    values = f"{_format_value(figure.kind, left)} -> {_format_value(figure.kind, right)}"
    return TraceChange(
        name=figure.name,
        label=figure.label,
        kind=figure.kind,
        left=left,
        right=right,
        ratio=ratio,
        text=f"{figure.label}: {values}{_format_ratio(figure.kind, left, right)}",
    )


def diff_traces(left: Trace, right: Trace) -> TraceDiff:
    """Return the differences from left to right.

    Args:
        left, right: readable traces; counters of a module that one of them does not contain are None there.
    """
    changes = []
    for figure in _FIGURES:
        left_value = figure.value(left)
        right_value = figure.value(right)
        if _differs(figure.kind, left_value, right_value):
            changes.append(_make_change(figure, left_value, right_value))
    return TraceDiff(left, right, tuple(changes))


# Specific to each run: the command contains the session's scratch directory, and times are compared separately.
_NOT_COMPARED_IN_GROUPS = ("exe", "run_time_s")


def diff_trace_groups(left: Sequence[Trace], right: Sequence[Trace]) -> tuple[TraceChange, ...]:
    """Return figures that separate two sides: every left run differs from every right run.

    A figure that differs as much between runs of one side is omitted. Values are medians over the runs.

    Args:
        left, right: readable traces of the same case, at least one per side.
    """
    changes = []
    for figure in _FIGURES:
        if figure.name in _NOT_COMPARED_IN_GROUPS:
            continue
        left_values = [figure.value(trace) for trace in left]
        right_values = [figure.value(trace) for trace in right]
        if _are_separated(figure.kind, left_values, right_values):
            typical_left = _representative_value(figure.kind, left_values)
            typical_right = _representative_value(figure.kind, right_values)
            changes.append(_make_change(figure, typical_left, typical_right))
    return tuple(changes)


def _are_separated(kind: FigureKind, left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether the values of both sides differ, and no value of one lies in the range of the other."""
    if kind in ("fact", "size"):
        return not set(left) & set(right)
    left_numbers = [value or 0 for value in left]
    right_numbers = [value or 0 for value in right]
    # The ends of the two ranges that face each other.
    if min(right_numbers) > max(left_numbers):
        left_end, right_end = max(left_numbers), min(right_numbers)
    elif max(right_numbers) < min(left_numbers):
        left_end, right_end = min(left_numbers), max(right_numbers)
    else:
        return False
    return _differs(kind, left_end if _is_measured(left) else None, right_end if _is_measured(right) else None)


def _is_measured(values: Sequence[Any]) -> bool:
    return any(value is not None for value in values)


def _representative_value(kind: FigureKind, values: Sequence[Any]) -> Any:
    """The median of numbers, the newest of other values; None if no log contains it."""
    if kind in ("fact", "size"):
        return values[-1]
    measured = [value for value in values if value is not None]
    if not measured:
        return None
    return median(measured)
