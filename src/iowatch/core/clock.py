"""The time that iowatch takes for now.

    IOWATCH_NOW ──> `set_clock` of the first command ──> IOWATCH_CLOCK_OFFSET_S ──> `utc_now` of it and what it starts

Trials and tests hold sessions of many days in minutes: with `IOWATCH_NOW` a command begins at that time, and its clock
goes on from there. Sessions, results and decisions get that time. Times of files, limits, and questions to other
programs (Prometheus, the scheduler) stay those of the machine.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

from iowatch.core.errors import InputError, UsageError
from iowatch.core.units import parse_time

NOW_VARIABLE = "IOWATCH_NOW"
# Processes that a command starts go on from the same time.
_OFFSET_VARIABLE = "IOWATCH_CLOCK_OFFSET_S"


def clock_offset_s() -> float:
    """Return how many seconds iowatch's clock is ahead of the machine's: 0, unless `IOWATCH_NOW` was set."""
    text = os.environ.get(_OFFSET_VARIABLE)
    return float(text) if text else 0.0


def utc_now() -> datetime:
    """Return the current time in UTC, to the second."""
    return datetime.fromtimestamp(int(time.time() + clock_offset_s()), UTC)


def set_clock() -> datetime | None:
    """Set the clock of this process, and of those that it starts, by `IOWATCH_NOW`.

    Returns:
        The time in UTC; None if the variable is not set.

    Raises:
        UsageError: the variable is no time.
    """
    # Of the process itself: a command that another one started has only the offset.
    text = os.environ.pop(NOW_VARIABLE, None)
    if not text:
        return None
    try:
        moment = parse_time(text)
    except InputError as error:
        raise UsageError(f"{NOW_VARIABLE}: {error}") from None
    os.environ[_OFFSET_VARIABLE] = str(moment.timestamp() - time.time())
    return moment
