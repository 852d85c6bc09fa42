"""Adjustment for covariates: properties on seeded series whose load is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from iowatch.statistics import CovariateTable, Detection, DetectorSettings, detect_many

DAY = 86400.0
Floats = NDArray[np.float64]
RANDOM = np.random.default_rng


def table(load: Floats, rng: np.random.Generator, others: int = 5, sign: float = 0.0) -> CovariateTable:
    """The load, and unrelated covariates."""
    values = np.column_stack([load, rng.normal(0, 1, (len(load), others))])
    return CovariateTable(("load", *(f"other{i}" for i in range(others))), values, np.array([sign] + [0.0] * others))


def first(covariates: CovariateTable, n: int) -> CovariateTable:
    return replace(covariates, values=covariates.values[:n])


def detect(logs: Floats, covariates: CovariateTable | None) -> Detection:
    return detect_many([(DAY * np.arange(len(logs)), np.exp(logs))], covariates=[covariates])[0]


def aggressor(seed: int, n: int = 40) -> tuple[Floats, CovariateTable]:
    """A store of constant speed that another program slows by half in half of the sessions."""
    rng = RANDOM(seed)
    active = rng.permutation(n) % 2 == 0
    logs = 7 + np.where(active, np.log(0.5), 0.0) + 0.03 * rng.standard_normal(n)
    return logs, table(active * 100 + np.abs(rng.normal(0, 2, n)), rng)


def test_an_aggressor_alone_is_no_change_on_any_morning() -> None:
    replays = [aggressor(seed) for seed in range(20)]
    # Before, a load that was on first and then off is a step that nothing in its past explains.
    prefixes = [(logs[:k], first(known, k)) for logs, known in replays for k in range(17, 41, 3)]
    assert not any(detect(logs, known).changes for logs, known in prefixes)
    # Without covariates the same sessions give false changes, so the test can fail.
    assert any(detect(logs, None).changes for logs, _ in prefixes)


def test_a_change_of_15_percent_below_an_aggressor_is_found_within_five_sessions() -> None:
    found, without = [], []
    for logs, known in map(aggressor, range(20)):
        seen = (logs + np.where(np.arange(40) >= 20, np.log(0.85), 0.0))[:25]
        for changes, adjusted in ((found, first(known, 25)), (without, None)):
            changes += [c for c in detect(seen, adjusted).changes if 19 <= c.index <= 21 and 0.8 < c.ratio < 0.9]
    assert len(found) >= 18
    assert len(without) <= 2


def test_a_lasting_change_of_the_load_is_a_change_with_its_share() -> None:
    """The load doubles for good: the series keeps its change, which goes along with the load."""
    rng = RANDOM(2)
    load = rng.normal(1, 0.3, 120) + (np.arange(120) >= 70)
    own = 0.02 * rng.standard_normal(120)
    (change,) = detect(7 - 0.3 * load + own, table(load, rng)).changes
    assert abs(change.index - 70) <= 1
    assert 0.7 < change.ratio < 0.8  # exp(-0.3) = 0.74
    assert change.load_share is not None
    assert change.load_share > 0.9
    # Half of a larger change is the store's own.
    (change,) = detect(7 - 0.3 * load + own - 0.3 * (np.arange(120) >= 70), table(load, rng)).changes
    assert 0.5 < change.ratio < 0.6  # exp(-0.6) = 0.55
    assert change.load_share is not None
    assert 0.4 < change.load_share < 0.6


def test_a_lasting_change_of_the_load_is_reported_as_early_as_without_covariates() -> None:
    """Within seven observations in at least nine of ten series; without an adjustment within six."""
    late = []
    for seed in range(10):
        rng = RANDOM(seed)
        load = rng.normal(1, 0.3, 77) + (np.arange(77) >= 70)
        found = detect(7 - 0.3 * load + 0.02 * rng.standard_normal(77), table(load, rng))
        late += [] if any(abs(change.index - 70) <= 2 for change in found.changes) else [seed]
    assert len(late) <= 1


def test_a_covariate_that_only_steps_with_the_series_changes_nothing() -> None:
    """A fill that jumps on the day of the change has predicted nothing before it."""
    for seed in range(10):
        rng = RANDOM(seed)
        after = np.arange(90) >= 60
        logs = 7 + 0.05 * rng.standard_normal(90) - 0.3 * after
        known = table(61 + 0.1 * rng.standard_normal(90) + 14 * after, rng, others=1)
        assert detect(logs, known) == detect(logs, None)
        assert len(detect(logs, known).changes) == 1


def test_own_traffic_is_not_used() -> None:
    """The rate of all traffic follows the speed of the run itself; subtracting it would remove the signal."""
    rng = RANDOM(4)
    logs = 7 + 0.1 * rng.standard_normal(100)
    rate = np.exp(logs) * np.exp(0.02 * rng.standard_normal(100))
    assert detect(logs, table(rate, rng, sign=-1.0)) == detect(logs, None)
    assert detect(logs, table(rate, rng)).adjustment is not None


def test_unrelated_covariates_are_rarely_used() -> None:
    used = 0
    for seed in range(60):
        rng = RANDOM(seed)
        logs = 0.1 * rng.standard_t(4, 60)
        used += detect(logs, table(rng.normal(0, 1, 60), rng, others=20)).adjustment is not None
    assert used <= 4


def test_observations_before_covariates_were_recorded_keep_their_level() -> None:
    for seed in range(5):
        logs, known = aggressor(seed, 120)
        known.values[:60] = np.nan
        found = detect(logs, known)
        assert found.adjustment is not None
        assert found.changes == ()


def test_order_of_points_and_accepted_level() -> None:
    """Points in any order give the same result; the effect is estimated on observations before `since`, too."""
    logs, known = aggressor(3)
    times, shuffled = DAY * np.arange(40), RANDOM(0).permutation(40)
    moved = detect_many(
        [(times[shuffled], np.exp(logs[shuffled]))], covariates=[replace(known, values=known.values[shuffled])]
    )
    assert moved == [detect(logs, known)]
    (recent,) = detect_many([(times, np.exp(logs))], since=[DAY * 30], covariates=[known])
    assert recent.adjustment == moved[0].adjustment
    assert recent.noise is not None
    assert recent.noise < 0.1


def test_json_has_the_adjustment() -> None:
    logs, known = aggressor(5)
    found = detect(logs + np.where(np.arange(40) >= 20, -0.3, 0.0), known)
    assert found.adjustment is not None
    assert found.adjustment.covariate == "load"
    assert found.adjustment.explained > 0.9
    assert Detection.from_json(found.to_json()) == found
    stored_before = found.to_json()
    del stored_before["adjustment"]
    for change in stored_before["changes"]:
        del change["load_share"]
    assert Detection.from_json(stored_before).adjustment is None


def test_too_few_observations_are_not_adjusted() -> None:
    logs, known = aggressor(1, 9)
    assert detect(logs, known).adjustment is None
    assert len(logs) >= DetectorSettings().min_observations
