"""Scaling: bandwidth against processes as the papers draw it, this site's results over the published curves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from markupsafe import Markup

from iowatch.dashboard.context import Site
from iowatch.dashboard.limits import measurements, published_systems
from iowatch.dashboard.own_curves import OwnCurve, OwnCurves, agreement, kind_of_printed
from iowatch.dashboard.pictures import Curve, Range, curve_kinds, curves_picture, ranges_picture
from iowatch.reference import published

# What a table may be drawn against, the first that has three values in it.
_AXES = ("writers", "nodes", "transfer_mib", "chunk_mib", "stripe_count", "alignment_mib")
_AXIS_WORDS = {
    "writers": "writers (MPI processes)",
    "nodes": "nodes",
    "transfer_mib": "transfer size (MiB)",
    "chunk_mib": "chunk size (MiB)",
    "stripe_count": "stripe count",
    "alignment_mib": "alignment (MiB)",
}
_PASSED = ("value", "unit", "where", "title", "total_mib", "benchmark", "nodes", "statistic")
_MOST_CURVES = 16
# Of ours over a published figure: those that agree in most.
_MOST_OURS = 5
Rows = Sequence[Mapping[str, Any]]
Numbers = Sequence[tuple[str, Sequence[float | None]]]


def publish(site: Site) -> None:
    """Write `scaling.html`."""
    basis = [
        (m.name, [(s.row.id, repr(s.stamp)) for s in m.watched if s.row.metric == "bandwidth"])
        for m in site.catalogue.machines
    ]
    site.page("scaling.html", "scaling.html", basis, lambda: _values(site))


def _values(site: Site) -> dict[str, Any]:
    ours = cache(OwnCurves(site.history, site.catalogue.machines).over)
    tables: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in (row for system in published_systems() for row in measurements(system)):
        tables[row["where"]].append(row)
    figures = [_figure(rows, ours) for _, rows in sorted(tables.items(), key=_order)]
    own = [
        figure
        for machine in site.catalogue.machines
        for figure in _own_figures(machine.name, ours("writers"), ours("nodes"))
    ]
    return {"figures": figures, "own": own, "statements": list(_statements())}


def _statements() -> Iterator[tuple[str, str]]:
    """What source 002 says of bandwidth over clients: it prints no table, its figures are images."""
    table = published.load("002", "text")
    names = [column.name for column in table.sidecar.columns]
    for row in table.rows:
        told = dict(zip(names, row, strict=True))
        if "I/O Performance" in str(told["Section"]) and told["Unit"] in ("MiB/s", "GiB/s"):
            yield str(told["Quantity"]), f"{told['Printed']}"


def _order(item: tuple[str, Any]) -> tuple[str, int, str]:
    source, _, table = item[0].partition("/")
    digits = "".join(c for c in table if c.isdigit())
    return source, int(digits or 0), table


def _figure(rows: Rows, ours: Callable[[str], list[OwnCurve]]) -> dict[str, Any]:
    """A printed table: curves where something in it grows, else a row a value."""
    rows = [row for row in rows if row["unit"] == "MiB/s"]
    chosen = [row for row in rows if row["statistic"] == "max"] or [
        row for row in rows if row["statistic"] == "mean"
    ]
    axis = next((name for name in _AXES if len({row[name] for row in chosen if _number(row[name])}) >= 3), None)
    first = chosen[0]
    systems = {str(row["system"]) for row in chosen}
    of = f"{first['system']}: " if len(systems) == 1 else ""
    told = {"title": f"{of}{first['title']}", "where": first["where"]}
    if axis is None:
        return _ranged(rows, told)
    chosen = [row for row in chosen if _number(row[axis])]
    names, along = _telling(chosen, [axis])
    found = _curves(chosen, axis, names)
    own = _over(ours(axis), chosen)
    curves = [*found[:_MOST_CURVES], *(Curve(one.name, one.points, ours=True) for one in own)]
    note = f"{first['statistic']} of each, as printed"
    if along:
        note += f"; {', '.join(name.replace('_', ' ') for name in along)} changes with it"
    if len(found) > _MOST_CURVES:
        note += f"; {len(found) - _MOST_CURVES} more curves are in the table, not here"
    return _drawn(curves, _AXIS_WORDS[axis], told, note, {one.system for one in own} - systems)


def _over(ours: Sequence[OwnCurve], printed: Rows) -> list[OwnCurve]:
    """Our curves of the same case as a printed row, as far as both say; those that agree in most first."""
    kinds = {kind_of_printed(row) for row in printed}
    systems = {row["system"] for row in printed}
    agreed: dict[Any, int | None] = {}
    ranked = []
    for one in ours:
        # Many curves are of few kinds.
        if one.kind not in agreed:
            found = [n for kind in kinds if (n := agreement(one.kind, kind)) is not None]
            agreed[one.kind] = max(found, default=None)
        score = agreed[one.kind]
        if score is not None:
            ranked.append((score + (one.system in systems), one))
    return [one for _, one in sorted(ranked, key=lambda pair: -pair[0])[:_MOST_OURS]]


def _number(value: object) -> bool:
    return isinstance(value, int | float) and value > 0


def _telling(rows: Rows, axis: Sequence[str]) -> tuple[list[str], list[str]]:
    """Columns that tell the values of a table apart, and those that go with what stands on the axis."""
    kept: list[str] = []
    along = []
    for name in (n for n in rows[0] if n not in (*_PASSED, *axis) and _kinds(rows, [n]) > 1):
        # Words say what a number stands for (`aggregate`), also where they follow from it.
        words = any(isinstance(row[name], str) for row in rows)
        if words or _kinds(rows, [*axis, *kept, name]) > _kinds(rows, [*axis, *kept]):
            kept.append(name)
        elif _kinds(rows, [*kept, name]) > max(1, _kinds(rows, kept)):
            along.append(name)
    return kept, along


def _kinds(rows: Rows, names: Sequence[str]) -> int:
    return len({tuple(str(row[name]) for name in names) for row in rows})


def _groups(rows: Rows, names: Sequence[str]) -> dict[str, list[Mapping[str, Any]]]:
    """Rows by what tells them apart, in words."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[" ".join(_told(n, row[n]) for n in names if row[n] is not None) or "published"].append(row)
    return groups


