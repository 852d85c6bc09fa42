"""Sides of a comparison: from `stack:NAME`, `published:000/13`, … to pairs of cases, and their comparison."""

from iowatch.sides.outcome import Options, Outcome, compare_sides
from iowatch.sides.pairing import Matched, match
from iowatch.sides.spec import Spec, parse_spec

__all__ = ["Matched", "Options", "Outcome", "Spec", "compare_sides", "match", "parse_spec"]
