"""Figures of a log: the counters of a module combined over its records, derived figures, and one row per file.

POSIX, MPI-IO, STDIO, DFS and DAOS are combined by Darshan's own code (`log.accumulate_totals`), so that the figures
equal those of `darshan-parser --total`. Darshan has no totals of H5F, H5D, PNETCDF_FILE and PNETCDF_VAR;
`combine_counters` applies the same rules: operations, bytes and times are summed, first times are the earliest, last
times the latest.

docs/darshan.md, "Derived figures", contains the definitions for users.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iowatch.darshan.log import GENERIC_MODULES, JobInfo, ModuleRecords

Number = int | float
_Column = NDArray[Any]


def _sum_column(column: _Column) -> Number:
    """Return the sum; a negative one becomes -1, Darshan's "could not be counted"."""
    total: Number = column.sum().item()
    return total if total >= 0 else -1


def _earliest_time(column: _Column) -> Number:
    """Return the earliest of the recorded times."""
    used = column[column > 0]
    return float(used.min()) if len(used) else 0.0


def _value_if_equal(column: _Column) -> Number:
    """Return the value of all records, or -1 if they differ: chunk sizes and numbers of dimensions have no sum."""
    value: Number = column[0].item()
    return value if (column == column[0]).all() else -1


def _largest(column: _Column) -> Number:
    value: Number = column.max().item()
    return value


# Pattern of counter names to how their values are combined; all others are summed.
_COMBINATION_RULES: tuple[tuple[re.Pattern[str], Callable[[_Column], Number]], ...] = (
    (re.compile(r"_F_.*START_TIMESTAMP$"), _earliest_time),
    (re.compile(r"_F_.*END_TIMESTAMP$|_F_MAX_.*_TIME$|_MAX_BYTE_|_USE_|_IS_RECORD_VAR$"), _largest),
    (re.compile(r"_MODE$|_ALIGNMENT$|_NDIMS$|_NPOINTS$|_DATATYPE_SIZE$|_CHUNK_SIZE_|RANK"), _value_if_equal),
)
# A record has its most frequent accesses in four slots, `POSIX_ACCESS1_ACCESS` and so on.
_ACCESS_SLOTS = range(1, 5)


def _combination_rule(counter: str) -> Callable[[_Column], Number]:
    for pattern, rule in _COMBINATION_RULES:
        if pattern.search(counter):
            return rule
    return _sum_column


def _common_accesses(table: dict[str, _Column]) -> dict[str, Number]:
    """Return the four most frequent accesses (size, for datasets also lengths and strides) over all records."""
    # Of each slot the counters that describe its access, all but the count.
    counters_of_slot: dict[int, list[str]] = {}
    for slot in _ACCESS_SLOTS:
        pattern = re.compile(rf"_ACCESS{slot}_(?!COUNT)")
        counters_of_slot[slot] = [counter for counter in table if pattern.search(counter)]
    if not counters_of_slot[1]:
        return {}
    prefix = counters_of_slot[1][0].split("_ACCESS1_")[0]

    # How often each access occurs in the slots of all records.
    occurrences: Counter[tuple[int, ...]] = Counter()
    for slot, counters in counters_of_slot.items():
        counts = table[f"{prefix}_ACCESS{slot}_COUNT"]
        for record in np.flatnonzero(counts > 0):
            access = tuple(int(table[counter][record]) for counter in counters)
            occurrences[access] += int(counts[record])

    # The most frequent first, among equally frequent ones the largest; empty slots are 0.
    ranking = sorted(occurrences, key=lambda access: (-occurrences[access], [-value for value in access]))
    unused = (0,) * len(counters_of_slot[1])
    combined: dict[str, Number] = {}
    for slot, counters in counters_of_slot.items():
        access = ranking[slot - 1] if slot <= len(ranking) else unused
        combined.update(zip(counters, access, strict=True))
        combined[f"{prefix}_ACCESS{slot}_COUNT"] = occurrences[access] if slot <= len(ranking) else 0
    return combined


