"""fio (https://github.com/axboe/fio): one process writes and reads one file past the page cache, as a disk baseline.

Not a general parser of fio: it reads the JSON of fio 3 for the two jobs of this module, `write` and `read`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from iowatch.benchmarks import benchmark, parsing
from iowatch.benchmarks.options import Option, OptionError, Options, OptionType, declare_options, repeat_option
from iowatch.core import MIB, Scalar, parse_json

_OPTIONS = declare_options(
    Option("total", OptionType.SIZE, "size of the file", default="256m", minimum=1),
    Option("transfer", OptionType.SIZE, "transfer size, a divisor of the size of the file", default="1m", minimum=1),
    repeat_option(3, "number of starts; each writes and reads the file once"),
)
_JOB_FILE, _DIRECT_FILE = "fio.job", "fio.direct"
_DATA = "fio.data"
_OPERATIONS = ("write", "read")
# fio writes some kilobytes; more is another program's output.
_MAX_CHARACTERS = 1 << 20
# No file, time or number of transfers is as large; the limit is far below that of 64-bit integers.
_MAX_COUNT = 1 << 60


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sizes of a case in bytes."""

    file: int
    transfer: int


def _sizes(options: Options) -> _Sizes:
    """Return the sizes of a case.

    Raises:
        OptionError: the file is no whole number of transfers.
    """
    sizes = _Sizes(options.number("total"), options.number("transfer"))
    if sizes.file % sizes.transfer:
        raise OptionError("transfer", f"{sizes.file} bytes are not a multiple of {sizes.transfer} bytes")
    return sizes


def _job_file(options: Options) -> dict[str, str]:
    """Return name and content of fio's job file: the write with a sync at its end, then the read of the same file."""
    sizes = _sizes(options)
    lines = [
        "[global]",
        f"include {_DIRECT_FILE}",
        f"filename={_DATA}",
        f"bs={sizes.transfer}",
        f"size={sizes.file}",
        "ioengine=psync",
        "[write]",
        "rw=write",
        "end_fsync=1",
        "[read]",
        "stonewall",
        "rw=read",
    ]
    return {_JOB_FILE: "\n".join(lines) + "\n"}


def _detect_direct(options: Options, scratch: str) -> str:
    """Return a shell command that tries O_DIRECT in the directory; fio itself fails where it is refused."""
    transfer = _sizes(options).transfer
    probe = f"dd if=/dev/zero of={shlex.quote(f'{scratch}/fio.probe')} bs={transfer} count=1 oflag=direct status=none"
    return f"if {probe} 2> /dev/null; then echo direct=1; else echo direct=0; fi > {_DIRECT_FILE}"


def _printed_parameters(options: Options) -> dict[str, Scalar]:
    sizes = _sizes(options)
    return {"total_bytes": sizes.file, "transfer_bytes": sizes.transfer, "cache": "direct"}


def _scratch_bytes(options: Options) -> int:
    """Return the bytes of the file and of the file that tries O_DIRECT."""
    sizes = _sizes(options)
    return sizes.file + sizes.transfer


def _volume_bytes(options: Options) -> int:
    """Return the bytes of all starts; fio creates the file before its first write."""
    return _sizes(options).file * (2 * benchmark.repetitions(options) + 1)


