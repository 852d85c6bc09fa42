"""Seeded series for the tests of the detector."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DAY = 86400.0
START = 1.2e9


def times(n: int) -> Floats:
    """One observation per day."""
    return START + DAY * np.arange(n)


def gaussian(rng: np.random.Generator, n: int) -> Floats:
    return 0.05 * rng.normal(size=n)


def laplace(rng: np.random.Generator, n: int) -> Floats:
    return 0.05 * rng.laplace(size=n)


def heavy(rng: np.random.Generator, n: int) -> Floats:
    return 0.05 * rng.standard_t(2, size=n)


def skewed(rng: np.random.Generator, n: int) -> Floats:
    z = rng.standard_t(3, size=n)
    return 0.05 * np.where(z < 0, 1.6 * z, 0.6 * z)


def correlated(rng: np.random.Generator, n: int) -> Floats:
    """AR(1) with a lag-1 autocorrelation of 0.3."""
    noise = rng.normal(size=n)
    for i in range(1, n):
        noise[i] = 0.3 * noise[i - 1] + np.sqrt(1 - 0.09) * noise[i]
    return 0.05 * noise


def bursts(rng: np.random.Generator, n: int) -> Floats:
    """Inliers with bursts of outliers, as on a shared file system."""
    logs, is_outlier = 0.04 * rng.normal(size=n), False
    for i in range(n):
        is_outlier = rng.random() < (0.5 if is_outlier else 0.05)
        logs[i] -= rng.exponential(0.4) if is_outlier else 0.0
    return logs


FAMILIES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    f.__name__: f for f in (gaussian, laplace, heavy, skewed, correlated, bursts)
}


def stepped(n: int, at: int, ratio: float, seed: int, level: float = 1000.0) -> Floats:
    """Values with 5 % Gaussian noise and one step."""
    logs = gaussian(np.random.default_rng(seed), n)
    logs[at:] += np.log(ratio)
    return level * np.exp(logs)
