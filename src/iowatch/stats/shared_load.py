"""Adjustment of many series together for one covariate: what is around the runs of a session slows all of them.

A series of a few noisy observations cannot show alone that a covariate predicts it, and each series would decide on
another morning. Together they show it earlier, and all are adjusted or none is. As in `iowatch.stats.covariates`, the
effect of each series is estimated on differences between consecutive observations, and must predict blocks of sessions
that the estimate has not seen. Unlike there, the levels of the covariate are removed, too: the result says whether the
newest sessions are unusual for their load, and detection in single series whether a level changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iowatch.stats import covariates as single
from iowatch.stats.covariates import CovariateTable
from iowatch.stats.method import Adjustment, Floats

# With fewer sessions the means of consecutive observations are too few to be compared.
_MEAN_SESSIONS = 30
# With fewer sessions that have covariates, chance predicts as well as they do.
_MIN_SESSIONS = 6

Integers = NDArray[np.int64] | NDArray[np.intp]


@dataclass(frozen=True)
class _Differences:
    """Observations with covariates of one series, and the differences between consecutive ones.

    Attributes:
        logs, loads: in units of the scatter of the differences, and of the usual deviations: shape (n,), (n, p).
        changes, steps: their differences, shape (n - 1,), (n - 1, p).
        block: of each difference, 0 to 4; shape (n - 1,).
    """

    logs: Floats
    loads: Floats
    changes: Floats
    steps: Floats
    block: Integers
    signs: Floats


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
    parts = [
        _differences(y[k], load[k], np.searchsorted(recorded, s[k]) * single.BLOCKS // len(recorded), table.signs)
        for y, load, s, k, table in zip(logs, loads, sessions, known, tables, strict=True)
        if k.sum() > 2
    ]
    if not parts:
        return None
    explained = _explained_out_of_sample(parts)
    if explained < single.least_explained(sum(len(one.changes) for one in parts)):
        return None
    if len(recorded) >= _MEAN_SESSIONS and _explained_of_means(parts) < 0:
        return None
    column = _best_column(parts)
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


def _differences(logs: Floats, loads: Floats, blocks: Integers, signs: Floats) -> _Differences:
    logs = logs / single.robust_scale(np.diff(logs))
    return _Differences(logs, loads, np.diff(logs), np.diff(loads, axis=0), blocks[1:], signs)


def _best_column(parts: Sequence[_Differences], block: int = -1) -> int:
    """The covariate that explains most in all series, without one block."""
    kept = [(one, one.block != block) for one in parts]
    shares = [single.explained_shares(one.changes[k], one.steps[k], one.signs) for one, k in kept if k.any()]
    return int(np.sum(shares, axis=0).argmax())


def _explained_out_of_sample(parts: Sequence[_Differences]) -> float:
    """Share of the variance of the changes that is predicted in blocks not used for the fit; 0 for "by chance".

    A series whose differences are all in one block has nothing to predict that from.
    """
    before, after = np.zeros(single.BLOCKS), np.zeros(single.BLOCKS)
    for k in range(single.BLOCKS):
        column = _best_column(parts, k) if any((one.block != k).any() for one in parts) else 0
        for one in parts:
            train, test = one.block != k, one.block == k
            sign = one.signs[column]
            effect = single.fit_effect(one.changes[train], one.steps[train, column], sign) if train.any() else 0.0
            rest = one.changes[test] - effect * one.steps[test, column]
            before[k] += np.minimum(one.changes[test] ** 2, 9.0).sum()
            after[k] += np.minimum(rest**2, 9.0).sum()
    return single.explained_share(before, after)


def _explained_of_means(parts: Sequence[_Differences]) -> float:
    """The same of the means of consecutive observations, in sample; negative if slow changes of the load act less."""
    column = _best_column(parts)
    before, after = [np.zeros(0)], [np.zeros(0)]
    for one in parts:
        load = one.loads[:, column]
        effect = single.fit_effect(one.changes, one.steps[:, column], one.signs[column])
        before.append(single.mean_differences(one.logs))
        after.append(single.mean_differences(one.logs - effect * load))
    sizes = [float(np.median(np.abs(np.concatenate(side)))) for side in (before, after)]
    return 1 - (sizes[1] / sizes[0]) ** 2 if sizes[0] > 0 else 0.0


def _without_effect(logs: Floats, load: Floats, recorded: NDArray[np.bool_], sign: float) -> Floats:
    if recorded.sum() < 3:
        return logs
    return logs - single.fit_effect(np.diff(logs[recorded]), np.diff(load[recorded]), sign) * load
