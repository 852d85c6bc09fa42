"""Adjustment of many series together for one covariate: what is around the runs of a session slows all of them.

A series of a few noisy observations cannot show alone that a covariate predicts it, and each series would decide on
another morning. Together they show it earlier, and all are adjusted or none is. As in `iowatch.statistics.covariates`,
the effect of each series is estimated on differences between consecutive observations, and must predict blocks of
sessions that the estimate has not seen. Unlike there, the levels of the covariate are removed, too: the result says
whether the newest sessions are unusual for their load, and detection in single series whether a level changed.

Until a load was seen to come and go, nobody knows what it does: `new_load` names the covariate that changed with an
event while the history was that young.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from iowatch.statistics import covariates as single
from iowatch.statistics.constants import MAD_TO_SD, Floats
from iowatch.statistics.covariates import CovariateTable, Differences
from iowatch.statistics.method import Adjustment

# With fewer sessions the means of consecutive observations are too few to be compared. With twice as many a load that
# acts in fast changes only is removed for a month longer.
_MEAN_SESSIONS = 30
# With fewer sessions that have covariates, chance predicts as well as they do. With twice as many a store with other
# users is judged by its rates alone for six more sessions.
_MIN_SESSIONS = 6
# Share of the largest explained variance of differences from which covariates are compared by levels, and the limit of
# a squared deviation from the median (in scatters of the differences), so that a few outliers do not decide.
_NEARLY, _MOST_VARIATION = 0.8, 25.0
# Fewest sessions before an event with a covariate that show which value was usual.
_MIN_LEVELS = 5
# A load can be new as long as fewer sessions than these have covariates before the event. It is so if it differs by
# this many scatters of the sessions before, by this share of its value, and was like now in at most this share of them.
_KNOWN_SESSIONS, _NEW_SCATTERS, _NEW_SHARE, _RARE = 15, 6.0, 0.2, 1 / 3

Integers = NDArray[np.int64] | NDArray[np.intp]


def adjust_together(
    logs: Sequence[Floats], tables: Sequence[CovariateTable], sessions: Sequence[Integers]
) -> tuple[list[Floats], Adjustment] | None:
    """Remove from many series what one covariate predicts in all of them together; None if no covariate does.

    Args:
        logs: ln of the values of each series in time order, shapes (n,).
        tables: covariates of the same observations; all with the same names.
        sessions: number of the session of each observation, shapes (n,).

    Returns:
        The ln of the values without the effect of deviations of the covariate from its median; as they are where it was
        not recorded.
    """
    if not tables:
        return None
    tables = _with_session_means(tables, sessions)
    loads = [single.usual_deviations(table.values) for table in tables]
    is_recorded = [np.isfinite(table.values).any(axis=1) for table in tables]
    recorded_sessions = np.unique(np.concatenate([s[rows] for s, rows in zip(sessions, is_recorded, strict=True)]))
    if len(recorded_sessions) < _MIN_SESSIONS:
        return None
    # The observations with covariates of each series that has a few, in units of its scatter.
    predicted: list[_PredictedSeries] = []
    for values, load, numbers, rows, table in zip(logs, loads, sessions, is_recorded, tables, strict=True):
        if rows.sum() > 2:
            scaled = values[rows] / single.robust_scale(np.diff(values[rows]))
            block = np.searchsorted(recorded_sessions, numbers[rows]) * single.BLOCKS // len(recorded_sessions)
            predicted.append(_PredictedSeries(scaled, load[rows], block, table.signs))
    if not predicted:
        return None
    # A covariate must predict the differences of sessions that the estimate has not seen.
    differences = [series.differences() for series in predicted]
    explained = single.explained_out_of_sample(differences)
    if explained < single.least_explained(sum(len(of_series.changes) for of_series in differences)):
        return None
    column = _steadiest_column(predicted, differences)
    # The share of this covariate; that above is also honest about the choice among all covariates.
    of_column: list[Differences] = []
    for of_series in differences:
        steps, signs = of_series.steps[:, [column]], of_series.signs[[column]]
        of_column.append(replace(of_series, steps=steps, signs=signs))
    explained = min(explained, single.explained_out_of_sample(of_column))
    if len(recorded_sessions) >= _MEAN_SESSIONS and not _explains_means(predicted, column):
        return None
    adjusted: list[Floats] = []
    for values, load, table in zip(logs, loads, tables, strict=True):
        has_value = np.isfinite(table.values[:, column])
        adjusted.append(_without_effect(values, load[:, column], has_value, table.signs[column]))
    return adjusted, Adjustment(tables[0].names[column], explained)


@dataclass(frozen=True)
class _PredictedSeries:
    """The observations of a series that have covariates.

    Attributes:
        logs: ln of the values in units of the scatter of their differences, shape (n,).
        load: all covariates in units of their usual deviation, shape (n, p).
        block: time block of the session of each observation, shape (n,).
        signs: as in `CovariateTable`, shape (p,).
    """

    logs: Floats
    load: Floats
    block: NDArray[np.intp]
    signs: Floats

    def differences(self) -> Differences:
        """Differences between consecutive observations; each belongs to the block of the later one."""
        return Differences(np.diff(self.logs), np.diff(self.load, axis=0), self.block[1:], self.signs)


def load_margin(effect: Floats) -> Floats:
    """What the largest load on record would take from each observation beyond the load that was recorded for it.

    The covariates of a run are looked at before and after it; a load between these looks, or of another program than
    on other days, is not in the record.

    Args:
        effect: of the recorded load on ln(performance), negative where it slows, shape (n,); all 0 without adjustment.

    Returns:
        ln, 0 or positive, shape (n,).
    """
    if not len(effect):
        return effect
    return np.asarray(effect - effect.min())


def _steadiest_column(series: Sequence[_PredictedSeries], differences: Sequence[Differences]) -> int:
    """Of the covariates that explain about as much of the differences the one without which levels vary least.

    The cached memory of a node rises and falls with the load, too, but from a level that wanders by itself: without
    its effect the series would wander.

    Args:
        differences: of the series, in the same order.
    """
    shares = single.shares_of_all(differences)
    columns = np.flatnonzero(shares >= _NEARLY * shares.max())

    def variation(column: int) -> float:
        """Mean squared deviation of the levels from their median without the effect, summed over the series."""
        total = 0.0
        for predicted, changes in zip(series, differences, strict=True):
            effect = single.fit_effect(changes.changes, changes.steps[:, column], changes.signs[column])
            rest = predicted.logs - effect * predicted.load[:, column]
            total += float(np.mean(np.minimum((rest - np.median(rest)) ** 2, _MOST_VARIATION)))
        return total

    return min((int(column) for column in columns), key=variation)


def new_load(tables: Sequence[CovariateTable], sessions: Sequence[Integers], start: int, direction: int) -> str | None:
    """Name of the covariate that differs most since a session from most sessions before; None if none clearly does.

    A load is new only to a system whose covariates were recorded in few sessions before: later the adjustment of the
    series has learned what it does.

    Args:
        tables, sessions: as in `adjust_together`.
        start: number of the first session of an event.
        direction: 1 if performance rose since then, -1 if it fell.
    """
    if not tables:
        return None
    means = _session_means(tables, sessions)
    has_covariates = np.asarray(np.isfinite(means).any(axis=1))
    before = means[:start][has_covariates[:start]]
    since = means[start:][has_covariates[start:]]
    if len(before) >= _KNOWN_SESSIONS or not len(since):
        return None
    # What was usual before, what is now, and how many of the sessions before were like now.
    recorded = np.isfinite(before).sum(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # covariates that were not recorded on one side
        usual, now = np.nanmedian(before, axis=0), np.nanmedian(since, axis=0)
        share_like_now = (np.abs(before - now) < np.abs(before - usual)).sum(axis=0) / np.maximum(recorded, 1)
        scatter = MAD_TO_SD * np.nanmedian(np.abs(before - usual), axis=0)
    change = now - usual
    smallest_change = np.maximum(_NEW_SCATTERS * scatter, _NEW_SHARE * np.maximum(np.abs(usual), np.abs(now)))
    # A covariate is new if it was seldom like now, and if it may have this effect at all.
    may_have_effect = tables[0].signs * change * direction >= 0
    is_new = (recorded >= _MIN_LEVELS) & (share_like_now <= _RARE) & may_have_effect & (smallest_change > 0)
    distance = np.divide(np.abs(change), smallest_change, out=np.zeros_like(change), where=is_new)
    if distance.max() <= 1:
        return None
    return tables[0].names[int(distance.argmax())]


def _session_means(tables: Sequence[CovariateTable], sessions: Sequence[Integers]) -> Floats:
    """Mean of each covariate over the runs of each session, shape (sessions, p); NaN where not recorded."""
    values = np.concatenate([table.values for table in tables])
    numbers = np.concatenate(sessions)
    shape = numbers.max() + 1, values.shape[1]
    total, count = np.zeros(shape), np.zeros(shape)
    np.add.at(total, numbers, np.nan_to_num(values))
    np.add.at(count, numbers, np.isfinite(values))
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)


def _with_session_means(tables: Sequence[CovariateTable], sessions: Sequence[Integers]) -> list[CovariateTable]:
    """Tables with the mean of each covariate over the runs of a session as further ones: one look is a small sample."""
    means = _session_means(tables, sessions)
    with_means: list[CovariateTable] = []
    for table, numbers in zip(tables, sessions, strict=True):
        values = np.hstack([table.values, means[numbers]])
        with_means.append(CovariateTable(table.names * 2, values, np.tile(table.signs, 2)))
    return with_means


def _explains_means(series: Sequence[_PredictedSeries], column: int) -> bool:
    """Whether means of consecutive observations differ less without the effect of a covariate.

    Slow changes of the load may have a smaller effect than fast ones.
    """
    before, after = [np.zeros(0)], [np.zeros(0)]
    for predicted in series:
        load = predicted.load[:, column]
        effect = single.fit_effect(np.diff(predicted.logs), np.diff(load), predicted.signs[column])
        before.append(single.mean_differences(predicted.logs))
        after.append(single.mean_differences(predicted.logs - effect * load))
    median_after = np.median(np.abs(np.concatenate(after)))
    return bool(median_after <= np.median(np.abs(np.concatenate(before))))


def _without_effect(logs: Floats, load: Floats, is_recorded: NDArray[np.bool_], sign: float) -> Floats:
    """ln of the values of a series without the effect of the load, if it was recorded often enough."""
    if is_recorded.sum() < 3:
        return logs
    effect = single.fit_effect(np.diff(logs[is_recorded]), np.diff(load[is_recorded]), sign)
    return logs - effect * load
