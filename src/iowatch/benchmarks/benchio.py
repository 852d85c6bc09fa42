"""benchio, the project's own benchmark (benchmarks/benchio, docs/benchio.md): options and parser.

Parses its JSON record (`benchio-record/2`, `schema/record.schema.json`), the table on its standard output
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
from typing import Any

from iowatch.benchmarks import benchmark, hints, parsing, workload_cases
from iowatch.core import MIB, InputError, Scalar, parse_size

_OPTIONS = {
    "api": "posix, mpiio, hdf5, netcdf4, pnetcdf or null",
    "file": "shared, per-process or per-node",
    "instances": "groups of ranks that write separate files concurrently",
    "pattern": "block3d, disjoint or interleaved",
    "op": "write, read or both",
    "local": "elements per rank, NXxNYxNZ (weak scaling)",
    "global": "elements in all, NXxNYxNZ (strong scaling)",
    "transfer": "transfer size in bytes",
    "block": "block size in bytes",
    "segments": "segments",
    "row": "row of two-dimensional data in bytes",
    "access": "collective or independent",
    "cache": "keep, drop or direct",
    "sync": "flush inside the timed part: true or end, each, none",
    "chunk": "chunk shape in elements",
    "filter": "compression of chunks: deflate, szip or zstd; collective access only",
    "filter-level": "level of deflate (1 to 9) or zstd (1 to 22)",
    "chunk-cache": "cache of chunks of each rank in bytes",
    "vfd": "subfiling: HDF5's subfiling driver (1.14); independent access and cache keep only",
    "byte-order": "big: doubles in the file that HDF5 and NetCDF-4 have to convert",
    "unlimited": "slowest varying dimension unlimited",
    "fill": "libraries write fill values first",
    "align": "libraries align objects to this many bytes",
    "collective-metadata": "HDF5 metadata collectively",
    hints.OPTION: hints.DESCRIPTION,
    "repeat": "repetitions",
    "verify": "check every byte",
    "stripe-count": "Lustre stripe count of the directory, -1 for all",
    "stripe-size": "Lustre stripe size of the directory in bytes",
    "ranks": "MPI processes",
    "nodes": "nodes",
    **workload_cases.OPTIONS,
}

# Not program arguments: size of the job, and striping of the directory.
_PLACEMENT = {"ranks", "nodes", "stripe-count", "stripe-size"}
_NOT_ARGUMENTS = _PLACEMENT | {hints.OPTION, *workload_cases.OPTIONS}
_DOUBLE_BYTES = 8
RECORD_FILE = "benchio.json"
_APIS = {
    **{"posix": "POSIX", "mpiio": "MPIIO", "hdf5": "HDF5"},
    **{"netcdf4": "NETCDF4", "pnetcdf": "PNETCDF", "null": "NULL"},
}
_SYNC: dict[str, Scalar] = {"none": False, "end": True, "each": "each"}


def _arguments(options: benchmark.BenchmarkOptions, place: str) -> list[str]:
    given = {name: value for name, value in options.items() if name not in _NOT_ARGUMENTS and value is not False}
    words = [f"--{name}" if value is True else f"--{name}={value}" for name, value in given.items()]
    if "workload" in options:
        words += workload_cases.arguments(options)
    words += [f"--hint={key}={value}" for key, value in hints.mpi_info(options).items()]
    return [*words, f"--dir={place}", f"--json={RECORD_FILE}"]


def _requires(options: benchmark.BenchmarkOptions) -> tuple[str, ...]:
    if "workload" in options:
        return ("mpi", *workload_cases.requires(options), *hints.required_features(options))
    library = {"hdf5": "hdf5", "netcdf4": "netcdf4", "pnetcdf": "pnetcdf"}.get(str(options.get("api")))
    chosen = [str(options[name]) for name in ("filter", "vfd") if options.get(name, "none") not in ("none", "mpio")]
    if wrong := set(chosen) - {"deflate", "szip", "zstd", "subfiling"}:
        raise InputError(f"unknown: {', '.join(sorted(wrong))}")
    return ("mpi", *((library,) if library else ()), *chosen, *hints.required_features(options))


def _file_bytes(options: benchmark.BenchmarkOptions) -> int:
    if "workload" in options:
        return workload_cases.plan(options).data_bytes
    if str(options.get("api")) == "null":
        return 0
    ranks = benchmark.integer_option(options, "ranks", 1)
    if options.get("pattern", "block3d") != "block3d":
        # benchio's defaults: one block of 16 MiB, or 16 interleaved blocks of one transfer.
        interleaved = options["pattern"] == "interleaved"
        block = benchmark.size_option(options, "block", str(options.get("transfer", "1m")) if interleaved else "16m")
        return ranks * block * benchmark.integer_option(options, "segments", 16 if interleaved else 1)
    if "global" in options:
        return _DOUBLE_BYTES * _elements(str(options["global"])) * benchmark.integer_option(options, "instances", 1)
    return _DOUBLE_BYTES * _elements(str(options.get("local", "128x128x128"))) * ranks


def _elements(shape: str) -> int:
    return math.prod(int(n) for n in shape.split("x"))


def _volume_bytes(options: benchmark.BenchmarkOptions) -> int:
    if "workload" in options:
        return workload_cases.volume_bytes(options)
    repetitions = benchmark.integer_option(options, "repeat", 10)
    transfers = repetitions * len(benchmark.requested_operations(options))
    # Not timed: the file that a read needs, and the reading back of what is only written.
    if options.get("op") == "read":
        transfers += 1
    elif options.get("verify") and options.get("op") != "both":
        transfers += repetitions
    return _file_bytes(options) * transfers


def _printed_parameters(options: benchmark.BenchmarkOptions) -> dict[str, Scalar]:
    if "workload" in options:
        return workload_cases.printed_parameters(options)
    api = str(options.get("api", "mpiio"))
    if api == "null":
        return {}
    sizes = {name: option for name, option in _NUMBERS.items() if option in options and option not in _PLACEMENT}
    words = {name: option for name, option in _WORDS.items() if option in options}
    access = {"collective": True, "independent": False}.get(str(options.get("access")))
    asked: dict[str, Scalar | None] = {
        "api": _APIS[api],
        "total_bytes": _file_bytes(options),
        "ranks": benchmark.integer_option(options, "ranks", 1),
        "nodes": benchmark.integer_option(options, "nodes", 1),
        **{name: benchmark.size_option(options, option, "0") or None for name, option in sizes.items()},
        **{name: options[option] for name, option in words.items()},
        **{name: options[option] for name, (option, usual) in _USUAL.items() if options.get(option, usual) != usual},
        "collective": access if api != "posix" else None,
        "sync": _SYNC.get(str(options["sync"]), options["sync"]) if "sync" in options else None,
        "chunk": "x".join(str(parse_size(n)) for n in str(options["chunk"]).split("x")) if "chunk" in options else None,
        **hints.hint_parameter(options),
        "verify": options.get("verify") or None,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _inodes(options: benchmark.BenchmarkOptions) -> int:
    """Return the number of files of all instances and roles, plus their directory."""
    if "workload" in options:
        return 1 + workload_cases.plan(options).files
    files = {"per-process": "ranks", "per-node": "nodes"}.get(str(options.get("file")), "instances")
    return 1 + max(benchmark.integer_option(options, files, 1), benchmark.integer_option(options, "instances", 1))


def _expects(options: benchmark.BenchmarkOptions) -> tuple[tuple[str, str], ...]:
    if "workload" in options:
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
_PLACE = re.compile(r".* \(\S+\); page cache: (keep|drop|direct)(?:, achieved: (\w+))?; sync: (none|end|each)")
_SERIES = re.compile(r"(write|read)\s+MiB/s\s+seconds\s+open\s+transfer\s+sync\s+close\s+verify(?:\s+cached)?")
_ROW = re.compile(r"(\d+) +(\d+\.\d\d)((?: +\d+\.\d{6}){6})(?: +\d+\.\d%)?")
_SUMMARY = re.compile(
    r"(write|read) MiB/s: max (\d+\.\d\d), median (\d+\.\d\d), min (\d+\.\d\d), mean (\d+\.\d\d) \(n (\d+)\)"
)
_FIELDS: parsing.FieldTable = {
    "heads": (_SUMMARY_HEADER, lambda *groups: groups),
    "sizes": (_SIZE, lambda ranks, nodes, size: (int(ranks), int(nodes), float(size))),
    "places": (_PLACE, lambda *groups: groups),
    "summaries": (_SUMMARY, lambda operation, *numbers: (operation, *map(float, numbers))),
    "series": (_SERIES, str),
}
_HALF_MIB, _HALF_SECOND = 0.005, 0.0000005


class BenchioSummaryReader:
    """Collects the fields of the table, and the rows of each operation."""

    def __init__(self) -> None:
        self._found: dict[str, list[Any]] = {name: [] for name in _FIELDS}
        self._rows: dict[str, list[tuple[float, ...]]] = {}
        self._damaged = 0

    @property
    def titles(self) -> int:
        """Number of outputs that begin."""
        return len(self._found["heads"])

    def read(self, line: str) -> None:
        """Parse one cleaned line."""
        indented, series = line.startswith("      "), self._found["series"]
        if indented and series:
            self._read_row(self._rows[series[-1]], line)
        elif indented:
            self._damaged += _ROW.fullmatch(line.strip()) is not None
        elif parsing.read_field(_FIELDS, line, self._found) and series:
            self._rows.setdefault(series[-1], [])

    def _read_row(self, rows: list[tuple[float, ...]], line: str) -> None:
        match = _ROW.fullmatch(line.strip())
        if match is None:
            self._damaged += "instance" not in line
            return
        times = match[3].split()
        rebuilt = f"      {match[1]:>4} {match[2]:>12}" + "".join(f" {time:>11}" for time in times)
        if not line.startswith(rebuilt) or int(match[1]) != len(rows) + 1 or len(rows) >= parsing.MAX_ROWS:
            self._damaged += 1
            return
        rows.append((float(match[2]), *map(float, times)))

    def check(self, builder: parsing.OutputBuilder, context: parsing.RunContext) -> None:
        """Check the table and add its samples to the builder."""
        found = self._found
        heads, sizes, places = found["heads"], found["sizes"], found["places"]
        if max(len(heads), len(sizes), len(places)) > 1:
            builder.add_failure("output of more than one benchio run")
            return
        if not (heads and sizes and places) or _APIS.get(heads[0][1], "NULL") == "NULL":
            builder.add_truncation("the header is incomplete")
            return
        doubled = sum(len(names) - len(set(names)) for names in ([s[0] for s in found["summaries"]], found["series"]))
        if self._damaged + doubled:
            builder.add_truncation(f"{self._damaged + doubled} damaged or duplicate rows")
        (version, api, layout, pattern, access), (ranks, nodes, size) = heads[0], sizes[0]
        if not 0 < nodes <= ranks:
            builder.add_truncation("ranks and nodes contradict each other")
            return
        builder.version = version
        if others := context.rank_mismatch_reason(ranks, "benchio"):
            builder.add_failure(others)
            return
        requested, achieved, sync = places[0]
        case = {
            "api": _APIS[api],
            "file": layout,
            "pattern": pattern,
            "collective": access == "collective" if access else None,
            "ranks": ranks,
            "nodes": nodes,
            "total_bytes": round(size * MIB),
            "cache": achieved or requested,
            "sync": _SYNC[sync],
        }
        summaries = {name: numbers for name, *numbers in found["summaries"]}
        if not self._rows or self._rows.keys() != summaries.keys():
            builder.add_truncation("the summary of an operation is missing")
        for operation in [name for name in self._rows if name in summaries]:
            self._keep(builder, operation, summaries[operation], case)

    def _keep(
        self, builder: parsing.OutputBuilder, operation: str, summary: list[float], case: parsing.CaseParameters
    ) -> None:
        rows, (high, _, low, mean, n) = self._rows[operation], summary
        size = float(case["total_bytes"] or 0) / MIB
        # size / bandwidth is the printed time, within the rounding of both
        agree = all(abs(size / r - s) <= _HALF_SECOND + s * (_HALF_MIB / r + 1e-5) for r, s, *_ in rows if r)
        values = [row[0] for row in rows]
        if len(rows) != n or 0 in values or not agree:
            builder.add_truncation(f"the {operation} rows are not printed whole, or contradict size and summary")
        elif max(abs(max(values) - high), abs(min(values) - low), abs(sum(values) / n - mean)) > 3 * _HALF_MIB:
            builder.add_truncation(f"the {operation} rows do not agree with their summary")
        else:
            builder.add_samples(operation, "bandwidth", values, case)
            names = ("time", "open_time", "transfer_time", "sync_time", "close_time")
            for position, metric in enumerate(names, 1):
                builder.add_samples(operation, metric, [row[position] for row in rows], case)


_RECORD_SCHEMA = "benchio-record/2"
# A record of 100,000 repetitions has about 100 MB; larger files are not records.
_MAX_RECORD_BYTES = 1 << 28
# The schema is its first member.
_RECORD_HEAD = 200
_TOLERANCE = 1e-13

_PHASES = ("open", "transfer", "sync", "close")
# Start of the member with the digest, which covers everything before it.
_LAST_MEMBER = ',\n  "integrity": {'

# Case parameter -> option with the same value; 0 means none.
_NUMBERS = {
    **{"transfer_bytes": "transfer", "block_bytes": "block", "segments": "segments", "row_bytes": "row"},
    **{"stripe_count": "stripe-count", "stripe_bytes": "stripe-size", "alignment_bytes": "align"},
    **{"filter_level": "filter-level", "chunk_cache_bytes": "chunk-cache"},
}
# The same for options that are kept as they are.
_WORDS = {
    **{name: name for name in ("file", "pattern", "instances", "cache", "unlimited", "fill")},
    **{"local_size": "local", "global_size": "global", "collective_metadata": "collective-metadata"},
}
# Case parameter -> option that a case names only where it has another value.
_USUAL = {"filter": ("filter", "none"), "vfd": ("vfd", "mpio"), "byte_order": ("byte-order", "native")}
# Exceptions that a document violating the schema causes in the code below.
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, OverflowError)
_FACTS = (*("started", "finished", "mpi", "libraries", "kernel", "options_hash"), *("filesystem", "cache", "hints"))


def _check_record_text(builder: parsing.OutputBuilder, text: str, context: parsing.RunContext) -> None:
    """Check a record and add its samples to the builder."""
    try:
        record = json.loads(text)
        builder.recognised = isinstance(record, dict) and str(record.get("schema")).startswith("benchio-record/")
        if not isinstance(record, dict) or record.get("schema") != _RECORD_SCHEMA:
            builder.add_truncation(f"this is no record of the form '{_RECORD_SCHEMA}'")
        elif damage := _damage(text, record):
            builder.add_truncation(damage)
        else:
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
    found = sum(len(operation["repetitions"]) for operation in record["operations"]) + len(record.get("total", ()))
    if found != expected["repetitions"]:
        return f"the record is damaged: {found} of {expected['repetitions']} repetitions"
    body = text.rpartition(_LAST_MEMBER)[0]
    if hashlib.sha256(body.encode()).hexdigest() != expected["sha256"]:
        return "the record is damaged: its SHA-256 does not match its text"
    return None


def _check_record(builder: parsing.OutputBuilder, record: dict[str, Any], context: parsing.RunContext) -> None:
    builder.version = str(record["program"]["version"])
    builder.facts.update({name: record[name] for name in _FACTS if name in record})
    builder.facts["run_id"] = record["options"].get("run-id")
    builder.facts["hosts"] = [host["name"] for host in record.get("hosts", [])]
    failure = record["failure"]
    if record["status"] != "ok" or failure is not None:
        words = [str((failure or {}).get(name, "")) for name in ("message", "operation", "path", "text")]
        reported = ": ".join(dict.fromkeys(filter(None, words))) or "no reason given"
        builder.add_failure(f"benchio failed: {reported}")
        if "geometry" not in record:
            return
    if not _placement_agrees(record) or ("workload" not in record and not _geometry_agrees(record)):
        builder.add_truncation("options and geometry contradict each other")
        return
    ranks = record["geometry"]["ranks"]
    if others := context.rank_mismatch_reason(ranks, "benchio"):
        builder.add_failure(others)
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


def _placement_agrees(record: Mapping[str, Any]) -> bool:
    geometry, hosts = record["geometry"], record["hosts"]
    ranks = sum(host["ranks"] for host in hosts)
    return bool(len(record["node_of_rank"]) == geometry["ranks"] == ranks and len(hosts) == geometry["nodes"])


def _workload_case(record: Mapping[str, Any]) -> parsing.CaseParameters:
    options, geometry = record["options"], record["geometry"]
    return {
        **{name: geometry[name] for name in ("ranks", "nodes")},
        **{name: options.get(option) or None for name, option in _NUMBERS.items() if option in _PLACEMENT},
        "hints": hints.parameter_of_info(hints_in_force(record)),
        "cache": record["cache"]["achieved"],
        "verify": options["verify"] or None,
    }


def _geometry_agrees(record: Mapping[str, Any]) -> bool:
    geometry, options, ranks = record["geometry"], record["options"], record["geometry"]["ranks"]
    if geometry["instances"] != options["instances"]:
        return False
    size = geometry["bytes_per_repetition"]
    if options["pattern"] != "block3d":
        return bool(size > 0)
    if options["global"] is not None:
        return bool(size == options["instances"] * _elements(options["global"]) * _DOUBLE_BYTES)
    return bool(size == ranks * _elements(options["local"]) * _DOUBLE_BYTES)


def _record_case(record: Mapping[str, Any]) -> parsing.CaseParameters:
    options, geometry = record["options"], record["geometry"]
    api, pattern = options["api"], options["pattern"]
    library, block3d = api in ("hdf5", "netcdf4"), pattern == "block3d"
    return {
        "api": _APIS[api],
        "file": options["file"],
        "pattern": pattern,
        "collective": options["access"] == "collective" if api not in ("posix", "null") else None,
        **{name: geometry[name] for name in ("ranks", "nodes", "instances")},
        "local_size": options["local"] if block3d else None,
        "global_size": options["global"] if block3d else None,
        "total_bytes": geometry["bytes_per_repetition"],
        **{name: options.get(option) or None for name, option in _NUMBERS.items()},
        # Records of earlier releases have neither.
        **{
            name: value if (value := options.get(option)) != usual else None for name, (option, usual) in _USUAL.items()
        },
        "layout": ("chunked" if options["chunk"] else "contiguous") if library else None,
        "chunk": options["chunk"],
        "unlimited": options["unlimited"] if library else None,
        "fill": options["fill"] if library else None,
        "collective_metadata": options["collective-metadata"] if api == "hdf5" else None,
        "hints": hints.parameter_of_info(hints_in_force(record)),
        "cache": record["cache"]["achieved"],
        "sync": _SYNC[options["sync"]],
        "verify": options["verify"] or None,
    }


def hints_in_force(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the requested hints; where the record has those of an open file, only those that it has."""
    asked, found = record["options"]["hint"], record["hints"]
    return {k: v for k, v in asked.items() if found["source"] is None or found["effective"].get(k) == v}


