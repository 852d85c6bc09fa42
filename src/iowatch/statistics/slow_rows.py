"""Rows of a table of times that are slower than the other rows: nodes of a job, of which each repetition times all.

The ratio of a row in a column is its time / the median of the other rows, so that what slows all rows of a column at
once has no effect. Its ratio is the median over the columns, which one bad column does not decide. A row is slow if

- its ratio is at least `MIN_RATIO`: smaller differences between machines of one kind are usual;
- the ratio is beyond chance: the logarithm of the ratio exceeds Student's quantile of its standard error. The spread of
  the ratios of each row around their mean over the columns, pooled over all rows, is the noise; the variance of a
  median of n normal values is pi / (2 n + pi - 2) of that of one (exact for n = 1, 1 % off for n = 3 and 5);
- it is beyond the usual differences between the other rows, where there are enough to know them.

tests/statistics/test_slow_rows.py measures false alarms and power with random draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from iowatch.statistics.constants import MAD_TO_SD, Floats

MIN_RATIO = 1.5
"""Smallest ratio of a slow row. With 1.2, tables of 30 % noise and ten columns would still have false alarms below 1 %,
but rows that always differ by a fifth would be named; with 2, half of the rows that are twice as slow are missed."""

MIN_COLUMNS = 3
"""Of fewer columns the noise is not known: with two of three rows, 30 % noise would ask for a ratio of about 17."""

# Probability that some row of a table without slow rows is called slow. The quantile is that of all rows together
# (Bonferroni). Twice as large, false alarms of noise above 30 % would be up to 2 %.
_FALSE_ALARMS = 0.015
# The spread of the other rows is known from so many rows; of fewer it is mostly chance.
_MIN_ROWS_WITH_SPREAD = 6
# Standard deviations of the other rows that a slow row has to exceed. With 3.5, tables of 32 rows that differ by 30 %
# have false alarms of 7 %; with 8, a row has to be twice as slow where the others differ by 9 %.
_SPREAD_LIMIT = 4.0
# Standard deviation of normal noise / its interquartile range.
_IQR_TO_SD = 0.7413


@dataclass(frozen=True)
class WholeTable:
    """What is known of a table of which only the slowest rows are kept.

    Attributes:
        rows: number of all rows.
        quartiles: lower quartile, median and upper quartile of the times of all rows; shape (columns, 3).
    """

    rows: int
    quartiles: Floats


@dataclass(frozen=True)
class SlowRow:
    """A row that is slower than the others.

    Attributes:
        row: its position.
        ratio: time / median of the other rows, median over the columns.
        columns: number of columns in which this is at least `MIN_RATIO`.
    """

    row: int
    ratio: float
    columns: int


def slow_rows(times: Floats, whole: WholeTable | None = None) -> tuple[SlowRow, ...]:
    """Return the slow rows of a table of times, the slowest first; none with fewer than `MIN_COLUMNS` columns.

    Args:
        times: above 0, in any unit; shape (rows, columns), at least two rows. Of two rows the slower one is returned:
            whether it is slow or the other one is fast is not known.
        whole: of the table from which these rows are the slowest ones; None if these are all rows.
    """
    rows, columns = times.shape
    if rows < 2 or columns < MIN_COLUMNS:
        return ()
    logarithms = np.log(times)
    all_rows = rows
    if whole is None:
        log_ratios = logarithms - _medians_of_others(logarithms)
    else:
        # One row of very many does not move the median.
        all_rows = whole.rows
        log_ratios = logarithms - np.log(whole.quartiles[:, 1])
    typical = np.median(log_ratios, axis=1)
    limit = max(math.log(MIN_RATIO), _chance_limit(log_ratios, all_rows))
    slow: list[SlowRow] = []
    for row in np.flatnonzero(typical >= limit):
        if typical[row] < _SPREAD_LIMIT * _spread_of_others(typical, int(row), whole):
            continue
        columns_beyond = int(np.sum(log_ratios[row] >= math.log(MIN_RATIO)))
        slow.append(SlowRow(int(row), math.exp(typical[row]), columns_beyond))
    return tuple(sorted(slow, key=lambda slow_row: -slow_row.ratio))


def _medians_of_others(values: Floats) -> Floats:
    """Median of the other rows for each row and column; shape (rows, columns) in and out."""
    medians = np.empty_like(values)
    for row in range(len(values)):
        medians[row] = np.median(np.delete(values, row, axis=0), axis=0)
    return medians


def _chance_limit(log_ratios: Floats, all_rows: int) -> float:
    """The ratio (ln) that the slowest row of a table without slow rows exceeds with `_FALSE_ALARMS`."""
    rows, columns = log_ratios.shape
    deviations = log_ratios - log_ratios.mean(axis=1, keepdims=True)
    variance = float(np.sum(deviations**2)) / (rows * (columns - 1))
    variance_of_median = variance * math.pi / (2 * columns + math.pi - 2)
    # The medians of the others are common to the rows: of two rows one is the mirror image of the other.
    degrees = (rows - 1) * (columns - 1)
    quantile = float(scipy.special.stdtrit(degrees, 1 - _FALSE_ALARMS / all_rows))
    return quantile * math.sqrt(variance_of_median)


def _spread_of_others(typical: Floats, row: int, whole: WholeTable | None) -> float:
    """Robust standard deviation of the ratios (ln) of the other rows; 0 if they are too few."""
    if whole is not None:
        logarithms = np.log(whole.quartiles)
        return _IQR_TO_SD * float(np.median(logarithms[:, 2] - logarithms[:, 0]))
    if len(typical) < _MIN_ROWS_WITH_SPREAD:
        return 0.0
    others = np.delete(typical, row)
    return MAD_TO_SD * float(np.median(np.abs(others - np.median(others))))
