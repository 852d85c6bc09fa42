"""Autocorrelated observations have a smaller effective number; independent ones are unchanged.

bench/statistics/compare.py: larger size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from iowatch.core import Case
from iowatch.statistics import ComparisonSettings, Pair, PairComparison, SideSamples, compare_pairs, estimates
from iowatch.statistics import wandering as wandering_module
from iowatch.statistics.estimates import (
    NO_INFLATION,
    VarianceInflation,
    _rank_autocorrelation,
    _shrink_autocorrelations,
    correct_p_for_autocorrelation,
)
from tests.comparison.edison import windows
from tests.statistics.simulation import EDISON, Noise, make_consecutive_pairs, make_pairs, wandering

DRAWS = ComparisonSettings(resamples=400)


def compared(noise: Noise, sessions: int, pairs_per_set: int, sets: int, shared: bool = False) -> list[PairComparison]:
    rng = np.random.default_rng([sessions, pairs_per_set])
    made = [make_pairs(rng, noise, pairs_per_set, (sessions, sessions), 3, shared=shared) for _ in range(sets)]
    return [one for each in made for one in compare_pairs(each, DRAWS)[0]]


def coverage(found: Sequence[PairComparison]) -> float:
    return float(np.mean([one.ci is not None and one.ci[0] <= 1 <= one.ci[1] for one in found]))


def different(found: Sequence[PairComparison]) -> float:
    return float(np.mean([one.verdict in ("faster", "slower") for one in found]))


def half_width(found: Sequence[PairComparison]) -> float:
    return float(np.median([one.ci[1] - one.ci[0] for one in found if one.ci]) / 2)


@pytest.fixture
def without_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results without correction for autocorrelation."""
    monkeypatch.setattr(estimates, "estimate_inflations", lambda sides: [NO_INFLATION] * len(sides))


