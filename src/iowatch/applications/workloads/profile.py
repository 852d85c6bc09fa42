"""How much I/O of which size and how long a log has, for the comparison of a replay with the application."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iowatch.applications.workloads.accesses import LogUse, read_use
from iowatch.applications.workloads.cuts import choose_cuts
from iowatch.applications.workloads.families import group_files
from iowatch.applications.workloads.streams import TRANSFERS, Streams
from iowatch.applications.workloads.uses import ACCESS, FileUse
from iowatch.core import InputError

# Files of a replay: `data.NAME.NUMBER.OWNER` of benchio.
_REPLAYED = re.compile(r"/data\.([a-z][a-z0-9_-]*)\.\d+\.\d+$")
# Sizes of transfers whose durations a profile has, and quantiles of these.
_TIMED_SIZES = 64
_DECILES = tuple(tenth / 10 for tenth in range(1, 10))


def profile_log(
    path: Path, prepared: Mapping[str, tuple[bool, int]] | None = None, phases: int | None = None
) -> dict[str, Any]:
    """Return how much I/O a log has, as it is described.

    Args:
        path: the log.
        prepared: of the log of a replay: per file of the description whether benchio writes it before the first phase,
            and how often it opens it to see whether it is in the page cache; both are left out, and so are other files.
            None: the log of an application.
        phases: how many, as for `describe_log`; if there are not so many pauses, all is one phase.

    Returns:
        `ranks`; `layers`: per api (`mpiio`, `posix`) numbers of files by sharing, operations and bytes, and `sizes`:
        `read` and `write` to (size in bytes, number), the most frequent first; `files`: per api one text for each file,
        with its operations and bytes; `bytes_beyond`, `unassigned_bytes`: those of `LogUse`; `phases`: the seconds of
        each in which at least one rank reads or writes; `below`: that of `LogUse`; `durations`, None without DXT: of
        `read` and `write`, for the sizes that take most of the time, (size, seconds of all, deciles .1 to .9 of one
        transfer).
    """
    use = read_use(path)
    below = dict(use.below)
    if prepared is not None:
        use.files = _replayed_files(use.files, prepared)
        # benchio writes an input through POSIX, or a library, in seconds that are those of the same file.
        if any(is_written for is_written, _ in prepared.values()):
            below.pop("write", None)
    layers = {}
    counts_of_files = {}
    for api in ("mpiio", "posix"):
        files_of_layer = [file for file in use.files if file.api == api]
        layers[api] = _count_layer(files_of_layer, use.ranks)
        counts_of_files[api] = [_format_counts(_count_layer([file], use.ranks)) for file in files_of_layer]
    durations = None
    if use.traced:
        durations = {verb: list(_durations(_transfers(use, verb))) for verb in TRANSFERS}
    streams = Streams(use, group_files(use), [], [])
    return {
        "ranks": use.ranks,
        "layers": layers,
        "files": counts_of_files,
        "bytes_beyond": dict(use.bytes_beyond),
        "unassigned_bytes": dict(use.unassigned_bytes),
        "phases": _phase_times(use, streams, phases),
        "below": below,
        "durations": durations,
    }


def _replayed_files(files: Sequence[FileUse], prepared: Mapping[str, tuple[bool, int]]) -> list[FileUse]:
    """The files of a replay that are in its description, without what benchio does with them before the phases."""
    replayed = []
    for file in files:
        match = _REPLAYED.search(file.path)
        if match is None or match[1] not in prepared:
            continue
        if file.api == "posix":
            _drop_preparation(file, *prepared[match[1]])
            was_only_prepared = not any(len(use.accesses) for use in file.ranks.values())
            if file.same_as is not None and was_only_prepared:
                continue
        replayed.append(file)
    return replayed


def _format_counts(counts: Mapping[str, Any]) -> str:
    """Operations, bytes and sizes of one file as a text: equal texts are equal counts."""
    return json.dumps(counts, sort_keys=True)


def _drop_preparation(file: FileUse, is_written: bool, inspections: int) -> None:
    """Leave out what benchio's first rank of a file does before phases: write an input, ask for the page cache."""
    use = file.ranks[min(file.ranks)]
    opens_left = inspections + is_written
    for rank in sorted(file.ranks):
        dropped_opens = min(file.ranks[rank].opens, opens_left)
        file.ranks[rank].opens -= dropped_opens
        opens_left -= dropped_opens
    if not is_written:
        return
    use.opened = (0.0, 0.0)
    reads = np.flatnonzero(~use.accesses["write"])
    first_writes = use.accesses
    if len(reads):
        first_writes = use.accesses[: reads[0]]
    # The file is written from beginning to end, which no write of the workload before a read continues.
    ends = np.cumsum(first_writes["size"])
    of_workload = np.flatnonzero(first_writes["offset"] != ends - first_writes["size"])
    preparation = int(of_workload[0]) if len(of_workload) else len(first_writes)
    use.accesses = use.accesses[preparation:]


