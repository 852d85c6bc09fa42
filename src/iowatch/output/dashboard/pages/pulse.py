"""Pulse: the operations that are timed every ten minutes, in the last seven days, and stalls of the last thirty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from iowatch.core import DAY_S, IowatchError, settings
from iowatch.output.dashboard import data, drawing
from iowatch.output.text.pulse import age_line, format_duration, stall_line
from iowatch.pulse.probe_program import OPERATIONS
from iowatch.pulse.store import HourOfOperation, Stall, StoreFile, list_stores, open_store
from iowatch.site import system_zone

_DAYS, _DAYS_OF_STALLS = 7, 30
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 620, 180, 56, 20, 26, 30
_NS_PER_MS = 1e6


@dataclass(frozen=True)
class OperationPicture:
    """One operation in the last days: its picture, and its newest median; None without data."""

    operation: str
    caption: str
    picture: Markup


@dataclass(frozen=True)
class FileSystemSection:
    """One file system from one client.

    Attributes:
        problem: why its file cannot be read; empty if it can.
        lasting, ended: stalls as sentences, newest first.
    """

    file: StoreFile
    problem: str = ""
    age: str = ""
    lasting: Sequence[str] = ()
    ended: Sequence[str] = ()
    pictures: Sequence[OperationPicture] = ()


def publish_pulse_page(site: data.SiteBuild) -> None:
    """Write `pulse.html`."""
    systems = []
    for name in _systems_with_pulses(site):
        systems.append((name, [_section(file, name, site.now) for file in list_stores(name)]))
    site.write_page("pulse.html", "pulse.html", systems=systems, days=_DAYS, days_of_stalls=_DAYS_OF_STALLS)


def _systems_with_pulses(site: data.SiteBuild) -> list[str]:
    folder = settings.var_directory() / "pulse"
    names = sorted(path.name for path in folder.glob("*") if path.is_dir())
    return [name for name in names if site.system in (None, name)]


PAGE = data.Page(
    "pulse.html",
    "Pulse",
    None,
    publish_pulse_page,
    below="findings.html",
    line="operations on each file system that are timed every ten minutes, and stalls.",
)


def _section(file: StoreFile, system: str, now_s: int) -> FileSystemSection:
    """What the page shows of one file; a damaged one is stated and stops no other."""
    zone = system_zone(system)
    begin_s = now_s - _DAYS * DAY_S
    try:
        with open_store(file.path) as store:
            stalls = store.stalls(now_s - _DAYS_OF_STALLS * DAY_S)
            hours = store.hours(begin_s, now_s)
            newest_s = store.newest_pulse()
    except IowatchError as error:
        return FileSystemSection(file, problem=str(error))
    newest_first = sorted(stalls, key=lambda stall: -stall.began)
    pictures = []
    for operation in OPERATIONS:
        of_operation = [hour for hour in hours if hour.operation == operation and hour.p50_ns is not None]
        if of_operation:
            stalls_of_operation = [stall for stall in stalls if stall.operation == operation]
            picture = operation_picture(of_operation, stalls_of_operation, begin_s, now_s, system)
            median_ns = float(np.median([hour.p50_ns or 0 for hour in of_operation]))
            caption = f"{operation}: median of {_DAYS} days {format_duration(median_ns)}"
            pictures.append(OperationPicture(operation, caption, picture))
    return FileSystemSection(
        file,
        age=age_line(newest_s, now_s, zone),
        lasting=[stall_line(stall, zone, now_s) for stall in newest_first if stall.ended is None],
        ended=[stall_line(stall, zone, now_s) for stall in newest_first if stall.ended is not None],
        pictures=pictures,
    )


def operation_picture(
    hours: Sequence[HourOfOperation], stalls: Sequence[Stall], begin_s: int, end_s: int, system: str
) -> Markup:
    """Median of each hour as a line, 99th percentile as dots, begins of stalls as vertical lines; in ms.

    Args:
        hours: of one operation, in order of time, each with percentiles.
        begin_s, end_s: ends of the time axis, epoch seconds.
    """
    times = np.array([hour.hour for hour in hours], dtype=np.float64)
    medians = np.array([hour.p50_ns for hour in hours], dtype=np.float64) / _NS_PER_MS
    slowest = np.array([hour.p99_ns for hour in hours], dtype=np.float64) / _NS_PER_MS
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    # A few very slow repetitions would hide the medians: they are drawn at the upper end.
    highest = max(float(medians.max()), float(np.quantile(slowest, 0.95)))
    y = drawing.AxisScale(0.0, drawing.rounded_axis_end(highest), bottom, _TOP)
    dots = np.minimum(slowest, y.high)
    x = drawing.AxisScale(begin_s, end_s, _LEFT + 6, right, zone=system_zone(system))
    parts = [
        drawing.svg_value_axis(y, _LEFT, right, drawing.value_ticks(y.high), "ms"),
        drawing.svg_time_axis(x, bottom),
        drawing.svg_repeat('<circle class="dot c5" cx="@" cy="@" r="1.6"/>', x.array(times), y.array(dots)),
        drawing.svg_line_with_gaps("headline", times, x.array(times), y.array(medians)),
    ]
    for stall in stalls:
        if begin_s <= stall.began <= end_s:
            parts.append(drawing.svg_line("mark event", x(stall.began), _TOP, x(stall.began), bottom))
    description = f"{len(hours)} hours, median {np.median(medians):.3g} ms"
    return drawing.svg_picture(_WIDTH, _HEIGHT, description, parts, "picture curves")
