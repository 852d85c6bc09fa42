"""target_probe, a program of the project (benchmarks/target_probe): a small file on each target of a file system.

    target_probe 1
    host n1
    size 8388608 bytes
    repetitions 3
    known 24                            targets of the file system
    group 1 of 1                        the part of them that this day has
    targets 24
    target 0 OST 0 @ work-OST0000       number, name, location
    …
    row 1 0 write 8388608 0.0512        repetition, target, operation, bytes, s
    row 1 0 read 8388608 0.0221
    …
    failed 7 write: No space left on device
    cache drop                          whether all files were dropped from the page cache before they were read
    end 23 9f0c1a2b                     number of targets that did not fail, CRC-32 of all lines before

Every repetition gives the median target and the slowest one; the fact `target_rates` has the rates of all
(`iowatch.core.TargetRates`), from which a slow target is named.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from iowatch.benchmarks import benchmark, parsing
from iowatch.benchmarks.options import Option, Options, OptionType, declare_options, repeat_option
from iowatch.core import MIB, TARGET_OPERATIONS, TARGET_RATES_FACT, Scalar, TargetRates, rounded_rate

TARGETS_FILE = "iowatch.targets"
"""In the job's directory: name, location and file of each target, separated by tabs."""

_FORMAT = "1"
_OPTIONS = declare_options(
    Option("size", OptionType.SIZE, "size of the file on each target", default="8m", minimum=1, maximum=1 << 30),
    repeat_option(3, "repetitions of all targets, each with a write and a read; a slow target is so in all of them"),
    Option(
        "seconds",
        OptionType.NUMBER,
        "time of one target in all repetitions; what takes longer moves fewer bytes",
        default=2,
        unit="s",
        minimum=1,
        maximum=3600,
    ),
    Option(
        "most",
        OptionType.NUMBER,
        "most targets of one session; of more, each day has a part, in turn",
        default=150,
        minimum=1,
        maximum=100_000,
    ),
)
# Of one target: no peak of a file system applies to it, and it is not compared with the bandwidth of several ranks.
_METRIC = "target_bandwidth"
_MEDIAN, _SLOWEST = "median-target", "slowest-target"
_MEDIAN_OPERATIONS = tuple(f"{operation}-{_MEDIAN}" for operation in TARGET_OPERATIONS)
_SLOWEST_OPERATIONS = tuple(f"{operation}-{_SLOWEST}" for operation in TARGET_OPERATIONS)
_OPERATIONS = (*_MEDIAN_OPERATIONS, *_SLOWEST_OPERATIONS)
_HEAD = re.compile(r"(target_probe|host|size|repetitions|known|group|targets|cache|end) (\S.*)")
_TARGET = re.compile(r"target (\d{1,6}) (\S.{0,300}) @ (.{0,4200})")
_FAILED = re.compile(r"failed (\d{1,6}) (\S.{0,400})")
_ROW = re.compile(r"row (\d{1,3}) (\d{1,6}) (write|read) (\d{1,10}) (\d{1,6}(?:\.\d{1,15})?(?:e[+-]\d\d)?)")


@dataclass(frozen=True)
class _Target:
    name: str
    location: str


