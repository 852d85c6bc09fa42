"""Calendar of events and findings: twelve months per picture, one row per system, each mark a link.

Data flow: findings and events of all systems -> `CalendarMark` -> twelve months at a time -> rows of lanes -> SVG. The
table of the same marks is the text of the picture, and the target of the marks of events, which have no page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from markupsafe import Markup, escape

from iowatch.core import escape_controls, format_count, format_day
from iowatch.output.dashboard.data import SystemEntry
from iowatch.output.dashboard.drawing import AxisScale, svg_line, svg_text
from iowatch.output.dashboard.site import safe_file_name, shorten_text
from iowatch.output.text.findings import finding_headline
from iowatch.site import system_zone

_RIGHT, _TOP = 10, 22
_LANE, _PADDING, _SIZE = 14, 6, 11
_MAX_YEARS, _MAX_LABEL = 10, 200
_MONTHS = 12
# Months of one picture on a phone.
_NARROW_MONTHS = 4
_SETTLED = ("accepted", "dismissed", "resolved")
# Outlines of marks around a middle, half as wide as `_SIZE`.
_SHAPES = {
    "loss": "M{l} {t}H{r}L{x} {b}Z",
    "gain": "M{l} {b}H{r}L{x} {t}Z",
    "event": "M{x} {t}L{r} {y}L{x} {b}L{l} {y}Z",
}


@dataclass(frozen=True)
class CalendarMark:
    """A finding or an event.

    Attributes:
        time, end: epoch seconds; equal for findings.
        kind: `loss`, `gain` or `event`.
        state: of the finding, or kind of the event.
        text: in one line.
        link: page of the finding; an event links to its row of the table.
    """

    system: str
    time: int
    end: int
    kind: str
    state: str
    text: str
    link: str

    @property
    def row(self) -> str | None:
        """Id of its row in the table, for events."""
        return self.link[1:] if self.kind == "event" else None


@dataclass(frozen=True)
class _CalendarLayout:
    width: int
    left: int
    longest_name: int
    kind: str


_WIDE = _CalendarLayout(1080, 130, 17, "picture calendar for-wide")
_NARROW = _CalendarLayout(360, 92, 12, "picture calendar for-narrow")


@dataclass(frozen=True)
class CalendarYear:
    """Twelve months; `marks` newest first."""

    title: str
    picture: Markup
    marks: Sequence[CalendarMark]


def calendar_years(machines: Sequence[SystemEntry], zone: tzinfo = UTC) -> list[CalendarYear]:
    """Twelve months at a time back from the newest session, those with marks only.

    Args:
        zone: months begin at its midnights.
    """
    marks = [mark for machine in machines for mark in _system_marks(machine)]
    newest = [machine.sessions[0].started_at for machine in machines if machine.sessions]
    if not marks:
        return []
    day = datetime.fromtimestamp(max([*newest, *(mark.time for mark in marks)]), zone)
    years = []
    for back in range(_MAX_YEARS):
        starts = [_month_start(day, 12 * back + n) for n in range(11, -2, -1)]
        begin, end = starts[0].timestamp(), starts[-1].timestamp()
        found = [mark for mark in marks if begin <= mark.time < end]
        if found:
            title = f"{starts[0]:%b %Y} to {starts[-2]:%b %Y}"
            names = [m.name for m in machines if not back or any(mark.system == m.name for mark in found)]
            years.append(CalendarYear(title, _pictures(names, found, starts, title), _newest_first(found)))
    return years


def _newest_first(marks: Sequence[CalendarMark]) -> list[CalendarMark]:
    return sorted(marks, key=lambda mark: (-mark.time, mark.system, mark.text))


def _month_start(day: datetime, back: int) -> datetime:
    """First midnight of the month `back` months before that of a day; negative: after it."""
    months = day.year * 12 + day.month - 1 - back
    return datetime(months // 12, months % 12 + 1, 1, tzinfo=day.tzinfo)


def _system_marks(machine: SystemEntry) -> Iterator[CalendarMark]:
    for finding in machine.findings:
        kind, page = "loss" if finding.is_loss else "gain", f"finding/{safe_file_name(finding.id)}.html"
        at, text = finding.first_after, finding_headline(finding)
        yield CalendarMark(machine.name, at, at, kind, finding.state, text, page)
    for number, event in enumerate(machine.events, start=1):
        link = f"#event-{safe_file_name(machine.name)}-{number}"
        yield CalendarMark(machine.name, event.start, event.end, "event", event.kind, event.title, link)


def _pictures(systems: Sequence[str], marks: Sequence[CalendarMark], starts: Sequence[datetime], title: str) -> Markup:
    """All months in one picture and, for phones, one of some months each, newest first, if it has marks."""
    parts = [_picture(systems, marks, starts, title, _WIDE)]
    for first in range(_MONTHS - _NARROW_MONTHS, -1, -_NARROW_MONTHS):
        some = starts[first : first + _NARROW_MONTHS + 1]
        begin, end = some[0].timestamp(), some[-1].timestamp()
        if found := [mark for mark in marks if begin <= mark.time < end]:
            parts.append(_picture(systems, found, some, f"{some[0]:%b %Y} to {some[-2]:%b %Y}", _NARROW))
    return Markup().join(parts)


def _picture(
    systems: Sequence[str],
    marks: Sequence[CalendarMark],
    starts: Sequence[datetime],
    title: str,
    layout: _CalendarLayout,
) -> Markup:
    x = AxisScale(starts[0].timestamp(), starts[-1].timestamp(), layout.left, layout.width - _RIGHT)
    parts: list[str] = []
    top = float(_TOP)
    for name in systems:
        lanes = _assign_lanes(sorted((m for m in marks if m.system == name), key=lambda m: (m.time, m.kind)), x)
        height = _LANE * max(1, len(lanes)) + _PADDING
        parts.append(svg_line("grid", 0, top, layout.width, top))
        parts.append(svg_text("name", 4, top + height / 2 + 4, name[: layout.longest_name]))
        for lane, members in enumerate(lanes):
            middle = top + _PADDING / 2 + _LANE * (lane + 0.5)
            parts += [_mark(mark, x, middle) for mark in members]
        top += height
    months = []
    for month in starts[:-1]:
        at = x(month.timestamp())
        year = f" {month:%Y}" if month.month == 1 or month is starts[0] else ""
        months += [svg_line("grid", at, _TOP - 4, at, top), svg_text("month", at + 4, _TOP - 8, f"{month:%b}{year}")]
    label = f"Findings and events, {title}: {format_count(len(marks), 'mark')}"
    head = f'<svg class="{layout.kind}" viewBox="0 0 {layout.width} {top:g}" role="group" aria-label="{escape(label)}">'
    # Numbers are formatted and texts escaped where the parts are made.
    return Markup(head + "".join([*months, *parts]) + "</svg>")  # noqa: S704  # nosec B704


def _assign_lanes(marks: Sequence[CalendarMark], x: AxisScale) -> list[list[CalendarMark]]:
    """Marks in order of time, each in the first lane where it covers no other."""
    lanes: list[list[CalendarMark]] = []
    for mark in marks:
        lane = next((one for one in lanes if x(one[-1].end) + _SIZE <= x(mark.time)), None)
        if lane is None:
            lanes.append(lane := [])
        lane.append(mark)
    return lanes


def _mark(mark: CalendarMark, x: AxisScale, middle: float) -> str:
    at, half = min(x(mark.time), x.end - _SIZE / 2), _SIZE / 2
    ends = {"l": at - half, "r": at + half, "t": middle - half, "b": middle + half, "x": at, "y": middle}
    outline = _SHAPES[mark.kind].format(**{name: f"{value:.1f}" for name, value in ends.items()})
    kind = f"{mark.kind} settled" if mark.state in _SETTLED else mark.kind
    day = format_day(mark.time, system_zone(mark.system))
    label = escape(escape_controls(shorten_text(f"{mark.system[:60]}, {day}: {mark.text} ({mark.state})", _MAX_LABEL)))
    bar = svg_line("lasting", at, middle, min(x(mark.end), x.end), middle) if x(mark.end) - at > _SIZE else ""
    drawn = f'<title>{label}</title>{bar}<path class="{kind}" d="{outline}"/>'
    return f'<a href="{mark.link}" aria-label="{label}">{drawn}</a>'
