"""Exports of the history: CSV, Parquet and JSON with every sample, OpenMetrics with the newest results.

CSV and Parquet have one sample a row (`COLUMNS`), JSON one result an entry with its samples in a list; all
three can be read back (`iowatch.store.exported`) and be a side of `iowatch compare`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, BinaryIO

from iowatch.errors import MachineError, UsageError, near_miss
from iowatch.metrics import metric
from iowatch.model import canonical_json
from iowatch.store.history import History
from iowatch.store.openmetrics import write_openmetrics
from iowatch.store.results import ResultFilter, ResultRow
from iowatch.units import format_time

FORMAT = 1
# One row a sample; `case` is the canonical JSON of the parameters, `case_key` its short digest.
COLUMNS = (
    "session", "time", "system", "partition", "stack", "benchmark", "case", "case_key", "metric", "unit",
    "run", "status", "pair", "side", "repetition", "value",
)  # fmt: skip
_BATCH = 50_000

Writer = Callable[[Iterable[ResultRow], BinaryIO], None]


def export(history: History, chosen: ResultFilter, form: str, stream: BinaryIO) -> None:
    """Write matching results to a binary stream, a row at a time: memory does not grow with the history.

    Args:
        form: a key of `FORMATS`.

    Raises:
        UsageError: unknown format.
        MachineError: Parquet without pyarrow.
    """
    if form not in FORMATS:
        raise UsageError(f"unknown format '{form}'", hint=near_miss(form, list(FORMATS)))
    FORMATS[form](history.results(chosen), stream)


def _common(row: ResultRow) -> dict[str, Any]:
    """What all samples of a result have in common."""
    return {
        "session": row.session,
        "time": format_time(datetime.fromtimestamp(row.time, UTC)),
        "system": row.system,
        "partition": row.partition,
        "stack": row.stack,
        "benchmark": row.case.benchmark,
        "case_key": row.case.key,
        "metric": row.metric,
        "unit": metric(row.metric).unit,
        "run": row.run,
        "status": row.status,
        "pair": row.pair,
        "side": row.side,
    }


def _sample_rows(rows: Iterable[ResultRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        common = {**_common(row), "case": canonical_json(row.case.parameters)}
        for repetition, value in enumerate(row.samples):
            yield {**common, "repetition": repetition, "value": value}


def _write_csv(rows: Iterable[ResultRow], stream: BinaryIO) -> None:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_sample_rows(rows))
    text.detach()


def _write_json(rows: Iterable[ResultRow], stream: BinaryIO) -> None:
    stream.write(b'{"format": %d, "results": [' % FORMAT)
    for position, row in enumerate(rows):
        document = {**_common(row), "case": dict(row.case.parameters), "samples": list(row.samples)}
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
        stream.write((",\n" if position else "\n").encode() + text.encode())
    stream.write(b"\n]}\n")


def _write_parquet(rows: Iterable[ResultRow], stream: BinaryIO) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MachineError("Parquet needs pyarrow", hint="pip install 'iowatch[parquet]'") from error
    kinds = {"pair": pa.int64(), "repetition": pa.int64(), "value": pa.float64()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in COLUMNS])
    samples = _sample_rows(rows)
    with pq.ParquetWriter(stream, schema) as writer:
        while batch := list(islice(samples, _BATCH)):
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))


FORMATS: dict[str, Writer] = {
    "csv": _write_csv,
    "parquet": _write_parquet,
    "json": _write_json,
    "openmetrics": write_openmetrics,
}
