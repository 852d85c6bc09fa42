"""Page of a finding: pictures of its series, common factor, evidence, decisions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from iowatch.core import format_number
from iowatch.findings import Finding, FindingMember, find_experiments, load_observations, strongest_first
from iowatch.output.channels.tickets import ticket_links
from iowatch.output.dashboard import cards, data, drawing, levels, safe_file_name
from iowatch.output.dashboard.traces import TraceDiffSummary, TracedRun, compare_run_traces
from iowatch.output.history import artefact_location
from iowatch.output.text.changes import format_factor
from iowatch.output.text.evidence import covariate_cells, experiment_lines, format_target_in_logs
from iowatch.output.text.explanations import format_equivalents
from iowatch.output.text.findings import (
    finding_day,
    finding_line,
    finding_lines,
    slow_node_evidence_lines,
    slow_target_evidence_lines,
)
from iowatch.reference import Event
from iowatch.statistics import Explanation
from iowatch.store import History, RunFacts, SeriesPoints, SessionRow

# The pictures show so much time before and after the change.
_SHOWN_S = 60 * drawing.DAY_S
# An event within this time of the change is a likely cause and no "other" event.
_NEAR_S = 3 * drawing.DAY_S
_MAX_UNCHANGED_SERIES = 30
_MAX_OTHER_EVENTS = 6
# Members whose runs are read for traces and commands.
_MAX_TRACED_MEMBERS = 12
# Members whose runs are linked, and commands that repeat a benchmark.
_MAX_LINKED_MEMBERS = 200
_MAX_RUN_COMMANDS = 6
# Observations by series id.
PointsOfSeries = Mapping[int, SeriesPoints]


def finding_page_path(finding: Finding) -> str:
    """Path of the page of a finding in the site."""
    return f"finding/{safe_file_name(finding.id)}.html"


def publish_finding_pages(site: data.SiteBuild, only: str | None = None) -> None:
    """Write `finding/<id>.html` for each finding, including closed ones, or only for the finding with the id `only`."""
    for machine in site.catalogue.machines:
        for finding in machine.findings:
            if only is None or finding.id == only:
                site.write_page(finding_page_path(finding), "finding.html", **_finding_values(site, machine, finding))


PAGE = data.Page("finding", "Finding", None, publish_finding_pages)


def _finding_values(site: data.SiteBuild, machine: data.SystemEntry, finding: Finding) -> dict[str, Any]:
    """Values of the template."""
    points = points_around_change(site.history, finding, machine)
    # The largest changes stand for all of them: reading logs and commands of hundreds of runs takes minutes.
    strongest = strongest_first(finding.members)[:_MAX_TRACED_MEMBERS]
    traces = _compare_member_traces(site, strongest)
    return {
        "machine": machine,
        "finding": finding,
        "card": cards.make_card(machine, finding),
        "as_well": _equivalent_rules(finding),
        "decisions": [decision for decision in machine.decisions if decision.finding == finding.id],
        "fan": finding_figure(finding, machine, points, site.zone),
        "others": other_recorded_events(finding, machine),
        "multiples": list(member_figures(finding, machine, points, site.zone)),
        "unchanged": finding.compared[finding.explanation.changed :],
        "traced_member": traces.member if traces else None,
        "darshan": traces.comparison if traces else None,
        "repeat": repeat_commands(finding, machine, _facts_after_change(site.history, strongest)),
        "experiments": list(_experiment_texts(site.history, finding, machine)),
        "around": [covariate_cells(difference) for difference in finding.covariates],
        "slow_targets": slow_target_evidence_lines(finding),
        "targets_in_logs": [format_target_in_logs(slow) for slow in finding.targets_in_logs],
        "slow_nodes": slow_node_evidence_lines(finding),
        "ticket": "\n".join(finding_lines(finding)),
        "tracker_links": ticket_links(machine.name, finding.id),
        "runs": _run_links(site.history, finding, machine),
        "sessions": _sessions_around_change(finding, machine),
    }


@dataclass(frozen=True)
class _MemberTraces:
    """A member of a finding, and the comparison of the Darshan logs of its runs before and after the change."""

    member: FindingMember
    comparison: TraceDiffSummary


def _compare_member_traces(site: data.SiteBuild, members: Sequence[FindingMember]) -> _MemberTraces | None:
    """Compare the traces of the first member that has readable ones on both sides of the change; None without one."""
    runs: list[int] = []
    for member in members:
        runs += [run for run in (member.run_before, member.run_after) if run is not None]
    logs = _first_logs(site, runs)
    for member in members:
        before = _traced_run(site, logs, member.run_before)
        after = _traced_run(site, logs, member.run_after)
        if before is None or after is None:
            continue
        comparison = compare_run_traces(site, before, after)
        if comparison is not None:
            return _MemberTraces(member, comparison)
    return None


def _first_logs(site: data.SiteBuild, runs: Sequence[int]) -> dict[int, Path]:
    """The first Darshan log of each of these runs that is kept, by run id."""
    log_of_run: dict[int, Path] = {}
    for run, artefacts in site.history.artefacts_of_runs(runs).items():
        for artefact in artefacts:
            log = artefact_location(artefact) if artefact.kind == "darshan" else None
            if log is not None:
                log_of_run[run] = log
                break
    return log_of_run


def _traced_run(site: data.SiteBuild, logs: Mapping[int, Path], run: int | None) -> TracedRun | None:
    """The run with its log; None if it has none."""
    if run is None or run not in logs:
        return None
    return TracedRun(site.history.run(run), logs[run])


def _facts_after_change(history: History, members: Sequence[FindingMember]) -> list[RunFacts]:
    """Facts of the first run of each member after the change, as far as recorded."""
    runs = [member.run_after for member in members if member.run_after is not None]
    facts_of_run = history.run_facts(runs, ["command"])
    return [facts_of_run[run] for run in runs if run in facts_of_run]


def _explanations(finding: Finding) -> list[Explanation]:
    """Of the main group, and of the opposite group if there is one."""
    if finding.opposite is None:
        return [finding.explanation]
    return [finding.explanation, finding.opposite.explanation]


def _equivalent_rules(finding: Finding) -> list[str]:
    """Other rules that select the same series as a common factor, a line each."""
    lines: list[str] = []
    for explanation in _explanations(finding):
        for rule in (explanation.rule, explanation.second):
            if rule is not None:
                lines += format_equivalents(rule)
    return lines


def _experiment_texts(
    history: History, finding: Finding, machine: data.SystemEntry
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Title and lines of each experiment that explains the finding."""
    newest_first = sorted(machine.sessions, key=lambda session: -session.started_at)
    for experiment in find_experiments(history, finding, newest_first):
        yield experiment.title, experiment_lines(experiment)


