"""Recording of decisions about findings: the file of reviews, then the state of the findings in the history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iowatch.findings.finding import Finding
from iowatch.findings.state import find_finding, update_findings
from iowatch.reference import reviews
from iowatch.site import system_today
from iowatch.store import History


@dataclass(frozen=True)
class ReviewAction:
    """What a person can do about a finding: a subcommand of `iowatch review`, and a choice on pages.

    Attributes:
        name: of the subcommand.
        decision: what it records; None for an event.
        help: its effect, in one sentence.
        example: options of the example.
        required, optional: fields of `Decision` that a person gives, in the order of a form.
    """

    name: str
    decision: reviews.DecisionKind | None
    help: str
    example: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


REVIEW_ACTIONS = (
    ReviewAction(
        "accept",
        "accepted",
        "Accept the new level: detection and references start from it.",
        "--reason 'new striping, intended'",
        ("reason",),
        ("until",),
    ),
    ReviewAction(
        "acknowledge",
        "acknowledged",
        "Mark as being handled: suppressed until the given day, then reported again.",
        "--reason 'case 4711' --until 2026-12-01",
        ("reason", "until"),
    ),
    ReviewAction(
        "dismiss",
        "dismissed",
        "Dismiss this finding, and no other.",
        "--reason 'benchmark was misconfigured'",
        ("reason",),
        ("until",),
    ),
    ReviewAction(
        "note",
        "note",
        "Add a remark without changing the state.",
        "--reason 'vendor asked on 3 May'",
        ("reason",),
        ("until",),
    ),
    ReviewAction(
        "assign",
        "assigned",
        "Give a finding an owner. The state does not change.",
        "--to 'A. Administrator' --reason 'case 4711'",
        ("to",),
        ("reason", "until"),
    ),
)


# An event is recorded about the system of a finding: `iowatch event add`.
EVENT_ACTION = ReviewAction(
    "event",
    None,
    "Record what happened to the machine; the next update uses it for findings near its date.",
    "",
    ("title", "date", "kind"),
    ("until", "scope", "details", "source"),
)


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
