"""The service report of a quarter, on one page per system: text, Markdown, HTML to print, JSON."""

from __future__ import annotations

from datetime import date
from statistics import median
from typing import Any

from iowatch.core import format_count, format_number
from iowatch.output.sheet import Sheet, SheetSection, SheetTable
from iowatch.output.text.decisions import describe_decision, format_resolution
from iowatch.output.text.findings import finding_headline
from iowatch.reference import Event
from iowatch.session.service_report import Availability, FindingInPeriod, Period, ServiceReport, quarter_of

# So that the sheet stays on one page.
_WORST, _MAX_DONE = 3, 12
_NOT_KNOWN = "–"


def format_period(period: Period) -> str:
    """`2026-Q3`, or `2026-07-01 to 2026-08-15`."""
    if quarter_of(period.first) == period:
        return f"{period.first.year}-Q{(period.first.month + 2) // 3}"
    return f"{period.first} to {period.last}"


def service_sheet(report: ServiceReport, before: ServiceReport | None) -> Sheet:
    """The report of a period.

    Args:
        before: of the period before it, to compare with; None if the system has none.
    """
    worst = [_format_worst(part) for part in report.findings if part.lost_hours > 0]
    parts: list[SheetSection | SheetTable] = [
        _figures(report, before),
        SheetSection("Losses that cost most", worst[:_WORST]),
        SheetSection("What was done", _done_lines(report)),
        SheetSection("Not readable", report.faults),
    ]
    return Sheet(
        title=f"{report.system}, {format_period(report.period)}",
        summary=summary(report),
        parts=parts,
        facts=_facts(report),
    )


def summary(report: ServiceReport) -> str:
    """What the period was like, in one sentence."""
    availability = report.availability
    measured = "Imported measurements"
    if availability is not None:
        measured = "No session was due"
        if availability.nights:
            measured = f"{_format_share(availability.measured, availability.nights)} of the nights measured"
    began = f"{format_count(report.began, 'finding')} began"
    open_at_end = f"{report.open_at_end} open at the end"
    cost = "no loss of performance"
    if report.lost_hours > 0:
        cost = f"losses cost the users {_format_hours(report.lost_hours)}"
    return f"{measured}; {began}, {report.ended} ended, {open_at_end}; {cost}."


def _figures(report: ServiceReport, before: ServiceReport | None) -> SheetTable:
    """The figures of the period, and of the one before it."""
    columns = ["", format_period(report.period)]
    cells = [_figure_cells(report)]
    if before is not None:
        columns.append(format_period(before.period))
        cells.append(_figure_cells(before))
    rows: list[list[str]] = []
    for label in cells[0]:
        rows.append([label, *(of_period[label] for of_period in cells)])
    return SheetTable(columns, rows, right=columns[1:])


def _figure_cells(report: ServiceReport) -> dict[str, str]:
    """The figures of a period by their label."""
    nights = results = _NOT_KNOWN
    availability = report.availability
    if availability is not None:
        nights = _format_parts(availability.measured, availability.nights)
        results = _format_parts(availability.received, availability.expected)
    decision = _NOT_KNOWN
    if report.days_until_decision:
        decision = format_count(round(median(report.days_until_decision)), "day")
    return {
        "Nights measured": nights,
        "Results received": results,
        "Findings that began": str(report.began),
        "Findings that ended": str(report.ended),
        "Open at the end": str(report.open_at_end),
        "Median time from a loss to a decision": decision,
        "Lost performance": _format_hours(report.lost_hours),
    }


def _format_parts(part: int, whole: int) -> str:
    """`86 of 90 (96 %)`."""
    return f"{part} of {whole} ({_format_share(part, whole)})" if whole else _NOT_KNOWN