def combine_counters(records: ModuleRecords) -> dict[str, Number]:
    """Return Darshan's counter names to values, combined over at least one record of one module."""
    integers, floats = records.names
    table: dict[str, _Column] = {}
    for index, counter in enumerate(integers):
        table[counter] = records.integers[:, index]
    for index, counter in enumerate(floats):
        table[counter] = records.floats[:, index]
    combined: dict[str, Number] = {}
    for counter, column in table.items():
        slowest_access = re.fullmatch(r"(\w+)_MAX_(READ|WRITE)_TIME_SIZE", counter)
        if slowest_access is None:
            combined[counter] = _combination_rule(counter)(column)
            continue
        # Use the size of the slowest access from the record with that access.
        prefix, operation = slowest_access.groups()
        slowest_record = table[f"{prefix}_F_MAX_{operation}_TIME"].argmax()
        combined[counter] = column[slowest_record].item()
    return combined | _common_accesses(table)


_SUMMED_OR_LONGEST_TIME = re.compile(r"\w+_F_((READ|WRITE|META)|MAX_\w+)_TIME")


def mark_uncounted_times(totals: dict[str, Number], records: ModuleRecords) -> bool:
    """Set the total of each time that a record does not have to -1, Darshan's "could not be counted".

    Returns:
        Whether there is one.
    """
    _, float_names = records.names
    uncounted = [name for name, times in zip(float_names, records.floats.T, strict=True) if (times < 0).any()]
    uncounted_totals = [name for name in uncounted if _SUMMED_OR_LONGEST_TIME.fullmatch(name)]
    for name in uncounted_totals:
        totals[name] = -1
    return bool(uncounted_totals)


# Histogram bins to 100 KiB. The next, 100K_1M, also contains accesses of exactly 1 MiB, the most common large size.
SMALL_ACCESS_BINS = ("0_100", "100_1K", "1K_10K", "10K_100K")
# Prefixes of the layers that pass data to the operating system. Data of MPI-IO or HDF5 passes through POSIX and is
# not counted twice.
_STORAGE_LAYERS = ("POSIX", "STDIO", "DFS")
# Prefixes of the layers that close what they have transferred.
_CLOSING_LAYERS = ("POSIX", "MPIIO", "H5F", "H5D")
_TIME_COUNTER = re.compile(r"\w+_F_(READ|WRITE|META)_TIME")


@dataclass(frozen=True)
class _Share:
    """A figure that is the sum of some counters divided by the sum of others."""

    name: str
    numerator: Sequence[str]
    denominator: Sequence[str]

    def value(self, counters: Mapping[str, float]) -> float | None:
        """Return the share; None if the denominator is 0. Absent counters count as 0."""
        numerator = sum(counters.get(counter, 0) for counter in self.numerator)
        denominator = sum(counters.get(counter, 0) for counter in self.denominator)
        return _ratio_or_none(numerator, denominator)


def _access_shares(operation: str) -> tuple[_Share, ...]:
    """Shares of writes or reads: small (to 100 KiB), sequential (ascending), consecutive (adjacent), collective."""
    word = operation.upper()
    accesses = [f"POSIX_{word}S"]
    # Split collectives count as collective.
    collective = [f"MPIIO_COLL_{word}S", f"MPIIO_SPLIT_{word}S"]
    all_mpiio = [*collective, f"MPIIO_INDEP_{word}S", f"MPIIO_NB_{word}S"]
    small = [f"POSIX_SIZE_{word}_{size}" for size in SMALL_ACCESS_BINS]
    return (
        _Share(f"small_{operation}_share", small, accesses),
        _Share(f"sequential_{operation}_share", [f"POSIX_SEQ_{word}S"], accesses),
        _Share(f"consecutive_{operation}_share", [f"POSIX_CONSEC_{word}S"], accesses),
        _Share(f"collective_{operation}_share", collective, all_mpiio),
    )


_POSIX_ACCESSES = ("POSIX_WRITES", "POSIX_READS")
_SHARES: tuple[_Share, ...] = (
    *_access_shares("write"),
    *_access_shares("read"),
    _Share("unaligned_share", ["POSIX_FILE_NOT_ALIGNED"], _POSIX_ACCESSES),
    _Share("unaligned_memory_share", ["POSIX_MEM_NOT_ALIGNED"], _POSIX_ACCESSES),
)


def _ratio_or_none(numerator: float | None, denominator: float | None) -> float | None:
    """Return the ratio; None if it has no meaning: a value is unknown or -1 (not counted), or nothing was counted."""
    if numerator is None or denominator is None or denominator <= 0 or numerator < 0:
        return None
    return numerator / denominator


def _storage_sum(recorded: _RecordedCounters, counter: str) -> Number | None:
    """Return a counter summed over the storage layers; None if a layer is damaged or could not count it."""
    if recorded.lacks_any(_STORAGE_LAYERS):
        return None
    total: Number = 0
    for layer in _STORAGE_LAYERS:
        value = recorded.counters.get(f"{layer}_{counter}", 0)
        if value < 0:
            return None
        total += value
    return total


