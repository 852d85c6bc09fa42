"""Published figures: tables of papers, their measurements in one vocabulary (long form), and theoretical peaks.

    reference/published/<source>/source.yaml     the document: key, citation, title, authors, venue
    reference/published/<source>/<table>.csv     cells as printed, one printed row per line
    reference/published/<source>/<table>.yaml    caption, section, columns with units, notes

The file keeps cells as printed ("785.00"); reading converts them to numbers, and blanks to None. The long form
has one measurement per row, in the terms of docs/case-parameters.md. Its columns are set by four parts of the sidecar,
later ones override earlier ones: `common`, the `values` of the row's texts, the `key` columns of the row, and
`measured` of the column.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from iowatch.core import MIB, Case, InputError, Scalar, UsageError, parse_size, settings, suggest_name
from iowatch.core.yamlfile import CheckedModel, YamlDocument, read_model
from iowatch.site import FileSystem, with_file_system

PublishedCell = int | float | str | None
PublishedUnit = Literal[
    "1", "%", "B", "KiB", "MiB", "GiB", "MB", "GB", "TB", "MiB/s", "GiB/s", "MB/s", "GB/s", "TB/s", "Gbit/s",
    "ms", "s", "d", "date",
]  # fmt: skip
LongKey = Literal[
    "system", "benchmark", "api", "operation", "writers", "nodes", "total_mib", "stripe_count",
    "stripe_size_mib", "local_size", "statistic", "file_system", "pattern", "osts", "collective",
    "transfer_mib", "chunk_mib", "alignment_mib", "dimensions", "instances", "instance", "variant",
]  # fmt: skip
PUBLISHED_UNITS: tuple[str, ...] = get_args(PublishedUnit)
LONG_KEYS: tuple[str, ...] = get_args(LongKey)
MeasurementSettings = dict[LongKey, Scalar]
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")


class PublishedColumn(CheckedModel):
    """Meaning of a column of a printed table.

    Attributes:
        name: as printed, levels of a header joined.
        unit: of its numbers; None for text.
        type: `number` (or blank), `text`, `either` (a number if the cell is one), or `unit` (of the row).
        key: the column of the long form that its cells fill.
        values: text in a cell to settings of the long form.
        measured: set if its cells are measurements: the settings that they share.
    """

    name: str
    unit: PublishedUnit | None = None
    type: Literal["number", "text", "either", "unit"] = "number"
    key: LongKey | None = None
    values: dict[str, MeasurementSettings] | None = None
    measured: MeasurementSettings | None = None


class TableSidecar(CheckedModel):
    """Origin and meaning of a printed table.

    Attributes:
        heading: the part of the header that spans columns.
        common: settings that all measurements share (long form).
        notes: remarks for readers; inconsistencies are in ERRATA.md, too.
    """

    docs = "docs/references.md#published-figures"
    title: str
    section: str
    heading: str | None = None
    columns: Annotated[list[PublishedColumn], Field(min_length=1)]
    common: MeasurementSettings = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)


class PublishedSource(CheckedModel):
    """A document with published figures.

    Attributes:
        key: for citations and the command line, `lawrence2017`; docs/glossary.md, "Sources", lists all keys.
        cited: authors and year as cited in a text, `Lawrence et al. 2017`.
        year: of publication; if the document prints none, of its measurements; None if it has neither.
        venue: kind of document and publisher.
        date: as precise as in the document.
        file: its name among the seed documents.
    """

    docs = TableSidecar.docs
    key: str
    cited: str
    title: str
    authors: str
    date: str | None = None
    year: int | None = None
    venue: str
    file: str


class PublishedTable:
    """One published table.

    Attributes:
        source: its directory, the number of the source (`source_key` gives the key).
        name: as printed: "1", "A.5".
        sidecar: caption, section, columns, notes.
        printed: the rows as text, as in the file.
    """

    def __init__(self, source: str, name: str, sidecar: TableSidecar, printed: list[list[str]]) -> None:
        self.source, self.name, self.sidecar, self.printed = source, name, sidecar, printed

    @cached_property
    def rows(self) -> list[list[PublishedCell]]:
        """One list per printed row: numbers as numbers, blanks as None."""
        rows = []
        for row in self.printed:
            cells = zip(row, self.sidecar.columns, strict=True)
            rows.append([_parse_cell(text, column) for text, column in cells])
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return the document of `iowatch reference show --published … --json`."""
        return {
            "source": self.source,
            "table": self.name,
            "title": self.sidecar.title,
            "columns": [{"name": column.name, "unit": column.unit} for column in self.sidecar.columns],
            "rows": self.rows,
        }


