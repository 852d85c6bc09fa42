"""Logs of a whole centre, many per task: the columns of their table, why a log is not counted, and the task itself.

The task runs in a Dask worker, which survives what a log does: it hands each log to a `DarshanReader`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iowatch.applications.fleet.rows import read_log_row
from iowatch.core import InputError, MachineError
from iowatch.darshan import DarshanReader

if TYPE_CHECKING:
    from pyarrow import Schema, Table


@dataclass(frozen=True)
class Rejection:
    """Why a log is not counted; `is_final`: it is not read again until its file changes."""

    key: str
    text: str
    is_final: bool = True


_REJECTIONS = (
    Rejection("foreign", "not a Darshan log, or of an unknown version"),
    Rejection("old_format", "of Darshan 1 or 2 (logs of Darshan 3.0 and later are read)"),
    Rejection("empty", "empty file"),
    Rejection("truncated", "truncated"),
    Rejection("damaged", "damaged"),
    Rejection("refused", "refused by the Darshan library (that of PyDarshan has no bzip2)"),
    Rejection("crashed", "ended the Darshan library"),
    Rejection("slow", "took too long to read"),
    Rejection("too_large", "larger than the memory of a worker"),
    Rejection("absent", "removed before it was read, or not visible to a worker", is_final=False),
    Rejection("unreadable", "no permission to read it, or an error of the file system", is_final=False),
)
REJECTIONS: Mapping[str, Rejection] = {rejection.key: rejection for rejection in _REJECTIONS}
COUNTED, COPY = "counted", "copy"

_COUNTS = (
    "files", "opens", "stats", "reads", "writes", "bytes_read", "bytes_written", "unaligned", "collective_reads",
    "collective_writes", "independent_reads", "independent_writes", "alignment", "slowest_rank",
)  # fmt: skip
_TIMES = ("read_time_s", "write_time_s", "meta_time_s", "slowest_s")


@dataclass(frozen=True)
class Engines:
    """The libraries that hold and query the tables of logs, which are installed only for them."""

    pyarrow: Any
    parquet: Any
    duckdb: Any


def import_engines() -> Engines:
    """Import pyarrow, pyarrow.parquet and duckdb.

    Raises:
        MachineError: one of them is not installed.
    """
    try:
        import duckdb
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        message = f"logs of a centre need {error.name or 'Dask, DuckDB and pyarrow'}"
        raise MachineError(message, hint="pip install 'iowatch[fleet]'") from error
    return Engines(pyarrow, pyarrow.parquet, duckdb)


def log_schema() -> Schema:
    """Return the columns of the table of logs; all except the first four are null unless the log is `counted`.

    `file` is a keyed hash of the path, `log` the identity of the contents, `application` the name of the executable or
    its keyed hash. `layers` has one entry per file system, layer (Darshan's module) and layout (`shared` by several
    ranks or `unique`): operations, bytes, seconds summed over ranks, and `slowest_s`, Darshan's time of the slowest
    path; `unaligned` accesses and the `alignment` in bytes that they are judged by; `read_sizes` and `write_sizes`,
    Darshan's histograms of ten bins. `targets` has one entry per file system and target of it: number of `files`, and
    `relative_time`, the median of their times per byte relative to the files of the same kind in this log; `ratio` and
    `probability` are null unless the log by itself shows that the target is slow.
    """
    pyarrow = import_engines().pyarrow
    # The columns of one entry of `layers`.
    layer_types = dict.fromkeys(("file_system", "layer", "layout"), pyarrow.string())
    layer_types |= dict.fromkeys(_COUNTS, pyarrow.int64())
    layer_types |= dict.fromkeys(_TIMES, pyarrow.float64())
    layer_types |= dict.fromkeys(("read_sizes", "write_sizes"), pyarrow.list_(pyarrow.int64()))
    layer = pyarrow.struct(list(layer_types.items()))
    target_types = {"file_system": pyarrow.string(), "target": pyarrow.int64(), "files": pyarrow.int64()}
    target_types |= dict.fromkeys(("relative_time", "ratio", "probability"), pyarrow.float64())
    target = pyarrow.struct(list(target_types.items()))
    return pyarrow.schema(
        [
            ("file", pyarrow.binary(16)),
            ("size", pyarrow.int64()),
            ("mtime_ns", pyarrow.int64()),
            ("outcome", pyarrow.string()),
            ("log", pyarrow.string()),
            ("start_s", pyarrow.float64()),
            ("run_time_s", pyarrow.float64()),
            ("ranks", pyarrow.int64()),
            ("application", pyarrow.string()),
            ("darshan", pyarrow.string()),
            ("partial", pyarrow.bool_()),
            ("layers", pyarrow.list_(layer)),
            ("targets", pyarrow.list_(target)),
        ]
    )


# Of the reader's address space; 0.7 GiB of it are Python, PyDarshan and their libraries.
_READER_MEMORY_BYTES = 2 << 30
# Logs after which a reader is replaced, so that what a library does not free does not add up.
_READER_LOGS = 5000


class _Readers:
    """The reader of this process, which outlives a task."""

    reader: DarshanReader | None = None
    logs_left = 0

    @classmethod
    def take(cls, logs: int) -> DarshanReader:
        if cls.reader is None or cls.logs_left < logs:
            close_reader()
            cls.reader, cls.logs_left = DarshanReader(memory_bytes=_READER_MEMORY_BYTES), _READER_LOGS
        cls.logs_left -= logs
        return cls.reader


def close_reader() -> None:
    """Stop the reader of this process, if there is one."""
    if _Readers.reader is not None:
        _Readers.reader.close()
        _Readers.reader = None


def read_batch(paths: Sequence[str], file_systems: Mapping[str, str]) -> Table:
    """Return one row per path, in their order, with the columns of `log_schema`; `file` and `size` are null.

    Args:
        paths: logs that this host sees.
        file_systems: directory on a file system to its name on this system.
    """
    pyarrow = import_engines().pyarrow
    reader = _Readers.take(len(paths))
    rows = [_read_row(reader, Path(path), file_systems) for path in paths]
    return pyarrow.Table.from_pylist(rows, schema=log_schema())


def _read_row(reader: DarshanReader, path: Path, file_systems: Mapping[str, str]) -> dict[str, Any]:
    """Return one log as a row; one that ends the reader is tried twice, because others may have killed the reader."""
    row = _try_to_read_row(reader, path, file_systems)
    if row["outcome"] == "crashed":
        row = _try_to_read_row(reader, path, file_systems)
    return row


def _try_to_read_row(reader: DarshanReader, path: Path, file_systems: Mapping[str, str]) -> dict[str, Any]:
    try:
        row = reader.call(read_log_row, path, file_systems=file_systems)
    except InputError as error:
        return {"outcome": error.reason if error.reason in REJECTIONS else "damaged"}
    return {"outcome": COUNTED, **row}
