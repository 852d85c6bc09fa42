"""Figures worked out from a log's totals. Every figure is None where the log has nothing to work it out from.

Definitions stand beside the numbers; docs/darshan.md lists them for readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Totals = Mapping[str, Mapping[str, float]]

# Layers that hand data to the operating system; what MPI-IO or HDF5 moves passes through POSIX and is not
# added again.
_STORAGE = (("POSIX", "POSIX"), ("STDIO", "STDIO"), ("DFS", "DFS"))
# Histogram bins to 100 KiB. The next, 100K_1M, holds accesses of exactly 1 MiB too, the commonest large size.
SMALL = ("0_100", "100_1K", "1K_10K", "10K_100K")


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 and part >= 0 else None


def _storage_sum(totals: Totals, counter: str) -> float:
    """A counter summed over the storage layers; -1 (not counted) is nothing."""
    return sum(max(0, totals.get(m, {}).get(f"{prefix}_{counter}", 0)) for m, prefix in _STORAGE)


def _posix(totals: Totals) -> dict[str, float | None]:
    """Shares of POSIX accesses: to 100 KiB, unaligned, sequential (ascending), consecutive (adjacent)."""
    c = totals.get("POSIX", {})
    figures: dict[str, float | None] = {}
    for word, ops in (("write", "WRITES"), ("read", "READS")):
        count = c.get(f"POSIX_{ops}", 0)
        small = sum(c.get(f"POSIX_SIZE_{word.upper()}_{size}", 0) for size in SMALL)
        figures[f"small_{word}_share"] = _ratio(small, count)
        figures[f"sequential_{word}_share"] = _ratio(c.get(f"POSIX_SEQ_{ops}", 0), count)
        figures[f"consecutive_{word}_share"] = _ratio(c.get(f"POSIX_CONSEC_{ops}", 0), count)
    accesses = c.get("POSIX_WRITES", 0) + c.get("POSIX_READS", 0)
    figures["unaligned_share"] = _ratio(c.get("POSIX_FILE_NOT_ALIGNED", 0), accesses)
    figures["unaligned_memory_share"] = _ratio(c.get("POSIX_MEM_NOT_ALIGNED", 0), accesses)
    return figures


def _mpiio(totals: Totals) -> dict[str, float | None]:
    """Share of MPI-IO transfers that were collective (split collectives count as collective)."""
    c = totals.get("MPI-IO", {})
    figures: dict[str, float | None] = {}
    for word in ("WRITES", "READS"):
        collective = c.get(f"MPIIO_COLL_{word}", 0) + c.get(f"MPIIO_SPLIT_{word}", 0)
        independent = c.get(f"MPIIO_INDEP_{word}", 0) + c.get(f"MPIIO_NB_{word}", 0)
        figures[f"collective_{word[:-1].lower()}_share"] = _ratio(collective, collective + independent)
    return figures


def _times(totals: Totals, ranks: int, run_time_s: float) -> dict[str, float | None]:
    """Where the time in I/O calls went, summed over ranks; and HDF5's open, flush and close per rank."""
    parts = {word: _storage_sum(totals, f"F_{word.upper()}_TIME") for word in ("read", "write", "meta")}
    whole = sum(parts.values())
    hdf5 = totals.get("H5F", {}).get("H5F_F_META_TIME")
    mpiio = totals.get("MPI-IO", {}).get("MPIIO_F_META_TIME")
    return {
        "read_time_share": _ratio(parts["read"], whole),
        "write_time_share": _ratio(parts["write"], whole),
        "metadata_time_share": _ratio(parts["meta"], whole),
        "io_time_share_of_run": _ratio(whole, ranks * run_time_s),
        "mpiio_open_close_s_per_rank": None if mpiio is None else mpiio / ranks,
        "hdf5_open_close_s_per_rank": None if hdf5 is None else hdf5 / ranks,
        "hdf5_open_close_share_of_run": None if hdf5 is None else _ratio(hdf5, ranks * run_time_s),
    }


def _close_tail(totals: Totals, run_time_s: float) -> dict[str, float | None]:
    """From the end of the last transfer to the end of the last close.

    Darshan counts neither closing nor truncating apart; this span contains both. It is the figure that shows
    HDF5's close on Lustre (Lawrence et al. 2017, "HDF5 Performance"), where H5Fclose sets the file's size.
    """
    ends = {"transfer": 0.0, "close": 0.0}
    for module, prefix in (("POSIX", "POSIX"), ("MPI-IO", "MPIIO"), ("H5F", "H5F"), ("H5D", "H5D")):
        c = totals.get(module, {})
        transfer = max(c.get(f"{prefix}_F_{word}_END_TIMESTAMP", 0.0) for word in ("READ", "WRITE"))
        ends["transfer"] = max(ends["transfer"], transfer)
        ends["close"] = max(ends["close"], c.get(f"{prefix}_F_CLOSE_END_TIMESTAMP", 0.0))
    if not ends["transfer"] or not ends["close"]:
        return {"close_tail_s": None, "close_tail_share_of_run": None}
    tail = max(0.0, ends["close"] - ends["transfer"])
    return {"close_tail_s": tail, "close_tail_share_of_run": _ratio(tail, run_time_s)}


def _slowest(files: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The file in which one rank spent most time (files come in that order)."""
    first = files[0] if files and files[0]["slowest"] else None
    return {
        "slowest_file": first["path"] if first else None,
        "slowest_rank": first["slowest"]["rank"] if first else None,
        "slowest_rank_s": first["slowest"]["time_s"] if first else None,
    }


def imbalance(totals: Totals, module: str, prefix: str, time_by_slowest_s: float, ranks: int) -> float | None:
    """Darshan's time of the slowest path through the files / the mean time of a rank; 1 is balance."""
    c = totals.get(module, {})
    whole = sum(c.get(f"{prefix}_F_{word}_TIME", 0.0) for word in ("READ", "WRITE", "META"))
    return _ratio(time_by_slowest_s, whole / ranks)


def derive(totals: Totals, files: Sequence[Mapping[str, Any]], ranks: int, run_time_s: float) -> dict[str, Any]:
    """All figures that follow from totals and files.

    Args:
        totals: module to Darshan's counters, combined.
        files: rows of `files.file_rows`.
        ranks: of the job.
        run_time_s: of the job.
    """
    read, written = _storage_sum(totals, "BYTES_READ"), _storage_sum(totals, "BYTES_WRITTEN")
    return {
        "bytes_read": int(read),
        "bytes_written": int(written),
        "read_back_ratio": _ratio(read, written),
        **_times(totals, ranks, run_time_s),
        **_close_tail(totals, run_time_s),
        **_posix(totals),
        **_mpiio(totals),
        **_slowest(files),
    }
