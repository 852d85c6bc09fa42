"""One slow among many alike: false alarms and power with random draws, and the exact test over tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from iowatch.statistics.slow_siblings import (
    MIN_RATIO,
    newest_slow_tables,
    sibling_deviations,
    slow_over_tables,
    slow_siblings,
)

Table = NDArray[np.float64]
NIGHTS = 200


def noisy(rng: np.random.Generator, rows: int = 24, columns: int = 3, noise: float = 0.15) -> Table:
    """Times of alike rows; common load makes each column up to five times slower, for all rows alike."""
    load = np.exp(rng.uniform(0, math.log(5), columns))
    return np.asarray(load * rng.lognormal(0, noise, (rows, columns)))


def with_one_off_times(rng: np.random.Generator, share: float = 0.05, rows: int = 24) -> Table:
    """A share of all times is ten times as long, independent of row and column."""
    times = noisy(rng, rows)
    return np.asarray(np.where(rng.random(times.shape) < share, 10 * times, times))


def with_unlike_rows(rng: np.random.Generator) -> Table:
    """Targets of disks of different kinds: they always differ, by 30 % (standard deviation)."""
    return np.asarray(noisy(rng) * rng.lognormal(0, 0.3, (24, 1)))


def test_deviation_is_from_the_median_of_the_others() -> None:
    """Of 1, 2, 4 and 16 the others of 16 have the median 2, the others of 1 the (geometric) middle of three: 4."""
    times = np.array([[1.0], [2.0], [4.0], [16.0]])
    expected = [math.log(1 / 4), math.log(2 / 4), math.log(4 / 2), math.log(16 / 2)]
    assert sibling_deviations(times)[:, 0] == pytest.approx(expected)


@pytest.mark.parametrize("rows", [2, 3, 4, 7, 24])
def test_medians_of_others_are_those_of_numpy(rows: int) -> None:
    """Also with equal values."""
    rng = np.random.default_rng(rows)
    times = np.asarray(np.round(np.exp(rng.normal(0, 1, (rows, 3))), 1) + 0.1, dtype=np.float64)
    for row in range(rows):
        others = np.median(np.log(np.delete(times, row, axis=0)), axis=0)
        assert sibling_deviations(times)[row] == pytest.approx(np.log(times[row]) - others)


def test_common_load_cancels() -> None:
    rng = np.random.default_rng(1)
    times = noisy(rng)
    assert sibling_deviations(times * np.array([1.0, 50.0, 3.0])) == pytest.approx(sibling_deviations(times))


@pytest.mark.parametrize(
    ("draw", "most"),
    [(noisy, 0), (with_one_off_times, 3), (with_unlike_rows, 3), (lambda rng: with_one_off_times(rng, 0.02, 500), 2)],
    ids=["noise", "one-off times", "unlike rows", "500 rows"],
)
def test_alike_rows_are_not_named(draw: Callable[[np.random.Generator], Table], most: int) -> None:
    """At most 1.5 % of the nights; of the one-off times 24 x 0.05^3 = 0.3 % would meet in all three columns."""
    rng = np.random.default_rng(20261130)
    assert sum(bool(slow_siblings(draw(rng))) for _ in range(NIGHTS)) <= most


@pytest.mark.parametrize(("factor", "columns", "least"), [(10.0, 2, 0.99), (10.0, 3, 0.99), (3.0, 3, 0.95)])
def test_slow_row_is_named_on_the_first_night(factor: float, columns: int, least: float) -> None:
    rng = np.random.default_rng(5)
    named = 0
    for _ in range(NIGHTS):
        times = noisy(rng, columns=columns)
        times[7] *= factor
        named += [slow.row for slow in slow_siblings(times)] == [7]
    assert named >= least * NIGHTS


def test_slow_row_is_named_beside_one_off_times() -> None:
    rng = np.random.default_rng(6)
    named = 0
    for _ in range(NIGHTS):
        times = with_one_off_times(rng)
        times[3] *= 10
        named += [slow.row for slow in slow_siblings(times)] == [3]
    assert named >= 0.95 * NIGHTS


def test_all_targets_of_a_slow_server_are_named() -> None:
    """Six of 24, as many as one of four servers has."""
    times = noisy(np.random.default_rng(7))
    times[6:12] *= 5
    assert sorted(slow.row for slow in slow_siblings(times)) == list(range(6, 12))


def test_a_fast_repetition_acquits() -> None:
    """Slow in two of three columns is not slow; one time of each row is not enough."""
    times = noisy(np.random.default_rng(8))
    times[2, :2] *= 20
    assert slow_siblings(times) == ()
    single = noisy(np.random.default_rng(8), columns=1)
    single[2] *= 20
    assert slow_siblings(single) == ()


def test_three_rows_are_too_few() -> None:
    times = noisy(np.random.default_rng(9), rows=3)
    times[0] *= 20
    assert slow_siblings(times) == ()
    times = noisy(np.random.default_rng(9), rows=4)
    times[0] *= 20
    assert [slow.row for slow in slow_siblings(times)] == [0]


def test_row_is_compared_with_its_own_past() -> None:
    """Twice the time is not far from the 1.4 times of a target that is always slower, nor from a scatter of 50 %."""
    times = noisy(np.random.default_rng(10), noise=0.02)
    times[4] *= 2
    rng = np.random.default_rng(11)
    earlier = rng.normal(0, 0.05, (24, 20))
    (slow,) = slow_siblings(times, earlier)
    assert slow.row == 4
    assert slow.usual_ratio == pytest.approx(1, abs=0.1)
    usually_slower = earlier.copy()
    usually_slower[4] += math.log(1.4)
    assert slow_siblings(times, usually_slower) == ()
    scattered = earlier.copy()
    scattered[4] = rng.normal(0, 0.5, 20)
    assert slow_siblings(times, scattered) == ()


def test_row_that_stays_slow_remains_named() -> None:
    """Slow in the newest twelve tables: usual is what was before."""
    times = noisy(np.random.default_rng(12), noise=0.02)
    times[4] *= 5
    earlier = np.random.default_rng(13).normal(0, 0.05, (24, 20))
    earlier[4, 8:] += math.log(5)
    (slow,) = slow_siblings(times, earlier)
    assert slow.row == 4
    assert slow.usual_ratio == pytest.approx(1, abs=0.1)
    assert newest_slow_tables(earlier[4]) == 12
    assert newest_slow_tables(earlier[3]) == 0


@pytest.mark.parametrize("ratio", [MIN_RATIO * 0.97, MIN_RATIO * 1.03])
def test_least_ratio(ratio: float) -> None:
    times = np.ones((24, 2))
    times[0] = ratio
    assert bool(slow_siblings(times)) == (ratio > MIN_RATIO)


def tables(rng: np.random.Generator, nodes: int, nights: int, used: int) -> Table:
    """Typical deviations of the nodes of each night, which are chosen at random among all."""
    deviations = np.full((nodes, nights), np.nan)
    for night in range(nights):
        chosen = rng.choice(nodes, used, replace=False)
        deviations[chosen, night] = rng.normal(0, 0.1, used)
    return deviations


def test_node_that_is_the_slowest_night_after_night_is_named_with_its_beginning() -> None:
    """Node 5 takes 2.5 times as long from night 20 on, whenever it is used: 0.4 of the speed of the others."""
    deviations = tables(np.random.default_rng(3), nodes=16, nights=30, used=8)
    deviations[5, 20:] += math.log(2.5)
    (slow,) = slow_over_tables(deviations)
    used = np.flatnonzero(np.isfinite(deviations[5, 20:]))
    assert (slow.row, slow.first, slow.slowest, slow.tables) == (5, 20 + used[0], len(used), len(used))
    assert 1 / slow.ratio == pytest.approx(0.4, rel=0.1)


def test_probability_of_a_slowest_node_is_exact() -> None:
    """Of two nodes each is the slower one with probability 1/2: all of 12 nights, two nodes and 12 beginnings."""
    deviations = np.array([[0.5] * 12, [-0.5] * 12])
    (slow,) = slow_over_tables(deviations)
    assert (slow.row, slow.first, slow.tables) == (0, 0, 12)
    assert slow.probability == pytest.approx(2 * 12 * 0.5**12)
    assert slow_over_tables(deviations[:, :10]) == ()  # 20 / 1024 is above 1 %


def test_probability_is_that_of_all_outcomes() -> None:
    """Nights of 40, 60, 80 and 60 nodes; it is the slowest in three of them or more: counted over all outcomes."""
    sizes = (40, 60, 80, 60)
    deviations = np.full((80, 4), np.nan)
    for night, nodes in enumerate(sizes):
        deviations[:nodes, night] = -np.arange(nodes) / 100
    deviations[0] = [0.6, -0.015, 0.6, 0.6]
    (slow,) = slow_over_tables(deviations)
    assert (slow.first, slow.slowest, slow.tables) == (0, 3, 4)
    exact = 0.0
    for outcome in product((True, False), repeat=4):
        if sum(outcome) >= 3:
            chances = zip(outcome, sizes, strict=True)
            exact += math.prod(1 / nodes if is_slowest else 1 - 1 / nodes for is_slowest, nodes in chances)
    assert slow.probability == pytest.approx(80 * 4 * exact)


def test_alike_nodes_are_not_named_over_nights() -> None:
    rng = np.random.default_rng(4)
    named = sum(bool(slow_over_tables(tables(rng, nodes=16, nights=30, used=4))) for _ in range(NIGHTS))
    assert named <= 3


def test_repaired_and_nearly_equal_nodes_are_not_named() -> None:
    deviations = tables(np.random.default_rng(3), nodes=8, nights=30, used=8)
    repaired = deviations.copy()
    repaired[5, 10:27] += math.log(2.5)
    assert slow_over_tables(repaired) == ()
    # The slowest every night, by 10 %.
    nearly_equal = deviations / 100
    nearly_equal[5] += 0.1
    assert slow_over_tables(nearly_equal) == ()


def test_tables_without_siblings_say_nothing() -> None:
    assert slow_over_tables(np.full((3, 4), np.nan)) == ()
    assert slow_over_tables(np.array([[1.0] * 20])) == ()
