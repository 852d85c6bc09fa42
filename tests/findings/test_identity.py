"""Matching of groups of changes with known findings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iowatch.findings import Finding
from iowatch.findings.grouping import ChangeGroup, match_findings, new_finding_id
from tests.builders import (
    build_change_point,
    build_finding,
    build_member,
    build_panel_event,
    build_series_change,
    build_series_row,
)

DAY = 86_400


def changed(*series: int, day: int, before: int | None = None, suspected: bool = False) -> ChangeGroup:
    """A loss of some series on a day, after a run on the day `before` (default: the day before)."""
    last_before = (day - 1 if before is None else before) * DAY
    change = build_change_point(day * DAY, last_before=last_before, suspected=suspected)
    changes = tuple(build_series_change(build_series_row(number), change) for number in series)
    return ChangeGroup(changes, last_before, day * DAY)


def known(group: ChangeGroup, **facts: Any) -> Finding:
    """The known finding of a group; `facts` as for the builder."""
    members = [build_member(change.row.id) for change in group.changes]
    return build_finding(*members, last_before=group.last_before, first_after=group.first_after, **facts)


def test_changes_at_both_ends_of_a_pause_are_one_event() -> None:
    """Edison did not run from 17 July to 4 August 2017: the change was dated to the one end, then to the other."""
    before, after = changed(1, 2, day=10), changed(1, 2, day=28, before=10)
    assert match_findings([after], [known(before)])
    assert match_findings([before], [known(after)])
    assert match_findings([after], [known(after, anchor=before.first_after)])


@pytest.mark.parametrize(("days", "same"), [(1, True), (5, True), (7, False)])
def test_date_of_a_finding_may_change_only_by_a_few_days(days: int, same: bool) -> None:
    first = known(changed(1, day=10))
    moved = known(changed(1, day=9 + days), anchor=first.anchor)
    assert bool(match_findings([changed(1, day=10 + days)], [first])) is same
    assert bool(match_findings([changed(1, day=10 + days)], [moved])) is same


@pytest.mark.parametrize(("day", "same"), [(10, True), (11, True), (12, False), (13, False)])
def test_bad_sessions_of_one_week_are_different_events(day: int, same: bool) -> None:
    """What only the newest sessions show continues a finding of its date or of the session beside it."""
    event = build_panel_event({1: -0.5, 2: -0.5}, day * DAY)
    newest = replace(changed(1, 2, day=day, suspected=True), event=event)
    assert bool(match_findings([newest], [known(changed(1, 2, day=10))])) is same


def test_groups_of_consecutive_days_keep_their_findings() -> None:
    one, other = changed(1, 2, day=10), changed(1, 2, day=11)
    findings = [known(other, id="second"), known(one, id="first")]
    assert {p: f.id for p, f in match_findings([one, other], findings).items()} == {0: "first", 1: "second"}


@pytest.mark.parametrize("missed", [None, 12 * DAY])
def test_dismissed_finding_does_not_match_other_series(missed: int | None) -> None:
    dismissed = known(changed(1, 2, day=10), state="dismissed", missed_since=missed)
    assert match_findings([changed(3, 4, day=13)], [dismissed]) == {}


def test_dismissed_and_ended_finding_does_not_match_the_next_event() -> None:
    """A transient was dismissed and ended; four days later the same series have a lasting change."""
    ended = known(changed(1, 2, day=10), state="dismissed", missed_since=13 * DAY)
    assert match_findings([changed(1, 2, day=14)], [ended]) == {}
    assert match_findings([changed(1, 2, day=11)], [ended])


def test_group_matches_the_finding_with_most_common_series() -> None:
    """The other finding is nearer in time, but shares only one series."""
    far = known(changed(1, 2, 3, day=8), id="far")
    near = known(changed(3, 4, day=10), id="near")
    assert {p: f.id for p, f in match_findings([changed(1, 2, 3, day=10)], [near, far]).items()} == {0: "far"}


@pytest.mark.parametrize(
    ("taken", "name"),
    [
        (set(), "franklin-19700111-down"),
        ({"franklin-19700111-up"}, "franklin-19700111-down"),
        ({"franklin-19700111-down"}, "franklin-19700111-down-2"),
        ({"franklin-19700111-down", "franklin-19700111-down-2"}, "franklin-19700111-down-3"),
    ],
)
def test_finding_id_is_the_day_of_its_first_run_with_a_number_from_two(taken: set[str], name: str) -> None:
    """Day 10 of 1970 (from 0) is 11 January."""
    assert new_finding_id("franklin", changed(1, day=10), None, taken) == name


def test_id_of_a_pattern_fits_into_the_column_of_the_history() -> None:
    """The column has 40 characters, and a number may follow."""
    name = new_finding_id("a-system-with-a-very-long-name", changed(1, day=10), "repetitions", set())
    assert name.endswith("-19700111-repetitions")
    assert len(name) <= 36


def gains_and_losses(*gains: float) -> ChangeGroup:
    """Changes of that many series on day 10."""
    changes = []
    for number, gain in enumerate(gains):
        changes.append(build_series_change(build_series_row(number), build_change_point(10 * DAY, gain)))
    return ChangeGroup(tuple(changes), 9 * DAY, 10 * DAY)


@pytest.mark.parametrize(
    ("gains", "direction", "name"),
    [
        # 4 up and 4 down: the gains are larger (ln 3 against ln 2), the id states the loss.
        ((3.0,) * 4 + (0.5,) * 4, "up", "franklin-19700111-down"),
        ((3.0,) * 4 + (0.1,) * 4, "down", "franklin-19700111-down"),
        ((3.0,) * 4, "up", "franklin-19700111-up"),
    ],
)
def test_id_states_a_loss_also_where_the_gains_are_larger(gains: tuple[float, ...], direction: str, name: str) -> None:
    group = gains_and_losses(*gains)
    assert (group.direction, new_finding_id("franklin", group, None, set())) == (direction, name)


@pytest.mark.parametrize(("day", "same"), [(10, True), (11, False), (12, False)])
def test_newest_change_of_other_series_continues_a_finding_of_its_session_only(day: int, same: bool) -> None:
    """A suspicion of series 1 and 2; what only the newest sessions show of series 3 on a later day is another event."""
    other = changed(3, day=day, suspected=True)
    assert bool(match_findings([other], [known(changed(1, 2, day=10))])) is same


@pytest.mark.parametrize(("gain", "same"), [(0.25, True), (0.1, False)])
def test_far_larger_newest_change_of_the_next_session_is_another_event(gain: float, same: bool) -> None:
    """The finding of series 1 is a half; three times as much (of the logarithm) is an eighth."""
    change = build_change_point(11 * DAY, gain, suspected=True)
    group = ChangeGroup((build_series_change(build_series_row(1), change),), 10 * DAY, 11 * DAY)
    first = known(changed(1, day=10))
    first = replace(first, members=tuple(replace(member, first_after=10 * DAY) for member in first.members))
    assert bool(match_findings([group], [first])) is same
