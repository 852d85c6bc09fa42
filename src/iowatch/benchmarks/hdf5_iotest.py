"""h5bench's metadata benchmark `hdf5_iotest`: options, and its output as text and CSV.

It writes and reads steps x arrays of doubles in many small transfers (`dataset-rank: 2`: a data set for each).
It prints rates of the slowest and the fastest rank: one rank's share of the bytes over its time, kept as
`rank_bandwidth`, minimum and maximum as two samples. Source: hpc-io/h5bench, `metadata_stress/hdf5_iotest.c`.
"""

from __future__ import annotations

import math
import re
import shlex

from iowatch.benchmarks import benchmark
from iowatch.benchmarks.h5bench_output import PrintedAmount, product_range
from iowatch.benchmarks.options import NODES, RANKS, Option, Options, OptionType, declare_options, repeat_option
from iowatch.benchmarks.parsing import (
    CONFIRMED,
    MAX_NAMES,
    CaseParameters,
    CleanLines,
    OutputBuilder,
    RunContext,
    parse_count,
)
from iowatch.core import MIB, Scalar

IOTEST_CSV_HEADER = "steps,arrays,rows,cols,scaling,proc-rows,"
# A name begins where the character before is of none: else each character of a long word would begin another search.
_PAIR = re.compile(r"(?<![a-z-])([a-z-]+)=([a-z0-9]+)")
_MINIMUM = re.compile(r"([A-Z][a-z]+ [a-z]+) \[(?:s|MiB/s)\]:\s+_(\d+\.\d\d)")
_MAXIMUM = re.compile(r"\s*\^(\d+\.\d\d)")
_TWO_DECIMALS = re.compile(r"\d+\.\d\d")
_TOTAL = re.compile(r"(Wall clock \[s\]|File size \[B\]):\s+(\d+(?:\.\d\d)?)")
_IOTEST_ROWS = ("Write phase", "Create time", "Write time", "Write rate", "Read phase", "Read time", "Read rate")
_COLUMNS = {
    **{"cols": "columns", "slowdim": "slowest-dimension"},
    **{"wall [s]": "Wall clock [s]", "fsize [B]": "File size [B]"},
}
_SIZES = ("steps", "arrays", "rows", "columns")
_WORDS = {"scaling": ("weak", "strong"), "layout": ("contiguous", "chunked"), "slowest-dimension": ("step", "array")}
_ELEMENT_BYTES = 8
_HALF = 0.005


