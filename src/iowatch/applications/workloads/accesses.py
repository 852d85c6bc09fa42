"""What each rank did with each file, from a log: the material of a workload's description. Called in a worker process.

With DXT every access has its place and time. Without it accesses are made up from the counters: as many, as large and
in as many bytes as counted, one behind the other.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from iowatch.applications.workloads import divisions
from iowatch.applications.workloads.counted import make_up
from iowatch.applications.workloads.direct import FileRecords, RankTrace, direct_use, divide_accesses
from iowatch.applications.workloads.inferred import VerbCounts, divide_arrays, infer_offsets, mark_collective
from iowatch.applications.workloads.uses import ACCESS, FileUse, RankUse, Record, split_evenly
from iowatch.core import InputError, format_count
from iowatch.darshan import log

_MPI_CREATE = 1
_UNEQUAL = "ranks have different numbers of collective transfers of a file: they are replayed as independent ones"
# Files that Open MPI's I/O makes beside a file of the application, and (ompi/mca/sharedfp/sm) with the name of the file
# in the directory of its session.
_BESIDE_FILE = re.compile(r"(\.locktest\.\d+|[-.].*\.(sm|lock)|\.lock)$")
_IN_SESSION = re.compile(r"/([^/]+)_cid-[-\d]+\.sm$")
# A time or an offset beyond this is no number of a log.
_LARGEST = 1 << 62
# How MPI-IO counts transfers: collective, split collective, independent, nonblocking.
_MPI_TRANSFERS = (
    "COLL_READS",
    "COLL_WRITES",
    "SPLIT_READS",
    "SPLIT_WRITES",
    "INDEP_READS",
    "INDEP_WRITES",
    "NB_READS",
    "NB_WRITES",
)
_TRANSFER_COUNTERS: Mapping[str, tuple[str, ...]] = {
    "POSIX": ("POSIX_READS", "POSIX_WRITES"),
    "MPIIO": tuple(f"MPIIO_{name}" for name in _MPI_TRANSFERS),
}


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
        bytes_beyond: `read` and `written`: bytes that POSIX moved in files of MPI-IO beyond those of MPI-IO, and that
            are no accesses in `files`.
        unassigned_bytes: those of them that are data sieving, or accesses of the application: the log does not say
            which.
    """

    ranks: int
    run_time_s: float
    version: str
    files: list[FileUse] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    traced: bool = False
    below: Mapping[str, float] = field(default_factory=dict)
    bytes_beyond: Counter[str] = field(default_factory=Counter)
    unassigned_bytes: Counter[str] = field(default_factory=Counter)

    def note_loss(self, text: str) -> None:
        """Add a loss, once."""
        if text not in self.losses:
            self.losses.append(text)


def read_use(path: Path, grid: Sequence[int] = ()) -> LogUse:
    """Read a log.

    Args:
        path: the log.
        grid: into how many parts the ranks divide the last dimensions of arrays; empty: what the log says.

    Raises:
        InputError: the log is unreadable, one of the parts that are needed is damaged, or nothing was read or written.
    """
    header = log.read_header(path)
    damages = log.find_damaged_regions(path, header)
    needed_modules = [module for module in ("POSIX", "MPI-IO", *log.DXT_MODULES) if module in header.modules]
    _require_undamaged(path, damages, ("job", "names", *needed_modules))
    # Counters of files, and records of arrays as far as they can be read.
    with log.open_log(path) as opened:
        job = opened.job()
        partial_modules = opened.partial_modules()
        names = opened.names() if header.names is not None else {}
        tables: dict[str, log.ModuleRecords] = {}
        for module in ("POSIX", "MPI-IO", "STDIO"):
            if module in header.modules:
                tables[module] = opened.records(module, job.ranks)
        array_tables: list[log.ModuleRecords] = []
        for module in divisions.MODULES:
            if module in header.modules and module not in damages:
                array_tables.append(opened.records(module, job.ranks))

    use = LogUse(job.ranks, job.run_time_s, job.metadata.get("lib_ver", ""))
    use.losses += _array_losses(damages, partial_modules)
    # If only DXT lacks records, the counters have the accesses that it lacks.
    partial_needed = [module for module in partial_modules if module in needed_modules]
    if not set(partial_needed) <= log.DXT_MODULES.keys():
        missing = f"records of {', '.join(partial_needed)} are missing"
        raise InputError(f"{path}: Darshan ran out of memory during the run: {missing}")
    traces: dict[str, _Trace] = {}
    for module in log.DXT_MODULES:
        if module in header.modules:
            traces[module] = _read_trace(path, header, module, job.ranks)
    use.traced = bool(traces)
    use.below = _share_below(tables)
    arrays = divisions.read_arrays(array_tables, job.ranks, grid)
    _FileReader(use, names, tables, traces, arrays).read()
    if not use.files:
        raise InputError(f"{path}: no file was opened through POSIX or MPI-IO: nothing to replay")
    return use


