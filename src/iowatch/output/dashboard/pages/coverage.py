"""Coverage: expected and received results, session by session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from iowatch.core import format_count
from iowatch.output.dashboard import data, drawing, safe_file_name
from iowatch.store import ExpectedResult, SessionRow, bulk

COVERAGE_SESSIONS = 42
_CELL, _HEIGHT = 9, 18
# Height of a cell by its style class: cells of missing results are also lower, so that colour is not the only sign.
_CELL_HEIGHTS = {"full": _HEIGHT, "part": _HEIGHT * 2 // 3, "gone": _HEIGHT // 3, "silent": 2, "missed": 3}
# Maximum number of cells of one gap, to limit the length of a strip.
_MAX_MISSED_CELLS = 14


@dataclass(frozen=True)
class ResultCounts:
    """Number of expected and of received results, of a run or of a session."""

    expected: int = 0
    received: int = 0


@dataclass(frozen=True)
class CoverageCounts:
    """Counts of expected and received results of a system.

    Attributes:
        sessions: the newest sessions, oldest first.
        totals: of all runs, by session id.
        runs: by run name, and by session id; a run that was not expected in a session has no counts of it.
        failed: number of failed runs by session id.
        missed: number of sessions that should have taken place before a session, by the usual interval of the system,
            by session id.
        missed_since_newest: number of those since the newest session, up to the build.
    """

    sessions: Sequence[SessionRow]
    totals: Mapping[int, ResultCounts]
    runs: Mapping[str, Mapping[int, ResultCounts]]
    failed: Mapping[int, int]
    missed: Mapping[int, int]
    missed_since_newest: int = 0

    @property
    def all_missed(self) -> int:
        """Number of missed sessions between the oldest of the sessions and the build."""
        return sum(self.missed.values()) + self.missed_since_newest


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


@dataclass(frozen=True)
class SessionCounts:
    """A session in the table of sessions.

    Attributes:
        page: path of its page.
        failed: number of failed runs.
        before: the night before it.
        missed: number of sessions that should have taken place between it and the one before.
    """

    session: SessionRow
    before: SessionRow | None
    page: str
    expected: int
    received: int
    failed: int
    missed: int


@dataclass(frozen=True)
class SystemCounts:
    """A system in the table of systems; `total` is of all its runs, with the path of its page as name."""

    machine: data.SystemEntry
    total: RunCounts
    counts: CoverageCounts
    overdue: bool


def publish_coverage_pages(site: data.SiteBuild) -> None:
    """Write `coverage/<system>.html` for each system, and `coverage.html`, which links to them."""
    systems: list[SystemCounts] = []
    for machine in site.catalogue.machines:
        counts = count_coverage(site, machine)
        overdue = data.is_overdue(machine, site.now)
        rows = [_run_row(name, by_session, counts) for name, by_session in sorted(counts.runs.items())]
        rows.sort(key=lambda row: row.share or 0.0)
        page = coverage_page_path(machine)
        site.write_page(
            page,
            "coverage.html",
            machine=machine,
            rows=rows,
            sessions=_session_rows(counts),
            overdue=overdue,
            newest_night=machine.sessions_of_suites[0] if machine.sessions_of_suites else None,
            missed=counts.missed_since_newest,
        )
        systems.append(SystemCounts(machine, _run_row(page, counts.totals, counts), counts, overdue))
    site.write_page("coverage.html", "coverage_index.html", systems=systems, sessions=COVERAGE_SESSIONS)


PAGE = data.Page("coverage.html", "Coverage", 4, publish_coverage_pages)


def count_coverage(site: data.SiteBuild, machine: data.SystemEntry) -> CoverageCounts:
    """Counts of the newest sessions of a system."""
    return site.compute_once("coverage", machine, lambda: _read_coverage(site, machine))


def _read_coverage(site: data.SiteBuild, machine: data.SystemEntry) -> CoverageCounts:
    """Count the expected and received results of the newest sessions of a system."""
    oldest_first = list(reversed(machine.sessions[:COVERAGE_SESSIONS]))
    session_ids = [session.id for session in oldest_first]
    received: dict[int, set[ExpectedResult]] = defaultdict(set)
    expected: dict[int, list[ExpectedResult]] = defaultdict(list)
    failed: dict[int, int] = defaultdict(int)
    with site.history.reading() as connection:
        for session_id, run_name, series_id in bulk.received_by_session(connection, session_ids):
            series = site.catalogue.by_id.get(series_id)
            if series is not None:
                row = series.row
                operation = str(row.case.parameters.get("operation", ""))
                result = ExpectedResult(run_name, row.partition, row.stack, operation, row.metric)
                received[session_id].add(result)
        expectations = bulk.session_expectations(connection, session_ids)
        for session_id, run_name, partition, stack, operation, metric in expectations:
            expected[session_id].append(ExpectedResult(run_name, partition, stack, operation, metric))
        for session_id, _name, status, _stack in bulk.run_statuses(connection, session_ids):
            failed[session_id] += status != "ok"
    totals: dict[int, ResultCounts] = {}
    runs: dict[str, dict[int, ResultCounts]] = defaultdict(dict)
    for session_id, expected_results in expected.items():
        results_of_run: dict[str, list[ExpectedResult]] = defaultdict(list)
        for result in expected_results:
            results_of_run[result.run_name].append(result)
        totals[session_id] = _count_results(expected_results, received[session_id])
        for run_name, run_results in results_of_run.items():
            runs[run_name][session_id] = _count_results(run_results, received[session_id])
    # Without expected sets, as of imports, there is no schedule from which a session could be missing.
    missed = _count_missed_sessions(oldest_first) if totals else {}
    missed_since_newest = data.missed_since_newest(machine, site.now) if totals else 0
    return CoverageCounts(oldest_first, totals, runs, failed, missed, missed_since_newest)


def _count_results(expected: Sequence[ExpectedResult], received: Set[ExpectedResult]) -> ResultCounts:
    return ResultCounts(len(expected), sum(result in received for result in expected))


def _count_missed_sessions(sessions: Sequence[SessionRow]) -> dict[int, int]:
    """Number of missed sessions before each session, by its id; sessions are given oldest first.

    An experiment between two nights is no night.
    """
    nights = [session for session in sessions if not session.is_experiment]
    usual_s = max(drawing.DAY_S, data.usual_interval_s(nights[::-1]))
    missed: dict[int, int] = {}
    for before, session in pairwise(nights):
        gap_s = session.started_at - before.started_at
        if gap_s > 1.5 * usual_s:
            missed[session.id] = round(gap_s / usual_s) - 1
    return missed


def _session_rows(counts: CoverageCounts) -> list[SessionCounts]:
    """The sessions, newest first."""
    rows: list[SessionCounts] = []
    before: SessionRow | None = None
    for session in counts.sessions:
        total = counts.totals.get(session.id, ResultCounts())
        rows.append(
            SessionCounts(
                session=session,
                before=before,
                page=data.session_page_path(session),
                expected=total.expected,
                received=total.received,
                failed=counts.failed.get(session.id, 0),
                missed=counts.missed.get(session.id, 0),
            )
        )
        if not session.is_experiment:
            before = session
    rows.reverse()
    return rows


def _run_row(name: str, counts_of_session: Mapping[int, ResultCounts], counts: CoverageCounts) -> RunCounts:
    """Results of a run, with a strip of one cell per session."""
    expected = sum(session_counts.expected for session_counts in counts_of_session.values())
    received = sum(session_counts.received for session_counts in counts_of_session.values())
    return RunCounts(name, expected, received, coverage_strip(counts_of_session, counts))


def coverage_strip(
    counts_of_session: Mapping[int, ResultCounts], counts: CoverageCounts, max_cells: int | None = None
) -> Markup:
    """One cell per session, oldest first; sessions that were missed up to the build are at the right end.

    Args:
        counts_of_session: of a run or of all runs, by session id.
        max_cells: number of newest cells that are drawn [default: all]; fewer are drawn at the right end.
    """
    # A strip of limited length has no room for the last sessions of a system that has stopped long ago.
    max_missed = _MAX_MISSED_CELLS if max_cells is None else max_cells
    missed_at_end = min(counts.missed_since_newest, max_missed)
    cells: list[str] = []
    for session in counts.sessions:
        missed_sessions = counts.missed.get(session.id, 0)
        cells += ["missed"] * min(missed_sessions, _MAX_MISSED_CELLS)
        cells.append(_cell_class(counts_of_session.get(session.id, ResultCounts())))
    cells += ["missed"] * missed_at_end
    first = 0
    if max_cells is not None:
        cells = cells[-max_cells:]
        # The newest cell is always at the right end.
        first = max_cells - len(cells)
    missed = cells.count("missed")
    session_count = format_count(len(cells) - missed, "session")
    states = f"{cells.count('full')} complete, {cells.count('part')} in part, {cells.count('gone')} with none"
    missed += counts.missed_since_newest - missed_at_end
    label = f"{session_count}: {states}; {format_count(missed, 'session')} missed"
    parts: list[str] = []
    for position, cell in enumerate(cells, start=first):
        height = _CELL_HEIGHTS[cell]
        size = f'width="{_CELL - 1}" height="{height}"'
        parts.append(f'<rect class="{cell}" x="{position * _CELL}" y="{_HEIGHT - height}" {size}/>')
    width = max(1, first + len(cells)) * _CELL
    return drawing.svg_picture(width, _HEIGHT, label, parts, "strip")


def _cell_class(counts: ResultCounts) -> str:
    """Style class of the cell of a session."""
    if not counts.expected:
        return "silent"
    if counts.received == counts.expected:
        return "full"
    return "part" if counts.received else "gone"
