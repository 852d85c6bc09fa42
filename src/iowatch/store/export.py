"""Export results with every sample to CSV, Parquet and JSON; import exports.

CSV and Parquet have one sample per row (`EXPORT_COLUMNS`), JSON one result per entry with its samples in a list. All
three can be imported, also if other programs wrote them, and be a side of `iowatch compare`. `session`, `time`,
`benchmark`, `case`, `metric` and `value` (JSON: `samples`) are required; the other columns have defaults.

A spreadsheet takes a text that begins with `= + - @` for a formula. Texts of a CSV file that begin with one of these,
a tab or an apostrophe have an apostrophe before them, which is removed when the file is read.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from iowatch.core import (
    Case,
    InputError,
    MachineError,
    UsageError,
    canonical_json,
    escape_controls,
    escape_json_controls,
    format_time,
    get_metric,
    parse_json,
    parse_time,
    suggest_name,
)
from iowatch.store.history import History
from iowatch.store.records import ResultFilter, ResultRow

EXPORT_FORMAT = 1
# One sample per row; `case` is the canonical JSON of the parameters, `case_key` its short digest.
EXPORT_COLUMNS = (
    "session", "time", "system", "partition", "stack", "benchmark", "case", "case_key", "metric", "unit",
    "run", "status", "pair", "side", "repetition", "value",
)  # fmt: skip
_REQUIRED = ("session", "time", "benchmark", "case", "metric", "value")
_OPTIONAL = ("system", "partition", "stack", "run", "status", "pair", "side")
_BATCH = 50_000

ExportWriter = Callable[[Iterable[ResultRow], BinaryIO], None]


def export_results(history: History, chosen: ResultFilter, form: str, stream: BinaryIO) -> None:
    """Write matching results to a binary stream row by row: memory use does not depend on the size of the history.

    Args:
        form: a key of `EXPORT_FORMATS`.

    Raises:
        UsageError: unknown format.
        MachineError: Parquet without pyarrow.
    """
    if form not in EXPORT_FORMATS:
        raise UsageError(f"unknown format '{form}'", hint=suggest_name(form, [*EXPORT_FORMATS, "openmetrics"]))
    EXPORT_FORMATS[form](history.results(chosen), stream)


def _common_fields(row: ResultRow) -> dict[str, Any]:
    """Return the fields that all samples of a result share."""
    return {
        **{name: getattr(row, name) for name in ("session", "metric", *_OPTIONAL)},
        "time": format_time(datetime.fromtimestamp(row.time, UTC)),
        "benchmark": row.case.benchmark,
        "case_key": row.case.key,
        "unit": get_metric(row.metric).unit,
    }


def _sample_rows(
    rows: Iterable[ResultRow], format_value: Callable[[Any], Any] = lambda value: value
) -> Iterator[dict[str, Any]]:
    for row in rows:
        fields = {**_common_fields(row), "case": escape_json_controls(canonical_json(row.case.parameters))}
        common = {name: format_value(value) for name, value in fields.items()}
        for repetition, value in enumerate(row.samples):
            yield {**common, "repetition": repetition, "value": value}


def _write_csv(rows: Iterable[ResultRow], stream: BinaryIO) -> None:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    writer = csv.DictWriter(text, EXPORT_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_sample_rows(rows, _format_cell))
    text.detach()


_FORMULA_STARTS = tuple("=+-@\t'")


def _format_cell(value: Any) -> Any:
    """Return a number unchanged, and a text without controls that no spreadsheet executes."""
    if not isinstance(value, str):
        return value
    text = escape_controls(value)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _parse_cell(cell: Any) -> Any:
    is_escaped = isinstance(cell, str) and cell[:1] == "'" and cell[1:].startswith(_FORMULA_STARTS)
    return cell[1:] if is_escaped else cell


def _write_json(rows: Iterable[ResultRow], stream: BinaryIO) -> None:
    stream.write(b'{"format": %d, "results": [' % EXPORT_FORMAT)
    for position, row in enumerate(rows):
        document = {**_common_fields(row), "case": dict(row.case.parameters), "samples": list(row.samples)}
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
        stream.write((",\n" if position else "\n").encode() + escape_json_controls(text).encode())
    stream.write(b"\n]}\n")


def _write_parquet(rows: Iterable[ResultRow], stream: BinaryIO) -> None:
    pa, pq = _import_pyarrow()
    number_types = {"pair": pa.int64(), "repetition": pa.int64(), "value": pa.float64()}
    schema = pa.schema([(name, number_types.get(name, pa.string())) for name in EXPORT_COLUMNS])
    samples = _sample_rows(rows)
    with pq.ParquetWriter(stream, schema) as writer:
        while batch := list(islice(samples, _BATCH)):
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))


EXPORT_FORMATS: dict[str, ExportWriter] = {"csv": _write_csv, "parquet": _write_parquet, "json": _write_json}


_HINT = "Expected what `iowatch history export --format csv|parquet|json` writes."
# Location in a file, and one sample with its columns.
_SampleRow = tuple[str, Mapping[str, Any]]


def read_export_file(path: Path) -> list[ResultRow]:
    """Return all results of an exported file, in its order.

    Samples that differ only in repetition and value form one result.

    Raises:
        InputError: unreadable, not an export, or a value that is not finite; with line or entry.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path} is not an export that can be read back", hint=_HINT)
    identity = [*_REQUIRED[:-1], *_OPTIONAL]
    first_lines: dict[tuple[Any, ...], str] = {}
    samples: dict[tuple[Any, ...], list[float]] = {}
    try:
        for where, row in reader(path):
            key = tuple([row.get(name) for name in identity])
            first_lines.setdefault(key, where)
            samples.setdefault(key, []).append(_parse_sample_value(where, row["value"]))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not readable: {error}", hint=_HINT) from error
    results: list[ResultRow] = []
    for key, where in first_lines.items():
        fields = dict(zip(identity, key, strict=True))
        results.append(_make_result_row(where, fields, samples[key]))
    return results


