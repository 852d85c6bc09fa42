"""A first map for a delimited table, made from its header and first rows, for the user to complete.

Only the form of the file decides. What a wrong guess would falsify (unit, zone, order of day and month) is left open.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from iowatch.benchmarks.tables.maps import TO_BE_SET
from iowatch.benchmarks.tables.tables import DELIMITERS, read_text
from iowatch.core import METRICS, InputError, to_metric_unit

_ROWS = 500
# More distinct texts than this name nothing that a case is made of.
_MAX_VALUES = 30
_DAYS = ("%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%Y%m%d")
_CLOCKS = ("%H:%M", "%H:%M:%S")
_TIME_FORMATS = (*(f"{day} {clock}" for day in _DAYS for clock in _CLOCKS), *_DAYS)
# Words in names of columns -> what they are; in English and German.
_FIELDS = {
    "benchmark": r"benchmark|tool|program|programm",
    "partition": r"partition|queue",
    "stack": r"stack|environ|environment|compiler|toolchain|umgebung",
    "version": r"version",
}
_PARAMETERS = {
    "operation": r"operation|op|access|zugriff|richtung|direction",
    "api": r"api|interface|schnittstelle",
    "ranks": r"ranks?|np|nprocs?|procs|processes|tasks|num_?tasks|prozesse",
    "nodes": r"nodes?|nnodes|num_?nodes|knoten",
    "file_system": r"file_?system|fs|filesystem|dateisystem|mount",
    "stripe_count": r"stripes?|stripe_?count",
}
_OTHER_ROLES = {
    "system": r"system|host(name)?|machine|cluster|rechner",
    "unit": r"unit|einheit",
    "metric": r"metric|kennzahl|metrik",
    "value": r"value|wert|result|ergebnis",
}
_OPERATIONS = {"write": r"write|schreib", "read": r"read|les(e|en)\b|lesen"}
_UNIT = re.compile(r"[\[(]([^\])]{1,100})[\])]|\b([kKMGT]?i?B/s|[kKMG]?bit/s|k?IOPS)\b")


@dataclass(frozen=True, slots=True)
class _Sample:
    """Header and first rows of a table (without empty cells), its layout, and the number of these rows."""

    names: list[str]
    columns: list[list[str]]
    layout: dict[str, str | int]
    rows: int


def propose_map(path: Path) -> str:
    """Return the text of a map for a table.

    Raises:
        InputError: not readable, or no table.
    """
    sample = _read_sample(path)
    time, time_columns = _propose_time(sample)
    lines = [
        f"# A proposal for {path.name}. Replace every {TO_BE_SET}; `iowatch import csv FILE --map THIS --system S",
        "# --preview` shows what it makes of the file. `iowatch docs import` describes the fields.",
        f"title: {_quote('results of ' + path.name)}",
    ]
    if sample.layout:
        lines.append("file:")
        lines += [f"  {key}: {_quote(value)}" for key, value in sample.layout.items()]
    lines += time
    columns = _propose_columns(sample, time_columns)
    if not any(line.startswith("benchmark:") for line in columns.fields):
        lines.append(f"benchmark: {TO_BE_SET} # its name, for example ior")
    lines += columns.fields
    if columns.parameters:
        lines += ["case:", *columns.parameters]
    else:
        lines.append("case: {}")
    lines.append("values:")
    lines += columns.values or [f"  - {{column: {TO_BE_SET}, unit: {TO_BE_SET}}}"]
    if columns.unused:
        lines.append(f"# not used: {', '.join(columns.unused)}")
    return "\n".join(lines) + "\n"


def _quote(value: str | int) -> str:
    return json.dumps(value, ensure_ascii=False)


def _read_sample(path: Path) -> _Sample:
    layout: dict[str, str | int] = {}
    text = read_text(path, "utf-8")
    if re.search("[\udc80-\udcff]", text):
        text = read_text(path, "cp1252")
        layout["encoding"] = "cp1252"
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    # The delimiter that gives the same number of fields most often; with equals, the one with more fields.
    rows: list[list[str]] = []
    delimiter, highest_count, width = "", 0, 0
    for candidate in DELIMITERS:
        candidate_rows = _split(lines[: _ROWS + 50], candidate)
        for fields, count in Counter(map(len, candidate_rows)).most_common(1):
            if fields > 1 and (count, fields) > (highest_count, width):
                rows, delimiter, highest_count, width = candidate_rows, candidate, count, fields
    if not rows:
        raise InputError(f"{path}: no table: no comma, semicolon, tab or bar divides its lines into equal columns")
    # The first row of this width is the header.
    skip = next(index for index, row in enumerate(rows) if len(row) == width)
    table: list[list[str]] = []
    for row in rows[skip:]:
        if len(row) == width:
            table.append([cell.strip() for cell in row])
    names, body = table[0], table[1:]
    columns = [[row[index] for row in body if row[index]] for index in range(width)]
    if skip:
        layout["skip"] = _line_index(lines, skip)
    if delimiter != "," and _any_cell_matches(columns, r"-?[\d.]*\d,\d+"):
        layout["decimal"] = ","
        if _any_cell_matches(columns, r"\d{1,3}(\.\d{3})+(,\d+)?"):
            layout["thousands"] = "."
    return _Sample(names, columns, layout, len(body))


def _any_cell_matches(columns: Sequence[Sequence[str]], pattern: str) -> bool:
    return any(re.fullmatch(pattern, cell) for cell in itertools.chain.from_iterable(columns))


def _split(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader((line for line in lines if line.strip()), delimiter=delimiter) if row]
    except csv.Error:  # a field of more than 128 KiB
        return []


def _line_index(lines: Sequence[str], number: int) -> int:
    """Return the index of the line that is `number` among those that are not blank, from 0."""
    return [index for index, line in enumerate(lines) if line.strip()][number]


def _propose_time(sample: _Sample) -> tuple[list[str], set[str]]:
    """Return the lines of `time`, and the columns that it uses."""
    for index, (name, cells) in enumerate(zip(sample.names, sample.columns, strict=True)):
        formats = _time_formats(name, cells)
        if not formats:
            continue
        used = [name]
        # A day, whose time of day can be in another column.
        clock = _clock_column(sample, index) if set(formats) <= set(_DAYS) else None
        if clock is not None:
            clock_name, clock_format = clock
            used.append(clock_name)
            formats = [f"{day_format} {clock_format}" for day_format in formats]
        return _time_lines(used, formats, cells), set(used)
    return [f"time: {{column: {TO_BE_SET}}} # no column with times was found; without `time`, give --time"], set()


def _time_formats(name: str, cells: Sequence[str]) -> list[str]:
    """Return the formats in which all cells are times."""
    if not cells:
        return []
    if all(re.fullmatch(r"\d{9,10}(\.\d+)?", cell) for cell in cells):
        return ["epoch"]
    # Numbers of this length are common; a time is called one.
    is_called_time = re.search(r"time|date|epoch|_ms", name, re.IGNORECASE)
    if is_called_time and all(re.fullmatch(r"\d{12,13}", cell) for cell in cells):
        return ["epoch_ms"]
    if all(re.match(r"\d{4}-\d\d-\d\d", cell) for cell in cells) and _all_parse(cells, None):
        return ["iso"]
    return [form for form in _TIME_FORMATS if _all_parse(cells, form)]


def _all_parse(cells: Sequence[str], form: str | None) -> bool:
    try:
        for cell in cells:
            datetime.strptime(cell, form) if form else datetime.fromisoformat(cell)
    except ValueError:
        return False
    return True


def _clock_column(sample: _Sample, after: int) -> tuple[str, str] | None:
    """Return name and format of a column with the time of day."""
    for name, cells in zip(sample.names[after + 1 :], sample.columns[after + 1 :], strict=True):
        for form in _CLOCKS:
            if cells and _all_parse(cells, form):
                return name, form
    return None


def _time_lines(used: Sequence[str], formats: Sequence[str], cells: Sequence[str]) -> list[str]:
    column = _quote(used[0]) if len(used) == 1 else f"[{', '.join(map(_quote, used))}]"
    lines = ["time:", f"  column: {column} # for example {cells[0]}"]
    if len(formats) > 1:
        lines.append(f"  format: {TO_BE_SET} # all of these fit: {' or '.join(map(_quote, formats))}")
    elif formats[0] != "iso":
        lines.append(f"  format: {_quote(formats[0])}")
    states_zone = all(re.search(r"\d\d:\d\d.{0,40}(Z|[+-]\d\d:?\d\d)$", cell) for cell in cells)
    if formats[0] not in ("epoch", "epoch_ms") and not states_zone:
        lines.append(f"  zone: {TO_BE_SET} # the zone of these times: UTC, Europe/Berlin, …")
    return lines


@dataclass
class _ProposedColumns:
    """Lines of the map by their section, and the names of columns that are not used."""

    fields: list[str] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)


def _propose_columns(sample: _Sample, time_columns: set[str]) -> _ProposedColumns:
    proposed = _ProposedColumns()
    by_role = {_role(name): name for name in sample.names}
    for name, cells in zip(sample.names, sample.columns, strict=True):
        role = _role(name)
        distinct = sorted(set(cells))
        if name in time_columns or role in ("unit", "metric"):
            continue
        if role == "system":
            proposed.unused.append(name)
            if len(distinct) > 1:
                proposed.fields.append(f"# keep: {name} == '{distinct[0]}' # --system names the system")
        elif role in _FIELDS:
            proposed.fields.append(f"{role}: {{column: {_quote(name)}}}")
        elif role in _PARAMETERS:
            proposed.parameters.append(f"  {role}: {{column: {_quote(name)}}} # {_examples(distinct)}")
        elif _are_numbers(cells) and (role == "value" or _is_measured(name, cells)):
            proposed.values.append(_value_line(sample, name, by_role))
        elif len(cells) == sample.rows and len(distinct) <= _MAX_VALUES:
            proposed.parameters.append(f"  {_slug(name)}: {{column: {_quote(name)}}} # {_examples(distinct)}")
        else:
            proposed.unused.append(name)
    return proposed


def _are_numbers(cells: Sequence[str]) -> bool:
    return bool(cells) and all(re.fullmatch(r"-?[\d.,]*\d([eE][-+]?\d+)?", cell) for cell in cells)


def _is_measured(name: str, cells: Sequence[str]) -> bool:
    """Whether numbers are measured rather than chosen: they have a unit, or many different values."""
    return _unit(name) is not None or len(set(cells)) > _MAX_VALUES or _varies(cells)


# Characters of the name of a column that are examined.
_LONGEST_NAME = 500


def _role(name: str) -> str | None:
    """Return what the name of a column says that it is: a field, a parameter, or one of `_OTHER_ROLES`."""
    word = _slug(re.sub(r"[\[(].*[\])]", "", name[:_LONGEST_NAME]))
    for role, pattern in {**_FIELDS, **_PARAMETERS, **_OTHER_ROLES}.items():
        if re.fullmatch(pattern, word):
            return role
    return None


def _slug(name: str) -> str:
    return re.sub(r"\W+", "_", name.strip().lower()).strip("_") or "column"


def _varies(cells: Sequence[str]) -> bool:
    """Whether nearly all numbers differ."""
    return len(cells) >= 3 and len(set(cells)) > len(cells) * 0.8


def _examples(distinct: Sequence[str]) -> str:
    text = ", ".join(distinct[:5])
    if len(distinct) > 5:
        text += f", … ({len(distinct)} values)"
    return text


def _unit(name: str) -> str | None:
    """Return the unit that the name of a column states."""
    for match in _UNIT.finditer(name):
        unit = (match[1] or match[2]).strip()
        try:
            to_metric_unit(1.0, unit)
        except InputError:
            continue
        return unit
    return None


def _value_line(sample: _Sample, name: str, by_role: dict[str | None, str]) -> str:
    stated_unit = _unit(name)
    if stated_unit:
        unit = _quote(stated_unit)
    elif "unit" in by_role:
        unit = f"{{column: {_quote(by_role['unit'])}}}"
    else:
        unit = TO_BE_SET
    fields = [f"column: {_quote(name)}", f"unit: {unit}"]
    if "metric" in by_role:
        fields.append(f"metric: {_metric_source(sample, by_role['metric'])}")
    operation = _operation(name)
    if operation and "operation" not in by_role:
        fields.append(f"case: {{operation: {operation}}}")
    line = f"  - {{{', '.join(fields)}}}"
    if TO_BE_SET in unit:
        line += " # MiB/s (2^20), MB/s (10^6), 1/s, s, …"
    return line


def _operation(name: str) -> str | None:
    """Return the operation that the name of a column states."""
    for operation, pattern in _OPERATIONS.items():
        if re.search(pattern, name, re.IGNORECASE):
            return operation
    return None


def _metric_source(sample: _Sample, column: str) -> str:
    """Return the source of the metric: a column, with a translation if its texts are not names of metrics."""
    texts = sorted(set(sample.columns[sample.names.index(column)]))
    if all(text in METRICS for text in texts):
        return f"{{column: {_quote(column)}}}"
    translation = ", ".join(f"{_quote(text)}: {text if text in METRICS else TO_BE_SET}" for text in texts)
    return f"{{column: {_quote(column)}, values: {{{translation}}}}}"
