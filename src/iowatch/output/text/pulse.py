"""Sentences about pulses: stalls, the report of a pulse, percentiles per hour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

from iowatch.core import DAY_S, format_count, format_local_time, format_number, format_size, make_table
from iowatch.pulse.probe import Reading
from iowatch.pulse.probe_program import OPERATIONS
from iowatch.pulse.run import FileSystemPulse, PulseReport
from iowatch.pulse.store import HourOfOperation, Stall

if TYPE_CHECKING:
    from rich.console import Console

_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000


def format_duration(duration_ns: float) -> str:
    """A time of an operation: `40 ms`, `1.5 s`, `0.012 ms`."""
    if duration_ns >= _NS_PER_S:
        return f"{duration_ns / _NS_PER_S:.2g} s"
    return f"{_milliseconds(duration_ns)} ms"


def _milliseconds(duration_ns: float) -> str:
    return format_number(float(f"{duration_ns / _NS_PER_MS:.2g}"))


def format_lasting(seconds: float) -> str:
    """How long something lasted: `40 min`, `3 h 20 min`, `2 days 4 h`."""
    minutes = round(seconds / 60)
    days, rest = divmod(minutes, 24 * 60)
    hours, minutes = divmod(rest, 60)
    if days:
        return f"{format_count(days, 'day')} {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min"


def stall_line(stall: Stall, zone: tzinfo, now_s: int) -> str:
    """One stall: `since 11:40 stat takes 40 ms instead of 1.2 ms`; the day is named if it is not today."""
    since = _clock_time(stall.began, zone, now_s)
    if stall.outcome == "failed":
        what = f"{stall.operation} fails: {stall.reason}"
    elif stall.outcome == "unfinished":
        what = f"{stall.operation} does not end within {format_duration(stall.level_ns)}"
        if stall.usual_ns is not None:
            what += f" (usually {format_duration(stall.usual_ns)})"
    elif stall.usual_ns is None:
        what = f"{stall.operation} takes {format_duration(stall.level_ns)}"
    else:
        what = f"{stall.operation} takes {format_duration(stall.level_ns)} instead of {format_duration(stall.usual_ns)}"
    if stall.ended is None:
        return f"since {since} {what}"
    end = _clock_time(stall.ended, zone, now_s)
    if stall.how_ended == "new usual level":
        return f"from {since} {what}: lasted {format_lasting(stall.ended - stall.began)}, and is taken as usual now"
    return f"from {since} to {end} {what} ({format_lasting(stall.ended - stall.began)})"


def _clock_time(time_s: int, zone: tzinfo, now_s: int) -> str:
    moment, now = datetime.fromtimestamp(time_s, zone), datetime.fromtimestamp(now_s, zone)
    if moment.date() == now.date():
        return f"{moment:%H:%M}"
    return f"{moment:%-d %b %H:%M}"


def severity(stall: Stall) -> float:
    """Order of stalls in a report, the worst highest: what fails or does not end, then the largest factor."""
    if stall.outcome != "completed":
        return float("inf")
    return stall.level_ns / stall.usual_ns if stall.usual_ns else 1.0


def event_title(stalls: Sequence[Stall], zone: tzinfo, now_s: int) -> str:
    """Stalls of one event in one line: the worst one, and the names of the others."""
    worst, *others = sorted(stalls, key=severity, reverse=True)
    line = stall_line(worst, zone, now_s)
    if others:
        line += f"; also {', '.join(stall.operation for stall in others)}"
    return line


def report_lines(report: PulseReport, zone: tzinfo) -> list[str]:
    """The report of `iowatch pulse run`: one line per file system, and one per stall that lasts."""
    lines: list[str] = []
    for pulse in report.file_systems:
        line = f"{pulse.file_system} from {report.client}: {_readings(pulse)}"
        if report.in_session:
            line += "; not assessed: a session is running"
        lines.append(line)
        for stall in pulse.changes.lasting:
            lines.append(f"  {stall_line(stall, zone, report.time)}")
    return lines


def news_lines(report: PulseReport, zone: tzinfo) -> list[str]:
    """One line for each stall that began or ended with this pulse."""
    lines: list[str] = []
    for pulse in report.file_systems:
        for stall in (*pulse.changes.begun, *pulse.changes.ended):
            lines.append(f"{report.system} {pulse.file_system}: {stall_line(stall, zone, report.time)}")
    return lines


def _readings(pulse: FileSystemPulse) -> str:
    if pulse.result.reason:
        return pulse.result.reason
    return ", ".join(map(_reading, pulse.result.readings))


def _reading(reading: Reading) -> str:
    if reading.outcome == "failed":
        return f"{reading.operation} failed ({reading.reason})"
    if reading.outcome == "unfinished":
        return f"{reading.operation} did not end within {format_duration(reading.level_ns)}"
    return f"{reading.operation} {format_duration(reading.level_ns)}"


def cost_line(report: PulseReport) -> str:
    """What the pulse cost."""
    size = sum(pulse.store_bytes for pulse in report.file_systems)
    return f"{report.wall_s:.2f} s, {report.processor_s:.2f} s of processor time; {format_size(size)} kept"


def hours_table(console: Console, hours: Iterable[HourOfOperation], zone: tzinfo) -> None:
    """Median and 99th percentile per hour and operation, in ms; `!` marks hours with unfinished or failed pulses."""
    by_hour: dict[int, dict[str, HourOfOperation]] = {}
    for row in hours:
        by_hour.setdefault(row.hour, {})[row.operation] = row
    table = make_table("hour", *OPERATIONS)
    for hour, of_hour in sorted(by_hour.items()):
        cells = [_hour_cell(of_hour.get(operation)) for operation in OPERATIONS]
        table.add_row(format_local_time(hour, zone), *cells)
    console.print(table)


def _hour_cell(row: HourOfOperation | None) -> str:
    if row is None:
        return "–"
    text = "–"
    if row.p50_ns is not None and row.p99_ns is not None:
        text = f"{_milliseconds(row.p50_ns)} ({_milliseconds(row.p99_ns)})"
    return f"{text} !" if row.unfinished or row.failed else text


def age_line(newest_s: int | None, now_s: int, zone: tzinfo = UTC) -> str:
    """When the newest pulse was taken."""
    if newest_s is None:
        return "no pulse yet"
    age = format_lasting(now_s - newest_s)
    line = f"newest pulse {format_local_time(newest_s, zone)}, {age} ago"
    return f"{line}: is the timer running?" if now_s - newest_s > DAY_S / 12 else line
