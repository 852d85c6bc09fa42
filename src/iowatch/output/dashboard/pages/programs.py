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
from iowatch.output.dashboard.pages import coverage, finding, overview
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
    finding = TypeAdapter(Finding).json_schema()
    own = {name: part for name, part in finding["properties"].items() if name not in _VOLATILE}
    finding |= {
        "properties": {**own, "page": {"type": "string"}},
        "required": [*(name for name in finding["required"] if name in own), "page"],
    }
    schema["$defs"] |= {**finding.pop("$defs"), "Finding": finding}
    schema["$defs"]["FindingsDocument"]["properties"]["findings"]["items"] = {"$ref": "#/$defs/Finding"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def publish_systems(site: data.SiteBuild) -> None:
    """Write `systems.json`, `overview/<system>.json`, `coverage/<system>.json` and `schema.json`."""
    systems = []
    for machine in site.catalogue.machines:
        counts, rows = coverage.count_coverage(site, machine), overview.series_rows(site, machine)
        sessions = [_session_answer(row, counts) for row in reversed(counts.sessions)]
        systems.append(_system_answer(site, machine, sessions, rows))
        _write(site, _series_file(machine), SeriesDocument(system=machine.name, series=[*map(_series_answer, rows)]))
        _write(site, _sessions_file(machine), SessionsDocument(system=machine.name, sessions=sessions))
    _write(site, "systems.json", SystemsDocument(built=_time(site.now), systems=systems))
    site.writer.write("schema.json", json.dumps(document_schema(), indent=1))


SYSTEMS = data.Page("systems.json", "Systems", None, publish_systems)


def _series_file(machine: data.SystemEntry) -> str:
    return f"{overview.overview_page_path(machine).removesuffix('.html')}.json"


def _sessions_file(machine: data.SystemEntry) -> str:
    return f"{coverage.coverage_page_path(machine).removesuffix('.html')}.json"


def _write(site: data.SiteBuild, name: str, document: _AnswerDocument) -> None:
    content = {"$schema": "../" * name.count("/") + "schema.json", **asdict(document)}
    site.writer.write(name, json.dumps(content, indent=1, allow_nan=False))


def _time(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))


def _system_answer(
    site: data.SiteBuild,
    machine: data.SystemEntry,
    sessions: Sequence[SessionAnswer],
    rows: Sequence[overview.SeriesTableRow],
) -> SystemAnswer:
    newest, due = machine.newest_session, data.overdue_after_s(machine)
    undecided = [one for one in machine.findings if one.state in levels.UNDECIDED_STATES]
    return SystemAnswer(
        system=machine.name,
        retired=machine.facts is not None and bool(machine.facts.retired),
        newest_session=next((one for one in sessions if newest and one.session == newest.uuid), None),
        overdue=data.is_overdue(machine, site.now),
        due=None if due is None else _time(due),
        series={name: sum(row.outcome == name for row in rows) for name in overview.SERIES_OUTCOMES},
        findings=dict(Counter(one.state for one in machine.findings)),
        undecided=[one.id for one in sorted(undecided, key=lambda one: -one.lost_performance)],
        series_file=_series_file(machine),
        sessions_file=_sessions_file(machine),
    )


def _session_answer(row: SessionRow, counts: coverage.CoverageCounts) -> SessionAnswer:
    expected, received = counts.totals.get(row.id, (0, 0))
    return SessionAnswer(
        session=row.uuid,
        suite=row.suite,
        status=row.status,
        started=_time(row.started_at),
        ended=None if row.ended_at is None else _time(row.ended_at),
        runs=row.runs,
        failed_runs=counts.failed.get(row.id, 0),
        expected_results=expected,
        received_results=received,
        page=data.session_page_path(row),
    )


def _series_answer(row: overview.SeriesTableRow) -> SeriesAnswer:
    series, limits, level = row.series, row.series.limits, row.accepted
    reference = limits.reference
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
        newest_time=_time(row.time),
        outcome=row.outcome,
        level=level.value if level else None,
        level_source=level.source if level else None,
        gain=row.gain,
        normal_band=levels.normal_limits(series, level.value) if level else None,
        reference=(reference.lower, reference.value, reference.upper) if reference else None,
        published=limits.published.value if limits.published else None,
        peak=limits.peak,
        findings=[one.id for one in series.findings],
        page=series.page,
    )


def publish_findings(site: data.SiteBuild) -> None:
    """Write `feed.xml` and `findings.json`."""
    found = sorted((f for m in site.catalogue.machines for f in m.findings), key=lambda f: (-f.first_after, f.id))
    documents = [{**printed_finding(f), "page": finding.finding_page_path(f)} for f in found]
    for document in documents:
        for name in _VOLATILE:
            document.pop(name, None)
    _write(site, "findings.json", FindingsDocument(findings=documents))
    listed = found[:_MAX_FEED_ENTRIES]
    entries = [(f, uuid.uuid5(_NAMES, f.id).urn, _last_update(f), finding.finding_page_path(f)) for f in listed]
    newest = max(map(_last_update, listed), default=format_time(datetime.fromtimestamp(0, UTC)))
    feed = site.render("feed.xml", "feed.xml", entries=entries, updated=newest, id=uuid.uuid5(_NAMES, "feed").urn)
    # XML 1.0 does not permit control characters, not even escaped.
    site.writer.write("feed.xml", re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", feed))


FEED = data.Page("feed.xml", "Atom feed", None, publish_findings)


def _last_update(one: Finding) -> str:
    """Time of the last change of a finding: first detected, no longer detected, or decided."""
    seen = datetime.fromtimestamp(max(one.first_seen_at, one.missed_since or 0), UTC)
    decided = parse_time(one.review.date, system_zone(one.system)) if one.review else seen
    return format_time(max(seen, decided))
