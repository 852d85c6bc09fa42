"""Comparison of two sides (stacks, periods, systems, published tables) and of the values of a parameter (advice)."""

from iowatch.comparison.advice import (
    FAMILY_ERROR,
    MIN_SESSIONS,
    Advice,
    AdvicePart,
    ChoiceAdvice,
    ValueComparison,
    advise,
)
from iowatch.comparison.choices import (
    Workload,
    filter_given,
    format_value,
    history_entries,
    parse_given,
    published_entries,
    sources_with_system,
)
from iowatch.comparison.interference import InterferenceEffects, LevelEffect, interference_effects
from iowatch.comparison.outcome import (
    ComparisonOptions,
    ComparisonProvenance,
    Outcome,
    SideProvenance,
    compare_sides,
    describe_entry,
)
from iowatch.comparison.sides import SideEntry, SideSpec, parse_side
