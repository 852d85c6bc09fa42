"""The history: everything ever measured, every sample kept, in SQLite or PostgreSQL.

Use `History.open`; nothing outside this package writes SQL.
"""

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
    "ExpectedResult",
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
