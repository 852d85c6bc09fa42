"""Generated Darshan logs with known contents (tests need no ../shared)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from iowatch.darshan import DarshanReader
from iowatch.darshan.log import MAGIC, MODULES

_FILLER = 1 << 40


@dataclass
class LogSpec:
    """Contents of a generated log. Records are (path, rank, counters by name); the rest of the counters are 0.

    `dxt` and `dxt_mpiio` have (path, rank, writes, reads); an access is (start, end) for one of 1,024 bytes at 0, or
    (offset, length, start, end). `lustre` has (path, components), a component is (stripe size in bytes, stripe count),
    on the OSTs from 0 on, or (stripe size in bytes, stripe count, OSTs).
    `h5d` and `pnetcdf` have records of data sets, variables of files with these paths.
    `heatmap` has (layer, rank, seconds per bin, bytes written and bytes read in each bin).
    `others` are names of modules whose contents iowatch does not read.
    `posix_version` is that of the POSIX records; `byte_order` (as in `struct`) that of job, names and POSIX records.
    """

    exe: str = "/apps/bench -w"
    ranks: int = 4
    uid: int = 1000
    start_s: int = 1_700_000_000
    run_time_s: int = 10
    metadata: Mapping[str, str] = field(default_factory=lambda: {"lib_ver": "3.5.0"})
    mounts: Sequence[tuple[str, str]] = (("ext4", "/"), ("lustre", "/lus"))
    posix: Sequence[tuple[str, int, Mapping[str, float]]] = ()
    mpiio: Sequence[tuple[str, int, Mapping[str, float]]] = ()
    dxt: Sequence[tuple[str, int, Sequence[tuple[float, ...]], Sequence[tuple[float, ...]]]] = ()
    dxt_mpiio: Sequence[tuple[str, int, Sequence[tuple[float, ...]], Sequence[tuple[float, ...]]]] = ()
    lustre: Sequence[tuple[str, Sequence[tuple[Any, ...]]]] = ()
    heatmap: Sequence[tuple[str, int, float, Sequence[int], Sequence[int]]] = ()
    h5d: Sequence[tuple[str, int, Mapping[str, float]]] = ()
    pnetcdf: Sequence[tuple[str, int, Mapping[str, float]]] = ()
    others: Sequence[str] = ()
    partial: Sequence[str] = ()
    version: str = "3.41"
    posix_version: int = 4
    byte_order: str = "<"


def _record_id(path: str) -> int:
    return zlib.crc32(path.encode("utf-8", "surrogateescape")) + _FILLER


# What later versions of the POSIX module added; version 1 has counters of C streams behind OPENS to MMAPS.
_ADDED_IN_4 = ("FILENOS", "DUPS", "RENAME_SOURCES", "RENAME_TARGETS", "RENAMED_FROM")
_ADDED_IN_3 = ("F_CLOSE_START_TIMESTAMP", "F_OPEN_END_TIMESTAMP")
_STREAM_COUNTERS_OF_1 = 4


def _posix_records(spec: LogSpec) -> bytes:
    """Records of `darshan-posix-log-format.h` in Darshan 3.0 (1), 3.1 (2, 3) and later (4)."""
    from darshan.backend.cffi_backend import counter_names, fcounter_names

    absent = set()
    if spec.posix_version < 4:
        absent |= {f"POSIX_{name}" for name in _ADDED_IN_4}
    if spec.posix_version < 3:
        absent |= {f"POSIX_{name}" for name in _ADDED_IN_3}
    integers = [name for name in counter_names("POSIX") if name not in absent]
    floats = [name for name in fcounter_names("POSIX") if name not in absent]
    packed = b""
    for path, rank, counters in spec.posix:
        values = [int(counters.get(name, 0)) for name in integers]
        if spec.posix_version == 1:
            position = integers.index("POSIX_MMAPS") + 1
            values[position:position] = [0] * _STREAM_COUNTERS_OF_1
        packed += struct.pack(f"{spec.byte_order}Qq{len(values)}q", _record_id(path), rank, *values)
        packed += struct.pack(f"{spec.byte_order}{len(floats)}d", *(counters.get(name, 0.0) for name in floats))
    return packed


def _records(module: str, rows: Sequence[tuple[str, int, Mapping[str, float]]]) -> bytes:
    from darshan.backend.cffi_backend import counter_names, fcounter_names

    integers, floats = counter_names(module), fcounter_names(module)
    packed = b""
    for path, rank, counters in rows:
        assert not counters.keys() - {*integers, *floats}
        packed += struct.pack("<Qq", _record_id(path), rank)
        if module in ("H5D", "PNETCDF_VAR"):
            packed += struct.pack("<Q", _record_id(path))
        packed += struct.pack(f"<{len(integers)}q", *(int(counters.get(name, 0)) for name in integers))
        packed += struct.pack(f"<{len(floats)}d", *(counters.get(name, 0.0) for name in floats))
    return packed


def _traces(rows: Sequence[tuple[str, int, Any, Any]]) -> bytes:
    packed = b""
    for path, rank, writes, reads in rows:
        packed += struct.pack("<Qqq64sqq", _record_id(path), rank, 0, b"node1", len(writes), len(reads))
        accesses = ((0, 1024, *access) if len(access) == 2 else access for access in [*writes, *reads])
        packed += b"".join(struct.pack("<qqdd", int(at), int(size), *times) for at, size, *times in accesses)
    return packed


def _layouts(rows: Sequence[tuple[str, Sequence[tuple[Any, ...]]]]) -> bytes:
    """Records of `darshan-lustre-log-format.h`: the components, then the numbers of their OSTs."""
    packed = b""
    for path, components in rows:
        osts: list[int] = []
        for _, count, *numbers in components:
            osts += numbers[0] if numbers else range(max(count, 0))
        packed += struct.pack("<Qqqq", _record_id(path), 0, len(components), len(osts))
        packed += b"".join(struct.pack("<7q16x", size, count, 0, 0, 0, -1, 0) for size, count, *_ in components)
        packed += struct.pack(f"<{len(osts)}q", *osts)
    return packed


def _heat(rows: Sequence[tuple[str, int, float, Sequence[int], Sequence[int]]]) -> bytes:
    """Records of `darshan-heatmap-log-format.h`: the structure with its two pointers, then the bins."""
    packed = b""
    for layer, rank, width, writes, reads in rows:
        packed += struct.pack("<Qqdq16x", _record_id(f"heatmap:{layer}"), rank, width, len(writes))
        packed += struct.pack(f"<{2 * len(writes)}q", *writes, *reads)
    return packed


def build(spec: LogSpec, level: int = -1) -> bytes:
    """The bytes of a log in format 3.41 or 3.00, compressed with a level of zlib."""
    wide = spec.version >= "3.41"
    end_s = spec.start_s + spec.run_time_s
    times = (spec.start_s, 0, end_s, 0) if wide else (spec.start_s, end_s)
    job = struct.pack(f"{spec.byte_order}{3 + len(times)}q", spec.uid, *times, spec.ranks, 4711)
    job += "".join(f"{k}={v}\n" for k, v in spec.metadata.items()).encode().ljust(1024, b"\0")
    job += "\n".join([spec.exe, *(f"{kind}\t{point}" for kind, point in spec.mounts)]).encode() + b"\0"
    paths = dict.fromkeys(row[0] for row in (*spec.posix, *spec.mpiio, *spec.dxt, *spec.dxt_mpiio, *spec.lustre))
    paths |= dict.fromkeys(f"heatmap:{row[0]}" for row in spec.heatmap)
    names = b"".join(_name(path, wide, spec.byte_order) for path in paths)
    contents = {
        "POSIX": (spec.posix_version, _posix_records(spec)),
        "MPI-IO": (3, _records("MPI-IO", spec.mpiio)),
        "H5D": (2, _records("H5D", spec.h5d)),
        "PNETCDF_VAR": (1, _records("PNETCDF_VAR", spec.pnetcdf)),
        "DXT_POSIX": (1, _traces(spec.dxt)),
        "DXT_MPIIO": (1, _traces(spec.dxt_mpiio)),
        "LUSTRE": (2, _layouts(spec.lustre)),
        "HEATMAP": (1, _heat(spec.heatmap)),
        **{name: (1, bytes(64)) for name in spec.others},
    }
    return _assemble(spec, wide, job.ljust(1200, b"\0"), names, contents, level)


def _name(path: str, wide: bool, order: str) -> bytes:
    text = path.encode("utf-8", "surrogateescape")
    identity = struct.pack(f"{order}Q", _record_id(path))
    return identity + (text + b"\0" if wide else struct.pack(f"{order}I", len(text)) + text)


def _assemble(
    spec: LogSpec, wide: bool, job: bytes, names: bytes, contents: Mapping[str, tuple[int, bytes]], level: int
) -> bytes:
    slots, size = (64, 1328) if wide else (16, 360)
    body = zlib.compress(job, level)
    regions, versions = [(0, 0)] * (slots + 1), [0] * slots
    for index, (version, data) in enumerate([(0, names), *contents.values()]):
        if not data:
            continue
        packed = zlib.compress(data, level)
        slot = 0 if index == 0 else 1 + MODULES.index(list(contents)[index - 1])
        regions[slot] = (size + len(body), len(packed))
        if index:
            versions[slot - 1] = version
        body += packed
    flags = sum(1 << MODULES.index(name) for name in spec.partial)
    order = spec.byte_order
    start = struct.pack(f"{order}8sqB", spec.version.encode(), MAGIC, 0)
    start += struct.pack(f"{order}7xQ" if wide else f"{order}3xI", flags)
    start += b"".join(struct.pack(f"{order}QQ", *region) for region in regions)
    start += struct.pack(f"{order}{slots}I", *versions)
    assert len(start) == size
    return start + body


@pytest.fixture
def make_log(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes a log with the given fields of `LogSpec` and returns its path."""
    count = iter(range(1000))

    def make(**fields: Any) -> Path:
        path = tmp_path / f"{next(count)}.darshan"
        path.write_bytes(build(LogSpec(**fields)))
        return path

    return make


@pytest.fixture(scope="session")
def reader() -> Iterator[DarshanReader]:
    """One worker for all tests."""
    with DarshanReader() as reader:
        yield reader


@pytest.fixture(scope="session")
def bad_ost_log() -> Path:
    """NERSC's Edison, 2017-06-20: IOR of 2,048 ranks, a file per rank, with one bad OST (example of PyDarshan)."""
    package = find_spec("darshan")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "examples" / "example_logs" / "sample-badost.darshan"
