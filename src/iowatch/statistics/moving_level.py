"""Whether the shift of a level is within what the level does by itself, where it may move slowly.

`compare` recognises such a level by its likelihood (`iowatch.statistics.wandering`); a change that is detected is
assessed by the same one:

1. Each session is one value: the mean of the series that changed, each less its own median, without single sessions
   that are far off.
2. The marginal likelihood of the sessions before and since the change, each side with its own mean, weighs the models:
   noise that is over in days, and a slowly moving level (an autocorrelation of 0.9 to 0.99 per session) beside
   independent noise and noise that is over in days. The series of each group of the system (a file system) count
   together as one more sample, as all pairs do in a comparison.
3. Each model predicts the mean of the sessions since the change from those before it, with unknown mean and variance
   (kriging: Cressie, Statistics for Spatial Data, 1993, section 3.4). The shift is within what the level does by itself
   if a mean so far from the prediction is probable enough, by all models together.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import scipy  # its modules are loaded when they are used: scipy.special takes a fifth of the start of a command

from iowatch.statistics import wandering
from iowatch.statistics.constants import LEAST_SCATTER, MAD_TO_SD, Bools, Floats

LARGEST_SHIFT = math.log(1.25)
"""Shift (ln) beyond which a change is never taken for one of a moving level, however much the level moves."""

# Sessions before a change that are used; with fewer than the second number no movement is stated. Twice as many of the
# first hardly matter, because the likelihood of a level that moves in weeks is clear by then.
_MOST_BEFORE, _LEAST_BEFORE = 120, 30
# Sessions since the change that are used: later ones show more of what the level did afterwards.
_MOST_AFTER = 60
# Fewest sessions since the change that show how the level moves, as in a comparison.
_LEAST_AFTER = wandering.MIN_SESSIONS
# Sessions on both sides whose median a session is compared with, and the scatters from which on it is far off.
_NEIGHBOURS, _FAR_OFF = 5, 4.0
# Probability from which on a shift is within what a level does by itself.
_WITHIN = 0.001

# Lag-1 autocorrelation of the noise that is over in days and that a moving level has beside it; the share of the
# variance that moves slowly, and the shares of the rest that are such noise.
_FAST_BESIDE, _SLOW_SHARES, _FAST_PARTS = 0.6, (0.15, 0.3, 0.6, 0.9), (0.0, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class _LevelModel:
    """Correlations between sessions: a slow and a fast autoregression with these shares, and independent noise."""

    slow: float
    slow_share: float
    fast: float
    fast_share: float

    def correlations(self, sessions: Floats) -> Floats:
        """Of sessions with these numbers, shape (n, n)."""
        lag = np.abs(np.subtract.outer(sessions, sessions))
        independent = 1 - self.slow_share - self.fast_share
        of_levels = self.slow_share * self.slow**lag + self.fast_share * self.fast**lag
        return np.asarray(of_levels + independent * (lag == 0))


def _make_models() -> tuple[list[_LevelModel], Floats]:
    """The models, those without a moving level first, and the logarithm of the prior probability of each."""
    models = [_LevelModel(0.0, 0.0, fast, share) for fast, share in wandering.FAST_MODELS]
    still = len(models)
    for slow, slow_share, part in product(wandering.SLOW_AUTOCORRELATIONS, _SLOW_SHARES, _FAST_PARTS):
        models.append(_LevelModel(slow, slow_share, _FAST_BESIDE, (1 - slow_share) * part))
    prior = np.full(len(models), wandering.MOVING_PRIOR / (len(models) - still))
    prior[:still] = (1 - wandering.MOVING_PRIOR) / still
    return models, np.log(prior)


_MODELS, _LOG_PRIOR = _make_models()


@dataclass(frozen=True, slots=True)
class LevelMovement:
    """A shift that is within what a level does by itself.

    Attributes:
        log_gain: the shift (ln): mean of the sessions since the change, less the mean of those before.
        usual: standard deviation of such shifts without any change (ln).
        sessions: number of sessions before the change that show how the level moves.
        probability: that the mean is at least as far from its prediction without any change.
    """

    log_gain: float
    usual: float
    sessions: int
    probability: float


def assess_shift(logs: Floats, groups: Sequence[Floats], first: int) -> LevelMovement | None:
    """The movement that explains the shift of some series; None if the level does not do so by itself.

    Args:
        logs: of the series that changed in one direction (ln), shape (series, sessions); NaN where nothing was
            measured.
        groups: the same of all series of each group of the system, with the same sessions.
        first: position of the first session of the change.
    """
    changed = _session_means(logs, first)
    before, after = changed.before(first), changed.after(first)
    if len(before.sessions) < _LEAST_BEFORE or not len(after.sessions):
        return None
    log_gain = float(after.values.mean() - before.values.mean())
    if abs(log_gain) > LARGEST_SHIFT:
        return None
    # Evidence of the models: the series that changed, and all groups together as one more sample.
    of_groups = [_session_means(group, first) for group in groups]
    evidence = _log_evidence([changed, *of_groups], first)
    columns = evidence[0] + _LOG_PRIOR
    if len(groups) > 1:
        columns = columns + np.mean(evidence[1:], axis=0)
    weights = np.exp(columns - columns.max())
    weights /= weights.sum()
    probability = variance = 0.0
    for weight, model in zip(weights, _MODELS, strict=True):
        prediction = _predict(before, after, model)
        probability += float(weight) * prediction.probability
        variance += float(weight) * prediction.variance
    if probability < _WITHIN:
        return None
    return LevelMovement(log_gain, math.sqrt(variance), len(before.sessions), probability)


@dataclass(frozen=True, slots=True, eq=False)
class _SessionMeans:
    """One value (ln) per session that counts: positions and values, each of shape (n,)."""

    sessions: Floats
    values: Floats

    def before(self, first: int) -> _SessionMeans:
        """The newest sessions before a position."""
        is_before = self.sessions < first
        return _SessionMeans(self.sessions[is_before][-_MOST_BEFORE:], self.values[is_before][-_MOST_BEFORE:])

    def after(self, first: int, most: int = _MOST_AFTER) -> _SessionMeans:
        """At most so many sessions, the first ones from a position on."""
        is_after = self.sessions >= first
        return _SessionMeans(self.sessions[is_after][:most], self.values[is_after][:most])


def _session_means(logs: Floats, first: int) -> _SessionMeans:
    """Mean of the series in each session, each less its own median before `first`.

    Single observations that are far off are left out, and sessions that measured less than half of the series.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a series or a session without observations
        deviations = logs - np.nanmedian(logs[:, :first], axis=1, keepdims=True)
        for row in deviations:
            row[:first][_is_far_off(row[:first])] = np.nan
            row[first:][_is_far_off(row[first:])] = np.nan
        means = np.nanmean(deviations, axis=0)
    is_measured = 2 * np.isfinite(deviations).sum(axis=0) >= len(logs)
    sessions = np.flatnonzero(is_measured & np.isfinite(means))
    return _SessionMeans(sessions.astype(np.float64), means[sessions])


