"""The parts of the detector against independent ones: scipy, and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import mannwhitneyu, norm

from iowatch.detect.noise import Noise, densities, first_guess, fit
from iowatch.detect.segment import along, segment_many
from iowatch.detect.settings import Settings
from iowatch.detect.stretch import Series, Stretch
from iowatch.detect.trust import confidences, rank_distance, returns, unproven

SETTINGS = Settings()
NOISE = Noise(left=0.08, right=0.05, enter=0.05, leave=0.5, bad_left=0.8, thinning=1.0)


@pytest.mark.parametrize("which", [0, 1])
def test_densities_integrate_to_one(which: int) -> None:
    def density(x: float) -> float:
        return float(densities(np.array([x]), NOISE, SETTINGS)[which][0])

    total = quad(density, -np.inf, 0)[0] + quad(density, 0, np.inf)[0]
    assert total == pytest.approx(1, abs=1e-6)


def test_noise_is_recovered() -> None:
    """Two-piece t noise of known spreads; 15 % is three standard errors at 4,000 nights, shrinkage included."""
    rng = np.random.default_rng(1)
    z = np.abs(rng.standard_t(SETTINGS.freedom, 4000))
    logs = np.where(rng.random(4000) < 0.08 / 0.13, -0.08 * z, 0.05 * z)
    noise = fit(logs, logs, SETTINGS)
    assert noise.left == pytest.approx(0.08, rel=0.15)
    assert noise.right == pytest.approx(0.05, rel=0.15)


def test_rank_distance_is_that_of_scipy() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=30), rng.normal(0.7, 1, size=20)
    p = mannwhitneyu(a, b, use_continuity=False, method="asymptotic").pvalue
    assert rank_distance(a, b) == pytest.approx(norm.isf(p / 2), rel=1e-9)


def test_rank_distance_of_nothing_is_zero() -> None:
    assert rank_distance(np.array([]), np.array([1.0])) == 0


def test_a_path_gives_each_night_its_level() -> None:
    assert list(along([(0, 1.0), (2, 5.0)], 4)) == [1.0, 1.0, 5.0, 5.0]


def test_a_path_starts_at_the_first_night_and_goes_up() -> None:
    rng = np.random.default_rng(3)
    series = [np.log(100) + np.cumsum(0.3 * rng.normal(size=n)) for n in (7, 50, 51, 200)]
    for path, _ in segment_many(series, SETTINGS):
        starts = [start for start, _ in path]
        assert starts[0] == 0
        assert starts == sorted(set(starts))


def test_the_first_guess_of_a_constant_series_is_the_floor() -> None:
    assert first_guess(np.zeros(20), SETTINGS).spread == pytest.approx(SETTINGS.floor)


def levels(*nights_and_levels: tuple[int, float]) -> list[Stretch]:
    ends = np.cumsum([nights for nights, _ in nights_and_levels])
    return [
        Stretch(int(end) - nights, int(end), level, 0.0, np.full(nights, level))
        for end, (nights, level) in zip(ends, nights_and_levels, strict=True)
    ]


def test_steps_that_are_soon_undone_count_as_undone() -> None:
    """Down by 0.5 and up by 0.4 after 15 nights: 80 % and 75 % of them are undone, faded to 1/e."""
    back = returns(levels((50, 1.0), (15, 0.5), (50, 0.9)), 15)
    assert back == pytest.approx([0.8 / np.e, 0.75 / np.e])


@pytest.mark.parametrize("last", [0.0, -0.5, 3.0])
def test_steps_that_nothing_undoes_are_not_undone(last: float) -> None:
    """On the same way, or far past where it came from."""
    assert returns(levels((50, 1.0), (5, 0.5), (50, last)), 15)[0] == 0


@pytest.mark.parametrize(
    ("first", "nights", "expected"), [(15, 75, 0.25), (7, 14, 23 / 30 * 136 / 150), (30, 40, 0), (10, 150, 0)]
)
def test_a_first_level_is_proven_by_its_nights_and_by_an_old_series(
    first: int, nights: int, expected: float
) -> None:
    """By hand: (1 - first/30) * (1 - nights/150), neither below 0."""
    assert unproven(levels((first, 1.0))[0], nights, SETTINGS) == pytest.approx(expected)


def test_the_same_step_is_doubted_more_at_the_start_of_a_young_series() -> None:
    """Ten nights at one level and twenty at the next, alone and after a year at a level of their own."""
    rng = np.random.default_rng(8)
    step = np.concatenate([np.zeros(10), np.full(20, 0.25)])
    logs = np.concatenate([np.full(365, 1.0), step]) + 0.1 * rng.normal(size=395)
    noise = fit(logs, logs - np.concatenate([np.full(365, 1.0), step]), SETTINGS)

    def confidence(values: np.ndarray, *starts: tuple[int, float]) -> float:
        series = Series(values, noise, SETTINGS, np.zeros(len(values), dtype=bool))
        return confidences(series, series.stretches(list(starts)))[-1]

    alone = confidence(logs[365:], (0, 0.0), (10, 0.25))
    assert alone < confidence(logs, (0, 1.0), (365, 0.0), (375, 0.25))
