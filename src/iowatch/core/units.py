"""Units and times: the only module that converts units.

iowatch represents bandwidths in MiB/s (2^20 bytes per second), times in seconds, sizes in bytes, and moments in epoch
seconds or UTC; people write and read them in a time zone (docs/systems.md, "Times").
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from iowatch.core.errors import InputError, MachineError, UsageError

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
DAY_S = 86_400

_PREFIX_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_BANDWIDTH_UNIT = re.compile(r"(?:([kKMGTP])(i?))?(B|[Bb]ytes?|bit)/s(?:ec)?")
# Other units of metrics: factor and stored unit.
_FACTORS: dict[str, tuple[float, str]] = {
    **dict.fromkeys(("s", "sec", "seconds"), (1.0, "s")),
    **{"ms": (1e-3, "s"), "us": (1e-6, "s"), "ns": (1e-9, "s"), "min": (60.0, "s"), "h": (3600.0, "s")},
    **dict.fromkeys(("1/s", "/s", "ops/s", "op/s", "IOPS", "iops"), (1.0, "1/s")),
    **dict.fromkeys(("kIOPS", "kiops", "kops/s"), (1e3, "1/s")),
    **{"1": (1.0, "1"), "%": (0.01, "1")},
}
# Units of sizes that programs print; columns of tables are not searched for them (`to_metric_unit`).
_SIZE_FACTORS = {
    **dict.fromkeys(("bytes", "byte", "B"), 1.0),
    **{"kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": float(KIB), "MiB": float(MIB), "GiB": float(GIB)},
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(ib|b)?", re.IGNORECASE)


def to_mib_per_s(value: float, unit: str) -> float:
    """Convert a bandwidth to MiB/s.

    Args:
        value: the printed number.
        unit: `B/s`, or a prefix k, M, G, T with `iB/s` (powers of 1024) or `B/s` (powers of 1000); `bit/s`, too.

    Raises:
        InputError: unknown unit.
    """
    match = _BANDWIDTH_UNIT.fullmatch(unit)
    if match is None:
        raise InputError(f"unknown unit of bandwidth '{unit}'", hint="Expected for example MiB/s, GiB/s, MB/s.")
    prefix, binary, amount = match.groups()
    base = 1024 if binary else 1000
    return value * float(base ** _PREFIX_POWER[(prefix or "").lower()]) / (MIB * (8 if amount == "bit" else 1))


@dataclass(frozen=True)
class Quantity:
    """A value with its unit."""

    value: float
    unit: str


def to_metric_unit(value: float, unit: str) -> Quantity:
    """Convert a value to the unit in which metrics of its kind are stored: MiB/s, s, 1/s or 1.

    Raises:
        InputError: unknown unit.
    """
    if _BANDWIDTH_UNIT.fullmatch(unit):
        return Quantity(to_mib_per_s(value, unit), "MiB/s")
    if unit not in _FACTORS:
        raise InputError(f"unknown unit '{unit}'", hint=f"Expected MiB/s, MB/s, Gbit/s… or {', '.join(_FACTORS)}.")
    factor, stored = _FACTORS[unit]
    return Quantity(value * factor, stored)


def to_stored_unit(value: float, unit: str) -> Quantity:
    """Convert a value as `to_metric_unit` does, and sizes to bytes.

    Raises:
        InputError: unknown unit.
    """
    if unit in _SIZE_FACTORS:
        return Quantity(value * _SIZE_FACTORS[unit], "bytes")
    try:
        return to_metric_unit(value, unit)
    except InputError as error:
        raise InputError(error.message, hint=f"{error.hint} Sizes: {', '.join(_SIZE_FACTORS)}.") from None


def parse_size(text: str) -> int:
    """Return the bytes of a size such as `1000000`, `1m` or `1MiB` (2^20), `1mb` (10^6), `1.5g` (exact).

    Raises:
        InputError: not a size, or not a whole number of bytes.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"'{text}' is not a size", hint="Expected for example 4096, 1m (2^20), 1mb (10^6).")
    number, prefix, suffix = match.groups()
    base = 1000 if (suffix or "").lower() == "b" else 1024
    try:
        size = Decimal(number) * base ** _PREFIX_POWER[prefix.lower()]
    except InvalidOperation as error:  # more digits than the result can have
        raise InputError(f"'{text}' is not a size", hint="Expected a number of bytes.") from error
    if size != size.to_integral_value():
        raise InputError(f"'{text}' is {size} bytes: not a whole number of bytes", hint="Expected one.")
    return int(size)


