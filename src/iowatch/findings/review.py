"""Recording of decisions about findings: the file of reviews, then the state of the findings in the history."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iowatch.core import IowatchError, MachineError
from iowatch.findings.finding import Finding, FindingState, finding_from_json
from iowatch.findings.state import find_finding, load_findings, update_findings
from iowatch.findings.text import format_resolution
from iowatch.reference import events, reviews
from iowatch.site import system_today
from iowatch.store import History


@dataclass(frozen=True)
class ReviewAction:
    """What a person can do about a finding: a subcommand of `iowatch review`, and a choice on pages.

    Attributes:
        name: of the subcommand.
        decision: what it records; None for an event.
        help: its effect, in one sentence.
        example: options of the example.
        required, optional: fields of `Decision` that a person gives, in the order of a form.
    """

    name: str
    decision: reviews.DecisionKind | None
    help: str
    example: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


REVIEW_ACTIONS = (
    ReviewAction(
        "accept",
        "accepted",
        "Accept the new level: detection and references start from it.",
        "--reason 'new striping, intended'",
        ("reason",),
        ("until",),
    ),
    ReviewAction(
        "acknowledge",
        "acknowledged",
        "Mark as being handled: suppressed until the given day, then reported again.",
        "--reason 'case 4711' --until 2026-12-01",
        ("reason", "until"),
    ),
    ReviewAction(
        "dismiss",
        "dismissed",
        "Dismiss this finding, and no other.",
        "--reason 'benchmark was misconfigured'",
        ("reason",),
        ("until",),
    ),
    ReviewAction(
        "note",
        "note",
        "Add a remark without changing the state.",
        "--reason 'vendor asked on 3 May'",
        ("reason",),
        ("until",),
    ),
    ReviewAction(
        "assign",
        "assigned",
        "Give a finding an owner. The state does not change.",
        "--to 'A. Administrator' --reason 'case 4711'",
        ("to",),
        ("reason", "until"),
    ),
)


# An event is recorded about the system of a finding: `iowatch event add`.
EVENT_ACTION = ReviewAction(
    "event",
    None,
    "Record what happened to the machine; the next update uses it for findings near its date.",
    "",
    ("title", "date", "kind"),
    ("until", "scope", "details", "source"),
)


@dataclass(frozen=True)
class ReviewBasis:
    """What is known about a finding when a person decides about it.

    Attributes:
        decisions: number of decisions about it in the file of reviews.
        last: the newest of them in one line, or None.
    """

    state: FindingState
    owner: str | None
    decisions: int
    last: str | None


@dataclass(frozen=True)
class RecordedDecisions:
    """What `record_decisions` did.

    Attributes:
        findings: those with the new decision, in their new state.
        conflicts: what happened to each other finding since its basis, by id; nothing was recorded for them.
        paths: the files written.
        faults: what failed after the first decision was recorded.
    """

    findings: tuple[Finding, ...]
    conflicts: Mapping[str, str]
    paths: tuple[Path, ...]
    faults: tuple[IowatchError, ...]


def review_bases(history: History, ids: Collection[str]) -> dict[str, ReviewBasis]:
    """The basis of a decision about each of these findings; ids that the history does not contain are omitted."""
    found = [row for system in history.systems() for row in history.findings(system) if row.id in ids]
    decisions = {system: reviews.load_decisions(system) for system in {row.system for row in found}}
    return {
        row.id: _basis(finding_from_json(row.document), [d for d in decisions[row.system] if d.finding == row.id])
        for row in found
    }


def _basis(finding: Finding, decisions: Sequence[reviews.Decision]) -> ReviewBasis:
    last = describe_decision(decisions[-1]) if decisions else None
    return ReviewBasis(finding.state, finding.owner, len(decisions), last)


def describe_decision(decision: reviews.Decision) -> str:
    """`assigned to B. Operator by A. Administrator on 2026-11-01: ticket 4711`."""
    to = f" to {decision.to}" if decision.to else ""
    reason = f": {' '.join(decision.reason.split())}" if decision.reason else ""
    kind = "noted" if decision.decision == "note" else decision.decision
    return f"{kind}{to} by {decision.by} on {decision.date}{reason}"


def record_decision(history: History, finding: str, entry: Mapping[str, Any]) -> Finding:
    """Record a decision about one finding, as `record_decisions`, whatever happened to it meanwhile."""
    done = record_decisions(history, {finding: None}, entry)
    for fault in done.faults:
        raise fault
    return done.findings[0]


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
    known = load_findings(history)
    asked = {name: find_finding(history, name, known) for name in bases}
    history.require_right_to_update_findings()
    by_system: dict[str, dict[str, tuple[Finding, ReviewBasis | None]]] = {}
    for name, found in asked.items():
        by_system.setdefault(found.system, {})[found.id] = found, bases[name]
    recorded: list[str] = []
    conflicts: dict[str, str] = {}
    paths: list[Path] = []
    faults: list[IowatchError] = []
    for system, chosen in by_system.items():
        counts = {name: None if basis is None else basis.decisions for name, (_, basis) in chosen.items()}
        common = {**entry, "date": system_today(system)}
        entries = [{"finding": name, **common} for name in chosen if _has_state_of_basis(*chosen[name])]
        try:
            added = [decision.finding for decision in reviews.add_decisions(system, entries, counts)]
        except IowatchError as error:
            if not recorded:
                raise
            faults.append(error)
            continue
        decided = reviews.load_decisions(system)
        conflicts |= {name: _describe_conflict(*chosen[name], decided) for name in chosen if name not in added}
        if added:
            recorded += added
            paths.append(reviews.review_file_path(system))
            faults += _update_after_recording(history, system, paths[-1])
    current = {found.id: found for found in load_findings(history)} if recorded else {}
    return RecordedDecisions(tuple(current[name] for name in recorded), conflicts, tuple(paths), tuple(faults))


def _has_state_of_basis(finding: Finding, basis: ReviewBasis | None) -> bool:
    return basis is None or basis.state == finding.state


def _describe_conflict(finding: Finding, basis: ReviewBasis | None, decisions: Sequence[reviews.Decision]) -> str:
    """The decisions that were made meanwhile, or the new state where it has another reason."""
    new = [d for d in decisions if d.finding == finding.id][basis.decisions if basis else 0 :]
    if new:
        return f"{finding.id} was meanwhile {'; '.join(map(describe_decision, new))}"
    return f"{finding.id} is meanwhile {finding.state}" + (
        f": {format_resolution(finding)}" if finding.resolution else ""
    )


def record_event(history: History, system: str, entry: Mapping[str, Any]) -> tuple[Path, list[IowatchError]]:
    """Append an event to the file of its system, and update the findings, of which it may be a cause.

    Args:
        entry: fields of `Event`.

    Returns:
        The file, and what failed after it was written.

    Raises:
        UsageError: unknown system.
        InputError: not a valid event, or the file is damaged.
        MachineError: the account may not update findings, or a file cannot be written.
    """
    events.require_known_system(system, history.systems)
    history.require_right_to_update_findings()
    events.add_event(system, dict(entry))
    path = events.event_file_path(system)
    return path, _update_after_recording(history, system, path)


def _update_after_recording(history: History, system: str, path: Path) -> list[IowatchError]:
    try:
        update_findings(history, system, report=False)
    except IowatchError as error:
        text = f"recorded in {path}, but the findings in the history could not be updated: {error.message}"
        return [MachineError(text, hint="The next session, or `iowatch findings list`, updates them.")]
    return []
