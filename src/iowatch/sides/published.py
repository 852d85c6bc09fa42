"""Published tables as a side: printed figures without samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from iowatch.compare import Printed
from iowatch.errors import UsageError
from iowatch.model import Case, Scalar
from iowatch.reference import longform, published
from iowatch.sides.entries import Entry
from iowatch.units import MIB, mib_per_s

# Columns of the long form in the words of docs/architecture.md, "Case parameters".
_NAMES = {
    "writers": "ranks",
    "total_mib": "total_bytes",
    "stripe_size_mib": "stripe_bytes",
    "transfer_mib": "transfer_bytes",
    "chunk_mib": "chunk_bytes",
    "alignment_mib": "alignment_bytes",
}
_STATISTICS = {"count": "n", "max": "max", "median": "median", "mean": "mean", "min": "min"}
_BESIDE = {"system", "benchmark", "statistic", "value", "unit"}


def entries(name: str) -> list[Entry]:
    """Cases of `SOURCE/TABLE`.

    Raises:
        UsageError: no such source or table, or one without measurements.
    """
    source, separator, table = name.partition("/")
    if not separator:
        raise UsageError(f"'{name}' is not SOURCE/TABLE", hint="For example published:000/13")
    cells: dict[tuple[str, Case, str], dict[str, float]] = defaultdict(dict)
    for row in longform.measurements(published.load(source, table)):
        metric, value = _value(row)
        statistic = _STATISTICS.get(str(row["statistic"]))
        if metric and statistic:
            system = str(row["system"] or "")
            cells[system, _case(row), metric].setdefault(statistic, value)
    return [_entry(system, case, metric, found) for (system, case, metric), found in cells.items()]


def _entry(system: str, case: Case, metric: str, found: Mapping[str, float]) -> Entry:
    n = found.get("n")
    values = {name: found.get(name) for name in ("max", "median", "mean", "min")}
    printed = Printed(n=None if n is None else int(n), **values)
    return Entry(case, metric, {"system": system} if system else {}, printed)


def _value(row: Mapping[str, Scalar | None]) -> tuple[str | None, float]:
    """Metric and value of a measurement in the metric's unit."""
    unit, value = str(row["unit"]), row["value"]
    if not isinstance(value, int | float):
        return None, 0.0
    if row["statistic"] == "count" or unit.endswith("B/s"):
        return "bandwidth", float(value) if row["statistic"] == "count" else mib_per_s(float(value), unit)
    return {"s": "time", "1/s": "rate"}.get(unit), float(value)


def _case(row: Mapping[str, Scalar | None]) -> Case:
    parameters: dict[str, Scalar] = {}
    for name, value in row.items():
        if value is not None and name not in _BESIDE:
            scaled = int(float(value) * MIB) if name.endswith("_mib") else value
            parameters[_NAMES.get(name, name)] = scaled
    return Case(str(row["benchmark"]), parameters)
