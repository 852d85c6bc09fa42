"""The start of a nightly session: its jitter, and the blackouts in which nothing is measured.

Both are in the block `night` of `systems/<name>/system.yaml` (NightlyPolicy).
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import get_args

from iowatch.core import format_local_time
from iowatch.site import Blackout, NightlyPolicy, Weekday, system_zone

_LOG = logging.getLogger(__name__)
_DAY = timedelta(days=1)
_WEEKDAYS = get_args(Weekday)
_BLACKOUT_LOOKAHEAD_DAYS = 8  # includes each weekday


def jitter_s(policy: NightlyPolicy, system: str, day: date) -> float:
    """Seconds to wait before the session of `day`: within `jitter_minutes`, the same for each call."""
    digest = hashlib.sha256(f"{system}\0{day.isoformat()}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 * 60 * (policy.jitter_minutes or 0)


@dataclass(frozen=True)
class BlackoutWindow:
    """A blackout on one of its days, from `start` to `end` (UTC)."""

    blackout: Blackout
    start: datetime
    end: datetime


def blackout_windows(blackout: Blackout, first: date, days: int, zone: tzinfo) -> Iterator[BlackoutWindow]:
    """The windows of the blackout (times in `zone`) on each of its days from `first` on.

    A local time that a clock change skips or repeats has two moments; the blackout starts at the first and ends at
    the second, so that it is never shorter than meant.
    """
    for number in range(days):
        day = first + number * _DAY
        weekday = _WEEKDAYS[day.weekday()]  # not strftime: a site's configuration may have set a locale
        other_day = blackout.days and weekday not in blackout.days
        if other_day or not (blackout.since or day) <= day <= (blackout.until or day):
            continue
        # An end that is not after the start is on the next day; 00:00 to 00:00 is the whole day.
        last = day if blackout.end > blackout.start else day + _DAY
        start, end = datetime.combine(day, blackout.start), datetime.combine(last, blackout.end)
        yield BlackoutWindow(blackout, min(_moments(start, zone)), max(_moments(end, zone)))


def _moments(local: datetime, zone: tzinfo) -> list[datetime]:
    """Both interpretations (UTC) of a local time; they are equal unless clocks change then."""
    return [local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]


def current_blackout(policy: NightlyPolicy, moment: datetime, zone: tzinfo) -> BlackoutWindow | None:
    """The window of a blackout (times in `zone`) that contains `moment`; None outside all blackouts."""
    for blackout in policy.blackouts:
        for window in blackout_windows(blackout, moment.astimezone(zone).date() - _DAY, 3, zone):
            if window.start <= moment < window.end:
                return window
    return None


def next_blackout(policy: NightlyPolicy, moment: datetime, zone: tzinfo) -> BlackoutWindow | None:
    """The first window of a blackout (times in `zone`) of the next days that starts after `moment`."""
    today = moment.astimezone(zone).date()
    upcoming: list[BlackoutWindow] = []
    for blackout in policy.blackouts:
        for window in blackout_windows(blackout, today, _BLACKOUT_LOOKAHEAD_DAYS, zone):
            if window.start > moment:
                upcoming.append(window)
    return min(upcoming, key=lambda window: window.start, default=None)


def too_long_unmeasured(policy: NightlyPolicy, system: str, now: datetime, last_session: datetime | None) -> str | None:
    """Why the blackouts of a system are a problem: they exclude too many nights in succession; None if they do not.

    Args:
        now: the start (UTC) of a session that a blackout excludes.
        last_session: start of the last session that measured something; None without one.
    """
    zone = system_zone(system)
    missed = 0
    if last_session is not None:
        missed = max(0, (now - last_session).days)
    # The nights to come at the same time of the day, this one included.
    next_start = now
    while missed <= policy.unmeasured_nights and current_blackout(policy, next_start, zone) is not None:
        missed += 1
        next_start += _DAY
    if missed <= policy.unmeasured_nights:
        return None
    since = "no session has measured anything yet"
    if last_session is not None:
        since = f"the last one was on {format_local_time(last_session.timestamp(), zone)}"
    return (
        f"blackouts leave {system} without a session for more than {policy.unmeasured_nights} nights; {since}. "
        "Where that is meant, raise 'night: unmeasured_nights' in its system.yaml"
    )


def wait_for_start(
    policy: NightlyPolicy, system: str, now: datetime, sleep: Callable[[float], None] = time.sleep
) -> str | None:
    """Wait for the start time of a nightly session; if a blackout excludes it, return the reason without waiting."""
    zone = system_zone(system)
    seconds = jitter_s(policy, system, now.astimezone(zone).date())
    start = now + timedelta(seconds=seconds)
    window = current_blackout(policy, start, zone)
    if window is not None:
        end = format_local_time(window.end.timestamp(), zone)
        return f"no session on {system}: blackout '{window.blackout.reason}' until {end}"
    if seconds >= 1:
        _LOG.info("the session on %s starts at %s", system, format_local_time(start.timestamp(), zone))
        sleep(seconds)
    return None
