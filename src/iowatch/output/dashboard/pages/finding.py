"""Page of a finding: pictures of its series, common factor, evidence, decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from iowatch.findings import Finding, FindingMember, find_experiments, load_observations, strongest_first
from iowatch.output.channels.tickets import ticket_links
from iowatch.output.dashboard import cards, data, drawing, levels, safe_file_name
from iowatch.output.dashboard.finding_pictures import (
    CARD,
    NARROW,
    WIDE,
    FanContent,
    FanGroup,
    FanLayout,
    FanLine,
    MemberTimes,
    fan_picture,
    member_picture,
)
from iowatch.output.dashboard.traces import TraceDiffSummary, TracedRun, compare_run_traces
from iowatch.output.history import artefact_location
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

# The pictures show at least so much time before the change, and all after it. With twice as much the first weeks after
# a change are half as wide.
_SHOWN_S = 60 * drawing.DAY_S
# Of a long time after it, at least this share of it before: else the level before could not be seen.
_MIN_SHARE_BEFORE = 0.25
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
    return member_series + other_series[:: drawing.sampling_step(len(other_series), _MAX_UNCHANGED_SERIES)]


def points_around_change(history: History, finding: Finding, machine: data.SystemEntry) -> dict[int, SeriesPoints]:
    """Observations of the drawn series from 60 days before the change, or more, to the newest one, by series id."""
    rows = [series.row for series in _series_to_draw(finding, machine)]
    since = finding.first_after - _shown_before_s(finding, machine)
    points = load_observations(history, rows, since, None, machine.sessions, with_saturated=True)
    return {series_id: series_points for series_id, series_points in points.items() if len(series_points.time)}


def _shown_before_s(finding: Finding, machine: data.SystemEntry) -> int:
    """Time before the change that the pictures show, in seconds."""
    newest = max((session.started_at for session in machine.sessions), default=finding.first_after)
    return max(_SHOWN_S, round(_MIN_SHARE_BEFORE * (newest - finding.first_after)))


def other_recorded_events(finding: Finding, machine: data.SystemEntry) -> list[Event]:
    """The recorded events nearest to a finding, but not near its date; they are numbered in its picture.

    They are in order of time, from the first day that the picture shows on.
    """
    first = finding.first_after - _shown_before_s(finding, machine)
    events: list[Event] = []
    for event in machine.events:
        if event.start >= first and abs(event.start - finding.first_after) > _NEAR_S:
            events.append(event)
    events.sort(key=lambda event: abs(event.start - finding.first_after))
    return sorted(events[:_MAX_OTHER_EVENTS], key=lambda event: event.start)


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
    lines_of_series = _relative_lines(finding, machine, points)
    groups = _line_groups(finding, list(lines_of_series))
    event_times = [event.start for event in other_recorded_events(finding, machine)]
    pictures: list[Markup] = []
    for layout in layouts:
        content = FanContent(
            lines=list(lines_of_series.values()),
            change_time=finding.first_after,
            groups=groups,
            change_text=_change_text(finding, layout),
            description=finding_line(finding),
            event_times=event_times if layout.has_labels else (),
            end_time=finding.end(machine.session_starts),
            are_outliers_content=finding.pattern is not None,
        )
        pictures.append(fan_picture(content, layout, zone))
    return Markup().join(pictures)


def _relative_lines(finding: Finding, machine: data.SystemEntry, points: PointsOfSeries) -> dict[int, FanLine]:
    """Observations of the drawn series by id, as performance relative to the level of each before the change."""
    member_of_series = {member.series_id: member for member in finding.members}
    lines: dict[int, FanLine] = {}
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
        lines[series.row.id] = FanLine(
            times=series_points.time.tolist(),
            gains=series.metric.gain(headlines, level_before).tolist(),
            direction=None if member is None else member.direction,
            levels=_relative_levels(series, level_before, int(series_points.time[0])),
        )
    return lines


def _relative_levels(series: data.SeriesEntry, level_before: float, first: int) -> list[float]:
    """The levels of the detection since a time (epoch s), as performance relative to the level before the change."""
    gains: list[float] = []
    if series.detection is None:
        return gains
    for level in series.detection.levels:
        gain = levels.performance_ratio(series, level.value, level_before)
        if level.last_time >= first and gain is not None:
            gains.append(gain)
    return gains


def _line_groups(finding: Finding, drawn: Sequence[int]) -> list[FanGroup]:
    """Members that changed by about the same factor, in each direction, and the control group.

    Args:
        drawn: ids of the series that have a line, in the order of the lines.
    """
    position_of_series = {series_id: position for position, series_id in enumerate(drawn)}
    groups: list[FanGroup] = []
    members_before = 0
    for direction_group in (finding.main, finding.opposite):
        if direction_group is None:
            continue
        explanation = direction_group.explanation
        # The members of the main group come first, in the order of the explanation.
        members = finding.members[members_before : members_before + explanation.changed]
        members_before += explanation.changed
        magnitudes = (*explanation.magnitudes, *explanation.second_magnitudes)
        for magnitude in magnitudes:
            of_magnitude = [members[number] for number in magnitude.members if number < len(members)]
            lines = _positions(of_magnitude, position_of_series)
            groups.append(FanGroup(magnitude.label or "changed", magnitude.ratio, direction_group.direction, lines))
        if not magnitudes:
            lines = _positions(members, position_of_series)
            groups.append(FanGroup("changed", direction_group.size, direction_group.direction, lines))
    control = finding.explanation.control
    if control is not None:
        member_ids = {member.series_id for member in finding.members}
        steady = [position for series_id, position in position_of_series.items() if series_id not in member_ids]
        groups.append(FanGroup(control.label, control.ratio, None, steady))
    return groups


def _positions(members: Sequence[FindingMember], position_of_series: Mapping[int, int]) -> list[int]:
    """Positions of the lines of members, as far as they have one."""
    ids = [member.series_id for member in members]
    return [position_of_series[series_id] for series_id in ids if series_id in position_of_series]


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
    axis = MemberTimes(
        first=min(first_times, default=finding.first_after - drawing.DAY_S),
        last=max(last_times, default=finding.first_after + drawing.DAY_S),
        end=finding.end(machine.session_starts),
        zone=zone,
    )
    for member in strongest_first(finding.members):
        picture = None
        series = series_by_id.get(member.series_id)
        if series is not None:
            times = points[member.series_id].time
            headlines = levels.sample_headlines(series, points[member.series_id])
            member_axis = replace(axis, level_end=_level_end(series, member))
            picture = member_picture(member, times, headlines, member_axis, has_steps=finding.pattern is None)
        yield MemberFigure(member, picture, f"series/{member.series_id}.html")


def _level_end(series: data.SeriesEntry, member: FindingMember) -> int | None:
    """Time (epoch s) of the last observation at the level after the change of a member; None if it is not known."""
    if series.detection is None:
        return None
    for level in series.detection.levels:
        if level.time <= member.first_after <= level.last_time:
            return int(level.last_time)
    return None
