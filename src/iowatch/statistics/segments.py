"""Segmentation of a series into levels: noise model, most probable levels.

The residual of an observation, r = ln(value) - level, has one of two densities: that of an inlier, a two-piece t
distribution, or that of an outlier, a two-piece Cauchy distribution, mostly below the level. Inliers and outliers
follow each other as a Markov chain, so outliers form bursts. The most probable path of levels is found by exact
dynamic programming over candidate levels, in time linear in n: for each observation and each candidate level the
recursion keeps the probability of the best path that ends at this level (summed over inlier and outlier) and the
start of its current segment. A new segment may start at any observation and costs the penalty. Many series are
processed at once, as one more axis of the arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from iowatch.statistics.constants import MAD_TO_SD, Floats
from iowatch.statistics.method import DetectorSettings


@dataclass(frozen=True, slots=True)
class NoiseModel:
    """Noise of one series, or of several along an axis (every field is then an array that broadcasts).

    Attributes:
        left, right: spread of inliers below and above the level, in natural logarithm.
        enter, leave: probability per observation to enter, and to leave, a burst of outliers.
        outlier_left: share of outliers below the level.
        thinning: factor by which autocorrelation reduces evidence, >= 1.
    """

    left: float | Floats
    right: float | Floats
    enter: float | Floats
    leave: float | Floats
    outlier_left: float | Floats
    thinning: float | Floats

    @property
    def spread(self) -> float | Floats:
        """Mean spread of inliers."""
        return 0.5 * (self.left + self.right)

    @property
    def outlier_share(self) -> float | Floats:
        """Stationary share of outliers."""
        return self.enter / (self.enter + self.leave)


def noise_densities(residuals: Floats, noise: NoiseModel, settings: DetectorSettings) -> tuple[Floats, Floats]:
    """Densities of inliers and of outliers at residuals, of any shape that the noise broadcasts to."""
    below, freedom = residuals < 0, settings.freedom
    z = residuals / np.where(below, noise.left, noise.right)
    good = _kernel(1 + z * z / freedom, freedom)
    norm = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    good *= norm / noise.spread
    width = settings.outlier_spread * noise.spread
    z = residuals / width
    bad = np.where(below, noise.outlier_left, 1 - noise.outlier_left) * (2 / math.pi) / width / (1 + z * z)
    return good, bad


def _kernel(base: Floats, freedom: float) -> Floats:
    """base ** (-(freedom + 1) / 2), the t density without its norm."""
    if freedom != 4:
        return np.asarray(base ** (-(freedom + 1) / 2))
    # A general power would be a quarter of the time of a detection: without AVX-512 it is a call per number.
    return np.asarray(1 / (base * base * np.sqrt(base)))


def negative_log_likelihood(residuals: Floats, noise: NoiseModel, settings: DetectorSettings) -> Floats:
    """-ln density of each observation independent of its neighbours, reduced for autocorrelation."""
    good, bad = noise_densities(residuals, noise, settings)
    return -np.log((1 - noise.outlier_share) * good + noise.outlier_share * bad) / noise.thinning


def inlier_probability(residuals: Floats, noise: NoiseModel, settings: DetectorSettings) -> Floats:
    """Probability that each observation is an inlier."""
    good, bad = noise_densities(residuals, noise, settings)
    weighted = (1 - noise.outlier_share) * good
    return np.asarray(weighted / (weighted + noise.outlier_share * bad))


def initial_noise(logs: Floats, settings: DetectorSettings) -> NoiseModel:
    """Initial noise, before levels are known: spread from consecutive differences, the rest from the settings."""
    steps = np.abs(np.diff(logs))
    spread = MAD_TO_SD * float(np.median(steps)) / math.sqrt(2) if len(steps) else 0.0
    spread = max(spread, settings.floor)
    s = settings
    return NoiseModel(1.1 * spread, 0.9 * spread, s.enter_burst, s.leave_burst, s.outlier_left, thinning=1.2)


def fit_noise(logs: Floats, residuals: Floats, settings: DetectorSettings, rounds: int = 6) -> NoiseModel:
    """Noise of a series with known levels, by expectation maximisation shrunk towards the assumptions.

    Args:
        logs: ln of the values, shape (n,); they give the spread that the estimate is shrunk towards.
        residuals: logs minus their level, shape (n,).
    """
    s = settings
    noise = initial_noise(logs, settings)
    prior_spread = float(noise.spread)
    # Weights of the assumptions, in observations: on what inliers tell, and on what the rarer outliers tell.
    prior, half = s.prior_observations, 0.5 * s.prior_observations
    for _ in range(rounds):
        # Which observations are outliers, by the noise so far.
        good = inlier_probability(residuals, noise, s)
        outlier = 1 - good
        # How often a burst began and ended, and on which side it was.
        entered = (good[:-1] * outlier[1:]).sum()
        ended = (outlier[:-1] * good[1:]).sum()
        enter = (entered + prior * s.enter_burst) / (good[:-1].sum() + prior)
        leave = (ended + half * s.leave_burst) / (outlier[:-1].sum() + half)
        outlier_left = (outlier[residuals < 0].sum() + half * s.outlier_left) / (outlier.sum() + half)
        left, right = _estimate_spreads(residuals, good, noise, prior_spread, s)
        noise = NoiseModel(
            left,
            right,
            enter=_clip(enter, 0.005, 0.3),
            leave=_clip(leave, 0.15, 0.9),
            outlier_left=_clip(outlier_left, 0.3, 0.95),
            thinning=noise.thinning,
        )
    return replace(noise, thinning=_autocorrelation_thinning(residuals, noise, settings))


def _estimate_spreads(
    residuals: Floats, good: Floats, noise: NoiseModel, prior_spread: float, s: DetectorSettings
) -> tuple[float, float]:
    """Left and right spread of the two-piece t distribution: the two-piece normal estimate with t weights."""
    below = residuals < 0
    z = residuals / np.where(below, noise.left, noise.right)
    squares = good * (s.freedom + 1) / (s.freedom + z * z) * residuals**2
    # The assumed spread and skew count as some observations more.
    prior = s.prior_observations * prior_spread**2
    share = s.skew**3 / (1 + s.skew**3)
    root_left = np.cbrt(squares[below].sum() + prior * share)
    root_right = np.cbrt(squares[~below].sum() + prior * (1 - share))
    scale = math.sqrt((root_left + root_right) / (good.sum() + s.prior_observations))
    left, right = max(float(root_left) * scale, s.floor), max(float(root_right) * scale, s.floor)
    # More skew than this is chance.
    return max(left, right / 2), max(right, left / 3)


def _autocorrelation_thinning(residuals: Floats, noise: NoiseModel, s: DetectorSettings) -> float:
    """(1 + rho) / (1 - rho), rho the lag-1 autocorrelation of inliers, shrunk towards the assumed one."""
    n = len(residuals)
    z = residuals / np.where(residuals < 0, noise.left, noise.right)
    z = np.clip(z, -2, 2) * inlier_probability(residuals, noise, s)
    z -= z.mean()
    rho = float((z[:-1] * z[1:]).sum() / ((z * z).sum() + 1e-12))
    rho = (rho * n + s.correlation * s.correlation_observations) / (n + s.correlation_observations)
    return _clip((1 + rho) / (1 - rho), 1.0, s.max_thinning)


def _clip(value: float, low: float, high: float) -> float:
    """A value within limits."""
    return float(min(max(value, low), high))


Ints = NDArray[np.int32]
LevelPath = list[tuple[int, float]]
"""Segments of a series: first observation and level (ln of the value)."""

# Series that are processed at once: their arrays stay in the cache of a processor, and few of them are padded far.
_CHUNK = 128
# Observations whose densities are computed at once: fewer calls, in arrays that stay in the cache of a processor.
_BLOCK = 16


def step_penalty(n: int, settings: DetectorSettings) -> float:
    """Evidence (nats) that one step must contribute in a series of n observations."""
    return settings.penalty + settings.penalty_per_log_observation * float(np.log(n))


def segment_many(series: Sequence[Floats], settings: DetectorSettings) -> list[tuple[LevelPath, NoiseModel]]:
    """Paths and noise of many series of ln values, each of at least one observation."""
    # Series of about the same length together, because shorter ones are padded.
    order = sorted(range(len(series)), key=lambda i: len(series[i]))
    by_position: dict[int, tuple[LevelPath, NoiseModel]] = {}
    for start in range(0, len(order), _CHUNK):
        chunk = order[start : start + _CHUNK]
        by_position |= zip(chunk, _segment_chunk([series[i] for i in chunk], settings), strict=True)
    return [by_position[i] for i in range(len(series))]


def _segment_chunk(series: list[Floats], settings: DetectorSettings) -> list[tuple[LevelPath, NoiseModel]]:
    noises = [initial_noise(logs, settings) for logs in series]
    paths = _best_paths(series, noises, settings)
    # Levels show the noise, and the noise shows the levels.
    for _ in range(settings.passes - 1):
        noises = []
        for logs, path in zip(series, paths, strict=True):
            residuals = logs - levels_along_path(path, len(logs))
            noises.append(fit_noise(logs, residuals, settings))
        paths = _best_paths(series, noises, settings)
    return list(zip(paths, noises, strict=True))


def levels_along_path(path: LevelPath, n: int) -> Floats:
    """The level of each of n observations."""
    starts = [start for start, _ in path] + [n]
    return np.repeat([level for _, level in path], np.diff(starts))


def _best_paths(series: list[Floats], noises: list[NoiseModel], settings: DetectorSettings) -> list[LevelPath]:
    """The most probable path of each series."""
    # Series of different lengths, with different numbers of candidates, are padded to one array.
    candidates = [
        _candidate_levels(values, float(noise.spread), settings) for values, noise in zip(series, noises, strict=True)
    ]
    most = max(len(levels) for levels in candidates)
    padded_levels = np.array([np.pad(levels, (0, most - len(levels)), mode="edge") for levels in candidates])
    lengths = np.array([len(values) for values in series])
    logs = np.zeros((lengths.max(), len(series)))
    for i, values in enumerate(series):
        logs[: len(values), i] = values
    # Fields of shape (series, 1), to broadcast over levels.
    columns = zip(*map(astuple, noises), strict=True)
    noise_of_all = NoiseModel(*(np.array(column)[:, None] for column in columns))
    prices = np.array([[step_penalty(n, settings)] for n in lengths])
    probability_of_step = np.exp(-prices * noise_of_all.thinning)
    best, began = _forward_pass(logs, padded_levels, probability_of_step, noise_of_all, settings)
    # Backwards from the last observation: the level of each segment, and the end of the segment before.
    paths: list[LevelPath] = []
    for i, length in enumerate(lengths):
        path: LevelPath = []
        end = int(length) - 1
        while end >= 0:
            first = int(began[end, i])
            path.append((first, float(padded_levels[i, best[end, i]])))
            end = first - 1
        paths.append(path[::-1])
    return paths


def _candidate_levels(logs: Floats, spread: float, settings: DetectorSettings) -> Floats:
    """Candidate levels: running medians over 3 and 9 observations, on a grid."""
    windows = [sliding_window_view(logs, min(width, len(logs))) for width in (3, 9)]
    medians = np.concatenate([np.median(window, axis=1) for window in windows])
    step = settings.grid_step * spread
    while True:
        levels = np.unique(np.round(medians / step)) * step
        if len(levels) <= settings.grid_levels:
            return levels
        step *= 1.4


def _forward_pass(
    logs: Floats, levels: Floats, price: Floats, noise: NoiseModel, settings: DetectorSettings
) -> tuple[Ints, Ints]:
    """For each observation and series, the number of the best level and the first observation of its segment.

    Args:
        logs: padded, shape (observations, series).
        levels: candidates, shape (series, candidates).
        price: probability of a new segment, shape (series, 1).
    """
    series, outlier_share = np.arange(logs.shape[1]), noise.outlier_share
    best, began = np.zeros(logs.shape, np.int32), np.zeros(logs.shape, np.int32)
    # Probabilities of the best paths to each level with an inlier (good) or an outlier (bad) as last observation.
    # After each observation they are divided by the largest total, so that a new segment always starts with
    # probability 1 x price.
    good, bad = 1 - outlier_share, outlier_share
    since: Ints = np.zeros(levels.shape, np.int32)
    for now in range(len(logs)):
        # Densities of the next observations at all levels.
        if now % _BLOCK == 0:
            residuals = logs[now : now + _BLOCK, :, None] - levels
            densities_good, densities_bad = noise_densities(residuals, noise, settings)
        # Each level is the best path's at the observation before, or begins here.
        if now:
            stays = good + bad >= price
            since = np.where(stays, since, np.int32(now))
            good, bad = (
                np.where(stays, good * (1 - noise.enter) + bad * noise.leave, price * (1 - outlier_share)),
                np.where(stays, good * noise.enter + bad * (1 - noise.leave), price * outlier_share),
            )
        good, bad = good * densities_good[now % _BLOCK], bad * densities_bad[now % _BLOCK]
        total = good + bad
        best[now] = total.argmax(axis=1)
        largest = total[series, best[now]][:, None]
        good, bad = good / largest, bad / largest
        began[now] = since[series, best[now]]
    return best, began


@dataclass(frozen=True)
class Segment:
    """Observations first … end-1 at `level` (ln of the value).

    `logs` are those outside transients, `cost` is their negative log likelihood.
    """

    first: int
    end: int
    level: float
    cost: float
    logs: Floats

    @property
    def observation_count(self) -> int:
        """Number of observations without those of transients."""
        return len(self.logs)


@dataclass
class SeriesFit:
    """A series, its noise, and the observations assigned to transients so far.

    Attributes:
        logs: ln of the values, shape (n,).
        away: observations that belong to a transient, shape (n,).
    """

    logs: Floats
    noise: NoiseModel
    settings: DetectorSettings
    away: NDArray[np.bool_]
    # Answers of `common` by identity of the segments, which are kept so that no other segment gets their identity.
    _common: dict[tuple[int, int], tuple[Segment, Segment, float, float]] = field(default_factory=dict)

    def cost(self, logs: Floats, levels: Floats) -> Floats:
        """Negative log likelihood of the observations at each level, shape of `levels`."""
        total: Floats = negative_log_likelihood(logs[None, :] - levels[:, None], self.noise, self.settings).sum(axis=1)
        return total

    def segment(self, first: int, end: int, level: float) -> Segment:
        """Segment of observations first … end-1 at the most likely level near `level`."""
        logs = self.logs[first:end][~self.away[first:end]]
        spread = float(self.noise.spread)
        for reach, points in ((1.2, 13), (0.25, 5)):
            levels = level + spread * np.linspace(-reach, reach, points)
            costs = self.cost(logs, levels)
            level = float(levels[costs.argmin()])
        return Segment(first, end, level, float(costs.min()), logs)

    def segments(self, path: LevelPath) -> list[Segment]:
        """The segments of a path."""
        ends = [start for start, _ in path[1:]] + [len(self.logs)]
        return [self.segment(start, end, level) for (start, level), end in zip(path, ends, strict=True)]

    def common(self, a: Segment, b: Segment) -> tuple[float, float]:
        """The most likely common level of two segments, and the evidence (nats) against a common level.

        The rules ask for the same pairs again after every merge of others.
        """
        key = (id(a), id(b))
        if key not in self._common:
            self._common[key] = (a, b, *self._find_common(a, b))
        return self._common[key][2:]

    def _find_common(self, a: Segment, b: Segment) -> tuple[float, float]:
        spread = float(self.noise.spread)
        low, high = sorted((a.level, b.level))
        points = int(np.clip((high - low) / (0.25 * spread), 2, 60)) + 5
        levels = np.linspace(low - 0.5 * spread, high + 0.5 * spread, points)
        costs = self.cost(np.concatenate([a.logs, b.logs]), levels)
        return float(levels[costs.argmin()]), float(costs.min()) - a.cost - b.cost
