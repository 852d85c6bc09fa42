"""Overview: a heat map of the newest night, and a row a watched series with the newest nights as cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from markupsafe import Markup

from iowatch.dashboard.catalogue import Machine, Series
from iowatch.dashboard.context import Site
from iowatch.dashboard.drawing import DAY_S
from iowatch.dashboard.heatmap import heat_map
from iowatch.dashboard.levels import NIGHT_SLACK_S, Accepted, accepted, gain, suspicions
from iowatch.dashboard.pictures import strip_picture
from iowatch.dashboard.pictures.strip import kind_of
from iowatch.dashboard.silence import silent
from iowatch.dashboard.site import slug
from iowatch.store import SeriesPoints

NIGHTS = 30
_READ_S = 60 * DAY_S
_COLUMNS = ("operation", "api", "file")
# What can be said of a series in the newest night, what needs somebody first; long gone: not for `NIGHTS`.
OUTCOMES = ("below", "without result", "above", "as accepted", "not judged", "long gone")


@dataclass(frozen=True)
class Row:
    """A series in the table; shares are of the value, 1 is the same."""

    series: Series
    newest: float
    time: int
    late: bool
    gone: bool
    accepted: Accepted | None
    gain: float | None
    kind: str
    strip: Markup
    of_published: float | None
    of_peak: float | None
    states: tuple[str, ...]

    @property
    def outcome(self) -> str:
        """One of `OUTCOMES`: what the newest night says of the series."""
        if self.late:
            return "long gone" if self.gone else "without result"
        return {"w": "below", "s": "as accepted", "b": "above"}.get(self.kind[0], "not judged")


def page_of(machine: Machine) -> str:
    """Path of a system's overview."""
    return f"overview/{slug(machine.name)}.html"


def publish(site: Site) -> None:
    """Write `overview/<system>.html` for each system, and `overview.html`, which leads to them."""
    read = cache(lambda machine: list(_rows(site, machine)))
    bases = []
    for machine in site.catalogue.machines:
        basis = [
            machine.name,
            [one.basis for one in machine.watched],
            machine.night.started_at if machine.night else 0,
            silent(machine, site.now),
            _running(machine, site.now),
        ]
        bases.append(basis)
        site.page(page_of(machine), "overview.html", basis, partial(_values, machine, read, site.now))
    site.page(
        "overview.html",
        "overview_index.html",
        bases,
        lambda: {"systems": [_summary(m, read(m), site.now) for m in site.catalogue.machines]},
    )


def _values(machine: Machine, read: Callable[[Machine], list[Row]], now: int) -> dict[str, Any]:
    rows = read(machine)
    choices = {
        name: sorted({str(r.series.row.case.parameters.get(name, "")) for r in rows} - {""})
        for name in _COLUMNS
    }
    choices |= {
        "benchmark": sorted({r.series.row.case.benchmark for r in rows}),
        "stack": sorted({r.series.row.stack for r in rows}),
    }
    return {
        "machine": machine,
        "rows": rows,
        "heat": heat_map([row for row in rows if not row.gone], lambda row: row.series.row),
        "newest": machine.night,
        "outcomes": _counted(rows),
        "choices": {name: values for name, values in choices.items() if 1 < len(values) <= 60},
        "columns": _COLUMNS,
        "published": any(row.of_published is not None for row in rows),
        "peak": any(row.of_peak is not None for row in rows),
        "nights": NIGHTS,
        "silent": silent(machine, now),
        "running": _running(machine, now),
        "others": [one for one in machine.series if not one.headline],
    }


def _running(machine: Machine, now: int) -> bool:
    """Whether the newest night goes on: what is not there may still come."""
    return machine.night is not None and machine.night.status == "running" and not silent(machine, now)


def _counted(rows: Sequence[Row]) -> dict[str, int]:
    """How many series each of `OUTCOMES` is said of."""
    said = [row.outcome for row in rows]
    return {name: said.count(name) for name in OUTCOMES}


def _summary(machine: Machine, rows: Sequence[Row], now: int) -> dict[str, Any]:
    return {
        "machine": machine,
        "page": page_of(machine),
        "outcomes": _counted(rows),
        "silent": silent(machine, now),
        "running": _running(machine, now),
        "strip": strip_picture(_worst_first(rows[:400]), "series"),
    }


def _worst_first(rows: Sequence[Row]) -> list[float | None]:
    """Gains in the newest night; None, at the end, for series that are not in it or cannot be judged."""
    gains = [None if row.late else row.gain for row in rows]
    return sorted(gains, key=lambda gain: (gain is None, gain or 0.0))


def _rows(site: Site, machine: Machine) -> Iterator[Row]:
    """Rows of the watched series, those furthest below their level first; those long without results last."""
    if machine.night is None:
        return
    newest = machine.night.started_at
    points = site.history.points([one.row.id for one in machine.watched], since=newest - _READ_S)
    suspected = {one.series.row.id for one in suspicions(machine)}
    rows = [_row(one, points, newest, site, one.row.id in suspected) for one in machine.watched]
    yield from sorted(rows, key=lambda r: (r.gone, r.gain is None, r.gain or 0.0))


def _row(series: Series, points: Mapping[int, SeriesPoints], newest: int, site: Site, suspected: bool) -> Row:
    found = points[series.row.id]
    if not len(found.time):
        found = site.history.points([series.row.id])[series.row.id]
    values = (found.min if series.metric.direction == "lower" else found.max).tolist()
    times = found.time.tolist()
    normal = accepted(series, values)
    last = values[-1]
    limits = series.limits
    share = gain(series, last, normal.value) if normal else None
    return Row(
        series=series,
        newest=last,
        time=times[-1],
        late=times[-1] < newest - NIGHT_SLACK_S,
        gone=times[-1] < newest - NIGHTS * DAY_S,
        accepted=normal,
        gain=share,
        kind=kind_of(share),
        strip=strip_picture(_cells(series, times, values, normal, newest)),
        of_published=last / limits.published.value if limits.published else None,
        of_peak=last / limits.peak if limits.peak else None,
        states=_states(series, suspected),
    )


def _states(series: Series, suspected: bool) -> tuple[str, ...]:
    """Of its newest finding that is not settled, and whether its newest nights look different again."""
    found = [f.state for f in series.findings if f.state in ("open", "suspected", "acknowledged")][:1]
    return tuple(dict.fromkeys([*found, *(["suspected"] if suspected else [])]))


def _cells(
    series: Series, times: Sequence[int], values: Sequence[float], normal: Accepted | None, newest: int
) -> list[float | None]:
    """Gain of each of the newest nights, oldest first; None without data, NaN where nothing is accepted."""
    cells: list[float | None] = [None] * NIGHTS
    for time, value in zip(times, values, strict=True):
        night = NIGHTS - 1 + (time - newest + NIGHT_SLACK_S) // DAY_S
        if 0 <= night < NIGHTS:
            cells[night] = math.nan if normal is None else gain(series, value, normal.value)
    return cells
