"""Runs on saturated nodes, which are left out where levels are learnt.

    facts of runs ──> numbers of their covariates, stored ──> saturated runs ──> observations without them

They stay in the history, on the pages and in `iowatch history show`, with a mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from iowatch.core import COVARIATE_FACTS, PROCESSOR_PRESSURE, SATURATED_PERCENT, run_covariates
from iowatch.store import History, SeriesPoints, bulk

# Newest runs of each series that are examined for covariates; without any, older runs are not read.
_EXAMINED_RUNS = 3


def run_numbers(history: History, run_ids: Sequence[int], save: bool) -> dict[int, bulk.CovariateNumbers]:
    """Covariates of all these runs; those that are not stored are computed, and stored unless all are empty."""
    stored = history.run_covariates(run_ids)
    missing = sorted(set(run_ids) - stored.keys())
    facts_of_runs = history.run_facts(missing, COVARIATE_FACTS)
    computed = {run: run_covariates(facts.document) for run, facts in facts_of_runs.items()}
    encoded = {run: bulk.encode_covariates(covariates) for run, covariates in computed.items()}
    if save and any(computed.values()):
        history.save_run_covariates(encoded)
    return stored | encoded


def series_with_covariates(history: History, run_ids: Mapping[int, NDArray[np.int64]], save: bool) -> frozenset[int]:
    """Return the ids of the series of which one of the newest runs has covariates.

    Args:
        run_ids: of the points of each series in order of time, shape (n,), by series id.
        save: keep the numbers of runs whose facts were read.
    """
    newest_runs = {series_id: ids[-_EXAMINED_RUNS:].tolist() for series_id, ids in run_ids.items()}
    examined = run_numbers(history, list(chain.from_iterable(newest_runs.values())), save)
    with_covariates: set[int] = set()
    for series_id, newest in newest_runs.items():
        if any(examined[run][0] for run in newest):
            with_covariates.add(series_id)
    return frozenset(with_covariates)


def leave_out_saturated(
    history: History, points: Mapping[int, SeriesPoints], *, save: bool = False
) -> dict[int, SeriesPoints]:
    """Return the points of series, by series id, without those of runs on saturated nodes.

    Args:
        save: keep the numbers of covariates of runs whose facts were read.
    """
    run_ids = {series_id: series_points.run_id for series_id, series_points in points.items()}
    with_covariates = series_with_covariates(history, run_ids, save)
    if not with_covariates:
        return dict(points)
    runs = np.unique(np.concatenate([points[series_id].run_id for series_id in with_covariates]))
    matrix = bulk.covariate_matrix(runs, run_numbers(history, runs.tolist(), save))
    if PROCESSOR_PRESSURE not in matrix.names:
        return dict(points)
    pressures = matrix.values[:, matrix.names.index(PROCESSOR_PRESSURE)]
    saturated_runs = runs[pressures >= SATURATED_PERCENT]
    if not len(saturated_runs):
        return dict(points)
    remaining: dict[int, SeriesPoints] = {}
    for series_id, series_points in points.items():
        is_kept = ~np.isin(series_points.run_id, saturated_runs)
        remaining[series_id] = series_points if is_kept.all() else _select(series_points, is_kept)
    return remaining


def _select(points: SeriesPoints, is_kept: NDArray[np.bool_]) -> SeriesPoints:
    """The points of a series where `is_kept`, shape (n,), is true."""
    arrays = {field.name: getattr(points, field.name)[is_kept] for field in fields(points) if field.name != "series_id"}
    return replace(points, **arrays)
