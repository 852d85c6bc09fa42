"""Which pulses are usual, which stalls are one event, and when a lasting stall becomes the usual level."""

from __future__ import annotations

import numpy as np
import pytest

from iowatch.pulse.assess import update_stalls, usual_pulses
from iowatch.pulse.store import Level, Stall
from iowatch.statistics.stalls import Pulses, StallVerdict
from tests.pulse.simulated import DAY_S, START_S

HOUR_S = 3600
NOW_S = START_S + 20 * DAY_S


def make_stall(began: int, ended: int | None = None, operation: str = "stat", **fields: object) -> Stall:
    how_ended = None if ended is None else "usual again"
    values = {"event": began, "usual_ns": 1_200_000, "level_ns": 40_000_000, "outcome": "completed"}
    return Stall(operation, began, **{**values, "ended": ended, "how_ended": how_ended, **fields})  # type: ignore[arg-type]


def slow_rows(operation: str) -> dict[str, list[Level]]:
    times = (NOW_S - 1200, NOW_S - 600, NOW_S)
    return {operation: [Level(time_s, operation, 40_000_000, "completed", "", False) for time_s in times]}


BEGINS = StallVerdict("begins", NOW_S - 1200, 40e6, 1.2e6)


@pytest.mark.parametrize(
    ("ended", "is_same_event"),
    [
        (None, True),  # another operation is stalled
        (NOW_S - HOUR_S, True),  # it stalls again and again
        (NOW_S - HOUR_S - 600, False),
    ],
)
def test_stalls_that_overlap_or_follow_each_other_are_one_event(ended: int | None, is_same_event: bool) -> None:
    earlier = make_stall(NOW_S - 6 * HOUR_S, ended)
    changes = update_stalls([earlier], {"open": BEGINS}, slow_rows("open"), NOW_S)
    (begun,) = changes.begun
    assert (begun.operation, begun.began) == ("open", NOW_S - 1200)
    assert begun.event == (earlier.event if is_same_event else begun.began)
    assert {stall.operation for stall in changes.lasting} == ({"stat", "open"} if ended is None else {"open"})


def test_stall_of_two_weeks_is_the_new_usual_level() -> None:
    lasts = {"stat": StallVerdict("lasts", NOW_S - 1200, 40e6, 1.2e6)}
    fresh, old = make_stall(NOW_S - 14 * DAY_S + 1), make_stall(NOW_S - 14 * DAY_S)
    assert update_stalls([fresh], lasts, slow_rows("stat"), NOW_S).ended == ()
    (ended,) = update_stalls([old], lasts, slow_rows("stat"), NOW_S).ended
    assert (ended.ended, ended.how_ended) == (NOW_S, "new usual level")
    # What does not end is never usual.
    hanging = make_stall(NOW_S - 14 * DAY_S, outcome="unfinished")
    assert update_stalls([hanging], lasts, slow_rows("stat"), NOW_S).ended == ()


def days_of(stalls: list[Stall]) -> set[int]:
    """Days of 20, with one pulse at noon each, that are usual."""
    times = START_S + DAY_S * np.arange(20) + DAY_S // 2
    pulses = Pulses(times, np.zeros(20, dtype=np.int64), np.full(20, 1.2e6), np.ones(20, dtype=bool))
    return set(((usual_pulses(pulses, stalls, NOW_S).times - START_S) // DAY_S).tolist())


def test_long_stalls_are_not_usual_and_short_ones_are() -> None:
    everything = set(range(20))
    assert days_of([]) == everything
    day_5, day_8 = START_S + 5 * DAY_S, START_S + 8 * DAY_S
    assert days_of([make_stall(day_5, day_8)]) == everything - {5, 6, 7}
    assert days_of([make_stall(day_5, day_5 + DAY_S)]) == everything
    assert days_of([make_stall(day_5)]) == set(range(5))
    # After a new usual level what was before is not.
    assert days_of([make_stall(day_5, NOW_S, how_ended="new usual level")]) == everything - set(range(5))
