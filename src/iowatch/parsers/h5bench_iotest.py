"""Output of h5bench's metadata benchmark, `hdf5_iotest`: rates of the slowest and the fastest rank.

A rate is one rank's share of the bytes over its time, so it is kept as `rank_bandwidth`, minimum and maximum as
two samples. Source: hpc-io/h5bench, `metadata_stress/hdf5_iotest.c`.
"""

from __future__ import annotations

import re

from iowatch.model import Scalar
from iowatch.parsers.draft import MOST_NAMES, Draft, Evidence
from iowatch.parsers.h5bench_numbers import whole

CSV_HEADER = "steps,arrays,rows,cols,scaling,proc-rows,"
_PAIR = re.compile(r"([a-z-]+)=([a-z0-9]+)")
_MINIMUM = re.compile(r"([A-Z][a-z]+ [a-z]+) \[(?:s|MiB/s)\]:\s+_(\d+\.\d\d)")
_MAXIMUM = re.compile(r"\s*\^(\d+\.\d\d)")
_TOTAL = re.compile(r"(Wall clock \[s\]|File size \[B\]):\s+(\d+(?:\.\d\d)?)")
_ROWS = ("Write phase", "Create time", "Write time", "Write rate", "Read phase", "Read time", "Read rate")
_COLUMNS = {
    **{"cols": "columns", "slowdim": "slowest-dimension"},
    **{"wall [s]": "Wall clock [s]", "fsize [B]": "File size [B]"},
}
_WORDS = {
    "scaling": ("weak", "strong"),
    "layout": ("contiguous", "chunked"),
    "slowest-dimension": ("step", "array"),
}
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
        """Take one cleaned line."""
        if line.startswith(CSV_HEADER):
            self._columns = line.split(",")
        elif self._columns and line.count(",") == len(self._columns) - 1:
            self._read_record(dict(zip(self._columns, line.split(","), strict=True)))
        else:
            self._read_text(line)

    def _read_text(self, line: str) -> None:
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
        for row in _ROWS:
            short = row.lower().replace("create time", "creat").replace(" time", "").replace(" ", "-")
            unit = "MiB/s" if row.endswith("rate") else "s"
            pair = [record.get(f"{short}-{end} [{unit}]", "") for end in ("min", "max")]
            if all(re.fullmatch(r"\d+\.\d\d", text) for text in pair):
                self._add(row, float(pair[0]), float(pair[1]))

    def _set(self, name: str, value: str) -> None:
        if len(self._parameters) > MOST_NAMES or self._parameters.setdefault(name, value) != value:
            self._contradicts = True

    def _add(self, name: str, low: float, high: float) -> None:
        if low > high or self._rows.setdefault(name, (low, high)) != (low, high):
            self._contradicts = True

    def judge(self, draft: Draft, evidence: Evidence) -> None:
        """Judge and keep the numbers."""
        case = self._case()
        if case is None or self._contradicts:
            draft.cut("the parameters are not printed whole, or contradict each other")
            return
        if others := evidence.other_ranks(case["ranks"], "hdf5_iotest"):
            draft.fail(others)
            return
        missing = [name for name in _ROWS if name not in self._rows]
        if missing:
            draft.cut(f"'{missing[0]}' is missing or damaged")
        self._keep(draft, case)

    def _case(self) -> dict[str, Scalar | None] | None:
        found = self._parameters
        names = ("steps", "arrays", "rows", "columns")
        sizes = [whole(found.get(name, "")) for name in names]
        grid = found.get("proc-grid") or f"{found.get('proc-rows')}x{found.get('proc-cols')}"
        match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", grid)
        modes = {"independent": False, "collective": True}
        if None in sizes or match is None or found.get("mpi-io") not in modes:
            return None
        if not all(found.get(name) in words for name, words in _WORDS.items()):
            return None
        return {
            "api": "HDF5",
            "file": "shared",
            "collective": modes[found["mpi-io"]],
            "ranks": int(match[1]) * int(match[2]),
            **dict(zip(names, sizes, strict=True)),
            "scaling": found["scaling"],
            "layout": found.get("layout"),
            "pattern": found.get("slowest-dimension"),
        }

    def _keep(self, draft: Draft, case: dict[str, Scalar | None]) -> None:
        share = _ELEMENT_BYTES / 2**20
        for name in ("steps", "arrays", "rows", "columns"):
            share *= int(case[name] or 0)
        for operation in ("write", "read"):
            times = self._rows.get(f"{operation.capitalize()} time")
            rates = self._rows.get(f"{operation.capitalize()} rate")
            if times is None or rates is None:
                continue
            if case["scaling"] == "weak" and not _fits(share, times, rates):
                draft.cut(f"{operation} rates, times and sizes contradict each other")
                continue
            draft.keep(operation, "rank_bandwidth", rates, case)
            draft.keep(operation, "transfer_time", [times[1]], case)


def _fits(share_mib: float, times: tuple[float, float], rates: tuple[float, float]) -> bool:
    """The fastest rank took the shortest time for its share, the slowest the longest."""
    return all(
        (rate - _HALF) * max(time - _HALF, 0) <= share_mib <= (rate + _HALF) * (time + _HALF)
        for rate, time in zip(rates, reversed(times), strict=True)
    )