def _run_links(history: History, finding: Finding, machine: data.SystemEntry) -> dict[int, str]:
    """Path on the page of its session for each run before and after the change, by run id."""
    runs: set[int] = set()
    for member in finding.members[:_MAX_LINKED_MEMBERS]:
        runs.update(run for run in (member.run_before, member.run_after) if run is not None)
    page_of_session = {session.uuid: data.session_page_path(session) for session in machine.sessions}
    links: dict[int, str] = {}
    for run, session_uuid in history.session_of_runs(sorted(runs)).items():
        if session_uuid in page_of_session:
            links[run] = f"{page_of_session[session_uuid]}#run-{run}"
    return links


def _sessions_around_change(finding: Finding, machine: data.SystemEntry) -> list[tuple[SessionRow, str]]:
    """The sessions between which the change happened, with the paths of their pages."""
    sessions: list[tuple[SessionRow, str]] = []
    for time in (finding.last_before, finding.first_after):
        session = _session_at(machine, time)
        if session is not None:
            sessions.append((session, data.session_page_path(session)))
    return sessions


def _session_at(machine: data.SystemEntry, time: int) -> SessionRow | None:
    """The newest session that started at or before `time` (epoch s)."""
    for session in machine.sessions:
        if session.started_at <= time:
            return session
    return None


