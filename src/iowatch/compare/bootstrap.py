"""Confidence intervals of a ratio when samples come in nights.

Samples of one night share what happened on the machine that night, so nights are what is drawn: a draw takes G
of the G nights with replacement, each with all its samples (the cluster bootstrap; Davison and Hinkley,
"Bootstrap Methods and their Application", 1997, section 3.8: resampling within the groups as well would count
the spread inside them twice). Its quantiles are too narrow when nights are few, because G drawn nights show
only (G-1)/G of the variance and their spread is itself uncertain; they are moved away from the estimate by
sqrt(G/(G-1)) and by Student's t over the normal quantile, as the expanded percentile interval does (Hesterberg,
"What Teachers Should Know about the Bootstrap", The American Statistician 69, 2015), with Welch's degrees of
freedom for two sides. tests/compare and bench/compare.py measure the coverage.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import special

from iowatch.compare.records import INDEPENDENT, Dependence, Floats

Counts = NDArray[np.int32]

# The quantiles read from the draws: 5 % and 95 % are estimated well by 1,000 draws, and ignore the far tails
# that a median over few nights can jump to.
_TAIL = 0.05
_TAIL_Z = float(special.ndtri(1 - _TAIL))


@lru_cache(maxsize=512)
def draw_counts(nights: int, resamples: int, seed: int) -> Counts:
    """How often each night is in each draw: shape (nights, resamples), columns sum to `nights`.

    The same for every pair of a comparison, so that pairs measured in the same nights are drawn together and
    their dependence carries over to the overall answer.
    """
    rng = np.random.default_rng([seed, nights])
    drawn = rng.multinomial(nights, np.full(nights, 1 / nights), size=resamples)
    return np.ascontiguousarray(drawn.T, dtype=np.int32)


def drawn_medians(values: Floats, night: NDArray[np.intp], counts: Counts) -> Floats:
    """Median of the pooled samples in each draw.

    Args:
        values: samples, shape (n,).
        night: index of each sample's night, shape (n,).
        counts: from `draw_counts`, shape (nights, resamples).

    Returns:
        shape (resamples,); as `numpy.median`, the mean of the two middle samples where they are two.
    """
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    reached = np.cumsum(counts[night[order]], axis=0, dtype=np.int32)
    total = reached[-1].copy()
    reached *= 2
    low = ranked[np.sum(reached < total, axis=0)]
    high = ranked[np.sum(reached <= total, axis=0)]
    return np.asarray((low + high) / 2, dtype=np.float64)


def midmean(values: Floats) -> float:
    """Mean of the middle half of the values, those at the quartiles counted in part (interquartile mean)."""
    return float(drawn_midmeans(values, np.ones((len(values), 1), dtype=np.int32))[0])


def drawn_midmeans(values: Floats, counts: Counts) -> Floats:
    """Interquartile mean in each draw of values of which each is a night: shape (resamples,).

    As deaf to outliers as a median needs to be, and its draws are not as coarse: intervals over pairs are a
    tenth narrower, and cover better, than those of medians.

    Args:
        values: shape (nights,).
        counts: from `draw_counts`, shape (nights, resamples).
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(counts[order], axis=0, dtype=np.float64)
    total = reached[-1].copy()
    inside = np.clip(reached, total / 4, 3 * total / 4)
    shares = np.diff(inside, axis=0, prepend=total[None, :] / 4)
    return np.asarray(values[order] @ shares / (total / 2), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Spread:
    """Uncertainty of one estimate: squared standard error and its degrees of freedom."""

    variance: float
    degrees: float

    def plus(self, other: Spread) -> Spread:
        """Of the difference of two independent estimates (Welch and Satterthwaite)."""
        total = self.variance + other.variance
        if total == 0:
            return Spread(0.0, min(self.degrees, other.degrees))
        parts = self.variance**2 / self.degrees + other.variance**2 / other.degrees
        return Spread(total, total**2 / parts)


def widened(draws: Floats, centre: float, nights: int, dependence: Dependence) -> Floats:
    """Draws of independent nights, made to scatter as an estimate of nights that hang together does.

    Args:
        centre: the estimate.
    """
    if dependence.variance == 1:
        return draws
    return np.asarray(centre + (draws - centre) * sqrt(dependence.scale(nights)))


def spread_of(draws: Floats, nights: int, dependence: Dependence = INDEPENDENT) -> Spread:
    """Squared standard error of an estimate from its draws (`widened`) over `nights` >= 2 nights."""
    low, high = np.quantile(draws, [_TAIL, 1 - _TAIL])
    variance = ((high - low) / (2 * _TAIL_Z)) ** 2 * nights / (nights - 1)
    return Spread(variance, dependence.degrees(nights))


def interval(estimate: float, draws: Floats, spread: Spread, level: float) -> tuple[float, float]:
    """Expanded percentile interval around `estimate`, on the scale of the draws.

    As wide as Student's interval of `spread`, as lopsided as the draws.

    Args:
        draws: bootstrap draws of the estimate, shape (resamples,).
        spread: corrected for few nights (`spread_of`, `Spread.plus`).
        level: of confidence, for example 0.95.
    """
    low, high = np.quantile(draws, [_TAIL, 1 - _TAIL])
    # A skewed bootstrap may have both quantiles on one side of the estimate; the interval still holds it.
    below, above = max(0.0, estimate - low), max(0.0, high - estimate)
    if below + above == 0:
        return estimate, estimate
    width = 2 * float(special.stdtrit(spread.degrees, (1 + level) / 2)) * sqrt(spread.variance)
    return estimate - width * below / (below + above), estimate + width * above / (below + above)


def p_value(estimate: float, spread: Spread) -> float:
    """Two-sided p value of "the log ratio is 0" by Student's t."""
    if spread.variance == 0:
        return 1.0 if estimate == 0 else 0.0
    return float(2 * special.stdtr(spread.degrees, -abs(estimate) / sqrt(spread.variance)))