def _check_operations(builder: parsing.OutputBuilder, record: Mapping[str, Any]) -> None:
    expected = {"both": ["write", "read"]}.get(record["options"]["op"], [record["options"]["op"]])
    found = [operation["operation"] for operation in record["operations"]]
    if found != expected[: len(found)] or (len(found) < len(expected) and builder.has_no_problem):
        builder.add_truncation(f"operations {', '.join(found) or 'none'} instead of {', '.join(expected)}")
    common = _record_case(record)
    reorder, no_files = "constant" if record["geometry"]["read_shift"] else "none", common["api"] == "NULL"
    requested = record["options"]["repeat"]
    for operation in record["operations"]:
        name, size, repetitions = operation["operation"], operation["bytes"], operation["repetitions"]
        case = {**common, "reorder": reorder} if name == "read" else common
        consistent = [r for r in repetitions if _is_repetition_consistent(r, size, no_files)]
        if size != case["total_bytes"] or len(consistent) < len(repetitions):
            builder.add_truncation(f"{name}: repetitions contradict their own bytes, time and bandwidth")
        if len(repetitions) < requested and builder.has_no_problem:
            builder.add_truncation(f"{name}: {len(repetitions)} of {requested} repetitions")
        if size != case["total_bytes"]:
            continue
        if not no_files:
            builder.add_samples(name, "bandwidth", [r["bandwidth_bytes_per_second"] / MIB for r in consistent], case)
        builder.add_samples(name, "time", [r["seconds"] for r in consistent], case)
        for phase in _PHASES:
            builder.add_samples(name, f"{phase}_time", [r["phases"][phase]["max"] for r in consistent], case)


