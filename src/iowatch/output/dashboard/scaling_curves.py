"""Curves of bandwidth over processes, nodes and sizes: those of this site, and those of published tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from iowatch.core import DAY_S, MIB, Scalar
from iowatch.findings import format_parameter_value
from iowatch.output.dashboard import data
from iowatch.reference import published
from iowatch.store import History

Rows = Sequence[Mapping[str, Any]]
# Parameters that vary with the axis parameter; cases that differ only in them are on one curve.
_DEPENDENT_PARAMETERS = {
    "ranks": ("ranks", "nodes", "total_bytes", "global_size"),
    "nodes": ("ranks", "nodes", "total_bytes", "global_size"),
    "transfer_bytes": ("transfer_bytes", "block_bytes", "segments", "total_bytes"),
}


@dataclass(frozen=True)
class OwnCurve:
    """Newest headlines of one system: (x, MiB/s) in order of x, and the parameters that their cases share."""

    system: str
    benchmark: str
    name: str
    shared: Mapping[str, Scalar]
    points: Sequence[tuple[float, float]]

    @property
    def kind(self) -> tuple[Scalar | None, ...]:
        """Values that decide with which published figures the curve may be drawn."""
        return self.benchmark, self.shared.get("instances"), *map(self.shared.get, published.MATCHED_PARAMETERS)


def published_curve_kind(row: Mapping[str, Any]) -> tuple[Scalar | None, ...]:
    """The values of `OwnCurve.kind` for a row of a published table; None is not stated."""
    instances = row.get("instances")
    return row["benchmark"], None if instances == 1 else instances, *map(row.get, published.MATCHED_PARAMETERS)


@lru_cache(maxsize=1 << 16)
def count_agreeing_parameters(own: Sequence[Scalar | None], printed: Sequence[Scalar | None]) -> int | None:
    """Number of parameters in which both agree; None if they differ in one.

    A published figure of several instances is only of the same case as own results with as many instances.
    """
    benchmark, instances = printed[:2]
    if benchmark not in (None, own[0]) or instances not in (None, own[1]):
        return None
    both = [(a, b) for a, b in zip(own[2:], printed[2:], strict=True) if a is not None and b is not None]
    return len(both) if all(a == b for a, b in both) else None


class OwnCurves:
    """Curves of every system over the axes of published tables."""

    def __init__(self, history: History, machines: Sequence[data.SystemEntry]) -> None:
        self.history, self.machines = history, machines
        self.newest: dict[int, float] = {}

    def over(self, axis: str) -> list[OwnCurve]:
        """All curves over an axis; empty if the cases of this site have no such parameter."""
        groups = [(machine, found) for machine in self.machines for found in _group_by_axis(machine, axis)]
        # Newest headlines are read together for all series with the same last day.
        days: dict[int, set[int]] = defaultdict(set)
        for one in (one for _, found in groups for one in found.values() if one.row.id not in self.newest):
            days[one.stamp.last // DAY_S].add(one.row.id)
        for day, numbers in days.items():
            points = self.history.points(sorted(numbers), since=day * DAY_S)
            self.newest.update((number, float(one.max[-1])) for number, one in points.items())
        return [_make_curve(machine.name, found, self.newest) for machine, found in groups]


def _group_by_axis(machine: data.SystemEntry, axis: str) -> Iterator[Mapping[float, data.SeriesEntry]]:
    """Groups of series that differ only in the axis, by position on it."""
    column = published.column_parameter(axis)
    parameter, unit = column.name, column.unit
    groups: dict[tuple[str, ...], dict[float, data.SeriesEntry]] = defaultdict(dict)
    for one in machine.watched:
        x = one.row.case.parameters.get(parameter)
        if one.row.metric == "bandwidth" and isinstance(x, int) and x > 0:
            rest = one.row.case.without(*_DEPENDENT_PARAMETERS.get(parameter, (parameter,)))
            group = groups[one.row.partition, one.row.stack, one.row.case.benchmark, rest.canonical]
            # Of two cases at one position the newest, then the one with most processes.
            group[x / unit] = max(group.get(x / unit, one), one, key=_recency_key)
    yield from (found for found in groups.values() if len(found) > 1)


def _recency_key(series: data.SeriesEntry) -> tuple[int, int]:
    ranks = series.row.case.parameters.get("ranks")
    return series.stamp.last // DAY_S, ranks if isinstance(ranks, int) else 0


def _make_curve(system: str, found: Mapping[float, data.SeriesEntry], newest: Mapping[int, float]) -> OwnCurve:
    series = list(found.values())
    first, benchmark = series[0].row, series[0].row.case.benchmark
    shared = dict(set.intersection(*(set(one.row.case.parameters.items()) for one in series)))
    words = [format_parameter_value("api", shared["api"])] if "api" in shared else []
    words += [str(shared[name]) for name in ("operation", "file") if name in shared]
    if "stripe_count" in shared:
        words.append(f"stripe count {shared['stripe_count']}")
    if isinstance(size := shared.get("stripe_bytes"), int):
        words.append(f"stripe size {size / MIB:g} MiB")
    words += [f"{name.removesuffix('_size')} {shared[name]}" for name in ("local_size", "ranks") if name in shared]
    name = f"this site, {system[:40]}: {benchmark} {' '.join(words)} [{first.stack}]"[:160]
    points = sorted((x, newest[one.row.id]) for x, one in found.items())
    return OwnCurve(system, benchmark, name, shared, points)


# Possible axes of a table; the first with at least three values in the table is used.
AXIS_LABELS = {
    "writers": "writers (MPI processes)",
    "nodes": "nodes",
    "transfer_mib": "transfer size (MiB)",
    "chunk_mib": "chunk size (MiB)",
    "stripe_count": "stripe count",
    "alignment_mib": "alignment (MiB)",
}
_IGNORED_COLUMNS = ("value", "unit", "where", "title", "total_mib", "benchmark", "nodes", "statistic")


@dataclass(frozen=True)
class PublishedScaling:
    """The bandwidths of a published table.

    Attributes:
        rows: all of them; chosen: the largest values, or else the means, that have a position on the axis.
        axis: one of `AXIS_LABELS`; None if nothing scales in it.
    """

    rows: Rows
    chosen: Rows
    axis: str | None

    @property
    def where(self) -> str:
        """Source and table."""
        return str(self.rows[0]["where"])

    @property
    def title(self) -> str:
        """Title, with the system if it is of one."""
        first = self.rows[0]
        return str(first["title"]) if len(self.values("system")) > 1 else f"{first['system']}: {first['title']}"

    def values(self, column: str) -> list[str]:
        """Distinct values of a column."""
        return sorted({str(row[column]) for row in self.chosen if row.get(column) is not None})

    @cached_property
    def groups(self) -> list[tuple[str, Rows]]:
        """Rows of each curve by its label, the longest first."""
        assert self.axis is not None
        found = group_rows(self.chosen, distinguishing_columns(self.chosen, [self.axis])[0])
        return sorted(found.items(), key=lambda group: -len(group[1]))

    def points(self, rows: Rows) -> list[tuple[float, float]]:
        """Position on the axis and value of the rows of one group, in order."""
        assert self.axis is not None
        return sorted((float(row[self.axis]), float(row["value"])) for row in rows)


def read_table(rows: Rows) -> PublishedScaling:
    """Choose the axis and the values of a table."""
    rows = [row for row in rows if row["unit"] == "MiB/s"]
    chosen = [row for row in rows if row["statistic"] == "max"] or [row for row in rows if row["statistic"] == "mean"]
    scales = (name for name in AXIS_LABELS if len({row[name] for row in chosen if _as_number(row[name])}) >= 3)
    axis = next(scales, None)
    return PublishedScaling(rows, chosen if axis is None else [row for row in chosen if _as_number(row[axis])], axis)


def _as_number(value: object) -> bool:
    return isinstance(value, int | float) and value > 0


def distinguishing_columns(rows: Rows, axis: Sequence[str]) -> tuple[list[str], list[str]]:
    """Columns that distinguish the values of a table, and those that vary with the axis."""
    kept: list[str] = []
    along = []
    for name in (n for n in rows[0] if n not in (*_IGNORED_COLUMNS, *axis) and _count_distinct(rows, [n]) > 1):
        # Text columns describe a number (`aggregate`) and are kept, even if they are determined by others.
        words = any(isinstance(row[name], str) for row in rows)
        if words or _count_distinct(rows, [*axis, *kept, name]) > _count_distinct(rows, [*axis, *kept]):
            kept.append(name)
        elif _count_distinct(rows, [*kept, name]) > max(1, _count_distinct(rows, kept)):
            along.append(name)
    return kept, along


def _count_distinct(rows: Rows, names: Sequence[str]) -> int:
    return len({tuple(str(row[name]) for name in names) for row in rows})


def group_rows(rows: Rows, names: Sequence[str]) -> dict[str, list[Mapping[str, Any]]]:
    """Rows by label of the values that distinguish them."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[" ".join(_format_setting(n, row[n]) for n in names if row[n] is not None) or "published"].append(row)
    return groups


def _format_setting(name: str, value: object) -> str:
    if isinstance(value, bool):
        return ("collective" if value else "independent") if name == "collective" else f"{name} {value}"
    words = name.removesuffix("_mib").replace("_", " ")
    return str(value) if isinstance(value, str) else f"{words} {value:g}{' MiB' if name.endswith('_mib') else ''}"
