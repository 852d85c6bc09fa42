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

from iowatch.statistics.constants import Floats
from iowatch.statistics.method import Adjustment, ChangePoint, Detection, DetectorSettings

# Time blocks, each of which is predicted from the others. With twice as many, a block of a young series is too short to
# be a test.
BLOCKS = 5
# With fewer observations that have covariates, chance predicts as well as they do. With twice as many, a series is
# adjusted twelve sessions later.
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
# With twice as much, one extreme load can raise a run above its level.
_MAX_DEVIATION = 1.5
# Robust regression: degrees of freedom of the t distribution of inliers, and rounds of weighted least squares.
_FREEDOM, _ROUNDS = DetectorSettings().freedom, 3
# Squared error of a prediction, in squared scatters, above which an outlier counts as much as one of three scatters.
_MAX_SQUARED_ERROR = 9.0
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
    is_recorded = np.isfinite(table.values).any(axis=1)
    if is_recorded.sum() < _MIN_OBSERVATIONS:
        return None
    logs, values = logs[is_recorded], table.values[is_recorded]
    middle, usual = _usual_values(values)
    scaled = _scale(values, middle, usual)
    changes, steps = np.diff(logs), np.diff(scaled, axis=0)
    shares = _explained_shares(changes, steps, table.signs)
    # Most series are not predicted; one comparison is enough to see that.
    if shares.max() < _MIN_EXPLAINED / 2:
        return None
    # The covariate must predict changes that the estimate has not seen,
    block = np.arange(len(changes)) * BLOCKS // len(changes)
    differences = Differences(changes / robust_scale(changes), steps, block, table.signs)
    explained = explained_out_of_sample([differences])
    if explained < least_explained(len(changes)):
        return None
    # and its slow changes must have about the same effect as the fast ones.
    column = int(shares.argmax())
    effect = fit_effect(changes, steps[:, column], table.signs[column])
    if _explained_of_means(logs, effect * scaled[:, column]) < _MIN_SHARE_OF_MEANS * explained:
        return None
    adjustment = Adjustment(table.names[column], explained)
    return CovariateEffect(column, float(middle[column]), float(usual[column]), effect, adjustment)


def least_explained(changes: int) -> float:
    """Smallest share of the variance of that many changes that is no chance and worth an adjustment."""
    return _MIN_EXPLAINED + _CHANCE_PARAMETERS / changes


def _usual_values(values: Floats) -> tuple[Floats, Floats]:
    """Median of each covariate, and its usual deviation from it, shape (p,)."""
    # Sorting puts NaN last.
    ordered = np.sort(values, axis=0)
    middle_row = (np.isfinite(values).sum(axis=0) - 1) // 2
    middle = ordered[middle_row, np.arange(values.shape[1])]
    # The 95 % quantile of the distances from it.
    distances = np.abs(np.where(np.isfinite(values), values - middle, 0.0))
    quantile_row = len(values) * 19 // 20
    usual = np.partition(distances, quantile_row, axis=0)[quantile_row]
    return middle, usual


def usual_deviations(values: Floats) -> Floats:
    """Covariates as deviations in units of the usual one, limited, shape (n, p); 0 where not recorded."""
    is_recorded = np.isfinite(values).any(axis=1)
    if not is_recorded.any():
        return np.zeros_like(values)
    middle, usual = _usual_values(values[is_recorded])
    return _scale(values, middle, usual)


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
    moments = np.asarray(times, dtype=float)[order]
    logs = np.log(np.asarray(values, dtype=float)[order])
    ordered = replace(table, values=table.values[order])
    effect = fit_covariate(logs, ordered)
    if effect is None:
        return None
    # Only the deviations of the load from its own levels are removed.
    is_recorded = np.isfinite(ordered.values[:, effect.column])
    load = effect.load(ordered.values[is_recorded])
    levels = np.full(len(logs), np.nan)
    levels[is_recorded] = _load_levels(load)
    logs[is_recorded] -= load - levels[is_recorded]
    return AdjustedSeries(moments, np.exp(logs), levels, effect.adjustment)


def align_unrecorded(series: AdjustedSeries, unadjusted: Detection) -> AdjustedSeries:
    """Give all observations of an adjusted series one scatter and one level, with covariates or without.

    Observations without covariates are not adjusted. They are moved towards the levels of the series as measured, until
    they scatter as little as the adjusted ones. The adjusted observations are shifted by one factor to those levels.

    Detection assumes one noise for the whole series; otherwise the larger scatter of an unadjusted part would look
    like changes.

    Args:
        series: with adjusted and unadjusted observations.
        unadjusted: the detection in the series as measured.
    """
    logs, is_unadjusted = np.log(series.values), np.isnan(series.levels)
    adjusted_logs = logs[~is_unadjusted]
    # ln of the level that the series as measured has at each observation.
    level_times, level_logs = _level_path(unadjusted)
    measured_levels = np.interp(series.times, level_times, level_logs)
    # The difference of two observations has sqrt(2) times the scatter of one.
    adjusted_scatter = robust_scale(np.diff(adjusted_logs)) / math.sqrt(2)
    deviations = logs - measured_levels
    # Observations that scatter less than the adjusted ones stay as they are.
    unadjusted_scatter = max(float(np.std(deviations[is_unadjusted])), adjusted_scatter)
    narrowed = measured_levels + deviations * adjusted_scatter / unadjusted_scatter
    # An adjusted observation is what a usual load would give: its level may differ from that of the series as measured.
    shift = float(np.median(measured_levels[~is_unadjusted]) - np.median(adjusted_logs))
    return replace(series, values=np.exp(np.where(is_unadjusted, narrowed, logs + shift)))


