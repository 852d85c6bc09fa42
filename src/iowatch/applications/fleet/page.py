"""What the Darshan logs of all jobs show: changes that applications have in common, patterns, who moves how much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from iowatch.applications.fleet import production, tables
from iowatch.applications.fleet.report import LogReport, build_log_report
from iowatch.core import IowatchError, format_count
from iowatch.output.dashboard import Page, SiteBuild, drawing
from iowatch.site import system_zone

# Series drawn per system: those of the newest changes, else those with most runs.
_MAX_PICTURES = 6
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 620, 220, 56, 20, 26, 30


@dataclass(frozen=True)
class SystemLogs:
    """The report of one system, or why there is none; pictures of series with their captions."""

    name: str
    report: LogReport | None
    problem: str | None
    pictures: list[tuple[str, Markup]]


def publish_applications_page(site: SiteBuild) -> None:
    """Write `applications.html`."""
    site.write_page(
        "applications.html",
        "fleet/applications.html",
        systems=[_system_logs(name) for name in tables.list_systems() if site.system in (None, name)],
    )


PAGE = Page(
    "applications.html",
    "Applications",
    menu=None,
    publish=publish_applications_page,
    below="findings.html",
    line="what the Darshan logs of all jobs show.",
)


def _system_logs(name: str) -> SystemLogs:
    """Report of a system; a missing package or a damaged table is stated and stops no other page."""
    try:
        report = build_log_report(name)
    except IowatchError as error:
        return SystemLogs(name, None, str(error), [])
    return SystemLogs(name, report, None, list(_pictures(name, report)))


def _pictures(system: str, report: LogReport) -> Iterator[tuple[str, Markup]]:
    changed = {m.row.id: int(m.change.time) for one in reversed(report.changes) for m in one.group.main}
    chosen = [one for one in report.series if one.row.id in changed] or report.series
    for one in sorted(chosen, key=lambda one: -one.runs)[:_MAX_PICTURES]:
        facts = one.row.case.parameters
        name = f"{facts['application']}, {facts['ranks']} ranks, {facts['file_system']}, {facts['operation']}"
        yield f"{name}: {format_count(one.runs, 'run')}", series_picture(one, system, changed.get(one.row.id))


def series_picture(one: production.ApplicationSeries, system: str, changed_s: int | None) -> Markup:
    """Median bandwidth of each day over time; a line at the day of a change (epoch seconds)."""
    times, values = one.points.time.astype(np.float64), one.points.median
    y = drawing.AxisScale(0.0, drawing.rounded_axis_end(float(values.max())), _HEIGHT - _BOTTOM, _TOP)
    x = drawing.AxisScale(times[0], times[-1], _LEFT + 6, _WIDTH - _RIGHT, zone=system_zone(system))
    parts = [drawing.svg_value_axis(y, _LEFT, _WIDTH - _RIGHT, drawing.value_ticks(y.high), "MiB/s")]
    parts.append(drawing.svg_time_axis(x, _HEIGHT - _BOTTOM))
    if changed_s is not None:
        parts.append(drawing.svg_line("mark event", x(changed_s), _TOP, x(changed_s), _HEIGHT - _BOTTOM))
    parts.append(drawing.svg_repeat('<circle class="dot c1" cx="@" cy="@" r="2"/>', x.array(times), y.array(values)))
    words = f"{len(values)} days, median {np.median(values):.0f} MiB/s"
    return drawing.svg_picture(_WIDTH, _HEIGHT, words, parts, "picture curves")
