"""Recording of decisions about findings: the file of reviews, then the state of the findings in the history."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iowatch.core import IowatchError, MachineError
from iowatch.findings.decided_change import decided_change
from iowatch.findings.document import finding_from_document
from iowatch.findings.finding import Finding, FindingState
from iowatch.findings.state import find_finding, load_findings, update_findings
from iowatch.reference import events, reviews
from iowatch.site import system_today
from iowatch.store import History


@dataclass(frozen=True)
class ReviewBasis:
    """What is known about a finding when a person decides about it.

    Attributes:
        decisions: number of decisions about it in the file of reviews.
    """

    state: FindingState
    owner: str | None
    decisions: int


@dataclass(frozen=True)
class ReviewedFinding:
    """The basis of the next decision about a finding, and the newest decision so far, or None."""

    basis: ReviewBasis
    last: reviews.Decision | None


@dataclass(frozen=True)
class ReviewConflict:
    """A finding that is not any more what a person decided about; nothing was recorded.

    Attributes:
        finding: as it is now.
        decisions: those made meanwhile; empty if its state has another reason.
    """

    finding: Finding
    decisions: tuple[reviews.Decision, ...]


@dataclass(frozen=True)
class RecordedDecisions:
    """What `record_decisions` did.

    Attributes:
        findings: those with the new decision, in their new state.
        conflicts: by id, the findings that changed since their basis.
        paths: the files written.
        faults: what failed after the first decision was recorded.
    """

    findings: tuple[Finding, ...]
    conflicts: Mapping[str, ReviewConflict]
    paths: tuple[Path, ...]
    faults: tuple[IowatchError, ...]


def review_bases(history: History, ids: Collection[str]) -> dict[str, ReviewedFinding]:
    """The basis of a decision about each of these findings; ids that the history does not contain are omitted."""
    reviewed: dict[str, ReviewedFinding] = {}
    for system in history.systems():
        rows = [row for row in history.findings(system) if row.id in ids]
        # The file of reviews is read for systems with such findings only.
        decisions = reviews.read_decisions(system).decisions if rows else ()
        for row in rows:
            finding = finding_from_document(row.document)
            about_finding = [decision for decision in decisions if decision.finding == row.id]
            basis = ReviewBasis(finding.state, finding.owner, len(about_finding))
            reviewed[row.id] = ReviewedFinding(basis, about_finding[-1] if about_finding else None)
    return reviewed


def record_decision(history: History, finding: str, entry: Mapping[str, Any]) -> Finding:
    """Record a decision about one finding, as `record_decisions`, whatever happened to it meanwhile."""
    recorded = record_decisions(history, {finding: None}, entry)
    for fault in recorded.faults:
        raise fault
    return recorded.findings[0]


def record_decisions(
    history: History, bases: Mapping[str, ReviewBasis | None], entry: Mapping[str, Any]
) -> RecordedDecisions:
    """Append a decision about each finding to the review file of its system, and update the findings.

    A finding whose state or decisions are not those of its basis any more is left out: it is a conflict.

    Args:
        bases: by id of the finding, or its unambiguous prefix; None: not asked.
        entry: fields of `Decision` without `finding` and `date`, which is the current day of the system.

    Raises:
        UsageError: no such finding.
        InputError: not a valid decision, or the file is damaged.
        MachineError: the account may not update findings, or the first file cannot be written; nothing is recorded.
    """
    findings = load_findings(history)
    # By id: two prefixes may name one finding.
    asked: dict[str, _AskedFinding] = {}
    for name, basis in bases.items():
        finding = find_finding(history, name, findings)
        asked[finding.id] = _AskedFinding(finding, basis)
    history.require_right_to_update_findings()
    by_system: dict[str, list[_AskedFinding]] = {}
    for asked_finding in asked.values():
        by_system.setdefault(asked_finding.finding.system, []).append(asked_finding)
    recorded_ids: list[str] = []
    conflicts: dict[str, ReviewConflict] = {}
    paths: list[Path] = []
    faults: list[IowatchError] = []
    for system, asked_of_system in by_system.items():
        try:
            recorded_of_system = _record_of_system(system, asked_of_system, entry)
        except IowatchError as error:
            # Nothing is recorded yet: the whole request fails. Else the other systems go on.
            if not recorded_ids:
                raise
            faults.append(error)
            continue
        decisions = reviews.load_decisions(system)
        for asked_finding in asked_of_system:
            finding_id = asked_finding.finding.id
            if finding_id not in recorded_of_system:
                conflicts[finding_id] = _conflict(asked_finding, decisions)
        if recorded_of_system:
            recorded_ids += recorded_of_system
            path = reviews.review_file_path(system)
            paths.append(path)
            faults += _update_after_recording(history, system, path)
    current = {finding.id: finding for finding in load_findings(history)} if recorded_ids else {}
    decided = tuple(current[name] for name in recorded_ids)
    return RecordedDecisions(decided, conflicts, tuple(paths), tuple(faults))


@dataclass(frozen=True)
class _AskedFinding:
    """A finding as it is, and what the person knew about it who decides; None: not asked."""

    finding: Finding
    basis: ReviewBasis | None

    @property
    def has_state_of_basis(self) -> bool:
        return self.basis is None or self.basis.state == self.finding.state


def _record_of_system(system: str, asked: Sequence[_AskedFinding], entry: Mapping[str, Any]) -> list[str]:
    """Append a decision about each finding of one system whose state is that of its basis; returns their ids.

    `add_decisions` leaves out those about which there are more decisions than in their basis.
    """
    today = system_today(system)
    counts: dict[str, int | None] = {}
    entries: list[dict[str, Any]] = []
    for asked_finding in asked:
        finding_id, basis = asked_finding.finding.id, asked_finding.basis
        counts[finding_id] = None if basis is None else basis.decisions
        if asked_finding.has_state_of_basis:
            recorded = {"finding": finding_id, **entry, "date": today}
            if entry.get("decision") in reviews.STATE_DECISIONS:
                recorded["about"] = decided_change(asked_finding.finding)
            entries.append(recorded)
    return [decision.finding for decision in reviews.add_decisions(system, entries, counts)]


def _conflict(asked: _AskedFinding, decisions: Sequence[reviews.Decision]) -> ReviewConflict:
    """The conflict of a finding, with the decisions that were made since its basis."""
    about_finding = [decision for decision in decisions if decision.finding == asked.finding.id]
    known_decisions = asked.basis.decisions if asked.basis is not None else 0
    return ReviewConflict(asked.finding, tuple(about_finding[known_decisions:]))


@dataclass(frozen=True)
class RecordedEvent:
    """An event that was appended to a file.

    Attributes:
        faults: what failed after the file was written.
    """

    path: Path
    faults: tuple[IowatchError, ...]


def record_event(history: History, system: str, entry: Mapping[str, Any]) -> RecordedEvent:
    """Append an event to the file of its system, and update the findings, of which it may be a cause.

    Args:
        entry: fields of `Event`.

    Raises:
        UsageError: unknown system.
        InputError: not a valid event, or the file is damaged.
        MachineError: the account may not update findings, or a file cannot be written.
    """
    events.require_known_system(system, history.systems)
    history.require_right_to_update_findings()
    events.add_event(system, dict(entry))
    path = events.event_file_path(system)
    return RecordedEvent(path, tuple(_update_after_recording(history, system, path)))


def _update_after_recording(history: History, system: str, path: Path) -> list[IowatchError]:
    try:
        update_findings(history, system, report=False)
    except IowatchError as error:
        text = f"recorded in {path}, but the findings in the history could not be updated: {error.message}"
        return [MachineError(text, hint="The next session, or `iowatch findings list`, updates them.")]
    return []
