"""Shifts of levels that move by themselves: explained by the movement, or not. Expected shares are of seeded draws."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from iowatch.statistics.constants import Floats
from iowatch.statistics.moving_level import (
    LARGEST_SHIFT,
    LevelMovement,
    _LevelModel,
    _predict,
    _SessionMeans,
    assess_shift,
)

SESSIONS, SERIES, CHANGE = 150, 6, 120


def autoregression(stream: np.random.Generator, autocorrelation: float, deviation: float) -> Floats:
    """A stationary first-order autoregression with this standard deviation, shape (SESSIONS,)."""
    values = stream.standard_normal(SESSIONS)
    for session in range(1, SESSIONS):
        innovation = math.sqrt(1 - autocorrelation**2) * values[session]
        values[session] = autocorrelation * values[session - 1] + innovation
    return deviation * values


def moving(seed: int, deviation: float = 0.05) -> Floats:
    """Six series with a noise of 3 % on a common level with an autocorrelation of 0.97, shape (SERIES, SESSIONS)."""
    stream = np.random.default_rng([seed, 3])
    return autoregression(stream, 0.97, deviation) + stream.normal(0, 0.03, (SERIES, SESSIONS))


def still(seed: int) -> Floats:
    """The same on a level that does not move."""
    return np.random.default_rng([seed, 4]).normal(0, 0.03, (SERIES, SESSIONS))


def with_step(logs: Floats, log_gain: float) -> Floats:
    """The series with a step of all of them at CHANGE."""
    stepped = logs.copy()
    stepped[:, CHANGE:] += log_gain
    return stepped


def assess(logs: Floats) -> LevelMovement | None:
    return assess_shift(logs, [logs], CHANGE)


def share_explained(make: Callable[[int], Floats], log_gain: float) -> float:
    """Share of 60 draws whose shift a movement explains."""
    return float(np.mean([assess(with_step(make(seed), log_gain)) is not None for seed in range(60)]))


def test_a_slowly_moving_level_explains_its_own_shifts() -> None:
    assert share_explained(moving, 0.0) >= 0.8


@pytest.mark.slow
def test_a_still_level_explains_no_step() -> None:
    """A step of 8 % is 2.7 scatters of one series and session, and more than six of the mean of six series."""
    assert share_explained(still, 0.0) >= 0.95
    assert share_explained(still, -0.08) <= 0.05


@pytest.mark.slow
def test_a_step_of_a_moving_level_is_no_movement() -> None:
    """From one session to the next it moves by 1.2 %: what falls by 20 % is no movement, what falls by 1 % is one."""
    assert share_explained(moving, -0.2) <= 0.3
    assert share_explained(moving, -0.01) >= 0.7


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_large_shift_is_no_movement(sign: int) -> None:
    """Also where the level moves by 30 %, so that its model would explain the shift."""
    changed = 0
    for seed in range(20):
        logs = moving(seed, 0.3)
        shift = logs[:, CHANGE:].mean() - logs[:, :CHANGE].mean()
        stepped = with_step(logs, sign * (LARGEST_SHIFT + 0.1) - shift)
        assert assess(stepped) is None
        changed += assess(with_step(logs, -shift)) is not None
    assert changed > 0


def test_a_short_past_shows_nothing() -> None:
    logs = moving(1)
    assert assess(logs) is not None
    assert assess_shift(logs[:, CHANGE - 29 :], [], 29) is None
    assert assess_shift(logs[:, :CHANGE], [], CHANGE) is None


def test_single_bad_nights_hide_no_movement() -> None:
    """One night in twenty is at a third for half of the series."""
    explained = 0
    for seed in range(40):
        logs = moving(seed)
        logs[:3, np.random.default_rng(seed).random(SESSIONS) < 0.05] += math.log(1 / 3)
        explained += assess(logs) is not None
    assert explained >= 28


def test_prediction_is_that_of_the_conditional_normal_distribution() -> None:
    """With so many sessions that mean and variance are known: regression on the sessions before, in closed form.

    Of an autoregression without noise only the last session counts: the session h later is predicted by r^h times it.
    """
    sessions, r = 600, 0.9
    stream = np.random.default_rng(8)
    values = stream.standard_normal(sessions)
    for session in range(1, sessions):
        values[session] = r * values[session - 1] + math.sqrt(1 - r**2) * values[session]
    before = _SessionMeans(np.arange(sessions, dtype=np.float64), values)
    expected = r * float(values[-1])
    deviation = math.sqrt(1 - r**2)
    for distance, probability in ((0.0, 1.0), (1.0, 0.3173), (-2.0, 0.0455)):  # of the normal distribution
        after = _SessionMeans(np.array([float(sessions)]), np.array([expected + distance * deviation]))
        assert _predict(before, after, _LevelModel(r, 1.0, 0.0, 0.0)).probability == pytest.approx(
            probability, abs=0.05
        )
