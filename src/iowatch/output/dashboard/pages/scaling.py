"""Scaling: this site's bandwidths over processes and nodes, and the published tables, each with the other's curves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from markupsafe import Markup

from iowatch.core import Scalar
from iowatch.output.dashboard import data, drawing
from iowatch.output.dashboard.node_scaling import NodeCurve, group_by_family, read_node_curves
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
from iowatch.store import History

# As `OwnCurve.kind`: what decides whether a curve of this site and a published one may be in one picture.
CurveKind = Sequence[Scalar | None]
_MAX_CURVES = 16
# Curves of this site in a published figure: those that agree in most parameters.
_MAX_OWN_CURVES = 5
# Published curves behind those of this site, and their largest height relative to them: a curve of a machine ten times
# as fast would press the site's own against the axis.
_MAX_PUBLISHED_CURVES, _MAX_HEIGHT = 4, 2.0
_MAX_SYSTEMS_CHARACTERS = 120
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
        node_curves: of a figure over nodes: what its table of efficiency shows.
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
    node_curves: Sequence[NodeCurve] = ()

    @property
    def paper(self) -> str:
        """Key of its source, or `this site`."""
        return self.where.partition("/")[0] or "this site"


def publish_scaling_page(site: data.SiteBuild) -> None:
    """Write `scaling.html`: results of this site."""
    own_figures: list[ScalingFigure] = []
    published_tables = _published_tables(site)
    for machine in site.catalogue.machines:
        own_figures += _own_figures(site.history, machine.name, _own_curves(site), published_tables)
    site.write_page(
        "scaling.html", "scaling.html", figures=own_figures, choices=_filter_choices(own_figures), open=_MAX_OPEN
    )


def publish_published_page(site: data.SiteBuild) -> None:
    """Write `published.html`: the tables of the papers, with the results of this site of the same case."""
    figures = [_table_figure(table, _own_curves(site)) for table in _published_tables(site)]
    site.write_page(
        "published.html",
        "published.html",
        figures=figures,
        choices=_filter_choices(figures),
        statements=list(_published_statements()),
        statements_source=_STATEMENTS_SOURCE,
    )


def _own_curves(site: data.SiteBuild) -> Callable[[str], list[OwnCurve]]:
    """Returns the curves of this site's results over a parameter; they are read once for both pages."""
    curves = OwnCurves(site.history, site.catalogue.machines)

    def over(parameter: str) -> list[OwnCurve]:
        return site.compute_once(f"curves over {parameter}", None, lambda: curves.over(parameter))

    return over


def _has_own_curves(site: data.SiteBuild) -> bool:
    return any(_own_curves(site)(parameter) for parameter in ("writers", "nodes"))


def _published_tables(site: data.SiteBuild) -> list[PublishedScaling]:
    """All published tables of bandwidths, read once for both pages."""
    return site.compute_once("published tables", None, _read_published_tables)


def _read_published_tables() -> list[PublishedScaling]:
    """All published tables of bandwidths, in the order of the sources and of the tables in each."""
    rows_of_table: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for _system, rows in sorted(data.published_measurements().items()):
        for row in rows:
            rows_of_table[row["where"]].append(row)
    return [read_table(rows_of_table[where]) for where in sorted(rows_of_table, key=_table_order)]


def _filter_choices(figures: Sequence[ScalingFigure]) -> dict[str, list[str]]:
    """Values of each filter of the page."""
    papers = dict.fromkeys(figure.paper for figure in figures)
    systems: set[str] = set()
    apis: set[str] = set()
    for figure in figures:
        systems.update(figure.systems)
        apis.update(figure.apis)
    return {"paper": list(papers), "system": sorted(systems), "api": sorted(apis)}


PAGE = data.Page("scaling.html", "Scaling", 6, publish_scaling_page, has_content=_has_own_curves)
PUBLISHED_PAGE = data.Page("published.html", "Published", 9, publish_published_page)
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


def _table_order(where: str) -> tuple[str, int, str]:
    """Sort key of a source and table (`lawrence2017/2`): tables are in the order of their numbers."""
    source, _, table = where.partition("/")
    digits = "".join(character for character in table if character.isdigit())
    return published.source_number(source), int(digits or 0), table


def _table_figure(table: PublishedScaling, curves_over: Callable[[str], list[OwnCurve]]) -> ScalingFigure:
    """Figure of a published table: curves if it has an axis, else one row per value."""
    if table.axis is None:
        return _ranges_figure(table)
    own_curves = _matching_own_curves(curves_over(table.axis), table.plotted)
    curves: list[drawing.Curve] = []
    for name, rows in table.groups[:_MAX_CURVES]:
        curves.append(drawing.Curve(name, table.points(rows)))
    for own_curve in own_curves:
        curves.append(drawing.Curve(own_curve.name, own_curve.points, ours=True))
    return _curves_figure(
        curves,
        table.axis,
        title=table.title,
        where=table.where,
        note=_table_note(table, table.axis, own_curves),
        systems=table.values("system"),
        apis=table.values("api"),
        matches=bool(own_curves),
    )