def _require_undamaged(path: Path, damages: Mapping[str, str], regions: Sequence[str]) -> None:
    """Require that regions of a log can be read.

    Raises:
        InputError: they are damaged; names each of them with the reason.
    """
    damaged = [f"{region}: {damages[region]}" for region in regions if region in damages]
    if damaged:
        raise InputError(f"{path}: {'; '.join(damaged)}", hint="A workload needs a log that is complete.")


def _array_losses(damages: Mapping[str, str], partial: Sequence[str]) -> Iterator[str]:
    """Sentences about records of arrays that cannot be read, or that Darshan did not keep."""
    for module in divisions.MODULES:
        reason = None
        if module in damages:
            reason = "damaged"
        elif module in partial:
            reason = "missing, as Darshan ran out of memory"
        if reason is not None:
            yield f"records of arrays ({module}) are {reason}: accesses to these arrays have no shape"


def _share_below(tables: Mapping[str, log.ModuleRecords]) -> dict[str, float]:
    """Seconds in POSIX over those in MPI-IO, of reads and of writes of the files that MPI-IO so moves."""
    shares = {}
    for verb in ("read", "write"):
        mpiio_s = _seconds_by_file(tables, "MPI-IO", "MPIIO", verb)
        posix_s = _seconds_by_file(tables, "POSIX", "POSIX", verb)
        moved_by_mpiio = [identity for identity, seconds in mpiio_s.items() if seconds > 0]
        if moved_by_mpiio:
            seconds_below = sum(posix_s.get(identity, 0.0) for identity in moved_by_mpiio)
            shares[verb] = seconds_below / sum(mpiio_s[identity] for identity in moved_by_mpiio)
    return shares


def _seconds_by_file(tables: Mapping[str, log.ModuleRecords], module: str, prefix: str, verb: str) -> dict[int, float]:
    """Seconds of reads or writes of all ranks, by the identity of the file."""
    seconds: dict[int, float] = defaultdict(float)
    for record in _records_of(tables, module):
        seconds[record.identity] += record.values[f"{prefix}_F_{verb.upper()}_TIME"]
    return seconds


# Record id to rank to its accesses.
_Trace = dict[int, dict[int, NDArray[np.void]]]


def _read_trace(path: Path, header: log.LogHeader, module: str, ranks: int) -> _Trace:
    """The accesses of one DXT module."""
    tables: dict[int, dict[int, list[NDArray[np.void]]]] = {}
    for identity, rank, record in log.read_dxt_records(path, header, module):
        if not 0 <= rank < ranks:
            raise InputError(f"{path}: {module}: an access belongs to a rank that the job does not have")
        tables_of_rank = tables.setdefault(identity, {}).setdefault(rank, [])
        tables_of_rank.append(_to_accesses(record["write"], is_write=True))
        tables_of_rank.append(_to_accesses(record["read"], is_write=False))
    trace: _Trace = {}
    for identity, tables_of_ranks in tables.items():
        trace[identity] = {}
        for rank, tables_of_rank in tables_of_ranks.items():
            trace[identity][rank] = _in_order(np.concatenate(tables_of_rank))
    return trace


def _in_order(rows: NDArray[np.void]) -> NDArray[np.void]:
    return rows[np.argsort(rows["start"], kind="stable")]


