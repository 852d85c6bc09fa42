"""A confidence interval that may be looked at after every pair: the centre of symmetric log ratios.

A pair is one run on each of two stacks, in an order that a coin decides, so that its log ratio is distributed
symmetrically around the true difference, whatever the noise: heavy tails, drift and correlation between runs only
change its size. For a symmetric x with centre at or below d, an odd increasing function g with |g| <= 1 and a stake
0 < s < 1, E[1 + s g(x - d)] <= 1. The product over all pairs is a test martingale: by Ville's inequality it ever
exceeds 1/a with a probability of at most a. So the values d that it has not rejected contain the centre at all times,
and measuring may stop for any reason.

Sources: de la Pena, Annals of Probability 27 (1999), for symmetric variables; Howard, Ramdas, McAuliffe and Sekhon,
Annals of Statistics 49 (2021), for confidence sequences; Waudby-Smith and Ramdas, Journal of the Royal Statistical
Society B 86 (2024), for betting. tanh is the best g where the noise is normal, and it limits what one outlier is worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from numpy.typing import NDArray

from iowatch.statistics.constants import MAD_TO_SD

# Stakes and their weights: large stakes decide early where the difference exceeds the noise, small ones where it does
# not. A mixture costs at most -ln(weight) of evidence against the best stake (`bench/bisection.py`).
_STAKES = np.array([0.1, 0.25, 0.5, 0.97])
_LOG_WEIGHTS = np.log([0.1, 0.2, 0.2, 0.5])
# Pairs of a test without which it says nothing of the noise.
_FEWEST_FOR_SCALE = 3
# Smallest noise: without any, all pairs are equal.
_SMALLEST_SCALE = 1e-9
# Of the ends of an interval, in log ratios.
_ACCURACY = 1e-6
# Number of pairs that stands for "never".
_NEVER = 10**6


@dataclass
class NoiseScale:
    """Robust standard deviation of the log ratio of a pair, from all pairs of earlier tests and of this one."""

    _residuals: list[float] = field(default_factory=list)

    def add_test(self, log_ratios: list[float]) -> None:
        """Add the pairs of a test that has ended."""
        if len(log_ratios) >= _FEWEST_FOR_SCALE:
            self._residuals += _deviations(log_ratios)

    def estimate(self, log_ratios: list[float]) -> float:
        """Standard deviation, with the pairs of a test that goes on; 0 while there are fewer than three pairs."""
        residuals = self._residuals
        if len(log_ratios) >= _FEWEST_FOR_SCALE:
            residuals = residuals + _deviations(log_ratios)
        if not residuals:
            return 0.0
        return MAD_TO_SD * median(residuals)


def _deviations(log_ratios: list[float]) -> list[float]:
    """Distances from the median."""
    middle = median(log_ratios)
    return [abs(log_ratio - middle) for log_ratio in log_ratios]


@dataclass
class SequentialCentre:
    """Log ratios of pairs in the order in which they were measured.

    Attributes:
        scale: noise of earlier tests; a pair is weighted with what was known before it.
    """

    scale: NoiseScale
    log_ratios: list[float] = field(default_factory=list)
    _scales: list[float] = field(default_factory=list)

    def add(self, log_ratio: float) -> None:
        """Add a pair."""
        self._scales.append(max(self.scale.estimate(self.log_ratios), _SMALLEST_SCALE))
        self.log_ratios.append(log_ratio)

    @property
    def estimate(self) -> float:
        """Median of the log ratios."""
        return median(self.log_ratios)

    def is_above(self, centre: float, error: float) -> bool:
        """Whether the true centre is above this one; wrong with at most this probability, however often asked."""
        return bool(self.log_ratios) and self._log_evidence(centre, 1) >= math.log(1 / error)

    def is_below(self, centre: float, error: float) -> bool:
        """Whether the true centre is below this one, as `is_above`."""
        return bool(self.log_ratios) and self._log_evidence(centre, -1) >= math.log(1 / error)

    def interval(self, error: float) -> tuple[float, float]:
        """Interval that misses the true centre with at most this probability at all times; ends may be infinite."""
        if len(self.log_ratios) < fewest_pairs(error / 2):
            return -math.inf, math.inf
        return self._bound(1, error / 2), self._bound(-1, error / 2)

    def _bound(self, sign: int, error: float) -> float:
        """The last centre in this direction that is rejected; evidence falls steadily towards the estimate."""
        reach = 40 * max(*self._scales, max(self.log_ratios) - min(self.log_ratios), _ACCURACY)
        outside, inside = self.estimate - sign * reach, self.estimate
        if self._log_evidence(outside, sign) < math.log(1 / error):
            return -sign * math.inf
        # Bisection between a centre that is rejected and one that is not.
        while abs(inside - outside) > _ACCURACY:
            middle = (inside + outside) / 2
            is_rejected = self._log_evidence(middle, sign) >= math.log(1 / error)
            if is_rejected:
                outside = middle
            else:
                inside = middle
        return outside

    def _log_evidence(self, centre: float, sign: int) -> float:
        """ln of the test martingale of "the true centre is not above (sign 1) or not below (-1) this one"."""
        score = np.tanh(sign * (np.array(self.log_ratios) - centre) / np.array(self._scales))
        return log_betting_evidence(score)


def log_betting_evidence(scores: NDArray[np.float64]) -> float:
    """ln of the test martingale of "the mean of each score, given those before it, is at most 0".

    Args:
        scores: in their order, from -1 to 1.
    """
    return _log_mixture(np.log1p(np.outer(_STAKES, scores)).sum(axis=1))


def _log_mixture(log_products: NDArray[np.float64]) -> float:
    """ln of the weighted mean over the stakes."""
    return float(np.logaddexp.reduce(_LOG_WEIGHTS + log_products))


def fewest_pairs(error: float) -> int:
    """Pairs without which nothing can be decided at this error rate: all on one side, far above the noise."""
    return next(n for n in range(1, 200) if _log_mixture(n * np.log1p(_STAKES)) >= math.log(1 / error))


def expected_pairs(distance: float, noise: float, error: float) -> int:
    """Pairs that normal noise takes on average until a centre at this distance is rejected.

    Args:
        distance, noise: of log ratios; noise is the standard deviation of a pair.
        error: as in `SequentialCentre.is_above`.
    """
    least = fewest_pairs(error)
    if distance <= 0:
        return _NEVER
    if noise <= 0:
        return least
    # Mean evidence of a pair for each stake, over normal noise.
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    score = np.tanh(distance / noise + nodes)
    gain = (np.log1p(np.outer(_STAKES, score)) * weights).sum(axis=1) / weights.sum()
    needed = (math.log(1 / error) - _LOG_WEIGHTS)[gain > 0] / gain[gain > 0]
    if not needed.size:
        return _NEVER
    return max(least, math.ceil(float(needed.min())))
