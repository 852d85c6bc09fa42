"""Which changes belong together."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from iowatch.findings.detection import Step
from iowatch.findings.grouping import group
from iowatch.store import SeriesRow

DAY = 86_400


def on(file_system: str, numbers: range) -> list[SeriesRow]:
    """Series of one file system, half of them reads."""
    return cast(
        "list[SeriesRow]",
        [
            SimpleNamespace(
                id=number,
                metric="bandwidth",
                stack="one",
                partition="compute",
                case=SimpleNamespace(
                    benchmark="ior",
                    parameters={"operation": ("write", "read")[number % 2], "file_system": file_system},
                ),
            )
            for number in numbers
        ],
    )


def rows(n: int) -> list[SeriesRow]:
    return on("scratch", range(n))


def step(night: int, gain: float, suspected: bool = False) -> tuple[Step, ...]:
    """A step between the runs of two nights; `gain` is a logarithm."""
    level: dict[str, Any] = {"before": 1.0, "after": math.exp(gain), "confidence": 0.9}
    return (Step((night - 1) * DAY, night * DAY, math.exp(gain), suspected=suspected, **level),)


def test_small_suspicions_after_a_change_do_not_move_its_date() -> None:
    """Five doubtful series outweigh the one that changed two nights earlier, and are left out as too small."""
    changes = {0: step(8, -0.9), **{n: step(10, -0.2, suspected=True) for n in range(1, 6)}}
    first, second = group(rows(6), changes)
    assert ([m.row.id for m in first.moved], first.first_after) == ([0], 8 * DAY)
    assert (len(second.moved), second.first_after) == (5, 10 * DAY)


def test_a_bad_night_days_after_a_change_is_no_part_of_it() -> None:
    """However deep: the series had good nights between, and one such member spoils the common factor."""
    changes = {0: step(8, -0.4), 1: step(8, -0.4), 2: step(11, -0.9, suspected=True)}
    first, second = group(rows(3), changes)
    assert (first.series_ids, second.series_ids) == (frozenset({0, 1}), frozenset({2}))


@pytest.mark.parametrize("apart", [2, 3, 4])
def test_two_events_within_days_are_two_groups(apart: int) -> None:
    """scratch1 halves on night 8, scratch2 loses a third some nights later; one series of it is misdated."""
    both = [*on("scratch1", range(20)), *on("scratch2", range(20, 40))]
    changes = {n: step(8, -0.7) for n in range(20)} | {n: step(8 + apart, -0.35) for n in range(20, 39)}
    changes[39] = step(7 + apart, -0.4)
    first, second = group(both, changes)
    assert (first.first_after, second.first_after) == (8 * DAY, (8 + apart) * DAY)
    assert (first.series_ids, second.series_ids) == (frozenset(range(20)), frozenset(range(20, 40)))


def test_dates_that_scatter_are_one_event() -> None:
    """Detection dates some steps of one event a night or two off; those have nothing in common."""
    both = [*on("scratch1", range(10)), *on("scratch2", range(10, 20))]
    changes = {n: step(8 + (n % 3 == 0) * 2 - (n % 7 == 0), -0.5) for n in range(20)}
    assert [len(one.moved) for one in group(both, changes)] == [20]


def test_neighbouring_nights_are_one_event() -> None:
    """All writes are dated a night later than all reads: a bad night of the writes looks like that."""
    changes = {n: step(8 + n % 2, -0.5) for n in range(20)}
    assert [len(one.moved) for one in group(rows(20), changes)] == [20]
