"""One log as one row: facts of the job, and sums per file system, layer and layout. Runs in the worker process.

Only the counters that the report of a centre needs are read: no accesses over time, no heatmap, no table of files.
`iowatch.applications.fleet.batch` has the columns and their units.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iowatch.core import InputError
from iowatch.darshan import figures, log

# Modules with transfers or opens of files, from the top; the rest says nothing about the load of a file system.
LAYERS = ("H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR", "MPI-IO", "POSIX", "STDIO", "DFS")
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


def _histogram_names(prefix: str, word: str, size: str) -> tuple[str, str]:
    """Return the two spellings of a bin's counter; that of MPI-IO counts the transfers of all ranks together."""
    return f"{prefix}_SIZE_{word}_{size}", f"{prefix}_SIZE_{word}_AGG_{size}"


@cache
def _column_positions(module: str) -> tuple[dict[str, list[int]], dict[str, list[int]], int | None]:
    """Return, of the counters of a module side by side, those of each sum and histogram, and that of the alignment."""
    library = log.load_library()
    names = [*library.counter_names(module), *library.fcounter_names(module)]
    prefix, at = module.replace("-", ""), {name: i for i, name in enumerate(names)}
    sums = {
        column: [at[f"{prefix}_{name}"] for name in counters if f"{prefix}_{name}" in at]
        for column, counters in _SUMS.items()
    }
    histograms = {
        column: [at[name] for size in _BINS for name in _histogram_names(prefix, word, size) if name in at]
        for column, word in _HISTOGRAMS.items()
    }
    return sums, histograms, at.get(f"{prefix}_FILE_ALIGNMENT")


def _path_labels(names: Mapping[int, str], job: log.JobInfo, file_systems: Mapping[str, str]) -> dict[int, str]:
    """Return record id to the name of its file system: as the system calls it, else its type.

    Mount points are not stored: with an automounter they contain user names.
    """
    known = {figures.find_mount(directory, job.mounts)[0]: name for directory, name in file_systems.items()}
    found: dict[str, str] = {}
    labels = {}
    for record, path in names.items():
        directory = os.path.dirname(path)  # noqa: PTH120 text of a log, of which a thousand are read per second
        if directory not in found:
            point, kind = figures.find_mount(directory, job.mounts)
            found[directory] = (known.get(point) if point else None) or kind or "unknown"
        labels[record] = found[directory]
    return labels


def _slowest(times: NDArray[Any], ranks: NDArray[Any], reduced: NDArray[Any]) -> tuple[float, int]:
    """Return the time of the slowest path (s), as Darshan defines it, and the rank with most time in one file."""
    own = ~reduced
    alone = np.bincount(ranks[own], weights=times[own]).max() if own.any() else 0.0
    return float(times[reduced].sum() + alone), int(ranks[times.argmax()])


def _layer_rows(records: log.ModuleRecords, labels: Mapping[int, str]) -> Iterator[dict[str, Any]]:
    """Yield the row of each file system and layout; a file that several ranks opened is `shared`, others `unique`."""
    sums, histograms, alignment = _column_positions(records.module)
    # -1: Darshan could not count it. Sums up to 2^53 (8 PiB) are exact.
    table = np.hstack([records.integers, records.floats]).clip(min=0)
    _, inverse, sharers = np.unique(records.ids, return_inverse=True, return_counts=True)
    reduced = records.ranks == -1
    shared = (sharers > 1)[inverse] | reduced
    places, place = np.unique([labels.get(i, "unknown") for i in records.ids.tolist()], return_inverse=True)
    times, ranks = figures.slowest_per_record(records)
    for group in np.unique(2 * place + shared):
        chosen = 2 * place + shared == group
        part = table[chosen]
        total = part.sum(axis=0)
        row: dict[str, Any] = {
            "file_system": str(places[group // 2]),
            "layer": records.module,
            "layout": "shared" if group % 2 else "unique",
            "files": len(np.unique(inverse[chosen])),
        }
        for column, positions in sums.items():
            value = float(total[positions].sum())
            row[column] = value if column.endswith("_s") else int(value)
        for column, positions in histograms.items():
            row[column] = total[positions].astype(np.int64).tolist()
        row["alignment"] = None if alignment is None else int(part[:, alignment].max())
        row["slowest_s"], row["slowest_rank"] = _slowest(times[chosen], ranks[chosen], reduced[chosen])
        yield row


def _application_name(exe: str) -> str:
    """Return the name of the program, without directory; of an interpreter, with that of its script."""
    words = [word.rsplit("/", 1)[-1] for word in exe.split() if not word.startswith("-")]
    if not words:
        return "unknown"
    is_interpreter = words[0].rstrip("0123456789.") in _INTERPRETERS
    return " ".join(words[:2]) if is_interpreter else words[0]


def _check_regions(path: Path, header: log.LogHeader, used: Mapping[str, log.LogRegion]) -> None:
    with path.open("rb") as file:
        for region in (header.job, *used.values(), *([header.names] if header.names else [])):
            for _ in log.decompress_region(file, region, header.compression):
                pass


def _identity(job: log.JobInfo, modules: list[log.ModuleRecords]) -> str:
    """Return the identity of a log: equal for copies of other names, compressions and format versions."""
    numbers = (job.jobid, job.uid, job.ranks, job.start_s, job.end_s)
    digest = hashlib.blake2b(struct.pack("<qqqdd", *numbers) + job.exe.encode(), digest_size=16)
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
    used = {module: header.modules[module] for module in LAYERS if module in header.modules}
    _check_regions(path, header, used)
    with log.open_log(path) as opened:
        job, names = opened.job(), opened.names() if header.names else {}
        modules = [opened.records(module, job.ranks) for module in used]
        partial = set(opened.partial_modules()) & set(LAYERS)
    if not 0 <= job.start_s < _LATEST_S:
        raise InputError(f"the log states a start at {job.start_s:g} s since 1970", reason="damaged")
    labels = _path_labels(names, job, file_systems)
    return {
        "log": _identity(job, modules),
        "start_s": job.start_s,
        "run_time_s": job.run_time_s,
        "ranks": job.ranks,
        "application": _application_name(job.exe),
        "darshan": job.metadata.get("lib_ver"),
        "partial": bool(partial),
        "layers": [row for records in modules if len(records.ids) for row in _layer_rows(records, labels)],
    }
