"""Comparison of two sides (stacks, periods, systems, published tables) and of the values of a parameter (advice)."""

from typing import TYPE_CHECKING

from iowatch.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from iowatch.comparison.outcome import (
        ComparisonOptions,
        ComparisonProvenance,
        Outcome,
        SideProvenance,
        compare_sides,
        describe_entry,
    )
    from iowatch.comparison.sides import SideEntry, SideSpec, parse_side
else:
    __getattr__ = lazy_names(__name__)