@dataclass(frozen=True)
class RepeatCommands:
    """Commands that repeat a measurement: the whole suite first; or the reason why there are none."""

    commands: Sequence[str]
    why_not: str | None = None


def repeat_commands(finding: Finding, machine: data.SystemEntry, facts: Sequence[RunFacts]) -> RepeatCommands:
    """Commands that repeat the measurement, or the reason why there are none.

    Args:
        facts: of runs after the change, with their commands.
    """
    session = _session_at(machine, finding.first_after)
    if session is None or session.origin != "run":
        origin = "made for a demonstration"
        if session is not None and session.origin == "import":
            origin = "imported"
        return RepeatCommands((), f"These results were {origin}; iowatch did not run them and cannot repeat them.")
    stacks = dict.fromkeys(member.stack for member in finding.members)
    stack_options = "".join(f" --stack {stack}" for stack in stacks)
    suite_command = f"iowatch run --system {machine.name}{stack_options} --suite {session.suite}"
    # Several members can come from one run; each command is shown once.
    run_commands = list(dict.fromkeys(run.command for run in facts if run.command))
    return RepeatCommands([suite_command, *run_commands[:_MAX_RUN_COMMANDS]])


def _series_to_draw(finding: Finding, machine: data.SystemEntry) -> list[data.SeriesEntry]:
    """Members first, then a sample of the other monitored series."""
    member_ids = {member.series_id for member in finding.members}
    member_series = [series for series in machine.series if series.row.id in member_ids]
    other_series = [series for series in machine.watched if series.row.id not in member_ids]
    return member_series + other_series[:: _sampling_step(len(other_series), _MAX_UNCHANGED_SERIES)]


def _sampling_step(count: int, max_count: int) -> int:
    """The step of a slice that takes at most `max_count` of `count` items, at equal distances."""
    return max(1, math.ceil(count / max_count))


def points_around_change(history: History, finding: Finding, machine: data.SystemEntry) -> dict[int, SeriesPoints]:
    """Observations of the drawn series from 60 days before to 60 days after the change, by series id."""
    rows = [series.row for series in _series_to_draw(finding, machine)]
    since = finding.first_after - _SHOWN_S
    until = finding.first_after + _SHOWN_S + 1
    points = load_observations(history, rows, since, until, machine.sessions, with_saturated=True)
    return {series_id: series_points for series_id, series_points in points.items() if len(series_points.time)}


def other_recorded_events(finding: Finding, machine: data.SystemEntry) -> list[Event]:
    """Events within 60 days of a finding but not near its date; they are numbered in its picture."""
    events: list[Event] = []
    for event in machine.events:
        distance_s = abs(event.start - finding.first_after)
        if _NEAR_S < distance_s <= _SHOWN_S:
            events.append(event)
    return events[:_MAX_OTHER_EVENTS]


@dataclass(frozen=True)
class FanLayout:
    """Layout of the picture: factors of groups beside the lines, with their names there, or listed below on a phone.

    Attributes:
        right: distance of the lines from the right edge, in which labels are.
        names_below: whether the names of groups are listed below the lines, because there is no room beside them.
        classes: style classes of the picture.
        max_dates: number of dates at the axis.
        has_labels: whether the groups and other events are labelled.
    """

    width: int
    right: int
    names_below: bool
    classes: str
    max_dates: int
    has_labels: bool = True


WIDE = FanLayout(960, 190, False, "picture fan for-wide", 7)
NARROW = FanLayout(430, 56, True, "picture fan for-narrow", 4)
# The text of a card names the groups.
CARD = FanLayout(430, 10, True, "picture fan", 4, has_labels=False)