def _without_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of the document; a ValueError if a name occurs twice, as in two outputs that are mixed up."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name occurs twice")
    return members


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def parse_fio(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse an output of fio; lines before and after the document are messages."""
    document_lines: list[str] = []
    starts, ended, characters = 0, False, 0
    for line in lines:
        # fio indents everything but the first and the last line of its document.
        starts += line == "{"
        if starts == 1 and not ended and characters <= _MAX_CHARACTERS:
            document_lines.append(line)
            characters += len(line)
        ended |= starts > 0 and line == "}"
        lines.decided = starts > 1 or characters > _MAX_CHARACTERS
    builder.recognised = any('"fio version"' in line for line in document_lines)
    if starts > 1:
        builder.add_failure("output of more than one run of fio")
        return
    if context.ranks not in (None, 1):
        builder.add_failure(f"{context.ranks} ranks were requested, fio ran with 1")
        return
    try:
        document = parse_json(
            "\n".join(document_lines), object_pairs_hook=_without_repeated_names, parse_constant=_refuse_constant
        )
        _check_document(builder, document)
    except json.JSONDecodeError as error:
        builder.add_truncation(f"the JSON document is incomplete or damaged: {error}")
    except (KeyError, TypeError, ValueError) as error:
        builder.add_truncation(f"the document is damaged: {error}")


def _check_document(builder: parsing.OutputBuilder, document: Mapping[str, Any]) -> None:
    """Add version, facts and bandwidths of a document of fio to the builder.

    A job that failed or moved other bytes is a failure, and then neither job has a result.

    Raises:
        KeyError, TypeError, ValueError: the document is not that of the two jobs of this module, or contradicts itself.
    """
    builder.version = _version(document)
    common, jobs = document["global options"], document["jobs"]
    builder.facts["started"] = datetime.fromtimestamp(_count(document, "timestamp"), UTC).isoformat()
    builder.facts["path"] = str(common["directory"])
    if [job["jobname"] for job in jobs] != [*_OPERATIONS]:
        raise ValueError("expected the jobs 'write' and 'read'")
    case = _document_case(common)
    # Both jobs are checked before the first sample: with a problem of one of them neither has a result.
    bandwidths = [_bandwidth(builder, job, case) for job in jobs]
    latencies = [_latencies(job) for job in jobs]
    for number, operation in enumerate(_OPERATIONS):
        # An implausible bandwidth is a problem, too: after that of the write the read is not added.
        if not builder.has_no_problem:
            return
        builder.add_samples(operation, "bandwidth", [bandwidths[number] / MIB], case)
        for metric, seconds in latencies[number].items():
            builder.add_samples(operation, metric, [seconds], case)


def _document_case(common: Mapping[str, Any]) -> dict[str, Scalar | None]:
    """Return the case parameters of the options that both jobs have in common.

    Raises:
        ValueError: `direct` is neither 0 nor 1.
    """
    if common["direct"] not in ("0", "1"):
        raise ValueError("'direct' is neither 0 nor 1")
    return {
        "api": "raw",
        "file": "serial",
        "ranks": 1,
        "transfer_bytes": parsing.parse_count(common["bs"]),
        "total_bytes": parsing.parse_count(common["size"]),
        # Without O_DIRECT the data stay in the page cache, as with the option `cache: keep` of benchio.
        "cache": "direct" if common["direct"] == "1" else "keep",
    }


def _version(document: Mapping[str, Any]) -> str:
    """Return the version of fio.

    Raises:
        ValueError: another one than fio 3.
    """
    name, _, version = str(document["fio version"]).partition("-")
    if name != "fio" or not version.startswith("3."):
        raise ValueError(f"'{document['fio version']}' is not a version of fio 3")  # 2 prints sizes in KiB
    return version


def _count(row: Mapping[str, Any], name: str) -> int:
    """Return a member that is a plausible number of bytes, transfers, milliseconds or seconds.

    Raises:
        ValueError: it is no integer (a boolean is none), negative or too large.
    """
    value = row[name]
    if type(value) is not int or not 0 <= value < _MAX_COUNT:
        raise ValueError(f"'{name}' is not a count")
    return value


def _bandwidth(builder: parsing.OutputBuilder, job: Mapping[str, Any], case: Mapping[str, Scalar | None]) -> float:
    """Return the bandwidth of a job in bytes/s, which bytes, transfers and milliseconds have to confirm.

    0 and a failure if the job failed or did not move the whole file.

    Raises:
        ValueError: the job is another one than that of this module, or its numbers contradict each other.
    """
    operation = job["jobname"]
    # fio prints figures of both directions for each job; those of the other one have to be zero.
    figures = job[operation]
    other_direction = job["read" if operation == "write" else "write"]
    if job["job options"]["rw"] != operation or _count(other_direction, "io_bytes"):
        raise ValueError(f"job '{operation}' is not a sequential {operation}")
    if error := _count(job, "error"):
        builder.add_failure(f"job '{operation}' ended with error {error}")
        return 0.0
    moved, transfers = _count(figures, "io_bytes"), _count(figures, "total_ios")
    runtime_ms = _count(figures, "runtime")
    if moved != case["total_bytes"] or transfers * int(case["transfer_bytes"] or 0) != moved:
        builder.add_failure(f"job '{operation}' moved {moved} bytes in {transfers} transfers, not the whole file")
        return 0.0
    expected_sync = "1" if operation == "write" else None
    if job["job options"].get("end_fsync") != expected_sync:
        raise ValueError("the write job has to sync the file, and only that")
    bytes_per_s = _count(figures, "bw_bytes")
    if not runtime_ms or bytes_per_s != moved * 1000 // runtime_ms:
        raise ValueError(f"rate and time of job '{operation}' contradict each other")
    return float(bytes_per_s)


def _latencies(job: Mapping[str, Any]) -> dict[str, float]:
    """Return median, 99th percentile and longest time of a transfer in s, by metric; empty with too few transfers.

    Raises:
        ValueError: they contradict each other, or the time of the job.
    """
    figures = job[job["jobname"]]
    if _count(figures, "total_ios") < parsing.LEAST_TRANSFERS:
        return {}
    times_ns = figures["clat_ns"]
    longest = _count(times_ns, "max")
    # The percentiles are those of bins, whose upper end may be above the longest time.
    median = min(_count(times_ns["percentile"], "50.000000"), longest)
    p99 = min(_count(times_ns["percentile"], "99.000000"), longest)
    # fio counts the milliseconds of a job that have ended.
    if median > p99 or longest > (_count(figures, "runtime") + 1) * 1_000_000:
        raise ValueError(f"times of transfers of job '{job['jobname']}' contradict each other")
    return {
        "transfer_latency_median": median * 1e-9,
        "transfer_latency_p99": p99 * 1e-9,
        "transfer_latency_max": longest * 1e-9,
    }


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
    arguments=lambda _options, scratch: ["--output-format=json", f"--directory={scratch}", _JOB_FILE],
    requires=lambda _options: ("mpi", "fio"),
    expects=lambda _options: tuple((operation, "bandwidth") for operation in _OPERATIONS),
    samples=benchmark.repetitions,
    runs=benchmark.repetitions,
    shows=_printed_parameters,
    file_bytes=_scratch_bytes,
    volume_bytes=_volume_bytes,
    configuration=_job_file,
    before=_detect_direct,
    inodes=lambda _options: 2,
    probes=dict.fromkeys(_OPERATIONS, "raw disk"),
    layers=lambda _case: benchmark.API_LAYERS["raw"],
)
