"""I/O kernels of two applications through PnetCDF, as their authors wrote them: S3D-IO and FLASH-IO.

S3D-IO (https://github.com/wkliao/S3D-IO, 1.2.1) writes five checkpoints of a combustion code; with `restart` it first
reads the first one of an earlier start. FLASH-IO (benchmarks/FLASH-IO of PnetCDF 1.14 or later) writes a checkpoint and
two plot files; its sizes are those that it was compiled with. Both print seconds and rates with two decimals, and no
version. The workloads `s3d-io` and `flash-io` of benchio do the same (docs/workloads.md).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from iowatch.benchmarks import benchmark, parsing
from iowatch.benchmarks.h5bench_output import PrintedAmount, product_range
from iowatch.benchmarks.options import (
    NODES,
    RANKS,
    Option,
    OptionError,
    Options,
    OptionType,
    declare_options,
    repeat_option,
)
from iowatch.core import KIB, MIB, Scalar

_Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Range:
    """Least and largest number of bytes."""

    least: int
    largest: int


@dataclass(frozen=True, slots=True)
class _Rate:
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


def _field(text: str, convert: Any = str) -> tuple[re.Pattern[str], Any]:
    # A launcher's label may take the first blank of all lines.
    return re.compile(" ?" + text), convert


def _read(table: parsing.FieldTable, builder: parsing.OutputBuilder, lines: parsing.CleanLines) -> _Values | None:
    """Return the only value of each field; None if one is missing or there more than once."""
    values: dict[str, list[Any]] = {name: [] for name in table}
    for line in lines:
        parsing.read_field(table, line, values)
        lines.decided = len(values["title"]) > 1
    builder.recognised = bool(values["title"])
    if len(values["title"]) > 1:
        builder.add_failure(f"output of more than one run of {builder.tool}")
        return None
    wrong = [name for name, of_field in values.items() if len(of_field) != 1]
    if wrong:
        builder.add_truncation(f"missing or damaged: {', '.join(wrong)}")
        return None
    return {name: of_field[0] for name, of_field in values.items()}


def _add(
    builder: parsing.OutputBuilder, context: parsing.RunContext, rate: _Rate, case: Mapping[str, Scalar | None]
) -> None:
    """Add a bandwidth if its seconds and bytes confirm it."""
    printed = PrintedAmount(rate.mib_per_s * MIB, _HALF * MIB)
    low, high = product_range(printed, PrintedAmount(rate.seconds, _HALF), 0)
    if high < rate.bytes.least or low > rate.bytes.largest:
        builder.add_truncation(f"{rate.operation} {rate.metric}, seconds and sizes contradict each other")
    elif high - low > parsing.CONFIRMED * rate.bytes.least and not context.fresh:
        builder.add_truncation(f"the {rate.operation} {rate.metric} is not confirmed: its time has too few digits")
    else:
        builder.add_samples(rate.operation, rate.metric, [rate.mib_per_s], case)


def _differs(printed: float, unit: int, amount: _Range) -> bool:
    """Whether printed bytes cannot be the expected ones."""
    return not amount.least / unit - _HALF <= printed <= amount.largest / unit + _HALF


# --- S3D-IO ----------------------------------------------------------------------------------------------------------

# Of yspecies (11), u (3), pressure and temp at each point.
_S3D_VALUES = 16
# `i_time_end` of its param_m.f90, and arrays per file.
_CHECKPOINTS, _ARRAYS = 5, 4
_S3D_FIELDS: parsing.FieldTable = {
    "title": _field(r"\+\+\+\+ I/O is done through (PnetCDF) \+\+\+\+"),
    "method": _field(r"I/O method          : (blocking|nonblocking) APIs"),
    "restart": _field(r"Run with restart    : (True|False)"),
    "ranks": _field(rf"No\. MPI processes   : {_right(7, _WHOLE)}", int),
    "points": _field(
        rf"Global array size   : {_right(7, _WHOLE)} x{_right(7, _WHOLE)} x{_right(7, _WHOLE)}",
        lambda *numbers: tuple(map(int, numbers)),
    ),
    "path": _field(r"output file path    : (\S.*)"),
    **{
        name: _field(rf"{text}  {_right(10, _DECIMAL)} {unit}", float)
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
        f"{name} calls": _field(rf"no\. {name:<5} calls     :  {_right(7, _COUNT)}    per process", int)
        for name in ("read", "write")
    },
}


def _s3d_rates(value: _Values) -> Iterator[_Rate]:
    """Without a restart, the rate of all includes creating and closing files; with one, it is no rate."""
    bytes_of_a_file = math.prod(value["points"]) * _S3D_VALUES * _DOUBLE
    for operation in ("read", "write"):
        files = value[f"{operation} calls"] // _ARRAYS
        header = _HEADER_READ_BYTES if operation == "read" else _HEADER_BYTES
        amount = _Range(files * bytes_of_a_file, files * (bytes_of_a_file + header))
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
    mismatch = context.rank_mismatch_reason(value["ranks"], builder.tool)
    if mismatch is not None:
        builder.add_failure(mismatch)
        return
    # A checkpoint has one call per array; only a restart reads one.
    is_restart = value["restart"] == "True"
    read_calls, write_calls = value["read calls"], value["write calls"]
    expected_reads = _ARRAYS if is_restart else 0
    if read_calls != expected_reads or write_calls % _ARRAYS or not write_calls or not lines.ended:
        builder.add_truncation("the numbers of calls, or the end of the output, are damaged")
        return
    rates = list(_s3d_rates(value))
    if any(_differs(value[f"{rate.operation} amount"], KIB**3, rate.bytes) for rate in rates):
        builder.add_truncation("sizes of arrays, numbers of calls and amounts contradict each other")
        return
    case: dict[str, Scalar | None] = {
        "api": "PNETCDF",
        "file": "shared",
        "collective": True,
        "ranks": value["ranks"],
        "global_size": _shape_text(value["points"]),
        "steps": write_calls // _ARRAYS,
        "nonblocking": value["method"] == "nonblocking" or None,
        "workflow": "restart" if is_restart else None,
    }
    for rate in rates:
        _add(builder, context, rate, {**case, "total_bytes": rate.bytes.least})


_NONBLOCKING = Option(
    "nonblocking", OptionType.FLAG, "PnetCDF's nonblocking calls, completed once per file", default=False
)
_REPEAT = repeat_option(3, "number of starts; one sample per start")
# S3D-IO prints sizes in columns of seven digits.
_LARGEST_SIDE = 9_999_999

_S3D_OPTIONS = declare_options(
    Option(
        "points",
        OptionType.SHAPE,
        "grid points of one rank in x, y and z",
        default="36x36x36",
        minimum=1,
        maximum=_LARGEST_SIDE,
        dimensions=(3,),
    ),
    Option(
        "grid",
        OptionType.SHAPE,
        "ranks in x, y and z; unset: most nearly a cube",
        minimum=1,
        maximum=_LARGEST_SIDE,
        dimensions=(3,),
    ),
    Option(
        "restart", OptionType.FLAG, "each start first reads the first checkpoint of the start before", default=False
    ),
    _NONBLOCKING,
    _REPEAT,
    RANKS,
    NODES,
)


def _shape_text(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))


def _grid(options: Options) -> tuple[int, ...]:
    """Return the grid of ranks: as asked for, or the one that is most nearly a cube.

    Raises:
        OptionError: the grid has another number of ranks than the case.
    """
    ranks = options.number("ranks")
    if "grid" in options:
        grid = options.shape("grid")
        if math.prod(grid) != ranks:
            raise OptionError("grid", f"grid {_shape_text(grid)} has {math.prod(grid)} ranks, the case {ranks}")
        return grid
    # The smallest sum of sides is that of the grid nearest to a cube; sides are in descending order.
    divisors = [n for n in range(1, ranks + 1) if ranks % n == 0]
    grids: list[tuple[int, ...]] = []
    for shortest in divisors:
        for middle in divisors:
            longest = ranks // (middle * shortest)
            if shortest <= middle <= longest and longest * middle * shortest == ranks:
                grids.append((longest, middle, shortest))
    return min(grids, key=sum)


def _global_size(options: Options) -> list[int]:
    """Return the grid points of all ranks in x, y and z."""
    return [points * ranks for points, ranks in zip(options.shape("points"), _grid(options), strict=True)]


def _s3d_arguments(options: Options, scratch: str, *, restart: bool | None = None) -> list[str]:
    """Return the arguments of a start.

    Args:
        restart: whether it reads a checkpoint; None: as the case asks.
    """
    is_restart = options.flag("restart") if restart is None else restart
    words = [str(number) for number in (*_global_size(options), *_grid(options))]
    words.append("1" if options.flag("nonblocking") else "0")
    words.append("T" if is_restart else "F")
    return [*words, scratch]


def _s3d_bytes(options: Options) -> int:
    checkpoint = math.prod(_global_size(options)) * _S3D_VALUES * _DOUBLE + _HEADER_BYTES
    return _CHECKPOINTS * checkpoint


def _s3d_volume(options: Options) -> int:
    """Return the bytes of all starts; a restart has one more, and reads a file in each."""
    bytes_of_a_start, starts = _s3d_bytes(options), options.number("repeat")
    if not options.flag("restart"):
        return bytes_of_a_start * starts
    return bytes_of_a_start * (starts + 1) + starts * bytes_of_a_start // _CHECKPOINTS


def _s3d_expects(options: Options) -> tuple[tuple[str, str], ...]:
    if options.flag("restart"):
        return (("write", "raw_bandwidth"), ("read", "raw_bandwidth"))
    return (("write", "raw_bandwidth"), ("write", "bandwidth"))


def _s3d_shows(options: Options) -> dict[str, Scalar]:
    parameters: dict[str, Scalar] = {
        "ranks": options.number("ranks"),
        "global_size": _shape_text(_global_size(options)),
        "steps": _CHECKPOINTS,
    }
    if options.flag("nonblocking"):
        parameters["nonblocking"] = True
    if options.flag("restart"):
        parameters |= {"workflow": "restart", "cache": "drop"}
    return parameters


def _s3d_case(options: Options) -> dict[str, Scalar]:
    parameters: dict[str, Scalar] = {"local_size": _shape_text(options.shape("points"))}
    if options.flag("restart"):
        parameters["cache"] = "drop"
    return parameters


def _s3d_prepare(options: Options, scratch: str) -> list[list[str]]:
    """Return the start that writes the checkpoint for the first restart."""
    if not options.flag("restart"):
        return []
    return [["s3d_io.x", *_s3d_arguments(options, scratch, restart=False)]]


def _s3d_before(options: Options, scratch: str) -> str:
    if not options.flag("restart"):
        return ""
    return benchmark.drop_cache_command(f"{scratch}/pressure_wave_test")


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
    options=_S3D_OPTIONS,
    program=lambda _options: "s3d_io.x",
    arguments=_s3d_arguments,
    requires=lambda _options: ("mpi", "pnetcdf", "s3d_io"),
    expects=_s3d_expects,
    samples=benchmark.repetitions,
    runs=benchmark.repetitions,
    shows=_s3d_shows,
    case=_s3d_case,
    file_bytes=_s3d_bytes,
    volume_bytes=_s3d_volume,
    prepare=_s3d_prepare,
    before=_s3d_before,
    inodes=lambda _options: _CHECKPOINTS,
    layers=lambda _case: benchmark.API_LAYERS["PNETCDF"],
)


# --- FLASH-IO --------------------------------------------------------------------------------------------------------

_FLASH_FIELDS: parsing.FieldTable = {
    "title": _field(r" ?Using PnetCDF (blocking|nonblocking) APIs"),
    "access": _field(r" ?Using MPI (collective|independent) I/O"),
    "blocks": _field(rf"number of blocks      : {_right(13, _WHOLE)}", int),
    "variables": _field(rf"number of variables   : {_right(13, _WHOLE)}", int),
    "path": _field(r"File base name        : (\S.*)"),
    "amount": _field(rf"Total I/O amount      : {_right(16, _DECIMAL)}  MiB", float),
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
    blocks_of_all = sum(blocks + rank % 3 for rank in range(ranks))
    centres, corners = math.prod(cells), math.prod(side + 1 for side in cells)
    checkpoint = variables * centres * _DOUBLE + 12 * _DOUBLE
    plots = 4 * (centres + corners) * _FLOAT + 2 * 12 * _FLOAT
    return blocks_of_all * (checkpoint + plots + 3 * 17 * _INTEGER)


def parse_flash_io(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse an output of FLASH-IO."""
    value = _read(_FLASH_FIELDS, builder, lines)
    if value is None:
        return
    builder.facts["path"] = value["path"]
    ranks, *cells, seconds, mib_per_s = value["row"]
    mismatch = context.rank_mismatch_reason(ranks, builder.tool)
    if mismatch is not None:
        builder.add_failure(mismatch)
        return
    data_bytes = _flash_bytes(value["blocks"], value["variables"], tuple(cells), ranks)
    amount = _Range(data_bytes, data_bytes + _FLASH_FILES * _HEADER_BYTES)
    if _differs(value["amount"], MIB, amount):
        builder.add_truncation("numbers of ranks, blocks and cells contradict the amount")
        return
    case: dict[str, Scalar | None] = {
        "api": "PNETCDF",
        "file": "shared",
        "collective": value["access"] == "collective",
        "ranks": ranks,
        "local_size": _shape_text(cells),
        "blocks": value["blocks"],
        "total_bytes": data_bytes,
        "nonblocking": value["title"] == "nonblocking" or None,
    }
    _add(builder, context, _Rate("write", "bandwidth", mib_per_s, seconds, amount), case)


