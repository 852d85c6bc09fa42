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

from iowatch.core import METRICS, IowatchError, MachineError, Metric, Scalar, headline_metrics, settings
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
    """Limits with which a series is compared: reference, published figure and peak."""
    parameters = row.case.parameters
    operation = str(parameters.get("operation", ""))
    peak = accepted = None
    if facts is not None and published.has_peak(row.metric):
        place = str(described_case(row).get("file_system") or "") or None
        peak = published.peak_mib_per_s(facts.file_systems, operation, place)
    if references is not None and references.entries:
        accepted = references.find(row.partition, row.stack, parameters, operation, row.metric)
    printed = None
    for one in published_measurements().get(row.system, ()) if row.metric == "bandwidth" else ():
        if one["statistic"] in ("max", "mean", "median") and _matches_case(parameters, one):
            printed = PublishedLimit(float(one["value"]), str(one["statistic"]), one["where"], one["title"])
            break
    return SeriesLimits(accepted, printed, peak)


def published_measurements() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Published bandwidths by system in long form, with `where` and `title` of their table.

    Maxima are first, because they are the headlines ([lawrence2017], section 6).
    """
    return _read_measurements(tuple(settings.roots()))


@cache
def _read_measurements(_roots: tuple[Path, ...]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for table in filter(published.has_long_form, published.load_all_tables()):
        where = {"where": f"{published.source_key(table.source)}/{table.name}", "title": table.sidecar.title}
        for one in published.table_measurements(table):
            found[str(one["system"])].append({**one, **where})
    order = {"max": 0, "mean": 1, "median": 2}
    return {name: sorted(rows, key=lambda r: order.get(str(r["statistic"]), 9)) for name, rows in found.items()}


def _matches_case(parameters: Mapping[str, Scalar], printed: Mapping[str, Any]) -> bool:
    """Whether a published figure is of the case: the number of writers and all parameters that both name are equal."""
    if printed["benchmark"] is None or parameters.get("ranks") != printed["writers"]:
        return False
    stated = published.case_parameters(printed)
    both = parameters.keys() & stated & {*published.MATCHED_PARAMETERS, "stripe_bytes"}
    agree = all(parameters[name] == stated[name] for name in both)
    return agree and printed.get("instances") in (None, 1, parameters.get("instances"))


_T = TypeVar("_T")
_SAME_DAY_S = 20 * 3600
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
        return [one for one in self.series if one.headline]

    @cached_property
    def newest_session(self) -> SessionRow | None:
        """The newest nightly session, the subject of the status page.

        Interleaved runs and profiles do not count, nor does a session of the same day with status `ok` that is a small
        one of another suite or has chosen stacks or cases only: it does not replace the results of the larger one.
        """
        found = [one for one in self.sessions if not one.is_interleaved and one.origin != "profile"]
        found = found or list(self.sessions)
        for one in found[1:]:
            if found[0].status != "ok" or one.started_at < found[0].started_at - _SAME_DAY_S:
                break
            is_smaller = one.suite != found[0].suite and one.runs > _SMALL_SESSION_RATIO * found[0].runs
            if is_smaller or (is_restricted(found[0]) and not is_restricted(one)):
                return one
        return found[0] if found else None


@dataclass(frozen=True)
class Catalogue:
    """All systems of the history."""

    machines: tuple[SystemEntry, ...]
    by_id: Mapping[int, SeriesEntry] = field(default_factory=dict)


def collect_catalogue(history: History, system: str | None = None) -> Catalogue:
    """Read the data of one system or of all."""
    rows: dict[str, list[SeriesRow]] = defaultdict(list)
    with history.reading() as connection:
        stamps = read.series_extents(connection, *read.results_of_system(system))
        uses = bulk.stack_uses(connection, system)
        sessions = bulk.sessions_by_system(connection, system)
        for row in read.series_of_extents(connection, stamps):
            if row.metric in METRICS:
                rows[row.system].append(row)
    detections = load_detections(history, list(stamps))
    machines = []
    for name in history.systems() if system is None else [system]:
        system_uses = [use for use in uses if use.system == name]
        machines.append(
            _collect_system(history, name, sessions.get(name, []), rows[name], stamps, detections, system_uses)
        )
    return Catalogue(tuple(machines), {s.row.id: s for machine in machines for s in machine.series})


def _collect_system(
    history: History,
    name: str,
    sessions: Sequence[SessionRow],
    rows: Sequence[SeriesRow],
    stamps: Mapping[int, SeriesExtent],
    detections: Mapping[int, Detection],
    uses: Sequence[StackUse],
) -> SystemEntry:
    faults: list[str] = []
    found = load_findings(history, name)
    facts = _read_or_fault(lambda: system.load_system(name) if name in system.system_names() else None, None, faults)
    references = _read_or_fault(lambda: bandwidth.load_references(name), None, faults)
    members: dict[int, list[Finding]] = defaultdict(list)
    for finding in found:
        for member in finding.members:
            members[member.series_id].append(finding)
    watched = {row.id for row in monitored_series(rows)}
    series = tuple(
        SeriesEntry(
            row=row,
            name=short,
            stamp=stamps[row.id],
            headline=row.id in watched,
            detection=detections.get(row.id),
            limits=find_limits(row, facts, references),
            findings=tuple(members.get(row.id, ())),
            stacks=tuple(u for u in uses if (u.partition, u.name) == (row.partition, row.stack)),
        )
        for row, short in zip(rows, _unique_series_names(rows), strict=True)
    )
    return SystemEntry(
        name=name,
        facts=facts,
        sessions=tuple(sessions),
        series=series,
        findings=tuple(found),
        events=_read_or_fault(lambda: events.load_events(name), (), faults),
        decisions=_read_or_fault(lambda: reviews.load_decisions(name), (), faults),
        references=references,
        stacks=tuple(uses),
        faults=tuple(dict.fromkeys(faults)),
    )


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
    several = [field for field in ("stack", "partition") if len({getattr(row, field) for row in rows}) > 1]
    names, headlines = [], headline_metrics()
    for row, name in zip(rows, case_names, strict=True):
        parts = [name] if row.metric in headlines else [name, METRICS[row.metric].label.lower()]
        names.append(" ".join([*parts, *(f"[{getattr(row, field)}]" for field in several)]))
    return names


@dataclass(frozen=True)
class SessionEntry:
    """A session with its runs, and what it lacks."""

    session: SessionRow
    runs: Sequence[RunRow]
    coverage: SessionCoverage

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
    found = set()
    for session in machine.sessions:
        end = session.ended_at if session.ended_at is not None else session.started_at + 86400
        ends = (moment for f in machine.findings for moment in (f.last_before, f.first_after))
        if any(session.started_at <= moment <= max(end, session.started_at) for moment in ends):
            found.add(session.id)
    return found


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

    None if no session is expected: a retired system, or only imports and demonstrations.
    """
    own_sessions = [session for session in machine.sessions if session.origin == "run"]
    if not own_sessions or (machine.facts is not None and machine.facts.retired):
        return None
    last_activity = own_sessions[0].started_at if own_sessions[0].ended_at is None else own_sessions[0].ended_at
    return last_activity + max(_MIN_OVERDUE_S, round(_SLACK * usual_interval_s(own_sessions)))


