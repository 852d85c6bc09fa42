"""IOR's CSV (`-O summaryFormat=CSV`, version 4): rows alone, without options, summary or end.

Version 3.3 prints one glued line without results. Source: `ior-output.c`.
"""

from __future__ import annotations

import re
from collections import Counter
from statistics import median

from iowatch.parsers.draft import MOST_ROWS, Draft, Evidence
from iowatch.parsers.ior_case import Case
from iowatch.parsers.ior_run import OPERATIONS, Row
from iowatch.units import KIB, MIB

HEADER = "access,bw(MiB/s),IOPS,Latency,block(KiB),xfer(KiB),open(s),wr/rd(s),close(s),total(s),numTasks,iter"
_ROW = re.compile(r"(write|read)," + r"(\d{1,15}\.\d{4})," * 9 + r"(\d{1,8}),(\d{1,8})")
# Half a unit of the last digit of all its numbers.
_HALF = 0.00005


class CsvReader:
    """Collects the rows."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], Row] = {}
        self.cases: Counter[tuple[int, int, int]] = Counter()
        self.headers = 0
        self.damaged = 0

    def read(self, line: str) -> None:
        """Take one cleaned line."""
        match = _ROW.fullmatch(line)
        if line == HEADER:
            self.headers += 1
        elif match is None:
            self.damaged += line.startswith(("write,", "read,")) or line.count(",") >= 8
        else:
            self._add(match)

    def _add(self, match: re.Match[str]) -> None:
        operation, bandwidth, rate, _, block, transfer, *times, tasks, iteration = match.groups()
        key = operation, int(iteration)
        if key in self.rows or len(self.rows) >= MOST_ROWS:
            self.damaged += 1
            return
        self.rows[key] = Row(float(bandwidth), float(rate), *map(float, times))
        self.cases[round(float(block) * KIB), round(float(transfer) * KIB), int(tasks)] += 1


def judge(draft: Draft, reader: CsvReader, evidence: Evidence, ended: bool) -> None:
    """Judge the rows of a CSV; `ended`: the last line was whole."""
    if reader.headers > 1:
        draft.fail("more than one IOR wrote into this output")
        return
    if reader.damaged or not ended:
        draft.cut(f"{max(1, reader.damaged)} damaged or doubled rows")
    if len(reader.cases) != 1:
        draft.cut("the rows are not of one case" if reader.cases else "no row was printed")
        return
    (block, transfer, tasks) = next(iter(reader.cases))
    if others := evidence.other_ranks(tasks, "IOR"):
        draft.fail(others)
        return
    if transfer == 0 or block % transfer or tasks == 0:
        draft.cut("the sizes contradict each other")
        return
    case: Case = {"ranks": tasks, "transfer_bytes": transfer, "block_bytes": block}
    share = tasks * block
    implied = [row.bandwidth * row.time * MIB / share for row in reader.rows.values()]
    segments = max(1, round(median(implied)))
    lengths = {name: sum(1 for key in reader.rows if key[0] == name) for name in OPERATIONS}
    if 0 not in lengths.values() and len(set(lengths.values())) > 1:
        draft.cut("write and read have not the same number of repetitions")
    for operation, length in lengths.items():
        _keep(draft, reader, operation, length, segments * share, case)


def _row_agrees(row: Row, total: int, transfer: int) -> bool:
    """Bandwidth x time is the size; the transfers alone take no longer than the whole."""
    if max(row.open_time, row.transfer_time, row.close_time) > row.time + 2 * _HALF:
        return False
    if row.bandwidth <= 0 or row.rate is None or row.rate * transfer / MIB < row.bandwidth * (1 - 1e-6):
        return False
    spans = ((total / MIB / row.bandwidth, row.time), (total / transfer / row.rate, row.transfer_time))
    return all(abs(implied - printed) <= 1.001 * _HALF for implied, printed in spans)


def _keep(draft: Draft, reader: CsvReader, operation: str, length: int, total: int, case: Case) -> None:
    keys = [(operation, i) for i in range(length) if (operation, i) in reader.rows]
    if len(keys) < length:
        draft.cut(f"repetitions of {operation} are missing")
    rows = [reader.rows[key] for key in keys]
    good = [row for row in rows if _row_agrees(row, total, int(case["transfer_bytes"] or 1))]
    if len(good) < len(rows):
        draft.cut(f"{len(rows) - len(good)} {operation} rows contradict themselves")
    # The times have too few digits to be of use, and nothing says how many repetitions there should be.
    for metric in ("bandwidth", "rate"):
        draft.keep(operation, metric, [getattr(row, metric) for row in good], case)
