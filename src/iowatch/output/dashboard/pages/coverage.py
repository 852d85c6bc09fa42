"""Coverage: expected and received results, session by session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from iowatch.core import format_count
from iowatch.output.dashboard import data, drawing, safe_file_name
from iowatch.store import SessionRow, bulk

COVERAGE_SESSIONS = 42
_CELL, _HEIGHT = 9, 18
# Maximum number of cells of one gap, to limit the length of a strip.
_MAX_MISSED_CELLS = 14
ExpectedReceived = tuple[int, int]


@dataclass(frozen=True)
class CoverageCounts:
    """Counts of expected and received results: by session, and by run name in each session.

    `counts[run name][session]` is (expected, received); a run that was not expected is not in it. `missed` are
    the sessions that should have taken place before a session, by the usual interval of the system.
    """

    sessions: Sequence[SessionRow]
    totals: Mapping[int, ExpectedReceived]
    counts: Mapping[str, Mapping[int, ExpectedReceived]]
    failed: Mapping[int, int]
    missed: Mapping[int, int]


@dataclass(frozen=True)
class RunCounts:
    """Results of a run, or of all runs of a system, over all sessions."""

    name: str
    expected: int
    received: int
    strip: Markup

    @property
    def share(self) -> float | None:
        """Received / expected results, 0 to 1; None if none was expected."""
        return self.received / self.expected if self.expected else None


def coverage_page_path(machine: data.SystemEntry) -> str:
    """Path of the coverage page of a system."""
    return f"coverage/{safe_file_name(machine.name)}.html"


def publish_coverage_pages(site: data.SiteBuild) -> None:
    """Write `coverage/<system>.html` for each system, and `coverage.html`, which links to them."""
    systems = []
    for machine in site.catalogue.machines:
        counts, overdue = count_coverage(site, machine), data.is_overdue(machine, site.now)
        rows = [_run_row(name, by_session, counts) for name, by_session in sorted(counts.counts.items())]
        site.write_page(
            coverage_page_path(machine),
            "coverage.html",
            machine=machine,
            rows=sorted(rows, key=lambda row: row.share or 0.0),
            sessions=_session_rows(counts),
            overdue=overdue,
        )
        systems.append((machine, _run_row(coverage_page_path(machine), counts.totals, counts), counts, overdue))
    site.write_page("coverage.html", "coverage_index.html", systems=systems, sessions=COVERAGE_SESSIONS)


PAGE = data.Page("coverage.html", "Coverage", 4, publish_coverage_pages)


def count_coverage(site: data.SiteBuild, machine: data.SystemEntry) -> CoverageCounts:
    """Counts of the newest sessions of a system."""
    return site.compute_once("coverage", machine, lambda: _read_coverage(site, machine))


def _read_coverage(site: data.SiteBuild, machine: data.SystemEntry) -> CoverageCounts:
    chosen = list(machine.sessions[:COVERAGE_SESSIONS])[::-1]
    numbers = [session.id for session in chosen]
    received: set[tuple[int, str, str, str, str, str]] = set()
    expected: dict[int, list[tuple[str, bool]]] = defaultdict(list)
    failed: dict[int, int] = defaultdict(int)
    with site.history.reading() as connection:
        for session, name, number in bulk.received_by_session(connection, numbers):
            row = site.catalogue.by_id[number].row if number in site.catalogue.by_id else None
            if row is not None:
                operation = str(row.case.parameters.get("operation", ""))
                received.add((session, name, row.partition, row.stack, operation, row.metric))
        for item in bulk.session_expectations(connection, numbers):
            expected[item[0]].append((item[1], item in received))
        for session, _name, status, _stack in bulk.run_statuses(connection, numbers):
            failed[session] += status != "ok"
    counts: dict[str, dict[int, ExpectedReceived]] = defaultdict(dict)
    totals = {}
    for session_id, items in expected.items():
        totals[session_id] = (len(items), sum(ok for _, ok in items))
        for name, ok in items:
            wanted, got = counts[name].get(session_id, (0, 0))
            counts[name][session_id] = (wanted + 1, got + ok)
    return CoverageCounts(chosen, totals, counts, failed, _count_missed_sessions(chosen) if totals else {})


def _count_missed_sessions(sessions: Sequence[SessionRow]) -> dict[int, int]:
    """Number of missed sessions before each session, by its number; sessions are given oldest first."""
    usual = max(drawing.DAY_S, data.usual_interval_s(sessions[::-1]))
    gaps = {b.id: b.started_at - a.started_at for a, b in pairwise(sessions)}
    return {number: round(gap / usual) - 1 for number, gap in gaps.items() if gap > 1.5 * usual}


def _session_rows(counts: CoverageCounts) -> list[dict[str, Any]]:
    """The sessions, newest first; `missed` sessions should have taken place between one and the one `before`."""
    rows: list[dict[str, Any]] = []
    for before, session in zip([None, *counts.sessions], counts.sessions, strict=False):
        expected, received = counts.totals.get(session.id, (0, 0))
        failed, missed = counts.failed.get(session.id, 0), counts.missed.get(session.id, 0)
        row = {"session": session, "page": data.session_page_path(session), "expected": expected, "received": received}
        rows.insert(0, {**row, "failed": failed, "missed": missed, "before": before})
    return rows


def _run_row(name: str, by_session: Mapping[int, ExpectedReceived], counts: CoverageCounts) -> RunCounts:
    """Results of a run, with a strip of one cell per session."""
    expected = sum(expected for expected, _ in by_session.values())
    received = sum(received for _, received in by_session.values())
    return RunCounts(name, expected, received, coverage_strip(by_session, counts))


def coverage_strip(by_session: Mapping[int, ExpectedReceived], counts: CoverageCounts, newest: int = 0) -> Markup:
    """One cell per session, oldest first; with `newest` only so many cells."""
    kinds: list[str] = []
    for session in counts.sessions:
        kinds += ["missed"] * min(counts.missed.get(session.id, 0), _MAX_MISSED_CELLS)
        wanted, got = by_session.get(session.id, (0, 0))
        kinds.append("silent" if not wanted else "full" if got == wanted else "part" if got else "gone")
    kinds = kinds[-newest:]
    # The newest session is always at the right end.
    first = max(0, newest - len(kinds))
    full, part, gone, missed = (kinds.count(kind) for kind in ("full", "part", "gone", "missed"))
    known = format_count(len(kinds) - missed, "session")
    label = f"{known}: {full} complete, {part} in part, {gone} with none; {format_count(missed, 'session')} missed"
    parts = []
    for number, kind in enumerate(kinds):
        # Cells of missing results are also lower, so that the state is not shown by colour only.
        height = {"full": _HEIGHT, "part": _HEIGHT * 2 // 3, "gone": _HEIGHT // 3, "missed": 3}.get(kind, 2)
        place = f'x="{(first + number) * _CELL}" y="{_HEIGHT - height}" width="{_CELL - 1}" height="{height}"'
        parts.append(f'<rect class="{kind}" {place}/>')
    return drawing.svg_picture(max(1, first + len(kinds)) * _CELL, _HEIGHT, label, parts, "strip")
