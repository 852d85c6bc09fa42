"""benchio, the project's own benchmark (benchmarks/benchio, docs/benchio.md): options and parser.

Parses its JSON record (`benchio-record/3` and 2, `schema/record.schema.json`), the table on its standard output
(`src/table.c`), and the output of the original benchio. The table has fewer parameters than the record, so the record
is used if it exists. The record ends with the number of its repetitions and the SHA-256 of its text; a record that
does not match them is rejected. Geometry, and seconds x bandwidth = bytes, are checked as well.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from iowatch.benchmarks import benchmark, hints, parsing, workload_cases
from iowatch.benchmarks.options import (
    NODES,
    RANKS,
    STRIPE_COUNT,
    STRIPE_SIZE,
    Option,
    Options,
    OptionType,
    declare_options,
    repeat_option,
)
from iowatch.core import MIB, NODE_TIMES_FACT, Scalar, reduce_node_times

RECORD_FILE = "benchio.json"
_DOUBLE_BYTES = 8
# Option `api` -> case parameter.
_APIS = {"posix": "POSIX", "mpiio": "MPIIO", "hdf5": "HDF5", "netcdf4": "NETCDF4", "pnetcdf": "PNETCDF", "null": "NULL"}
# Option `api` -> feature that the stack must have.
_LIBRARIES = {"hdf5": "hdf5", "netcdf4": "netcdf4", "pnetcdf": "pnetcdf"}
# Option `sync` -> case parameter.
_SYNC: dict[str, Scalar] = {"none": False, "false": False, "end": True, "true": True, "each": "each"}
# Of the pattern `interleaved`, blocks of each rank.
_INTERLEAVED_SEGMENTS = 16

# Defaults are those of the program (`src/options_table.c`), for what has to be computed before it runs.
_OPTIONS = declare_options(
    Option("api", OptionType.CHOICE, "interface; null moves no data", default="mpiio", choices=tuple(_APIS)),
    Option(
        "file", OptionType.CHOICE, "files over ranks", default="shared", choices=("shared", "per-process", "per-node")
    ),
    Option(
        "instances", OptionType.NUMBER, "groups of ranks that write separate files concurrently", default=1, minimum=1
    ),
    Option(
        "pattern",
        OptionType.CHOICE,
        "blocks of a 3-D array, one region per rank, or blocks of all ranks in turn",
        default="block3d",
        choices=("block3d", "disjoint", "interleaved"),
    ),
    Option("op", OptionType.CHOICE, "what is timed", default="write", choices=("write", "read", "both")),
    Option(
        "local",
        OptionType.SHAPE,
        "elements per rank, NXxNYxNZ (weak scaling)",
        default="128x128x128",
        minimum=1,
        dimensions=(3,),
    ),
    Option("global", OptionType.SHAPE, "elements in all, NXxNYxNZ (strong scaling)", minimum=1, dimensions=(3,)),
    Option("transfer", OptionType.SIZE, "transfer size; unset: 1m, and of block3d all in one call", minimum=1),
    Option("block", OptionType.SIZE, "block size; unset: 16m, and of interleaved one transfer", minimum=1),
    Option("segments", OptionType.NUMBER, "blocks of each rank; unset: 1, and of interleaved 16", minimum=1),
    Option("row", OptionType.SIZE, "row of two-dimensional data; 0 or unset: one-dimensional", minimum=0),
    Option(
        "access",
        OptionType.CHOICE,
        "calls; unset: collective, where there are any",
        choices=("collective", "independent"),
    ),
    Option(
        "cache",
        OptionType.CHOICE,
        "page cache; drop: before each read; direct: O_DIRECT, posix only",
        default="keep",
        choices=("keep", "drop", "direct"),
    ),
    Option(
        "sync",
        OptionType.CHOICE,
        "flush inside the timed part; true is end",
        default="none",
        choices=(True, False, "end", "each", "none"),
    ),
    Option("chunk", OptionType.SIZES, "chunk shape in elements; unset: contiguous", minimum=1),
    Option(
        "filter",
        OptionType.CHOICE,
        "compression of chunks; collective access only",
        default="none",
        choices=("none", "deflate", "szip", "zstd"),
    ),
    Option(
        "filter-level",
        OptionType.NUMBER,
        "level of deflate (1 to 9) or zstd (1 to 22); 0: the program's own",
        default=0,
        minimum=0,
        maximum=22,
    ),
    Option(
        "chunk-cache", OptionType.SIZE, "cache of chunks of each rank; 0: as the library has it", default=0, minimum=0
    ),
    Option(
        "vfd",
        OptionType.CHOICE,
        "driver of HDF5; subfiling (1.14): independent access and cache keep only",
        default="mpio",
        choices=("mpio", "subfiling"),
    ),
    Option(
        "byte-order",
        OptionType.CHOICE,
        "doubles in the file; big: HDF5 and NetCDF-4 have to convert them",
        default="native",
        choices=("native", "big"),
    ),
    Option("unlimited", OptionType.FLAG, "slowest varying dimension unlimited", default=False),
    Option("fill", OptionType.FLAG, "libraries write fill values first", default=False),
    Option("align", OptionType.SIZE, "alignment of objects of libraries; 0: none", default=0, minimum=0),
    Option("collective-metadata", OptionType.FLAG, "HDF5 metadata collectively", default=False),
    hints.DECLARATION,
    repeat_option(10, "repetitions"),
    Option("verify", OptionType.FLAG, "check every byte", default=False),
    STRIPE_COUNT,
    STRIPE_SIZE,
    RANKS,
    NODES,
    workload_cases.WORKLOAD,
    workload_cases.SET,
)

# Not program arguments: size of the job, and striping of the directory.
_PLACEMENT = {"ranks", "nodes", "stripe-count", "stripe-size"}
_NOT_ARGUMENTS = _PLACEMENT | {hints.OPTION, workload_cases.WORKLOAD.name, workload_cases.SET.name}


def _is_workload(options: Options) -> bool:
    return workload_cases.WORKLOAD.name in options


def _arguments(options: Options, scratch: str) -> list[str]:
    """Return the command line: the options of the case, its MPI-IO hints, the scratch directory and the record."""
    words: list[str] = []
    for name, value in options.items():
        if name in _NOT_ARGUMENTS or value is False:
            continue
        words.append(f"--{name}" if value is True else f"--{name}={value}")
    if _is_workload(options):
        words += workload_cases.arguments(options)
    words += [f"--hint={key}={value}" for key, value in hints.mpi_info(options).items()]
    return [*words, f"--dir={scratch}", f"--json={RECORD_FILE}"]


# Variants of the Spack package, by the value of the option `api`.
_VARIANTS = {"hdf5": "hdf5", "netcdf4": "netcdf", "pnetcdf": "pnetcdf"}
_INTERFACES = (
    benchmark.ProgramInterface("hdf5", "HDF5 interface"),
    benchmark.ProgramInterface("netcdf", "netCDF-4 interface"),
    benchmark.ProgramInterface("pnetcdf", "PnetCDF interface"),
)


def _used_interfaces(options: Options) -> tuple[str, ...]:
    """Return the variants of benchio whose interfaces a case uses."""
    apis: tuple[str, ...] = (options.text("api"),)
    if _is_workload(options):
        apis = workload_cases.plan(options).apis
    return tuple(_VARIANTS[api] for api in apis if api in _VARIANTS)


def _requires(options: Options) -> tuple[str, ...]:
    """Return the features that the stack must have: MPI, the library of the interface, filters, drivers, hints."""
    if _is_workload(options):
        return ("mpi", *workload_cases.requires(options), *hints.required_features(options))
    features = ["mpi"]
    api = options.text("api")
    if api in _LIBRARIES:
        features.append(_LIBRARIES[api])
    # Filters and the driver are features of the stack's HDF5, under the names of their options.
    if options.text("filter") != "none":
        features.append(options.text("filter"))
    if options.text("vfd") != "mpio":
        features.append(options.text("vfd"))
    return (*features, *hints.required_features(options))


def _file_bytes(options: Options) -> int:
    """Return the bytes of all files of a repetition."""
    if _is_workload(options):
        return workload_cases.plan(options).data_bytes
    if options.text("api") == "null":
        return 0
    ranks = options.number("ranks")
    if options.text("pattern") != "block3d":
        return ranks * _block_bytes(options) * _segments(options)
    if "global" in options:
        return _DOUBLE_BYTES * math.prod(options.shape("global")) * options.number("instances")
    return _DOUBLE_BYTES * math.prod(options.shape("local")) * ranks


def _block_bytes(options: Options) -> int:
    """Return the bytes of a block of a pattern without arrays: benchio's default depends on the pattern."""
    if "block" in options:
        return options.number("block")
    if options.text("pattern") == "disjoint":
        return 16 * MIB
    return options.number("transfer") if "transfer" in options else MIB