def _io_time_figures(recorded: _RecordedCounters, ranks: int, run_time_s: float) -> dict[str, float | None]:
    """Return shares of the time in I/O calls, summed over ranks; MPI-IO and HDF5 open, flush and close per rank.

    Darshan adds the times of all threads of a rank: the share of the run may be above 1.
    """
    read = _storage_sum(recorded, "F_READ_TIME")
    write = _storage_sum(recorded, "F_WRITE_TIME")
    metadata = _storage_sum(recorded, "F_META_TIME")
    in_calls = None
    if read is not None and write is not None and metadata is not None:
        in_calls = read + write + metadata
    in_run = ranks * run_time_s
    counters = recorded.counters
    figures: dict[str, float | None] = {
        "read_time_share": _ratio_or_none(read, in_calls),
        "write_time_share": _ratio_or_none(write, in_calls),
        "metadata_time_share": _ratio_or_none(metadata, in_calls),
        "io_time_share_of_run": _ratio_or_none(in_calls, in_run),
        "mpiio_open_close_s_per_rank": None,
        "hdf5_open_close_s_per_rank": None,
        "hdf5_open_close_share_of_run": None,
    }
    figures["mpiio_open_close_s_per_rank"] = _ratio_or_none(counters.get("MPIIO_F_META_TIME"), ranks)
    figures["hdf5_open_close_s_per_rank"] = _ratio_or_none(counters.get("H5F_F_META_TIME"), ranks)
    figures["hdf5_open_close_share_of_run"] = _ratio_or_none(counters.get("H5F_F_META_TIME"), in_run)
    return figures


def _close_tail(recorded: _RecordedCounters, run_time_s: float) -> dict[str, float | None]:
    """Return the time from the end of the last transfer to the end of the last close.

    Darshan does not time closing and truncating separately; this span contains both. It is the figure that shows
    HDF5's close on Lustre ([lawrence2017], "HDF5 Performance"), where H5Fclose sets the file size.
    """
    unknown: dict[str, float | None] = {"close_tail_s": None, "close_tail_share_of_run": None}
    if recorded.lacks_any(_CLOSING_LAYERS):
        return unknown
    counters = recorded.counters
    last_transfer = max(_latest_end(counters, "READ"), _latest_end(counters, "WRITE"))
    last_close = _latest_end(counters, "CLOSE")
    if last_transfer <= 0 or last_close <= 0:
        return unknown
    tail_s = max(0.0, last_close - last_transfer)
    return {"close_tail_s": tail_s, "close_tail_share_of_run": _ratio_or_none(tail_s, run_time_s)}


def _latest_end(counters: Mapping[str, float], operation: str) -> float:
    """When the last operation of this name ended in any layer, in seconds of the run; 0 if there is none."""
    ends = [counters.get(f"{layer}_F_{operation}_END_TIMESTAMP", 0.0) for layer in _CLOSING_LAYERS]
    return max(ends)


def rank_imbalance(counters: Mapping[str, float], time_by_slowest_s: float, ranks: int) -> float | None:
    """Return Darshan's time of the slowest path through a module's files / mean time per rank; 1 is balanced."""
    time_of_all_ranks = sum(value for name, value in counters.items() if _TIME_COUNTER.fullmatch(name))
    return _ratio_or_none(time_by_slowest_s, time_of_all_ranks / ranks)


@dataclass(frozen=True)
class _RecordedCounters:
    """Darshan's counters of all modules, and the modules that were recorded but cannot be read."""

    counters: Mapping[str, Number]
    damaged_modules: Collection[str]

    def lacks_any(self, layers: Sequence[str]) -> bool:
        """Whether one of the layers, which are prefixes of counters, is damaged."""
        damaged_prefixes = [module.replace("-", "") for module in self.damaged_modules]
        return any(layer in damaged_prefixes for layer in layers)


