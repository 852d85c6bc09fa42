"""I/O kernels of two applications through PnetCDF, as their authors wrote them: S3D-IO and FLASH-IO.

S3D-IO (https://github.com/wkliao/S3D-IO, 1.2.1) writes five checkpoints of a combustion code; with `restart` it first
reads the first one of an earlier start. FLASH-IO (benchmarks/FLASH-IO of PnetCDF 1.14 or later) writes a checkpoint and
two plot files; its sizes are those that it was compiled with. Both print seconds and rates with two decimals, and no
version. The workloads `s3d-io` and `flash-io` of benchio do the same (docs/workloads.md).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from iowatch.benchmarks import benchmark, parsing
from iowatch.benchmarks.h5bench_output import PrintedAmount, product_range
from iowatch.core import KIB, MIB, InputError, Scalar

_Values = Mapping[str, Any]
_Range = tuple[int, int]


class _Rate(NamedTuple):
    """A printed bandwidth, and what confirms it: seconds and the least and largest bytes."""

    operation: str
    metric: str
    mib_per_s: float
    seconds: float
    bytes: _Range


# More than the header of a file, which both programs count; it is read in one piece of 256 KiB (PnetCDF's
# `nc_header_read_chunk_size`).
_HEADER_BYTES, _HEADER_READ_BYTES = 64 * KIB, 320 * KIB
_HALF = 0.005
_DOUBLE, _FLOAT, _INTEGER = 8, 4, 4
# Of FLASH-IO: files of a run, and IONMAX + 11 variables.
_FLASH_FILES, _FLASH_VARIABLES = 3, 24
_SIGNATURES = (
    parsing.FailureSignature(r"\bnfmpi_[a-z]", "PnetCDF reports an error"),
    parsing.FailureSignature(r"are not exactly divisible by|is not equal to npes", "the grid does not fit the ranks"),
    parsing.FailureSignature(r"too large for *-byte integers", "too many points per rank"),
    parsing.FailureSignature(r"restart file does not exist", "there is no checkpoint to read"),
)


def _right(width: int, number: str) -> str:
    """A number at the end of a column of Fortran; a lost or an added character makes it another line."""
    return rf"(?=[ \d.]{{{width - 1}}}\d(?![\d.])) *({number})"


_WHOLE, _COUNT, _DECIMAL = r"[1-9]\d*", r"\d+", r"\d+\.\d\d"


def _one(text: str, convert: Any = str) -> tuple[re.Pattern[str], Any]:
    # A launcher's label may take the first blank of all lines.
    return re.compile(" ?" + text), convert


def _read(table: parsing.FieldTable, builder: parsing.OutputBuilder, lines: parsing.CleanLines) -> _Values | None:
    """Return the only value of each field; None if one is missing or there more than once."""
    found: dict[str, list[Any]] = {name: [] for name in table}
    for line in lines:
        parsing.read_field(table, line, found)
        lines.decided = len(found["title"]) > 1
    builder.recognised = bool(found["title"])
    if len(found["title"]) > 1:
        builder.add_failure(f"output of more than one run of {builder.tool}")
    elif wrong := [name for name, values in found.items() if len(values) != 1]:
        builder.add_truncation(f"missing or damaged: {', '.join(wrong)}")
    else:
        return {name: values[0] for name, values in found.items()}
    return None


def _add(
    builder: parsing.OutputBuilder, context: parsing.RunContext, one: _Rate, case: Mapping[str, Scalar | None]
) -> None:
    """Add a bandwidth if its seconds and bytes confirm it."""
    rate = PrintedAmount(one.mib_per_s * MIB, _HALF * MIB)
    low, high = product_range(rate, PrintedAmount(one.seconds, _HALF), 0)
    least, largest = one.bytes
    if high < least or low > largest:
        builder.add_truncation(f"{one.operation} {one.metric}, seconds and sizes contradict each other")
    elif high - low > parsing.CONFIRMED * least and not context.fresh:
        builder.add_truncation(f"the {one.operation} {one.metric} is not confirmed: its time has too few digits")
    else:
        builder.add_samples(one.operation, one.metric, [one.mib_per_s], case)


def _differs(printed: float, unit: int, amount: _Range) -> bool:
    """Whether printed bytes cannot be the expected ones."""
    return not amount[0] / unit - _HALF <= printed <= amount[1] / unit + _HALF


# --- S3D-IO ----------------------------------------------------------------------------------------------------------

# Of yspecies (11), u (3), pressure and temp at each point.
_S3D_VALUES = 16
# `i_time_end` of its param_m.f90, and arrays per file.
_CHECKPOINTS, _ARRAYS = 5, 4
_S3D_FIELDS: parsing.FieldTable = {
    "title": _one(r"\+\+\+\+ I/O is done through (PnetCDF) \+\+\+\+"),
    "method": _one(r"I/O method          : (blocking|nonblocking) APIs"),
    "restart": _one(r"Run with restart    : (True|False)"),
    "ranks": _one(rf"No\. MPI processes   : {_right(7, _WHOLE)}", int),
    "points": _one(
        rf"Global array size   : {_right(7, _WHOLE)} x{_right(7, _WHOLE)} x{_right(7, _WHOLE)}",
        lambda *numbers: tuple(map(int, numbers)),
    ),
    "path": _one(r"output file path    : (\S.*)"),
    **{
        name: _one(rf"{text}  {_right(10, _DECIMAL)} {unit}", float)
        for name, text, unit in (
            ("read seconds", "Time for read       :", "sec"),
            ("write seconds", "Time for write      :", "sec"),
            ("read amount", "total read  amount  :", "GiB"),
            ("write amount", "total write amount  :", "GiB"),
            ("read rate", "read  bandwidth     :", "MiB/s"),
            ("write rate", "write bandwidth     :", "MiB/s"),
            ("seconds", "total I/O   time    :", "sec"),
            ("rate", "I/O   bandwidth     :", "MiB/s"),
        )
    },
    **{
        f"{name} calls": _one(rf"no\. {name:<5} calls     :  {_right(7, _COUNT)}    per process", int)
        for name in ("read", "write")
    },
}


def _s3d_rates(value: _Values) -> Iterator[_Rate]:
    """Without a restart, the rate of all includes creating and closing files; with one, it is no rate."""
    once = math.prod(value["points"]) * _S3D_VALUES * _DOUBLE
    for operation in ("read", "write"):
        files = value[f"{operation} calls"] // _ARRAYS
        header = _HEADER_READ_BYTES if operation == "read" else _HEADER_BYTES
        amount = (files * once, files * (once + header))
        if files:
            yield _Rate(operation, "raw_bandwidth", value[f"{operation} rate"], value[f"{operation} seconds"], amount)
        if operation == "write" and value["restart"] == "False":
            yield _Rate(operation, "bandwidth", value["rate"], value["seconds"], amount)


def parse_s3d_io(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse an output of S3D-IO."""
    value = _read(_S3D_FIELDS, builder, lines)
    if value is None:
        return
    builder.facts["path"] = value["path"]
    if others := context.rank_mismatch_reason(value["ranks"], builder.tool):
        builder.add_failure(others)
        return
    is_restart, calls = value["restart"] == "True", (value["read calls"], value["write calls"])
    if calls[0] != is_restart * _ARRAYS or calls[1] % _ARRAYS or not calls[1] or not lines.ended:
        builder.add_truncation("the numbers of calls, or the end of the output, are damaged")
        return
    rates = [*_s3d_rates(value)]
    if any(_differs(value[f"{one.operation} amount"], KIB**3, one.bytes) for one in rates):
        builder.add_truncation("sizes of arrays, numbers of calls and amounts contradict each other")
        return
    case: dict[str, Scalar | None] = {
        "api": "PNETCDF", "file": "shared", "collective": True, "ranks": value["ranks"],
        "global_size": "x".join(map(str, value["points"])), "steps": calls[1] // _ARRAYS,
        "nonblocking": value["method"] == "nonblocking" or None, "workflow": "restart" if is_restart else None,
    }  # fmt: skip
    for one in rates:
        _add(builder, context, one, {**case, "total_bytes": one.bytes[0]})


