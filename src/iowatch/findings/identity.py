"""Which group is which finding of before: an event keeps its id while its members and date settle."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from iowatch.findings.grouping import Group
from iowatch.findings.records import Finding

_DAY_S = 86400
_SAME_EVENT_S = 5 * _DAY_S
_SAME_DATE_S = 2 * _DAY_S


def match(groups: Sequence[Group], known: Sequence[Finding]) -> dict[int, Finding]:
    """The known finding of each group that has one, by position in `groups`; closest pairs first.

    Direction and neighbourhood of dates have to agree; shared series decide between several. What has dissolved
    comes back only with the same series on about the same date.
    """
    pairs = []
    for position, group in enumerate(groups):
        for finding in known:
            apart = abs(group.first_after - finding.first_after)
            wandered = abs(group.first_after - finding.anchor)
            if finding.direction != group.direction or max(apart, wandered) > _SAME_EVENT_S:
                continue
            shared = len(group.series_ids & {m.series_id for m in finding.members})
            gone = finding.missed_since is not None and finding.state == "resolved"
            if not gone or (shared and apart <= _SAME_DATE_S):
                pairs.append((-shared, apart, position, finding))
    matched: dict[int, Finding] = {}
    used: set[str] = set()
    for _, _, position, finding in sorted(pairs, key=lambda p: (p[0], p[1], p[2], p[3].id)):
        if position not in matched and finding.id not in used:
            matched[position] = finding
            used.add(finding.id)
    return matched


def new_id(system: str, group: Group, taken: set[str]) -> str:
    """`franklin-20090317-up`: system, night and direction; with a number where that is taken."""
    night = datetime.fromtimestamp(group.first_after, UTC).strftime("%Y%m%d")
    stem = f"{system[:22]}-{night}-{group.direction}"
    if stem not in taken:
        return stem
    number = next(n for n in range(2, 10_000) if f"{stem}-{n}" not in taken)
    return f"{stem}-{number}"
