"""Errors of the statistics as errors that commands report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from iowatch.core import IowatchError
from iowatch.statistics import StatisticsError


@contextmanager
def reported_as(error_type: type[IowatchError]) -> Iterator[None]:
    """Raise an error of the statistics as `error_type`, with its message and hint."""
    try:
        yield
    except StatisticsError as error:
        raise error_type(error.message, hint=error.hint) from error