def format_size(size_bytes: float) -> str:
    """Format a size in powers of 1024: `4 KiB`, `1.5 GiB`."""
    for unit, factor in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(size_bytes) >= factor:
            return f"{size_bytes / factor:.4g} {unit}"
    return f"{size_bytes:.4g} B"


def format_number(value: float | None) -> str:
    """Format four significant digits without an exponent; a dash if there is no data."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_count(number: int, noun: str) -> str:
    """Format a count with its noun in the singular: `1 session`, `7 sessions`, `1 series`."""
    if number == 1 or noun.endswith("s"):
        return f"{number} {noun}"
    return f"{number} {noun}s"


def parse_time(text: str, zone: tzinfo = UTC) -> datetime:
    """Return the UTC time of ISO 8601 text (`20180924`, too) or epoch seconds.

    Args:
        zone: of text without one; the first of two equal local times is meant.

    Raises:
        InputError: neither format, or not within the years 1 to 9999 in UTC.
    """
    try:
        seconds = _number(text)
        if seconds is not None:
            return datetime.fromtimestamp(seconds, UTC)
        moment = datetime.fromisoformat(text.strip())
        return (moment.replace(tzinfo=zone) if moment.tzinfo is None else moment).astimezone(UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise InputError(f"'{text}' is not a time", hint="Expected ISO 8601 or epoch seconds.") from error


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def format_time(moment: datetime) -> str:
    """Format a time as ISO 8601 in UTC to the second, ending in Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_local_time(seconds: float, zone: tzinfo) -> str:
    """Format epoch seconds for people, with the name of the zone at that time: `2026-10-25 02:30 CEST`."""
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%d %H:%M %Z")


def format_day(seconds: float, zone: tzinfo) -> str:
    """Format the day in a zone of a moment in epoch seconds, for people: `17 Mar 2009`."""
    return local_day(seconds, zone).strftime("%-d %b %Y")


def local_day(seconds: float, zone: tzinfo) -> date:
    """Return the day in a zone of a moment in epoch seconds."""
    return datetime.fromtimestamp(seconds, zone).date()


def start_of_day(day: date, zone: tzinfo) -> int:
    """Return the epoch seconds of the midnight with which a day begins in a zone.

    Where clocks skip midnight, it is the moment of the change.
    """
    return int(datetime.combine(day, time(), zone).timestamp())


def find_time_zone(name: str) -> tzinfo:
    """Return the time zone with this name; `UTC` needs no zone data of the machine.

    Raises:
        UsageError: unknown time zone.
        MachineError: the machine has no time zone data.
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        zones = sorted(available_timezones())
        if not zones:
            raise MachineError(
                f"no time zone data on this machine, cannot use '{name}'",
                hint="apt-get install tzdata, or python -m pip install tzdata; UTC needs neither.",
            ) from error
        guess = get_close_matches(name, zones, n=1)
        hint = f"Did you mean '{guess[0]}'?" if guess else "Expected for example Europe/London."
        raise UsageError(f"'{name}' is not a time zone of the IANA database", hint=hint) from error


@lru_cache(maxsize=64)
def utc_offsets(zone: tzinfo, first_day: int, last_day: int) -> tuple[tuple[int, int], ...]:
    """Return UTC offsets and their start: (epoch s, seconds); the first also applies to all earlier times.

    Args:
        first_day, last_day: range of days since 1970 that is searched for changes.
    """
    moments = [day * DAY_S for day in range(first_day, last_day + 2)]
    offsets = [(0, _offset(zone, moments[0]))]
    for begin, end in pairwise(moments):
        after = _offset(zone, end)
        if after != _offset(zone, begin):
            # The change is within this day: the first second with the later offset.
            seconds = range(begin, end)
            changed_after_s = bisect_left(seconds, True, key=lambda moment: _offset(zone, moment) == after)
            offsets.append((begin + changed_after_s, after))
    return tuple(offsets)


def _offset(zone: tzinfo, moment: int) -> int:
    return round((datetime.fromtimestamp(moment, zone).utcoffset() or timedelta()).total_seconds())
