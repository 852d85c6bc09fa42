"""What changed about a finding since it was last reported."""

from __future__ import annotations

from dataclasses import replace

from iowatch.findings.finding import SURE_STATES, Finding, FindingUpdate, ProbableMorning

# New members are reported if the number of members has grown by half.
_MIN_REPORTED_GROWTH = 1.5


def with_updates(finding: Finding, before: Finding | None, report: bool) -> Finding:
    """Return the finding with its updates.

    Args:
        before: the same finding at the last update, or None.
        report: whether the caller reports the updates now; else they stay pending.
    """
    new_updates = _list_updates(finding, before)
    # Series that joined are an update where they are many, and of an open finding only.
    members = len(finding.members)
    reported_members = before.reported_members if before is not None else 0
    reportable_members = max(_MIN_REPORTED_GROWTH * reported_members, reported_members + 2)
    has_grown = before is not None and finding.state == "open" and members >= reportable_members
    if has_grown:
        new_updates.append(FindingUpdate("joined", series=members - reported_members))
    if has_grown or before is None:
        reported_members = members
    reported_gain = before.reported_gain if before is not None else None
    if finding.session_loss is not None and (reported_gain is None or _fell_further(finding, before)):
        reported_gain = finding.session_loss.gain
    updates: tuple[FindingUpdate, ...] = ()
    # Dismissed and accepted findings have no updates; pending ones are dropped, too.
    if finding.state not in ("dismissed", "accepted"):
        pending = before.pending if before is not None else ()
        updates = tuple(dict.fromkeys([*pending, *new_updates]))
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


def _list_updates(finding: Finding, before: Finding | None) -> list[FindingUpdate]:
    if before is None:
        # A finding already resolved at its first detection is not reported; a recovery is reported with the finding
        # that it resolves.
        return [] if finding.resolution else [FindingUpdate("new")]
    updates: list[FindingUpdate] = []
    # The state, because findings stored by earlier versions do not record it.
    was_reported = before.needed_action or before.state in ("open", "acknowledged")
    # A suspicion that was only shown and is not confirmed is no update.
    if finding.state == "resolved" and before.resolution is None and was_reported:
        updates.append(FindingUpdate("resolved", resolution=finding.resolution))
    if finding.needs_action and before.resolution is not None and was_reported:
        updates.append(FindingUpdate("recurred"))
    elif finding.state == "open" and before.state in ("suspected", "resolved"):
        updates.append(FindingUpdate("confirmed"))
    elif finding.needs_action and not was_reported:
        updates.append(FindingUpdate("probably lasting" if finding.session_loss is None else "unusual loss"))
    if was_reported and _fell_further(finding, before):
        lost_series = finding.session_loss.name if finding.session_loss is not None else None
        updates.append(FindingUpdate("fell further", name=lost_series))
    if finding.state != "resolved":
        updates += _ended_decisions(finding, before)
    return updates


def _ended_decisions(finding: Finding, before: Finding) -> list[FindingUpdate]:
    """A decision that is not in force any more since the last update: a new one is needed."""
    review = finding.review
    if review is None:
        return []
    was_expired = before.review is not None and before.review.expired
    if review.expired and not was_expired:
        return [FindingUpdate("decision expired", decision=review.decision, by=review.by)]
    was_about_other = before.review is not None and before.review.is_about_other
    if review.is_about_other and not was_about_other:
        return [FindingUpdate("decided about another change", decision=review.decision, by=review.by)]
    return []


def with_probable_morning(finding: Finding, before: Finding | None, newest_s: int) -> Finding:
    """The finding with this update among its probable mornings, if it is more probable to last than ever before.

    Args:
        finding: with its state of this update.
        before: the same finding at the last update, or None.
        newest_s: time of the newest run of the system, epoch seconds.
    """
    mornings = before.probable_mornings if before is not None else ()
    if mornings is None:
        # The first mornings are not known, and nothing is made up for them.
        return finding
    probability = 0.0
    is_loss_of_session = finding.state == "suspected" and finding.session_loss is not None
    if finding.state in SURE_STATES or is_loss_of_session:
        probability = 1.0
    elif finding.state == "suspected":
        probability = finding.probability_lasting or 0.0
    highest = mornings[-1].probability if mornings else 0.0
    if probability > highest:
        mornings = (*mornings, ProbableMorning(newest_s, probability))
    return replace(finding, probable_mornings=mornings)
