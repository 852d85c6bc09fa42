"""What changed in the I/O between two runs, or between the runs of two sides, in words and numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

from iowatch.darshan.trace import Trace
from iowatch.units import format_number, format_size

Kind = Literal["fact", "count", "bytes", "size", "time", "share", "bandwidth"]

# Below these a difference is not told: counts and bytes are exact but for a few housekeeping calls, times of
# single runs vary by some ten percent on a shared file system (captured outputs: 8 to 49 %).
COUNT_RATIO = 1.02
TIME_RATIO = 1.5
TIME_S = 0.01
SHARE_STEP = 0.05


@dataclass(frozen=True)
class Change:
    """One thing that differs.

    Attributes:
        name: Darshan's counter, or the key of a derived figure or of the job.
        label: words for people.
        kind: how it was compared.
        left, right: values, None where the log does not have it.
        ratio: right / left, None where left is 0, or where it is not a number.
        text: one line for people.
    """

    name: str
    label: str
    kind: Kind
    left: Any
    right: Any
    ratio: float | None
    text: str


@dataclass(frozen=True)
class Difference:
    """All that differs between two traces, how the I/O was done before how long it took."""

    left: Trace
    right: Trace
    changes: tuple[Change, ...]

    def to_json(self) -> dict[str, Any]:
        """`left` and `right` (status, reason, job) and `changes`."""
        sides = {
            name: {"status": trace.status, "reason": trace.reason, "job": dict(trace.job)}
            for name, trace in (("left", self.left), ("right", self.right))
        }
        return {**sides, "changes": [asdict(change) for change in self.changes]}

    def lines(self) -> Iterator[str]:
        """One line a change, after one that says how many there are."""
        from iowatch.darshan.text import plain

        for name, trace in (("left", self.left), ("right", self.right)):
            if trace.status != "ok":
                yield f"{name} is {trace.status}: {plain(trace.reason)}"
        many = len(self.changes)
        yield f"{many} difference{'s' if many != 1 else ''}" if many else "No difference above the thresholds."
        for change in self.changes:
            yield f"  {plain(change.text)}"


def _counter(name: str) -> Callable[[Trace], float | None]:
    return lambda trace: trace.counter(name)


def _derived(name: str) -> Callable[[Trace], float | None]:
    def value(trace: Trace) -> float | None:
        figure: float | None = trace.derived.get(name)
        return figure

    return value


def _job(name: str) -> Callable[[Trace], Any]:
    return lambda trace: trace.job.get(name)


def _bandwidth(module: str) -> Callable[[Trace], float | None]:
    def value(trace: Trace) -> float | None:
        figure: float | None = trace.derived["performance"].get(module, {}).get("bandwidth_mib_per_s")
        return figure

    return value


def _layouts(trace: Trace) -> str | None:
    """The distinct stripe layouts of the files, as text."""
    found = set()
    for row in trace.files:
        for part in (row["stripes"] or {}).get("components", []):
            size = format_size(part["LUSTRE_COMP_STRIPE_SIZE"])
            found.add(f"{part['LUSTRE_COMP_STRIPE_COUNT']} x {size}")
    return ", ".join(sorted(found)) or None


def _file_systems(trace: Trace) -> str | None:
    """File systems that data went to or came from."""
    used = {row["file_system"] for row in trace.files if any("_BYTES_" in name for name in row["counters"])}
    return ", ".join(sorted(kind for kind in used if kind)) or None


_Row = tuple[str, str, Kind, Callable[[Trace], Any]]


def _counts(*rows: tuple[str, str]) -> list[_Row]:
    return [(name, label, "count", _counter(name)) for name, label in rows]


_ROWS: tuple[_Row, ...] = (
    ("exe", "command", "fact", _job("exe")),
    ("ranks", "ranks", "fact", _job("ranks")),
    ("darshan_version", "Darshan", "fact", _job("darshan_version")),
    ("file_systems", "file systems", "fact", _file_systems),
    ("stripes", "stripe layouts", "fact", _layouts),
    ("bytes_written", "bytes written", "bytes", _derived("bytes_written")),
    ("bytes_read", "bytes read", "bytes", _derived("bytes_read")),
    *_counts(
        ("MPIIO_COLL_WRITES", "collective writes"),
        ("MPIIO_INDEP_WRITES", "independent writes"),
        ("MPIIO_COLL_READS", "collective reads"),
        ("MPIIO_INDEP_READS", "independent reads"),
        ("MPIIO_NB_WRITES", "non-blocking writes"),
        ("MPIIO_SYNCS", "MPI-IO syncs"),
        ("MPIIO_VIEWS", "file views"),
        ("MPIIO_HINTS", "files opened with hints"),
        ("POSIX_WRITES", "POSIX writes"),
        ("POSIX_READS", "POSIX reads"),
        ("POSIX_OPENS", "POSIX opens"),
        ("POSIX_STATS", "POSIX stats"),
        ("POSIX_FSYNCS", "fsyncs"),
        ("H5D_WRITES", "dataset writes"),
        ("H5D_READS", "dataset reads"),
        ("H5F_FLUSHES", "HDF5 flushes"),
    ),
    ("POSIX_ACCESS1_ACCESS", "most frequent access", "size", _counter("POSIX_ACCESS1_ACCESS")),
    ("MPIIO_ACCESS1_ACCESS", "most frequent MPI-IO access", "size", _counter("MPIIO_ACCESS1_ACCESS")),
    (
        "collective_write_share",
        "share of writes that are collective",
        "share",
        _derived("collective_write_share"),
    ),
    ("collective_read_share", "share of reads that are collective", "share", _derived("collective_read_share")),
    ("unaligned_share", "share of accesses not aligned", "share", _derived("unaligned_share")),
    ("small_write_share", "share of writes to 100 KiB", "share", _derived("small_write_share")),
    ("small_read_share", "share of reads to 100 KiB", "share", _derived("small_read_share")),
    ("sequential_write_share", "share of writes in order", "share", _derived("sequential_write_share")),
    ("sequential_read_share", "share of reads in order", "share", _derived("sequential_read_share")),
    ("metadata_time_share", "share of I/O time in metadata", "share", _derived("metadata_time_share")),
    ("POSIX_F_WRITE_TIME", "time in POSIX writes, all ranks", "time", _counter("POSIX_F_WRITE_TIME")),
    ("POSIX_F_READ_TIME", "time in POSIX reads, all ranks", "time", _counter("POSIX_F_READ_TIME")),
    ("POSIX_F_META_TIME", "time in POSIX metadata, all ranks", "time", _counter("POSIX_F_META_TIME")),
    ("MPIIO_F_META_TIME", "time in MPI-IO open and close, all ranks", "time", _counter("MPIIO_F_META_TIME")),
    ("H5F_F_META_TIME", "time in HDF5 open and close, all ranks", "time", _counter("H5F_F_META_TIME")),
    ("close_tail_s", "time from last transfer to last close", "time", _derived("close_tail_s")),
    ("run_time_s", "run time", "time", _job("run_time_s")),
    ("posix_bandwidth", "bandwidth at POSIX, Darshan's estimate", "bandwidth", _bandwidth("POSIX")),
    ("mpiio_bandwidth", "bandwidth at MPI-IO, Darshan's estimate", "bandwidth", _bandwidth("MPI-IO")),
)


def _differs(kind: Kind, left: Any, right: Any) -> bool:
    if kind in ("fact", "size"):
        return bool(left != right)
    if left is None or right is None:
        return bool((left or 0) != (right or 0))
    if kind == "share":
        return bool(abs(right - left) >= SHARE_STEP)
    low, high = sorted((left, right))
    if kind == "time" and high - low < TIME_S:
        return False
    return bool(high > low * (COUNT_RATIO if kind in ("count", "bytes") else TIME_RATIO))


def _format(kind: Kind, value: Any) -> str:
    if value is None:
        return "none"
    if kind in ("bytes", "size"):
        return format_size(value)
    if kind == "share":
        return f"{format_number(100 * value)} %"
    unit = {"time": " s", "bandwidth": " MiB/s"}.get(kind, "")
    return str(value) if kind == "fact" else f"{format_number(value)}{unit}"


def _words(kind: Kind, left: Any, right: Any) -> str:
    if kind in ("fact", "share", "size"):
        return ""
    if not left:
        return " (none before)"
    if not right:
        return " (none any more)"
    ratio = right / left
    return f" (x {format_number(ratio)})" if ratio >= 1 else f" (1/{format_number(1 / ratio)})"


def _change(row: _Row, left: Trace, right: Trace) -> Change | None:
    *_, kind, value = row
    a, b = value(left), value(right)
    return _told(row, a, b) if _differs(kind, a, b) else None


def _told(row: _Row, a: Any, b: Any) -> Change:
    name, label, kind, _ = row
    numbers = kind != "fact" and a is not None and b is not None
    ratio = b / a if numbers and a else None
    text = f"{label}: {_format(kind, a)} -> {_format(kind, b)}{_words(kind, a, b)}"
    return Change(name, label, kind, a, b, ratio, text)


def compare(left: Trace, right: Trace) -> Difference:
    """What changed from left to right.

    Args:
        left, right: traces that could be read; where a module is missing from one, its counters are None there.
    """
    changes = (_change(row, left, right) for row in _ROWS)
    return Difference(left, right, tuple(change for change in changes if change is not None))


# Of every run its own: the command names the session's scratch directory, times are what is compared besides.
_OF_THE_RUN = frozenset({"exe", "run_time_s"})


def between(left: Sequence[Trace], right: Sequence[Trace]) -> tuple[Change, ...]:
    """What tells two sides apart: every run on the left has it otherwise than every one on the right.

    Whatever differs as much from run to run of one side is not told. Values are those of the middle run.

    Args:
        left, right: traces of the same case that could be read, at least one a side.
    """
    rows = (row for row in _ROWS if row[0] not in _OF_THE_RUN)
    found = ((row, [row[3](trace) for trace in left], [row[3](trace) for trace in right]) for row in rows)
    return tuple(
        _told(row, _middle(row[2], a), _middle(row[2], b)) for row, a, b in found if _apart(row[2], a, b)
    )


def _apart(kind: Kind, left: Sequence[Any], right: Sequence[Any]) -> bool:
    if kind in ("fact", "size"):
        return not set(left) & set(right)
    (low, high), (first, last) = (
        (min(v or 0 for v in side), max(v or 0 for v in side)) for side in (left, right)
    )
    if first > high:
        return _differs(kind, None if _none(left) else high, None if _none(right) else first)
    return low > last and _differs(kind, None if _none(left) else low, None if _none(right) else last)


def _none(values: Sequence[Any]) -> bool:
    return all(value is None for value in values)


def _middle(kind: Kind, values: Sequence[Any]) -> Any:
    if kind in ("fact", "size"):
        return values[-1]
    known = [value for value in values if value is not None]
    return median(known) if known else None