def _segments(options: Options) -> int:
    """Return the blocks of a rank in a pattern without arrays."""
    if "segments" in options:
        return options.number("segments")
    if options.text("pattern") == "disjoint":
        return 1
    return _INTERLEAVED_SEGMENTS


def _volume_bytes(options: Options) -> int:
    """Return the bytes that a run transfers, timed or not."""
    if _is_workload(options):
        return workload_cases.volume_bytes(options)
    repetitions, operation = options.number("repeat"), options.text("op")
    transfers = repetitions * len(benchmark.requested_operations(options))
    # Not timed: the file that a read needs, and the reading back of what is only written.
    if operation == "read":
        transfers += 1
    elif operation == "write" and options.flag("verify"):
        transfers += repetitions
    return _file_bytes(options) * transfers


def _printed_parameters(options: Options) -> dict[str, Scalar]:
    """Return the case parameters that the output must have: those that the suite sets."""
    if _is_workload(options):
        return workload_cases.printed_parameters(options)
    api = options.text("api")
    if api == "null":
        return {}
    parameters: dict[str, Scalar | None] = {
        "api": _APIS[api],
        "total_bytes": _file_bytes(options),
        "ranks": options.number("ranks"),
        "nodes": options.number("nodes"),
    }
    # Whatever the suite sets has to be in the record. Of numbers 0 means none.
    for parameter, option in _NUMBERS.items():
        if option in options and option not in _PLACEMENT:
            parameters[parameter] = options.number(option) or None
    for parameter, option in _WORDS.items():
        if option in options:
            parameters[parameter] = options[option]
    for parameter, option in _WHERE_UNUSUAL.items():
        if options.text(option) != _OPTIONS[option].default:
            parameters[parameter] = options.text(option)
    if "access" in options and api != "posix":
        parameters["collective"] = options.text("access") == "collective"
    if "sync" in options:
        parameters["sync"] = _SYNC[options.text("sync")]
    if "chunk" in options:
        parameters["chunk"] = "x".join(map(str, options.shape("chunk")))
    parameters |= hints.hint_parameter(options)
    if options.flag("verify"):
        parameters["verify"] = True
    return {name: value for name, value in parameters.items() if value is not None}


