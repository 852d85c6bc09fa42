"""Status page (newest session and open findings of each system), and findings for programs (Atom, JSON)."""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from iowatch.core import format_time, parse_time
from iowatch.findings import SESSION_REPORT, Finding, format_extent, history_extent, remaining_changes
from iowatch.output.dashboard import data, levels
from iowatch.output.dashboard.pages import finding
from iowatch.site import system_zone

# To keep the page small: a picture of the largest finding of some systems, else one line per finding.
_MAX_PICTURES = 3
_MAX_FINDINGS = 12


def publish_status_page(site: data.SiteBuild) -> None:
    """Write `index.html`."""
    machines = sorted(site.catalogue.machines, key=lambda machine: _urgency_key(machine, site.now))
    largest = [(m, f) for m in machines if (f := _largest_finding(m)) is not None][:_MAX_PICTURES]
    figures = {}
    for machine, one in largest:
        samples = finding.samples_around_change(site.history, one, machine)
        figures[one.id] = finding.finding_figure(one, machine, samples, site.zone)
    sections = [_system_section(site, machine, figures) for machine in machines]
    found = [f for machine in machines for f in machine.findings]
    states = [f.state for f in found]
    coverages = [(one["coverage"], one["running"]) for one in sections]
    site.write_page(
        "index.html",
        "status.html",
        systems=sections,
        newest=max((m.night.started_at for m in machines if m.night), default=None),
        open=states.count("open"),
        suspected=states.count("suspected"),
        alarms=sum(f.needs_action and f.state == "suspected" for f in found),
        incomplete=sum(coverage is not None and not coverage.complete and not on for coverage, on in coverages),
        running=sum(on for _, on in coverages),
        dismissed=sum(len(one["dismissed"]) for one in sections),
        overdue=sum(one["overdue"] for one in sections),
    )


PAGE = data.Page("index.html", "Status", 1, publish_status_page)


def _open_findings(machine: data.SystemEntry) -> list[Finding]:
    return sorted(
        (f for f in machine.findings if f.state in levels.UNDECIDED_STATES),
        key=lambda f: (levels.UNDECIDED_STATES.index(f.state), -f.first_after),
    )


def _largest_finding(machine: data.SystemEntry) -> Finding | None:
    """The finding that needs action with the largest product of number of series and |ln(size)|."""
    found = [f for f in machine.findings if f.needs_action]
    return max(found, key=lambda f: len(f.members) * abs(math.log(f.size)), default=None)


def _urgency_key(machine: data.SystemEntry, now: int) -> tuple[int, str]:
    """Sort key: systems with problems first."""
    states = {f.state for f in machine.findings}
    is_alarm = any(f.needs_action for f in machine.findings)
    newest = machine.night
    incomplete = newest is not None and (newest.status != "ok" or bool(newest.attributes.get("problems")))
    is_pending = data.is_overdue(machine, now) or incomplete
    priorities = (is_alarm or bool(machine.faults), is_pending, "suspected" in states)
    return next((rank for rank, applies in enumerate(priorities) if applies), len(priorities)), machine.name


def _system_section(site: data.SiteBuild, machine: data.SystemEntry, figures: Mapping[str, Any]) -> dict[str, Any]:
    newest, found = machine.night, _open_findings(machine)
    coverage = None
    if newest is not None:
        runs, received = site.history.runs(newest.uuid), set(site.history.received(newest.uuid))
        coverage = data.session_coverage(site.history, newest, runs, received)
    running = data.is_session_running(machine, site.now)
    # A running session may still deliver missing results.
    absent = "Not received yet" if running else "Absent"
    kinds = (("Failed", coverage.failed), (absent, coverage.absent)) if coverage else ()
    problems: dict[str, dict[tuple[str, str], list[str]]] = {}
    for title, found_problems in kinds:
        for one in found_problems:
            # Runs by stack and reason, in order of the first run.
            problems.setdefault(title, {}).setdefault((one.stack, one.reason), []).append(one.run)
    extent = history_extent(site.history, [machine.name])
    # Not for imports, because all their findings would be new.
    since = newest.started_at if newest is not None and newest.origin != "import" else math.inf
    return {
        "machine": machine,
        "coverage": coverage,
        "extent": format_extent(extent),
        "is_assessed": extent.is_assessed,
        "report": newest.attributes.get(SESSION_REPORT) if newest else None,
        "dismissed": remaining_changes(machine.findings),
        "problems": problems,
        "running": running,
        "due": data.overdue_after_s(machine),
        "overdue": data.is_overdue(machine, site.now),
        "session_page": data.session_page_path(newest) if newest else None,
        "findings": [(f, finding.finding_page_path(f)) for f in found[:_MAX_FINDINGS]],
        "more": max(0, len(found) - _MAX_FINDINGS),
        "closed": sum(f.state not in levels.UNDECIDED_STATES for f in machine.findings),
        "figures": figures,
        "others": {f.id: finding.other_recorded_events(f, machine) for f in found if f.id in figures},
        "new": {f.id for f in machine.findings if f.first_seen_at >= since},
        "trends": len(levels.system_trends(machine)),
        "suspected": levels.find_suspected_series(machine),
        "label": next((f.label for f in machine.findings if f.label), None),
    }


_MAX_FEED_ENTRIES = 100
_NAMES = uuid.uuid5(uuid.NAMESPACE_URL, "https://github.com/iowatch/finding")


def publish_feed(site: data.SiteBuild) -> None:
    """Write `feed.xml` and `findings.json`."""
    found = sorted((f for m in site.catalogue.machines for f in m.findings), key=lambda f: (-f.first_after, f.id))
    documents = [{**f.to_json(), "page": finding.finding_page_path(f)} for f in found]
    for document in documents:
        # Without fields that change with every session, because readers of the file look for new findings.
        for name in ("updated_at", "updates", "pending"):
            document.pop(name, None)
    site.writer.write("findings.json", json.dumps({"format": 1, "findings": documents}, indent=1))
    listed = found[:_MAX_FEED_ENTRIES]
    entries = [(f, uuid.uuid5(_NAMES, f.id).urn, _last_update(f), finding.finding_page_path(f)) for f in listed]
    newest = max(map(_last_update, listed), default=format_time(datetime.fromtimestamp(0, UTC)))
    feed = site.render("feed.xml", "feed.xml", entries=entries, updated=newest, id=uuid.uuid5(_NAMES, "feed").urn)
    # XML 1.0 does not permit control characters, not even escaped.
    site.writer.write("feed.xml", re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", feed))


FEED = data.Page("feed.xml", "Atom feed", None, publish_feed)


def _last_update(one: Finding) -> str:
    """Time of the last change of a finding: first detected, no longer detected, or decided."""
    seen = datetime.fromtimestamp(max(one.first_seen_at, one.missed_since or 0), UTC)
    decided = parse_time(one.review.date, system_zone(one.system)) if one.review else seen
    return format_time(max(seen, decided))