def _level_path(detection: Detection) -> tuple[list[float], list[float]]:
    """Times and ln of the levels at the first and last observation of each level."""
    times: list[float] = []
    logs: list[float] = []
    for level in detection.levels:
        times += (level.time, level.last_time)
        logs += [math.log(level.value)] * 2
    return times, logs


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
    shares: list[Floats] = []
    for differences in series:
        is_used = differences.block != block
        if is_used.any():
            changes, steps = differences.changes[is_used], differences.steps[is_used]
            shares.append(_explained_shares(changes, steps, differences.signs))
    return np.asarray(np.sum(shares, axis=0))


def explained_out_of_sample(series: Sequence[Differences]) -> float:
    """Share of the variance of the changes that is predicted in time blocks not used for the fit; 0 for "by chance".

    The covariate is the same in all series, the effect is not. A series whose differences are all in one block has
    nothing to predict that from.
    """
    # Sum of the squared changes in each block, without and with the prediction from the other blocks.
    before, after = np.zeros(BLOCKS), np.zeros(BLOCKS)
    for block in range(BLOCKS):
        # The covariate is chosen without this block, too; else its choice would know what is to be predicted.
        column = 0
        if any((differences.block != block).any() for differences in series):
            column = int(shares_of_all(series, block).argmax())
        for differences in series:
            is_fitted, is_tested = differences.block != block, differences.block == block
            effect = 0.0
            if is_fitted.any():
                changes, steps = differences.changes[is_fitted], differences.steps[is_fitted, column]
                effect = fit_effect(changes, steps, differences.signs[column])
            # What is left of the changes in this block; an outlier counts as one of three scatters.
            tested = differences.changes[is_tested]
            rest = tested - effect * differences.steps[is_tested, column]
            before[block] += np.minimum(tested**2, _MAX_SQUARED_ERROR).sum()
            after[block] += np.minimum(rest**2, _MAX_SQUARED_ERROR).sum()
    # A prediction that fails in several blocks is one by chance, however good it is in the others.
    is_worse = after > before + _MAX_WORSE * before.mean()
    if is_worse.sum() > BLOCKS - _MIN_GOOD_BLOCKS or not before.any():
        return 0.0
    return float(1 - after.sum() / before.sum())


def _explained_of_means(logs: Floats, load: Floats) -> float:
    """Share of the variance between means of consecutive observations that the load explains; negative if it adds some.

    The effects are those between consecutive observations. Levels are found in means: where slow changes of the load
    have another effect than fast ones, an adjustment would add changes.
    """
    # Medians, because each step of the series is in as many differences as two means have observations.
    before = float(np.median(np.abs(mean_differences(logs))))
    after = float(np.median(np.abs(mean_differences(logs - load))))
    if not before > 0:
        return 0.0
    return 1 - (after / before) ** 2


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
    has_allowed_sign = sign * effect >= 0
    return effect if has_allowed_sign else 0.0


def _explained_shares(changes: Floats, steps: Floats, signs: Floats) -> Floats:
    """Share of the weighted variance of the changes that each covariate explains with an allowed sign, shape (p,)."""
    weights = _outlier_weights(changes)
    products = (weights * changes) @ steps
    whole = (weights @ steps**2 + _PRIOR_DIFFERENCES) * (weights @ changes**2)
    shares: Floats = products**2 / np.maximum(whole, 1e-300)
    return np.where(signs * products >= 0, shares, 0.0)


def _outlier_weights(residuals: Floats) -> Floats:
    """Weights of a robust regression, those of a t distribution: an outlier counts less."""
    return (_FREEDOM + 1) / (_FREEDOM + (residuals / robust_scale(residuals)) ** 2)


def robust_scale(values: Floats) -> float:
    """Standard deviation from the 80 % quantile of the absolute values; more than half of them may be 0."""
    # Not np.quantile, which takes five times as long; this is called for every fit.
    position = 4 * (len(values) - 1) // 5
    return max(float(np.partition(np.abs(values), position)[position]) / 1.28, 1e-6)


def _load_levels(load: Floats) -> Floats:
    """Mean of each segment between significant steps of the load, of each observation; shape (n,)."""
    scatter = float(np.sqrt(np.mean(np.diff(load) ** 2) / 2))
    # Each segment is divided at its clearest step until none is significant.
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
    if t[best] <= _MIN_LEVEL_T:
        return None
    return int(counts[best])


def with_adjustment(detection: Detection, series: AdjustedSeries) -> Detection:
    """The detection in an adjusted series, with the share of each change that goes along with the covariate."""
    steps = sorted(detection.steps, key=lambda step: step.time)
    starts = [int(np.searchsorted(series.times, step.time)) for step in steps]
    edges = [0, *starts, len(series.times)]
    # The levels of the load beside each step, where they were recorded on both of its sides.
    with_share: dict[ChangePoint, ChangePoint] = {}
    for step, first, middle, end in zip(steps, edges, edges[1:], edges[2:], strict=False):
        before, after = series.levels[first:middle], series.levels[middle:end]
        before, after = before[np.isfinite(before)], after[np.isfinite(after)]
        if len(before) and len(after):
            share = float(after.mean() - before.mean()) / math.log(step.ratio)
            with_share[step] = replace(step, load_share=min(max(share, 0.0), 1.0) + 0.0)
    return replace(
        detection,
        changes=tuple(with_share.get(step, step) for step in detection.changes),
        suspected=tuple(with_share.get(step, step) for step in detection.suspected),
        adjustment=series.adjustment,
    )
