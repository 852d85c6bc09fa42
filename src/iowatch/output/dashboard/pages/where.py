"""Where: targets and nodes of a system beside their siblings, session by session, the slowest first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from iowatch.core import format_count
from iowatch.findings import SessionDeviations, SessionMark, SlowParts, find_slow_parts
from iowatch.output.dashboard import data, drawing, safe_file_name
from iowatch.output.text.evidence import format_node_over_sessions, format_slow_target_since, format_speed
from iowatch.site import system_zone

# Rows of a heat map; a line states what the others are.
MAX_ROWS = 40


@dataclass(frozen=True)
class SpeedClass:
    """Style class of the cells from a speed relative to the other targets or nodes on (`least`)."""

    kind: str
    least: float
    words: str


SPEED_CLASSES = (
    SpeedClass("b2", 1.5, "at least 1.5 of the others"),
    SpeedClass("b1", 1.25, "1.25 to 1.5"),
    SpeedClass("same", 0.8, "0.8 to 1.25"),
    SpeedClass("w1", 2 / 3, "0.67 to 0.8"),
    SpeedClass("w2", 0.4, "0.4 to 0.67"),
    SpeedClass("w3", 0.0, "less than 0.4"),
)
"""Best first; below 2/3 a target can be named (`statistics.slow_siblings.MIN_RATIO`)."""


@dataclass(frozen=True)
class SiblingRow:
    """A target or node.

    Attributes:
        location: what a target is called elsewhere; empty for a node.
        newest: speed relative to the median of the others in the newest session that measured it: 0.1 takes ten times
            as long. `lowest`: of all sessions.
        measured: number of sessions that measured it.
        newest_start: of the newest of them, epoch seconds.
        strip: one cell per session.
        is_slow: whether it is named as slow now.
    """

    name: str
    location: str
    newest: float
    lowest: float
    measured: int
    newest_start: int
    strip: Markup
    is_slow: bool


@dataclass(frozen=True)
class SiblingMap:
    """A heat map: the targets of a file system in one operation, or the nodes of a partition.

    Attributes:
        noun: `target` or `node`.
        rows: at most `MAX_ROWS`, those that are slow now first, then by their newest speed.
        total: number of all targets or nodes.
        others: what those without a row are, in words; empty without any.
        sessions: the oldest first.
    """

    title: str
    noun: str
    rows: Sequence[SiblingRow]
    total: int
    others: str
    sessions: Sequence[SessionMark]
    newest_page: str | None

    @property
    def has_locations(self) -> bool:
        """Whether a target is called otherwise in its file system."""
        return any(row.location not in ("", row.name) for row in self.rows)


@dataclass(frozen=True)
class SystemWhere:
    """A system: what is slow, in sentences, and its heat maps."""

    machine: data.SystemEntry
    page: str
    slow: Sequence[str]
    maps: Sequence[SiblingMap]

    @property
    def counts(self) -> str:
        """`24 targets, 96 nodes`: of the largest heat map of each kind."""
        most: dict[str, int] = {}
        for sibling_map in self.maps:
            most[sibling_map.noun] = max(most.get(sibling_map.noun, 0), sibling_map.total)
        return ", ".join(format_count(number, noun) for noun, number in most.items())


def where_page_path(machine: data.SystemEntry) -> str:
    """Path of the page of a system."""
    return f"where/{safe_file_name(machine.name)}.html"


def slow_parts_of(site: data.SiteBuild, machine: data.SystemEntry) -> SlowParts:
    """The slow targets and nodes of a system, which several pages show."""
    return site.compute_once("slow parts", machine, lambda: find_slow_parts(site.history, machine.name))


def slow_part_sentences(slow_parts: SlowParts, machine: data.SystemEntry) -> list[str]:
    """One sentence per slow target and node, the slowest first."""
    zone = system_zone(machine.name)
    sentences = [format_slow_target_since(slow, zone) for slow in slow_parts.targets]
    sentences += [format_node_over_sessions(slow, zone) for slow in slow_parts.nodes]
    return sentences


def publish_where_pages(site: data.SiteBuild) -> None:
    """Write `where/<system>.html` for each system with targets or nodes, and `where.html`, which links to them."""
    systems: list[SystemWhere] = []
    for machine in site.catalogue.machines:
        system = _system_where(site, machine)
        if not system.maps:
            continue
        systems.append(system)
        site.write_page(system.page, "where.html", system=system, classes=SPEED_CLASSES, most=MAX_ROWS)
    site.write_page("where.html", "where_index.html", systems=systems)


PAGE = data.Page("where.html", "Where", 4, publish_where_pages)


def _system_where(site: data.SiteBuild, machine: data.SystemEntry) -> SystemWhere:
    slow_parts = slow_parts_of(site, machine)
    pages = {session.uuid: data.session_page_path(session) for session in machine.sessions}
    slow_targets = {(slow.file_system or "", slow.operation, slow.target) for slow in slow_parts.targets}
    slow_nodes = {(slow.partition, slow.node) for slow in slow_parts.nodes}
    maps: list[SiblingMap] = []
    for table in slow_parts.target_tables:
        names = {name for name in table.names if (table.owner, table.operation, name) in slow_targets}
        file_system = f" of {table.owner}" if table.owner else ""
        title = f"Targets{file_system}: {table.operation}"
        maps.append(_sibling_map(table, title, "target", names, pages))
    for table in slow_parts.node_tables:
        names = {name for name in table.names if (table.owner, name) in slow_nodes}
        maps.append(_sibling_map(table, f"Nodes of partition {table.owner}", "node", names, pages))
    # A single target or node has no sibling.
    shown = [sibling_map for sibling_map in maps if sibling_map.rows]
    return SystemWhere(machine, where_page_path(machine), slow_part_sentences(slow_parts, machine), shown)


def _sibling_map(
    table: SessionDeviations, title: str, noun: str, slow_names: set[str], pages: Mapping[str, str]
) -> SiblingMap:
    """The heat map of a table.

    Args:
        slow_names: of the targets or nodes that are named as slow.
        pages: of sessions by their UUID.
    """
    rows: list[SiblingRow] = []
    for name, deviations in zip(table.names, table.deviations, strict=True):
        if np.any(np.isfinite(deviations)):
            rows.append(_sibling_row(table, name, deviations, name in slow_names))
    rows.sort(key=lambda row: (not row.is_slow, row.newest))
    shown, hidden = rows[:MAX_ROWS], rows[MAX_ROWS:]
    return SiblingMap(
        title=title,
        noun=noun,
        rows=shown,
        total=len(rows),
        others=_describe_hidden(hidden, noun),
        sessions=table.sessions,
        newest_page=pages.get(table.sessions[-1].uuid) if table.sessions else None,
    )


def _sibling_row(table: SessionDeviations, name: str, deviations: NDArray[np.float64], is_slow: bool) -> SiblingRow:
    """The row of a target or node.

    Args:
        deviations: ln(time / median of the others), shape (sessions,), NaN where it was not measured.
    """
    measured = np.flatnonzero(np.isfinite(deviations))
    speeds = np.exp(-deviations)
    cells = [_cell_class(float(speed)) for speed in speeds]
    return SiblingRow(
        name=name,
        location=table.locations.get(name, ""),
        newest=float(speeds[measured[-1]]),
        lowest=float(np.min(speeds[measured])),
        measured=len(measured),
        newest_start=table.sessions[measured[-1]].start,
        strip=drawing.strip_picture(cells, "sessions", "what is usual for the others"),
        is_slow=is_slow,
    )


def _cell_class(speed: float) -> str:
    """Style class of a cell; NaN is a session without data."""
    if math.isnan(speed):
        return "none"
    for speed_class in SPEED_CLASSES:
        if speed >= speed_class.least:
            return speed_class.kind
    return SPEED_CLASSES[-1].kind


def _describe_hidden(rows: Sequence[SiblingRow], noun: str) -> str:
    """`460 more targets: 0.93 to 1.1 of the others in their newest sessions`; empty without any."""
    if not rows:
        return ""
    lowest, highest = format_speed(min(row.newest for row in rows)), format_speed(max(row.newest for row in rows))
    lowest_ever = format_speed(min(row.lowest for row in rows))
    count = format_count(len(rows), f"more {noun}")
    return f"{count}: {lowest} to {highest} of the others in their newest sessions, at least {lowest_ever} in any"