def _parse_cell(text: str, column: PublishedColumn) -> PublishedCell:
    """Return the value of a printed cell that has been checked before."""
    if text == "":
        return None
    if column.type in ("text", "unit") or not _NUMBER.fullmatch(text):
        return text
    if text.lstrip("-").isdigit():
        return int(text)
    return float(text)


def _cell_fault(text: str, column: PublishedColumn) -> str | None:
    """Describe what is wrong with a cell; None if it is valid."""
    if text != text.strip():
        return f"blanks around {text!r}"
    if column.type == "unit" and text not in ("", *PUBLISHED_UNITS):
        return f"unknown unit {text!r}. {suggest_name(text, list(PUBLISHED_UNITS))}"
    if text == "" or column.type != "number":
        return None
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        return f"expected a number or nothing, found {text!r}"
    if column.measured is not None and float(text) < 0:
        return f"a measurement cannot be negative, found {text!r}"
    return None


def _row_faults(row: list[str], columns: list[PublishedColumn]) -> list[str]:
    """Return what is wrong in a row; with a wrong number of cells only that, because no cell has its column."""
    if len(row) != len(columns):
        return [f"{len(columns)} cells expected, found {len(row)}"]
    faults = []
    for number, (text, column) in enumerate(zip(row, columns, strict=True), 1):
        fault = _cell_fault(text, column)
        if fault:
            faults.append(f"column {number} '{column.name}': {fault}")
    return faults


def _read_table_rows(path: Path, columns: list[PublishedColumn]) -> list[list[str]]:
    """Return the rows of a CSV file, with every cell checked against its column.

    Raises:
        InputError: all faults together, each with file, line and column.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            numbered_rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not readable: {error}") from error
    names = [column.name for column in columns]
    if header != names:
        raise InputError(f"{path}:1: header {header} is not that of the sidecar: {names}")
    faults: list[str] = []
    for line, row in numbered_rows:
        faults += [f"{path}:{line}: {fault}" for fault in _row_faults(row, columns)]
    if faults:
        raise InputError("\n".join(faults))
    return [row for _, row in numbered_rows]


def _value_faults(document: YamlDocument, sidecar: TableSidecar, rows: list[list[str]]) -> list[str]:
    """Return faults for texts in key columns that the sidecar does not explain."""
    faults = []
    for index, column in enumerate(sidecar.columns):
        if column.values is None:
            continue
        unexplained = {row[index] for row in rows} - column.values.keys()
        for text in sorted(unexplained):
            where = document.where(["columns", index, "values"])
            hint = suggest_name(text, list(column.values))
            faults.append(f"{where}: column '{column.name}' has '{text}', which `values` does not explain. {hint}")
    return faults


def _source_folders(root: Path | None) -> dict[str, Path]:
    """Folders of the sources by number: those of a directory, or those of the product and the site."""
    if root is not None:
        return {path.parent.name: path.parent for path in sorted(root.glob("*/source.yaml"))}
    return {number: path.parent for (number,), path in settings.list_files("published").items()}


def read_published_table(path: Path) -> PublishedTable:
    """Read one table, given the path of its sidecar.

    Raises:
        InputError: sidecar or CSV is absent or violates the schema.
    """
    # Messages about the sidecar name the page that documents it.
    document = YamlDocument(path, TableSidecar.docs)
    sidecar = document.validated(TableSidecar)
    rows = _read_table_rows(path.with_name(f"{path.stem}.csv"), sidecar.columns)
    faults = _value_faults(document, sidecar, rows)
    if faults:
        raise InputError("\n".join(faults))
    return PublishedTable(path.parent.name, path.stem, sidecar, rows)


def load_sources(root: Path | None = None) -> dict[str, PublishedSource]:
    """Return all sources by number, which is the name of their directory."""
    folders = _source_folders(root).items()
    return {number: read_model(folder / "source.yaml", PublishedSource) for number, folder in folders}


def _known_sources(root: Path | None) -> dict[str, PublishedSource]:
    return _read_sources(root, () if root else tuple(settings.roots()))


@cache
def _read_sources(root: Path | None, _roots: tuple[Path, ...]) -> dict[str, PublishedSource]:
    return load_sources(root)


def source_number(name: str, root: Path | None = None) -> str:
    """Return the number of a source, given by key (`lawrence2017`) or number (`000`).

    Raises:
        UsageError: unknown source.
    """
    sources = _known_sources(root)
    numbers = {source.key: number for number, source in sources.items()} | {number: number for number in sources}
    if name not in numbers:
        raise UsageError(f"no published source '{name}'", hint=suggest_name(name, list(numbers)))
    return numbers[name]


def source_key(name: str, root: Path | None = None) -> str:
    """The citation key of a source (`lawrence2017`), given by its key or its number.

    Raises:
        UsageError: no such source.
    """
    return _known_sources(root)[source_number(name, root)].key


def cite_table(name: str) -> str:
    """Return `Lawrence et al. 2017, Table 13` for `lawrence2017/13` or `000/13`; other texts unchanged."""
    source, separator, table = name.partition("/")
    try:
        cited = _known_sources(None)[source_number(source)].cited
    except UsageError:
        return name
    if not separator:
        return cited
    # A table without a number has a name: `text`.
    if any(map(str.isdigit, table)):
        return f"{cited}, Table {table}"
    return f"{cited}, {table}"


def _table_sort_key(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts "2" before "10", "5" before "5b" before "6", "A.9" before "A.10", and words last."""
    key = []
    for digits_or_text in re.findall(r"\d+|\D+", name):
        if digits_or_text.isdigit():
            key.append((0, int(digits_or_text), ""))
        else:
            key.append((1, 0, digits_or_text))
    return key


