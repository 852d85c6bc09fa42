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
# Case parameters by which the table can be filtered.
_COLUMNS = ("operation", "api", "file")
# A filter with more choices would not help.
_MAX_CHOICES = 60
# Cells of the strip of a system.
_MAX_STRIP_SERIES = 400
# Outcomes of a series in the newest session, most urgent first; inactive: no result for `OVERVIEW_SESSIONS` days.
SERIES_OUTCOMES = ("below", "without result", "above", "as accepted", "not assessed", "inactive")


@dataclass(frozen=True)
class SeriesTableRow:
    """A series in the table.

    Attributes:
        newest, time: headline of the newest observation, and its time (epoch s).
        late: whether it has no result in the newest session.
        gone: whether it has no result for `OVERVIEW_SESSIONS` days.
        accepted: the level that is normal for it.
        position: of the newest observation in its normal band.
        strip: the newest sessions as cells.
        of_published, of_peak: newest value / limit, 1 is equal.
        states: of its newest undecided finding; `suspected` if its newest observations differ.
    """

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
        if self.late:
            return "none"
        return self.position.kind if self.position else levels.NO_BAND

    @property
    def band_words(self) -> str:
        """The normal band in per cent of the accepted level."""
        band = levels.normal_band(self.series)
        if band is None:
            return "no noise estimate"
        return f"normal band {100 * math.exp(-band):.0f} to {100 * math.exp(band):.0f} %"


def overview_page_path(machine: data.SystemEntry) -> str:
    """Path of the overview of a system."""
    return f"overview/{safe_file_name(machine.name)}.html"


def publish_overview_pages(site: data.SiteBuild) -> None:
    """Write `overview/<system>.html` for each system, and `overview.html`, which links to them."""
    systems: list[dict[str, Any]] = []
    for machine in site.catalogue.machines:
        rows = series_rows(site, machine)
        page = overview_page_path(machine)
        # What the page of the system and its row in the index have in common.
        state = {
            "machine": machine,
            "outcomes": {name: sum(row.outcome == name for row in rows) for name in SERIES_OUTCOMES},
            "overdue": data.is_overdue(machine, site.now),
            "running": data.is_session_running(machine, site.now),
        }
        site.write_page(page, "overview.html", **state, **_overview_values(machine, rows))
        strip_rows = sorted(rows[:_MAX_STRIP_SERIES], key=_position_key)
        strip = drawing.strip_picture([row.strip_kind for row in strip_rows], "series")
        systems.append({**state, "page": page, "strip": strip})
    site.write_page("overview.html", "overview_index.html", systems=systems)


PAGE = data.Page("overview.html", "Overview", 3, publish_overview_pages)


def _position_key(row: SeriesTableRow) -> tuple[bool, bool, float]:
    """Sort key: furthest below the normal band first, then without noise estimate, then without result."""
    multiple = row.position.multiple if row.position else None
    return row.late, multiple is None, multiple or 0.0


def _overview_values(machine: data.SystemEntry, rows: Sequence[SeriesTableRow]) -> dict[str, Any]:
    """Values of the template for the table and the heat map of a system."""
    active_rows = [row for row in rows if not row.gone]
    return {
        "rows": rows,
        "heat": build_heat_map(active_rows, lambda row: row.series.row),
        "newest": machine.newest_session,
        "assessed": any(row.gain is not None for row in rows),
        "least": MIN_OBSERVATIONS,
        "choices": _filter_choices(rows),
        "columns": _COLUMNS,
        "published": any(row.of_published is not None for row in rows),
        "peak": any(row.of_peak is not None for row in rows),
        "days": OVERVIEW_SESSIONS,
        "others": [series for series in machine.series if not series.headline],
    }


def _filter_choices(rows: Sequence[SeriesTableRow]) -> dict[str, list[str]]:
    """Values of each filter of the table, without filters that have one value only or too many."""
    values: dict[str, set[str]] = {name: set() for name in (*_COLUMNS, "benchmark", "stack")}
    for row in rows:
        case = row.series.row.case
        for name in _COLUMNS:
            values[name].add(str(case.parameters.get(name, "")))
        values["benchmark"].add(case.benchmark)
        values["stack"].add(row.series.row.stack)
    choices: dict[str, list[str]] = {}
    for name, names in values.items():
        if name in _COLUMNS:
            # Cases without the parameter.
            names.discard("")
        if 1 < len(names) <= _MAX_CHOICES:
            choices[name] = sorted(names)
    return choices


