"""Whether the level of a file system wandered slowly while a comparison was measured.

A level that moves over weeks (a lag-1 autocorrelation of 0.97 per night) scatters little within a month and much
between months, so a month does not show how uncertain its mean is, and the autocorrelation of consecutive sessions,
which the noise of each session hides, underestimates it (`iowatch.statistics.estimates`). Two families of models are
compared by their marginal likelihood, with unknown means and variance integrated out (Harville, 1974): autocorrelation
that is over within days, and a slowly moving level, a first-order autoregression, each with independent noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from iowatch.statistics.constants import Floats
from iowatch.statistics.pairs import SLOW_AUTOCORRELATION

FAST_MODELS = ((0.0, 0.0), *product((0.5, 0.7), (0.3, 0.6, 1.0)))
"""Lag-1 autocorrelation of the level, and its share of the variance between sessions, of noise that is over in days."""

SLOW_AUTOCORRELATIONS = (0.9, SLOW_AUTOCORRELATION, 0.99)
"""Lag-1 autocorrelations of slowly moving levels."""

_SLOW_MODELS = tuple(product(SLOW_AUTOCORRELATIONS, (0.3, 0.6, 0.9, 1.0)))
_SLOW_SHARES = np.array([share for _, share in _SLOW_MODELS])
MOVING_PRIOR = 0.35
"""Prior probability of a slowly moving level; bench/statistics/compare.py (`moving`) measures what is found and what it
costs."""

_LOG_PRIOR = np.log(
    [(1 - MOVING_PRIOR) / len(FAST_MODELS)] * len(FAST_MODELS) + [MOVING_PRIOR / len(_SLOW_MODELS)] * len(_SLOW_MODELS)
)
# With fewer sessions per side no series can show a moving level; the newest of many show it as well as all.
MIN_SESSIONS, _MAX_SESSIONS = 8, 60


@dataclass(frozen=True, slots=True, eq=False)
class LevelWeights:
    """What the correlations of some sessions say about their mean and variance.

    Attributes:
        inverse: of the correlation matrix, shape (n, n).
        of_mean: weights of the generalised least-squares mean, shape (n,).
        mean_variance: variance of that mean, in units of the variance between sessions.
        residual: matrix P of the generalised residual sum of squares y'Py about the unknown mean, shape (n, n).
        log_determinant: term of the marginal likelihood.
    """

    inverse: Floats
    of_mean: Floats
    mean_variance: float
    residual: Floats
    log_determinant: float


def correlation_matrix(sessions: ArrayLike, autocorrelation: float, share: float) -> Floats:
    """Correlations of sessions with a level of this autocorrelation per session, shape (n, n).

    Args:
        sessions: numbers of the sessions, shape (n,).
        share: part of the variance between sessions that the level has; the rest is independent noise.
    """
    lag = np.abs(np.subtract.outer(np.asarray(sessions), np.asarray(sessions)))
    return np.asarray(share * autocorrelation**lag + (1 - share) * (lag == 0))


def level_weights(correlations: Floats) -> LevelWeights:
    """Weights of sessions with these correlations, shape (n, n)."""
    inverse = np.asarray(np.linalg.inv(correlations), dtype=np.float64)
    rows = inverse.sum(axis=1)
    total = float(rows.sum())
    log_determinant = (np.linalg.slogdet(inverse)[1] - np.log(total)) / 2
    residual = inverse - np.outer(rows, rows) / total
    return LevelWeights(inverse, rows / total, 1 / total, residual, float(log_determinant))


@lru_cache(maxsize=512)
def _residual_weights(sessions: int, autocorrelation: float, share: float) -> tuple[Floats, float]:
    """Matrix P of the generalised residual sum of squares y'Py about an unknown mean, and its log determinant term.

    Args:
        share: part of the variance between sessions that the level has; the rest is independent noise.
    """
    weights = level_weights(correlation_matrix(np.arange(sessions), autocorrelation, share))
    return weights.residual, weights.log_determinant


def log_evidence(samples: Sequence[Floats]) -> Floats:
    """Log marginal likelihood of each model: shape (models, pairs).

    Args:
        samples: one array per side, or one of log ratios, shape (pairs, sessions): log values in time order.
    """
    samples = [values[:, -_MAX_SESSIONS:] for values in samples]
    degrees = sum(values.shape[1] - 1 for values in samples)
    # A series of equal values favours no model: 1e-12 keeps its evidence finite, and the same for all.
    scale = np.sqrt(sum(values.var(axis=1) for values in samples)) + 1e-12
    centred = [(values - values.mean(axis=1, keepdims=True)) / scale[:, None] for values in samples]
    evidence: list[Floats] = []
    for autocorrelation, share in FAST_MODELS + _SLOW_MODELS:
        squares, log_determinants = np.zeros(()), 0.0
        for residuals in centred:
            matrix, log_determinant = _residual_weights(residuals.shape[1], autocorrelation, share)
            squares = squares + np.sum(residuals @ matrix * residuals, axis=1)
            log_determinants += log_determinant
        evidence.append(log_determinants - degrees / 2 * np.log(np.maximum(squares, 1e-12)))
    return np.array(evidence)


def wandering_shares(evidence: Mapping[int, Floats]) -> dict[int, float]:
    """Share of the variance between sessions that a slowly moving level has; pairs without such a level are absent.

    Pairs of one comparison were measured on one machine, so their mean counts as one more pair.

    Args:
        evidence: a column of `log_evidence` by pair.
    """
    if not evidence:
        return {}
    columns = np.array(list(evidence.values()))
    of_all = columns.mean(axis=0) if len(columns) > 1 else 0
    columns = columns + of_all + _LOG_PRIOR
    # Posterior weights of the models, and of those with a slowly moving level.
    weights = np.exp(columns - columns.max(axis=1, keepdims=True))
    slow = weights[:, len(FAST_MODELS) :]
    shares = slow @ _SLOW_SHARES / slow.sum(axis=1)
    is_wandering = slow.sum(axis=1) > weights.sum(axis=1) / 2
    share_of: dict[int, float] = {}
    for pair, share, wanders in zip(evidence, shares, is_wandering, strict=True):
        if wanders:
            share_of[pair] = float(share)
    return share_of
