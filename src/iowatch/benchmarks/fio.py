"""fio (https://github.com/axboe/fio): one process writes and reads one file past the page cache, as a disk baseline.

Not a general parser of fio: it reads the JSON of fio 3 for the two jobs of this module, `write` and `read`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from iowatch.benchmarks import benchmark, parsing
from iowatch.core import MIB, InputError, Scalar, parse_json

_OPTIONS = {
    "total": "size of the file",
    "transfer": "transfer size, a divisor of the size of the file",
    "repeat": "number of starts; each writes and reads the file once",
}
_JOB_FILE, _DIRECT_FILE = "fio.job", "fio.direct"
_DATA = "fio.data"
_OPERATIONS = ("write", "read")
# fio writes some kilobytes; more is another program's output.
_MAX_CHARACTERS = 1 << 20


def _sizes(options: benchmark.BenchmarkOptions) -> tuple[int, int]:
    """Return size of the file and transfer size in bytes."""
    total = benchmark.size_option(options, "total", "256m")
    transfer = benchmark.size_option(options, "transfer", "1m")
    if transfer <= 0 or total <= 0 or total % transfer:
        raise InputError(f"{total} bytes are not a multiple of {transfer} bytes")
    return total, transfer


def _job_file(options: benchmark.BenchmarkOptions) -> dict[str, str]:
    total, transfer = _sizes(options)
    lines = [
        *("[global]", f"include {_DIRECT_FILE}", f"filename={_DATA}", f"bs={transfer}", f"size={total}"),
        *("ioengine=psync", "[write]", "rw=write", "end_fsync=1", "[read]", "stonewall", "rw=read"),
    ]
    return {_JOB_FILE: "\n".join(lines) + "\n"}


def _detect_direct(options: benchmark.BenchmarkOptions, place: str) -> str:
    """Return a shell command that tries O_DIRECT in the directory; fio itself fails where it is refused."""
    _, transfer = _sizes(options)
    probe = f"dd if=/dev/zero of={shlex.quote(f'{place}/fio.probe')} bs={transfer} count=1 oflag=direct status=none"
    return f"if {probe} 2> /dev/null; then echo direct=1; else echo direct=0; fi > {_DIRECT_FILE}"


def _printed_parameters(options: benchmark.BenchmarkOptions) -> dict[str, Scalar]:
    total, transfer = _sizes(options)
    return {"total_bytes": total, "transfer_bytes": transfer, "cache": "direct"}


def _without_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def parse_fio(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse an output of fio; lines before and after the document are messages."""
    kept: list[str] = []
    starts, ended, characters = 0, False, 0
    for line in lines:
        starts += line == "{"
        if starts == 1 and not ended and characters <= _MAX_CHARACTERS:
            kept.append(line)
            characters += len(line)
        ended |= starts > 0 and line == "}"
        lines.decided = starts > 1 or characters > _MAX_CHARACTERS
    builder.recognised = any('"fio version"' in line for line in kept)
    if starts > 1:
        builder.add_failure("output of more than one run of fio")
        return
    if context.ranks not in (None, 1):
        builder.add_failure(f"{context.ranks} ranks were requested, fio ran with 1")
        return
    try:
        text = "\n".join(kept)
        document = parse_json(text, object_pairs_hook=_without_repeated_names, parse_constant=_refuse_constant)
        _check_document(builder, document)
    except json.JSONDecodeError as error:
        builder.add_truncation(f"the JSON document is incomplete or damaged: {error}")
    except (KeyError, TypeError, ValueError) as error:
        builder.add_truncation(f"the document is damaged: {error}")


