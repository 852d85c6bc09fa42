"""A finding: the changes of many series that belong to one event. Frozen, equal after JSON, with its updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter

from iowatch.core import Scalar
from iowatch.stats import Explanation, RankedCause

FindingState = Literal["suspected", "open", "acknowledged", "accepted", "dismissed", "resolved"]
PerformanceDirection = Literal["up", "down"]


@dataclass(frozen=True)
class FindingMember:
    """One series' change; times in epoch seconds UTC, levels in the metric's unit.

    Attributes:
        name: short, unique among the series of the finding where possible.
        ratio: after / before of the metric as stored.
        gain: the same as performance: above 1 is better, also for times.
        confidence: of the detector, 0 to 1.
        run_before, run_after: runs on both sides of the change: their outputs, logs, stacks are the evidence.
    """

    series_id: int
    name: str
    partition: str
    stack: str
    case_key: str
    parameters: Mapping[str, Scalar]
    metric: str
    unit: str
    last_before: int
    first_after: int
    before: float
    after: float
    ratio: float
    gain: float
    confidence: float
    suspected: bool
    run_before: int | None
    run_after: int | None


@dataclass(frozen=True)
class EvidenceDifference:
    """Something that differs between the runs before and after: a part of the stack, a Darshan counter."""

    where: str
    what: str
    before: str
    after: str


@dataclass(frozen=True)
class AppliedDecision:
    """The decision in force, or the last that expired."""

    decision: Literal["accepted", "dismissed", "acknowledged", "note"]
    by: str
    reason: str
    date: str
    until: str | None
    expired: bool = False


@dataclass(frozen=True)
class Finding:
    """One event as the history shows it.

    Attributes:
        id: stable from update to update.
        direction: `up` is better performance, `down` worse, whatever the metric.
        date: the day of the change (ISO, UTC); the change lies between `last_before` and `first_after`.
        size: geometric mean of the members' gains.
        line: the whole finding in one line.
        explanation: its positions (members of magnitudes, control, exceptions) index `compared`.
        compared: names of the series that were compared, changed ones first.
        without_data: how many series of the system have no runs on both sides: nothing is known of them.
        changed_otherwise: how many changed then in the other direction or uncertainly: they are not compared.
        causes: events near the date, best fit first; evidence, not proof.
        updates: changes of the finding since the last report: "new", "confirmed", "2 series joined", …
        pending: updates that are not reported yet.
        reported_members: how many members were reported.
        anchor: `first_after` when it was first seen; its date may settle near it, but not wander off.
        missed_since: newest run when detection first did not see it any more.
        seen_since: newest run when detection first saw it again after it was resolved.
        resolution: why it is resolved, if it is.
        basis: digest of what it follows from; an old finding with the same basis is not worked out again.
        label: what the sessions state as their origin ("reconstructed from published figures"), or None.
    """

    id: str
    system: str
    state: FindingState
    direction: PerformanceDirection
    date: str
    last_before: int
    first_after: int
    size: float
    line: str
    members: tuple[FindingMember, ...]
    explanation: Explanation
    compared: tuple[str, ...]
    without_data: int
    changed_otherwise: int
    causes: tuple[RankedCause, ...]
    differences: tuple[EvidenceDifference, ...]
    first_seen_at: int
    updated_at: int
    updates: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    reported_members: int = 0
    anchor: int = 0
    missed_since: int | None = None
    seen_since: int | None = None
    resolution: str | None = None
    review: AppliedDecision | None = None
    notes: tuple[AppliedDecision, ...] = ()
    label: str | None = None
    basis: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back. The rule comes with its precision and recall."""
        document = asdict(self)
        rule = self.explanation.rule
        if rule is not None:
            document["explanation"]["rule"] |= {"precision": rule.precision, "recall": rule.recall}
        return document


@cache
def _finding_adapter() -> TypeAdapter[Finding]:
    return TypeAdapter(Finding)


def finding_from_json(document: Mapping[str, Any]) -> Finding:
    """A finding of the document that `Finding.to_json` made."""
    return _finding_adapter().validate_python(document)


NEEDS_ACTION: tuple[FindingState, ...] = ("open",)


# New members are reported when a finding has grown by half.
_MIN_REPORTED_GROWTH = 1.5


def with_updates(finding: Finding, before: Finding | None, report: bool) -> Finding:
    """The finding with its updates.

    Args:
        before: the same finding at the last update, or None.
        report: whether the caller reports the updates now; else they stay pending.
    """
    size, reported = len(finding.members), before.reported_members if before else 0
    least = max(_MIN_REPORTED_GROWTH * reported, reported + 2)
    grown = before is not None and finding.state == "open" and size >= least
    fresh = _list_updates(finding, before) + ([f"{size - reported} series joined"] if grown else [])
    pending = [*(before.pending if before else ()), *fresh]
    # Dismissed and accepted findings have no updates, even those that were never reported.
    updates = () if finding.state in ("dismissed", "accepted") else tuple(dict.fromkeys(pending))
    reported_members = size if grown or before is None else reported
    return replace(finding, updates=updates, pending=() if report else updates, reported_members=reported_members)


def _list_updates(finding: Finding, before: Finding | None) -> list[str]:
    if before is None:
        # A finding that is over when it is first seen needs no report; a recovery is reported with the finding it ends.
        return [] if finding.resolution else ["new"]
    updates = []
    # The end of a suspicion is no update.
    if finding.state == "resolved" and before.resolution is None and before.state != "suspected":
        updates.append(finding.resolution or "resolved")
    if finding.state == "open" and before.resolution is not None:
        updates.append("recurred")
    if before.state == "suspected" and finding.state == "open":
        updates.append("confirmed")
    review = finding.review
    expired = review is not None and review.expired and not (before.review and before.review.expired)
    if review is not None and expired and finding.state != "resolved":
        updates.append(f"decision expired: {review.decision} by {review.by}")
    return updates