def is_overdue(machine: SystemEntry, now: int) -> bool:
    """Whether a further session should have started by `now` (epoch s)."""
    moment = overdue_after_s(machine)
    return moment is not None and moment < now


def is_session_running(machine: SystemEntry, now: int) -> bool:
    """Whether the newest session is still running: missing results may still arrive."""
    return (
        machine.newest_session is not None
        and machine.newest_session.status == "running"
        and not is_overdue(machine, now)
    )


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
    _kept: dict[tuple[str, str], Any] = field(default_factory=dict)

    def compute_once(self, what: str, machine: SystemEntry, compute: Callable[[], _T]) -> _T:
        """Value of a computation about a system that several pages show; the first caller's is kept."""
        if (what, machine.name) not in self._kept:
            self._kept[what, machine.name] = compute()
        return cast("_T", self._kept[what, machine.name])

    @cached_property
    def fingerprint(self) -> str:
        """Digest of what all pages are made of besides the history: code, templates, and settings of the site."""
        known = cast("dict[str, Any]", self.templates.globals)
        menu = [(page.name, page.title) for page in known["menu"]]
        shown = [known["version"], known["zone"], known["site_title"], menu, self.sessions]
        digest = hashlib.sha256(json.dumps(shown).encode())
        loader = cast("FileSystemLoader", self.templates.loader)
        folders = [Path(settings.__file__).parents[1], *map(Path, loader.searchpath)]
        for path in sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".html")):
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
    """

    name: str
    title: str
    menu: int | None
    publish: Callable[[SiteBuild], None]
    below: str | None = None
    line: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError where a plugin's page would damage the menu of all pages."""
        if not isinstance(self.menu, int | None):
            raise ValueError(f"page '{self.name}': menu is {self.menu!r}; expected a number from 1 on, or None")
        if self.menu and not self.name.endswith(".html"):
            raise ValueError(f"page '{self.name}': expected the name of its file, such as `stacks.html`")