def _is_repetition_consistent(repetition: Mapping[str, Any], size: int, no_files: bool) -> bool:
    seconds, bandwidth = repetition["seconds"], repetition["bandwidth_bytes_per_second"]
    spreads = [repetition["phases"][phase] for phase in _PHASES]
    ordered = all(0 <= s["min"] <= s["mean"] * (1 + 1e-9) <= s["max"] * (1 + 2e-9) for s in spreads)
    inside = all(s["max"] <= seconds * (1 + 1e-9) for s in spreads)
    if not (ordered and inside and 0 < seconds < math.inf):
        return False
    return no_files if bandwidth is None else math.isclose(seconds * bandwidth, size, rel_tol=_TOLERANCE)


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
    kept, size = [first], 0
    for line in lines:
        size += len(line)
        if size > _MAX_RECORD_BYTES:
            break
        kept.append(line)
    return "\n".join(kept).encode("latin-1", "replace").decode("utf-8", "replace")


BENCHIO = benchmark.Benchmark(
    name="benchio",
    title="benchio",
    check="BenchioCheck",
    parse=parse_benchio,
    signatures=_SIGNATURES,
    banner=r"Simple Parallel IO benchmark",
    package="benchio",
    options=_OPTIONS,
    program=lambda _options: "benchio",
    arguments=_arguments,
    requires=_requires,
    expects=_expects,
    samples=lambda options: benchmark.integer_option(options, "repeat", 10),
    shows=_printed_parameters,
    file_bytes=_file_bytes,
    volume_bytes=_volume_bytes,
    results=(RECORD_FILE,),
    case=lambda options: {**benchmark.striping_parameters(options), **hints.hint_parameter(options)},
    environment=hints.job_environment,
    inodes=_inodes,
    run_id=lambda identifier: [f"--run-id={identifier}"],
)
