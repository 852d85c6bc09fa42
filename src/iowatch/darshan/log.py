"""Reader of Darshan logs: validates regions, returns records as arrays. Only the worker process imports this module.

The records are read through PyDarshan's library (libdarshan-util), which aborts or crashes on invalid contents and
imports pandas; hence the separate process. This module adds two functions that PyDarshan 3.5.0 lacks:

- Detection of damage. The library decompresses a region only as far as it needs and never verifies a checksum, so
  that it accepts damaged logs. `find_damaged_regions` decompresses each region first.
- The newest versions of the DXT modules, with the thread of each access. `read_dxt_records` decodes them.

PyDarshan's Python functions treat an unreadable record as the end of the module, and reject names that are not
UTF-8; therefore the library's functions are called directly.

Source: `darshan-log-format.h`, `darshan-logutils.c`, `darshan-dxt-log-format.h` of darshan-util 3.5.0.
"""

from __future__ import annotations

import bz2
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from darshan.backend.cffi_backend import _structdefs, counter_names, fcounter_names, ffi, libdutil, mod_name_to_idx
from numpy.typing import NDArray

from iowatch.core import InputError

MAGIC = 6567223
VERSIONS = ("3.00", "3.10", "3.20", "3.21", "3.41")
COMPRESSIONS = ("zlib", "bzip2", "none")

# The library's module ids; log formats that inserted a module shifted all later ids.
MODULES = (
    "NULL", "POSIX", "MPI-IO", "H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR", "BG/Q", "LUSTRE", "STDIO",
    "DXT_POSIX", "DXT_MPIIO", "MDHIM", "APXC", "APMPI", "HEATMAP", "DFS", "DAOS",
)  # fmt: skip
_INSERTED_MODULES = {"H5D": "3.20", "PNETCDF_VAR": "3.41"}
# The newest version of each DXT module, which added the thread of an access.
DXT_MODULES = {"DXT_POSIX": 2, "DXT_MPIIO": 3}

_CHUNK = 1 << 14
# The largest region that is decompressed for validation; real ones have some hundred MiB (DXT of a long run).
_REGION_LIMIT_BYTES = 8 << 30


@dataclass(frozen=True, slots=True)
class LogRegion:
    """Position of one part of the log: `offset_bytes` from the start of the file, compressed `length_bytes`.

    `version`: version of the module's records; 0 for the job and the names.
    """

    offset_bytes: int
    length_bytes: int
    version: int = 0


@dataclass(frozen=True)
class LogHeader:
    """The header of a log.

    Attributes:
        version: version of the log format, `3.41`.
        byte_order: `<` or `>`, as in `struct`.
        compression: one of COMPRESSIONS.
        job, names: regions of the job record and of the table of file names (None if the log has no names).
        modules: name to region; a module that MODULES does not list is `module 23`.
    """

    version: str
    byte_order: str
    compression: str
    job: LogRegion
    names: LogRegion | None
    modules: dict[str, LogRegion]


def _invalid_log_error(path: Path, what: str, reason: str = "foreign") -> InputError:
    hint = "Expected a log written by Darshan 3.0 or later (*.darshan)."
    return InputError(f"{path}: {what}", hint=hint, reason=reason)


def read_header(path: Path) -> LogHeader:
    """Return the header of a log.

    Raises:
        InputError: not a file, empty, truncated in the header, not a Darshan log, or unknown version.
    """
    if not path.is_file():
        exists = path.exists()
        raise _invalid_log_error(
            path, "not a regular file" if exists else "no such file", "foreign" if exists else "absent"
        )
    size = path.stat().st_size
    if size == 0:
        raise _invalid_log_error(path, "the file is empty (0 bytes)", "empty")
    try:
        with path.open("rb") as file:
            start = file.read(1328)
    except OSError as error:
        raise _invalid_log_error(path, error.strerror or str(error), "unreadable") from error
    version = start[:8].split(b"\0")[0].decode("ascii", "replace")
    if version not in VERSIONS:
        known = "one of " + ", ".join(VERSIONS)
        raise _invalid_log_error(path, f"not a Darshan log: format version is {version[:8]!r}, expected {known}")
    return _parse_header(path, start, version, size)