def _table_note(table: PublishedScaling, axis: str, own_curves: Sequence[OwnCurve]) -> str:
    """What the caption says about a published table: statistic, what varies with the axis, what is not drawn."""
    note = f"{table.plotted[0]['statistic']} of each, as printed"
    _, dependent_columns = distinguishing_columns(table.plotted, [axis])
    if dependent_columns:
        note += f"; {', '.join(name.replace('_', ' ') for name in dependent_columns)} changes with it"
    curves_left_out = len(table.groups) - _MAX_CURVES
    if curves_left_out > 0:
        note += f"; {curves_left_out} more curves are in the table, not here"
    other_systems = {curve.system for curve in own_curves} - set(table.values("system"))
    if other_systems:
        names = ", ".join(sorted(other_systems))[:_MAX_SYSTEMS_CHARACTERS]
        note += f"; thick: the same case on {names}, another machine than the paper's"
    return note


def _matching_own_curves(own_curves: Sequence[OwnCurve], published_rows: Rows) -> list[OwnCurve]:
    """Curves of this site of the same case as a published row; those that agree in most parameters first."""
    published_kinds = {published_curve_kind(row) for row in published_rows}
    systems = {row["system"] for row in published_rows}
    # Many curves share few kinds, so the result is kept per kind.
    agreement_of_kind: dict[Any, int | None] = {}
    agreement_and_curve: list[tuple[int, OwnCurve]] = []
    for curve in own_curves:
        if curve.kind not in agreement_of_kind:
            agreement_of_kind[curve.kind] = _best_agreement([curve.kind], published_kinds)
        agreement = agreement_of_kind[curve.kind]
        if agreement is not None:
            # The machine of the paper counts like a parameter.
            agreement_and_curve.append((agreement + (curve.system in systems), curve))
    agreement_and_curve.sort(key=lambda entry: -entry[0])
    return [curve for _, curve in agreement_and_curve[:_MAX_OWN_CURVES]]


def _best_agreement(own_kinds: Iterable[CurveKind], published_kinds: Iterable[CurveKind]) -> int | None:
    """Largest number of parameters in which a curve of this site and a published one agree; None if no case is equal.

    Args:
        own_kinds, published_kinds: as `OwnCurve.kind`.
    """
    agreements: list[int] = []
    for own_kind, published_kind in product(own_kinds, published_kinds):
        agreement = count_agreeing_parameters(own_kind, published_kind)
        if agreement is not None:
            agreements.append(agreement)
    return max(agreements, default=None)


def _ranges_figure(table: PublishedScaling) -> ScalingFigure:
    """Figure with one row per combination: mean, lowest and highest value as published."""
    columns, _ = distinguishing_columns(table.rows, [])
    ranges: list[drawing.ValueRange] = []
    for name, rows in group_rows(table.rows, columns).items():
        value_of_statistic = {str(row["statistic"]): float(row["value"]) for row in rows}
        first_value = next(iter(value_of_statistic.values()))
        value = value_of_statistic.get("mean", value_of_statistic.get("max", first_value))
        ranges.append(
            drawing.ValueRange(name, value, low=value_of_statistic.get("min"), high=value_of_statistic.get("max"))
        )
    label = f"{table.title}: {len(ranges)} printed values of bandwidth"
    return ScalingFigure(
        title=table.title,
        where=table.where,
        picture=drawing.ranges_picture(ranges, "MiB/s", label),
        keys=[("", "lowest"), ("", "mean"), ("", "highest")],
        axis="case",
        table=[(row.name, [row.low, row.value, row.high]) for row in ranges],
        note="dot: mean, line: lowest to highest, as printed",
        systems=table.values("system"),
        apis=table.values("api"),
    )


def _own_figures(
    history: History,
    system: str,
    curves_over: Callable[[str], list[OwnCurve]],
    published_tables: Sequence[PublishedScaling],
) -> Iterator[ScalingFigure]:
    """Results of a system over processes, and each family of cases over nodes; published ones of the case behind."""
    process_curves = [curve for curve in curves_over("writers") if curve.system == system]
    if process_curves:
        yield _process_figure(system, process_curves, published_tables)
    node_curves = [curve for curve in curves_over("nodes") if curve.system == system]
    for family, family_curves in group_by_family(node_curves).items():
        drawn_curves = read_node_curves(history, family_curves[:_MAX_CURVES])
        figure = _node_figure(f"{system}: {family} over nodes", drawn_curves, published_tables)
        yield _with_curves_left_out(figure, family_curves)


def _with_curves_left_out(figure: ScalingFigure, own_curves: Sequence[OwnCurve]) -> ScalingFigure:
    """The figure with a note about curves that are not drawn, the system and the interfaces of all."""
    note = figure.note
    if len(own_curves) > _MAX_CURVES:
        note += f"; {len(own_curves) - _MAX_CURVES} more curves are not drawn"
    apis = sorted({str(curve.shared["api"]) for curve in own_curves if "api" in curve.shared})
    return replace(figure, note=note, systems=[own_curves[0].system], apis=apis)