@dataclass(frozen=True)
class FanLine:
    """One series in order of time: epoch s, and performance relative to the level before (1 is the same)."""

    times: Sequence[int]
    gains: Sequence[float]
    changed: bool


@dataclass(frozen=True)
class FanLabel:
    """Label of a group of lines, its typical gain, and whether it changed."""

    text: str
    gain: float
    changed: bool


@dataclass(frozen=True)
class FanContent:
    """What the picture of a finding shows.

    Attributes:
        lines: series with observations.
        change_time: time of the change, epoch seconds.
        labels: of groups of lines, at the right edge.
        change_text: text at the line of the change.
        description: of the picture, for readers who do not see it.
        event_times: times (epoch seconds) of other events, numbered from 1 on.
    """

    lines: Sequence[FanLine]
    change_time: int
    labels: Sequence[FanLabel]
    change_text: str
    description: str
    event_times: Sequence[int] = ()


def small_figure(site: data.SiteBuild, finding: Finding, machine: data.SystemEntry) -> Markup:
    """Picture of a finding for its card."""
    points = points_around_change(site.history, finding, machine)
    return _finding_figures(finding, machine, points, site.zone, (CARD,))


def finding_figure(finding: Finding, machine: data.SystemEntry, points: PointsOfSeries, zone: tzinfo) -> Markup:
    """Picture of a finding, one for screens and one for phones; dates are midnights of `zone`."""
    return _finding_figures(finding, machine, points, zone, (WIDE, NARROW))


def _finding_figures(
    finding: Finding, machine: data.SystemEntry, points: PointsOfSeries, zone: tzinfo, layouts: Sequence[FanLayout]
) -> Markup:
    """One picture per layout, of the same content."""
    lines = _relative_lines(finding, machine, points)
    labels = _group_labels(finding)
    event_times = [event.start for event in other_recorded_events(finding, machine)]
    pictures: list[Markup] = []
    for layout in layouts:
        content = FanContent(
            lines=lines,
            change_time=finding.first_after,
            labels=labels,
            change_text=_change_text(finding, layout),
            description=finding_line(finding),
            event_times=event_times if layout.has_labels else (),
        )
        pictures.append(fan_picture(content, layout, zone))
    return Markup().join(pictures)


def _relative_lines(finding: Finding, machine: data.SystemEntry, points: PointsOfSeries) -> list[FanLine]:
    """Observations of the drawn series, as performance relative to the level of each before the change."""
    member_of_series = {member.series_id: member for member in finding.members}
    lines: list[FanLine] = []
    for series in _series_to_draw(finding, machine):
        series_points = points.get(series.row.id)
        if series_points is None:
            continue
        headlines = levels.sample_headlines(series, series_points)
        member = member_of_series.get(series.row.id)
        if member is not None and member.states_levels:
            level_before = member.before
        else:
            # No change of its level was detected in this series: the median before is used.
            headlines_before = headlines[series_points.time < finding.first_after]
            if not len(headlines_before):
                continue
            level_before = float(np.median(headlines_before))
        gains = series.metric.gain(headlines, level_before).tolist()
        lines.append(FanLine(series_points.time.tolist(), gains, changed=member is not None))
    return lines


def _group_labels(finding: Finding) -> list[FanLabel]:
    """Labels of the groups of members that changed by about the same factor, and of the control group."""
    labels: list[FanLabel] = []
    for explanation in _explanations(finding):
        for magnitude in (*explanation.magnitudes, *explanation.second_magnitudes):
            labels.append(FanLabel(magnitude.label or "changed", magnitude.ratio, changed=True))
    if not labels:
        labels.append(FanLabel("changed", finding.size, changed=True))
    control = finding.explanation.control
    if control is not None:
        labels.append(FanLabel(control.label, control.ratio, changed=False))
    return labels


def _change_text(finding: Finding, layout: FanLayout) -> str:
    """The day of the change, with the most likely cause; a narrow layout has room for a short name of it only."""
    day = finding_day(finding)
    if not finding.causes:
        return day
    cause = finding.causes[0]
    cause_name = cause.name if layout is WIDE else cause.event
    if cause.is_at_change:
        return f"{day}, {cause_name}"
    return f"{day}, {cause.when}: {cause_name}"


