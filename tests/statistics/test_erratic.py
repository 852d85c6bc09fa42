"""Whether a head is far slower in some of its runs more often than the base: what counts, suspects, clears, stops."""

from __future__ import annotations

import numpy as np
import pytest

from iowatch.statistics.erratic import ErraticTest

FAR = 0.2


def erratic_test(*log_gains: float, error: float = 0.01) -> ErraticTest:
    """A test with pairs whose levels are equal."""
    test = ErraticTest(error=error, missed=0.05, least_distance=FAR)
    for log_gain in log_gains:
        test.add(log_gain, 0.0)
    return test


@pytest.mark.parametrize(("log_gain", "score"), [(-0.21, 1), (-0.19, 0), (0.21, -1), (0.19, 0)])
def test_a_pair_counts_beyond_the_least_distance_only(log_gain: float, score: int) -> None:
    test = erratic_test(0.0, 0.0, 0.0, 0.0, 0.0, log_gain)
    assert test.scores == [0, 0, 0, 0, 0, score]


def test_distance_grows_with_the_noise_of_all_pairs() -> None:
    """Four standard deviations of 0.1 are 0.4: a pair of -0.35 is usual.

    400 pairs, because the lower quartile of 400 shows the standard deviation to 9 %, that of 40 to 28 % only: then the
    distance may be below 0.35. Standard error of a quantile: sqrt(0.25 x 0.75 / n) / (0.758 x 0.3186), where 0.758 is
    the density of |x| at the quartile 0.3186.
    """
    rng = np.random.default_rng(3)
    test = ErraticTest(error=0.01, missed=0.05, least_distance=FAR)
    for noise in rng.normal(0, 0.1, 400):
        test.add(noise, noise)
    scores = len(test.scores)
    test.add(-0.35, 0.0)
    test.add(-2.0, 0.0)
    assert test.scores[scores:] == [0, 1]


def test_a_head_with_a_lower_level_in_all_runs_is_not_erratic() -> None:
    test = ErraticTest(error=0.01, missed=0.05, least_distance=FAR)
    for _ in range(40):
        test.add(-0.3, -0.3)
    assert test.slow_heads == 0


def test_one_slow_head_is_suspected_until_nineteen_pairs_clear_it() -> None:
    """0.7 x 1.2^n + 0.2 x 1.1^n + 0.1 x 1.05^n is 19.99 at n = 18 and 23.8 at n = 19; 1 / 0.05 = 20 clears (by hand).

    The six pairs up to the suspicion do not count.
    """
    test = erratic_test(-1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert test.is_suspected
    assert test.clearing_pairs() == 19
    for _ in range(18):
        test.add(0.0, 0.0)
    assert test.is_suspected
    test.add(0.0, 0.0)
    assert not test.is_suspected


@pytest.mark.parametrize(("heads", "bases", "suspected"), [(1, 0, True), (2, 1, False), (3, 1, True), (0, 0, False)])
def test_a_base_that_stalls_as_well_excuses_the_head(heads: int, bases: int, suspected: bool) -> None:
    """The head is suspected if it is far slower more than twice as often."""
    test = erratic_test(*[-1.0] * heads, *[1.0] * bases, *[0.0] * (8 - heads - bases))
    assert test.is_suspected == suspected


def test_stop_needs_the_error_rate() -> None:
    """0.5 x 1.97^n reaches 1 / 0.01 = 100 at n = 7.8, with the small stakes at 7.7 (by hand): eight slow heads."""
    stalls = [-1.0] * 7
    quiet = [0.0, 0.01, -0.01, 0.0, 0.01, 0.0, 0.0, -0.01, 0.0]
    assert not erratic_test(*quiet, *stalls).is_erratic
    assert erratic_test(*quiet, *stalls, -1.0).is_erratic


def test_equal_builds_are_not_erratic_whatever_the_noise_is() -> None:
    """300 results of Cauchy noise at an error of 5 %: 15 would be as many as allowed."""
    erratic = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        gains = rng.standard_cauchy(40)
        test = ErraticTest(error=0.05, missed=0.05, least_distance=FAR)
        for gain in gains:
            test.add(gain, gain)
        erratic += test.is_erratic
    assert erratic <= 15
