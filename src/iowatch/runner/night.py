"""A system's night: when it begins, when it has to end, and which runs fit into it.

The policy is the block `night` of `systems/<name>/system.yaml` (iowatch.systems.model.Night).
Here it is applied.
All functions but `wait` are pure: the present and the past are arguments.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import get_args

from iowatch.errors import IowatchError
from iowatch.runner.plan import PlannedRun
from iowatch.systems.model import Blackout, Night, Weekday
from iowatch.units import format_size, format_time

Key = tuple[str, str, str]
_DAY = timedelta(days=1)
_WEEKDAYS = get_args(Weekday)
_AHEAD_DAYS = 8  # a blackout of one weekday comes within them


class NightOverError(IowatchError):
    """The night may not go on: its time or node hours are used up, or a blackout begins."""


def jitter_s(night: Night, system: str, day: date) -> float:
    """Seconds to wait before the night of `day`: within `jitter_minutes`, the same whenever it is asked."""
    digest = hashlib.sha256(f"{system}\0{day.isoformat()}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 * 60 * (night.jitter_minutes or 0)


def windows(blackout: Blackout, first: date, days: int) -> Iterator[tuple[datetime, datetime]]:
    """Begin and end (UTC) of the blackout on each of its days from `first` on."""
    for number in range(days):
        day = first + number * _DAY
        weekday = _WEEKDAYS[day.weekday()]  # not strftime: a site's configuration may have set a locale
        other_day = blackout.days and weekday not in blackout.days
        if other_day or not (blackout.since or day) <= day <= (blackout.until or day):
            continue
        start = datetime.combine(day, blackout.start, UTC)
        end = datetime.combine(day, blackout.end, UTC)
        # An end that is not after the start is on the next day; 00:00 to 00:00 is the whole day.
        yield start, end if end > start else end + _DAY


def closed(night: Night, moment: datetime) -> tuple[Blackout, datetime] | None:
    """The blackout that `moment` lies in, and its end; None outside of all."""
    for blackout in night.blackouts:
        for start, end in windows(blackout, moment.date() - _DAY, 2):
            if start <= moment < end:
                return blackout, end
    return None


def next_closed(night: Night, moment: datetime) -> tuple[Blackout, datetime] | None:
    """The blackout that begins next after `moment`, within some days, and when."""
    coming = [
        (start, number)
        for number, blackout in enumerate(night.blackouts)
        for start, _ in windows(blackout, moment.date(), _AHEAD_DAYS)
        if start > moment
    ]
    if not coming:
        return None
    start, number = min(coming)
    return night.blackouts[number], start


def wait(
    night: Night,
    system: str,
    now: datetime,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> str | None:
    """Wait for the night's minute; returns why it does not take place, at once, or None when it is time."""
    seconds = jitter_s(night, system, now.date())
    begin = now + timedelta(seconds=seconds)
    inside = closed(night, begin)
    if inside is not None:
        return f"no night on {system}: blackout '{inside[0].reason}' until {format_time(inside[1])}"
    if seconds >= 1:
        say(f"the night on {system} begins at {format_time(begin)}")
        sleep(seconds)
    return None


@dataclass(frozen=True)
class Budget:
    """What is left of a night; None is no limit. `ends` says what ends its time."""

    seconds: float | None = None
    node_hours: float | None = None
    bytes: int | None = None
    ends: str = "the night's time"


def budget(night: Night, begin: datetime) -> Budget:
    """What the night that begins at `begin` may use; a coming blackout ends it early."""
    seconds = None if night.minutes is None else 60.0 * night.minutes
    ends = f"the night's {night.minutes} minutes"
    coming = next_closed(night, begin)
    if coming is not None:
        left = (coming[1] - begin).total_seconds()
        if seconds is None or left < seconds:
            seconds, ends = left, f"the time before the blackout '{coming[0].reason}' at {coming[1]:%H:%M} UTC"
    return Budget(seconds, night.node_hours, night.bytes, ends)


@dataclass(frozen=True)
class Past:
    """Earlier executions of a run: start of the last; longest wall time of those that ended well, or None."""

    last: int
    wall_s: float | None


@dataclass(frozen=True)
class LeftOut:
    """A run that the night has no room for, and why."""

    run: PlannedRun
    reason: str


def key(run: PlannedRun) -> Key:
    """Identity of a planned run: partition, stack, name."""
    return run.partition, run.stack, run.name


def expected_s(run: PlannedRun, past: Mapping[Key, Past]) -> float:
    """Seconds that a run will take: the longest of late, or its time limit where nothing is known."""
    known = past.get(key(run))
    return known.wall_s if known and known.wall_s is not None else float(run.case.time_limit_s)


def fit(
    runs: Sequence[PlannedRun], past: Mapping[Key, Past], left: Budget
) -> tuple[tuple[PlannedRun, ...], tuple[LeftOut, ...]]:
    """The runs that fit into the budget, in their order, and the others.

    What was not measured for longest goes first, so that over some nights everything has its turn.
    """
    used = Budget(0.0, 0.0, 0)
    kept: set[Key] = set()
    out: list[LeftOut] = []
    for run in sorted(runs, key=lambda r: past[key(r)].last if key(r) in past else -math.inf):
        cost = _plus(used, run, expected_s(run, past))
        why = _beyond(cost, left)
        if why:
            out.append(LeftOut(run, f"no room in {why}"))
        else:
            used = cost
            kept.add(key(run))
    return tuple(run for run in runs if key(run) in kept), tuple(out)


def _plus(used: Budget, run: PlannedRun, seconds: float) -> Budget:
    return Budget(
        (used.seconds or 0) + seconds,
        (used.node_hours or 0) + run.case.nodes * seconds / 3600,
        (used.bytes or 0) + run.case.tool.volume_bytes(run.case.options),
    )


def _beyond(used: Budget, limit: Budget) -> str | None:
    """Which part of the budget is exceeded, in words."""
    if limit.bytes is not None and (used.bytes or 0) > limit.bytes:
        return f"the night's {format_size(limit.bytes)}"
    if limit.node_hours is not None and (used.node_hours or 0) > limit.node_hours:
        return f"the night's {limit.node_hours:g} node hours"
    if limit.seconds is not None and (used.seconds or 0) > limit.seconds:
        return limit.ends
    return None


@dataclass
class Meter:
    """What the night has used so far, and its end.

    Attributes:
        limit: of the whole night.
        clock: seconds that only grow.
    """

    limit: Budget
    clock: Callable[[], float] = time.monotonic
    node_hours: float = 0.0
    bytes: int = 0
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def count(self, run: PlannedRun, wall_s: float | None) -> None:
        """A run that ended; one that did not tell its time is counted with its limit."""
        seconds = run.case.time_limit_s if wall_s is None else wall_s
        self.node_hours += run.case.nodes * seconds / 3600
        self.bytes += run.case.tool.volume_bytes(run.case.options)

    def check(self) -> None:
        """See that the night may go on.

        Raises:
            NightOverError: time or node hours are used up. (Bytes are known before: `fit` keeps them.)
        """
        why = _beyond(Budget(self.clock() - self.started, self.node_hours, 0), self.limit)
        if why:
            raise NightOverError(f"ended early: no room left in {why}")

    def left(self) -> Budget:
        """What is left for more runs."""
        limit = self.limit
        used_s = self.clock() - self.started
        return Budget(
            None if limit.seconds is None else limit.seconds - used_s,
            None if limit.node_hours is None else limit.node_hours - self.node_hours,
            None if limit.bytes is None else limit.bytes - self.bytes,
            limit.ends,
        )
