"""HPC Challenge (https://github.com/icl-utk-edu/hpcc, 1.0 to 1.5): processor, memory bandwidth and messages of MPI.

hpcc always runs all its tests. Their time depends on one number of `hpccinf.txt`, the order N of HPL's matrix: one
process solves it, and every process uses as many bytes for the other tests. Read are the tests of [turner2018], Figures
7 to 10: StarSTREAM (triad), ping-pong and the randomly ordered ring, with the worst pair of processes as printed there;
and HPL and SingleDGEMM, which last long enough to see a limit of processor time: triad is the best of ten short loops.
In outputs of others a grid of processes may have solved HPL: its rate is no rate of one process, so that it is a fact.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from iowatch.benchmarks import benchmark, parsing
from iowatch.benchmarks.options import Option, Options, OptionType, declare_options, repeat_option
from iowatch.core import MIB, Layer, Scalar

RESULT_FILE = "hpccoutf.txt"
_INPUT_FILE = "hpccinf.txt"
_WORD_BYTES = 8
# With a matrix of order 100 the tests of memory last a microsecond, with a smaller one less.
_MIN_MEMORY_BYTES = 100 * 100 * _WORD_BYTES
_OPTIONS = declare_options(
    Option(
        "memory",
        OptionType.SIZE,
        "memory per rank of the tests of memory, in three arrays: more than a rank's share of the caches",
        default="32m",
        minimum=_MIN_MEMORY_BYTES,
    ),
    repeat_option(3, "number of starts"),
    Option("ranks", OptionType.NUMBER, "MPI processes; one exchanges no messages", default=1, minimum=1),
    Option("nodes", OptionType.NUMBER, "nodes; on one node, messages go through its memory", default=1, minimum=1),
)
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


def _expected(options: Options) -> tuple[tuple[str, str], ...]:
    ranks = options.number("ranks")
    return tuple((row.operation, row.metric) for row in _MEASUREMENTS if row.is_done_by(ranks))


def _input(options: Options) -> dict[str, str]:
    # HPL's matrix has as many bytes as the other tests use.
    order = math.isqrt(options.number("memory") // _WORD_BYTES)
    return {_INPUT_FILE: _INPUT.format(order=order)}


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

    @property
    def line_field(self) -> str:
        """The field of its line in a section; that of the summary has its name."""
        return f"line of {self.name}"

    def is_done_by(self, ranks: int) -> bool:
        """Return whether a run on so many ranks has it: one rank exchanges no messages."""
        return ranks > 1 or self.metric not in _MESSAGES

    def contradiction(self, value: Mapping[str, Any]) -> str | None:
        """Return how section and summary contradict each other; None if they agree."""
        printed, summary = value[self.line_field], value[self.name]
        expected = printed * self.to_summary
        if abs(expected - summary) <= self.rounding * summary + _HALF_UNIT * self.to_summary:
            return None
        return f"{self.name} is {summary:g} in the summary, {expected:g} in its section"


@dataclass(frozen=True, slots=True)
class _HplRow:
    """The row of HPL's table: the grid of processes, and the rate of all of them in GFLOP/s."""

    rows: int
    columns: int
    rate: float

    @property
    def processes(self) -> int:
        return self.rows * self.columns

    @property
    def grid(self) -> str:
        return f"{self.rows} x {self.columns}"


_NUMBER = r"(\d{1,12}\.\d{6})"
_COUNT = r"([1-9]\d{0,11})"
# Variant, order, block size, rows and columns of the grid, seconds, GFLOP/s.
_HPL = _Measurement(
    "hpl",
    "flop_rate",
    rf"WR\w+ +\d+ +\d+ +{_COUNT} +{_COUNT} +[\d.]+ +(\d\.\d{{3}}e[+-]\d\d)",
    "HPL_Tflops",
    to_summary=1e-3,
    rounding=1e-3,
)
_MEASUREMENTS = (
    _HPL,
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
    **{row.name: (re.compile(rf"{row.name}=(\d[\d.e+-]{{0,20}})"), float) for row in _MEASUREMENTS},
    **{row.line_field: (re.compile(row.line), float) for row in _MEASUREMENTS if row is not _HPL},
    "row of HPL": (re.compile(_HPL.line), lambda rows, columns, rate: _HplRow(int(rows), int(columns), float(rate))),
    "HPL_nprow": (re.compile(rf"HPL_nprow={_COUNT}"), int),
    "HPL_npcol": (re.compile(rf"HPL_npcol={_COUNT}"), int),
}
# Fields that the output of one rank lacks.
_MESSAGE_ROWS = [row for row in _MEASUREMENTS if row.metric in _MESSAGES]
_MESSAGE_FIELDS = {
    "ring",
    "latency",
    "bandwidth",
    *(row.name for row in _MESSAGE_ROWS),
    *(row.line_field for row in _MESSAGE_ROWS),
}
# Half a unit of the last of six decimals.
_HALF_UNIT = 0.51e-6