def _count_layer(files: Sequence[FileUse], ranks: int) -> dict[str, Any]:
    """The numbers of one layer; empty without files."""
    if not files:
        return {}
    counts: Counter[str] = Counter()
    counts_of_sizes: dict[str, Counter[int]] = {verb: Counter() for verb in TRANSFERS}
    for file in files:
        counts[f"files of {_sharing(file, ranks)}"] += 1
        for use in file.ranks.values():
            counts["opens"] += use.opens
            counts["flushes"] += use.flushes
            _count_accesses(use.accesses, counts, counts_of_sizes)
    # The most frequent sizes first, of equally frequent ones the smallest.
    sizes: dict[str, list[tuple[int, int]]] = {}
    for verb, counts_of_verb in counts_of_sizes.items():
        sizes[verb] = sorted(counts_of_verb.items(), key=lambda item: (-item[1], item[0]))
    return {**counts, "sizes": sizes}


def _count_accesses(
    accesses: NDArray[np.void], counts: Counter[str], counts_of_sizes: Mapping[str, Counter[int]]
) -> None:
    """Add the accesses of a rank to the numbers of operations and bytes, and to those of each size."""
    for is_write, is_collective, size, count in accesses[["write", "collective", "size", "count"]].tolist():
        verb = "write" if is_write else "read"
        moved = "written" if is_write else "read"
        mode = "collective" if is_collective else "independent"
        counts[f"{mode} {verb}s"] += count
        counts[f"bytes {moved}"] += size * count
        counts_of_sizes[verb][size] += count


def _sharing(file: FileUse, ranks: int) -> str:
    if len(file.ranks) == 1:
        return "one rank"
    if len(file.ranks) == ranks:
        return "all ranks"
    return "some ranks"


def _phase_times(use: LogUse, streams: Streams, phases: int | None) -> list[float]:
    """Seconds of each phase in which at least one rank reads or writes."""
    cuts = choose_cuts(streams, None)
    if phases is not None and len(cuts) + 1 != phases:
        with contextlib.suppress(InputError):
            cuts = choose_cuts(streams, phases)
        if len(cuts) + 1 != phases:
            cuts = []
    transfers = _transfers(use, *TRANSFERS)
    first_transfers = np.searchsorted(transfers["start"], cuts)
    return [float(seconds.sum()) for seconds in np.split(_busy_seconds(transfers), first_transfers)]


def _transfers(use: LogUse, *verbs: str) -> NDArray[np.void]:
    """Reads, writes or both of all ranks, by their start: single ones, between which the ranks do something else."""
    tables = [np.zeros(0, ACCESS)]
    for file in use.files:
        tables += [rank_use.accesses for rank_use in file.ranks.values()]
    transfers = np.concatenate(tables)
    transfers = transfers[np.isin(transfers["write"], [verb == "write" for verb in verbs])]
    ordered: NDArray[np.void] = transfers[np.argsort(transfers["start"], kind="stable")]
    return ordered


def _busy_seconds(transfers: NDArray[np.void]) -> NDArray[np.float64]:
    """Seconds of each transfer in which no earlier one was going on; their sum is the time with at least one."""
    ends = np.maximum.accumulate(np.concatenate([[0.0], transfers["end"]]))
    busy: NDArray[np.float64] = np.maximum(transfers["end"] - np.maximum(transfers["start"], ends[:-1]), 0.0)
    return busy


def _durations(transfers: NDArray[np.void]) -> Iterator[tuple[int, float, list[float]]]:
    """Yield size, seconds of all, and deciles of the seconds of one transfer, for the sizes that take most time."""
    seconds = transfers["end"] - transfers["start"]
    sizes, size_of_transfer = np.unique(transfers["size"], return_inverse=True)
    total_seconds = np.bincount(size_of_transfer, seconds, len(sizes))
    for index in np.argsort(-total_seconds, kind="stable")[:_TIMED_SIZES].tolist():
        deciles = np.quantile(seconds[size_of_transfer == index], _DECILES)
        yield int(sizes[index]), float(total_seconds[index]), deciles.tolist()
