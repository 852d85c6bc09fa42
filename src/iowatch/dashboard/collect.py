"""What the pages show, read from the history once: frozen records, no markup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iowatch.metrics import METRICS, Metric
from iowatch.store import ExpectedResult, History, RunRow, SeriesPoints, SeriesRow, SessionRow


@dataclass(frozen=True)
class Night:
    """A system's latest session: what came, what failed, what is absent."""

    session: SessionRow
    runs: Sequence[RunRow]
    absent: Sequence[ExpectedResult]

    @property
    def failed(self) -> list[RunRow]:
        """Runs that did not end well."""
        return [run for run in self.runs if run.status != "ok"]


@dataclass(frozen=True)
class SeriesView:
    """A series with its summaries in time order."""

    row: SeriesRow
    points: SeriesPoints

    @property
    def metric(self) -> Metric:
        """Facts of its metric."""
        return METRICS[self.row.metric]

    @property
    def page(self) -> str:
        """Path of its page in the site."""
        return f"series/{self.row.id}.html"


def night(history: History, session: SessionRow) -> Night:
    """One session with its runs and what did not come."""
    came = set(history.received(session.uuid))
    absent = [item for item in history.expected(session.uuid) if item not in came]
    return Night(session, history.runs(session.uuid), absent)


def series_views(history: History) -> list[SeriesView]:
    """All series that have points."""
    rows = [row for row in history.series() if row.n and row.metric in METRICS]
    points = history.points([row.id for row in rows])
    return [SeriesView(row, points[row.id]) for row in rows]
