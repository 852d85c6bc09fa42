"""Noise that grows, and levels that alternate: found where they were planted, and not in noise, steps or spells."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from iowatch.statistics import patterns
from iowatch.statistics.patterns import find_alternation, find_noise_increase

Floats = NDArray[np.float64]


def noise(seed: int, n: int, scatter: float = 0.03) -> Floats:
    """Student's t with four degrees of freedom, whose outliers are those of a shared file system; shape (n,)."""
    return scatter * np.random.default_rng([66, seed]).standard_t(4, n)


def test_noise_that_grew_has_its_date_and_its_sizes() -> None:
    """Normal noise of 3 %, then 20 times as much."""
    residuals = np.random.default_rng([66, 1]).normal(0, 0.03, 200)
    residuals[100:] *= 20
    increase = find_noise_increase(residuals)
    assert increase is not None
    assert abs(increase.index - 100) <= 3
    assert increase.observations == 200 - increase.index
    assert increase.before == pytest.approx(0.03, rel=0.4)
    assert increase.since == pytest.approx(0.6, rel=0.4)


def test_noise_that_grew_a_little_is_not_reported() -> None:
    """Twice the noise is what a busy month does."""
    residuals = noise(1, 90)
    residuals[50:] *= 2
    assert find_noise_increase(residuals) is None


def test_step_and_slow_trend_are_no_noise() -> None:
    """Both increase the distance from a level, and not that of one session from the next."""
    step = noise(2, 90)
    step[60:] -= 1.0
    slope = noise(2, 400) - 0.003 * np.arange(400)
    assert find_noise_increase(step) is None
    assert find_noise_increase(slope) is None


def test_noise_that_is_over_is_not_reported() -> None:
    residuals = noise(2, 90)
    residuals[40:65] *= 20
    assert find_noise_increase(residuals) is None


def test_stationary_noise_has_no_increase() -> None:
    """400 series of 90 sessions: z of 4.5 is exceeded once in 300,000 independent dates, so none is expected."""
    assert not [seed for seed in range(400) if find_noise_increase(noise(seed, 90, 0.08)) is not None]


def alternating(seed: int, every: int, since: int = 30, n: int = 60, factor: float = 0.3) -> Floats:
    """ln of values at a level of 1000 of which one in `every` since a date is bad; shape (n,)."""
    logs = math.log(1000) + noise(seed, n)
    logs[since::every] += math.log(factor)
    return logs


@pytest.mark.parametrize("every", [2, 3, 4])
def test_alternating_level_has_counts_and_both_levels(every: int) -> None:
    """One bad session in 2, 3 and 4 of 30: 15, 10 and 8; none in the 60 before."""
    alternation = find_alternation(alternating(3, every, since=60, n=90))
    assert alternation is not None
    assert alternation.index == 60
    assert (alternation.bad, alternation.observations) == (math.ceil(30 / every), 30)
    assert (alternation.bad_before, alternation.observations_before) == (0, 60)
    assert math.exp(alternation.bad_level - alternation.level) == pytest.approx(0.3, rel=0.1)


def test_sessions_that_were_bad_as_often_before_are_usual() -> None:
    assert find_alternation(alternating(4, 4, since=2, n=80)) is None


def test_step_and_spell_are_no_alternation() -> None:
    """A level that stays low is a step, and one low spell is a transient: neither alternates."""
    step = math.log(1000) + noise(5, 60)
    step[30:] += math.log(0.3)
    spell = math.log(1000) + noise(5, 60)
    spell[40:52] += math.log(0.3)
    assert find_alternation(step) is None
    assert find_alternation(spell) is None


def test_alternation_that_is_over_is_not_reported() -> None:
    logs = alternating(6, 3, since=30, n=60)
    assert find_alternation(np.append(logs, math.log(1000) + noise(7, 12))) is None


def test_more_noise_is_no_alternation() -> None:
    """Noise x20 has bad sessions, too, but its good ones do not stay at the level."""
    logs = math.log(1000) + noise(8, 60)
    logs[40:] = math.log(1000) + 20 * noise(9, 20)
    assert find_alternation(logs) is None


def test_outliers_of_noise_are_no_alternation() -> None:
    """Outliers to the left in one of 50 sessions, as Edison's series have them: none in 400 series of 90 sessions."""
    seeds_with_alternation = []
    for seed in range(400):
        stream = np.random.default_rng([67, seed])
        logs = noise(seed, 90, 0.05) - (stream.random(90) < 0.02) * stream.exponential(0.4, 90)
        if find_alternation(logs) is not None:
            seeds_with_alternation.append(seed)
    assert not seeds_with_alternation


@pytest.mark.parametrize("n", [0, 5, 29])
def test_few_observations_show_no_pattern(n: int) -> None:
    assert find_noise_increase(noise(1, n)) is None
    assert find_alternation(noise(1, n)) is None


@pytest.mark.parametrize(
    ("hits", "trials", "other_hits", "other_trials"), [(10, 20, 0, 30), (3, 9, 2, 40), (0, 5, 0, 5)]
)
def test_fisher_chance_is_that_of_scipy(hits: int, trials: int, other_hits: int, other_trials: int) -> None:
    expected = stats.hypergeom.sf(hits - 1, trials + other_trials, hits + other_hits, trials)
    assert patterns._fisher_chance(hits, trials, other_hits, other_trials) == pytest.approx(expected)


def test_ranks_and_tail_are_those_of_scipy() -> None:
    values = np.array([3.0, 1.0, 1.0, 2.0, 3.0, 3.0])
    assert patterns._mean_ranks(values).tolist() == stats.rankdata(values).tolist()
    assert patterns._normal_tail(4.5) == pytest.approx(stats.norm.sf(4.5))
