"""The counters of a module combined over its records.

POSIX, MPI-IO, STDIO, DFS and DAOS are combined by Darshan's own code (`records.accumulate`), so that the
figures are those of `darshan-parser --total`. Darshan offers no totals of H5F, H5D, PNETCDF_FILE and
PNETCDF_VAR; here the same rules are applied to them: operations, bytes and times add up, first times are the
earliest, last times the latest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from iowatch.darshan.records import Accumulated, Records

Number = int | float
_Column = NDArray[Any]


def _sum(column: _Column) -> Number:
    """-1 is Darshan's "could not be counted", and stays exactly that."""
    total: Number = column.sum().item()
    return total if total >= 0 else -1


def _first(column: _Column) -> Number:
    """The earliest of the times that were set."""
    used = column[column > 0]
    return float(used.min()) if len(used) else 0.0


def _common(column: _Column) -> Number:
    """The value of all records, or -1 where they differ: a chunk size or a number of dimensions has no sum."""
    value: Number = column[0].item()
    return value if (column == column[0]).all() else -1


def _max(column: _Column) -> Number:
    value: Number = column.max().item()
    return value


_RULES: tuple[tuple[str, Callable[[_Column], Number]], ...] = (
    (r"_F_.*START_TIMESTAMP$", _first),
    (r"_F_.*END_TIMESTAMP$", _max),
    (r"_F_MAX_.*_TIME$|_MAX_BYTE_|_USE_|_IS_RECORD_VAR$", _max),
    (r"_MODE$|_ALIGNMENT$|_NDIMS$|_NPOINTS$|_DATATYPE_SIZE$|_CHUNK_SIZE_|RANK|_MAX_.*_TIME_SIZE$", _common),
)


def _rule(name: str) -> Callable[[_Column], Number]:
    return next((rule for pattern, rule in _RULES if re.search(pattern, name)), _sum)


def _slowest_sizes(table: dict[str, _Column]) -> dict[str, Number]:
    """The size of the slowest access belongs to the record that had it."""
    sizes = {}
    for name in table:
        match = re.fullmatch(r"(\w+)_MAX_(READ|WRITE)_TIME_SIZE", name)
        if match:
            slowest = int(table[f"{match[1]}_F_MAX_{match[2]}_TIME"].argmax())
            sizes[name] = table[name][slowest].item()
    return sizes


def _common_accesses(table: dict[str, _Column]) -> dict[str, Number]:
    """The four most frequent accesses (size, and for datasets lengths and strides) over all records."""
    slots: list[list[str]] = [[n for n in table if re.search(rf"_ACCESS{i}_(?!COUNT)", n)] for i in range(1, 5)]
    if not slots[0]:
        return {}
    prefix = slots[0][0].split("_ACCESS1_")[0]
    seen: Counter[tuple[int, ...]] = Counter()
    for i, names in enumerate(slots, start=1):
        counts = table[f"{prefix}_ACCESS{i}_COUNT"]
        for row in np.flatnonzero(counts > 0):
            seen[tuple(int(table[name][row]) for name in names)] += int(counts[row])
    ranking = sorted(seen.items(), key=lambda item: (-item[1], [-v for v in item[0]]))[:4]
    ranking += [((0,) * len(slots[0]), 0)] * (4 - len(ranking))
    merged: dict[str, Number] = {}
    for i, (names, (values, count)) in enumerate(zip(slots, ranking, strict=True), start=1):
        merged.update(zip(names, values, strict=True))
        merged[f"{prefix}_ACCESS{i}_COUNT"] = count
    return merged


def _by_rules(records: Records) -> dict[str, Number]:
    integers, floats = records.names
    table: dict[str, _Column] = {name: records.integers[:, i] for i, name in enumerate(integers)}
    table |= {name: records.floats[:, i] for i, name in enumerate(floats)}
    combined = {name: _rule(name)(column) for name, column in table.items()}
    return combined | _slowest_sizes(table) | _common_accesses(table)


def counters(records: Records, accumulated: Accumulated | None) -> dict[str, Number]:
    """Darshan's counter names to values, for at least one record.

    Args:
        records: of one module.
        accumulated: Darshan's totals, where it offers them.
    """
    if accumulated is None:
        return _by_rules(records)
    integers, floats = records.names
    totals: dict[str, Number] = dict(zip(integers, accumulated.integers.tolist(), strict=True))
    totals |= zip(floats, accumulated.floats.tolist(), strict=True)
    return totals
