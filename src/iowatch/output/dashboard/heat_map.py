"""Grids of the heat map: which parameters of cases are rows, which are columns, and what is in each cell."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Generic, TypeVar

from iowatch.core import Scalar
from iowatch.findings import CASE_PARAMETERS, format_parameter_value
from iowatch.site import with_file_system
from iowatch.store import SeriesRow

_T = TypeVar("_T")
CaseValues = Mapping[str, Scalar]
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
class HeadingRow:
    """A row of column headings: the parameter, and (value, columns that it spans) from left to right."""

    name: str
    spans: Sequence[tuple[str, int]]


@dataclass(frozen=True)
class HeatMapGrid(Generic[_T]):
    """Grid of one benchmark.

    Attributes:
        heads: rows of headings, outermost first.
        rows: name and cells from left to right; None for a cell without a case.
    """

    benchmark: str
    heads: Sequence[HeadingRow]
    rows: Sequence[tuple[str, Sequence[_T | None]]]


@dataclass(frozen=True)
class HeatMap(Generic[_T]):
    """All grids that fit on a page; `left_out` lists the other benchmarks with their numbers of series."""

    grids: Sequence[HeatMapGrid[_T]]
    left_out: Sequence[tuple[str, int]]


def build_heat_map(items: Sequence[_T], row_of: Callable[[_T], SeriesRow]) -> HeatMap[_T]:
    """Build one grid per benchmark, sorted by name; if the cells of a page are too few, small grids have precedence.

    Args:
        row_of: function from an item to its series.
    """
    by_benchmark: dict[str, list[_T]] = defaultdict(list)
    for item in items:
        by_benchmark[row_of(item).case.benchmark].append(item)
    remaining_cells, fits, left_out = _MAX_CELLS, [], []
    for name, members in sorted(by_benchmark.items(), key=lambda entry: (len(entry[1]), entry[0])):
        remaining_cells -= len(members)
        if remaining_cells >= 0:
            fits.append(_make_grid(name, members, [_case_values(row_of(one)) for one in members]))
        else:
            left_out.append((name, len(members)))
    return HeatMap(sorted(fits, key=lambda grid: grid.benchmark), left_out)


def _case_values(row: SeriesRow) -> CaseValues:
    known = with_file_system(row.system, row.case.benchmark, row.case.parameters)
    return {**known, "stack": row.stack, "partition": row.partition, "metric": row.metric}


def _make_grid(benchmark: str, members: Sequence[_T], values: Sequence[CaseValues]) -> HeatMapGrid[_T]:
    down, across = _choose_axes(values)
    columns = sorted({_select_values(one, across) for one in values}, key=_natural_sort_key)
    places: dict[tuple[Any, ...], dict[tuple[Any, ...], _T]] = defaultdict(dict)
    cases_by_row: dict[tuple[Any, ...], list[CaseValues]] = defaultdict(list)
    for member, one in zip(members, values, strict=True):
        key = _select_values(one, down)
        places[key][_select_values(one, across)] = member
        cases_by_row[key].append(one)
    rows = [
        (_row_label(down, across, cases_by_row[key]), [places[key].get(column) for column in columns])
        for key in sorted(places, key=_natural_sort_key)
    ]
    heads = []
    for n, name in enumerate(across):
        # Adjacent columns with equal values in this and all outer headings share one heading.
        runs = groupby(columns, key=lambda column, end=n + 1: column[:end])  # type: ignore[misc]
        spans = [(_format_value(name, key[n]), len(list(run))) for key, run in runs]
        heads.append(HeadingRow(_format_parameter_name(name), spans))
    return HeatMapGrid(benchmark, heads, rows)


def _choose_axes(values: Sequence[CaseValues]) -> tuple[list[str], list[str]]:
    """Parameters of the rows and of the columns, for few columns and few empty cells."""
    kept = _distinguishing_parameters(values)
    groups = [name for name in _COLUMN_GROUPS if name in kept]
    numbers = [name for name in kept if name not in groups and all(_is_numeric(one.get(name)) for one in values)]
    numbers.sort(key=lambda name: (_COLUMN_PARAMETERS.index(name) if name in _COLUMN_PARAMETERS else -1, name))
    # Too many columns: outer numbers become rows first, then file systems, then stacks.
    choices = [groups + numbers[n:] for n in range(len(numbers) + 1)] + [groups[:n] for n in (1, 0)]
    across = next((one for one in choices if _fits_columns(values, kept, one, _MAX_COLUMNS)), [])
    if "operation" in kept and _fits_columns(values, kept, [*across, "operation"], _PAGE_CELLS):
        across = [*across, "operation"]
    return _sort_parameters(name for name in kept if name not in across), across


def _distinguishing_parameters(values: Sequence[CaseValues]) -> list[str]:
    """Parameters that distinguish the cases, lowest prior cost first, without those determined by previous ones."""
    names_of_all: set[str] = set()
    for case_values in values:
        names_of_all.update(case_values)
    names = sorted(names_of_all, key=lambda name: (CASE_PARAMETERS.prior_cost_bits(name), name))
    kept: list[str] = []
    cells = 1
    for name in names:
        if (more := len({_select_values(one, [*kept, name]) for one in values})) > cells:
            kept, cells = [*kept, name], more
    return kept


def _fits_columns(values: Sequence[CaseValues], kept: Sequence[str], across: Sequence[str], most: int) -> bool:
    columns = len({_select_values(one, across) for one in values})
    rows = len({_select_values(one, [name for name in kept if name not in across]) for one in values})
    return columns <= most and rows * columns <= 3 * len(values) + _PAGE_CELLS


def _select_values(one: CaseValues, names: Sequence[str]) -> tuple[Scalar | None, ...]:
    return tuple(one.get(name) for name in names)


def _is_numeric(value: Scalar | None) -> bool:
    """Whether a value is a number or the size of an array (`128x128x128`)."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain or (isinstance(value, str) and re.fullmatch(r"\d+(x\d+)*", value) is not None)