def _case(options: Options) -> dict[str, Scalar]:
    """Return what the record has not: requested striping, and hints as the suite writes them."""
    return {**benchmark.striping_parameters(options), **hints.hint_parameter(options)}


def _inodes(options: Options) -> int:
    """Return the number of files of all instances and roles, plus their directory."""
    if _is_workload(options):
        return 1 + workload_cases.plan(options).files
    instances = options.number("instances")
    files = {"per-process": options.number("ranks"), "per-node": options.number("nodes"), "shared": instances}
    return 1 + max(files[options.text("file")], instances)


def _expects(options: Options) -> tuple[tuple[str, str], ...]:
    if _is_workload(options):
        return workload_cases.expects(options)
    return tuple((operation, "bandwidth") for operation in benchmark.requested_operations(options))


_SUMMARY_HEADER = re.compile(
    r"benchio (\d+\.\d+\.\d+\S*): (\w+), (shared|per-process|per-node), (block3d|disjoint|interleaved)"
    r"(?:, (collective|independent))?"
)
_SIZE = re.compile(
    r"(\d{1,8}) ranks on (\d{1,8}) nodes?, \d{1,9} files?, (\d+(?:\.\d+)?) MiB (?:per|a) repetition, \d+ transfers "
    r"(?:per|a) rank"
)
_POLICIES = re.compile(r".* \(\S+\); page cache: (keep|drop|direct)(?:, achieved: (\w+))?; sync: (none|end|each)")
_SERIES = re.compile(r"(write|read)\s+MiB/s\s+seconds\s+open\s+transfer\s+sync\s+close\s+verify(?:\s+cached)?")
_ROW = re.compile(r"(\d+) +(\d+\.\d\d)((?: +\d+\.\d{6}){6})(?: +\d+\.\d%)?")
_SUMMARY = re.compile(
    r"(write|read) MiB/s: max (\d+\.\d\d), median (\d+\.\d\d), min (\d+\.\d\d), mean (\d+\.\d\d) \(n (\d+)\)"
)
_FIELDS: parsing.FieldTable = {
    "heads": (_SUMMARY_HEADER, lambda *groups: groups),
    "sizes": (_SIZE, lambda ranks, nodes, size: (int(ranks), int(nodes), float(size))),
    "policies": (_POLICIES, lambda *groups: groups),
    "summaries": (_SUMMARY, lambda operation, *numbers: (operation, *map(float, numbers))),
    "series": (_SERIES, str),
}
# Half a unit of the last printed digit of a bandwidth in MiB/s and of a time in s: the largest error of rounding.
_HALF_MIB, _HALF_SECOND = 0.005, 0.0000005
# Printed bandwidths of rows and of their summary differ by the rounding of both, at most two halves; the third one is
# for binary floating point at this limit.
_SUMMARY_TOLERANCE_MIB = 3 * _HALF_MIB
# Relative difference between a printed time and size / bandwidth beyond the rounding of both, for floating point.
_TIME_TOLERANCE = 1e-5
# Metrics of the times of a row that are stored; verification is not part of the measurement.
_TIME_METRICS = ("time", "open_time", "transfer_time", "sync_time", "close_time")


@dataclass(frozen=True, slots=True)
class _Row:
    """One repetition as the table prints it: bandwidth in MiB/s and times in s, in the order of the columns."""

    bandwidth: float
    time: float
    open_time: float
    transfer_time: float
    sync_time: float
    close_time: float
    verify_time: float


@dataclass(frozen=True, slots=True)
class _PrintedSummary:
    """The summary of an operation in MiB/s, as printed, and the number of its rows."""

    maximum: float
    median: float
    minimum: float
    mean: float
    n: float


