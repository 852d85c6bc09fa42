"""Data of the pages: systems with their series, limits, sessions and findings, read once without samples.

A page is a `Page` in a file of `pages`; it receives a `SiteBuild`.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from jinja2 import Environment, FileSystemLoader, TemplateError

from iowatch.core import DAY_S, METRICS, IowatchError, MachineError, Metric, Scalar, headline_metrics, settings
from iowatch.findings import Finding, load_detections, load_findings, monitored_series, short_case_names
from iowatch.output.dashboard.site import SiteWriter, safe_file_name
from iowatch.output.text.problems import ProblemSection, lacking_run_sections
from iowatch.reference import bandwidth, events, published, reviews
from iowatch.session.accepted_plan import is_restricted
from iowatch.session.coverage import SessionCoverage, compare_with_expected
from iowatch.session.missing_reasons import recorded_reasons
from iowatch.site import system
from iowatch.statistics import Detection
from iowatch.store import ExpectedResult, History, RunRow, SeriesExtent, SeriesRow, SessionRow, StackUse, bulk, read

# Statistics of published figures with which a series is compared, in order of preference.
_STATISTICS = ("max", "mean", "median")


@dataclass(frozen=True, slots=True)
class PublishedLimit:
    """A published figure of the same case; `where` is source and table (`lawrence2017/2`)."""

    value: float
    statistic: str
    where: str
    title: str


@dataclass(frozen=True, slots=True)
class SeriesLimits:
    """Known limits of a series; all values in the unit of the series."""

    reference: bandwidth.Reference | None = None
    published: PublishedLimit | None = None
    peak: float | None = None


def described_case(row: SeriesRow) -> Mapping[str, Scalar]:
    """Case parameters as pages show them, with the file system where the system measures several."""
    return system.with_file_system(row.system, row.case.benchmark, row.case.parameters)


def find_limits(row: SeriesRow, facts: system.System | None, references: bandwidth.References | None) -> SeriesLimits:
    """Limits with which a series is compared: reference, published figure and peak.

    Args:
        facts: content of `system.yaml`, which has the peaks; None without this file.
        references: of the system; None if its file could not be read.
    """
    parameters = row.case.parameters
    operation = str(parameters.get("operation", ""))
    # A peak is of one file system.
    peak = None
    if facts is not None:
        peak = published.case_peak_mib_per_s(row.system, facts.file_systems, row.case, row.metric)
    reference = None
    if references is not None and references.entries:
        reference = references.find(row.partition, row.stack, parameters, operation, row.metric)
    return SeriesLimits(reference, _find_published_limit(row), peak)


def _find_published_limit(row: SeriesRow) -> PublishedLimit | None:
    """The first published figure of the case of a series; None if no table has one."""
    # Published tables have bandwidths only.
    if row.metric != "bandwidth":
        return None
    for measurement in published_measurements().get(row.system, ()):
        statistic = str(measurement["statistic"])
        if statistic in _STATISTICS and _matches_case(row.case.parameters, measurement):
            value = float(measurement["value"])
            return PublishedLimit(value, statistic, measurement["where"], measurement["title"])
    return None


def published_measurements() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Published bandwidths by system in long form, with `where` and `title` of their table.

    Maxima are first, because they are the headlines ([lawrence2017], section 6).
    """
    return _read_measurements(tuple(settings.roots()))


