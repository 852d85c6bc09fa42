"""Metrics for Prometheus: newest results, newest sessions and findings, as OpenMetrics.

The text is for node_exporter's textfile collector, which rejects timestamps: times are metrics of their own. Names are
those of docs/history.md ("Prometheus") and of the alert rules in `dashboards/prometheus`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import BinaryIO, get_args

from iowatch.core import MIB, Case, escape_controls, get_metric, summarise_samples
from iowatch.findings import Finding, FindingState, load_findings
from iowatch.session.coverage import assess_coverage
from iowatch.session.last_sessions import last_in_order
from iowatch.store import History, ResultFilter, ResultRow, SessionRow

# Unit name in Prometheus, which requires base units, and the factor from iowatch's unit.
_BASE_UNITS = {"MiB/s": ("bytes_per_second", MIB), "s": ("seconds", 1), "1/s": ("per_second", 1), "1": ("", 1)}
# Suffixes that Prometheus reserves for other kinds of metrics.
_RESERVED_SUFFIXES = ("_total", "_count", "_sum", "_bucket", "_info", "_created")
_STATISTICS = ("max", "median", "min", "mean")
_CASE_LABELS = ("api", "operation")
# Findings in these states have metrics of their own; of all states there is the number.
_LISTED_STATES: tuple[FindingState, ...] = ("suspected", "open", "acknowledged")
# All metrics but those of results: unit, help.
FAMILIES = {
    "iowatch_result_timestamp_seconds": ("seconds", "Start of the run of the newest result, seconds since 1970."),
    "iowatch_result_samples": ("", "Repetitions of the newest result."),
    "iowatch_session_start_timestamp_seconds": ("seconds", "Start of the newest session, seconds since 1970."),
    "iowatch_session_end_timestamp_seconds": ("seconds", "End of the newest session that ended, seconds since 1970."),
    "iowatch_session_in_order_timestamp_seconds": (
        "seconds",
        "End of the newest session without failed or missing runs and problems, seconds since 1970.",
    ),
    "iowatch_session_expected_results": ("", "Results that the newest session expected."),
    "iowatch_session_missing_results": ("", "Expected results that the newest session lacks, when it has ended."),
    "iowatch_session_failed_runs": ("", "Failed runs of the newest session."),
    "iowatch_findings": ("", "Number of findings by state."),
    "iowatch_finding_needs_action": ("", "1 if the finding is open, or suspected and probably lasting; else 0."),
    "iowatch_finding_gain_ratio": ("ratio", "Mean factor of the performance of the changed series; below 1 is slower."),
    "iowatch_finding_series": ("", "Number of changed series of the finding."),
    "iowatch_finding_start_timestamp_seconds": ("seconds", "First run after the change, seconds since 1970."),
}


@dataclass(frozen=True)
class _Gauge:
    name: str
    unit: str
    text: str
    labels: Mapping[str, str]
    value: float


def write_metrics(history: History, result_filter: ResultFilter, stream: BinaryIO) -> None:
    """Write the newest results that match, and sessions and findings of their system (of all without one).

    A session or finding is not limited by the other fields of the filter.
    """
    system_of_filter = result_filter.series.system
    systems = [system_of_filter] if system_of_filter else history.systems()
    gauges = [*_result_gauges(history.results(result_filter))]
    for system in systems:
        gauges += _session_gauges(history, system)
        gauges += _finding_gauges(load_findings(history, system), system)
    stream.write(_format_gauges(gauges).encode())


def _format_gauges(gauges: Iterable[_Gauge]) -> str:
    """The metrics in the OpenMetrics format, one family per name, in the order of the names."""
    # Imported here: only this format needs it.
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.openmetrics.exposition import generate_latest

    families: dict[str, GaugeMetricFamily] = {}
    for gauge in gauges:
        if gauge.name not in families:
            families[gauge.name] = GaugeMetricFamily(gauge.name, gauge.text, labels=list(gauge.labels), unit=gauge.unit)
        families[gauge.name].add_metric(list(gauge.labels.values()), gauge.value)
    ordered = [families[name] for name in sorted(families)]
    printed: bytes = generate_latest(SimpleNamespace(collect=lambda: ordered))  # type: ignore[no-untyped-call]
    return escape_controls(printed.decode())


def _gauge(name: str, labels: Mapping[str, str], value: float) -> _Gauge:
    unit, text = FAMILIES[name]
    return _Gauge(name, unit, text, labels, value)


def _result_gauges(rows: Iterable[ResultRow]) -> Iterator[_Gauge]:
    """Metrics of the newest result of each series: its statistics, its time and its number of samples."""
    for row in _newest_results(rows):
        labels = _series_labels(row)
        summary = summarise_samples(row.samples)
        family = _result_family(row.metric)
        text = f"{get_metric(row.metric).label} of the newest run."
        for statistic in _STATISTICS:
            value = getattr(summary, statistic) * family.factor
            yield _Gauge(family.name, family.unit, text, {**labels, "statistic": statistic}, value)
        # Metrics that have the same name for all metrics of iowatch need it as a label.
        labels_with_metric = {**labels, "metric": row.metric}
        yield _gauge("iowatch_result_timestamp_seconds", labels_with_metric, float(row.time))
        yield _gauge("iowatch_result_samples", labels_with_metric, float(summary.n))


def _series_labels(row: ResultRow) -> dict[str, str]:
    """Labels that identify a series; `case` has the parameters that have no label of their own."""
    labels = {"system": row.system, "partition": row.partition, "stack": row.stack, "benchmark": row.case.benchmark}
    for name in _CASE_LABELS:
        labels[name] = str(row.case.parameters.get(name) or "")
    labels["case"] = _format_parameters(row.case)
    return labels


def _format_parameters(case: Case) -> str:
    """`file=shared,ranks=4`, in the order of names; the same on every machine, as the key of the case is."""
    parameters = case.without(*_CASE_LABELS).parameters
    return ",".join(f"{name}={value}" for name, value in sorted(parameters.items()) if value is not None)


@dataclass(frozen=True)
class _ResultFamily:
    """Name and unit of a metric in Prometheus, and the factor from iowatch's unit."""

    name: str
    unit: str
    factor: float


