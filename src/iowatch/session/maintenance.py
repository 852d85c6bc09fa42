"""The maintenance of a system that has begun: its event, and the moment that ends the nights before it.

`begin` writes `var/maintenance/<system>.json`, so that `end` finds it on another day, and an event of kind maintenance
into the calendar of the site. The levels of before are those of the observations until that moment: no later night,
and no later decision of a person, changes them.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from iowatch.comparison import sides
from iowatch.core import (
    DAY_S,
    InputError,
    Scalar,
    UsageError,
    local_day,
    parse_json,
    settings,
    utc_now,
    write_atomically,
)
from iowatch.findings import BaselinePeriod, Expectation, ExpectedDirection
from iowatch.reference import Event, current_author, events
from iowatch.session.last_sessions import own_sessions
from iowatch.site import system_zone
from iowatch.store import History, SessionRow

_FORMAT = 1
_DEFAULT_TITLE = "maintenance"
_DIRECTIONS: tuple[ExpectedDirection, ...] = ("improvement", "loss")
# A night at least this long before the end of the last day of a maintenance may have been before it.
_AFTER_NOON_S = DAY_S // 2


@dataclass(frozen=True)
class MaintenanceRecord:
    """A maintenance of a system.

    Attributes:
        begun_s: epoch seconds; observations before are the baseline.
        ended_s: epoch seconds of the first `end`; None while it goes on.
    """

    system: str
    title: str
    begun_s: int
    ended_s: int | None = None
    format: int = _FORMAT

    @property
    def first_day(self) -> dt.date:
        """First day in the zone of the system, which is that of its event."""
        return local_day(self.begun_s, system_zone(self.system))


def _record_path(system: str) -> Path:
    return settings.var_directory() / "maintenance" / f"{system}.json"


def read_maintenance(system: str) -> MaintenanceRecord | None:
    """The last maintenance of a system that was begun here; None without one.

    Raises:
        InputError: the file is damaged, or of another release.
    """
    path = _record_path(system)
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
        record = MaintenanceRecord(**document)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        hint = "Remove it, and state the nights before with --baseline."
        raise InputError(f"{path} is no record of a maintenance: {error}", hint=hint) from error
    if record.format != _FORMAT:
        raise InputError(
            f"{path} has format {record.format}; expected {_FORMAT}", hint="Use the iowatch that wrote it."
        )
    return record


def _write_maintenance(record: MaintenanceRecord) -> None:
    write_atomically(_record_path(record.system), json.dumps(asdict(record), ensure_ascii=False) + "\n")


def begin_maintenance(system: str, note: str | None) -> MaintenanceRecord:
    """Record that a maintenance begins now.

    Raises:
        UsageError: one has begun and not ended.
        InputError: the event is not valid, or a file is damaged.
        MachineError: a file cannot be written.
    """
    before = read_maintenance(system)
    if before is not None and before.ended_s is None:
        raise UsageError(
            f"a maintenance of '{system}' began on {before.first_day} and has not ended: {before.title}",
            hint=f"`iowatch maintenance end --system {system}` ends it.",
        )
    record = MaintenanceRecord(system, note or _DEFAULT_TITLE, int(utc_now().timestamp()))
    entry = {"date": record.first_day, "kind": "maintenance", "title": record.title, "by": current_author()}
    events.add_event(system, entry)
    _write_maintenance(record)
    return record


def end_maintenance(record: MaintenanceRecord) -> MaintenanceRecord:
    """Record that a maintenance has ended; its event gets its last day. A second call changes nothing."""
    if record.ended_s is not None:
        return record
    ended = replace(record, ended_s=int(utc_now().timestamp()))
    today = local_day(utc_now().timestamp(), system_zone(record.system))
    if today > record.first_day:
        event = Event(date=record.first_day, kind="maintenance", title=record.title)
        events.set_event_end(record.system, event, today)
    _write_maintenance(ended)
    return ended


def require_maintenance(system: str) -> MaintenanceRecord:
    """The maintenance that has begun.

    Raises:
        UsageError: none has.
    """
    record = read_maintenance(system)
    if record is None:
        raise UsageError(
            f"no maintenance of '{system}' has begun",
            hint="`iowatch maintenance begin` records it; --baseline FROM..TO compares with any nights.",
        )
    return record


def nights_before(record: MaintenanceRecord) -> BaselinePeriod:
    """The nights until the maintenance began, all that are remembered."""
    return BaselinePeriod(None, record.begun_s)


def parse_baseline(text: str, system: str) -> BaselinePeriod:
    """Parse `DATE..DATE`, the nights before; an empty end is now.

    Raises:
        UsageError: not a period.
    """
    period = sides.parse_period(text, system_zone(system))
    end = int(utc_now().timestamp()) if period.end is None else period.end
    return BaselinePeriod(period.begin, end)


def parse_expectation(text: str) -> Expectation:
    """Parse `improvement:NAME=VALUE[,NAME=VALUE…]` or `loss:…`.

    Raises:
        UsageError: another direction, or a condition that is not NAME=VALUE.
    """
    hint = "Expected for example improvement:api=MPIIO,operation=write or loss:file_system=scratch1."
    name, separator, condition_text = text.partition(":")
    direction: ExpectedDirection | None = None
    for known_direction in _DIRECTIONS:
        if known_direction == name:
            direction = known_direction
    if direction is None or not separator or not condition_text:
        raise UsageError(f"'{text}' is no expected change", hint=hint)
    conditions: dict[str, Scalar | None] = {}
    for condition in condition_text.split(","):
        parameter, sign, value = condition.partition("=")
        if not (parameter and sign and value):
            raise UsageError(f"'{text}': '{condition}' is not NAME=VALUE", hint=hint)
        conditions[parameter] = sides.parse_filter_value(parameter, value)
    return Expectation(direction, conditions, text)


def maintenance_before(history: History, session: SessionRow) -> Event | None:
    """The maintenance in the calendar between a session and the one before it of its suite; None without one.

    An event has days and no hours, so a maintenance is over at noon of its last day: the night of the early morning of
    that day was before it.
    """
    started_before: int | None = None
    for earlier in own_sessions(history, session.system):
        if earlier.suite == session.suite and earlier.started_at < session.started_at:
            started_before = earlier.started_at
            break
    if started_before is None:
        return None
    newest: Event | None = None
    for event in _maintenance_events(session.system):
        over_s = event.end - _AFTER_NOON_S
        if started_before < over_s <= session.started_at:
            newest = event
    return newest


def _maintenance_events(system: str) -> Iterator[Event]:
    """Events of kind maintenance, or with such a part; a damaged calendar is reported elsewhere."""
    try:
        recorded = events.read_events(system)
    except InputError:
        return
    for event in recorded.events:
        if event.kind == "maintenance" or any(part.kind == "maintenance" for part in event.parts):
            yield event