def _parse_header(path: Path, start: bytes, version: str, file_size: int) -> LogHeader:
    wide = version >= "3.41"
    slots, header_size, table = (64, 1328, 32) if wide else (16, 360, 24)
    if len(start) < header_size:
        raise _invalid_log_error(path, f"truncated in the header: {len(start)} of {header_size} bytes", "truncated")
    order = next((o for o in "<>" if struct.unpack_from(f"{o}q", start, 8)[0] == MAGIC), None)
    if order is None:
        raise _invalid_log_error(path, "not a Darshan log: wrong magic number in the header")
    if start[16] >= len(COMPRESSIONS):
        raise _invalid_log_error(path, f"unknown compression type {start[16]} in the header")
    numbers = struct.unpack_from(f"{order}{2 + 2 * slots}Q", start, table)
    versions = (0, *struct.unpack_from(f"{order}{slots}I", start, table + 16 * (1 + slots)))
    names, *modules = map(LogRegion, numbers[0::2], numbers[1::2], versions)
    known = [name for name in MODULES if version >= _INSERTED_MODULES.get(name, "")]
    known += (f"module {i}" for i in range(len(known), slots))
    first = min((region.offset_bytes for region in (names, *modules) if region.length_bytes), default=file_size)
    used = {name: region for name, region in zip(known, modules, strict=False) if region.length_bytes}
    job, named = LogRegion(header_size, first - header_size), names if names.length_bytes else None
    return LogHeader(version, order, COMPRESSIONS[start[16]], job, named, used)


def decompress_region(file: BinaryIO, region: LogRegion, compression: str) -> Iterator[bytes]:
    """Yield the decompressed bytes of a region in pieces, with all checksums verified.

    A region consists of one or several compressed streams (each rank of a run writes its own). A piece is at most
    `_CHUNK` compressed bytes, so that a decompression bomb does not exhaust the memory.

    Raises:
        InputError: truncated or damaged; the message is the reason without the file name.
    """
    if region.length_bytes < 0 or region.offset_bytes > file.seek(0, os.SEEK_END):
        raise InputError("is outside the file", reason="truncated")
    file.seek(region.offset_bytes)
    left, total = region.length_bytes, 0
    stream: Any = None
    while left:
        data = file.read(min(_CHUNK, left))
        if not data:
            raise InputError(f"truncated, {left} of {region.length_bytes} bytes are missing", reason="truncated")
        left -= len(data)
        if compression == "none":
            yield data
            continue
        while data:
            stream = stream or (bz2.BZ2Decompressor() if compression == "bzip2" else zlib.decompressobj())
            try:
                piece = stream.decompress(data)
            except (zlib.error, OSError, ValueError) as error:
                raise InputError(f"damaged ({error})", reason="damaged") from error
            total += len(piece)
            if total > _REGION_LIMIT_BYTES:
                raise InputError(f"decompresses to more than {_REGION_LIMIT_BYTES >> 30} GiB", reason="too_large")
            yield piece
            data, stream = (stream.unused_data, None) if stream.eof else (b"", stream)
    if stream is not None:
        raise InputError("truncated in compressed data", reason="truncated")


def find_damaged_regions(path: Path, header: LogHeader) -> dict[str, str]:
    """Return region name (`job`, `names`, or a module) to damage; empty for an intact log."""
    regions = {"job": header.job, **header.modules, **({"names": header.names} if header.names else {})}
    found: dict[str, str] = {}
    with path.open("rb") as file:
        for name, region in regions.items():
            try:
                for _ in decompress_region(file, region, header.compression):
                    pass
            except InputError as error:
                found[name] = error.message
    return found


def read_dxt_records(
    path: Path, header: LogHeader, module: str
) -> Iterator[tuple[int, int, dict[str, NDArray[np.void]]]]:
    """Yield the records of one of the DXT_MODULES in the log: all accesses of one rank to one file.

    Yields:
        record id; rank; and `write` and `read`: structured arrays with `offset` and `length` in bytes (offset -1:
        unknown), `start` and `end` in seconds since the start of the job.

    Raises:
        InputError: the module is damaged, or its version is newer than this reader.
    """
    region, order = header.modules[module], header.byte_order
    if not 1 <= region.version <= DXT_MODULES[module]:
        raise InputError(f"format version {region.version} is not known (newest known: {DXT_MODULES[module]})")
    fields = [("offset", f"{order}i8"), ("length", f"{order}i8"), ("start", f"{order}f8"), ("end", f"{order}f8")]
    access = np.dtype(fields + [("thread", f"{order}u8")] * (region.version == DXT_MODULES[module]))
    # File id, rank, shared, host name, number of writes and of reads; followed by the accesses.
    start = struct.Struct(f"{order}Qqq64sqq")
    with path.open("rb") as file:
        data = b"".join(decompress_region(file, region, header.compression))
    position = 0
    while position < len(data):
        if position + start.size > len(data):
            raise InputError("ends within a record")
        identity, rank, _, _, writes, reads = start.unpack_from(data, position)
        position += start.size
        if writes < 0 or reads < 0:
            raise InputError("a record has a negative number of accesses")
        if position + (writes + reads) * access.itemsize > len(data):
            raise InputError("ends within a record")
        accesses = np.frombuffer(data, access, writes + reads, position)
        position += accesses.nbytes
        yield identity, rank, {"write": accesses[:writes], "read": accesses[writes:]}


