"""Which group of changes is which finding of before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from iowatch.findings import Finding
from iowatch.findings.grouping import ChangeGroup, match_findings, new_finding_id

DAY = 86_400


def changed(*series: int, night: int, before: int | None = None) -> ChangeGroup:
    """A loss of some series on a night, after a run on the night `before` (the one before it by default)."""
    moved = tuple(SimpleNamespace(row=SimpleNamespace(id=number)) for number in series)
    last = (night - 1 if before is None else before) * DAY
    return ChangeGroup("down", cast("Any", moved), last, night * DAY)


def known(group: ChangeGroup, **facts: Any) -> Finding:
    """The finding that a group was before."""
    told = {
        "id": "known",
        "state": "open",
        "direction": group.direction,
        "last_before": group.last_before,
        "first_after": group.first_after,
        "anchor": group.first_after,
        "missed_since": None,
        "resolution": None,
        "members": [SimpleNamespace(series_id=m.row.id) for m in group.changes],
    }
    return cast("Finding", SimpleNamespace(**(told | facts)))


def test_both_ends_of_a_pause_are_one_event() -> None:
    """Edison did not run from 17 July to 4 August 2017: what changed was dated to the one, then the other."""
    before, after = changed(1, 2, night=10), changed(1, 2, night=28, before=10)
    assert match_findings([after], [known(before)])
    assert match_findings([before], [known(after)])
    assert match_findings([after], [known(after, anchor=before.first_after)])


@pytest.mark.parametrize(("nights", "same"), [(1, True), (5, True), (7, False)])
def test_a_date_may_settle_but_not_wander(nights: int, same: bool) -> None:
    first = known(changed(1, night=10))
    moved = known(changed(1, night=9 + nights), anchor=first.anchor)
    assert bool(match_findings([changed(1, night=10 + nights)], [first])) is same
    assert bool(match_findings([changed(1, night=10 + nights)], [moved])) is same


def test_of_two_nights_each_keeps_its_finding() -> None:
    one, other = changed(1, 2, night=10), changed(1, 2, night=11)
    findings = [known(other, id="second"), known(one, id="first")]
    assert {p: f.id for p, f in match_findings([one, other], findings).items()} == {0: "first", 1: "second"}


@pytest.mark.parametrize("missed", [None, 12 * DAY])
def test_what_was_dismissed_silences_no_other_series(missed: int | None) -> None:
    dismissed = known(changed(1, 2, night=10), state="dismissed", missed_since=missed)
    assert match_findings([changed(3, 4, night=13)], [dismissed]) == {}


def test_what_was_dismissed_and_is_gone_does_not_silence_the_next_event() -> None:
    """A bad spell was dismissed and passed; four nights later the same series change for good."""
    gone = known(changed(1, 2, night=10), state="dismissed", missed_since=13 * DAY)
    assert match_findings([changed(1, 2, night=14)], [gone]) == {}
    assert match_findings([changed(1, 2, night=11)], [gone])


def test_the_finding_that_shares_most_series_is_the_same_event() -> None:
    """The other one is nearer in time, and shares a single series."""
    far = known(changed(1, 2, 3, night=8), id="far")
    near = known(changed(3, 4, night=10), id="near")
    assert {p: f.id for p, f in match_findings([changed(1, 2, 3, night=10)], [near, far]).items()} == {0: "far"}


@pytest.mark.parametrize(
    ("taken", "name"),
    [
        (set(), "franklin-19700111-down"),
        ({"franklin-19700111-up"}, "franklin-19700111-down"),
        ({"franklin-19700111-down"}, "franklin-19700111-down-2"),
        ({"franklin-19700111-down", "franklin-19700111-down-2"}, "franklin-19700111-down-3"),
    ],
)
def test_a_finding_is_named_by_the_day_of_its_first_run_and_numbered_from_two(taken: set[str], name: str) -> None:
    """Night 10 of 1970 is 11 January."""
    assert new_finding_id("franklin", changed(1, night=10), taken) == name