class IotestReader:
    """Collects parameters and (minimum, maximum) of each row, from stdout or from the CSV."""

    def __init__(self) -> None:
        self._parameters: dict[str, str] = {}
        self._rows: dict[str, tuple[float, float]] = {}
        self._open: tuple[str, float] | None = None
        self._columns: list[str] = []
        self._contradicts = False

    def read(self, line: str) -> None:
        """Parse one cleaned line."""
        if line.startswith(IOTEST_CSV_HEADER):
            self._columns = line.split(",")
            return
        if self._columns and line.count(",") == len(self._columns) - 1:
            self._read_record(dict(zip(self._columns, line.split(","), strict=True)))
            return
        # The maximum of a row is alone on the line after its minimum.
        opened, self._open = self._open, None
        maximum = _MAXIMUM.fullmatch(line)
        minimum = _MINIMUM.fullmatch(line)
        total = _TOTAL.fullmatch(line)
        if maximum is not None and opened is not None:
            name, least = opened
            self._add(name, least, float(maximum[1]))
        elif minimum is not None:
            self._open = minimum[1], float(minimum[2])
        elif total is not None:
            self._set(total[1], total[2])
        elif line.startswith("\t"):
            for key, value in _PAIR.findall(line):
                self._set(key, value)

    def _read_record(self, record: dict[str, str]) -> None:
        for name, value in record.items():
            self._set(_COLUMNS.get(name, name), value)
        for row in _IOTEST_ROWS:
            # "Create time" of the text is the column "creat-min [s]".
            column = row.lower().replace("create time", "creat").replace(" time", "").replace(" ", "-")
            unit = "MiB/s" if row.endswith("rate") else "s"
            minimum, maximum = record.get(f"{column}-min [{unit}]", ""), record.get(f"{column}-max [{unit}]", "")
            if _TWO_DECIMALS.fullmatch(minimum) and _TWO_DECIMALS.fullmatch(maximum):
                self._add(row, float(minimum), float(maximum))

    def _set(self, name: str, value: str) -> None:
        if len(self._parameters) > MAX_NAMES or self._parameters.setdefault(name, value) != value:
            self._contradicts = True

    def _add(self, name: str, low: float, high: float) -> None:
        if low > high or self._rows.setdefault(name, (low, high)) != (low, high):
            self._contradicts = True

    def check(self, builder: OutputBuilder, context: RunContext) -> None:
        """Check the numbers and add them to the builder."""
        case = self._case()
        if case is None or self._contradicts:
            builder.add_truncation("the parameters are not printed whole, or contradict each other")
            return
        mismatch = context.rank_mismatch_reason(case["ranks"], "hdf5_iotest")
        if mismatch is not None:
            builder.add_failure(mismatch)
            return
        missing = [name for name in _IOTEST_ROWS if name not in self._rows]
        if missing:
            builder.add_truncation(f"'{missing[0]}' is missing or damaged")
        for operation in ("write", "read"):
            self._check_operation(builder, operation, case, context)

    def _check_operation(
        self, builder: OutputBuilder, operation: str, case: CaseParameters, context: RunContext
    ) -> None:
        """Add the rates and the time of an operation if they confirm each other."""
        times = self._rows.get(f"{operation.capitalize()} time")
        rates = self._rows.get(f"{operation.capitalize()} rate")
        if times is None or rates is None:
            return
        share = _mib_of_a_rank(case)
        # The fastest rank needed the shortest time for its share, the slowest the longest.
        ranges: list[tuple[float, float]] = []
        for rate, time_s in zip(rates, reversed(times), strict=True):
            ranges.append(product_range(PrintedAmount(rate, _HALF), PrintedAmount(time_s, _HALF), 0))
        if not all(low <= share <= high for low, high in ranges):
            builder.add_truncation(f"{operation} rates, times and sizes contradict each other")
            return
        is_confirmed = all(high - low <= CONFIRMED * share for low, high in ranges)
        if not is_confirmed and not context.fresh:
            builder.add_truncation(f"the {operation} rates are not confirmed: their times have too few digits")
            return
        builder.add_samples(operation, "rank_bandwidth", rates, case)
        builder.add_samples(operation, "transfer_time", [times[1]], case)

    def _case(self) -> CaseParameters | None:
        """Return the case parameters; None if one is missing or impossible."""
        printed = self._parameters
        sizes = {name: parse_count(printed.get(name, "")) for name in _SIZES}
        # The text has one word for the grid, the CSV two columns.
        grid = printed.get("proc-grid") or f"{printed.get('proc-rows')}x{printed.get('proc-cols')}"
        match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", grid)
        modes = {"independent": False, "collective": True}
        if None in sizes.values() or match is None or printed.get("mpi-io") not in modes:
            return None
        for name, words in _WORDS.items():
            if printed.get(name) not in words:
                return None
        return {
            "api": "HDF5",
            "file": "shared",
            "collective": modes[printed["mpi-io"]],
            "ranks": int(match[1]) * int(match[2]),
            **sizes,
            "scaling": printed["scaling"],
            "layout": printed["layout"],
            "pattern": printed["slowest-dimension"],
        }


def _mib_of_a_rank(case: CaseParameters) -> float:
    """Return the MiB that each rank writes and reads: with strong scaling the sizes are those of all ranks."""
    elements = math.prod(int(case[name] or 0) for name in _SIZES)
    ranks = int(case["ranks"] or 1) if case["scaling"] == "strong" else 1
    return elements * _ELEMENT_BYTES / MIB / ranks


