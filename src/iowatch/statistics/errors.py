"""Errors of the statistics: what is wrong with the arguments, and what to do about it.

The statistics know no command line and no exit codes: who calls them reports these errors in its own way
(in iowatch: `iowatch.findings.reported_as`).
"""

from __future__ import annotations


class StatisticsError(ValueError):
    """Arguments that have no answer.

    Args:
        message: what is wrong, and what was expected.
        hint: what to do next.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
