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
        systems=[_system_logs(name) for name in _systems_with_logs(site)],
    )


def _systems_with_logs(site: SiteBuild) -> list[str]:
    return [name for name in tables.list_systems() if site.system in (None, name)]


PAGE = Page(
    "applications.html",
    "Applications",
    menu=None,
    publish=publish_applications_page,
    below="findings.html",
    line="what the Darshan logs of all jobs show.",
    has_content=lambda site: bool(_systems_with_logs(site)),
)


def _system_logs(name: str) -> SystemLogs:
    """Report of a system; a missing package or a damaged table is stated and stops no other page."""
    try:
        report = build_log_report(name)
    except IowatchError as error:
        return SystemLogs(name, None, str(error), [])
    return SystemLogs(name, report, None, list(_pictures(name, report)))


def _pictures(system: str, report: LogReport) -> Iterator[tuple[str, Markup]]:
    # When a series changed; of several changes the newest, which is the first of the report.
    change_time_of_series: dict[int, int] = {}
    for change in reversed(report.changes):
        for member in change.group.main:
            change_time_of_series[member.row.id] = int(member.change.time)
    changed_series = [series for series in report.series if series.row.id in change_time_of_series]
    shown_series = sorted(changed_series or report.series, key=lambda series: -series.runs)
    for series in shown_series[:_MAX_PICTURES]:
        parameters = series.row.case.parameters
        name = f"{parameters['application']}, {parameters['ranks']} ranks"
        name += f", {parameters['file_system']}, {parameters['operation']}"
        caption = f"{name}: {format_count(series.runs, 'run')}"
        yield caption, series_picture(series, system, change_time_of_series.get(series.row.id))


def series_picture(series: production.ApplicationSeries, system: str, changed_s: int | None) -> Markup:
    """Median bandwidth of each day over time; a line at the day of a change (epoch seconds)."""
    times = series.points.time.astype(np.float64)
    values = series.points.median
    y = drawing.AxisScale(0.0, drawing.rounded_axis_end(float(values.max())), _HEIGHT - _BOTTOM, _TOP)
    x = drawing.AxisScale(times[0], times[-1], _LEFT + 6, _WIDTH - _RIGHT, zone=system_zone(system))
    parts = [drawing.svg_value_axis(y, _LEFT, _WIDTH - _RIGHT, drawing.value_ticks(y.high), "MiB/s")]
    parts.append(drawing.svg_time_axis(x, _HEIGHT - _BOTTOM))
    if changed_s is not None:
        parts.append(drawing.svg_line("mark event", x(changed_s), _TOP, x(changed_s), _HEIGHT - _BOTTOM))
    parts.append(drawing.svg_repeat('<circle class="dot c1" cx="@" cy="@" r="2"/>', x.array(times), y.array(values)))
    description = f"{len(values)} days, median {np.median(values):.0f} MiB/s"
    return drawing.svg_picture(_WIDTH, _HEIGHT, description, parts, "picture curves")