@cache
def _read_measurements(_roots: tuple[Path, ...]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    # `_roots` is the key of the cache: another checkout has other tables.
    by_system: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for table in published.load_all_tables():
        if not published.has_long_form(table):
            continue
        source_table = f"{published.source_key(table.source)}/{table.name}"
        for measurement in published.table_measurements(table):
            located = {**measurement, "where": source_table, "title": table.sidecar.title}
            by_system[str(measurement["system"])].append(located)
    for measurements in by_system.values():
        measurements.sort(key=_statistic_rank)
    return by_system


def _statistic_rank(measurement: Mapping[str, Any]) -> int:
    """Position of the statistic of a published figure in `_STATISTICS`; others are last."""
    statistic = str(measurement["statistic"])
    return _STATISTICS.index(statistic) if statistic in _STATISTICS else len(_STATISTICS)


def _matches_case(parameters: Mapping[str, Scalar], measurement: Mapping[str, Any]) -> bool:
    """Whether a published figure is of the case: the number of writers and all parameters that both state are equal."""
    if measurement["benchmark"] is None or parameters.get("ranks") != measurement["writers"]:
        return False
    stated = published.case_parameters(measurement)
    for name in (*published.MATCHED_PARAMETERS, "stripe_bytes"):
        if name in parameters and name in stated and parameters[name] != stated[name]:
            return False
    # A figure of several instances is of the same case only as results of as many.
    return measurement.get("instances") in (None, 1, parameters.get("instances"))


_T = TypeVar("_T")
# Sessions that start within this time are of the same day.
_SAME_DAY_S = 20 * 3600
# A session is small beside one with more than this many times its runs.
_SMALL_SESSION_RATIO = 3


@dataclass(frozen=True, eq=False)
class SeriesEntry:
    """A series with the data of its pages.

    Attributes:
        name: short, unique among the series of its system if possible.
        stamp: extent of the series; equal stamps mean equal results.
        headline: whether it is the monitored series of its case (`headline_metrics`).
        detection: last detection of the series, or None.
        limits: reference, published figure and peak, if known.
        findings: findings of which it is a member, newest first.
        stacks: contents of its stack in order of time.
    """

    row: SeriesRow
    name: str
    stamp: SeriesExtent
    headline: bool
    detection: Detection | None
    limits: SeriesLimits
    findings: tuple[Finding, ...]
    stacks: tuple[StackUse, ...]

    @property
    def metric(self) -> Metric:
        """Metric of the series."""
        return METRICS[self.row.metric]

    @property
    def page(self) -> str:
        """Path of the page of the series in the site."""
        return f"series/{self.row.id}.html"


@dataclass(frozen=True, eq=False)
class SystemEntry:
    """Data of one system.

    Attributes:
        facts: content of `system.yaml`, or None without this file (a demonstration, an import).
        faults: messages about files of the system that could not be read; shown on the first page.
    """

    name: str
    facts: system.System | None
    sessions: tuple[SessionRow, ...]
    series: tuple[SeriesEntry, ...]
    findings: tuple[Finding, ...]
    events: tuple[events.Event, ...]
    decisions: tuple[reviews.Decision, ...]
    references: bandwidth.References | None
    stacks: tuple[StackUse, ...]
    faults: tuple[str, ...]

    @property
    def watched(self) -> list[SeriesEntry]:
        """The monitored series."""
        return [series for series in self.series if series.headline]

    @cached_property
    def sessions_of_suites(self) -> tuple[SessionRow, ...]:
        """The sessions by which the next one is expected, newest first: an A/B run or a gate is no night."""
        return tuple(session for session in self.sessions if session.is_of_suite)

    @cached_property
    def session_starts(self) -> tuple[int, ...]:
        """Starts of the sessions, epoch seconds, in order of time."""
        return tuple(sorted(session.started_at for session in self.sessions))

    @cached_property
    def newest_session(self) -> SessionRow | None:
        """The newest nightly session, the subject of the status page.

        Interleaved runs and profiles do not count, nor does a session of the same day with status `ok` that is a small
        one of another suite, or is restricted to some stacks or cases: it does not replace the results of the larger
        one.
        """
        candidates = [row for row in self.sessions if not row.is_interleaved and row.origin != "profile"]
        if not candidates:
            candidates = list(self.sessions)
        if not candidates:
            return None
        # Sessions are in order of time, newest first.
        newest = candidates[0]
        # What failed is shown, however small the session was.
        if newest.status != "ok":
            return newest
        for earlier in candidates[1:]:
            if earlier.started_at < newest.started_at - _SAME_DAY_S:
                break
            is_small = newest.suite != earlier.suite and earlier.runs > _SMALL_SESSION_RATIO * newest.runs
            if is_small or (is_restricted(newest) and not is_restricted(earlier)):
                return earlier
        return newest


@dataclass(frozen=True)
class Catalogue:
    """All systems of the history."""

    machines: tuple[SystemEntry, ...]
    by_id: Mapping[int, SeriesEntry] = field(default_factory=dict)


def collect_catalogue(history: History, system: str | None = None) -> Catalogue:
    """Read the data of one system or of all."""
    rows_by_system: dict[str, list[SeriesRow]] = defaultdict(list)
    # One transaction: all that is read belongs to one state of the history.
    with history.reading() as connection:
        extents = read.series_extents(connection, *read.results_of_system(system))
        uses = bulk.stack_uses(connection, system)
        sessions = bulk.sessions_by_system(connection, system)
        for row in read.series_of_extents(connection, extents):
            # A series of a metric of a plugin that is not installed has no unit and no direction.
            if row.metric in METRICS:
                rows_by_system[row.system].append(row)
    detections = load_detections(history, list(extents))
    machines: list[SystemEntry] = []
    by_id: dict[int, SeriesEntry] = {}
    for name in history.systems() if system is None else [system]:
        rows = _SystemRows(
            name=name,
            sessions=sessions.get(name, []),
            series=rows_by_system[name],
            extents=extents,
            detections=detections,
            stacks=[use for use in uses if use.system == name],
        )
        machine = _collect_system(history, rows)
        machines.append(machine)
        for series in machine.series:
            by_id[series.row.id] = series
    return Catalogue(tuple(machines), by_id)


@dataclass(frozen=True)
class _SystemRows:
    """What was read of one system; extents and detections are those of all series, by series id."""

    name: str
    sessions: Sequence[SessionRow]
    series: Sequence[SeriesRow]
    extents: Mapping[int, SeriesExtent]
    detections: Mapping[int, Detection]
    stacks: Sequence[StackUse]


def _collect_system(history: History, rows: _SystemRows) -> SystemEntry:
    name = rows.name
    findings = load_findings(history, name)
    # A file that cannot be read is a fault on the page; the history is shown without it.
    faults: list[str] = []
    facts = _read_or_fault(lambda: _load_facts(name), None, faults)
    references = _read_or_fault(lambda: bandwidth.load_references(name), None, faults)
    findings_by_series: dict[int, list[Finding]] = defaultdict(list)
    for finding in findings:
        for member in finding.members:
            findings_by_series[member.series_id].append(finding)
    monitored_ids = {row.id for row in monitored_series(rows.series)}
    series: list[SeriesEntry] = []
    for row, series_name in zip(rows.series, _unique_series_names(rows.series), strict=True):
        stacks = [use for use in rows.stacks if (use.partition, use.name) == (row.partition, row.stack)]
        entry = SeriesEntry(
            row=row,
            name=series_name,
            stamp=rows.extents[row.id],
            headline=row.id in monitored_ids,
            detection=rows.detections.get(row.id),
            limits=find_limits(row, facts, references),
            findings=tuple(findings_by_series.get(row.id, ())),
            stacks=tuple(stacks),
        )
        series.append(entry)
    machine_events = _read_or_fault(lambda: events.read_events(name), events.RecordedEvents(()), faults)
    decisions = _read_or_fault(lambda: reviews.read_decisions(name), reviews.RecordedDecisions(), faults)
    faults += [*machine_events.faults, *decisions.faults]
    return SystemEntry(
        name=name,
        facts=facts,
        sessions=tuple(rows.sessions),
        series=tuple(series),
        findings=tuple(findings),
        events=machine_events.events,
        decisions=decisions.decisions,
        references=references,
        stacks=tuple(rows.stacks),
        # Two files may have one fault in common.
        faults=tuple(dict.fromkeys(faults)),
    )


def _load_facts(name: str) -> system.System | None:
    """Content of `system.yaml`; None for a system without this file (a demonstration, an import)."""
    if name not in system.system_names():
        return None
    return system.load_system(name)


def _read_or_fault(reader: Callable[[], _T], otherwise: _T, faults: list[str]) -> _T:
    """Call `reader`; an error is added to `faults` for the page, so that pages of other systems are still built."""
    try:
        return reader()
    except IowatchError as error:
        faults.append(error.message)
        return otherwise


def _unique_series_names(rows: Sequence[SeriesRow]) -> list[str]:
    """Names of series with metric (unless it is a headline metric), and stack and partition if there are several."""
    case_names = short_case_names([{"benchmark": row.case.benchmark, **described_case(row)} for row in rows])
    has_several_stacks = len({row.stack for row in rows}) > 1
    has_several_partitions = len({row.partition for row in rows}) > 1
    # What all series have in common is left out, so that names stay short.
    headlines = headline_metrics()
    names: list[str] = []
    for row, case_name in zip(rows, case_names, strict=True):
        words = [case_name]
        if row.metric not in headlines:
            words.append(METRICS[row.metric].label.lower())
        if has_several_stacks:
            words.append(f"[{row.stack}]")
        if has_several_partitions:
            words.append(f"[{row.partition}]")
        names.append(" ".join(words))
    return names


@dataclass(frozen=True)
class SessionEntry:
    """A session with its runs, and what it lacks."""

    session: SessionRow
    runs: Sequence[RunRow]
    coverage: SessionCoverage

    @property
    def has_several_partitions(self) -> bool:
        """Whether names of runs need their partition to be unambiguous."""
        partitions = {run.partition for run in self.runs}
        partitions |= {problem.partition for problem in self.coverage.failed}
        partitions |= {result.partition for result in self.coverage.missing_results}
        return len(partitions) > 1

    @property
    def lacking_run_sections(self) -> list[ProblemSection]:
        """The runs that lack results, by what is wrong with them."""
        return lacking_run_sections(self.coverage.failed, self.coverage.missing)

    @property
    def problems(self) -> Sequence[str]:
        """Other reasons why the session failed, one sentence each."""
        return self.session.facts.problems

    @property
    def is_complete(self) -> bool:
        """Whether all expected results were received, no run failed, and nothing else was wrong."""
        return self.coverage.is_complete and not self.problems and self.session.status == "ok"


def session_page_path(session: SessionRow) -> str:
    """Path of the page of a session in the site."""
    return f"session/{safe_file_name(session.uuid)}.html"


def evidence_sessions(machine: SystemEntry) -> set[int]:
    """Numbers of the sessions immediately before and after the changes of findings."""
    change_times: set[int] = set()
    for finding in machine.findings:
        change_times.add(finding.last_before)
        change_times.add(finding.first_after)
    numbers: set[int] = set()
    for session in machine.sessions:
        # A session without an end is running or was killed; it is taken to have lasted a day.
        end = session.started_at + DAY_S
        if session.ended_at is not None:
            end = max(session.ended_at, session.started_at)
        if any(session.started_at <= moment <= end for moment in change_times):
            numbers.add(session.id)
    return numbers


def session_entry(
    history: History, session: SessionRow, runs: Sequence[RunRow], received: Collection[ExpectedResult]
) -> SessionEntry:
    """A session with its runs and received results, as the caller has read them."""
    expected = history.expected(session.uuid)
    return SessionEntry(session, runs, compare_with_expected(expected, received, runs, recorded_reasons(session)))


# Seconds after the end of the last session; the default of `overdue_hours` of notices (docs/notices.md).
_MIN_OVERDUE_S = 26 * 3600
# Tolerance for sessions that start later than usual.
_SLACK = 1.1
# Number of sessions that determine the usual interval: daily, on working days, weekly.
_RECENT_SESSIONS = 31


def overdue_after_s(machine: SystemEntry) -> int | None:
    """Time (epoch s) after which the next session is overdue.

    None if no session is expected: a retired system, or only imports, demonstrations and experiments.
    """
    is_retired = machine.facts is not None and machine.facts.retired
    if not machine.sessions_of_suites or is_retired:
        return None
    newest = machine.sessions_of_suites[0]
    last_activity = newest.started_at if newest.ended_at is None else newest.ended_at
    return last_activity + max(_MIN_OVERDUE_S, round(_SLACK * usual_interval_s(machine.sessions_of_suites)))


def is_overdue(machine: SystemEntry, now: int) -> bool:
    """Whether a further session should have started by `now` (epoch s)."""
    moment = overdue_after_s(machine)
    return moment is not None and moment < now


def missed_since_newest(machine: SystemEntry, now: int) -> int:
    """Number of sessions that should have started since the newest one up to `now` (epoch s); 0 if none is overdue."""
    if not is_overdue(machine, now):
        return 0
    interval_s = max(DAY_S, usual_interval_s(machine.sessions_of_suites))
    return max(1, (now - machine.sessions_of_suites[0].started_at) // interval_s)


def is_session_running(machine: SystemEntry, now: int) -> bool:
    """Whether the newest session is still running: missing results may still arrive."""
    newest = machine.newest_session
    if newest is None or newest.status != "running":
        return False
    # A session that was killed keeps the status `running`.
    return not is_overdue(machine, now)


def usual_interval_s(sessions: Sequence[SessionRow]) -> int:
    """Usual seconds between starts of sessions, given newest first.

    It is the 90 % quantile, so that weekends count and a single outage does not.
    """
    starts = np.array([session.started_at for session in sessions[:_RECENT_SESSIONS]], dtype=np.int64)
    gaps = -np.diff(starts)
    return int(np.percentile(gaps, 90)) if len(gaps) else 0


@dataclass(frozen=True)
class SiteBuild:
    """One build of the site.

    Attributes:
        zone: time zone of displayed times.
        sessions: number of newest sessions of each system with full pages of their runs.
        reports: number of runs of a session before or after a finding with PyDarshan's full report.
        now: time of the build, epoch seconds; expected sessions that did not start by then are overdue.
        system: the only system of the site; None for all.
    """

    history: History
    catalogue: Catalogue
    templates: Environment
    writer: SiteWriter
    zone: tzinfo
    sessions: int
    reports: int
    now: int
    system: str | None = None
    _computed: dict[tuple[str, str], Any] = field(default_factory=dict)

    def compute_once(self, what: str, machine: SystemEntry | None, compute: Callable[[], _T]) -> _T:
        """Value of a computation that several pages show; the first caller's is kept.

        Args:
            machine: the system that it is about; None: all of them.
        """
        key = (what, "" if machine is None else machine.name)
        if key not in self._computed:
            self._computed[key] = compute()
        return cast("_T", self._computed[key])

    @cached_property
    def fingerprint(self) -> str:
        """Digest of what all pages are made of besides the history: code, templates, and settings of the site."""
        shared = cast("dict[str, Any]", self.templates.globals)
        menu = [(page.name, page.title) for page in shared["menu"]]
        shown_everywhere = [shared["version"], shared["zone"], shared["site_title"], menu, self.sessions]
        digest = hashlib.sha256(json.dumps(shown_everywhere).encode())
        # All code of iowatch: a page may show what any of it computes.
        package = Path(settings.__file__).parents[1]
        loader = cast("FileSystemLoader", self.templates.loader)
        sources: list[Path] = []
        for folder in (package, *map(Path, loader.searchpath)):
            sources += [path for path in folder.rglob("*") if path.suffix in (".py", ".html")]
        for path in sorted(sources):
            digest.update(path.read_bytes())
        return digest.hexdigest()

    def write_page(self, name: str, template: str, **values: Any) -> None:
        """Render a template into the file `name` of the site."""
        self.writer.write(name, self.render(name, template, **values))

    def render(self, name: str, template: str, **values: Any) -> str:
        """Render a template for the file `name`; `root` is the relative path from it to the first page."""
        root = "../" * name.count("/")
        try:
            return self.templates.get_template(template).render(root=root, page=name, **values)
        except TemplateError as error:
            raise MachineError(f"dashboards/templates/{template}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class Page:
    """A page, or the pages of one kind.

    Attributes:
        name: file that the menu links to.
        title: title in the menu.
        menu: position in the menu from 1 on; None for pages that are linked from others.
        publish: function that writes the files of the page.
        below: file of the page that links to this one under its heading; None where no page does.
        line: what the page shows, for that link.
        has_content: whether the page has anything to show of this site; without it there is no page and no link.
    """

    name: str
    title: str
    menu: int | None
    publish: Callable[[SiteBuild], None]
    below: str | None = None
    line: str = ""
    has_content: Callable[[SiteBuild], bool] = lambda _site: True

    def __post_init__(self) -> None:
        """Raises ValueError where a plugin's page would damage the menu of all pages."""
        if not isinstance(self.menu, int | None):
            raise ValueError(f"page '{self.name}': menu is {self.menu!r}; expected a number from 1 on, or None")
        if self.menu and not self.name.endswith(".html"):
            raise ValueError(f"page '{self.name}': expected the name of its file, such as `stacks.html`")
