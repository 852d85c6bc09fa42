"""Curves of bandwidth over processes, nodes and sizes: those of this site, and those of published tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

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
    """Newest headlines of one system over an axis.

    Attributes:
        name: with system, benchmark and stack, for the legend.
        shared: the parameters that all its cases have in common.
        points: (position on the axis, MiB/s) in order of position.
        series: that of each point.
    """

    system: str
    benchmark: str
    name: str
    shared: Mapping[str, Scalar]
    points: Sequence[tuple[float, float]]
    series: Sequence[data.SeriesEntry] = ()

    @property
    def kind(self) -> tuple[Scalar | None, ...]:
        """Values that decide with which published figures the curve may be drawn."""
        matched = (self.shared.get(name) for name in published.MATCHED_PARAMETERS)
        return self.benchmark, self.shared.get("instances"), *matched


def published_curve_kind(row: Mapping[str, Any]) -> tuple[Scalar | None, ...]:
    """The values of `OwnCurve.kind` for a row of a published table; None is not stated."""
    instances = row.get("instances")
    # Cases of one instance do not state the parameter.
    if instances == 1:
        instances = None
    matched = (row.get(name) for name in published.MATCHED_PARAMETERS)
    return row["benchmark"], instances, *matched


@lru_cache(maxsize=1 << 16)
def count_agreeing_parameters(own_kind: Sequence[Scalar | None], published_kind: Sequence[Scalar | None]) -> int | None:
    """Number of parameters that a curve and a published figure state alike; None if they differ in one.

    A published figure of several instances is only of the same case as own results with as many instances.

    Args:
        own_kind: `OwnCurve.kind`.
        published_kind: `published_curve_kind`.
    """
    own_benchmark, own_instances, *own_values = own_kind
    benchmark, instances, *published_values = published_kind
    if benchmark is not None and benchmark != own_benchmark:
        return None
    if instances is not None and instances != own_instances:
        return None
    # What one of them does not state is no contradiction.
    agreeing = 0
    for own_value, published_value in zip(own_values, published_values, strict=True):
        if own_value is None or published_value is None:
            continue
        if own_value != published_value:
            return None
        agreeing += 1
    return agreeing


class OwnCurves:
    """Curves of every system over the axes of published tables."""

    def __init__(self, history: History, machines: Sequence[data.SystemEntry]) -> None:
        self.history, self.machines = history, machines
        # Newest headline by series id, of all curves so far.
        self.newest: dict[int, float] = {}

    def over(self, axis: str) -> list[OwnCurve]:
        """All curves over an axis; empty if the cases of this site have no such parameter."""
        groups: list[_CurveSeries] = []
        for machine in self.machines:
            groups += _group_by_axis(machine, axis)
        self._read_newest(groups)
        return [_make_curve(group, self.newest) for group in groups]

    def _read_newest(self, groups: Sequence[_CurveSeries]) -> None:
        """Read the newest headlines of series that no other axis had."""
        # Together for all series with the same last day.
        series_by_day: dict[int, set[int]] = defaultdict(set)
        for group in groups:
            for series in group.by_position.values():
                if series.row.id not in self.newest:
                    series_by_day[series.stamp.last // DAY_S].add(series.row.id)
        for day, series_ids in series_by_day.items():
            points_by_series = self.history.points(sorted(series_ids), since=day * DAY_S)
            for series_id, points in points_by_series.items():
                self.newest[series_id] = float(points.max[-1])


@dataclass(frozen=True)
class _CurveSeries:
    """Series of one system that differ only in an axis, by position on it.

    Attributes:
        partition: empty for a system with one.
        ranks_per_node: that of all cases on an axis of nodes; None on other axes, or where it is not known.
    """

    system: str
    by_position: Mapping[float, data.SeriesEntry]
    partition: str = ""
    ranks_per_node: float | None = None


def _group_by_axis(machine: data.SystemEntry, axis: str) -> list[_CurveSeries]:
    """Groups of at least two series that differ only in the axis."""
    column = published.column_parameter(axis)
    entries: list[_AxisEntry] = []
    for series in machine.watched:
        value = series.row.case.parameters.get(column.name)
        # A logarithmic axis has no zero.
        if series.row.metric == "bandwidth" and isinstance(value, int) and value > 0:
            entries.append(_AxisEntry(series, value / column.factor))
    ignored = _DEPENDENT_PARAMETERS.get(column.name, (column.name,))
    groups: dict[_GroupKey, _Group] = {}
    if column.name == "nodes":
        # Two nodes with one rank each do not continue one node with four.
        groups = _curve_groups(entries, ignored, with_ranks_per_node=True)
        grouped_ids: set[int] = set()
        for group in groups.values():
            grouped_ids.update(series.row.id for series in group.values())
        entries = [entry for entry in entries if entry.series.row.id not in grouped_ids]
    groups |= _curve_groups(entries, ignored, with_ranks_per_node=False)
    has_several_partitions = len({series.row.partition for series in machine.watched}) > 1
    curves: list[_CurveSeries] = []
    for key, by_position in groups.items():
        partition = key.partition if has_several_partitions else ""
        curves.append(_CurveSeries(machine.name, by_position, partition, key.ranks_per_node))
    return curves


@dataclass(frozen=True)
class _AxisEntry:
    """A series and its position on an axis."""

    series: data.SeriesEntry
    position: float


def _curve_groups(
    entries: Sequence[_AxisEntry], ignored: Sequence[str], *, with_ranks_per_node: bool
) -> dict[_GroupKey, _Group]:
    """Groups of at least two positions, the series of each by position.

    Args:
        ignored: parameters in which the series of a group differ.
        with_ranks_per_node: whether they have the same number of ranks on each node.
    """
    groups: dict[_GroupKey, _Group] = defaultdict(dict)
    for entry in entries:
        row = entry.series.row
        case = row.case.without(*ignored).canonical
        ranks_per_node = _ranks_per_node(row.case.parameters) if with_ranks_per_node else None
        group = groups[_GroupKey(row.partition, row.stack, row.case.benchmark, case, ranks_per_node)]
        # Of two cases at one position the newest, then the one with most processes.
        group[entry.position] = max(group.get(entry.position, entry.series), entry.series, key=_recency_key)
    return {key: group for key, group in groups.items() if len(group) > 1}


_Group = dict[float, data.SeriesEntry]


class _GroupKey(NamedTuple):
    """What the series of a curve have in common."""

    partition: str
    stack: str
    benchmark: str
    case: str
    ranks_per_node: float | None


def _ranks_per_node(parameters: Mapping[str, Scalar]) -> float | None:
    """Ranks over nodes of a case; None if it does not state both."""
    ranks = parameters.get("ranks")
    nodes = parameters.get("nodes")
    if isinstance(ranks, int) and isinstance(nodes, int) and nodes > 0:
        return ranks / nodes
    return None


def _recency_key(series: data.SeriesEntry) -> tuple[int, int]:
    """Sort key: day of the newest observation, then number of processes."""
    ranks = series.row.case.parameters.get("ranks")
    return series.stamp.last // DAY_S, ranks if isinstance(ranks, int) else 0


def _make_curve(group: _CurveSeries, newest: Mapping[int, float]) -> OwnCurve:
    """The curve of a group; `newest` are newest headlines by series id."""
    series = list(group.by_position.values())
    first = series[0].row
    # Parameters with which the axis varies differ, and are not named.
    shared = dict(first.case.parameters)
    for other in series[1:]:
        parameters = other.row.case.parameters
        shared = {name: value for name, value in shared.items() if parameters.get(name) == value}
    words = [first.case.benchmark, _describe_shared(shared)]
    if group.ranks_per_node is not None:
        words.append(f"{group.ranks_per_node:g} ranks per node")
    where = f"{group.partition}, {first.stack}" if group.partition else first.stack
    name = f"this site, {group.system[:40]}: {' '.join(words)} [{where}]"
    positions = sorted(group.by_position)
    ordered_series = [group.by_position[position] for position in positions]
    points = [(position, newest[group.by_position[position].row.id]) for position in positions]
    return OwnCurve(group.system, first.case.benchmark, name[:160], shared, points, ordered_series)


def _describe_shared(shared: Mapping[str, Scalar]) -> str:
    """The parameters that the cases of a curve have in common, those that distinguish curves, in one line."""
    words: list[str] = []
    if "api" in shared:
        words.append(format_parameter_value("api", shared["api"]))
    for name in ("operation", "file"):
        if name in shared:
            words.append(str(shared[name]))
    if "stripe_count" in shared:
        words.append(f"stripe count {shared['stripe_count']}")
    stripe_bytes = shared.get("stripe_bytes")
    if isinstance(stripe_bytes, int):
        words.append(f"stripe size {stripe_bytes / MIB:g} MiB")
    if "local_size" in shared:
        words.append(f"local {shared['local_size']}")
    if "ranks" in shared:
        words.append(f"ranks {shared['ranks']}")
    return " ".join(words)


# Values that a table has on its axis at least.
_MIN_AXIS_VALUES = 3
# Possible axes of a table; the first with enough values in the table is used.
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
        rows: all of them; plotted: the largest values, or else the means, that have a position on the axis.
        axis: one of `AXIS_LABELS`; None if nothing scales in it.
    """

    rows: Rows
    plotted: Rows
    axis: str | None

    @property
    def where(self) -> str:
        """Source and table."""
        return str(self.rows[0]["where"])

    @property
    def title(self) -> str:
        """Title, with the system if it is of one."""
        first = self.rows[0]
        if len(self.values("system")) > 1:
            return str(first["title"])
        return f"{first['system']}: {first['title']}"

    def values(self, column: str) -> list[str]:
        """Distinct values of a column."""
        return sorted({str(row[column]) for row in self.plotted if row.get(column) is not None})

    @cached_property
    def groups(self) -> list[tuple[str, Rows]]:
        """Rows of each curve by its label, the longest first."""
        assert self.axis is not None
        columns = distinguishing_columns(self.plotted, [self.axis])
        rows_by_label = group_rows(self.plotted, columns.distinguishing)
        return sorted(rows_by_label.items(), key=lambda group: -len(group[1]))

    def points(self, rows: Rows) -> list[tuple[float, float]]:
        """Position on the axis and value of the rows of one group, in order."""
        assert self.axis is not None
        return sorted((float(row[self.axis]), float(row["value"])) for row in rows)


