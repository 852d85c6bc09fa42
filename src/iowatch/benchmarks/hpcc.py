"""HPC Challenge (https://github.com/icl-utk-edu/hpcc, 1.0 to 1.5): processor, memory bandwidth and messages of MPI.

hpcc always runs all its tests. Their time depends on one number of `hpccinf.txt`, the order N of HPL's matrix: one
process solves it, and every process uses as many bytes for the other tests. Read are the tests of [turner2018], Figures
7 to 10: StarSTREAM (triad), ping-pong and the randomly ordered ring, with the worst pair of processes as printed there;
and HPL and SingleDGEMM, which last long enough to see a limit of processor time: triad is the best of ten short loops.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from iowatch.benchmarks import benchmark, parsing
from iowatch.core import MIB, Layer, Scalar

RESULT_FILE = "hpccoutf.txt"
_INPUT_FILE = "hpccinf.txt"
_OPTIONS = {
    "memory": "bytes per rank of the tests of memory, in three arrays: more than a rank's share of the caches",
    "repeat": "number of starts",
    "ranks": "MPI processes; one exchanges no messages",
    "nodes": "nodes; on one node, messages go through its memory",
}
# Lines 3 to 36 of the input file, as in HPL's HPL.dat: one matrix, one block size, a grid of one process, one of each
# algorithm. Source: README.txt of hpcc, section 3.
_INPUT = """\
HPLinpack benchmark input file
written by iowatch
HPL.out
8
1
{order}
1
80
0
1
1
1
16.0
1
2
1
4
1
2
1
1
1
1
1
1
2
64
0
0
1
8
#####
0
{order}
0
80
"""


def _ranks(options: benchmark.BenchmarkOptions) -> int:
    return benchmark.integer_option(options, "ranks", 1)


def _expected(options: benchmark.BenchmarkOptions) -> tuple[tuple[str, str], ...]:
    return tuple((one.operation, one.metric) for one in _MEASUREMENTS if _is_run(one, _ranks(options)))


def _input(options: benchmark.BenchmarkOptions) -> dict[str, str]:
    order = math.isqrt(benchmark.size_option(options, "memory", "32m") // _WORD_BYTES)
    if order < _MIN_ORDER:
        raise ValueError("the memory is too small")
    return {_INPUT_FILE: _INPUT.format(order=order)}


_WORD_BYTES = 8
# Below 80 kB the tests of memory do not last a microsecond.
_MIN_ORDER = 100


@dataclass(frozen=True, slots=True)
class _Measurement:
    """A number that hpcc prints twice.

    Attributes:
        line: regular expression of its line in a section; the group is the sample.
        name: its name in the summary, which has six significant digits.
        to_summary: factor from the former to the latter; hpcc's prefixes are powers of ten.
        rounding: largest relative difference of both, besides half a unit of six decimals.
    """

    operation: str
    metric: str
    line: str
    name: str
    to_summary: float = 1.0
    rounding: float = 1e-5


_NUMBER = r"(\d{1,12}\.\d{6})"
_MEASUREMENTS = (
    _Measurement(
        "hpl", "flop_rate", r"WR\w+ +\d+ +\d+ +1 +1 +[\d.]+ +(\d\.\d{3}e[+-]\d\d)", "HPL_Tflops", 1e-3, rounding=1e-3
    ),
    _Measurement("dgemm", "flop_rate", rf"Single DGEMM Gflop/s {_NUMBER}", "SingleDGEMM_Gflops"),
    _Measurement("triad", "memory_bandwidth", rf"Average Triad GB/s {_NUMBER}", "StarSTREAM_Triad"),
    _Measurement("ping-pong", "latency", rf"Max Ping Pong Latency: +{_NUMBER} msecs", "MaxPingPongLatency_usec", 1e3),
    _Measurement(
        "ping-pong",
        "network_bandwidth",
        rf"Min Ping Pong Bandwidth: +{_NUMBER} MB/s",
        "MinPingPongBandwidth_GBytes",
        1e-3,
    ),
    _Measurement(
        "random-ring",
        "latency",
        rf"Randomly Ordered Ring Latency: +{_NUMBER} msecs",
        "RandomlyOrderedRingLatency_usec",
        1e3,
    ),
    _Measurement(
        "random-ring",
        "network_bandwidth",
        rf"Randomly +Ordered Ring Bandwidth: +{_NUMBER} MB/s",
        "RandomlyOrderedRingBandwidth_GBytes",
        1e-3,
    ),
)
# Metric -> factor from the number of the line to its unit.
_TO_UNIT = {"flop_rate": 1.0, "memory_bandwidth": 1e9 / MIB, "network_bandwidth": 1e6 / MIB, "latency": 1e-3}
# Metric -> field with the size of its messages.
_MESSAGES = {"network_bandwidth": "bandwidth", "latency": "latency"}
_COUNT = r"([1-9]\d{0,11})"
_FIELDS: parsing.FieldTable = {
    "title": (re.compile(r"This is the DARPA/DOE HPC Challenge Benchmark version (\S+) .*"), str),
    "end": (re.compile(r"(End of HPC Challenge tests)\."), str),
    "clock": (re.compile(r"Current time \((\d{9,11})\) is .*"), int),
    "host": (re.compile(r"Hostname: '([^']{1,200})'"), str),
    "sizes": (re.compile(rf"Array size = {_COUNT}, .*"), int),
    "vector": (re.compile(rf"STREAM_VectorSize={_COUNT}"), int),
    "success": (re.compile(r"Success=(\d)"), int),
    "ranks": (re.compile(rf"CommWorldProcs={_COUNT}"), int),
    "ring": (re.compile(rf" The ring communication was done in both directions on {_COUNT} processes"), int),
    "latency": (re.compile(r" The latency   measurements were done with +(8) bytes"), int),
    "bandwidth": (re.compile(r" The bandwidth measurements were done with +(2000000) bytes"), int),
    **{one.name: (re.compile(rf"{one.name}=(\d[\d.e+-]{{0,20}})"), float) for one in _MEASUREMENTS},
    **{f"line of {one.name}": (re.compile(one.line), float) for one in _MEASUREMENTS},
}
_MESSAGE_FIELDS = {
    *("ring", "latency", "bandwidth"),
    *(field for one in _MEASUREMENTS if one.metric in _MESSAGES for field in (one.name, f"line of {one.name}")),
}
# Half a unit of the last of six decimals.
_HALF_UNIT = 0.51e-6


def _is_run(one: _Measurement, ranks: int) -> bool:
    return ranks > 1 or one.metric not in _MESSAGES


def parse_hpcc(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse an `hpccoutf.txt`."""
    found: dict[str, list[Any]] = {name: [] for name in _FIELDS}
    for line in lines:
        parsing.read_field(_FIELDS, line, found)
        lines.decided = len(found["title"]) > 1
    builder.recognised = bool(found["title"])
    if len(found["title"]) > 1:
        builder.add_failure("output of more than one run of hpcc: it appends to its file")
        return
    if found["success"] == [0]:
        builder.add_failure("hpcc reports that one of its tests failed")
    # Of the arrays also SingleSTREAM prints the size where rank 0 runs it.
    absent = _MESSAGE_FIELDS if found["ranks"] == [1] else set()
    wanted = {name: int(name not in absent) for name in _FIELDS.keys() - {"clock", "sizes"}}
    once = [name for name in _FIELDS if len(found[name]) != wanted.get(name, len(found[name]))]
    if once or not found["clock"] or not lines.ended:
        missing = [name for name in once if not found[name]]
        builder.add_truncation(f"missing: {', '.join(missing)}" if missing else "the output is damaged or truncated")
        return
    value = {name: values[0] for name, values in found.items() if values}
    builder.version = value["title"]
    builder.facts["started"] = datetime.fromtimestamp(value["clock"], UTC).isoformat()
    builder.facts["hosts"] = [value["host"]]
    if value["ranks"] != value.get("ring", 1) or {*found["sizes"]} != {value["vector"]}:
        builder.add_truncation("the numbers of processes, or of elements of the arrays, contradict each other")
        return
    if others := context.rank_mismatch_reason(value["ranks"], "hpcc"):
        builder.add_failure(others)
        return
    for one in _MEASUREMENTS:
        if _is_run(one, value["ranks"]):
            _add(builder, one, value)


