"""Whether the level of a file system wandered slowly while a comparison was measured.

A level that moves over weeks (a lag-1 autocorrelation of 0.97 per night) scatters little within a month and much
between months, so a month does not show how uncertain its mean is, and the autocorrelation of consecutive sessions,
which the noise of each session hides, underestimates it (`iowatch.statistics.estimates`). Two families of models are
compared by their marginal likelihood, with unknown means and variance integrated out (Harville, 1974): autocorrelation
that is over within days, and a slowly moving level, a first-order autoregression, each with independent noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product

import numpy as np

from iowatch.statistics.constants import Floats
from iowatch.statistics.pairs import SLOW_AUTOCORRELATION

# Lag-1 autocorrelation of the level, and its share of the variance between sessions.
_FAST = ((0.0, 0.0), *product((0.5, 0.7), (0.3, 0.6, 1.0)))
_SLOW = tuple(product((0.9, SLOW_AUTOCORRELATION, 0.99), (0.3, 0.6, 0.9, 1.0)))
_SLOW_SHARES = np.array([share for _, share in _SLOW])
# Prior probability of a slowly moving level. bench/statistics/compare.py (`moving`) measures what is found and what it
# costs.
_PRIOR = 0.35
_LOG_PRIOR = np.log([(1 - _PRIOR) / len(_FAST)] * len(_FAST) + [_PRIOR / len(_SLOW)] * len(_SLOW))
# With fewer sessions per side no series can show a moving level; the newest of many show it as well as all.
MIN_SESSIONS, _MAX_SESSIONS = 8, 60


@lru_cache(maxsize=512)
def _residual_weights(sessions: int, autocorrelation: float, share: float) -> tuple[Floats, float]:
    """Matrix P of the generalised residual sum of squares y'Py about an unknown mean, and its log determinant term.

    Args:
        share: part of the variance between sessions that the level has; the rest is independent noise.
    """
    lag = np.abs(np.subtract.outer(np.arange(sessions), np.arange(sessions)))
    inverse = np.linalg.inv(share * autocorrelation**lag + (1 - share) * np.eye(sessions))
    rows = inverse.sum(axis=1)
    log_determinant = (np.linalg.slogdet(inverse)[1] - np.log(rows.sum())) / 2
    return inverse - np.outer(rows, rows) / rows.sum(), float(log_determinant)


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
    for autocorrelation, share in _FAST + _SLOW:
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
    slow = weights[:, len(_FAST) :]
    shares = slow @ _SLOW_SHARES / slow.sum(axis=1)
    is_wandering = slow.sum(axis=1) > weights.sum(axis=1) / 2
    share_of: dict[int, float] = {}
    for pair, share, wanders in zip(evidence, shares, is_wandering, strict=True):
        if wanders:
            share_of[pair] = float(share)
    return share_of
