"""Findings as text for a terminal or a mail: one line, or a report with the summary first and then the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import tzinfo

from iowatch.core import format_count, format_day, format_local_time, format_number
from iowatch.findings import DirectionGroup, Finding, FindingMember, strongest_first
from iowatch.output.text.changes import format_change, format_factor, format_percentage
from iowatch.output.text.decisions import format_decision, format_resolution
from iowatch.output.text.evidence import (
    administered_differences,
    cause_lines,
    format_cause_date,
    format_covariate,
    format_difference,
    format_load,
    format_moved_layer,
    format_node_over_sessions,
    format_probe,
    format_slow_node_evidence,
    format_slow_target_since,
    format_target_in_logs,
    is_load_stated,
    load_lines,
)
from iowatch.output.text.explanations import (
    explanation_sections,
    format_common_factor,
    format_exception,
    format_exceptions,
    name_group,
)
from iowatch.output.text.losses import format_earlier_spells, format_moving_level, format_outlook, format_session_loss
from iowatch.output.text.patterns import format_pattern, name_pattern_group, pattern_headline
from iowatch.site import system_zone

# Differences that the line of a finding names.
_MAX_NAMED_DIFFERENCES = 2
_TITLE_WIDTH = 17


def finding_day(finding: Finding) -> str:
    """`17 Mar 2009`: the day of a finding in the zone of its system."""
    return format_day(finding.first_after, system_zone(finding.system))


def finding_line(finding: Finding) -> str:
    """The finding in one line: date, changed series, common factor, size (losses first), events near the change."""
    parts = [f"{finding_day(finding)}: {_format_changed(finding)}", *_group_texts(finding)]
    if finding.pattern is not None:
        changed = f"{finding.changed} of {finding.explanation.total} series"
        parts = [f"{finding_day(finding)}: {changed}: {format_pattern(finding)}", name_pattern_group(finding.main)]
    if finding.session_loss is not None:
        parts.append(f"last session {format_session_loss(finding)}")
    # Whether the level moves by itself, or earlier losses like it were over soon.
    parts += [text for text in (format_moving_level(finding), format_earlier_spells(finding)) if text]
    # What did not change, or does not fit to the common factor.
    explanation = finding.explanation
    control = explanation.control
    if control is not None and explanation.rule is not None:
        parts.append(f"{control.label} unchanged ({control.unchanged} of {control.total})")
    if explanation.exceptions:
        parts.append(format_exceptions(explanation.exceptions))
    # What may have caused it.
    if finding.layer is not None and finding.layer.named is not None:
        parts.append(format_moved_layer(finding.layer))
    if finding.load is not None and is_load_stated(finding):
        parts.append(format_load(finding.load, "explained by"))
    if finding.causes:
        nearest = finding.causes[0]
        parts.append(f"{nearest.event} {format_cause_date(nearest)}")
    else:
        parts.append("no event recorded near")
    names = [difference.what for difference in administered_differences(finding)]
    if names:
        parts.append(_format_differing(names))
    return "; ".join(parts)


def _format_changed(finding: Finding) -> str:
    """`6 of 12 series up (suspected, lasts with a probability of 59 %)`."""
    what = "changed" if finding.opposite is not None else finding.direction
    text = f"{finding.changed} of {finding.explanation.total} series {what}"
    if finding.state != "suspected":
        return text
    probability = finding.probability_lasting
    if probability is None:
        return f"{text} (suspected, not yet confirmed)"
    return f"{text} (suspected, lasts with a probability of {100 * probability:.0f} %)"


def _group_texts(finding: Finding) -> list[str]:
    """Common factor and sizes of each group, losses first."""
    if finding.opposite is None:
        return [format_common_factor(finding.main)]
    texts: list[str] = []
    for group in finding.groups:
        texts.append(f"{group.explanation.changed} {group.direction}, {format_common_factor(group)}")
    return texts


def _format_differing(names: Sequence[str]) -> str:
    """`hdf5, netcdf-c and 2 more differ`."""
    listed = ", ".join(names[:_MAX_NAMED_DIFFERENCES])
    more = len(names) - _MAX_NAMED_DIFFERENCES
    if more > 0:
        listed = f"{listed} and {more} more"
    return f"{listed} {'differs' if len(names) == 1 else 'differ'}"


def short_summary(finding: Finding) -> str:
    """Both groups with their sizes, for a line with other facts: `ior shared file reads ×0.1, 9 series up ×1.6`."""
    if finding.pattern is not None:
        return pattern_headline(finding)
    texts: list[str] = []
    for group in finding.groups:
        texts.append(f"{name_group(group) or _count_group(group)} {format_factor(group.size)}")
    return ", ".join(texts)


def _count_group(group: DirectionGroup) -> str:
    return f"{group.explanation.changed} series {group.direction}"


def finding_headline(finding: Finding, sessions: int | None = None) -> str:
    """The larger loss, or the gain, in one short sentence: `MPI-IO writes lost 46 % (×0.54) since 8 Nov 2026`.

    Of one that is over: `MPI-IO writes lost 46 % (×0.54) from 8 Nov to 4 Dec 2026, over`.

    Args:
        sessions: number of sessions since the change, and before its end; stated if it is given.
    """
    group = finding.groups[0]
    what = name_group(group) or format_count(group.explanation.changed, "series")
    count = "" if sessions is None else f" ({format_count(sessions, 'session')})"
    period = f"{format_period(finding)}{count}"
    if finding.pattern is not None:
        return f"{pattern_headline(finding)} {period}"
    return f"{what} {format_change(group.size)} {period}"


def format_period(finding: Finding) -> str:
    """When the change was there: `since 8 Nov 2026`, or of a resolved finding `from 24 Apr to 4 Aug 2017, over`."""
    day = finding_day(finding)
    resolution = finding.resolution
    if resolution is None:
        return f"since {day}"
    end = finding.end()
    if end is not None:
        return f"{_format_days(finding, end)}, over"
    if resolution.kind == "superseded" and resolution.since is not None:
        return f"{_format_days(finding, resolution.since)}, superseded"
    if resolution.kind == "transient":
        return f"from {day} on for at most {format_count(resolution.sessions or 0, 'session')}, over"
    if resolution.kind == "spell":
        return f"from {day} on for {format_count(resolution.sessions or 0, 'session')}, over"
    if resolution.kind == "not confirmed":
        return f"from {day} on, not confirmed"
    return f"since {day}, {format_resolution(finding)}"


def _format_days(finding: Finding, end: int) -> str:
    """`from 24 Apr to 4 Aug 2017`, with both years where they differ; `on 4 Aug 2017` of one day.

    Args:
        end: epoch seconds.
    """
    first_day, last_day = finding_day(finding), format_day(end, system_zone(finding.system))
    if first_day == last_day:
        return f"on {first_day}"
    day_of_first, _, year_of_first = first_day.rpartition(" ")
    if last_day.endswith(f" {year_of_first}"):
        first_day = day_of_first
    return f"from {first_day} to {last_day}"


def finding_list_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """One line per finding: id, state, summary; below it why it is resolved, the decision, the owner, the origin."""
    for finding in findings:
        yield f"{finding.id}  [{finding.state}]  {finding_line(finding)}"
        notes = [format_resolution(finding)]
        if finding.review is not None:
            notes.append(format_decision(finding.review))
        if finding.owner:
            notes.append(f"owner: {finding.owner}")
        if finding.label:
            notes.append(f"({finding.label})")
        yield from (f"    {note}" for note in notes if note)


def verdict_finding_line(finding: Finding) -> str:
    """One line in the verdict of a session, with the id of the finding."""
    return f"{finding.id}: {verdict_finding_text(finding)}"


def verdict_finding_text(finding: Finding) -> str:
    """Summary of a finding in the verdict of a session, and the decision, which may have expired."""
    if finding.review is None:
        return finding_line(finding)
    return f"{finding_line(finding)} ({format_decision(finding.review)})"


def remaining_change_line(finding: Finding) -> str | None:
    """A dismissed finding whose level has not returned: it needs no action, but is not normal either; else None."""
    decision = finding.review
    if not finding.dismissed_change_remains or decision is None:
        return None
    if finding.pattern is not None:
        return f"{pattern_headline(finding)} ({format_decision(decision)}; {finding.id})"
    number = len(finding.members)
    verb = "remains" if number == 1 else "remain"
    comparison = "below" if finding.size < 1 else "above"
    level = f"{format_percentage(finding.size)} {comparison} the level before {finding_day(finding)}"
    return f"{number} series {verb} {level} ({format_decision(decision)}; {finding.id})"


def remaining_change_lines(findings: Iterable[Finding]) -> tuple[str, ...]:
    """One line per dismissed finding whose level has not returned."""
    lines = [remaining_change_line(finding) for finding in findings]
    return tuple(line for line in lines if line is not None)


def finding_lines(finding: Finding) -> Iterator[str]:
    """The complete finding, line by line."""
    label = f"  ({finding.label})" if finding.label else ""
    yield f"{finding.id}  [{finding.state}]{label}"
    yield finding_line(finding)
    yield ""
    for title, lines in _finding_sections(finding):
        for position, text in enumerate(lines):
            yield f"{title if position == 0 else '':<{_TITLE_WIDTH}}{text}"
    yield ""
    yield from cause_lines(finding.causes)
    yield from _member_table(finding.members, system_zone(finding.system))


def _finding_sections(finding: Finding) -> Iterator[tuple[str, list[str]]]:
    """Titles and lines, in the order of the questions of an administrator; a title without lines is not shown."""
    explanation = finding.explanation
    yield "What changed", _what_changed_lines(finding)
    first_group, *other_groups = finding.groups
    yield from explanation_sections(first_group.explanation)
    for group in other_groups:
        yield f"The {group.direction} group", ["compared with the same unchanged series:"]
        yield from explanation_sections(group.explanation)
    if explanation.control is not None:
        control = explanation.control
        unchanged = f"{control.unchanged} of {control.total} series did not change ({format_factor(control.ratio)})"
        yield "Stayed the same", [f"{control.label}: {unchanged}"]
    # Evidence about the cause.
    yield "Probes", [format_probe(probe) for probe in finding.probes]
    if finding.layer is not None:
        yield "Layer", [format_moved_layer(finding.layer)]
    yield "Load", list(load_lines(finding))
    yield "Does not fit", [format_exception(exception) for exception in explanation.exceptions]
    if finding.without_data:
        yield "No data", [f"{finding.without_data} series have no runs on both sides of the date"]
    if finding.changed_otherwise:
        yield "Not compared", [f"{finding.changed_otherwise} series changed otherwise or uncertainly"]
    yield "Differences", [format_difference(difference) for difference in finding.differences]
    yield "Slow targets", slow_target_evidence_lines(finding)
    yield "Slow targets in Darshan logs", [format_target_in_logs(slow) for slow in finding.targets_in_logs]
    yield "Slow nodes", slow_node_evidence_lines(finding)
    yield "Around the runs", [format_covariate(covariate) for covariate in finding.covariates]
    # Whether it lasts, and what people decided.
    if finding.session_loss is not None:
        yield "Last session", [format_session_loss(finding)]
    if finding.probability_lasting is not None:
        yield "Newest sessions", [format_outlook(finding)]
    yield "Level", [text for text in (format_moving_level(finding),) if text]
    yield "Earlier losses", [text for text in (format_earlier_spells(finding),) if text]
    if finding.resolution is not None:
        yield "Resolved", [format_resolution(finding)]
    if finding.owner:
        yield "Owner", [finding.owner]
    decisions = list(finding.notes)
    if finding.review is not None:
        decisions.insert(0, finding.review)
    yield "Decided", [format_decision(decision) for decision in decisions]


def slow_target_evidence_lines(finding: Finding) -> list[str]:
    """The targets of its file systems that are slower than the others."""
    zone = system_zone(finding.system)
    return [format_slow_target_since(slow, zone) for slow in finding.slow_targets]


def slow_node_evidence_lines(finding: Finding) -> list[str]:
    """The slow nodes of the runs since the change, then those that are slow over many sessions."""
    zone = system_zone(finding.system)
    lines = [format_slow_node_evidence(slow) for slow in finding.slow_nodes]
    lines += [format_node_over_sessions(slow, zone) for slow in finding.nodes_over_sessions]
    return lines


def _what_changed_lines(finding: Finding) -> list[str]:
    lines: list[str] = []
    if finding.pattern is not None:
        changed = f"{finding.changed} of {finding.explanation.total} series"
        return [f"{changed}: {format_pattern(finding)}", f"since {finding_day(finding)}"]
    for group in finding.groups:
        changed = f"{group.explanation.changed} of {finding.explanation.total} series {group.direction}"
        lines.append(f"{changed}, typically {format_factor(group.size)}")
    zone = system_zone(finding.system)
    begin, end = format_local_time(finding.last_before, zone), format_local_time(finding.first_after, zone)
    return [*lines, f"between the runs of {begin} and {end}"]


_MEMBER_TITLES = ("Series", "before", "after", "unit", "factor", "since", "confidence", "runs")
_RIGHT_ALIGNED = ("before", "after", "factor")


def _member_table(members: Iterable[FindingMember], zone: tzinfo) -> Iterator[str]:
    """One line per member, the largest change first, in columns."""
    rows = [_MEMBER_TITLES, *(_member_cells(member, zone) for member in strongest_first(members))]
    # A column is as wide as its longest cell.
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells: list[str] = []
        for title, cell, width in zip(_MEMBER_TITLES, row, widths, strict=True):
            cells.append(cell.rjust(width) if title in _RIGHT_ALIGNED else cell.ljust(width))
        yield "  ".join(cells).rstrip()


def _member_cells(member: FindingMember, zone: tzinfo) -> tuple[str, ...]:
    return (
        member.name,
        format_number(member.before),
        format_number(member.after),
        member.unit,
        format_factor(member.gain),
        format_day(member.first_after, zone),
        "suspected" if member.suspected else f"{member.confidence:.3f}",
        f"{member.run_before or '-'} -> {member.run_after or '-'}",
    )
