"""Adjustment of many series together for one covariate: what is around the runs of a session slows all of them.

A series of a few noisy observations cannot show alone that a covariate predicts it, and each series would decide on
another morning. Together they show it earlier, and all are adjusted or none is. As in `iowatch.stats.covariates`, the
effect of each series is estimated on differences between consecutive observations, and must predict blocks of sessions
that the estimate has not seen. Unlike there, the levels of the covariate are removed, too: the result says whether the
newest sessions are unusual for their load, and detection in single series whether a level changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from iowatch.stats import covariates as single
from iowatch.stats.covariates import CovariateTable, Differences
from iowatch.stats.method import Adjustment, Floats

# With fewer sessions the means of consecutive observations are too few to be compared.
_MEAN_SESSIONS = 30
# With fewer sessions that have covariates, chance predicts as well as they do.
_MIN_SESSIONS = 6

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
    explained, column = single.explained_out_of_sample(parts), single.best_column(parts)
    if explained < single.least_explained(sum(len(one.changes) for one in parts)):
        return None
    levels = [(y, load[:, column], signs[column]) for y, load, _, signs in chosen]
    if len(recorded) >= _MEAN_SESSIONS and not _explains_means(levels):
        return None
    adjusted = [
        _without_effect(y, load[:, column], np.isfinite(table.values[:, column]), table.signs[column])
        for y, load, table in zip(logs, loads, tables, strict=True)
    ]
    return adjusted, Adjustment(tables[0].names[column], explained)


def _with_session_means(tables: Sequence[CovariateTable], sessions: Sequence[Integers]) -> list[CovariateTable]:
    """Tables with the mean of each covariate over the runs of a session as further ones: one look is a small sample."""
    values, numbers = np.concatenate([table.values for table in tables]), np.concatenate(sessions)
    total, count = np.zeros((numbers.max() + 1, values.shape[1])), np.zeros((numbers.max() + 1, values.shape[1]))
    np.add.at(total, numbers, np.nan_to_num(values))
    np.add.at(count, numbers, np.isfinite(values))
    means = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
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
