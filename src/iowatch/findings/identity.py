"""Which group is which finding of before: an event keeps its id while its members and date settle."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from iowatch.findings.grouping import Group
from iowatch.findings.records import Finding

_DAY_S = 86400
# Between gaps of runs; those of neighbouring nights touch. Half a day, as nights do not begin at one time.
_SAME_EVENT_S = 4.5 * _DAY_S
_SAME_DATE_S = 1.5 * _DAY_S


def match(groups: Sequence[Group], known: Sequence[Finding]) -> dict[int, Finding]:
    """The known finding of each group that has one, by position in `groups`; closest pairs first.

    Direction and neighbourhood of dates have to agree; shared series decide between several. What has dissolved
    comes back only with the same series on about the same date; what was dismissed silences no other series.
    """
    pairs = []
    for position, group in enumerate(groups):
        for finding in known:
            apart = _between(group, finding.last_before, finding.first_after)
            moved = finding.anchor != finding.first_after
            wandered = _between(group, finding.anchor, finding.anchor) if moved else apart
            if finding.direction != group.direction or max(apart, wandered) > _SAME_EVENT_S:
                continue
            shared = len(group.series_ids & {m.series_id for m in finding.members})
            dismissed = finding.state == "dismissed"
            gone = finding.missed_since is not None and (finding.resolution is not None or dismissed)
            if (shared or not (gone or dismissed)) and (not gone or apart <= _SAME_DATE_S):
                distance = (apart, abs(group.first_after - finding.first_after))
                pairs.append((-shared, distance, position, finding))
    matched: dict[int, Finding] = {}
    used: set[str] = set()
    for _, _, position, finding in sorted(pairs, key=lambda p: (p[0], p[1], p[2], p[3].id)):
        if position not in matched and finding.id not in used:
            matched[position] = finding
            used.add(finding.id)
    return matched


def _between(group: Group, last_before: int, first_after: int) -> int:
    """Seconds between the gaps of runs in which a group and a finding happened; 0 where they touch.

    A system that was down for weeks has one gap: whichever of its ends a change is dated to, it is one event.
    """
    return max(0, group.last_before - first_after, last_before - group.first_after)


def new_id(system: str, group: Group, taken: set[str]) -> str:
    """`franklin-20090317-up`: system, night and direction; with a number where that is taken."""
    night = datetime.fromtimestamp(group.first_after, UTC).strftime("%Y%m%d")
    stem = f"{system[:22]}-{night}-{group.direction}"
    if stem not in taken:
        return stem
    number = next(n for n in range(2, 10_000) if f"{stem}-{n}" not in taken)
    return f"{stem}-{number}"