class BenchioSummaryReader:
    """Collects the fields of the table, and the rows of each operation."""

    def __init__(self) -> None:
        self._fields: dict[str, list[Any]] = {name: [] for name in _FIELDS}
        self._rows: dict[str, list[_Row]] = {}
        self._damaged = 0

    @property
    def titles(self) -> int:
        """Number of outputs that begin."""
        return len(self._fields["heads"])

    def read(self, line: str) -> None:
        """Parse one cleaned line."""
        is_row, operations = line.startswith("      "), self._fields["series"]
        if is_row and operations:
            self._read_row(self._rows[operations[-1]], line)
        elif is_row:
            # A row before the title of its table.
            self._damaged += _ROW.fullmatch(line.strip()) is not None
        elif parsing.read_field(_FIELDS, line, self._fields) and operations:
            self._rows.setdefault(operations[-1], [])

    def _read_row(self, rows: list[_Row], line: str) -> None:
        """Append a row to those of its operation, or count it as damaged: its columns or its number are wrong."""
        match = _ROW.fullmatch(line.strip())
        if match is None:
            self._damaged += "instance" not in line
            return
        # Columns have a fixed width: a lost or an added character moves them.
        times = match[3].split()
        rebuilt = f"      {match[1]:>4} {match[2]:>12}" + "".join(f" {time:>11}" for time in times)
        if not line.startswith(rebuilt) or int(match[1]) != len(rows) + 1 or len(rows) >= parsing.MAX_ROWS:
            self._damaged += 1
            return
        rows.append(_Row(float(match[2]), *map(float, times)))

    def check(self, builder: parsing.OutputBuilder, context: parsing.RunContext) -> None:
        """Check the table and add its samples to the builder."""
        fields = self._fields
        heads, sizes, policies = fields["heads"], fields["sizes"], fields["policies"]
        if max(len(heads), len(sizes), len(policies)) > 1:
            builder.add_failure("output of more than one benchio run")
            return
        if not (heads and sizes and policies) or _APIS.get(heads[0][1], "NULL") == "NULL":
            builder.add_truncation("the header is incomplete")
            return
        damaged = self._damaged + _repeated(fields["series"]) + _repeated([row[0] for row in fields["summaries"]])
        if damaged:
            builder.add_truncation(f"{damaged} damaged or duplicate rows")
        version, api, layout, pattern, access = heads[0]
        ranks, nodes, size_mib = sizes[0]
        if not 0 < nodes <= ranks:
            builder.add_truncation("ranks and nodes contradict each other")
            return
        builder.version = version
        mismatch = context.rank_mismatch_reason(ranks, "benchio")
        if mismatch is not None:
            builder.add_failure(mismatch)
            return
        requested_cache, achieved_cache, sync = policies[0]
        case = {
            "api": _APIS[api],
            "file": layout,
            "pattern": pattern,
            "collective": access == "collective" if access else None,
            "ranks": ranks,
            "nodes": nodes,
            "total_bytes": round(size_mib * MIB),
            "cache": achieved_cache or requested_cache,
            "sync": _SYNC[sync],
        }
        summaries = {operation: _PrintedSummary(*numbers) for operation, *numbers in fields["summaries"]}
        if not self._rows or self._rows.keys() != summaries.keys():
            builder.add_truncation("the summary of an operation is missing")
        for operation in self._rows:
            if operation in summaries:
                self._check_operation(builder, operation, summaries[operation], case)

    def _check_operation(
        self, builder: parsing.OutputBuilder, operation: str, summary: _PrintedSummary, case: parsing.CaseParameters
    ) -> None:
        """Add bandwidths and times of an operation if size and summary confirm all of its rows; else a truncation.

        Args:
            operation: `write` or `read`.
            summary: of the operation, as printed below its rows.
            case: of the output; the time of a row has to be its `total_bytes` / bandwidth.
        """
        rows = self._rows[operation]
        bandwidths = [row.bandwidth for row in rows]
        size_mib = float(case["total_bytes"] or 0) / MIB
        # A bandwidth that is printed as 0.00 has no digit that its time could confirm.
        are_confirmed = 0 not in bandwidths and all(_is_row_consistent(row, size_mib) for row in rows)
        if len(rows) != summary.n or not are_confirmed:
            builder.add_truncation(f"the {operation} rows are not printed whole, or contradict size and summary")
            return
        # The rows are whole; they must be those that the program summarised.
        differences = (
            max(bandwidths) - summary.maximum,
            min(bandwidths) - summary.minimum,
            sum(bandwidths) / summary.n - summary.mean,
        )
        if max(map(abs, differences)) > _SUMMARY_TOLERANCE_MIB:
            builder.add_truncation(f"the {operation} rows do not agree with their summary")
            return
        builder.add_samples(operation, "bandwidth", bandwidths, case)
        for metric in _TIME_METRICS:
            builder.add_samples(operation, metric, [getattr(row, metric) for row in rows], case)


