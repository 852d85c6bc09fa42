"""Summary of a log (`summarise_log`) and its accesses over time (`read_activity`). Called in a worker process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iowatch.core import InputError, format_time
from iowatch.darshan import figures, log
from iowatch.darshan.targets import FileSystemTargets

_INVALID_TIMES = "it has times that are negative or denormal: their sums are left out"
_OUT_OF_MEMORY = "Darshan ran out of memory during the run: records are missing"
_OPERATIONS = ("write", "read")


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
        """Read the totals of a module; empty for one that is only listed."""
        if module in log.GENERIC_MODULES:
            self._read_generic(module)
        elif module in log.DXT_MODULES:
            self.totals[module] = self._dxt_totals(module)
        elif module == "HEATMAP":
            self.totals[module] = self._heatmap_totals()
        elif module == "LUSTRE":
            self.totals[module] = self._read_stripes()
        else:
            self.totals[module] = {}

    def _read_generic(self, module: str) -> None:
        """Read records, totals and estimates of a module with a record per file and rank; nothing without records.

        Darshan's own code computes totals and estimates. It has none for some modules: their counters are combined
        without estimates.
        """
        records = self.opened.records(module, self.job.ranks)
        if not len(records.ids):
            return
        self.records.append(records)
        if records.has_invalid_times:
            self.missing[module] = _INVALID_TIMES
        darshan_totals = log.accumulate_totals(records, self.job.ranks)
        if darshan_totals is None:
            self.totals[module] = figures.combine_counters(records)
            return
        self.totals[module], estimates = darshan_totals
        if figures.mark_uncounted_times(self.totals[module], records):
            # What a time is missing for cannot be estimated.
            self.estimates[module] = {"bandwidth_mib_per_s": None, "time_by_slowest_s": None, "imbalance": None}
            self.estimates[module]["files"] = estimates["files"]
            return
        imbalance = figures.rank_imbalance(self.totals[module], estimates["time_by_slowest_s"], self.job.ranks)
        self.estimates[module] = {**estimates, "imbalance": imbalance}

    def _dxt_totals(self, module: str) -> dict[str, figures.Number]:
        """Numbers of records and, by operation, of accesses and bytes of a DXT module."""
        totals: dict[str, figures.Number] = {"records": 0}
        for operation in _OPERATIONS:
            totals[f"{operation}_count"] = 0
            totals[f"{operation}_bytes"] = 0
        for _, _, accesses in log.read_dxt_records(self.path, self.header, module):
            totals["records"] += 1
            for operation in _OPERATIONS:
                totals[f"{operation}_count"] += len(accesses[operation])
                totals[f"{operation}_bytes"] += int(accesses[operation]["length"].sum())
        return totals

    def _heatmap_totals(self) -> dict[str, figures.Number]:
        """Bytes by layer and operation of the heatmaps, and number and width of their bins."""
        totals: dict[str, figures.Number] = {}
        for heatmap in self.opened.heatmap(self.names):
            for operation, bins in heatmap.moved_bytes.items():
                name = f"{heatmap.layer.lower()}_{operation}_bytes"
                totals[name] = totals.get(name, 0) + int(bins.sum())
            totals["nbins"] = len(heatmap.moved_bytes["read"])
            totals["bin_width_seconds"] = heatmap.bin_s
        return totals

    def _read_stripes(self) -> dict[str, figures.Number]:
        """Read the striping of each file, and return the numbers of components and stripes of all files."""
        # A file that several ranks opened has one record per rank, all with the same layout.
        layouts = list(self.opened.stripes())
        self.stripes = dict(layouts)
        return {
            "LUSTRE_NUM_COMPONENTS": sum(len(layout["components"]) for _, layout in layouts),
            "LUSTRE_NUM_STRIPES": sum(layout["stripes"] for _, layout in layouts),
        }


def summarise_log(path: Path) -> dict[str, Any]:
    """Return the document of one log (see `iowatch.darshan.trace.Trace`), with status `ok` or `partial`.

    Damaged modules are omitted from `modules`, never combined partially. Modules for which Darshan itself ran out of
    memory are in `modules` and in `missing`.

    Raises:
        InputError: nothing is readable: the header or the job record is damaged, or it is not a Darshan log.
    """
    header = log.read_header(path)
    damages = log.find_damaged_regions(path, header)
    if "job" in damages:
        raise InputError(f"{path}: the job's facts are {damages['job']}")
    with log.open_log(path) as opened:
        job = opened.job()
        contents = _LogContents(path, header, opened, job, missing=damages)
        contents.read()
    files = figures.build_file_rows(contents.records, contents.names, job, contents.stripes)
    damaged_modules = contents.missing.keys() - contents.totals.keys()
    derived = figures.derive_figures(contents.totals, files, job.ranks, job.run_time_s, damaged_modules)
    causes = [f"{region}: {cause}" for region, cause in contents.missing.items()]
    return {
        "status": "partial" if causes else "ok",
        "reason": "; ".join(causes) or None,
        "job": _job_facts(job, header.version),
        "modules": contents.totals,
        "derived": {
            **derived,
            "performance": contents.estimates,
            "slowest": figures.slowest_rank_by_module(contents.records, contents.names),
            "targets": [asdict(targets) for targets in _compare_targets(contents, files)],
        },
        "files": files,
        "missing": contents.missing,
    }


# File systems whose layouts Darshan records.
_FILE_SYSTEMS_WITH_LAYOUTS = ("lustre",)


def _compare_targets(contents: _LogContents, files: list[dict[str, Any]]) -> list[FileSystemTargets]:
    """What the files show about the targets of each file system with targets; empty without such a file system."""
    has_layouts = [row["file_system"] in _FILE_SYSTEMS_WITH_LAYOUTS for row in files]
    if not contents.stripes and not any(has_layouts):
        return []
    # With it the statistics are loaded, which logs without targets do not need.
    from iowatch.darshan import target_comparison

    mounts: dict[int, str] = {}
    for record_id, path in contents.names.items():
        mount_point, _ = figures.find_mount(path, contents.job.mounts)
        mounts[record_id] = mount_point or "unknown"
    comparisons = target_comparison.compare_log_targets(contents.records, contents.stripes, mounts, contents.job.ranks)
    module = "DXT_POSIX"
    if contents.stripes and contents.totals.get(module):
        accesses = log.read_dxt_records(contents.path, contents.header, module)
        comparisons = target_comparison.compare_accesses(comparisons, accesses, contents.stripes, mounts)
    # Files that moved data, but whose layouts the log does not have.
    used_mounts: set[str] = set()
    for row, is_with_layouts in zip(files, has_layouts, strict=True):
        if is_with_layouts and any("_BYTES_" in counter for counter in row["counters"]):
            used_mounts.add(row["mount"])
    return target_comparison.with_missing_layouts(comparisons, used_mounts)


def _job_facts(job: log.JobInfo, log_version: str) -> dict[str, Any]:
    """The job record as in the document of a log; times as text in UTC, a user id below 0 is none."""
    return {
        "ranks": job.ranks,
        "exe": job.exe,
        "run_time_s": job.run_time_s,
        "jobid": job.jobid,
        "metadata": job.metadata,
        "start": _format_seconds(job.start_s),
        "end": _format_seconds(job.end_s),
        "darshan_version": job.metadata.get("lib_ver"),
        "log_version": log_version,
        "uid": None if job.uid < 0 else job.uid,
    }


def _format_seconds(epoch_s: float) -> str:
    return format_time(datetime.fromtimestamp(epoch_s, UTC))


# Spans closer than this share of the run are merged: the gap would be invisible, and the picture stays small.
_RESOLUTION = 1 / 4000

Spans = list[tuple[float, float]]


@dataclass(frozen=True)
class _BusyTimes:
    """When one rank wrote or read: starts and ends of accesses in seconds, both (n,)."""

    operation: str
    rank: int
    starts: NDArray[Any]
    ends: NDArray[Any]


@dataclass(frozen=True)
class _ActivitySource:
    """A part of the log that says when ranks were busy."""

    name: str
    layer: str
    busy_times: Iterator[_BusyTimes]


def merge_spans(starts: NDArray[Any], ends: NDArray[Any], gap_s: float) -> Spans:
    """Merge spans that overlap or are at most `gap_s` apart.

    Args:
        starts, ends: (n,) in seconds, in any order; n > 0.
        gap_s: at least 0.

    Returns:
        (start, end), in time order.
    """
    order = np.argsort(starts, kind="stable")
    starts = starts[order]
    ends = np.maximum.accumulate(ends[order])
    # A span begins where the latest end so far is more than a gap ago.
    begins_span = np.append(True, starts[1:] > ends[:-1] + gap_s)
    last_of_span = np.append(np.flatnonzero(begins_span)[1:] - 1, len(starts) - 1)
    return list(zip(starts[begins_span].tolist(), ends[last_of_span].tolist(), strict=True))


def _dxt_busy_times(path: Path, header: log.LogHeader, module: str) -> Iterator[_BusyTimes]:
    for _, rank, record in log.read_dxt_records(path, header, module):
        for operation, accesses in record.items():
            yield _BusyTimes(operation, rank, accesses["start"], accesses["end"])


def _heatmap_busy_times(path: Path, layer: str) -> Iterator[_BusyTimes]:
    """Yield every bin in which a rank moved any byte as busy: the heatmap has no finer resolution."""
    with log.open_log(path) as opened:
        for heatmap in opened.heatmap(opened.names()):
            if heatmap.layer != layer or heatmap.rank < 0:
                continue
            for operation, moved_bytes in heatmap.moved_bytes.items():
                bins = np.flatnonzero(moved_bytes > 0)
                yield _BusyTimes(operation, heatmap.rank, bins * heatmap.bin_s, (bins + 1) * heatmap.bin_s)


def _collect_spans(busy_times: Iterator[_BusyTimes], gap_s: float) -> dict[str, dict[str, Spans]]:
    """Return `write` and `read`: rank (as text: JSON has no integer keys) to its spans."""
    # A rank has one entry for each of its files.
    entries_of: dict[tuple[str, int], list[_BusyTimes]] = {}
    for entry in busy_times:
        if len(entry.starts):
            entries_of.setdefault((entry.operation, entry.rank), []).append(entry)
    spans: dict[str, dict[str, Spans]] = {operation: {} for operation in _OPERATIONS}
    for (operation, rank), entries in entries_of.items():
        starts = np.concatenate([entry.starts for entry in entries])
        ends = np.concatenate([entry.ends for entry in entries])
        spans[operation][str(rank)] = merge_spans(starts, ends, gap_s)
    return spans


def _activity_sources(path: Path, header: log.LogHeader) -> Iterator[_ActivitySource]:
    """Yield the available sources, best first."""
    damages = log.find_damaged_regions(path, header)
    for module in log.DXT_MODULES:
        if module in header.modules and module not in damages:
            yield _ActivitySource(module, module.removeprefix("DXT_"), _dxt_busy_times(path, header, module))
    if "HEATMAP" in header.modules and not {"HEATMAP", "names"} & damages.keys():
        for layer in ("POSIX", "MPIIO", "STDIO"):
            yield _ActivitySource("HEATMAP", layer, _heatmap_busy_times(path, layer))


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
    for source in _activity_sources(path, header):
        spans = _collect_spans(source.busy_times, job.run_time_s * _RESOLUTION)
        if spans["write"] or spans["read"]:
            return {
                "ranks": job.ranks,
                "run_time_s": job.run_time_s,
                "exe": job.exe,
                "source": source.name,
                "layer": source.layer,
                **spans,
            }
    message = f"{path}: no timeline: the log holds neither a DXT trace nor a heatmap of any access"
    raise InputError(message, hint="Run with DXT_ENABLE_IO_TRACE=1, or with Darshan 3.4 or later for the heatmap.")
