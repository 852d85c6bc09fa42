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
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from iowatch.darshan.log import JobInfo, ModuleRecords


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


_COMBINATION_RULES: tuple[tuple[str, Callable[[_Column], Number]], ...] = (
    (r"_F_.*START_TIMESTAMP$", _earliest_time),
    (r"_F_.*END_TIMESTAMP$|_F_MAX_.*_TIME$|_MAX_BYTE_|_USE_|_IS_RECORD_VAR$", lambda column: column.max().item()),
    (r"_MODE$|_ALIGNMENT$|_NDIMS$|_NPOINTS$|_DATATYPE_SIZE$|_CHUNK_SIZE_|RANK", _value_if_equal),
)


def _common_accesses(table: dict[str, _Column]) -> dict[str, Number]:
    """Return the four most frequent accesses (size, for datasets also lengths and strides) over all records."""
    slots: list[list[str]] = [[n for n in table if re.search(rf"_ACCESS{i}_(?!COUNT)", n)] for i in range(1, 5)]
    if not slots[0]:
        return {}
    prefix = slots[0][0].split("_ACCESS1_")[0]
    seen: Counter[tuple[int, ...]] = Counter()
    for i, names in enumerate(slots, start=1):
        counts = table[f"{prefix}_ACCESS{i}_COUNT"]
        for row in np.flatnonzero(counts > 0):
            seen[tuple(int(table[name][row]) for name in names)] += int(counts[row])
    ranking = sorted(seen.items(), key=lambda item: (-item[1], [-v for v in item[0]]))[:4]
    ranking += [((0,) * len(slots[0]), 0)] * (4 - len(ranking))
    merged: dict[str, Number] = {}
    for i, (names, (values, count)) in enumerate(zip(slots, ranking, strict=True), start=1):
        merged.update(zip(names, values, strict=True))
        merged[f"{prefix}_ACCESS{i}_COUNT"] = count
    return merged


def combine_counters(records: ModuleRecords) -> dict[str, Number]:
    """Return Darshan's counter names to values, combined over at least one record of one module."""
    integers, floats = records.names
    table: dict[str, _Column] = {name: records.integers[:, i] for i, name in enumerate(integers)}
    table |= {name: records.floats[:, i] for i, name in enumerate(floats)}
    combined: dict[str, Number] = {}
    for name, column in table.items():
        if match := re.fullmatch(r"(\w+)_MAX_(READ|WRITE)_TIME_SIZE", name):
            # Use the size of the slowest access from the record with that access.
            combined[name] = column[table[f"{match[1]}_F_MAX_{match[2]}_TIME"].argmax()].item()
        else:
            rule = next((rule for pattern, rule in _COMBINATION_RULES if re.search(pattern, name)), _sum_column)
            combined[name] = rule(column)
    return combined | _common_accesses(table)


# Histogram bins to 100 KiB. The next, 100K_1M, also contains accesses of exactly 1 MiB, the most common large size.
SMALL_ACCESS_BINS = ("0_100", "100_1K", "1K_10K", "10K_100K")
# Prefixes of the layers that pass data to the operating system. Data of MPI-IO or HDF5 passes through POSIX and is
# not counted twice.
_STORAGE_LAYERS = ("POSIX", "STDIO", "DFS")
_TIME_COUNTER = re.compile(r"\w+_F_(READ|WRITE|META)_TIME")


def _access_shares(word: str) -> dict[str, tuple[Sequence[str], Sequence[str]]]:
    """Shares of `WRITE` or `READ`: small (to 100 KiB), sequential (ascending), consecutive (adjacent), collective."""
    kind, count = word.lower(), [f"POSIX_{word}S"]
    # Split collectives count as collective.
    collective = [f"MPIIO_COLL_{word}S", f"MPIIO_SPLIT_{word}S"]
    return {
        f"small_{kind}_share": ([f"POSIX_SIZE_{word}_{size}" for size in SMALL_ACCESS_BINS], count),
        f"sequential_{kind}_share": ([f"POSIX_SEQ_{word}S"], count),
        f"consecutive_{kind}_share": ([f"POSIX_CONSEC_{word}S"], count),
        f"collective_{kind}_share": (collective, [*collective, f"MPIIO_INDEP_{word}S", f"MPIIO_NB_{word}S"]),
    }


