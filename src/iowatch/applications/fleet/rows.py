"""One log as one row: facts of the job, and sums per file system, layer and layout. Called in a worker process.

Only the counters that the report of a centre needs are read: no accesses over time, no heatmap, no table of files.
`iowatch.applications.fleet.batch` has the columns and their units.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iowatch.core import InputError
from iowatch.darshan import figures, log

# Modules with transfers or opens of files, from the top; the rest says nothing about the load of a file system.
LAYERS = ("H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR", "MPI-IO", "POSIX", "STDIO", "DFS")
# The module with the targets of files.
_LAYOUT_MODULE = "LUSTRE"
_BINS = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M", "100M_1G", "1G_PLUS")
# Until 2100; a damaged job record may state any time.
_LATEST_S = 4_102_444_800
# Programs that run others: the script is the application.
_INTERPRETERS = ("python", "perl", "ruby", "Rscript", "julia", "java", "bash", "sh", "csh", "tcsh", "ksh", "env")

# Column to the counters, without the prefix of the module, that are summed; absent ones count as 0.
_SUMS: Mapping[str, tuple[str, ...]] = {
    "opens": ("OPENS", "INDEP_OPENS", "COLL_OPENS"),
    "stats": ("STATS",),
    "reads": ("READS", "INDEP_READS", "COLL_READS", "SPLIT_READS", "NB_READS"),
    "writes": ("WRITES", "INDEP_WRITES", "COLL_WRITES", "SPLIT_WRITES", "NB_WRITES"),
    "bytes_read": ("BYTES_READ",),
    "bytes_written": ("BYTES_WRITTEN",),
    "unaligned": ("FILE_NOT_ALIGNED",),
    "collective_reads": ("COLL_READS", "SPLIT_READS"),
    "collective_writes": ("COLL_WRITES", "SPLIT_WRITES"),
    "independent_reads": ("INDEP_READS", "NB_READS"),
    "independent_writes": ("INDEP_WRITES", "NB_WRITES"),
    "read_time_s": ("F_READ_TIME",),
    "write_time_s": ("F_WRITE_TIME",),
    "meta_time_s": ("F_META_TIME",),
}
_HISTOGRAMS = {"read_sizes": "READ", "write_sizes": "WRITE"}


@dataclass(frozen=True)
class _ModuleColumns:
    """Which of a module's counters, side by side, belong to a column of the table.

    Attributes:
        sums: column to the positions of the counters that are summed.
        histograms: column to the positions of the bins of sizes.
        alignment: position of the alignment that `unaligned` is judged by; None if the module has none.
    """

    sums: Mapping[str, list[int]]
    histograms: Mapping[str, list[int]]
    alignment: int | None


@cache
def _module_columns(module: str) -> _ModuleColumns:
    library = log.load_library()
    counters = [*library.counter_names(module), *library.fcounter_names(module)]
    position_of = {counter: position for position, counter in enumerate(counters)}
    prefix = module.replace("-", "")
    # A column is the sum of those of its counters that the module has.
    sums: dict[str, list[int]] = {}
    for column, names in _SUMS.items():
        sums[column] = _existing_positions([f"{prefix}_{name}" for name in names], position_of)
    histograms: dict[str, list[int]] = {}
    for column, operation in _HISTOGRAMS.items():
        bin_counters: list[str] = []
        for size in _BINS:
            # The counter of MPI-IO has another name: it counts the transfers of all ranks together.
            bin_counters += [f"{prefix}_SIZE_{operation}_{size}", f"{prefix}_SIZE_{operation}_AGG_{size}"]
        histograms[column] = _existing_positions(bin_counters, position_of)
    return _ModuleColumns(sums, histograms, position_of.get(f"{prefix}_FILE_ALIGNMENT"))


def _existing_positions(counters: Sequence[str], position_of: Mapping[str, int]) -> list[int]:
    """The positions of these counters, without those that do not exist."""
    return [position_of[counter] for counter in counters if counter in position_of]


def _file_system_of_records(
    names: Mapping[int, str], job: log.JobInfo, file_systems: Mapping[str, str]
) -> dict[int, str]:
    """Return record id to the name of its file system: as the system calls it, else its type.

    Mount points are not stored: with an automounter they contain user names.
    """
    name_of_mount_point = {}
    for directory, name in file_systems.items():
        mount_point, _ = figures.find_mount(directory, job.mounts)
        name_of_mount_point[mount_point] = name
    label_of_directory: dict[str, str] = {}
    labels = {}
    for record_id, path in names.items():
        directory = os.path.dirname(path)  # noqa: PTH120 text of a log, of which a thousand are read per second
        if directory not in label_of_directory:
            mount_point, file_system_type = figures.find_mount(directory, job.mounts)
            label = None
            if mount_point:
                label = name_of_mount_point.get(mount_point)
            label_of_directory[directory] = label or file_system_type or "unknown"
        labels[record_id] = label_of_directory[directory]
    return labels


@dataclass(frozen=True)
class _SlowestPath:
    """The time of the slowest path in seconds, as Darshan defines it, and the rank with most time in one file."""

    seconds: float
    rank: int


def _slowest_path(times: NDArray[Any], ranks: NDArray[Any], is_reduced: NDArray[Any]) -> _SlowestPath:
    """The slowest path over n files; `is_reduced` are those that all ranks opened."""
    time_in_own_files = 0.0
    if not is_reduced.all():
        time_of_ranks = np.bincount(ranks[~is_reduced], weights=times[~is_reduced])
        time_in_own_files = float(time_of_ranks.max())
    time_in_shared_files = float(times[is_reduced].sum())
    return _SlowestPath(time_in_shared_files + time_in_own_files, int(ranks[times.argmax()]))


def _layer_rows(records: log.ModuleRecords, labels: Mapping[int, str]) -> Iterator[dict[str, Any]]:
    """Yield the row of each file system and layout; a file that several ranks opened is `shared`, others `unique`."""
    columns = _module_columns(records.module)
    # -1: Darshan could not count it. Sums up to 2^53 (8 PiB) are exact.
    table = np.hstack([records.integers, records.floats]).clip(min=0)
    # The layout and the file system of each record.
    _, file_of_record, records_of_file = np.unique(records.ids, return_inverse=True, return_counts=True)
    is_reduced = records.ranks == -1
    is_shared = (records_of_file > 1)[file_of_record] | is_reduced
    record_labels = [labels.get(record_id, "unknown") for record_id in records.ids.tolist()]
    file_systems, file_system_of_record = np.unique(record_labels, return_inverse=True)
    times, ranks = figures.slowest_per_record(records)
    # One group for each file system and layout; those of shared files have odd numbers.
    group_of_record = 2 * file_system_of_record + is_shared
    for group in np.unique(group_of_record):
        in_group = group_of_record == group
        slowest = _slowest_path(times[in_group], ranks[in_group], is_reduced[in_group])
        yield {
            "file_system": str(file_systems[group // 2]),
            "layer": records.module,
            "layout": "shared" if group % 2 else "unique",
            "files": len(np.unique(file_of_record[in_group])),
            **_figures_of_group(columns, table[in_group]),
            "slowest_s": slowest.seconds,
            "slowest_rank": slowest.rank,
        }


def _figures_of_group(columns: _ModuleColumns, counters: NDArray[Any]) -> dict[str, Any]:
    """Sums, histograms and alignment of some records.

    Args:
        counters: one row per record, one column per counter of the module.
    """
    totals = counters.sum(axis=0)
    group_figures: dict[str, Any] = {}
    for column, positions in columns.sums.items():
        total = float(totals[positions].sum())
        group_figures[column] = total if column.endswith("_s") else int(total)
    for column, positions in columns.histograms.items():
        group_figures[column] = totals[positions].astype(np.int64).tolist()
    group_figures["alignment"] = None
    if columns.alignment is not None:
        group_figures["alignment"] = int(counters[:, columns.alignment].max())
    return group_figures


@dataclass(frozen=True)
class _Placement:
    """Where the files of a log are: layouts of those on Lustre, file system of each record, ranks of the job."""

    layouts: Mapping[int, Mapping[str, Any]]
    labels: Mapping[int, str]
    ranks: int


def _target_rows(modules: Sequence[log.ModuleRecords], context: _Placement) -> Iterator[dict[str, Any]]:
    """Yield number and relative time of the files on each target; none where all files of a kind are on one target."""
    if not context.layouts:
        return
    # With it the statistics are loaded, which logs without targets do not need.
    from iowatch.darshan import target_comparison

    comparisons = target_comparison.compare_log_targets(modules, context.layouts, context.labels, context.ranks)
    for comparison in comparisons:
        slow_targets = {slow.target: slow for slow in comparison.slow}
        for entry in comparison.figures:
            if entry.relative_time is None:
                continue
            slow = slow_targets.get(entry.target)
            yield {
                "file_system": comparison.file_system,
                **asdict(entry),
                "ratio": None if slow is None else slow.ratio,
                "probability": None if slow is None else slow.probability,
            }


def _application_name(exe: str) -> str:
    """Return the name of the program, without directory; of an interpreter, with that of its script."""
    words = [word.rsplit("/", 1)[-1] for word in exe.split() if not word.startswith("-")]
    if not words:
        return "unknown"
    if words[0].rstrip("0123456789.") in _INTERPRETERS:
        return " ".join(words[:2])
    return words[0]


def _identity(job: log.JobInfo, modules: list[log.ModuleRecords]) -> str:
    """Return the identity of a log: equal for copies of other names, compressions and format versions."""
    job_bytes = struct.pack("<qqqdd", job.jobid, job.uid, job.ranks, job.start_s, job.end_s) + job.exe.encode()
    digest = hashlib.blake2b(job_bytes, digest_size=16)
    for records in modules:
        digest.update(records.module.encode() + records.raw)
    return digest.hexdigest()


def read_log_row(path: Path, file_systems: Mapping[str, str]) -> dict[str, Any]:
    """Return one log as a row, with the columns of `iowatch.applications.fleet.batch.log_schema`.

    Args:
        path: the log.
        file_systems: directory on a file system to its name on this system.

    Raises:
        InputError: not a log, or a part that is read is damaged or truncated: a log is counted whole or not at all.
    """
    header = log.read_header(path)
    layer_modules = [module for module in LAYERS if module in header.modules]
    layout_modules = [module for module in (_LAYOUT_MODULE,) if module in header.modules]
    log.require_intact_regions(path, header, [*layer_modules, *layout_modules])
    with log.open_log(path) as opened:
        job = opened.job()
        names = opened.names() if header.names else {}
        modules = [opened.records(module, job.ranks) for module in layer_modules]
        layouts = dict(opened.stripes()) if layout_modules else {}
        partial_layers = set(opened.partial_modules()) & set(LAYERS)
    if not 0 <= job.start_s < _LATEST_S:
        raise InputError(f"the log states a start at {job.start_s:g} s since 1970", reason="damaged")
    # Sums per file system, layer and layout; a module without a record has none.
    labels = _file_system_of_records(names, job, file_systems)
    layers: list[dict[str, Any]] = []
    for records in modules:
        if len(records.ids):
            layers += _layer_rows(records, labels)
    targets = list(_target_rows(modules, _Placement(layouts, labels, job.ranks)))
    return {
        "log": _identity(job, modules),
        "start_s": job.start_s,
        "run_time_s": job.run_time_s,
        "ranks": job.ranks,
        "application": _application_name(job.exe),
        "darshan": job.metadata.get("lib_ver"),
        "partial": bool(partial_layers),
        "layers": layers,
        "targets": targets,
    }
