"""Grouping of changes into events."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from iowatch.findings.grouping import ChangeGroup, compare_around_date, group_changes, make_member
from iowatch.statistics import ChangePoint, SeriesResponse
from iowatch.store import SeriesPoints, SeriesRow
from tests.builders import build_case, build_change_point, build_points, build_series_row

DAY = 86_400


def on(file_system: str, numbers: range) -> list[SeriesRow]:
    """Series of one file system, half of them reads."""
    rows: list[SeriesRow] = []
    for number in numbers:
        case = build_case(operation=("write", "read")[number % 2], file_system=file_system)
        rows.append(build_series_row(number, system="none", case=case))
    return rows


def rows(n: int) -> list[SeriesRow]:
    return on("scratch", range(n))


def step(
    day: int, gain: float, suspected: bool = False, before: int | None = None, confidence: float = 0.9
) -> tuple[ChangePoint, ...]:
    """A step between the runs of the days `before` (default: the day before) and `day`; `gain` is a logarithm."""
    change = build_change_point(
        day * DAY,
        math.exp(gain),
        last_before=None if before is None else before * DAY,
        before=1.0,
        confidence=confidence,
        observations=7,
        suspected=suspected,
    )
    return (change,)


def test_gains_and_losses_of_one_day_are_one_event() -> None:
    """The direction is that of most of the change: 2 x 0.9 against 3 x 0.3, then 3 x 0.7 (logarithms)."""
    (found,) = group_changes(rows(5), {n: step(8, -0.9 if n % 2 else 0.3) for n in range(5)})
    assert (found.direction, [m.row.id for m in found.main]) == ("down", [1, 3])
    assert [m.row.id for m in found.opposite] == [0, 2, 4]
    (found,) = group_changes(rows(5), {n: step(8, -0.9 if n % 2 else 0.7) for n in range(5)})
    assert found.direction == "up"
    # 1.8 down against 2.1 up: the direction of a known finding stays; against 3.0 up it does not.
    assert replace(found, known_direction="down").direction == "down"
    (found,) = group_changes(rows(5), {n: step(8, -0.9 if n % 2 else 1.0) for n in range(5)})
    assert replace(found, known_direction="down").direction == "up"


def test_series_that_returns_after_three_days_has_two_events() -> None:
    """The same series down and up again: two events, however near."""
    both = (*step(8, -0.5), *step(11, 0.5))
    first, second = group_changes(rows(4), dict.fromkeys(range(4), both))
    assert [(g.direction, g.first_after) for g in (first, second)] == [("down", 8 * DAY), ("up", 11 * DAY)]


@pytest.mark.parametrize(("gain", "confidence", "day"), [(0.12, 0.83, 11), (-0.9, 0.999, 8)])
def test_weak_change_in_a_pause_does_not_date_the_event(gain: float, confidence: float, day: int) -> None:
    """Cori, August 2017: five series without runs from day 7 to 11 changed by much; one measured meanwhile by x1.13.

    The date is the first session after the pause, unless the series measured in it shows as much as the others.
    """
    changes = {n: step(11, -0.9, before=7, confidence=0.999) for n in range(1, 6)}
    changes[0] = step(8, gain, confidence=confidence)
    if day == 8:
        changes |= {n: step(8, gain, confidence=confidence) for n in range(6, 12)}
    (found,) = group_changes(rows(12), changes)
    assert (found.first_after, found.series_ids) == (day * DAY, frozenset(changes))


def test_small_suspected_changes_do_not_redate_a_change() -> None:
    """Five suspected series do not redate the one that changed two days earlier; they are too small to join it."""
    changes = {0: step(8, -0.9), **{n: step(10, -0.2, suspected=True) for n in range(1, 6)}}
    first, second = group_changes(rows(6), changes)
    assert ([m.row.id for m in first.changes], first.first_after) == ([0], 8 * DAY)
    assert (len(second.changes), second.first_after) == (5, 10 * DAY)


def test_outlier_days_after_a_change_is_a_separate_group() -> None:
    """Independent of its size: the series has inliers in between, and such a member would change the common factor."""
    changes = {0: step(8, -0.4), 1: step(8, -0.4), 2: step(11, -0.9, suspected=True)}
    first, second = group_changes(rows(3), changes)
    assert (first.series_ids, second.series_ids) == (frozenset({0, 1}), frozenset({2}))


@pytest.mark.parametrize("apart", [2, 3, 4])
def test_two_events_within_days_are_two_groups(apart: int) -> None:
    """scratch1 halves on day 8, scratch2 loses a third some days later; one series of it is misdated."""
    both = [*on("scratch1", range(20)), *on("scratch2", range(20, 40))]
    changes = {n: step(8, -0.7) for n in range(20)} | {n: step(8 + apart, -0.35) for n in range(20, 39)}
    changes[39] = step(7 + apart, -0.4)
    first, second = group_changes(both, changes)
    assert (first.first_after, second.first_after) == (8 * DAY, (8 + apart) * DAY)
    assert (first.series_ids, second.series_ids) == (frozenset(range(20)), frozenset(range(20, 40)))


def test_changes_with_scattered_dates_are_one_event() -> None:
    """Detection dates some steps of one event one or two days off; these have no common factor."""
    both = [*on("scratch1", range(10)), *on("scratch2", range(10, 20))]
    changes = {n: step(8 + (n % 3 == 0) * 2 - (n % 7 == 0), -0.5) for n in range(20)}
    assert [len(one.changes) for one in group_changes(both, changes)] == [20]


def test_changes_of_consecutive_days_are_one_event() -> None:
    """All writes are dated one day later than all reads, for example because of an outlier of the writes."""
    changes = {n: step(8 + n % 2, -0.5) for n in range(20)}
    assert [len(one.changes) for one in group_changes(rows(20), changes)] == [20]


def test_suspected_change_of_half_the_typical_size_joins_the_group() -> None:
    """Confirmed changes of 0.3, 0.3 and 0.9 (logarithms): suspected ones of 0.2 belong to them, not of 0.1."""
    changes = {0: step(8, -0.3), 1: step(8, -0.3), 2: step(8, -0.9)}
    changes |= {3: step(8, -0.2, suspected=True), 4: step(8, -0.1, suspected=True)}
    assert [one.series_ids for one in group_changes(rows(5), changes)] == [frozenset(range(4)), frozenset({4})]


def test_runs_of_one_session_are_one_event() -> None:
    """Series 0 changed by its run at 02:00; series 1, 04:00 still at the old level, by its run at 06:00."""
    hour = 3600
    early = build_change_point(8 * DAY + 2 * hour, last_before=7 * DAY + 2 * hour)
    late = build_change_point(8 * DAY + 6 * hour, last_before=8 * DAY + 4 * hour)
    (found,) = group_changes(rows(2), {0: (early,), 1: (late,)})
    assert (found.last_before, found.first_after) == (8 * DAY + 4 * hour, 8 * DAY + 6 * hour)


def test_group_is_dated_by_the_first_run_at_the_new_level() -> None:
    """Series 0 changed with the run of day 8, when series 1 still had its old level: series 0 dates the event."""
    (found,) = group_changes(rows(2), {0: step(8, -0.9), 1: step(9, -0.4)})
    assert found.series_ids == {0, 1}
    assert (found.last_before, found.first_after) == (7 * DAY, 8 * DAY)


CHANGED = 60


def grouped(
    values: list[float],
    *steps: tuple[int, float],
    metric: str = "bandwidth",
    gain: float = -0.7,
    absent: int | None = None,
) -> tuple[ChangeGroup, list[SeriesRow], dict[int, tuple[ChangePoint, ...]], dict[int, SeriesPoints]]:
    """A series of one value per day, and one that changed by `gain` on day 60; `steps` are the changes of the first.

    Neither has a run on the day `absent`; the id of a run is its time.
    """
    row = build_series_row(0, case=build_case(api="MPIIO"), metric=metric)
    other = build_series_row(1, case=build_case(api="POSIX"), metric=metric)
    changes = {0: step(CHANGED, gain), 1: tuple(one for day, size in steps for one in step(day, size))}
    kept = np.arange(len(values)) != absent
    days, measured = (np.arange(len(values)) * DAY)[kept], np.asarray(values)[kept]
    points = {n: build_points(measured, series_id=n, times=days, run_ids=days) for n in (0, 1)}
    (found,) = (one for one in group_changes([row, other], changes) if one.first_after == CHANGED * DAY)
    return found, [row, other], changes, points


def compared(*args: Any, **kwargs: Any) -> tuple[list[SeriesResponse], int]:
    """The series of `grouped` across the date: their responses, and the number of unconfirmed changes."""
    found = compare_around_date(*grouped(*args, **kwargs))
    return [*found.main, *found.opposite, *found.unchanged], found.changed_otherwise


def levels(*parts: tuple[int, float]) -> list[float]:
    return [value for count, value in parts for _ in range(count)]


@pytest.mark.parametrize(
    ("values", "steps"),
    [
        # Only the 30 observations next to the date are compared: a slow rise before them is no change at the date.
        (levels((30, 500.0), (60, 1000.0)), ()),
        (levels((90, 1000.0), (30, 500.0)), ()),
        # Nor are observations beyond the neighbouring changes of the series.
        (levels((40, 250.0), (10, 500.0), (40, 1000.0)), ((40, 0.7), (50, 0.7))),
        (levels((70, 1000.0), (30, 400.0)), ((70, -0.9),)),
    ],
)
def test_unchanged_series_is_compared_by_its_levels_next_to_the_date(
    values: list[float], steps: tuple[tuple[int, float], ...]
) -> None:
    responses, _ = compared(values, *steps)
    assert [(o.changed, o.log_ratio) for o in responses] == [(True, pytest.approx(-0.7)), (False, pytest.approx(0.0))]


@pytest.mark.parametrize("metric", ["bandwidth", "time"])
@pytest.mark.parametrize(("gain", "own", "unsure"), [(-0.7, -0.5, 1), (-0.7, 0.5, 0), (0.7, 0.5, 1), (0.7, -0.5, 0)])
def test_series_with_an_unconfirmed_change_is_not_reported_as_unchanged(
    metric: str, gain: float, own: float, unsure: int
) -> None:
    """By more than half of the event's size; `gain` and `own` are logarithms of the metric's values."""
    responses, moved = compared(levels((CHANGED, 1000.0), (30, 1000.0 * math.exp(own))), metric=metric, gain=gain)
    assert (moved, len(responses)) == (unsure, 2 - unsure)


@pytest.mark.parametrize(
    ("absent", "runs"),
    [
        (None, ((CHANGED - 1) * DAY, CHANGED * DAY)),
        # A change of an earlier update may be dated to runs that are no longer observations.
        (CHANGED - 1, (None, CHANGED * DAY)),
        (CHANGED, ((CHANGED - 1) * DAY, None)),
    ],
)
def test_member_refers_to_the_runs_around_its_change(absent: int | None, runs: tuple[int | None, int | None]) -> None:
    group, _, _, points = grouped(levels((90, 1000.0)), absent=absent)
    member = make_member(group.changes[0], points[group.changes[0].row.id], "one")
    assert (member.run_before, member.run_after) == runs