# Figure to the counters of numerator and denominator, each summed.
_SHARES: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    **_access_shares("WRITE"),
    **_access_shares("READ"),
    "unaligned_share": (["POSIX_FILE_NOT_ALIGNED"], ["POSIX_WRITES", "POSIX_READS"]),
    "unaligned_memory_share": (["POSIX_MEM_NOT_ALIGNED"], ["POSIX_WRITES", "POSIX_READS"]),
}


def _ratio_or_none(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 and part >= 0 else None


def _storage_sum(counters: Mapping[str, float], counter: str) -> float:
    """Return a counter summed over the storage layers; -1 (not counted) counts as 0."""
    return sum(max(0, counters.get(f"{layer}_{counter}", 0)) for layer in _STORAGE_LAYERS)


def _io_time_figures(counters: Mapping[str, float], ranks: int, run_time_s: float) -> dict[str, float | None]:
    """Return shares of the time in I/O calls, summed over ranks; MPI-IO and HDF5 open, flush and close per rank."""
    read, write, meta = (_storage_sum(counters, f"F_{word}_TIME") for word in ("READ", "WRITE", "META"))
    whole = read + write + meta
    hdf5, mpiio = counters.get("H5F_F_META_TIME"), counters.get("MPIIO_F_META_TIME")
    return {
        "read_time_share": _ratio_or_none(read, whole),
        "write_time_share": _ratio_or_none(write, whole),
        "metadata_time_share": _ratio_or_none(meta, whole),
        "io_time_share_of_run": _ratio_or_none(whole, ranks * run_time_s),
        "mpiio_open_close_s_per_rank": None if mpiio is None else mpiio / ranks,
        "hdf5_open_close_s_per_rank": None if hdf5 is None else hdf5 / ranks,
        "hdf5_open_close_share_of_run": None if hdf5 is None else _ratio_or_none(hdf5, ranks * run_time_s),
    }


def _close_tail(counters: Mapping[str, float], run_time_s: float) -> dict[str, float | None]:
    """Return the time from the end of the last transfer to the end of the last close.

    Darshan does not time closing and truncating separately; this span contains both. It is the figure that shows
    HDF5's close on Lustre ([lawrence2017], "HDF5 Performance"), where H5Fclose sets the file size.
    """

    def latest(*words: str) -> float:
        layers = ("POSIX", "MPIIO", "H5F", "H5D")
        return max(counters.get(f"{layer}_F_{word}_END_TIMESTAMP", 0.0) for layer in layers for word in words)

    transfer, close = latest("READ", "WRITE"), latest("CLOSE")
    tail = max(0.0, close - transfer) if transfer and close else None
    share = None if tail is None else _ratio_or_none(tail, run_time_s)
    return {"close_tail_s": tail, "close_tail_share_of_run": share}


def rank_imbalance(counters: Mapping[str, float], time_by_slowest_s: float, ranks: int) -> float | None:
    """Return Darshan's time of the slowest path through a module's files / mean time per rank; 1 is balanced."""
    whole = sum(value for name, value in counters.items() if _TIME_COUNTER.fullmatch(name))
    return _ratio_or_none(time_by_slowest_s, whole / ranks)


def derive_figures(
    totals: Mapping[str, Mapping[str, float]], files: Sequence[Mapping[str, Any]], ranks: int, run_time_s: float
) -> dict[str, Any]:
    """Return all figures derived from totals and files; None if the log lacks the data for one.

    Args:
        totals: module to Darshan's counters, combined.
        files: rows of `build_file_rows`, in descending order of time.
        ranks, run_time_s: from the job.
    """
    counters = {name: value for module in totals.values() for name, value in module.items()}
    sums = {name: [sum(counters.get(n, 0) for n in names) for names in both] for name, both in _SHARES.items()}
    shares = {name: _ratio_or_none(part, whole) for name, (part, whole) in sums.items()}
    read, written = _storage_sum(counters, "BYTES_READ"), _storage_sum(counters, "BYTES_WRITTEN")
    amounts = {"bytes_read": int(read), "bytes_written": int(written), "read_back_ratio": _ratio_or_none(read, written)}
    path, slowest = (files[0]["path"], files[0]["slowest"]) if files and files[0]["slowest"] else (None, {})
    slow = {"slowest_file": path, "slowest_rank": slowest.get("rank"), "slowest_rank_s": slowest.get("time_s")}
    times = _io_time_figures(counters, ranks, run_time_s) | _close_tail(counters, run_time_s)
    return {**amounts, **times, **shares, **slow}


# Counters that can be summed over a file's records and describe its use. Histograms and others are only in the
# totals.
_FILE_COUNTERS = re.compile(
    r"(POSIX|MPIIO|STDIO|H5F|H5D|PNETCDF_FILE|PNETCDF_VAR|DFS|DAOS)_"
    r"((INDEP_|COLL_|SPLIT_|NB_)?(OPENS|READS|WRITES)|CREATES|STATS|SEEKS|F?D?SYNCS|FLUSHES"
    r"|BYTES_(READ|WRITTEN)|FILE_NOT_ALIGNED|F_(READ|WRITE|META)_TIME)"
)


def find_mount(path: str, mounts: list[tuple[str, str]]) -> tuple[str | None, str | None]:
    """Return mount point and file system type of a path; `mounts` is sorted by length, longest mount point first."""
    for point, kind in mounts:
        if path == point or path.startswith(point.rstrip("/") + "/"):
            return point, kind
    return None, None


def slowest_per_record(records: ModuleRecords) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return, per record, the time of its slowest rank in this file (s) and that rank, both (n,).

    The time is 0 if a record has only the sum over all ranks.
    """
    integers, floats = records.names
    own = records.floats[:, [bool(_TIME_COUNTER.fullmatch(name)) for name in floats]].sum(axis=1)
    times = [records.floats[:, i] for i, name in enumerate(floats) if name.endswith("_F_SLOWEST_RANK_TIME")]
    ranks = [records.integers[:, i] for i, name in enumerate(integers) if name.endswith("_SLOWEST_RANK")]
    reduced = records.ranks == -1
    time, rank = times[0] if times else 0.0, ranks[0] if ranks else -1
    return np.where(reduced, time, own), np.where(reduced, rank, records.ranks)


_EMPTY_ROW = {"shared": False, "ranks": 0, "slowest": None, "stripes": None}


def _add_module(rows: dict[int, dict[str, Any]], records: ModuleRecords, names: dict[int, str], job: JobInfo) -> None:
    integers, floats = records.names
    ids, inverse = np.unique(records.ids, return_inverse=True)
    table = np.hstack([records.integers, records.floats])
    kept = [(i, name) for i, name in enumerate([*integers, *floats]) if _FILE_COUNTERS.fullmatch(name)]
    sums = np.zeros((len(ids), len(kept)))
    np.add.at(sums, inverse, table[:, [i for i, _ in kept]])
    times, slowest = slowest_per_record(records)
    order = np.lexsort((times, inverse))
    last = order[np.append(np.flatnonzero(np.diff(inverse[order])), len(order) - 1)]
    reduced = np.bincount(inverse, weights=records.ranks == -1) > 0
    sharers = np.bincount(inverse)
    for n, record_id in enumerate(ids.tolist()):
        path = names.get(record_id)
        mount, kind = find_mount(path or "", job.mounts)
        facts = {"path": path, "id": str(record_id), "mount": mount, "file_system": kind}
        row = rows.setdefault(record_id, {**facts, **_EMPTY_ROW, "counters": {}})
        row["ranks"] = max(row["ranks"], job.ranks if reduced[n] else int(sharers[n]))
        row["shared"] = row["ranks"] > 1
        for (_, name), value in zip(kept, sums[n].tolist(), strict=True):
            if value > 0:
                row["counters"][name] = value if "_F_" in name else int(value)
        if row["slowest"] is None and times[last[n]] > 0:
            rank = int(slowest[last[n]])
            row["slowest"] = {"module": records.module, "rank": rank, "time_s": float(times[last[n]])}


def slowest_rank_by_module(modules: list[ModuleRecords], names: dict[int, str]) -> dict[str, dict[str, Any]]:
    """Return, per module, the rank with the longest time in one file or dataset, that time (s), and the path.

    Modules without such times are omitted: for files opened by all ranks, H5F and PNETCDF_FILE record only the sum.
    """
    found = {}
    for records in modules:
        times, ranks = slowest_per_record(records)
        worst = int(np.argmax(times))
        if times[worst] > 0:
            file, rank = names.get(int(records.ids[worst])), int(ranks[worst])
            found[records.module] = {"file": file, "rank": rank, "time_s": float(times[worst])}
    return found


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
    return sorted(rows.values(), key=lambda row: -(row["slowest"] or {"time_s": 0.0})["time_s"])
