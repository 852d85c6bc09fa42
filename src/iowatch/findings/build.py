"""A finding of one group: compared, explained, with what happened near and what differs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from iowatch.events import Event
from iowatch.explain import Suspect, explain, rank
from iowatch.findings.detection import Step
from iowatch.findings.evidence import differences
from iowatch.findings.grouping import Group
from iowatch.findings.observe import Seen, observe
from iowatch.findings.records import Finding, State
from iowatch.findings.wording import line
from iowatch.store import History, SeriesPoints, SeriesRow


def build(
    history: History,
    system: str,
    name: str,
    group: Group,
    rows: Sequence[SeriesRow],
    changes: Mapping[int, Sequence[Step]],
    points: Mapping[int, SeriesPoints],
    happened: Sequence[Event],
) -> Finding:
    """The finding `name` as the history shows it now; state, news and decisions come later.

    Args:
        rows, changes, points: of all headline series of the system, by series id.
        happened: events of the system.
    """
    seen = observe(group, rows, changes, points)
    explanation = explain(seen.observations)
    state: State = "suspected" if all(m.change.suspected for m in group.moved) else "open"
    suspects = [s for event in happened for s in suspects_of(event)]
    causes = rank(suspects, group.last_before, group.first_after, seen.observations, explanation)
    size = math.exp(sum(m.log_gain for m in group.moved) / len(group.moved))
    differing = differences(history, seen.members, points)
    words = line(
        group.direction,
        state,
        group.first_after,
        explanation,
        causes,
        size,
        seen.series_names,
        differing,
    )
    return Finding(
        id=name,
        system=system,
        state=state,
        direction=group.direction,
        date=datetime.fromtimestamp(group.first_after, UTC).date().isoformat(),
        last_before=group.last_before,
        first_after=group.first_after,
        size=size,
        line=words,
        members=seen.members,
        explanation=explanation,
        compared=seen.series_names,
        without_data=seen.without_data,
        moved_otherwise=seen.moved_otherwise,
        causes=causes,
        differences=differing,
        first_seen_at=0,
        updated_at=0,
        label=_label(history, seen),
    )


def suspects_of(event: Event) -> list[Suspect]:
    """An event as possible causes: each of its parts, or itself where it has none."""
    if not event.parts:
        evidence = tuple((e.verdict, _cited(e.text, e.source)) for e in event.evidence)
        return [Suspect(event.title, event.kind, event.kind, event.start, event.end, event.scope, evidence)]
    return [
        Suspect(
            name=f"{event.title}: {part.title}",
            event=event.kind,
            kind=part.kind,
            start=event.start,
            end=event.end,
            scope=part.scope or event.scope,
            evidence=tuple((e.verdict, _cited(e.text, e.source)) for e in (*part.evidence, *event.evidence)),
        )
        for part in event.parts
    ]


def _cited(text: str, source: str | None) -> str:
    return f"{text} ({source})" if source else text


def _label(history: History, seen: Seen) -> str | None:
    """What a run says of its origin, where it was not measured here."""
    run = next((m.run_after for m in seen.members if m.run_after is not None), None)
    label = history.run(run).facts.get("label") if run is not None else None
    return str(label) if label else None
