"""Reader of Darshan logs: validates regions, returns records as arrays. Only worker processes open logs.

The records are read through PyDarshan's library (libdarshan-util), which aborts or crashes on invalid contents and
imports pandas; hence the separate process (`iowatch.darshan.worker`), and the import at the first use (`load_library`).
Where pandas is not installed, PyDarshan's binding of the library is imported without it.
This module adds three functions that PyDarshan 3.5.0 lacks:

- Detection of damage. The library decompresses a region only as far as it needs and never verifies a checksum, so
  that it accepts damaged logs. `find_damaged_regions` decompresses each region first.
- The newest versions of the DXT modules, with the thread of each access. `read_dxt_records` decodes them.
- Times of logs that are older than Darshan 3.1.7. The library converts their records of POSIX, and leaves some times
  in the byte order of the log or loses them. `_read_last_posix_floats` decodes those.

PyDarshan's Python functions treat an unreadable record as the end of the module, and reject names that are not
UTF-8; therefore the library's functions are called directly.

Source: `darshan-log-format.h`, `darshan-logutils.c`, `darshan-dxt-log-format.h` of darshan-util 3.5.0.
"""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import os
import re
import resource
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np
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
# The largest contents of a log that are decompressed for validation, if the memory of the process has no limit. Real
# ones have some hundred MiB (DXT of a long run).
_CONTENTS_LIMIT_BYTES = 4 << 30
# Records are copied once, at least: what takes more than this share of the memory cannot be read.
_CONTENTS_SHARE_OF_MEMORY = 0.5
# Logs of Darshan 1 and 2 are compressed as a whole; their contents begin with a version, too.
_WHOLE_FILE_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2"}
_OLD_VERSION = re.compile(r"[12]\.\d{1,2}")


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
    if not path.exists():
        raise _invalid_log_error(path, "no such file", "absent")
    if not path.is_file():
        raise _invalid_log_error(path, "not a regular file")
    size = path.stat().st_size
    if size == 0:
        raise _invalid_log_error(path, "the file is empty (0 bytes)", "empty")
    try:
        with path.open("rb") as file:
            start = file.read(_NEW_LAYOUT.length_bytes)
    except OSError as error:
        raise _invalid_log_error(path, error.strerror or str(error), "unreadable") from error
    for magic, compression in _WHOLE_FILE_COMPRESSIONS.items():
        if start.startswith(magic):
            raise _compressed_file_error(path, compression)
    version = _decode_version(start)
    expected = "expected one of " + ", ".join(VERSIONS)
    if _OLD_VERSION.fullmatch(version):
        message = f"a log of Darshan 1 or 2, of format {version}, {expected}"
        raise _invalid_log_error(path, message, reason="old_format")
    if version not in VERSIONS:
        message = f"not a Darshan log: it begins with {version!r} in the place of the version, {expected}"
        raise _invalid_log_error(path, message)
    return _parse_header(path, start, version, size)


def _decode_version(start: bytes) -> str:
    return start[:_VERSION_BYTES].split(b"\0")[0].decode("ascii", "backslashreplace")


def _compressed_file_error(path: Path, compression: str) -> InputError:
    """The error of a file that is compressed as a whole: an old log, a compressed newer one, or no log."""
    opener = gzip.open if compression == "gzip" else bz2.open
    start = b""
    with suppress(OSError, EOFError, zlib.error), opener(path) as file:
        start = file.read(_VERSION_BYTES)
    version = _decode_version(start)
    if _OLD_VERSION.fullmatch(version):
        message = f"a log of Darshan 1 or 2, of format {version} (compressed by {compression} as a whole)"
        return _invalid_log_error(path, message, reason="old_format")
    if version in VERSIONS:
        error = _invalid_log_error(path, f"a Darshan log that {compression} has compressed again")
        error.hint = f"Decompress it with {compression} -d."
        return error
    message = f"compressed by {compression} as a whole, as logs of Darshan 1 and 2 are"
    return _invalid_log_error(path, f"{message}, but its contents are no Darshan log")


