"""Ratios of medians and of maxima of one pair, from nights of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, exp, log

import numpy as np

from iowatch.compare.bootstrap import draw_counts, drawn_medians, interval, p_value, spread_of
from iowatch.compare.records import Estimate, Floats, Measured, Settings

_SHARED = 0.75  # of the nights of the side that has fewer: enough to compare night by night
FEWEST = 3  # nights a side for any statement about noise; two give intervals of a factor of ten


@dataclass(frozen=True)
class Nights:
    """One side's samples, flat, with the night of each.

    Attributes:
        keys: of the nights, in time order.
        values: all samples, shape (n,).
        night: index into `keys` of each sample, shape (n,).
        medians: of each night, shape (len(keys),).
    """

    keys: tuple[str, ...]
    values: Floats
    night: np.ndarray[tuple[int, ...], np.dtype[np.intp]]
    medians: Floats

    @classmethod
    def of(cls, samples: Mapping[str, Sequence[float]]) -> Nights:
        """From samples by night, none empty."""
        sizes = [len(values) for values in samples.values()]
        flat = np.concatenate([np.asarray(values, dtype=np.float64) for values in samples.values()])
        medians = np.array([np.median(np.asarray(values)) for values in samples.values()])
        return cls(tuple(samples), flat, np.repeat(np.arange(len(sizes)), sizes), medians)


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
        return min(len(self.left.keys), len(self.right.keys))

    @property
    def log_ratios(self) -> Floats:
        """Of each shared night, the log of right's median over left's; only where paired."""
        return np.log(self.right.medians / self.left.medians)


def align(left: Measured, right: Measured) -> Sides:
    """Compare night by night where the sides share nearly all nights, else as two independent samples."""
    shared = [key for key in left.nights if key in right.nights]
    fewer = min(len(left.nights), len(right.nights))
    if len(shared) < FEWEST or len(shared) < _SHARED * fewer:
        return Sides(Nights.of(left.nights), Nights.of(right.nights), paired=False)
    chosen = [{key: side.nights[key] for key in shared} for side in (left, right)]
    out = len(left.nights) + len(right.nights) - 2 * len(shared)
    return Sides(Nights.of(chosen[0]), Nights.of(chosen[1]), paired=True, left_out=out)


def ratio_of_medians(sides: Sides, settings: Settings) -> Estimate:
    """Right's median over left's: of all samples, or where paired the median of the nights' ratios."""
    if sides.paired:
        return _paired(sides.log_ratios, settings)
    return _independent(sides.left, sides.right, settings)


def ratio_of_maxima(sides: Sides, settings: Settings) -> Estimate:
    """The ratio of what the best repetition of a night typically reaches.

    The maximum of all samples grows with their number and its bootstrap does not converge, so the maxima are
    taken a night, of the same number of repetitions on both sides, and their medians compared.
    """
    repetitions = min(int(np.median(np.bincount(side.night))) for side in (sides.left, sides.right))
    left, right = (_maxima(side, repetitions) for side in (sides.left, sides.right))
    if sides.paired:
        return _paired(np.log(right.medians / left.medians), settings)
    return _independent(left, right, settings)


def _maxima(side: Nights, repetitions: int) -> Nights:
    """One value a night: the expected maximum of `repetitions` of its samples drawn without replacement."""
    best = [_expected_maximum(side.values[side.night == index], repetitions) for index in range(len(side.keys))]
    values = np.array(best)
    return Nights(side.keys, values, np.arange(len(values)), values)


def _expected_maximum(values: Floats, repetitions: int) -> float:
    n = len(values)
    if n <= repetitions:
        return float(values.max())
    weights = [comb(below, repetitions - 1) / comb(n, repetitions) for below in range(n)]
    return float(np.sort(values) @ np.array(weights))


def _paired(log_ratios: Floats, settings: Settings) -> Estimate:
    nights = len(log_ratios)
    centre = float(np.median(log_ratios))
    counts = draw_counts(nights, settings.resamples, settings.seed)
    draws = drawn_medians(log_ratios, np.arange(nights), counts)
    spread = spread_of(draws, nights)
    low, high = interval(centre, draws, spread, settings.level)
    noise = float((spread.variance * nights) ** 0.5)
    return Estimate(exp(centre), (exp(low), exp(high)), p_value(centre, spread), noise, draws)


def _independent(left: Nights, right: Nights, settings: Settings) -> Estimate:
    centre = log(np.median(right.values) / np.median(left.values))
    sizes = len(left.keys), len(right.keys)
    if min(sizes) < FEWEST:
        return Estimate(exp(centre))
    drawn = []
    for offset, side in enumerate((left, right)):
        counts = draw_counts(len(side.keys), settings.resamples, settings.seed + offset)
        drawn.append(np.log(drawn_medians(side.values, side.night, counts)))
    spreads = [spread_of(draws, size) for draws, size in zip(drawn, sizes, strict=True)]
    spread = spreads[0].plus(spreads[1])
    draws = drawn[1] - drawn[0]
    low, high = interval(centre, draws, spread, settings.level)
    noise = sum(part.variance * size for part, size in zip(spreads, sizes, strict=True)) ** 0.5
    return Estimate(exp(centre), (exp(low), exp(high)), p_value(centre, spread), float(noise), draws)