def read_table(rows: Rows) -> PublishedScaling:
    """Choose the axis and the values of a table."""
    bandwidths = [row for row in rows if row["unit"] == "MiB/s"]
    values = [row for row in bandwidths if row["statistic"] == "max"]
    if not values:
        values = [row for row in bandwidths if row["statistic"] == "mean"]
    for axis in AXIS_LABELS:
        on_axis = [row for row in values if _is_positive(row[axis])]
        if len({row[axis] for row in on_axis}) >= _MIN_AXIS_VALUES:
            return PublishedScaling(bandwidths, on_axis, axis)
    return PublishedScaling(bandwidths, values, None)


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and value > 0


class TableColumns(NamedTuple):
    """Columns of a table: those that distinguish its values, and those that vary with the axis."""

    distinguishing: list[str]
    dependent: list[str]


def distinguishing_columns(rows: Rows, axis: Sequence[str]) -> TableColumns:
    """Columns that distinguish the values of a table, and those that vary with the axis.

    Args:
        axis: name of the column of the axis; empty without an axis.
    """
    distinguishing: list[str] = []
    dependent: list[str] = []
    for name in rows[0]:
        if name in _IGNORED_COLUMNS or name in axis or _count_distinct(rows, [name]) == 1:
            continue
        # Text columns describe a number (`aggregate`) and are kept, even if they are determined by others.
        is_text = any(isinstance(row[name], str) for row in rows)
        on_axis = [*axis, *distinguishing]
        if is_text or _count_distinct(rows, [*on_axis, name]) > _count_distinct(rows, on_axis):
            distinguishing.append(name)
        elif _count_distinct(rows, [*distinguishing, name]) > max(1, _count_distinct(rows, distinguishing)):
            dependent.append(name)
    return TableColumns(distinguishing, dependent)


def _count_distinct(rows: Rows, names: Sequence[str]) -> int:
    """Number of different values of some columns together."""
    return len({tuple(str(row[name]) for name in names) for row in rows})


def group_rows(rows: Rows, names: Sequence[str]) -> dict[str, list[Mapping[str, Any]]]:
    """Rows by label of the values that distinguish them.

    Args:
        names: of the columns with these values.
    """
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        settings = [_format_setting(name, row[name]) for name in names if row[name] is not None]
        label = " ".join(settings) or "published"
        groups[label].append(row)
    return groups


def _format_setting(name: str, value: object) -> str:
    if name == "collective" and isinstance(value, bool):
        return "collective" if value else "independent"
    if isinstance(value, bool):
        return f"{name} {value}"
    if isinstance(value, str):
        return value
    words = name.removesuffix("_mib").replace("_", " ")
    unit = " MiB" if name.endswith("_mib") else ""
    return f"{words} {value:g}{unit}"
