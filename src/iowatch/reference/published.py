"""Published figures: tables of papers, their measurements in one vocabulary (long form), and theoretical peaks.

    reference/published/<source>/source.yaml     the document: key, citation, title, authors, venue
    reference/published/<source>/<table>.csv     cells as printed, one printed row per line
    reference/published/<source>/<table>.yaml    caption, section, columns with units, notes

A cell stays as printed in the file ("785.00"); numbers become numbers and blanks None when it is read. The long form
has one measurement per row, in the terms of docs/architecture.md. Its columns come from four places of the sidecar, the
later over the earlier: `common`, the `values` of the row's texts, the `key` columns of the row, and what the column
`measured`.
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

from iowatch.core import MIB, Case, InputError, Scalar, UsageError, files, parse_size, suggest_name
from iowatch.core.yamlfile import CheckedModel, YamlDocument
from iowatch.site import FileSystem

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
    """What a column of a printed table means.

    Attributes:
        name: as printed, levels of a header joined.
        unit: of its numbers; None for text.
        type: `number` (or blank), `text`, `either` (a number where the cell is one), or `unit` (of the row).
        key: the column of the long form that its cells give.
        values: what each of its texts stands for in the long form.
        measured: set where its cells are measurements: what they have in common.
    """

    name: str
    unit: PublishedUnit | None = None
    type: Literal["number", "text", "either", "unit"] = "number"
    key: LongKey | None = None
    values: dict[str, MeasurementSettings] | None = None
    measured: MeasurementSettings | None = None


class TableSidecar(CheckedModel):
    """Where a table was printed and what it means.

    Attributes:
        heading: the part of the header that spans columns.
        common: what all measurements have in common (long form).
        notes: what a reader has to know; what does not add up is in ERRATA.md too.
    """

    title: str
    section: str
    heading: str | None = None
    columns: Annotated[list[PublishedColumn], Field(min_length=1)]
    common: MeasurementSettings = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)


class PublishedSource(CheckedModel):
    """A document that figures were taken from.

    Attributes:
        key: for citations and the command line, `lawrence2017`; docs/glossary.md, "Sources", lists all keys.
        cited: authors and year as in a text, `Lawrence et al. 2017`.
        year: of publication; where the document prints none, of its measurements; None where it has neither.
        venue: kind of document and publisher.
        date: as far as the document gives one.
        file: its name among the seed documents.
    """

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
        source: its folder, the number of the source (`source_key` gives the key).
        name: as printed: "1", "A.5".
        sidecar: caption, section, columns, notes.
        printed: the rows as text, as the file has them.
    """

    def __init__(self, source: str, name: str, sidecar: TableSidecar, printed: list[list[str]]) -> None:
        self.source, self.name, self.sidecar, self.printed = source, name, sidecar, printed

    @cached_property
    def rows(self) -> list[list[PublishedCell]]:
        """One list a printed row: numbers as numbers, blanks None."""
        columns = self.sidecar.columns
        return [[_parse_cell(text, c) for text, c in zip(row, columns, strict=True)] for row in self.printed]

    def to_json(self) -> dict[str, Any]:
        """The document of `iowatch reference show --published … --json`."""
        title, columns = self.sidecar.title, [{"name": c.name, "unit": c.unit} for c in self.sidecar.columns]
        return {"source": self.source, "table": self.name, "title": title, "columns": columns, "rows": self.rows}


def _parse_cell(text: str, column: PublishedColumn) -> PublishedCell:
    """A printed cell as a value; the file has been checked before."""
    if text == "":
        return None
    if column.type in ("text", "unit") or not _NUMBER.fullmatch(text):
        return text
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _cell_fault(text: str, column: PublishedColumn) -> str | None:
    """What is wrong with a cell, if anything."""
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
    if len(row) != len(columns):
        return [f"{len(columns)} cells expected, found {len(row)}"]
    checked = ((n, c, _cell_fault(text, c)) for n, (text, c) in enumerate(zip(row, columns, strict=True)))
    return [f"column {n + 1} '{c.name}': {fault}" for n, c, fault in checked if fault]


