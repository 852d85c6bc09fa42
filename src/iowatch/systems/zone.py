"""Time zones by their IANA name (`Europe/London`): only pages show times in one, all that is kept is in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from iowatch.errors import MachineError, UsageError


def time_zone(name: str) -> tzinfo:
    """The zone of a name; `UTC` needs no data of the machine.

    Raises:
        UsageError: no such zone.
        MachineError: the machine has no data of zones.
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        if not (known := available_timezones()):
            raise MachineError(
                f"this machine knows no time zones, so not '{name}' either",
                hint="apt-get install tzdata, or python -m pip install tzdata; UTC needs neither.",
            ) from error
        guess = get_close_matches(name, sorted(known), n=1)
        hint = f"Did you mean '{guess[0]}'?" if guess else "Expected for example Europe/London."
        raise UsageError(f"'{name}' is not a time zone of the IANA database", hint=hint) from error


@lru_cache(maxsize=64)
def offsets(zone: tzinfo, first_day: int, last_day: int) -> tuple[tuple[int, int], ...]:
    """What is added to UTC from when on: (epoch s, seconds), the first for all that was before.

    Args:
        first_day, last_day: between which changes are looked for, days since 1970.
    """
    moments = [day * 86400 for day in range(first_day, last_day + 2)]
    found = [(0, _offset(zone, moments[0]))]
    for begin, end in pairwise(moments):
        if _offset(zone, end) != _offset(zone, begin):
            found.append((_change(zone, begin, end), _offset(zone, end)))
    return tuple(found)


def _change(zone: tzinfo, begin: int, end: int) -> int:
    """The first second with the offset of `end`; it is another at `begin`."""
    after = _offset(zone, end)
    while end - begin > 1:
        middle = (begin + end) // 2
        begin, end = (begin, middle) if _offset(zone, middle) == after else (middle, end)
    return end


def _offset(zone: tzinfo, moment: int) -> int:
    return round((datetime.fromtimestamp(moment, zone).utcoffset() or timedelta()).total_seconds())
