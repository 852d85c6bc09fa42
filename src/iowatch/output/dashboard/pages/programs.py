"""Files for programs: what the pages show, as JSON beside them, and the findings as a feed.

A document has the name of its page with the suffix `.json`, and its values are those of the functions that the pages
use. `schema.json` (JSON Schema) is generated from the classes of this file.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import TypeAdapter

from iowatch.core import BetterDirection, Scalar, format_time, parse_time
from iowatch.findings import Finding
from iowatch.output.dashboard import data, levels
from iowatch.output.dashboard.pages import coverage, overview
from iowatch.output.dashboard.pages.finding import finding_page_path
from iowatch.output.finding_document import printed_finding
from iowatch.site import system_zone
from iowatch.store import SessionRow

_MAX_FEED_ENTRIES = 100
# Fields of a finding that change with every session; readers of the file look for new findings.
_VOLATILE = ("updated_at", "updates", "pending")
_NAMES = uuid.uuid5(uuid.NAMESPACE_URL, "https://github.com/iowatch/finding")


@dataclass(frozen=True)
class SessionAnswer:
    """A session; times are ISO 8601 in UTC, `page` is relative to the first page of the site."""

    session: str
    suite: str
    status: str
    started: str
    ended: str | None
    runs: int
    failed_runs: int
    expected_results: int
    received_results: int
    page: str


@dataclass(frozen=True)
class SystemAnswer:
    """A system.

    Attributes:
        newest_session: the session that the status page shows; null without one.
        due: time from which the next session is overdue; null if none is expected.
        series: number of monitored series by their outcome in the newest session.
        findings: number of findings by state.
        undecided: ids of open, suspected and acknowledged findings, the largest loss first.
        series_file, sessions_file: documents with the series and the newest sessions of the system.
    """

    system: str
    retired: bool
    newest_session: SessionAnswer | None
    overdue: bool
    due: str | None
    series: Mapping[str, int]
    findings: Mapping[str, int]
    undecided: Sequence[str]
    series_file: str
    sessions_file: str


@dataclass(frozen=True)
class SeriesAnswer:
    """A monitored series; values are in `unit`.

    Attributes:
        newest, newest_time: headline of the newest observation and its time.
        outcome: position of the newest observation in the normal band, or why it has none.
        level, level_source: accepted level, with which the newest observation is compared, and where it is from.
        gain: newest relative to the level as performance: above 1 is better, also for times.
        normal_band: lower and upper edge around the level; null without a noise estimate.
        reference: lower bound, value and upper bound of the accepted bandwidth; an absent bound is null.
        published: published figure of the same case.
        peak: theoretical peak of the file system.
        findings: ids of the findings of which it is a member, the newest first.
    """

    series: int
    name: str
    benchmark: str
    case: Mapping[str, Scalar]
    partition: str
    stack: str
    metric: str
    unit: str
    better: BetterDirection
    newest: float
    newest_time: str
    outcome: str
    level: float | None
    level_source: str | None
    gain: float | None
    normal_band: tuple[float, float] | None
    reference: tuple[float | None, float, float | None] | None
    published: float | None
    peak: float | None
    findings: Sequence[str]
    page: str


@dataclass(frozen=True, kw_only=True)
class _AnswerDocument:
    """Attributes: format: raised when a field is removed or gets another meaning, not for new fields."""

    format: Literal[1] = 1


@dataclass(frozen=True, kw_only=True)
class SystemsDocument(_AnswerDocument):
    """`systems.json`: all systems, and when the site was built."""

    built: str
    systems: Sequence[SystemAnswer]


@dataclass(frozen=True, kw_only=True)
class SessionsDocument(_AnswerDocument):
    """`coverage/<system>.json`: the newest sessions of a system, newest first."""

    system: str
    sessions: Sequence[SessionAnswer]


@dataclass(frozen=True, kw_only=True)
class SeriesDocument(_AnswerDocument):
    """`overview/<system>.json`: the monitored series of a system, those furthest below their level first."""

    system: str
    series: Sequence[SeriesAnswer]


@dataclass(frozen=True, kw_only=True)
class FindingsDocument(_AnswerDocument):
    """`findings.json`: all findings as `iowatch findings show --json` prints them, with their pages, newest first."""

    findings: Sequence[Mapping[str, Any]]


DOCUMENTS = (SystemsDocument, SessionsDocument, SeriesDocument, FindingsDocument)


def document_schema() -> dict[str, Any]:
    """JSON Schema of all documents: each one matches one definition of `anyOf`."""
    schema = TypeAdapter(SystemsDocument | SessionsDocument | SeriesDocument | FindingsDocument).json_schema()
    # The class has the findings as mappings, because `publish_findings` adds and removes fields: so does their schema.
    finding_schema = TypeAdapter(Finding).json_schema()
    definitions = finding_schema.pop("$defs")
    properties = finding_schema["properties"]
    for name in _VOLATILE:
        properties.pop(name, None)
    finding_schema["required"] = [name for name in finding_schema["required"] if name in properties]
    properties["page"] = {"type": "string"}
    finding_schema["required"].append("page")
    schema["$defs"].update(definitions)
    schema["$defs"]["Finding"] = finding_schema
    schema["$defs"]["FindingsDocument"]["properties"]["findings"]["items"] = {"$ref": "#/$defs/Finding"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def publish_systems(site: data.SiteBuild) -> None:
    """Write `systems.json`, `overview/<system>.json`, `coverage/<system>.json` and `schema.json`."""
    systems: list[SystemAnswer] = []
    for machine in site.catalogue.machines:
        rows = overview.series_rows(site, machine)
        counts = coverage.count_coverage(site, machine)
        sessions = [_session_answer(session, counts) for session in reversed(counts.sessions)]
        systems.append(_system_answer(site, machine, sessions, rows))
        series = [_series_answer(row) for row in rows]
        _write(site, _series_file(machine), SeriesDocument(system=machine.name, series=series))
        _write(site, _sessions_file(machine), SessionsDocument(system=machine.name, sessions=sessions))
    _write(site, "systems.json", SystemsDocument(built=_iso_time(site.now), systems=systems))
    site.writer.write("schema.json", json.dumps(document_schema(), indent=1))


SYSTEMS = data.Page("systems.json", "Systems", None, publish_systems)


def _series_file(machine: data.SystemEntry) -> str:
    return f"{overview.overview_page_path(machine).removesuffix('.html')}.json"


def _sessions_file(machine: data.SystemEntry) -> str:
    return f"{coverage.coverage_page_path(machine).removesuffix('.html')}.json"


def _write(site: data.SiteBuild, name: str, document: _AnswerDocument) -> None:
    schema = "../" * name.count("/") + "schema.json"
    content = {"$schema": schema, **asdict(document)}
    site.writer.write(name, json.dumps(content, indent=1, allow_nan=False))


def _iso_time(seconds: float) -> str:
    """A time (epoch s) as ISO 8601 in UTC."""
    return format_time(datetime.fromtimestamp(seconds, UTC))


def _system_answer(
    site: data.SiteBuild,
    machine: data.SystemEntry,
    sessions: Sequence[SessionAnswer],
    rows: Sequence[overview.SeriesTableRow],
) -> SystemAnswer:
    newest = machine.newest_session
    newest_answer = None
    for session in sessions:
        if newest is not None and session.session == newest.uuid:
            newest_answer = session
    due = data.overdue_after_s(machine)
    outcomes = Counter(row.outcome for row in rows)
    undecided = [finding for finding in machine.findings if finding.state in levels.UNDECIDED_STATES]
    undecided.sort(key=lambda finding: -finding.lost_performance)
    return SystemAnswer(
        system=machine.name,
        retired=machine.facts is not None and bool(machine.facts.retired),
        newest_session=newest_answer,
        overdue=data.is_overdue(machine, site.now),
        due=None if due is None else _iso_time(due),
        series={outcome: outcomes[outcome] for outcome in overview.SERIES_OUTCOMES},
        findings=dict(Counter(finding.state for finding in machine.findings)),
        undecided=[finding.id for finding in undecided],
        series_file=_series_file(machine),
        sessions_file=_sessions_file(machine),
    )


def _session_answer(session: SessionRow, counts: coverage.CoverageCounts) -> SessionAnswer:
    total = counts.totals.get(session.id, coverage.ResultCounts())
    return SessionAnswer(
        session=session.uuid,
        suite=session.suite,
        status=session.status,
        started=_iso_time(session.started_at),
        ended=None if session.ended_at is None else _iso_time(session.ended_at),
        runs=session.runs,
        failed_runs=counts.failed.get(session.id, 0),
        expected_results=total.expected,
        received_results=total.received,
        page=data.session_page_path(session),
    )


def _series_answer(row: overview.SeriesTableRow) -> SeriesAnswer:
    series = row.series
    level = row.accepted
    reference = series.limits.reference
    published = series.limits.published
    return SeriesAnswer(
        series=series.row.id,
        name=series.name,
        benchmark=series.row.case.benchmark,
        case=series.row.case.parameters,
        partition=series.row.partition,
        stack=series.row.stack,
        metric=series.row.metric,
        unit=series.metric.unit,
        better=series.metric.direction,
        newest=row.newest,
        newest_time=_iso_time(row.time),
        outcome=row.outcome,
        level=level.value if level else None,
        level_source=level.source if level else None,
        gain=row.gain,
        normal_band=levels.normal_limits(series, level.value) if level else None,
        reference=(reference.lower, reference.value, reference.upper) if reference else None,
        published=published.value if published else None,
        peak=series.limits.peak,
        findings=[finding.id for finding in series.findings],
        page=series.page,
    )


def publish_findings(site: data.SiteBuild) -> None:
    """Write `feed.xml` and `findings.json`."""
    findings: list[Finding] = []
    for machine in site.catalogue.machines:
        findings += machine.findings
    findings.sort(key=lambda finding: (-finding.first_after, finding.id))
    documents: list[dict[str, Any]] = []
    for finding in findings:
        document = {**printed_finding(finding), "page": finding_page_path(finding)}
        for name in _VOLATILE:
            document.pop(name, None)
        documents.append(document)
    _write(site, "findings.json", FindingsDocument(findings=documents))
    site.writer.write("feed.xml", _render_feed(site, findings[:_MAX_FEED_ENTRIES]))


FEED = data.Page("feed.xml", "Atom feed", None, publish_findings)


@dataclass(frozen=True)
class _FeedEntry:
    """An entry of the feed; `urn` is the same in each build, and `updated` is ISO 8601 in UTC."""

    finding: Finding
    urn: str
    updated: str
    page: str


# What XML 1.0 does not permit, not even escaped: control characters.
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _render_feed(site: data.SiteBuild, findings: Sequence[Finding]) -> str:
    """The Atom feed of some findings."""
    entries: list[_FeedEntry] = []
    for finding in findings:
        urn = uuid.uuid5(_NAMES, finding.id).urn
        entries.append(_FeedEntry(finding, urn, _last_update(finding), finding_page_path(finding)))
    # An empty feed needs a time that is the same in each build, too.
    updated = max((entry.updated for entry in entries), default=_iso_time(0))
    feed_urn = uuid.uuid5(_NAMES, "feed").urn
    return _NOT_IN_XML.sub("", site.render("feed.xml", "feed.xml", entries=entries, updated=updated, id=feed_urn))


def _last_update(finding: Finding) -> str:
    """Time of the last change of a finding: first detected, no longer detected, or decided."""
    seen = datetime.fromtimestamp(max(finding.first_seen_at, finding.missed_since or 0), UTC)
    if finding.review is None:
        return format_time(seen)
    decided = parse_time(finding.review.date, system_zone(finding.system))
    return format_time(max(seen, decided))
