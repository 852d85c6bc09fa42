"""A log read into one document: job, totals of every module, derived figures, files. Runs in the worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from iowatch.darshan import container, dxt
from iowatch.darshan.derived import derive, imbalance
from iowatch.darshan.files import file_rows, slowest_ranks
from iowatch.darshan.records import GENERIC, Accumulated, Job, Log, Records, accumulate, open_log
from iowatch.darshan.totals import Number, counters
from iowatch.errors import InputError
from iowatch.units import format_time

_PREFIX = {"MPI-IO": "MPIIO"}
_MEMORY = "Darshan ran out of memory during the run: records are missing"


@dataclass
class _Reading:
    """What has been read so far, and what could not be."""

    totals: dict[str, dict[str, Any]] = field(default_factory=dict)
    accumulated: dict[str, Accumulated] = field(default_factory=dict)
    records: list[Records] = field(default_factory=list)
    stripes: dict[int, dict[str, Any]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def _read_generic(reading: _Reading, log: Log, module: str, ranks: int) -> None:
    records = log.records(module, ranks)
    if not len(records.ids):
        return
    totals = accumulate(records, ranks)
    reading.totals[module] = counters(records, totals)
    reading.records.append(records)
    if totals is not None:
        reading.accumulated[module] = totals


def _trace_totals(path: Path, header: container.Header, module: str) -> dict[str, Number]:
    sums: dict[str, Number] = {
        "records": 0,
        "write_count": 0,
        "read_count": 0,
        "write_bytes": 0,
        "read_bytes": 0,
    }
    for trace in dxt.read_traces(path, header, module):
        sums["records"] += 1
        sums["write_count"] += len(trace.writes)
        sums["read_count"] += len(trace.reads)
        sums["write_bytes"] += int(trace.writes["length"].sum())
        sums["read_bytes"] += int(trace.reads["length"].sum())
    return sums


def _read_heatmap(reading: _Reading, log: Log, module: str, ranks: int) -> None:
    sums: dict[str, Number] = {}
    for heat in log.heatmap(reading.names):
        layer = heat.layer.lower()
        for word, bins in (("write", heat.write_bytes), ("read", heat.read_bytes)):
            sums[f"{layer}_{word}_bytes"] = sums.get(f"{layer}_{word}_bytes", 0) + int(bins.sum())
        sums["nbins"], sums["bin_width_seconds"] = len(heat.write_bytes), heat.bin_s
    reading.totals[module] = sums


def _read_lustre(reading: _Reading, log: Log, module: str, ranks: int) -> None:
    components = stripes = 0
    # A file that several ranks opened has a record of each, all with the same layout.
    for record_id, layout in log.stripes():
        components += len(layout["components"])
        stripes += layout["stripes"]
        reading.stripes[record_id] = layout
    reading.totals[module] = {"LUSTRE_NUM_COMPONENTS": components, "LUSTRE_NUM_STRIPES": stripes}


_Reader = Callable[[_Reading, Log, str, int], None]
_READERS: dict[str, _Reader] = {
    **dict.fromkeys(GENERIC, _read_generic),
    "HEATMAP": _read_heatmap,
    "LUSTRE": _read_lustre,
}


def _read_modules(
    path: Path, log: Log, header: container.Header, damaged: dict[str, str], ranks: int
) -> _Reading:
    reading = _Reading(missing=dict(damaged))
    if header.names is not None and "names" not in damaged:
        reading.names = log.names()
    for module in header.modules:
        if module in damaged:
            continue
        reader = _READERS.get(module)
        try:
            if module in dxt.MODULES:
                reading.totals[module] = _trace_totals(path, header, module)
            elif reader is not None:
                reader(reading, log, module, ranks)
            else:
                reading.totals[module] = {}
        except InputError as error:
            reading.missing[module] = error.message
    for module in log.partial_modules():
        reading.missing.setdefault(module, _MEMORY)
    return reading


def _reason(missing: dict[str, str]) -> str | None:
    return "; ".join(f"{part}: {why}" for part, why in missing.items()) or None


def _job_document(job: Job, header: container.Header) -> dict[str, Any]:
    def moment(seconds: float) -> str:
        return format_time(datetime.fromtimestamp(seconds, UTC))

    return {
        "ranks": job.ranks,
        "exe": job.exe,
        "start": moment(job.start_s),
        "end": moment(job.end_s),
        "run_time_s": job.run_time_s,
        "darshan_version": job.metadata.get("lib_ver"),
        "log_version": header.version,
        "jobid": job.jobid,
        "uid": None if job.uid < 0 else job.uid,
        "metadata": job.metadata,
    }


def _performance(reading: _Reading, ranks: int) -> dict[str, Any]:
    """Darshan's own estimates a module: bandwidth (MiB/s), time (s), imbalance, numbers of files."""
    figures: dict[str, Any] = {}
    for module, total in reading.accumulated.items():
        prefix = _PREFIX.get(module, module)
        figures[module] = {
            "bandwidth_mib_per_s": total.bandwidth_mib_per_s or None,
            "time_by_slowest_s": total.time_by_slowest_s,
            "imbalance": imbalance(reading.totals, module, prefix, total.time_by_slowest_s, ranks),
            "files": total.files,
        }
    return figures


def summarise(path: Path) -> dict[str, Any]:
    """The document of one log (see `iowatch.darshan.trace.Trace`), with status `ok` or `partial`.

    Modules that are damaged are left out of `modules`, never added up in part; those for which Darshan itself
    ran out of memory are there, and named in `missing`.

    Raises:
        InputError: nothing can be read: the header or the job's facts are damaged, or it is no Darshan log.
    """
    header = container.read_header(path)
    damaged = container.damage(path, header)
    if "job" in damaged:
        raise InputError(f"{path}: the job's facts are {damaged['job']}")
    with open_log(path) as log:
        job = log.job()
        reading = _read_modules(path, log, header, damaged, job.ranks)
    files = file_rows(reading.records, reading.names, job, reading.stripes)
    return {
        "status": "partial" if reading.missing else "ok",
        "reason": _reason(reading.missing),
        "job": _job_document(job, header),
        "modules": reading.totals,
        "derived": {
            **derive(reading.totals, files, job.ranks, job.run_time_s),
            "performance": _performance(reading, job.ranks),
            "slowest": slowest_ranks(reading.records, reading.names),
        },
        "files": files,
        "missing": reading.missing,
    }