def _add(builder: parsing.OutputBuilder, one: _Measurement, value: dict[str, Any]) -> None:
    """Add a measurement if section and summary agree."""
    printed, summary = value[f"line of {one.name}"], value[one.name]
    expected = printed * one.to_summary
    if abs(expected - summary) > one.rounding * summary + _HALF_UNIT * one.to_summary:
        builder.add_truncation(f"{one.name} is {summary:g} in the summary, {expected:g} in its section")
        return
    case: dict[str, Scalar | None] = {"ranks": value["ranks"]}
    if message := _MESSAGES.get(one.metric):
        case |= {"api": "MPI", "transfer_bytes": value[message]}
    else:
        case["array_bytes"] = _WORD_BYTES * value["vector"]
    builder.add_samples(one.operation, one.metric, [printed * _TO_UNIT[one.metric]], case)


_ERRORS = r"HPL (?:ERROR|WARNING)|^Failed to allocate|Failed Validation|Cannot open|\.\.\.\.\.\. FAILED"


# Arrays of the tests with about 2 MiB of memory: with less they are shorter than a time slice of a processor (a few
# milliseconds), and do not show that they had to wait for others.
_LEAST_CONTROL_BYTES = 700_000


def _layers(case: Mapping[str, Scalar]) -> tuple[Layer, ...]:
    """Messages pass through the network, long enough tests of processor and memory measure these."""
    size = case.get("array_bytes", _LEAST_CONTROL_BYTES)
    is_short = isinstance(size, int | float) and size < _LEAST_CONTROL_BYTES
    return benchmark.layers_of_api(case) or (() if is_short else (benchmark.CPU,))


def _case(options: benchmark.BenchmarkOptions) -> dict[str, Scalar]:
    return {"nodes": benchmark.integer_option(options, "nodes", 1)}


HPCC = benchmark.Benchmark(
    name="hpcc",
    title="HPC Challenge",
    check="HpccCheck",
    parse=parse_hpcc,
    signatures=(parsing.FailureSignature(_ERRORS, "hpcc reports an error"),),
    banner=r"^This is the DARPA/DOE HPC Challenge Benchmark",
    package="hpcc",
    probe=benchmark.ProgramProbe("hpcc"),
    debian=("hpcc",),
    options=_OPTIONS,
    program=lambda _options: "hpcc",
    arguments=lambda _options, _place: [],
    requires=lambda _options: ("mpi", "hpcc"),
    expects=_expected,
    samples=lambda options: benchmark.integer_option(options, "repeat", 3),
    runs=lambda options: benchmark.integer_option(options, "repeat", 3),
    shows=lambda options: {"ranks": _ranks(options)},
    file_bytes=lambda _options: 0,
    volume_bytes=lambda _options: 0,
    results=(RESULT_FILE,),
    configuration=_input,
    case=_case,
    inodes=lambda _options: 0,
    writes_files=False,
    probes={
        "hpl": "processor",
        "dgemm": "processor",
        "triad": "memory",
        "ping-pong": "messages",
        "random-ring": "messages",
    },
    layers=_layers,
)