_FLASH_OPTIONS = declare_options(
    Option(
        "blocks", OptionType.NUMBER, "blocks of a rank, four fifths of MAXBLOCKS of the program", default=80, minimum=1
    ),
    Option(
        "cells",
        OptionType.SHAPE,
        "cells of a block of the program",
        default="8x8x8",
        minimum=1,
        maximum=_LARGEST_SIDE,
        dimensions=(3,),
    ),
    Option("independent", OptionType.FLAG, "independent transfers", default=False),
    _NONBLOCKING,
    _REPEAT,
    RANKS,
    NODES,
)


def _flash_shows(options: Options) -> dict[str, Scalar]:
    parameters: dict[str, Scalar] = {
        "ranks": options.number("ranks"),
        "blocks": options.number("blocks"),
        "local_size": _shape_text(options.shape("cells")),
        "collective": not options.flag("independent"),
    }
    if options.flag("nonblocking"):
        parameters["nonblocking"] = True
    return parameters


def _flash_file_bytes(options: Options) -> int:
    data_bytes = _flash_bytes(
        options.number("blocks"), _FLASH_VARIABLES, options.shape("cells"), options.number("ranks")
    )
    return data_bytes + _FLASH_FILES * _HEADER_BYTES


def _flash_arguments(options: Options, scratch: str) -> list[str]:
    words: list[str] = []
    if not options.flag("nonblocking"):
        words.append("-b")
    if options.flag("independent"):
        words.append("-i")
    return [*words, "-f", f"{scratch}/flash_"]


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
    options=_FLASH_OPTIONS,
    program=lambda _options: "flash_benchmark_io",
    arguments=_flash_arguments,
    requires=lambda _options: ("mpi", "pnetcdf", "flash_io"),
    expects=lambda _options: (("write", "bandwidth"),),
    samples=benchmark.repetitions,
    runs=benchmark.repetitions,
    shows=_flash_shows,
    file_bytes=_flash_file_bytes,
    volume_bytes=lambda options: _flash_file_bytes(options) * benchmark.repetitions(options),
    inodes=lambda _options: _FLASH_FILES,
    layers=lambda _case: benchmark.API_LAYERS["PNETCDF"],
)
