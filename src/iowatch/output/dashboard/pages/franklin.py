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
    return [_build_row(site, series) for series in franklin_scenario().series]


def _build_row(site: SiteBuild, series: SimulatedSeries) -> ReplayedRow:
    parameters = series.parameters
    unit = METRICS[series.metric].unit
    before, after = (f"{format_number(level)} {unit}" for _, level in series.levels)
    operation = f"{parameters['operation']} {parameters['api']} {parameters['file']}"
    if "transfer_bytes" in parameters:
        operation += f", {parameters['transfer_bytes']} B"
    operation += f", {parameters['ranks']} ranks"
    benchmark = "ior" if series.benchmark == "ior" else "benchio"
    return ReplayedRow(
        program=series.benchmark,
        operation=operation,
        before=before,
        after=after,
        source=series.source,
        suite=f"franklin-small of {benchmark}",
        measured=_newest_value(site, series),
    )


def _newest_value(site: SiteBuild, replayed: SimulatedSeries) -> MeasuredValue | None:
    """The newest value of the same in any other system; None if none has measured it plausibly."""
    series = _newest_series(site, replayed)
    if series is None:
        return None
    machine = next(machine for machine in site.catalogue.machines if machine.name == series.row.system)
    # An observation that ends with a retest begins with an earlier run.
    since = series.stamp.last - DAY_S
    points = load_observations(site.history, [series.row], since, sessions=machine.sessions, with_saturated=True)[
        series.row.id
    ]
    if not len(points.time):
        return None
    headline = float(series.metric.best_bound(points.min, points.max)[-1])
    value = f"{format_number(headline)} {series.metric.unit}"
    return MeasuredValue(series, value, series.row.case.parameters.get("ranks"), series.stamp.last)


def _newest_series(site: SiteBuild, replayed: SimulatedSeries) -> SeriesEntry | None:
    """Of all series that measure the same as the replayed one, that with the newest observation."""
    benchmark, parameters = measured_case(replayed)
    same_series: list[SeriesEntry] = []
    for machine in site.catalogue.machines:
        # Franklin itself is the replay.
        if machine.name == FRANKLIN_SYSTEM:
            continue
        for series in machine.series:
            case = series.row.case
            is_same_case = case.benchmark == benchmark and parameters.items() <= case.parameters.items()
            if is_same_case and series.row.metric == replayed.metric:
                same_series.append(series)
    return max(same_series, key=lambda series: (series.stamp.last, -series.row.id), default=None)


def publish_franklin_page(site: SiteBuild) -> None:
    """Write `franklin.html`."""
    site.write_page("franklin.html", "franklin.html", rows=replayed_rows(site))


PAGE = Page("franklin.html", "Franklin 2009", None, publish_franklin_page)
