"""Value against level: a share, or nothing where a count is 0."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iowatch.dashboard.levels import gain
from iowatch.metrics import METRICS


@pytest.mark.parametrize(
    ("metric", "value", "level", "expected"),
    [
        ("bandwidth", 200.0, 100.0, 2.0),
        ("time", 200.0, 100.0, 0.5),
        # Darshan's counts are 0 where a backend makes no such call: MPI-IO writes nothing independently.
        ("independent_count", 0.0, 0.0, None),
        ("independent_count", 7.0, 0.0, None),
    ],
)
def test_gain_is_performance_or_nothing(
    metric: str, value: float, level: float, expected: float | None
) -> None:
    series: Any = SimpleNamespace(metric=METRICS[metric])
    assert gain(series, value, level) == expected