def derive_figures(
    totals: Mapping[str, Mapping[str, Number]],
    files: Sequence[Mapping[str, Any]],
    ranks: int,
    run_time_s: float,
    damaged_modules: Collection[str] = (),
) -> dict[str, Any]:
    """Return all figures derived from totals and files; None if the log lacks the data for one.

    Args:
        totals: module to Darshan's counters, combined.
        files: rows of `build_file_rows`, in descending order of time.
        ranks, run_time_s: from the job.
        damaged_modules: those that the log has and that are not in the totals, as they cannot be read.
    """
    counters: dict[str, Number] = {}
    for module_counters in totals.values():
        counters |= module_counters
    recorded = _RecordedCounters(counters, damaged_modules)
    read = _storage_sum(recorded, "BYTES_READ")
    written = _storage_sum(recorded, "BYTES_WRITTEN")
    return {
        "bytes_read": read,
        "bytes_written": written,
        "read_back_ratio": _ratio_or_none(read, written),
        **_io_time_figures(recorded, ranks, run_time_s),
        **_close_tail(recorded, run_time_s),
        **{share.name: share.value(counters) for share in _SHARES},
        **_slowest_file(files, recorded),
    }


def _slowest_file(files: Sequence[Mapping[str, Any]], recorded: _RecordedCounters) -> dict[str, Any]:
    """The file with the longest time of one rank; `files` are in descending order of that.

    It is unknown if a module of files is damaged: its files, or their time, are not among the rows.
    """
    lacks_files = any(module in GENERIC_MODULES for module in recorded.damaged_modules)
    if lacks_files or not files or not files[0]["slowest"]:
        return {"slowest_file": None, "slowest_rank": None, "slowest_rank_s": None}
    slowest = files[0]["slowest"]
    return {"slowest_file": files[0]["path"], "slowest_rank": slowest["rank"], "slowest_rank_s": slowest["time_s"]}


# Counters that can be summed over a file's records and describe its use. Histograms and others are only in the
# totals.
_FILE_COUNTERS = re.compile(
    r"(POSIX|MPIIO|STDIO|H5F|H5D|PNETCDF_FILE|PNETCDF_VAR|DFS|DAOS)_"
    r"((INDEP_|COLL_|SPLIT_|NB_)?(OPENS|READS|WRITES)|CREATES|STATS|SEEKS|F?D?SYNCS|FLUSHES"
    r"|BYTES_(READ|WRITTEN)|FILE_NOT_ALIGNED|F_(READ|WRITE|META)_TIME)"
)


def find_mount(path: str, mounts: list[tuple[str, str]]) -> tuple[str | None, str | None]:
    """Return mount point and file system type of a path; `mounts` is sorted by length, longest mount point first."""
    for mount_point, file_system_type in mounts:
        if path == mount_point or path.startswith(mount_point.rstrip("/") + "/"):
            return mount_point, file_system_type
    return None, None