def _repeated(names: list[str]) -> int:
    """Return how many names are there again."""
    return len(names) - len(set(names))


def _is_row_consistent(row: _Row, size_mib: float) -> bool:
    """Return whether size / bandwidth is the printed time, within the rounding of both; the bandwidth is not 0."""
    rounding_s = _HALF_SECOND + row.time * (_HALF_MIB / row.bandwidth + _TIME_TOLERANCE)
    return abs(size_mib / row.bandwidth - row.time) <= rounding_s


# The newest form, and those that are read as well: 2 has no times of nodes.
_RECORD_SCHEMA = "benchio-record/3"
_RECORD_SCHEMAS = (_RECORD_SCHEMA, "benchio-record/2")
# A record of 100,000 repetitions has about 100 MB; larger files are not records.
_MAX_RECORD_BYTES = 1 << 28
# The schema is its first member.
_RECORD_HEAD = 200
# Relative difference between bytes and seconds x bandwidth: the record has all digits of its numbers.
_TOLERANCE = 1e-13
# Relative difference by which floating point may put a phase above what bounds it: its mean, its maximum, the time.
_PHASE_TOLERANCE = 1e-9
# The same for times of nodes, which have six digits.
_NODE_TOLERANCE = 1e-5

_PHASES = ("open", "transfer", "sync", "close")
# Metrics of single transfers -> member of `transfers` in a repetition, in ascending order.
_TRANSFER_LATENCIES = {
    "transfer_latency_median": "median_seconds",
    "transfer_latency_p99": "p99_seconds",
    "transfer_latency_max": "max_seconds",
}
# Start of the last member of a record: the number of repetitions and the SHA-256 of the text before it.
_INTEGRITY_MEMBER = ',\n  "integrity": {'

# Case parameter -> option with the same value; 0 means none.
_NUMBERS = {
    "transfer_bytes": "transfer",
    "block_bytes": "block",
    "segments": "segments",
    "row_bytes": "row",
    "stripe_count": "stripe-count",
    "stripe_bytes": "stripe-size",
    "alignment_bytes": "align",
    "filter_level": "filter-level",
    "chunk_cache_bytes": "chunk-cache",
}
# The same for options that are kept as they are.
_WORDS = {
    "file": "file",
    "pattern": "pattern",
    "instances": "instances",
    "cache": "cache",
    "unlimited": "unlimited",
    "fill": "fill",
    "local_size": "local",
    "global_size": "global",
    "collective_metadata": "collective-metadata",
}
# Case parameter -> option that a case names only where it has another value than its default.
_WHERE_UNUSUAL = {"filter": "filter", "vfd": "vfd", "byte_order": "byte-order"}
# Exceptions that a document violating the schema causes in the code below.
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, OverflowError)
# Members of the record that become facts.
_FACTS = ("started", "finished", "mpi", "libraries", "kernel", "options_hash", "filesystem", "cache", "hints")


def _check_record_text(builder: parsing.OutputBuilder, text: str, context: parsing.RunContext) -> None:
    """Check a record and add its samples to the builder."""
    try:
        record = json.loads(text)
        builder.recognised = isinstance(record, dict) and str(record.get("schema")).startswith("benchio-record/")
        if not isinstance(record, dict) or record.get("schema") not in _RECORD_SCHEMAS:
            builder.add_truncation(f"this is no record of the form '{_RECORD_SCHEMA}'")
            return
        damage = _damage(text, record)
        if damage is not None:
            builder.add_truncation(damage)
            return
        _check_record(builder, record, context)
    except json.JSONDecodeError as error:
        builder.recognised = "benchio-record/" in text[:_RECORD_HEAD]
        builder.add_truncation(f"the record is cut off or damaged (line {error.lineno}, column {error.colno})")
    except _DAMAGE as error:
        builder.drop_results()
        builder.add_truncation(f"the record is damaged: {type(error).__name__} {error}"[:200])


def _damage(text: str, record: Mapping[str, Any]) -> str | None:
    """Describe how the text differs from what benchio writes (`draft_close` in `src/record.c`); None if it does not."""
    expected = record["integrity"]
    repetitions = sum(len(operation["repetitions"]) for operation in record["operations"])
    # A workload has its repetitions of all phases together in `total`.
    repetitions += len(record.get("total", ()))
    if repetitions != expected["repetitions"]:
        return f"the record is damaged: {repetitions} of {expected['repetitions']} repetitions"
    body = text.rpartition(_INTEGRITY_MEMBER)[0]
    if hashlib.sha256(body.encode()).hexdigest() != expected["sha256"]:
        return "the record is damaged: its SHA-256 does not match its text"
    return None


