"""The history: everything ever measured, every sample kept, in SQLite or PostgreSQL.

Use `History.open`; nothing outside this package writes SQL.
"""

from iowatch.store.findings import DetectionRow, FindingRow
from iowatch.store.history import History
from iowatch.store.records import (
    ExpectedResult,
    RunRecord,
    RunRow,
    SeriesFilter,
    SeriesPoints,
    SeriesRow,
    SessionRecord,
    SessionRow,
    StackRecord,
)

__all__ = [
    "DetectionRow",
    "ExpectedResult",
    "FindingRow",
    "History",
    "RunRecord",
    "RunRow",
    "SeriesFilter",
    "SeriesPoints",
    "SeriesRow",
    "SessionRecord",
    "SessionRow",
    "StackRecord",
]
