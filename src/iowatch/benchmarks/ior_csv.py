"""IOR's CSV (`-O summaryFormat=CSV`, version 4): rows only, without options, summary or end.

Version 3.3 prints one concatenated line without results. Source: `ior-output.c`.
"""

from __future__ import annotations

import re
from collections import Counter
from statistics import median

from iowatch.benchmarks.ior_command import OPERATIONS
from iowatch.benchmarks.ior_output import IorRow, IorRun
from iowatch.benchmarks.ior_validation import has_confirmed_rates
from iowatch.benchmarks.parsing import CONFIRMED, MAX_ROWS, CaseParameters, OutputBuilder, RunContext
from iowatch.core import KIB, MIB

IOR_CSV_HEADER = "access,bw(MiB/s),IOPS,Latency,block(KiB),xfer(KiB),open(s),wr/rd(s),close(s),total(s),numTasks,iter"
_ROW = re.compile(r"(write|read)," + r"(\d{1,15}\.\d{4})," * 9 + r"(\d{1,8}),(\d{1,8})")
# Half a unit of the last digit; all numbers have the same precision.
_HALF = 0.00005


class IorCsvReader:
    """Collects the rows; each header counts as the title of a run."""

    def __init__(self, run: IorRun) -> None:
        self._run = run
        self.rows: dict[tuple[str, int], IorRow] = {}
        self.cases: Counter[tuple[int, int, int]] = Counter()
        self.damaged = 0

    def read(self, line: str) -> None:
        """Parse one cleaned line."""
        match = _ROW.fullmatch(line)
        if line == IOR_CSV_HEADER:
            self._run.titles += 1
        elif match is None:
            self.damaged += line.startswith(("write,", "read,")) or line.count(",") >= 8
        else:
            self._add(match)

    def _add(self, match: re.Match[str]) -> None:
        operation, bandwidth, rate, _, block, transfer, *times, tasks, iteration = match.groups()
        key = operation, int(iteration)
        if key in self.rows or len(self.rows) >= MAX_ROWS:
            self.damaged += 1
            return
        self.rows[key] = IorRow(float(bandwidth), float(rate), *map(float, times))
        self.cases[round(float(block) * KIB), round(float(transfer) * KIB), int(tasks)] += 1

    def check(self, builder: OutputBuilder, context: RunContext, ended: bool) -> None:
        """Check the rows and add them to the builder; `ended`: the last line is complete."""
        if self._run.titles > 1:
            builder.add_failure("output of more than one IOR run")
            return
        if self.damaged or not ended:
            builder.add_truncation(f"{max(1, self.damaged)} damaged or duplicate rows")
        if len(self.cases) != 1:
            builder.add_truncation("the rows are not of one case" if self.cases else "no row was printed")
            return
        (block, transfer, tasks) = next(iter(self.cases))
        mismatch = context.rank_mismatch_reason(tasks, "IOR")
        if mismatch:
            builder.add_failure(mismatch)
            return
        if transfer == 0 or block % transfer or tasks == 0:
            builder.add_truncation("the sizes contradict each other")
            return
        case: CaseParameters = {"ranks": tasks, "transfer_bytes": transfer, "block_bytes": block}
        # The number of segments is not printed; bandwidth x time is the volume.
        segment_bytes = tasks * block
        implied_segments = [row.bandwidth * row.time * MIB / segment_bytes for row in self.rows.values()]
        segments = max(1, round(median(implied_segments)))
        row_counts = Counter(operation for operation, _ in self.rows)
        repetitions = {operation: row_counts[operation] for operation in OPERATIONS}
        if 0 not in repetitions.values() and len(set(repetitions.values())) > 1:
            builder.add_truncation("write and read have not the same number of repetitions")
        if not context.fresh and any(CONFIRMED * row.time < 2 * _HALF for row in self.rows.values()):
            builder.add_truncation("the bandwidths are not confirmed: the times have too few digits")
            return
        for operation, count in repetitions.items():
            self._keep(builder, operation, count, segments * segment_bytes, case)

    def _keep(self, builder: OutputBuilder, operation: str, count: int, total: int, case: CaseParameters) -> None:
        rows = [self.rows[operation, number] for number in range(count) if (operation, number) in self.rows]
        if len(rows) < count:
            builder.add_truncation(f"repetitions of {operation} are missing")
        consistent = [row for row in rows if _is_csv_row_consistent(row, total, int(case["transfer_bytes"] or 1))]
        if len(consistent) < len(rows):
            builder.add_truncation(f"{len(rows) - len(consistent)} {operation} rows are inconsistent")
        # The times have too few digits to be useful, and the number of repetitions is not printed.
        builder.add_samples(operation, "bandwidth", [row.bandwidth for row in consistent], case)
        if has_confirmed_rates(consistent, lambda _value: _HALF):
            builder.add_samples(operation, "rate", [row.rate or 0.0 for row in consistent], case)
        else:
            builder.add_below_resolution(operation, "rate")


def _is_csv_row_consistent(row: IorRow, total: int, transfer: int) -> bool:
    """Return whether bandwidth x time is the size, and the transfers alone take no longer than the total."""
    if max(row.open_time, row.transfer_time, row.close_time) > row.time + 2 * _HALF:
        return False
    if row.bandwidth <= 0 or row.rate is None or row.rate * transfer / MIB < row.bandwidth * (1 - 1e-6):
        return False
    spans = ((total / MIB / row.bandwidth, row.time), (total / transfer / row.rate, row.transfer_time))
    return all(abs(implied - printed) <= 1.001 * _HALF for implied, printed in spans)
