"""Every kind of event has a reach for the ranking of likely causes."""

from __future__ import annotations

from typing import get_args

from iowatch.findings.build import REACH_BY_KIND
from iowatch.reference.events import EventKind


def test_every_event_kind_has_a_reach() -> None:
    assert set(REACH_BY_KIND) == set(get_args(EventKind))
