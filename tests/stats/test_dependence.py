"""Nights that hang together are worth fewer; independent ones are what they were. bench/compare.py: at larger
size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from iowatch.core import Case
from iowatch.stats import ComparisonSettings, Pair, PairComparison, SideSamples, compare_pairs, estimates
from iowatch.stats.estimates import (
    NO_INFLATION,
    VarianceInflation,
    _rank_autocorrelation,
    _shrink_autocorrelations,
    correct_p_for_autocorrelation,
)
from tests.comparison.edison import windows
from tests.stats.simulation import EDISON, Noise, make_pairs, wandering

DRAWS = ComparisonSettings(resamples=400)


def compared(noise: Noise, nights: int, together: int, sets: int, shared: bool = False) -> list[PairComparison]:
    rng = np.random.default_rng([nights, together])
    made = [make_pairs(rng, noise, together, (nights, nights), 3, shared=shared) for _ in range(sets)]
    return [one for each in made for one in compare_pairs(each, DRAWS)[0]]


def coverage(found: Sequence[PairComparison]) -> float:
    return float(np.mean([one.ci is not None and one.ci[0] <= 1 <= one.ci[1] for one in found]))


def different(found: Sequence[PairComparison]) -> float:
    return float(np.mean([one.verdict in ("faster", "slower") for one in found]))


def half_width(found: Sequence[PairComparison]) -> float:
    return float(np.median([one.ci[1] - one.ci[0] for one in found if one.ci]) / 2)


@pytest.fixture
def as_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be said if nights never hung together."""
    monkeypatch.setattr(estimates, "estimate_inflations", lambda sides: [NO_INFLATION] * len(sides))


