"""TOKIO's tables of a year of nightly benchmarks (`edison-summaries_….csv[.gz|.xz]`; Cori and Mira).

One row is one run: IOR, HACC-IO, VPIC-IO or BD-CATS (`dbscan_read`), on Edison with 2,048 processes on one of three
Lustre file systems; its bandwidth is Darshan's aggregate by the slowest rank, POSIX module, in MiB/s
(`darshan_agg_perf_by_slowest_posix`). Source: NERSC/tokio-abcutils; [lockwood2018], "A Year in the Life of a
Parallel File System".
"""

from __future__ import annotations

import csv
import gzip
import lzma
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

from iowatch.core import AVERAGED_COVARIATES, GIB, METRICS, InputError, Output, Result, Scalar

TOKIO_SYSTEM = "edison"

_BANDWIDTH = "darshan_agg_perf_by_slowest_posix"
_NEEDED = ("_datetime_start", "_datetime_end", "_file_system", "_jobid", "darshan_app", _BANDWIDTH)
_BENCHMARKS = {
    "ior": "ior",
    "hacc_io_read": "hacc-io",
    "hacc_io_write": "hacc-io",
    "vpicio_uni": "vpic-io",
    "dbscan_read": "bd-cats",
}


@dataclass(frozen=True)
class TokioRun:
    """One row as a run of the history; times in epoch seconds, UTC.

    Attributes:
        identity: equal for the same row in every import.
    """

    name: str
    partition: str
    started_at: int
    wall_s: float | None
    identity: str
    output: Output
    facts: Mapping[str, Any]


def read_tokio_summaries(path: Path) -> Iterator[TokioRun]:
    """Yield the runs of the table in its order; a run without a bandwidth is failed, with the reason.

    Raises:
        InputError: not this table, or a damaged row (with file and line).
    """
    try:
        with _open_table(path) as stream:
            reader = csv.reader(stream)
            names = next(reader, [])
            # The tables were written with an unnamed index column; only Mira's header contains it.
            names = names[1:] if names[:1] == [""] else names
            if missing := [name for name in _NEEDED if name not in names]:
                raise InputError(
                    f"{path}: not a TOKIO summary: columns {', '.join(missing)} are missing",
                    hint="Expected SYSTEM-summaries_….csv, .csv.gz or .csv.xz of NERSC/tokio-abcutils.",
                )
            for line, values in enumerate(reader, start=2):
                if len(values) != len(names) + 1:
                    raise InputError(f"{path}:{line}: {len(values)} fields, expected {len(names) + 1}")
                yield _make_tokio_run(dict(zip(names, values[1:], strict=True)), f"{path}:{line}")
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not readable: {error}") from error


def _open_table(path: Path) -> TextIO:
    openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
    return cast("TextIO", openers.get(path.suffix, open)(path, "rt", encoding="utf-8", newline=""))


def _make_tokio_run(row: Mapping[str, str], where: str) -> TokioRun:
    program = row["darshan_app"].rsplit("/", 1)[-1]
    if program not in _BENCHMARKS:
        raise InputError(f"{where}: field 'darshan_app': '{program}' is not one of {', '.join(_BENCHMARKS)}")
    started, ended = (_number(row, name, where) for name in ("_datetime_start", "_datetime_end"))
    if started is None:
        raise InputError(f"{where}: field '_datetime_start' is empty, expected epoch seconds")
    case = _tokio_case(row, where)
    name = "-".join(str(p) for p in (program, case["file"], case["operation"], case["file_system"]))
    return TokioRun(
        name=f"{name}-{int(started)}",
        partition="default",
        started_at=int(started),
        wall_s=None if ended is None else ended - started,
        identity=f"tokio {TOKIO_SYSTEM} {row['_jobid']} {program} {row['_file_system']} {int(started)}",
        output=_tokio_output(row, _BENCHMARKS[program], case, where),
        facts={key: number for key in AVERAGED_COVARIATES if (number := _number(row, key, where)) is not None},
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


def _tokio_case(row: Mapping[str, str], where: str) -> dict[str, Scalar]:
    """Return the case of a row; operation and layout follow from Darshan's counters."""
    written = _number(row, "darshan_tot_bytes_written_posix", where) or 0.0
    loaded = _number(row, "darshan_tot_bytes_read_posix", where) or 0.0
    operation, size = "write" if written >= loaded else "read", max(written, loaded)
    ranks = int(_number(row, "darshan_nprocs", where) or 0)
    files = int(_number(row, f"darshan_biggest_{operation}_api_files", where) or 0)
    return {
        "operation": operation,
        "file": "per-process" if files == ranks else "shared",
        "ranks": ranks,
        # whole GiB: headers of a few hundred bytes vary, the case is the same
        "total_bytes": round(size / GIB) * GIB if size >= GIB else int(size),
        "file_system": row["_file_system"] or "unknown",
    }


def _tokio_output(row: Mapping[str, str], benchmark: str, case: Mapping[str, Scalar], where: str) -> Output:
    value = _number(row, _BANDWIDTH, where)
    facts = METRICS["bandwidth"]
    if value is None or not 0 < value < facts.ceiling:
        return Output(benchmark, None, "failed", f"no bandwidth: {_BANDWIDTH} is '{row[_BANDWIDTH]}'", ())
    kept = {name: part for name, part in case.items() if name != "operation"}
    result = Result(str(case["operation"]), "bandwidth", facts.unit, (value,), kept)
    return Output(benchmark, None, "ok", None, (result,))
