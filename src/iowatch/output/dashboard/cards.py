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
class SystemFinding:
    """A finding and its system."""

    machine: SystemEntry
    finding: Finding


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
    findings: tuple[SystemFinding, ...]
    headline: str
    facts: tuple[tuple[str, str], ...]
    waiting: str
    days: int
    is_loss: bool

    @property
    def finding(self) -> Finding:
        """The finding with the largest loss."""
        return self.findings[0].finding

    @property
    def machine(self) -> SystemEntry:
        """Its system."""
        return self.findings[0].machine

    @property
    def largest(self) -> FindingMember | None:
        """The member of the finding that changed most, to look at first; None if its series has no page."""
        series_ids = {series.row.id for series in self.machine.series}
        members = [member for member in self.finding.members if member.series_id in series_ids]
        return max(members, key=lambda member: member.change_size, default=None)


def make_card(machine: SystemEntry, finding: Finding, group: str = "") -> FindingCard:
    """The card of one finding."""
    return _make_card(group, [SystemFinding(machine, finding)])


def status_cards(machines: Iterable[SystemEntry]) -> dict[str, list[FindingCard]]:
    """Cards by group, without empty groups: the event with the largest loss first, improvements by size."""
    entries: list[SystemFinding] = []
    for machine in machines:
        entries += [SystemFinding(machine, finding) for finding in machine.findings]
    entries.sort(key=_importance_key)
    # Events of each group, each with the findings of the systems that it affected.
    events: dict[str, list[list[SystemFinding]]] = {name: [] for name in GROUPS}
    for entry in entries:
        group = card_group(entry.machine, entry.finding)
        if group is None:
            continue
        for event in events[group]:
            if _is_same_event(event, entry):
                event.append(entry)
                break
        else:
            events[group].append([entry])
    cards: dict[str, list[FindingCard]] = {}
    for group, group_events in events.items():
        if group_events:
            # Several systems together can have lost more than the one that lost most.
            group_events.sort(key=_event_loss, reverse=True)
            cards[group] = [_make_card(group, event) for event in group_events]
    return cards


def _importance_key(entry: SystemFinding) -> tuple[float, float, str]:
    """Sort key: the largest loss first, then the largest gain."""
    finding = entry.finding
    return -finding.lost_performance, -finding.size, finding.id


def _event_loss(event: Sequence[SystemFinding]) -> float:
    """Performance lost on all systems of an event."""
    return sum(entry.finding.lost_performance for entry in event)


def card_group(machine: SystemEntry, finding: Finding) -> str | None:
    """Group of a finding; None if it needs nothing: resolved, or settled without a loss."""
    if finding.state in ("dismissed", "accepted"):
        is_below = finding.is_loss and finding.resolution is None
        return "settled" if is_below else None
    if finding.state == "acknowledged":
        return "acknowledged"
    if not finding.needs_action:
        return "suspected" if finding.state == "suspected" else None
    if not finding.is_loss:
        return "improvements"
    return "new" if waiting_days(machine, finding) == 0 else "waiting"


def waiting_days(machine: SystemEntry, finding: Finding) -> int:
    """Days from the first report of a finding to the newest session; of imports and demonstrations, from its date."""
    newest = machine.newest_session
    if newest is None:
        return 0
    # An import reports the findings of years at once.
    since = finding.first_seen_at if newest.origin == "run" else finding.first_after
    return max(0, (newest.started_at - since) // DAY_S)


def _is_same_event(event: Sequence[SystemFinding], entry: SystemFinding) -> bool:
    """Whether a finding of another system changed at the same time, with the same common factor or cause."""
    first, finding = event[0].finding, entry.finding
    if any(other.machine.name == entry.machine.name for other in event):
        return False
    if first.is_loss != finding.is_loss:
        return False
    # Each change happened between two sessions of its system; the periods have to overlap or nearly so.
    latest_begin = max(first.last_before, finding.last_before)
    earliest_end = min(first.first_after, finding.first_after)
    if latest_begin > earliest_end + _SAME_EVENT_S:
        return False
    name = name_group(first.groups[0])
    if name is not None and name == name_group(finding.groups[0]):
        return True
    # Causes are in order of likelihood.
    first_causes = [cause.name for cause in first.causes[:1]]
    return any(cause.name in first_causes for cause in finding.causes[:1])


def _make_card(group: str, event: Sequence[SystemFinding]) -> FindingCard:
    """The card of an event in a group of cards; facts are those of the first of its findings."""
    machine, finding = event[0].machine, event[0].finding
    # Systems of one event have different sessions: only the headline of a single system counts them.
    if len(event) == 1:
        headline = finding_headline(finding, _count_sessions(machine, finding))
    else:
        headline = _shared_headline([entry.finding for entry in event])
    days = max(waiting_days(entry.machine, entry.finding) for entry in event)
    return FindingCard(
        group=group,
        findings=tuple(event),
        headline=headline,
        facts=tuple(card_facts(finding)),
        waiting=waiting_text(days),
        days=days,
        is_loss=finding.is_loss,
    )


def _count_sessions(machine: SystemEntry, finding: Finding) -> int | None:
    """Number of sessions with the change of a finding; None of one that is over where its end is not known."""
    end = finding.end(machine.session_starts)
    if finding.resolution is not None and end is None:
        return None
    sessions = 0
    for start in machine.session_starts:
        is_before_end = end is None or start < end
        if start > finding.last_before and is_before_end:
            sessions += 1
    return sessions


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
        series = sum(group.explanation.changed for group in main_groups)
        name = format_count(series, "series")
    # Sizes are gains: the largest loss is the smallest one.
    sizes = [group.size for group in main_groups]
    largest = min(sizes) if findings[0].is_loss else max(sizes)
    change = format_change(largest, is_largest=True)
    return f"{name} {change} since {finding_day(findings[0])} on {format_count(len(findings), 'system')}"
