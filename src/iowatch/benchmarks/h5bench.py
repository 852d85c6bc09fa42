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
from iowatch.core import InputError, Scalar

_CONFIGURATION, _WRITE_CONFIGURATION, _READ_CONFIGURATION = "h5bench.cfg", "h5bench_write.cfg", "h5bench_read.cfg"
_HINTS_FILE = "h5bench.hints"

_OPTIONS = {
    "op": "write, read, append, overwrite (a file that is written before, unmeasured), write-read (both measured, the "
    "read directly after each write), write-unlimited, or write-normal (sizes from a normal distribution)",
    "memory": "pattern in memory: contiguous or interleaved",
    "pattern": "pattern in the file: contiguous or interleaved; reads: full, partial or strided",
    "dims": "particles per rank and dimension: 4194304, 1024x1024, …",
    "timesteps": "time steps",
    "collective": "collective transfers",
    "delayed-close": "time steps after which a time step is closed [default: 2]; 0: directly",
    "compute": "emulated computation between time steps, in ms [default: 100]",
    "compress": "deflate (level 9), in chunks of `chunk`; collective transfers",
    "chunk": "particles of a chunk in each dimension, as in dims [default: those of a rank]",
    "async": "asynchronous, by the VOL connector of the stack (vol-async)",
    "subfiling": "subfiling VFD (HDF5 1.14 that was built with it); independent transfers",
    hints.OPTION: hints.DESCRIPTION,
    "repeat": "number of runs; one sample per run",
    "ranks": "MPI processes",
    "nodes": "nodes",
}

_WORD = {"contiguous": "CONTIG", "interleaved": "INTERLEAVED", "strided": "STRIDED"}
_CONTIGUOUS = {"MEM_PATTERN": "CONTIG", "FILE_PATTERN": "CONTIG"}
_READ = {"full": "FULL", "partial": "PARTIAL", "strided": "STRIDED"}
# One particle: 8 variables of 4 bytes (h5bench's h5bench_write.c: x, y, z, px, py, pz, id_1 and id_2).
_PARTICLE_BYTES = 32


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
_EXTENDIBLE = ("write-unlimited", "append")
# Operations on a file that is written before.
_OF_EXISTING = ("read", "append", "overwrite")


def _op(options: benchmark.BenchmarkOptions) -> str:
    return str(options.get("op", "write"))


def _operations(options: benchmark.BenchmarkOptions) -> tuple[str, ...]:
    """Return the operations that a complete run reports."""
    return ("write", "read") if _op(options) == "write-read" else (_PROGRAMS[_op(options)][1],)


def _dimensions(options: benchmark.BenchmarkOptions) -> list[int]:
    return [int(n) for n in str(options.get("dims", "1048576")).split("x")]


def _particles(options: benchmark.BenchmarkOptions) -> int:
    return math.prod(_dimensions(options))


def _base_settings(options: benchmark.BenchmarkOptions) -> dict[str, str]:
    shape = [*_dimensions(options), 1, 1, 1]
    yes = "YES" if _is_collective(options) else "NO"
    return {
        "TIMESTEPS": str(benchmark.integer_option(options, "timesteps", 5)),
        "DELAYED_CLOSE_TIMESTEPS": str(benchmark.integer_option(options, "delayed-close", 2)),
        "COLLECTIVE_DATA": yes,
        "COLLECTIVE_METADATA": yes,
        "EMULATED_COMPUTE_TIME_PER_TIMESTEP": f"{benchmark.integer_option(options, 'compute', 100)} ms",
        "NUM_DIMS": str(len(_dimensions(options))),
        **{f"DIM_{axis + 1}": str(shape[axis]) for axis in range(3)},
    }


def _is_collective(options: benchmark.BenchmarkOptions) -> bool:
    return bool(options.get("collective", not options.get("subfiling")))


def _chunk(options: benchmark.BenchmarkOptions) -> list[int]:
    return [int(n) for n in str(options.get("chunk", options.get("dims", "1048576"))).split("x")]


def _write_settings(options: benchmark.BenchmarkOptions) -> dict[str, str]:
    """Return the configuration of a program that writes; what is read afterwards is written contiguously.

    Raises:
        InputError: options that h5bench cannot combine.
    """
    is_written = _op(options) in ("write", "write-unlimited", "write-normal")
    file_pattern = str(options.get("pattern", "contiguous")) if is_written else "contiguous"
    memory = str(options.get("memory", "contiguous"))
    settings = {"MEM_PATTERN": _WORD[memory], "FILE_PATTERN": _WORD[file_pattern], **_base_settings(options)}
    # What is extended is chunked, and h5bench compresses whatever is chunked.
    chunked = options.get("compress") or _op(options) in _EXTENDIBLE
    if chunked and not _is_collective(options):
        raise InputError("h5bench compresses and extends with collective transfers only")
    if options.get("subfiling") and _is_collective(options):
        raise InputError("subfiling needs independent transfers: collective: false")
    if options.get("subfiling") and options.get("compress"):
        raise InputError("h5bench compresses with collective transfers only, and subfiling has none")
    if chunked:
        chunk = _chunk(options)
        if len(chunk) != len(_dimensions(options)):
            raise InputError(f"chunk has {len(chunk)} dimensions, the data have {len(_dimensions(options))}")
        settings |= {f"CHUNK_DIM_{axis}": str(size) for axis, size in enumerate(chunk, 1)}
    elif "chunk" in options:
        raise InputError("chunk is for compress, write-unlimited and append")
    settings |= {"COMPRESS": "YES"} if chunked else {}
    return settings | ({"SUBFILING": "YES"} if options.get("subfiling") else {})


