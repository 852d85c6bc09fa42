"""Why findings are resolved: not confirmed, a transient that is over, a level that returned, part of another one."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType

from iowatch.core import DAY_S
from iowatch.findings import newest
from iowatch.findings.finding import Finding, PerformanceDirection, Resolution
from iowatch.statistics import Detection
from iowatch.statistics.panel_table import NEWEST_SESSIONS

# An open finding is dropped after it has not been detected for this time, and a resolved one is reopened after it has
# been detected for this time, so that a single outlier does not change the state.
CONFIRMATION_PERIOD_S = 7 * DAY_S
# A level has returned if less than this share of the change (of its logarithm) remains, or if it overshoots.
_MAX_REMAINING_CHANGE = 0.4


def resolve_findings(
    detected: Sequence[Finding],
    previous: Sequence[Finding],
    level_starts: Mapping[int, int],
    newest_s: int,
    detections: Mapping[int, Detection] = MappingProxyType({}),
    newest_levels: Mapping[int, float] = MappingProxyType({}),
    undecided: Collection[str] = (),
    since: int | None = None,
) -> list[Finding]:
    """All findings with their resolution: not confirmed, or level returned.

    Args:
        detected: findings of the current detection.
        previous: findings of the last update.
        level_starts: starts of the accepted levels, from `accepted_since_by_series`.
        newest_s: time of the newest run, epoch seconds.
        detections: of each series, by series id.
        newest_levels: performance (ln) in the newest observations, by series id.
        undecided: ids of findings about which nothing new is known (`newest.undecided_findings`).
        since: epoch seconds from which on the newest sessions show an event of several series.
    """
    before = {finding.id: finding for finding in previous}
    updated = {finding.id: _update_present(finding, before.get(finding.id), newest_s) for finding in detected}
    evidence_of_absence = _AbsenceEvidence(detected, level_starts, newest_s, detections, newest_levels)
    for finding in previous:
        if finding.id not in updated:
            is_older = since is not None and finding.first_after < since
            updated[finding.id] = _update_absent(finding, evidence_of_absence, finding.id in undecided, is_older)
    # A later finding may return the level of an earlier one.
    for earlier in sorted(detected, key=lambda finding: finding.first_after):
        returns = _find_returns(earlier, detected, _finding_of_return(before.get(earlier.id)))
        is_lost = updated[earlier.id].session_loss is not None
        if returns.is_complete and not is_lost:
            # Resolved now: the confirmation period starts at the first update without this reason.
            last = max(returns.findings, key=lambda finding: finding.first_after)
            resolution = Resolution("returned", finding=last.id, since=last.first_after)
            updated[earlier.id] = replace(updated[earlier.id], resolution=resolution, seen_since=None)
        for later in returns.findings:
            is_mostly_shared = 2 * _count_shared(later, earlier) > len(later.members)
            if later.direction == "up" and later.opposite is None and is_mostly_shared:
                resolution = Resolution("recovery", finding=earlier.id)
                updated[later.id] = replace(updated[later.id], resolution=resolution, seen_since=None)
    return list(updated.values())


@dataclass(frozen=True)
class _LevelReturns:
    """The later findings that return the groups of an earlier one to their level.

    Attributes:
        is_complete: whether each group has one.
    """

    findings: tuple[Finding, ...]
    is_complete: bool


def _find_returns(earlier: Finding, detected: Sequence[Finding], known_return: str | None) -> _LevelReturns:
    """For each group of a finding the first of the later ones that returns it.

    Args:
        known_return: id of the finding that returned it at the last update.
    """
    directions = sorted({member.direction for member in earlier.members})
    returning: list[Finding] = []
    for direction in directions:
        for later in detected:
            if _reverses(later, earlier, direction, known_return == later.id):
                returning.append(later)
                break
    return _LevelReturns(tuple(returning), bool(returning) and len(returning) == len(directions))


def _update_present(finding: Finding, before: Finding | None, newest_s: int) -> Finding:
    """Update a detected finding; a resolved one stays resolved until the confirmation period has passed."""
    unresolved = replace(finding, resolution=None, missed_since=None, seen_since=None)
    if before is None or before.resolution is None or before.state == "suspected":
        return unresolved
    if before.is_resolved_as("part of another"):  # it stands alone again
        return unresolved
    if finding.probability_lasting is not None or finding.session_loss is not None:
        return unresolved  # the newest sessions show it again
    if finding.is_sure and before.is_resolved_as("not confirmed") and not before.needed_action:
        return unresolved
    since = before.seen_since or newest_s
    reported = max(len(before.members), before.reported_members)
    if newest_s - since >= CONFIRMATION_PERIOD_S or len(finding.members) >= max(2 * reported, reported + 2):
        return unresolved
    return replace(unresolved, resolution=before.resolution, seen_since=since)


@dataclass(frozen=True)
class _AbsenceEvidence:
    """What an update knows about the findings that it did not detect; fields as of `resolve_findings`."""

    detected: Sequence[Finding]
    level_starts: Mapping[int, int]
    newest_s: int
    detections: Mapping[int, Detection]
    newest_levels: Mapping[int, float]


def _update_absent(finding: Finding, evidence: _AbsenceEvidence, is_undecided: bool, is_older: bool) -> Finding:
    """Update a finding that is not detected: hidden by an accepted level, part of another one, or not confirmed.

    Args:
        is_undecided: whether nothing new is known about it.
        is_older: whether it is older than the event of the newest sessions.
    """
    finding = replace(finding, session_loss=None)
    starts = [evidence.level_starts.get(member.series_id, 0) for member in finding.members]
    if all(start >= member.first_after for start, member in zip(starts, finding.members, strict=True)):
        # Its own level is accepted, or a later one.
        if max(starts) <= max(member.first_after for member in finding.members):
            return replace(finding, resolution=None)
        return replace(finding, resolution=Resolution("superseded", since=max(starts)))
    missed_since = finding.missed_since or evidence.newest_s
    # A resolved finding keeps the reason for which it was resolved first.
    resolution = finding.resolution
    if resolution is None:
        is_waiting = _waits_for_confirmation(finding, evidence.newest_s - missed_since)
        resolution = _reason_of_absence(finding, evidence, is_undecided or is_waiting, is_older)
    outlook = finding.outlook
    if outlook is not None:
        outlook = replace(outlook, is_current=resolution is None)
    return replace(finding, missed_since=missed_since, seen_since=None, resolution=resolution, outlook=outlook)


def _waits_for_confirmation(finding: Finding, missed_s: int) -> bool:
    """Whether a confirmed finding has not been detected for such a short time (seconds) that it stays."""
    # The newest sessions state themselves when an event is over.
    outlook = finding.outlook
    is_stated = outlook is not None and outlook.is_current and outlook.sessions < NEWEST_SESSIONS
    is_confirmed = any(not member.suspected for member in finding.members) and not is_stated
    return is_confirmed and finding.state != "suspected" and missed_s < CONFIRMATION_PERIOD_S


def _reason_of_absence(
    finding: Finding, evidence: _AbsenceEvidence, is_undecided: bool, is_older: bool
) -> Resolution | None:
    """Why a finding that is not detected is resolved; None if it is not."""
    for other in evidence.detected:
        if _contains(other, finding):
            return Resolution("part of another", finding=other.id)
    sessions = _transient_sessions(finding, evidence.detections)
    sessions = sessions or newest.sessions_until_back(finding, evidence.newest_levels)
    if sessions:
        return Resolution("transient", sessions=sessions)
    if is_undecided:
        return None
    return Resolution("not confirmed") if is_older else _reason_over(finding)


def _transient_sessions(finding: Finding, detections: Mapping[int, Detection]) -> int:
    """Sessions that the change lasted, if detection found it to be a transient in most members; else 0."""
    lengths: list[int] = []
    for member in finding.members:
        detection = detections.get(member.series_id)
        transients = () if detection is None else detection.transients
        at_change = [t.observations for t in transients if t.time <= member.first_after <= t.last_time]
        # The last one, if several contain the change.
        lengths += at_change[-1:]
    return round(median(lengths)) if 2 * len(lengths) > len(finding.members) else 0


def _reason_over(finding: Finding) -> Resolution:
    """Why a finding that is no longer detected is resolved."""
    outlook = finding.outlook
    if outlook is None or not outlook.is_current or outlook.sessions >= NEWEST_SESSIONS:
        return Resolution("not confirmed")
    return Resolution("transient", sessions=outlook.observed or outlook.sessions)


def _finding_of_return(finding: Finding | None) -> str | None:
    """Id of the finding with which the level of another one returned."""
    if finding is None or finding.resolution is None or not finding.is_resolved_as("returned"):
        return None
    return finding.resolution.finding


def _contains(finding: Finding, other: Finding) -> bool:
    """Whether a finding has most members of another one, changed in the same direction within the same gap of runs."""
    members = {(member.series_id, member.direction): member for member in finding.members}
    contained = 0
    for other_member in other.members:
        member = members.get((other_member.series_id, other_member.direction))
        if member is None:
            continue
        last_before = max(member.last_before, other_member.last_before)
        if last_before <= min(member.first_after, other_member.first_after):
            contained += 1
    return 2 * contained > len(other.members)


def _count_shared(later: Finding, earlier: Finding) -> int:
    return len({m.series_id for m in later.members} & {m.series_id for m in earlier.members})


def _reverses(later: Finding, earlier: Finding, direction: PerformanceDirection, is_known: bool) -> bool:
    """Whether a sure later finding returns most series of one group of the earlier one to their previous level.

    Args:
        direction: of the group.
        is_known: the last update found it, so that a confidence near its limit does not change the state.
    """
    if later.first_after <= earlier.first_after or not (later.is_sure or is_known):
        return False
    later_levels = {m.series_id: m.after for m in later.members if m.direction != direction}
    group = [member for member in earlier.members if member.direction == direction]
    # Share of the change (of its logarithm) that remains after the later finding, of each series of both.
    remaining: list[float] = []
    for member in group:
        if member.series_id in later_levels:
            change_left = math.log(later_levels[member.series_id] / member.before)
            remaining.append(change_left / math.log(member.ratio))
    return len(remaining) * 2 > len(group) and median(remaining) <= _MAX_REMAINING_CHANGE
