"""Summary of a log (`summarise_log`) and its accesses over time (`read_activity`). Runs in the worker process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iowatch.core import InputError, format_time
from iowatch.darshan import figures, log

_OUT_OF_MEMORY = "Darshan ran out of memory during the run: records are missing"


@dataclass
class _LogContents:
    """Contents of an open log, read module by module; `missing` contains each unreadable part."""

    path: Path
    header: log.LogHeader
    opened: log.DarshanLog
    job: log.JobInfo
    missing: dict[str, str]
    names: dict[int, str] = field(default_factory=dict)
    totals: dict[str, dict[str, Any]] = field(default_factory=dict)
    estimates: dict[str, dict[str, Any]] = field(default_factory=dict)
    records: list[log.ModuleRecords] = field(default_factory=list)
    stripes: dict[int, dict[str, Any]] = field(default_factory=dict)

    def read(self) -> None:
        """Read all undamaged modules."""
        if self.header.names is not None and "names" not in self.missing:
            self.names = self.opened.names()
        for module in self.header.modules:
            if module not in self.missing:
                try:
                    self._read_module(module)
                except InputError as error:
                    self.missing[module] = error.message
        for module in self.opened.partial_modules():
            self.missing.setdefault(module, _OUT_OF_MEMORY)

    def _read_module(self, module: str) -> None:
        if module in log.GENERIC_MODULES:
            self._read_generic(module)
        elif module in log.DXT_MODULES:
            records = [accesses for *_, accesses in log.read_dxt_records(self.path, self.header, module)]
            totals = self.totals[module] = {"records": len(records)}
            for kind in ("write", "read"):
                totals[f"{kind}_count"] = sum(len(record[kind]) for record in records)
                totals[f"{kind}_bytes"] = sum(int(record[kind]["length"].sum()) for record in records)
        elif module == "HEATMAP":
            self.totals[module] = self._heatmap_totals()
        elif module == "LUSTRE":
            # A file that several ranks opened has one record per rank, all with the same layout.
            layouts = list(self.opened.stripes())
            self.stripes = dict(layouts)
            self.totals[module] = {
                "LUSTRE_NUM_COMPONENTS": sum(len(layout["components"]) for _, layout in layouts),
                "LUSTRE_NUM_STRIPES": sum(layout["stripes"] for _, layout in layouts),
            }
        else:
            self.totals[module] = {}

    def _read_generic(self, module: str) -> None:
        records = self.opened.records(module, self.job.ranks)
        if not len(records.ids):
            return
        self.records.append(records)
        if (total := log.accumulate_totals(records, self.job.ranks)) is None:
            self.totals[module] = figures.combine_counters(records)
        else:
            self.totals[module], estimates = total
            imbalance = figures.rank_imbalance(total[0], estimates["time_by_slowest_s"], self.job.ranks)
            self.estimates[module] = {**estimates, "imbalance": imbalance}

    def _heatmap_totals(self) -> dict[str, figures.Number]:
        sums: dict[str, figures.Number] = {}
        for heat in self.opened.heatmap(self.names):
            for kind, bins in heat.moved_bytes.items():
                name = f"{heat.layer.lower()}_{kind}_bytes"
                sums[name] = sums.get(name, 0) + int(bins.sum())
            sums["nbins"], sums["bin_width_seconds"] = len(bins), heat.bin_s
        return sums


_JOB_FACTS = ("ranks", "exe", "run_time_s", "jobid", "metadata")


def summarise_log(path: Path) -> dict[str, Any]:
    """Return the document of one log (see `iowatch.darshan.trace.Trace`), with status `ok` or `partial`.

    Damaged modules are omitted from `modules`, never combined partially. Modules for which Darshan itself ran out of
    memory are in `modules` and in `missing`.

    Raises:
        InputError: nothing is readable: the header or the job record is damaged, or it is not a Darshan log.
    """
    header = log.read_header(path)
    damaged = log.find_damaged_regions(path, header)
    if "job" in damaged:
        raise InputError(f"{path}: the job's facts are {damaged['job']}")
    with log.open_log(path) as opened:
        found = _LogContents(path, header, opened, job := opened.job(), damaged)
        found.read()
    start, end = (format_time(datetime.fromtimestamp(seconds, UTC)) for seconds in (job.start_s, job.end_s))
    version, uid = job.metadata.get("lib_ver"), None if job.uid < 0 else job.uid
    times = {"start": start, "end": end, "darshan_version": version, "log_version": header.version, "uid": uid}
    files = figures.build_file_rows(found.records, found.names, job, found.stripes)
    return {
        "status": "partial" if found.missing else "ok",
        "reason": "; ".join(f"{part}: {why}" for part, why in found.missing.items()) or None,
        "job": {name: getattr(job, name) for name in _JOB_FACTS} | times,
        "modules": found.totals,
        "derived": {
            **figures.derive_figures(found.totals, files, job.ranks, job.run_time_s),
            "performance": found.estimates,
            "slowest": figures.slowest_rank_by_module(found.records, found.names),
        },
        "files": files,
        "missing": found.missing,
    }


# Spans closer than this share of the run are merged: the gap would be invisible, and the picture stays small.
_RESOLUTION = 1 / 4000

Spans = list[tuple[float, float]]
# Kind (`write` or `read`), rank, and starts and ends in seconds, both (n,).
_BusyTimes = Iterator[tuple[str, int, NDArray[Any], NDArray[Any]]]


def merge_spans(starts: NDArray[Any], ends: NDArray[Any], gap_s: float) -> Spans:
    """Merge spans that overlap or are at most `gap_s` apart.

    Args:
        starts, ends: (n,) in seconds, in any order; n > 0.
        gap_s: at least 0.

    Returns:
        (start, end), in time order.
    """
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    new = np.append(True, starts[1:] > ends[:-1] + gap_s)
    lasts = np.append(np.flatnonzero(new)[1:] - 1, len(starts) - 1)
    return list(zip(starts[new].tolist(), ends[lasts].tolist(), strict=True))


def _dxt_busy_times(path: Path, header: log.LogHeader, module: str) -> _BusyTimes:
    for _, rank, record in log.read_dxt_records(path, header, module):
        for kind, accesses in record.items():
            yield kind, rank, accesses["start"], accesses["end"]


def _heatmap_busy_times(path: Path, layer: str) -> _BusyTimes:
    """Yield every bin in which a rank moved any byte as busy: the heatmap has no finer resolution."""
    with log.open_log(path) as opened:
        for heat in opened.heatmap(opened.names()):
            if heat.layer == layer and heat.rank >= 0:
                for kind, counts in heat.moved_bytes.items():
                    busy = np.flatnonzero(counts > 0)
                    yield kind, heat.rank, busy * heat.bin_s, (busy + 1) * heat.bin_s


def _collect_spans(busy: _BusyTimes, gap_s: float) -> dict[str, dict[str, Spans]]:
    """Return `write` and `read`: rank (as text: JSON has no integer keys) to its spans."""
    parts: dict[tuple[str, str], list[tuple[NDArray[Any], NDArray[Any]]]] = {}
    for kind, rank, starts, ends in busy:
        if len(starts):
            parts.setdefault((kind, str(rank)), []).append((starts, ends))
    spans: dict[str, dict[str, Spans]] = {"write": {}, "read": {}}
    for (kind, name), found in parts.items():
        starts, ends = map(np.concatenate, zip(*found, strict=True))
        spans[kind][name] = merge_spans(starts, ends, gap_s)
    return spans


def _activity_sources(path: Path, header: log.LogHeader) -> Iterator[tuple[str, str, _BusyTimes]]:
    """Yield (source, layer, busy times) of the available sources, best first."""
    damaged = log.find_damaged_regions(path, header)
    for module in log.DXT_MODULES:
        if module in header.modules and module not in damaged:
            yield module, module.removeprefix("DXT_"), _dxt_busy_times(path, header, module)
    if "HEATMAP" in header.modules and not {"HEATMAP", "names"} & damaged.keys():
        for layer in ("POSIX", "MPIIO", "STDIO"):
            yield "HEATMAP", layer, _heatmap_busy_times(path, layer)


def read_activity(path: Path) -> dict[str, Any]:
    """Return the spans of writing and reading of each rank.

    Returns:
        `source` (`DXT_MPIIO`, `DXT_POSIX`, or `HEATMAP`), `layer`, `ranks`, `run_time_s`, `exe`, and `write`
        and `read`: rank (as text) to a list of (start, end) in seconds since the start of the job.

    Raises:
        InputError: unreadable, or the log contains neither DXT nor a heatmap.
    """
    header = log.read_header(path)
    with log.open_log(path) as opened:
        job = opened.job()
    facts = {"ranks": job.ranks, "run_time_s": job.run_time_s, "exe": job.exe}
    for source, layer, busy in _activity_sources(path, header):
        spans = _collect_spans(busy, job.run_time_s * _RESOLUTION)
        if spans["write"] or spans["read"]:
            return {**facts, "source": source, "layer": layer, **spans}
    message = f"{path}: no timeline: the log holds neither a DXT trace nor a heatmap of any access"
    raise InputError(message, hint="Run with DXT_ENABLE_IO_TRACE=1, or with Darshan 3.4 or later for the heatmap.")
