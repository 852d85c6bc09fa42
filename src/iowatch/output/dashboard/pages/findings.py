"""List of all findings with filters, calendar of findings and events, drifts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from iowatch.findings import Finding
from iowatch.output.dashboard import cards, data, levels, year_calendar
from iowatch.output.dashboard.pages.finding import finding_page_path
from iowatch.output.text.explanations import name_group

# Most urgent first.
_STATES = ("open", "suspected", "acknowledged", "accepted", "dismissed", "resolved")
_MAX_CHOICES = 60


@dataclass(frozen=True)
class ListedFinding:
    """A finding in the list; `days` since its first report, None if it needs no decision."""

    finding: Finding
    days: int | None

    @property
    def page(self) -> str:
        """Path of its page."""
        return finding_page_path(self.finding)

    @property
    def name(self) -> str:
        """What its main group shares, or the number of its series."""
        group = self.finding.groups[0]
        return name_group(group) or f"{group.explanation.changed} series"

    @property
    def gain(self) -> float:
        """Gain of the group with the larger loss."""
        return self.finding.groups[0].size

    @property
    def direction(self) -> str:
        """`loss`, `improvement`, or both on separate lines, as the filter reads them."""
        directions = ["loss" if group.size < 1 else "improvement" for group in self.finding.groups]
        return "\n".join(dict.fromkeys(directions))

    @property
    def benchmarks(self) -> str:
        """Benchmarks of its series, one per line."""
        names = {str(member.parameters.get("benchmark", "")) for member in self.finding.members}
        return "\n".join(sorted(names - {""}))


def publish_findings_list(site: data.SiteBuild) -> None:
    """Write `findings.html`."""
    machines = site.catalogue.machines
    rows: list[ListedFinding] = []
    drifts: list[levels.TrendRow] = []
    for machine in machines:
        rows += [_make_row(machine, finding) for finding in machine.findings]
        drifts += levels.system_trends(machine)
    rows.sort(key=_urgency_key)
    drifts.sort(key=lambda drift: -abs(math.log(drift.gain)))
    choices = _filter_choices(rows)
    calendar = year_calendar.calendar_years(machines, site.zone)
    site.write_page("findings.html", "findings.html", rows=rows, trends=drifts, choices=choices, calendar=calendar)


def _filter_choices(rows: Sequence[ListedFinding]) -> dict[str, list[str]]:
    """Values of each filter of the list, without filters that have one value only."""
    states = {row.finding.state for row in rows}
    benchmarks: set[str] = set()
    for row in rows:
        benchmarks.update(row.benchmarks.split("\n"))
    choices: dict[str, list[str]] = {
        "system": sorted({row.finding.system for row in rows}),
        "direction": ["loss", "improvement"],
        "state": [state for state in _STATES if state in states],
        "owner": sorted({row.finding.owner or "nobody" for row in rows}),
        "benchmark": sorted(benchmarks - {""}),
    }
    return {name: values[:_MAX_CHOICES] for name, values in choices.items() if len(values) > 1}


PAGE = data.Page("findings.html", "Findings", 2, publish_findings_list)


def _urgency_key(row: ListedFinding) -> tuple[bool, float, int]:
    """Sort key: undecided findings first, the largest loss first; then the others, the newest change first."""
    if row.days is None:
        return True, 0.0, -row.finding.first_after
    return False, row.gain, -row.finding.first_after


def _make_row(machine: data.SystemEntry, finding: Finding) -> ListedFinding:
    days = None
    if finding.state in levels.UNDECIDED_STATES:
        days = cards.waiting_days(machine, finding)
    return ListedFinding(finding, days)