@dataclass(frozen=True)
class _HeaderLayout:
    """Layout of the header in a version of the log format.

    Attributes:
        modules: modules that the format has space for.
        length_bytes: length of the header.
        regions_offset: where the table of regions begins: names first, then the modules.
    """

    modules: int
    length_bytes: int
    regions_offset: int


# The header begins with the version of the format, a magic number of 8 bytes and the type of compression.
_VERSION_BYTES, _MAGIC_OFFSET, _COMPRESSION_OFFSET = 8, 8, 16
# Offset and length of a region, 8 bytes each.
_REGION_BYTES = 16
# Since version 3.41, and before; the former is the longest header.
_NEW_LAYOUT = _HeaderLayout(modules=64, length_bytes=1328, regions_offset=32)
_OLD_LAYOUT = _HeaderLayout(modules=16, length_bytes=360, regions_offset=24)


def _parse_header(path: Path, start: bytes, version: str, file_size: int) -> LogHeader:
    """Parse the first bytes of a log.

    Args:
        start: as many as the longest header, or the whole file if it is shorter.
        version: of the format, one of `VERSIONS`.
        file_size: in bytes, the end of the job's record if there is no region.

    Raises:
        InputError: truncated, wrong magic number, unknown compression.
    """
    layout = _NEW_LAYOUT if version >= "3.41" else _OLD_LAYOUT
    if len(start) < layout.length_bytes:
        message = f"truncated in the header: {len(start)} of {layout.length_bytes} bytes"
        raise _invalid_log_error(path, message, "truncated")
    byte_order = _find_byte_order(start)
    if byte_order is None:
        raise _invalid_log_error(path, "not a Darshan log: wrong magic number in the header")
    compression = start[_COMPRESSION_OFFSET]
    if compression >= len(COMPRESSIONS):
        raise _invalid_log_error(path, f"unknown compression type {compression} in the header")

    # The table of regions, followed by the version of each module's records.
    regions = 1 + layout.modules
    extents = struct.unpack_from(f"{byte_order}{2 * regions}Q", start, layout.regions_offset)
    versions_offset = layout.regions_offset + _REGION_BYTES * regions
    versions = struct.unpack_from(f"{byte_order}{layout.modules}I", start, versions_offset)
    names, *modules = map(LogRegion, extents[0::2], extents[1::2], (0, *versions))

    # The job's record has no entry: it lies between the header and the first region.
    first_offset = file_size
    for region in (names, *modules):
        if region.length_bytes:
            first_offset = min(first_offset, region.offset_bytes)
    used_modules = {}
    for name, region in zip(_module_names(version, layout.modules), modules, strict=True):
        if region.length_bytes:
            used_modules[name] = region
    return LogHeader(
        version=version,
        byte_order=byte_order,
        compression=COMPRESSIONS[compression],
        job=LogRegion(layout.length_bytes, first_offset - layout.length_bytes),
        names=names if names.length_bytes else None,
        modules=used_modules,
    )


def _find_byte_order(start: bytes) -> str | None:
    """The byte order, as in `struct`, in which the magic number is right; None if it is in neither."""
    for byte_order in "<>":
        (magic,) = struct.unpack_from(f"{byte_order}q", start, _MAGIC_OFFSET)
        if magic == MAGIC:
            return byte_order
    return None


def _module_names(version: str, modules: int) -> list[str]:
    """Names of the modules in the order of the header; those that MODULES does not list are numbered."""
    names = [name for name in MODULES if version >= _INSERTED_MODULES.get(name, "")]
    names += [f"module {index}" for index in range(len(names), modules)]
    return names[:modules]


def _contents_limit() -> int:
    """How many bytes the contents of a log may have, so that this process can read them."""
    memory_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if memory_bytes == resource.RLIM_INFINITY:
        return _CONTENTS_LIMIT_BYTES
    return int(_CONTENTS_SHARE_OF_MEMORY * memory_bytes)


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
    if compression == "none":
        yield from _read_chunks(file, region)
    else:
        yield from _decompress_streams(_read_chunks(file, region), compression)


