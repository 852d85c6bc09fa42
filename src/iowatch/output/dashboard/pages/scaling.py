"""Scaling: published bandwidth over the number of processes, with the results of this site."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from markupsafe import Markup

from iowatch.core import DAY_S, MIB, Scalar
from iowatch.output.dashboard import data, drawing
from iowatch.reference import published
from iowatch.store import History

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
    parameter, unit = published.column_parameter(axis)
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
    words = [str(shared[name]) for name in ("api", "operation", "file") if name in shared]
    if "stripe_count" in shared:
        words.append(f"stripe count {shared['stripe_count']}")
    if isinstance(size := shared.get("stripe_bytes"), int):
        words.append(f"stripe size {size / MIB:g} MiB")
    words += [f"{name.removesuffix('_size')} {shared[name]}" for name in ("local_size", "ranks") if name in shared]
    name = f"this site, {system[:40]}: {benchmark} {' '.join(words)} [{first.stack}]"[:160]
    points = sorted((x, newest[one.row.id]) for x, one in found.items())
    return OwnCurve(system, benchmark, name, shared, points)


# Possible axes of a table; the first with at least three values in the table is used.
_AXIS_LABELS = {
    "writers": "writers (MPI processes)",
    "nodes": "nodes",
    "transfer_mib": "transfer size (MiB)",
    "chunk_mib": "chunk size (MiB)",
    "stripe_count": "stripe count",
    "alignment_mib": "alignment (MiB)",
}
_IGNORED_COLUMNS = ("value", "unit", "where", "title", "total_mib", "benchmark", "nodes", "statistic")
_MAX_CURVES = 16
# Curves of this site in a published figure; those that agree in most parameters are chosen.
_MAX_OWN_CURVES = 5
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ScalingFigure:
    """A picture with the table of its values.

    Attributes:
        where: source and table (`lawrence2017/2`); empty for results of this site.
        keys: style class and name of each column of the table; a column without a class is not in the caption.
        axis: heading of the first column.
        table: first cell and numbers of each row.
    """

    title: str
    where: str
    picture: Markup
    keys: Sequence[tuple[str, str]]
    axis: str
    table: Sequence[tuple[str, Sequence[float | None]]]
    note: str


def publish_scaling_page(site: data.SiteBuild) -> None:
    """Write `scaling.html`."""
    ours = cache(OwnCurves(site.history, site.catalogue.machines).over)
    tables: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in (row for _, rows in sorted(data.published_measurements().items()) for row in rows):
        tables[row["where"]].append(row)
    figures = [_table_figure(rows, ours) for _, rows in sorted(tables.items(), key=_figure_sort_key)]
    own = [figure for machine in site.catalogue.machines for figure in _own_figures(machine.name, ours)]
    stated = {"statements": list(_published_statements()), "statements_source": _STATEMENTS_SOURCE}
    site.write_page("scaling.html", "scaling.html", figures=figures, own=own, **stated)


PAGE = data.Page("scaling.html", "Scaling", 6, publish_scaling_page)
# It prints no table: its figures of bandwidth over clients are images.
_STATEMENTS_SOURCE = "turner2018"


def _published_statements() -> Iterator[tuple[str, str]]:
    """Statements of [turner2018] about bandwidth over clients; its figures are images, and it has no table of them."""
    table = published.load_published_table(_STATEMENTS_SOURCE, "text")
    names = [column.name for column in table.sidecar.columns]
    for row in table.rows:
        statement = dict(zip(names, row, strict=True))
        if "I/O Performance" in str(statement["Section"]) and statement["Unit"] in ("MiB/s", "GiB/s"):
            yield str(statement["Quantity"]), f"{statement['Printed']}"


def _figure_sort_key(item: tuple[str, Any]) -> tuple[str, int, str]:
    source, _, table = item[0].partition("/")
    digits = "".join(c for c in table if c.isdigit())
    return published.source_number(source), int(digits or 0), table


def _table_figure(rows: Rows, ours: Callable[[str], list[OwnCurve]]) -> ScalingFigure:
    """Figure of a published table: curves if it has an axis, else one row per value."""
    rows = [row for row in rows if row["unit"] == "MiB/s"]
    chosen = [row for row in rows if row["statistic"] == "max"] or [row for row in rows if row["statistic"] == "mean"]
    axis = next(
        (name for name in _AXIS_LABELS if len({row[name] for row in chosen if _as_number(row[name])}) >= 3), None
    )
    first = chosen[0]
    systems = {str(row["system"]) for row in chosen}
    title = first["title"] if len(systems) > 1 else f"{first['system']}: {first['title']}"
    if axis is None:
        return _ranges_figure(rows, title, first["where"])
    chosen = [row for row in chosen if _as_number(row[axis])]
    names, along = _distinguishing_columns(chosen, [axis])
    found = _published_curves(chosen, axis, names)
    own = _matching_own_curves(ours(axis), chosen)
    curves = [*found[:_MAX_CURVES], *(drawing.Curve(one.name, one.points, ours=True) for one in own)]
    note = f"{first['statistic']} of each, as printed"
    if along:
        note += f"; {', '.join(name.replace('_', ' ') for name in along)} changes with it"
    if len(found) > _MAX_CURVES:
        note += f"; {len(found) - _MAX_CURVES} more curves are in the table, not here"
    others = {one.system for one in own} - systems
    return _curves_figure(curves, _AXIS_LABELS[axis], title, first["where"], note, others)


def _matching_own_curves(ours: Sequence[OwnCurve], printed: Rows) -> list[OwnCurve]:
    """Curves of this site of the same case as a published row; those that agree in most parameters first."""
    kinds = {published_curve_kind(row) for row in printed}
    systems = {row["system"] for row in printed}
    agreed: dict[Any, int | None] = {}
    ranked = []
    for one in ours:
        # Many curves share few kinds, so the result is kept per kind.
        if one.kind not in agreed:
            found = [n for kind in kinds if (n := count_agreeing_parameters(one.kind, kind)) is not None]
            agreed[one.kind] = max(found, default=None)
        score = agreed[one.kind]
        if score is not None:
            ranked.append((score + (one.system in systems), one))
    return [one for _, one in sorted(ranked, key=lambda pair: -pair[0])[:_MAX_OWN_CURVES]]


def _as_number(value: object) -> bool:
    return isinstance(value, int | float) and value > 0


def _distinguishing_columns(rows: Rows, axis: Sequence[str]) -> tuple[list[str], list[str]]:
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


def _group_rows(rows: Rows, names: Sequence[str]) -> dict[str, list[Mapping[str, Any]]]:
    """Rows by label of the values that distinguish them."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[" ".join(_format_setting(n, row[n]) for n in names if row[n] is not None) or "published"].append(row)
    return groups


