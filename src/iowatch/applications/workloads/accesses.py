"""What each rank did with each file, from a log: the material of a workload's description. Runs in the worker process.

With DXT every access has its place and time. Without it accesses are made up from the counters: as many, as large and
in as many bytes as counted, one behind the other.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from iowatch.applications.workloads import divisions
from iowatch.applications.workloads.inferred import (
    ACCESS,
    FileUse,
    RankUse,
    Record,
    divide_arrays,
    infer_offsets,
    make_up,
    mark_collective,
    split_evenly,
)
from iowatch.core import InputError, format_count
from iowatch.darshan import log

_MPI_CREATE = 1
_UNEQUAL = "ranks have different numbers of collective transfers of a file: they are replayed as independent ones"
# Files that Open MPI's I/O makes beside a file of the application, and (ompi/mca/sharedfp/sm) with the name of the file
# in the directory of its session.
_OF_MPI = re.compile(r"(\.locktest\.\d+|[-.].*\.sm)$")
_OF_SESSION = re.compile(r"/([^/]+)_cid-[-\d]+\.sm$")


@dataclass
class LogUse:
    """What a log says about files.

    Attributes:
        ranks: number of ranks of the job.
        run_time_s, version: of the job; Darshan's version.
        files: those of the application, in order of the first open. What lies below MPI-IO is not among them.
        losses: what the log does not say, or what is left out, as sentences without names.
        traced: whether accesses are those of DXT.
        below: of `read` and `write`: share of the seconds of MPI-IO transfers that POSIX takes below; the rest is what
            MPI-IO does itself. Empty without such transfers.
    """

    ranks: int
    run_time_s: float
    version: str
    files: list[FileUse] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    traced: bool = False
    below: Mapping[str, float] = field(default_factory=dict)


def read_use(path: Path, grid: Sequence[int] = ()) -> LogUse:
    """Read a log.

    Args:
        grid: into how many parts the ranks divide the last dimensions of arrays; empty: what the log says.

    Raises:
        InputError: the log is unreadable, one of the parts that are needed is damaged, or nothing was read or written.
    """
    header = log.read_header(path)
    damaged = log.find_damaged_regions(path, header)
    needed = ["job", "names", *(name for name in ("POSIX", "MPI-IO", *log.DXT_MODULES) if name in header.modules)]
    if wrong := [f"{name}: {damaged[name]}" for name in needed if name in damaged]:
        raise InputError(f"{path}: {'; '.join(wrong)}", hint="A workload needs a log that is complete.")
    with log.open_log(path) as opened:
        job = opened.job()
        incomplete = opened.partial_modules()
        partial = [name for name in incomplete if name in needed]
        names = opened.names() if header.names is not None else {}
        tables: dict[str, log.ModuleRecords] = {
            name: opened.records(name, job.ranks) for name in ("POSIX", "MPI-IO", "STDIO") if name in header.modules
        }
        described = [
            opened.records(name, job.ranks)
            for name in divisions.MODULES
            if name in header.modules and name not in damaged
        ]
    use = LogUse(job.ranks, job.run_time_s, job.metadata.get("lib_ver", ""))
    use.losses += [
        f"records of arrays ({name}) are {'damaged' if name in damaged else 'missing, as Darshan ran out of memory'}: "
        "accesses to these arrays have no shape"
        for name in divisions.MODULES
        if name in damaged or name in incomplete
    ]
    if partial and not set(partial) <= log.DXT_MODULES.keys():
        raise InputError(
            f"{path}: Darshan ran out of memory during the run: records of {', '.join(partial)} are missing"
        )
    traces = {name: _read_trace(path, header, name, job.ranks) for name in log.DXT_MODULES if name in header.modules}
    use.traced = bool(traces)
    use.below = _share_below(tables)
    _Reader(use, names, tables, traces, divisions.read_arrays(described, job.ranks, grid)).read()
    if not use.files:
        raise InputError(f"{path}: no file was opened through POSIX or MPI-IO: nothing to replay")
    return use


def _share_below(tables: Mapping[str, log.ModuleRecords]) -> dict[str, float]:
    """Seconds in POSIX over those in MPI-IO, of reads and of writes of the files that MPI-IO so moves."""
    seconds: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for prefix, module in (("MPIIO", "MPI-IO"), ("POSIX", "POSIX")):
        for record in _records(tables[module]) if module in tables else ():
            for verb in ("read", "write"):
                seconds[prefix, verb][record.identity] += record.values[f"{prefix}_F_{verb.upper()}_TIME"]
    found = {}
    for verb in ("read", "write"):
        above = {file: spent for file, spent in seconds["MPIIO", verb].items() if spent > 0}
        if above:
            found[verb] = sum(seconds["POSIX", verb][file] for file in above) / sum(above.values())
    return found


_Trace = dict[int, dict[int, NDArray[np.void]]]


def _read_trace(path: Path, header: log.LogHeader, module: str, ranks: int) -> _Trace:
    """Record id to rank to accesses of one DXT module."""
    found: _Trace = {}
    for identity, rank, record in log.read_dxt_records(path, header, module):
        if not 0 <= rank < ranks:
            raise InputError(f"{path}: {module}: an access belongs to a rank that the job does not have")
        parts = [_to_accesses(record[kind], kind == "write") for kind in ("write", "read")]
        own = found.setdefault(identity, {})
        rows = np.concatenate([own[rank], *parts] if rank in own else parts)
        own[rank] = rows[np.argsort(rows["start"], kind="stable")]
    return found


def _to_accesses(rows: NDArray[np.void], write: bool) -> NDArray[np.void]:
    times = np.concatenate([rows["start"], rows["end"]])
    if not (np.isfinite(times).all() and (times >= 0).all()):
        raise InputError("an access has no valid time")
    if (
        (rows["length"] < 0).any()
        or (rows["length"] > 1 << 62).any()
        or ((rows["offset"] < -1) | (rows["offset"] > 1 << 62)).any()
    ):
        raise InputError("an access has no valid size or offset")
    out = np.zeros(len(rows), ACCESS)
    out["write"], out["count"] = write, 1
    for mine, theirs in (("offset", "offset"), ("size", "length"), ("start", "start"), ("end", "end")):
        out[mine] = rows[theirs]
    out["end"] = np.maximum(out["start"], out["end"])
    return out


def _records(table: log.ModuleRecords) -> Iterator[Record]:
    integers, floats = table.names
    for i in range(len(table.ids)):
        values = dict(zip(integers, table.integers[i].tolist(), strict=True))
        values |= zip(floats, table.floats[i].tolist(), strict=True)
        yield Record(int(table.ids[i]), int(table.ranks[i]), values)


@dataclass
class _Reader:
    use: LogUse
    names: Mapping[int, str]
    tables: Mapping[str, log.ModuleRecords]
    traces: Mapping[str, _Trace]
    arrays: divisions.Arrays

    def read(self) -> None:
        groups: dict[tuple[str, int], list[Record]] = {}
        for module in ("MPI-IO", "POSIX"):
            for record in _records(self.tables[module]) if module in self.tables else ():
                groups.setdefault((module, record.identity), []).append(record)
        parallel = {identity for module, identity in groups if module == "MPI-IO"}
        roots = tuple(self.names[identity] for identity in parallel if identity in self.names)
        found = []
        for (module, identity), records in groups.items():
            name = self.names.get(identity, "")
            session = _OF_SESSION.search(name)
            own = _OF_MPI.search(name) is not None and name.startswith(roots) and name not in roots
            own |= session is not None and any(root.endswith(f"/{session[1]}") for root in roots)
            if module == "MPI-IO" or not (identity in parallel or (roots and own)):
                found.append(self._read_file(module, identity, records))
                if module == "MPI-IO":
                    found[-1][1].has_short_reads = _are_short(records, groups.get(("POSIX", identity), ()))
        found = [
            (first, one) for first, one in found if any(rank.opens or len(rank.accesses) for rank in one.ranks.values())
        ]
        self.use.files = [one for _, one in sorted(found, key=lambda pair: pair[0])]
        self._note_streams()
        self._note_divisions()

    def _note_divisions(self) -> None:
        arrays = self.arrays
        unknown = "how the ranks divide arrays of several dimensions is not in the log"
        grid = "; --grid says into how many parts the last dimensions are divided"
        contiguous = "each rank's part is contiguous"
        for what, found, answer in (
            (unknown, arrays.undecided, contiguous + grid),
            (unknown, arrays.guessed, "it is guessed from their sides" + grid),
            ("no division of an array has the lengths and offsets of collective accesses", arrays.unfit, contiguous),
        ):
            if found:
                sizes = ", ".join(f"{size:,}" for size in sorted(found))
                self._lose(f"{what} (parts of {sizes} bytes): {answer}")
        if arrays.grid and not arrays.uses_grid:
            self._lose(
                f"--grid {'x'.join(map(str, arrays.grid))} ({format_count(math.prod(arrays.grid), 'part')}) fits no "
                f"collective access to an array in this log of {format_count(self.use.ranks, 'rank')}"
            )

    def _read_file(self, module: str, identity: int, records: Sequence[Record]) -> tuple[float, FileUse]:
        prefix = "POSIX" if module == "POSIX" else "MPIIO"
        ranks = range(self.use.ranks) if any(record.rank < 0 for record in records) else [r.rank for r in records]
        trace = self.traces.get("DXT_" + prefix, {}).get(identity, {})
        ranks = sorted({*ranks, *trace})
        api, uses = "posix" if prefix == "POSIX" else "mpiio", {rank: RankUse() for rank in ranks}
        file = FileUse(api, False, uses, path=self.names.get(identity, ""))
        for record in records:
            if record["MPIIO_INDEP_OPENS"] and len(ranks) > 1:
                self._lose(
                    "a file of MPI-IO that ranks share is opened collectively; independent opens of it are left out"
                )
            members = ranks if record.rank < 0 else [record.rank]
            _share_counts(record, prefix, members, file)
            file.created |= bool(record["MPIIO_MODE"] & _MPI_CREATE if prefix == "MPIIO" else record["POSIX_MODE"])
            self._set_accesses(record, prefix, members, file, trace)
        if prefix == "MPIIO":
            self._place_collectives(records, file, identity)
        starts = [use.opened[0] for use in file.ranks.values() if use.opened[0]]
        starts += [float(use.accesses["start"][0]) for use in file.ranks.values() if len(use.accesses)]
        return min(starts, default=0.0), file

    def _set_accesses(
        self, record: Record, prefix: str, members: Sequence[int], file: FileUse, trace: Mapping[int, NDArray[np.void]]
    ) -> None:
        """Give each rank its accesses: those of DXT if it has all of them, else made-up ones."""
        counted = sum(record[name] for name in _operation_counters(prefix))
        traced = sum(len(trace[rank]) for rank in members if rank in trace)
        if counted == traced:
            for rank in members:
                file.ranks[rank].accesses = trace.get(rank, np.zeros(0, ACCESS))
            return
        if self.use.traced:
            self._lose(
                f"DXT has {traced} of {format_count(counted, 'transfer')} of a file (its memory was full, or it "
                "was turned off): the accesses of this file are made up from the counters"
            )
        file.made_up = True
        if not make_up(record, prefix, members, file):
            self._lose(_UNEQUAL)

    def _lose(self, text: str) -> None:
        if text not in self.use.losses:
            self.use.losses.append(text)

    def _place_collectives(self, records: Sequence[Record], file: FileUse, identity: int) -> None:
        sums = {name: sum(record[f"MPIIO_{name}"] for record in records) for name in _MPI_KINDS}
        if sums["SPLIT_READS"] + sums["SPLIT_WRITES"]:
            self._lose("split collective transfers are replayed as collective ones")
        if sums["NB_READS"] + sums["NB_WRITES"]:
            self._lose("nonblocking transfers are replayed as blocking ones")
        collective = sum(sums[f"{how}_{kind}"] for how in ("COLL", "SPLIT") for kind in ("READS", "WRITES"))
        set_views = sum(record["MPIIO_VIEWS"] for record in records)
        file.has_views, file.has_view_per_access = set_views > 0, set_views >= collective > 0
        for kind in ("READS", "WRITES"):
            together = sums[f"COLL_{kind}"] + sums[f"SPLIT_{kind}"]
            alone = sums[f"INDEP_{kind}"] + sums[f"NB_{kind}"]
            if not file.made_up and not mark_collective(file, kind == "WRITES", together, alone, self.arrays):
                self._lose(_UNEQUAL)
        if any((use.accesses["offset"] < 0).any() for use in file.ranks.values()):
            below = self.traces.get("DXT_POSIX", {}).get(identity, {})
            found = infer_offsets(file, below, self.arrays)
            self._lose(
                "the offsets of MPI-IO accesses are not in the log (Darshan with Open MPI): they are those of the "
                "POSIX accesses below; within a collective access the ranks follow each other in order, unless each "
                "rank accessed pieces of its own" + found
            )
        elif not file.made_up:
            divide_arrays(file, self.arrays)

    def _note_streams(self) -> None:
        if "STDIO" not in self.tables:
            return
        rows = [r for r in _records(self.tables["STDIO"]) if not self.names.get(r.identity, "").startswith("<STD")]
        if rows:
            moved = sum(row["STDIO_BYTES_READ"] + row["STDIO_BYTES_WRITTEN"] for row in rows)
            files = format_count(len({row.identity for row in rows}), "file")
            self._lose(f"{files} of C streams (STDIO, {format_count(moved, 'byte')}) are not replayed")


def _are_short(records: Sequence[Record], below: Sequence[Record]) -> bool:
    """Whether POSIX read less than the independent reads of MPI-IO asked for: nothing is behind the end of the file."""
    together = sum(one[f"MPIIO_{how}_READS"] for one in records for how in ("COLL", "SPLIT"))
    wanted, got = sum(one["MPIIO_BYTES_READ"] for one in records), sum(one["POSIX_BYTES_READ"] for one in below)
    return bool(below) and not together and got < wanted


_MPI_KINDS = tuple(f"{how}_{kind}" for how in ("COLL", "SPLIT", "INDEP", "NB") for kind in ("READS", "WRITES"))


def _operation_counters(prefix: str) -> tuple[str, ...]:
    return ("POSIX_READS", "POSIX_WRITES") if prefix == "POSIX" else tuple(f"MPIIO_{name}" for name in _MPI_KINDS)


def _share_counts(record: Record, prefix: str, members: Sequence[int], file: FileUse) -> None:
    opens: tuple[str, ...] = ("POSIX_OPENS",) if prefix == "POSIX" else ("MPIIO_COLL_OPENS",)
    if prefix == "MPIIO" and not (record["MPIIO_COLL_OPENS"] and len(file.ranks) > 1):
        opens = ("MPIIO_INDEP_OPENS", "MPIIO_COLL_OPENS")
    flushes = ("POSIX_FSYNCS", "POSIX_FDSYNCS") if prefix == "POSIX" else ("MPIIO_SYNCS",)
    times = [
        tuple(max(0.0, float(record.values.get(f"{prefix}_F_{what}_{end}_TIMESTAMP", 0.0))) for end in ("START", "END"))
        for what in ("OPEN", "CLOSE")
    ]
    if not all(np.isfinite(time) for pair in times for time in pair):
        raise InputError(f"{prefix}: a time of a file is not a number")
    columns = [split_evenly(sum(record[name] for name in names), len(members)) for names in (opens, flushes)]
    columns.append(split_evenly(record["POSIX_STATS"], len(members)))
    for rank, counts in zip(members, zip(*columns, strict=True), strict=True):
        use = file.ranks[rank]
        use.opens, use.flushes, use.stats = counts
        use.opened, use.closed = times  # type: ignore[assignment]