def _read_chunks(file: BinaryIO, region: LogRegion) -> Iterator[bytes]:
    """Yield the bytes of a region as they are in the file, compressed or not.

    Args:
        file: at the start of the region.
    """
    left = region.length_bytes
    while left:
        chunk = file.read(min(_CHUNK, left))
        if not chunk:
            raise InputError(f"truncated, {left} of {region.length_bytes} bytes are missing", reason="truncated")
        left -= len(chunk)
        yield chunk


def _decompress_streams(chunks: Iterator[bytes], compression: str) -> Iterator[bytes]:
    """Yield the contents of the compressed streams that follow each other in the chunks."""
    stream: Any = None
    for chunk in chunks:
        # A chunk may end one stream and begin the next.
        rest = chunk
        while rest:
            if stream is None:
                stream = bz2.BZ2Decompressor() if compression == "bzip2" else zlib.decompressobj()
            try:
                piece = stream.decompress(rest)
            except (zlib.error, OSError, ValueError) as error:
                raise InputError(f"damaged ({error})", reason="damaged") from error
            yield piece
            rest = b""
            if stream.eof:
                rest = stream.unused_data
                stream = None
    if stream is not None:
        raise InputError("truncated in compressed data", reason="truncated")


def find_damaged_regions(path: Path, header: LogHeader) -> dict[str, str]:
    """Return region name (`job`, `names`, or a module) to damage; empty for an intact log.

    Raises:
        InputError: the log decompresses to more than this process can read.
    """
    damages: dict[str, str] = {}
    for name, damage in _check_regions(path, header, ("job", "names", *header.modules)):
        if damage is not None:
            damages[name] = damage.message
    return damages


def require_intact_regions(path: Path, header: LogHeader, modules: Iterable[str]) -> None:
    """Require that the job, the names and some modules of a log are intact.

    Raises:
        InputError: one of them is not, or the log decompresses to more than this process can read.
    """
    for _, damage in _check_regions(path, header, ("job", "names", *modules)):
        if damage is not None:
            raise damage


def _check_regions(path: Path, header: LogHeader, names: Iterable[str]) -> Iterator[tuple[str, InputError | None]]:
    """Decompress regions of a log that exist, and yield the name of each with its damage.

    All of them share one limit, so that a decompression bomb ends after seconds, whatever its number of regions.
    """
    regions = {"job": header.job, **header.modules}
    if header.names is not None:
        regions["names"] = header.names
    limit = _contents_limit()
    bytes_left = limit
    with path.open("rb") as file:
        for name in names:
            if name not in regions:
                continue
            damage = None
            try:
                for piece in decompress_region(file, regions[name], header.compression):
                    bytes_left -= len(piece)
                    if bytes_left < 0:
                        message = f"{path}: decompresses to more than {limit >> 20} MiB in {name}"
                        hint = "No log of a run is as large: it is damaged, or a decompression bomb."
                        raise _TooLargeError(message, hint=hint, reason="too_large")
            except _TooLargeError:
                raise
            except InputError as error:
                damage = error
            yield name, damage


class _TooLargeError(InputError):
    """A log decompresses to more than this process can read."""


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
    region = header.modules[module]
    newest_version = DXT_MODULES[module]
    if not 1 <= region.version <= newest_version:
        raise InputError(f"format version {region.version} is not known (newest known: {newest_version})")
    order = header.byte_order
    access_type = _dxt_access_type(order, with_thread=region.version == newest_version)
    # File id, rank, shared, host name, number of writes and of reads; followed by the accesses.
    record_start = struct.Struct(f"{order}Qqq64sqq")
    with path.open("rb") as file:
        contents = b"".join(decompress_region(file, region, header.compression))
    position = 0
    while position < len(contents):
        if position + record_start.size > len(contents):
            raise InputError("ends within a record")
        record_id, rank, _, _, writes, reads = record_start.unpack_from(contents, position)
        position += record_start.size
        if writes < 0 or reads < 0:
            raise InputError("a record has a negative number of accesses")
        if position + (writes + reads) * access_type.itemsize > len(contents):
            raise InputError("ends within a record")
        accesses = np.frombuffer(contents, access_type, writes + reads, position)
        position += accesses.nbytes
        yield record_id, rank, {"write": accesses[:writes], "read": accesses[writes:]}