def _to_accesses(rows: NDArray[np.void], is_write: bool) -> NDArray[np.void]:
    """Accesses of DXT as rows of ACCESS.

    Raises:
        InputError: a time, a size or an offset is not possible.
    """
    times = np.concatenate([rows["start"], rows["end"]])
    if not (np.isfinite(times).all() and (times >= 0).all()):
        raise InputError("an access has no valid time")
    has_valid_sizes = ((rows["length"] >= 0) & (rows["length"] <= _LARGEST)).all()
    has_valid_offsets = ((rows["offset"] >= -1) & (rows["offset"] <= _LARGEST)).all()
    if not has_valid_sizes or not has_valid_offsets:
        raise InputError("an access has no valid size or offset")
    accesses = np.zeros(len(rows), ACCESS)
    accesses["write"] = is_write
    accesses["count"] = 1
    accesses["offset"] = rows["offset"]
    accesses["size"] = rows["length"]
    accesses["start"] = rows["start"]
    accesses["end"] = np.maximum(rows["start"], rows["end"])
    return accesses


def _records_of(tables: Mapping[str, log.ModuleRecords], module: str) -> Iterator[Record]:
    """Yield the records of a module; none if the log does not have it."""
    if module not in tables:
        return
    table = tables[module]
    integer_names, float_names = table.names
    for index in range(len(table.ids)):
        values: dict[str, float] = dict(zip(integer_names, table.integers[index].tolist(), strict=True))
        values |= zip(float_names, table.floats[index].tolist(), strict=True)
        yield Record(int(table.ids[index]), int(table.ranks[index]), values)


