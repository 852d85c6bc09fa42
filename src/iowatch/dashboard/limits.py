"""What a series is held against: its reference, a published figure, the theoretical peak."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from iowatch.model import Scalar
from iowatch.reference import longform, published
from iowatch.reference.bandwidth import References
from iowatch.reference.peak import has_peak, peak_mib_per_s
from iowatch.store import SeriesRow
from iowatch.systems import System
from iowatch.units import MIB


@dataclass(frozen=True, slots=True)
class Reference:
    """The accepted value with its bounds (None where there is none), and who accepted it when and why."""

    value: float
    lower: float | None
    upper: float | None
    by: str
    date: str
    why: str


@dataclass(frozen=True, slots=True)
class Published:
    """A figure that a paper printed for the same case; `where` is source and table (`000/2`)."""

    value: float
    statistic: str
    where: str
    title: str


@dataclass(frozen=True, slots=True)
class Limits:
    """As far as known; all values in the series' unit."""

    reference: Reference | None = None
    published: Published | None = None
    peak: float | None = None


def limits_of(row: SeriesRow, facts: System | None, references: References | None) -> Limits:
    """Everything that a series is held against."""
    parameters = row.case.parameters
    operation = str(parameters.get("operation", ""))
    peak = None
    if facts is not None and has_peak(row.metric):
        storage = parameters.get("file_system")
        peak = peak_mib_per_s(facts.file_systems, operation, str(storage) if storage else None)
    return Limits(_reference(row, references, operation), _published(row), peak)


def _reference(row: SeriesRow, references: References | None, operation: str) -> Reference | None:
    if references is None or not references.entries:
        return None
    entry = references.find(row.partition, row.stack, row.case.parameters, operation, row.metric)
    if entry is None:
        return None
    told = entry.provenance
    return Reference(entry.value, entry.lower, entry.upper, told.by, told.date.isoformat(), told.why)


# How the long form of published tables calls a case's parameters, and in which unit.
_SAME = ("api", "operation", "pattern", "local_size", "stripe_count", "file_system")


@cache
def _measurements() -> Mapping[str, tuple[Mapping[str, Any], ...]]:
    """Printed bandwidths by system; the maximum first, which is the headline (source 000, section 6)."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for table in published.load_all():
        if longform.has_long_form(table):
            where = {"where": f"{table.source}/{table.name}", "title": table.sidecar.title}
            for one in longform.measurements(table):
                found.setdefault(str(one["system"]), []).append({**one, **where})
    order = {"max": 0, "mean": 1, "median": 2}
    return {
        name: tuple(sorted(rows, key=lambda r: order.get(str(r["statistic"]), 9)))
        for name, rows in found.items()
    }


def measurements(system: str) -> tuple[Mapping[str, Any], ...]:
    """Printed figures of one system in long form, with `where` and `title` of their table."""
    return _measurements().get(system, ())


def published_systems() -> list[str]:
    """Systems of which papers print figures."""
    return sorted(_measurements())


def _published(row: SeriesRow) -> Published | None:
    """The printed figure of the same case: every parameter that both name is the same, and the writers are."""
    if row.metric != "bandwidth":
        return None
    parameters = row.case.parameters
    for one in measurements(row.system):
        if one["statistic"] in ("max", "mean", "median") and _fits(parameters, one):
            return Published(float(one["value"]), str(one["statistic"]), one["where"], one["title"])
    return None


def _fits(parameters: Mapping[str, Scalar], printed: Mapping[str, Any]) -> bool:
    if printed["benchmark"] is None or parameters.get("ranks") != printed["writers"]:
        return False
    pairs = [(parameters.get(name), printed.get(name)) for name in _SAME]
    stripe = parameters.get("stripe_bytes")
    pairs.append((stripe / MIB if isinstance(stripe, int) else None, printed.get("stripe_size_mib")))
    return _agree(pairs) and printed.get("instances") in (None, 1, parameters.get("instances"))


def _agree(pairs: Iterable[tuple[Any, Any]]) -> bool:
    return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)