def _natural_sort_key(key: Sequence[Any]) -> list[tuple[int, float, str]]:
    """Sort key that compares numbers numerically, also within text; absent values first."""
    found: list[tuple[int, float, str]] = []
    for value in key:
        if not isinstance(value, str):
            found.append((0, 0.0, "") if value is None else (1, float(value), ""))
        else:
            parts = re.findall(r"\d{1,15}|\D+|\d+", value)
            found += [(1, float(p), "") if p.isdecimal() else (2, 0.0, p) for p in parts]
    return found


def _format_value(name: str, value: Scalar | None) -> str:
    plain = "–" if value is None else str(value)
    return plain if value is None or name == "operation" else format_parameter_value(name, value)


def _format_parameter_name(name: str) -> str:
    return name.removesuffix("_bytes").replace("_", " ")


def _row_label(down: Sequence[str], across: Sequence[str], row: Sequence[CaseValues]) -> str:
    """Label of a row; operation, API and file are included even if they are the same in all cases.

    Numbers and booleans are shown with the name of their parameter.
    """
    parts = []
    for name in _sort_parameters({*down, *_ALWAYS_SHOWN} - {*across}):
        found = {one.get(name) for one in row}
        value = found.pop() if len(found) == 1 else None
        if value is not None:
            text = _format_value(name, value)
            bare = isinstance(value, str) or text != str(value).lower()
            parts.append(text if bare and not name.endswith("_bytes") else f"{_format_parameter_name(name)} {text}")
    return " ".join(parts) or "all"


def _sort_parameters(names: Iterable[str]) -> list[str]:
    order = {name: position for position, name in enumerate(_ROW_PARAMETERS)}
    return sorted(names, key=lambda name: (order.get(name, len(order)), name))