def _format_share(part: int, whole: int) -> str:
    """A share in per cent, 100 only if nothing is missing: `96 %`, `99.9 %`."""
    percent = 100 * part / whole
    if part < whole and percent >= 99:
        # Rounded down: 1,999 of 2,000 are not all.
        return f"{int(10 * percent) / 10:.1f} %"
    return f"{percent:.0f} %"


def _format_hours(hours: float) -> str:
    return f"{format_number(round(hours, 1))} h" if hours < 100 else f"{hours:,.0f} h"


def _format_worst(part: FindingInPeriod) -> str:
    """`ior writes lost 46 % (×0.54) since 8 Nov 2026: 21 days of this period, 41 h; acknowledged by A. Admin (…)`."""
    finding = part.finding
    days = format_count(max(1, round(part.days)), "day")
    text = f"{finding_headline(finding)}: {days} of this period, {_format_hours(part.lost_hours)}"
    state = format_resolution(finding) or finding.state
    if finding.review is not None and finding.review.is_in_force:
        state = f"{finding.review.decision} by {finding.review.by} ({finding.review.reason})"
    owner = f"; owner {finding.owner}" if finding.owner else ""
    return f"{text}; {state}{owner}"


def _done_lines(report: ServiceReport) -> list[str]:
    """Events of the machine and decisions, by date."""
    dated: list[tuple[date, str]] = []
    for event in report.events:
        dated.append((event.date, _format_event(event)))
    for decision in report.decisions:
        dated.append((decision.date, f"{decision.date} {decision.finding}: {describe_decision(decision)}"))
    lines = [line for _, line in sorted(dated)]
    hidden = len(lines) - _MAX_DONE
    if hidden > 0:
        lines = [*lines[:_MAX_DONE], f"and {hidden} more (`iowatch report --json` has all)"]
    return lines


def _format_event(event: Event) -> str:
    until = f" to {event.until}" if event.until and event.until != event.date else ""
    return f"{event.date}{until} {event.kind}: {event.title}"


def _facts(report: ServiceReport) -> list[str]:
    """What the figures rest on."""
    price = format_number(report.prices.half_speed_day_hours)
    facts = [
        f"A day at half speed of a file system is counted as {price} h of its users (`prices` of site.yaml). "
        "A loss is counted until it is over or accepted."
    ]
    availability = report.availability
    if availability is not None and availability.blackouts:
        facts.append(f"{format_count(availability.blackouts, 'night')} in blackouts not counted.")
    if report.until < report.period.last:
        facts.append(f"The period is not over; this is its state of {report.until}.")
    return facts


def service_document(report: ServiceReport) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "format": 1,
        "system": report.system,
        "first": str(report.period.first),
        "last": str(report.period.last),
        "until": str(report.until),
        "summary": summary(report),
        "availability": _availability_document(report.availability),
        "half_speed_day_hours": report.prices.half_speed_day_hours,
        "lost_hours": round(report.lost_hours, 2),
        "began": report.began,
        "ended": report.ended,
        "open_at_end": report.open_at_end,
        "days_until_decision": list(report.days_until_decision),
        "findings": [_finding_document(part) for part in report.findings],
        "decisions": [decision.model_dump(mode="json", exclude_none=True) for decision in report.decisions],
        "events": [event.model_dump(mode="json", exclude_none=True) for event in report.events],
        "faults": list(report.faults),
    }


def _availability_document(availability: Availability | None) -> dict[str, int] | None:
    if availability is None:
        return None
    return {
        "nights": availability.nights,
        "measured": availability.measured,
        "blackouts": availability.blackouts,
        "expected_results": availability.expected,
        "received_results": availability.received,
    }


def _finding_document(part: FindingInPeriod) -> dict[str, Any]:
    finding = part.finding
    return {
        "id": finding.id,
        "state": finding.state,
        "headline": finding_headline(finding),
        "days": round(part.days, 2),
        "lost_hours": round(part.lost_hours, 2),
        "began": part.began,
        "ended": part.ended,
        "owner": finding.owner,
    }
