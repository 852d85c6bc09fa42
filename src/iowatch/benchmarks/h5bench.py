"""h5bench (https://github.com/hpc-io/h5bench, 1.3 to 1.6): options and output formats.

ReFrame's launcher starts the write and read programs with the configuration file that h5bench's driver would
write: the driver starts its own `mpirun` and returns 0 in all cases. It also reports SUCCESS if a program
printed only `Failed:`, so an `ok` from the driver's log means less than one from the output of the programs.
"""

from __future__ import annotations

import math
import re
from itertools import product

from iowatch.benchmarks import benchmark, h5bench_output, hints, parsing
from iowatch.benchmarks.hdf5_iotest import IOTEST_CSV_HEADER, IotestReader
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
from iowatch.core import Scalar

_CONFIGURATION, _WRITE_CONFIGURATION, _READ_CONFIGURATION = "h5bench.cfg", "h5bench_write.cfg", "h5bench_read.cfg"
_HINTS_FILE = "h5bench.hints"

# op -> program, and the operation under which the parser reports it
_PROGRAMS = {
    "write": ("h5bench_write", "write"),
    "write-read": ("h5bench_write", "write"),
    "write-unlimited": ("h5bench_write_unlimited", "write"),
    "write-normal": ("h5bench_write_var_normal_dist", "write"),
    "read": ("h5bench_read", "read"),
    "append": ("h5bench_append", "append"),
    "overwrite": ("h5bench_overwrite", "overwrite"),
}
# Operations that only write, with a pattern in the file.
_WRITES = ("write", "write-unlimited", "write-normal")
_EXTENDIBLE = ("write-unlimited", "append")
# Operations on a file that is written before.
_OF_EXISTING = ("read", "append", "overwrite")

# Pattern -> value in a configuration of a program that writes, and of one that reads.
_WRITE_PATTERNS = {"contiguous": "CONTIG", "interleaved": "INTERLEAVED"}
_READ_PATTERNS = {"full": "FULL", "partial": "PARTIAL", "strided": "STRIDED"}
_CONTIGUOUS = {"MEM_PATTERN": "CONTIG", "FILE_PATTERN": "CONTIG"}
# One particle: 8 variables of 4 bytes (h5bench's h5bench_write.c: x, y, z, px, py, pz, id_1 and id_2).
_PARTICLE_BYTES = 32
# Reading with strides: particles from the start of one block to that of the next, and of a block.
_STRIDE, _BLOCK = 64, 2

_OPTIONS = declare_options(
    Option(
        "op",
        OptionType.CHOICE,
        "what is timed; overwrite: a file that is written before, unmeasured; write-read: both measured, the read "
        "directly after each write; write-normal: sizes from a normal distribution",
        default="write",
        choices=tuple(_PROGRAMS),
    ),
    Option("memory", OptionType.CHOICE, "pattern in memory", default="contiguous", choices=tuple(_WRITE_PATTERNS)),
    Option(
        "pattern",
        OptionType.CHOICE,
        "pattern in the file: contiguous (unset) or interleaved; of reads full (unset), partial or strided",
        choices=(*_WRITE_PATTERNS, *_READ_PATTERNS),
    ),
    Option(
        "dims", OptionType.SHAPE, "particles per rank and dimension", default="1048576", minimum=1, dimensions=(1, 2, 3)
    ),
    Option("timesteps", OptionType.NUMBER, "time steps", default=5, minimum=1),
    Option("collective", OptionType.FLAG, "collective transfers; unset: true, and false with subfiling"),
    Option(
        "delayed-close",
        OptionType.NUMBER,
        "time steps after which a time step is closed; 0: directly",
        default=2,
        minimum=0,
    ),
    Option("compute", OptionType.NUMBER, "emulated computation between time steps", default=100, unit="ms", minimum=0),
    Option("compress", OptionType.FLAG, "deflate (level 9), in chunks of `chunk`; collective transfers", default=False),
    Option(
        "chunk",
        OptionType.SHAPE,
        "particles of a chunk in each dimension, as in dims; unset: those of a rank",
        minimum=1,
        dimensions=(1, 2, 3),
    ),
    Option(
        "async",
        OptionType.FLAG,
        "asynchronous, by the VOL connector of the stack (vol-async); unset: as the stack has it",
    ),
    Option(
        "subfiling",
        OptionType.FLAG,
        "subfiling VFD (HDF5 1.14 that was built with it); independent transfers",
        default=False,
    ),
    hints.DECLARATION,
    repeat_option(3, "number of runs; one sample per run"),
    RANKS,
    NODES,
)


