"""Reading results with all their samples in bulk: what exports and comparisons are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from iowatch.model import Case
from iowatch.store import query
from iowatch.store.packing import unpack
from iowatch.store.records import SeriesFilter, SeriesRow
from iowatch.store.schema import ResultTable, RunKindTable, RunTable, SessionTable

_CHUNK = 500


@dataclass(frozen=True, slots=True)
class ResultFilter:
    """Which results: every field that is set must match; `since` <= time < `until` in epoch seconds."""

    series: SeriesFilter = field(default_factory=SeriesFilter)
    session: str | None = None
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class ResultRow:
    """All samples of one metric of one run.

    Attributes:
        time: start of the run, epoch seconds UTC.
        run: its name, unique in the session, partition and stack.
        status: `ok`, `failed`, `incomplete`.
        pair: number of the pair in a fair run (`iowatch run --ab`), 0 for its warm-up, or None.
        side: `left` or `right` in a fair run, where both may be the same stack, or None.
        samples: in the metric's unit, in the order measured.
        content: number, in this history, of what its stack consisted of; None in files.
        number: of the run in this history; None in files.
    """

    session: str
    time: int
    system: str
    partition: str
    stack: str
    case: Case
    metric: str
    run: str
    status: str
    pair: int | None
    side: str | None
    samples: tuple[float, ...]
    # Of one history only: no part of what was measured.
    content: int | None = field(default=None, compare=False)
    number: int | None = field(default=None, compare=False)


def results(connection: Connection, chosen: ResultFilter) -> Iterator[ResultRow]:
    """Matching results, series by series, each in time order."""
    series = {row.id: row for row in query.series(connection, chosen.series)}
    numbers = list(series)
    for start in range(0, len(numbers), _CHUNK):
        yield from _of_series(connection, chosen, series, numbers[start : start + _CHUNK])


def _of_series(
    connection: Connection, chosen: ResultFilter, series: Mapping[int, SeriesRow], numbers: list[int]
) -> Iterator[ResultRow]:
    table = ResultTable
    statement = (
        select(
            table.series_id,
            SessionTable.uuid,
            table.time,
            RunKindTable.name,
            RunTable.status,
            RunTable.facts["pair"].as_integer(),
            RunTable.facts["side"].as_string(),
            table.samples,
            RunTable.stack_id,
            table.run_id,
        )
        .join(RunTable, RunTable.id == table.run_id)
        .join(RunKindTable, RunKindTable.id == RunTable.kind_id)
        .join(SessionTable, SessionTable.id == RunTable.session_id)
        .where(table.series_id.in_(numbers))
        .order_by(table.series_id, table.time, table.run_id)
    )
    if chosen.session is not None:
        statement = statement.where(SessionTable.uuid == chosen.session)
    if chosen.since is not None:
        statement = statement.where(table.time >= chosen.since)
    if chosen.until is not None:
        statement = statement.where(table.time < chosen.until)
    for place, session, time, run, status, pair, side, blob, content, number in connection.execute(statement):
        row = series[place]
        yield ResultRow(
            session=session,
            time=time,
            system=row.system,
            partition=row.partition,
            stack=row.stack,
            case=row.case,
            metric=row.metric,
            run=run,
            status=status,
            pair=pair,
            side=side,
            samples=unpack(blob),
            content=content,
            number=number,
        )