# Modules whose records are an array of integer counters and one of floating-point counters.
GENERIC_MODULES = ("POSIX", "MPI-IO", "STDIO", "H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR", "DFS", "DAOS", "BG/Q")

_MAX_RANKS = 1 << 24
_FILE_CATEGORIES = ("all", "read_only", "write_only", "read_write", "unique", "shared", "partly_shared")


@dataclass(frozen=True)
class JobInfo:
    """Facts of the run recorded in the log.

    Attributes:
        ranks: MPI processes; 1 without MPI.
        exe: the command line as recorded by Darshan (truncated at about 4 KiB).
        start_s, end_s: seconds since 1970, UTC.
        run_time_s: as computed by Darshan (whole seconds before log format 3.41).
        uid, jobid: as in the log.
        metadata: `lib_ver` (Darshan's version) and its other entries.
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
class ModuleRecords:
    """All records of one module: `n` records, `k` integer and `m` floating-point counters.

    Attributes:
        ids: (n,) uint64, hash of the file path.
        ranks: (n,) int64, -1 for a record that Darshan reduced over all ranks.
        integers: (n, k) int64; -1 means that Darshan could not count it.
        floats: (n, m) float64, seconds.
        raw: the records in the layout of the C library.
    """

    module: str
    ids: NDArray[np.uint64]
    ranks: NDArray[np.int64]
    integers: NDArray[np.int64]
    floats: NDArray[np.float64]
    raw: bytes

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """Darshan's names of the integer and the floating-point counters."""
        return counter_names(self.module), fcounter_names(self.module)


@dataclass(frozen=True)
class HeatmapRecord:
    """One heatmap record: bytes that one rank moved in each time bin, by kind (`write`, `read`)."""

    layer: str
    rank: int
    bin_s: float
    moved_bytes: dict[str, NDArray[np.int64]]


def _decode_text(pointer: Any) -> str:
    """Decode bytes of a log; bytes that are not UTF-8 are shown as `\\xff`, never dropped."""
    return str(ffi.string(pointer).decode("utf-8", "backslashreplace"))


