"""Scaling: bandwidth against processes as the papers draw it, this site's results over the published curves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from iowatch.dashboard.catalogue import Machine
from iowatch.dashboard.context import Site
from iowatch.dashboard.limits import measurements, published_systems
from iowatch.dashboard.pictures import Curve, curves_picture
from iowatch.reference import published
from iowatch.units import MIB

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
_MOST_CURVES = 14
# Where both a curve of ours and a printed one name these, they must agree.
_SAME = ("api", "operation", "local_size", "stripe_count", "pattern")
Rows = Sequence[Mapping[str, Any]]


def publish(site: Site) -> None:
    """Write `scaling.html`."""
    basis = [
        (m.name, [(s.row.id, repr(s.stamp)) for s in m.watched if "ranks" in s.row.case.parameters])
        for m in site.catalogue.machines
    ]
    site.page("scaling.html", "scaling.html", basis, lambda: _values(site))


def _values(site: Site) -> dict[str, Any]:
    ours = {machine.name: _own(site, machine) for machine in site.catalogue.machines}
    figures = []
    for system in published_systems():
        tables: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for row in measurements(system):
            tables[row["where"]].append(row)
        found = [_figure(system, rows, ours.get(system, [])) for _, rows in sorted(tables.items(), key=_order)]
        figures += [figure for figure in found if figure is not None]
    own = [figure for name, curves in ours.items() if (figure := _own_figure(name, curves)) is not None]
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


def _figure(system: str, rows: Rows, own: Sequence[tuple[Mapping[str, Any], Curve]]) -> dict[str, Any] | None:
    chosen = [row for row in rows if row["statistic"] == "max"] or [
        row for row in rows if row["statistic"] == "mean"
    ]
    chosen = [row for row in chosen if row["unit"] == "MiB/s"]
    axis = next((name for name in _AXES if len({row[name] for row in chosen if _number(row[name])}) >= 3), None)
    if axis is None:
        return None
    curves = list(_curves(chosen, axis))
    curves += [
        curve for key, curve in own if axis == "writers" and any(_comparable(key, row) for row in chosen)
    ]
    first = chosen[0]
    title = f"{system}: {first['title']}"
    return _described(
        title, curves, _AXIS_WORDS[axis], first["where"], f"{first['statistic']} of each, as printed"
    )


def _comparable(case: Mapping[str, Any], printed: Mapping[str, Any]) -> bool:
    """Whether a curve of ours says the same as printed."""
    pairs = [(case.get(name), printed.get(name)) for name in _SAME]
    return all(ours is None or theirs is None or ours == theirs for ours, theirs in pairs)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and value > 0


def _curves(rows: Rows, axis: str) -> Iterator[Curve]:
    """One curve for each combination of what else varies within the table."""
    names = [n for n in rows[0] if n not in (*_PASSED, axis) and len({str(row[n]) for row in rows}) > 1]
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        if _number(row[axis]):
            name = " ".join(_told(n, row[n]) for n in names if row[n] is not None) or "published"
            groups[name].append((float(row[axis]), float(row["value"])))
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))[:_MOST_CURVES]
    yield from (Curve(name, sorted(points)) for name, points in ordered)


def _told(name: str, value: object) -> str:
    plain = {True: "collective", False: "independent"} if name == "collective" else {}
    if isinstance(value, bool):
        return plain.get(value, f"{name} {value}")
    words = name.removesuffix("_mib").replace("_", " ")
    return (
        str(value) if isinstance(value, str) else f"{words} {value:g}{' MiB' if name.endswith('_mib') else ''}"
    )


def _own(site: Site, machine: Machine) -> list[tuple[Mapping[str, Any], Curve]]:
    """This site's curves: cases that differ in the number of processes alone; the newest headline of each."""
    groups: dict[str, list[Any]] = defaultdict(list)
    for one in machine.watched:
        parameters = one.row.case.parameters
        if one.row.metric == "bandwidth" and isinstance(parameters.get("ranks"), int):
            case = one.row.case.without("ranks", "nodes", "total_bytes", "global_size")
            groups[f"{one.row.partition} {one.row.stack} {case.canonical}"].append(one)
    found: list[tuple[Mapping[str, Any], Curve]] = []
    for series in groups.values():
        if len({one.row.case.parameters["ranks"] for one in series}) < 2:
            continue
        points = site.history.points(
            [one.row.id for one in series], since=min(one.stamp.last for one in series)
        )
        places = sorted(
            (float(one.row.case.parameters["ranks"]), float(points[one.row.id].max[-1])) for one in series
        )
        shared = series[0].row.case.parameters
        found.append(({name: shared.get(name) for name in _SAME}, Curve(_named(series[0]), places, ours=True)))
    return found


def _named(series: Any) -> str:
    parameters = series.row.case.parameters
    words = [f"{parameters.get(name)}" for name in ("api", "operation", "file") if parameters.get(name)]
    if "stripe_count" in parameters:
        words.append(f"stripe count {parameters['stripe_count']}")
    if isinstance(parameters.get("stripe_bytes"), int):
        words.append(f"stripe size {parameters['stripe_bytes'] / MIB:g} MiB")
    if "local_size" in parameters:
        words.append(f"local {parameters['local_size']}")
    return f"this site: {' '.join(words)} [{series.row.stack}]"[:120]


def _own_figure(system: str, own: Sequence[tuple[Mapping[str, Any], Curve]]) -> dict[str, Any] | None:
    if not own:
        return None
    curves = [Curve(curve.name, curve.points) for _, curve in own[:_MOST_CURVES]]
    return _described(
        f"{system}: this site's own results",
        curves,
        _AXIS_WORDS["writers"],
        None,
        "newest headline of each case",
    )


def _described(title: str, curves: Sequence[Curve], axis: str, where: str | None, note: str) -> dict[str, Any]:
    xs = sorted({x for curve in curves for x, _ in curve.points})
    table = [(x, [dict(curve.points).get(x) for curve in curves]) for x in xs]
    published = [curve for curve in curves if not curve.ours]
    keys = [("ours" if c.ours else f"c{published.index(c) % 7}", c.name) for c in curves]
    return {
        "title": title,
        "where": where,
        "anchor": f"t-{where.replace('/', '-')}" if where else "",
        "picture": curves_picture(
            curves, axis, "MiB/s", f"{title}: {len(curves)} curves of bandwidth over {axis}"
        ),
        "keys": keys,
        "axis": axis,
        "table": table,
        "note": note,
        "ours": any(curve.ours for curve in curves),
    }