def _dxt_access_type(order: str, with_thread: bool) -> np.dtype[np.void]:
    fields = [("offset", f"{order}i8"), ("length", f"{order}i8"), ("start", f"{order}f8"), ("end", f"{order}f8")]
    if with_thread:
        fields.append(("thread", f"{order}u8"))
    return np.dtype(fields)


@cache
def load_library() -> Any:
    """Return PyDarshan's module that binds libdarshan-util; it is imported here, at the first use.

    Raises:
        RuntimeError: PyDarshan has no library for this Python.
        ModuleNotFoundError: PyDarshan is not installed.
    """
    if importlib.util.find_spec("pandas") is None:
        return _load_library_without_pandas()
    from darshan.backend import cffi_backend

    return cffi_backend


def _load_library_without_pandas() -> Any:
    """Return the module that binds libdarshan-util, on a host that only measures.

    PyDarshan imports pandas for its reports; in the binding only functions use it that are not called here. So neither
    the `__init__` of PyDarshan is executed nor pandas needed: an empty module has its name during the import.
    """
    spec = importlib.util.find_spec("darshan")
    if spec is None:
        raise ModuleNotFoundError("No module named 'darshan'", name="darshan")
    package = importlib.util.module_from_spec(spec)
    # The binding compares it with the version of the library.
    package.__darshanutil_version__ = metadata.version("darshan")  # type: ignore[attr-defined]
    sys.modules["darshan"] = package
    sys.modules["pandas"] = ModuleType("pandas")
    try:
        from darshan.backend import cffi_backend

        return cffi_backend
    finally:
        # Whatever imports either later gets the real one, or the error of its absence.
        del sys.modules["pandas"], sys.modules["darshan"]


# Modules whose records are an array of integer counters and one of floating-point counters.
GENERIC_MODULES = ("POSIX", "MPI-IO", "STDIO", "H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR", "DFS", "DAOS")

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
        has_invalid_times: whether the log has times that are none; they are -1 here.
    """

    module: str
    ids: NDArray[np.uint64]
    ranks: NDArray[np.int64]
    integers: NDArray[np.int64]
    floats: NDArray[np.float64]
    raw: bytes
    has_invalid_times: bool = False

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """Darshan's names of the integer and the floating-point counters."""
        library = load_library()
        return library.counter_names(self.module), library.fcounter_names(self.module)


@dataclass(frozen=True)
class HeatmapRecord:
    """One heatmap record: bytes that one rank moved in each time bin, by kind (`write`, `read`)."""

    layer: str
    rank: int
    bin_s: float
    moved_bytes: dict[str, NDArray[np.int64]]


def _decode_text(pointer: Any) -> str:
    """Decode bytes of a log; bytes that are not UTF-8 are shown as `\\xff`, never dropped."""
    return str(load_library().ffi.string(pointer).decode("utf-8", "backslashreplace"))


# Bytes of a record of POSIX by the version of the module, before the current version 4.
_OLD_POSIX_RECORD_BYTES = {1: 680, 2: 648, 3: 664}
# The last counters of such a record (META_TIME, MAX_READ_TIME, MAX_WRITE_TIME, FASTEST_ and SLOWEST_RANK_TIME,
# VARIANCE_RANK_TIME and _BYTES): libdarshan-util 3.5.0 does not swap the bytes of the first three of a log of the other
# byte order, loses the last two of versions 2 and 3, and the two before them of version 2.
_LAST_POSIX_FLOATS = 7
# Where a record of version 1 counts opens of C streams; the library leaves out records that have any.
_STREAM_OPENS_OFFSET = 64


