"""Which group of changes is which finding of before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from iowatch.findings import Finding
from iowatch.findings.grouping import Group
from iowatch.findings.identity import match

DAY = 86_400


def changed(*series: int, night: int, before: int | None = None) -> Group:
    """A loss of some series on a night, after a run on the night `before` (the one before it by default)."""
    moved = tuple(SimpleNamespace(row=SimpleNamespace(id=number)) for number in series)
    last = (night - 1 if before is None else before) * DAY
    return Group("down", cast("Any", moved), last, night * DAY)


def known(group: Group, **facts: Any) -> Finding:
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
        "members": [SimpleNamespace(series_id=m.row.id) for m in group.moved],
    }
    return cast("Finding", SimpleNamespace(**(told | facts)))


def test_both_ends_of_a_pause_are_one_event() -> None:
    """Edison did not run from 17 July to 4 August 2017: what changed was dated to the one, then the other."""
    before, after = changed(1, 2, night=10), changed(1, 2, night=28, before=10)
    assert match([after], [known(before)])
    assert match([before], [known(after)])
    assert match([after], [known(after, anchor=before.first_after)])


@pytest.mark.parametrize(("nights", "same"), [(1, True), (5, True), (7, False)])
def test_a_date_may_settle_but_not_wander(nights: int, same: bool) -> None:
    first = known(changed(1, night=10))
    moved = known(changed(1, night=9 + nights), anchor=first.anchor)
    assert bool(match([changed(1, night=10 + nights)], [first])) is same
    assert bool(match([changed(1, night=10 + nights)], [moved])) is same


def test_of_two_nights_each_keeps_its_finding() -> None:
    one, other = changed(1, 2, night=10), changed(1, 2, night=11)
    findings = [known(other, id="second"), known(one, id="first")]
    assert {p: f.id for p, f in match([one, other], findings).items()} == {0: "first", 1: "second"}


@pytest.mark.parametrize("missed", [None, 12 * DAY])
def test_what_was_dismissed_silences_no_other_series(missed: int | None) -> None:
    dismissed = known(changed(1, 2, night=10), state="dismissed", missed_since=missed)
    assert match([changed(3, 4, night=13)], [dismissed]) == {}


def test_what_was_dismissed_and_is_gone_does_not_silence_the_next_event() -> None:
    """A bad spell was dismissed and passed; four nights later the same series change for good."""
    gone = known(changed(1, 2, night=10), state="dismissed", missed_since=13 * DAY)
    assert match([changed(1, 2, night=14)], [gone]) == {}
    assert match([changed(1, 2, night=11)], [gone])
