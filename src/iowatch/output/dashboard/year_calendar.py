"""Calendar of events and findings: twelve months per picture, one row per system, each mark a link.

Data flow: findings and events of all systems -> `CalendarMark` -> twelve months at a time -> rows of lanes -> SVG. The
table of the same marks is the text of the picture, and the target of the marks of events, which have no page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from markupsafe import Markup, escape

from iowatch.core import escape_controls, format_count, format_day
from iowatch.output.dashboard.data import SystemEntry
from iowatch.output.dashboard.drawing import AxisScale, svg_line, svg_text
from iowatch.output.dashboard.site import safe_file_name, shorten_text
from iowatch.output.text.findings import finding_headline
from iowatch.site import system_zone

# Margins of a picture.
_RIGHT, _TOP = 10, 22
# Height of a lane of marks, space above and below the lanes of a system, and size of a mark.
_LANE, _PADDING, _SIZE = 14, 6, 11
_MAX_YEARS = 10
# Letters of a description of a mark.
_MAX_LABEL = 200
_MONTHS = 12
# Months of one picture on a phone.
_NARROW_MONTHS = 4
# States of findings whose marks are drawn as an outline only.
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
        """Id of its row in the table; None for findings."""
        if self.kind != "event":
            return None
        return self.link.removeprefix("#")


@dataclass(frozen=True)
class _CalendarLayout:
    """A picture: width, left end of the time axis, longest name of a system, style class."""

    width: int
    left: int
    longest_name: int
    style_class: str


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
    marks: list[CalendarMark] = []
    for machine in machines:
        marks += _system_marks(machine)
    if not marks:
        return []
    # An event can be planned for a time after the newest session.
    times = [mark.time for mark in marks]
    times += [machine.sessions[0].started_at for machine in machines if machine.sessions]
    newest = datetime.fromtimestamp(max(times), zone)
    years: list[CalendarYear] = []
    for back in range(_MAX_YEARS):
        # From eleven months before the newest month to the end of that month.
        starts = [_month_start(newest, _MONTHS * back + month) for month in range(_MONTHS - 1, -2, -1)]
        period = _Period(starts)
        marks_of_year = period.select(marks)
        if not marks_of_year:
            continue
        names = [machine.name for machine in machines]
        if back > 0:
            # The newest year has all systems, so that one without a mark is seen, too.
            with_marks = {mark.system for mark in marks_of_year}
            names = [name for name in names if name in with_marks]
        newest_first = sorted(marks_of_year, key=lambda mark: (-mark.time, mark.system, mark.text))
        years.append(CalendarYear(period.title, _pictures(names, marks_of_year, period), newest_first))
    return years


@dataclass(frozen=True)
class _Period:
    """Whole months: their starts in order of time, and the start of the month after the last one."""

    starts: Sequence[datetime]

    @property
    def begin(self) -> float:
        """Start of the first month, epoch s."""
        return self.starts[0].timestamp()

    @property
    def end(self) -> float:
        """End of the last month, epoch s."""
        return self.starts[-1].timestamp()

    @property
    def title(self) -> str:
        """`Mar 2009 to Feb 2010`."""
        return f"{self.starts[0]:%b %Y} to {self.starts[-2]:%b %Y}"

    def select(self, marks: Sequence[CalendarMark]) -> list[CalendarMark]:
        """The marks that begin in these months."""
        return [mark for mark in marks if self.begin <= mark.time < self.end]


def _month_start(day: datetime, back: int) -> datetime:
    """First midnight of the month `back` months before that of a day; negative: after it."""
    months = day.year * 12 + day.month - 1 - back
    return datetime(months // 12, months % 12 + 1, 1, tzinfo=day.tzinfo)


def _system_marks(machine: SystemEntry) -> list[CalendarMark]:
    marks: list[CalendarMark] = []
    for finding in machine.findings:
        mark = CalendarMark(
            system=machine.name,
            time=finding.first_after,
            end=finding.first_after,
            kind="loss" if finding.is_loss else "gain",
            state=finding.state,
            text=finding_headline(finding),
            link=f"finding/{safe_file_name(finding.id)}.html",
        )
        marks.append(mark)
    # Events have no page: their rows of the table are numbered in the same order.
    for number, event in enumerate(machine.events, start=1):
        mark = CalendarMark(
            system=machine.name,
            time=event.start,
            end=event.end,
            kind="event",
            state=event.kind,
            text=event.title,
            link=f"#event-{safe_file_name(machine.name)}-{number}",
        )
        marks.append(mark)
    return marks


def _pictures(systems: Sequence[str], marks: Sequence[CalendarMark], period: _Period) -> Markup:
    """All months in one picture and, for phones, one of some months each, newest first, if it has marks."""
    pictures = [_picture(systems, marks, period, _WIDE)]
    for first in range(_MONTHS - _NARROW_MONTHS, -1, -_NARROW_MONTHS):
        months = _Period(period.starts[first : first + _NARROW_MONTHS + 1])
        marks_of_months = months.select(marks)
        if marks_of_months:
            pictures.append(_picture(systems, marks_of_months, months, _NARROW))
    return Markup().join(pictures)


def _picture(systems: Sequence[str], marks: Sequence[CalendarMark], period: _Period, layout: _CalendarLayout) -> Markup:
    """One row per system, over a time axis with a line at the start of each month."""
    x = AxisScale(period.begin, period.end, layout.left, layout.width - _RIGHT)
    rows: list[str] = []
    top = float(_TOP)
    for name in systems:
        marks_of_system = [mark for mark in marks if mark.system == name]
        marks_of_system.sort(key=lambda mark: (mark.time, mark.kind))
        lanes = _assign_lanes(marks_of_system, x)
        height = _LANE * max(1, len(lanes)) + _PADDING
        rows.append(svg_line("grid", 0, top, layout.width, top))
        rows.append(svg_text("name", 4, top + height / 2 + 4, name[: layout.longest_name]))
        for lane, members in enumerate(lanes):
            middle = top + _PADDING / 2 + _LANE * (lane + 0.5)
            rows += [_draw_mark(mark, x, middle) for mark in members]
        top += height
    # Only now is the height of the picture known. The lines are first, so that marks lie above them.
    elements = [*_month_lines(period, x, top), *rows]
    label = escape(f"Findings and events, {period.title}: {format_count(len(marks), 'mark')}")
    head = f'<svg class="{layout.style_class}" viewBox="0 0 {layout.width} {top:g}" role="group" aria-label="{label}">'
    # Numbers are formatted and texts escaped where the elements are made.
    return Markup(head + "".join(elements) + "</svg>")  # noqa: S704  # nosec B704


def _month_lines(period: _Period, x: AxisScale, bottom: float) -> list[str]:
    """A line at the start of each month with its name; the first month and each January with the year."""
    elements: list[str] = []
    for number, month in enumerate(period.starts[:-1]):
        at = x(month.timestamp())
        name = f"{month:%b %Y}" if month.month == 1 or number == 0 else f"{month:%b}"
        elements.append(svg_line("grid", at, _TOP - 4, at, bottom))
        elements.append(svg_text("month", at + 4, _TOP - 8, name))
    return elements


def _assign_lanes(marks: Sequence[CalendarMark], x: AxisScale) -> list[list[CalendarMark]]:
    """Marks in order of time, each in the first lane where it covers no other."""
    lanes: list[list[CalendarMark]] = []
    for mark in marks:
        for lane in lanes:
            if x(lane[-1].end) + _SIZE <= x(mark.time):
                lane.append(mark)
                break
        else:
            lanes.append([mark])
    return lanes


def _draw_mark(mark: CalendarMark, x: AxisScale, middle: float) -> str:
    """A link with the outline of the mark; a bar for the duration of an event that is longer than the outline."""
    half = _SIZE / 2
    # A mark of the last day is kept inside the picture.
    at = min(x(mark.time), x.end - half)
    ends = {"l": at - half, "r": at + half, "t": middle - half, "b": middle + half, "x": at, "y": middle}
    coordinates = {name: f"{value:.1f}" for name, value in ends.items()}
    outline = _SHAPES[mark.kind].format(**coordinates)
    style_class = f"{mark.kind} settled" if mark.state in _SETTLED else mark.kind
    # Names and titles are untrusted and may be long.
    day = format_day(mark.time, system_zone(mark.system))
    text = shorten_text(f"{mark.system[:60]}, {day}: {mark.text} ({mark.state})", _MAX_LABEL)
    label = escape(escape_controls(text))
    bar = ""
    if x(mark.end) - at > _SIZE:
        bar = svg_line("lasting", at, middle, min(x(mark.end), x.end), middle)
    content = f'<title>{label}</title>{bar}<path class="{style_class}" d="{outline}"/>'
    return f'<a href="{mark.link}" aria-label="{label}">{content}</a>'
