"""Series written as CSV text (DESIGN.md, "Formats"): header `series,time,value`, rows in any order."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from datetime import datetime

from iowatch.errors import InputError
from iowatch.units import parse_time

COLUMNS = ("series", "time", "value")
_MOST_FAULTS = 10

Points = tuple[list[float], list[float]]
"""Times (epoch seconds) and values."""


def read_series(lines: Iterable[str], name: str) -> dict[str, Points]:
    """Series by name, in the order of their first rows.

    Args:
        lines: the text; further columns are ignored, and so are empty lines.
        name: what to call the text in messages.

    Raises:
        InputError: all faults together, each with its line (the first ten, and how many more).
    """
    rows = csv.reader(lines, strict=True)
    series: dict[str, Points] = {}
    faults: list[str] = []
    try:
        header = next(rows, [])
        columns = _columns(header, name)
        for row in rows:
            where = f"{name}:{rows.line_num}"
            if not any(field.strip() for field in row):
                continue
            if len(row) == len(header):
                _take(row, columns, where, series, faults)
            else:
                # A decimal comma makes two fields of one number: what is left of it must not pass.
                faults.append(f"{where}: {len(row)} fields, the header has {len(header)}")
    except csv.Error as error:
        faults.append(f"{name}:{rows.line_num}: {error}")
    if faults:
        raise InputError(_listing(faults), hint="Expected for example: ior write,2009-03-17T02:00:00Z,1240.5")
    return series


def _columns(header: Sequence[str], name: str) -> list[int]:
    names = [field.strip().lstrip("\ufeff") for field in header]
    absent = [column for column in COLUMNS if column not in names]
    if absent:
        raise InputError(
            f"{name}:1: header '{','.join(header)}' has no column {', '.join(absent)}",
            hint="The first line is: series,time,value",
        )
    twice = [column for column in COLUMNS if names.count(column) > 1]
    if twice:
        raise InputError(f"{name}:1: header '{','.join(header)}' has {', '.join(twice)} more than once")
    return [names.index(column) for column in COLUMNS]


def _take(
    row: Sequence[str], columns: Sequence[int], where: str, series: dict[str, Points], faults: list[str]
) -> None:
    label, time_text, value_text = (row[column].strip() for column in columns)
    moment, value = _time(time_text), _value(value_text)
    if not label:
        faults.append(f"{where}: series has no name")
    if moment is None:
        faults.append(f"{where}: time '{time_text}' is neither ISO 8601 nor epoch seconds")
    if value is None:
        faults.append(f"{where}: value '{value_text}' is not a finite number > 0")
    if label and moment is not None and value is not None:
        times, values = series.setdefault(label, ([], []))
        times.append(moment.timestamp())
        values.append(value)


def _time(text: str) -> datetime | None:
    try:
        return parse_time(text)
    except InputError:
        return None


def _value(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 and "_" not in text else None


def _listing(faults: list[str]) -> str:
    more = len(faults) - _MOST_FAULTS
    return "\n".join(faults[:_MOST_FAULTS] + ([f"and {more} more"] if more > 0 else []))
