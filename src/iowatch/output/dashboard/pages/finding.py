"""Page of a finding: pictures of its series, common factor, evidence, decisions."""

from __future__ import annotations

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
from iowatch.output.dashboard import cards, data, drawing, levels, safe_file_name
from iowatch.output.dashboard.traces import TracedRun, compare_run_traces
from iowatch.output.history import artefact_location
from iowatch.output.text.changes import format_factor
from iowatch.output.text.evidence import covariate_cells, experiment_lines
from iowatch.output.text.explanations import format_equivalents
from iowatch.output.text.findings import finding_day, finding_line, finding_lines
from iowatch.reference import Event
from iowatch.statistics import Explanation
from iowatch.store import History, RunFacts, SeriesPoints, SessionRow

_AROUND_S = 60 * drawing.DAY_S
_NEAR_S = 3 * drawing.DAY_S
_MAX_OTHERS = 30
_MAX_EVENTS = 6
Points = Mapping[int, SeriesPoints]


def finding_page_path(finding: Finding) -> str:
    """Path of the page of a finding in the site."""
    return f"finding/{safe_file_name(finding.id)}.html"


def _series_to_draw(finding: Finding, machine: data.SystemEntry) -> list[data.SeriesEntry]:
    """Members first, then a sample of the other monitored series."""
    members = {member.series_id for member in finding.members}
    inside = [s for s in machine.series if s.row.id in members]
    others = [s for s in machine.watched if s.row.id not in members]
    return inside + others[:: max(1, -(-len(others) // _MAX_OTHERS))]


def points_around_change(history: History, finding: Finding, machine: data.SystemEntry) -> dict[int, SeriesPoints]:
    """Observations of the drawn series from 60 days before to 60 days after the change, by series id."""
    rows = [one.row for one in _series_to_draw(finding, machine)]
    since, until = finding.first_after - _AROUND_S, finding.first_after + _AROUND_S + 1
    found = load_observations(history, rows, since, until, machine.sessions)
    return {number: points for number, points in found.items() if len(points.time)}


def small_figure(site: data.SiteBuild, finding: Finding, machine: data.SystemEntry) -> Markup:
    """Picture of a finding for its card."""
    points = points_around_change(site.history, finding, machine)
    return _finding_figures(finding, machine, points, site.zone, (CARD,))


def finding_figure(finding: Finding, machine: data.SystemEntry, points: Points, zone: tzinfo) -> Markup:
    """Picture of a finding, one for screens and one for phones; dates are midnights of `zone`."""
    return _finding_figures(finding, machine, points, zone, (WIDE, NARROW))


def _finding_figures(
    finding: Finding, machine: data.SystemEntry, points: Points, zone: tzinfo, layouts: Sequence[FanLayout]
) -> Markup:
    members = {member.series_id: member for member in finding.members}
    lines = []
    for one in _series_to_draw(finding, machine):
        if (found := points.get(one.row.id)) is not None:
            values, member = levels.sample_headlines(one, found), members.get(one.row.id)
            before = values[found.time < finding.first_after]
            if member is not None or len(before):
                level = member.before if member else float(np.median(before))
                gains = one.metric.gain(values, level).tolist()
                lines.append(FanLine(found.time.tolist(), gains, member is not None))
    explanation = finding.explanation
    sizes = [m for one in _explanations(finding) for m in (*one.magnitudes, *one.second_magnitudes)]
    names = [FanLabel(m.label or "changed", m.ratio, True) for m in sizes] or [FanLabel("changed", finding.size, True)]
    if explanation.control is not None:
        names.append(FanLabel(explanation.control.label, explanation.control.ratio, False))
    others = [(mark.start, str(number)) for number, mark in enumerate(other_recorded_events(finding, machine), start=1)]
    wide = narrow = finding_day(finding)
    if finding.causes:
        best = finding.causes[0]
        when = "" if best.is_at_change else f"{best.when}: "
        wide, narrow = f"{wide}, {when}{best.name}", f"{narrow}, {when}{best.event}"
    moment, label = finding.first_after, finding_line(finding)
    return Markup().join(
        fan_picture(
            lines,
            moment,
            names,
            wide if layout is WIDE else narrow,
            label,
            others if layout.has_names else (),
            layout,
            zone,
        )
        for layout in layouts
    )


def _explanations(finding: Finding) -> list[Explanation]:
    """Of the main group, and of the opposite group if there is one."""
    return [finding.explanation, *([finding.opposite.explanation] if finding.opposite else [])]


def other_recorded_events(finding: Finding, machine: data.SystemEntry) -> list[Event]:
    """Events within 60 days of a finding but not near its date; they are numbered in its picture."""
    ends = finding.first_after - _AROUND_S, finding.first_after + _AROUND_S
    found = [e for e in machine.events if ends[0] <= e.start <= ends[1]]
    return [e for e in found if abs(e.start - finding.first_after) > _NEAR_S][:_MAX_EVENTS]


def member_figures(
    finding: Finding, machine: data.SystemEntry, points: Points, zone: tzinfo
) -> Iterator[dict[str, Any]]:
    """One small picture per member, the largest change first, all on one time axis."""
    series = {one.row.id: one for one in machine.series if one.row.id in points}
    known = [points[m.series_id].time for m in finding.members if m.series_id in series]
    first = min((int(times[0]) for times in known), default=finding.first_after - drawing.DAY_S)
    last = max((int(times[-1]) for times in known), default=finding.first_after + drawing.DAY_S)
    for member in strongest_first(finding.members):
        drawn = None
        if member.series_id in series:
            one = points[member.series_id]
            values = levels.sample_headlines(series[member.series_id], one)
            drawn = member_picture(member, one.time, values, first, last, zone)
        yield {"member": member, "picture": drawn, "page": f"series/{member.series_id}.html"}


def repeat_commands(finding: Finding, machine: data.SystemEntry, facts: Sequence[RunFacts]) -> dict[str, Any]:
    """Commands that repeat the measurement, or the reason why there are none.

    Args:
        facts: of runs after the change, with their commands.
    """
    session = _session_before(machine, finding.first_after)
    if session is None or session.origin != "run":
        origin = "imported" if session is not None and session.origin == "import" else "made for a demonstration"
        why = f"These results were {origin}; iowatch did not run them and cannot repeat them."
        return {"why_not": why, "commands": []}
    stacks = "".join(f" --stack {stack}" for stack in dict.fromkeys(member.stack for member in finding.members))
    run_commands = dict.fromkeys(run.command for run in facts if run.command)
    suite = f"iowatch run --system {machine.name}{stacks} --suite {session.suite}"
    return {"why_not": None, "commands": [suite, *list(run_commands)[:6]]}


_MAX_RUNS = 12


def publish_finding_pages(site: data.SiteBuild, only: str | None = None) -> None:
    """Write `finding/<id>.html` for each finding, including closed ones, or `only` for this one."""
    for machine in site.catalogue.machines:
        for finding in (one for one in machine.findings if only in (None, one.id)):
            site.write_page(finding_page_path(finding), "finding.html", **_finding_values(site, machine, finding))


PAGE = data.Page("finding", "Finding", None, publish_finding_pages)


def _finding_values(site: data.SiteBuild, machine: data.SystemEntry, finding: Finding) -> dict[str, Any]:
    points = points_around_change(site.history, finding, machine)
    strongest = strongest_first(finding.members)[:_MAX_RUNS]
    traced_member = traces = None
    logs = _first_logs(site, [run for m in strongest for run in (m.run_before, m.run_after) if run is not None])
    # Traces of the member with the largest change among those with traces on both sides.
    for member in strongest:
        before, after = (_traced_run(site, logs, run) for run in (member.run_before, member.run_after))
        if before and after and (traces := compare_run_traces(site, before, after)) is not None:
            traced_member = member
            break
    runs_after = [m.run_after for m in strongest if m.run_after is not None]
    facts_after = site.history.run_facts(runs_after, ["command"])
    rules = [rule for one in _explanations(finding) for rule in (one.rule, one.second)]
    ends = [_session_before(machine, moment) for moment in (finding.last_before, finding.first_after)]
    pages = {s.uuid: data.session_page_path(s) for s in machine.sessions}
    evidence = {n for m in finding.members[:200] for n in (m.run_before, m.run_after) if n is not None}
    sessions = site.history.session_of_runs(sorted(evidence))
    return {
        "machine": machine,
        "finding": finding,
        "card": cards.make_card(machine, finding),
        "as_well": [line for rule in rules if rule is not None for line in format_equivalents(rule)],
        "decisions": [d for d in machine.decisions if d.finding == finding.id],
        "fan": finding_figure(finding, machine, points, site.zone),
        "others": other_recorded_events(finding, machine),
        "multiples": list(member_figures(finding, machine, points, site.zone)),
        "opposite_direction": finding.opposite_direction,
        "unchanged": finding.compared[finding.explanation.changed :],
        "traced_member": traced_member,
        "darshan": traces,
        "repeat": repeat_commands(finding, machine, [facts_after[run] for run in runs_after if run in facts_after]),
        "experiments": list(_experiment_texts(site.history, finding, machine)),
        "around": [covariate_cells(one) for one in finding.covariates],
        "ticket": "\n".join(finding_lines(finding)),
        "runs": {run: f"{pages[session]}#run-{run}" for run, session in sessions.items() if session in pages},
        "sessions": [(s, data.session_page_path(s)) for s in ends if s is not None],
    }


def _experiment_texts(
    history: History, finding: Finding, machine: data.SystemEntry
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Title and lines of each experiment that explains the finding."""
    newest_first = sorted(machine.sessions, key=lambda session: -session.started_at)
    for experiment in find_experiments(history, finding, newest_first):
        yield experiment.title, experiment_lines(experiment)


def _session_before(machine: data.SystemEntry, moment: int) -> SessionRow | None:
    """The newest session that started at or before `moment` (epoch s)."""
    return next((s for s in machine.sessions if s.started_at <= moment), None)


def _first_logs(site: data.SiteBuild, runs: Sequence[int]) -> dict[int, Path]:
    """The first Darshan log of each of these runs that is kept, by run id."""
    found = {}
    for run, files in site.history.artefacts_of_runs(runs).items():
        logs = (artefact_location(kept) for kept in files if kept.kind == "darshan")
        if log := next((path for path in logs if path is not None), None):
            found[run] = log
    return found


def _traced_run(site: data.SiteBuild, logs: Mapping[int, Path], run: int | None) -> TracedRun | None:
    return TracedRun(site.history.run(run), logs[run]) if run in logs and run is not None else None


_FAN_HEIGHT = 300
_FAN_LEFT, _FAN_TOP, _FAN_BOTTOM = 52, 30, 30
_MAX_LINES = 24
_BETWEEN_NAMES = 16
_BETWEEN_LISTED, _MAX_LISTED_LETTERS, _FAN_END = 19, 52, 8
# Maximum length of a name beside the lines; bold letters are wider.
_MAX_BOLD_LETTERS = 27
# Width of a bold letter of the label at the date.
_BOLD_LETTER = 8.0
# Percent of the observations of a changed line, at either end, that may be outside the picture.
_OUTSIDE = 3
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)


@dataclass(frozen=True)
class FanLayout:
    """Layout of the picture: factors of groups beside the lines, with their names there, or listed below on a phone."""

    width: int
    right: int
    names_below: bool
    kind: str
    most_dates: int
    has_names: bool = True


WIDE = FanLayout(960, 190, False, "picture fan for-wide", 7)
NARROW = FanLayout(430, 56, True, "picture fan for-narrow", 4)
# The text of a card names the groups.
CARD = FanLayout(430, 10, True, "picture fan", 4, has_names=False)


@dataclass(frozen=True)
class FanLine:
    """One series in order of time: epoch s, and performance relative to the level before (1 is the same)."""

    times: Sequence[int]
    gains: Sequence[float]
    changed: bool


@dataclass(frozen=True)
class FanLabel:
    """Label of a group of lines, its typical gain, and whether it changed."""

    words: str
    gain: float
    changed: bool


def fan_picture(
    lines: Sequence[FanLine],
    moment: int,
    names: Sequence[FanLabel],
    what: str,
    label: str,
    others: Sequence[tuple[int, str]] = (),
    shape: FanLayout = WIDE,
    zone: tzinfo = UTC,
) -> Markup:
    """Draw a finding.

    Args:
        lines: series with data.
        moment: time of the change, epoch seconds.
        names: labels of groups of lines at the right edge.
        what: text at the line of the date.
        label: description of the finding.
        others: times of other events (epoch seconds) with their numbers below the picture.
        zone: dates are shown at its midnights.
    """
    # Limit the number of lines of each kind; more lines add no information.
    drawn: list[FanLine] = []
    for changed in (False, True):
        group = [one for one in lines if one.changed is changed and len(one.times)]
        drawn += group[:: max(1, -(-len(group) // (_MAX_LINES // 2)))]
    ends = [t for one in drawn for t in (one.times[0], one.times[-1])]
    times = ends or [moment - drawing.DAY_S, moment + drawing.DAY_S]
    bottom = _FAN_HEIGHT - _FAN_BOTTOM
    x = drawing.AxisScale(min(times), max(times), _FAN_LEFT, shape.width - shape.right, zone=zone)
    y = drawing.AxisScale(*_gain_range(drawn), bottom, _FAN_TOP, logarithmic=True)
    parts = []
    for tick in (t for t in _TICKS if y.low <= t <= y.high):
        parts.append(drawing.svg_line("grid one" if tick == 1.0 else "grid", _FAN_LEFT, y(tick), x.end, y(tick)))
        parts.append(drawing.svg_text("tick", _FAN_LEFT - 6, y(tick) + 4, f"×{tick:g}"))
    parts.append(drawing.svg_time_axis(x, bottom, shape.most_dates))
    for other, number in others:
        if x.low <= other <= x.high:
            parts.append(drawing.svg_line("mark event", x(other), _FAN_TOP, x(other), bottom))
            parts.append(drawing.svg_text("mark-name event", x(other) + 7, _FAN_TOP + 10, number))
    for one in drawn:
        at, heights = np.asarray(one.times), [y(gain) for gain in np.clip(one.gains, y.low, y.high).tolist()]
        kind = "changed" if one.changed else "steady"
        parts.append(drawing.svg_line_with_gaps(kind, at, x.array(at), np.array(heights)))
    parts += _draw_change_date(moment, what, x, shape.width)
    named = sorted(names, key=lambda name: -name.gain) if shape.has_names else []
    parts += _draw_labels(named, x, y, shape)
    listed = named if shape.names_below else []
    for line, name in enumerate(listed, start=1):
        text = _shorten(f"{format_factor(name.gain)} {name.words}", _MAX_LISTED_LETTERS)
        parts.append(drawing.svg_text(_label_kind(name), 4, _FAN_HEIGHT + _BETWEEN_LISTED * line, text))
    height = _FAN_HEIGHT + _BETWEEN_LISTED * len(listed) + (_FAN_END if listed else 0)
    return drawing.svg_picture(shape.width, height, label, parts, shape.kind)


def _gain_range(drawn: Sequence[FanLine]) -> tuple[float, float]:
    """Lowest and highest gain of the axis, which contains all levels of the changed lines, but not all outliers."""
    ends = [np.percentile(np.asarray(one.gains), (_OUTSIDE, 100 - _OUTSIDE)) for one in drawn if one.changed]
    if drawn:
        ends.append(np.percentile(np.concatenate([np.asarray(one.gains) for one in drawn]), (2, 99.5)))
    low = min((float(low) for low, _ in ends), default=1.0)
    high = max((float(high) for _, high in ends), default=1.0)
    return min(low / 1.2, 0.6), max(high * 1.2, 1.7)


def _draw_change_date(moment: int, what: str, x: drawing.AxisScale, width: float) -> Iterator[str]:
    """Line with its text on the side with more room or, if it is too long for that, above the line and the lines."""
    at, needed = x(moment), _BOLD_LETTER * len(what)
    yield drawing.svg_line("moment", at, _FAN_TOP - 6, at, _FAN_HEIGHT - _FAN_BOTTOM)
    side, place, room = ("left", at - 6, at - 6) if at > (x.start + x.end) / 2 else ("right", at + 6, x.end - at - 6)
    if needed > room:
        side, place = "right", max(4.0, x.end - needed)
    words = _shorten(what, int((width - place) / _BOLD_LETTER)) if side == "right" else what
    yield drawing.svg_text(f"moment-name {side}", place, _FAN_TOP - 10, words)


def _draw_labels(
    names: Sequence[FanLabel], x: drawing.AxisScale, y: drawing.AxisScale, shape: FanLayout
) -> Iterator[str]:
    """Names, the largest gain first, at the height of their lines, moved apart if they would overlap."""
    lowest = float(_FAN_TOP)
    for name in names:
        height = max(min(y(min(max(name.gain, y.low), y.high)), _FAN_HEIGHT - _FAN_BOTTOM), lowest)
        lowest = height + _BETWEEN_NAMES
        most = _MAX_BOLD_LETTERS if name.changed else _MAX_BOLD_LETTERS + 2
        words = "" if shape.names_below else f" {name.words}"
        yield drawing.svg_text(
            _label_kind(name), x.end + 8, height + 4, _shorten(f"{format_factor(name.gain)}{words}", most)
        )


def _label_kind(name: FanLabel) -> str:
    return "group" if name.changed else "group steady"


def _shorten(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 1].rstrip()}…"


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
    top = drawing.rounded_axis_end(max(float(values.max(initial=0.0)), member.before, member.after))
    bottom, right = _MEMBER_HEIGHT - _MEMBER_BOTTOM, _MEMBER_WIDTH - _MEMBER_RIGHT
    x = drawing.AxisScale(first, last, _MEMBER_LEFT, right, zone=zone)
    y = drawing.AxisScale(0.0, top, bottom, _MEMBER_TOP)
    parts = [
        drawing.svg_value_axis(y, _MEMBER_LEFT, right, (0.0, top / 2, top), "", 4),
        drawing.svg_time_axis(x, bottom, 3),
        drawing.svg_line_with_gaps("headline", times, x.array(times), y.array(values)),
        drawing.svg_line("moment", x(member.first_after), _MEMBER_TOP, x(member.first_after), bottom),
        drawing.svg_line("level", x(first), y(member.before), x(member.last_before), y(member.before)),
        drawing.svg_line("level", x(member.first_after), y(member.after), x(last), y(member.after)),
    ]
    label = f"{format_number(member.before)} to {format_number(member.after)} {member.unit}"
    return drawing.svg_picture(_MEMBER_WIDTH, _MEMBER_HEIGHT, label, parts, "picture small")
