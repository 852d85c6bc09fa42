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
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from iowatch.statistics import covariates as single
from iowatch.statistics.covariates import CovariateTable, Differences
from iowatch.statistics.method import Adjustment, Floats

# With fewer sessions the means of consecutive observations are too few to be compared.
_MEAN_SESSIONS = 30
# With fewer sessions that have covariates, chance predicts as well as they do.
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
    known = [np.isfinite(table.values).any(axis=1) for table in tables]
    recorded = np.unique(np.concatenate([s[k] for s, k in zip(sessions, known, strict=True)]))
    if len(recorded) < _MIN_SESSIONS:
        return None
    chosen = [
        (y[k] / single.robust_scale(np.diff(y[k])), load[k], s[k], table.signs)
        for y, load, s, k, table in zip(logs, loads, sessions, known, tables, strict=True)
        if k.sum() > 2
    ]
    blocks = [np.searchsorted(recorded, s) * single.BLOCKS // len(recorded) for _, _, s, _ in chosen]
    parts = [
        Differences(np.diff(y), np.diff(load, axis=0), block[1:], signs)
        for (y, load, _, signs), block in zip(chosen, blocks, strict=True)
    ]
    if not parts:
        return None
    explained = single.explained_out_of_sample(parts)
    if explained < single.least_explained(sum(len(one.changes) for one in parts)):
        return None
    column = _steadiest_column([(y, load) for y, load, _, _ in chosen], parts)
    # Its own share; the other one is also honest about the choice among all covariates.
    own = [replace(one, steps=one.steps[:, [column]], signs=one.signs[[column]]) for one in parts]
    explained = min(explained, single.explained_out_of_sample(own))
    levels = [(y, load[:, column], signs[column]) for y, load, _, signs in chosen]
    if len(recorded) >= _MEAN_SESSIONS and not _explains_means(levels):
        return None
    adjusted = [
        _without_effect(y, load[:, column], np.isfinite(table.values[:, column]), table.signs[column])
        for y, load, table in zip(logs, loads, tables, strict=True)
    ]
    return adjusted, Adjustment(tables[0].names[column], explained)


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


def _steadiest_column(series: Sequence[tuple[Floats, Floats]], parts: Sequence[Differences]) -> int:
    """Of the covariates that explain about as much of the differences the one without which levels vary least.

    The cached memory of a node rises and falls with the load, too, but from a level that wanders by itself: without
    its effect the series would wander.

    Args:
        series: ln of the values in units of their scatter, and all covariates, shapes (n,) and (n, p).
        parts: their differences.
    """
    shares = single.shares_of_all(parts)
    columns = np.flatnonzero(shares >= _NEARLY * shares.max())

    def variation(column: int) -> float:
        rests = (
            logs - single.fit_effect(one.changes, one.steps[:, column], one.signs[column]) * load[:, column]
            for (logs, load), one in zip(series, parts, strict=True)
        )
        return sum(float(np.mean(np.minimum((rest - np.median(rest)) ** 2, _MOST_VARIATION))) for rest in rests)

    return min((int(column) for column in columns), key=variation)


def new_load(tables: Sequence[CovariateTable], sessions: Sequence[Integers], start: int, direction: int) -> str | None:
    """Name of the covariate that differs most since a session from most sessions before; None if none clearly does.

    Args:
        tables, sessions: as in `adjust_together`.
        start: number of the first session of an event.
        direction: 1 if performance rose since then, -1 if it fell.
    """
    if not tables:
        return None
    means = _session_means(tables, sessions)
    before, since = means[:start], means[start:]
    before, since = (part[np.isfinite(part).any(axis=1)] for part in (before, since))
    if len(before) >= _KNOWN_SESSIONS or not len(since):
        return None
    recorded = np.isfinite(before).sum(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # covariates that were not recorded on one side
        usual, now = np.nanmedian(before, axis=0), np.nanmedian(since, axis=0)
        was_so = (np.abs(before - now) < np.abs(before - usual)).sum(axis=0) / np.maximum(recorded, 1)
        scatter = 1.4826 * np.nanmedian(np.abs(before - usual), axis=0)
    change = now - usual
    least = np.maximum(_NEW_SCATTERS * scatter, _NEW_SHARE * np.maximum(np.abs(usual), np.abs(now)))
    is_new = (recorded >= _MIN_LEVELS) & (was_so <= _RARE) & (tables[0].signs * change * direction >= 0) & (least > 0)
    far = np.divide(np.abs(change), least, out=np.zeros_like(change), where=is_new)
    return tables[0].names[int(far.argmax())] if far.max() > 1 else None


def _session_means(tables: Sequence[CovariateTable], sessions: Sequence[Integers]) -> Floats:
    """Mean of each covariate over the runs of each session, shape (sessions, p); NaN where not recorded."""
    values, numbers = np.concatenate([table.values for table in tables]), np.concatenate(sessions)
    shape = numbers.max() + 1, values.shape[1]
    total, count = np.zeros(shape), np.zeros(shape)
    np.add.at(total, numbers, np.nan_to_num(values))
    np.add.at(count, numbers, np.isfinite(values))
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)


def _with_session_means(tables: Sequence[CovariateTable], sessions: Sequence[Integers]) -> list[CovariateTable]:
    """Tables with the mean of each covariate over the runs of a session as further ones: one look is a small sample."""
    means = _session_means(tables, sessions)
    return [
        CovariateTable(table.names * 2, np.hstack([table.values, means[s]]), np.tile(table.signs, 2))
        for table, s in zip(tables, sessions, strict=True)
    ]


def _explains_means(series: Sequence[tuple[Floats, Floats, float]]) -> bool:
    """Whether means of consecutive observations differ less without the effect; slow changes of the load may act less.

    Args:
        series: ln of the values in units of their scatter, load, shapes (n,), and allowed sign of the effect.
    """
    before, after = [np.zeros(0)], [np.zeros(0)]
    for logs, load, sign in series:
        effect = single.fit_effect(np.diff(logs), np.diff(load), sign)
        before.append(single.mean_differences(logs))
        after.append(single.mean_differences(logs - effect * load))
    return bool(np.median(np.abs(np.concatenate(after))) <= np.median(np.abs(np.concatenate(before))))


def _without_effect(logs: Floats, load: Floats, recorded: NDArray[np.bool_], sign: float) -> Floats:
    if recorded.sum() < 3:
        return logs
    return logs - single.fit_effect(np.diff(logs[recorded]), np.diff(load[recorded]), sign) * load
