"""The parts of the detector compared with independent implementations: scipy and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import mannwhitneyu, norm

from iowatch.statistics import DetectorSettings
from iowatch.statistics.segments import (
    NoiseModel,
    Segment,
    SeriesFit,
    fit_noise,
    initial_noise,
    levels_along_path,
    negative_log_likelihood,
    noise_densities,
    segment_many,
    step_penalty,
)
from iowatch.statistics.steps import (
    StepFeatures,
    extract_transients,
    first_level_uncertainty,
    fit_slope,
    is_level_of_staircase,
    rank_distance,
    step_confidences,
    step_features,
    step_reversals,
)

SETTINGS = DetectorSettings()
NOISE = NoiseModel(left=0.08, right=0.05, enter=0.05, leave=0.5, outlier_left=0.8, thinning=1.0)


@pytest.mark.parametrize("which", [0, 1])
def test_densities_integrate_to_one(which: int) -> None:
    def density(x: float) -> float:
        return float(noise_densities(np.array([x]), NOISE, SETTINGS)[which][0])

    total = quad(density, -np.inf, 0)[0] + quad(density, 0, np.inf)[0]
    assert total == pytest.approx(1, abs=1e-6)


def test_noise_parameters_are_recovered() -> None:
    """Two-piece t noise of known spreads; 15 % is three standard errors at 4,000 observations, shrinkage included."""
    rng = np.random.default_rng(1)
    z = np.abs(rng.standard_t(SETTINGS.freedom, 4000))
    logs = np.where(rng.random(4000) < 0.08 / 0.13, -0.08 * z, 0.05 * z)
    noise = fit_noise(logs, logs, SETTINGS)
    assert noise.left == pytest.approx(0.08, rel=0.15)
    assert noise.right == pytest.approx(0.05, rel=0.15)


def test_rank_distance_agrees_with_scipy() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=30), rng.normal(0.7, 1, size=20)
    p = mannwhitneyu(a, b, use_continuity=False, method="asymptotic").pvalue
    assert rank_distance(a, b) == pytest.approx(norm.isf(p / 2), rel=1e-9)


def test_rank_distance_without_observations_is_zero() -> None:
    assert rank_distance(np.array([]), np.array([1.0])) == 0


def test_path_gives_the_level_of_each_observation() -> None:
    assert list(levels_along_path([(0, 1.0), (2, 5.0)], 4)) == [1.0, 1.0, 5.0, 5.0]


def test_path_starts_at_the_first_observation_and_increases() -> None:
    rng = np.random.default_rng(3)
    series = [np.log(100) + np.cumsum(0.3 * rng.normal(size=n)) for n in (7, 50, 51, 200)]
    for path, _ in segment_many(series, SETTINGS):
        starts = [start for start, _ in path]
        assert starts[0] == 0
        assert starts == sorted(set(starts))


def test_initial_spread_of_a_constant_series_is_the_floor() -> None:
    assert initial_noise(np.zeros(20), SETTINGS).spread == pytest.approx(SETTINGS.floor)


def levels(*observations_and_levels: tuple[int, float]) -> list[Segment]:
    ends = np.cumsum([observations for observations, _ in observations_and_levels])
    return [
        Segment(int(end) - observations, int(end), level, 0.0, np.full(observations, level))
        for end, (observations, level) in zip(ends, observations_and_levels, strict=True)
    ]


def test_steps_that_are_soon_reversed_count_as_reversed() -> None:
    """Down by 0.5 and up by 0.4 after 15 observations: 80 % and 75 % of them are reversed, times 1/e."""
    reversals = step_reversals(levels((50, 1.0), (15, 0.5), (50, 0.9)), 15)
    assert reversals == pytest.approx([0.8 / np.e, 0.75 / np.e])


@pytest.mark.parametrize("last", [0.0, -0.5, 3.0])
def test_lasting_steps_have_no_reversal(last: float) -> None:
    """In the same direction, or far beyond the previous level."""
    assert step_reversals(levels((50, 1.0), (5, 0.5), (50, last)), 15)[0] == 0


@pytest.mark.parametrize(
    ("first", "observations", "expected"), [(15, 75, 0.25), (7, 14, 23 / 30 * 136 / 150), (30, 40, 0), (10, 150, 0)]
)
def test_uncertainty_of_the_first_level_decreases_with_observations(
    first: int, observations: int, expected: float
) -> None:
    """By hand: (1 - first/30) * (1 - observations/150), neither below 0."""
    assert first_level_uncertainty(levels((first, 1.0))[0], observations, SETTINGS) == pytest.approx(expected)


def test_step_at_the_start_of_a_short_series_has_less_confidence() -> None:
    """Ten observations at one level and twenty at the next, alone and after a year at another level."""
    rng = np.random.default_rng(8)
    step = np.concatenate([np.zeros(10), np.full(20, 0.25)])
    logs = np.concatenate([np.full(365, 1.0), step]) + 0.1 * rng.normal(size=395)
    noise = fit_noise(logs, logs - np.concatenate([np.full(365, 1.0), step]), SETTINGS)

    def confidence(values: np.ndarray, *starts: tuple[int, float]) -> float:
        series = SeriesFit(values, noise, SETTINGS, np.zeros(len(values), dtype=bool))
        return step_confidences(series, series.segments(list(starts)))[-1]

    alone = confidence(logs[365:], (0, 0.0), (10, 0.25))
    assert alone < confidence(logs, (0, 1.0), (365, 0.0), (375, 0.25))


def features_of(logs: np.ndarray, *starts: tuple[int, float]) -> StepFeatures:
    """Features of the newest step."""
    series = SeriesFit(logs, NOISE, SETTINGS, np.zeros(len(logs), dtype=bool))
    return step_features(series, series.segments(list(starts)))[-1]


def around(level: float, scatter: float, observations: int) -> np.ndarray:
    """A third of the observations at a level, a third `scatter` above and a third below it."""
    return level + scatter * (np.arange(observations) % 3 - 1.0)


def test_newest_step_is_relative_to_the_scatter_before_it() -> None:
    """A step of 1 after observations within 0.05 of their level: ln 20; those after it scatter by 0.4."""
    features = features_of(np.concatenate([around(0, 0.05, 21), around(1, 0.4, 14)]), (0, 0.0), (21, 1.0))
    assert features.is_newest
    assert features.values[2] == pytest.approx(np.log(20), abs=0.5)


def test_older_step_is_relative_to_the_scatter_of_the_series() -> None:
    """Half of the observations scatter by 0.4, and so does the 80 % quantile of all: ln(2 / 0.4)."""
    features = features_of(np.concatenate([around(0, 0.05, 30), around(2, 0.4, 30)]), (0, 0.0), (30, 2.0))
    assert not features.is_newest
    assert features.values[2] == pytest.approx(np.log(5), abs=0.5)


@pytest.mark.parametrize(("second", "taken"), [(7, True), (8, False)])
def test_departure_in_two_steps_is_one_transient_of_at_most_14_observations(second: int, taken: bool) -> None:
    """Seven observations at -0.5 and seven at -0.9, -0.7 on average, between two parts of one level."""
    n = 37 + second
    logs = np.concatenate([around(0, 0.05, 30), around(-0.5, 0.05, 7), around(-0.9, 0.05, second), around(0, 0.05, 30)])
    series = SeriesFit(logs, NOISE, SETTINGS, np.zeros(len(logs), dtype=bool))
    segments = series.segments([(0, 0.0), (30, -0.5), (37, -0.9), (n, 0.0)])
    lasting, transients = extract_transients(series, segments, step_penalty(len(logs), SETTINGS))
    assert len(lasting) == (1 if taken else 4)
    assert [(transient.first, transient.end) for transient in transients] == ([(30, 44)] if taken else [])
    assert [transient.log_ratio for transient in transients] == [pytest.approx(-0.7, abs=0.02)] * taken
    assert list(np.flatnonzero(series.away)) == (list(range(30, 44)) if taken else [])


def test_autocorrelated_observations_reduce_the_evidence() -> None:
    """(1 + r) / (1 - r) for a lag-1 autocorrelation of r = 0.2: 1.5; independent ones at most 1.1."""
    rng = np.random.default_rng(9)
    noise = rng.normal(size=4000)
    correlated = noise.copy()
    for i in range(1, len(noise)):
        correlated[i] = 0.2 * correlated[i - 1] + np.sqrt(1 - 0.04) * noise[i]
    assert fit_noise(0.05 * correlated, 0.05 * correlated, SETTINGS).thinning == pytest.approx(1.5, abs=0.1)
    assert fit_noise(0.05 * noise, 0.05 * noise, SETTINGS).thinning == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_side_of_outliers_is_estimated(sign: float) -> None:
    """Every tenth of 2,000 observations is ten times the spread below the level, or above it."""
    logs = 0.05 * np.random.default_rng(10).normal(size=2000)
    logs[::10] = sign * 0.5
    share = fit_noise(logs, logs, SETTINGS).outlier_left
    assert share > 0.85 if sign < 0 else share < 0.4


def test_initial_spread_is_that_of_the_values() -> None:
    """Differences of consecutive observations scatter by the square root of 2 more than the values."""
    logs = 0.05 * np.random.default_rng(11).normal(size=20_000)
    assert initial_noise(logs, SETTINGS).spread == pytest.approx(0.05, rel=0.03)


def test_slope_is_fitted_with_the_noise_of_each_side() -> None:
    """Skewed noise of known spreads along a known line: the fitted line is at least as likely as that one."""
    n, rise, noise = 150, 0.5, NoiseModel(left=0.12, right=0.04, enter=0.04, leave=0.5, outlier_left=0.8, thinning=1.0)
    observations, line = np.arange(n, dtype=float), rise * np.arange(n) / n
    for seed in range(20):
        rng = np.random.default_rng([12, seed])
        z = np.abs(rng.standard_t(SETTINGS.freedom, n))
        residuals = np.where(rng.random(n) < 0.75, -0.12 * z, 0.04 * z)
        series = SeriesFit(line + residuals, noise, SETTINGS, np.zeros(n, dtype=bool))
        cost, slope = fit_slope(series, observations, series.logs)
        assert cost <= float(negative_log_likelihood(residuals, noise, SETTINGS).sum()) + 0.1
        assert slope * n == pytest.approx(rise, abs=0.1)


def test_slope_fit_starts_from_the_medians_of_first_and_last_third() -> None:
    """Before any round of the fit, a line without noise is found exactly."""
    line = 0.01 * np.arange(90)
    series = SeriesFit(line, NOISE, SETTINGS, np.zeros(90, dtype=bool))
    assert fit_slope(series, np.arange(90, dtype=float), line, rounds=0)[1] == pytest.approx(0.01)


OUTLIERS = -0.5 + np.array([0.3, -0.7, 0.0, 0.25, -0.4, 0.1, -0.9, 0.2])


@pytest.mark.parametrize(
    ("middle", "is_level"),
    [
        (around(-0.5, 0.05, 5), True),
        (around(-0.5, 0.05, 14), True),
        (around(-0.5, 0.05, 4), False),  # too few
        (around(-0.3, 0.05, 9), False),  # 0.3 is 4.6 times the noise
        (OUTLIERS, False),
        (np.linspace(-0.37, -0.63, 10), False),  # rises through its observations, of which none is an outlier
    ],
    ids=["five", "fourteen", "four", "near", "outliers", "gradual"],
)
def test_short_level_must_be_clear_and_even(middle: np.ndarray, is_level: bool) -> None:
    """Between the levels 0 and -1; the spread of NOISE is 0.065, so 0.39 is six times as much."""
    end = 30 + len(middle)
    logs = np.concatenate([around(0, 0.05, 30), middle, around(-1, 0.05, 30)])
    series = SeriesFit(logs, NOISE, SETTINGS, np.zeros(len(logs), dtype=bool))
    segments = series.segments([(0, 0.0), (30, float(np.median(middle))), (end, -1.0)])
    assert is_level_of_staircase(series, segments, 1) is is_level
    assert not is_level_of_staircase(series, segments, 0)
    assert not is_level_of_staircase(series, segments, 2)
