"""Reading an export back: CSV, Parquet or JSON as `iowatch history export` writes them, or a program of one's
own.

Needed are `session`, `time`, `benchmark`, `case`, `metric` and `value` (JSON: `samples`); the other columns
have defaults.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from iowatch.errors import InputError, MachineError, UsageError
from iowatch.metrics import metric
from iowatch.model import Case
from iowatch.store.export import FORMAT
from iowatch.store.results import ResultRow
from iowatch.units import parse_time

_NEEDED = ("session", "time", "benchmark", "case", "metric")
_DEFAULTS = {"system": "", "partition": "", "stack": "", "run": "", "status": "ok", "pair": None, "side": None}
# csv's own limit of 128 KiB a cell is enough for a case and keeps a broken quote from swallowing the file.
_HINT = "Expected what `iowatch history export --format csv|parquet|json` writes."


def read_exported(path: Path) -> list[ResultRow]:
    """All results of an exported file, in its order.

    Raises:
        InputError: unreadable, not an export, or with a value that is not finite; with line or entry.
    """
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".json": _read_json}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path} is not an export that can be read back", hint=_HINT)
    try:
        return list(reader(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not readable: {error}", hint=_HINT) from error


def _read_csv(path: Path) -> Iterator[ResultRow]:
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        _check_columns(path, reader.fieldnames or [], (*_NEEDED, "value"))
        try:
            yield from _grouped((f"{path}:{reader.line_num}", row) for row in reader)
        except csv.Error as error:
            raise InputError(f"{path}:{reader.line_num}: {error}", hint=_HINT) from error


def _read_parquet(path: Path) -> Iterator[ResultRow]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MachineError("Parquet needs pyarrow", hint="pip install 'iowatch[parquet]'") from error
    try:
        table = pq.read_table(path)
    except pa.ArrowException as error:
        raise InputError(f"{path}: not Parquet: {error}", hint=_HINT) from error
    _check_columns(path, table.column_names, (*_NEEDED, "value"))
    yield from _grouped((f"{path}: row {n}", row) for n, row in enumerate(table.to_pylist(), 1))


def _read_json(path: Path) -> Iterator[ResultRow]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}", hint=_HINT) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT or "results" not in document:
        raise InputError(f"{path}: not an export of format {FORMAT}", hint=_HINT)
    for number, entry in enumerate(document["results"]):
        where = f"{path}: results[{number}]"
        _check_columns(Path(where), list(entry), (*_NEEDED, "samples"))
        yield _row(where, entry, [_value(where, value) for value in entry["samples"]])


def _check_columns(path: Path, found: Iterable[str], needed: tuple[str, ...]) -> None:
    absent = [name for name in needed if name not in set(found)]
    if absent:
        raise InputError(f"{path}: no column {', '.join(absent)}", hint=_HINT)


def _grouped(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[ResultRow]:
    """Sample rows to results: those that differ in nothing but repetition and value, in the order of the
    file."""
    names = (*_NEEDED, *_DEFAULTS)
    found: dict[tuple[Any, ...], tuple[str, list[float]]] = {}
    for where, row in rows:
        key = tuple([row.get(name) for name in names])
        found.setdefault(key, (where, []))[1].append(_value(where, row.get("value")))
    for key, (where, values) in found.items():
        yield _row(where, dict(zip(names, key, strict=True)), values)


def _value(where: str, text: Any) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{where}: field 'value': expected a finite number, found {text!r}")
    return value


def _row(where: str, entry: Mapping[str, Any], samples: list[float]) -> ResultRow:
    given = {name: entry[name] for name in _DEFAULTS if entry.get(name) not in (None, "")}
    rest = {**_DEFAULTS, **given}
    try:
        facts = metric(str(entry["metric"]))
        pair, side = rest.pop("pair"), rest.pop("side")
        return ResultRow(
            session=str(entry["session"]),
            time=int(parse_time(str(entry["time"])).timestamp()),
            case=_case(str(entry["benchmark"]), _text(entry["case"])),
            metric=facts.name,
            samples=tuple(samples),
            pair=None if pair is None else int(pair),
            side=None if side is None else str(side),
            content=None,
            number=None,
            **{name: str(value) for name, value in rest.items()},
        )
    except (ValueError, InputError, UsageError) as error:
        raise InputError(f"{where}: {error}", hint=_HINT) from error


def _text(case: Any) -> str:
    return case if isinstance(case, str) else json.dumps(case)


@lru_cache(maxsize=4096)
def _case(benchmark: str, text: str) -> Case:
    parameters = json.loads(text)
    if not isinstance(parameters, dict) or not all(
        isinstance(v, str | int | float) for v in parameters.values()
    ):
        raise InputError(f"field 'case': expected a JSON object of plain values, found {text[:80]!r}")
    case = Case(benchmark, parameters)
    _ = case.canonical
    return case
