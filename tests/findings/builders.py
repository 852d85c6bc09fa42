"""Findings as records, without a history."""

from __future__ import annotations

from typing import Any

from iowatch.findings import Finding, FindingMember
from iowatch.statistics import Explanation


def build_finding(**fields: Any) -> Finding:
    """An open finding: one of three series of a system lost half of its performance on 1 January 1970."""
    explanation = Explanation(changed=1, total=3, rule=None, magnitudes=(), control=None, exceptions=())
    values: dict[str, Any] = {
        "id": "planted-19700101-down",
        "system": "planted",
        "state": "open",
        "direction": "down",
        "date": "1970-01-01",
        "last_before": 0,
        "first_after": 0,
        "size": 0.5,
        "members": (),
        "explanation": explanation,
        "compared": ("write POSIX",),
        "without_data": 0,
        "changed_otherwise": 0,
        "causes": (),
        "differences": (),
        "first_seen_at": 0,
        "updated_at": 0,
    }
    return Finding(**{**values, **fields})


def build_member(**fields: Any) -> FindingMember:
    """A series of IOR that lost half of its bandwidth, without runs on both sides."""
    values: dict[str, Any] = {
        "series_id": 1,
        "name": "case",
        "partition": "work",
        "stack": "gnu",
        "case_key": "case",
        "parameters": {"benchmark": "ior"},
        "metric": "bandwidth",
        "unit": "MiB/s",
        "last_before": 0,
        "first_after": 1,
        "before": 100.0,
        "after": 50.0,
        "ratio": 0.5,
        "gain": 0.5,
        "confidence": 1.0,
        "suspected": False,
        "run_before": None,
        "run_after": None,
    }
    return FindingMember(**{**values, **fields})
