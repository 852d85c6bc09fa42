"""Rows of a file: delimited tables, sections of `key = value`, and lines that match a pattern.

A row is its line number and the text of each column. A damaged row has the reason, and does not stop others.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iowatch.benchmarks.tables.maps import COMMENTS_COLUMN, Columns, Layout
from iowatch.core import MIB, InputError, format_size, suggest_name

DELIMITERS = (",", ";", "\t", "|")
# Far above ten years of a site; a damaged or hostile archive must not fill the memory.
_MAX_BYTES = 512 * MIB
# A field in quotes may contain line ends; a quote that nothing closes must not swallow the rest of the file.
_MAX_LINES_PER_ROW = 50
_COMPRESSIONS: dict[bytes, Callable[[Path], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
# Longer marks first: that of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# NUL, and bytes that were not decoded.
_UNDECODABLE = re.compile("[\0\udc80-\udcff]")
# A line of nothing else may be a part of the number before or after it.
_PART_OF_NUMBER = re.compile(r"\s*[\d.,'eE+-]+\s*")
_TOO_SHORT = "the last line has no line end, so that it may be truncated; add one, or set file.complete in the map"


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row: its first line (from 1) and its cells by column, or the reason why it is refused."""

    line: int
    cells: Mapping[str, str]
    damage: str | None = None


def read_rows(path: Path, layout: Layout, columns: Columns) -> Iterator[TableRow]:
    """Yield the rows of a file in order; columns that a section, or the table, does not have are empty.

    Raises:
        InputError: not readable, no table, or a column is not in it.
    """
    lines = _Lines(read_text(path, layout.encoding), layout)
    absent = dict.fromkeys((*columns.required, *columns.optional), "")
    seen: set[str] = set()
    for row in _READERS[layout.format](path, lines, layout, columns):
        seen.update(row.cells)
        yield TableRow(row.line, {**absent, **row.cells}, row.damage)
    # A table is checked by its header.
    missing = columns.required - seen
    if layout.format != "table" and seen and missing:
        raise InputError(_missing_columns(f"{path}", missing), hint=_suggest(missing, sorted(seen)))


def _missing_columns(where: str, missing: Collection[str]) -> str:
    return f"{where}: no column {', '.join(map(repr, sorted(missing)))}"


def _suggest(missing: Collection[str], names: Sequence[str]) -> str:
    return "\n  ".join(f"{name}: {suggest_name(name, list(names))}" for name in sorted(missing)[:3])


