"""The short answers about a finding for pages and notices: affected, unaffected, probable cause, next step."""

from __future__ import annotations

from collections.abc import Iterator

from iowatch.core import format_count, format_local_time
from iowatch.findings import DirectionGroup, Finding
from iowatch.output.text.changes import format_factor, format_percent
from iowatch.output.text.decisions import format_decision, format_resolution
from iowatch.output.text.evidence import (
    administered_differences,
    format_cause_date,
    format_load,
    format_moved_layer,
    format_probe,
    format_short_difference,
    is_load_stated,
)
from iowatch.output.text.explanations import name_group
from iowatch.output.text.patterns import format_pattern
from iowatch.site import system_zone
from iowatch.statistics.rules import Magnitude

_MAX_SIZES = 4
_MAX_DIFFERENCES = 3


def card_facts(finding: Finding) -> Iterator[tuple[str, str]]:
    """Titles and sentences of a card, in the order in which an administrator asks."""
    first, *others = finding.groups
    if finding.resolution is not None:
        yield "Resolved", format_resolution(finding)
    yield "Affected", _affected(finding, first)
    for group in others:
        yield "Improved as well", _affected(finding, group)
    yield "Unaffected", _unaffected(finding)
    # The cause is on the first screen; the sentence about layers may be long.
    yield "Probable cause", probable_cause(finding)
    if finding.layer is not None:
        yield "Layer", format_moved_layer(finding.layer)
    step = next_step(finding)
    if step:
        yield "Next step", step


def _affected(finding: Finding, group: DirectionGroup) -> str:
    explanation = group.explanation
    count = f"{explanation.changed} of {finding.explanation.total} series"
    if finding.pattern is not None:
        return f"{count}: {format_pattern(finding)}"
    if explanation.rule is None:
        return f"{count}{_without_rule(group)}"
    sizes = [*explanation.magnitudes, *explanation.second_magnitudes]
    if len(sizes) < 2:
        return count
    listed = ", ".join(map(_format_size, sizes[:_MAX_SIZES]))
    more = f" and {len(sizes) - _MAX_SIZES} more" if len(sizes) > _MAX_SIZES else ""
    return f"{count}: {listed}{more}"


def _without_rule(group: DirectionGroup) -> str:
    """What is known where no parameter separates changed from unchanged series better than chance."""
    largest = group.explanation.largest
    if largest is not None:
        which = "losses" if group.direction == "down" else "gains"
        change = f"{largest.label} ({format_factor(largest.ratio)})"
        return f"; too few series to be sure; the largest {which} share: {change}"
    if name_group(group) is not None:
        return ""  # named in the headline
    return f", typically {format_percent(group.size)}; they share no parameter that the others do not have"


def _format_size(size: Magnitude) -> str:
    return f"{size.label or 'typically'} {format_percent(size.ratio)}"


def _unaffected(finding: Finding) -> str:
    explanation = finding.groups[0].explanation
    parts = [_unchanged_series(finding)]
    unchanged_probes = [probe.what for probe in finding.probes if not probe.changed]
    if unchanged_probes:
        parts.append(f"{', '.join(unchanged_probes)} unchanged")
    # Exceptions from the common factor, on both of its sides.
    inside = sum(exception.inside for exception in explanation.exceptions)
    outside = len(explanation.exceptions) - inside
    exceptions: list[str] = []
    if inside:
        exceptions.append(f"{inside} with the common factor did not change")
    if outside:
        exceptions.append(f"{outside} without it changed")
    if exceptions:
        parts.append(f"exceptions: {', '.join(exceptions)}")
    return "; ".join(parts)


def _unchanged_series(finding: Finding) -> str:
    """The group that did not change, or the number of unchanged series."""
    control = finding.groups[0].explanation.control
    if control is None:
        unchanged = len(finding.compared) - finding.explanation.changed
        return f"{unchanged} series" if unchanged else "no series that was measured on both sides"
    if control.unchanged < control.total:
        return f"{control.label}: {control.unchanged} of {control.total} series did not change"
    return f"{control.label}, all {control.total}"


def probable_cause(finding: Finding) -> str:
    """The best match among recorded events, probes that changed, and what differs between the runs before and after."""
    parts: list[str] = []
    if finding.causes:
        best = finding.causes[0]
        parts.append(f"{best.name} ({format_cause_date(best)})")
    parts += [format_probe(probe) for probe in finding.probes if probe.changed]
    parts += _difference_texts(finding)
    if finding.load is not None and is_load_stated(finding):
        parts.append(format_load(finding.load, "of the change goes along with"))
    return "; ".join(parts) or "unknown: no event is recorded near, and no part of the stacks or nodes differs"


def _difference_texts(finding: Finding) -> list[str]:
    """Each part of stacks, nodes and settings that differs, once, with what differs about it."""
    differences = administered_differences(finding)
    texts = [format_short_difference(difference) for difference in differences[:_MAX_DIFFERENCES]]
    more = len(differences) - _MAX_DIFFERENCES
    if more > 0:
        texts.append(f"{more} more differences")
    return texts


def next_step(finding: Finding) -> str:
    """What to do next, in one sentence; empty if nothing is left to do. It does not repeat the probable cause."""
    decision = finding.review
    if finding.resolution is not None:
        return ""
    if decision is not None and not decision.is_in_force:
        return f"Decide again: {format_decision(decision)}"
    if finding.state == "suspected":
        wait = "Wait for the next session, which confirms or ends it"
        probability = finding.probability_lasting
        return wait if probability is None else f"{wait}; it lasts with a probability of {100 * probability:.0f} %"
    if finding.state == "acknowledged" and decision is not None:
        return f"None before {decision.until}: {format_decision(decision)}"
    if finding.state in ("accepted", "dismissed"):
        return ""
    if not finding.is_loss:
        return "Accept the new level, so that later losses are measured from it"
    # A loss: what is most likely to explain it comes first.
    if is_load_stated(finding):
        return "Look at the load first: who used the file system since then"
    differences = administered_differences(finding)
    if len(differences) == 1:
        return "Check whether this difference was intended"
    if differences:
        return f"Check whether these {len(differences)} differences were intended"
    if finding.causes:
        return f"Ask whoever is responsible for this event ({finding.causes[0].event})"
    zone = system_zone(finding.system)
    begin, end = format_local_time(finding.last_before, zone), format_local_time(finding.first_after, zone)
    return f"Find out what happened between {begin} and {end}, and record it as an event"


def waiting_text(days: int) -> str:
    """`waiting for 14 days` for a decision, or `new`."""
    return f"waiting for {format_count(days, 'day')}" if days > 0 else "new"
