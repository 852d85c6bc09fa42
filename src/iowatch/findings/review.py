"""Recording of decisions about findings: the file of reviews, then the state of the findings in the history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iowatch.findings.finding import Finding
from iowatch.findings.state import find_finding, update_findings
from iowatch.reference import reviews
from iowatch.site import system_today
from iowatch.store import History


def record_decision(history: History, finding: str, entry: Mapping[str, Any]) -> Finding:
    """Append a decision to the review file of the system of a finding, and update its findings.

    Args:
        finding: id, or an unambiguous prefix.
        entry: fields of `Decision` without `finding` and `date`, which is the current day of the system.

    Returns:
        The finding in its new state.

    Raises:
        UsageError: no such finding.
        InputError: not a valid decision, or the file is damaged.
        MachineError: the account may not update findings, or the file cannot be written; nothing is recorded.
    """
    found = find_finding(history, finding)
    history.require_right_to_update_findings()
    reviews.add_decision(found.system, {"finding": found.id, **entry, "date": system_today(found.system)})
    update_findings(history, found.system, report=False)
    return find_finding(history, found.id)
