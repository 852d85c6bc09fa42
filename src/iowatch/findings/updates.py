"""What changed about a finding since it was last reported."""

from __future__ import annotations

from dataclasses import replace

from iowatch.findings.finding import Finding
from iowatch.findings.text import format_resolution

# New members are reported if the number of members has grown by half.
_MIN_REPORTED_GROWTH = 1.5


def with_updates(finding: Finding, before: Finding | None, report: bool) -> Finding:
    """Return the finding with its updates.

    Args:
        before: the same finding at the last update, or None.
        report: whether the caller reports the updates now; else they stay pending.
    """
    size, reported = len(finding.members), before.reported_members if before else 0
    least = max(_MIN_REPORTED_GROWTH * reported, reported + 2)
    grown = before is not None and finding.state == "open" and size >= least
    new_updates = _list_updates(finding, before) + ([f"{size - reported} series joined"] if grown else [])
    reported_gain = before.reported_gain if before else None
    if finding.session_loss is not None and (reported_gain is None or _fell_further(finding, before)):
        reported_gain = finding.session_loss.gain
    pending = [*(before.pending if before else ()), *new_updates]
    # Dismissed and accepted findings have no updates; pending ones are dropped, too.
    updates = () if finding.state in ("dismissed", "accepted") else tuple(dict.fromkeys(pending))
    reported_members = size if grown or before is None else reported
    return replace(
        finding,
        updates=updates,
        pending=() if report else updates,
        reported_members=reported_members,
        reported_gain=reported_gain,
    )


# A loss of a reported finding is reported again if less than this share of the reported performance is left.
_FURTHER = 0.5


def _fell_further(finding: Finding, before: Finding | None) -> bool:
    """Whether a finding lost much more since its loss was last reported."""
    loss = finding.session_loss
    if before is None or loss is None or finding.resolution is not None:
        return False
    reported_gain = before.reported_gain
    if reported_gain is None:
        reported_gain = min(member.gain for member in before.members)
    return loss.gain < _FURTHER * reported_gain


def _list_updates(finding: Finding, before: Finding | None) -> list[str]:
    if before is None:
        # A finding already resolved at its first detection is not reported; a recovery is reported with the finding
        # that it resolves.
        return [] if finding.resolution else ["new"]
    updates = []
    # The state, because findings stored by earlier versions do not record it.
    was_reported = before.needed_action or before.state in ("open", "acknowledged")
    # A suspicion that was only shown and is not confirmed is no update.
    if finding.state == "resolved" and before.resolution is None and was_reported:
        updates.append(format_resolution(finding) or "resolved")
    if finding.needs_action and before.resolution is not None and was_reported:
        updates.append("recurred")
    elif finding.state == "open" and before.state in ("suspected", "resolved"):
        updates.append("confirmed")
    elif finding.needs_action and not was_reported:
        updates.append("probably lasting" if finding.session_loss is None else "unusual loss")
    if was_reported and _fell_further(finding, before):
        updates.append(f"fell further: {finding.session_loss.name}" if finding.session_loss else "fell further")
    review = finding.review
    expired = review is not None and review.expired and not (before.review and before.review.expired)
    if review is not None and expired and finding.state != "resolved":
        updates.append(f"decision expired: {review.decision} by {review.by}")
    return updates
