"""The command line offers the kinds of events that the files may have; it names them itself to start fast."""

from __future__ import annotations

from typing import get_args

from iowatch.cli.commands.event import _KINDS
from iowatch.events.model import Kind
from iowatch.explain import REACH


def test_kinds_of_events_are_the_same_everywhere() -> None:
    assert get_args(Kind) == _KINDS
    assert set(REACH) == set(_KINDS)
