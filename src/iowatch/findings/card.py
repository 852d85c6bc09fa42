"""The short answers about a finding for pages and notices: affected, unaffected, probable cause, next step."""

from __future__ import annotations

from collections.abc import Iterator

from iowatch.core import format_count, format_local_time
from iowatch.findings.finding import ChangeGroup, Finding
from iowatch.findings.text import (
    ADMINISTERED,
    MIN_STATED_SHARE,
    format_decision,
    format_factor,
    format_load,
    format_moved_layer,
    format_percent,
    format_probe,
    name_group,
)
from iowatch.site import system_zone
from iowatch.statistics.rules import Magnitude

_MAX_SIZES = 4
_MAX_DIFFERENCES = 3
# Layers of which a card states that one moved; more would not help.
_MAX_LAYERS = 2


def card_facts(finding: Finding) -> Iterator[tuple[str, str]]:
    """Titles and sentences of a card, in the order in which an administrator asks."""
    first, *others = finding.groups
    yield "Affected", _affected(finding, first)
    for group in others:
        yield "Improved as well", _affected(finding, group)
    yield "Unaffected", _unaffected(finding)
    if finding.layer and (finding.layer.named or len(finding.layer.candidates) == _MAX_LAYERS):
        yield "Layer", format_moved_layer(finding.layer)
    yield "Probable cause", probable_cause(finding)
    yield "Next step", next_step(finding)


def _affected(finding: Finding, group: ChangeGroup) -> str:
    found = group.explanation
    count = f"{found.changed} of {finding.explanation.total} series"
    sizes = [*found.magnitudes, *found.second_magnitudes]
    if found.rule is None:
        return f"{count}{_without_rule(group)}"
    if len(sizes) < 2:
        return count
    more = f" and {len(sizes) - _MAX_SIZES} more" if len(sizes) > _MAX_SIZES else ""
    return f"{count}: {', '.join(map(_format_size, sizes[:_MAX_SIZES]))}{more}"


def _without_rule(group: ChangeGroup) -> str:
    """What is known where no parameter separates changed from unchanged series better than chance."""
    found, loss = group.explanation, group.size < 1
    if found.largest is not None:
        change = f"{found.largest.label} ({format_factor(found.largest.ratio)})"
        return f"; too few series to be sure; the largest {'losses' if loss else 'gains'} share: {change}"
    if name_group(group) is not None:
        return ""  # named in the headline
    return f", typically {format_percent(group.size)}; they share no parameter that the others do not have"


def _format_size(size: Magnitude) -> str:
    return f"{size.label or 'typically'} {format_percent(size.ratio)}"


def _unaffected(finding: Finding) -> str:
    found = finding.groups[0].explanation
    unchanged = len(finding.compared) - finding.explanation.changed
    if found.control is not None:
        label, count, total = found.control.label, found.control.unchanged, found.control.total
        text = f"{label}: {count} of {total} series did not change" if count < total else f"{label}, all {total}"
    else:
        text = f"{unchanged} series" if unchanged else "no series that was measured on both sides"
    inside = sum(one.inside for one in found.exceptions)
    outside = len(found.exceptions) - inside
    steady = [one.what for one in finding.probes if not one.changed]
    text = "; ".join([text, *([f"{', '.join(steady)} unchanged"] if steady else [])])
    misfits = [f"{inside} with the common factor did not change"] if inside else []
    misfits += [f"{outside} without it changed"] if outside else []
    return f"{text}; exceptions: {', '.join(misfits)}" if misfits else text


def probable_cause(finding: Finding) -> str:
    """The best match among recorded events, probes that changed, and what differs between the runs before and after."""
    parts = []
    if finding.causes:
        best = finding.causes[0]
        parts.append(f"{best.name} ({best.when.replace('at the change', 'that day')})")
    parts += [format_probe(one) for one in finding.probes if one.changed]
    parts += _differences(finding)
    if finding.load is not None and finding.load.share >= MIN_STATED_SHARE:
        parts.append(format_load(finding.load, "of the change goes along with"))
    return "; ".join(parts) or "unknown: no event is recorded near, and no part of the stacks or nodes differs"


def _differences(finding: Finding) -> list[str]:
    """Each part of stacks, nodes and settings that differs, once, with its versions."""
    found = {
        d.what: f"{d.what} {d.before} → {d.after}" for d in finding.differences if d.where.startswith(ADMINISTERED)
    }
    more = [f"{len(found) - _MAX_DIFFERENCES} more differences"] if len(found) > _MAX_DIFFERENCES else []
    return [*list(found.values())[:_MAX_DIFFERENCES], *more]


def next_step(finding: Finding) -> str:
    """What to do next, in one sentence."""
    decided = finding.review
    if decided is not None and decided.expired:
        return f"Decide again: {format_decision(decided)}"
    if finding.state == "suspected":
        chance = finding.probability_lasting
        stated = "" if chance is None else f"; it lasts with a probability of {100 * chance:.0f} %"
        return f"Wait for the next session, which confirms or ends it{stated}"
    if finding.state == "acknowledged" and decided is not None:
        return f"None before {decided.until}: {format_decision(decided)}"
    if not finding.is_loss:
        return "Accept the new level, so that later losses are measured from it"
    if finding.load is not None and finding.load.share >= MIN_STATED_SHARE:
        return "Look at the load first: who used the file system since then"
    differences = _differences(finding)
    if differences:
        return f"Check whether this was intended: {differences[0]}"
    if finding.causes:
        return f"Ask whoever is responsible for: {finding.causes[0].event}"
    ends = (format_local_time(t, system_zone(finding.system)) for t in (finding.last_before, finding.first_after))
    return f"Find out what happened between {' and '.join(ends)}, and record it as an event"


def waiting_text(days: int) -> str:
    """`waiting for 14 days` for a decision, or `new`."""
    return f"waiting for {format_count(days, 'day')}" if days > 0 else "new"
