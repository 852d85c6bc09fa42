"""Output of h5bench's metadata benchmark `hdf5_iotest`, as text and CSV; no suite starts it.

It prints rates of the slowest and the fastest rank: one rank's share of the bytes over its time, kept as
`rank_bandwidth`, minimum and maximum as two samples. Source: hpc-io/h5bench, `metadata_stress/hdf5_iotest.c`.
"""

from __future__ import annotations

import math
import re

from iowatch.benchmarks.h5bench_output import PrintedAmount, product_range
from iowatch.benchmarks.parsing import CONFIRMED, MAX_NAMES, CaseParameters, OutputBuilder, RunContext, parse_count
from iowatch.core import MIB

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
