"""Output of h5bench's programs, 1.3 to 1.6: their standard output and their CSV (`CSV_FILE=…`).

An output may contain several programs in sequence. The CSV has one metric per row, and no sizes per rank and no
time steps. K, M, G and T are powers of 1024, fractions are truncated at each division, and below 1024 the letter is a
blank (`format_human_readable` in `commons/h5bench_util.c`); infinity is printed as `0.000 B/s`, NaN as
`8388608.000 TB/s`. Source: hpc-io/h5bench, `h5bench_patterns/*.c`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from iowatch.benchmarks.parsing import (
    CONFIRMED,
    MAX_ALIGNMENT,
    MAX_NAMES,
    CaseParameters,
    OutputBuilder,
    RunContext,
    parse_count,
)
from iowatch.core import KIB, MIB, Scalar

_Texts = Mapping[str, str]

_UNITS = {"": 1, "K": KIB, "M": MIB, "G": KIB**3, "T": KIB**4}
_AMOUNT = re.compile(r"(\d{1,7}\.\d{3}) +([KMGT]?)B(?:/s)?")
_SECONDS = re.compile(r"(\d+\.\d{3})(?: s)?")
_NOT_FINITE = re.compile(r"nan|inf|\b0\.000 ", re.IGNORECASE)
_HALF_SECOND = 0.0005
# `gettimeofday` counts whole microseconds.
_CLOCK_S = 1e-6
# The programs compute in single precision.
_SINGLE = 1e-5

YES = {"YES": True, "NO": False}


class PrintedAmount(NamedTuple):
    """A number (bytes, bytes per second, seconds) and half a unit of its last printed digit."""

    value: float
    half: float


def parse_amount(text: str) -> PrintedAmount | None:
    """Parse `512.000  B`, `8.000 MB` or `1.102 GB/s`; None if it is incomplete."""
    match = _AMOUNT.fullmatch(text.rstrip())
    if match is None:
        return None
    value, unit = float(match[1]), _UNITS[match[2]]
    # h5bench takes the unit in which the number is between 1 and 1024, and has no fractions of bytes.
    if 0 < value < 1 or (value >= KIB and match[2] != "T"):
        return None
    if unit == 1 and not value.is_integer():
        return None
    return PrintedAmount(value * unit, 0.0005 * unit + unit / KIB)


def format_h5bench_size(size_bytes: int) -> str:
    """Format a size as h5bench prints it."""
    letters = list(_UNITS)
    position, value, whole = 0, float(size_bytes), size_bytes
    while whole // KIB > 0 and position < len(letters) - 1:
        # The fraction of the last division is printed, those of earlier ones are lost.
        value = whole / KIB
        whole //= KIB
        position += 1
    return f"{value:.3f} {letters[position]:1}B"


def _parse_seconds(text: str) -> float | None:
    """Parse `0.029 s` or `0.029`."""
    match = _SECONDS.fullmatch(text.rstrip())
    return float(match[1]) if match else None


def product_range(rate: PrintedAmount, time: PrintedAmount, slack: float) -> tuple[float, float]:
    """Return the least and the largest bytes that rate x time can be."""
    shortest = max(time.value - time.half, _CLOCK_S)
    return (rate.value - rate.half) * shortest - slack, (rate.value + rate.half) * (time.value + time.half) + slack


def _keep_timings(
    builder: OutputBuilder,
    operation: str,
    case: CaseParameters,
    printed: _Texts,
    context: RunContext,
    times: _Texts | None = None,
    where: str = "",
) -> None:
    """Add the numbers that are consistent: rate x time is the size, and the digits of the time confirm the rate.

    Args:
        printed: rates and times of a program by their names in the CSV. The observed rate excludes the
            emulated computation.
        times: metric -> seconds, additional times.
    """
    total = float(case["total_bytes"] or 0)
    raw, observed = _parse_seconds(printed["raw time"]), _parse_seconds(printed["observed time"])
    computing = _parse_seconds(printed["total compute time"])
    if raw is None or observed is None or computing is None:
        builder.add_truncation(f"{where}the times are not printed whole")
        return
    # The observed time without the computation is a difference of two printed numbers.
    time_of_rate = {
        "raw": PrintedAmount(raw, _HALF_SECOND),
        "observed": PrintedAmount(observed - computing, 2 * _HALF_SECOND),
    }
    samples: dict[str, float] = {}
    for name, time in time_of_rate.items():
        text = printed[f"{name} rate"]
        rate, words = parse_amount(text), f"{where}a rate of '{text.strip()}'"
        if rate is None or rate.value == 0:
            report = builder.add_failure if _NOT_FINITE.search(text) else builder.add_truncation
            report(f"{words} is not a plausible rate")
            continue
        low, high = product_range(rate, time, total * (_SINGLE + 1 / KIB))
        samples[f"{name}_bandwidth"] = rate.value / MIB
        if not low <= total <= high:
            builder.add_truncation(f"{words}, its time and its size contradict each other")
            return
        if high - low > CONFIRMED * total and not context.fresh:
            builder.add_truncation(f"{words} is not confirmed: its time, {time.value:.3f} s, has too few digits")
            return
    samples |= {"transfer_time": raw, "time": observed}
    for metric, text in (times or {}).items():
        seconds = _parse_seconds(text)
        if seconds is None or seconds > observed + _HALF_SECOND:
            builder.add_truncation(f"{where}the {metric.replace('_', ' ')} is not printed whole")
        else:
            samples[metric] = seconds
    for metric, value in samples.items():
        builder.add_samples(operation, metric, [value], case)


_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_() ]*?)(?:: ?| = )(.*)")
_RATE = re.compile(r"results: (A?SYNC) (?:Raw|Observed) (write|read|modify) rate")
_STEP = re.compile(r"(?:Writing|Reading) Timestep_(\d{1,9}) \.\.\.")
# function that writes (all versions from 1.3 to 1.6) -> memory and file pattern
_PATTERNS = {
    "contig_contig_MD_array": "contiguous",
    "contig_to_interleaved": "contiguous-interleaved",
    "interleaved_to_contig": "interleaved-contiguous",
    "interleaved_to_interleaved": "interleaved",
}
_PATTERN = re.compile(rf"data_write_({'|'.join(_PATTERNS)}): Finished writing time step")
_AVAILABLE = re.compile(r"(Total particles in the file|Number of particles available per rank): (\d+)")
_STRIDE = re.compile(r"Stride parameters: STRIDE_SIZE = \d+, BLOCK_SIZE = (\d{1,9}), BLOCK_CNT = (\d{1,9})")
_ALIGNMENT = re.compile(r"Value of alignment (length|threshold) : +(\d+)")
_CHANGE = {"Append 8 variable completed": "append", "Overwrite 8 variable completed": "overwrite"}
_WRITE_TIMES = {"open_time": "H5Fcreate() time", "sync_time": "H5Fflush() time", "close_time": "H5Fclose() time"}
# More programs than one job starts; limits memory.
_MOST_PROGRAMS = 1_000
# Eight variables of four bytes.
_PARTICLE_BYTES = 32


# Beginning of a line -> the property of the program that it states.
_FLAGS = {
    "Given mean particles": "varying",
    "Parallel compressed: ": "compressing",
    "Collective write: ": "unlimited",
    "Strided access settings": "strided",
    "Align settings": "aligned",
}


@dataclass
class _ProgramOutput:
    """Output of one program, from its first line to the end of its results.

    Attributes:
        flags: values of `_FLAGS` seen.
        inside: current section, `configuration` or `results`.
        closed: whether the end of the results was seen.
    """

    values: dict[str, str] = field(default_factory=dict)
    dims: dict[str, str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    steps: int = 0
    patterns: set[str] = field(default_factory=set)
    stride: tuple[int, int] | None = None
    change: str | None = None
    inside: str = ""
    closed: bool = False
    contradicts: bool = False
    alignment: dict[str, str] = field(default_factory=dict)
    available: dict[str, int] = field(default_factory=dict)

    def result(self, name: str) -> str:
        """Return the value under `Performance Results`."""
        return self.values.get(f"results: {name}", "")

    def option(self, name: str) -> str:
        """Return the value under `Benchmark Configuration`."""
        return self.values.get(f"configuration: {name}", "")


class PatternsReader:
    """Collects the output of the programs."""

    def __init__(self) -> None:
        self._blocks: list[_ProgramOutput] = []
        self._same = ""

    def read(self, line: str) -> None:
        """Parse one cleaned line; the lines of a time step are tested first, because there are millions of them."""
        text = line.strip()
        if text == self._same or text.startswith("Computing..."):
            return
        if text.startswith(("Writing T", "Reading T")) and self._blocks:
            if (step := _STEP.fullmatch(text)) is not None:
                block = self._blocks[-1]
                block.contradicts |= int(step[1]) != block.steps or block.inside == "results"
                block.steps += 1
            return
        self._read_infrequent_line(text)

    def _read_infrequent_line(self, text: str) -> None:
        # a configuration after results: the first line of the next program is missing
        restarts = bool(self._blocks) and self._blocks[-1].closed and "Benchmark Configuration" in text
        if not self._blocks or text.startswith("Configuration file: ") or restarts:
            if self.full:
                return
            self._blocks.append(_ProgramOutput())
            self._same = ""
        block = self._blocks[-1]
        if text.startswith("==="):
            if "Configuration" in text or "Results" in text:
                name = "configuration" if "Configuration" in text else "results"
                block.contradicts |= block.inside == name or block.closed
                block.inside = name
            elif set(text) == {"="}:
                block.closed |= block.inside == "results"
                block.inside = ""
        elif block.inside and not text.startswith("Stride parameters: "):
            _read_value(block, text)
        elif (pattern := _PATTERN.fullmatch(text)) is not None:
            block.patterns.add(pattern[1])
            self._same = text
        else:
            _read_other(block, text)

    @property
    def full(self) -> bool:
        """Whether the maximum number of programs is reached."""
        return len(self._blocks) >= _MOST_PROGRAMS

    def check(self, builder: OutputBuilder, context: RunContext) -> None:
        """Check all programs and add their numbers to the builder."""
        if self.full:
            builder.add_failure(f"more than {_MOST_PROGRAMS - 1} programs wrote into this output")
        for number, block in enumerate(self._blocks, 1):
            _check_program(builder, block, f"program {number}: " if len(self._blocks) > 1 else "", context)


def _read_other(block: _ProgramOutput, text: str) -> None:
    """Parse lines before, between and after the configuration and the results."""
    if (stride := _STRIDE.fullmatch(text)) is not None:
        block.stride = int(stride[1]), int(stride[2])
    elif (available := _AVAILABLE.fullmatch(text)) is not None:
        block.available[available[1][0]] = int(available[2])
    elif (alignment := _ALIGNMENT.fullmatch(text)) is not None:
        block.alignment[f"align {alignment[1]}"] = alignment[2]
    elif text in _CHANGE:
        block.change = _CHANGE[text]
    else:
        block.flags.update(flag for beginning, flag in _FLAGS.items() if text.startswith(beginning))


def _read_value(block: _ProgramOutput, text: str) -> None:
    match = _KEY.fullmatch(text)
    if match is None:
        return
    if match[1] in _FLAGS:
        block.flags.add(_FLAGS[match[1]])
    name = f"{block.inside}: {match[1]}"
    if match[1].startswith("Dim_") and len(block.dims) <= MAX_NAMES:
        block.dims[match[1]] = match[2]
    if len(block.values) > MAX_NAMES or block.values.setdefault(name, match[2]) != match[2]:
        block.contradicts = True


def _check_program(builder: OutputBuilder, block: _ProgramOutput, where: str, context: RunContext) -> None:
    if not block.closed:
        builder.add_truncation(f"{where}the results are not printed whole")
    # The names of the rates tell the mode (SYNC or ASYNC) and the operation.
    rates: set[tuple[str, str]] = set()
    for name in block.values:
        match = _RATE.fullmatch(name)
        if match is not None:
            rates.add((match[1], match[2]))
    if len(rates) != 1:
        builder.add_truncation(f"{where}no rates were printed whole")
        return
    mode, word = rates.pop()
    case = _pattern_case(block, mode, word)
    if word == "modify" and block.change is None:
        builder.add_truncation(f"{where}the line that names the operation, append or overwrite, is missing")
    elif case is None:
        builder.add_truncation(f"{where}the configuration is not printed whole, or contradicts the results")
    elif case["particles"] == 1:
        builder.add_failure(f"{where}one particle a rank: the configuration lacks its dimensions")
    else:
        mismatch = context.rank_mismatch_reason(case["ranks"], "h5bench")
        if mismatch is not None:
            builder.add_failure(f"{where}{mismatch}")
            return
        operation = (block.change or word) if word == "modify" else word
        if builder.has_results(operation, case):
            builder.add_failure(
                f"{where}a program with the same operation and parameters wrote into this output before"
            )
            return
        times: dict[str, str] = {}
        if word == "write":
            times = {metric: block.result(name) for metric, name in _WRITE_TIMES.items()}
        _keep_timings(builder, operation, case, _printed_timings(block, mode, word), context, times, where)
        builder.facts.setdefault("metadata_time_s", []).append(_parse_seconds(block.result("Metadata time")))


def _printed_timings(block: _ProgramOutput, mode: str, word: str) -> dict[str, str]:
    """Return rates and times of a program by their names in the CSV."""
    observed_time = "Observed completion time" if word == "write" else f"Observed {word} completion time"
    return {
        "raw rate": block.result(f"{mode} Raw {word} rate"),
        "observed rate": block.result(f"{mode} Observed {word} rate"),
        "raw time": block.result(f"Raw {word} time"),
        "observed time": block.result(observed_time),
        "total compute time": block.result("Total emulated compute time"),
    }


def _pattern_case(block: _ProgramOutput, mode: str, word: str) -> CaseParameters | None:
    """Return the parameters if all printed information about them agrees, else None."""
    ranks = parse_count(block.result("Total number of ranks"))
    particles = parse_count(block.option("Number of particles per rank"))
    steps = parse_count(block.option("Number of time steps"))
    dims: list[int] = []
    for axis in range(1, len(block.dims) + 1):
        dims.append(parse_count(block.dims.get(f"Dim_{axis}", "")) or 0)
    collective = YES.get(block.option("Collective buffering for data operations"))
    metadata = YES.get(block.option("Collective metadata operations"))
    if not (ranks and particles and steps) or collective is None or metadata is None:
        return None
    if not _is_consistent(block, word):
        return None
    shape_fits = math.prod(dims) == particles or _is_partial_read(block, word, ranks * steps, particles, dims)
    if not shape_fits or len(dims) > 3 or block.option("Number of dimensions") != str(len(dims)):
        return None
    # Programs that read print the share of the file per rank.
    available = block.available
    if word != "write" and ({"T", "N"} - available.keys() or available["T"] // ranks != available["N"]):
        return None
    total = _total_bytes(block, word, ranks * steps * _PARTICLE_BYTES, particles)
    if total is None or block.steps != steps:
        return None
    # `_is_consistent` allows at most one pattern.
    pattern = next((_PATTERNS[name] for name in block.patterns), None)
    if block.stride is not None:
        pattern = "strided"
    return {
        "api": "HDF5",
        "file": "shared",
        "collective": collective,
        "collective_metadata": metadata,
        "pattern": pattern,
        "mode": "async" if mode == "ASYNC" else None,
        "ranks": ranks,
        "local_size": "x".join(map(str, dims)),
        "particles": particles,
        "steps": steps,
        "distribution": "normal" if "varying" in block.flags else None,
        "unlimited": "unlimited" in block.flags or None,
        "compressed": "compressing" in block.flags or None,
        "alignment_bytes": parse_count(block.option("align length")) if "aligned" in block.flags else None,
        "total_bytes": total,
    }


def _is_partial_read(block: _ProgramOutput, word: str, times: int, particles: int, dims: list[int]) -> bool:
    """Return whether only the first part of each rank's share was read (TO_READ_NUM_PARTICLES) and the size matches."""
    fits = format_h5bench_size(times * _PARTICLE_BYTES * particles) == block.result("Total read size").rstrip()
    return fits and word == "read" and particles < math.prod(dims) == block.available.get("N")


