"""What the history remembers of detection and findings, so that a night touches only what is new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from iowatch.store.ingest import system_id
from iowatch.store.schema import DetectionTable, FindingTable, SystemTable

_CHUNK = 500


@dataclass(frozen=True, slots=True)
class DetectionRow:
    """What detection said of one series.

    Attributes:
        points, last_time: how many points it saw, and the time of the last (epoch seconds).
        version: of the method and its settings; another version is not reused.
        document: its result as plain JSON.
    """

    series_id: int
    points: int
    last_time: int
    version: str
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A finding as last written; times in epoch seconds UTC."""

    id: str
    system: str
    first_seen_at: int
    updated_at: int
    state: str
    document: Mapping[str, Any]


def detections(connection: Connection, series_ids: Sequence[int]) -> dict[int, DetectionRow]:
    """Remembered detection of those of the series that have it."""
    table = DetectionTable
    columns = (table.series_id, table.points, table.last_time, table.version, table.document)
    found: dict[int, DetectionRow] = {}
    for start in range(0, len(series_ids), _CHUNK):
        chunk = list(series_ids[start : start + _CHUNK])
        for row in connection.execute(select(*columns).where(table.series_id.in_(chunk))):
            found[int(row[0])] = DetectionRow(*row)
    return found


def save_detections(connection: Connection, rows: Iterable[DetectionRow]) -> None:
    """Write or replace detection of series."""
    values = [{name: getattr(row, name) for name in DetectionRow.__slots__} for row in rows]
    for start in range(0, len(values), _CHUNK):
        chunk = values[start : start + _CHUNK]
        numbers = [value["series_id"] for value in chunk]
        connection.execute(delete(DetectionTable).where(DetectionTable.series_id.in_(numbers)))
        connection.execute(insert(DetectionTable), chunk)


def findings(connection: Connection, system: str | None) -> list[FindingRow]:
    """Findings of one system or of all, newest first."""
    table = FindingTable
    statement = (
        select(table.id, SystemTable.name, table.first_seen_at, table.updated_at, table.state, table.document)
        .join(SystemTable, SystemTable.id == table.system_id)
        .order_by(table.first_seen_at.desc(), table.id.desc())
    )
    if system is not None:
        statement = statement.where(SystemTable.name == system)
    return [FindingRow(*row) for row in connection.execute(statement)]


def save_findings(connection: Connection, rows: Sequence[FindingRow]) -> None:
    """Write or replace findings."""
    for row in rows:
        connection.execute(delete(FindingTable).where(FindingTable.id == row.id))
        connection.execute(
            insert(FindingTable).values(
                id=row.id,
                system_id=system_id(connection, row.system),
                first_seen_at=row.first_seen_at,
                updated_at=row.updated_at,
                state=row.state,
                document=dict(row.document),
            )
        )