def _sides(text: str, name: str) -> tuple[int, int, int]:
    match = re.fullmatch(r"([1-9]\d{0,6})x([1-9]\d{0,6})x([1-9]\d{0,6})", text)
    if match is None:
        raise InputError(f"{name} is {text}, expected three whole numbers, for example 36x36x36")
    return int(match[1]), int(match[2]), int(match[3])


def _points(options: benchmark.BenchmarkOptions) -> tuple[int, int, int]:
    return _sides(str(options.get("points", "36x36x36")), "points")


def _grid(options: benchmark.BenchmarkOptions) -> tuple[int, int, int]:
    """Return the grid of ranks: as asked for, or the one that is most nearly a cube."""
    ranks = benchmark.integer_option(options, "ranks", 1)
    if "grid" in options:
        grid = _sides(str(options["grid"]), "grid")
        if math.prod(grid) != ranks:
            raise InputError(f"grid {options['grid']} has {math.prod(grid)} ranks, the case {ranks}")
        return grid
    divisors = [n for n in range(1, ranks + 1) if ranks % n == 0]
    grids = [(ranks // (b * c), b, c) for c in divisors for b in divisors if c <= b <= ranks // (b * c)]
    return min((grid for grid in grids if math.prod(grid) == ranks), key=sum)


def _global_size(options: benchmark.BenchmarkOptions) -> tuple[int, ...]:
    return tuple(points * ranks for points, ranks in zip(_points(options), _grid(options), strict=True))


def _s3d_arguments(options: benchmark.BenchmarkOptions, place: str) -> list[str]:
    method = str(int(bool(options.get("nonblocking"))))
    return [*map(str, (*_global_size(options), *_grid(options))), method, "T" if options.get("restart") else "F", place]


def _s3d_bytes(options: benchmark.BenchmarkOptions) -> int:
    return _CHECKPOINTS * (math.prod(_global_size(options)) * _S3D_VALUES * _DOUBLE + _HEADER_BYTES)


def _s3d_volume(options: benchmark.BenchmarkOptions) -> int:
    """Return the bytes of all starts; a restart has one more, and reads a file in each."""
    once, starts, is_restart = _s3d_bytes(options), _repeat(options), bool(options.get("restart"))
    return once * (starts + is_restart) + is_restart * starts * once // _CHECKPOINTS


def _s3d_shows(options: benchmark.BenchmarkOptions) -> dict[str, Scalar]:
    return {
        "ranks": benchmark.integer_option(options, "ranks", 1),
        "global_size": "x".join(map(str, _global_size(options))),
        "steps": _CHECKPOINTS,
        **({"nonblocking": True} if options.get("nonblocking") else {}),
        **({"workflow": "restart", "cache": "drop"} if options.get("restart") else {}),
    }


def _s3d_case(options: benchmark.BenchmarkOptions) -> dict[str, Scalar]:
    cache: dict[str, Scalar] = {"cache": "drop"} if options.get("restart") else {}
    return {"local_size": "x".join(map(str, _points(options))), **cache}


def _s3d_prepare(options: benchmark.BenchmarkOptions, place: str) -> list[list[str]]:
    return [["s3d_io.x", *_s3d_arguments({**options, "restart": False}, place)]] if options.get("restart") else []


def _repeat(options: benchmark.BenchmarkOptions) -> int:
    return benchmark.integer_option(options, "repeat", 3)


_RUN_OPTIONS = {
    "nonblocking": "PnetCDF's nonblocking calls, completed once per file",
    "repeat": "number of starts; one sample per start",
    "ranks": "MPI processes",
    "nodes": "nodes",
}

S3D_IO = benchmark.Benchmark(
    name="s3d_io",
    title="S3D-IO",
    check="S3dIoCheck",
    parse=parse_s3d_io,
    signatures=_SIGNATURES,
    banner=r"\+\+\+\+ I/O is done through PnetCDF",
    package="s3d-io",
    is_packaged=False,
    probe=benchmark.ProgramProbe("s3d_io.x"),
    options={
        "points": "grid points of one rank in x, y and z [default: 36x36x36]",
        "grid": "ranks in x, y and z [default: most nearly a cube]",
        "restart": "each start first reads the first checkpoint of the start before",
        **_RUN_OPTIONS,
    },
    program=lambda _options: "s3d_io.x",
    arguments=_s3d_arguments,
    requires=lambda _options: ("mpi", "pnetcdf", "s3d_io"),
    expects=lambda options: (
        ("write", "raw_bandwidth"), ("read", "raw_bandwidth") if options.get("restart") else ("write", "bandwidth"),
    ),
    samples=_repeat,
    runs=_repeat,
    shows=_s3d_shows,
    case=_s3d_case,
    file_bytes=_s3d_bytes,
    volume_bytes=_s3d_volume,
    prepare=_s3d_prepare,
    before=lambda o, place: benchmark.drop_cache_command(f"{place}/pressure_wave_test") if o.get("restart") else "",
    inodes=lambda _options: _CHECKPOINTS,
    layers=lambda _case: benchmark.API_LAYERS["PNETCDF"],
)  # fmt: skip


# --- FLASH-IO --------------------------------------------------------------------------------------------------------

_FLASH_FIELDS: parsing.FieldTable = {
    "title": _one(r" ?Using PnetCDF (blocking|nonblocking) APIs"),
    "access": _one(r" ?Using MPI (collective|independent) I/O"),
    "blocks": _one(rf"number of blocks      : {_right(13, _WHOLE)}", int),
    "variables": _one(rf"number of variables   : {_right(13, _WHOLE)}", int),
    "path": _one(r"File base name        : (\S.*)"),
    "amount": _one(rf"Total I/O amount      : {_right(16, _DECIMAL)}  MiB", float),
    # Ranks, cells of a block in x, y and z, seconds, MiB/s.
    "row": (
        re.compile(
            rf" {{0,4}}([1-9]\d{{0,4}})   {' x '.join([_right(3, _WHOLE)] * 3)}"
            rf"   {_right(7, _DECIMAL)}  {_right(10, _DECIMAL)}"
        ),
        lambda *row: (*map(int, row[:4]), *map(float, row[4:])),
    ),
}


def _flash_bytes(blocks: int, variables: int, cells: tuple[int, ...], ranks: int) -> int:
    """Return the bytes of data in the three files (checkpoint_ncmpi_parallel.F90, plotfile_ncmpi_parallel.F90).

    A checkpoint has doubles, a plot file four variables as floats, at centres or at corners of cells. With them come
    per block 17 integers (level, kind, neighbours) and 12 numbers (place). Ranks have 0, 1 or 2 more blocks.
    """
    total = sum(blocks + rank % 3 for rank in range(ranks))
    centres, corners = math.prod(cells), math.prod(side + 1 for side in cells)
    checkpoint = variables * centres * _DOUBLE + 12 * _DOUBLE
    plots = 4 * (centres + corners) * _FLOAT + 2 * 12 * _FLOAT
    return total * (checkpoint + plots + 3 * 17 * _INTEGER)


def parse_flash_io(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse an output of FLASH-IO."""
    value = _read(_FLASH_FIELDS, builder, lines)
    if value is None:
        return
    builder.facts["path"] = value["path"]
    ranks, *cells, seconds, rate = value["row"]
    if others := context.rank_mismatch_reason(ranks, builder.tool):
        builder.add_failure(others)
        return
    data = _flash_bytes(value["blocks"], value["variables"], tuple(cells), ranks)
    amount = (data, data + _FLASH_FILES * _HEADER_BYTES)
    if _differs(value["amount"], MIB, amount):
        builder.add_truncation("numbers of ranks, blocks and cells contradict the amount")
        return
    case: dict[str, Scalar | None] = {
        "api": "PNETCDF", "file": "shared", "collective": value["access"] == "collective", "ranks": ranks,
        "local_size": "x".join(map(str, cells)), "blocks": value["blocks"], "total_bytes": data,
        "nonblocking": value["title"] == "nonblocking" or None,
    }  # fmt: skip
    _add(builder, context, _Rate("write", "bandwidth", rate, seconds, amount), case)


def _flash_shows(options: benchmark.BenchmarkOptions) -> dict[str, Scalar]:
    return {
        "ranks": benchmark.integer_option(options, "ranks", 1),
        "blocks": benchmark.integer_option(options, "blocks", 80),
        "local_size": str(options.get("cells", "8x8x8")),
        "collective": not options.get("independent"),
        **({"nonblocking": True} if options.get("nonblocking") else {}),
    }


def _flash_file_bytes(options: benchmark.BenchmarkOptions) -> int:
    cells, ranks = _sides(str(options.get("cells", "8x8x8")), "cells"), benchmark.integer_option(options, "ranks", 1)
    blocks = benchmark.integer_option(options, "blocks", 80)
    return _flash_bytes(blocks, _FLASH_VARIABLES, cells, ranks) + _FLASH_FILES * _HEADER_BYTES


def _flash_arguments(options: benchmark.BenchmarkOptions, place: str) -> list[str]:
    chosen = [*([] if options.get("nonblocking") else ["-b"]), *(["-i"] if options.get("independent") else [])]
    return [*chosen, "-f", f"{place}/flash_"]


FLASH_IO = benchmark.Benchmark(
    name="flash_io",
    title="FLASH-IO",
    check="FlashIoCheck",
    parse=parse_flash_io,
    signatures=_SIGNATURES,
    banner=r"^ {1,2}Using PnetCDF (?:non)?blocking APIs",
    package="flash-io",
    is_packaged=False,
    probe=benchmark.ProgramProbe("flash_benchmark_io"),
    options={
        "blocks": "blocks of a rank, four fifths of MAXBLOCKS of the program [default: 80]",
        "cells": "cells of a block of the program [default: 8x8x8]",
        "independent": "independent transfers",
        **_RUN_OPTIONS,
    },
    program=lambda _options: "flash_benchmark_io",
    arguments=_flash_arguments,
    requires=lambda _options: ("mpi", "pnetcdf", "flash_io"),
    expects=lambda _options: (("write", "bandwidth"),),
    samples=_repeat,
    runs=_repeat,
    shows=_flash_shows,
    file_bytes=_flash_file_bytes,
    volume_bytes=lambda options: _flash_file_bytes(options) * _repeat(options),
    inodes=lambda _options: _FLASH_FILES,
    layers=lambda _case: benchmark.API_LAYERS["PNETCDF"],
)