def slowest_per_record(records: ModuleRecords) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return, per record, the time of its slowest rank in this file (s) and that rank, both (n,).

    The time is 0 if a record has only the sum over all ranks.
    """
    integers, floats = records.names
    # A record of one rank: the time of that rank, which is the only one.
    is_time = [bool(_TIME_COUNTER.fullmatch(name)) for name in floats]
    time_of_own_rank = records.floats[:, is_time].clip(min=0).sum(axis=1)
    # A record that Darshan reduced over all ranks: what it kept of the slowest one.
    kept_time = _column_with_suffix(floats, records.floats, "_F_SLOWEST_RANK_TIME", absent=0.0)
    kept_rank = _column_with_suffix(integers, records.integers, "_SLOWEST_RANK", absent=-1)
    is_reduced = records.ranks == -1
    return np.where(is_reduced, kept_time, time_of_own_rank), np.where(is_reduced, kept_rank, records.ranks)


def _column_with_suffix(names: Sequence[str], table: NDArray[Any], suffix: str, absent: float) -> NDArray[Any] | float:
    """The first column whose counter has the suffix; `absent` if the module has none."""
    for index, name in enumerate(names):
        if name.endswith(suffix):
            column: NDArray[Any] = table[:, index]
            return column
    return absent


@dataclass(frozen=True)
class _FileSums:
    """The records of one module, combined per file: n files, k counters of `_FILE_COUNTERS`.

    Attributes:
        ids: (n,), of the files.
        counters: names of the k counters.
        sums: (n, k), summed over the records of a file.
        sharers: (n,), number of records of a file, which is that of its ranks unless it is reduced.
        is_reduced: (n,), whether a record of the file is of all ranks.
        slowest_s, slowest_rank: (n,), longest time of one rank in the file, and that rank.
    """

    ids: NDArray[np.uint64]
    counters: list[str]
    sums: NDArray[np.float64]
    sharers: NDArray[np.int64]
    is_reduced: NDArray[np.bool_]
    slowest_s: NDArray[np.float64]
    slowest_rank: NDArray[np.int64]


def _sum_by_file(records: ModuleRecords) -> _FileSums:
    ids, file_of_record = np.unique(records.ids, return_inverse=True)
    integers, floats = records.names
    counters = [*integers, *floats]
    table = np.hstack([records.integers, records.floats])
    columns = [index for index, counter in enumerate(counters) if _FILE_COUNTERS.fullmatch(counter)]
    sums = np.zeros((len(ids), len(columns)))
    np.add.at(sums, file_of_record, table[:, columns])

    # Sorted by file, then by time: the last record of each file is that of its slowest rank.
    times, slowest_ranks = slowest_per_record(records)
    order = np.lexsort((times, file_of_record))
    is_last_of_file = np.append(np.diff(file_of_record[order]) > 0, True)
    slowest_records = order[is_last_of_file]
    return _FileSums(
        ids=ids,
        counters=[counters[column] for column in columns],
        sums=sums,
        sharers=np.bincount(file_of_record),
        is_reduced=np.bincount(file_of_record, weights=records.ranks == -1) > 0,
        slowest_s=times[slowest_records],
        slowest_rank=slowest_ranks[slowest_records],
    )


def _add_module(rows: dict[int, dict[str, Any]], records: ModuleRecords, names: dict[int, str], job: JobInfo) -> None:
    """Add the files of one module to the rows, and its counters to files that have a row."""
    files = _sum_by_file(records)
    for index, record_id in enumerate(files.ids.tolist()):
        if record_id not in rows:
            rows[record_id] = _new_row(record_id, names.get(record_id), job)
        row = rows[record_id]
        sharers = job.ranks if files.is_reduced[index] else int(files.sharers[index])
        row["ranks"] = max(row["ranks"], sharers)
        row["shared"] = row["ranks"] > 1
        for counter, value in zip(files.counters, files.sums[index].tolist(), strict=True):
            if value > 0:
                row["counters"][counter] = value if "_F_" in counter else int(value)
        if row["slowest"] is None and files.slowest_s[index] > 0:
            row["slowest"] = {
                "module": records.module,
                "rank": int(files.slowest_rank[index]),
                "time_s": float(files.slowest_s[index]),
            }


def _new_row(record_id: int, path: str | None, job: JobInfo) -> dict[str, Any]:
    mount_point, file_system_type = find_mount(path or "", job.mounts)
    return {
        "path": path,
        "id": str(record_id),
        "mount": mount_point,
        "file_system": file_system_type,
        "shared": False,
        "ranks": 0,
        "slowest": None,
        "stripes": None,
        "counters": {},
    }


def slowest_rank_by_module(modules: list[ModuleRecords], names: dict[int, str]) -> dict[str, dict[str, Any]]:
    """Return, per module, the rank with the longest time in one file or dataset, that time (s), and the path.

    Modules without such times are omitted: for files opened by all ranks, H5F and PNETCDF_FILE record only the sum.
    """
    slowest = {}
    for records in modules:
        times, ranks = slowest_per_record(records)
        record = int(np.argmax(times))
        if times[record] > 0:
            slowest[records.module] = {
                "file": names.get(int(records.ids[record])),
                "rank": int(ranks[record]),
                "time_s": float(times[record]),
            }
    return slowest


def build_file_rows(
    modules: list[ModuleRecords], names: dict[int, str], job: JobInfo, stripes: dict[int, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rows of all files in descending order of time.

    Args:
        modules: records by module; the first module with a file determines its slowest rank.
        names: record id to path.
        job: for ranks and mount points.
        stripes: record id to Lustre layout.

    Returns:
        `path` (None if the log does not name it), `id`, `mount`, `file_system`, `ranks` that used it, `shared`,
        `slowest` (module, rank, time_s), `stripes`, and Darshan's `counters` above 0, summed over ranks.
    """
    rows: dict[int, dict[str, Any]] = {}
    for records in modules:
        _add_module(rows, records, names, job)
    for record_id, layout in stripes.items():
        if record_id in rows:
            rows[record_id]["stripes"] = layout
    return sorted(rows.values(), key=_time_of_slowest_rank, reverse=True)


def _time_of_slowest_rank(row: Mapping[str, Any]) -> float:
    if row["slowest"] is None:
        return 0.0
    time_s: float = row["slowest"]["time_s"]
    return time_s
