"""Comparison of two sides (stacks, periods, systems, published tables): which cases match, and the outcome."""

from iowatch.comparison.outcome import (
    ComparisonOptions,
    ComparisonProvenance,
    Outcome,
    SideProvenance,
    compare_sides,
    describe_entry,
)
from iowatch.comparison.sides import SideEntry, SideSpec, parse_side