def _curves(rows: Rows, axis: str, names: Sequence[str]) -> list[Curve]:
    """One curve for each combination of what else varies within the table, the longest first."""
    found = [
        Curve(name, sorted((float(row[axis]), float(row["value"])) for row in members))
        for name, members in _groups(rows, names).items()
    ]
    return sorted(found, key=lambda curve: -len(curve.points))


def _ranged(rows: Rows, told: Mapping[str, str]) -> dict[str, Any]:
    """A row for each combination: its mean, its lowest and highest value as printed."""
    found = []
    for name, members in _groups(rows, _telling(rows, [])[0]).items():
        by = {str(row["statistic"]): float(row["value"]) for row in members}
        value = by.get("mean", by.get("max", next(iter(by.values()))))
        found.append(Range(name, value, by.get("min"), by.get("max")))
    label = f"{told['title']}: {len(found)} printed values of bandwidth"
    numbers = [(row.name, [row.low, row.value, row.high]) for row in found]
    columns = [("", "lowest"), ("", "mean"), ("", "highest")]
    note = "dot: mean, line: lowest to highest, as printed"
    return _figure_of(ranges_picture(found, "MiB/s", label), told, note, numbers, columns, "case")


def _told(name: str, value: object) -> str:
    plain = {True: "collective", False: "independent"} if name == "collective" else {}
    if isinstance(value, bool):
        return plain.get(value, f"{name} {value}")
    words = name.removesuffix("_mib").replace("_", " ")
    return (
        str(value) if isinstance(value, str) else f"{words} {value:g}{' MiB' if name.endswith('_mib') else ''}"
    )


def _own_figures(
    system: str, writers: Sequence[OwnCurve], nodes: Sequence[OwnCurve]
) -> Iterator[dict[str, Any]]:
    """A system's own results over processes, and over nodes where that tells something else."""
    told = {_values_of(one) for one in writers}
    fresh = [one for one in nodes if _values_of(one) not in told]
    for axis, words, curves in (("writers", "processes", writers), ("nodes", "nodes", fresh)):
        found = [Curve(one.name.partition(": ")[2], one.points) for one in curves if one.system == system]
        if found:
            note = "newest headline of each case"
            if len(found) > _MOST_CURVES:
                note += f"; {len(found) - _MOST_CURVES} more curves are not drawn"
            titled = {"title": f"{system}: own results over {words}", "where": ""}
            yield _drawn(found[:_MOST_CURVES], _AXIS_WORDS[axis], titled, note, set())


def _values_of(curve: OwnCurve) -> tuple[str, tuple[float, ...]]:
    return curve.system, tuple(value for _, value in curve.points)


def _drawn(
    curves: Sequence[Curve], axis: str, told: Mapping[str, str], note: str, others: set[str]
) -> dict[str, Any]:
    """Curves with their keys and numbers; `others` are systems of ours that the table was not printed of."""
    xs = sorted({x for curve in curves for x, _ in curve.points})
    numbers = [(f"{x:g}", [dict(curve.points).get(x) for curve in curves]) for x in xs]
    kinds = curve_kinds(curves)
    keys = list(zip(kinds, (curve.name for curve in curves), strict=True))
    if others:
        note += f"; thick: the same case on {', '.join(sorted(others))[:120]}, another machine than the paper's"
    label = f"{told['title']}: {len(curves)} curves of bandwidth over {axis}"
    drawn = curves_picture(curves, axis, "MiB/s", label)
    return _figure_of(drawn, told, note, numbers, keys, axis)


def _figure_of(
    drawn: Markup,
    told: Mapping[str, str],
    note: str,
    numbers: Numbers,
    columns: Sequence[tuple[str, str]],
    axis: str,
) -> dict[str, Any]:
    where = told["where"]
    return {
        **told,
        "anchor": f"t-{where.replace('/', '-')}" if where else "",
        "picture": drawn,
        "keys": columns,
        "axis": axis,
        "table": numbers,
        "note": note,
    }
