"""Formats that no session writes; loaded when such a file is imported or parsed."""

from __future__ import annotations

from iowatch.benchmarks.tables.mapped import MappedRun, MappedTable, read_table

__all__ = ["MappedRun", "MappedTable", "read_table"]
