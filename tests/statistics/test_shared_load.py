"""Adjustment of many series together: properties on seeded series whose load is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from iowatch.statistics import CovariateTable
from iowatch.statistics.shared_load import adjust_together, new_load

Floats = NDArray[np.float64]
# Noise and effect (ln) of each series: as measured by bench/statistics/aggressor.py, and one that the load hardly
# reaches.
NOISE = np.array([0.1, 0.08, 0.06, 0.05])
EFFECTS = np.log([0.43, 0.7, 0.55, 0.95])


def store(seed: int, sessions: int = 40, effects: Floats = EFFECTS) -> tuple[Floats, list[CovariateTable], Floats]:
    """Logarithms of series by sessions, their covariates, and whether the load was on; each run sees it in 4 of 5."""
    rng = np.random.default_rng(seed)
    active = (rng.permutation(sessions) % 2).astype(float)
    logs = 7 + effects[:, None] * active + NOISE[:, None] * rng.standard_normal((4, sessions))
    seen = active * (rng.random((4, sessions)) < 0.8)
    return logs, [table(np.column_stack([one, rng.normal(0, 1, (sessions, 5))])) for one in seen], active


def table(values: Floats, sign: float = 0.0) -> CovariateTable:
    return CovariateTable(tuple("abcdef"[: values.shape[1]]), values, np.full(values.shape[1], sign))


def adjust(logs: Floats, tables: list[CovariateTable], sessions: int = 40) -> Floats | None:
    numbers = [np.arange(sessions)] * len(logs)
    first = [CovariateTable(one.names, one.values[:sessions], one.signs) for one in tables]
    found = adjust_together(list(logs[:, :sessions]), first, numbers)
    return None if found is None else np.asarray(found[0])


def test_the_load_is_learnt_in_sixteen_sessions() -> None:
    """Half of each large effect is gone in 19 of 20 stores; a run that did not see the load is adjusted, too."""
    learnt = 0
    for seed in range(9100, 9120):
        logs, tables, active = store(seed)
        found = adjust(logs, tables, 16)
        if found is not None:
            on = active[:16] > 0
            left = np.median(found[:, on], axis=1) - np.median(found[:, ~on], axis=1)
            learnt += bool((np.abs(left[[0, 2]]) < 0.5 * np.abs(EFFECTS[[0, 2]])).all())
    assert learnt >= 19


def test_a_change_of_the_store_stays() -> None:
    """15 % from the 31st session on, ln 0.85 = -0.16; compared in sessions with the same load."""
    shifts = []
    for seed in range(9120, 9130):
        logs, tables, active = store(seed)
        logs[:, 30:] += np.log(0.85)
        found = adjust(logs, tables)
        assert found is not None
        for kind in (0.0, 1.0):
            same, late = active == kind, np.arange(40) >= 30
            shifts.append(np.median(found[:, same & late], axis=1) - np.median(found[:, same & ~late], axis=1))
    assert abs(np.mean(shifts) - np.log(0.85)) < 0.03


def test_series_that_no_covariate_predicts_are_rarely_adjusted() -> None:
    found = [adjust(*store(seed, effects=np.zeros(4))[:2]) for seed in range(9130, 9170)]
    assert sum(one is not None for one in found) <= 2


def test_own_traffic_is_not_used() -> None:
    """The rate of all traffic follows the speed of the run itself; subtracting it would remove the signal."""
    logs, _, _ = store(9170)
    assert adjust(logs, [table(np.exp(row)[:, None], -1.0) for row in logs]) is None
    assert adjust(logs, [table(np.exp(row)[:, None]) for row in logs]) is not None


def test_observations_without_covariates_stay_as_measured() -> None:
    logs, tables, active = store(9171)
    for one in tables:
        one.values[:10] = np.nan
        one.values[20] = np.nan
    found = adjust(logs, tables)
    assert found is not None
    assert np.array_equal(found[:, :10], logs[:, :10])
    assert np.array_equal(found[:, 20], logs[:, 20])
    changed = np.abs(found - logs).max(axis=0) > 0.05
    assert changed[(active == 1) & (np.arange(40) > 20)].mean() > 0.5


def test_series_with_few_observations_are_adjusted_with_the_others() -> None:
    """All differences of the newest series are in one block: nothing is left to estimate its effect without it."""
    logs, tables, _ = store(9172)
    sessions = [np.arange(40)] * 4 + [np.arange(36, 40)]
    newest = CovariateTable(tables[0].names, tables[0].values[36:], tables[0].signs)
    found = adjust_together([*logs, logs[0, 36:]], [*tables, newest], sessions)
    assert found is not None
    assert np.isfinite(found[0][4]).all()
    assert found[1].covariate == "a"


def test_few_sessions_are_not_adjusted() -> None:
    logs, tables, _ = store(9173)
    assert adjust(logs, tables, 5) is None


def load_of(values: list[float], start: int, direction: int = -1, sign: float = 0.0) -> str | None:
    """What `new_load` says of two series with this covariate in each session, and two that are always 1 and 0."""
    tables = [table(np.column_stack([values, np.ones(len(values)), np.zeros(len(values))]), sign)] * 2
    return new_load(tables, [np.arange(len(values))] * 2, start, direction)


QUIET = [1.0, 1.1, 0.9, 1.0, 1.1, 1.0]


@pytest.mark.parametrize("since", [[2.0], [2.0, 2.1], [0.2], [2.0, 2.0, 1.0]])
def test_a_load_that_changes_with_an_event_is_named(since: list[float]) -> None:
    assert load_of([*QUIET, *since], 6) == "a"


@pytest.mark.parametrize(
    ("values", "start"),
    [
        ([*QUIET, 1.1], 6),
        ([*QUIET, 1.3], 6),  # less than six scatters of 0.05 * 1.48
        ([*QUIET, 2.0, 1.0, 1.0], 6),  # the load is gone, the event is not
        ([1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0], 7),  # it was so in three of seven sessions before
        ([*QUIET, *QUIET, *QUIET, 2.0], 18),  # so long a past would show what the load does
        ([1.0, 1.0, 1.0, 1.0, 2.0], 4),  # too few sessions to know what is usual
        ([*[float("nan")] * 6, 2.0], 6),
        ([*[float("nan")] * 6, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0], 11),  # two of the five sessions that have it
    ],
)
def test_other_loads_are_not_new(values: list[float], start: int) -> None:
    """Why a long past ends it: a store that gets slow has more blocked processes, too."""
    assert load_of(values, start) is None


def test_a_load_explains_only_changes_with_its_sign() -> None:
    """Own traffic (sign -1) rises with the speed; only a fall while it rises is an effect of others."""
    assert load_of([*QUIET, 2.0], 6, direction=-1, sign=-1.0) == "a"
    assert load_of([*QUIET, 2.0], 6, direction=1, sign=-1.0) is None
    assert load_of([*QUIET, 0.2], 6, direction=1, sign=-1.0) == "a"


def test_the_covariate_without_which_levels_are_steady_is_removed() -> None:
    """Cached memory rises and falls with the load, too, from a level that wanders; both explain the differences.

    What is left without load has a scatter of .22 at most; with the covariate that explains most, of up to .46.
    """
    for seed in range(9170, 9190):
        logs, _, active = store(seed)
        rng = np.random.default_rng([seed, 1])
        for count in (20, 40):
            wandering = active + np.cumsum(rng.normal(0, 0.15, 40))
            both = np.column_stack([wandering, active + rng.normal(0, 0.15, 40)])
            found = adjust(logs, [table(both) for _ in logs], count)
            assert found is not None
            assert np.std(found[0, active[:count] == 0]) < 0.25