def _is_far_off(values: Floats) -> Bools:
    """Whether each observation is far from those around it, shape (n,); NaN is not."""
    measured = np.flatnonzero(np.isfinite(values))
    is_far_off = np.zeros(len(values), dtype=bool)
    if len(measured) <= _NEIGHBOURS:
        return is_far_off
    padded = np.concatenate([np.full(_NEIGHBOURS, np.nan), values[measured], np.full(_NEIGHBOURS, np.nan)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * _NEIGHBOURS + 1)
    distances = np.abs(values[measured] - np.nanmedian(windows, axis=1))
    scatter = max(MAD_TO_SD * float(np.median(distances)), LEAST_SCATTER)
    is_far_off[measured] = distances > _FAR_OFF * scatter
    return is_far_off


def _log_evidence(samples: Sequence[_SessionMeans], first: int) -> Floats:
    """Log marginal likelihood of each model for each sample, shape (samples, models).

    Args:
        first: position of the first session of the change: both sides have means of their own.
    """
    evidence = np.zeros((len(samples), len(_MODELS)))
    for column, model in enumerate(_MODELS):
        # Most samples have the same sessions, and so the same weights.
        weights_of: dict[bytes, wandering.LevelWeights] = {}
        for row, sample in enumerate(samples):
            log_determinants, squares, degrees = 0.0, 0.0, 0
            for side in (sample.before(first), sample.after(first, _MOST_BEFORE)):
                if len(side.sessions) < _LEAST_AFTER:
                    continue
                key = side.sessions.tobytes()
                if key not in weights_of:
                    weights_of[key] = wandering.level_weights(model.correlations(side.sessions))
                weights, residuals = weights_of[key], side.values - side.values.mean()
                log_determinants += weights.log_determinant
                squares += float(residuals @ weights.residual @ residuals)
                degrees += len(residuals) - 1
            evidence[row, column] = log_determinants - degrees / 2 * math.log(max(squares, 1e-12))
    return evidence


@dataclass(frozen=True, slots=True)
class _Prediction:
    """Of the mean since a change by one model.

    Attributes:
        probability: of a mean that is at least as far from the prediction, on either side.
        variance: of the difference of the means before and after (ln squared).
    """

    probability: float
    variance: float


def _predict(before: _SessionMeans, after: _SessionMeans, model: _LevelModel) -> _Prediction:
    """Predict the mean since a change from the sessions before it."""
    n, sessions = len(before.sessions), np.concatenate([before.sessions, after.sessions])
    correlations = model.correlations(sessions)
    weights = wandering.level_weights(correlations[:n, :n])
    mean = float(weights.of_mean @ before.values)
    variance = float(before.values @ weights.residual @ before.values) / (n - 1)
    # Correlations of the mean since the change, with itself and with each session before.
    variance_after = float(correlations[n:, n:].mean())
    with_before = correlations[:n, n:].mean(axis=1)
    regression = weights.inverse @ with_before
    expected = mean + float(regression @ (before.values - mean))
    # The mean is not known either.
    unknown_mean = (1 - float(regression.sum())) ** 2 * weights.mean_variance
    scale = math.sqrt(variance * (variance_after - float(regression @ with_before) + unknown_mean))
    distance = abs(float(after.values.mean()) - expected) / max(scale, 1e-12)
    probability = float(2 * scipy.special.stdtr(n - 1, -distance))
    variance_before, covariance = float(correlations[:n, :n].mean()), float(with_before.mean())
    return _Prediction(probability, variance * (variance_after + variance_before - 2 * covariance))