def _operations(options: Options) -> tuple[str, ...]:
    """Return the operations that a complete run reports."""
    operation = options.text("op")
    if operation == "write-read":
        return ("write", "read")
    return (_PROGRAMS[operation][1],)


def _expects(options: Options) -> tuple[tuple[str, str], ...]:
    return tuple(product(_operations(options), ("raw_bandwidth", "observed_bandwidth")))


def _particles(options: Options) -> int:
    """Return the particles of a rank in a time step."""
    return math.prod(options.shape("dims"))


def _base_settings(options: Options) -> dict[str, str]:
    """Return what the configurations of all programs have in common."""
    dimensions = options.shape("dims")
    yes = "YES" if _is_collective(options) else "NO"
    settings = {
        "TIMESTEPS": str(options.number("timesteps")),
        "DELAYED_CLOSE_TIMESTEPS": str(options.number("delayed-close")),
        "COLLECTIVE_DATA": yes,
        "COLLECTIVE_METADATA": yes,
        "EMULATED_COMPUTE_TIME_PER_TIMESTEP": f"{options.number('compute')} ms",
        "NUM_DIMS": str(len(dimensions)),
    }
    # h5bench wants three, whatever their number.
    shape = [*dimensions, 1, 1, 1]
    for axis in range(3):
        settings[f"DIM_{axis + 1}"] = str(shape[axis])
    return settings


def _is_collective(options: Options) -> bool:
    if "collective" in options:
        return options.flag("collective")
    return not options.flag("subfiling")


def _is_asynchronous(options: Options) -> bool:
    return "async" in options and options.flag("async")


def _chunk(options: Options) -> tuple[int, ...]:
    return options.shape("chunk" if "chunk" in options else "dims")


def _write_pattern(options: Options) -> str:
    """Return the pattern in the file that is written; what is read afterwards is written contiguously.

    Raises:
        OptionError: the pattern is one of reads.
    """
    if options.text("op") not in _WRITES or "pattern" not in options:
        return "contiguous"
    pattern = options.text("pattern")
    if pattern not in _WRITE_PATTERNS:
        raise OptionError("pattern", f"{pattern} is for reads, expected {' or '.join(_WRITE_PATTERNS)}")
    return pattern


def _read_pattern(options: Options) -> str:
    """Return the part of the file that is read.

    Raises:
        OptionError: the pattern is one of writes.
    """
    if "pattern" not in options:
        return "full"
    pattern = options.text("pattern")
    if pattern not in _READ_PATTERNS:
        raise OptionError("pattern", f"{pattern} is for writes, expected {' or '.join(_READ_PATTERNS)}")
    return pattern


def _check_combination(options: Options) -> None:
    """Check what h5bench can combine.

    Raises:
        OptionError: it cannot.
    """
    is_collective = _is_collective(options)
    if _is_chunked(options) and not is_collective:
        raise OptionError("collective", "h5bench compresses and extends with collective transfers only")
    if options.flag("subfiling") and is_collective:
        raise OptionError("collective", "subfiling needs independent transfers: collective: false")
    if not _is_chunked(options):
        if "chunk" in options:
            raise OptionError("chunk", "chunk is for compress, write-unlimited and append")
        return
    chunk, dimensions = _chunk(options), options.shape("dims")
    if len(chunk) != len(dimensions):
        raise OptionError("chunk", f"chunk has {len(chunk)} dimensions, the data have {len(dimensions)}")


def _is_chunked(options: Options) -> bool:
    """Return whether data sets are chunked: what is extended is, and h5bench compresses whatever is chunked."""
    return options.flag("compress") or options.text("op") in _EXTENDIBLE


def _write_settings(options: Options) -> dict[str, str]:
    """Return the configuration of a program that writes.

    Raises:
        OptionError: options that h5bench cannot combine.
    """
    settings = {
        "MEM_PATTERN": _WRITE_PATTERNS[options.text("memory")],
        "FILE_PATTERN": _WRITE_PATTERNS[_write_pattern(options)],
        **_base_settings(options),
    }
    _check_combination(options)
    if _is_chunked(options):
        for axis, size in enumerate(_chunk(options), 1):
            settings[f"CHUNK_DIM_{axis}"] = str(size)
        settings["COMPRESS"] = "YES"
    if options.flag("subfiling"):
        settings["SUBFILING"] = "YES"
    return settings


