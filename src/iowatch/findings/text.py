"""Findings as text for a terminal or a mail: one line, or a report with the summary first and then the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import tzinfo

from iowatch.core import covariate_label, format_count, format_local_time, format_number, format_size, local_day
from iowatch.findings.case_parameters import CASE_PARAMETERS
from iowatch.findings.finding import (
    AppliedDecision,
    ChangeGroup,
    CovariateDifference,
    Finding,
    FindingMember,
    LoadShare,
    MovedLayer,
    PerformanceDirection,
    ProbeResponse,
)
from iowatch.findings.series import MIN_OBSERVATIONS, HistoryExtent
from iowatch.site import system_zone
from iowatch.statistics import Detection, Explanation
from iowatch.statistics.explanation import RankedCause
from iowatch.statistics.rules import Magnitude, Rule, RuleException

_MAX_EXCEPTIONS = 3
_MAX_NAMED = 2
# Smallest share of a change that the line of a finding attributes to the load.
MIN_STATED_SHARE = 0.5
# Groups of differences that administrators cause (iowatch.findings.evidence).
ADMINISTERED = ("stack ", "compute node", "loaded", "MPI-IO hints", "settings")


def format_factor(value: float) -> str:
    """A ratio as text: two significant digits below ten, an integer above: `×0.48`, `×2.9`, `×51`."""
    return f"×{value:.0f}" if value >= 9.95 else f"×{value:.2g}"


def format_change(gain: float) -> str:
    """A gain of performance as per cent and factor: `lost 46 % (×0.54)`, `gained 190 % (×2.9)`."""
    return f"{'lost' if gain < 1 else 'gained'} {format_percent(gain)[1:]}"


def format_percent(gain: float) -> str:
    """The same with a sign, for lists: `−46 % (×0.54)`, `+190 % (×2.9)`."""
    percent = 100 * abs(gain - 1)
    digits = f"{percent:,.0f}" if percent >= 0.95 else f"{percent:.1f}"
    return f"{'−' if gain < 1 else '+'}{digits} % ({format_factor(gain)})"


def format_day(moment: float, zone: tzinfo) -> str:
    """`17 Mar 2009`: the day in a zone of a moment in epoch seconds."""
    return local_day(moment, zone).strftime("%-d %b %Y")


def finding_day(finding: Finding) -> str:
    """`17 Mar 2009`: the day of a finding in the zone of its system."""
    return format_day(finding.first_after, system_zone(finding.system))


def finding_line(finding: Finding) -> str:
    """The finding in one line: date, changed series, common factor, size, events near the change."""
    explanation, opposite = finding.explanation, finding.opposite
    doubt = f" (suspected, {_format_doubt(finding)})" if finding.state == "suspected" else ""
    if opposite is None:
        what = f"{explanation.changed} of {explanation.total} series {finding.direction}{doubt}"
        groups = [_format_common_factor(explanation, finding.compared, finding.size)]
    else:
        what = f"{finding.changed} of {explanation.total} series changed{doubt}"
        groups = [
            f"{one.explanation.changed} {direction}, {_format_common_factor(one.explanation, one.compared, one.size)}"
            for one, direction in ((finding, finding.direction), (opposite, opposite_direction(finding)))
        ]
    parts = [f"{finding_day(finding)}: {what}", *groups]
    if finding.session_loss is not None:
        parts.append(f"last session {format_session_loss(finding)}")
    control = explanation.control
    if control is not None and explanation.rule is not None:
        parts.append(f"{control.label} unchanged ({control.unchanged} of {control.total})")
    if explanation.exceptions:
        parts.append(_format_exceptions(explanation.exceptions))
    if finding.layer is not None and finding.layer.named is not None:
        parts.append(format_moved_layer(finding.layer))
    if finding.load is not None and finding.load.share >= MIN_STATED_SHARE:
        parts.append(format_load(finding.load, "explained by"))
    near = (f"{cause.event} {cause.when}".replace("at the change", "that day") for cause in finding.causes)
    parts.append(next(near, "no event recorded near"))
    # Only parts that administrators change: counters and nodes follow from them, or change by themselves.
    names = list(dict.fromkeys(one.what for one in finding.differences if one.where.startswith(ADMINISTERED)))
    if names:
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        parts.append(f"{', '.join(names[:_MAX_NAMED])}{more} {'differs' if len(names) == 1 else 'differ'}")
    return "; ".join(parts)


def _format_doubt(finding: Finding) -> str:
    """Probability that a suspected finding lasts, where the newest sessions give one."""
    probability = finding.probability_lasting
    return "not yet confirmed" if probability is None else f"lasts with a probability of {100 * probability:.0f} %"


def format_resolution(finding: Finding) -> str:
    """Why a finding is resolved, in a sentence; empty while it is not.

    For example `transient: back after at most 2 sessions`, `back at the level before since 7 Mar 2025 (archer-…-up)`.
    """
    resolution = finding.resolution
    if resolution is None:
        return ""
    if resolution.kind == "transient":
        return f"transient: back after at most {format_count(resolution.sessions or 0, 'session')}"
    if resolution.kind == "not confirmed":
        return "not confirmed by later sessions"
    if resolution.kind == "part of another":
        return f"part of {resolution.finding}"
    if resolution.kind == "recovery":
        return f"recovery of {resolution.finding}"
    day = format_day(resolution.since or 0, system_zone(finding.system))
    if resolution.kind == "returned":
        return f"back at the level before since {day} ({resolution.finding})"
    return f"superseded: the level since {day} is accepted"


def format_session_loss(finding: Finding) -> str:
    """`ior write HDF5 ×0.003, never below ×0.95 in 40 sessions before; repeated by the retest`: the last session.

    Empty without an unusual loss.
    """
    loss = finding.session_loss
    if loss is None:
        return ""
    name = f"{loss.name} " if len(finding.members) > 1 else ""
    text = f"{name}{format_factor(loss.gain)}"
    if loss.sessions > 1:
        text += f", {format_count(loss.sessions, 'session')} in a row below what is usual"
    earlier = format_count(loss.earlier, "session")
    if loss.gain < loss.lowest:
        text += f", never below {format_factor(loss.lowest)} in {earlier} before"
    else:
        text += f", lowest of {earlier} before {format_factor(loss.lowest)}"
    if not loss.is_alone:
        text += ", together with the other series of the file system"
    if loss.repeated is not None:
        text += "; repeated by the retest" if loss.repeated else "; the retest shows less"
    return text


def format_outlook(finding: Finding) -> str:
    """`session 1 since 17 Mar 2009; of 9 such sessions before 8 over in the next; probability that it lasts 35 %`.

    That of one direction is added where it is lower, because those series may not have changed with the event.
    """
    outlook = finding.outlook
    if outlook is None:
        return "no assessment of the newest sessions"
    since = f"session {outlook.sessions} since {finding_day(finding)}"
    since += f" (its series were measured in {outlook.observed})" if outlook.observed else ""
    seen = f"of {format_count(outlook.similar, 'such session')} before {outlook.over_next} over in the next"
    seen = seen if outlook.similar else "no such session before"
    lasts = f"probability that it lasts {100 * outlook.probability_lasting:.0f} %"
    lasts += "".join(
        f" (series {direction}: {100 * probability:.0f} %)"
        for direction, probability in outlook.directions
        if probability < outlook.probability_lasting - 0.01
    )
    new = outlook.new_load
    load = f"; {covariate_label(new)} changed at the same time, with an effect that is not known yet" if new else ""
    return f"{since}; {seen}; {lasts}{load}"


def short_summary(finding: Finding) -> str:
    """Both groups with their sizes, for a line with other facts: `ior shared file reads ×0.1, 9 series up ×1.6`."""
    sides = sorted(finding.groups, key=lambda one: one.size != finding.size)
    return ", ".join(f"{name_group(one) or _count_group(one)} {format_factor(one.size)}" for one in sides)


def name_group(group: ChangeGroup) -> str | None:
    """What the series of a group share, or their names if these are few; None for many without a common factor."""
    found = group.explanation
    if found.rule is not None:
        return found.rule.text if found.rule.conditions else "all series"
    if found.largest is not None and len(found.largest.members) == found.changed:
        return found.largest.label
    return " and ".join(group.compared[: found.changed]) if found.changed <= _MAX_NAMED else None


def _count_group(group: ChangeGroup) -> str:
    return f"{group.explanation.changed} series {'down' if group.size < 1 else 'up'}"


def finding_headline(finding: Finding, sessions: int | None = None) -> str:
    """The larger loss, or the gain, in one short sentence: `MPI-IO writes lost 46 % (×0.54) since 8 Nov 2026`.

    Args:
        sessions: number of sessions since the change, stated if it is given.
    """
    group = finding.groups[0]
    what = name_group(group) or format_count(group.explanation.changed, "series")
    count = "" if sessions is None else f" ({format_count(sessions, 'session')})"
    return f"{what} {format_change(group.size)} since {finding_day(finding)}{count}"


def opposite_direction(finding: Finding) -> PerformanceDirection:
    """The direction of the opposite group."""
    return "up" if finding.direction == "down" else "down"


def format_load(load: LoadShare, relation: str) -> str:
    """`80 % explained by jobs on the file system`: the share of a change that goes along with the load."""
    labels = " and ".join(covariate_label(name) for name in load.covariates[:_MAX_NAMED])
    return f"{100 * load.share:.0f} % {relation} {labels}"


def format_probe(one: ProbeResponse) -> str:
    """`raw disk (fio) unchanged`, `raw disk (fio) −46 % (×0.54), too`, or how many of its series changed."""
    if not one.changed:
        return f"{one.what} unchanged"
    count = "" if one.changed == one.total else f" in {one.changed} of {one.total} series"
    return f"{one.what} {format_percent(one.gain)}{count}, too"


def format_moved_layer(one: MovedLayer) -> str:
    """The answer in one sentence.

    `lowest layer that moved: HDF5 (NetCDF moved with it; MPI-IO, disk did not)`, or
    `cannot tell between disk and file system (a series of raw disk (fio) would tell)`.
    """
    if one.named is not None:
        only = f", {one.direction}s only" if one.direction else ""
        parts = [f"{_join_names(one.moved)} moved with it"] if one.moved else []
        parts += [f"{_join_names(one.unmoved)} did not"] if one.unmoved else []
        return f"lowest layer that moved: {one.named}{only}" + (f" ({'; '.join(parts)})" if parts else "")
    if not one.candidates:
        return "cannot tell which layer moved: no single layer explains the changes"
    names = [each.layer for each in one.candidates]
    between = f"between {_join_names(names)}" if len(names) > 1 else f"whether it is {names[0]}"
    tell = f" (a series of {' or of '.join(one.would_tell)} would tell)" if one.would_tell else ""
    return f"cannot tell {between}{tell}"


def _join_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _load_lines(finding: Finding) -> Iterator[str]:
    """How much of the change goes along with the load, and what the members are adjusted for; empty without."""
    if finding.load is not None:
        yield format_load(finding.load, "of the change goes along with")
        used = f"{finding.load.members} of {len(finding.members)} series are adjusted for it"
        yield f"{used}; it predicts {100 * finding.load.explained:.0f} % of their variance between sessions"


def _format_common_factor(explanation: Explanation, compared: Sequence[str], size: float) -> str:
    """Common factor and sizes of one group; `compared` and `size` as in `Finding`."""
    rule, sizes = explanation.rule, format_magnitudes(explanation.magnitudes) or format_factor(size)
    if rule is None and explanation.changed <= _MAX_NAMED:
        return f"{', '.join(compared[: explanation.changed])} ({format_factor(size)})"
    if rule is None and explanation.largest is not None:
        return f"no tested common factor ({sizes}); {format_largest(explanation.largest, explanation.changed)}"
    if rule is None:
        return f"no common factor ({sizes})"
    if not rule.conditions:
        return f"all series ({sizes})"
    text = f"common factor {rule.text} ({sizes})"
    if explanation.second is None:
        return text
    return f"{text}, and {explanation.second.text} ({format_magnitudes(explanation.second_magnitudes)})"


def format_largest(largest: Magnitude, changed: int) -> str:
    """What the largest of `changed` changes share: `largest changes: all 3 series of ior shared file reads (×0.14)`."""
    count = len(largest.members)
    which = "changed" if count == changed else "largest changes"
    return f"{which}: all {count} series of {largest.label} ({format_factor(largest.ratio)})"


def format_magnitudes(magnitudes: Sequence[Magnitude]) -> str:
    """`unaligned reads ×50, writes ×2.9`."""
    return ", ".join(f"{m.label} {format_factor(m.ratio)}".strip() for m in magnitudes)


def _format_exceptions(misfits: Sequence[RuleException]) -> str:
    if len(misfits) > _MAX_EXCEPTIONS:
        return f"{len(misfits)} series do not fit"
    named = [f"{m.name} unchanged" if m.inside else f"{m.name} {format_factor(m.ratio)} too" for m in misfits]
    return f"does not fit: {', '.join(named)}"


def detection_cells(detection: Detection, zone: tzinfo) -> Iterator[tuple[str, ...]]:
    """Cells of each change and drift of a series: kind, since, observations, ratio, before, after, confidence.

    Args:
        zone: of the days.
    """
    for step in detection.steps:
        numbers = (format_number(x) for x in (step.ratio, step.before, step.after))
        what = f"suspected {step.direction}" if step.suspected else step.direction
        yield what, str(local_day(step.time, zone)), str(step.observations), *numbers, f"{step.confidence:.2f}"
    for drift in detection.drifts:
        count = str(drift.last_index - drift.index + 1)
        yield (
            f"drift {drift.direction}",
            str(local_day(drift.time, zone)),
            count,
            format_number(drift.ratio),
            "",
            "",
            "",
        )


_WIDTH = 17
_MAX_EQUIVALENTS = 6


def format_finding_list(findings: Iterable[Finding]) -> Iterator[str]:
    """One line per finding: id, state, summary."""
    for finding in findings:
        yield f"{finding.id}  [{finding.state}]  {finding.line}"
        label = f"({finding.label})" if finding.label else None
        owner = f"owner: {finding.owner}" if finding.owner else None
        for note in (format_resolution(finding), finding.review and format_decision(finding.review), owner, label):
            if note:
                yield f"    {note}"


def format_extent(extent: HistoryExtent) -> str:
    """The amount of history on which an answer is based, or why it is too small; the same for every report."""
    days = f"{format_count(extent.days, 'day')} of observations"
    if not extent.is_assessed:
        return f"{days} of {extent.series} series, too few to detect changes ({MIN_OBSERVATIONS} per series are needed)"
    too_few = extent.series - extent.assessable
    rest = f" ({too_few} more have too few observations to be assessed)" if too_few else ""
    return f"{days} of {extent.assessable} series{rest}"


def format_no_findings(extent: HistoryExtent, hidden: int) -> str:
    """Reason for an empty list: no data, too little data, or no change, which are different results.

    Args:
        hidden: number of findings that are not open.
    """
    if hidden:
        return f"no open findings in {format_extent(extent)} (--all shows all)"
    if not extent.series:
        return "no data: no session has delivered a headline metric; `iowatch history list` shows the sessions"
    if not extent.is_assessed:
        return f"no findings yet: {format_extent(extent)}"
    return f"no findings: no lasting change in {format_extent(extent)}"


def remaining_changes(findings: Iterable[Finding]) -> tuple[str, ...]:
    """One line per dismissed finding whose level has not returned: it needs no action, but is not normal either."""
    lines = []
    for finding in findings:
        decision = finding.review
        if finding.state == "dismissed" and finding.resolution is None and decision is not None:
            percent, side = 100 * abs(1 - finding.size), "below" if finding.size < 1 else "above"
            count = len(finding.members)
            lines.append(
                f"{count} series {'remains' if count == 1 else 'remain'} {percent:.0f} % {side} the level before "
                f"{finding_day(finding)} ({format_decision(decision)}; {finding.id})"
            )
    return tuple(lines)


def format_decision(decision: AppliedDecision) -> str:
    """`acknowledged by A. Administrator on 2026-11-01 until 2026-11-15 (expired): ticket 4711`."""
    until = f" until {decision.until}" if decision.until else ""
    expired = " (expired)" if decision.expired else ""
    reason = " ".join(decision.reason.split())
    return f"{decision.decision} by {decision.by} on {decision.date}{until}{expired}: {reason}"


def format_finding(finding: Finding) -> Iterator[str]:
    """The complete finding, line by line."""
    yield f"{finding.id}  [{finding.state}]" + (f"  ({finding.label})" if finding.label else "")
    yield finding.line
    yield ""
    for title, lines in _finding_sections(finding):
        for position, text in enumerate(lines):
            yield f"{title if position == 0 else '':<{_WIDTH}}{text}"
    yield ""
    yield from _format_causes(finding.causes)
    yield from _format_members(finding.members, system_zone(finding.system))


def _finding_sections(finding: Finding) -> Iterator[tuple[str, list[str]]]:
    found = finding.explanation
    groups = [
        f"{one.explanation.changed} of {found.total} series {direction}, typically {format_factor(one.size)}"
        for one, direction in ((finding, finding.direction), (finding.opposite, opposite_direction(finding)))
        if one is not None
    ]
    zone = system_zone(finding.system)
    times = (format_local_time(t, zone) for t in (finding.last_before, finding.first_after))
    yield "What changed", [*groups, f"between the runs of {' and '.join(times)}"]
    yield from _factor_sections(found)
    if finding.opposite is not None:
        yield f"The {opposite_direction(finding)} group", ["compared with the same unchanged series:"]
        yield from _factor_sections(finding.opposite.explanation)
    if found.control is not None:
        c = found.control
        yield "Stayed the same", [f"{c.label}: {c.unchanged} of {c.total} series did not change (×{c.ratio:.2f})"]
    yield "Probes", [format_probe(one) for one in finding.probes]
    yield "Layer", [format_moved_layer(finding.layer)] if finding.layer else []
    yield "Load", list(_load_lines(finding))
    yield "Does not fit", [e.text for e in found.exceptions]
    if finding.without_data:
        yield "No data", [f"{finding.without_data} series have no runs on both sides of the date"]
    if finding.changed_otherwise:
        yield "Not compared", [f"{finding.changed_otherwise} series changed otherwise or uncertainly"]
    yield "Differences", [f"{d.where}: {d.what} {d.before} -> {d.after}" for d in finding.differences]
    yield "Around the runs", [_format_covariate(one) for one in finding.covariates]
    yield "Last session", [format_session_loss(finding)] if finding.session_loss else []
    yield "Newest sessions", [format_outlook(finding)] if finding.probability_lasting is not None else []
    yield "Resolved", [format_resolution(finding)] if finding.resolution else []
    decisions = [*([finding.review] if finding.review else []), *finding.notes]
    yield "Owner", [finding.owner] if finding.owner else []
    yield "Decided", [format_decision(one) for one in decisions]


def _factor_sections(found: Explanation) -> Iterator[tuple[str, list[str]]]:
    yield "Common factor", list(_format_rule(found.rule))
    yield "And of the rest", list(_format_rule(found.second)) if found.second else []
    yield "Not tested", [format_largest(found.largest, found.changed)] if found.largest else []
    yield "Sizes", list(_magnitude_lines(found))


def covariate_cells(one: CovariateDifference) -> tuple[str, str, str, str, str]:
    """Label, before, after, usual value and its range; sizes in powers of 1024."""

    def cell(value: float) -> str:
        if one.unit.startswith("bytes"):
            return format_size(value) + one.unit.removeprefix("bytes")
        return f"{format_number(value)} {one.unit}".strip()

    label = f"{one.label} (with the runs themselves)" if one.includes_run else one.label
    return label, cell(one.before), cell(one.after), cell(one.usual), f"{cell(one.lowest)} to {cell(one.highest)}"


def _format_covariate(one: CovariateDifference) -> str:
    label, before, after, usual, span = covariate_cells(one)
    return f"{label}: {before} before, {after} after; usually {usual} ({span})"


def _format_rule(rule: Rule | None) -> Iterator[str]:
    if rule is None:
        yield "none: no parameter separates changed from unchanged series better than chance"
        return
    if not rule.conditions:
        yield f"all series changed ({rule.changed_in} of {rule.total_in})"
        return
    yield (
        f"{rule.text}: {rule.changed_in} of {rule.total_in} changed, of the others {rule.changed_out} of "
        f"{rule.total_out} (precision {rule.precision:.0%}, recall {rule.recall:.0%})"
    )
    yield from format_equivalents(rule)


def _magnitude_lines(explanation: Explanation) -> Iterator[str]:
    """One line per common factor, prefixed with the rule if there are two."""
    if explanation.rule is None or explanation.second is None:
        yield format_magnitudes(explanation.magnitudes)
        return
    yield f"{explanation.rule.text}: {format_magnitudes(explanation.magnitudes)}"
    yield f"{explanation.second.text}: {format_magnitudes(explanation.second_magnitudes)}"


def format_equivalents(rule: Rule) -> Iterator[str]:
    """Equivalents of the conditions of a rule, one line per condition; each parameter is listed once."""
    for condition, group in zip(rule.conditions, rule.equivalents, strict=True):
        condition_words = condition.words(CASE_PARAMETERS)
        same: dict[str, str] = {}
        for other in group:
            other_words = other.words(CASE_PARAMETERS)
            if other.parameter != condition.parameter and other_words != condition_words:
                same.setdefault(other.parameter, other_words)
        if same:
            # `api = MPIIO` and the derived `mpiio` have one name.
            others = "; ".join(list(dict.fromkeys(same.values()))[:_MAX_EQUIVALENTS])
            yield f"these data do not distinguish '{condition_words}' from: {others}"


def _format_causes(causes: Sequence[RankedCause]) -> Iterator[str]:
    if not causes:
        yield "Nothing is recorded near the date (`iowatch event add` records what happened)."
        yield ""
        return
    yield "Likely causes near the date, best match first. Evidence, not proof:"
    for position, cause in enumerate(causes, start=1):
        yield f"  {position}. {cause.name} [{cause.kind}, {cause.when}]"
        yield from (f"     + {text}" for text in cause.speaks_for)
        yield from (f"     - {text}" for text in cause.speaks_against)
    yield ""


def _format_members(members: Iterable[FindingMember], zone: tzinfo) -> Iterator[str]:
    rows = [("Series", "before", "after", "unit", "factor", "since", "confidence", "runs")]
    for m in sorted(members, key=lambda m: -max(m.gain, 1 / m.gain)):
        runs = f"{m.run_before or '-'} -> {m.run_after or '-'}"
        confidence = "suspected" if m.suspected else f"{m.confidence:.3f}"
        levels = (format_number(m.before), format_number(m.after))
        rows.append((m.name, *levels, m.unit, format_factor(m.gain), format_day(m.first_after, zone), confidence, runs))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(
            f"{cell:>{width}}" if column in (1, 2, 4) else f"{cell:<{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