def _read_last_posix_floats(path: Path, header: LogHeader, region: LogRegion) -> NDArray[np.float64]:
    """The last counters of each record of an older version of POSIX, (n, _LAST_POSIX_FLOATS), as the log has them.

    Source: `darshan_log_get_posix_file` in `darshan-posix-logutils.c` of darshan-util 3.5.0.
    """
    record_bytes = _OLD_POSIX_RECORD_BYTES[region.version]
    with path.open("rb") as file:
        contents = b"".join(decompress_region(file, region, header.compression))
    record_type = np.dtype(
        {
            "names": ["stream_opens", "last_floats"],
            # The library tests the opens without swapping their bytes.
            "formats": ["<i8", (f"{header.byte_order}f8", (_LAST_POSIX_FLOATS,))],
            "offsets": [_STREAM_OPENS_OFFSET, record_bytes - 8 * _LAST_POSIX_FLOATS],
            "itemsize": record_bytes,
        }
    )
    records = np.frombuffer(contents, record_type, count=len(contents) // record_bytes)
    if region.version == 1:
        records = records[records["stream_opens"] <= 0]
    return records["last_floats"].astype("<f8")


# No sum over the ranks of a run is as long: 30,000 years of a million ranks.
_LONGEST_TIME_S = 1e18


def _is_time(counter: str) -> bool:
    """Whether a floating-point counter has seconds: all but the variances."""
    return "_F_VARIANCE_" not in counter


def _is_invalid_time(seconds: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each is a number that is no time: negative, denormal, or too long. -1 is what Darshan did not count."""
    smallest = np.finfo(np.float64).tiny
    is_time = (seconds == 0) | (seconds == -1) | ((seconds >= smallest) & (seconds <= _LONGEST_TIME_S))
    is_invalid: NDArray[np.bool_] = np.isfinite(seconds) & ~is_time
    return is_invalid


class DarshanLog:
    """An open log, created by `open_log`."""

    def __init__(self, path: Path, handle: Any) -> None:
        self._path = path
        self._handle = handle
        library = load_library()
        self._ffi = library.ffi
        self._libdutil = library.libdutil

    def job(self) -> JobInfo:
        """Return the facts of the job.

        Raises:
            InputError: the region is damaged or contains an impossible number of ranks.
        """
        record = self._ffi.new("struct darshan_job *")
        if self._libdutil.darshan_log_get_job(self._handle, record) < 0:
            raise InputError("the job's facts cannot be read")
        job = record[0]
        run_time = self._ffi.new("double *")
        self._libdutil.darshan_log_get_job_runtime(self._handle, job, run_time)
        exe = self._ffi.new("char[]", 8192)
        self._libdutil.darshan_log_get_exe(self._handle, exe)
        if not 0 < job.nprocs <= _MAX_RANKS:
            raise InputError(f"the log states {job.nprocs} ranks")
        return JobInfo(
            ranks=int(job.nprocs),
            exe=_decode_text(exe).strip(),
            start_s=job.start_time_sec + job.start_time_nsec / 1e9,
            end_s=job.end_time_sec + job.end_time_nsec / 1e9,
            run_time_s=float(run_time[0]),
            uid=int(job.uid),
            jobid=int(job.jobid),
            metadata=_parse_metadata(_decode_text(job.metadata)),
            mounts=self._mounts(),
        )

    def _mounts(self) -> list[tuple[str, str]]:
        table = self._ffi.new("struct darshan_mnt_info **")
        count = self._ffi.new("int *")
        if self._libdutil.darshan_log_get_mounts(self._handle, table, count) < 0 or count[0] == 0:
            return []
        mounts = []
        for index in range(count[0]):
            mount = table[0][index]
            mounts.append((_decode_text(mount.mnt_path), _decode_text(mount.mnt_type)))
        self._libdutil.darshan_free(table[0])
        return sorted(mounts, key=lambda mount: -len(mount[0]))

    def names(self) -> dict[int, str]:
        """Return record id to path."""
        table = self._ffi.new("struct darshan_name_record **")
        count = self._ffi.new("int *")
        self._libdutil.darshan_log_get_name_records(self._handle, table, count)
        names = {}
        for index in range(count[0]):
            record = table[0][index]
            names[int(record.id)] = _decode_text(record.name)
            self._libdutil.darshan_free(record.name)
        if count[0]:
            self._libdutil.darshan_free(table[0])
        return names

    def partial_modules(self) -> list[str]:
        """Return the modules for which Darshan ran out of memory during the run."""
        table = self._ffi.new("struct darshan_mod_info **")
        count = self._ffi.new("int *")
        self._libdutil.darshan_log_get_modules(self._handle, table, count)
        partial = []
        for index in range(count[0]):
            module = table[0][index]
            if module.name != self._ffi.NULL and module.partial_flag:
                partial.append(_decode_text(module.name))
        self._libdutil.darshan_free(table[0])
        return partial

    def _each_record(self, module: str) -> Iterator[Any]:
        """Yield a pointer to each record of a module, valid until the next one is requested."""
        module_index = load_library().mod_name_to_idx(module)
        while True:
            buffer = self._ffi.new("void **")
            outcome = self._libdutil.darshan_log_get_record(self._handle, module_index, buffer)
            if outcome < 0:
                raise InputError("a record cannot be read")
            if outcome == 0:
                return
            try:
                yield buffer
            finally:
                self._libdutil.darshan_free(buffer[0])

    def records(self, module: str, ranks: int) -> ModuleRecords:
        """Return all records of one of the GENERIC_MODULES; `ranks` is that of the job.

        A time that is none (negative or denormal) is -1, as what Darshan could not count.

        Raises:
            InputError: a record is unreadable, or belongs to a rank outside the job.
        """
        record_type = self._record_type(module)
        raw = bytearray()
        for buffer in self._each_record(module):
            raw += self._ffi.buffer(buffer[0], record_type.itemsize)
        # The records are corrected in place, as Darshan's own totals are computed from the bytes, too.
        records = np.frombuffer(raw, dtype=record_type)
        if module == "POSIX":
            self._restore_last_posix_floats(records)
        is_time = np.array([_is_time(name) for name in load_library().fcounter_names(module)])
        is_invalid = _is_invalid_time(records["floats"]) & is_time
        records["floats"][is_invalid] = -1.0
        if len(records) and not (records["rank"].min() >= -1 and records["rank"].max() < ranks):
            raise InputError("a record belongs to a rank that the job does not have")
        return ModuleRecords(
            module=module,
            ids=records["id"],
            ranks=records["rank"],
            integers=records["integers"],
            floats=records["floats"],
            raw=bytes(raw),
            has_invalid_times=bool(is_invalid.any()),
        )

    def _restore_last_posix_floats(self, records: NDArray[np.void]) -> None:
        """Correct the counters that the library does not convert from older versions of the module.

        Raises:
            InputError: the region does not have these records.
        """
        header = read_header(self._path)
        region = header.modules.get("POSIX")
        if region is None or region.version not in _OLD_POSIX_RECORD_BYTES:
            return
        last_floats = _read_last_posix_floats(self._path, header, region)
        if len(last_floats) != len(records):
            raise InputError(f"the module has {len(last_floats)} records, the Darshan library reads {len(records)}")
        records["floats"][:, -_LAST_POSIX_FLOATS:] = last_floats

    def _record_type(self, module: str) -> np.dtype[np.void]:
        """The structure of a module's record in C as a type of NumPy; what iowatch does not use is padding."""
        library = load_library()
        structure = _structure_name(module)
        field_offsets = {name: field.offset for name, field in self._ffi.typeof(structure).fields}
        integers = len(library.counter_names(module))
        floats = len(library.fcounter_names(module))
        return np.dtype(
            {
                "names": ["id", "rank", "integers", "floats"],
                "formats": ["<u8", "<i8", ("<i8", (integers,)), ("<f8", (floats,))],
                "offsets": [0, 8, field_offsets["counters"], field_offsets["fcounters"]],
                "itemsize": self._ffi.sizeof(structure),
            }
        )

    def heatmap(self, names: dict[int, str]) -> Iterator[HeatmapRecord]:
        """Yield the heatmap records; `layer` is `POSIX`, `MPIIO` or `STDIO`."""
        for buffer in self._each_record("HEATMAP"):
            record = self._ffi.cast("struct darshan_heatmap_record *", buffer[0])
            layer = names.get(int(record.base_rec.id), "").removeprefix("heatmap:") or "unknown"
            bins = int(record.nbins)
            moved_bytes = {
                "write": self._heatmap_bins(record.write_bins, bins),
                "read": self._heatmap_bins(record.read_bins, bins),
            }
            yield HeatmapRecord(layer, int(record.base_rec.rank), float(record.bin_width_seconds), moved_bytes)

    def _heatmap_bins(self, pointer: Any, bins: int) -> NDArray[np.int64]:
        """A copy of the bins: the library frees the record."""
        if bins <= 0:
            return np.zeros(0, dtype="<i8")
        return np.frombuffer(bytes(self._ffi.buffer(pointer, 8 * bins)), dtype="<i8")

    def stripes(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield record id and layout of each file on Lustre: components with Darshan's counters, pool and OSTs."""
        counter_names = load_library().counter_names("LUSTRE_COMP")
        for buffer in self._each_record("LUSTRE"):
            record = self._ffi.cast("struct darshan_lustre_record *", buffer[0])
            stripes = int(record.num_stripes)
            components: list[dict[str, Any]] = []
            # The OSTs of all components follow each other in one list.
            first_ost = 0
            for component_index in range(record.num_comps):
                component = record.comps[component_index]
                counters = dict(zip(counter_names, map(int, component.counters), strict=True))
                # A damaged record may count more stripes than the list has.
                width = max(0, min(counters["LUSTRE_COMP_STRIPE_COUNT"], stripes - first_ost))
                osts = [int(record.ost_ids[first_ost + stripe]) for stripe in range(width)]
                first_ost += width
                components.append({**counters, "pool": _decode_text(component.pool_name), "osts": osts})
            yield int(record.base_rec.id), {"stripes": stripes, "components": components}


def _parse_metadata(text: str) -> dict[str, str]:
    """The entries of a job, one `key=value` per line."""
    entries = {}
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key.strip():
            entries[key.strip()] = value.strip()
    return entries


def _structure_name(module: str) -> str:
    """The name of a module's record in C."""
    declaration: str = load_library()._structdefs[module]
    return declaration.replace("**", "").strip()


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
    library = load_library()
    ffi, libdutil = library.ffi, library.libdutil
    handle = ffi.new("darshan_accumulator *")
    if libdutil.darshan_accumulator_create(library.mod_name_to_idx(records.module), ranks, handle) != 0:
        return None
    derived = ffi.new("struct darshan_derived_metrics *")
    total = ffi.new(f"{_structure_name(records.module)} *")
    try:
        raw = ffi.from_buffer(bytearray(records.raw))
        if libdutil.darshan_accumulator_inject(handle[0], raw, len(records.ids)):
            return None
        if libdutil.darshan_accumulator_emit(handle[0], derived, total):
            return None
    finally:
        libdutil.darshan_accumulator_destroy(handle[0])
    integers, floats = records.names
    counters = dict(zip(integers, total[0].counters, strict=True))
    counters |= zip(floats, total[0].fcounters, strict=True)
    files = {}
    for index, category in enumerate(_FILE_CATEGORIES):
        files[category] = int(derived.category_counters[index].count)
    return counters, {
        "bandwidth_mib_per_s": float(derived.agg_perf_by_slowest) or None,
        "time_by_slowest_s": float(derived.agg_time_by_slowest),
        "files": files,
    }


@contextmanager
def open_log(path: Path) -> Iterator[DarshanLog]:
    """Open a log with the C library.

    Raises:
        InputError: the library rejects it.
    """
    library = load_library()
    handle = library.libdutil.darshan_log_open(str(path).encode("utf-8", "surrogateescape"))
    if handle == library.ffi.NULL:
        raise InputError("the Darshan library cannot open it", reason="refused")
    try:
        yield DarshanLog(path, handle)
    finally:
        library.libdutil.darshan_log_close(handle)
