"""Which changes belong together."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

from iowatch.findings.detection import Step
from iowatch.findings.grouping import group
from iowatch.store import SeriesRow

DAY = 86_400


def rows(n: int) -> list[SeriesRow]:
    return cast("list[SeriesRow]", [SimpleNamespace(id=number, metric="bandwidth") for number in range(n)])


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