_CONFIGURATION, _SCRATCH = "hdf5_iotest.ini", "hdf5_iotest.scratch"
_OPTIONS = declare_options(
    Option("steps", OptionType.NUMBER, "steps", default=20, minimum=1),
    Option("arrays", OptionType.NUMBER, "arrays per step", default=100, minimum=1),
    # hdf5_iotest refuses fewer rows and columns with a failed assertion.
    Option("rows", OptionType.NUMBER, "rows of an array of one rank", default=100, minimum=2),
    Option("columns", OptionType.NUMBER, "columns of an array of one rank", default=200, minimum=2),
    Option(
        "dataset-rank",
        OptionType.NUMBER,
        "2: a data set per step and array; 3: per step, or per array; 4: one",
        default=2,
        minimum=2,
        maximum=4,
    ),
    Option("slowest", OptionType.CHOICE, "slowest dimension", default="step", choices=_WORDS["slowest-dimension"]),
    Option("layout", OptionType.CHOICE, "layout of data sets", default="contiguous", choices=_WORDS["layout"]),
    Option("collective", OptionType.FLAG, "collective transfers", default=False),
    repeat_option(3, "number of runs; one sample of the slowest and one of the fastest rank per run"),
    RANKS,
    NODES,
)


def _process_grid(ranks: int) -> tuple[int, int]:
    """Return the rows and columns of ranks that are most nearly a square."""
    rows = next(n for n in range(math.isqrt(ranks), 0, -1) if ranks % n == 0)
    return rows, ranks // rows


def _sizes(options: Options) -> dict[str, int]:
    return {name: options.number(name) for name in _SIZES}


def _configuration(options: Options) -> dict[str, str]:
    """Return its configuration file.

    It names the file of data, by a link in the directory of the job: lines are limited to 200 characters (`ini.h`).
    """
    rows, columns = _process_grid(options.number("ranks"))
    settings: dict[str, str | int] = {
        "version": 0,
        **_sizes(options),
        "process-rows": rows,
        "process-columns": columns,
        "scaling": "weak",
        "dataset-rank": options.number("dataset-rank"),
        "slowest-dimension": options.text("slowest"),
        "layout": options.text("layout"),
        "mpi-io": "collective" if options.flag("collective") else "independent",
        "hdf5-file": f"{_SCRATCH}/hdf5_iotest.h5",
        "csv-file": "hdf5_iotest.csv",
    }
    lines = [f"{name} = {value}\n" for name, value in settings.items()]
    return {_CONFIGURATION: "[DEFAULT]\n" + "".join(lines)}


def _file_bytes(options: Options) -> int:
    return math.prod(_sizes(options).values()) * _ELEMENT_BYTES * options.number("ranks")


def _printed_parameters(options: Options) -> dict[str, Scalar]:
    return {
        **_sizes(options),
        "ranks": options.number("ranks"),
        "collective": options.flag("collective"),
        "layout": options.text("layout"),
        "pattern": options.text("slowest"),
    }


def parse_hdf5_iotest(builder: OutputBuilder, lines: CleanLines, context: RunContext) -> None:
    """Parse an output of hdf5_iotest."""
    reader, heads = IotestReader(), 0
    for line in lines:
        heads += line.startswith(("Config loaded from", IOTEST_CSV_HEADER))
        reader.read(line)
    builder.recognised = heads > 0
    if heads > 1:
        builder.add_failure("output of more than one hdf5_iotest run")
        return
    reader.check(builder, context)
    if not lines.ended:
        builder.add_truncation("the last line is truncated")


HDF5_IOTEST = benchmark.Benchmark(
    name="hdf5_iotest",
    title="hdf5_iotest",
    check="Hdf5IotestCheck",
    parse=parse_hdf5_iotest,
    package="h5bench",
    probe=benchmark.ProgramProbe("h5bench_hdf5_iotest", option="metadata"),
    options=_OPTIONS,
    program=lambda _options: "h5bench_hdf5_iotest",
    arguments=lambda _options, _scratch: [_CONFIGURATION],
    requires=lambda _options: ("mpi", "hdf5", "hdf5_iotest"),
    expects=lambda _options: (("write", "rank_bandwidth"), ("read", "rank_bandwidth")),
    samples=lambda options: 2 * benchmark.repetitions(options),
    shows=_printed_parameters,
    file_bytes=_file_bytes,
    volume_bytes=lambda options: 2 * _file_bytes(options) * benchmark.repetitions(options),
    configuration=_configuration,
    runs=benchmark.repetitions,
    before=lambda _options, scratch: f"ln -sfn {shlex.quote(scratch)} {_SCRATCH}",
    # It reads directly what it has written.
    case=lambda options: {"cache": "keep", "dataset_rank": options.number("dataset-rank")},
    layers=lambda _case: benchmark.API_LAYERS["HDF5"],
)
