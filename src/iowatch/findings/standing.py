"""What state a finding is in: what the history says of it, and what people decided."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from statistics import median

from iowatch.findings.news import with_news
from iowatch.findings.records import Finding, Ruling, State
from iowatch.findings.wording import day
from iowatch.review import Decision

_DISSOLVED = "dissolved: later nights did not confirm it"
# A level is back where less than this part of the change (of its logarithm) is left; going beyond is back, too.
_LEFT_OVER = 0.4
# An open finding is given up when detection has not seen it for so long, and one that was resolved comes back
# when it has been seen for so long: one odd night must not blink.
_PATIENCE_S = 7 * 86400


def origins(known: Sequence[Finding], decisions: Sequence[Decision], today: date) -> dict[int, int]:
    """From when on the level of a series is the accepted one: epoch seconds by series id."""
    found: dict[int, int] = {}
    for finding in known:
        ruling = _ruling(finding.id, decisions, today)
        if ruling is not None and ruling.decision == "accepted" and not ruling.expired:
            for member in finding.members:
                found[member.series_id] = max(found.get(member.series_id, 0), member.first_after)
    return found


def resolve(
    found: Sequence[Finding], known: Sequence[Finding], level_starts: Mapping[int, int], newest: int
) -> list[Finding]:
    """All findings with their resolution: those that dissolved, and those whose levels came back.

    Args:
        found: what the history shows now.
        known: what was known at the last update.
        level_starts: accepted levels, as `origins` gives them.
        newest: time of the newest run, epoch seconds.
    """
    before = {finding.id: finding for finding in known}
    settled = {f.id: _seen(f, before.get(f.id), newest) for f in found}
    for finding in known:
        if finding.id not in settled:
            settled[finding.id] = _gone(finding, level_starts, newest)
    for earlier in sorted(found, key=lambda f: f.first_after):
        later = next((f for f in found if _reverses(f, earlier)), None)
        if later is None:
            continue
        since = f"since {day(later.first_after)} ({later.id})"
        settled[earlier.id] = _resolved(settled[earlier.id], f"back at the level before {since}")
        if later.direction == "up" and _is_mostly(later, earlier):
            settled[later.id] = _resolved(settled[later.id], f"recovery of {earlier.id}")
    return list(settled.values())


def _seen(finding: Finding, before: Finding | None, newest: int) -> Finding:
    """A finding that the history shows; one that was resolved stays so until it has been back for a while."""
    fresh = replace(finding, resolution=None, missed_since=None, seen_since=None)
    if before is None or before.resolution is None or before.state == "suspected":
        return fresh
    since = before.seen_since or newest
    known = max(len(before.members), before.told_members)
    if newest - since >= _PATIENCE_S or len(finding.members) >= 2 * known:
        return fresh
    return replace(fresh, resolution=before.resolution, seen_since=since)


def _resolved(finding: Finding, why: str) -> Finding:
    """The finding resolved now: its time to come back is counted from the first night without the reason."""
    return replace(finding, resolution=why, seen_since=None)


def _is_mostly(later: Finding, earlier: Finding) -> bool:
    """Whether at least half of the later finding's series are of the earlier one: a recovery, no more."""
    shared = {m.series_id for m in later.members} & {m.series_id for m in earlier.members}
    return 2 * len(shared) >= len(later.members)


def _gone(finding: Finding, level_starts: Mapping[int, int], newest: int) -> Finding:
    """A finding that the history does not show: hidden by an accepted level, missing for now, or dissolved."""
    starts = [level_starts.get(m.series_id, 0) for m in finding.members]
    if all(start >= m.first_after for start, m in zip(starts, finding.members, strict=True)):
        later = max(starts) > max(m.first_after for m in finding.members)
        why = f"superseded: the level since {day(max(starts))} is accepted" if later else None
        return replace(finding, resolution=why)
    since = finding.missed_since or newest
    patient = finding.state != "suspected" and newest - since < _PATIENCE_S
    return replace(
        finding,
        missed_since=since,
        seen_since=None,
        resolution=finding.resolution or (None if patient else _DISSOLVED),
    )


def _reverses(later: Finding, earlier: Finding) -> bool:
    """Whether most of the earlier finding's series surely went back to their level before it."""
    if later.direction == earlier.direction or later.first_after <= earlier.first_after:
        return False
    if all(m.suspected for m in later.members):
        return False
    after = {m.series_id: m.after for m in later.members}
    left = [
        math.log(after[m.series_id] / m.before) / math.log(m.ratio)
        for m in earlier.members
        if m.series_id in after
    ]
    return len(left) * 2 > len(earlier.members) and median(left) <= _LEFT_OVER


def stand(
    finding: Finding, before: Finding | None, decisions: Sequence[Decision], today: date, tell: bool
) -> Finding:
    """The finding with its state, decision, notes and news.

    Args:
        before: the same finding at the last update, or None.
        tell: whether somebody tells the news now.
    """
    ruling = _ruling(finding.id, decisions, today)
    state = _state(finding, before, ruling)
    settled = replace(
        finding,
        state=state,
        ruling=ruling,
        notes=tuple(_told(d, today) for d in decisions if d.finding == finding.id and d.decision == "note"),
    )
    return with_news(settled, before, tell)


def _state(finding: Finding, before: Finding | None, ruling: Ruling | None) -> State:
    decided = None if ruling is None or ruling.expired else ruling.decision
    if decided == "accepted":
        return "accepted"
    if decided == "dismissed":
        return "dismissed"
    if finding.resolution is not None:
        return "resolved"
    if decided == "acknowledged":
        return "acknowledged"
    if before is not None and before.state not in ("suspected", "resolved"):
        return "open"
    return "suspected" if all(m.suspected for m in finding.members) else "open"


def _ruling(finding: str, decisions: Sequence[Decision], today: date) -> Ruling | None:
    """The last decision that holds; where all have expired, the last of them, marked so."""
    mine = [d for d in decisions if d.finding == finding and d.decision != "note"]
    holding = [d for d in mine if d.holds(today)]
    return _told((holding or mine)[-1], today) if mine else None


def _told(decision: Decision, today: date) -> Ruling:
    until = decision.until.isoformat() if decision.until else None
    return Ruling(
        decision=decision.decision,
        by=decision.by,
        reason=decision.reason,
        date=decision.date.isoformat(),
        until=until,
        expired=not decision.holds(today),
    )