@dataclass
class _FileReader:
    """Reads the files of a log.

    Attributes:
        use: gets the files, and what is not described.
        names: record id to path.
        tables: module to its counters.
        traces: DXT module to its accesses.
        arrays: those that the ranks access collectively.
    """

    use: LogUse
    names: Mapping[int, str]
    tables: Mapping[str, log.ModuleRecords]
    traces: Mapping[str, _Trace]
    arrays: divisions.Arrays
    # Of each file of MPI-IO the POSIX accesses below it.
    _accesses_below: dict[int, RankTrace] = field(default_factory=dict)

    def read(self) -> None:
        """Read the files of the application: those of MPI-IO, and what it did by POSIX, which is not below MPI-IO."""
        mpiio_records = self._records_by_file("MPI-IO")
        posix_records = self._records_by_file("POSIX")
        files = []
        for identity, mpiio_records_of_file in mpiio_records.items():
            records = FileRecords(mpiio_records_of_file, posix_records.get(identity, []))
            direct = self._direct_accesses(identity, records)
            file = self._read_file("MPIIO", identity, records.mpiio)
            file.has_short_reads = _has_short_reads(records, direct)
            files.append(file)
            if direct:
                files.append(direct_use(file, records, direct))
        mpiio_paths = tuple(self.names[identity] for identity in mpiio_records if identity in self.names)
        for identity, posix_records_of_file in posix_records.items():
            is_of_mpiio = identity in mpiio_records
            if not is_of_mpiio and not _is_of_mpi(self.names.get(identity, ""), mpiio_paths):
                files.append(self._read_file("POSIX", identity, posix_records_of_file))
        used_files = [file for file in files if _is_used(file)]
        self.use.files = sorted(used_files, key=_first_use)
        self._note_bytes_beyond()
        self._note_streams()
        self._note_divisions()

    def _direct_accesses(self, identity: int, records: FileRecords) -> RankTrace:
        """The POSIX accesses of the application itself to a file of MPI-IO, as far as the log distinguishes them."""
        posix = self.traces.get("DXT_POSIX", {}).get(identity, {})
        mpiio = self.traces.get("DXT_MPIIO", {}).get(identity, {})
        direct: RankTrace = {}
        self._accesses_below[identity] = posix
        has_all_posix = _has_all_accesses(posix, records.posix, "POSIX")
        has_all_mpiio = _has_all_accesses(mpiio, records.mpiio, "MPIIO")
        is_assigned = False
        if has_all_posix and has_all_mpiio and not records.has_deferred_transfers:
            divided = divide_accesses(posix, mpiio)
            ranks = {record.rank for record in records.mpiio}
            # A rank that does not open the file through MPI-IO has no part in it in a description.
            is_assigned = -1 in ranks or divided.direct.keys() <= ranks
            if is_assigned:
                self._accesses_below[identity] = divided.below
                direct = divided.direct

        # Bytes below MPI-IO may be more than its own: whole blocks are read to write a part of them.
        moved_bytes = _moved_bytes(direct)
        for verb in ("read", "written"):
            beyond = max(0, records.bytes_beyond(verb.upper()) - moved_bytes[verb])
            self.use.bytes_beyond[verb] += beyond
            if not is_assigned:
                self.use.unassigned_bytes[verb] += beyond
        return direct

    def _records_by_file(self, module: str) -> dict[int, list[Record]]:
        records_of_file: dict[int, list[Record]] = {}
        for record in _records_of(self.tables, module):
            records_of_file.setdefault(record.identity, []).append(record)
        return records_of_file

    def _read_file(self, prefix: str, identity: int, records: Sequence[Record]) -> FileUse:
        """Read a file; `prefix` is that of the counters, `POSIX` or `MPIIO`."""
        trace = self.traces.get(f"DXT_{prefix}", {}).get(identity, {})
        # Darshan adds the records of a file that all ranks opened; such a record has no rank of its own.
        members = {record.rank for record in records}
        if any(record.rank < 0 for record in records):
            members = set(range(self.use.ranks))
        ranks = sorted(members | trace.keys())
        file = FileUse(
            api="posix" if prefix == "POSIX" else "mpiio",
            created=False,
            ranks={rank: RankUse() for rank in ranks},
            path=self.names.get(identity, ""),
        )
        # Each record gives its ranks what it counted.
        for record in records:
            if record["MPIIO_INDEP_OPENS"] and len(ranks) > 1:
                self.use.note_loss(
                    "a file of MPI-IO that ranks share is opened collectively; independent opens of it are left out"
                )
            members_of_record = ranks if record.rank < 0 else [record.rank]
            _share_counts(record, prefix, members_of_record, file)
            file.created |= _is_created(record, prefix)
            self._set_accesses(record, prefix, members_of_record, file, trace)
        if prefix == "MPIIO":
            self._place_collectives(records, file, identity)
        return file

    def _set_accesses(
        self, record: Record, prefix: str, members: Sequence[int], file: FileUse, trace: Mapping[int, NDArray[np.void]]
    ) -> None:
        """Give each rank its accesses: those of DXT if it has all of them, else made-up ones."""
        counted = sum(record[name] for name in _TRANSFER_COUNTERS[prefix])
        traced = sum(len(trace[rank]) for rank in members if rank in trace)
        if counted == traced:
            for rank in members:
                file.ranks[rank].accesses = trace.get(rank, np.zeros(0, ACCESS))
            return
        # Without DXT that is no loss of this file, but of the log.
        if self.use.traced:
            self.use.note_loss(
                f"DXT has {traced} of {format_count(counted, 'transfer')} of a file (its memory was full, or it "
                "was turned off): the accesses of this file are made up from the counters"
            )
        file.made_up = True
        if not make_up(record, prefix, members, file):
            self.use.note_loss(_UNEQUAL)

    def _place_collectives(self, records: Sequence[Record], file: FileUse, identity: int) -> None:
        """Say which transfers of a file of MPI-IO are collective, and where they are."""
        counts: dict[str, int] = {}
        for name in _MPI_TRANSFERS:
            counts[name] = sum(record[f"MPIIO_{name}"] for record in records)
        if counts["SPLIT_READS"] + counts["SPLIT_WRITES"]:
            self.use.note_loss("split collective transfers are replayed as collective ones")
        if counts["NB_READS"] + counts["NB_WRITES"]:
            self.use.note_loss("nonblocking transfers are replayed as blocking ones")
        # DXT does not say which accesses are collective; made-up ones are marked already.
        collective_total = 0
        for word in ("READS", "WRITES"):
            collective_count = counts[f"COLL_{word}"] + counts[f"SPLIT_{word}"]
            independent_count = counts[f"INDEP_{word}"] + counts[f"NB_{word}"]
            collective_total += collective_count
            if file.made_up:
                continue
            counts_of_word = VerbCounts(word == "WRITES", collective_count, independent_count)
            if not mark_collective(file, counts_of_word, self.arrays):
                self.use.note_loss(_UNEQUAL)
        view_count = sum(record["MPIIO_VIEWS"] for record in records)
        file.has_views = view_count > 0
        file.has_view_per_access = view_count >= collective_total > 0
        # Darshan with Open MPI writes -1 for offsets of MPI-IO.
        if any((use.accesses["offset"] < 0).any() for use in file.ranks.values()):
            accesses_below = self._accesses_below.get(identity, {})
            not_found = infer_offsets(file, accesses_below, self.arrays)
            self.use.note_loss(
                "the offsets of MPI-IO accesses are not in the log (Darshan with Open MPI): they are those of the "
                "POSIX accesses below; within a collective access the ranks follow each other in order, unless each "
                "rank accessed pieces of its own" + not_found
            )
        elif not file.made_up:
            divide_arrays(file, self.arrays)

    def _note_bytes_beyond(self) -> None:
        """Note what POSIX moved in files of MPI-IO that may be accesses of the application."""
        unassigned = self.use.unassigned_bytes
        if not unassigned["read"] and not unassigned["written"]:
            return
        read = format_count(unassigned["read"], "byte")
        written = format_count(unassigned["written"], "byte")
        amounts = f"read {read} and wrote {written}"
        causes = "data sieving, or accesses of the application itself"
        self.use.note_loss(f"in files of MPI-IO, POSIX {amounts} more than MPI-IO ({causes}): they are not replayed")

    def _note_streams(self) -> None:
        """Note files of C streams; the standard streams are none."""
        identities = set()
        moved_bytes = 0
        for record in _records_of(self.tables, "STDIO"):
            if not self.names.get(record.identity, "").startswith("<STD"):
                identities.add(record.identity)
                moved_bytes += record["STDIO_BYTES_READ"] + record["STDIO_BYTES_WRITTEN"]
        if identities:
            files = format_count(len(identities), "file")
            moved = format_count(moved_bytes, "byte")
            self.use.note_loss(f"{files} of C streams (STDIO, {moved}) are not replayed")

    def _note_divisions(self) -> None:
        """Note how arrays are divided where the log does not say it, and a grid that fits none of them."""
        arrays = self.arrays
        unknown = "how the ranks divide arrays of several dimensions is not in the log"
        advice = "--grid says into how many parts the last dimensions are divided"
        contiguous = "each rank's part is contiguous"
        if arrays.undecided:
            self.use.note_loss(f"{unknown} {_part_sizes(arrays.undecided)}: {contiguous}; {advice}")
        if arrays.guessed:
            self.use.note_loss(f"{unknown} {_part_sizes(arrays.guessed)}: it is guessed from their sides; {advice}")
        if arrays.unfit:
            unfit = "no division of an array has the lengths and offsets of collective accesses"
            self.use.note_loss(f"{unfit} {_part_sizes(arrays.unfit)}: {contiguous}")
        if arrays.grid and not arrays.uses_grid:
            grid = "x".join(map(str, arrays.grid))
            parts = format_count(math.prod(arrays.grid), "part")
            ranks = format_count(self.use.ranks, "rank")
            self.use.note_loss(f"--grid {grid} ({parts}) fits no collective access to an array in this log of {ranks}")