def published_table_names(source: str, root: Path | None = None) -> list[str]:
    """Return the names of a source's tables in printed order; the source is given by key or number.

    Raises:
        UsageError: unknown source.
    """
    folder = _source_folders(root)[source_number(source, root)]
    names = {path.stem for path in folder.glob("*.yaml")} - {"source"}
    return sorted(names, key=_table_sort_key)


def load_published_table(source: str, table: str, root: Path | None = None) -> PublishedTable:
    """Return one table.

    Raises:
        UsageError: unknown source or table.
        InputError: the files of the table are damaged.
    """
    names = published_table_names(source, root)
    if table not in names:
        raise UsageError(f"source {source} has no table '{table}'", hint=suggest_name(table, names))
    folder = _source_folders(root)[source_number(source, root)]
    return read_published_table(folder / f"{table}.yaml")


def load_all_tables(root: Path | None = None) -> list[PublishedTable]:
    """Return every table of every source.

    Raises:
        InputError: a file is damaged.
    """
    folders = _source_folders(root)
    faults = []
    for folder in folders.values():
        for path in sorted(folder.glob("*.csv")):
            if not path.with_suffix(".yaml").exists():
                faults.append(f"{path}: no sidecar {path.stem}.yaml beside it")
    if faults:
        raise InputError("\n".join(faults))
    tables = []
    for source, folder in folders.items():
        for name in published_table_names(source, root):
            tables.append(read_published_table(folder / f"{name}.yaml"))
    return tables


CORES_PER_NODE = {"archer": 24}
"""Where a paper states that all cores of every node write, nodes follow from writers (lawrence2017, section 6)."""

_FIRST = LONG_KEYS[: LONG_KEYS.index("statistic") + 1]
LONG_FORM_COLUMNS: tuple[str, ...] = (*_FIRST, "value", "unit", *LONG_KEYS[len(_FIRST) :])
_UNITS = {"total_mib": "MiB", "stripe_size_mib": "MiB", "transfer_mib": "MiB", "chunk_mib": "MiB",
          "alignment_mib": "MiB", "writers": "1", "nodes": "1"}  # fmt: skip


