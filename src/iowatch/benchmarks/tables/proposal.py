"""A first map for a delimited table, made from its header and first rows, for the user to complete.

Only the form of the file decides. What a wrong guess would falsify (unit, zone, order of day and month) is left open.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
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
_OPERATIONS = {"write": r"write|schreib", "read": r"read|les(e|en)\b|lesen"}
_UNIT = re.compile(r"[\[(]([^\])]+)[\])]|\b([kKMGT]?i?B/s|[kKMG]?bit/s|k?IOPS)\b")


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
        "# --preview` shows what it makes of the file. docs/import.md describes the fields.",
        f"title: {_quote('results of ' + path.name)}",
        *(["file:", *(f"  {key}: {_quote(value)}" for key, value in sample.layout.items())] if sample.layout else []),
        *time,
    ]
    fields, parameters, values, unused = _propose_columns(sample, time_columns)
    if not any(line.startswith("benchmark:") for line in fields):
        fields.insert(0, f"benchmark: {TO_BE_SET} # its name, for example ior")
    lines += fields
    lines += ["case:", *parameters] if parameters else ["case: {}"]
    lines += ["values:", *(values or [f"  - {{column: {TO_BE_SET}, unit: {TO_BE_SET}}}"])]
    lines += [f"# not used: {', '.join(unused)}"] if unused else []
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
    rows = {delimiter: _split(lines[: _ROWS + 50], delimiter) for delimiter in DELIMITERS}
    widths = {delimiter: Counter(map(len, found)).most_common(1) for delimiter, found in rows.items()}
    # The delimiter that gives the same number of fields most often; with equals, the one with more fields.
    scores = {one: (found[0][1], found[0][0]) for one, found in widths.items() if found and found[0][0] > 1}
    if not scores:
        raise InputError(f"{path}: no table: no comma, semicolon, tab or bar divides its lines into equal columns")
    delimiter = max(scores, key=lambda one: scores[one])
    width = scores[delimiter][1]
    skip = next(index for index, row in enumerate(rows[delimiter]) if len(row) == width)
    names, *body = [[cell.strip() for cell in row] for row in rows[delimiter][skip:] if len(row) == width]
    columns = [[row[index] for row in body if row[index]] for index in range(width)]
    if skip:
        layout["skip"] = _line_index(lines, skip)
    if delimiter != "," and any(re.fullmatch(r"-?[\d.]*\d,\d+", cell) for column in columns for cell in column):
        layout["decimal"] = ","
        if any(re.fullmatch(r"\d{1,3}(\.\d{3})+(,\d+)?", cell) for column in columns for cell in column):
            layout["thousands"] = "."
    return _Sample(names, columns, layout, len(body))


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
        clock = _clock_column(sample, index) if all(one in _DAYS or one == "iso" for one in formats) else None
        if clock is not None and "iso" not in formats:
            used.append(clock[0])
            formats = [f"{one} {clock[1]}" for one in formats]
        return _time_lines(used, formats, cells), set(used)
    return [f"time: {{column: {TO_BE_SET}}} # no column with times was found; without `time`, give --time"], set()


def _time_formats(name: str, cells: Sequence[str]) -> list[str]:
    """Return the formats in which all cells are times."""
    if not cells:
        return []
    if all(re.fullmatch(r"\d{9,10}(\.\d+)?", cell) for cell in cells):
        return ["epoch"]
    if all(re.fullmatch(r"\d{12,13}", cell) for cell in cells) and re.search(
        r"time|date|epoch|_ms", name, re.IGNORECASE
    ):
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
    states_zone = all(re.search(r"\d\d:\d\d.*(Z|[+-]\d\d:?\d\d)$", cell) for cell in cells)
    if formats[0] not in ("epoch", "epoch_ms") and not states_zone:
        lines.append(f"  zone: {TO_BE_SET} # the zone of these times: UTC, Europe/Berlin, …")
    return lines


def _propose_columns(sample: _Sample, time_columns: set[str]) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return lines of fields, of parameters and of values, and the names of columns that are not used."""
    fields: list[str] = []
    parameters: list[str] = []
    values: list[str] = []
    unused: list[str] = []
    by_role = {_role(name): name for name in sample.names}
    for name, cells in zip(sample.names, sample.columns, strict=True):
        role = _role(name)
        distinct = sorted(set(cells))
        numeric = bool(cells) and all(re.fullmatch(r"-?[\d.,]*\d([eE][-+]?\d+)?", cell) for cell in cells)
        if name in time_columns or role in ("unit", "metric"):
            continue
        if role == "system":
            unused.append(name)
            fields += [f"# keep: {name} == '{distinct[0]}' # --system names the system"] if len(distinct) > 1 else []
        elif role in _FIELDS:
            fields.append(f"{role}: {{column: {_quote(name)}}}")
        elif role in _PARAMETERS:
            parameters.append(f"  {role}: {{column: {_quote(name)}}} # {_examples(distinct)}")
        elif numeric and (role == "value" or _unit(name) or len(distinct) > _MAX_VALUES or _varies(cells)):
            values.append(_value_line(sample, name, by_role))
        elif len(cells) == sample.rows and len(distinct) <= _MAX_VALUES:
            parameters.append(f"  {_slug(name)}: {{column: {_quote(name)}}} # {_examples(distinct)}")
        else:
            unused.append(name)
    return fields, parameters, values, unused


def _role(name: str) -> str | None:
    word = _slug(re.sub(r"[\[(].*[\])]", "", name))
    own = {
        "system": "system|host(name)?|machine|cluster|rechner",
        "unit": "unit|einheit",
        "metric": "metric|kennzahl|metrik",
        "value": "value|wert|result|ergebnis",
    }
    roles = {**_FIELDS, **_PARAMETERS, **own}
    return next((role for role, pattern in roles.items() if re.fullmatch(pattern, word)), None)


def _slug(name: str) -> str:
    return re.sub(r"\W+", "_", name.strip().lower()).strip("_") or "column"


def _varies(cells: Sequence[str]) -> bool:
    """Whether numbers are measured rather than chosen: nearly all differ."""
    return len(cells) >= 3 and len(set(cells)) > len(cells) * 0.8


def _examples(distinct: Sequence[str]) -> str:
    return ", ".join(distinct[:5]) + (f", … ({len(distinct)} values)" if len(distinct) > 5 else "")


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
    operation = next((one for one, words in _OPERATIONS.items() if re.search(words, name, re.IGNORECASE)), None)
    unit = _quote(unit) if (unit := _unit(name)) else TO_BE_SET
    if unit == TO_BE_SET and "unit" in by_role:
        unit = f"{{column: {_quote(by_role['unit'])}}}"
    parts = [f"column: {_quote(name)}", f"unit: {unit}"]
    if "metric" in by_role:
        cells = sorted(set(sample.columns[sample.names.index(by_role["metric"])]))
        known = all(cell in METRICS for cell in cells)
        table = ", ".join(f"{_quote(cell)}: {cell if cell in METRICS else TO_BE_SET}" for cell in cells)
        parts.append(f"metric: {{column: {_quote(by_role['metric'])}{'' if known else f', values: {{{table}}}'}}}")
    if operation and "operation" not in by_role:
        parts.append(f"case: {{operation: {operation}}}")
    comment = "" if TO_BE_SET not in unit else " # MiB/s (2^20), MB/s (10^6), 1/s, s, …"
    return f"  - {{{', '.join(parts)}}}{comment}"
