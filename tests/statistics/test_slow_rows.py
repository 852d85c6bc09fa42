"""Slow rows of a table of times: false alarms and power over draws of lognormal noise, and exact small tables."""

from __future__ import annotations

import numpy as np
import pytest

from iowatch.statistics.slow_rows import MIN_RATIO, SlowRow, WholeTable, slow_rows

SIZES = [(3, 3), (3, 10), (4, 5), (8, 3)]


def share_of_tables(rows: int, columns: int, noise: float, factor: float, tables: int) -> float:
    """Share of tables whose slow rows are not empty, or of those with a planted slow row that only it is in them."""
    rng = np.random.default_rng([rows, columns, round(100 * noise)])
    hits = 0
    for _ in range(tables):
        times = rng.lognormal(0, noise, (rows, columns))
        times[1] *= factor
        slow = [slow_row.row for slow_row in slow_rows(times)]
        hits += slow == [1] if factor > 1 else bool(slow)
    return hits / tables


@pytest.mark.parametrize("noise", [0.1, 0.3])
@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_false_alarms_are_below_one_percent(rows: int, columns: int, noise: float) -> None:
    """1,500 tables, of which 15 would be 1 %; the interval of a true share of 0.7 % ends at 1.1 %."""
    assert share_of_tables(rows, columns, noise, 1.0, 1_500) < 0.011


@pytest.mark.parametrize(
    ("rows", "columns", "noise", "least"),
    [(3, 3, 0.1, 0.95), (4, 3, 0.1, 0.98), (16, 3, 0.1, 0.98), (3, 10, 0.3, 0.9), (4, 10, 0.3, 0.9)],
)
def test_row_that_is_twice_as_slow_is_found(rows: int, columns: int, noise: float, least: float) -> None:
    assert share_of_tables(rows, columns, noise, 2.0, 300) >= least


def test_persistent_differences_between_many_rows_are_usual() -> None:
    """Rows that differ by 30 % in all columns, as nodes at different distances do."""
    rng = np.random.default_rng(4)
    alarms = 0
    for _ in range(200):
        times = rng.lognormal(0, 0.02, (32, 5)) * rng.lognormal(0, 0.3, (32, 1))
        alarms += bool(slow_rows(times))
    assert alarms / 200 < 0.05


def test_ratio_is_to_the_median_of_the_others() -> None:
    """31 / median(10, 10, 20) in two columns; in the third one 12 / 10, below the smallest ratio."""
    times = np.array([[10.0, 10.1, 10.0], [31.0, 31.0, 12.0], [10.1, 10.0, 10.1], [10.0, 10.1, 10.0]])
    assert slow_rows(np.tile(times, 4)) == (SlowRow(1, pytest.approx(3.1, rel=0.01), 8),)


def test_load_of_all_rows_in_one_column_names_none() -> None:
    times = np.full((4, 5), 1.0)
    times[:, 2] *= 20
    assert slow_rows(times) == ()


def test_one_bad_column_names_no_row() -> None:
    times = np.full((4, 5), 1.0)
    times[0, 2] = 50
    assert slow_rows(times) == ()


def test_two_slow_rows_do_not_hide_each_other() -> None:
    times = np.random.default_rng(2).lognormal(0, 0.05, (8, 4))
    times[[2, 5]] *= np.array([[3.0], [4.0]])
    assert [slow_row.row for slow_row in slow_rows(times)] == [5, 2]


def test_of_two_rows_the_slower_one_is_returned() -> None:
    times = np.random.default_rng(3).lognormal(0, 0.05, (2, 4))
    times[1] *= 3
    assert [slow_row.row for slow_row in slow_rows(times)] == [1]


@pytest.mark.parametrize("shape", [(1, 10), (5, 2), (5, 1), (0, 0)])
def test_too_small_tables_name_none(shape: tuple[int, int]) -> None:
    times = np.ones(shape)
    times[:1] *= 9
    assert slow_rows(times) == ()


def test_slowest_rows_of_a_table_give_the_same_as_the_whole_table() -> None:
    times = np.random.default_rng(5).lognormal(0, 0.1, (200, 6))
    times[17] *= 2.5
    kept = np.argsort(-np.median(times, axis=1))[:32]
    quartiles = np.quantile(times, [0.25, 0.5, 0.75], axis=0).T
    (of_kept,) = slow_rows(times[kept], WholeTable(200, quartiles))
    (of_all,) = slow_rows(times)
    assert kept[of_kept.row] == of_all.row == 17
    assert of_kept.ratio == pytest.approx(of_all.ratio, rel=0.01)
    assert of_all.ratio > MIN_RATIO
