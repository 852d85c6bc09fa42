"""The table that our own benchio prints for people (`src/table.c`): less exact than its record.

It names neither the local size nor the options of storage, so a case from here is poorer than one from the
record; where there is a record, read that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from iowatch.model import Scalar
from iowatch.parsers.draft import MOST_ROWS, Draft, Evidence
from iowatch.units import MIB

HEAD = re.compile(
    r"benchio (\d+\.\d+\.\d+\S*): (\w+), (shared|per-process|per-node), (block3d|disjoint|interleaved)"
    r"(?:, (collective|independent))?"
)
_SIZE = re.compile(
    r"(\d{1,8}) ranks on (\d{1,8}) nodes?, (\d{1,9}) files?, (\d+(?:\.\d+)?) MiB a repetition,"
    r" (\d+) transfers a rank"
)
_PLACE = re.compile(r".* \(\S+\); page cache: (keep|drop|direct)(?:, achieved: (\w+))?; sync: (none|end|each)")
_SERIES = re.compile(r"(write|read)\s+MiB/s\s+seconds\s+open\s+transfer\s+sync\s+close\s+verify(?:\s+cached)?")
_ROW = re.compile(r"(\d+) +(\d+\.\d\d)((?: +\d+\.\d{6}){6})(?: +\d+\.\d%)?")
_SUMMARY = re.compile(
    r"(write|read) MiB/s: max (\d+\.\d\d), median (\d+\.\d\d), min (\d+\.\d\d), mean (\d+\.\d\d) \(n (\d+)\)"
)
_APIS = {"posix": "POSIX", "mpiio": "MPIIO", "hdf5": "HDF5", "netcdf4": "NETCDF4", "pnetcdf": "PNETCDF"}
_SYNC: dict[str, Scalar] = {"none": False, "end": True, "each": "each"}
_HALF_MIB, _HALF_SECOND = 0.005, 0.0000005


@dataclass
class SummaryReader:
    """Collects the table."""

    heads: list[tuple[str, ...]] = field(default_factory=list)
    sizes: list[tuple[str, ...]] = field(default_factory=list)
    places: list[tuple[str, ...]] = field(default_factory=list)
    rows: dict[str, list[tuple[float, ...]]] = field(default_factory=dict)
    summaries: dict[str, tuple[float, ...]] = field(default_factory=dict)
    damaged: int = 0
    _series: str | None = None

    def read(self, line: str) -> None:
        """Take one cleaned line."""
        heads = ((HEAD, self.heads), (_SIZE, self.sizes), (_PLACE, self.places))
        for pattern, place in heads:
            if (match := pattern.fullmatch(line)) is not None:
                place.append(match.groups())
                return
        if (series := _SERIES.fullmatch(line)) is not None:
            self.damaged += series[1] in self.rows
            self._series = series[1]
            self.rows.setdefault(series[1], [])
        elif (summary := _SUMMARY.fullmatch(line)) is not None:
            self.damaged += summary[1] in self.summaries
            self.summaries[summary[1]] = tuple(map(float, summary.groups()[1:]))
        elif self._series is not None and line.startswith("      "):
            self._read_row(self.rows[self._series], line)
        else:
            self.damaged += line.startswith("      ") and _ROW.fullmatch(line.strip()) is not None

    def _read_row(self, rows: list[tuple[float, ...]], line: str) -> None:
        match = _ROW.fullmatch(line.strip())
        if match is None:
            self.damaged += "instance" not in line
            return
        times = match[3].split()
        rebuilt = f"      {match[1]:>4} {match[2]:>12}" + "".join(f" {time:>11}" for time in times)
        if not line.startswith(rebuilt) or int(match[1]) != len(rows) + 1 or len(rows) >= MOST_ROWS:
            self.damaged += 1
            return
        rows.append((float(match[2]), *map(float, times)))

    def judge(self, draft: Draft, evidence: Evidence) -> None:
        """Judge the table and keep the numbers."""
        if max(len(self.heads), len(self.sizes), len(self.places)) > 1:
            draft.fail("more than one benchio wrote into this output")
            return
        if not (self.heads and self.sizes and self.places) or self.heads[0][1] not in _APIS:
            draft.cut("the beginning is not printed whole")
            return
        if self.damaged:
            draft.cut(f"{self.damaged} damaged or doubled rows")
        if not 0 < int(self.sizes[0][1]) <= int(self.sizes[0][0]):
            draft.cut("ranks and nodes contradict each other")
            return
        draft.version = self.heads[0][0]
        case = self._case()
        if others := evidence.other_ranks(case["ranks"], "benchio"):
            draft.fail(others)
            return
        if not self.rows or self.rows.keys() != self.summaries.keys():
            draft.cut("the summary of an operation is missing")
        for operation in self.rows.keys() & self.summaries.keys():
            self._keep(draft, operation, case)

    def _case(self) -> dict[str, Scalar | None]:
        _, api, layout, pattern, access = self.heads[0]
        ranks, nodes, _, size, _ = self.sizes[0]
        asked, achieved, sync = self.places[0]
        return {
            "api": _APIS[api],
            "file": layout,
            "pattern": pattern,
            "collective": access == "collective" if access else None,
            "ranks": int(ranks),
            "nodes": int(nodes),
            "total_bytes": round(float(size) * MIB),
            "cache": achieved or asked,
            "sync": _SYNC[sync],
        }

    def _keep(self, draft: Draft, operation: str, case: dict[str, Scalar | None]) -> None:
        rows, (high, _, low, mean, n) = self.rows[operation], self.summaries[operation]
        size = float(case["total_bytes"] or 0) / MIB
        agree = all(abs(size / row[0] - row[1]) <= _span(row) + 1e-5 * row[1] for row in rows if row[0] > 0)
        values = [row[0] for row in rows]
        if len(rows) != n or 0 in values or not agree:
            draft.cut(f"the {operation} rows are not printed whole, or contradict size and summary")
        elif max(abs(max(values) - high), abs(min(values) - low), abs(sum(values) / n - mean)) > 3 * _HALF_MIB:
            draft.cut(f"the {operation} rows do not agree with their summary")
        else:
            draft.keep(operation, "bandwidth", values, case)
            names = ("time", "open_time", "transfer_time", "sync_time", "close_time")
            for position, metric in enumerate(names, 1):
                draft.keep(operation, metric, [row[position] for row in rows], case)


def _span(row: tuple[float, ...]) -> float:
    """How far size / bandwidth may be from the printed time."""
    return _HALF_SECOND + row[1] * _HALF_MIB / row[0]