def _is_consistent(block: _ProgramOutput, word: str) -> bool:
    """Return whether all printed values of pattern, strides, alignment and compression agree."""
    # Strides are printed in three places; some programs print strides of 0 for anything else.
    sizes = [block.option("Stride size"), block.option("Block size")]
    strided = ("strided" in block.flags) == all(sizes) == any(sizes)
    strided &= (block.stride is not None) == (sizes[0] not in ("", "0"))
    # Programs that align print it, most of them twice; others print nothing about it.
    lengths = [parse_count(block.option(name)) for name in ("align length", "align threshold")]
    plausible = all(length is not None and length <= MAX_ALIGNMENT for length in lengths)
    aligned = plausible if "aligned" in block.flags else not any(lengths)
    aligned &= all(block.option(name).strip() == value for name, value in block.alignment.items())
    # Programs that compress print it twice; programs that write print their pattern.
    compressed = "compressing" not in block.flags or block.option("Use compression") == "1"
    patterns = len(block.patterns) == (word == "write" and "unlimited" not in block.flags)
    return strided and aligned and compressed and patterns and not block.contradicts


def _total_bytes(block: _ProgramOutput, word: str, share: int, particles: int) -> int | None:
    """Return the bytes of the run: exact if the configuration explains them, otherwise (partial reads) as printed."""
    printed = block.result(f"Total {word} size").rstrip()
    size = parse_amount(printed)
    if size is None:
        return None
    selected = [particles] if block.stride is None else [particles, math.prod(block.stride)]
    exact = next((share * n for n in selected if format_h5bench_size(share * n) == printed), None)
    if exact is not None:
        return exact
    rounded = share * round(size.value / share)
    if "varying" in block.flags:
        return round(size.value)
    partial = word == "read" and size.value <= share * particles and format_h5bench_size(rounded) == printed
    return round(size.value) if partial else None