def _result_family(metric: str) -> _ResultFamily:
    unit, factor = _BASE_UNITS[get_metric(metric).unit]
    name = f"iowatch_{metric}"
    # A metric without a unit must not get a name that ends like those of other kinds of metrics.
    if name.endswith(_RESERVED_SUFFIXES) or (not unit and name == "iowatch_count"):
        name += "_value"
    if unit:
        name += f"_{unit}"
    return _ResultFamily(name, unit, factor)


def _newest_results(rows: Iterable[ResultRow]) -> list[ResultRow]:
    """The newest complete result of each series; runs of interleaved comparisons are not the system's state."""
    newest: dict[tuple[str, ...], ResultRow] = {}
    for row in rows:
        if row.status != "ok" or row.pair is not None:
            continue
        series = (row.system, row.partition, row.stack, row.case.key, row.metric)
        if series not in newest or newest[series].time <= row.time:
            newest[series] = row
    return list(newest.values())


def _session_gauges(history: History, system: str) -> Iterator[_Gauge]:
    """Metrics of the newest session of each suite that iowatch itself ran.

    The time of the end is that of the newest session that has ended: alerts compare it with the current time, also
    while a session runs or after one that was killed (`dashboards/prometheus/alerts.yaml`).
    """
    newest_sessions: dict[str, SessionRow] = {}
    newest_ends: dict[str, int] = {}
    for session in history.sessions(system):  # the newest first
        if session.origin == "run" and not session.is_interleaved:
            newest_sessions.setdefault(session.suite, session)
            if session.ended_at is not None:
                newest_ends.setdefault(session.suite, session.ended_at)
    for suite, session in newest_sessions.items():
        labels = {"system": system, "suite": suite}
        coverage = assess_coverage(history, session)
        yield _gauge("iowatch_session_start_timestamp_seconds", labels, float(session.started_at))
        yield _gauge("iowatch_session_expected_results", labels, coverage.expected)
        yield _gauge("iowatch_session_failed_runs", labels, len(coverage.failed))
        # A session that still runs has received no result of the runs that follow.
        if session.ended_at is not None:
            yield _gauge("iowatch_session_missing_results", labels, len(coverage.missing_results))
        in_order = last_in_order(history, system, suite).session
        if in_order is not None and in_order.ended_at is not None:
            yield _gauge("iowatch_session_in_order_timestamp_seconds", labels, float(in_order.ended_at))
        if suite in newest_ends:
            yield _gauge("iowatch_session_end_timestamp_seconds", labels, float(newest_ends[suite]))


def _finding_gauges(findings: Iterable[Finding], system: str) -> Iterator[_Gauge]:
    """Numbers of findings by state, also of states without any, and a metric for each listed finding."""
    findings = list(findings)
    for state in get_args(FindingState):
        number = sum(finding.state == state for finding in findings)
        yield _gauge("iowatch_findings", {"system": system, "state": state}, number)
    for finding in findings:
        if finding.state in _LISTED_STATES:
            labels = {"system": system, "finding": finding.id, "state": finding.state}
            yield _gauge("iowatch_finding_needs_action", labels, float(finding.needs_action))
            yield _gauge("iowatch_finding_gain_ratio", labels, finding.size)
            yield _gauge("iowatch_finding_series", labels, finding.changed)
            yield _gauge("iowatch_finding_start_timestamp_seconds", labels, float(finding.first_after))
