"""Scaling: this site's bandwidths over processes and nodes, and the published tables, each with the other's curves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from markupsafe import Markup

from iowatch.output.dashboard import data, drawing
from iowatch.output.dashboard.scaling_curves import (
    AXIS_LABELS,
    OwnCurve,
    OwnCurves,
    PublishedScaling,
    Rows,
    count_agreeing_parameters,
    distinguishing_columns,
    group_rows,
    published_curve_kind,
    read_table,
)
from iowatch.reference import published

_MAX_CURVES = 16
# Curves of this site in a published figure; those that agree in most parameters are chosen.
_MAX_OWN_CURVES = 5
# Published curves behind those of this site, and their largest height relative to them: a curve of a machine ten times
# as fast would press the site's own against the axis.
_MAX_BEHIND, _MAX_HEIGHT = 4, 2.0
# Own figures that are open at first.
_MAX_OPEN = 4


@dataclass(frozen=True)
class ScalingFigure:
    """A picture with the table of its values.

    Attributes:
        where: source and table (`lawrence2017/2`); empty for results of this site.
        systems, apis: what it shows, for the filters.
        matches: whether it has curves of this site and of a paper.
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
    systems: Sequence[str]
    apis: Sequence[str]
    matches: bool = False

    @property
    def paper(self) -> str:
        """Key of its source, or `this site`."""
        return self.where.partition("/")[0] or "this site"


def publish_scaling_page(site: data.SiteBuild) -> None:
    """Write `scaling.html`."""
    ours = cache(OwnCurves(site.history, site.catalogue.machines).over)
    tables: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in (row for _, rows in sorted(data.published_measurements().items()) for row in rows):
        tables[row["where"]].append(row)
    printed = [read_table(rows) for _, rows in sorted(tables.items(), key=_figure_sort_key)]
    figures = [_table_figure(table, ours) for table in printed]
    own = [figure for machine in site.catalogue.machines for figure in _own_figures(machine.name, ours, printed)]
    shown = [*own, *figures]
    choices = {
        "paper": list(dict.fromkeys(one.paper for one in shown)),
        "system": sorted({name for one in shown for name in one.systems}),
        "api": sorted({name for one in shown for name in one.apis}),
    }
    stated = {"statements": list(_published_statements()), "statements_source": _STATEMENTS_SOURCE}
    site.write_page("scaling.html", "scaling.html", figures=figures, own=own, choices=choices, open=_MAX_OPEN, **stated)


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


def _table_figure(table: PublishedScaling, ours: Callable[[str], list[OwnCurve]]) -> ScalingFigure:
    """Figure of a published table: curves if it has an axis, else one row per value."""
    if table.axis is None:
        return _ranges_figure(table)
    own = _matching_own_curves(ours(table.axis), table.chosen)
    found = [drawing.Curve(name, table.points(rows)) for name, rows in table.groups]
    curves = [*found[:_MAX_CURVES], *(drawing.Curve(one.name, one.points, ours=True) for one in own)]
    note = f"{table.chosen[0]['statistic']} of each, as printed"
    if along := distinguishing_columns(table.chosen, [table.axis])[1]:
        note += f"; {', '.join(name.replace('_', ' ') for name in along)} changes with it"
    if len(found) > _MAX_CURVES:
        note += f"; {len(found) - _MAX_CURVES} more curves are in the table, not here"
    others = {one.system for one in own} - set(table.values("system"))
    if others:
        note += f"; thick: the same case on {', '.join(sorted(others))[:120]}, another machine than the paper's"
    shown = table.values("system"), table.values("api"), bool(own)
    return _curves_figure(curves, table.axis, table.title, table.where, note, *shown)


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


