"""A short page for each older session: its runs with their headlines, so that every sample leads to its run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from iowatch.dashboard.catalogue import Machine, Series
from iowatch.dashboard.context import Site
from iowatch.dashboard.nights import judged, page_of, shown_sessions
from iowatch.dashboard.parallel import in_parallel
from iowatch.store import ExpectedResult, RunRow, SessionRow, bulk
from iowatch.store.records import Artefact
from iowatch.units import format_number

Item = tuple[Machine, SessionRow]
Told = Sequence[tuple[Series, tuple[float, ...]]]


def publish(site: Site) -> None:
    """Write `session/<uuid>.html` for the sessions that have no long page (`pages.session`)."""
    stale: list[Item] = []
    for machine in site.catalogue.machines:
        long = {row.id for row in shown_sessions(machine, site.nights)}
        for row in machine.sessions:
            basis = ["short", row.uuid, row.status, row.ended_at, row.runs]
            if row.id not in long and not site.writer.fresh(page_of(row), site.digest(basis)):
                stale.append((machine, row))

    def write(items: Sequence[Item]) -> None:
        for machine, row in items:
            site.writer.write(page_of(row), site.render(page_of(row), "past.html", _values(site, machine, row)))

    if stale:
        site.writer.settle()
    elsewhere = in_parallel(site.history, write, stale)
    site.writer.written += elsewhere


def _values(site: Site, machine: Machine, row: SessionRow) -> dict[str, Any]:
    with site.history.reading() as connection:
        kept = bulk.session_artefacts(connection, row.id)
        results = bulk.session_results(connection, row.id)
        runs = bulk.session_runs(connection, row.id)
    known = site.catalogue.by_id
    told = {
        run.id: [(known[number], samples) for number, samples in results.get(run.id, ()) if number in known]
        for run in runs
    }
    came = {_received(run, one) for run in runs for one, _ in told[run.id]}
    return {
        "machine": machine,
        "night": judged(site.history, row, runs, came),
        "rows": [(run, list(_headlines(told[run.id])), _files(kept.get(run.id, ()))) for run in runs],
        "kept": bool(kept),
        "nights": site.nights,
    }


def _received(run: RunRow, series: Series) -> ExpectedResult:
    operation = str(series.row.case.parameters.get("operation", ""))
    return ExpectedResult(run.name, series.row.partition, series.row.stack, operation, series.row.metric)


def _headlines(told: Told) -> Iterator[tuple[str, str, str]]:
    """Path, operation and value of each series that is watched; of all series where none is."""
    for one, samples in [(one, samples) for one, samples in told if one.headline] or told:
        value = min(samples) if one.metric.direction == "lower" else max(samples)
        operation = str(one.row.case.parameters.get("operation", one.metric.label))[:30]
        yield one.page, operation, f"{format_number(value)} {one.metric.unit}"


def _files(kept: Sequence[Artefact]) -> str:
    return ", ".join(f"{one.kind} {one.sha256[:12]}" for one in kept)
