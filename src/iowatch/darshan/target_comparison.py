"""Comparison of the targets of a log's file systems. Called in a worker process.

    POSIX and STDIO records, layouts (module LUSTRE) -> time per byte of each file, its kind, its targets
      -> iowatch.statistics.slow_targets -> one `FileSystemTargets` per file system

A file has the time of its reads and writes, summed over ranks: opening, closing and looking up are work of the metadata
server. Files of one kind are on one file system, mostly written or mostly read, of about the same size (a factor of
two), opened by about the same number of ranks, on the same number of targets and in the same pool.

Where DXT has the accesses of files with several stripes, the accesses of one rank to one file are compared by the
targets of the stripes that they are in: each group has the median time per byte, and only groups of the same rank and
file are compared with each other, so that a slow rank is no slow target.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iowatch.darshan.log import ModuleRecords
from iowatch.darshan.targets import Compared, FileSystemTargets, NamedTarget, TargetFigures
from iowatch.statistics.slow_targets import FilesOnTargets, compare_targets

Layouts = Mapping[int, Mapping[str, Any]]
"""Record id to the layout of the file, as `DarshanLog.stripes` has it."""
DxtRecords = Iterable[tuple[int, int, Mapping[str, NDArray[np.void]]]]
"""Records of `read_dxt_records`."""

# Modules that pass data to the operating system.
_STORAGE_MODULES = ("POSIX", "STDIO")
# Smaller files say more about caches and latencies than about a target.
_MIN_FILE_BYTES = 1 << 20
# The same for one access.
_MIN_ACCESS_BYTES = 1 << 16


@dataclass(frozen=True)
class _TimedFiles:
    """Files (or groups of accesses) of one file system that have a time.

    Attributes:
        times: (n,), seconds per byte.
        kinds: (n, k), numbers that are equal for files of one kind.
        targets: of each file, numbers of its OSTs.
    """

    times: NDArray[np.float64]
    kinds: NDArray[np.int64]
    targets: Sequence[Sequence[int]]


def compare_log_targets(
    modules: Sequence[ModuleRecords], layouts: Layouts, file_systems: Mapping[int, str], ranks: int
) -> list[FileSystemTargets]:
    """Compare the targets of each file system by the times of the files on them.

    Args:
        modules: records of the log; POSIX and STDIO are used.
        layouts: of the files on Lustre.
        file_systems: record id to the name of the file system. OSTs are numbered per file system.
        ranks: of the job.
    """
    totals = _sum_by_file(modules, ranks)
    ids_of: dict[str, list[int]] = {}
    for record_id in layouts:
        ids_of.setdefault(file_systems.get(record_id, "unknown"), []).append(record_id)
    comparisons: list[FileSystemTargets] = []
    for file_system, record_ids in sorted(ids_of.items()):
        timed = _timed_files([record_id for record_id in record_ids if record_id in totals], totals, layouts)
        comparisons.append(_compare(file_system, "files", timed))
    return comparisons


def compare_accesses(
    comparisons: Sequence[FileSystemTargets], records: DxtRecords, layouts: Layouts, file_systems: Mapping[int, str]
) -> list[FileSystemTargets]:
    """Compare by accesses what the files as wholes do not show.

    Args:
        comparisons: by files; one that has slow targets is kept.
        records: of DXT_POSIX.
    """
    groups_of: dict[str, list[_AccessGroup]] = {}
    for number, (record_id, _rank, accesses) in enumerate(records):
        layout = layouts.get(record_id)
        if layout is not None and len(layout["components"]) == 1:
            groups = groups_of.setdefault(file_systems.get(record_id, "unknown"), [])
            groups += _access_groups(number, accesses, layout["components"][0])
    compared: list[FileSystemTargets] = []
    for comparison in comparisons:
        groups = groups_of.get(comparison.file_system or "", [])
        by_accesses = None
        if groups and not comparison.slow:
            by_accesses = _compare(comparison.file_system, "accesses", _timed_groups(groups))
        if by_accesses is None or by_accesses.undecided is not None:
            compared.append(comparison)
        else:
            compared.append(by_accesses)
    return compared


def _compare(file_system: str | None, compared: Compared, timed: _TimedFiles) -> FileSystemTargets:
    kinds = np.zeros(len(timed.times), dtype=np.int64)
    if len(timed.times):
        kinds = np.unique(timed.kinds, axis=0, return_inverse=True)[1].reshape(-1)
    counts = [len(targets) for targets in timed.targets]
    placed = FilesOnTargets(
        times=timed.times,
        kinds=kinds,
        files=np.repeat(np.arange(len(counts)), counts),
        targets=np.array(list(chain.from_iterable(timed.targets)), dtype=np.int64),
    )
    comparison = compare_targets(placed)
    return FileSystemTargets(
        file_system=file_system,
        compared=compared,
        files=comparison.files,
        targets=comparison.targets,
        undecided=comparison.undecided,
        slow=tuple(NamedTarget(**asdict(slow)) for slow in comparison.slow),
        figures=tuple(_figures_of_targets(placed)),
    )


def _figures_of_targets(placed: FilesOnTargets) -> Iterator[TargetFigures]:
    """Number of files and relative time of each target."""
    if not len(placed.times):
        return
    logarithms = np.log(placed.times)
    residuals = np.empty_like(logarithms)
    # A kind that is on one target only has nothing to be compared with.
    has_contrast = np.zeros(len(logarithms), dtype=bool)
    for kind in np.unique(placed.kinds):
        in_kind = placed.kinds == kind
        residuals[in_kind] = logarithms[in_kind] - np.median(logarithms[in_kind])
        has_contrast[in_kind] = len(np.unique(placed.targets[in_kind[placed.files]])) > 1
    for target in np.unique(placed.targets).tolist():
        files = placed.files[placed.targets == target]
        compared = files[has_contrast[files]]
        relative_time = None
        if len(compared):
            relative_time = float(np.exp(np.median(residuals[compared])))
        yield TargetFigures(target, len(files), relative_time)


@dataclass(frozen=True)
class _FileTotals:
    """One file: bytes and seconds of its reads and writes, summed over ranks, and the number of ranks."""

    bytes_read: float = 0.0
    bytes_written: float = 0.0
    seconds: float = 0.0
    ranks: int = 0


def _sum_by_file(modules: Sequence[ModuleRecords], ranks: int) -> dict[int, _FileTotals]:
    """Record id to its totals."""
    totals: dict[int, _FileTotals] = {}
    for records in modules:
        if records.module not in _STORAGE_MODULES or not len(records.ids):
            continue
        ids, file_of_record = np.unique(records.ids, return_inverse=True)
        bytes_read = np.bincount(file_of_record, weights=_counter(records, "BYTES_READ"))
        bytes_written = np.bincount(file_of_record, weights=_counter(records, "BYTES_WRITTEN"))
        times = _counter(records, "F_READ_TIME") + _counter(records, "F_WRITE_TIME")
        seconds = np.bincount(file_of_record, weights=times)
        is_reduced = np.bincount(file_of_record, weights=records.ranks == -1) > 0
        openers = np.where(is_reduced, ranks, np.bincount(file_of_record))
        columns = zip(ids.tolist(), bytes_read, bytes_written, seconds, openers.tolist(), strict=True)
        for record_id, read, written, time_s, opener_count in columns:
            before = totals.get(record_id, _FileTotals())
            totals[record_id] = _FileTotals(
                bytes_read=before.bytes_read + float(read),
                bytes_written=before.bytes_written + float(written),
                seconds=before.seconds + float(time_s),
                ranks=max(before.ranks, opener_count),
            )
    return totals


def _counter(records: ModuleRecords, name: str) -> NDArray[np.float64]:
    """A counter of each record, without the prefix of the module; 0 where Darshan could not count it."""
    integers, floats = records.names
    counter = f"{records.module}_{name}"
    if counter in floats:
        return records.floats[:, floats.index(counter)].clip(min=0)
    return records.integers[:, integers.index(counter)].clip(min=0).astype(np.float64)


def _timed_files(record_ids: Sequence[int], totals: Mapping[int, _FileTotals], layouts: Layouts) -> _TimedFiles:
    """The files that moved enough bytes, and whose targets the layout has."""
    times: list[float] = []
    kinds: list[tuple[int, ...]] = []
    targets: list[list[int]] = []
    pools: dict[str, int] = {}
    for record_id in record_ids:
        file = totals[record_id]
        components = layouts[record_id]["components"]
        osts_of_file: set[int] = set()
        for component in components:
            # Darshan writes a negative number where a stripe has no OST yet.
            osts_of_file.update(ost for ost in component["osts"] if ost >= 0)
        osts = sorted(osts_of_file)
        moved_bytes = file.bytes_read + file.bytes_written
        if not osts or moved_bytes < _MIN_FILE_BYTES or file.seconds <= 0:
            continue
        pool = pools.setdefault(components[0]["pool"], len(pools))
        is_written = int(file.bytes_written >= file.bytes_read)
        sizes = (round(np.log2(moved_bytes)), round(np.log2(max(1, file.ranks))))
        times.append(file.seconds / moved_bytes)
        kinds.append((is_written, *sizes, len(osts), pool))
        targets.append(osts)
    return _TimedFiles(np.array(times, dtype=np.float64), np.array(kinds, dtype=np.int64), targets)


@dataclass(frozen=True)
class _AccessGroup:
    """Accesses of one rank to one file that are in stripes on the same targets.

    Attributes:
        kind: groups with the same are compared: record, operation, number of stripes.
        time: median seconds per byte.
    """

    kind: tuple[int, int, int]
    targets: tuple[int, ...]
    time: float


def _access_groups(
    record: int, accesses: Mapping[str, NDArray[np.void]], component: Mapping[str, Any]
) -> Iterator[_AccessGroup]:
    """Group the accesses of one record of DXT.

    Args:
        record: number of the record.
        accesses: by operation.
        component: the only component of the layout.
    """
    osts = component["osts"]
    stripe_bytes = component["LUSTRE_COMP_STRIPE_SIZE"]
    if len(osts) < 2 or stripe_bytes <= 0 or min(osts) < 0:
        return
    for operation_number, operation in enumerate(("write", "read")):
        used = accesses[operation]
        seconds = used["end"] - used["start"]
        used_mask = (used["offset"] >= 0) & (used["length"] >= _MIN_ACCESS_BYTES) & (seconds > 0)
        used, seconds = used[used_mask], seconds[used_mask]
        first_stripe = used["offset"] // stripe_bytes
        stripes = (used["offset"] + used["length"] - 1) // stripe_bytes - first_stripe + 1
        # An access over all targets shows nothing about one of them.
        first_target = first_stripe % len(osts)
        for width, first in sorted({*zip(stripes.tolist(), first_target.tolist(), strict=True)}):
            if width >= len(osts):
                continue
            in_group = (stripes == width) & (first_target == first)
            time = float(np.median(seconds[in_group] / used["length"][in_group]))
            targets = tuple(osts[(first + stripe) % len(osts)] for stripe in range(width))
            yield _AccessGroup((record, operation_number, width), targets, time)


def _timed_groups(groups: Sequence[_AccessGroup]) -> _TimedFiles:
    return _TimedFiles(
        times=np.array([group.time for group in groups], dtype=np.float64),
        kinds=np.array([group.kind for group in groups], dtype=np.int64),
        targets=[group.targets for group in groups],
    )


def with_missing_layouts(
    comparisons: Sequence[FileSystemTargets], file_systems: Iterable[str]
) -> list[FileSystemTargets]:
    """Add file systems on Lustre of whose files the log has no layout: it cannot show a slow target.

    Args:
        file_systems: those with files that moved data.
    """
    compared = {comparison.file_system for comparison in comparisons}
    empty = FileSystemTargets(None, "files", 0, 0, "no_layouts", (), ())
    missing = sorted(set(file_systems) - compared)
    return [*comparisons, *(replace(empty, file_system=file_system) for file_system in missing)]