_FAN_HEIGHT = 300
_FAN_LEFT, _FAN_TOP, _FAN_BOTTOM = 52, 30, 30
# Lines of changed and of unchanged series, each; more add no information.
_MAX_LINES_OF_GROUP = 12
# Distance of labels beside the lines.
_LABEL_DISTANCE = 16
# Labels below the lines: their distance, their longest text, and the space below the last one.
_LISTED_DISTANCE, _MAX_LISTED_LETTERS, _BELOW_LISTED = 19, 52, 8
# Maximum length of a label beside the lines; bold letters, of changed groups, are wider.
_MAX_BOLD_LETTERS, _MAX_LETTERS = 27, 29
# Width of a bold letter of the text at the change.
_BOLD_LETTER = 8.0
# Percent of the observations of a changed line, at either end, that may be outside the picture.
_OUTSIDE = 3
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)


def fan_picture(content: FanContent, layout: FanLayout = WIDE, zone: tzinfo = UTC) -> Markup:
    """Draw a finding; dates are shown at midnights of `zone`."""
    lines = _lines_with_data(content.lines)
    first, last = _time_range(content.change_time, lines)
    lowest_gain, highest_gain = _gain_range(lines)
    x = drawing.AxisScale(first, last, _FAN_LEFT, layout.width - layout.right, zone=zone)
    y = drawing.AxisScale(lowest_gain, highest_gain, _FAN_HEIGHT - _FAN_BOTTOM, _FAN_TOP, logarithmic=True)
    parts = list(_draw_gain_axis(x, y))
    parts.append(drawing.svg_time_axis(x, _FAN_HEIGHT - _FAN_BOTTOM, layout.max_dates))
    parts += _draw_event_marks(content.event_times, x)
    # Lines are drawn over the axes and events, the change over the lines.
    parts += [_draw_fan_line(line, x, y) for line in lines]
    parts += _draw_change(content.change_time, content.change_text, x, layout.width)
    height = _FAN_HEIGHT
    if layout.has_labels:
        labels = sorted(content.labels, key=lambda label: -label.gain)
        parts += _draw_labels(labels, x, y, layout)
        if layout.names_below and labels:
            parts += _list_labels(labels)
            height += _LISTED_DISTANCE * len(labels) + _BELOW_LISTED
    return drawing.svg_picture(layout.width, height, content.description, parts, layout.classes)


def _lines_with_data(lines: Sequence[FanLine]) -> list[FanLine]:
    """A sample of the unchanged lines, then one of the changed lines, which are drawn over them."""
    sample: list[FanLine] = []
    for changed in (False, True):
        group = [line for line in lines if line.changed is changed and len(line.times)]
        sample += group[:: _sampling_step(len(group), _MAX_LINES_OF_GROUP)]
    return sample


def _time_range(change_time: int, lines: Sequence[FanLine]) -> tuple[int, int]:
    """First and last time of the axis (epoch s): those of all lines, or a day around the change without lines."""
    first_times = [line.times[0] for line in lines]
    last_times = [line.times[-1] for line in lines]
    first = min(first_times, default=change_time - drawing.DAY_S)
    last = max(last_times, default=change_time + drawing.DAY_S)
    return first, last


def _gain_range(lines: Sequence[FanLine]) -> tuple[float, float]:
    """Lowest and highest gain of the axis, which contains all levels of the changed lines, but not all outliers."""
    lowest_gains: list[float] = []
    highest_gains: list[float] = []
    for line in lines:
        if line.changed:
            low, high = np.percentile(np.asarray(line.gains), (_OUTSIDE, 100 - _OUTSIDE))
            lowest_gains.append(float(low))
            highest_gains.append(float(high))
    if lines:
        # The unchanged lines together: a single noisy one may leave the picture.
        all_gains = np.concatenate([np.asarray(line.gains) for line in lines])
        low, high = np.percentile(all_gains, (2, 99.5))
        lowest_gains.append(float(low))
        highest_gains.append(float(high))
    lowest = min(lowest_gains, default=1.0)
    highest = max(highest_gains, default=1.0)
    # ×1 is always inside, and so is a change by a third.
    return min(lowest / 1.2, 0.6), max(highest * 1.2, 1.7)


