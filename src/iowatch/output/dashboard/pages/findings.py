"""List of all findings with filters, calendar of findings and events, drifts."""

from __future__ import annotations

import math
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
        return "\n".join(dict.fromkeys("loss" if one.size < 1 else "improvement" for one in self.finding.groups))

    @property
    def benchmarks(self) -> str:
        """Benchmarks of its series, one per line."""
        return "\n".join(sorted({str(one.parameters.get("benchmark", "")) for one in self.finding.members} - {""}))


def publish_findings_list(site: data.SiteBuild) -> None:
    """Write `findings.html`."""
    machines = site.catalogue.machines
    rows = [_make_row(machine, finding) for machine in machines for finding in machine.findings]
    rows.sort(key=_urgency_key)
    trends = [trend for machine in machines for trend in levels.system_trends(machine)]
    trends.sort(key=lambda trend: -abs(math.log(trend.gain)))
    states = {row.finding.state for row in rows}
    choices: dict[str, list[str]] = {
        "system": sorted({row.finding.system for row in rows}),
        "direction": ["loss", "improvement"],
        "state": [state for state in _STATES if state in states],
        "owner": sorted({row.finding.owner or "nobody" for row in rows}),
        "benchmark": sorted({name for row in rows for name in row.benchmarks.split("\n")} - {""}),
    }
    shown = {name: values[:_MAX_CHOICES] for name, values in choices.items() if len(values) > 1}
    calendar = year_calendar.calendar_years(machines, site.zone)
    site.write_page("findings.html", "findings.html", rows=rows, trends=trends, choices=shown, calendar=calendar)


PAGE = data.Page("findings.html", "Findings", 2, publish_findings_list)


def _urgency_key(row: ListedFinding) -> tuple[bool, float, int]:
    """Sort key: undecided findings first, the largest loss first; then the others, the newest change first."""
    return row.days is None, 0.0 if row.days is None else row.gain, -row.finding.first_after


def _make_row(machine: data.SystemEntry, finding: Finding) -> ListedFinding:
    waits = finding.state in levels.UNDECIDED_STATES
    return ListedFinding(finding, cards.waiting_days(machine, finding) if waits else None)
