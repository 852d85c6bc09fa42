"""Page of a session: all runs with results, outputs and traces; for older sessions a list of runs."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from markupsafe import Markup

from iowatch import darshan
from iowatch.checks import EXTENSIONS
from iowatch.core import DAY_S, Summary, artefacts, format_number, processor_saturation, summarise_samples
from iowatch.output.dashboard import data, drawing, levels, write_in_processes
from iowatch.output.dashboard.traces import TracedRun, TraceSummary, summarise_trace
from iowatch.output.history import artefact_location, compare_run_bandwidths
from iowatch.output.text.evidence import slow_node_lines, slow_target_lines
from iowatch.output.text.sessions import format_saturation
from iowatch.reference import published_counts
from iowatch.session.headlines import usual_values
from iowatch.site import system_zone
from iowatch.store import Artefact, ExpectedResult, History, RunRow, SessionRow, bulk

# Series id and samples of each result of a run.
SamplesBySeries = Sequence[tuple[int, tuple[float, ...]]]
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
# Facts shown in other sections of the page.
_FACTS_SHOWN_ELSEWHERE = (
    "darshan",
    "profile",
    "partial_results",
    "nodes",
    "node_times",
    "target_rates",
    "command",
    "source",
    "label",
)
_BAR_WIDTH, _MAX_BARS = 360, 30
# Most urgent first.
_BAR_OUTCOMES = ("below", "above", "as accepted", "not assessed")
# `asdict` copies every value; a system has thousands of sessions.
_session_fields = attrgetter(*(field.name for field in fields(SessionRow)))


@dataclass(frozen=True)
class _SessionPage:
    """A page that has to be written.

    Attributes:
        is_full: whether it has the outputs, facts and traces of all runs.
        is_drawn: whether a full page has drawings of its Darshan logs.
    """

    machine: data.SystemEntry
    session: SessionRow
    is_full: bool
    is_drawn: bool


@dataclass(frozen=True)
class _RunResult:
    """The samples of one series in one run, in the unit of the metric."""

    series: data.SeriesEntry
    samples: tuple[float, ...]


def publish_session_pages(site: data.SiteBuild) -> None:
    """Write `session/<uuid>.html`: full pages of the newest sessions and those around findings, else short ones.

    A page is linked from the previous site if everything that it is made of is the same. A full page compares its
    results with the levels and noise of when it was written: these move by fractions of a percent with each session,
    so that it is written again when a change, a finding or a reference is another one.
    """
    pages: list[_SessionPage] = []
    with site.history.reading() as connection:
        artefact_counts = bulk.artefact_counts(connection, site.system)
    for machine in site.catalogue.machines:
        evidence = data.evidence_sessions(machine)
        # What all short pages of the system, and all full ones, are made of.
        short_digest = _digest(_page_basis(site, machine))
        limits = [(series.row.id, series.limits) for series in machine.series]
        full_digest = _digest([short_digest, site.reports, limits])
        for position, session in enumerate(machine.sessions):
            is_drawn = position < _DRAWN_SESSIONS or session.id in evidence
            is_full = position < site.sessions or session.id in evidence
            basis: list[object] = [short_digest]
            if is_full:
                basis = [full_digest, is_drawn, _assessment_basis(machine, session)]
            inputs = _digest([basis, _session_fields(session), artefact_counts.get(session.id, 0)])
            # The newest session is always assessed by what is known now.
            if position == 0 or not site.writer.reuse_page(data.session_page_path(session), inputs):
                pages.append(_SessionPage(machine, session, is_full, is_drawn))
    write_in_processes(site.history, site.writer, partial(_write_pages, site), pages)


def _page_basis(site: data.SiteBuild, machine: data.SystemEntry) -> list[object]:
    """What the pages of a system are made of besides their session: of its series the page and the metric.

    Runs and results are only added to a session, never changed: the number of runs stands for both.
    """
    all_series: list[tuple[object, ...]] = []
    for series in machine.series:
        all_series.append((series.row.id, series.headline, series.row.metric, series.row.case.canonical))
    return [site.fingerprint, machine.name, str(system_zone(machine.name)), all_series]


def _assessment_basis(machine: data.SystemEntry, session: SessionRow) -> list[object]:
    """What the page of a session shows of later sessions: a full page is written again when this is another one.

    Returns:
        What `_digest` can compare: the fortnights of the levels that the results are compared with, by series id; the
        findings that make a level of that time uncertain, with the ids of their series; and the findings that changed
        in the session, with the runs before and after the change of each series.
    """
    end = session.ended_at if session.ended_at is not None else session.started_at + DAY_S
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
        has_last_before = session.started_at <= finding.last_before <= end
        has_first_after = session.started_at <= finding.first_after <= end
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


def _write_pages(site: data.SiteBuild, pages: Sequence[_SessionPage]) -> None:
    """Write the short or the full page of each session."""
    for page in pages:
        if page.is_full:
            template = "session.html"
            values = _full_page_values(site, page)
        else:
            template = "older_session.html"
            values = _short_page_values(site, page.machine, page.session)
        site.write_page(data.session_page_path(page.session), template, **values)


@dataclass(frozen=True)
class _Headline:
    """The value of a result on a short page, with its unit, and the page of its series."""

    page: str
    operation: str
    value: str


@dataclass(frozen=True)
class _ShortRunRow:
    """A run on a short page; `files` are the kinds and beginnings of the digests of its artefacts."""

    run: RunRow
    headlines: Sequence[_Headline]
    files: str


def _short_page_values(site: data.SiteBuild, machine: data.SystemEntry, session: SessionRow) -> dict[str, Any]:
    """Values of the template of a short page: runs with the headlines of their results and the names of their files."""
    with site.history.reading() as connection:
        artefacts_of_run = bulk.session_artefacts(connection, session.id)
        samples_of_run = bulk.session_results(connection, session.id)
        runs = bulk.session_runs(connection, session.id)
    rows: list[_ShortRunRow] = []
    received: set[ExpectedResult] = set()
    for run in runs:
        results = _results_in_series(site, samples_of_run.get(run.id, ()))
        for result in results:
            row = result.series.row
            operation = str(row.case.parameters.get("operation", ""))
            received.add(ExpectedResult(run.name, row.partition, row.stack, operation, row.metric))
        files = [f"{artefact.kind} {artefact.sha256[:12]}" for artefact in artefacts_of_run.get(run.id, ())]
        rows.append(_ShortRunRow(run, list(_headlines(results)), ", ".join(files)))
    entry = data.session_entry(site.history, session, runs, received)
    has_files = bool(artefacts_of_run)
    return {"machine": machine, "entry": entry, "rows": rows, "kept": has_files, "sessions": site.sessions}


def _results_in_series(site: data.SiteBuild, samples_by_series: SamplesBySeries) -> list[_RunResult]:
    """Results of a run, without those of series that the catalogue of this build does not contain."""
    series_by_id = site.catalogue.by_id
    results: list[_RunResult] = []
    for series_id, samples in samples_by_series:
        if series_id in series_by_id:
            results.append(_RunResult(series_by_id[series_id], samples))
    return results


def _monitored_results(results: Sequence[_RunResult]) -> list[_RunResult]:
    """Results of monitored series; all results if none is monitored."""
    monitored = [result for result in results if result.series.headline]
    return monitored or list(results)


def _headlines(results: Sequence[_RunResult]) -> Iterator[_Headline]:
    """The headline of each monitored result."""
    for result in _monitored_results(results):
        metric = result.series.metric
        operation = str(result.series.row.case.parameters.get("operation", metric.label))
        value = f"{format_number(metric.best(result.samples))} {metric.unit}"
        yield _Headline(result.series.page, operation[:_MAX_OPERATION_CHARACTERS], value)


def _full_page_values(site: data.SiteBuild, page: _SessionPage) -> dict[str, Any]:
    """Values of the template of a full page: all runs with results and traces, and the bars of monitored results."""
    machine = page.machine
    session = page.session
    runs = site.history.runs(session.uuid)
    received = set(site.history.received(session.uuid))
    with site.history.reading() as connection:
        artefacts_of_run = bulk.session_artefacts(connection, session.id)
        samples_of_run = bulk.session_results(connection, session.id)
    traces_of_run = _read_traces(site, machine, runs, _logs_of_runs(artefacts_of_run), page.is_drawn)
    bars = _session_bars(site, page, runs, samples_of_run)
    bars_of_run: dict[int, list[SessionBar]] = defaultdict(list)
    for bar in bars:
        bars_of_run[bar.run.id].append(bar)
    failed: list[dict[str, Any]] = []
    passed: list[dict[str, Any]] = []
    for run in runs:
        values = _run_values(site, run, artefacts_of_run.get(run.id, []), samples_of_run.get(run.id, []))
        values["darshan"] = traces_of_run.get(run.id, [])
        values["bars"] = bars_of_run[run.id]
        if run.status == "ok":
            passed.append(values)
        else:
            failed.append(values)
    # All bars have one axis, so that their lengths can be compared.
    gains_and_limits = [(bar.position.gain, bar.limits) for bar in bars if bar.position]
    scale = drawing.forest_scale(gains_and_limits, _BAR_WIDTH)
    return {
        "machine": machine,
        "entry": data.session_entry(site.history, session, runs, received),
        "failed": failed,
        "passed": passed,
        "bars": [(bar, _draw_bar(bar, scale)) for bar in bars[:_MAX_BARS]],
        "more_bars": [(bar, None) for bar in bars[_MAX_BARS:]],
        "axis": drawing.forest_axis(scale),
        "outcomes": {name: sum(bar.outcome == name for bar in bars) for name in _BAR_OUTCOMES},
    }


@dataclass(frozen=True)
class SessionBar:
    """A monitored result of a session.

    Attributes:
        value: headline in the unit of the series.
        position: relative to the accepted level of that time; None without one.
        band: half width of the normal band in natural logarithm; None without a noise estimate.
        ratio_to_usual: relative to earlier sessions, as in the verdict, if there is no accepted level; else None.
    """

    run: RunRow
    series: data.SeriesEntry
    value: float
    position: levels.BandPosition | None
    band: float | None
    ratio_to_usual: float | None = None

    @property
    def outcome(self) -> str:
        """One of `_BAR_OUTCOMES`."""
        return self.position.outcome if self.position else "not assessed"

    @property
    def limits(self) -> tuple[float, float] | None:
        """Edges of the normal band relative to the accepted level."""
        return None if self.band is None else (math.exp(-self.band), math.exp(self.band))


def _session_bars(
    site: data.SiteBuild, page: _SessionPage, runs: Sequence[RunRow], samples_of_run: Mapping[int, SamplesBySeries]
) -> list[SessionBar]:
    """Monitored results of a session by `_BAR_OUTCOMES`, the furthest from its level first."""
    session = page.session
    recent = levels.recent_observations(site, page.machine)
    bars: list[SessionBar] = []
    for run in runs:
        for result in _results_in_series(site, samples_of_run.get(run.id, ())):
            series = result.series
            if not series.headline:
                continue
            points = recent.get(series.row.id)
            observations: list[float] = []
            if points is not None:
                observations = series.metric.best_bound(points.min, points.max).tolist()
            value = float(series.metric.best(result.samples))
            # The level that was normal when the run started, not the one of today.
            level = levels.accepted_level(series, observations, run.started_at)
            position = None
            if level is not None:
                position = levels.band_position(series, value, level.value)
            bars.append(SessionBar(run, series, value, position, levels.normal_band(series)))
    return sorted(_beside_earlier_sessions(site.history, session, runs, bars), key=_bar_key)


def _beside_earlier_sessions(
    history: History, session: SessionRow, runs: Sequence[RunRow], bars: Sequence[SessionBar]
) -> list[SessionBar]:
    """Bars, those without an accepted level with their ratio to earlier sessions."""
    unassessed_series = [bar.series.row for bar in bars if bar.position is None]
    if not unassessed_series:
        return list(bars)
    usual_by_series = usual_values(history, session, runs, unassessed_series)
    compared_bars: list[SessionBar] = []
    for bar in bars:
        usual = usual_by_series.get(bar.series.row.id)
        if usual is None or bar.position is not None:
            compared_bars.append(bar)
        else:
            compared_bars.append(replace(bar, ratio_to_usual=bar.value / usual.median))
    return compared_bars


def _bar_key(bar: SessionBar) -> tuple[int, float]:
    """Order of bars: by outcome, then the furthest from its level first."""
    distance = 0.0
    if bar.position is not None and bar.position.multiple is not None:
        distance = abs(bar.position.multiple)
    return _BAR_OUTCOMES.index(bar.outcome), -distance


def _draw_bar(bar: SessionBar, scale: drawing.AxisScale) -> Markup | None:
    if bar.position is None:
        return None
    return drawing.band_bar(bar.position.gain, bar.band, bar.position.kind, scale)


def _logs_of_runs(artefacts_of_run: Mapping[int, Sequence[Artefact]]) -> dict[int, Logs]:
    """Darshan logs of each run that has some in the artefact store, by run id.

    A program that is started several times writes one log per start.
    """
    logs_of_run: dict[int, Logs] = {}
    for run, run_artefacts in artefacts_of_run.items():
        logs: list[tuple[str, Path]] = []
        for artefact in run_artefacts:
            path = artefact_location(artefact) if artefact.kind == "darshan" else None
            if path is not None:
                logs.append((artefact.name, path))
        if logs:
            logs_of_run[run] = logs[:_MAX_LOGS]
    return logs_of_run


def _read_traces(
    site: data.SiteBuild,
    machine: data.SystemEntry,
    runs: Sequence[RunRow],
    logs_of_run: Mapping[int, Logs],
    is_drawn: bool,
) -> dict[int, list[TraceSummary]]:
    """Summaries of the logs of each run, those before and after findings first.

    The first `_MAX_TIMELINES` runs have a timeline. PyDarshan's report takes three seconds of processor time, so only
    runs before and after findings have one, at most `site.reports`.
    """
    if not logs_of_run:
        return {}
    evidence_runs: set[int | None] = set()
    for finding in machine.findings:
        for member in finding.members:
            evidence_runs.update((member.run_before, member.run_after))
    traced_runs = [run for run in runs if run.id in logs_of_run]
    traced_runs.sort(key=lambda run: run.id not in evidence_runs)
    summaries: dict[int, list[TraceSummary]] = {}
    # One reader for all logs, because starting a reader takes longer than reading a log.
    with darshan.DarshanReader() as reader:
        for position, run in enumerate(traced_runs):
            has_timeline = is_drawn and position < _MAX_TIMELINES
            has_report = is_drawn and position < site.reports and run.id in evidence_runs
            summaries[run.id] = []
            for name, path in logs_of_run[run.id]:
                traced = TracedRun(run, path, name)
                summary = summarise_trace(site, traced, reader, timeline=has_timeline, report=has_report)
                summaries[run.id].append(summary)
                # Of several logs of a run only the first one is drawn.
                has_timeline = has_report = False
    return summaries


def _saturation_text(run: RunRow) -> str:
    """Mark of a run on a saturated node; empty for others."""
    pressure = processor_saturation(run.facts.document)
    return format_saturation([pressure]) if pressure is not None else ""


def _run_values(
    site: data.SiteBuild, run: RunRow, run_artefacts: Sequence[Artefact], samples_by_series: SamplesBySeries
) -> dict[str, Any]:
    """Values of the template for one run: its results, files and facts."""
    results = _results_in_series(site, samples_by_series)
    # Monitored results come first; the others are folded.
    monitored = _monitored_results(results)
    others = [result for result in results if result not in monitored]
    bandwidths = compare_run_bandwidths([(result.series.row, result.samples) for result in results])
    trace = run.facts.darshan
    return {
        "run": run,
        "results": _result_rows(monitored),
        "others": _result_rows(others),
        "partial": list(_partial_results(run)),
        "files": [(artefact, _copy_output(site, artefact)) for artefact in run_artefacts],
        "operations": _transfer_count_lines(results),
        "bandwidths": bandwidths,
        "saturation": _saturation_text(run),
        "slow_targets": list(slow_target_lines(run.facts)),
        "slow_nodes": list(slow_node_lines(run.facts)),
        "of_extensions": _lines_of_extensions(run),
        "trace_fault": _format_fact(trace.reason) if trace else "",
        "nodes": _format_fact(run.facts.nodes),
        "command": _format_fact(run.facts.command),
        "source": _format_fact(run.facts.source),
        "parts": _stack_parts(run.stack_document),
        "facts": _other_facts(run),
    }


def _other_facts(run: RunRow) -> str:
    """Facts of a run that no other section of the page shows, as JSON; empty without any."""
    facts: dict[str, Any] = {}
    for name, value in run.facts.document.items():
        if name not in _FACTS_SHOWN_ELSEWHERE:
            facts[name] = value
    if not facts:
        return ""
    return json.dumps(facts, indent=1, ensure_ascii=False, default=str)


def _lines_of_extensions(run: RunRow) -> list[tuple[str, list[str]]]:
    """Title and lines of what each check extension says about a run."""
    sections: list[tuple[str, list[str]]] = []
    for extension in EXTENSIONS.values():
        section = extension.describe(run.facts.document, _MAX_LINES_OF_EXTENSION)
        if section is not None:
            sections.append(section)
    return sections


def _result_rows(results: Sequence[_RunResult]) -> list[tuple[data.SeriesEntry, ReadableSamples]]:
    rows: list[tuple[data.SeriesEntry, ReadableSamples]] = []
    for result in results:
        rows.append((result.series, to_readable_unit(result.series.metric.unit, result.samples)))
    return rows


@dataclass(frozen=True)
class ReadableSamples:
    """Samples in a readable unit; the unit of counts and shares is empty."""

    unit: str
    samples: tuple[float, ...]
    summary: Summary


@dataclass(frozen=True)
class _TimeUnit:
    """A unit for times whose maximum is at least `min_s` seconds; there are `per_s` of it in a second."""

    name: str
    min_s: float
    per_s: float


# The first one that fits is used: 0.000096 s is hard to read.
_TIME_UNITS = (_TimeUnit("s", 0.1, 1.0), _TimeUnit("ms", 1e-4, 1e3), _TimeUnit("µs", 0.0, 1e6))


def to_readable_unit(unit: str, samples: Sequence[float]) -> ReadableSamples:
    """Convert samples to a readable unit: short times to ms or µs."""
    readable_unit = unit
    factor = 1.0
    if unit == "1":
        readable_unit = ""
    elif unit == "s":
        time_unit = next(candidate for candidate in _TIME_UNITS if max(samples) >= candidate.min_s)
        readable_unit = time_unit.name
        factor = time_unit.per_s
    values = tuple(value * factor for value in samples)
    return ReadableSamples(readable_unit, values, summarise_samples(values))


@dataclass
class _TransferCounts:
    """MPI-IO transfers of one operation of a run, and the published counts of the same case as text."""

    collective: float = 0
    independent: float = 0
    published: str = ""


def _transfer_count_lines(results: Sequence[_RunResult]) -> list[str]:
    """MPI-IO operations of one repetition, and the published counts of the same case."""
    counts_of_operation: dict[str, _TransferCounts] = defaultdict(_TransferCounts)
    for result in results:
        row = result.series.row
        if row.metric not in ("collective_count", "independent_count"):
            continue
        counts = counts_of_operation[str(row.case.parameters.get("operation", ""))]
        if row.metric == "collective_count":
            counts.collective = result.samples[-1]
        else:
            counts.independent = result.samples[-1]
        paper = published_counts(row.case)
        counts.published = paper.text if paper else ""
    lines: list[str] = []
    for operation, counts in counts_of_operation.items():
        collective = format_number(counts.collective)
        independent = format_number(counts.independent)
        line = f"{operation}: {collective} collective, {independent} independent"
        if counts.published:
            line += f" ({counts.published})"
        lines.append(line)
    return lines


def _format_fact(value: object) -> str:
    """A fact as text; facts are taken from outputs and may have any type."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


_PART_FIELDS = ("name", "version", "hash", "compiler")


def _stack_parts(document: Mapping[str, Any]) -> list[list[str]]:
    """Name, version, hash and compiler of each part of a stack; documents are untrusted."""
    parts = document.get("parts")
    if not isinstance(parts, list):
        return []
    rows: list[list[str]] = []
    for part in parts:
        if isinstance(part, dict):
            rows.append([_format_fact(part.get(name)) or "–" for name in _PART_FIELDS])
    return rows


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
    suffix = "darshan" if artefact.kind == "darshan" else "txt"
    name = f"output/{artefact.sha256}.{suffix}"
    # The content of a file never changes under its digest: one of the previous site is linked.
    if site.writer.reuse(name):
        return name
    if not artefacts.is_intact(source, artefact.size_bytes):
        return None
    shutil.copyfile(source, site.writer.target(name))
    return name
