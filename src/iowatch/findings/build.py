"""The finding of a group of changes: what its series share, which events may have caused it, and its evidence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import mean, median
from typing import Literal

from iowatch.core import Scalar, local_day
from iowatch.findings import grouping
from iowatch.findings.case_parameters import CASE_PARAMETERS, short_case_names
from iowatch.findings.detections import load_detections
from iowatch.findings.evidence import covariate_differences, evidence_differences
from iowatch.findings.finding import DirectionGroup, Finding, FindingMember, LoadShare, Outlook
from iowatch.findings.layers import layer_of_group, probe_responses
from iowatch.findings.slow_nodes import slow_node_evidence
from iowatch.findings.targets_in_logs import targets_in_logs
from iowatch.reference import Event, events
from iowatch.site import system_zone
from iowatch.statistics import ChangePoint, Detection, PossibleCause, explain_changes, rank_causes
from iowatch.statistics.explanation import EventReach
from iowatch.statistics.method import Adjustment
from iowatch.statistics.panel import probability_beside
from iowatch.store import History, SeriesPoints, SeriesRow


def build_finding(
    history: History,
    system: str,
    name: str,
    group: grouping.ChangeGroup,
    rows: Sequence[SeriesRow],
    changes: Mapping[int, Sequence[ChangePoint]],
    points: Mapping[int, SeriesPoints],
    happened: Sequence[Event],
) -> Finding:
    """Build the finding `name` of a group of changes from the current history.

    What an update adds from earlier findings and the reviews is not yet in it: its state is `suspected`, its times
    of updates are 0, and it has no decisions.

    Args:
        name: id of the finding.
        group: its changes; those in the direction of the group are its main group.
        rows, changes, points: of all headline series of the system; changes and points by series id.
        happened: events of the system, which are possible causes if they are near the date.
    """
    # All series at the date of the group; the changed ones in the order of `group.main` and `group.opposite`.
    responses = grouping.compare_around_date(group, rows, changes, points)
    main, opposite, unchanged = responses.main, responses.opposite, responses.unchanged
    # One call for all of them: a name is as short as it can be and still tell the series from the others.
    names = tuple(short_case_names([response.parameters for response in (*main, *opposite, *unchanged)]))
    names_of_main, names_of_others = names[: len(main)], names[len(main) :]
    names_of_opposite, names_of_unchanged = names_of_others[: len(opposite)], names_of_others[len(opposite) :]
    members: list[FindingMember] = []
    changed_series = (*group.main, *group.opposite)
    for change, member_name in zip(changed_series, names_of_main + names_of_opposite, strict=True):
        members.append(grouping.make_member(change, points[change.row.id], member_name))
    # What the changed series share, and which events near the date fit to it.
    compared = [*main, *unchanged]
    explanation = explain_changes(compared, opposite, vocabulary=CASE_PARAMETERS)
    possible_causes: list[PossibleCause] = []
    for event in happened:
        possible_causes += _causes_from_event(event)
    # The changes in the other direction have an explanation of their own, with the same unchanged series.
    opposite_group = None
    if opposite:
        opposite_group = DirectionGroup(
            size=_mean_gain(group.opposite),
            explanation=explain_changes([*opposite, *unchanged], main, vocabulary=CASE_PARAMETERS),
            compared=names_of_opposite + names_of_unchanged,
        )
    return Finding(
        id=name,
        system=system,
        state="suspected",
        direction=group.direction,
        date=local_day(group.first_after, system_zone(system)).isoformat(),
        last_before=group.last_before,
        first_after=group.first_after,
        size=_mean_gain(group.main),
        members=tuple(members),
        explanation=explanation,
        compared=names_of_main + names_of_unchanged,
        without_data=responses.without_data,
        changed_otherwise=responses.changed_otherwise,
        causes=rank_causes(
            possible_causes, group.last_before, group.first_after, compared, explanation, vocabulary=CASE_PARAMETERS
        ),
        differences=evidence_differences(history, members, points),
        first_seen_at=0,
        updated_at=0,
        label=_stated_origin(history, members),
        outlook=_outlook(group),
        opposite=opposite_group,
        probes=probe_responses(main, opposite, unchanged),
        layer=layer_of_group(group, rows, changes, points),
        load=share_of_load(group.changes, load_detections(history, [member.series_id for member in members])),
        covariates=covariate_differences(history, members, points),
        slow_nodes=slow_node_evidence(history, members, points),
        targets_in_logs=targets_in_logs(history, members, points),
    )


def _stated_origin(history: History, members: Sequence[FindingMember]) -> str | None:
    """Origin stated by a run after the change, if it was not measured on this installation."""
    for member in members:
        if member.run_after is not None:
            label = history.run(member.run_after).facts.label
            return str(label) if label else None
    return None


def _outlook(group: grouping.ChangeGroup) -> Outlook | None:
    """Whether the changes will last, from the newest sessions of all series; None if these do not show the group."""
    event = group.event
    if event is None:
        return None
    directions = {panel_group.direction: panel_group.probability_lasting for panel_group in event.groups}
    # Series of the other direction joined the event as suspected changes.
    for direction in {change.direction for change in group.changes} - set(directions):
        confidence = mean(change.change.confidence for change in group.changes if change.direction == direction)
        directions[direction] = probability_beside(event.probability_lasting, confidence)
    return Outlook(
        probability_lasting=event.probability_lasting,
        sessions=event.sessions,
        is_open=event.is_open,
        similar=event.similar,
        over_next=event.over_next,
        moved=tuple((change.row.id, change.log_gain) for change in group.changes),
        new_load=event.new_load,
        directions=tuple(sorted(directions.items())),
        observed=event.observed,
    )


def _mean_gain(changes: Sequence[grouping.SeriesChange]) -> float:
    """Geometric mean of the gains of some changes."""
    return math.exp(sum(change.log_gain for change in changes) / len(changes))


def share_of_load(changes: Sequence[grouping.SeriesChange], detections: Mapping[int, Detection]) -> LoadShare | None:
    """The part of the changes that goes along with covariates; None if no series is adjusted.

    Args:
        detections: of these series, by series id.
    """
    adjustments: list[Adjustment] = []
    change_of_load = 0.0
    for change in changes:
        detection = detections.get(change.row.id)
        if detection is not None and detection.adjustment is not None:
            adjustments.append(detection.adjustment)
            change_of_load += abs(change.log_gain) * (change.change.load_share or 0.0)
    whole_change = sum(abs(change.log_gain) for change in changes)
    if not adjustments or not whole_change:
        return None
    counts = Counter(adjustment.covariate for adjustment in adjustments)
    return LoadShare(
        share=change_of_load / whole_change,
        covariates=tuple(name for name, _ in counts.most_common()),
        members=len(adjustments),
        explained=median(adjustment.explained for adjustment in adjustments),
    )


# Which series an event of each kind changes.
REACH_BY_KIND: dict[str, EventReach] = {
    "workload": "uniform",
    "hardware": "uniform",
    "network": "uniform",
    "outage": "uniform",
    "software": "selective",
    "upgrade": "selective",
    "configuration": "selective",
    "maintenance": "unknown",
    "other": "unknown",
}


def _causes_from_event(event: Event) -> Iterator[PossibleCause]:
    """Possible causes from an event: each of its parts, or the event itself if it has no parts."""
    if not event.parts:
        yield _possible_cause(event, event.title, event.kind, event.scope, event.evidence)
    for part in event.parts:
        name, scope = f"{event.title}: {part.title}", part.scope or event.scope
        yield _possible_cause(event, name, part.kind, scope, (*part.evidence, *event.evidence))


def _possible_cause(
    event: Event, name: str, kind: str, scope: Mapping[str, Scalar], evidence: Iterable[events.EventEvidence]
) -> PossibleCause:
    """The possible cause of a name, kind, scope and evidence, at the time of an event; texts name their sources."""
    statements: list[tuple[Literal["supports", "contradicts"], str]] = []
    for statement in evidence:
        text = f"{statement.text} ({statement.source})" if statement.source else statement.text
        statements.append((statement.verdict, text))
    return PossibleCause(name, event.kind, kind, event.start, event.end, scope, tuple(statements), REACH_BY_KIND[kind])
