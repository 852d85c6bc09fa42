"""Adjustment of a series for the covariate that predicts it best: load of the servers, fill, jobs (docs/detection.md).

The effect is estimated on differences between consecutive observations, so a step of the series or of a covariate is
one difference among many. Only the variation of the covariate around its own levels is removed from the series:
where the load itself changes its level, the series keeps its change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from iowatch.statistics.method import Adjustment, Detection, Floats

BLOCKS = 5
# With fewer observations that have covariates, chance predicts as well as they do.
_MIN_OBSERVATIONS = 12
# Smallest share of the variance that is worth an adjustment (0.1 is a scatter 5 % smaller), and what chance adds to it,
# in parameters. In one block the prediction may add variance, more than this share of the mean variance of a block.
_MIN_EXPLAINED, _CHANCE_PARAMETERS = 0.1, 4.0
_MIN_GOOD_BLOCKS, _MAX_WORSE = 4, 0.1
# The same between means of some observations must be explained by at least this share of that.
_MEAN_OBSERVATIONS, _MIN_SHARE_OF_MEANS = 5, 0.5
# Weight of the assumption of no effect, in differences between observations.
_PRIOR_DIFFERENCES = 0.1
# A covariate is limited to this many times its usual deviation (95 % quantile); a larger effect is not extrapolated.
_MAX_DEVIATION = 1.5
# Robust regression: degrees of freedom of the t distribution, and rounds of weighted least squares.
_FREEDOM, _ROUNDS = 4.0, 3
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
    """A series without what a covariate predicts.

    Attributes:
        times, values: of the points in time order, shape (n,); the values in the unit of the series.
        levels: effect (natural logarithm) of the levels of the covariate, which the values still contain, shape (n,);
            NaN where it was not recorded.
    """

    times: Floats
    values: Floats
    levels: Floats
    adjustment: Adjustment


@dataclass(frozen=True)
class CovariateEffect:
    """The effect of a covariate on ln(value).

    Attributes:
        column: of the table.
        middle, usual: median, and usual deviation from it, in the unit of the covariate.
        effect: natural logarithm per usual deviation.
    """

    column: int
    middle: float
    usual: float
    effect: float
    adjustment: Adjustment

    def load(self, values: Floats) -> Floats:
        """The effect in rows of a table, shape (n, p) to (n,), in natural logarithm; 0 for what was not recorded."""
        return self.effect * _scale(values[:, self.column], self.middle, self.usual)


def fit_covariate(logs: Floats, table: CovariateTable) -> CovariateEffect | None:
    """Estimate the effect of the covariate that predicts a series best; None if none predicts it.

    Only one: with several, steps of real series that were adjusted had twice the false alarms.

    Args:
        logs: ln of the values in time order, shape (n,).
        table: covariates of the same points.
    """
    covered = np.isfinite(table.values).any(axis=1)
    if covered.sum() < _MIN_OBSERVATIONS:
        return None
    logs, values = logs[covered], table.values[covered]
    middle, usual = _usual_values(values)
    scaled = _scale(values, middle, usual)
    changes, steps = np.diff(logs), np.diff(scaled, axis=0)
    shares = _explained_shares(changes, steps, table.signs)
    # Most series are not predicted; one comparison is enough to see that.
    if shares.max() < _MIN_EXPLAINED / 2:
        return None
    block = np.arange(len(changes)) * BLOCKS // len(changes)
    explained = explained_out_of_sample([Differences(changes / robust_scale(changes), steps, block, table.signs)])
    column = int(shares.argmax())
    effect = fit_effect(changes, steps[:, column], table.signs[column])
    is_chance = explained < least_explained(len(changes))
    if is_chance or _explained_of_means(logs, effect * scaled[:, column]) < _MIN_SHARE_OF_MEANS * explained:
        return None
    adjustment = Adjustment(table.names[column], explained)
    return CovariateEffect(column, float(middle[column]), float(usual[column]), effect, adjustment)


def least_explained(changes: int) -> float:
    """Smallest share of the variance of that many changes that is no chance and worth an adjustment."""
    return _MIN_EXPLAINED + _CHANCE_PARAMETERS / changes


def _usual_values(values: Floats) -> tuple[Floats, Floats]:
    """Median of each covariate, and its usual deviation from it, shape (p,)."""
    # Sorting puts NaN last.
    middle = np.sort(values, axis=0)[(np.isfinite(values).sum(axis=0) - 1) // 2, np.arange(values.shape[1])]
    deviations = np.abs(np.where(np.isfinite(values), values - middle, 0.0))
    return middle, np.partition(deviations, len(values) * 19 // 20, axis=0)[len(values) * 19 // 20]


def usual_deviations(values: Floats) -> Floats:
    """Covariates as deviations in units of the usual one, limited, shape (n, p); 0 where not recorded."""
    covered = np.isfinite(values).any(axis=1)
    return _scale(values, *_usual_values(values[covered])) if covered.any() else np.zeros_like(values)


def _scale(values: Floats, middle: Floats | float, usual: Floats | float) -> Floats:
    """Deviations in units of the usual deviation, limited; 0 where not recorded or constant."""
    deviations = np.where(np.isfinite(values), values - middle, 0.0)
    scaled = np.divide(deviations, usual, out=np.zeros_like(deviations), where=np.asarray(usual) > 0)
    limited: Floats = np.clip(scaled, -_MAX_DEVIATION, _MAX_DEVIATION)
    return limited


def adjust_for_covariates(times: ArrayLike, values: ArrayLike, table: CovariateTable) -> AdjustedSeries | None:
    """Remove from a series the variation of a covariate around its levels; None if no covariate predicts the series.

    Args:
        times, values: of the points as in `detect_many`, shape (n,).
        table: covariates of the same points.
    """
    order = np.argsort(np.asarray(times), kind="stable")
    moments, logs = np.asarray(times, dtype=float)[order], np.log(np.asarray(values, dtype=float)[order])
    ordered = replace(table, values=table.values[order])
    found = fit_covariate(logs, ordered)
    if found is None:
        return None
    covered = np.isfinite(ordered.values[:, found.column])
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
    scatter = robust_scale(np.diff(logs[~unrecorded])) / math.sqrt(2)
    usual = max(float(np.std(logs[unrecorded] - path[unrecorded])), scatter)
    shift = float(np.median(path[~unrecorded]) - np.median(logs[~unrecorded]))
    values = np.exp(np.where(unrecorded, path + (logs - path) * scatter / usual, logs + shift))
    return replace(series, values=values)


def _level_path(detection: Detection) -> tuple[list[float], list[float]]:
    """Times and ln of the levels at the first and last observation of each level."""
    ends = [(time, math.log(level.value)) for level in detection.levels for time in (level.time, level.last_time)]
    times, logs = zip(*ends, strict=True)
    return list(times), list(logs)


@dataclass(frozen=True)
class Differences:
    """Differences between consecutive observations of one series.

    Attributes:
        changes: of ln value, in units of their robust scale; shape (n,).
        steps: of the covariates, in units of their usual deviation; shape (n, p).
        block: time block of each, 0 to 4; shape (n,).
        signs: as in `CovariateTable`, shape (p,).
    """

    changes: Floats
    steps: Floats
    block: NDArray[np.intp]
    signs: Floats


def shares_of_all(series: Sequence[Differences], block: int = -1) -> Floats:
    """Sum over all series of the share that each covariate explains, without one block; shape (p,)."""
    kept = [(one, one.block != block) for one in series]
    shares = [_explained_shares(one.changes[k], one.steps[k], one.signs) for one, k in kept if k.any()]
    return np.asarray(np.sum(shares, axis=0))


def explained_out_of_sample(series: Sequence[Differences]) -> float:
    """Share of the variance of the changes that is predicted in time blocks not used for the fit; 0 for "by chance".

    The covariate is the same in all series, the effect is not. A series whose differences are all in one block has
    nothing to predict that from.
    """
    before, after = np.zeros(BLOCKS), np.zeros(BLOCKS)
    for k in range(BLOCKS):
        column = int(shares_of_all(series, k).argmax()) if any((one.block != k).any() for one in series) else 0
        for one in series:
            train, test = one.block != k, one.block == k
            sign = one.signs[column]
            effect = fit_effect(one.changes[train], one.steps[train, column], sign) if train.any() else 0.0
            rest = one.changes[test] - effect * one.steps[test, column]
            before[k] += np.minimum(one.changes[test] ** 2, 9.0).sum()
            after[k] += np.minimum(rest**2, 9.0).sum()
    if (after > before + _MAX_WORSE * before.mean()).sum() > BLOCKS - _MIN_GOOD_BLOCKS:
        return 0.0
    return float(1 - after.sum() / before.sum()) if before.any() else 0.0


def _explained_of_means(logs: Floats, load: Floats) -> float:
    """Share of the variance between means of consecutive observations that the load explains; negative if it adds some.

    The effects are those between consecutive observations. Levels are found in means: where slow changes of the load
    have another effect than fast ones, an adjustment would add changes.
    """
    # Medians, because each step of the series is in as many differences as two means have observations.
    before, after = (float(np.median(np.abs(mean_differences(one)))) for one in (logs, logs - load))
    return 1 - (after / before) ** 2 if before > 0 else 0.0


def mean_differences(logs: Floats) -> Floats:
    """Differences between adjacent means of `_MEAN_OBSERVATIONS`."""
    width = _MEAN_OBSERVATIONS
    sums = np.cumsum(np.append(0.0, logs))
    means = (sums[width:] - sums[:-width]) / width
    differences: Floats = means[width:] - means[:-width]
    return differences


def fit_effect(changes: Floats, step: Floats, sign: float) -> float:
    """Effect of a covariate (per unit of its steps) by robust regression; 0 if it has the wrong sign."""
    effect = 0.0
    for _ in range(_ROUNDS):
        weights = _outlier_weights(changes - effect * step)
        effect = float((weights * changes) @ step / (weights @ step**2 + _PRIOR_DIFFERENCES))
    return effect if sign * effect >= 0 else 0.0


def _explained_shares(changes: Floats, steps: Floats, signs: Floats) -> Floats:
    """Share of the weighted variance of the changes that each covariate explains with an allowed sign, shape (p,)."""
    weights = _outlier_weights(changes)
    products = (weights * changes) @ steps
    whole = (weights @ steps**2 + _PRIOR_DIFFERENCES) * (weights @ changes**2)
    shares: Floats = products**2 / np.maximum(whole, 1e-300)
    return np.where(signs * products >= 0, shares, 0.0)


def _outlier_weights(residuals: Floats) -> Floats:
    return (_FREEDOM + 1) / (_FREEDOM + (residuals / robust_scale(residuals)) ** 2)


def robust_scale(values: Floats) -> float:
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
    """The detection in an adjusted series, with the share of each change that goes along with the covariate."""
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
