"""Tables of mdtest: statistics of rates or times, and whether any values can have them.

What a table is computed over depends on the version, and is read off its heads and rows:

| version | maximum and minimum over |
|---|---|
| 1.9 before IOR | iterations; with -B iterations and ranks |
| 1.9.3 and 3.2 in IOR | iterations and ranks, mixed up: the fastest rank of some iterations |
| 3.3 to 3.4-dev of January 2021 | iterations and ranks |
| 3.4-dev since then, 4.0, 4.1 | iterations; an iteration is its slowest rank |

Source: `summarize_results` in `mdtest.c` of hpc/ior and MDTEST-LANL/mdtest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from iowatch.benchmarks.printed_table import ColumnHead, PrintedTable, TableRow

_NUMBER_WIDTH = 14


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a row; the deviation is None where none is printed."""

    maximum: float
    minimum: float
    mean: float
    deviation: float | None

    def facts(self) -> dict[str, float]:
        """Return the statistics by their names in facts."""
        facts = {"max": self.maximum, "min": self.minimum, "mean": self.mean}
        if self.deviation is not None:
            facts["stddev"] = self.deviation
        return facts


@dataclass
class SummaryTable:
    """A table of rates or times.

    Attributes:
        metric: `rate` or `time`; empty where the title does not name it.
        unit: as printed.
        iterations: number of them.
        has_colons: whether a label ends with a colon, as all do until February 2021.
    """

    metric: str
    unit: str | None
    iterations: int
    has_colons: bool = False
    table: PrintedTable = field(default_factory=lambda: PrintedTable(_NUMBER_WIDTH))

    @property
    def _group(self) -> str:
        """The group of columns that is read."""
        groups = {head.group for head in self.table.heads}
        return "per Iteration" if "per Iteration" in groups else ""

    @property
    def has_heads(self) -> bool:
        """Whether the line of heads is there and names the statistics."""
        names = {head.name for head in self.table.heads if head.group == self._group}
        return {"Max", "Min", "Mean"} <= names

    def is_over_ranks(self, *, is_of_ior: bool, has_barriers: bool) -> bool:
        """Return whether the statistics are over ranks, too: see the table of versions above.

        Args:
            is_of_ior: whether IOR's mdtest printed it, not the one before.
            has_barriers: whether all ranks wait for each other after each phase, as they do without -B.
        """
        if not self.has_colons or self._group:
            return False
        return is_of_ior or not has_barriers

    def statistics(self, row: TableRow) -> Statistics:
        """Return the statistics of a row of a table that has heads."""

        def number(name: str) -> float:
            return row.numbers[ColumnHead(self._group, name)]

        has_deviation = ColumnHead(self._group, "Std Dev") in row.numbers
        deviation = number("Std Dev") if has_deviation else None
        return Statistics(number("Max"), number("Min"), number("Mean"), deviation)

    def slowest(self, statistics: Statistics) -> float:
        """Return the value of the slowest rank or iteration."""
        return statistics.maximum if self.metric == "time" else statistics.minimum


def statistics_fault(count: int, statistics: Statistics, is_of_sample: bool) -> str | None:
    """Return why no `count` values have these statistics; for three or fewer values, each number confirms the others.

    Args:
        is_of_sample: whether the deviation is that of a sample (n - 1), or of a population (n).
    """
    high, low, mean = statistics.maximum, statistics.minimum, statistics.mean
    slack = 0.001 + 1e-12 * high
    spread = high - low
    if not low - slack <= mean <= high + slack:
        return f"mean {mean:.3f} is not between minimum {low:.3f} and maximum {high:.3f}"
    if count < 3 and abs(high + low - 2 * mean) > 3 * slack:
        return f"mean {mean:.3f} is not that of {low:.3f} and {high:.3f}"
    if count == 1 and high != low:
        return f"minimum {low:.3f} and maximum {high:.3f} of one value differ"
    deviation = statistics.deviation
    if deviation is None:
        return None
    # Two values deviate most from the mean if they are the only ones, least if all others are equal to it.
    divisor = count - 1 if is_of_sample else count
    smallest = spread / math.sqrt(2 * max(divisor, 1))
    if deviation > 0.75 * spread + slack or deviation < smallest * (1 - 1e-9) - slack:
        return f"deviation {deviation:.3f} is impossible for {count} values from {low:.3f} to {high:.3f}"
    if count < 3:
        return None
    return _variance_fault(count, statistics, deviation**2 * divisor)


def _variance_fault(count: int, statistics: Statistics, squares: float) -> str | None:
    """Return why no three or more values have these statistics.

    Args:
        squares: sum of the squared deviations from the mean.
    """
    high, low, mean = statistics.maximum, statistics.minimum, statistics.mean
    others = count - 2
    middle = (count * mean - high - low) / others
    rest = squares - (high - mean) ** 2 - (low - mean) ** 2 - others * (middle - mean) ** 2
    # The largest variance of values between low and high (Bhatia and Davis).
    largest = others * (high - middle) * (middle - low) if others > 1 else 0.0
    step, slack = 0.001 * count, 0.01 * count * (high - low + 0.001)
    if low - step <= middle <= high + step and -slack <= rest <= largest + slack:
        return None
    return "maximum, minimum, mean and deviation contradict each other"
