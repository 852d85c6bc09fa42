"""The newest result of each series as OpenMetrics text, for node_exporter's textfile collector.

Prometheus wants base units (bytes, seconds) and the unit in the name; the textfile collector refuses
timestamps, so the time of a result is a metric of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from iowatch.metrics import Metric, metric
from iowatch.model import summarise
from iowatch.store.results import ResultRow
from iowatch.units import MIB

_STATISTICS = ("max", "median", "min", "mean")
# Prometheus' word for a unit, and what our unit is multiplied with.
_UNITS = {"MiB/s": ("bytes_per_second", MIB), "s": ("seconds", 1), "1/s": ("per_second", 1), "1": ("", 1)}
# Words that Prometheus keeps for other kinds of metrics.
_RESERVED = ("_total", "_count", "_sum", "_bucket", "_info", "_created")


@dataclass(frozen=True, slots=True)
class _Family:
    """One metric family: name, unit in Prometheus' words, help, factor from our unit."""

    name: str
    unit: str
    text: str
    factor: float


_AGE = _Family("iowatch_result_timestamp_seconds", "seconds", "Start of the run, seconds since 1970.", 1)
_SAMPLES = _Family("iowatch_result_samples", "", "Repetitions of the run.", 1)


def _family(facts: Metric) -> _Family:
    unit, factor = _UNITS[facts.unit]
    stem = f"iowatch_{facts.name}"
    if stem.endswith(_RESERVED) or (not unit and stem == "iowatch_count"):
        stem += "_value"
    name = f"{stem}_{unit}" if unit else stem
    return _Family(name, unit, f"{facts.label} of the newest run.", factor)


def write_openmetrics(rows: Iterable[ResultRow], stream: BinaryIO) -> None:
    """One gauge a metric, by series and statistic; families in order of their names."""
    families: dict[_Family, list[str]] = {}
    for row in _newest(rows):
        for family, labels, value in _lines(row):
            families.setdefault(family, []).append(f"{family.name}{{{labels}}} {value!r}")
    for family in sorted(families, key=lambda each: each.name):
        head = [f"# HELP {family.name} {family.text}", f"# TYPE {family.name} gauge"]
        head += [f"# UNIT {family.name} {family.unit}"] if family.unit else []
        stream.write("\n".join([*head, *families[family], ""]).encode())
    stream.write(b"# EOF\n")


def _newest(rows: Iterable[ResultRow]) -> list[ResultRow]:
    found: dict[tuple[str, ...], ResultRow] = {}
    for row in rows:
        key = (row.system, row.partition, row.stack, row.case.key, row.metric)
        if row.status == "ok" and (key not in found or found[key].time <= row.time):
            found[key] = row
    return list(found.values())


def _lines(row: ResultRow) -> list[tuple[_Family, str, float]]:
    family = _family(metric(row.metric))
    labels = _series_labels(row)
    summary = summarise(row.samples)
    about = _labels({**labels, "metric": row.metric})
    values = [
        (family, _labels({**labels, "statistic": name}), getattr(summary, name) * family.factor)
        for name in _STATISTICS
    ]
    return [*values, (_AGE, about, float(row.time)), (_SAMPLES, about, float(summary.n))]


def _series_labels(row: ResultRow) -> dict[str, str]:
    parameters = row.case.parameters
    return {
        "system": row.system,
        "partition": row.partition,
        "stack": row.stack,
        "benchmark": row.case.benchmark,
        "operation": str(parameters.get("operation", "")),
        "api": str(parameters.get("api", "")),
        "case": row.case.key,
    }


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