def _read_table_rows(path: Path, columns: list[PublishedColumn]) -> list[list[str]]:
    """The rows of a CSV file, every cell checked against its column.

    Raises:
        InputError: all faults together, each with file, line and column.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            numbered = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not readable: {error}") from error
    names = [c.name for c in columns]
    if not numbered or numbered[0][1] != names:
        raise InputError(f"{path}:1: header {numbered[0][1] if numbered else []} is not that of the sidecar: {names}")
    faults = [f"{path}:{line}: {fault}" for line, row in numbered[1:] for fault in _row_faults(row, columns)]
    if faults:
        raise InputError("\n".join(faults))
    return [row for _, row in numbered[1:]]


def _value_faults(document: YamlDocument, sidecar: TableSidecar, rows: list[list[str]]) -> list[str]:
    """Texts of a key column that the sidecar does not explain."""
    faults = []
    for n, column in enumerate(sidecar.columns):
        unknown = {row[n] for row in rows} - set(column.values) if column.values is not None else set()
        for text in sorted(unknown):
            where = document.where(["columns", n, "values"])
            hint = suggest_name(text, list(column.values or {}))
            faults.append(f"{where}: column '{column.name}' has '{text}', which `values` does not explain. {hint}")
    return faults


def published_directory() -> Path:
    """The folder that holds one folder a source."""
    return files.checkout_root() / "reference" / "published"


def read_published_table(path: Path) -> PublishedTable:
    """One table from its sidecar's path.

    Raises:
        InputError: sidecar or CSV is absent or against the schema.
    """
    document = YamlDocument(path)
    sidecar = document.validated(TableSidecar)
    rows = _read_table_rows(path.with_name(f"{path.stem}.csv"), sidecar.columns)
    if faults := _value_faults(document, sidecar, rows):
        raise InputError("\n".join(faults))
    return PublishedTable(path.parent.name, path.stem, sidecar, rows)


def load_sources(root: Path | None = None) -> dict[str, PublishedSource]:
    """All sources by the number that is the name of their folder."""
    found = sorted((root or published_directory()).glob("*/source.yaml"))
    return {path.parent.name: YamlDocument(path).validated(PublishedSource) for path in found}


@cache
def _cached_sources(root: Path) -> dict[str, PublishedSource]:
    return load_sources(root)


def source_number(name: str, root: Path | None = None) -> str:
    """The number of a source, which may be given by its key (`lawrence2017`) or its number (`000`).

    Raises:
        UsageError: no such source.
    """
    sources = _cached_sources(root or published_directory())
    numbers = {source.key: number for number, source in sources.items()} | {number: number for number in sources}
    if name not in numbers:
        raise UsageError(f"no published source '{name}'", hint=suggest_name(name, list(numbers)))
    return numbers[name]


def source_key(name: str, root: Path | None = None) -> str:
    """The citation key of a source (`lawrence2017`), given by its key or its number.

    Raises:
        UsageError: no such source.
    """
    return _cached_sources(root or published_directory())[source_number(name, root)].key


def cite_table(name: str) -> str:
    """`Lawrence et al. 2017, Table 13` for `lawrence2017/13` (or `000/13`); any other text as it is."""
    source, separator, table = name.partition("/")
    try:
        cited = _cached_sources(published_directory())[source_number(source)].cited
    except UsageError:
        return name
    if not separator:
        return cited
    return f"{cited}, Table {table}" if any(map(str.isdigit, table)) else f"{cited}, {table}"


def _table_sort_key(name: str) -> list[tuple[int, int, str]]:
    """Sorts "2" before "10", "5" before "5b" before "6", "A.9" before "A.10", and words last."""
    parts = re.findall(r"\d+|\D+", name)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


def published_table_names(source: str, root: Path | None = None) -> list[str]:
    """Names of a source's tables in printed order; the source by key or number.

    Raises:
        UsageError: no such source.
    """
    folder = (root or published_directory()) / source_number(source, root)
    return sorted((p.stem for p in folder.glob("*.yaml") if p.stem != "source"), key=_table_sort_key)


def load_published_table(source: str, table: str, root: Path | None = None) -> PublishedTable:
    """One table.

    Raises:
        UsageError: no such source or table.
        InputError: its files are damaged.
    """
    known = published_table_names(source, root)
    if table not in known:
        raise UsageError(f"source {source} has no table '{table}'", hint=suggest_name(table, known))
    folder = (root or published_directory()) / source_number(source, root)
    return read_published_table(folder / f"{table}.yaml")


def load_all_tables(root: Path | None = None) -> list[PublishedTable]:
    """Every table of every source.

    Raises:
        InputError: a file is damaged.
    """
    base = root or published_directory()
    if lone := [path for path in sorted(base.glob("*/*.csv")) if not path.with_name(f"{path.stem}.yaml").exists()]:
        raise InputError("\n".join(f"{path}: no sidecar {path.stem}.yaml beside it" for path in lone))
    names = ((source, name) for source in load_sources(base) for name in published_table_names(source, base))
    return [read_published_table(base / source / f"{name}.yaml") for source, name in names]


CORES_PER_NODE = {"archer": 24}
"""Where a paper says that all cores of every node write, nodes follow from writers (lawrence2017, section 6)."""

_FIRST = LONG_KEYS[: LONG_KEYS.index("statistic") + 1]
LONG_FORM_COLUMNS: tuple[str, ...] = (*_FIRST, "value", "unit", *LONG_KEYS[len(_FIRST) :])
_UNITS = {"total_mib": "MiB", "stripe_size_mib": "MiB", "transfer_mib": "MiB", "chunk_mib": "MiB",
          "alignment_mib": "MiB", "writers": "1", "nodes": "1"}  # fmt: skip


def has_long_form(table: PublishedTable) -> bool:
    """Whether any column of the table is measured."""
    return any(column.measured is not None for column in table.sidecar.columns)


def table_measurements(table: PublishedTable) -> list[dict[str, Scalar | None]]:
    """Every measured cell with what it is a measurement of.

    Returns:
        dictionaries with the keys of `COLUMNS`, None where the paper does not say; blank cells are left out.

    Raises:
        UsageError: the table has no measurements (configurations, facts).
    """
    if not has_long_form(table):
        message = f"table {source_key(table.source)}/{table.name} has no measurements, so there is no long form"
        raise UsageError(message, hint="Show it without --long.")
    columns = table.sidecar.columns
    found = []
    for row, printed in zip(table.rows, table.printed, strict=True):
        keys: dict[Any, Scalar] = {}
        for column, cell, text in zip(columns, row, printed, strict=True):
            keys |= column.values[text] if column.values is not None else {}
            if column.key is not None and cell is not None:
                keys[column.key] = _size_mib(cell) if column.key.endswith("_mib") else cell
        for column, cell in zip(columns, row, strict=True):
            if column.measured is not None and cell is not None:
                settings: dict[Any, Scalar] = {**table.sidecar.common}
                found.append(_make_measurement(settings | keys | column.measured, cell, column.unit))
    return found


def _size_mib(cell: int | float | str) -> int | float:
    """A printed size ("128 KiB") in MiB; numbers are MiB already."""
    if not isinstance(cell, str):
        return cell
    size = parse_size(cell) / MIB
    return int(size) if size.is_integer() else size


def _make_measurement(settings: dict[Any, Scalar], value: PublishedCell, unit: str | None) -> dict[str, Scalar | None]:
    cores = CORES_PER_NODE.get(str(settings.get("system")))
    writers = settings.get("writers")
    if cores and isinstance(writers, int) and "nodes" not in settings:
        settings["nodes"] = writers // cores
    return {name: settings.get(name) for name in LONG_FORM_COLUMNS} | {"value": value, "unit": unit}


def long_form_document(table: PublishedTable) -> dict[str, Any]:
    """The document of `iowatch reference show --published … --long --json`.

    Raises:
        UsageError: the table has no measurements.
    """
    rows = [[record[name] for name in LONG_FORM_COLUMNS] for record in table_measurements(table)]
    columns = [{"name": name, "unit": _UNITS.get(name)} for name in LONG_FORM_COLUMNS]
    title = table.sidecar.title
    return {"source": table.source, "table": table.name, "title": title, "columns": columns, "rows": rows}


# Bandwidths over all ranks: what a file system's limit is a limit of. That of one rank has none.
_AGGREGATE_METRICS = ("bandwidth", "raw_bandwidth", "observed_bandwidth", "darshan_bandwidth")


def has_peak(metric: str) -> bool:
    """Whether the theoretical limit of a file system is one of this metric."""
    return metric in _AGGREGATE_METRICS


def peak_mib_per_s(file_systems: Iterable[FileSystem], operation: str, file_system: str | None = None) -> float | None:
    """The lowest limit that holds for an operation, in MiB/s; None where none is known.

    Args:
        file_systems: of the system.
        operation: `write` or `read`.
        file_system: on which; without it there is an answer only where all that have a limit agree.
    """
    chosen = [s for s in file_systems if file_system is None or s.name == file_system]
    limits = {
        min(applying)
        for s in chosen
        if (applying := [p.mib_per_s for p in s.peaks if p.operation in (operation, "both")])
    }
    return limits.pop() if len(limits) == 1 else None


def percent_of_peak(value_mib_per_s: float, peak: float | None) -> float | None:
    """A bandwidth in per cent of the peak; None where no peak is known."""
    return None if peak is None or peak <= 0 else 100 * value_mib_per_s / peak


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
    """What is printed for the like of a case (benchio, writing one shared file collectively), or None."""
    wanted = {"operation": "write", "file": "shared", "collective": True}
    if case.benchmark != "benchio" or any(case.parameters.get(k, v) != v for k, v in wanted.items()):
        return None
    return _read_published_counts().get(str(case.parameters.get("api")))


@cache
def _read_published_counts() -> Mapping[str, PublishedCounts]:
    table = load_published_table(_SOURCE, _TABLE)
    names = [column.name for column in table.sidecar.columns]
    quantity, value = names.index("Quantity"), names.index("Value")
    known = {str(row[quantity]): row[value] for row in table.rows}
    found = {}
    for name, api in _APIS.items():
        both = [known.get(f"{kind} writes of {name}") for kind in ("collective", "independent")]
        if all(isinstance(one, int | float) for one in both):
            found[api] = PublishedCounts(int(both[0]), int(both[1]), f"{_SOURCE}/{_TABLE}")  # type: ignore[arg-type]
    return found