def _part_sizes(sizes: set[int]) -> str:
    return f"(parts of {', '.join(f'{size:,}' for size in sorted(sizes))} bytes)"


def _is_of_mpi(path: str, mpiio_paths: tuple[str, ...]) -> bool:
    """Whether MPI's I/O made a file for itself, for one of the files that are accessed through it."""
    session_file = _IN_SESSION.search(path)
    if session_file is not None and any(mpiio_path.endswith(f"/{session_file[1]}") for mpiio_path in mpiio_paths):
        return True
    is_beside_file = path.startswith(mpiio_paths) and path not in mpiio_paths
    return is_beside_file and _BESIDE_FILE.search(path) is not None


def _is_used(file: FileUse) -> bool:
    return any(use.opens or len(use.accesses) for use in file.ranks.values())


def _first_use(file: FileUse) -> float:
    """Seconds from the start of the job to the first open or access; 0 if there is no time of one."""
    starts = []
    for use in file.ranks.values():
        if use.opened[0]:
            starts.append(use.opened[0])
        if len(use.accesses):
            starts.append(float(use.accesses["start"][0]))
    return min(starts, default=0.0)


def _has_short_reads(records: FileRecords, direct: RankTrace) -> bool:
    """Whether POSIX read less than the independent reads of MPI-IO asked for: nothing is behind the end of the file.

    Args:
        direct: POSIX accesses that are not below MPI-IO.
    """
    collective = sum(record["MPIIO_COLL_READS"] + record["MPIIO_SPLIT_READS"] for record in records.mpiio)
    if not records.posix or collective:
        return False
    requested_bytes = sum(record["MPIIO_BYTES_READ"] for record in records.mpiio)
    read_bytes = sum(record["POSIX_BYTES_READ"] for record in records.posix)
    return read_bytes - _moved_bytes(direct)["read"] < requested_bytes