H5BENCH_CSV_HEADER = "metric, value, unit"
# operation as printed -> operation in iowatch, and case parameters that follow from it
_OPERATIONS: dict[str, tuple[str, dict[str, Scalar | None]]] = {
    **{name: (name, {}) for name in ("write", "read", "append", "overwrite")},
    "write unlimited": ("write", {"unlimited": True}),
    "write_var_normal_dist": ("write", {"distribution": "normal"}),
}
_ALWAYS = {
    "operation",
    "ranks",
    "total compute time",
    "total size",
    "raw time",
    "raw rate",
    "metadata time",
    "observed rate",
    "observed time",
}
_COLLECTIVE = {"collective data", "collective meta"}
_SOMETIMES = {"subfiling", "Total number of particles", "Final mean particles", "Final standard deviation"}


class H5benchCsvReader:
    """Collects the rows."""

    def __init__(self) -> None:
        self._rows: dict[str, str] = {}
        self._headers = 0
        self._contradicts = False

    def read(self, line: str) -> None:
        """Parse one cleaned line."""
        if line == H5BENCH_CSV_HEADER:
            self._headers += 1
            return
        name, _, rest = line.partition(", ")
        value, _, unit = rest.partition(", ")
        text = (value if unit in ("", "seconds") else f"{value} {unit}").rstrip(",")
        if len(self._rows) > MAX_NAMES or self._rows.setdefault(name, text) != text:
            self._contradicts = True

    def check(self, builder: OutputBuilder, context: RunContext) -> None:
        """Check the rows and add the numbers to the builder."""
        case = None if self._contradicts or self._headers != 1 else self._case()
        if case is None:
            builder.add_truncation("the rows are not printed whole, or contradict each other")
            return
        mismatch = context.rank_mismatch_reason(case["ranks"], "h5bench")
        if mismatch is not None:
            builder.add_failure(mismatch)
            return
        operation, _ = _OPERATIONS[self._rows["operation"]]
        _keep_timings(builder, operation, case, self._rows, context)

    def _case(self) -> CaseParameters | None:
        rows = self._rows
        known_operation = _OPERATIONS.get(rows.get("operation", ""))
        ranks, size = parse_count(rows.get("ranks", "")), parse_amount(rows.get("total size", ""))
        if known_operation is None or ranks is None or size is None:
            return None
        operation, parameters = known_operation
        if any(rows[name] not in YES for name in _COLLECTIVE & rows.keys()):
            return None
        # Programs that change a file do not print how they do it.
        expected = _ALWAYS if operation in ("append", "overwrite") else _ALWAYS | _COLLECTIVE
        if not expected <= rows.keys() <= expected | _COLLECTIVE | _SOMETIMES:
            return None
        # all ranks do the same, unless sizes are drawn at random
        share = _PARTICLE_BYTES
        if "distribution" not in parameters:
            share *= ranks
        if parse_amount(format_h5bench_size(share * round(size.value / share))) != size:
            return None
        return {
            "api": "HDF5",
            "collective": YES.get(rows.get("collective data", "")),
            "collective_metadata": YES.get(rows.get("collective meta", "")),
            "ranks": ranks,
            "total_bytes": round(size.value),
            **parameters,
        }