def _process_figure(
    system: str, own_curves: Sequence[OwnCurve], published_tables: Sequence[PublishedScaling]
) -> ScalingFigure:
    """Curves of a system over its processes."""
    drawn_curves = own_curves[:_MAX_CURVES]
    behind = _published_behind(drawn_curves, "writers", published_tables)
    curves = list(behind.curves)
    for own_curve in drawn_curves:
        # The title names the site and the system.
        _, _, name = own_curve.name.partition(": ")
        curves.append(drawing.Curve(name, own_curve.points))
    note = "newest headline of each case" + _note_on_published(behind)
    figure = _curves_figure(
        curves,
        "writers",
        title=f"{system}: own results over processes",
        where="",
        note=note,
        systems=[],
        apis=[],
        matches=bool(behind.curves),
    )
    return _with_curves_left_out(figure, own_curves)


def _node_figure(
    title: str, node_curves: Sequence[NodeCurve], published_tables: Sequence[PublishedScaling]
) -> ScalingFigure:
    """Curves of one family of cases over nodes: newest sessions, and the median of earlier ones."""
    behind = _published_behind([node_curve.curve for node_curve in node_curves], "nodes", published_tables)
    curves = list(behind.curves)
    note = "newest headline of each case"
    for node_curve in node_curves:
        curves.append(drawing.Curve(node_curve.name, node_curve.curve.points))
        if node_curve.earlier_points:
            curves.append(drawing.Curve("", node_curve.earlier_points, earlier=True))
            note = "newest headline of each case; dotted: median of earlier sessions"
    figure = _curves_figure(
        curves,
        "nodes",
        title=title,
        where="",
        note=note + _note_on_published(behind),
        systems=[],
        apis=[],
        matches=bool(behind.curves),
    )
    return replace(figure, node_curves=node_curves)


def _note_on_published(behind: PublishedCurves) -> str:
    """What a caption adds about published curves; empty without any."""
    note = ""
    if behind.curves:
        note += "; grey: published of the same case"
    if behind.too_high:
        note += f"; more than {_MAX_HEIGHT:g} times as high, not drawn:"
        note += f" {behind.too_high} published curves of the same case"
    return note


@dataclass(frozen=True)
class PublishedCurves:
    """Published curves behind those of this site, and the number of others that are too high to draw."""

    curves: Sequence[drawing.Curve]
    too_high: int


def _published_behind(
    own_curves: Sequence[OwnCurve], axis: str, published_tables: Sequence[PublishedScaling]
) -> PublishedCurves:
    """Published curves of the same case as one of this site, over the same range of the axis, best matches first."""
    own_kinds = {curve.kind for curve in own_curves}
    positions: list[float] = []
    values: list[float] = []
    for curve in own_curves:
        positions += [x for x, _ in curve.points]
        values += [value for _, value in curve.points]
    first = min(positions)
    last = max(positions)
    highest = max(values)
    agreement_and_curve: list[tuple[int, drawing.Curve]] = []
    too_high = 0
    for table in published_tables:
        if table.axis != axis:
            continue
        for name, rows in table.groups:
            points = [(x, value) for x, value in table.points(rows) if first <= x <= last]
            agreement = _best_agreement(own_kinds, {published_curve_kind(row) for row in rows})
            if agreement is None or not points:
                continue
            if max(value for _, value in points) > _MAX_HEIGHT * highest:
                too_high += 1
                continue
            label = f"{table.where} {rows[0]['system']}"
            if name != "published":
                label += f" {name}"
            agreement_and_curve.append((agreement, drawing.Curve(label, points, behind=True)))
    agreement_and_curve.sort(key=lambda entry: -entry[0])
    return PublishedCurves([curve for _, curve in agreement_and_curve[:_MAX_PUBLISHED_CURVES]], too_high)


def _curves_figure(
    curves: Sequence[drawing.Curve],
    axis: str,
    *,
    title: str,
    where: str,
    note: str,
    systems: Sequence[str],
    apis: Sequence[str],
    matches: bool,
) -> ScalingFigure:
    """Figure of curves with keys and table; the arguments by name are fields of `ScalingFigure`."""
    label = AXIS_LABELS[axis]
    # Earlier values have a table of their own.
    listed_curves = [curve for curve in curves if not curve.earlier]
    value_at_position = [dict(curve.points) for curve in listed_curves]
    positions: set[float] = set()
    for values in value_at_position:
        positions.update(values)
    # One row per position, one column per curve; a curve has no value where nothing was measured.
    table: list[tuple[str, list[float | None]]] = []
    for x in sorted(positions):
        row = [values.get(x) for values in value_at_position]
        table.append((f"{x:g}", row))
    description = f"{title}: {len(listed_curves)} curves of bandwidth over {label}"
    picture = drawing.curves_picture(curves, label, "MiB/s", description)
    keys: list[tuple[str, str]] = []
    for style_class, curve in zip(drawing.curve_classes(curves), curves, strict=True):
        if not curve.earlier:
            keys.append((style_class, curve.name))
    return ScalingFigure(
        title=title,
        where=where,
        picture=picture,
        keys=keys,
        axis=label,
        table=table,
        note=note,
        systems=systems,
        apis=apis,
        matches=matches,
    )
