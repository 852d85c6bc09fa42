"""Explanation: what the changed series have in common, by how much, what stayed the same, which event fits.

Pure: records in, frozen records out; knows neither the history nor files.
"""

from iowatch.explain.conditions import Condition, derive
from iowatch.explain.explanation import explain
from iowatch.explain.naming import names
from iowatch.explain.records import ControlGroup, Explanation, Magnitude, Misfit, Observation, Rule
from iowatch.explain.rules import find_rule
from iowatch.explain.suspects import REACH, Cause, Suspect, rank

__all__ = [
    "REACH",
    "Cause",
    "Condition",
    "ControlGroup",
    "Explanation",
    "Magnitude",
    "Misfit",
    "Observation",
    "Rule",
    "Suspect",
    "derive",
    "explain",
    "find_rule",
    "names",
    "rank",
]
