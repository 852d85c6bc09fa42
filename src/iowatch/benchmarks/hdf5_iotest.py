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
from iowatch.benchmarks.parsing import (
    CONFIRMED,
    MAX_NAMES,
    CaseParameters,
    CleanLines,
    OutputBuilder,
    RunContext,
    parse_count,
)
from iowatch.core import MIB, InputError, Scalar

IOTEST_CSV_HEADER = "steps,arrays,rows,cols,scaling,proc-rows,"
_PAIR = re.compile(r"([a-z-]+)=([a-z0-9]+)")
_MINIMUM = re.compile(r"([A-Z][a-z]+ [a-z]+) \[(?:s|MiB/s)\]:\s+_(\d+\.\d\d)")
_MAXIMUM = re.compile(r"\s*\^(\d+\.\d\d)")
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
        maximum, opened = _MAXIMUM.fullmatch(line), self._open
        self._open = None
        if maximum is not None and opened is not None:
            self._add(opened[0], opened[1], float(maximum[1]))
        elif (minimum := _MINIMUM.fullmatch(line)) is not None:
            self._open = minimum[1], float(minimum[2])
        elif (total := _TOTAL.fullmatch(line)) is not None:
            self._set(total[1], total[2])
        elif line.startswith("\t"):
            for key, value in _PAIR.findall(line):
                self._set(key, value)

    def _read_record(self, record: dict[str, str]) -> None:
        for name, value in record.items():
            self._set(_COLUMNS.get(name, name), value)
        for row in _IOTEST_ROWS:
            short = row.lower().replace("create time", "creat").replace(" time", "").replace(" ", "-")
            unit = "MiB/s" if row.endswith("rate") else "s"
            pair = [record.get(f"{short}-{end} [{unit}]", "") for end in ("min", "max")]
            if all(re.fullmatch(r"\d+\.\d\d", text) for text in pair):
                self._add(row, float(pair[0]), float(pair[1]))

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
        if others := context.rank_mismatch_reason(case["ranks"], "hdf5_iotest"):
            builder.add_failure(others)
            return
        if missing := [name for name in _IOTEST_ROWS if name not in self._rows]:
            builder.add_truncation(f"'{missing[0]}' is missing or damaged")
        parts = int(case["ranks"] or 1) if case["scaling"] == "strong" else 1
        share = math.prod(int(case[name] or 0) for name in _SIZES) * _ELEMENT_BYTES / MIB / parts
        for operation in ("write", "read"):
            times, rates = (self._rows.get(f"{operation.capitalize()} {kind}") for kind in ("time", "rate"))
            if times is None or rates is None:
                continue
            # the fastest rank needed the shortest time for its share, the slowest the longest
            pairs = zip(rates, reversed(times), strict=True)
            ranges = [product_range(PrintedAmount(r, _HALF), PrintedAmount(t, _HALF), 0) for r, t in pairs]
            if not all(low <= share <= high for low, high in ranges):
                builder.add_truncation(f"{operation} rates, times and sizes contradict each other")
                continue
            if any(high - low > CONFIRMED * share for low, high in ranges) and not context.fresh:
                builder.add_truncation(f"the {operation} rates are not confirmed: their times have too few digits")
                continue
            builder.add_samples(operation, "rank_bandwidth", rates, case)
            builder.add_samples(operation, "transfer_time", [times[1]], case)

    def _case(self) -> CaseParameters | None:
        found = self._parameters
        sizes = {name: parse_count(found.get(name, "")) for name in _SIZES}
        grid = found.get("proc-grid") or f"{found.get('proc-rows')}x{found.get('proc-cols')}"
        match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", grid)
        modes = {"independent": False, "collective": True}
        if None in sizes.values() or match is None or found.get("mpi-io") not in modes:
            return None
        if not all(found.get(name) in words for name, words in _WORDS.items()):
            return None
        return {
            "api": "HDF5",
            "file": "shared",
            "collective": modes[found["mpi-io"]],
            "ranks": int(match[1]) * int(match[2]),
            **sizes,
            "scaling": found["scaling"],
            "layout": found.get("layout"),
            "pattern": found.get("slowest-dimension"),
        }


