"""A page a finding: what changed, what the changed series have in common, what it rests on, decisions."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from iowatch import artefacts
from iowatch.dashboard import story
from iowatch.dashboard.catalogue import Machine
from iowatch.dashboard.context import Site
from iowatch.dashboard.levels import trends
from iowatch.dashboard.nights import page_of
from iowatch.dashboard.traces import Traced, before_after
from iowatch.explain import Rule
from iowatch.findings import Finding
from iowatch.findings import text as finding_text
from iowatch.store import SessionRow

_MOST_RUNS = 12


def publish(site: Site) -> None:
    """Write `findings.html` and `finding/<id>.html` for each finding, settled ones too."""
    for machine in site.catalogue.machines:
        for finding in machine.findings:
            decisions = [d.model_dump(mode="json") for d in machine.decisions if d.finding == finding.id]
            sessions = [s.uuid for s in _sessions(finding, machine)]
            basis = [story.basis_of(finding, machine), decisions, sessions]
            site.page(story.page_of(finding), "finding.html", basis, partial(_values, site, machine, finding))
    every = [finding for machine in site.catalogue.machines for finding in machine.findings]
    every.sort(key=lambda finding: -finding.first_after)
    lines = [(f.id, f.state, f.line, f.resolution) for f in every]
    rows = [{"finding": f, "page": story.page_of(f)} for f in every]
    slow = [trend for machine in site.catalogue.machines for trend in trends(machine)]
    slow.sort(key=lambda trend: -abs(math.log(trend.gain)))
    basis = [lines, [(t.system, t.series.name, t.first, t.gain) for t in slow]]
    site.page("findings.html", "findings.html", basis, lambda: {"rows": rows, "trends": slow})


def _sessions(finding: Finding, machine: Machine) -> list[SessionRow]:
    """The sessions on both sides of the change."""
    ends = (finding.last_before, finding.first_after)
    found = [next((s for s in machine.sessions if s.started_at <= moment), None) for moment in ends]
    return [session for session in found if session is not None]


def _values(site: Site, machine: Machine, finding: Finding) -> dict[str, Any]:
    samples = story.around(site.history, finding, machine)
    strongest = sorted(finding.members, key=lambda m: -max(m.gain, 1 / m.gain))[:_MOST_RUNS]
    after = [site.history.run(m.run_after) for m in strongest if m.run_after is not None]
    return {
        "machine": machine,
        "finding": finding,
        "as_well": [line for rule in _rules(finding) for line in finding_text.as_well(rule)],
        "decisions": [d for d in machine.decisions if d.finding == finding.id],
        "fan": story.fan(finding, machine, samples, site.zone),
        "others": story.other_events(finding, machine),
        "multiples": list(story.multiples(finding, machine, samples, site.zone)),
        "unchanged": finding.compared[len(finding.members) :],
        "darshan": _traces(site, finding, strongest),
        "repeat": story.repeat(finding, machine, after),
        "ticket": "\n".join(finding_text.page(finding)),
        "runs": _run_links(site, machine, finding),
        "sessions": [(s, page_of(s)) for s in _sessions(finding, machine)],
    }


def _rules(finding: Finding) -> list[Rule]:
    told = finding.explanation
    return [rule for rule in (told.rule, told.second) if rule is not None]


def _run_links(site: Site, machine: Machine, finding: Finding) -> dict[int, str]:
    """Path of each evidence run in its session's page."""
    pages = {s.uuid: page_of(s) for s in machine.sessions}
    wanted = {n for m in finding.members[:200] for n in (m.run_before, m.run_after) if n is not None}
    sessions = site.history.session_of_runs(sorted(wanted))
    return {run: f"{pages[session]}#run-{run}" for run, session in sessions.items() if session in pages}


def _traces(site: Site, finding: Finding, strongest: list[Any]) -> dict[str, Any] | None:
    """Darshan's side of the strongest member that was traced on both sides, or None."""
    for member in strongest:
        if member.run_before is None or member.run_after is None:
            continue
        before, after = _traced(site, member.run_before), _traced(site, member.run_after)
        if before is not None and after is not None:
            found = before_after(site, before, after)
            if found is not None:
                return {**found, "member": member}
    return None


def _traced(site: Site, run: int) -> Traced | None:
    for kept in site.history.artefacts(run):
        if kept.kind == "darshan" and artefacts.path_of(kept.sha256).is_file():
            return site.history.run(run), artefacts.path_of(kept.sha256)
    return None
