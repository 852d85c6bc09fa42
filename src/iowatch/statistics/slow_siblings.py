"""One slow among many alike: rows of a table of times, of which each column times all rows (targets of storage).

The deviation of a row in a column is ln(its time / median of the other rows), so that what slows all rows of a column
at once (the load of a whole file system) has no effect. A row is slow if all of this holds:

- its deviation is at least ln(`MIN_RATIO`) in every column: a one-off slow time in some columns names no row;
- so many columns are not slow by chance. The share q of times that are as slow as the fastest time of this row, among
  the rows that are not slow in every column, is how often one-off slow times occur in this table; in all c columns of
  one of n rows such times meet by chance with n q^c, which must not exceed `_CHANCE`;
- its typical deviation (median over the columns) is beyond the usual differences between the other rows, and beyond its
  own in earlier tables: Student's quantile of `_SPREAD_FALSE_ALARMS` / n (Bonferroni) times the robust standard
  deviation Qn (P. J. Rousseeuw, C. Croux: Alternatives to the median absolute deviation, JASA 88(424), 1993), which
  needs half as many values as the median absolute deviation for the same accuracy.

A row that was a little slower than the others in earlier tables, too, is compared with that: with the median of its
earlier typical deviations up to the last table in which it was not slow. What is slow and stays slow remains named.

`slow_over_tables` looks at many tables: rows that are the slowest of theirs far too often (exact test).

bench/targets.py and tests/statistics/test_slow_siblings.py measure false alarms and power.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from iowatch.statistics.constants import Bools, Floats

MIN_RATIO = 1.5
"""Smallest ratio of a slow row, as of slow nodes (`slow_rows.MIN_RATIO`): smaller differences are usual."""

MIN_ROWS = 4
"""Of fewer rows it is not known which one is not as it should be: of three, two may be fast."""

MIN_COLUMNS = 2
"""A single time of each row confirms nothing."""

# Expected number of rows that are slow in all columns by one-off slow times. Of 24 rows in three columns it allows 7 %
# of such times (the cube root of 0.01 / 24); with 0.1 it would allow 16 %.
_CHANCE = 0.01
# Probability that some row of a table without slow rows is beyond the spread: of 24 rows 4.6 standard deviations. With
# 0.005 they would be 4.2, and tables of eight rows would name one in 2 % of the nights instead of 1.5 %.
_SPREAD_FALSE_ALARMS = 0.002
# Standard deviation of normal values / the quartile of their distances from each other.
_QN_TO_SD = 2.2219
# The spread of the other rows is known from so many rows, that of earlier tables from so many tables.
_MIN_ROWS_WITH_SPREAD, _MIN_EARLIER = 6, 7
# Standard deviation of a normal value / median of the difference of two of them.
_DIFFERENCE_TO_SD = 1.0484


@dataclass(frozen=True)
class SlowSibling:
    """A row that is slower than the others.

    Attributes:
        row: its position.
        ratio: time / median of the other rows, median over the columns.
        usual_ratio: the same in earlier tables; 1 if it was not slower than the others, or too few are known.
    """

    row: int
    ratio: float
    usual_ratio: float


def sibling_deviations(times: Floats) -> Floats:
    """Return ln(time / median of the other rows) of each row and column.

    Args:
        times: above 0, in any unit; shape (rows, columns), at least two rows.
    """
    logarithms = np.log(times)
    return logarithms - _medians_of_others(logarithms)


def _medians_of_others(values: Floats) -> Floats:
    """Median of the other rows for each row and column; shape (rows, columns) in and out."""
    rows = len(values)
    ordered = np.sort(values, axis=0)
    ranks = np.argsort(np.argsort(values, axis=0, kind="stable"), axis=0, kind="stable")
    # The others in order are the whole column in order without the row itself.
    upper = (rows - 1) // 2
    lower = upper if rows % 2 == 0 else upper - 1
    return np.asarray((_other(ordered, ranks, lower) + _other(ordered, ranks, upper)) / 2, dtype=np.float64)


def _other(ordered: Floats, ranks: NDArray[np.int64], position: int) -> Floats:
    """The value at a position of the ordered other rows, for each row and column."""
    return np.asarray(np.where(ranks > position, ordered[position], ordered[position + 1]), dtype=np.float64)


def slow_siblings(times: Floats, earlier: Floats | None = None) -> tuple[SlowSibling, ...]:
    """Return the slow rows of a table of times, the slowest first; none with too few rows or columns.

    Args:
        times: above 0, in any unit; shape (rows, columns).
        earlier: typical deviations of each row in earlier tables (median over their columns), the oldest first; shape
            (rows, tables), NaN where a table does not have the row; None if there are no earlier tables.
    """
    rows, columns = times.shape
    if rows < MIN_ROWS or columns < MIN_COLUMNS:
        return ()
    deviations = sibling_deviations(times)
    least = np.min(deviations, axis=1)
    typical = np.median(deviations, axis=1)
    is_slow_everywhere = least >= math.log(MIN_RATIO)
    slow: list[SlowSibling] = []
    for row in map(int, np.flatnonzero(is_slow_everywhere)):
        if _expected_by_chance(deviations, is_slow_everywhere, float(least[row])) > _CHANCE:
            continue
        if typical[row] < _limit_of_others(typical, deviations, row):
            continue
        past = _own_past(None if earlier is None else earlier[row], rows)
        if typical[row] - past.usual < max(math.log(MIN_RATIO), past.limit):
            continue
        slow.append(SlowSibling(row, math.exp(typical[row]), math.exp(past.usual)))
    return tuple(sorted(slow, key=lambda slow_row: -slow_row.ratio))


def _expected_by_chance(deviations: Floats, is_slow_everywhere: Bools, level: float) -> float:
    """Number of rows whose times would be at or above a level in all columns, by one-off slow times alone."""
    rows, columns = deviations.shape
    others = deviations[~is_slow_everywhere]
    if not others.size:
        return 0.0
    share = float(np.mean(others >= level))
    return float(rows * share**columns)


def _limit_of_others(typical: Floats, deviations: Floats, row: int) -> float:
    """The deviation from which on a row is beyond the usual differences between the other rows.

    Of few rows these are not known: then the differences between the columns stand for them.
    """
    rows = len(typical)
    if rows - 1 < _MIN_ROWS_WITH_SPREAD:
        differences = np.abs(np.diff(deviations, axis=1))
        return _quantile(differences.size, rows) * _DIFFERENCE_TO_SD * float(np.median(differences))
    others = np.delete(typical, row)
    return _quantile(len(others), rows) * _robust_sd(others)


def _quantile(values: int, rows: int) -> float:
    """Standard deviations that none of so many rows exceeds, of a standard deviation of so many values."""
    return float(scipy.special.stdtrit(values - 1, 1 - _SPREAD_FALSE_ALARMS / rows))


def _robust_sd(values: Floats) -> float:
    """The estimate Qn of a standard deviation, of at least two values: half of them may be far away."""
    count = len(values)
    first, second = np.triu_indices(count, 1)
    distances = np.abs(values[first] - values[second])
    half = count // 2 + 1
    quartile = half * (half - 1) // 2
    return _QN_TO_SD * float(np.partition(distances, quartile - 1)[quartile - 1])


@dataclass(frozen=True)
class _OwnPast:
    """Usual deviation of a row, not below 0, and by how much more it has to deviate; 0 where too little is known."""

    usual: float
    limit: float


def _own_past(earlier: Floats | None, rows: int) -> _OwnPast:
    """What is known of a row from earlier tables.

    Args:
        earlier: typical deviations in earlier tables, the oldest first; NaN where there is none.
        rows: number of rows of the table.
    """
    if earlier is None:
        return _OwnPast(0.0, 0.0)
    measured = earlier[np.isfinite(earlier)]
    # The newest tables in which it is slow are not its usual state.
    before = measured[: len(measured) - newest_slow_tables(measured)]
    if len(before) < _MIN_EARLIER:
        return _OwnPast(0.0, 0.0)
    usual = float(np.median(before))
    return _OwnPast(max(0.0, usual), _quantile(len(before), rows) * _robust_sd(before))


def newest_slow_tables(typical: Floats) -> int:
    """Return in how many of the newest tables in a row a row was slower than the others by `MIN_RATIO`.

    Args:
        typical: its typical deviations, the oldest first, without NaN; shape (tables,).
    """
    is_normal = np.flatnonzero(typical < math.log(MIN_RATIO))
    return len(typical) if len(is_normal) == 0 else int(len(typical) - 1 - is_normal[-1])


MIN_RATIO_OVER_TABLES = 1.25
"""Smallest ratio of a row that is slow in many tables: smaller than in a single one, because it is repeated."""

# Probability that any row is named although all are alike, corrected for the number of rows and of possible beginnings.
_FALSE_ALARMS_OVER_TABLES = 0.01
# Tables since the beginning in which a row is the slowest: at least this share of those that have it.
_LEAST_SHARE = 0.5


@dataclass(frozen=True)
class SlowOverTables:
    """A row that is the slowest one of its tables far too often.

    Attributes:
        row: its position.
        first: position of the table from which on it is so.
        slowest: number of tables since then in which it is the slowest row by `MIN_RATIO_OVER_TABLES`, of the `tables`
            that have it.
        ratio: time / median of the other rows, median over these tables.
        probability: of so many or more by chance, corrected for the number of rows and of tables.
    """

    row: int
    first: int
    slowest: int
    tables: int
    ratio: float
    probability: float


def slow_over_tables(deviations: Floats) -> tuple[SlowOverTables, ...]:
    """Return the rows that are the slowest of their tables far too often up to the newest one, the slowest first.

    If all rows are alike, each of the k rows of a table is its slowest one with probability 1 / k. In how many of
    several tables a row is so has a Poisson binomial distribution, which is computed exactly. Tables in which it is the
    slowest, and by less than `MIN_RATIO_OVER_TABLES`, do not count for it. The beginning is the one
    with the smallest probability. Tables with other rows are no obstacle: a row may be in any of them.

    Args:
        deviations: typical deviations (`sibling_deviations`, median over the columns), the oldest table first; shape
            (rows, tables), NaN where a table does not have the row.
    """
    counts = np.sum(np.isfinite(deviations), axis=0)
    comparable = np.flatnonzero(counts >= 2)
    if not len(comparable):
        return ()
    used = deviations[:, comparable]
    has_row = np.isfinite(used)
    without_gaps = np.where(has_row, used, -np.inf)
    # By chance the slowest row is slow by this ratio at most as often as it is the slowest.
    is_slowest = (without_gaps == np.max(without_gaps, axis=0)) & (without_gaps >= math.log(MIN_RATIO_OVER_TABLES))
    # All rows and all beginnings are tried.
    trials = int(np.sum(np.any(has_row, axis=1))) * len(comparable)
    slow: list[SlowOverTables] = []
    for row in map(int, np.flatnonzero(np.sum(is_slowest, axis=1) >= 2)):
        tables_of_row = np.flatnonzero(has_row[row])
        # It is so now: in one of the newest two tables that have it.
        if not np.any(is_slowest[row, tables_of_row[-2:]]):
            continue
        beginning = _best_beginning(is_slowest[row, tables_of_row], 1 / counts[comparable[tables_of_row]], trials)
        if beginning is None:
            continue
        since = tables_of_row[beginning.position :]
        typical = float(np.median(used[row, since]))
        if typical < math.log(MIN_RATIO_OVER_TABLES):
            continue
        slow.append(
            SlowOverTables(
                row=row,
                first=int(comparable[since[0]]),
                slowest=beginning.slowest,
                tables=len(since),
                ratio=math.exp(typical),
                probability=beginning.probability,
            )
        )
    return tuple(sorted(slow, key=lambda slow_row: -slow_row.ratio))


@dataclass(frozen=True)
class _Beginning:
    """From which table on a row is the slowest one, in how many tables, and how probable so many are by chance."""

    position: int
    slowest: int
    probability: float


def _best_beginning(is_slowest: Bools, chances: Floats, trials: int) -> _Beginning | None:
    """The beginning with the smallest probability; None if no beginning has a small one.

    Args:
        is_slowest: of each table that has the row, the oldest first.
        chances: probability that the row is the slowest of each table.
        trials: number of rows and beginnings that are tried.
    """
    best: _Beginning | None = None
    # Distribution of the number of tables in which it is the slowest, from the newest table backwards.
    distribution = np.array([1.0])
    slowest = 0
    for position in range(len(is_slowest) - 1, -1, -1):
        chance = float(chances[position])
        distribution = np.append(distribution * (1 - chance), 0.0) + np.append(0.0, distribution * chance)
        if not is_slowest[position]:
            continue
        slowest += 1
        if slowest < _LEAST_SHARE * (len(is_slowest) - position):
            continue
        probability = min(1.0, trials * float(np.sum(distribution[slowest:])))
        if probability <= _FALSE_ALARMS_OVER_TABLES and (best is None or probability < best.probability):
            best = _Beginning(position, slowest, probability)
    return best
