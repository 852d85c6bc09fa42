"""Comparison of the same cases on two sides: pure statistics, records in, records out.

`ratio` is always right / left. "faster" and "slower" speak of right relative to left, whichever direction is
better for the metric. docs/comparison.md describes the method.
"""

from iowatch.compare.pairs import compare
from iowatch.compare.records import (
    Comparison,
    Measured,
    Overall,
    Pair,
    Peak,
    Printed,
    ScalingPoint,
    Settings,
    Side,
    SideSummary,
)

__all__ = [
    "Comparison",
    "Measured",
    "Overall",
    "Pair",
    "Peak",
    "Printed",
    "ScalingPoint",
    "Settings",
    "Side",
    "SideSummary",
    "compare",
]