# Without the correction the interval covers 80 % of these, and 4 % (one pair: 13 %) differ.
@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("pairs_per_set", "most"), [(1, 0.04), (12, 0.01)])
def test_intervals_cover_with_autocorrelation_one_half(pairs_per_set: int, most: float) -> None:
    found = compared(wandering(0.5), 28, pairs_per_set, 300 // pairs_per_set)
    assert coverage(found) >= 0.92
    assert different(found) <= most


def test_intervals_cover_with_noise_like_edison() -> None:
    """83 % and 4.8 % without the correction."""
    found = compared(EDISON, 28, 12, 30)
    assert coverage(found) >= 0.91
    assert different(found) <= 0.02


def test_coverage_without_correction_is_as_documented(without_correction: None) -> None:
    found = compared(wandering(0.5), 28, 12, 20)
    assert 0.72 <= coverage(found) <= 0.88


@pytest.mark.slow
@pytest.mark.parametrize(("sessions", "pairs_per_set", "wider"), [(10, 12, 1.06), (28, 12, 1.04), (28, 1, 1.12)])
def test_intervals_of_independent_sessions_are_hardly_wider(
    sessions: int, pairs_per_set: int, wider: float, request: pytest.FixtureRequest
) -> None:
    corrected = compared(wandering(0.0), sessions, pairs_per_set, 240 // pairs_per_set)
    assert 0.92 <= coverage(corrected) <= 0.985
    request.getfixturevalue("without_correction")
    assert half_width(corrected) <= wider * half_width(
        compared(wandering(0.0), sessions, pairs_per_set, 240 // pairs_per_set)
    )


def test_autocorrelated_ratio_of_shared_sessions_is_corrected() -> None:
    """The ratio of the sides is autocorrelated, too: pairs of the same sessions are not independent."""
    found = compared(wandering(0.7), 28, 12, 20, shared=True)
    assert all(one.paired for one in found)
    assert coverage(found) >= 0.9
    assert different(found) <= 0.02


def test_large_difference_is_found_despite_autocorrelation() -> None:
    rng = np.random.default_rng(5)
    made = make_pairs(rng, EDISON, 12, (28, 28), 3, ratio=1.3)
    assert {one.words for one in compare_pairs(made, DRAWS)[0]} == {"faster"}


def test_large_difference_is_found_despite_a_trend() -> None:
    """Nine consecutive pairs of 1.5 to 1.46: strongly autocorrelated, but clearly different."""
    sides = [{f"n{n}": (level + n,) for n in range(9)} for level in (100.0, 150.0)]
    pair = Pair(Case("ior", {}), "bandwidth", SideSamples(sides[0]), SideSamples(sides[1]), sign=1)
    (one,), _ = compare_pairs([pair])
    assert one.inflation > 3
    assert one.words == "faster"


def test_autocorrelation_is_reported_and_increases_runs_needed() -> None:
    (independent,) = compared(wandering(0.0), 40, 1, 1)
    (autocorrelated,) = compared(wandering(0.6), 40, 1, 1)
    assert independent.inflation < 1.2
    assert "alike" not in independent.reason
    assert autocorrelated.inflation > 3
    assert "consecutive sessions are correlated" in autocorrelated.reason
    assert (autocorrelated.runs_needed or 0) > (independent.runs_needed or 0)


def moving(sets: int) -> list[PairComparison]:
    """Two consecutive months of a level with a lag-1 autocorrelation of 0.97 per night, one pair per comparison."""
    rng = np.random.default_rng(1)
    made = [make_consecutive_pairs(rng, wandering(0.97), 1, 28) for _ in range(sets)]
    return [one for each in made for one in compare_pairs(each, DRAWS)[0]]


@pytest.mark.slow
def test_slowly_moving_level_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single pairs of consecutive months, and twelve pairs of months far apart."""
    assert different(moving(200)) <= 0.08
    assert different(compared(wandering(0.97), 28, 12, 10)) <= 0.05
    # By the correlation of consecutive nights alone, 13 % (400 pairs) and a third are called different.
    monkeypatch.setattr(wandering_module, "wandering_shares", lambda evidence: {})
    assert different(moving(200)) >= 0.09
    assert different(compared(wandering(0.97), 28, 12, 10)) >= 0.2


def test_slowly_moving_level_is_reported() -> None:
    (one,) = moving(1)
    assert one.verdict == "not enough data"
    assert "the level moves slowly over many runs" in one.reason
    assert one.runs_needed is None
    assert "measure both sides alternately" in (one.runs_reason or "")


def test_step_is_found_on_a_slowly_moving_level() -> None:
    rng = np.random.default_rng(6)
    made = make_pairs(rng, wandering(0.97, scale=0.05), 12, (28, 28), 3, ratio=2.0)
    assert {one.words for one in compare_pairs(made, DRAWS)[0]} == {"faster"}


def test_independent_sessions_are_rarely_taken_for_a_moving_level() -> None:
    found = compared(wandering(0.0), 28, 12, 20)
    assert np.mean([one.inflation > 5 for one in found]) <= 0.05


def test_inflation_of_a_moving_level_is_the_sum_of_its_correlations() -> None:
    """Variance of the mean of 28 values whose correlation matrix is half 0.97^|i-j|, half the unit matrix."""
    lag = np.abs(np.subtract.outer(np.arange(28), np.arange(28)))
    expected = np.sum(0.5 * 0.97**lag + 0.5 * np.eye(28)) / 28
    assert VarianceInflation.of_moving_level(0.5, 28, 1.0).variance == pytest.approx(expected)


@pytest.mark.slow
def test_consecutive_months_of_edison_rarely_differ(request: pytest.FixtureRequest) -> None:
    """Series in which the detector finds no change: without correction 5.8 % differ."""
    months = list(windows(28))
    corrected = [one for each in months for one in compare_pairs(each, DRAWS)[0]]
    assert len(corrected) > 300
    assert different(corrected) <= 0.015
    # Most are still reported as no difference.
    assert np.mean([one.verdict == "no difference" for one in corrected]) >= 0.6
    request.getfixturevalue("without_correction")
    assert different([one for each in months for one in compare_pairs(each, DRAWS)[0]]) >= 0.04


# Parts


def test_rank_autocorrelation_is_unbiased() -> None:
    rng = np.random.default_rng(2)
    independent = _rank_autocorrelation(rng.standard_cauchy((4000, 12)))
    assert np.mean(independent) == pytest.approx(0, abs=0.03)
    steps = np.zeros((4000, 40))
    for session in range(40):
        last = steps[:, session - 1] if session else rng.standard_normal(4000) / np.sqrt(0.75)
        steps[:, session] = 0.5 * last + rng.standard_normal(4000)
    # For ranks 0.48 where for values 0.5 (6 / pi asin(r / 2)).
    assert np.mean(_rank_autocorrelation(steps)) == pytest.approx(0.48, abs=0.03)
    assert list(_rank_autocorrelation(np.ones((1, 9)))) == [0.0]


def test_autocorrelation_of_one_pair_is_shrunk() -> None:
    observation_counts = np.full(20, 20.0)
    assert _shrink_autocorrelations(np.array([0.1]), np.array([20.0]))[0] < 0.02
    assert _shrink_autocorrelations(np.array([0.6]), np.array([100.0]))[0] > 0.55
    # Pairs that differ no more than by chance get one common value.
    shrunk = _shrink_autocorrelations(
        np.array([0.2, 0.6] * 10), observation_counts
    )  # variance 0.042, by chance alone 0.05
    assert np.ptp(shrunk) == 0
    assert 0.2 < shrunk[0] < 0.4
    # Pairs that differ by more keep most of their value.
    apart = _shrink_autocorrelations(np.array([0.0, 0.8] * 10), observation_counts)
    assert np.ptp(apart) > 0.5


def test_p_values_of_independent_sessions_are_unchanged() -> None:
    assert correct_p_for_autocorrelation(0.003, (9, 9), NO_INFLATION) == 0.003
    assert correct_p_for_autocorrelation(0.003, (9, 9), VarianceInflation(2.0, 1.2)) > 0.02
    assert correct_p_for_autocorrelation(0.0, (9,), VarianceInflation(2.0, 1.2)) < 1e-6
    assert correct_p_for_autocorrelation(1.0, (9,), VarianceInflation(2.0, 1.2)) == 1.0


def test_one_session_or_no_pair_has_no_inflation() -> None:
    made: list[Pair] = make_pairs(np.random.default_rng(1), wandering(0.5), 2, (1, 3), 3)
    assert {one.inflation for one in compare_pairs(made, DRAWS)[0]} == {1.0}
    assert compare_pairs([], DRAWS)[0] == []