def _read_settings(options: Options) -> dict[str, str]:
    """Return the configuration of a program that reads."""
    pattern = _read_pattern(options)
    settings = {**_CONTIGUOUS, "READ_OPTION": _READ_PATTERNS[pattern], **_base_settings(options)}
    if pattern == "partial":
        settings["TO_READ_NUM_PARTICLES"] = str(_particles_read(options))
    if pattern == "strided":
        settings["FILE_PATTERN"] = "STRIDED"
        settings["STRIDE_SIZE"] = str(_STRIDE)
        settings["BLOCK_SIZE"] = str(_BLOCK)
        settings["BLOCK_CNT"] = str(_particles_read(options) // _BLOCK)
    return settings


def _particles_read(options: Options) -> int:
    """Return the particles of a rank that are read in each time step."""
    particles, pattern = _particles(options), _read_pattern(options)
    if pattern == "partial":
        return particles // 2
    if pattern == "strided":
        # h5bench rejects more than (stride + block) x count particles per rank.
        return particles // (_STRIDE + _BLOCK) * _BLOCK
    return particles


def _files(options: Options) -> dict[str, str]:
    """Return the configurations of the program and of the one before or after it, and the hints."""
    operation = options.text("op")
    settings = {_CONFIGURATION: _write_settings(options)}
    if operation == "write-read":
        settings[_READ_CONFIGURATION] = _read_settings(options)
    elif operation == "read":
        settings = {_CONFIGURATION: _read_settings(options), _WRITE_CONFIGURATION: _write_settings(options)}
    elif operation in _OF_EXISTING:
        changed = {**_base_settings(options), "IO_OPERATION": operation.upper(), **_CONTIGUOUS}
        settings = {_CONFIGURATION: changed, _WRITE_CONFIGURATION: _write_settings(options)}
    files: dict[str, str] = {}
    for file_name, values in settings.items():
        files[file_name] = "".join(f"{name}={value}\n" for name, value in values.items())
    hints_text = hints.romio_file(options)
    if hints_text:
        files[_HINTS_FILE] = hints_text
    return files


def _environment(options: Options) -> dict[str, str]:
    """Return variables of the job: h5bench passes no MPI_Info, but ROMIO reads a file of hints."""
    variables = hints.job_environment(options)
    if variables:
        variables["ROMIO_HINTS"] = _HINTS_FILE
    # A stack may have the connector for all its programs; empty: the native one.
    if "async" in options:
        variables["HDF5_VOL_CONNECTOR"] = "async under_vol=0;under_info={}" if options.flag("async") else ""
    return variables


def _prepare(options: Options, scratch: str) -> list[list[str]]:
    """Return the command that writes the file for an operation on an existing one."""
    operation = options.text("op")
    if operation not in _OF_EXISTING:
        return []
    # Only an unlimited data set can be extended.
    writer, _ = _PROGRAMS["write-unlimited" if operation == "append" else "write"]
    return [[writer, _WRITE_CONFIGURATION, f"{scratch}/h5bench.h5"]]


def _before(options: Options, scratch: str) -> str:
    if options.text("op") not in _OF_EXISTING:
        return ""
    return benchmark.drop_cache_command(f"{scratch}/h5bench")


def _after(options: Options, scratch: str) -> list[list[str]]:
    if options.text("op") != "write-read":
        return []
    reader, _ = _PROGRAMS["read"]
    return [[reader, _READ_CONFIGURATION, f"{scratch}/h5bench.h5"]]


def _bytes_of_a_write(options: Options) -> int:
    """Return the bytes of all ranks and time steps."""
    return _PARTICLE_BYTES * _particles(options) * options.number("ranks") * options.number("timesteps")


def _file_bytes(options: Options) -> int:
    written_bytes = _bytes_of_a_write(options)
    if options.text("op") == "append":
        # The file that is written before, and what each repetition appends.
        return written_bytes * (1 + options.number("repeat"))
    return written_bytes


def _volume_bytes(options: Options) -> int:
    transfers = options.number("repeat") * len(_operations(options))
    if options.text("op") in _OF_EXISTING:
        transfers += 1
    return _bytes_of_a_write(options) * transfers


def _printed_parameters(options: Options) -> dict[str, Scalar]:
    """Return time steps and the bytes of all of them, or of the part that is read."""
    operation = options.text("op")
    ranks, steps = options.number("ranks"), options.number("timesteps")
    all_particles = _particles(options)
    particles = _particles_read(options) if "read" in operation else all_particles
    # The sizes of write-normal are drawn; the bytes of a write before a partial read differ from those that are read.
    is_drawn = operation == "write-normal"
    has_two_sizes = operation == "write-read" and particles != all_particles
    parameters: dict[str, Scalar] = {}
    if not is_drawn and not has_two_sizes:
        parameters["total_bytes"] = _PARTICLE_BYTES * ranks * steps * particles
    parameters |= {"steps": steps, "collective": _is_collective(options), "ranks": ranks}
    if _is_asynchronous(options):
        parameters["mode"] = "async"
    # The read after the write does not print it.
    if options.flag("compress") and operation != "write-read":
        parameters["compressed"] = True
    if operation == "read":
        parameters["cache"] = "drop"
    return {**parameters, **hints.hint_parameter(options)}


def _case(options: Options) -> dict[str, Scalar]:
    """Return parameters that h5bench does not print: patterns, the part that is read, cache policy of reads, hints."""
    operation = options.text("op")
    parameters: dict[str, Scalar] = {}
    if operation == "write-read":
        parameters = {"pattern": _read_pattern(options), "workflow": "write-read", "cache": "keep"}
    elif operation == "read":
        parameters = {"pattern": _read_pattern(options), "cache": "drop"}
    elif operation in _WRITES:
        parameters = {"memory": options.text("memory"), "pattern": _write_pattern(options)}
    parameters |= hints.hint_parameter(options)
    # Cases name the times only where a suite sets them.
    if "delayed-close" in options:
        parameters["delayed_close_steps"] = options.number("delayed-close")
    if "compute" in options:
        parameters["compute_ms"] = options.number("compute")
    if options.flag("subfiling"):
        parameters["subfiling"] = True
    if _is_chunked(options):
        parameters["chunk"] = "x".join(map(str, _chunk(options)))
    return parameters


def _requires(options: Options) -> tuple[str, ...]:
    features = ["mpi", "hdf5", "h5bench"]
    if _is_asynchronous(options):
        features.append("vol-async")
    if _is_chunked(options):
        features.append("deflate")
    if options.flag("subfiling"):
        features.append("subfiling")
    return (*features, *hints.required_features(options, through_info=False))


_INTERFACES = tuple(
    benchmark.ProgramInterface(program, f"program {program}", program=program)
    for program in sorted({program for program, _operation in _PROGRAMS.values()})
)


def _used_programs(options: Options) -> tuple[str, ...]:
    """Return the programs that a case starts; every build has `h5bench_write`, which writes files to be read."""
    operation = options.text("op")
    program, _reported_operation = _PROGRAMS[operation]
    if operation == "write-read":
        return (program, _PROGRAMS["read"][0])
    return (program,)


DRIVER_LOG_LINE = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} h5bench - (DEBUG|INFO|WARNING|ERROR|CRITICAL) - (.*)"
)
_LOG_FIELDS: parsing.FieldTable = {
    "started": (re.compile(r"h5bench \[([^\]]+)\] - Starting"), str),
    "completed": (re.compile(r"h5bench \[([^\]]+)\] - Complete"), str),
    "directories": (re.compile(r"SUCCESS \(all output files are located at (.*)\)"), str),
    "starts": (re.compile(r"Starting h5bench (Suite)"), str),
    "ends": (re.compile(r"Finishing h5bench (Suite)"), str),
}
_MAX_ERRORS = 4