def parse_hpcc(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse an `hpccoutf.txt`."""
    values: dict[str, list[Any]] = {name: [] for name in _FIELDS}
    for line in lines:
        parsing.read_field(_FIELDS, line, values)
        lines.decided = len(values["title"]) > 1
    builder.recognised = bool(values["title"])
    if len(values["title"]) > 1:
        builder.add_failure("output of more than one run of hpcc: it appends to its file")
        return
    if values["success"] == [0]:
        builder.add_failure("hpcc reports that one of its tests failed")
    damage = _damage(values)
    if damage is not None:
        builder.add_truncation(damage)
        return
    value = {name: of_name[0] for name, of_name in values.items() if of_name}
    # One row per size of problem and block that HPL was asked for; the summary has the fastest.
    value["row of HPL"] = max(values["row of HPL"], key=lambda row: row.rate)
    value[_HPL.line_field] = value["row of HPL"].rate
    builder.version = value["title"]
    builder.facts["started"] = datetime.fromtimestamp(value["clock"], UTC).isoformat()
    builder.facts["hosts"] = [value["host"]]
    # The ring runs on all processes, and every section prints the same size of the arrays.
    if value["ranks"] != value.get("ring", 1) or set(values["sizes"]) != {value["vector"]}:
        builder.add_truncation("the numbers of processes, or of elements of the arrays, contradict each other")
        return
    mismatch = context.rank_mismatch_reason(value["ranks"], "hpcc")
    if mismatch is not None:
        builder.add_failure(mismatch)
        return
    for row in _MEASUREMENTS:
        if not row.is_done_by(value["ranks"]):
            continue
        contradiction = row.contradiction(value)
        if contradiction is not None:
            builder.add_truncation(contradiction)
        elif row is not _HPL or _is_of_one_process(builder, value):
            _add(builder, row, value)


def _damage(values: Mapping[str, list[Any]]) -> str | None:
    """Return what is missing or there too often; None if every field occurs as often as hpcc prints it."""
    absent_fields = _MESSAGE_FIELDS if values["ranks"] == [1] else set()
    missing: list[str] = []
    surplus: list[str] = []
    for name in _FIELDS:
        expected = 0 if name in absent_fields else 1
        # The time is printed by each test; the size of arrays also by SingleSTREAM, where rank 0 runs it.
        may_be_repeated = name in ("clock", "sizes", "row of HPL")
        if len(values[name]) < expected:
            missing.append(name)
        elif len(values[name]) > expected and not may_be_repeated:
            surplus.append(name)
    if missing:
        return f"missing: {', '.join(missing)}"
    if surplus:
        return f"damaged: more than once, or with one process: {', '.join(surplus)}"
    return None


def _is_of_one_process(builder: parsing.OutputBuilder, value: Mapping[str, Any]) -> bool:
    """Return whether one process solved HPL; otherwise record grid and rate as a fact."""
    hpl: _HplRow = value["row of HPL"]
    summary_grid = f"{value['HPL_nprow']} x {value['HPL_npcol']}"
    if hpl.grid != summary_grid or hpl.processes > value["ranks"]:
        builder.add_truncation(
            f"HPL ran on a grid of {hpl.grid} processes in its section, {summary_grid} in the summary, "
            f"of {value['ranks']} processes in all"
        )
        return False
    if hpl.processes == 1:
        return True
    builder.facts["hpl"] = {"rows": hpl.rows, "columns": hpl.columns, "gflop_per_second": hpl.rate}
    return False


def _add(builder: parsing.OutputBuilder, row: _Measurement, value: Mapping[str, Any]) -> None:
    """Add a measurement."""
    case: dict[str, Scalar | None] = {"ranks": value["ranks"]}
    size_field = _MESSAGES.get(row.metric)
    if size_field is not None:
        case["api"] = "MPI"
        case["transfer_bytes"] = value[size_field]
    else:
        case["array_bytes"] = _WORD_BYTES * value["vector"]
    builder.add_samples(row.operation, row.metric, [value[row.line_field] * _TO_UNIT[row.metric]], case)


_ERRORS = r"HPL (?:ERROR|WARNING)|^Failed to allocate|Failed Validation|Cannot open|\.\.\.\.\.\. FAILED"


# Arrays of the tests with about 2 MiB of memory: with less they are shorter than a time slice of a processor (a few
# milliseconds), and do not show that they had to wait for others.
_LEAST_CONTROL_BYTES = 700_000


def _layers(case: Mapping[str, Scalar]) -> tuple[Layer, ...]:
    """Messages pass through the network, long enough tests of processor and memory measure these."""
    of_interface = benchmark.layers_of_api(case)
    if of_interface:
        return of_interface
    size = case.get("array_bytes", _LEAST_CONTROL_BYTES)
    if isinstance(size, int | float) and size < _LEAST_CONTROL_BYTES:
        return ()
    return (benchmark.CPU,)


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
    arguments=lambda _options, _scratch: [],
    requires=lambda _options: ("mpi", "hpcc"),
    expects=_expected,
    samples=benchmark.repetitions,
    runs=benchmark.repetitions,
    shows=lambda options: {"ranks": options.number("ranks")},
    file_bytes=lambda _options: 0,
    volume_bytes=lambda _options: 0,
    results=(RESULT_FILE,),
    configuration=_input,
    case=lambda options: {"nodes": options.number("nodes")},
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