def has_long_form(table: PublishedTable) -> bool:
    """Return whether any column of the table is measured."""
    return any(column.measured is not None for column in table.sidecar.columns)


def table_measurements(table: PublishedTable) -> list[dict[str, Scalar | None]]:
    """Return every measured cell with its settings: those of the table, of its row and of its column, the last wins.

    Returns:
        dictionaries with the keys of `LONG_FORM_COLUMNS`, None if not stated in the paper; blank cells are omitted.

    Raises:
        UsageError: the table has no measurements (configurations, facts).
    """
    if not has_long_form(table):
        message = f"table {source_key(table.source)}/{table.name} has no measurements, so there is no long form"
        raise UsageError(message, hint="Show it without --long.")
    columns = table.sidecar.columns
    measurements = []
    for row, printed in zip(table.rows, table.printed, strict=True):
        # Settings that the row itself states: texts with a meaning in the sidecar, and numbers of key columns.
        row_settings: dict[Any, Scalar] = {}
        for column, cell, text in zip(columns, row, printed, strict=True):
            if column.values is not None:
                row_settings |= column.values[text]
            if column.key is not None and cell is not None:
                row_settings[column.key] = _size_mib(cell) if column.key.endswith("_mib") else cell
        for column, cell in zip(columns, row, strict=True):
            if column.measured is not None and cell is not None:
                all_settings: dict[Any, Scalar] = {**table.sidecar.common}
                all_settings |= row_settings
                all_settings |= column.measured
                measurements.append(_make_measurement(all_settings, cell, column.unit))
    return measurements


# Case parameters (docs/case-parameters.md) by column of the long form, if the names differ.
_PARAMETER_BY_COLUMN = {"writers": "ranks", "total_mib": "total_bytes", "stripe_size_mib": "stripe_bytes"}
_NOT_PARAMETERS = {"system", "benchmark", "statistic", "value", "unit"}
# If a case and a published figure both state these parameters, they must agree.
MATCHED_PARAMETERS = ("api", "operation", "collective", "pattern", "local_size", "stripe_count", "file_system")


@dataclass(frozen=True)
class ColumnParameter:
    """The case parameter of a column of the long form.

    Attributes:
        factor: value of the parameter per unit of the column: the bytes of a MiB, else 1.
    """

    name: str
    factor: int = 1


def column_parameter(column: str) -> ColumnParameter:
    """Return the case parameter of a column of the long form."""
    if not column.endswith("_mib"):
        return ColumnParameter(_PARAMETER_BY_COLUMN.get(column, column))
    return ColumnParameter(_PARAMETER_BY_COLUMN.get(column, f"{column.removesuffix('_mib')}_bytes"), MIB)


def case_parameters(measurement: Mapping[str, Scalar | None]) -> dict[str, Scalar]:
    """Return the case parameters that a measurement of the long form states, sizes in bytes."""
    parameters: dict[str, Scalar] = {}
    for column in measurement.keys() & set(LONG_FORM_COLUMNS) - _NOT_PARAMETERS:
        value = measurement[column]
        if value is None:
            continue
        parameter = column_parameter(column)
        parameters[parameter.name] = value if parameter.factor == 1 else int(float(value) * parameter.factor)
    return parameters


def _size_mib(cell: int | float | str) -> int | float:
    """Return a printed size ("128 KiB") in MiB; numbers are already MiB."""
    if not isinstance(cell, str):
        return cell
    size = parse_size(cell) / MIB
    return int(size) if size.is_integer() else size


def _make_measurement(settings: dict[Any, Scalar], value: PublishedCell, unit: str | None) -> dict[str, Scalar | None]:
    """Return a row of the long form; the number of nodes follows from the writers where they fill whole nodes."""
    cores = CORES_PER_NODE.get(str(settings.get("system")))
    writers = settings.get("writers")
    if cores and isinstance(writers, int) and "nodes" not in settings:
        settings["nodes"] = writers // cores
    return {name: settings.get(name) for name in LONG_FORM_COLUMNS} | {"value": value, "unit": unit}


