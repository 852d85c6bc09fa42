"""TOKIO's table of a year of nightly benchmarks on Edison (`edison-summaries_….csv[.gz]`).

One row is one run: IOR, HACC-IO, VPIC-IO or BD-CATS (`dbscan_read`), 2,048 processes, on one of three Lustre
file systems; its bandwidth is Darshan's aggregate by the slowest rank, POSIX module, in MiB/s
(`darshan_agg_perf_by_slowest_posix`). Source: NERSC/tokio-abcutils; Lockwood et al., "A Year in the Life of a
Parallel File System", SC18.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from iowatch.errors import InputError
from iowatch.metrics import METRICS
from iowatch.model import Output, Result, Scalar
from iowatch.units import GIB

SYSTEM = "edison"

_BANDWIDTH = "darshan_agg_perf_by_slowest_posix"
_NEEDED = ("_datetime_start", "_datetime_end", "_file_system", "_jobid", "darshan_app", _BANDWIDTH)
_BENCHMARKS = {
    "ior": "ior",
    "hacc_io_read": "hacc-io",
    "hacc_io_write": "hacc-io",
    "vpicio_uni": "vpic-io",
    "dbscan_read": "bd-cats",
}
# What the file system did meanwhile, worth keeping beside the number (LMT and Slurm, by TOKIO).
_FACTS = (
    "fs_ave_gibs_read_per_sec",
    "fs_ave_gibs_written_per_sec",
    "fs_ave_mds_cpu",
    "fs_ave_oss_cpu",
    "fshealth_ost_avg_full_pct",
    "fshealth_ost_overloaded_ost_count",
    "jobsdb_concurrent_jobs",
    "topology_job_max_radius",
)


@dataclass(frozen=True)
class ImportedRun:
    """One row as a run of the history; times in epoch seconds UTC.

    Attributes:
        identity: the same for the same row in every import.
    """

    name: str
    partition: str
    started_at: int
    wall_s: float | None
    identity: str
    output: Output
    facts: Mapping[str, Any]


def read(path: Path) -> Iterator[ImportedRun]:
    """Runs of the table in its order; a run without a bandwidth comes as failed, with the reason.

    Raises:
        InputError: not this table, or a row that is damaged (file and line are named).
    """
    try:
        with _opened(path) as stream:
            reader = csv.reader(stream)
            names = _columns(path, next(reader, []))
            for line, values in enumerate(reader, start=2):
                # The table was written with a nameless index, which only its rows have.
                if len(values) != len(names) + 1:
                    raise InputError(f"{path}:{line}: {len(values)} fields, expected {len(names) + 1}")
                yield _run(dict(zip(names, values[1:], strict=True)), f"{path}:{line}")
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not readable: {error}") from error


def _columns(path: Path, names: list[str]) -> list[str]:
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise InputError(
            f"{path}: not a TOKIO summary: columns {', '.join(missing)} are missing",
            hint="Expected edison-summaries_….csv or .csv.gz of NERSC/tokio-abcutils.",
        )
    return names


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _run(row: Mapping[str, str], where: str) -> ImportedRun:
    program = row["darshan_app"].rsplit("/", 1)[-1]
    if program not in _BENCHMARKS:
        raise InputError(f"{where}: field 'darshan_app': '{program}' is not one of {', '.join(_BENCHMARKS)}")
    started, ended = (_number(row, name, where) for name in ("_datetime_start", "_datetime_end"))
    if started is None:
        raise InputError(f"{where}: field '_datetime_start' is empty, expected epoch seconds")
    case = _case(row, where)
    name = "-".join(str(p) for p in (program, case["file"], case["operation"], case["file_system"]))
    return ImportedRun(
        name=f"{name}-{int(started)}",
        partition="default",
        started_at=int(started),
        wall_s=None if ended is None else ended - started,
        identity=f"tokio {SYSTEM} {row['_jobid']} {program} {row['_file_system']} {int(started)}",
        output=_output(row, _BENCHMARKS[program], case, where),
        facts={key: number for key in _FACTS if (number := _number(row, key, where)) is not None},
    )


def _number(row: Mapping[str, str], name: str, where: str) -> float | None:
    text = row.get(name) or ""
    if not text:
        return None
    try:
        value = float(text)
    except ValueError as error:
        raise InputError(f"{where}: field '{name}' is '{text}', expected a number") from error
    return value if math.isfinite(value) else None


def _case(row: Mapping[str, str], where: str) -> dict[str, Scalar]:
    """What the row says of its case: the operation and the layout follow from Darshan's counters."""
    written = _number(row, "darshan_tot_bytes_written_posix", where) or 0.0
    loaded = _number(row, "darshan_tot_bytes_read_posix", where) or 0.0
    operation = "write" if written >= loaded else "read"
    ranks = int(_number(row, "darshan_nprocs", where) or 0)
    files = int(_number(row, f"darshan_biggest_{operation}_api_files", where) or 0)
    return {
        "operation": operation,
        "file": "per-process" if files == ranks else "shared",
        "ranks": ranks,
        "total_bytes": _rounded(max(written, loaded)),
        "file_system": row["_file_system"] or "unknown",
    }


def _rounded(size: float) -> int:
    """Bytes to whole GiB: headers of a few hundred bytes come and go, the case is the same."""
    return round(size / GIB) * GIB if size >= GIB else int(size)


def _output(row: Mapping[str, str], benchmark: str, case: Mapping[str, Scalar], where: str) -> Output:
    value = _number(row, _BANDWIDTH, where)
    facts = METRICS["bandwidth"]
    if value is None or not 0 < value < facts.ceiling:
        return Output(benchmark, None, "failed", f"no bandwidth: {_BANDWIDTH} is '{row[_BANDWIDTH]}'", ())
    kept = {name: part for name, part in case.items() if name != "operation"}
    result = Result(str(case["operation"]), "bandwidth", facts.unit, (value,), kept)
    return Output(benchmark, None, "ok", None, (result,))
