"""The records of a log as arrays, read through PyDarshan's C library.

Only the worker process imports this module (see `worker`): the library aborts or crashes on logs whose
contents are absurd, and it brings pandas with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from darshan.backend.cffi_backend import (
    _structdefs,
    counter_names,
    fcounter_names,
    ffi,
    libdutil,
    mod_name_to_idx,
)
from numpy.typing import NDArray

from iowatch.errors import InputError

# Modules whose records are an array of integer counters and one of floating-point counters.
GENERIC = ("POSIX", "MPI-IO", "STDIO", "H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR", "DFS", "DAOS", "BG/Q")

_MAX_RANKS = 1 << 24
_FILE_CATEGORIES = ("all", "read_only", "write_only", "read_write", "unique", "shared", "partly_shared")


@dataclass(frozen=True)
class Job:
    """What Darshan says about the run.

    Attributes:
        ranks: MPI processes; 1 without MPI.
        exe: the command line as Darshan kept it (cut at about 4 KiB).
        start_s, end_s: seconds since 1970, UTC.
        run_time_s: as Darshan computes it (whole seconds before log format 3.41).
        uid, jobid: as in the log.
        metadata: `lib_ver` (Darshan's version) and what else it wrote.
        mounts: (mount point, file system type), longest mount point first.
    """

    ranks: int
    exe: str
    start_s: float
    end_s: float
    run_time_s: float
    uid: int
    jobid: int
    metadata: dict[str, str]
    mounts: list[tuple[str, str]]


@dataclass(frozen=True)
class Records:
    """All records of one module: `n` records, `k` integer and `m` floating-point counters.

    Attributes:
        ids: (n,) uint64, the hash of the file's path.
        ranks: (n,) int64, -1 for a record that Darshan reduced over all ranks.
        integers: (n, k) int64; -1 means that Darshan could not count it.
        floats: (n, m) float64, seconds.
        raw: the records as the C library lays them out.
    """

    module: str
    ids: NDArray[np.uint64]
    ranks: NDArray[np.int64]
    integers: NDArray[np.int64]
    floats: NDArray[np.float64]
    raw: bytes

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """Darshan's names of the integer and of the floating-point counters."""
        return counter_names(self.module), fcounter_names(self.module)


@dataclass(frozen=True)
class Accumulated:
    """Darshan's own totals of a module (`darshan-parser --total --perf --file`).

    Attributes:
        integers, floats: one row of counters, combined by Darshan's rules.
        time_by_slowest_s: the slowest rank's time in its own files plus the slowest rank's time in every
        shared file. bandwidth_mib_per_s: bytes moved / that time; 0 where the time is 0.
        files: number of files a category.
    """

    integers: NDArray[np.int64]
    floats: NDArray[np.float64]
    time_by_slowest_s: float
    bandwidth_mib_per_s: float
    files: dict[str, int]


@dataclass(frozen=True)
class Heat:
    """One heatmap record: bytes one rank wrote and read in each time bin."""

    layer: str
    rank: int
    bin_s: float
    write_bytes: NDArray[np.int64]
    read_bytes: NDArray[np.int64]


def _text(pointer: Any) -> str:
    """Bytes of a log as text; what is not UTF-8 is shown as `\\xff`, never dropped."""
    return str(ffi.string(pointer).decode("utf-8", "backslashreplace"))


class Log:
    """An open log. Use `open_log`."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def job(self) -> Job:
        """The job's facts.

        Raises:
            InputError: the region is damaged or names an impossible number of ranks.
        """
        record = ffi.new("struct darshan_job *")
        run_time, exe = ffi.new("double *"), ffi.new("char[]", 8192)
        if libdutil.darshan_log_get_job(self._handle, record) < 0:
            raise InputError("the job's facts cannot be read")
        libdutil.darshan_log_get_job_runtime(self._handle, record[0], run_time)
        libdutil.darshan_log_get_exe(self._handle, exe)
        job = record[0]
        if not 0 < job.nprocs <= _MAX_RANKS:
            raise InputError(f"the log claims {job.nprocs} ranks")
        lines = (line.partition("=") for line in _text(job.metadata).splitlines())
        return Job(
            ranks=int(job.nprocs),
            exe=_text(exe).strip(),
            start_s=job.start_time_sec + job.start_time_nsec / 1e9,
            end_s=job.end_time_sec + job.end_time_nsec / 1e9,
            run_time_s=float(run_time[0]),
            uid=int(job.uid),
            jobid=int(job.jobid),
            metadata={key.strip(): value.strip() for key, _, value in lines if key.strip()},
            mounts=self._mounts(),
        )

    def _mounts(self) -> list[tuple[str, str]]:
        table, count = ffi.new("struct darshan_mnt_info **"), ffi.new("int *")
        if libdutil.darshan_log_get_mounts(self._handle, table, count) < 0 or count[0] == 0:
            return []
        mounts = [(_text(table[0][i].mnt_path), _text(table[0][i].mnt_type)) for i in range(count[0])]
        libdutil.darshan_free(table[0])
        return sorted(mounts, key=lambda mount: -len(mount[0]))

    def names(self) -> dict[int, str]:
        """Record id to path."""
        table, count = ffi.new("struct darshan_name_record **"), ffi.new("int *")
        libdutil.darshan_log_get_name_records(self._handle, table, count)
        names = {}
        for i in range(count[0]):
            names[int(table[0][i].id)] = _text(table[0][i].name)
            libdutil.darshan_free(table[0][i].name)
        if count[0]:
            libdutil.darshan_free(table[0])
        return names

    def partial_modules(self) -> list[str]:
        """Modules for which Darshan ran out of memory while the program ran."""
        table, count = ffi.new("struct darshan_mod_info **"), ffi.new("int *")
        libdutil.darshan_log_get_modules(self._handle, table, count)
        rows = [table[0][i] for i in range(count[0])]
        partial = [_text(row.name) for row in rows if row.name != ffi.NULL and row.partial_flag]
        libdutil.darshan_free(table[0])
        return partial

    def _each(self, module: str) -> Iterator[Any]:
        """A pointer to each record of a module; valid until the next one is asked for."""
        index = mod_name_to_idx(module)
        while True:
            buffer = ffi.new("void **")
            outcome = libdutil.darshan_log_get_record(self._handle, index, buffer)
            if outcome < 0:
                raise InputError("a record cannot be read")
            if outcome == 0:
                return
            try:
                yield buffer
            finally:
                libdutil.darshan_free(buffer[0])

    def records(self, module: str, ranks: int) -> Records:
        """All records of one of the GENERIC modules; `ranks` is the job's.

        Raises:
            InputError: a record cannot be read, or belongs to a rank that the job does not have.
        """
        struct = _structdefs[module].replace("**", "").strip()
        size = ffi.sizeof(struct)
        raw = bytearray()
        for buffer in self._each(module):
            raw += ffi.buffer(buffer[0], size)
        offsets = {name: kind.offset for name, kind in ffi.typeof(struct).fields}
        k, m = len(counter_names(module)), len(fcounter_names(module))
        layout = np.dtype(
            {
                "names": ["id", "rank", "integers", "floats"],
                "formats": ["<u8", "<i8", (("<i8"), (k,)), (("<f8"), (m,))],
                "offsets": [0, 8, offsets["counters"], offsets["fcounters"]],
                "itemsize": size,
            }
        )
        rows = np.frombuffer(bytes(raw), dtype=layout)
        if len(rows) and not (rows["rank"].min() >= -1 and rows["rank"].max() < ranks):
            raise InputError("a record belongs to a rank that the job does not have")
        return Records(module, rows["id"], rows["rank"], rows["integers"], rows["floats"], bytes(raw))

    def heatmap(self, names: dict[int, str]) -> Iterator[Heat]:
        """The heatmap records; `layer` is `POSIX`, `MPIIO` or `STDIO`."""
        for buffer in self._each("HEATMAP"):
            record = ffi.cast("struct darshan_heatmap_record *", buffer[0])
            bins = int(record.nbins)
            layer = names.get(int(record.base_rec.id), "").removeprefix("heatmap:") or "unknown"
            write, read = (
                np.frombuffer(bytes(ffi.buffer(pointer, 8 * bins)), dtype="<i8")
                if bins > 0
                else np.zeros(0, "<i8")
                for pointer in (record.write_bins, record.read_bins)
            )
            yield Heat(layer, int(record.base_rec.rank), float(record.bin_width_seconds), write, read)

    def stripes(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Record id and layout of each file on Lustre: components with Darshan's counters, pool and OSTs."""
        names = counter_names("LUSTRE_COMP")
        for buffer in self._each("LUSTRE"):
            record = ffi.cast("struct darshan_lustre_record *", buffer[0])
            components, used = [], 0
            for i in range(record.num_comps):
                component = record.comps[i]
                counters = dict(zip(names, (int(c) for c in component.counters), strict=True))
                width = max(0, min(counters["LUSTRE_COMP_STRIPE_COUNT"], int(record.num_stripes) - used))
                osts = [int(record.ost_ids[used + j]) for j in range(width)]
                used += width
                components.append({**counters, "pool": _text(component.pool_name), "osts": osts})
            yield int(record.base_rec.id), {"stripes": int(record.num_stripes), "components": components}


def accumulate(records: Records, ranks: int) -> Accumulated | None:
    """Darshan's totals of a module, by the code that `darshan-parser --total` runs; None where Darshan has
    none.

    Args:
        records: at least one record.
        ranks: of the job.
    """
    handle = ffi.new("darshan_accumulator *")
    if libdutil.darshan_accumulator_create(mod_name_to_idx(records.module), ranks, handle) != 0:
        return None
    struct = _structdefs[records.module].replace("**", "*")
    derived, total = ffi.new("struct darshan_derived_metrics *"), ffi.new(struct)
    raw = ffi.from_buffer(bytearray(records.raw))
    try:
        if libdutil.darshan_accumulator_inject(handle[0], raw, len(records.ids)) != 0:
            return None
        if libdutil.darshan_accumulator_emit(handle[0], derived, total) != 0:
            return None
    finally:
        libdutil.darshan_accumulator_destroy(handle[0])
    return Accumulated(
        integers=np.frombuffer(bytes(ffi.buffer(total[0].counters)), dtype="<i8"),
        floats=np.frombuffer(bytes(ffi.buffer(total[0].fcounters)), dtype="<f8"),
        time_by_slowest_s=float(derived.agg_time_by_slowest),
        bandwidth_mib_per_s=float(derived.agg_perf_by_slowest),
        files={name: int(derived.category_counters[i].count) for i, name in enumerate(_FILE_CATEGORIES)},
    )


@contextmanager
def open_log(path: Path) -> Iterator[Log]:
    """Open a log with the C library.

    Raises:
        InputError: the library refuses it.
    """
    handle = libdutil.darshan_log_open(str(path).encode("utf-8", "surrogateescape"))
    if handle == ffi.NULL:
        raise InputError("the Darshan library cannot open it")
    try:
        yield Log(handle)
    finally:
        libdutil.darshan_log_close(handle)