def long_form_document(table: PublishedTable) -> dict[str, Any]:
    """Return the document of `iowatch reference show --published … --long --json`.

    Raises:
        UsageError: the table has no measurements.
    """
    rows = [[record[name] for name in LONG_FORM_COLUMNS] for record in table_measurements(table)]
    columns = [{"name": name, "unit": _UNITS.get(name)} for name in LONG_FORM_COLUMNS]
    title = table.sidecar.title
    return {"source": table.source, "table": table.name, "title": title, "columns": columns, "rows": rows}


# Bandwidths over all ranks, to which the limit of a file system applies; it does not apply to that of one rank.
_AGGREGATE_METRICS = ("bandwidth", "raw_bandwidth", "observed_bandwidth", "darshan_bandwidth")


def has_peak(metric: str) -> bool:
    """Return whether the theoretical limit of a file system applies to this metric."""
    return metric in _AGGREGATE_METRICS


def peak_mib_per_s(file_systems: Iterable[FileSystem], operation: str, file_system: str | None = None) -> float | None:
    """Return the lowest limit for an operation in MiB/s; None if unknown.

    Args:
        file_systems: of the system.
        operation: `write` or `read`.
        file_system: the file system used; without it, the limit is returned only if all file systems with one agree.
    """
    limits: set[float] = set()
    for entry in file_systems:
        if file_system is not None and entry.name != file_system:
            continue
        peaks = [peak.mib_per_s for peak in entry.peaks if peak.operation in (operation, "both")]
        if peaks:
            limits.add(min(peaks))
    return limits.pop() if len(limits) == 1 else None


def case_peak_mib_per_s(system: str, file_systems: Iterable[FileSystem], case: Case, metric: str) -> float | None:
    """Return the lowest limit of the file system that a case used, in MiB/s; None if unknown, or if none applies.

    Args:
        system: its name.
        file_systems: of the system.
        case: with its operation, and its file system where the system measures several.
    """
    if not has_peak(metric):
        return None
    parameters = with_file_system(system, case.benchmark, case.parameters)
    operation = str(parameters.get("operation", ""))
    file_system = str(parameters.get("file_system") or "")
    return peak_mib_per_s(file_systems, operation, file_system or None)


def percent_of_peak(value_mib_per_s: float, peak: float | None) -> float | None:
    """Return a bandwidth in per cent of the peak; None if the peak is unknown."""
    if peak is None or peak <= 0:
        return None
    return 100 * value_mib_per_s / peak


# [lawrence2017], section 6, "NetCDF Performance": Darshan's counts of its base case, kept in the table `text`.
_SOURCE, _TABLE = "lawrence2017", "text"
_APIS = {"MPI-IO": "MPIIO", "HDF5": "HDF5", "NetCDF": "NETCDF4"}


@dataclass(frozen=True, slots=True)
class PublishedCounts:
    """MPI-IO operations of one repetition; `where` is source and table (`lawrence2017/text`)."""

    collective: int
    independent: int
    where: str

    @property
    def text(self) -> str:
        """`Lawrence et al. 2017: 24 and 6`."""
        return f"{cite_table(self.where.partition('/')[0])}: {self.collective} and {self.independent}"


def published_counts(case: Case) -> PublishedCounts | None:
    """Return the printed counts for a similar case (benchio, collective writes to one shared file), or None."""
    if case.benchmark != "benchio":
        return None
    for name, value in {"operation": "write", "file": "shared", "collective": True}.items():
        if case.parameters.get(name, value) != value:
            return None
    return _read_published_counts().get(str(case.parameters.get("api")))


@cache
def _read_published_counts() -> Mapping[str, PublishedCounts]:
    """Return the published numbers of collective and independent writes, by API."""
    table = load_published_table(_SOURCE, _TABLE)
    names = [column.name for column in table.sidecar.columns]
    quantity, value = names.index("Quantity"), names.index("Value")
    values = {str(row[quantity]): row[value] for row in table.rows}
    counts = {}
    for name, api in _APIS.items():
        collective = values.get(f"collective writes of {name}")
        independent = values.get(f"independent writes of {name}")
        if isinstance(collective, int | float) and isinstance(independent, int | float):
            counts[api] = PublishedCounts(int(collective), int(independent), f"{_SOURCE}/{_TABLE}")
    return counts
