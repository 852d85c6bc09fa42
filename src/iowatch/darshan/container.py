"""The container format of a Darshan log: a plain header and compressed regions.

Everything that is in a log is read through PyDarshan; this module only answers "is the file whole?" before the
C library touches it. The library itself reads a region up to the bytes it needs and never looks at a checksum,
so that a damaged log can pass as a good one.

Source: `darshan-log-format.h` and `darshan-logutils.c` of darshan-util 3.5.0.
"""

from __future__ import annotations

import bz2
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from iowatch.errors import InputError

MAGIC = 6567223
VERSIONS = ("3.00", "3.10", "3.20", "3.21", "3.41")
COMPRESSIONS = ("zlib", "bzip2", "none")

# The library's module ids. Version 3.20 inserted H5D and 3.41 PNETCDF_VAR, which moved all that follow.
MODULES = (
    "NULL", "POSIX", "MPI-IO", "H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR", "BG/Q", "LUSTRE", "STDIO",
    "DXT_POSIX", "DXT_MPIIO", "MDHIM", "APXC", "APMPI", "HEATMAP", "DFS", "DAOS",
)  # fmt: skip

_CHUNK = 1 << 16
# The largest region that is unpacked to be checked; a real one is some hundred MiB (DXT of a long run).
_REGION_LIMIT_BYTES = 8 << 30


@dataclass(frozen=True, slots=True)
class Region:
    """Where one part of the log lies: `offset_bytes` from the start of the file, `length_bytes` compressed."""

    offset_bytes: int
    length_bytes: int


@dataclass(frozen=True)
class Header:
    """What the header of a log says.

    Attributes:
        version: of the log format, `3.41`.
        byte_order: `<` or `>`, as `struct` has it.
        compression: one of COMPRESSIONS.
        size_bytes: of the header; the job region follows it.
        job, names: the regions of the job's facts and of the table of file names (None: the log has no names).
        modules: name to region; a module that this table does not know is `module 23`.
        module_versions: name to the version of that module's records.
        partial: modules for which Darshan ran out of memory during the run.
    """

    version: str
    byte_order: str
    compression: str
    size_bytes: int
    job: Region
    names: Region | None
    modules: dict[str, Region] = field(default_factory=dict)
    module_versions: dict[str, int] = field(default_factory=dict)
    partial: tuple[str, ...] = ()


def _refuse(path: Path, what: str) -> InputError:
    return InputError(f"{path}: {what}", hint="Expected a log that Darshan 3.0 or later wrote (*.darshan).")


def _module_name(index: int, version: str) -> str:
    if version < "3.20" and index >= MODULES.index("H5D"):
        index += 1
    if version < "3.41" and index >= MODULES.index("PNETCDF_VAR"):
        index += 1
    return MODULES[index] if index < len(MODULES) else f"module {index}"


def read_header(path: Path) -> Header:
    """The header of a log.

    Raises:
        InputError: not a file, empty, cut off within the header, not a Darshan log, or of an unknown version.
    """
    if not path.is_file():
        raise _refuse(path, "no such file" if not path.exists() else "not a regular file")
    size = path.stat().st_size
    if size == 0:
        raise _refuse(path, "the file is empty (0 bytes)")
    try:
        with path.open("rb") as file:
            start = file.read(1328)
    except OSError as error:
        raise _refuse(path, error.strerror or str(error)) from error
    version = start[:8].split(b"\0")[0].decode("ascii", "replace")
    if version not in VERSIONS:
        known = "one of " + ", ".join(VERSIONS)
        raise _refuse(path, f"not a Darshan log: format version is {version[:8]!r}, expected {known}")
    return _parse_header(path, start, version, size)