def _published_curves(rows: Rows, axis: str, names: Sequence[str]) -> list[drawing.Curve]:
    """One curve per combination of the other varying columns, the longest first."""
    groups = sorted(_group_rows(rows, names).items(), key=lambda group: -len(group[1]))
    return [drawing.Curve(name, sorted((float(r[axis]), float(r["value"])) for r in found)) for name, found in groups]


def _ranges_figure(rows: Rows, title: str, where: str) -> ScalingFigure:
    """Figure with one row per combination: mean, lowest and highest value as published."""
    found = []
    for name, members in _group_rows(rows, _distinguishing_columns(rows, [])[0]).items():
        by = {str(row["statistic"]): float(row["value"]) for row in members}
        value = by.get("mean", by.get("max", next(iter(by.values()))))
        found.append(drawing.ValueRange(name, value, by.get("min"), by.get("max")))
    drawn = drawing.ranges_picture(found, "MiB/s", f"{title}: {len(found)} printed values of bandwidth")
    numbers = [(row.name, [row.low, row.value, row.high]) for row in found]
    columns, note = [("", "lowest"), ("", "mean"), ("", "highest")], "dot: mean, line: lowest to highest, as printed"
    return ScalingFigure(title, where, drawn, columns, "case", numbers, note)


def _format_setting(name: str, value: object) -> str:
    if isinstance(value, bool):
        return ("collective" if value else "independent") if name == "collective" else f"{name} {value}"
    words = name.removesuffix("_mib").replace("_", " ")
    return str(value) if isinstance(value, str) else f"{words} {value:g}{' MiB' if name.endswith('_mib') else ''}"


def _own_figures(system: str, ours: Callable[[str], list[OwnCurve]]) -> Iterator[ScalingFigure]:
    """Results of a system over processes, and over nodes if these curves differ."""
    known: set[tuple[float, ...]] = set()
    for axis, words in (("writers", "processes"), ("nodes", "nodes")):
        found = [(one, tuple(value for _, value in one.points)) for one in ours(axis) if one.system == system]
        curves = [drawing.Curve(one.name.partition(": ")[2], one.points) for one, ys in found if ys not in known]
        known.update(values for _, values in found)
        if curves:
            note = "newest headline of each case"
            if len(curves) > _MAX_CURVES:
                note += f"; {len(curves) - _MAX_CURVES} more curves are not drawn"
            title = f"{system}: own results over {words}"
            yield _curves_figure(curves[:_MAX_CURVES], _AXIS_LABELS[axis], title, "", note)


def _curves_figure(
    curves: Sequence[drawing.Curve], axis: str, title: str, where: str, note: str, others: Collection[str] = ()
) -> ScalingFigure:
    """Figure of curves with keys and table; `others` are systems of this site that are not in the published table."""
    xs = sorted({x for curve in curves for x, _ in curve.points})
    numbers = [(f"{x:g}", [dict(curve.points).get(x) for curve in curves]) for x in xs]
    keys = list(zip(drawing.curve_classes(curves), (curve.name for curve in curves), strict=True))
    if others:
        note += f"; thick: the same case on {', '.join(sorted(others))[:120]}, another machine than the paper's"
    drawn = drawing.curves_picture(curves, axis, "MiB/s", f"{title}: {len(curves)} curves of bandwidth over {axis}")
    return ScalingFigure(title, where, drawn, keys, axis, numbers, note)
