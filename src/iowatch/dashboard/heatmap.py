"""Heat map of one night: a grid a benchmark, what names its cases down, numbers that grow across."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Generic, TypeVar

from iowatch.explain.conditions import bits_of, shown
from iowatch.model import Scalar
from iowatch.store import SeriesRow

_T = TypeVar("_T")
Values = Mapping[str, Scalar]
# Numbers across, the innermost last; others stand outside of them.
_ACROSS = ("stripe_count", "stripe_bytes", "block_bytes", "transfer_bytes", "local_size", "nodes", "ranks")
# Words down, in the order of speech; others follow.
_DOWN = ("partition", "stack", "file_system", "operation", "api", "file", "metric")
_ALWAYS = ("operation", "api", "file")
_MOST_ACROSS = 24
# Few columns leave room for write and read side by side.
_ROOM = 8
_MOST_CELLS = 2000


@dataclass(frozen=True)
class Head:
    """A row of column headings: the parameter, and (value, columns that it spans) from left to right."""

    name: str
    spans: Sequence[tuple[str, int]]


@dataclass(frozen=True)
class Grid(Generic[_T]):
    """One benchmark.

    Attributes:
        heads: rows of headings, outermost first.
        rows: name and cells from left to right; None where there is no such case.
    """

    benchmark: str
    heads: Sequence[Head]
    rows: Sequence[tuple[str, Sequence[_T | None]]]


@dataclass(frozen=True)
class HeatMap(Generic[_T]):
    """All grids that fit a page; `left_out` are the benchmarks that do not, with the number of their series."""

    grids: Sequence[Grid[_T]]
    left_out: Sequence[tuple[str, int]]


def heat_map(items: Sequence[_T], row_of: Callable[[_T], SeriesRow]) -> HeatMap[_T]:
    """A grid a benchmark, benchmarks by name; of a page's worth of cells the small grids first.

    Args:
        row_of: what is known of an item.
    """
    by_benchmark: dict[str, list[_T]] = {}
    for item in items:
        by_benchmark.setdefault(row_of(item).case.benchmark, []).append(item)
    left, fits, left_out = _MOST_CELLS, [], []
    for name, members in sorted(by_benchmark.items(), key=lambda entry: (len(entry[1]), entry[0])):
        left -= len(members)
        if left >= 0:
            fits.append(_grid(name, members, [_values(row_of(one)) for one in members]))
        else:
            left_out.append((name, len(members)))
    return HeatMap(sorted(fits, key=lambda grid: grid.benchmark), left_out)


def _values(row: SeriesRow) -> Values:
    return {**row.case.parameters, "stack": row.stack, "partition": row.partition, "metric": row.metric}


def _grid(benchmark: str, members: Sequence[_T], values: Sequence[Values]) -> Grid[_T]:
    down, across = _axes(values)
    columns = sorted({_of(one, across) for one in values}, key=_natural)
    places: dict[tuple[Any, ...], dict[tuple[Any, ...], _T]] = {}
    for member, one in zip(members, values, strict=True):
        places.setdefault(_of(one, down), {})[_of(one, across)] = member
    alike: dict[tuple[Any, ...], list[Values]] = {}
    for one in values:
        alike.setdefault(_of(one, down), []).append(one)
    rows = [
        (_name(down, across, alike[key]), [places[key].get(column) for column in columns])
        for key in sorted(places, key=_natural)
    ]
    heads = [Head(_called(name), _spans(name, n, columns)) for n, name in enumerate(across)]
    return Grid(benchmark, heads, rows)


def _axes(values: Sequence[Values]) -> tuple[list[str], list[str]]:
    """What stands down and what across: few columns, and few cells that stay empty."""
    kept = _telling(values)
    across = [name for name in kept if all(_numeric(one.get(name)) for one in values)]
    across.sort(key=lambda name: (_ACROSS.index(name) if name in _ACROSS else -1, name))
    while across and not _fits(values, kept, across, _MOST_ACROSS):
        across = across[1:]
    if "operation" in kept and _fits(values, kept, [*across, "operation"], _ROOM):
        across = [*across, "operation"]
    return _in_order(name for name in kept if name not in across), across


def _telling(values: Sequence[Values]) -> list[str]:
    """Parameters that tell the cases apart, the most meaningful first; none that follows from those before."""
    names = sorted({name for one in values for name in one}, key=lambda name: (bits_of(name), name))
    kept: list[str] = []
    told = 1
    for name in names:
        if (more := len({_of(one, [*kept, name]) for one in values})) > told:
            kept, told = [*kept, name], more
    return kept


def _fits(values: Sequence[Values], kept: Sequence[str], across: Sequence[str], most: int) -> bool:
    columns = len({_of(one, across) for one in values})
    rows = len({_of(one, [name for name in kept if name not in across]) for one in values})
    return columns <= most and rows * columns <= 3 * len(values) + _ROOM


def _of(one: Values, names: Sequence[str]) -> tuple[Scalar | None, ...]:
    return tuple(one.get(name) for name in names)


def _numeric(value: Scalar | None) -> bool:
    """Whether it grows: a number or the size of an array (`128x128x128`), and not absent."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain or (isinstance(value, str) and re.fullmatch(r"\d+(x\d+)*", value) is not None)


def _natural(key: Sequence[Any]) -> list[tuple[int, float, str]]:
    """Sorts numbers as numbers, also those within words; what is absent first."""
    found: list[tuple[int, float, str]] = []
    for value in key:
        if value is None:
            found.append((0, 0.0, ""))
        elif isinstance(value, int | float):
            found.append((1, float(value), ""))
        else:
            parts = re.findall(r"\d{1,15}|\D+|\d+", value)
            found += [(1, float(p), "") if p.isdecimal() else (2, 0.0, p) for p in parts]
    return found


def _spans(name: str, level: int, columns: Sequence[tuple[Any, ...]]) -> list[tuple[str, int]]:
    """Values of one level of headings: columns that share it and all levels above it stand under one."""
    runs = groupby(columns, key=lambda column: column[: level + 1])
    return [(_told(name, key[level]), len(list(run))) for key, run in runs]


def _told(name: str, value: Scalar | None) -> str:
    if value is None:
        return "–"
    return str(value) if name == "operation" else shown(name, value)


def _called(name: str) -> str:
    return name.removesuffix("_bytes").replace("_", " ")


def _name(down: Sequence[str], across: Sequence[str], row: Sequence[Values]) -> str:
    """A row in words, what its cases do and how among them even where all cases do the same.

    Numbers and truths that speak for nothing by themselves are told with their parameter.
    """
    parts = []
    for name in _in_order({*down, *_ALWAYS} - {*across}):
        found = {one.get(name) for one in row}
        value = found.pop() if len(found) == 1 else None
        if value is not None:
            text = _told(name, value)
            bare = isinstance(value, str) or text != str(value).lower()
            parts.append(text if bare and not name.endswith("_bytes") else f"{_called(name)} {text}")
    return " ".join(parts) or "all"


def _in_order(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (_DOWN.index(name) if name in _DOWN else len(_DOWN), name))
