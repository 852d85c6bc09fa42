"""Grids of the heat map: which parameters of cases are rows, which are columns, and what is in each cell."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, TypeVar

from iowatch.core import Scalar
from iowatch.findings import CASE_PARAMETERS, format_parameter_value
from iowatch.site import with_file_system
from iowatch.store import SeriesRow

_T = TypeVar("_T")
# Parameters of a case, and stack, partition and metric of its series.
CaseValues = Mapping[str, Scalar]
# Values of some of them, in a fixed order.
_Values = tuple[Scalar | None, ...]
# Groups of columns, outermost first: what an administrator compares side by side.
_COLUMN_GROUPS = ("stack", "file_system")
# Numeric parameters of columns, innermost last; other parameters are further out.
_COLUMN_PARAMETERS = ("stripe_count", "stripe_bytes", "block_bytes", "transfer_bytes", "local_size", "nodes", "ranks")
# Parameters of rows, in reading order; others follow.
_ROW_PARAMETERS = ("partition", "stack", "file_system", "operation", "api", "file", "metric")
_ALWAYS_SHOWN = ("operation", "api", "file")
_MAX_COLUMNS = 24
# Maximum number of columns with operations side by side.
_PAGE_CELLS = 8
_MAX_CELLS = 2000


@dataclass(frozen=True)
class HeadingSpan:
    """A heading over adjacent columns: its label, and their number."""

    label: str
    columns: int


@dataclass(frozen=True)
class HeadingRow:
    """A row of column headings: the parameter, and its headings from left to right."""

    name: str
    spans: Sequence[HeadingSpan]


@dataclass(frozen=True)
class GridRow(Generic[_T]):
    """A row of a grid: its label, and its cells from left to right; None for a cell without a case."""

    label: str
    cells: Sequence[_T | None]


@dataclass(frozen=True)
class HeatMapGrid(Generic[_T]):
    """Grid of one benchmark; `heads` are its rows of headings, outermost first."""

    benchmark: str
    heads: Sequence[HeadingRow]
    rows: Sequence[GridRow[_T]]


@dataclass(frozen=True)
class OmittedBenchmark:
    """A benchmark whose grid does not fit on the page, and the number of its series."""

    name: str
    series: int


@dataclass(frozen=True)
class HeatMap(Generic[_T]):
    """All grids that fit on a page, and the other benchmarks."""

    grids: Sequence[HeatMapGrid[_T]]
    left_out: Sequence[OmittedBenchmark]


@dataclass(frozen=True)
class _Axes:
    """Parameters of the rows and of the columns of a grid, outermost first."""

    rows: Sequence[str]
    columns: Sequence[str]


def build_heat_map(items: Sequence[_T], row_of: Callable[[_T], SeriesRow]) -> HeatMap[_T]:
    """Build one grid per benchmark, sorted by name; if the cells of a page are too few, small grids have precedence.

    Args:
        items: what the cells contain.
        row_of: function from an item to its series.
    """
    by_benchmark: dict[str, list[_T]] = defaultdict(list)
    for item in items:
        by_benchmark[row_of(item).case.benchmark].append(item)
    remaining_cells = _MAX_CELLS
    grids: list[HeatMapGrid[_T]] = []
    left_out: list[OmittedBenchmark] = []
    # Smallest first, so that one large benchmark does not displace all others.
    for benchmark in sorted(by_benchmark, key=lambda name: (len(by_benchmark[name]), name)):
        members = by_benchmark[benchmark]
        remaining_cells -= len(members)
        if remaining_cells >= 0:
            grids.append(_make_grid(benchmark, members, [_case_values(row_of(item)) for item in members]))
        else:
            left_out.append(OmittedBenchmark(benchmark, len(members)))
    return HeatMap(sorted(grids, key=lambda grid: grid.benchmark), left_out)


def _case_values(row: SeriesRow) -> CaseValues:
    parameters = with_file_system(row.system, row.case.benchmark, row.case.parameters)
    return {**parameters, "stack": row.stack, "partition": row.partition, "metric": row.metric}


def _make_grid(benchmark: str, members: Sequence[_T], cases: Sequence[CaseValues]) -> HeatMapGrid[_T]:
    """The grid of a benchmark; `cases` are the values of its members, in their order."""
    axes = _choose_axes(cases)
    # Cells of each row by the values of their column.
    cells_by_row: dict[_Values, dict[_Values, _T]] = defaultdict(dict)
    cases_by_row: dict[_Values, list[CaseValues]] = defaultdict(list)
    columns: set[_Values] = set()
    for member, case in zip(members, cases, strict=True):
        row_key = _select_values(case, axes.rows)
        column_key = _select_values(case, axes.columns)
        cells_by_row[row_key][column_key] = member
        cases_by_row[row_key].append(case)
        columns.add(column_key)
    sorted_columns = sorted(columns, key=_natural_sort_key)
    rows: list[GridRow[_T]] = []
    for row_key in sorted(cells_by_row, key=_natural_sort_key):
        cells = [cells_by_row[row_key].get(column_key) for column_key in sorted_columns]
        rows.append(GridRow(_row_label(axes, cases_by_row[row_key]), cells))
    return HeatMapGrid(benchmark, _heading_rows(axes.columns, sorted_columns), rows)


def _heading_rows(parameters: Sequence[str], columns: Sequence[_Values]) -> list[HeadingRow]:
    """One row of headings per parameter of the columns.

    Args:
        parameters: of the columns, outermost first.
        columns: their values of these parameters, from left to right.
    """
    heads: list[HeadingRow] = []
    for position, name in enumerate(parameters):
        # Adjacent columns with equal values in this and all outer headings share one heading.
        shared_values = [column[: position + 1] for column in columns]
        spans: list[HeadingSpan] = []
        for values, group in groupby(shared_values):
            spans.append(HeadingSpan(_format_value(name, values[position]), len(list(group))))
        heads.append(HeadingRow(_format_parameter_name(name), spans))
    return heads


def _choose_axes(cases: Sequence[CaseValues]) -> _Axes:
    """Parameters of the rows and of the columns, for few columns and few empty cells."""
    names = _distinguishing_parameters(cases)
    groups = [name for name in _COLUMN_GROUPS if name in names]
    numbers: list[str] = []
    for name in names:
        if name not in groups and all(_is_numeric(case.get(name)) for case in cases):
            numbers.append(name)
    numbers.sort(key=_column_position)
    # Too many columns: outer numbers become rows first, then file systems, then stacks.
    candidates = [groups + numbers[start:] for start in range(len(numbers) + 1)]
    candidates += [groups[:1], []]
    columns: list[str] = []
    for candidate in candidates:
        if _fits_columns(cases, names, candidate, _MAX_COLUMNS):
            columns = candidate
            break
    # Operations are side by side where the grid stays small.
    if "operation" in names and _fits_columns(cases, names, [*columns, "operation"], _PAGE_CELLS):
        columns = [*columns, "operation"]
    return _Axes(_sort_parameters(name for name in names if name not in columns), columns)


def _column_position(name: str) -> tuple[int, str]:
    """Sort key of a numeric parameter among the headings of columns, outermost first."""
    position = _COLUMN_PARAMETERS.index(name) if name in _COLUMN_PARAMETERS else -1
    return position, name


def _distinguishing_parameters(cases: Sequence[CaseValues]) -> list[str]:
    """Parameters that distinguish the cases, lowest prior cost first, without those determined by previous ones."""
    all_names: set[str] = set()
    for case in cases:
        all_names.update(case)
    selected: list[str] = []
    distinct = 1
    for name in sorted(all_names, key=lambda name: (CASE_PARAMETERS.prior_cost_bits(name), name)):
        # A parameter that does not separate further cases is determined by those before it.
        distinct_with_name = _count_distinct(cases, [*selected, name])
        if distinct_with_name > distinct:
            selected.append(name)
            distinct = distinct_with_name
    return selected


def _count_distinct(cases: Sequence[CaseValues], names: Sequence[str]) -> int:
    """Number of different values of some parameters together."""
    return len({_select_values(case, names) for case in cases})


def _fits_columns(cases: Sequence[CaseValues], names: Sequence[str], columns: Sequence[str], most: int) -> bool:
    """Whether a grid has at most `most` columns and not too many empty cells.

    Args:
        names: parameters that distinguish the cases; those that are not of `columns` are of the rows.
    """
    column_count = _count_distinct(cases, columns)
    row_count = _count_distinct(cases, [name for name in names if name not in columns])
    # Two of three cells may be empty, in a small grid more.
    most_cells = 3 * len(cases) + _PAGE_CELLS
    return column_count <= most and row_count * column_count <= most_cells


def _select_values(case: CaseValues, names: Sequence[str]) -> _Values:
    return tuple(case.get(name) for name in names)


def _is_numeric(value: Scalar | None) -> bool:
    """Whether a value is a number or the size of an array (`128x128x128`)."""
    if isinstance(value, str):
        return re.fullmatch(r"\d+(x\d+)*", value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def _natural_sort_key(values: _Values) -> list[tuple[int, float, str]]:
    """Sort key that compares numbers numerically, also within text; absent values first."""
    key: list[tuple[int, float, str]] = []
    for value in values:
        if value is None:
            key.append((0, 0.0, ""))
        elif not isinstance(value, str):
            key.append((1, float(value), ""))
        else:
            # Digits up to 15 are a number, longer ones would lose digits as one.
            for token in re.findall(r"\d{1,15}|\D+|\d+", value):
                key.append((1, float(token), "") if token.isdecimal() else (2, 0.0, token))
    return key


def _format_value(name: str, value: Scalar | None) -> str:
    if value is None:
        return "–"
    if name == "operation":
        return str(value)
    return format_parameter_value(name, value)


def _format_parameter_name(name: str) -> str:
    return name.removesuffix("_bytes").replace("_", " ")


def _row_label(axes: _Axes, cases: Sequence[CaseValues]) -> str:
    """Label of a row; operation, API and file are included even if they are the same in all cases.

    Numbers and booleans are shown with the name of their parameter.

    Args:
        cases: of the cells of the row.
    """
    names = {*axes.rows, *_ALWAYS_SHOWN}
    names.difference_update(axes.columns)
    words: list[str] = []
    for name in _sort_parameters(names):
        values = {case.get(name) for case in cases}
        # Parameters that differ within the row, or that no case of it has, do not describe it.
        if len(values) > 1 or None in values:
            continue
        (value,) = values
        assert value is not None
        text = _format_value(name, value)
        has_word = isinstance(value, str) or text != str(value).lower()
        if has_word and not name.endswith("_bytes"):
            words.append(text)
        else:
            words.append(f"{_format_parameter_name(name)} {text}")
    return " ".join(words) or "all"


def _sort_parameters(names: Iterable[str]) -> list[str]:
    order = {name: position for position, name in enumerate(_ROW_PARAMETERS)}
    return sorted(names, key=lambda name: (order.get(name, len(order)), name))
