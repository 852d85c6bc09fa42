"""How the nights of a system differ although nothing has changed: of each series, and of several series together.

The nights before an event are compared with what could be said of each of them on the evening before: a night less the
median of up to 30 nights before it (`PanelTable`). These residuals contain all that makes one night a poor witness:
load of other jobs, slow wandering of the level, outliers, and the error of the level itself. Repeating a run within a
night averages the scatter within that night only; the night itself is drawn once.

Residuals in units of the scatter of their series (the square root of a robust variance) are modelled as

    z = B f + u,   u ~ N(0, unique) per series,

where f are the scores of common factors and B the leading eigenvectors of the robust correlation matrix: those whose
eigenvalue exceeds what independent series would show (Marchenko and Pastur, Mathematics of the USSR-Sbornik 1, 1967).
A swing that all series of a file system share in many nights is a common factor, and cancels as far as it looks like
those of the past. Some nights swing far more than a normal distribution allows, so the prior of the scores may be wide.
Distances from the factors are limited (Huber, Annals of Mathematical Statistics 35, 1964), because single results of a
shared file system are outliers in every tenth night, and the shift of a group must not be found in one of them.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from iowatch.statistics.constants import Bools, Floats

# Standard deviations from which on distances from the common factors have less weight in the scores of factors.
_LIMIT = 1.5
# Weight of "no correlation" in nights, for the correlation of two series.
_PRIOR_NIGHTS = 20
# An eigenvalue counts as a common factor if it exceeds the largest of independent series by this factor.
_ABOVE_EDGE = 1.1
# At most so many common factors, and one per so many series: more would follow single series.
_MOST_FACTORS, _SERIES_PER_FACTOR = 5, 4
# Smallest share of the variance of a series that is its own. A robust variance around the factors instead finds a third
# fewer planted losses (bench/maintenance.py): few series that follow the factors closely would have all the weight.
_LEAST_UNIQUE = 0.15
# Most of that share that scatter within a night can be: nights differ in other ways, too.
_MOST_WITHIN = 0.8
# Rounds of the robust estimate of factor scores; it changes by less than 1 % after four.
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class NoiseTails:
    """How far from usual nights may be without being taken for a loss.

    Attributes:
        limit: standard deviations to which the distance of a series from the common factors is limited.
        swing_variance: prior variance of the score of a common factor, whose usual variance is 1: with a large one also
            swings that are far larger than usual cancel.
    """

    limit: float
    swing_variance: float


@dataclass(frozen=True)
class GroupScores:
    """Score and information of a loss of each group of series in each night.

    Attributes:
        score, information: shape (groups, nights). The log likelihood ratio of a loss by d (natural logarithm, d > 0)
            is d * score - d**2 / 2 * information; both are 0 where too few series of the group were measured.
    """

    score: Floats
    information: Floats

    @property
    def loss(self) -> Floats:
        """Most likely loss (natural logarithm) of each group; negative is a gain; NaN without information."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(self.information > 0, self.score / self.information, np.nan))

    @property
    def standard_error(self) -> Floats:
        """Standard error of `loss`; infinite without information."""
        with np.errstate(divide="ignore"):
            return np.asarray(1 / np.sqrt(self.information))

    @property
    def strength(self) -> Floats:
        """`loss` in standard errors; NaN without information."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(self.information > 0, self.score / np.sqrt(self.information), np.nan))


@dataclass(frozen=True)
class NightNoise:
    """Noise of the nights of several series.

    Attributes:
        scatter: robust standard deviation (natural logarithm) of a night of each series, shape (S,).
        loadings: of the common factors, in units of the scatter, shape (S, factors).
        unique: share of the variance of each series that no common factor has, shape (S,).
        nights: number of nights with residuals.
    """

    scatter: Floats
    loadings: Floats
    unique: Floats
    nights: int

    @classmethod
    def estimate(cls, residuals: Floats, scatter: Floats) -> NightNoise:
        """Estimate the noise from the nights before an event.

        Args:
            residuals: natural logarithm of performance, less the level before each night, shape (S, T); NaN where
                nothing was measured.
            scatter: shape (S,).
        """
        is_measured = np.isfinite(residuals)
        nights = int(is_measured.any(axis=0).sum())
        correlation = _robust_correlation(residuals / scatter[:, None])
        series = len(scatter)
        # The largest eigenvalue of independent series, in expectation.
        edge = (1 + np.sqrt(series / max(nights, 1))) ** 2
        values, vectors = np.linalg.eigh(correlation)
        most = min(_MOST_FACTORS, series // _SERIES_PER_FACTOR)
        is_common = np.zeros(series, dtype=bool)
        is_common[max(0, series - most) :] = True
        is_common &= values > _ABOVE_EDGE * edge
        loadings = vectors[:, is_common] * np.sqrt(np.maximum(values[is_common] - 1, 0.0))
        unique = np.maximum(1 - (loadings**2).sum(axis=1), _LEAST_UNIQUE)
        return cls(scatter, np.asarray(loadings), np.asarray(unique), nights)

    def unique_after(self, repetitions: Floats, within: Floats) -> Floats:
        """Share of the variance that is a series' own in the mean of repetitions within one night, shape (S,).

        Args:
            repetitions: number per series, shape (S,); 0 counts as 1.
            within: variance of one run around the mean of its night, as a share of that of nights, shape (S,).
        """
        removable = np.minimum(within, _MOST_WITHIN * self.unique)
        return np.asarray(self.unique - removable * (1 - 1 / np.maximum(repetitions, 1)))

    def limit_distances(self, residuals: Floats, unique: Floats, tails: NoiseTails) -> Floats:
        """Residuals whose distances from the common factors are limited, in units of the scatter, shape (S, N).

        Args:
            residuals: as in `estimate`, shape (S, N).
            unique: from `unique_after`, shape (S,).
            tails: with the limit.
        """
        z = residuals / self.scatter[:, None]
        common = self._common_part(z, unique, tails)
        deviation = np.sqrt(unique)[:, None]
        return np.asarray(common + deviation * np.clip((z - common) / deviation, -tails.limit, tails.limit))

    def common_swing(self, residuals: Floats, unique: Floats, tails: NoiseTails) -> Floats:
        """Part of the residuals (natural logarithm) that looks like shared swings of earlier nights, shape (S, N)."""
        z = residuals / self.scatter[:, None]
        return np.asarray(self._common_part(z, unique, tails) * self.scatter[:, None])

    def distances(self, residuals: Floats, unique: Floats, tails: NoiseTails) -> Floats:
        """Distances from the common factors in standard deviations, not limited, shape (S, N)."""
        z = residuals / self.scatter[:, None]
        return np.asarray((z - self._common_part(z, unique, tails)) / np.sqrt(unique)[:, None])

    def _common_part(self, z: Floats, unique: Floats, tails: NoiseTails) -> Floats:
        """Common factors times their scores, estimated with less weight of outliers; shape (S, N)."""
        is_measured = np.isfinite(z)
        filled = np.where(is_measured, z, 0.0)
        common = np.zeros_like(filled)
        deviation = np.sqrt(unique)[:, None]
        for _ in range(_ROUNDS):
            distance = np.abs(filled - common) / deviation
            weights = is_measured * np.minimum(1.0, _LIMIT / np.maximum(distance, _LIMIT)) / unique[:, None]
            common = self.loadings @ _factor_scores(self.loadings, weights, filled, tails.swing_variance)
        return common

    def score_groups(self, z: Floats, cover: Floats, unique: Floats, fewest: int, tails: NoiseTails) -> GroupScores:
        """Score a loss of each group in each night, with the common factors at their most probable values.

        Args:
            z: residuals in units of the scatter, shape (S, N); NaN where nothing was measured.
            cover: 1 for the series of each group, shape (groups, S).
            unique: shape (S,).
            fewest: measured series without which a group has no score.
        """
        is_measured = np.isfinite(z)
        filled = np.where(is_measured, z, 0.0)
        weights = is_measured / unique[:, None]
        scores = _factor_scores(self.loadings, weights, filled, tails.swing_variance)
        # A loss by d moves each series of a group by -d / scatter.
        direction = cover / self.scatter
        score = -direction @ (weights * (filled - self.loadings @ scores))
        information = direction**2 @ weights - self._explained_by_factors(direction, weights, tails)
        is_scored = (cover @ is_measured.astype(np.float64) >= fewest) & (information > 0)
        return GroupScores(np.where(is_scored, score, 0.0), np.where(is_scored, information, 0.0))

    def _explained_by_factors(self, direction: Floats, weights: Floats, tails: NoiseTails) -> Floats:
        """Information that is lost because common factors may explain a shift of the group; shape (groups, N)."""
        factors = self.loadings.shape[1]
        if factors == 0:
            return np.zeros((len(direction), weights.shape[1]))
        inverse = np.linalg.inv(_factor_precision(self.loadings, weights, tails.swing_variance))
        # How a shift of each group looks to each factor, shape (factors, groups, N).
        seen = np.asarray([direction @ (weights * self.loadings[:, [k]]) for k in range(factors)])
        return np.asarray(np.einsum("kgn,nkl,lgn->gn", seen, inverse, seen, optimize=True))


def _robust_correlation(z: Floats) -> Floats:
    """Correlation matrix of series, from values limited to 3 scatters; shrunk towards independence by few nights."""
    is_measured: Bools = np.isfinite(z)
    limited = np.where(is_measured, np.clip(z, -3, 3), 0.0)
    pairs = is_measured.astype(np.float64) @ is_measured.T.astype(np.float64)
    covariance = limited @ limited.T / np.maximum(pairs, 1)
    deviation = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
    correlation = covariance / np.outer(deviation, deviation)
    correlation *= pairs / (pairs + _PRIOR_NIGHTS)
    np.fill_diagonal(correlation, 1.0)
    return np.asarray(correlation)


def _factor_precision(loadings: Floats, weights: Floats, variance: float) -> Floats:
    """Inverse covariance of the factor scores of each night, shape (N, factors, factors)."""
    factors = loadings.shape[1]
    information = np.einsum("sk,sn,sl->nkl", loadings, weights, loadings, optimize=True)
    return np.asarray(information + np.eye(factors) / variance)


def _factor_scores(loadings: Floats, weights: Floats, values: Floats, variance: float) -> Floats:
    """Most probable scores of the common factors in each night, shape (factors, N)."""
    if loadings.shape[1] == 0:
        return np.zeros((0, values.shape[1]))
    weighted = np.einsum("sk,sn->nk", loadings, weights * values, optimize=True)
    scores = np.linalg.solve(_factor_precision(loadings, weights, variance), weighted[:, :, None])
    return np.asarray(scores[:, :, 0].T)


def effective_nights(values: Floats) -> float:
    """Number of independent nights with the same information as these, by their lag-1 autocorrelation (Bayley, 1946).

    Args:
        values: one per night, in their order, shape (T,); NaN for a night without one.
    """
    finite = values[np.isfinite(values)]
    if len(finite) < 3:
        return float(len(finite))
    # Ranks, because a few nights may be far off.
    ranks = np.argsort(np.argsort(finite)).astype(np.float64)
    ranks -= ranks.mean()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # equal values have no variance
        r = float((ranks[1:] @ ranks[:-1]) / (ranks @ ranks))
    if not np.isfinite(r):
        return float(len(finite))
    r = min(max(r, 0.0), 0.95)
    return len(finite) * (1 - r) / (1 + r)