class H5benchLogReader:
    """Parses the log of the driver."""

    def __init__(self) -> None:
        self._fields: dict[str, list[str]] = {name: [] for name in _LOG_FIELDS}
        self._errors: list[str] = []
        self._damaged = False

    def read(self, line: str) -> None:
        """Parse one cleaned line."""
        match = DRIVER_LOG_LINE.fullmatch(line)
        if match is None:
            self._damaged |= " h5bench - " in line
        else:
            self._read_message(match[1], match[2])
        # More names than any driver prints: lines may be missing.
        self._damaged |= max(map(len, self._fields.values())) >= parsing.MAX_NAMES

    def _read_message(self, level: str, message: str) -> None:
        is_field = parsing.read_field(_LOG_FIELDS, message, self._fields)
        is_error = level in ("ERROR", "CRITICAL") and not is_field
        if is_error and len(self._errors) < _MAX_ERRORS:
            self._errors.append(message)

    def check(self, builder: parsing.OutputBuilder) -> None:
        """Check the run of the driver."""
        fields = self._fields
        builder.facts.update(benchmarks=fields["started"], directories=fields["directories"])
        for error in self._errors:
            builder.add_failure(f"the driver reports '{error}'")
        if len(fields["starts"]) > 1 or len(fields["ends"]) > 1:
            builder.add_failure("log of more than one driver run")
        if not fields["starts"] or not fields["ends"] or self._damaged:
            builder.add_truncation("the driver's log is incomplete")
        if fields["started"] != fields["completed"] or len(fields["directories"]) != len(fields["started"]):
            builder.add_truncation("not every benchmark was completed")
        if not fields["started"]:
            builder.add_truncation("no benchmark was started")


