"""Bounds of the days that people state in events and decisions: a slip of the finger must not stand for centuries."""

from __future__ import annotations

import datetime as dt

from iowatch.core import utc_now

EARLIEST_DAY = dt.date(1970, 1, 1)
"""No machine of a history is older, and epoch seconds begin here."""
YEAR = dt.timedelta(days=366)
# The day of a system may be the next one in UTC.
_ZONES = dt.timedelta(days=1)
_LONGEST_DECISION_YEARS = 10


def check_event_day(name: str, day: dt.date | None) -> None:
    """Check the day of an event, which may be planned for the next year.

    Args:
        name: of the field.
        day: None without one.

    Raises:
        ValueError: before 1970, or more than a year ahead.
    """
    latest = utc_now().date() + YEAR
    if day is not None and not EARLIEST_DAY <= day <= latest:
        raise ValueError(f"'{name}' is {day}; expected a day from {EARLIEST_DAY} to {latest}, a year ahead")


def check_decision_day(day: dt.date) -> None:
    """Check the day on which a decision was made.

    Raises:
        ValueError: before 1970, or in the future.
    """
    if day < EARLIEST_DAY:
        raise ValueError(f"'date' is {day}; expected a day from {EARLIEST_DAY} on")
    if day > utc_now().date() + _ZONES:
        raise ValueError(f"'date' is {day}, in the future; expected the day on which it was decided")


def check_last_day(day: dt.date, until: dt.date, *, is_acknowledged: bool) -> None:
    """Check the last day on which a decision holds.

    Args:
        day: on which it was made.
        until: the last day.
        is_acknowledged: whether it says that the finding is being handled, and so must be asked again.

    Raises:
        ValueError: before the decision, or too long after it.
    """
    if until < day:
        raise ValueError(f"'until' ({until}) is before 'date' ({day})")
    if is_acknowledged and until > day + YEAR:
        raise ValueError(
            f"'until' ({until}) is more than a year after 'date' ({day}); expected at most {day + YEAR}: an "
            "acknowledgement that is still right then is renewed by another one"
        )
    if until > day + _LONGEST_DECISION_YEARS * YEAR:
        raise ValueError(
            f"'until' ({until}) is more than {_LONGEST_DECISION_YEARS} years after 'date' ({day}); leave it out for a "
            "decision without an end"
        )
