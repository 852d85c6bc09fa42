"""Events whose series later sessions do not measure: a file system that is gone, suites that run seldom."""

from __future__ import annotations

from datetime import timedelta

import pytest

from iowatch.demo.scenarios import Scenario
from iowatch.output.text.decisions import format_resolution
from iowatch.output.text.losses import format_outlook
from tests.findings.conftest import STEP, RecordAndUpdate, level, scenario_of, slower_mpiio

# The session of one night that measures the series of the event, then those of six nights that do not.
EVERY_WEEK = tuple(
    (day, measured, "suspected") for week in range(7, 42, 7) for day, measured in ((week, False), (week + 1, True))
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sessions", "ends"),
    [
        (((2, False, "suspected"), (26, False, "suspected"), (27, True, "suspected"), (32, True, "open")), None),
        ((*EVERY_WEEK, (42, False, "suspected"), (43, True, "open")), None),
        (
            ((10, False, "suspected"), (12, False, "suspected"), (28, False, "suspected"), (33, False, "resolved")),
            "not confirmed by later sessions",
        ),
    ],
    ids=["a pause", "every week", "never again"],
)
def test_event_whose_series_are_not_measured_is_not_over(
    record_and_update: RecordAndUpdate, sessions: tuple[tuple[int, bool, str], ...], ends: str | None
) -> None:
    """Neither a file system that is gone after an event nor sessions of another suite end it, but a month does.

    Args:
        sessions: up to which day after the event, whether they measure its series, and the state of the event then.
    """
    scenario = slower_mpiio(last=STEP + timedelta(days=60))
    others = scenario_of(*(one for one in scenario.series if one.parameters["api"] != "MPIIO"))
    (first,) = record_and_update(scenario, STEP + timedelta(days=1), None)
    since = 2
    for until, are_measured, expected in sessions:
        found = record_and_update(
            scenario if are_measured else others, STEP + timedelta(days=until), STEP + timedelta(days=since)
        )
        since = until + 1
        (same,) = [f for f in found if f.id == first.id]
        assert (until, same.state) == (until, expected)
        if expected == "suspected":
            assert same.probability_lasting is not None  # on which the exit code depends
        if until == 10:
            assert format_outlook(same).startswith("session 10 since 10 Feb 2025 (its series were measured in 1); ")
    assert (format_resolution(same) or None) == ends


def back_after(days: int) -> tuple[Scenario, Scenario]:
    """MPI-IO loses half of its bandwidth on STEP for some days; and the same without MPI-IO."""
    last = STEP + timedelta(days=60)
    others = [level(api, op) for api in ("POSIX", "HDF5", "NETCDF4") for op in ("write", "read")]
    back = STEP + timedelta(days=days)
    falling = [level("MPIIO", operation, (STEP, 0.5), (back, 2.0)) for operation in ("write", "read")]
    return scenario_of(*falling, *others, last=last), scenario_of(*others, last=last)


def test_series_that_returned_before_a_session_of_another_suite_are_back(record_and_update: RecordAndUpdate) -> None:
    """The newest session does not measure them; the one before did."""
    scenario, others = back_after(2)
    (first,) = record_and_update(scenario, STEP + timedelta(days=2), None)
    assert first.state == "suspected"
    for days in range(3, 17, 2):
        record_and_update(scenario, day := STEP + timedelta(days=days), day, update=False)
        found = record_and_update(others, day := STEP + timedelta(days=days + 1), day)
        assert [format_resolution(f) for f in found if f.id == first.id] == ["transient: back after at most 2 sessions"]
        assert not any(f.needs_action for f in found)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("every", [7, 14])
def test_the_end_of_an_event_of_a_rare_suite_is_no_new_event(record_and_update: RecordAndUpdate, every: int) -> None:
    scenario, others = back_after(1)
    (first,) = record_and_update(scenario, STEP + timedelta(days=1), None)
    for days in range(every, 3 * every + 1, every):
        record_and_update(others, STEP + timedelta(days=days), STEP + timedelta(days=days - every + 2))
        found = record_and_update(scenario, day := STEP + timedelta(days=days + 1), day)
        assert [format_resolution(f) for f in found if f.id == first.id] == ["transient: back after at most 1 session"]
        assert not any(f.needs_action for f in found)


@pytest.mark.slow
def test_event_of_a_suite_that_runs_every_second_week_stays_until_it_is_confirmed(
    record_and_update: RecordAndUpdate,
) -> None:
    scenario, others = back_after(60)
    (first,) = record_and_update(scenario, STEP + timedelta(days=1), None)
    for days in range(14, 43, 14):
        record_and_update(others, STEP + timedelta(days=days), STEP + timedelta(days=days - 12))
        found = record_and_update(scenario, day := STEP + timedelta(days=days + 1), day)
        assert [f.state for f in found if f.id == first.id] == ["suspected"]