@dataclass
class _TargetRows:
    """Lines of the output.

    Attributes:
        head: what is printed once.
        targets: by their number.
        failures: by number, step and reason of the targets that failed.
        rates: by operation and number, in MiB/s, one for each repetition so far.
        repeated: whether a line of the head, or the name of a target, is there twice.
        damaged: whether another line is there twice, at a wrong place, or has an impossible number.
        checksum: CRC-32 of these lines but for the last one.
    """

    head: dict[str, str] = field(default_factory=dict)
    targets: dict[int, _Target] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    rates: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    repeated: bool = False
    damaged: bool = False
    checksum: int = 0

    def read(self, line: str) -> None:
        """Add a line, if it is one of the program."""
        if row := _ROW.fullmatch(line):
            self._read_row(int(row[1]), int(row[2]), row[3], row[4], row[5])
        elif target := _TARGET.fullmatch(line):
            self.repeated |= int(target[1]) in self.targets
            self.targets[int(target[1])] = _Target(_decoded(target[2]), _decoded(target[3]))
        elif failed := _FAILED.fullmatch(line):
            self.damaged |= int(failed[1]) in self.failures
            self.failures[int(failed[1])] = _decoded(failed[2])
        elif head := _HEAD.fullmatch(line):
            self.repeated |= head[1] in self.head
            self.head[head[1]] = head[2]
            if head[1] == "end":
                return
        else:
            return
        self.checksum = zlib.crc32(line.encode("latin-1"), self.checksum)

    @property
    def is_too_long(self) -> bool:
        """Whether there are more rows than a run has."""
        return max(len(self.targets), len(self.rates), len(self.failures)) > parsing.MAX_ROWS

    def _read_row(self, repetition: int, number: int, operation: str, size: str, seconds: str) -> None:
        rates = self.rates.setdefault((operation, number), [])
        # The rows of a target are printed in the order of the repetitions.
        self.damaged |= repetition != len(rates) + 1 or float(seconds) <= 0 or int(size) == 0
        if not self.damaged:
            rates.append(int(size) / MIB / float(seconds))

    def count(self, name: str) -> int:
        """Return a number of the head (`8 bytes`); -1 if it is absent or none."""
        number = self.head.get(name, "").removesuffix(" bytes")
        return int(number) if number.isdecimal() and len(number) < 16 else -1


def _decoded(text: str) -> str:
    """Return a text of the output, whose lines are read as Latin-1."""
    return text.encode("latin-1").decode("utf-8", "replace")