def _parse_header(path: Path, start: bytes, version: str, file_size: int) -> Header:
    wide = version >= "3.41"
    slots, header_size = (64, 1328) if wide else (16, 360)
    if len(start) < header_size:
        raise _refuse(path, f"cut off in the header: {len(start)} of {header_size} bytes")
    order = next((o for o in "<>" if struct.unpack_from(f"{o}q", start, 8)[0] == MAGIC), None)
    if order is None:
        raise _refuse(path, "not a Darshan log: wrong magic number in the header")
    compression = start[16]
    if compression >= len(COMPRESSIONS):
        raise _refuse(path, f"unknown compression type {compression} in the header")
    flags = (
        struct.unpack_from(f"{order}Q", start, 24)[0] if wide else struct.unpack_from(f"{order}I", start, 20)[0]
    )
    table = 32 if wide else 24
    numbers = struct.unpack_from(f"{order}{2 + 2 * slots}Q", start, table)
    versions = struct.unpack_from(f"{order}{slots}I", start, table + 16 * (1 + slots))
    regions = [Region(o, n) for o, n in zip(numbers[0::2], numbers[1::2], strict=True)]
    present = {_module_name(i, version): i for i, r in enumerate(regions[1:]) if r.length_bytes}
    followers = [r.offset_bytes for r in regions if r.length_bytes]
    return Header(
        version=version,
        byte_order=order,
        compression=COMPRESSIONS[compression],
        size_bytes=header_size,
        job=Region(header_size, min(followers, default=file_size) - header_size),
        names=regions[0] if regions[0].length_bytes else None,
        modules={name: regions[1 + i] for name, i in present.items()},
        module_versions={name: versions[i] for name, i in present.items()},
        partial=tuple(_module_name(i, version) for i in range(slots) if flags >> i & 1),
    )


class _Stream(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _new_stream(compression: str) -> _Stream:
    return bz2.BZ2Decompressor() if compression == "bzip2" else zlib.decompressobj()


def _pump(stream: _Stream, data: bytes) -> Iterator[bytes]:
    """Unpack at most `_CHUNK` bytes at a time, so that a bomb in a log cannot fill the memory."""
    yield stream.decompress(data, _CHUNK)
    while not stream.eof:
        # zlib hands back what it did not take; bz2 keeps it itself and says so.
        rest = getattr(stream, "unconsumed_tail", b"")
        if not rest and getattr(stream, "needs_input", True):
            return
        yield stream.decompress(rest, _CHUNK)


def unpack(file: BinaryIO, region: Region, compression: str) -> Iterator[bytes]:
    """The unpacked bytes of a region, piece by piece, all checksums verified.

    A region is one compressed stream or several in a row (each rank of a run writes its own).

    Raises:
        InputError: cut off, or damaged; the message is the reason alone, without the file's name.
    """
    if region.length_bytes < 0 or region.offset_bytes > file.seek(0, os.SEEK_END):
        raise InputError("lies outside the file")
    file.seek(region.offset_bytes)
    left, total = region.length_bytes, 0
    stream, idle = _new_stream(compression), True
    while left:
        data = file.read(min(_CHUNK, left))
        if not data:
            raise InputError(f"cut off, {left} of {region.length_bytes} bytes are missing")
        left -= len(data)
        if compression == "none":
            yield data
            continue
        while data:
            try:
                for piece in _pump(stream, data):
                    total += len(piece)
                    if total > _REGION_LIMIT_BYTES:
                        raise InputError(f"unpacks to more than {_REGION_LIMIT_BYTES >> 30} GiB")
                    yield piece
            except (zlib.error, OSError, ValueError) as error:
                raise InputError(f"damaged ({error})") from error
            data, idle = (stream.unused_data, True) if stream.eof else (b"", False)
            if stream.eof:
                stream = _new_stream(compression)
    if not idle:
        raise InputError("cut off within compressed data")


def damage(path: Path, header: Header) -> dict[str, str]:
    """Region name (`job`, `names`, or a module) to what is wrong with it; empty when the log is whole."""
    regions: dict[str, Region] = {"job": header.job, **header.modules}
    if header.names is not None:
        regions["names"] = header.names
    found: dict[str, str] = {}
    with path.open("rb") as file:
        for name, region in regions.items():
            try:
                for _ in unpack(file, region, header.compression):
                    pass
            except InputError as error:
                found[name] = error.message
    return found