def _ranges_figure(table: PublishedScaling) -> ScalingFigure:
    """Figure with one row per combination: mean, lowest and highest value as published."""
    found, title = [], table.title
    for name, members in group_rows(table.rows, distinguishing_columns(table.rows, [])[0]).items():
        by = {str(row["statistic"]): float(row["value"]) for row in members}
        value = by.get("mean", by.get("max", next(iter(by.values()))))
        found.append(drawing.ValueRange(name, value, by.get("min"), by.get("max")))
    drawn = drawing.ranges_picture(found, "MiB/s", f"{title}: {len(found)} printed values of bandwidth")
    numbers = [(row.name, [row.low, row.value, row.high]) for row in found]
    columns, note = [("", "lowest"), ("", "mean"), ("", "highest")], "dot: mean, line: lowest to highest, as printed"
    shown = table.values("system"), table.values("api")
    return ScalingFigure(title, table.where, drawn, columns, "case", numbers, note, *shown)


def _own_figures(
    system: str, ours: Callable[[str], list[OwnCurve]], printed: Sequence[PublishedScaling]
) -> Iterator[ScalingFigure]:
    """Results of a system over processes, and over nodes if these curves differ; published ones of the case behind."""
    known: set[tuple[float, ...]] = set()
    for axis, words in (("writers", "processes"), ("nodes", "nodes")):
        all_own = [one for one in ours(axis) if one.system == system]
        own = [one for one in all_own if tuple(value for _, value in one.points) not in known]
        known.update(tuple(value for _, value in one.points) for one in all_own)
        if own:
            drawn = own[:_MAX_CURVES]
            behind, higher = _published_behind(drawn, axis, printed)
            note = "newest headline of each case"
            if len(own) > _MAX_CURVES:
                note += f"; {len(own) - _MAX_CURVES} more curves are not drawn"
            if behind:
                note += "; grey: published of the same case"
            if higher:
                note += (
                    f"; more than {_MAX_HEIGHT:g} times as high, not drawn: {higher} published curves of the same case"
                )
            curves = [*behind, *(drawing.Curve(one.name.partition(": ")[2], one.points) for one in drawn)]
            apis = sorted({str(one.shared["api"]) for one in own if "api" in one.shared})
            title = f"{system}: own results over {words}"
            yield _curves_figure(curves, axis, title, "", note, [system], apis, bool(behind))


def _published_behind(
    own: Sequence[OwnCurve], axis: str, printed: Sequence[PublishedScaling]
) -> tuple[list[drawing.Curve], int]:
    """Published curves of the same case as one of `own`, over the same part of the axis, the best matches first.

    Returns:
        The curves, and the number of others that are too high to draw.
    """
    kinds, own_points = {one.kind for one in own}, [point for one in own for point in one.points]
    top, first, last = max(y for _, y in own_points), min(own_points)[0], max(own_points)[0]
    ranked, higher = [], 0
    for table in (table for table in printed if table.axis == axis):
        for name, rows in table.groups:
            stated = {published_curve_kind(row) for row in rows}
            agreed = [n for a in kinds for b in stated if (n := count_agreeing_parameters(a, b)) is not None]
            points = [point for point in table.points(rows) if first <= point[0] <= last]
            if agreed and points and max(y for _, y in points) > _MAX_HEIGHT * top:
                higher += 1
            elif agreed and points:
                words = "" if name == "published" else f" {name}"
                curve = drawing.Curve(f"{table.where} {rows[0]['system']}{words}", points, behind=True)
                ranked.append((max(agreed), curve))
    ranked.sort(key=lambda pair: -pair[0])
    return [curve for _, curve in ranked[:_MAX_BEHIND]], higher


def _curves_figure(
    curves: Sequence[drawing.Curve],
    axis: str,
    title: str,
    where: str,
    note: str,
    systems: Sequence[str],
    apis: Sequence[str],
    matches: bool,
) -> ScalingFigure:
    """Figure of curves with keys and table."""
    label = AXIS_LABELS[axis]
    xs = sorted({x for curve in curves for x, _ in curve.points})
    numbers = [(f"{x:g}", [dict(curve.points).get(x) for curve in curves]) for x in xs]
    keys = list(zip(drawing.curve_classes(curves), (curve.name for curve in curves), strict=True))
    drawn = drawing.curves_picture(curves, label, "MiB/s", f"{title}: {len(curves)} curves of bandwidth over {label}")
    return ScalingFigure(title, where, drawn, keys, label, numbers, note, systems, apis, matches)
