"""Comparison of two sides (stacks, periods, systems, published tables) and of the values of a parameter (advice)."""

from iowatch.comparison.outcome import (
    ComparisonOptions,
    ComparisonProvenance,
    Outcome,
    SideProvenance,
    compare_sides,
    describe_entry,
)
from iowatch.comparison.sides import SideEntry, SideSpec, parse_side
