"""Published figures: the tables of the papers, one CSV a table with a YAML sidecar.

    reference/published/<source>/source.yaml     the document
    reference/published/<source>/<table>.csv     cells as printed, one printed row a line
    reference/published/<source>/<table>.yaml    caption, section, columns with units, notes

A cell stays as printed in the file ("785.00"); numbers become numbers and blanks None when it is read.
"""

from __future__ import annotations

import csv
import math
import re
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from iowatch import paths
from iowatch.errors import InputError, UsageError, near_miss
from iowatch.model import Scalar
from iowatch.reference.checked import Closed, Document

Cell = int | float | str | None
Unit = Literal[
    "1", "%", "B", "KiB", "MiB", "GiB", "MB", "GB", "TB", "MiB/s", "GiB/s", "MB/s", "GB/s", "TB/s", "Gbit/s",
    "ms", "s", "d", "date",
]  # fmt: skip
LongKey = Literal[
    "system", "benchmark", "api", "operation", "writers", "nodes", "total_mib", "stripe_count",
    "stripe_size_mib", "local_size", "statistic", "file_system", "pattern", "osts", "collective",
    "transfer_mib", "chunk_mib", "alignment_mib", "dimensions", "instances", "instance", "variant",
]  # fmt: skip
UNITS: tuple[str, ...] = get_args(Unit)
LONG_KEYS: tuple[str, ...] = get_args(LongKey)
Settings = dict[LongKey, Scalar]
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")


class Column(Closed):
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
    unit: Unit | None = None
    type: Literal["number", "text", "either", "unit"] = "number"
    key: LongKey | None = None
    values: dict[str, Settings] | None = None
    measured: Settings | None = None


class Sidecar(Closed):
    """Where a table was printed and what it means.

    Attributes:
        heading: the part of the header that spans columns.
        common: what all measurements have in common (long form).
        notes: what a reader has to know; what does not add up is in ERRATA.md too.
    """

    title: str
    section: str
    heading: str | None = None
    columns: Annotated[list[Column], Field(min_length=1)]
    common: Settings = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)


class Source(Closed):
    """A document that figures were taken from.

    Attributes:
        date: as far as the document gives one.
        file: its name among the seed documents.
    """

    title: str
    authors: str
    date: str | None = None
    file: str


class Table:
    """One published table.

    Attributes:
        source: `000`…`004`.
        name: as printed: "1", "A.5".
        sidecar: caption, section, columns, notes.
        printed: the rows as text, as the file has them.
    """

    def __init__(self, source: str, name: str, sidecar: Sidecar, printed: list[list[str]]) -> None:
        self.source, self.name, self.sidecar, self.printed = source, name, sidecar, printed

    @cached_property
    def rows(self) -> list[list[Cell]]:
        """One list a printed row: numbers as numbers, blanks None."""
        columns = self.sidecar.columns
        return [[_value(text, c) for text, c in zip(row, columns, strict=True)] for row in self.printed]

    def column(self, name: str) -> list[Cell]:
        """All cells of one column.

        Raises:
            UsageError: no such column.
        """
        names = [c.name for c in self.sidecar.columns]
        if name not in names:
            raise UsageError(
                f"table {self.source}/{self.name} has no column '{name}'", hint=near_miss(name, names)
            )
        return [row[names.index(name)] for row in self.rows]

    def to_json(self) -> dict[str, Any]:
        """The document of `iowatch reference show --published … --json`."""
        return {
            "source": self.source,
            "table": self.name,
            "title": self.sidecar.title,
            "columns": [{"name": c.name, "unit": c.unit} for c in self.sidecar.columns],
            "rows": self.rows,
        }


def _value(text: str, column: Column) -> Cell:
    """A printed cell as a value; the file has been checked before."""
    if text == "":
        return None
    if column.type in ("text", "unit") or not _NUMBER.fullmatch(text):
        return text
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _cell_fault(text: str, column: Column) -> str | None:
    """What is wrong with a cell, if anything."""
    if text != text.strip():
        return f"blanks around {text!r}"
    if column.type == "unit" and text not in ("", *UNITS):
        return f"unknown unit {text!r}. {near_miss(text, list(UNITS))}"
    if text == "" or column.type != "number":
        return None
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        return f"expected a number or nothing, found {text!r}"
    if column.measured is not None and float(text) < 0:
        return f"a measurement cannot be negative, found {text!r}"
    return None


