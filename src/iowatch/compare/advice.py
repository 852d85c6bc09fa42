"""How many nights a side it takes to find the difference that should not be missed.

Two things must happen for a verdict of faster or slower: the rank test must reject, and the interval must leave
1 out. Each needs (z_test + z_power)^2 * variance / difference^2 nights; the larger of both is asked for. The
variance is the upper bound of a one-sided 85 % interval (chi-squared), because a lucky quiet start would ask
for too little.
"""

from __future__ import annotations

from math import ceil, hypot, inf, log, sqrt

import numpy as np
from scipy import special

from iowatch.compare.estimate import Nights, Sides
from iowatch.compare.ranks import FEWEST_NIGHTS, FEWEST_PAIRS
from iowatch.compare.records import Estimate, Settings

# Standard deviation between nights of a shared file system, assumed (in the log) where too few were measured.
_ASSUMED = 0.15
# Efficiency of the rank tests against Student's under normal noise: 3 / pi (Hodges and Lehmann, 1956).
_RANK_EFFICIENCY = 3 / np.pi
# Nights below which a measured spread between nights says little.
_FEW = 3
_UNSURE = 0.85
# The runs to come are weighed for how they hang together, too; where they do not, that widens the interval of a
# single pair by 7 % all the same (bench/compare.py, `wandering`).
_WIDENED = 1.07**2
MOST = 100_000


def runs_needed(sides: Sides, estimate: Estimate, threshold: float, settings: Settings) -> int:
    """Nights a side (or pairs), in all.

    Args:
        estimate: of the median; its spread is what one night a side leaves open.
        threshold: p value that the rank test must reach after the correction.
        settings: with the difference to find and the power.
    """
    spread, dependence = estimate.spread, estimate.dependence
    degrees = max(1.0, _degrees(sides) / dependence.spread)
    noise = _night_spread(sides) * sqrt(dependence.variance)
    wanted = log(1 + settings.difference)
    # Ranks shrug off outliers as medians do, so that a wild standard deviation is not theirs.
    rank = _nights(min(noise / sqrt(_RANK_EFFICIENCY), spread or inf), threshold, wanted, settings.power)
    width = _nights(spread or noise, 1 - settings.level, wanted, settings.power)
    doubt = degrees / float(special.chdtri(degrees, _UNSURE)) if degrees > 1 else 1.0
    fewest = FEWEST_PAIRS if sides.paired else FEWEST_NIGHTS
    return min(MOST, max(fewest, ceil(max(rank, width) * doubt * _WIDENED)))


def _degrees(sides: Sides) -> int:
    """Of the measured spread: of nights, or of single samples where these stand in."""
    if sides.fewest < _FEW:
        return max(1, len(sides.left.values) + len(sides.right.values) - 2)
    return sides.fewest - 1 if sides.paired else len(sides.left) + len(sides.right) - 2


def _night_spread(sides: Sides) -> float:
    """Standard deviation of the log ratio between one night of each side."""
    if sides.paired:
        return float(np.std(sides.log_ratios, ddof=1))
    return hypot(_side_spread(sides.left), _side_spread(sides.right))


def _side_spread(side: Nights) -> float:
    """Between night medians; with too few, a first guess: samples vary as much, and nights as is assumed."""
    if len(side) >= _FEW:
        return float(np.std(np.log(side.medians), ddof=1))
    within = float(np.std(np.log(side.values), ddof=1)) if len(side.values) > 1 else _ASSUMED
    return hypot(within, _ASSUMED)


def _nights(noise: float, p: float, difference: float, power: float) -> float:
    """Of a two-sided test at level p of a mean with standard deviation `noise`."""
    return float(((special.ndtri(power) - special.ndtri(p / 2)) * noise / difference) ** 2)
