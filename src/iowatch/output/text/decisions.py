"""Decisions about findings, why a finding is resolved, and what changed about it since its last report, as text."""

from __future__ import annotations

from iowatch.core import format_count, format_day
from iowatch.findings import AppliedDecision, Finding, FindingUpdate, OrphanedDecision, Resolution, ReviewConflict
from iowatch.output.text.changes import format_factor
from iowatch.reference import Decision
from iowatch.site import system_zone


def format_decision(decision: AppliedDecision) -> str:
    """`acknowledged by A. Administrator on 2026-11-01 until 2026-11-15 (expired): ticket 4711`."""
    until = f" until {decision.until}" if decision.until else ""
    remark = ""
    if decision.expired:
        remark = " (expired)"
    elif decision.is_about_other:
        remark = f" ({_format_other_subject(decision)}; decide again)"
    reason = " ".join(decision.reason.split())
    return f"{decision.decision} by {decision.by} on {decision.date}{until}{remark}: {reason}"


def _format_other_subject(decision: AppliedDecision) -> str:
    """What a decision was made about, which the finding is not: `about another change: 2 series down (×0.85)`."""
    if decision.subject is None:
        return "before this finding was known"
    subject = decision.subject
    series = format_count(subject.series, "series")
    return f"about another change: {series} {subject.direction} ({format_factor(subject.size)})"


def describe_decision(decision: Decision) -> str:
    """`assigned to B. Operator by A. Administrator on 2026-11-01: ticket 4711`."""
    what = "noted" if decision.decision == "note" else decision.decision
    to = f" to {decision.to}" if decision.to else ""
    reason = f": {' '.join(decision.reason.split())}" if decision.reason else ""
    return f"{what}{to} by {decision.by} on {decision.date}{reason}"


def describe_conflict(conflict: ReviewConflict) -> str:
    """The decisions that were made meanwhile, or the new state where it has another reason."""
    finding = conflict.finding
    if conflict.decisions:
        return f"{finding.id} was meanwhile {'; '.join(map(describe_decision, conflict.decisions))}"
    reason = f": {format_resolution(finding)}" if finding.resolution else ""
    return f"{finding.id} is meanwhile {finding.state}{reason}"


def describe_orphaned_decision(orphaned: OrphanedDecision) -> str:
    """`reviews/archer.yaml: a decision on 'archer-2025-up', which is not in this history`."""
    return f"{orphaned.path}: a decision on '{orphaned.finding}', which is not in this history"


def format_resolution(finding: Finding) -> str:
    """Why a finding is resolved, in a sentence; empty while it is not.

    For example `transient: back after at most 2 sessions`, `back at the level before since 7 Mar 2025 (archer-…-up)`.
    """
    return "" if finding.resolution is None else _format_reason(finding.resolution, finding.system)


def _format_reason(resolution: Resolution, system: str) -> str:
    if resolution.kind == "transient":
        return f"transient: back after at most {format_count(resolution.sessions or 0, 'session')}"
    if resolution.kind == "spell":
        return f"a spell of {format_count(resolution.sessions or 0, 'session')}, over"
    if resolution.kind == "not confirmed":
        return "not confirmed by later sessions"
    if resolution.kind == "part of another":
        return f"part of {resolution.finding}"
    if resolution.kind == "recovery":
        return f"recovery of {resolution.finding}"
    day = format_day(resolution.since or 0, system_zone(system))
    if resolution.kind == "over":
        return f"no longer seen since {day}"
    if resolution.kind == "returned":
        return f"back at the level before since {day} ({resolution.finding})"
    return f"superseded: the level since {day} is accepted"


def format_updates(finding: Finding) -> tuple[str, ...]:
    """What changed about a finding since its last report: `new`, `confirmed`, `2 series joined`."""
    return tuple(format_update(update, finding.system) for update in finding.updates)


def format_update(update: FindingUpdate, system: str) -> str:
    """One change of a finding of a system since its last report."""
    if update.kind == "joined":
        return f"{update.series} series joined"
    if update.kind == "resolved" and update.resolution is not None:
        return _format_reason(update.resolution, system)
    if update.kind == "fell further" and update.name is not None:
        return f"fell further: {update.name}"
    if update.kind in ("decision expired", "decided about another change"):
        return f"{update.kind}: {update.decision} by {update.by}"
    return update.kind
