"""The long form of published tables: one measurement a row, in the words of docs/architecture.md.

What a measurement's columns are comes from four places of the sidecar, the later over the earlier: `common`,
the `values` of the row's texts, the `key` columns of the row, and what the column `measured`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from iowatch.errors import UsageError
from iowatch.model import Scalar
from iowatch.reference.published import LONG_KEYS, Cell, Column, Table
from iowatch.units import MIB, parse_size

CORES_A_NODE = {"archer": 24}
"""Where a paper says that all cores of every node write, nodes follow from writers (source 000, section 6)."""

_FIRST = LONG_KEYS[: LONG_KEYS.index("statistic") + 1]
COLUMNS: tuple[str, ...] = (*_FIRST, "value", "unit", *LONG_KEYS[len(_FIRST) :])
_UNITS = {"total_mib": "MiB", "stripe_size_mib": "MiB", "transfer_mib": "MiB", "chunk_mib": "MiB",
          "alignment_mib": "MiB", "writers": "1", "nodes": "1"}  # fmt: skip


def has_long_form(table: Table) -> bool:
    """Whether any column of the table is measured."""
    return any(column.measured is not None for column in table.sidecar.columns)


def measurements(table: Table) -> list[dict[str, Scalar | None]]:
    """Every measured cell with what it is a measurement of.

    Returns:
        dictionaries with the keys of `COLUMNS`, None where the paper does not say; blank cells are left out.

    Raises:
        UsageError: the table has no measurements (configurations, facts).
    """
    if not has_long_form(table):
        raise UsageError(
            f"table {table.source}/{table.name} has no measurements, so there is no long form",
            hint="Show it without --long.",
        )
    return list(_measurements(table))


def _measurements(table: Table) -> Iterator[dict[str, Scalar | None]]:
    columns = table.sidecar.columns
    for row, printed in zip(table.rows, table.printed, strict=True):
        keys: dict[str, Scalar] = {}
        for column, cell, text in zip(columns, row, printed, strict=True):
            keys |= _keys(column, cell, text)
        for column, cell in zip(columns, row, strict=True):
            if column.measured is not None and cell is not None:
                settings = _merged(table.sidecar.common, keys, column.measured)
                yield _record(settings, cell, column.unit)


def _merged(*parts: Mapping[Any, Scalar]) -> dict[str, Scalar]:
    """The later over the earlier."""
    return {str(key): value for part in parts for key, value in part.items()}


def _keys(column: Column, cell: Cell, text: str) -> dict[str, Scalar]:
    """What one cell of a key column says about its row."""
    settings = _merged(column.values[text] if column.values is not None else {})
    if column.key is not None and cell is not None:
        settings[column.key] = _mebibytes(cell) if column.key.endswith("_mib") else cell
    return settings


def _mebibytes(cell: int | float | str) -> int | float:
    """A printed size ("128 KiB") in MiB; numbers are MiB already."""
    if not isinstance(cell, str):
        return cell
    size = parse_size(cell) / MIB
    return int(size) if size.is_integer() else size


def _record(settings: dict[str, Scalar], value: Cell, unit: str | None) -> dict[str, Scalar | None]:
    cores = CORES_A_NODE.get(str(settings.get("system")))
    writers = settings.get("writers")
    if cores and isinstance(writers, int) and "nodes" not in settings:
        settings["nodes"] = writers // cores
    return {name: settings.get(name) for name in COLUMNS} | {"value": value, "unit": unit}


def to_json(table: Table) -> dict[str, Any]:
    """The document of `iowatch reference show --published … --long --json`.

    Raises:
        UsageError: the table has no measurements.
    """
    rows = [[record[name] for name in COLUMNS] for record in measurements(table)]
    columns = [{"name": name, "unit": _UNITS.get(name)} for name in COLUMNS]
    title = table.sidecar.title
    return {"source": table.source, "table": table.name, "title": title, "columns": columns, "rows": rows}