def _read_csv(path: Path) -> Iterator[_SampleRow]:
    # csv's own limit of 128 KiB per cell is enough for a case and limits the damage of an unbalanced quote.
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        _require_columns(str(path), reader.fieldnames or [])
        try:
            for row in reader:
                yield f"{path}:{reader.line_num}", {name: _parse_cell(cell) for name, cell in row.items()}
        except csv.Error as error:
            raise InputError(f"{path}:{reader.line_num}: {error}", hint=_HINT) from error


def _read_parquet(path: Path) -> Iterator[_SampleRow]:
    pa, pq = _import_pyarrow()
    try:
        table = pq.read_table(path)
    except pa.ArrowException as error:
        raise InputError(f"{path}: not Parquet: {error}", hint=_HINT) from error
    _require_columns(str(path), table.column_names)
    for number, row in enumerate(table.to_pylist(), 1):
        yield f"{path}: row {number}", row


def _read_json(path: Path) -> Iterator[_SampleRow]:
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}", hint=_HINT) from error
    if not isinstance(document, dict) or document.get("format") != EXPORT_FORMAT or "results" not in document:
        raise InputError(f"{path}: not an export of format {EXPORT_FORMAT}", hint=_HINT)
    for number, entry in enumerate(document["results"]):
        where = f"{path}: results[{number}]"
        _require_columns(where, ["value" if name == "samples" else name for name in entry])
        common = {**entry, "case": json.dumps(entry["case"])}
        for value in entry["samples"]:
            yield where, {**common, "value": value}


_READERS: dict[str, Callable[[Path], Iterator[_SampleRow]]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".json": _read_json,
}


def _import_pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MachineError("Parquet needs pyarrow", hint="pip install 'iowatch[parquet]'") from error
    return pyarrow, pyarrow.parquet


def _require_columns(where: str, columns: Iterable[str]) -> None:
    existing = set(columns)
    missing = [name for name in _REQUIRED if name not in existing]
    if missing:
        raise InputError(f"{where}: no column {', '.join(missing)}", hint=_HINT)


def _parse_sample_value(where: str, text: Any) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{where}: field 'value': expected a finite number, found {text!r}")
    return value


def _make_result_row(where: str, entry: Mapping[str, Any], samples: list[float]) -> ResultRow:
    stated = {name: str(entry[name]) for name in _OPTIONAL if entry[name] not in (None, "")}
    try:
        return ResultRow(
            system=stated.get("system", ""),
            partition=stated.get("partition", ""),
            stack=stated.get("stack", ""),
            run=stated.get("run", ""),
            session=str(entry["session"]),
            time=int(parse_time(str(entry["time"])).timestamp()),
            case=_parse_case(str(entry["benchmark"]), str(entry["case"])),
            metric=get_metric(str(entry["metric"])).name,
            status=stated.get("status", "ok"),
            pair=int(entry["pair"]) if "pair" in stated else None,
            side=stated.get("side"),
            samples=tuple(samples),
        )
    except (ValueError, InputError, UsageError) as error:
        raise InputError(f"{where}: {error}", hint=_HINT) from error


@lru_cache(maxsize=4096)
def _parse_case(benchmark: str, text: str) -> Case:
    parameters = parse_json(text)
    if not isinstance(parameters, dict) or not all(isinstance(v, str | int | float) for v in parameters.values()):
        raise InputError(f"field 'case': expected a JSON object of plain values, found {text[:80]!r}")
    case = Case(benchmark, parameters)
    _ = case.canonical
    return case