class DarshanLog:
    """An open log, created by `open_log`."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def job(self) -> JobInfo:
        """Return the facts of the job.

        Raises:
            InputError: the region is damaged or contains an impossible number of ranks.
        """
        run_time, exe, record = ffi.new("double *"), ffi.new("char[]", 8192), ffi.new("struct darshan_job *")
        if libdutil.darshan_log_get_job(self._handle, record) < 0:
            raise InputError("the job's facts cannot be read")
        job = record[0]
        libdutil.darshan_log_get_job_runtime(self._handle, job, run_time)
        libdutil.darshan_log_get_exe(self._handle, exe)
        if not 0 < job.nprocs <= _MAX_RANKS:
            raise InputError(f"the log states {job.nprocs} ranks")
        lines = (line.partition("=") for line in _decode_text(job.metadata).splitlines())
        return JobInfo(
            ranks=int(job.nprocs),
            exe=_decode_text(exe).strip(),
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
        mounts = [(_decode_text(table[0][i].mnt_path), _decode_text(table[0][i].mnt_type)) for i in range(count[0])]
        libdutil.darshan_free(table[0])
        return sorted(mounts, key=lambda mount: -len(mount[0]))

    def names(self) -> dict[int, str]:
        """Return record id to path."""
        table, count = ffi.new("struct darshan_name_record **"), ffi.new("int *")
        libdutil.darshan_log_get_name_records(self._handle, table, count)
        names = {}
        for i in range(count[0]):
            names[int(table[0][i].id)] = _decode_text(table[0][i].name)
            libdutil.darshan_free(table[0][i].name)
        if count[0]:
            libdutil.darshan_free(table[0])
        return names

    def partial_modules(self) -> list[str]:
        """Return the modules for which Darshan ran out of memory during the run."""
        table, count = ffi.new("struct darshan_mod_info **"), ffi.new("int *")
        libdutil.darshan_log_get_modules(self._handle, table, count)
        rows = [table[0][i] for i in range(count[0])]
        partial = [_decode_text(row.name) for row in rows if row.name != ffi.NULL and row.partial_flag]
        libdutil.darshan_free(table[0])
        return partial

    def _each(self, module: str) -> Iterator[Any]:
        """Yield a pointer to each record of a module, valid until the next one is requested."""
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

    def records(self, module: str, ranks: int) -> ModuleRecords:
        """Return all records of one of the GENERIC_MODULES; `ranks` is that of the job.

        Raises:
            InputError: a record is unreadable, or belongs to a rank outside the job.
        """
        struct = _structdefs[module].replace("**", "").strip()
        size = ffi.sizeof(struct)
        raw = bytearray()
        for buffer in self._each(module):
            raw += ffi.buffer(buffer[0], size)
        offsets = {name: kind.offset for name, kind in ffi.typeof(struct).fields}
        k, m = len(counter_names(module)), len(fcounter_names(module))
        starts = {"id": 0, "rank": 8, "integers": offsets["counters"], "floats": offsets["fcounters"]}
        formats = ["<u8", "<i8", ("<i8", (k,)), ("<f8", (m,))]
        layout = np.dtype({"names": [*starts], "formats": formats, "offsets": [*starts.values()], "itemsize": size})
        rows = np.frombuffer(bytes(raw), dtype=layout)
        if len(rows) and not (rows["rank"].min() >= -1 and rows["rank"].max() < ranks):
            raise InputError("a record belongs to a rank that the job does not have")
        return ModuleRecords(module, rows["id"], rows["rank"], rows["integers"], rows["floats"], bytes(raw))

    def heatmap(self, names: dict[int, str]) -> Iterator[HeatmapRecord]:
        """Yield the heatmap records; `layer` is `POSIX`, `MPIIO` or `STDIO`."""
        for buffer in self._each("HEATMAP"):
            record = ffi.cast("struct darshan_heatmap_record *", buffer[0])
            bins = int(record.nbins)
            layer = names.get(int(record.base_rec.id), "").removeprefix("heatmap:") or "unknown"
            parts = {"write": record.write_bins, "read": record.read_bins}
            raw = {kind: bytes(ffi.buffer(part, 8 * bins)) if bins > 0 else b"" for kind, part in parts.items()}
            moved = {kind: np.frombuffer(data, dtype="<i8") for kind, data in raw.items()}
            yield HeatmapRecord(layer, int(record.base_rec.rank), float(record.bin_width_seconds), moved)

    def stripes(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield record id and layout of each file on Lustre: components with Darshan's counters, pool and OSTs."""
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
                components.append({**counters, "pool": _decode_text(component.pool_name), "osts": osts})
            yield int(record.base_rec.id), {"stripes": int(record.num_stripes), "components": components}


def accumulate_totals(records: ModuleRecords, ranks: int) -> tuple[dict[str, int | float], dict[str, Any]] | None:
    """Return Darshan's totals of a module, computed by the code of `darshan-parser --total --perf --file`.

    Args:
        records: at least one record.
        ranks: number of ranks of the job.

    Returns:
        Darshan's counter names to values, combined by Darshan's rules, and its estimates: `bandwidth_mib_per_s` (bytes
        moved / that time; None if the time is 0), `time_by_slowest_s` (the slowest rank's time in its own files plus
        the slowest rank's time in every shared file), `files` per category. None if Darshan has no totals.
    """
    handle = ffi.new("darshan_accumulator *")
    if libdutil.darshan_accumulator_create(mod_name_to_idx(records.module), ranks, handle) != 0:
        return None
    struct = _structdefs[records.module].replace("**", "*")
    derived, total = ffi.new("struct darshan_derived_metrics *"), ffi.new(struct)
    raw = ffi.from_buffer(bytearray(records.raw))
    try:
        failed = libdutil.darshan_accumulator_inject(handle[0], raw, len(records.ids))
        if failed or libdutil.darshan_accumulator_emit(handle[0], derived, total):
            return None
    finally:
        libdutil.darshan_accumulator_destroy(handle[0])
    integers, floats = records.names
    counters = dict(zip((*integers, *floats), (*total[0].counters, *total[0].fcounters), strict=True))
    return counters, {
        "bandwidth_mib_per_s": float(derived.agg_perf_by_slowest) or None,
        "time_by_slowest_s": float(derived.agg_time_by_slowest),
        "files": {name: int(derived.category_counters[i].count) for i, name in enumerate(_FILE_CATEGORIES)},
    }


@contextmanager
def open_log(path: Path) -> Iterator[DarshanLog]:
    """Open a log with the C library.

    Raises:
        InputError: the library rejects it.
    """
    handle = libdutil.darshan_log_open(str(path).encode("utf-8", "surrogateescape"))
    if handle == ffi.NULL:
        raise InputError("the Darshan library cannot open it", reason="refused")
    try:
        yield DarshanLog(handle)
    finally:
        libdutil.darshan_log_close(handle)
