"""node_pairs, a program of the project (benchmarks/node_pairs): messages between all pairs of nodes.

    node_pairs 1
    mpi Open MPI v4.1.4, …
    nodes 3
    latency 8 bytes
    bandwidth 1048576 bytes
    repetitions 2
    node 0 n1
    …
    pair 1 0 2 1.31e-06 1.12e+10        repetition, both nodes, latency in s, bandwidth in bytes/s
    …
    end 6 9f0c1a2b                      number of pairs, CRC-32 of all lines before (without line ends)

Every repetition gives the median pair and the slowest one; the fact `node_pairs` has the pair, and the nodes with slow
messages (`iowatch.core.node_pairs`).
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from statistics import median

from iowatch.benchmarks import benchmark, parsing
from iowatch.benchmarks.options import Option, OptionError, Options, OptionType, declare_options, repeat_option
from iowatch.core import MIB, NODE_PAIRS_FACT, PairMessages, Scalar, assess_node_pairs

_FORMAT = "1"
_LEAST_NODES = 2
_OPTIONS = declare_options(
    Option("transfer", OptionType.SIZE, "size of the messages whose bandwidth is measured", default="1m", minimum=8),
    repeat_option(3, "repetitions of all pairs"),
    Option("ranks", OptionType.NUMBER, "MPI processes: one on each node", default=_LEAST_NODES, minimum=_LEAST_NODES),
    Option("nodes", OptionType.NUMBER, "nodes", default=_LEAST_NODES, minimum=_LEAST_NODES),
)
_MEDIAN_PAIR, _SLOWEST_PAIR = "median-pair", "slowest-pair"
_HEAD = re.compile(r"(node_pairs|mpi|nodes|latency|bandwidth|repetitions|end) (\S.*)")
_NODE = re.compile(r"node (\d{1,7}) (\S{1,200})")
_RATE = r"(\d{1,15}(?:\.\d{1,15})?(?:e[+-]\d\d)?)"
_PAIR = re.compile(rf"pair (\d{{1,4}}) (\d{{1,7}}) (\d{{1,7}}) {_RATE} {_RATE}")


@dataclass
class _PairRows:
    """Lines of the output.

    Attributes:
        head: what is printed once.
        names: of the nodes, by their number.
        latencies, bandwidths: by repetition, in s and bytes/s, of each pair of numbers.
        repeated: whether a line is there twice.
        checksum: CRC-32 of these lines but for the last one.
    """

    head: dict[str, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    latencies: dict[int, dict[tuple[int, int], float]] = field(default_factory=dict)
    bandwidths: dict[int, dict[tuple[int, int], float]] = field(default_factory=dict)
    repeated: bool = False
    checksum: int = 0

    def read(self, line: str) -> None:
        """Add a line, if it is one of the program."""
        if pair := _PAIR.fullmatch(line):
            repetition, first, second = (int(number) for number in pair.groups()[:3])
            latencies = self.latencies.setdefault(repetition, {})
            self.repeated |= (first, second) in latencies
            latencies[first, second] = float(pair[4])
            self.bandwidths.setdefault(repetition, {})[first, second] = float(pair[5])
        elif node := _NODE.fullmatch(line):
            self.repeated |= int(node[1]) in self.names
            self.names[int(node[1])] = node[2]
        elif head := _HEAD.fullmatch(line):
            self.repeated |= head[1] in self.head
            self.head[head[1]] = head[2]
            if head[1] == "end":
                return
        else:
            return
        self.checksum = zlib.crc32(line.encode("latin-1"), self.checksum)

    def count(self, name: str) -> int:
        """Return a number of the head (`8 bytes`); -1 if it is absent or none."""
        number = self.head.get(name, "").removesuffix(" bytes")
        return int(number) if number.isdecimal() and len(number) < 16 else -1


def parse_node_pairs(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse an output of node_pairs."""
    rows = _PairRows()
    for line in lines:
        rows.read(line)
        lines.decided = rows.repeated
    builder.recognised = "node_pairs" in rows.head
    if rows.repeated:
        builder.add_failure("output of more than one run of node_pairs, or damaged: a line is there twice")
        return
    damage = _damage(rows)
    if damage is not None:
        builder.add_truncation(damage)
        return
    builder.version = rows.head["node_pairs"]
    builder.facts["hosts"] = list(rows.names.values())
    mismatch = context.rank_mismatch_reason(len(rows.names), "node_pairs")
    if mismatch is not None:
        builder.add_failure(mismatch)
        return
    _add_samples(builder, rows)
    if builder.has_no_problem:
        builder.facts[NODE_PAIRS_FACT] = assess_node_pairs(_best_of_repetitions(rows)).to_json()