_CONFIGURATION, _SCRATCH = "hdf5_iotest.ini", "hdf5_iotest.scratch"
_OPTIONS = {
    "steps": "steps",
    "arrays": "arrays per step",
    "rows": "rows of an array of one rank",
    "columns": "columns of an array of one rank",
    "dataset-rank": "2: a data set per step and array; 3: per step, or per array; 4: one",
    "slowest": "slowest dimension: step or array",
    "layout": "contiguous or chunked",
    "collective": "collective transfers",
    "repeat": "number of runs; one sample of the slowest and one of the fastest rank per run",
    "ranks": "MPI processes",
    "nodes": "nodes",
}
_DEFAULT_SIZES = {"steps": 20, "arrays": 100, "rows": 100, "columns": 200}


def _process_grid(options: benchmark.BenchmarkOptions) -> tuple[int, int]:
    """Return the rows and columns of ranks that are most nearly a square."""
    ranks = benchmark.integer_option(options, "ranks", 1)
    rows = next(n for n in range(math.isqrt(ranks), 0, -1) if ranks % n == 0)
    return rows, ranks // rows


def _sizes(options: benchmark.BenchmarkOptions) -> dict[str, int]:
    return {name: benchmark.integer_option(options, name, default) for name, default in _DEFAULT_SIZES.items()}


def _configuration(options: benchmark.BenchmarkOptions) -> dict[str, str]:
    """Return its configuration file.

    It names the file of data, by a link in the directory of the job: lines are limited to 200 characters (`ini.h`).

    Raises:
        InputError: a value that hdf5_iotest would refuse with a failed assertion.
    """
    rows, columns = _process_grid(options)
    sizes, dataset_rank = _sizes(options), benchmark.integer_option(options, "dataset-rank", 2)
    words: dict[str, str | int] = {
        "version": 0,
        **sizes,
        "process-rows": rows,
        "process-columns": columns,
        "scaling": "weak",
        "dataset-rank": dataset_rank,
        "slowest-dimension": str(options.get("slowest", "step")),
        "layout": str(options.get("layout", "contiguous")),
        "mpi-io": "collective" if options.get("collective") else "independent",
        "hdf5-file": f"{_SCRATCH}/hdf5_iotest.h5",
        "csv-file": "hdf5_iotest.csv",
    }
    for name, choices in _WORDS.items():
        if words[name] not in choices:
            raise InputError(f"{name} is {words[name]}, expected {' or '.join(choices)}")
    if dataset_rank not in (2, 3, 4):
        raise InputError("dataset-rank is 2, 3 or 4")
    if min(sizes["rows"], sizes["columns"]) < 2:
        raise InputError("rows and columns are at least 2")
    return {_CONFIGURATION: "[DEFAULT]\n" + "".join(f"{name} = {value}\n" for name, value in words.items())}


def _file_bytes(options: benchmark.BenchmarkOptions) -> int:
    return math.prod(_sizes(options).values()) * _ELEMENT_BYTES * benchmark.integer_option(options, "ranks", 1)


def _printed_parameters(options: benchmark.BenchmarkOptions) -> dict[str, Scalar]:
    return {
        **_sizes(options),
        "ranks": benchmark.integer_option(options, "ranks", 1),
        "collective": bool(options.get("collective")),
        "layout": str(options.get("layout", "contiguous")),
        "pattern": str(options.get("slowest", "step")),
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
    arguments=lambda _options, _place: [_CONFIGURATION],
    requires=lambda _options: ("mpi", "hdf5", "hdf5_iotest"),
    expects=lambda _options: (("write", "rank_bandwidth"), ("read", "rank_bandwidth")),
    samples=lambda options: 2 * benchmark.integer_option(options, "repeat", 3),
    shows=_printed_parameters,
    file_bytes=_file_bytes,
    volume_bytes=lambda options: 2 * _file_bytes(options) * benchmark.integer_option(options, "repeat", 3),
    configuration=_configuration,
    runs=lambda options: benchmark.integer_option(options, "repeat", 3),
    before=lambda _options, place: f"ln -sfn {shlex.quote(place)} {_SCRATCH}",
    # It reads directly what it has written.
    case=lambda options: {"cache": "keep", "dataset_rank": benchmark.integer_option(options, "dataset-rank", 2)},
    layers=lambda _case: benchmark.API_LAYERS["HDF5"],
)
