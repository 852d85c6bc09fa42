"""Cards of the status page: findings in groups by what an administrator has to do, the largest loss first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from iowatch.core import DAY_S, format_count
from iowatch.findings import Finding, FindingMember
from iowatch.output.dashboard.data import SystemEntry
from iowatch.output.text.cards import card_facts, waiting_text
from iowatch.output.text.changes import format_change
from iowatch.output.text.explanations import name_group
from iowatch.output.text.findings import finding_day, finding_headline

# Changes of two systems can be one event if their times, between two sessions each, are this close.
_SAME_EVENT_S = DAY_S // 2
# In order; the first three are cards, the others lists.
GROUPS: Mapping[str, str] = {
    "new": "New with the newest session",
    "waiting": "Waiting for a decision",
    "improvements": "Improvements",
    "acknowledged": "Acknowledged",
    "suspected": "Suspected, not confirmed",
    "settled": "Settled, but still below the level before",
}


@dataclass(frozen=True)
class FindingCard:
    """One event on one system or on several.

    Attributes:
        findings: one per system, the largest loss first.
        headline: what, how much, since when, in one sentence.
        facts: title and sentence of each answer, of the first finding.
        waiting, days: age, as text and as a number.
        is_loss: whether performance was lost; else it was gained.
    """

    group: str
    findings: tuple[tuple[SystemEntry, Finding], ...]
    headline: str
    facts: tuple[tuple[str, str], ...]
    waiting: str
    days: int
    is_loss: bool

    @property
    def finding(self) -> Finding:
        """The finding with the largest loss."""
        return self.findings[0][1]

    @property
    def machine(self) -> SystemEntry:
        """Its system."""
        return self.findings[0][0]

    @property
    def largest(self) -> FindingMember | None:
        """The member of the finding that changed most, to look at first; None if its series has no page."""
        known = {one.row.id for one in self.machine.series}
        members = [member for member in self.finding.members if member.series_id in known]
        return max(members, key=lambda member: member.change_size, default=None)


def make_card(machine: SystemEntry, finding: Finding, group: str = "") -> FindingCard:
    """The card of one finding."""
    return _make_card(group, [(machine, finding)])


def status_cards(machines: Iterable[SystemEntry]) -> dict[str, list[FindingCard]]:
    """Cards by group, without empty groups: the event with the largest loss first, improvements by size."""
    placed = [(m, f) for m in machines for f in m.findings]
    placed.sort(key=lambda one: (-one[1].lost_performance, -one[1].size, one[1].id))
    events: dict[str, list[list[tuple[SystemEntry, Finding]]]] = {name: [] for name in GROUPS}
    for machine, finding in placed:
        group = card_group(machine, finding)
        if group is not None:
            known = next((one for one in events[group] if _is_same_event(one, machine, finding)), None)
            if known is None:
                events[group].append(known := [])
            known.append((machine, finding))
    ranked = {
        name: sorted(found, key=lambda event: -sum(f.lost_performance for _, f in event))
        for name, found in events.items()
    }
    return {name: [_make_card(name, event) for event in found] for name, found in ranked.items() if found}


def card_group(machine: SystemEntry, finding: Finding) -> str | None:
    """Group of a finding; None if it needs nothing: resolved, or settled without a loss."""
    if finding.state in ("dismissed", "accepted"):
        return "settled" if finding.is_loss and finding.resolution is None else None
    if finding.state == "acknowledged":
        return "acknowledged"
    if not finding.needs_action:
        return "suspected" if finding.state == "suspected" else None
    if not finding.is_loss:
        return "improvements"
    return "new" if waiting_days(machine, finding) == 0 else "waiting"


def waiting_days(machine: SystemEntry, finding: Finding) -> int:
    """Days from the first report of a finding to the newest session; of imports and demonstrations, from its date."""
    newest = machine.newest_session.started_at if machine.newest_session else finding.first_after
    is_measured = machine.newest_session is not None and machine.newest_session.origin == "run"
    known_since = finding.first_seen_at if is_measured else finding.first_after
    return max(0, newest - known_since) // DAY_S if known_since < newest else 0


def _is_same_event(event: Sequence[tuple[SystemEntry, Finding]], machine: SystemEntry, finding: Finding) -> bool:
    """Whether a finding of another system changed at the same time, with the same common factor or cause."""
    first = event[0][1]
    if any(known.name == machine.name for known, _ in event) or first.is_loss != finding.is_loss:
        return False
    begin = max(first.last_before, finding.last_before)
    end = min(first.first_after, finding.first_after)
    names = {name_group(one.groups[0]) for one in (first, finding)}
    causes = [{cause.name for cause in one.causes[:1]} for one in (first, finding)]
    shared = len(names) == 1 and None not in names
    return begin <= end + _SAME_EVENT_S and (shared or bool(causes[0] & causes[1]))


def _make_card(group: str, event: Sequence[tuple[SystemEntry, Finding]]) -> FindingCard:
    """The card of an event in a group of cards; facts are those of the first of its findings."""
    machine, finding = event[0]
    days = max(waiting_days(*one) for one in event)
    sessions = sum(session.started_at > finding.last_before for session in machine.sessions)
    return FindingCard(
        group=group,
        findings=tuple(event),
        headline=finding_headline(finding, sessions) if len(event) == 1 else _shared_headline([f for _, f in event]),
        facts=tuple(card_facts(finding)),
        waiting=waiting_text(days),
        days=days,
        is_loss=finding.is_loss,
    )


def _shared_headline(findings: Sequence[Finding]) -> str:
    """`MPI-IO writes lost 46 % (×0.54) since 8 Nov 2026 on 3 systems`, with the largest change.

    Args:
        findings: of one event (`_is_same_event`): of one direction and about one time, that of the first one is shown.
    """
    main_groups = [finding.groups[0] for finding in findings]
    # What changed has a name if it is the same on all systems.
    names = {name_group(group) for group in main_groups}
    name = name_group(main_groups[0])
    if name is None or len(names) > 1:
        name = format_count(sum(group.explanation.changed for group in main_groups), "series")
    # Sizes are gains: the largest loss is the smallest one.
    sizes = [group.size for group in main_groups]
    largest = min(sizes) if findings[0].is_loss else max(sizes)
    change = format_change(largest, is_largest=True)
    return f"{name} {change} since {finding_day(findings[0])} on {format_count(len(findings), 'system')}"