def series_rows(site: data.SiteBuild, machine: data.SystemEntry) -> list[SeriesTableRow]:
    """Rows of the monitored series, those furthest below their level first, inactive ones last."""
    return site.compute_once("series rows", machine, lambda: _read_series_rows(site, machine))


def _read_series_rows(site: data.SiteBuild, machine: data.SystemEntry) -> list[SeriesTableRow]:
    if machine.newest_session is None:
        return []
    newest = machine.newest_session.started_at
    points = levels.recent_observations(site, machine)
    suspected_ids = {suspected.series.row.id for suspected in levels.find_suspected_series(machine)}
    rows: list[SeriesTableRow] = []
    for series in machine.watched:
        is_suspected = series.row.id in suspected_ids
        row = _series_row(series, points, newest, site, is_suspected)
        if row is not None:
            rows.append(row)
    return sorted(rows, key=lambda row: (row.gone, row.gain is None, row.gain or 0.0))


def _series_row(
    series: data.SeriesEntry,
    recent_points: Mapping[int, SeriesPoints],
    newest: int,
    site: data.SiteBuild,
    is_suspected: bool,
) -> SeriesTableRow | None:
    """Row of a series; None if none of its results can have been measured (the verdict reports them).

    Args:
        recent_points: recent observations, by series id.
        newest: start of the newest session, epoch seconds.
        is_suspected: whether its newest observations differ, without a finding.
    """
    points = recent_points[series.row.id]
    if not len(points.time):
        # The series has ended before the recent observations.
        points = load_observations(site.history, [series.row], with_saturated=True)[series.row.id]
    if not len(points.time):
        return None
    times = points.time.tolist()
    headlines = series.metric.best_bound(points.min, points.max).tolist()
    newest_time = times[-1]
    newest_value = headlines[-1]
    accepted = levels.accepted_level(series, headlines)
    position = None
    if accepted is not None:
        position = levels.band_position(series, newest_value, accepted.value)
    cells = _session_kinds(series, zip(times, headlines, strict=True), accepted, newest)
    published = series.limits.published
    peak = series.limits.peak
    return SeriesTableRow(
        series=series,
        newest=newest_value,
        time=newest_time,
        late=newest_time < newest - levels.SESSION_SLACK_S,
        gone=newest_time < newest - OVERVIEW_SESSIONS * drawing.DAY_S,
        accepted=accepted,
        position=position,
        strip=drawing.strip_picture(cells),
        of_published=newest_value / published.value if published else None,
        of_peak=newest_value / peak if peak else None,
        states=_finding_states(series, is_suspected),
    )


def _finding_states(series: data.SeriesEntry, is_suspected: bool) -> tuple[str, ...]:
    """State of the newest undecided finding, and `suspected` if the newest observations differ in addition."""
    undecided = [finding.state for finding in series.findings if finding.state in levels.UNDECIDED_STATES]
    states = undecided[:1]
    if is_suspected and "suspected" not in states:
        states.append("suspected")
    return tuple(states)


def _session_kinds(
    series: data.SeriesEntry, points: Iterable[tuple[int, float]], accepted: levels.AcceptedLevel | None, newest: int
) -> list[str]:
    """Style class of each of the newest days, oldest first: `none` without data, `unassessed` without a band.

    Args:
        points: time (epoch s) and headline of each observation.
        newest: start of the newest session, epoch seconds.
    """
    cells = ["none"] * OVERVIEW_SESSIONS
    for time, value in points:
        days_from_newest = (time - newest + levels.SESSION_SLACK_S) // drawing.DAY_S
        cell = OVERVIEW_SESSIONS - 1 + days_from_newest
        if not 0 <= cell < OVERVIEW_SESSIONS:
            continue
        position = None
        if accepted is not None:
            position = levels.band_position(series, value, accepted.value)
        cells[cell] = position.kind if position else levels.NO_BAND
    return cells