def _draw_gain_axis(x: drawing.AxisScale, y: drawing.AxisScale) -> Iterator[str]:
    """Grid lines with their factors; the line at ×1, the level before the change, has a style of its own."""
    for tick in _TICKS:
        if y.low <= tick <= y.high:
            style = "grid one" if tick == 1.0 else "grid"
            yield drawing.svg_line(style, _FAN_LEFT, y(tick), x.end, y(tick))
            yield drawing.svg_text("tick", _FAN_LEFT - 6, y(tick) + 4, f"×{tick:g}")


def _draw_event_marks(event_times: Sequence[int], x: drawing.AxisScale) -> Iterator[str]:
    """Vertical lines with the numbers of the events in the list below the picture."""
    for number, time in enumerate(event_times, start=1):
        if x.low <= time <= x.high:
            yield drawing.svg_line("mark event", x(time), _FAN_TOP, x(time), _FAN_HEIGHT - _FAN_BOTTOM)
            yield drawing.svg_text("mark-name event", x(time) + 7, _FAN_TOP + 10, str(number))


def _draw_fan_line(line: FanLine, x: drawing.AxisScale, y: drawing.AxisScale) -> str:
    """The line of a series, interrupted where sessions are missing; outliers are drawn at the edge of the picture."""
    times = np.asarray(line.times)
    gains_in_range = np.clip(line.gains, y.low, y.high).tolist()
    heights = np.array([y(gain) for gain in gains_in_range])
    style = "changed" if line.changed else "steady"
    return drawing.svg_line_with_gaps(style, times, x.array(times), heights)


def _draw_change(time: int, text: str, x: drawing.AxisScale, width: float) -> Iterator[str]:
    """Line with its text on the side with more room or, if it is too long for that, above the line and the lines."""
    line_x = x(time)
    yield drawing.svg_line("moment", line_x, _FAN_TOP - 6, line_x, _FAN_HEIGHT - _FAN_BOTTOM)
    text_width = _BOLD_LETTER * len(text)
    alignment = "right"
    text_x = line_x + 6
    room = x.end - line_x - 6
    if line_x > (x.start + x.end) / 2:
        # The text ends at the line instead of starting there.
        alignment = "left"
        text_x = line_x - 6
        room = line_x - 6
    if text_width > room:
        alignment = "right"
        text_x = max(4.0, x.end - text_width)
    if alignment == "right":
        text = _shorten(text, int((width - text_x) / _BOLD_LETTER))
    yield drawing.svg_text(f"moment-name {alignment}", text_x, _FAN_TOP - 10, text)


def _draw_labels(
    labels: Sequence[FanLabel], x: drawing.AxisScale, y: drawing.AxisScale, layout: FanLayout
) -> Iterator[str]:
    """Labels, the largest gain first, at the height of their lines, moved apart if they would overlap."""
    highest_free = float(_FAN_TOP)
    for label in labels:
        gain_in_range = max(label.gain, y.low)
        gain_in_range = min(gain_in_range, y.high)
        height = min(y(gain_in_range), _FAN_HEIGHT - _FAN_BOTTOM)
        height = max(height, highest_free)
        highest_free = height + _LABEL_DISTANCE
        text = format_factor(label.gain)
        if not layout.names_below:
            text += f" {label.text}"
        max_letters = _MAX_BOLD_LETTERS if label.changed else _MAX_LETTERS
        yield drawing.svg_text(_label_style(label), x.end + 8, height + 4, _shorten(text, max_letters))


