"""Page of a session: all runs with results, outputs and traces; for older sessions a list of runs."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from markupsafe import Markup

from iowatch import darshan
from iowatch.checks import EXTENSIONS
from iowatch.core import DAY_S, Summary, artefacts, format_number, summarise_samples
from iowatch.output.dashboard import data, drawing, levels, write_in_processes
from iowatch.output.dashboard.traces import TracedRun, TraceSummary, summarise_trace
from iowatch.output.history import artefact_location, compare_run_bandwidths
from iowatch.reference import published_counts
from iowatch.site import system_zone
from iowatch.store import Artefact, ExpectedResult, RunRow, SessionRow, bulk

# The last is whether a full page has drawings of its Darshan logs; None: a short page.
SystemSession = tuple[data.SystemEntry, SessionRow, bool | None]
RunResults = Sequence[tuple[data.SeriesEntry, tuple[float, ...]]]


# `asdict` copies every value; a system has thousands of sessions.
_session_fields = attrgetter(*(field.name for field in fields(SessionRow)))


def publish_session_pages(site: data.SiteBuild) -> None:
    """Write `session/<uuid>.html`: full pages of the newest sessions and those around findings, else short ones.

    A page is linked from the previous site if everything that it is made of is the same. A full page compares its
    results with the levels and noise of when it was written: these move by fractions of a percent with each session,
    so that it is written again when a change, a finding or a reference is another one.
    """
    to_write: list[SystemSession] = []
    with site.history.reading() as connection:
        files = bulk.artefact_counts(connection, site.system)
    for machine in site.catalogue.machines:
        evidence = data.evidence_sessions(machine)
        short = _digest(_page_basis(site, machine))
        limits = [(series.row.id, series.limits) for series in machine.series]
        full = _digest([short, site.reports, limits])
        for position, row in enumerate(machine.sessions):
            is_drawn = position < _DRAWN_SESSIONS or row.id in evidence
            is_full = position < site.sessions or row.id in evidence
            basis: list[object] = [short]
            if is_full:
                basis = [full, is_drawn, _assessment_basis(machine, row)]
            inputs = _digest([basis, _session_fields(row), files.get(row.id, 0)])
            # The newest session is always assessed by what is known now.
            if position == 0 or not site.writer.reuse_page(data.session_page_path(row), inputs):
                to_write.append((machine, row, is_drawn if is_full else None))
    write_in_processes(site.history, site.writer, partial(_write_sessions, site), to_write)


def _page_basis(site: data.SiteBuild, machine: data.SystemEntry) -> list[object]:
    """What the pages of a system are made of besides their session: of its series the page and the metric.

    Runs and results are only added to a session, never changed: the number of runs stands for both.
    """
    all_series: list[tuple[object, ...]] = []
    for series in machine.series:
        all_series.append((series.row.id, series.headline, series.row.metric, series.row.case.canonical))
    return [site.fingerprint, machine.name, str(system_zone(machine.name)), all_series]


def _assessment_basis(machine: data.SystemEntry, row: SessionRow) -> list[object]:
    """What the page of a session shows of later sessions: a full page is written again when this is another one.

    Returns:
        What `_digest` can compare: the fortnights of the levels that the results are compared with, by series id; the
        findings that make a level of that time uncertain, with the ids of their series; and the findings that changed
        in the session, with the runs before and after the change of each series.
    """
    end = row.ended_at if row.ended_at is not None else row.started_at + DAY_S
    level_fortnights: list[tuple[int, list[int]]] = []
    for series in machine.series:
        if series.detection is not None:
            times = [change.time for change in series.detection.changes]
            level_fortnights.append((series.row.id, _level_fortnights(times, end)))
    undecided: list[tuple[str, list[int]]] = []
    changed_in_session: list[tuple[str, list[tuple[int | None, int | None]]]] = []
    for finding in machine.findings:
        if finding.state in levels.UNDECIDED_STATES and finding.first_after <= end:
            undecided.append((finding.id, sorted(member.series_id for member in finding.members)))
        has_last_before = row.started_at <= finding.last_before <= end
        has_first_after = row.started_at <= finding.first_after <= end
        if has_last_before or has_first_after:
            runs = [(member.run_before, member.run_after) for member in finding.members]
            changed_in_session.append((finding.id, runs))
    return [level_fortnights, undecided, changed_in_session]


def _level_fortnights(change_times: Sequence[float], end: float) -> list[int]:
    """Numbers of the fortnights since 1970 of the changes that determine the level at the end of a session.

    They are the last change until then, and the first of all: before it, the level is that before the first change. A
    new observation can move the date of an old change by a few sessions, which leaves the level as it is.

    Args:
        change_times: of one series in order of time, epoch seconds.
        end: of the session, epoch seconds.
    """
    changes_until_end = [time for time in change_times if time <= end]
    determining_times = [*change_times[:1], *changes_until_end[-1:]]
    return [int(time // _SAME_LEVEL_S) for time in determining_times]


def _digest(document: object) -> str:
    """SHA-256 of a document as JSON; objects that JSON cannot represent count by their text."""
    return hashlib.sha256(json.dumps(document, default=str, sort_keys=True).encode()).hexdigest()


PAGE = data.Page("session", "Sessions", None, publish_session_pages)


def _write_sessions(site: data.SiteBuild, sessions: Sequence[SystemSession]) -> None:
    """Write the short or the full page of each session."""
    for machine, row, is_drawn in sessions:
        if is_drawn is None:
            template, values = "older_session.html", _older_session_values(site, machine, row)
        else:
            template, values = "session.html", _session_values(site, machine, row, is_drawn)
        site.write_page(data.session_page_path(row), template, **values)


def _older_session_values(site: data.SiteBuild, machine: data.SystemEntry, row: SessionRow) -> dict[str, Any]:
    """Values of the template of a short page: runs with the headlines of their results and the names of their files."""
    with site.history.reading() as connection:
        kept = bulk.session_artefacts(connection, row.id)
        results = bulk.session_results(connection, row.id)
        runs = bulk.session_runs(connection, row.id)
    rows, received = [], set()
    for run in runs:
        run_results = _known_results(site, results.get(run.id, ()))
        for series, _ in run_results:
            operation = str(series.row.case.parameters.get("operation", ""))
            received.add(ExpectedResult(run.name, series.row.partition, series.row.stack, operation, series.row.metric))
        names = ", ".join(f"{artefact.kind} {artefact.sha256[:12]}" for artefact in kept.get(run.id, ()))
        rows.append((run, list(_headlines(run_results)), names))
    entry = data.session_entry(site.history, row, runs, received)
    return {"machine": machine, "entry": entry, "rows": rows, "kept": bool(kept), "sessions": site.sessions}


def _known_results(site: data.SiteBuild, results: Results) -> RunResults:
    """Results of series of the catalogue, with their series."""
    series_by_id = site.catalogue.by_id
    return [(series_by_id[series_id], samples) for series_id, samples in results if series_id in series_by_id]


def _headlines(results: RunResults) -> Iterator[tuple[str, str, str]]:
    """Path, operation and value of each monitored series; of all series if none is monitored."""
    monitored = [(series, samples) for series, samples in results if series.headline]
    for series, samples in monitored or results:
        operation = str(series.row.case.parameters.get("operation", series.metric.label))[:_MAX_OPERATION_CHARACTERS]
        yield series.page, operation, f"{format_number(series.metric.best(samples))} {series.metric.unit}"


Results = Sequence[tuple[int, tuple[float, ...]]]
# Names and paths of the logs of a run.
Logs = Sequence[tuple[str, Path]]
# Changes of a series within this time are one change whose date a new observation moved.
_SAME_LEVEL_S = 14 * DAY_S
# What a page shows at most: logs of a run, lines of a check extension, characters of an operation from an output.
_MAX_LOGS = 8
_MAX_LINES_OF_EXTENSION = 30
_MAX_OPERATION_CHARACTERS = 30
# A timeline takes a quarter of a second, and a session has about a hundred runs.
_DRAWN_SESSIONS = 7
_MAX_TIMELINES = 24
# Smallest maximum of a row for a unit, the unit, and its factor; 0.000096 s is hard to read.
_SECONDS = ((0.1, "s", 1.0), (1e-4, "ms", 1e3), (0.0, "µs", 1e6))
# Facts shown in other sections of the page.
_FACTS_SHOWN_ELSEWHERE = ("darshan", "profile", "partial_results", "nodes", "command", "source", "label")


def _session_values(site: data.SiteBuild, machine: data.SystemEntry, row: SessionRow, drawn: bool) -> dict[str, Any]:
    """Values of the template of a full page: all runs with results and traces, and the bars of monitored results.

    Args:
        drawn: whether its Darshan logs are drawn.
    """
    runs = site.history.runs(row.uuid)
    entry = data.session_entry(site.history, row, runs, set(site.history.received(row.uuid)))
    with site.history.reading() as connection:
        kept = bulk.session_artefacts(connection, row.id)
        results = bulk.session_results(connection, row.id)
    traced = {run: logs for run, files in kept.items() if (logs := _kept_logs(files))}
    traces = _read_traces(site, machine, runs, traced, drawn)
    bars = _session_bars(site, machine, runs, results)
    by_run: dict[int, list[SessionBar]] = defaultdict(list)
    for bar in bars:
        by_run[bar.run.id].append(bar)
    failed: list[dict[str, Any]] = []
    passed: list[dict[str, Any]] = []
    for run in runs:
        values = _run_values(site, run, kept.get(run.id, []), results.get(run.id, []))
        values |= {"darshan": traces.get(run.id, []), "bars": by_run[run.id]}
        (passed if run.status == "ok" else failed).append(values)
    scale = drawing.forest_scale(((bar.position.gain, bar.limits) for bar in bars if bar.position), _BAR_WIDTH)
    return {
        "machine": machine,
        "entry": entry,
        "failed": failed,
        "passed": passed,
        "bars": [(bar, _draw_bar(bar, scale)) for bar in bars[:_MAX_BARS]],
        "more_bars": [(bar, None) for bar in bars[_MAX_BARS:]],
        "axis": drawing.forest_axis(scale),
        "outcomes": {name: sum(bar.outcome == name for bar in bars) for name in _BAR_OUTCOMES},
    }


_BAR_WIDTH, _MAX_BARS = 360, 30
# Most urgent first.
_BAR_OUTCOMES = ("below", "above", "as accepted", "not assessed")


@dataclass(frozen=True)
class SessionBar:
    """A monitored result of a session.

    Attributes:
        value: headline in the unit of the series.
        position: relative to the accepted level of that time; None without one.
        band: half width of the normal band in natural logarithm; None without a noise estimate.
    """

    run: RunRow
    series: data.SeriesEntry
    value: float
    position: levels.BandPosition | None
    band: float | None

    @property
    def outcome(self) -> str:
        """One of `_BAR_OUTCOMES`."""
        return self.position.outcome if self.position else "not assessed"

    @property
    def limits(self) -> tuple[float, float] | None:
        """Edges of the normal band relative to the accepted level."""
        return None if self.band is None else (math.exp(-self.band), math.exp(self.band))


def _session_bars(
    site: data.SiteBuild, machine: data.SystemEntry, runs: Sequence[RunRow], results: Mapping[int, Results]
) -> list[SessionBar]:
    """Monitored results of a session by `_BAR_OUTCOMES`, the furthest from its level first."""
    recent = levels.recent_observations(site, machine)
    bars: list[SessionBar] = []
    for run in runs:
        for series, samples in _known_results(site, results.get(run.id, ())):
            if not series.headline:
                continue
            points = recent.get(series.row.id)
            observations: list[float] = []
            if points is not None:
                observations = series.metric.best_bound(points.min, points.max).tolist()
            value = float(series.metric.best(samples))
            # The level that was normal when the run started, not the one of today.
            level = levels.accepted_level(series, observations, run.started_at)
            position = levels.band_position(series, value, level.value) if level else None
            bars.append(SessionBar(run, series, value, position, levels.normal_band(series)))
    return sorted(bars, key=_bar_key)


def _bar_key(bar: SessionBar) -> tuple[int, float]:
    """Order of bars: by outcome, then the furthest from its level first."""
    multiple = bar.position.multiple if bar.position else None
    return _BAR_OUTCOMES.index(bar.outcome), -abs(multiple or 0.0)


def _draw_bar(bar: SessionBar, scale: drawing.AxisScale) -> Markup | None:
    if bar.position is None:
        return None
    return drawing.band_bar(bar.position.gain, bar.band, bar.position.kind, scale)


def _read_traces(
    site: data.SiteBuild, machine: data.SystemEntry, runs: Sequence[RunRow], traced: Mapping[int, Logs], drawn: bool
) -> dict[int, list[TraceSummary]]:
    """Summaries of the logs of each run, those before and after findings first.

    The first `_MAX_TIMELINES` runs have a timeline. PyDarshan's report takes three seconds of processor time, so only
    runs before and after findings have one, at most `site.reports`.
    """
    if not traced:
        return {}
    members = [member for finding in machine.findings for member in finding.members]
    evidence = {run for member in members for run in (member.run_before, member.run_after)}
    traced_runs = sorted((run for run in runs if run.id in traced), key=lambda run: run.id not in evidence)
    summaries = {}
    # One reader for all logs, because starting a reader takes longer than reading a log.
    with darshan.DarshanReader() as reader:
        for position, run in enumerate(traced_runs):
            # Of several logs of a run only the first one is drawn.
            timeline = drawn and position < _MAX_TIMELINES
            report = drawn and position < site.reports and run.id in evidence
            summaries[run.id] = [
                summarise_trace(
                    site,
                    TracedRun(run, log, name),
                    reader,
                    timeline=timeline and number == 0,
                    report=report and number == 0,
                )
                for number, (name, log) in enumerate(traced[run.id])
            ]
    return summaries


def _kept_logs(files: Sequence[Artefact]) -> Logs:
    """Logs of a run in the artefact store; a program that is started several times writes one per start."""
    locations = [(file.name, artefact_location(file)) for file in files if file.kind == "darshan"]
    return [(name, path) for name, path in locations if path is not None][:_MAX_LOGS]


def _run_values(site: data.SiteBuild, run: RunRow, kept: Sequence[Artefact], results: Results) -> dict[str, Any]:
    """Values of the template for one run: its results, files and facts."""
    run_results, trace = _known_results(site, results), run.facts.darshan
    # Monitored results come first; the others are folded.
    monitored = [result for result in run_results if result[0].headline] or run_results
    facts = {name: value for name, value in run.facts.document.items() if name not in _FACTS_SHOWN_ELSEWHERE}
    return {
        "run": run,
        "results": _result_rows(monitored),
        "others": _result_rows([result for result in run_results if result not in monitored]),
        "partial": list(_partial_results(run)),
        "files": [(artefact, _copy_output(site, artefact)) for artefact in kept],
        "operations": _transfer_count_lines(run_results),
        "bandwidths": compare_run_bandwidths([(series.row, samples) for series, samples in run_results]),
        "of_extensions": _lines_of_extensions(run),
        "trace_fault": _format_fact(trace.reason) if trace else "",
        "nodes": _format_fact(run.facts.nodes),
        "command": _format_fact(run.facts.command),
        "source": _format_fact(run.facts.source),
        "parts": _stack_parts(run.stack_document),
        "facts": json.dumps(facts, indent=1, ensure_ascii=False, default=str) if facts else "",
    }


def _lines_of_extensions(run: RunRow) -> list[tuple[str, list[str]]]:
    """Title and lines of what each check extension says about a run."""
    sections: list[tuple[str, list[str]]] = []
    for extension in EXTENSIONS.values():
        section = extension.describe(run.facts.document, _MAX_LINES_OF_EXTENSION)
        if section is not None:
            sections.append(section)
    return sections


def _result_rows(results: RunResults) -> list[tuple[data.SeriesEntry, ReadableSamples]]:
    return [(series, to_readable_unit(series.metric.unit, samples)) for series, samples in results]


@dataclass(frozen=True)
class ReadableSamples:
    """Samples in a readable unit; the unit of counts and shares is empty."""

    unit: str
    samples: tuple[float, ...]
    summary: Summary


def to_readable_unit(unit: str, samples: Sequence[float]) -> ReadableSamples:
    """Convert samples to a readable unit: short times to ms or µs."""
    shown, factor = "" if unit == "1" else unit, 1.0
    if unit == "s":
        shown, factor = next((name, by) for least, name, by in _SECONDS if max(samples) >= least)
    values = tuple(value * factor for value in samples)
    return ReadableSamples(shown, values, summarise_samples(values))


def _transfer_count_lines(results: RunResults) -> list[str]:
    """MPI-IO operations of one repetition, and the published counts of the same case."""
    counts: dict[str, dict[str, float]] = {}
    papers = {}
    for series, samples in results:
        row = series.row
        if row.metric in ("collective_count", "independent_count"):
            operation = str(row.case.parameters.get("operation", ""))
            counts.setdefault(operation, {})[row.metric] = samples[-1]
            papers[operation] = published_counts(row.case)
    lines = []
    for operation, counts_by_metric in counts.items():
        collective = format_number(counts_by_metric.get("collective_count", 0))
        independent = format_number(counts_by_metric.get("independent_count", 0))
        line = f"{operation}: {collective} collective, {independent} independent"
        paper = papers[operation]
        lines.append(f"{line} ({paper.text})" if paper else line)
    return lines


def _format_fact(value: object) -> str:
    """A fact as text; facts are taken from outputs and may have any type."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def _stack_parts(document: Mapping[str, Any]) -> list[list[str]]:
    """Name, version, hash and compiler of each part of a stack."""
    parts = document.get("parts")
    rows = [part for part in (parts if isinstance(parts, list) else ()) if isinstance(part, dict)]
    return [[_format_fact(part.get(key)) or "–" for key in ("name", "version", "hash", "compiler")] for part in rows]


def _partial_results(run: RunRow) -> Iterator[tuple[str, str]]:
    """Results printed by an incomplete run; they are stored with the run, but in no series."""
    for row in run.facts.partial_results:
        samples = " ".join(map(format_number, row.get("samples", ())))
        yield f"{row.get('operation')} {row.get('metric')}", f"{samples} {row.get('unit')}"


def _copy_output(site: data.SiteBuild, artefact: Artefact) -> str | None:
    """Copy an output into the site as plain text; returns its path, or None if it is no longer kept, or damaged."""
    source = artefact_location(artefact)
    if source is None:
        return None
    name = f"output/{artefact.sha256}.{'darshan' if artefact.kind == 'darshan' else 'txt'}"
    if not site.writer.reuse(name):
        if not artefacts.is_intact(source, artefact.size_bytes):
            return None
        shutil.copyfile(source, site.writer.target(name))
    return name
