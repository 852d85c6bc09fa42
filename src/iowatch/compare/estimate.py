"""Ratios of medians and of maxima of one pair, from nights of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb, exp, log, sqrt
from statistics import median

import numpy as np
from numpy.typing import NDArray

from iowatch.compare.bootstrap import (
    Counts,
    draw_counts,
    drawn_medians,
    drawn_midmeans,
    interval,
    midmean,
    p_value,
    spread_of,
    widened,
)
from iowatch.compare.records import INDEPENDENT, Dependence, Estimate, Floats, Measured, Settings

_SHARED = 0.75  # of the nights of the side that has fewer: enough to compare night by night
FEWEST = 3  # nights a side for any statement about noise; two give intervals of a factor of ten


@dataclass(frozen=True)
class Nights:
    """One side's samples by night, and flat with the night of each.

    Attributes:
        samples: of each night, in time order.
        values: all samples, shape (n,).
        night: index of each sample's night, shape (n,).
        medians: of each night, shape (len(samples),).
    """

    samples: tuple[tuple[float, ...], ...]
    values: Floats
    night: NDArray[np.intp]
    medians: Floats

    @classmethod
    def of(cls, samples: Sequence[Sequence[float]]) -> Nights:
        """From samples by night, none empty."""
        kept = tuple(tuple(values) for values in samples)
        values = np.array([value for night in kept for value in night], dtype=np.float64)
        night = np.repeat(np.arange(len(kept)), [len(night) for night in kept])
        # statistics.median: numpy's costs 20 µs a call, and there are 60,000 nights in a thousand pairs.
        return cls(kept, values, night, np.array([median(night) for night in kept]))

    def __len__(self) -> int:
        return len(self.samples)


@dataclass(frozen=True)
class Sides:
    """Both sides of a pair as they are compared; paired where they share their nights."""

    left: Nights
    right: Nights
    paired: bool
    left_out: int = 0

    @property
    def fewest(self) -> int:
        """Nights of the side that has fewer."""
        return min(len(self.left), len(self.right))

    @property
    def log_ratios(self) -> Floats:
        """Of each shared night, the log of right's median over left's; only where paired."""
        return np.log(self.right.medians / self.left.medians)


def align(left: Measured, right: Measured) -> Sides:
    """Compare night by night where the sides share nearly all nights, else as two independent samples."""
    shared = [key for key in left.nights if key in right.nights]
    fewer = min(len(left.nights), len(right.nights))
    if len(shared) < FEWEST or len(shared) < _SHARED * fewer:
        return Sides(Nights.of([*left.nights.values()]), Nights.of([*right.nights.values()]), paired=False)
    chosen = [Nights.of([side.nights[key] for key in shared]) for side in (left, right)]
    out = len(left.nights) + len(right.nights) - 2 * len(shared)
    return Sides(chosen[0], chosen[1], paired=True, left_out=out)


def ratio_of_medians(sides: Sides, settings: Settings, dependence: Dependence = INDEPENDENT) -> Estimate:
    """Right's median over left's: of all samples; where paired, the interquartile mean of the nights' ratios.

    Args:
        dependence: how its nights hang together.
    """
    if sides.paired:
        return _paired(sides.log_ratios, settings, dependence)
    return _independent([_median(side) for side in (sides.left, sides.right)], settings, dependence)


def ratio_of_maxima(sides: Sides, settings: Settings, dependence: Dependence = INDEPENDENT) -> Estimate:
    """The ratio of what the best repetition of a night typically reaches.

    The maximum of all samples grows with their number and its bootstrap does not converge, so the maxima are
    taken a night, of the same number of repetitions on both sides, and the middle half of the nights is
    averaged.
    """
    repetitions = min(int(median(map(len, side.samples))) for side in (sides.left, sides.right))
    left, right = (_log_maxima(side, repetitions) for side in (sides.left, sides.right))
    if sides.paired:
        return _paired(right - left, settings, dependence)
    return _independent([_middle(left), _middle(right)], settings, dependence)


def _log_maxima(side: Nights, repetitions: int) -> Floats:
    """Log of each night's expected maximum of `repetitions` of its samples drawn without replacement."""
    return np.log([_expected_maximum(values, repetitions) for values in side.samples])


def _expected_maximum(values: Sequence[float], repetitions: int) -> float:
    n = len(values)
    if n <= repetitions:
        return max(values)
    # The value with `below` smaller ones is the maximum when the other repetitions come from those.
    weights = (comb(below, repetitions - 1) / comb(n, repetitions) for below in range(n))
    return sum(weight * value for weight, value in zip(weights, sorted(values), strict=True))


def _paired(log_ratios: Floats, settings: Settings, dependence: Dependence) -> Estimate:
    nights = len(log_ratios)
    centre = midmean(log_ratios)
    drawn = drawn_midmeans(log_ratios, draw_counts(nights, settings.resamples, settings.seed))
    draws = widened(drawn, centre, nights, dependence)
    spread = spread_of(draws, nights, dependence)
    low, high = interval(centre, draws, spread, settings.level)
    noise = float((spread.variance * nights) ** 0.5)
    return Estimate(exp(centre), (exp(low), exp(high)), p_value(centre, spread), noise, draws, dependence)


@dataclass(frozen=True)
class _Level:
    """The log level of one side: estimate, number of nights, and its draws given their counts and seed."""

    centre: float
    nights: int
    draw: Callable[[Counts], Floats]


def _median(side: Nights) -> _Level:
    """Of all samples."""
    centre = log(np.median(side.values))
    return _Level(centre, len(side), lambda counts: np.log(drawn_medians(side.values, side.night, counts)))


def _middle(logs: Floats) -> _Level:
    """Of one value a night."""
    return _Level(midmean(logs), len(logs), lambda counts: drawn_midmeans(logs, counts))


def _independent(levels: Sequence[_Level], settings: Settings, dependence: Dependence) -> Estimate:
    """Right's level over left's, the sides' nights drawn independently of each other."""
    left, right = levels
    centre = right.centre - left.centre
    if min(left.nights, right.nights) < FEWEST:
        return Estimate(exp(centre))
    drawn = [
        widened(
            level.draw(draw_counts(level.nights, settings.resamples, settings.seed + offset)),
            level.centre,
            level.nights,
            dependence,
        )
        for offset, level in enumerate(levels)
    ]
    parts = [spread_of(draws, level.nights, dependence) for draws, level in zip(drawn, levels, strict=True)]
    spread = parts[0].plus(parts[1])
    draws = drawn[1] - drawn[0]
    low, high = interval(centre, draws, spread, settings.level)
    noise = sqrt(sum(part.variance * level.nights for part, level in zip(parts, levels, strict=True)))
    return Estimate(exp(centre), (exp(low), exp(high)), p_value(centre, spread), noise, draws, dependence)