def _read_settings(options: benchmark.BenchmarkOptions) -> dict[str, str]:
    how = str(options.get("pattern", "full"))
    settings = {**_CONTIGUOUS, "READ_OPTION": _READ[how], **_base_settings(options)}
    particles = _particles(options)
    if how == "partial":
        settings["TO_READ_NUM_PARTICLES"] = str(particles // 2)
    if how == "strided":
        # h5bench rejects more than (stride + block) x count particles per rank.
        settings |= {"FILE_PATTERN": "STRIDED", "STRIDE_SIZE": "64", "BLOCK_SIZE": "2"}
        settings["BLOCK_CNT"] = str(particles // 66)
    return settings


def _files(options: benchmark.BenchmarkOptions) -> dict[str, str]:
    settings = {_CONFIGURATION: _write_settings(options)}
    if _op(options) == "write-read":
        settings = {_CONFIGURATION: _write_settings(options), _READ_CONFIGURATION: _read_settings(options)}
    elif _op(options) == "read":
        settings = {_CONFIGURATION: _read_settings(options), _WRITE_CONFIGURATION: _write_settings(options)}
    elif _op(options) in _OF_EXISTING:
        changed = {**_base_settings(options), "IO_OPERATION": _op(options).upper(), **_CONTIGUOUS}
        settings = {_CONFIGURATION: changed, _WRITE_CONFIGURATION: _write_settings(options)}
    files = {file: "".join(f"{name}={value}\n" for name, value in words.items()) for file, words in settings.items()}
    return {**files, **({_HINTS_FILE: text} if (text := hints.romio_file(options)) else {})}


def _environment(options: benchmark.BenchmarkOptions) -> dict[str, str]:
    """Return variables of the job: h5bench passes no MPI_Info, but ROMIO reads a file of hints."""
    found = hints.job_environment(options)
    found |= {"ROMIO_HINTS": _HINTS_FILE} if found else {}
    if "async" in options:  # a stack may have it for all its programs; empty: the native connector
        found["HDF5_VOL_CONNECTOR"] = "async under_vol=0;under_info={}" if options["async"] else ""
    return found


def _prepare(options: benchmark.BenchmarkOptions, place: str) -> list[list[str]]:
    writer = _PROGRAMS["write-unlimited" if _op(options) == "append" else "write"][0]
    write = [writer, _WRITE_CONFIGURATION, f"{place}/h5bench.h5"]
    return [write] if _op(options) in _OF_EXISTING else []


def _after(options: benchmark.BenchmarkOptions, place: str) -> list[list[str]]:
    read = [_PROGRAMS["read"][0], _READ_CONFIGURATION, f"{place}/h5bench.h5"]
    return [read] if _op(options) == "write-read" else []


def _file_bytes(options: benchmark.BenchmarkOptions) -> int:
    steps = benchmark.integer_option(options, "timesteps", 5)
    once = _PARTICLE_BYTES * _particles(options) * benchmark.integer_option(options, "ranks", 1) * steps
    return once * (1 + benchmark.integer_option(options, "repeat", 3)) if _op(options) == "append" else once


def _volume_bytes(options: benchmark.BenchmarkOptions) -> int:
    once = _file_bytes({**options, "op": "write"})
    starts = benchmark.integer_option(options, "repeat", 3)
    return once * (starts * len(_operations(options)) + (_op(options) in _OF_EXISTING))


def _printed_parameters(options: benchmark.BenchmarkOptions) -> dict[str, Scalar]:
    """Return time steps and the bytes of all of them, or of the part that is read."""
    settings = _read_settings(options) if "read" in _op(options) else {}
    block, count = (int(settings.get(name, 0)) for name in ("BLOCK_SIZE", "BLOCK_CNT"))
    particles = block * count or int(settings.get("TO_READ_NUM_PARTICLES", _particles(options)))
    ranks, steps = benchmark.integer_option(options, "ranks", 1), benchmark.integer_option(options, "timesteps", 5)
    # The sizes of write-normal are drawn; the bytes of a write before a partial read differ from those that are read.
    sized = _op(options) != "write-normal" and not (_op(options) == "write-read" and particles != _particles(options))
    return {
        **({"total_bytes": _PARTICLE_BYTES * ranks * steps * particles} if sized else {}),
        "steps": steps,
        "collective": _is_collective(options),
        "ranks": ranks,
        **({"mode": "async"} if options.get("async") else {}),
        **({"compressed": True} if options.get("compress") and _op(options) != "write-read" else {}),
        **({"cache": "drop"} if _op(options) == "read" else {}),
        **hints.hint_parameter(options),
    }


def _case(options: benchmark.BenchmarkOptions) -> dict[str, Scalar]:
    """Return parameters that h5bench does not print: patterns, the part that is read, cache policy of reads, hints."""
    found: dict[str, Scalar] = {**hints.hint_parameter(options)}
    for option, name in (("delayed-close", "delayed_close_steps"), ("compute", "compute_ms")):
        if option in options:
            found[name] = benchmark.integer_option(options, option, 0)
    found |= {"subfiling": True} if options.get("subfiling") else {}
    if options.get("compress") or _op(options) in _EXTENDIBLE:
        found["chunk"] = "x".join(map(str, _chunk(options)))
    if _op(options) == "write-read":
        return {"pattern": str(options.get("pattern", "full")), "workflow": "write-read", "cache": "keep", **found}
    if _op(options) == "read":
        return {"pattern": str(options.get("pattern", "full")), "cache": "drop", **found}
    if _op(options) in _OF_EXISTING:
        return found
    memory, pattern = (str(options.get(name, "contiguous")) for name in ("memory", "pattern"))
    return {"memory": memory, "pattern": pattern, **found}


def _requires(options: benchmark.BenchmarkOptions) -> tuple[str, ...]:
    chosen = {"async": "vol-async", "compress": "deflate", "subfiling": "subfiling"}
    compresses = {"compress": True} if _op(options) in _EXTENDIBLE else {}
    needed = [feature for option, feature in chosen.items() if {**options, **compresses}.get(option)]
    return ("mpi", "hdf5", "h5bench", *needed, *hints.required_features(options, through_info=False))


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
        self._found: dict[str, list[str]] = {name: [] for name in _LOG_FIELDS}
        self._errors: list[str] = []
        self._damaged = False

    def read(self, line: str) -> None:
        """Parse one cleaned line."""
        match = DRIVER_LOG_LINE.fullmatch(line)
        if match is None:
            self._damaged |= " h5bench - " in line
        elif not parsing.read_field(_LOG_FIELDS, match[2], self._found) and match[1] in ("ERROR", "CRITICAL"):
            self._errors += [match[2]] if len(self._errors) < _MAX_ERRORS else []
        self._damaged |= max(map(len, self._found.values())) >= parsing.MAX_NAMES

    def check(self, builder: parsing.OutputBuilder) -> None:
        """Check the run of the driver."""
        found = self._found
        builder.facts.update(benchmarks=found["started"], directories=found["directories"])
        for error in self._errors:
            builder.add_failure(f"the driver reports '{error}'")
        if len(found["starts"]) > 1 or len(found["ends"]) > 1:
            builder.add_failure("log of more than one driver run")
        if not found["starts"] or not found["ends"] or self._damaged:
            builder.add_truncation("the driver's log is incomplete")
        if found["started"] != found["completed"] or len(found["directories"]) != len(found["started"]):
            builder.add_truncation("not every benchmark was completed")
        if not found["started"]:
            builder.add_truncation("no benchmark was started")


# phrase -> meaning
_PHRASES = {
    r"[Ff]ailed(?: |:|$)|\(\) failed": "h5bench reports an error",
    r"Assertion .* failed|: Assertion `": "an assertion failed",
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
    return "patterns" if line.startswith(_PATTERN_STARTS) or _SECTION.match(line) else None


def parse_h5bench(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse an output of h5bench."""
    table, log = h5bench_output.H5benchCsvReader(), H5benchLogReader()
    iotest, patterns = IotestReader(), h5bench_output.PatternsReader()
    readers = {"csv": table.read, "log": log.read, "iotest": iotest.read, "patterns": patterns.read}
    form, read = None, None
    for line in lines:
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
    options=_OPTIONS,
    program=lambda options: _PROGRAMS[_op(options)][0],
    arguments=lambda _options, place: [_CONFIGURATION, f"{place}/h5bench.h5"],
    requires=_requires,
    expects=lambda options: tuple(product(_operations(options), ("raw_bandwidth", "observed_bandwidth"))),
    samples=lambda options: benchmark.integer_option(options, "repeat", 3),
    shows=_printed_parameters,
    file_bytes=_file_bytes,
    volume_bytes=_volume_bytes,
    configuration=_files,
    prepare=_prepare,
    after=_after,
    runs=lambda options: benchmark.integer_option(options, "repeat", 3),
    before=lambda o, place: benchmark.drop_cache_command(f"{place}/h5bench") if _op(o) in _OF_EXISTING else "",
    case=_case,
    environment=_environment,
    layers=lambda _case: benchmark.API_LAYERS["HDF5"],
)
