"""Stalls: rhythm of day and week, threshold from the past, begin and end; simulated weeks."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from iowatch.pulse.assess import hours_of_week
from iowatch.statistics.stalls import Pulses, StallReference, judge_newest, make_reference, successive_excess
from tests.pulse import simulated
from tests.pulse.simulated import DAY_S, START_S

MS = 1e6


def make_pulses(levels_ms: list[float], begin_s: int = START_S, ended: bool = True) -> Pulses:
    """Pulses every ten minutes."""
    times = begin_s + 600 * np.arange(len(levels_ms))
    hours = hours_of_week(times.tolist(), UTC)
    return Pulses(times, hours, np.array(levels_ms) * MS, np.full(len(levels_ms), ended))


def flat_reference(level_ms: float, factor: float) -> StallReference:
    """A file system without rhythm, whose stalls exceed a factor."""
    return StallReference(np.full(168, math.log(level_ms * MS)), math.log(factor), 1000, "all hours")


def scattered(days: int, seed: int = 1, scatter: float = 0.3) -> Pulses:
    """Pulses around 1.2 ms that scatter and have no rhythm."""
    rng = np.random.default_rng(seed)
    return make_pulses((1.2 * np.exp(rng.normal(0, scatter, 144 * days))).tolist())


def test_hours_of_the_week_are_those_of_the_zone() -> None:
    # 2 March 2026 is a Monday.
    assert hours_of_week([START_S, START_S + 3600, START_S + 6 * DAY_S], UTC).tolist() == [0, 1, 144]
    berlin = ZoneInfo("Europe/Berlin")
    # 29 March 2026: from 02:00 CET clocks show 03:00 CEST, so the day has no hour 2.
    change_s = 1_774_746_000
    assert (hours_of_week([change_s - 1, change_s], berlin) % 24).tolist() == [1, 3]


def test_excess_is_the_smallest_of_three_successive_residuals() -> None:
    times = np.array([0, 600, 1200, 1800, 9000, 9600])
    residuals = np.array([1.0, 3.0, 2.0, 4.0, 5.0, 6.0])
    excess = successive_excess(times, residuals)
    # After the pause there are no three successive ones.
    assert excess.tolist() == [-math.inf, -math.inf, 1.0, 2.0, -math.inf, -math.inf]


def test_usual_time_follows_day_and_week() -> None:
    pulses = simulated.simulate_pulses(np.random.default_rng(5), 42)
    levels = pulses.levels_ns["stat"]
    reference = make_reference(Pulses(pulses.times, pulses.hours, levels, np.ones(len(levels), dtype=bool)))
    assert reference is not None
    assert reference.scope == "hour of the week"
    monday_14, monday_5, sunday_14 = (reference.usual[hour] for hour in (14, 5, 6 * 24 + 14))
    # Simulated: 0.6 at 14:00 against about 0 at 05:00, and -0.4 with a third of the rhythm on Sunday.
    assert monday_14 - monday_5 == pytest.approx(0.6, abs=0.3)
    assert monday_14 - sunday_14 == pytest.approx(0.6 + 0.4 - 0.2, abs=0.3)


@pytest.mark.parametrize(
    ("days", "scope", "smallest"), [(1, "all hours", 10), (7, "hour of the day", 10), (30, "hour of the week", 3)]
)
def test_reference_gets_finer_with_the_past(days: int, scope: str, smallest: float) -> None:
    reference = make_reference(scattered(days))
    assert reference is not None
    # Without bursts the smallest factor is the threshold.
    assert (reference.scope, math.exp(reference.threshold)) == (scope, pytest.approx(smallest))


def test_less_than_a_day_has_no_reference() -> None:
    assert make_reference(make_pulses([1.2] * 99)) is None
    assert make_reference(make_pulses([1.2] * 100)) is not None


def test_bursts_of_the_past_raise_the_threshold() -> None:
    """Each day an hour of ten-fold times: ten-fold is nothing new."""
    calm = scattered(30)
    is_burst = (calm.times - START_S) % DAY_S < 3600
    # At another hour each day, so that it is no rhythm.
    shifted = np.roll(is_burst, 7) if is_burst.any() else is_burst
    days = (calm.times - START_S) // DAY_S
    moved = np.array(
        [((time - START_S) // 3600) % 24 == (7 * day) % 24 for time, day in zip(calm.times, days, strict=True)]
    )
    assert shifted.sum() == moved.sum()
    bursts = replace(calm, levels_ns=np.where(moved, 10 * calm.levels_ns, calm.levels_ns))
    reference = make_reference(bursts)
    assert reference is not None
    assert math.exp(reference.threshold) > 10


@pytest.mark.parametrize(
    ("levels_ms", "state"),
    [
        ([40, 40, 40], "begins"),
        ([40, 40, 1.2], "usual"),
        ([1.2, 40, 40], "usual"),
        ([40, 40], "undecided"),
        # Exactly the threshold is not above it.
        ([6, 6, 6], "usual"),
        ([6.1, 6.1, 6.1], "begins"),
    ],
)
def test_three_successive_slow_pulses_are_a_stall(levels_ms: list[float], state: str) -> None:
    reference = flat_reference(1.2, 5.0000001)
    verdict = judge_newest(make_pulses(levels_ms), reference, is_stalled=False)
    assert verdict.state == state
    if state == "begins":
        assert verdict.since == START_S
        assert verdict.level_ns == pytest.approx(levels_ms[0] * MS)
        assert verdict.usual_ns == pytest.approx(1.2 * MS)


def test_times_below_a_millisecond_stall_nobody() -> None:
    reference = flat_reference(0.01, 5.0)
    assert judge_newest(make_pulses([0.9] * 3), reference, is_stalled=False).state == "usual"
    assert judge_newest(make_pulses([1.1] * 3), reference, is_stalled=False).state == "begins"


def test_pulses_with_a_pause_between_them_decide_nothing() -> None:
    pulses = make_pulses([40, 40, 40])
    paused = replace(pulses, times=pulses.times + np.array([0, 0, 7200]))
    assert judge_newest(paused, flat_reference(1.2, 5.0), is_stalled=False).state == "undecided"


def test_operations_that_do_not_end_are_a_stall_without_a_past() -> None:
    hanging = make_pulses([1400] * 3, ended=False)
    assert judge_newest(hanging, None, is_stalled=False).state == "begins"
    assert judge_newest(hanging, None, is_stalled=True).state == "lasts"
    assert judge_newest(make_pulses([1.2] * 3), None, is_stalled=True).state == "ends"
    # One that ended among them is not the same state.
    mixed = replace(hanging, ended=np.array([False, True, False]))
    assert judge_newest(mixed, None, is_stalled=False).state == "undecided"


def test_stall_ends_when_two_of_three_are_back() -> None:
    reference = flat_reference(1.2, 9.0)  # half of it in ln is a factor of 3
    for levels_ms, state in (([40, 40, 1.2], "lasts"), ([40, 1.2, 1.2], "ends"), ([40, 3.7, 3.7], "lasts")):
        verdict = judge_newest(make_pulses(levels_ms), reference, is_stalled=True)
        assert verdict.state == state
    ended = judge_newest(make_pulses([40, 1.2, 1.2]), reference, is_stalled=True)
    assert ended.since == START_S + 600


def test_weeks_of_rhythm_and_bursts_have_few_messages() -> None:
    """`bench/pulse.py` has years; here nine weeks, the first without any past."""
    outcome = simulated.replay(simulated.simulate_pulses(np.random.default_rng(11), 63))
    assert len(outcome.events) <= 2


@pytest.mark.parametrize("operation", ["stat", "write"])
def test_planted_stall_is_found_within_three_pulses(operation: str) -> None:
    """`stat` takes 40 ms in place of 1.2, a factor of 33, at noon on a Wednesday of the sixth week."""
    pulses = simulated.simulate_pulses(np.random.default_rng(12), 42)
    begin_s = START_S + 37 * DAY_S + 11 * 3600 + 40 * 60
    planted = simulated.plant_stall(pulses, [operation], begin_s, 33.0, 3 * 3600)
    outcome = simulated.replay_from(planted, begin_s)
    found = [time_s for (name, _), time_s in outcome.found.items() if name == operation]
    assert found
    # The third pulse at the latest; each is up to 20 s after its ten minutes.
    assert begin_s <= found[0] <= begin_s + 20 * 60 + 20
    (stall,) = [stall for (name, _), stall in outcome.stalls.items() if name == operation]
    assert stall.began - begin_s <= 20
    assert stall.ended is not None
    assert stall.ended - begin_s == pytest.approx(3 * 3600, abs=1800)
    assert stall.level_ns / (stall.usual_ns or 1) == pytest.approx(33, rel=0.7)
