"""Comparison of two sides (stacks, periods, systems, published tables) and of the values of a parameter (advice)."""

from typing import TYPE_CHECKING

from iowatch.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from iowatch.comparison.outcome import (
        ComparisonOptions,
        ComparisonProvenance,
        GatheredSides,
        Outcome,
        SideProvenance,
        compare_gathered_sides,
        compare_sides,
        describe_entry,
    )
    from iowatch.comparison.sides import (
        SIDE_KINDS,
        SideEntries,
        SideEntry,
        SideSpec,
        gather_entries,
        parse_side,
        session_labels,
    )
else:
    __getattr__ = lazy_names(__name__)