def read_text(path: Path, encoding: str) -> str:
    """Return the text of a file, which may be compressed (gzip, bzip2, xz); undecodable bytes are lone surrogates.

    Raises:
        InputError: not readable, truncated, or too large.
    """
    try:
        with path.open("rb") as stream:
            start = stream.read(8)
        opener = next((opener for magic, opener in _COMPRESSIONS.items() if start.startswith(magic)), None)
        with opener(path) if opener else path.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{path}: not readable: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > _MAX_BYTES:
        raise InputError(f"{path}: larger than {format_size(_MAX_BYTES)}", hint="Split it into several files.")
    encoding = next((name for mark, name in _MARKS if content.startswith(mark)), encoding)
    try:
        return str(content.decode(encoding, "surrogateescape"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not {encoding}: {error}", hint="Set file.encoding in the map.") from error


class _Lines:
    """The lines of a text without their ends, numbered from 1; damage of each is found when it is used."""

    def __init__(self, text: str, layout: Layout) -> None:
        self.texts = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self.unfinished = self.texts[-1] != "" and not layout.complete
        if self.texts[-1] == "":
            self.texts.pop()
        self._comment = layout.comment

    def __len__(self) -> int:
        return len(self.texts)

    def ignores(self, text: str) -> bool:
        return not text.strip() or (self._comment is not None and text.startswith(self._comment))

    def damage(self, line: int, text: str) -> str | None:
        """Return why a row that ends with this line cannot be read, or None."""
        if _UNDECODABLE.search(text):
            return "bytes that are no text in this encoding (file.encoding of the map)"
        if self.unfinished and line == len(self.texts):
            return _TOO_SHORT
        return None


def _read_tables(path: Path, lines: _Lines, layout: Layout, columns: Columns) -> Iterator[TableRow]:
    tables = list(_table_extents(lines, layout))
    if not tables:
        reason = "no line matches file.begin" if layout.begin else "the file is empty"
        raise InputError(f"{path}: no table: {reason}")
    for first, end, preamble in tables:
        table = _Table(path, lines, layout, preamble)
        yield from table.rows(first, end, columns)


def _table_extents(lines: _Lines, layout: Layout) -> Iterator[tuple[int, int, list[str]]]:
    """Yield index of the first line, index behind the last line, and the lines before, of each table."""
    if layout.begin is None:
        if len(lines) > layout.skip:
            yield layout.skip, len(lines), lines.texts[: layout.skip]
        return
    begin, end = re.compile(layout.begin), re.compile(layout.end) if layout.end else None
    before, first = 0, None
    for index, text in enumerate(lines.texts):
        if first is None and begin.search(text):
            first = index + 1
        elif first is not None and end and end.search(text):
            yield first, index, lines.texts[before : first - 1]
            before, first = index + 1, None
    if first is not None:
        yield first, len(lines), lines.texts[before : first - 1]


class _Table:
    """One table: header and rows."""

    def __init__(self, path: Path, lines: _Lines, layout: Layout, preamble: Sequence[str]) -> None:
        self._path, self._lines, self._layout = path, lines, layout
        self._preamble = preamble
        self._delimiter = layout.delimiter or DELIMITERS[0]

    def rows(self, first: int, end: int, columns: Columns) -> Iterator[TableRow]:
        """Yield the rows; those before and after a part of a number are damaged, too: it may belong to either."""
        waiting: TableRow | None = None
        for row in self._rows(first, end, columns):
            if waiting is not None:
                yield self._beside(waiting, row)
                row = self._beside(row, waiting)
            waiting = row
        if waiting is not None:
            yield waiting

    def _beside(self, row: TableRow, other: TableRow) -> TableRow:
        text = self._lines.texts[other.line - 1]
        if row.damage or not other.damage or self._delimiter in text or not _PART_OF_NUMBER.fullmatch(text):
            return row
        return TableRow(row.line, {}, f"line {other.line} may be a part of it")

    def _rows(self, first: int, end: int, columns: Columns) -> Iterator[TableRow]:
        while first < end and self._lines.ignores(self._lines.texts[first]):
            first += 1
        if first == end:
            return
        shared = self._shared_cells()
        names = list(self._layout.header)
        if not names:
            names, first = self._find_header(first, columns, columns.required - shared.keys()), first + 1
        width = len(names) + self._layout.index
        while first < end:
            line, used, fields, damage = self._next_row(first, end)
            first += used
            if damage is None and fields is not None and len(fields) != width:
                damage = f"{len(fields)} fields, expected {width}"
                first -= used - 1  # the damage may have joined this row to intact ones
            if damage is not None:
                yield TableRow(line, {}, damage)
            elif fields is not None and any(map(str.strip, fields)) and not self._is_header(fields, names):
                cells = dict(zip(names, map(_clean_cell, fields[self._layout.index :]), strict=True))
                yield TableRow(line, {**shared, **cells})

    def _is_header(self, fields: Sequence[str], names: Sequence[str]) -> bool:
        """Whether this is the header, repeated where files were joined."""
        return [_clean_cell(field) for field in fields] == list(names)

    def _find_header(self, index: int, columns: Columns, required: Collection[str]) -> list[str]:
        """Return the names of the columns, and keep the delimiter that finds most of them for the rows."""
        text = self._lines.texts[index]
        where = f"{self._path}:{index + 1}"
        delimiters = [self._layout.delimiter] if self._layout.delimiter else list(DELIMITERS)
        headers = {delimiter: self._split(text, delimiter) or [] for delimiter in delimiters}
        self._delimiter = max(delimiters, key=lambda delimiter: sum(map(columns.needs, set(headers[delimiter]))))
        names = headers[self._delimiter]
        if not names:
            raise InputError(f"{where}: damaged header: quotes do not match")
        damage = self._lines.damage(index + 1, text)
        if damage:
            raise InputError(f"{where}: damaged header: {damage}")
        # The index of the rows has no name, and is no cell of a row either.
        if self._layout.index and names[0] == "":
            names = names[1:]
        missing = set(required) - set(names)
        if missing:
            raise InputError(_missing_columns(where, missing), hint=_suggest(missing, names))
        # A file has one of several forms of its values.
        values = [name for name in names if columns.has_value(name)]
        if columns.families and not values:
            patterns = " or ".join(repr(family.pattern) for family in columns.families)
            raise InputError(f"{where}: no column matches {patterns}", hint=f"Columns: {', '.join(names)}.")
        doubled = sorted(name for name, count in Counter(names).items() if count > 1 and columns.needs(name))
        if doubled:
            raise InputError(f"{where}: {', '.join(map(repr, doubled))} is the name of several columns")
        return names

    def _split(self, text: str, delimiter: str) -> list[str] | None:
        try:
            return [_clean_cell(name) for name in self._parse([text], delimiter)]
        except csv.Error:
            return None

    def _parse(self, texts: Sequence[str], delimiter: str) -> list[str]:
        if self._layout.quote == "":
            return next(csv.reader(texts, delimiter=delimiter, quoting=csv.QUOTE_NONE, strict=True), [])
        reader = csv.reader(
            [f"{text}\n" for text in texts], delimiter=delimiter, quotechar=self._layout.quote, strict=True
        )
        fields = next(reader, [])
        if reader.line_num != len(texts):
            raise csv.Error("more than one row")
        return fields

    def _next_row(self, index: int, end: int) -> tuple[int, int, list[str] | None, str | None]:
        """Return first line, number of lines, fields (None: nothing here) and damage of the row at an index."""
        if self._lines.ignores(self._lines.texts[index]):
            return index + 1, 1, None, None
        for used in range(1, min(_MAX_LINES_PER_ROW, end - index) + 1):
            texts = self._lines.texts[index : index + used]
            try:
                fields = self._parse(texts, self._delimiter)
            except csv.Error as error:
                if "unexpected end" in str(error):
                    continue  # a quote is open
                return index + 1, 1, None, f"damaged: {error}"
            return index + 1, used, fields, self._lines.damage(index + used, "".join(texts))
        return index + 1, 1, None, "damaged: a quote is not closed"

    def _shared_cells(self) -> dict[str, str]:
        """Return the cells `NAME = VALUE` before the table."""
        cells: dict[str, str] = {}
        for text in self._preamble:
            for field in self._split(text, self._delimiter) or ():
                name, equals, value = field.partition(" = ")
                if equals:
                    cells[name.strip()] = value.strip()
        return cells


def _clean_cell(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{NARROW NO-BREAK SPACE}", " ").strip()


_SECTION = re.compile(r"\[([^\]]+)\]")


def _read_sections(path: Path, lines: _Lines, layout: Layout, columns: Columns) -> Iterator[TableRow]:
    """Yield one row per section: `section`, its keys, and `comments`; with the keys of shared sections."""
    shared: dict[str, str] = {}
    if layout.shared:
        shared = {f"{layout.shared[0]}.{key}": value for key, value in _keys_before_sections(lines).items()}
    has_sections = False
    for line, name, cells, damage in _sections(lines):
        has_sections = True
        if name in layout.shared:
            if damage is not None:
                raise InputError(f"{path}:{line}: section [{name}]: {damage}")
            shared |= {f"{name}.{key}": value for key, value in cells.items()}
        else:
            yield TableRow(line, {"section": name, **shared, **cells}, damage)
    if not has_sections:
        raise InputError(f"{path}: no [section]")


def _keys_before_sections(lines: _Lines) -> dict[str, str]:
    """Return the keys before the first section; other lines there, such as messages of a launcher, are ignored."""
    keys: dict[str, str] = {}
    for text in lines.texts:
        stripped = text.strip()
        if _SECTION.fullmatch(stripped):
            break
        key, sign, value = stripped.partition("=")
        if sign and not stripped.startswith((";", "#")):
            keys[key.rstrip()] = value.lstrip()
    return keys


def _sections(lines: _Lines) -> Iterator[tuple[int, str, dict[str, str], str | None]]:
    """Yield first line, name, cells and damage of each section."""
    start, name, cells, damage = 0, "", {COMMENTS_COLUMN: ""}, None
    for line, text in enumerate(lines.texts, start=1):
        stripped = text.strip()
        heading = _SECTION.fullmatch(stripped)
        if heading:
            if start:
                yield start, name, cells, damage
            start, name, cells, damage = line, heading[1], {COMMENTS_COLUMN: ""}, None
        elif stripped.startswith((";", "#")):
            cells[COMMENTS_COLUMN] += stripped + "\n"
        elif stripped:
            key, sign, value = stripped.partition("=")
            key = key.rstrip()
            if not (key and sign):
                damage = damage or f"line {line} is not KEY = VALUE"
            elif key in cells:
                damage = damage or f"'{key}' occurs twice"
            else:
                cells[key] = value.lstrip()
        damage = damage or lines.damage(line, text)
    if start:
        yield start, name, cells, damage


def _read_matching_lines(path: Path, lines: _Lines, layout: Layout, columns: Columns) -> Iterator[TableRow]:
    """Yield the named groups of each line that matches; a line that only starts like one is damaged."""
    pattern = re.compile(layout.pattern or "")
    start = re.compile(layout.start) if layout.start else None
    has_rows = False
    for line, text in enumerate(lines.texts, start=1):
        damage = lines.damage(line, text)
        match = pattern.fullmatch(text)
        if match:
            has_rows = True
            yield TableRow(line, match.groupdict(default=""), damage)
        elif start and start.match(text):
            has_rows = True
            yield TableRow(line, {}, damage or "not of the form of file.pattern")
    if not has_rows:
        raise InputError(f"{path}: no line matches file.pattern of the map")


_READERS = {"table": _read_tables, "sections": _read_sections, "lines": _read_matching_lines}