def _list_labels(labels: Sequence[FanLabel]) -> Iterator[str]:
    """Factors and names of the groups as lines of text below the picture."""
    for line_number, label in enumerate(labels, start=1):
        text = _shorten(f"{format_factor(label.gain)} {label.text}", _MAX_LISTED_LETTERS)
        yield drawing.svg_text(_label_style(label), 4, _FAN_HEIGHT + _LISTED_DISTANCE * line_number, text)


def _label_style(label: FanLabel) -> str:
    return "group" if label.changed else "group steady"


def _shorten(text: str, max_letters: int) -> str:
    if len(text) <= max_letters:
        return text
    return f"{text[: max_letters - 1].rstrip()}…"


@dataclass(frozen=True)
class MemberFigure:
    """A member of a finding, its picture (None without observations), and the page of its series."""

    member: FindingMember
    picture: Markup | None
    page: str


def member_figures(
    finding: Finding, machine: data.SystemEntry, points: PointsOfSeries, zone: tzinfo
) -> Iterator[MemberFigure]:
    """One small picture per member, the largest change first, all on one time axis."""
    series_by_id = {series.row.id: series for series in machine.series if series.row.id in points}
    drawn_members = [member for member in finding.members if member.series_id in series_by_id]
    first_times = [int(points[member.series_id].time[0]) for member in drawn_members]
    last_times = [int(points[member.series_id].time[-1]) for member in drawn_members]
    first = min(first_times, default=finding.first_after - drawing.DAY_S)
    last = max(last_times, default=finding.first_after + drawing.DAY_S)
    for member in strongest_first(finding.members):
        picture = None
        series = series_by_id.get(member.series_id)
        if series is not None:
            times = points[member.series_id].time
            headlines = levels.sample_headlines(series, points[member.series_id])
            picture = member_picture(member, times, headlines, first, last, zone)
        yield MemberFigure(member, picture, f"series/{member.series_id}.html")


_MEMBER_WIDTH, _MEMBER_HEIGHT = 300, 132
_MEMBER_LEFT, _MEMBER_RIGHT, _MEMBER_TOP, _MEMBER_BOTTOM = 46, 6, 14, 22


def member_picture(
    member: FindingMember, times: NDArray[Any], values: NDArray[Any], first: int, last: int, zone: tzinfo = UTC
) -> Markup:
    """Draw a member; all members of a finding share the time axis from `first` to `last` (epoch s).

    Args:
        times, values: shape (n,), in epoch seconds and in the unit of the metric.
        zone: dates are shown at its midnights.
    """
    highest = float(values.max(initial=0.0))
    if member.states_levels:
        highest = max(highest, member.before, member.after)
    top = drawing.rounded_axis_end(highest)
    bottom = _MEMBER_HEIGHT - _MEMBER_BOTTOM
    right = _MEMBER_WIDTH - _MEMBER_RIGHT
    x = drawing.AxisScale(first, last, _MEMBER_LEFT, right, zone=zone)
    y = drawing.AxisScale(0.0, top, bottom, _MEMBER_TOP)
    parts = [
        drawing.svg_value_axis(y, _MEMBER_LEFT, right, (0.0, top / 2, top), "", 4),
        drawing.svg_time_axis(x, bottom, 3),
        drawing.svg_line_with_gaps("headline", times, x.array(times), y.array(values)),
        drawing.svg_line("moment", x(member.first_after), _MEMBER_TOP, x(member.first_after), bottom),
    ]
    if member.states_levels:
        parts += [
            drawing.svg_line("level", x(first), y(member.before), x(member.last_before), y(member.before)),
            drawing.svg_line("level", x(member.first_after), y(member.after), x(last), y(member.after)),
        ]
    label = f"{format_number(member.before)} to {format_number(member.after)} {member.unit}"
    return drawing.svg_picture(_MEMBER_WIDTH, _MEMBER_HEIGHT, label, parts, "picture small")