def _check_document(builder: parsing.OutputBuilder, document: Mapping[str, Any]) -> None:
    builder.version = _version(document)
    common, jobs = document["global options"], document["jobs"]
    builder.facts["started"] = datetime.fromtimestamp(_count(document, "timestamp"), UTC).isoformat()
    builder.facts["path"] = str(common["directory"])
    if [job["jobname"] for job in jobs] != [*_OPERATIONS]:
        raise ValueError("expected the jobs 'write' and 'read'")
    if common["direct"] not in ("0", "1"):
        raise ValueError("'direct' is neither 0 nor 1")
    case: dict[str, Scalar | None] = {
        "api": "raw",
        "file": "serial",
        "ranks": 1,
        "transfer_bytes": parsing.parse_count(common["bs"]),
        "total_bytes": parsing.parse_count(common["size"]),
        "cache": "direct" if common["direct"] == "1" else "keep",
    }
    bandwidths = [_bandwidth(builder, job, case) for job in jobs]
    for operation, bytes_per_s in zip(_OPERATIONS, bandwidths, strict=True):
        if builder.has_no_problem:
            builder.add_samples(operation, "bandwidth", [bytes_per_s / MIB], case)


def _version(document: Mapping[str, Any]) -> str:
    name, _, version = str(document["fio version"]).partition("-")
    if name != "fio" or not version.startswith("3."):
        raise ValueError(f"'{document['fio version']}' is not a version of fio 3")  # 2 prints sizes in KiB
    return version


def _count(row: Mapping[str, Any], name: str) -> int:
    value = row[name]
    if type(value) is not int or not 0 <= value < 1 << 60:
        raise ValueError(f"'{name}' is not a count")
    return value


def _bandwidth(builder: parsing.OutputBuilder, job: Mapping[str, Any], case: Mapping[str, Scalar | None]) -> float:
    """Return the bandwidth of a job in bytes/s, which bytes, transfers and milliseconds have to confirm."""
    operation = job["jobname"]
    own, other = (job[name] for name in (_OPERATIONS if operation == "write" else _OPERATIONS[::-1]))
    if job["job options"]["rw"] != operation or _count(other, "io_bytes"):
        raise ValueError(f"job '{operation}' is not a sequential {operation}")
    if error := _count(job, "error"):
        builder.add_failure(f"job '{operation}' ended with error {error}")
        return 0.0
    moved, transfers, runtime_ms = (_count(own, name) for name in ("io_bytes", "total_ios", "runtime"))
    if moved != case["total_bytes"] or transfers * int(case["transfer_bytes"] or 0) != moved:
        builder.add_failure(f"job '{operation}' moved {moved} bytes in {transfers} transfers, not the whole file")
        return 0.0
    if job["job options"].get("end_fsync") != ("1" if operation == "write" else None):
        raise ValueError("the write job has to sync the file, and only that")
    bytes_per_s = _count(own, "bw_bytes")
    if not runtime_ms or bytes_per_s != moved * 1000 // runtime_ms:
        raise ValueError(f"rate and time of job '{operation}' contradict each other")
    return float(bytes_per_s)


FIO = benchmark.Benchmark(
    name="fio",
    title="fio",
    check="FioCheck",
    parse=parse_fio,
    signatures=(
        parsing.FailureSignature(r"^fio: (?:pid=.*, err=|io_u error)", "fio reports an error"),
        parsing.FailureSignature(r"^fio: (?:destination|looks like) .*O?_?DIRECT", "O_DIRECT is refused"),
    ),
    banner=r'^  "fio version" : ',
    package="fio",
    probe=benchmark.ProgramProbe("fio", ("fio", "--version"), r"fio-(\d\S*)", uses_mpi=False),
    debian=("fio",),
    options=_OPTIONS,
    program=lambda _options: "fio",
    arguments=lambda _options, place: ["--output-format=json", f"--directory={place}", _JOB_FILE],
    requires=lambda _options: ("mpi", "fio"),
    expects=lambda _options: tuple((operation, "bandwidth") for operation in _OPERATIONS),
    samples=lambda options: benchmark.integer_option(options, "repeat", 3),
    runs=lambda options: benchmark.integer_option(options, "repeat", 3),
    shows=_printed_parameters,
    file_bytes=lambda options: _sizes(options)[0] + _sizes(options)[1],
    # fio creates the file before its first write.
    volume_bytes=lambda options: _sizes(options)[0] * (2 * benchmark.integer_option(options, "repeat", 3) + 1),
    configuration=_job_file,
    before=_detect_direct,
    inodes=lambda _options: 2,
    probes=dict.fromkeys(_OPERATIONS, "raw disk"),
    layers=lambda _case: benchmark.API_LAYERS["raw"],
)
