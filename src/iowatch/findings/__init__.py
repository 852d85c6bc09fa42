"""Findings: changes of many series that belong to one event, from the history, with their states."""

from iowatch.findings.access import (
    accepted_levels,
    find,
    refreshed,
    suspected_series,
    unknown_decisions,
    watched,
)
from iowatch.findings.again import AGAIN_SINCE
from iowatch.findings.night import load, update
from iowatch.findings.records import NEEDS_ACTION, Difference, Finding, Member, Ruling, State, from_json

__all__ = [
    "AGAIN_SINCE",
    "NEEDS_ACTION",
    "Difference",
    "Finding",
    "Member",
    "Ruling",
    "State",
    "accepted_levels",
    "find",
    "from_json",
    "load",
    "refreshed",
    "suspected_series",
    "unknown_decisions",
    "update",
    "watched",
]