def _damage(rows: _PairRows) -> str | None:
    """Return what is missing, or contradicts something else; None if every pair is there once per repetition."""
    if rows.head.get("node_pairs", _FORMAT) != _FORMAT:
        return f"'{rows.head['node_pairs'][:20]}' is not the format {_FORMAT} of node_pairs"
    nodes = rows.count("nodes")
    if nodes < _LEAST_NODES or sorted(rows.names) != list(range(nodes)):
        return f"expected the names of {rows.head.get('nodes', 'all')[:20]} nodes (found {len(rows.names)})"
    expected_pairs = nodes * (nodes - 1) // 2
    repetitions = rows.count("repetitions")
    if sorted(rows.latencies) != list(range(1, repetitions + 1)):
        return f"expected {rows.head.get('repetitions', 'some')[:20]} repetitions (found {len(rows.latencies)})"
    for repetition, latencies in rows.latencies.items():
        # Rank 0 prints each pair once, by the smaller number of both.
        are_pairs = all(first < second < nodes for first, second in latencies)
        if len(latencies) != expected_pairs or not are_pairs:
            return f"repetition {repetition} has {len(latencies)} of {expected_pairs} pairs"
    if rows.count("bandwidth") < 0 or rows.count("latency") < 0:
        return "the line with a size is missing"
    if rows.head.get("end") != f"{expected_pairs * repetitions} {rows.checksum:08x}":
        return "the last line, with the number of pairs and the checksum of all lines, is missing or another one"
    if not all(value > 0 for by_pair in rows.latencies.values() for value in by_pair.values()):
        return "a latency is zero"
    return None


def _add_samples(builder: parsing.OutputBuilder, rows: _PairRows) -> None:
    """Add the median pair and the slowest one of each repetition."""
    case: dict[str, Scalar | None] = {"api": "MPI", "ranks": len(rows.names)}
    latency_case = {**case, "transfer_bytes": rows.count("latency")}
    bandwidth_case = {**case, "transfer_bytes": rows.count("bandwidth")}
    latencies = [list(by_pair.values()) for _, by_pair in sorted(rows.latencies.items())]
    bandwidths = [list(by_pair.values()) for _, by_pair in sorted(rows.bandwidths.items())]
    builder.add_samples(_MEDIAN_PAIR, "latency", [median(of_pairs) for of_pairs in latencies], latency_case)
    builder.add_samples(_SLOWEST_PAIR, "latency", [max(of_pairs) for of_pairs in latencies], latency_case)
    median_rates = [median(of_pairs) / MIB for of_pairs in bandwidths]
    slowest_rates = [min(of_pairs) / MIB for of_pairs in bandwidths]
    builder.add_samples(_MEDIAN_PAIR, "network_bandwidth", median_rates, bandwidth_case)
    builder.add_samples(_SLOWEST_PAIR, "network_bandwidth", slowest_rates, bandwidth_case)


def _best_of_repetitions(rows: _PairRows) -> list[PairMessages]:
    """Return the best figures of each pair: a disturbed repetition is no slow link."""
    pairs: list[PairMessages] = []
    for first, second in rows.latencies[1]:
        pairs.append(
            PairMessages(
                nodes=(rows.names[first], rows.names[second]),
                latency_s=min(by_pair[first, second] for by_pair in rows.latencies.values()),
                bandwidth_mib_per_s=max(by_pair[first, second] for by_pair in rows.bandwidths.values()) / MIB,
            )
        )
    return pairs


def _arguments(options: Options, _scratch: str) -> list[str]:
    """Return the arguments of the program.

    Raises:
        OptionError: several ranks are on a node.
    """
    if options.number("ranks") != options.number("nodes"):
        raise OptionError("ranks", "expected as many as nodes: one rank on each")
    return [str(options.number("transfer")), str(options.number("repeat"))]


_OPERATIONS = (_MEDIAN_PAIR, _SLOWEST_PAIR)
NODE_PAIRS = benchmark.Benchmark(
    name="node_pairs",
    title="node_pairs",
    check="NodePairsCheck",
    parse=parse_node_pairs,
    signatures=(parsing.FailureSignature(r"^node_pairs: error", "node_pairs reports an error"),),
    banner=r"^node_pairs \d",
    options=_OPTIONS,
    program=lambda _options: "node_pairs",
    arguments=_arguments,
    requires=lambda _options: ("mpi",),
    expects=lambda _options: tuple(
        (operation, metric) for operation in _OPERATIONS for metric in ("latency", "network_bandwidth")
    ),
    samples=benchmark.repetitions,
    shows=lambda options: {"api": "MPI", "ranks": options.number("ranks")},
    file_bytes=lambda _options: 0,
    volume_bytes=lambda _options: 0,
    case=lambda options: {"nodes": options.number("nodes")},
    inodes=lambda _options: 0,
    writes_files=False,
    probes=dict.fromkeys(_OPERATIONS, "messages"),
)
