"""Series of a CSV file, and their detections."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from iowatch.core import InputError, parse_time
from iowatch.findings.detectors import get_detector
from iowatch.findings.statistics_errors import reported_as
from iowatch.statistics import DEFAULT_METHOD, Detection, detect_many


def detect_csv(path: Path, method: str = DEFAULT_METHOD) -> dict[str, Detection]:
    """Detection of each series of a CSV file, by series name.

    Raises:
        InputError: the file is not UTF-8 text, or has faults (see `read_series_csv`).
        UsageError: unknown method.
    """
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            series = read_series_csv(lines, str(path))
    except UnicodeDecodeError as error:
        text = f"{path}: not UTF-8 text ({error.reason} at byte {error.start})"
        raise InputError(text, hint="Save it as UTF-8, for example with iconv -t UTF-8.") from error
    detector = get_detector(method)
    with reported_as(InputError):
        detections = detect_many(list(series.values()), detector=detector)
    return dict(zip(series, detections, strict=True))


CSV_COLUMNS = ("series", "time", "value")
_MAX_FAULTS = 10

TimesAndValues = tuple[list[float], list[float]]
"""Times (epoch seconds) and values."""


def read_series_csv(lines: Iterable[str], name: str) -> dict[str, TimesAndValues]:
    """Series by name, in the order of their first rows.

    Args:
        lines: the text; additional columns and empty lines are ignored.
        name: name of the text in messages.

    Raises:
        InputError: all faults, each with its line (the first ten, and the number of the others).
    """
    rows = csv.reader(lines, strict=True)
    series: dict[str, TimesAndValues] = {}
    faults: list[str] = []
    try:
        header = next(rows, [])
        columns = _column_positions(header, name)
        for row in rows:
            where = f"{name}:{rows.line_num}"
            if not any(field.strip() for field in row):
                continue
            if len(row) == len(header):
                _add_row(row, columns, where, series, faults)
            else:
                # A decimal comma splits a number into two fields; the truncated number must not be accepted.
                faults.append(f"{where}: {len(row)} fields, the header has {len(header)}")
    except csv.Error as error:
        faults.append(f"{name}:{rows.line_num}: {error}")
    if faults:
        more = [f"and {len(faults) - _MAX_FAULTS} more"] if len(faults) > _MAX_FAULTS else []
        raise InputError(
            "\n".join(faults[:_MAX_FAULTS] + more), hint="Expected for example: ior write,2009-03-17T02:00:00Z,1240.5"
        )
    return series


def _column_positions(header: Sequence[str], name: str) -> list[int]:
    names = [field.strip().lstrip("\ufeff") for field in header]
    absent = [column for column in CSV_COLUMNS if column not in names]
    where = f"{name}:1: header '{','.join(header)}' has"
    if absent:
        raise InputError(f"{where} no column {', '.join(absent)}", hint="The first line is: series,time,value")
    repeated = [column for column in CSV_COLUMNS if names.count(column) > 1]
    if repeated:
        raise InputError(f"{where} {', '.join(repeated)} more than once")
    return [names.index(column) for column in CSV_COLUMNS]


def _add_row(
    row: Sequence[str], columns: Sequence[int], where: str, series: dict[str, TimesAndValues], faults: list[str]
) -> None:
    label, time_text, value_text = (row[column].strip() for column in columns)
    faults_before = len(faults)
    if not label:
        faults.append(f"{where}: series has no name")
    try:
        moment = parse_time(time_text).timestamp()
    except InputError:
        faults.append(f"{where}: time '{time_text}' is neither ISO 8601 nor epoch seconds")
    try:
        value = float(value_text.replace("_", "?"))  # 1_000 is a number in Python, but not in a CSV file
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        faults.append(f"{where}: value '{value_text}' is not a finite number > 0")
    if len(faults) == faults_before:
        times, values = series.setdefault(label, ([], []))
        times.append(moment)
        values.append(value)