# Without the treatment the interval covers 80 % of these and calls 4 % (one pair: 13 %) different.
@pytest.mark.parametrize(("together", "most"), [(1, 0.04), (12, 0.01)])
def test_intervals_cover_where_neighbours_correlate_by_a_half(together: int, most: float) -> None:
    found = compared(wandering(0.5), 28, together, 300 // together)
    assert coverage(found) >= 0.92
    assert different(found) <= most


def test_intervals_cover_nights_like_edisons() -> None:
    """83 % and 4.8 % without the treatment."""
    found = compared(EDISON, 28, 12, 30)
    assert coverage(found) >= 0.91
    assert different(found) <= 0.02


def test_the_untreated_case_is_as_bad_as_the_docs_say(as_independent: None) -> None:
    found = compared(wandering(0.5), 28, 12, 20)
    assert 0.72 <= coverage(found) <= 0.88


@pytest.mark.parametrize(("nights", "together", "wider"), [(10, 12, 1.06), (28, 12, 1.04), (28, 1, 1.12)])
def test_independent_nights_pay_next_to_nothing(
    nights: int, together: int, wider: float, request: pytest.FixtureRequest
) -> None:
    treated = compared(wandering(0.0), nights, together, 240 // together)
    assert 0.92 <= coverage(treated) <= 0.985
    request.getfixturevalue("as_independent")
    assert half_width(treated) <= wider * half_width(compared(wandering(0.0), nights, together, 240 // together))


def test_shared_nights_may_hang_together_in_their_ratio() -> None:
    """The sides drift apart and together again over days: pairs of the same nights are no proof either."""
    found = compared(wandering(0.7), 28, 12, 20, shared=True)
    assert all(one.paired for one in found)
    assert coverage(found) >= 0.9
    assert different(found) <= 0.02


def test_a_large_difference_is_found_all_the_same() -> None:
    rng = np.random.default_rng(5)
    made = make_pairs(rng, EDISON, 12, (28, 28), 3, ratio=1.3)
    assert {one.words for one in compare_pairs(made, DRAWS)[0]} == {"faster"}


def test_a_trend_does_not_hide_a_large_difference() -> None:
    """Nine pairs of 1.5 to 1.46 in a row: as dependent as nights can look, and yet no doubt."""
    sides = [{f"n{n}": (level + n,) for n in range(9)} for level in (100.0, 150.0)]
    pair = Pair(Case("ior", {}), "bandwidth", SideSamples(sides[0]), SideSamples(sides[1]))
    (one,), _ = compare_pairs([pair])
    assert one.inflation > 3
    assert one.words == "faster"


def test_it_is_told_and_asks_for_more_runs() -> None:
    (loose,) = compared(wandering(0.0), 40, 1, 1)
    (tight,) = compared(wandering(0.9), 40, 1, 1)
    assert loose.inflation < 1.2
    assert "alike" not in loose.reason
    assert tight.inflation > 3
    assert "consecutive sessions are correlated" in tight.reason
    assert (tight.runs_needed or 0) > (loose.runs_needed or 0)


def test_neighbouring_months_of_edison_hardly_ever_differ(request: pytest.FixtureRequest) -> None:
    """Series in which the detector finds no change: of real noise 5.8 % were called different."""
    months = list(windows(28))
    treated = [one for each in months for one in compare_pairs(each, DRAWS)[0]]
    assert len(treated) > 300
    assert different(treated) <= 0.015
    # Most are still told to be the same.
    assert np.mean([one.verdict == "no difference" for one in treated]) >= 0.6
    request.getfixturevalue("as_independent")
    assert different([one for each in months for one in compare_pairs(each, DRAWS)[0]]) >= 0.04


# The pieces


def test_the_correlation_of_neighbours_is_that_of_ranks_without_bias() -> None:
    rng = np.random.default_rng(2)
    independent = _rank_autocorrelation(rng.standard_cauchy((4000, 12)))
    assert np.mean(independent) == pytest.approx(0, abs=0.03)
    steps = np.zeros((4000, 40))
    for night in range(40):
        last = steps[:, night - 1] if night else rng.standard_normal(4000) / np.sqrt(0.75)
        steps[:, night] = 0.5 * last + rng.standard_normal(4000)
    # Of ranks 0.48 where of values 0.5 (6 / pi asin(r / 2)).
    assert np.mean(_rank_autocorrelation(steps)) == pytest.approx(0.48, abs=0.03)
    assert list(_rank_autocorrelation(np.ones((1, 9)))) == [0.0]


def test_what_one_pair_says_is_mostly_chance() -> None:
    nights = np.full(20, 20.0)
    assert _shrink_autocorrelations(np.array([0.1]), np.array([20.0]))[0] < 0.02
    assert _shrink_autocorrelations(np.array([0.6]), np.array([100.0]))[0] > 0.55
    # Many pairs that differ by no more than chance have one common value.
    alike = _shrink_autocorrelations(np.array([0.2, 0.6] * 10), nights)  # variance 0.042, of chance alone 0.05
    assert np.ptp(alike) == 0
    assert 0.2 < alike[0] < 0.4
    # Those that differ by more keep most of it.
    apart = _shrink_autocorrelations(np.array([0.0, 0.8] * 10), nights)
    assert np.ptp(apart) > 0.5


def test_p_values_of_independent_nights_stay_as_they_are() -> None:
    assert correct_p_for_autocorrelation(0.003, (9, 9), NO_INFLATION) == 0.003
    assert correct_p_for_autocorrelation(0.003, (9, 9), VarianceInflation(2.0, 1.2)) > 0.02
    assert correct_p_for_autocorrelation(0.0, (9,), VarianceInflation(2.0, 1.2)) < 1e-6
    assert correct_p_for_autocorrelation(1.0, (9,), VarianceInflation(2.0, 1.2)) == 1.0


def test_one_night_or_none_is_no_trouble() -> None:
    made: list[Pair] = make_pairs(np.random.default_rng(1), wandering(0.5), 2, (1, 3), 3)
    assert {one.inflation for one in compare_pairs(made, DRAWS)[0]} == {1.0}
    assert compare_pairs([], DRAWS)[0] == []
