"""Adjustment of a series for covariates that predict it: load on the servers, fill, other jobs (docs/detection.md).

The effect is estimated on differences between consecutive observations, so a step of the series or of a covariate is
one difference among many. Only the variation of the covariates around their own levels is removed from the series:
where the load itself changes its level, the series keeps its change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from iowatch.stats.method import Adjustment, Detection, Floats

_BLOCKS = 5
# With fewer observations that have covariates, chance predicts as well as they do.
_MIN_OBSERVATIONS = 12
# Smallest share of the variance that is worth an adjustment (0.1 is a scatter 5 % smaller), and what chance adds to it,
# in parameters. In one block the prediction may add variance, more than this share of the mean variance of a block.
_MIN_EXPLAINED, _CHANCE_PARAMETERS = 0.1, 4.0
_MIN_GOOD_BLOCKS, _MAX_WORSE = 4, 0.1
_MAX_COVARIATES = 3
# Weight of the assumption of no effect, in differences between observations.
_PRIOR_DIFFERENCES = 0.1
# A covariate is limited to this many times its usual deviation (95 % quantile); a larger effect is not extrapolated.
_MAX_DEVIATION = 1.5
# Robust regression: degrees of freedom of the t distribution, and rounds of weighted least squares.
_FREEDOM, _ROUNDS = 4.0, 2
# Levels of the load: smallest t statistic of a step, and fewest observations of a level.
_MIN_LEVEL_T, _MIN_LEVEL_OBSERVATIONS = 6.0, 4


@dataclass(frozen=True)
class CovariateTable:
    """Covariates of the points of one series.

    Attributes:
        names: of the covariates, length p.
        values: shape (n, p), in any unit, NaN where not recorded.
        signs: allowed sign of the effect on ln(value), shape (p,): -1, 1, or 0 for both. The rates of a run include
            its own traffic, which rises with its speed; only the opposite sign is an effect of others.
    """

    names: tuple[str, ...]
    values: Floats
    signs: Floats


@dataclass(frozen=True)
class AdjustedSeries:
    """A series without what its covariates predict.

    Attributes:
        times, values: of the points in time order, shape (n,); the values in the unit of the series.
        levels: effect (natural logarithm) of the levels of the covariates, which the values still contain, shape
            (n,); NaN where no covariate was recorded.
    """

    times: Floats
    values: Floats
    levels: Floats
    adjustment: Adjustment


@dataclass(frozen=True)
class CovariateEffects:
    """Effects of the chosen covariates on ln(value).

    Attributes:
        columns: of the table, the most predictive first, length k.
        middle, usual: median of each and its usual deviation, the unit of the effects, shape (k,).
        effects: natural logarithm per unit, shape (k,).
    """

    columns: tuple[int, ...]
    middle: Floats
    usual: Floats
    effects: Floats
    adjustment: Adjustment

    def load(self, values: Floats) -> Floats:
        """Joint effect (natural logarithm) of rows of a table; shape (n, p) to (n,); 0 for what was not recorded."""
        found: Floats = _scale(values[:, self.columns], self.middle, self.usual) @ self.effects
        return found


def fit_covariates(logs: Floats, table: CovariateTable) -> CovariateEffects | None:
    """Estimate the effects of covariates on a series; None if they do not predict it.

    Args:
        logs: ln of the values in time order, shape (n,).
        table: covariates of the same points.
    """
    covered = np.isfinite(table.values).any(axis=1)
    if covered.sum() < _MIN_OBSERVATIONS:
        return None
    values = table.values[covered]
    # Sorting puts NaN last.
    middle = np.sort(values, axis=0)[(np.isfinite(values).sum(axis=0) - 1) // 2, np.arange(values.shape[1])]
    deviations = np.abs(np.where(np.isfinite(values), values - middle, 0.0))
    usual = np.partition(deviations, len(values) * 19 // 20, axis=0)[len(values) * 19 // 20]
    changes, steps = np.diff(logs[covered]), np.diff(_scale(values, middle, usual), axis=0)
    # Most series are not predicted; one comparison is enough to see that.
    if _explained_shares(changes, steps, table.signs).max() < _MIN_EXPLAINED / 2:
        return None
    explained = _explained_out_of_sample(changes, steps, table.signs)
    chosen, effects = _fit_effects(changes, steps, table.signs)
    if explained < _MIN_EXPLAINED + _CHANCE_PARAMETERS / len(changes) or not chosen:
        return None
    adjustment = Adjustment(tuple(table.names[i] for i in chosen), explained)
    return CovariateEffects(tuple(chosen), middle[chosen], usual[chosen], effects, adjustment)


def _scale(values: Floats, middle: Floats, usual: Floats) -> Floats:
    """Deviations in units of the usual deviation, limited; 0 where not recorded or constant."""
    deviations = np.where(np.isfinite(values), values - middle, 0.0)
    scaled = np.divide(deviations, usual, out=np.zeros_like(deviations), where=usual > 0)
    limited: Floats = np.clip(scaled, -_MAX_DEVIATION, _MAX_DEVIATION)
    return limited


def adjust_for_covariates(times: ArrayLike, values: ArrayLike, table: CovariateTable) -> AdjustedSeries | None:
    """Remove from a series the variation of the covariates around their levels; None if they do not predict it.

    Args:
        times, values: of the points as in `detect_many`, shape (n,).
        table: covariates of the same points.
    """
    order = np.argsort(np.asarray(times), kind="stable")
    moments, logs = np.asarray(times, dtype=float)[order], np.log(np.asarray(values, dtype=float)[order])
    ordered = replace(table, values=table.values[order])
    found = fit_covariates(logs, ordered)
    if found is None:
        return None
    covered = np.isfinite(ordered.values[:, found.columns]).any(axis=1)
    load, levels = found.load(ordered.values[covered]), np.full(len(logs), np.nan)
    levels[covered] = _load_levels(load)
    logs[covered] -= load - levels[covered]
    return AdjustedSeries(moments, np.exp(logs), levels, found.adjustment)


def align_unrecorded(series: AdjustedSeries, unadjusted: Detection) -> AdjustedSeries:
    """Give observations without covariates the scatter of the adjusted ones, and these the level of the former.

    Detection assumes one noise for the whole series; otherwise the larger scatter of an unadjusted part would look
    like changes.

    Args:
        unadjusted: the detection in the series as measured.
    """
    logs, unrecorded = np.log(series.values), np.isnan(series.levels)
    path = np.interp(series.times, *_level_path(unadjusted))
    scatter = _robust_scale(np.diff(logs[~unrecorded])) / math.sqrt(2)
    usual = max(float(np.std(logs[unrecorded] - path[unrecorded])), scatter)
    shift = float(np.median(path[~unrecorded]) - np.median(logs[~unrecorded]))
    values = np.exp(np.where(unrecorded, path + (logs - path) * scatter / usual, logs + shift))
    return replace(series, values=values)


def _level_path(detection: Detection) -> tuple[list[float], list[float]]:
    """Times and ln of the levels at the first and last observation of each level."""
    ends = [(time, math.log(level.value)) for level in detection.levels for time in (level.time, level.last_time)]
    times, logs = zip(*ends, strict=True)
    return list(times), list(logs)


def _explained_out_of_sample(changes: Floats, steps: Floats, signs: Floats) -> float:
    """Share of the variance of the changes that is predicted in time blocks not used for the fit; 0 for "by chance".

    Args:
        changes: differences of the series, shape (n,).
        steps: differences of the covariates, shape (n, p).
    """
    limit = (3 * _robust_scale(changes)) ** 2
    block = np.arange(len(changes)) * _BLOCKS // len(changes)
    before, after = np.zeros(_BLOCKS), np.zeros(_BLOCKS)
    for k in range(_BLOCKS):
        train, test = block != k, block == k
        chosen, effects = _fit_effects(changes[train], steps[train], signs)
        rest = changes[test] - steps[test][:, chosen] @ effects
        before[k] = np.minimum(changes[test] ** 2, limit).sum()
        after[k] = np.minimum(rest**2, limit).sum()
    if (after > before + _MAX_WORSE * before.mean()).sum() > _BLOCKS - _MIN_GOOD_BLOCKS:
        return 0.0
    return float(1 - after.sum() / before.sum())


def _fit_effects(changes: Floats, steps: Floats, signs: Floats) -> tuple[list[int], Floats]:
    """Covariates chosen one after the other, and their effects (natural logarithm per unit), by robust regression."""
    chosen: list[int] = []
    effects, rest = np.zeros(0), changes
    least = 0.0
    while len(chosen) < _MAX_COVARIATES:
        shares = _explained_shares(rest, steps, signs)
        shares[chosen] = 0.0
        best = int(shares.argmax())
        if shares[best] <= least:
            break
        more = _robust_effects(changes, steps[:, [*chosen, best]], np.append(effects, 0.0))
        if (more * signs[[*chosen, best]] < 0).any():
            break
        chosen, effects = [*chosen, best], more
        rest = changes - steps[:, chosen] @ effects
        # The first one is assessed by prediction; more of them need the evidence of a further parameter.
        least = 1.5 * np.log(len(changes)) / len(changes)
    return chosen, effects


def _explained_shares(changes: Floats, steps: Floats, signs: Floats) -> Floats:
    """Share of the weighted variance of the changes that each covariate explains with an allowed sign, shape (p,)."""
    weights = _outlier_weights(changes)
    products = (weights * changes) @ steps
    squares = weights @ steps**2 + _PRIOR_DIFFERENCES * weights.mean()
    whole = float((weights * changes**2).sum())
    shares: Floats = products**2 / np.maximum(squares * whole, 1e-300)
    return np.where(signs * products >= 0, shares, 0.0)


def _robust_effects(changes: Floats, steps: Floats, effects: Floats) -> Floats:
    """Effects of all covariates by iterated least squares with weights of the t distribution, from a first guess."""
    prior = _PRIOR_DIFFERENCES * np.eye(steps.shape[1])
    for _ in range(_ROUNDS):
        weighted = steps.T * _outlier_weights(changes - steps @ effects)
        effects = np.asarray(np.linalg.solve(weighted @ steps + prior, weighted @ changes), dtype=float)
    return effects


def _outlier_weights(residuals: Floats) -> Floats:
    return (_FREEDOM + 1) / (_FREEDOM + (residuals / _robust_scale(residuals)) ** 2)


def _robust_scale(values: Floats) -> float:
    """Standard deviation from the 80 % quantile of the absolute values; more than half of them may be 0."""
    # Not np.quantile, which takes five times as long; this is called for every fit.
    position = 4 * (len(values) - 1) // 5
    return max(float(np.partition(np.abs(values), position)[position]) / 1.28, 1e-6)


def _load_levels(load: Floats) -> Floats:
    """Mean of each segment between significant steps of the load, of each observation; shape (n,)."""
    scatter = float(np.sqrt(np.mean(np.diff(load) ** 2) / 2))
    edges, pending = {0, len(load)}, [(0, len(load))]
    while pending:
        first, end = pending.pop()
        step = _significant_step(load[first:end], scatter)
        if step is not None:
            edges.add(first + step)
            pending += [(first, first + step), (first + step, end)]
    levels = np.empty(len(load))
    for first, end in pairwise(sorted(edges)):
        levels[first:end] = load[first:end].mean()
    return levels


def _significant_step(load: Floats, scatter: float) -> int | None:
    """Position of the clearest step between two means, or None."""
    n, few = len(load), _MIN_LEVEL_OBSERVATIONS
    if n < 2 * few or scatter == 0:
        return None
    counts = np.arange(few, n - few + 1)
    sums = np.cumsum(load - load.mean())[counts - 1]
    t = np.abs(sums) / scatter / np.sqrt(counts * (n - counts) / n)
    best = int(t.argmax())
    return int(counts[best]) if t[best] > _MIN_LEVEL_T else None


def with_adjustment(detection: Detection, series: AdjustedSeries) -> Detection:
    """The detection in an adjusted series, with the share of each change that goes along with the covariates."""
    steps = sorted(detection.steps, key=lambda step: step.time)
    edges = [0, *(int(np.searchsorted(series.times, step.time)) for step in steps), len(series.times)]
    shares = {}
    for step, first, middle, end in zip(steps, edges, edges[1:], edges[2:], strict=False):
        before, after = (part[np.isfinite(part)] for part in np.split(series.levels[first:end], [middle - first]))
        if len(before) and len(after):
            share = float(after.mean() - before.mean()) / math.log(step.ratio)
            shares[step] = replace(step, load_share=min(max(share, 0.0), 1.0) + 0.0)
    return replace(
        detection,
        changes=tuple(shares.get(step, step) for step in detection.changes),
        suspected=tuple(shares.get(step, step) for step in detection.suspected),
        adjustment=series.adjustment,
    )
