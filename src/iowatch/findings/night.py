"""The night's work: history in, findings out, each with the id, state and news that it deserves."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from iowatch import events, review
from iowatch.findings import detection
from iowatch.findings.build import build
from iowatch.findings.grouping import Group, credible, group
from iowatch.findings.identity import match, new_id
from iowatch.findings.records import Finding, from_json
from iowatch.findings.standing import origins, resolve, stand
from iowatch.model import canonical_json
from iowatch.store import FindingRow, History, SeriesPoints, SeriesRow
from iowatch.units import utc_now

_DAY_S = 86400
# Nights needed on both sides of a date to compare series that did not change.
_COMPARED_S = 90 * _DAY_S
# Later nights do not improve what is said of a change that is older than this.
_SETTLED_S = 45 * _DAY_S


def load(history: History, system: str | None = None) -> list[Finding]:
    """Findings as last written, newest change first; nothing is computed."""
    found = [from_json(row.document) for row in history.findings(system)]
    return sorted(found, key=lambda f: (-f.first_after, f.id))


def update(history: History, system: str, now: datetime | None = None, *, tell: bool = True) -> list[Finding]:
    """Detect, group, explain, and settle the states of all findings of a system; written to the history.

    Only series with new points are detected again. Reads `reference/events` and `reference/reviews`.

    Args:
        now: decides which decisions have expired; the present by default.
        tell: whether the caller tells people the news; otherwise the news wait for the update that does.

    Returns:
        All findings, newest change first; `news` says what nobody has been told yet.

    Raises:
        InputError: a file of events or reviews is damaged.
    """
    moment = now or utc_now()
    work = _Work(history, system, int(moment.timestamp()), load(history, system))
    decisions = review.load(system)
    level_starts = origins(work.known, decisions, moment.date())
    found = work.findings(level_starts)
    known = {finding.id: finding for finding in work.known}
    settled = [
        stand(finding, known.get(finding.id), decisions, moment.date(), tell)
        for finding in resolve(found, work.known, level_starts, work.newest)
    ]
    history.save_findings([_row(finding, work.now) for finding in settled])
    return sorted(settled, key=lambda f: (-f.first_after, f.id))


def _row(finding: Finding, now: int) -> FindingRow:
    return FindingRow(finding.id, finding.system, finding.first_seen_at, now, finding.state, finding.to_json())


@dataclass
class _Work:
    """One update."""

    history: History
    system: str
    now: int
    known: list[Finding]
    newest: int = 0

    def findings(self, level_starts: Mapping[int, int]) -> list[Finding]:
        """Findings of all groups, not yet with their state."""
        rows = detection.headline_series(self.history, self.system)
        changes = detection.steps(self.history, rows, level_starts)
        groups = [one for one in group(rows, changes) if credible(one, len(rows))]
        matched = match(groups, self.known)
        happened = events.load(self.system)
        stamp = canonical_json({"events": [e.model_dump(mode="json") for e in happened]})
        self.newest = max((row.last or 0 for row in rows), default=0)
        made: list[Finding] = []
        open_groups: list[tuple[Group, Finding | None, str]] = []
        for position, one in enumerate(groups):
            before, basis = matched.get(position), _basis(one, stamp, self.newest)
            if before is not None and _is_same(before, basis, level_starts):
                made.append(before)
            else:
                open_groups.append((one, before, basis))
        taken = {finding.id for finding in self.known}
        for one, before, basis in open_groups:
            name = before.id if before else new_id(self.system, one, taken)
            taken.add(name)
            points = self._points(rows, one)
            finding = build(self.history, self.system, name, one, rows, changes, points, happened)
            made.append(self._continued(replace(finding, basis=basis), before, level_starts))
        return made

    def _points(self, rows: Sequence[SeriesRow], one: Group) -> dict[int, SeriesPoints]:
        """Of all series, around the dates of the group."""
        since = min(one.last_before, *(m.change.last_before for m in one.moved)) - _COMPARED_S
        until = max(one.first_after, *(m.change.first_after for m in one.moved)) + _COMPARED_S
        return self.history.points([row.id for row in rows], since, until)

    def _continued(self, finding: Finding, before: Finding | None, level_starts: Mapping[int, int]) -> Finding:
        """With its past: when it was first seen, and members whose accepted level hides their change."""
        if before is None:
            return replace(finding, first_seen_at=self.now, updated_at=self.now, anchor=finding.first_after)
        mine = {m.series_id for m in finding.members}
        hidden = tuple(m for m in before.members if m.series_id in level_starts and m.series_id not in mine)
        if hidden:
            finding = replace(before, members=hidden + finding.members)
        return replace(
            finding,
            first_seen_at=before.first_seen_at,
            updated_at=self.now,
            anchor=before.anchor,
            untold=before.untold,
        )


def _basis(one: Group, stamp: str, newest: int) -> str:
    """Digest of all that a finding follows from; of a young one also the nights since, which add to it."""
    moved = sorted(f"{m.row.id} {m.change.first_after} {m.change.suspected}" for m in one.moved)
    young = newest - one.first_after <= _SETTLED_S
    text = "\n".join([*moved, stamp, str(newest if young else 0)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_same(before: Finding, basis: str, level_starts: Mapping[int, int]) -> bool:
    """Whether nothing that a finding follows from has changed since it was written."""
    hidden = any(m.series_id in level_starts for m in before.members)
    return not hidden and before.basis == basis