def _row_faults(row: list[str], columns: list[Column]) -> list[str]:
    if len(row) != len(columns):
        return [f"{len(columns)} cells expected, found {len(row)}"]
    checked = ((n, c, _cell_fault(text, c)) for n, (text, c) in enumerate(zip(row, columns, strict=True)))
    return [f"column {n + 1} '{c.name}': {fault}" for n, c, fault in checked if fault]


def _rows(path: Path, columns: list[Column]) -> list[list[str]]:
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
        raise InputError(
            f"{path}:1: header {numbered[0][1] if numbered else []} is not that of the sidecar: {names}"
        )
    faults = [f"{path}:{line}: {fault}" for line, row in numbered[1:] for fault in _row_faults(row, columns)]
    if faults:
        raise InputError("\n".join(faults))
    return [row for _, row in numbered[1:]]


def _value_faults(document: Document, sidecar: Sidecar, rows: list[list[str]]) -> list[str]:
    """Texts of a key column that the sidecar does not explain."""
    faults = []
    for n, column in enumerate(sidecar.columns):
        unknown = {row[n] for row in rows} - set(column.values) if column.values is not None else set()
        for text in sorted(unknown):
            where = document.where(["columns", n, "values"])
            hint = near_miss(text, list(column.values or {}))
            faults.append(
                f"{where}: column '{column.name}' has '{text}', which `values` does not explain. {hint}"
            )
    return faults


def directory() -> Path:
    """The folder that holds one folder a source."""
    return paths.root() / "reference" / "published"


def read(path: Path) -> Table:
    """One table from its sidecar's path.

    Raises:
        InputError: sidecar or CSV is absent or against the schema.
    """
    document = Document(path)
    sidecar = document.validated(Sidecar)
    rows = _rows(path.with_name(f"{path.stem}.csv"), sidecar.columns)
    if faults := _value_faults(document, sidecar, rows):
        raise InputError("\n".join(faults))
    return Table(path.parent.name, path.stem, sidecar, rows)


def sources(root: Path | None = None) -> dict[str, Source]:
    """All sources by name."""
    found = sorted((root or directory()).glob("*/source.yaml"))
    return {path.parent.name: Document(path).validated(Source) for path in found}


def _order(name: str) -> list[tuple[int, int, str]]:
    """Sorts "2" before "10", "5" before "5b" before "6", "A.9" before "A.10", and words last."""
    parts = re.findall(r"\d+|\D+", name)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


def names(source: str, root: Path | None = None) -> list[str]:
    """Names of a source's tables in printed order.

    Raises:
        UsageError: no such source.
    """
    base = root or directory()
    known = sorted(path.parent.name for path in base.glob("*/source.yaml"))
    if source not in known:
        raise UsageError(f"no published source '{source}'", hint=near_miss(source, known))
    return sorted((p.stem for p in (base / source).glob("*.yaml") if p.stem != "source"), key=_order)


def load(source: str, table: str, root: Path | None = None) -> Table:
    """One table.

    Raises:
        UsageError: no such source or table.
        InputError: its files are damaged.
    """
    known = names(source, root)
    if table not in known:
        raise UsageError(f"source {source} has no table '{table}'", hint=near_miss(table, known))
    return read((root or directory()) / source / f"{table}.yaml")


def load_all(root: Path | None = None) -> list[Table]:
    """Every table of every source.

    Raises:
        InputError: a file is damaged.
    """
    base = root or directory()
    if lone := [
        path for path in sorted(base.glob("*/*.csv")) if not path.with_name(f"{path.stem}.yaml").exists()
    ]:
        raise InputError("\n".join(f"{path}: no sidecar {path.stem}.yaml beside it" for path in lone))
    return [read(base / source / f"{name}.yaml") for source in sources(base) for name in names(source, base)]