def parse_target_probe(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse an output of target_probe."""
    rows = _TargetRows()
    for line in lines:
        rows.read(line)
        lines.decided = rows.repeated or rows.is_too_long
    builder.recognised = "target_probe" in rows.head
    if rows.repeated:
        builder.add_failure("output of more than one run of target_probe, or damaged: a line is there twice")
        return
    if context.ranks not in (None, 1):
        builder.add_failure(f"{context.ranks} ranks were requested, target_probe ran with 1")
        return
    damage = _damage(rows)
    if damage is not None:
        builder.add_truncation(damage)
        return
    builder.version = rows.head["target_probe"]
    builder.facts["hosts"] = [rows.head["host"]]
    for number, reason in rows.failures.items():
        target = rows.targets[number]
        builder.add_failure(f"target {target.name} ({target.location}): {reason}")
    measured = [number for number in rows.targets if number not in rows.failures]
    if not measured:
        return
    # Also of a run that failed, for its other targets.
    builder.facts[TARGET_RATES_FACT] = _target_rates(rows, measured).to_json()
    if builder.has_no_problem:
        _add_samples(builder, rows)


def _damage(rows: _TargetRows) -> str | None:
    """Return what is missing, or contradicts something else; None if every target has all its rows, or failed."""
    if rows.head.get("target_probe", _FORMAT) != _FORMAT:
        return f"'{rows.head['target_probe'][:20]}' is not the format {_FORMAT} of target_probe"
    targets, repetitions = rows.count("targets"), rows.count("repetitions")
    if targets < 1 or sorted(rows.targets) != list(range(targets)):
        return f"expected the names of {rows.head.get('targets', 'all')[:20]} targets (found {len(rows.targets)})"
    if rows.count("known") < targets or rows.count("size") < 1 or repetitions < 1 or "host" not in rows.head:
        return "a line of the head is missing or impossible"
    if rows.damaged or not rows.failures.keys() <= rows.targets.keys():
        return "a row is there twice, is missing, or has an impossible number"
    for number in rows.targets:
        for operation in TARGET_OPERATIONS:
            count = len(rows.rates.get((operation, number), ()))
            if number not in rows.failures and count != repetitions:
                return f"target {number} has {count} of {repetitions} repetitions of the {operation}"
    if any(number not in rows.targets for _operation, number in rows.rates):
        return "a row of an unknown target"
    if rows.head.get("cache") not in ("drop", "keep"):
        return "the line about the page cache is missing"
    if rows.head.get("end") != f"{targets - len(rows.failures)} {rows.checksum:08x}":
        return "the last line, with the number of targets and the checksum of all lines, is missing or another one"
    return None


def _target_rates(rows: _TargetRows, measured: Sequence[int]) -> TargetRates:
    """What the run keeps of the targets that did not fail."""
    # Directories may have the same name in different directories.
    name_counts = Counter(target.name for target in rows.targets.values())
    names: list[str] = []
    for number in measured:
        target = rows.targets[number]
        names.append(target.name if name_counts[target.name] == 1 else target.location)
    rates: dict[str, tuple[tuple[float, ...], ...]] = {}
    for operation in TARGET_OPERATIONS:
        # Reads from the memory of the node say nothing about a target.
        if operation == "read" and rows.head["cache"] == "keep":
            rates[operation] = ()
            continue
        of_targets: list[tuple[float, ...]] = []
        for number in measured:
            of_targets.append(tuple(rounded_rate(rate) for rate in rows.rates[operation, number]))
        rates[operation] = tuple(of_targets)
    return TargetRates(
        names=tuple(names),
        locations=tuple(rows.targets[number].location for number in measured),
        write=rates["write"],
        read=rates["read"],
        target_count=rows.count("known"),
    )


def _add_samples(builder: parsing.OutputBuilder, rows: _TargetRows) -> None:
    """Add the median target and the slowest one of each repetition, for writes and for reads."""
    case: dict[str, Scalar | None] = {
        "api": "POSIX",
        "ranks": 1,
        "total_bytes": rows.count("size"),
        "cache": rows.head["cache"],
    }
    for operation in TARGET_OPERATIONS:
        of_targets = [rows.rates[operation, number] for number in rows.targets]
        by_repetition = list(zip(*of_targets, strict=True))
        median_rates = [median(rates) for rates in by_repetition]
        slowest_rates = [min(rates) for rates in by_repetition]
        builder.add_samples(f"{operation}-{_MEDIAN}", _METRIC, median_rates, case)
        builder.add_samples(f"{operation}-{_SLOWEST}", _METRIC, slowest_rates, case)


def _arguments(options: Options, _scratch: str) -> list[str]:
    """Return the arguments of the program, which starts in the job's directory."""
    numbers = [options.number(name) for name in ("size", "repeat", "seconds", "most")]
    return [TARGETS_FILE, *(str(number) for number in numbers)]


def _volume_bytes(options: Options) -> int:
    """Return the most bytes that a session writes and reads: how many targets there are is known on a node only."""
    return 2 * options.number("size") * benchmark.repetitions(options) * options.number("most")


TARGET_PROBE = benchmark.Benchmark(
    name="target_probe",
    title="target_probe",
    check="TargetProbeCheck",
    parse=parse_target_probe,
    signatures=(parsing.FailureSignature(r"^target_probe: error", "target_probe reports an error"),),
    banner=r"^target_probe \d",
    options=_OPTIONS,
    program=lambda _options: "target_probe",
    arguments=_arguments,
    requires=lambda _options: ("mpi",),
    expects=lambda _options: tuple((operation, _METRIC) for operation in _OPERATIONS),
    samples=benchmark.repetitions,
    shows=lambda options: {"api": "POSIX", "total_bytes": options.number("size"), "cache": "drop"},
    # The program truncates the file of a target before it writes that of the next one.
    file_bytes=lambda options: options.number("size"),
    volume_bytes=_volume_bytes,
    inodes=lambda options: options.number("most"),
    probes=dict.fromkeys(_OPERATIONS, "targets"),
    probes_targets=True,
)