def _moved_bytes(accesses: RankTrace) -> Counter[str]:
    """Bytes `read` and `written` by all ranks."""
    moved: Counter[str] = Counter()
    for rows in accesses.values():
        moved["written"] += int(rows["size"][rows["write"]].sum())
        moved["read"] += int(rows["size"][~rows["write"]].sum())
    return moved


def _has_all_accesses(trace: RankTrace, records: Sequence[Record], prefix: str) -> bool:
    """Whether DXT has as many accesses to a file as were counted."""
    counted = 0
    for record in records:
        counted += sum(record[name] for name in _TRANSFER_COUNTERS[prefix])
    return counted == sum(len(accesses) for accesses in trace.values())


def _is_created(record: Record, prefix: str) -> bool:
    if prefix == "MPIIO":
        return bool(record["MPIIO_MODE"] & _MPI_CREATE)
    return bool(record["POSIX_MODE"])


def _share_counts(record: Record, prefix: str, members: Sequence[int], file: FileUse) -> None:
    """Give each rank of a record its share of the opens, flushes and stats, and the times of opening and closing."""
    if prefix == "POSIX":
        open_counters = ["POSIX_OPENS"]
        flush_counters = ["POSIX_FSYNCS", "POSIX_FDSYNCS"]
    else:
        open_counters = ["MPIIO_COLL_OPENS"]
        flush_counters = ["MPIIO_SYNCS"]
        if not record["MPIIO_COLL_OPENS"] or len(file.ranks) == 1:
            open_counters.append("MPIIO_INDEP_OPENS")
    opened = _times_of(record, prefix, "OPEN")
    closed = _times_of(record, prefix, "CLOSE")
    opens = split_evenly(sum(record[name] for name in open_counters), len(members))
    flushes = split_evenly(sum(record[name] for name in flush_counters), len(members))
    stats = split_evenly(record["POSIX_STATS"], len(members))
    for index, rank in enumerate(members):
        use = file.ranks[rank]
        use.opens = opens[index]
        use.flushes = flushes[index]
        use.stats = stats[index]
        use.opened = opened
        use.closed = closed


def _times_of(record: Record, prefix: str, call: str) -> tuple[float, float]:
    """First start and last end of opening or closing a file in seconds.

    Raises:
        InputError: a time is not a number.
    """
    start_s = record.seconds(f"{prefix}_F_{call}_START_TIMESTAMP")
    end_s = record.seconds(f"{prefix}_F_{call}_END_TIMESTAMP")
    if not math.isfinite(start_s) or not math.isfinite(end_s):
        raise InputError(f"{prefix}: a time of a file is not a number")
    return start_s, end_s
