"""The noise of one series: good nights scatter tightly and a little skewed; bad nights come in spells.

A night's residual r = ln(value) - level has one of two densities: good, a two-piece t distribution; bad, a
two-piece Cauchy distribution, mostly to the left. Good and bad follow each other as a Markov chain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from iowatch.detect.settings import Settings

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise of one series, or of several along an axis (then every field is an array that broadcasts).

    Attributes:
        left, right: spread of good nights below and above the level, in natural logarithm.
        enter, leave: probability a night to enter, and to leave, a spell of bad nights.
        bad_left: share of bad nights below the level.
        thinning: by how much autocorrelation thins out evidence, >= 1.
    """

    left: float | Floats
    right: float | Floats
    enter: float | Floats
    leave: float | Floats
    bad_left: float | Floats
    thinning: float | Floats

    @property
    def spread(self) -> float | Floats:
        """Mean spread of good nights."""
        return 0.5 * (self.left + self.right)

    @property
    def bad_share(self) -> float | Floats:
        """Share of bad nights in the long run."""
        return self.enter / (self.enter + self.leave)


def _t_norm(freedom: float) -> float:
    log = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    return math.exp(log) / math.sqrt(freedom * math.pi)


def densities(residuals: Floats, noise: Noise, settings: Settings) -> tuple[Floats, Floats]:
    """Densities of good and of bad nights at residuals of any shape that the noise broadcasts to."""
    below = residuals < 0
    z = residuals / np.where(below, noise.left, noise.right)
    good = (1 + z * z / settings.freedom) ** (-(settings.freedom + 1) / 2)
    good *= _t_norm(settings.freedom) / noise.spread
    width = settings.bad_spread * noise.spread
    z = residuals / width
    bad = np.where(below, noise.bad_left, 1 - noise.bad_left) * (2 / math.pi) / width / (1 + z * z)
    return good, bad


def surprise(residuals: Floats, noise: Noise, settings: Settings) -> Floats:
    """-ln density of each night when its neighbours are not known, thinned for autocorrelation."""
    good, bad = densities(residuals, noise, settings)
    return -np.log((1 - noise.bad_share) * good + noise.bad_share * bad) / noise.thinning


def good_share(residuals: Floats, noise: Noise, settings: Settings) -> Floats:
    """Probability that each night is a good one."""
    good, bad = densities(residuals, noise, settings)
    weighted = (1 - noise.bad_share) * good
    return np.asarray(weighted / (weighted + noise.bad_share * bad))


def first_guess(logs: Floats, settings: Settings) -> Noise:
    """Noise before any level is known: the spread from differences of neighbours, the rest as assumed."""
    steps = np.abs(np.diff(logs))
    spread = 1.4826 * float(np.median(steps)) / math.sqrt(2) if len(steps) else 0.0
    spread = max(spread, settings.floor)
    return Noise(
        left=1.1 * spread,
        right=0.9 * spread,
        enter=settings.enter_bad,
        leave=settings.leave_bad,
        bad_left=settings.bad_left,
        thinning=1.2,
    )


def fit(logs: Floats, residuals: Floats, settings: Settings, rounds: int = 6) -> Noise:
    """Noise of a series whose levels are known, by expectation maximisation shrunk to the assumptions.

    Args:
        logs: ln of the values, shape (n,); they give the spread that is shrunk to.
        residuals: logs less their level, shape (n,).
    """
    guess = first_guess(logs, settings)
    noise = guess
    for _ in range(rounds):
        noise = _improve(residuals, noise, float(guess.spread), settings)
    return replace(noise, thinning=_thinning(residuals, noise, settings))


def _improve(residuals: Floats, noise: Noise, prior_spread: float, s: Settings) -> Noise:
    good = good_share(residuals, noise, s)
    left, right = _spreads(residuals, good, noise, prior_spread, s)
    bad = 1 - good
    entered, left_bad = (good[:-1] * bad[1:]).sum(), (bad[:-1] * good[1:]).sum()
    half = 0.5 * s.prior_nights
    return replace(
        noise,
        left=left,
        right=right,
        enter=_clip((entered + s.prior_nights * s.enter_bad) / (good[:-1].sum() + s.prior_nights), 0.005, 0.3),
        leave=_clip((left_bad + half * s.leave_bad) / (bad[:-1].sum() + half), 0.15, 0.9),
        bad_left=_clip((bad[residuals < 0].sum() + half * s.bad_left) / (bad.sum() + half), 0.3, 0.95),
    )


def _spreads(
    residuals: Floats, good: Floats, noise: Noise, prior_spread: float, s: Settings
) -> tuple[float, float]:
    """Spreads of the two-piece t distribution: the estimate of the two-piece normal one with t weights."""
    below = residuals < 0
    z = residuals / np.where(below, noise.left, noise.right)
    squares = good * (s.freedom + 1) / (s.freedom + z * z) * residuals**2
    prior = s.prior_nights * prior_spread**2
    share = s.skew**3 / (1 + s.skew**3)
    a = np.cbrt(squares[below].sum() + prior * share)
    b = np.cbrt(squares[~below].sum() + prior * (1 - share))
    scale = math.sqrt((a + b) / (good.sum() + s.prior_nights))
    left, right = max(float(a) * scale, s.floor), max(float(b) * scale, s.floor)
    return max(left, right / 2), max(right, left / 3)


def _thinning(residuals: Floats, noise: Noise, s: Settings) -> float:
    """(1 + rho) / (1 - rho), rho the lag-1 autocorrelation of good nights, shrunk to the assumed one."""
    n = len(residuals)
    z = residuals / np.where(residuals < 0, noise.left, noise.right)
    z = np.clip(z, -2, 2) * good_share(residuals, noise, s)
    z -= z.mean()
    rho = float((z[:-1] * z[1:]).sum() / ((z * z).sum() + 1e-12))
    rho = (rho * n + s.correlation * s.correlation_nights) / (n + s.correlation_nights)
    return _clip((1 + rho) / (1 - rho), 1.0, s.max_thinning)


def _clip(value: float, low: float, high: float) -> float:
    return float(min(max(value, low), high))


def stack(noises: list[Noise]) -> Noise:
    """Noise of many series with fields of shape (series, 1), to broadcast over levels."""
    names = ("left", "right", "enter", "leave", "bad_left", "thinning")
    columns = {name: np.array([[getattr(noise, name)] for noise in noises]) for name in names}
    return Noise(**columns)