# phrase -> meaning
_PHRASES = {
    r"[Ff]ailed(?: |:|$)|\(\) failed": "h5bench reports an error",
    r"Assertion .{0,500} failed|: Assertion `": "an assertion failed",
    r"[Ee]rror with opening|Invalid hyperslab|Unknown (?:read pattern|Parameter|value)": "h5bench reports an error",
    r"must be at least|requires (?:STRIDE|BLOCK)_SIZE|exceeds maximum": "invalid h5bench configuration",
}
_SIGNATURES = tuple(parsing.FailureSignature(*row) for row in _PHRASES.items())
_HEADERS = (h5bench_output.H5BENCH_CSV_HEADER, IOTEST_CSV_HEADER)
# Lines that identify the program.
_TITLES = ("Configuration file: ", "Config loaded from", *_HEADERS)
_PATTERN_STARTS = ("Configuration file: ", "Start benchmark: ", "Read data file: ", "Output data file: ")
_SECTION = re.compile(r"=+ (?:Benchmark Configuration|Performance Results) =+")


def _detect_format(line: str) -> str | None:
    """Return the output format that a line belongs to; None if the line does not determine it."""
    if line == h5bench_output.H5BENCH_CSV_HEADER:
        return "csv"
    if DRIVER_LOG_LINE.fullmatch(line):
        return "log"
    if line.startswith(("Config loaded from", IOTEST_CSV_HEADER, "Wall clock [s]:", "\tsteps=")):
        return "iotest"
    if line.startswith(_PATTERN_STARTS) or _SECTION.match(line):
        return "patterns"
    return None


def parse_h5bench(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse an output of h5bench."""
    table, log = h5bench_output.H5benchCsvReader(), H5benchLogReader()
    iotest, patterns = IotestReader(), h5bench_output.PatternsReader()
    readers = {"csv": table.read, "log": log.read, "iotest": iotest.read, "patterns": patterns.read}
    form, read = None, None
    for line in lines:
        # The first line that belongs to a format decides; a title of another one shows that two programs wrote.
        if form is None:
            form = _detect_format(line)
            read = readers.get(form or "")
        elif line.startswith(_TITLES) or " h5bench - " in line:
            lines.decided = patterns.full
            if _detect_format(line) != form:
                builder.add_failure("output of several programs is mixed")
        if read is not None:
            read(line)
    if form == "log":
        log.check(builder)
    elif form is None:
        builder.recognised = False
    else:
        checks = {"csv": table.check, "iotest": iotest.check, "patterns": patterns.check}
        checks[form](builder, context)
    if not lines.ended:
        builder.add_truncation("the last line is truncated")


H5BENCH = benchmark.Benchmark(
    name="h5bench",
    title="h5bench",
    check="H5benchCheck",
    parse=parse_h5bench,
    signatures=_SIGNATURES,
    banner=r"= Benchmark Configuration =",
    package="h5bench",
    # Releases 1.5 and 1.6 print 1.4.0 (`src/h5bench_version.py`) and differ in the programs that they install.
    probe=benchmark.ProgramProbe(
        "h5bench_write",
        ("h5bench", "--version"),
        r"(\d+\.\d+\S*)",
        later=(("1.4.0", "h5bench_write_var_normal_dist", "1.6"), ("1.4.0", "h5bench_write_normal_dist", "1.5")),
    ),
    # Each operation is a program; not all releases and builds have all of them.
    interfaces=_INTERFACES,
    uses=_used_programs,
    options=_OPTIONS,
    program=lambda options: _PROGRAMS[options.text("op")][0],
    arguments=lambda _options, scratch: [_CONFIGURATION, f"{scratch}/h5bench.h5"],
    requires=_requires,
    expects=_expects,
    samples=benchmark.repetitions,
    shows=_printed_parameters,
    file_bytes=_file_bytes,
    volume_bytes=_volume_bytes,
    configuration=_files,
    prepare=_prepare,
    after=_after,
    runs=benchmark.repetitions,
    before=_before,
    case=_case,
    environment=_environment,
    layers=lambda _case: benchmark.API_LAYERS["HDF5"],
)
