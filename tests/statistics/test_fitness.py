"""The decision whether a system is as fast as before, on simulated nights whose truth is known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from iowatch.statistics.errors import StatisticsError
from iowatch.statistics.fitness import Fitness, FitnessSettings, FitnessTest, PowerCurve, rank_limit
from iowatch.statistics.night_noise import NightNoise, NoiseTails, effective_nights
from iowatch.statistics.panel_table import PanelSeries
from iowatch.statistics.vocabulary import ParameterVocabulary, Scalar

Floats = NDArray[np.float64]
DAY_S = 86_400
VOCABULARY = ParameterVocabulary()
# Twelve series: two operations of three interfaces on two file systems.
CASES: list[dict[str, Scalar]] = [
    {"operation": operation, "api": api, "file_system": file_system}
    for operation in ("write", "read")
    for api in ("POSIX", "MPIIO", "HDF5")
    for file_system in ("scratch1", "scratch2")
]
WRITES = range(6)
TAILS = NoiseTails(limit=1.5, swing_variance=100.0)


@dataclass(frozen=True)
class Noise:
    """Standard deviations (natural logarithm) between nights, within one, and of the swing of each file system."""

    between: float = 0.02
    within: float = 0.01
    shared: float = 0.0
    autocorrelation: float = 0.0


def simulate(noise: Noise, nights: int, repetitions: int, seed: int) -> tuple[Floats, Floats]:
    """Logarithms of the nights before, shape (12, nights), and of the runs after, shape (12, repetitions)."""
    rng = np.random.default_rng([65, seed])
    swings = np.zeros((2, nights + 1))
    for night in range(nights + 1):
        innovation = rng.standard_normal(2) * math.sqrt(1 - noise.autocorrelation**2)
        swings[:, night] = noise.autocorrelation * swings[:, night - 1] + innovation
    of_night = rng.standard_normal((12, nights + 1)) * noise.between + noise.shared * swings[[0, 1] * 6]
    before = 7 + of_night[:, :-1] + noise.within * rng.standard_normal((12, nights))
    after = 7 + of_night[:, [-1]] + noise.within * rng.standard_normal((12, repetitions))
    return before, after


def make_test(before: Floats, settings: FitnessSettings | None = None, expected: Sequence[int] = ()) -> FitnessTest:
    times = DAY_S * np.arange(before.shape[1], dtype=np.float64)
    series = [PanelSeries(times, logs, case) for logs, case in zip(before, CASES, strict=True)]
    return FitnessTest(series, VOCABULARY, settings or FitnessSettings(), expected_losses=expected)


def assess(test: FitnessTest, after: Floats) -> Fitness:
    """Round by round until it is decided, as a session does."""
    fitness = test.assess() if not after.size else None
    for values in after.T:
        for position, value in enumerate(values):
            if math.isfinite(value):
                test.record(position, float(value))
        fitness = test.assess()
        if fitness.decision != "undecided":
            break
    assert fitness is not None
    return fitness


def test_unchanged_quiet_system_is_fit() -> None:
    decisions = Counter(
        assess(make_test(before), after).decision
        for before, after in (simulate(Noise(), 60, 4, seed) for seed in range(20))
    )
    # A false "not fit" has a probability of 5 %: more than 3 of 20 come once in 60 such tests.
    assert decisions["fit"] >= 17
    assert decisions["undecided"] == 0


@pytest.mark.parametrize("loss", [0.85, 0.5])
def test_loss_of_a_group_is_found_and_explained(loss: float) -> None:
    before, after = simulate(Noise(), 60, 4, seed=1)
    after[WRITES] += math.log(loss)
    fitness = assess(make_test(before), after)
    assert (fitness.decision, fitness.reason) == ("not fit", "group")
    assert fitness.lower is not None
    assert fitness.lower.rule == "with operation = write"
    assert set(fitness.lower.members) == set(WRITES)
    assert math.exp(fitness.lower.log_gain) == pytest.approx(loss, rel=0.05)
    assert [fitness.series[i].state for i in range(12)] == ["lower"] * 6 + [s.state for s in fitness.series[6:]]


def test_false_alarms_are_rare_although_nights_swing_together() -> None:
    noise = Noise(between=0.08, within=0.05, shared=0.2, autocorrelation=0.6)
    alarms = 0
    for seed in range(60):
        before, after = simulate(noise, 80, 3, seed)
        alarms += assess(make_test(before), after).decision == "not fit"
    # 5 % of 60 are 3; more than 7 have a probability of 1 %.
    assert alarms <= 7


def test_loss_of_the_margin_is_not_called_fit() -> None:
    noise = Noise(between=0.04, within=0.03)
    settings = FitnessSettings(margin=0.1)
    missed = 0
    for seed in range(40):
        before, after = simulate(noise, 60, 3, seed)
        after[[0, 2, 4]] += math.log(0.9)
        missed += assess(make_test(before, settings), after).decision == "fit"
    # 5 % of 40 are 2; more than 5 have a probability of 1 %.
    assert missed <= 5


def test_noisy_system_is_undecided_and_states_what_could_be_found() -> None:
    before, after = simulate(Noise(between=0.3, within=0.05), 60, 3, seed=3)
    test = make_test(before)
    fitness = assess(test, after)
    assert fitness.decision == "undecided"
    assert fitness.largest_possible_loss > FitnessSettings().log_margin
    detectable = test.detectable_loss()
    quiet = make_test(simulate(Noise(), 60, 3, seed=3)[0]).detectable_loss()
    assert quiet is not None
    assert quiet < 0.2
    assert detectable is None or detectable > 2 * quiet


def test_repetitions_do_not_make_the_noise_of_nights_smaller() -> None:
    """However often a bad night is measured, it is one night: 40 runs say no more than 4."""
    before, _ = simulate(Noise(between=0.1, within=0.01), 60, 1, seed=4)
    bounds = []
    for repetitions in (4, 40):
        after = 7 + np.random.default_rng(1).normal(0, 0.01, (12, repetitions))
        test = make_test(before)
        for values in after.T:
            for position, value in enumerate(values):
                test.record(position, float(value))
        bounds.append(test.assess().largest_possible_loss)
        assert not test.assess().repeating_helps
    assert bounds[1] == pytest.approx(bounds[0], rel=0.15)


def test_nothing_is_decided_before_the_second_round() -> None:
    before, after = simulate(Noise(), 60, 1, seed=5)
    after[WRITES] += math.log(0.5)
    assert assess(make_test(before), after).decision == "undecided"
    assert assess(make_test(before, FitnessSettings(first_look=1)), after).decision == "not fit"


def test_series_that_falls_alone_is_not_fit() -> None:
    before, after = simulate(Noise(), 60, 2, seed=6)
    after[5] += math.log(0.5)
    fitness = assess(make_test(before), after)
    assert (fitness.decision, fitness.reason, fitness.fell_alone) == ("not fit", "series", (5,))


def test_expected_loss_is_no_evidence_and_expected_gain_is_reported() -> None:
    before, after = simulate(Noise(), 60, 4, seed=7)
    after[WRITES] += math.log(0.6)
    after[6:] += math.log(1.5)
    fitness = assess(make_test(before, expected=WRITES), after)
    assert fitness.decision == "fit"
    assert fitness.higher is not None
    assert fitness.higher.decides
    assert set(fitness.higher.members) == set(range(6, 12))


def test_without_nights_there_is_no_baseline() -> None:
    before, after = simulate(Noise(), 10, 3, seed=8)
    fitness = assess(make_test(before), after)
    assert (fitness.decision, fitness.reason) == ("undecided", "no baseline")
    assert {series.state for series in fitness.series} == {"no baseline"}
    assert make_test(before).detectable_loss() is None
    empty = [PanelSeries(np.zeros(0), np.zeros(0), case) for case in CASES]
    assert FitnessTest(empty, VOCABULARY).assess().reason == "no baseline"


def test_few_nights_need_a_larger_change() -> None:
    before, after = simulate(Noise(), 16, 3, seed=9)
    after[WRITES] += math.log(0.5)
    assert assess(make_test(before), after).decision == "not fit"


def test_run_that_is_missing_leaves_its_groups_undecided() -> None:
    before, after = simulate(Noise(), 60, 4, seed=10)
    after[[1, 3, 5, 7]] = math.nan
    assert assess(make_test(before), after).decision == "undecided"


def test_information_of_a_further_run_falls() -> None:
    before, after = simulate(Noise(between=0.02, within=0.05), 60, 6, seed=11)
    test = make_test(before)
    gains = [test.information_gains().sum()]
    for values in after.T:
        for position, value in enumerate(values):
            test.record(position, float(value))
        gains.append(test.information_gains().sum())
    assert gains[0] > gains[2] > gains[5] > 0


def test_rank_limit_is_the_rank_of_a_further_night() -> None:
    past = np.arange(1.0, 100.0)
    # Of 100 exchangeable nights the further one exceeds the 95th smallest of the other 99 with a probability of 5 %.
    assert rank_limit(past, 99, 0.05) == 96.0
    assert rank_limit(past[:19], 19, 0.05) == 19.0
    # Nine nights cannot show 5 %: ln(1 / (0.05 * 10)) = 0.69 beyond the largest.
    assert rank_limit(past[:9], 9, 0.05) == pytest.approx(9 * (1 + math.log(2)))
    # Autocorrelated nights are worth fewer.
    assert rank_limit(past, 30, 0.05) > rank_limit(past, 99, 0.05)


def test_autocorrelated_nights_are_worth_fewer() -> None:
    rng = np.random.default_rng(2)
    independent = rng.standard_normal(400)
    correlated = np.empty(400)
    correlated[0] = 0
    for night in range(1, 400):
        correlated[night] = 0.6 * correlated[night - 1] + independent[night]
    # (1 - r) / (1 + r) = 1/4 for r = 0.6.
    assert effective_nights(correlated) == pytest.approx(100, rel=0.3)
    assert effective_nights(independent) > 330


def test_swing_like_those_of_the_past_cancels() -> None:
    noise = Noise(between=0.02, shared=0.2)
    before, _ = simulate(noise, 100, 1, seed=12)
    residuals = before - np.median(before, axis=1, keepdims=True)
    scatter = 1.4826 * np.median(np.abs(residuals), axis=1)
    model = NightNoise.estimate(residuals, scatter)
    assert model.loadings.shape == (12, 2)
    swing = np.where(np.arange(12) % 2 == 0, -0.4, 0.0)[:, None]
    assert model.common_swing(swing, model.unique, TAILS)[::2] == pytest.approx(-0.4, rel=0.15)
    # The same swing of half of the file system is none of the past.
    other = np.where(np.arange(12) < 6, swing[:, 0], 0.0)[:, None]
    cancelled = np.abs(model.distances(swing, model.unique, TAILS)).max()
    assert np.abs(model.distances(other, model.unique, TAILS)).max() > 4 * cancelled


def test_detectable_loss_is_the_smallest_of_which_all_larger_ones_are_found() -> None:
    curve = PowerCurve(losses=(0.1, 0.2, 0.4, 0.8), shares=(0.96, 0.5, 0.95, 1.0))
    assert curve.detectable(0.95) == 0.4
    assert PowerCurve(losses=(0.1,), shares=(0.9,)).detectable(0.95) is None


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(StatisticsError, match="margin"):
        FitnessSettings(margin=1.5)
    with pytest.raises(StatisticsError, match="no series"):
        FitnessTest([], VOCABULARY)
    with pytest.raises(StatisticsError, match="logarithm"):
        make_test(simulate(Noise(), 60, 1, seed=1)[0]).record(0, -math.inf)