def _check_record(builder: parsing.OutputBuilder, record: dict[str, Any], context: parsing.RunContext) -> None:
    """Add version, facts and samples of an undamaged record to the builder.

    A run that failed keeps the samples of what it completed; one with other ranks or a contradiction has none.
    """
    builder.version = str(record["program"]["version"])
    builder.facts.update({name: record[name] for name in _FACTS if name in record})
    builder.facts["run_id"] = record["options"].get("run-id")
    builder.facts["hosts"] = [host["name"] for host in record.get("hosts", [])]
    if record["status"] != "ok" or record["failure"] is not None:
        builder.add_failure(f"benchio failed: {_failure_reason(record)}")
        # It failed before it moved any data.
        if "geometry" not in record:
            return
    if not _placement_agrees(record) or ("workload" not in record and not _geometry_agrees(record)):
        builder.add_truncation("options and geometry contradict each other")
        return
    mismatch = context.rank_mismatch_reason(record["geometry"]["ranks"], "benchio")
    if mismatch is not None:
        builder.add_failure(mismatch)
        return
    verification = record.get("verification", {})
    if verification.get("bytes_different", 0) != 0:
        builder.add_failure("data differ from what was written")
    elif record["options"]["verify"] and builder.has_no_problem and not verification.get("bytes_checked"):
        builder.add_failure("verification was requested, but no byte was verified")
    if "workload" in record:
        workload_cases.check_record(builder, record, _workload_case(record))
    else:
        _check_operations(builder, record)


def _failure_reason(record: Mapping[str, Any]) -> str:
    """Return what benchio says about its failure, each part once."""
    failure = record["failure"] or {}
    texts: list[str] = []
    for name in ("message", "operation", "path", "text"):
        text = str(failure.get(name, ""))
        if text and text not in texts:
            texts.append(text)
    return ": ".join(texts) or "no reason given"


def _placement_agrees(record: Mapping[str, Any]) -> bool:
    """Return whether the ranks and nodes of the geometry are those of the hosts."""
    geometry, hosts = record["geometry"], record["hosts"]
    ranks = sum(host["ranks"] for host in hosts)
    return bool(len(record["node_of_rank"]) == geometry["ranks"] == ranks and len(hosts) == geometry["nodes"])


def _workload_case(record: Mapping[str, Any]) -> parsing.CaseParameters:
    """Return the case parameters that all phases of a workload have in common."""
    options, geometry = record["options"], record["geometry"]
    return {
        "ranks": geometry["ranks"],
        "nodes": geometry["nodes"],
        "stripe_count": options.get("stripe-count") or None,
        "stripe_bytes": options.get("stripe-size") or None,
        "hints": hints.parameter_of_info(hints_in_force(record)),
        "cache": record["cache"]["achieved"],
        "verify": options["verify"] or None,
    }


def _geometry_agrees(record: Mapping[str, Any]) -> bool:
    """Return whether the bytes per repetition are those of the options; without an array only that there are some."""
    geometry, options, ranks = record["geometry"], record["options"], record["geometry"]["ranks"]
    if geometry["instances"] != options["instances"]:
        return False
    size = geometry["bytes_per_repetition"]
    if options["pattern"] != "block3d":
        return bool(size > 0)
    if options["global"] is not None:
        return bool(size == options["instances"] * _elements(options["global"]) * _DOUBLE_BYTES)
    return bool(size == ranks * _elements(options["local"]) * _DOUBLE_BYTES)


def _elements(shape: str) -> int:
    """Return the elements of a shape as a record has it: `128x128x128`."""
    return math.prod(int(length) for length in shape.split("x"))


def _record_case(record: Mapping[str, Any]) -> parsing.CaseParameters:
    """Return the case parameters of a record without a workload; None for those that it has not."""
    options, geometry = record["options"], record["geometry"]
    api = options["api"]
    case: dict[str, Scalar | None] = {
        "api": _APIS[api],
        "file": options["file"],
        "pattern": options["pattern"],
        "ranks": geometry["ranks"],
        "nodes": geometry["nodes"],
        "instances": geometry["instances"],
        "total_bytes": geometry["bytes_per_repetition"],
        "chunk": options["chunk"],
        "hints": hints.parameter_of_info(hints_in_force(record)),
        "cache": record["cache"]["achieved"],
        "sync": _SYNC[options["sync"]],
        "verify": options["verify"] or None,
    }
    for parameter, option in _NUMBERS.items():
        case[parameter] = options.get(option) or None
    # Records of earlier releases have none of these.
    for parameter, option in _WHERE_UNUSUAL.items():
        value = options.get(option)
        case[parameter] = None if value == _OPTIONS[option].default else value
    # What follows has a meaning for some patterns and interfaces only.
    if options["pattern"] == "block3d":
        case["local_size"], case["global_size"] = options["local"], options["global"]
    if api not in ("posix", "null"):
        case["collective"] = options["access"] == "collective"
    if api in ("hdf5", "netcdf4"):
        case["layout"] = "chunked" if options["chunk"] else "contiguous"
        case["unlimited"], case["fill"] = options["unlimited"], options["fill"]
    if api == "hdf5":
        case["collective_metadata"] = options["collective-metadata"]
    return case


