"""Overview: a heat map of the newest session, and one row per monitored series with the newest sessions as cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from iowatch.findings import MIN_OBSERVATIONS, load_observations
from iowatch.output.dashboard import data, drawing, levels, safe_file_name
from iowatch.output.dashboard.heat_map import build_heat_map
from iowatch.store import SeriesPoints

OVERVIEW_SESSIONS = 30
_COLUMNS = ("operation", "api", "file")
# Outcomes of a series in the newest session, most urgent first; inactive: no result for `OVERVIEW_SESSIONS` days.
SERIES_OUTCOMES = ("below", "without result", "above", "as accepted", "not assessed", "inactive")


@dataclass(frozen=True)
class SeriesTableRow:
    """A series in the table; shares are newest value / limit, 1 is equal."""

    series: data.SeriesEntry
    newest: float
    time: int
    late: bool
    gone: bool
    accepted: levels.AcceptedLevel | None
    position: levels.BandPosition | None
    strip: Markup
    of_published: float | None
    of_peak: float | None
    states: tuple[str, ...]

    @property
    def gain(self) -> float | None:
        """Newest value relative to the accepted level, as performance."""
        return self.position.gain if self.position else None

    @property
    def kind(self) -> str:
        """Style class of the position in the normal band; `none` without an accepted level."""
        return self.position.kind if self.position else "none"

    @property
    def outcome(self) -> str:
        """One of `SERIES_OUTCOMES`: outcome of the series in the newest session."""
        if self.late:
            return "inactive" if self.gone else "without result"
        return self.position.outcome if self.position else "not assessed"

    @property
    def strip_kind(self) -> str:
        """Style class of its cell in the strip of the system."""
        return "none" if self.late else self.position.kind if self.position else levels.NO_BAND

    @property
    def band_words(self) -> str:
        """The normal band in per cent of the accepted level."""
        if (band := levels.normal_band(self.series)) is None:
            return "no noise estimate"
        return f"normal band {100 * math.exp(-band):.0f} to {100 * math.exp(band):.0f} %"


def overview_page_path(machine: data.SystemEntry) -> str:
    """Path of the overview of a system."""
    return f"overview/{safe_file_name(machine.name)}.html"


def publish_overview_pages(site: data.SiteBuild) -> None:
    """Write `overview/<system>.html` for each system, and `overview.html`, which links to them."""
    systems = []
    for machine in site.catalogue.machines:
        rows = series_rows(site, machine)
        state = {
            "machine": machine,
            "outcomes": {name: sum(row.outcome == name for row in rows) for name in SERIES_OUTCOMES},
            "overdue": data.is_overdue(machine, site.now),
            "running": data.is_session_running(machine, site.now),
        }
        site.write_page(overview_page_path(machine), "overview.html", **state, **_overview_values(machine, rows))
        strip = drawing.strip_picture([row.strip_kind for row in sorted(rows[:400], key=_position_key)], "series")
        systems.append({**state, "page": overview_page_path(machine), "strip": strip})
    site.write_page("overview.html", "overview_index.html", systems=systems)


PAGE = data.Page("overview.html", "Overview", 3, publish_overview_pages)


def _position_key(row: SeriesTableRow) -> tuple[bool, bool, float]:
    """Sort key: furthest below the normal band first, then without noise estimate, then without result."""
    multiple = row.position.multiple if row.position else None
    return row.late, multiple is None, multiple or 0.0


def _overview_values(machine: data.SystemEntry, rows: Sequence[SeriesTableRow]) -> dict[str, Any]:
    shown = [row.series.row for row in rows]
    choices = {name: {str(row.case.parameters.get(name, "")) for row in shown} - {""} for name in _COLUMNS}
    choices |= {"benchmark": {row.case.benchmark for row in shown}, "stack": {row.stack for row in shown}}
    return {
        "rows": rows,
        "heat": build_heat_map([row for row in rows if not row.gone], lambda row: row.series.row),
        "newest": machine.newest_session,
        "assessed": any(row.gain is not None for row in rows),
        "least": MIN_OBSERVATIONS,
        "choices": {name: sorted(values) for name, values in choices.items() if 1 < len(values) <= 60},
        "columns": _COLUMNS,
        "published": any(row.of_published is not None for row in rows),
        "peak": any(row.of_peak is not None for row in rows),
        "days": OVERVIEW_SESSIONS,
        "others": [one for one in machine.series if not one.headline],
    }


def series_rows(site: data.SiteBuild, machine: data.SystemEntry) -> list[SeriesTableRow]:
    """Rows of the monitored series, those furthest below their level first, inactive ones last."""
    return site.compute_once("series rows", machine, lambda: _read_series_rows(site, machine))


def _read_series_rows(site: data.SiteBuild, machine: data.SystemEntry) -> list[SeriesTableRow]:
    if machine.newest_session is None:
        return []
    newest = machine.newest_session.started_at
    points = levels.recent_observations(site, machine)
    suspected = {one.series.row.id for one in levels.find_suspected_series(machine)}
    rows = [_series_row(one, points, newest, site, one.row.id in suspected) for one in machine.watched]
    return sorted(rows, key=lambda r: (r.gone, r.gain is None, r.gain or 0.0))


def _series_row(
    series: data.SeriesEntry, points: Mapping[int, SeriesPoints], newest: int, site: data.SiteBuild, suspected: bool
) -> SeriesTableRow:
    found = points[series.row.id]
    if not len(found.time):
        found = load_observations(site.history, [series.row])[series.row.id]
    values, times = series.metric.best_bound(found.min, found.max).tolist(), found.time.tolist()
    last, limits, normal = values[-1], series.limits, levels.accepted_level(series, values)
    # State of the newest undecided finding, and "suspected" if the newest observations differ in addition.
    states = [f.state for f in series.findings if f.state in levels.UNDECIDED_STATES][:1] + ["suspected"] * suspected
    return SeriesTableRow(
        series=series,
        newest=last,
        time=times[-1],
        late=times[-1] < newest - levels.SESSION_SLACK_S,
        gone=times[-1] < newest - OVERVIEW_SESSIONS * drawing.DAY_S,
        accepted=normal,
        position=levels.band_position(series, last, normal.value) if normal else None,
        strip=drawing.strip_picture(_session_kinds(series, zip(times, values, strict=True), normal, newest)),
        of_published=last / limits.published.value if limits.published else None,
        of_peak=last / limits.peak if limits.peak else None,
        states=tuple(dict.fromkeys(states)),
    )


def _session_kinds(
    series: data.SeriesEntry, points: Iterable[tuple[int, float]], normal: levels.AcceptedLevel | None, newest: int
) -> list[str]:
    """Style class of each of the newest days, oldest first: `none` without data, `unassessed` without a band."""
    cells = ["none"] * OVERVIEW_SESSIONS
    for time, value in points:
        place = OVERVIEW_SESSIONS - 1 + (time - newest + levels.SESSION_SLACK_S) // drawing.DAY_S
        if 0 <= place < OVERVIEW_SESSIONS:
            found = levels.band_position(series, value, normal.value) if normal else None
            cells[place] = found.kind if found else levels.NO_BAND
    return cells
