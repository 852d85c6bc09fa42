"""Franklin 2009: the series that `iowatch demo franklin` replays, and what was measured of the same here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iowatch.core import DAY_S, METRICS, Scalar, format_number
from iowatch.demo.scenarios import FRANKLIN_SYSTEM, SimulatedSeries, franklin_scenario
from iowatch.findings import load_observations
from iowatch.output.dashboard import Page, SiteBuild
from iowatch.output.dashboard.data import SeriesEntry

# Replayed benchmark and operation -> workload of benchio and its operation; IOR measures its own.
_WORKLOADS = {
    ("madbench2", "run"): ("madbench2", "run"),
    ("flash", "write"): ("flash-io", "checkpoint write"),
    ("flash", "read"): ("flash-io", "restart read"),
    ("s3d", "write"): ("s3d-io-files", "checkpoint write"),
}
# Parameters that are those of the paper; ranks and sizes of a suite for a node are others.
_SAME = ("api", "file", "transfer_bytes")


@dataclass(frozen=True)
class MeasuredValue:
    """The newest value of a series here, with its unit and ranks."""

    series: SeriesEntry
    value: str
    ranks: Scalar | None
    time: int


@dataclass(frozen=True)
class ReplayedRow:
    """One replayed series: values before and after the maintenance, and what measures the same here."""

    program: str
    operation: str
    before: str
    after: str
    source: str
    suite: str
    measured: MeasuredValue | None


def measured_case(series: SimulatedSeries) -> tuple[str, Mapping[str, Scalar]]:
    """Return the benchmark and the parameters of the cases here that repeat a replayed series."""
    operation = str(series.parameters["operation"])
    benchmark, operation = _WORKLOADS.get((series.benchmark, operation), (series.benchmark, operation))
    same = {name: value for name, value in series.parameters.items() if name in _SAME}
    return benchmark, {"operation": operation, **same}


def replayed_rows(site: SiteBuild) -> list[ReplayedRow]:
    """Return all replayed series in their order."""
    return [_build_row(site, one) for one in franklin_scenario().series]


def _build_row(site: SiteBuild, series: SimulatedSeries) -> ReplayedRow:
    parameters, unit = series.parameters, METRICS[series.metric].unit
    before, after = (f"{format_number(level)} {unit}" for _, level in series.levels)
    size = f", {parameters['transfer_bytes']} B" if "transfer_bytes" in parameters else ""
    what = f"{parameters['operation']} {parameters['api']} {parameters['file']}{size}, {parameters['ranks']} ranks"
    suite = f"franklin-small of {'ior' if series.benchmark == 'ior' else 'benchio'}"
    return ReplayedRow(series.benchmark, what, before, after, series.source, suite, _newest(site, series))


def _newest(site: SiteBuild, series: SimulatedSeries) -> MeasuredValue | None:
    """The newest value of any other system; None if none has measured the same."""
    benchmark, same = measured_case(series)
    found = [
        (one, machine.sessions)
        for machine in site.catalogue.machines
        if machine.name != FRANKLIN_SYSTEM
        for one in machine.series
        if one.row.case.benchmark == benchmark
        and one.row.metric == series.metric
        and same.items() <= one.row.case.parameters.items()
    ]
    if not found:
        return None
    newest, sessions = max(found, key=lambda one: (one[0].stamp.last, -one[0].row.id))
    since = newest.stamp.last - DAY_S  # the first run of an observation that ends with a retest
    points = load_observations(site.history, [newest.row], since, sessions=sessions)[newest.row.id]
    value = float(newest.metric.best_bound(points.min, points.max)[-1])
    text = f"{format_number(value)} {newest.metric.unit}"
    return MeasuredValue(newest, text, newest.row.case.parameters.get("ranks"), newest.stamp.last)


def publish_franklin_page(site: SiteBuild) -> None:
    """Write `franklin.html`."""
    site.write_page("franklin.html", "franklin.html", rows=replayed_rows(site))


PAGE = Page("franklin.html", "Franklin 2009", None, publish_franklin_page)