def hints_in_force(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the requested hints; where the record has those of an open file, only those that it has."""
    requested, open_file = record["options"]["hint"], record["hints"]
    if open_file["source"] is None:
        return dict(requested)
    return {key: value for key, value in requested.items() if open_file["effective"].get(key) == value}


def _check_operations(builder: parsing.OutputBuilder, record: Mapping[str, Any]) -> None:
    """Add the operations of a record without a workload."""
    requested = record["options"]["op"]
    expected = ["write", "read"] if requested == "both" else [requested]
    names = [operation["operation"] for operation in record["operations"]]
    # A run that failed may end between the operations.
    if names != expected[: len(names)] or (len(names) < len(expected) and builder.has_no_problem):
        builder.add_truncation(f"operations {', '.join(names) or 'none'} instead of {', '.join(expected)}")
    case = _record_case(record)
    if record["schema"] == _RECORD_SCHEMA:
        _check_nodes(builder, record)
    reorder = "constant" if record["geometry"]["read_shift"] else "none"
    for operation in record["operations"]:
        case_of_operation = {**case, "reorder": reorder} if operation["operation"] == "read" else case
        _check_operation(builder, operation, record["options"]["repeat"], case_of_operation)


def _check_nodes(builder: parsing.OutputBuilder, record: Mapping[str, Any]) -> None:
    """Add the times of the nodes as a fact, or a truncation if they contradict the hosts or the rest of an operation.

    They are no results: a series per node would be many, and only differences between the nodes of one run matter.
    """
    names = [host["name"] for host in record["hosts"]]
    times_by_operation: dict[str, Any] = {}
    for operation in record["operations"]:
        name, sizes, repetitions = operation["operation"], operation["node_bytes"], operation["repetitions"]
        are_consistent = all(_are_nodes_consistent(repetition, len(names)) for repetition in repetitions)
        if len(sizes) != len(names) or sum(sizes) != operation["bytes"] or not are_consistent:
            builder.add_truncation(f"{name}: bytes or times of nodes contradict the hosts, or those of all nodes")
            continue
        # There are none where each call waits for other ranks.
        times_of_repetitions = [repetition["nodes"]["own_seconds"] for repetition in repetitions]
        if None in times_of_repetitions:
            continue
        node_times = reduce_node_times(names, sizes, times_of_repetitions)
        if node_times is not None:
            times_by_operation[name] = node_times.to_json()
    if times_by_operation:
        builder.facts[NODE_TIMES_FACT] = times_by_operation


def _are_nodes_consistent(repetition: Mapping[str, Any], count: int) -> bool:
    """Return whether a repetition has times of so many nodes, none of them longer than that of all nodes."""
    nodes = repetition["nodes"]
    seconds, own_seconds = nodes["seconds"], nodes["own_seconds"]
    if len(seconds) != count or (own_seconds is not None and len(own_seconds) != count):
        return False
    limit = repetition["seconds"] * (1 + _NODE_TOLERANCE)
    # Calls of a rank are a part of its time, and its time a part of that of its node.
    return all(0 <= time <= limit for time in (*seconds, *(own_seconds or ())))


def _check_operation(
    builder: parsing.OutputBuilder, operation: Mapping[str, Any], requested: int, case: parsing.CaseParameters
) -> None:
    """Add the repetitions of an operation that agree with their own bytes, and a truncation if any do not.

    Nothing is added if the operation moved other bytes per repetition than the case.

    Args:
        operation: its record.
        requested: number of repetitions that were asked for.
        case: of the record.
    """
    name, size, repetitions = operation["operation"], operation["bytes"], operation["repetitions"]
    # The interface NULL moves no data: it has times, but no bandwidth.
    has_files = case["api"] != "NULL"
    consistent = [repetition for repetition in repetitions if _is_consistent(repetition, size, has_files)]
    if size != case["total_bytes"] or len(consistent) < len(repetitions):
        builder.add_truncation(f"{name}: repetitions contradict their own bytes, time and bandwidth")
    # The number says nothing about a run that failed or whose record is damaged.
    if len(repetitions) < requested and builder.has_no_problem:
        builder.add_truncation(f"{name}: {len(repetitions)} of {requested} repetitions")
    if size != case["total_bytes"]:
        return
    if has_files:
        bandwidths = [repetition["bandwidth_bytes_per_second"] / MIB for repetition in consistent]
        builder.add_samples(name, "bandwidth", bandwidths, case)
    builder.add_samples(name, "time", [repetition["seconds"] for repetition in consistent], case)
    for phase in _PHASES:
        times = [repetition["phases"][phase]["max"] for repetition in consistent]
        builder.add_samples(name, f"{phase}_time", times, case)
    # Records of earlier releases have no times of transfers.
    if all("transfers" in repetition for repetition in consistent):
        _check_transfers(builder, name, consistent, case)


def _check_transfers(
    builder: parsing.OutputBuilder, name: str, repetitions: list[Mapping[str, Any]], case: parsing.CaseParameters
) -> None:
    """Add the times of single transfers where there are enough for a percentile; a truncation if they contradict.

    Args:
        name: of the operation.
        repetitions: those that are consistent.
        case: of the record.
    """
    if not all(_are_transfers_consistent(repetition) for repetition in repetitions):
        builder.add_truncation(f"{name}: times of transfers contradict each other, or those of the repetition")
        return
    if any(repetition["transfers"]["count"] < parsing.LEAST_TRANSFERS for repetition in repetitions):
        return
    for metric, member in _TRANSFER_LATENCIES.items():
        times = [repetition["transfers"][member] for repetition in repetitions]
        builder.add_samples(name, metric, times, case)


def _are_transfers_consistent(repetition: Mapping[str, Any]) -> bool:
    """Return whether times of transfers ascend from median to longest, none longer than the repetition."""
    transfers = repetition["transfers"]
    median, p99, longest = (transfers[member] for member in _TRANSFER_LATENCIES.values())
    # Times of transfers are written with six digits.
    limit = repetition["seconds"] * (1 + _NODE_TOLERANCE)
    return bool(transfers["count"] >= 0 and 0 <= median <= p99 <= longest <= limit)


def _is_consistent(repetition: Mapping[str, Any], size: int, has_files: bool) -> bool:
    """Return whether no phase exceeds the time of the repetition, and time x bandwidth is the size."""
    seconds, bandwidth = repetition["seconds"], repetition["bandwidth_bytes_per_second"]
    for phase in _PHASES:
        spread = repetition["phases"][phase]
        # The ranks' minimum, mean and maximum; the mean is compared with an upper limit of itself, hence twice.
        upper_mean = spread["mean"] * (1 + _PHASE_TOLERANCE)
        if not 0 <= spread["min"] <= upper_mean <= spread["max"] * (1 + 2 * _PHASE_TOLERANCE):
            return False
        if spread["max"] > seconds * (1 + _PHASE_TOLERANCE):
            return False
    if not 0 < seconds < math.inf:
        return False
    if bandwidth is None:
        return not has_files
    return math.isclose(seconds * bandwidth, size, rel_tol=_TOLERANCE)


_SIGNATURES = (
    parsing.FailureSignature(r"(?:Open|View|Write|Read|Close|Sync) error on rank", "MPI-IO reports an error"),
    parsing.FailureSignature(r"^ ?(?:Illegal|ERROR:|Invalid)", "benchio reports an error"),
    parsing.FailureSignature(r"^benchio: (?!warning|[\w-]+ \d+ of \d+: )", "benchio reports an error"),
)


# Lines that identify the original benchio, from any part of its output.
_ORIGINAL = re.compile(
    r"Simple Parallel IO|time =|rate =|Running on|Node number|(?:Process grid|Array size|Global size) is"
    r"|Total amount|Writing to|Deleting:|Using the following|^ *Finished"
)


def parse_benchio(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse an output of benchio: the JSON record, the table, or the table of the original benchio."""
    reader: Any = None
    stream = iter(lines)
    for line in stream:
        if not isinstance(reader, BenchioSummaryReader):
            if line.lstrip().startswith("{"):
                _check_record_text(builder, _read_json_document(line, stream), context)
                return
            if _SUMMARY_HEADER.fullmatch(line):
                reader = BenchioSummaryReader()
            elif reader is None and _ORIGINAL.search(line):
                reader = _original_reader()
        if reader is not None:
            reader.read(line)
            lines.decided = reader.titles > 1
    (reader or _original_reader()).check(builder, context)


def _original_reader() -> Any:
    """Return a reader for the original's table; the importer is loaded on demand, because no session writes one."""
    from iowatch.benchmarks.benchio_table import BenchioTable

    return BenchioTable()


def _read_json_document(first: str, lines: Iterator[str]) -> str:
    """Return a JSON document, given its first line; truncated if it is larger than any record."""
    document_lines, size = [first], 0
    for line in lines:
        size += len(line)
        if size > _MAX_RECORD_BYTES:
            break
        document_lines.append(line)
    return "\n".join(document_lines).encode("latin-1", "replace").decode("utf-8", "replace")


BENCHIO = benchmark.Benchmark(
    name="benchio",
    title="benchio",
    check="BenchioCheck",
    parse=parse_benchio,
    signatures=_SIGNATURES,
    banner=r"Simple Parallel IO benchmark",
    package="benchio",
    # A benchio that the check builds has the libraries of its stack.
    interfaces=_INTERFACES,
    uses=_used_interfaces,
    options=_OPTIONS,
    program=lambda _options: "benchio",
    arguments=_arguments,
    requires=_requires,
    expects=_expects,
    samples=benchmark.repetitions,
    shows=_printed_parameters,
    file_bytes=_file_bytes,
    volume_bytes=_volume_bytes,
    results=(RECORD_FILE,),
    case=_case,
    environment=hints.job_environment,
    inodes=_inodes,
    run_id=lambda identifier: [f"--run-id={identifier}"],
)
