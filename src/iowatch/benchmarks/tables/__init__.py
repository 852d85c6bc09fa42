"""Formats that no session writes; loaded when such a file is imported or parsed."""

from typing import TYPE_CHECKING

from iowatch.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from iowatch.benchmarks.tables.mapped import MappedRun, MappedTable, read_table
else:
    __getattr__ = lazy_names(__name__)
