"""Events on a machine and their dates, kept in `reference/events/<system>.yaml`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, StringConstraints, model_validator

from iowatch.core import Scalar, UsageError, parse_json, settings, start_of_day, suggest_name
from iowatch.core.yamlfile import (
    ClosedModel,
    Entries,
    append_entry,
    read_system_file,
    read_valid_entries,
    require_system_name,
    update_entry,
)
from iowatch.reference.days import check_event_day
from iowatch.site import system_names, system_zone

NonEmptyText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
EventKind = Literal[
    "maintenance", "upgrade", "software", "configuration", "hardware", "network", "workload", "outage", "other"
]


class EventEvidence(ClosedModel):
    """A finding about an event as a cause: evidence for or against it."""

    verdict: Literal["supports", "contradicts"]
    text: NonEmptyText
    source: NonEmptyText | None = None


class EventPart(ClosedModel):
    """One of several changes made in one event."""

    kind: EventKind
    title: NonEmptyText
    scope: dict[str, Scalar] = Field(default_factory=dict)
    evidence: tuple[EventEvidence, ...] = ()


class Event(ClosedModel):
    """One event.

    Attributes:
        date, until: first and last day in the zone of the system, at most a year ahead; `until` is absent for one day.
        scope: affected case parameters or axes (`file_system: scratch1`); empty: the whole system.
        parts: changes made at the same time, each of which is a possible cause.
        by: author of the entry.
    """

    docs = "docs/findings.md#events"
    date: dt.date
    until: dt.date | None = None
    kind: EventKind
    title: NonEmptyText
    details: NonEmptyText | None = None
    scope: dict[str, Scalar] = Field(default_factory=dict)
    evidence: tuple[EventEvidence, ...] = ()
    parts: tuple[EventPart, ...] = ()
    source: NonEmptyText | None = None
    by: NonEmptyText | None = None
    _zone: dt.tzinfo = PrivateAttr(default=dt.UTC)  # of its system: `load_events`

    @model_validator(mode="after")
    def _in_order(self) -> Event:
        check_event_day("date", self.date)
        check_event_day("until", self.until)
        if self.until is not None and self.until < self.date:
            raise ValueError(f"'until' ({self.until}) is before 'date' ({self.date})")
        return self

    @property
    def start(self) -> int:
        """Start of the first day in epoch seconds."""
        return start_of_day(self.date, self._zone)

    @property
    def end(self) -> int:
        """End of the last day in epoch seconds."""
        return start_of_day((self.until or self.date) + dt.timedelta(days=1), self._zone)


class EventFile(ClosedModel):
    """The complete file."""

    docs = Event.docs
    system: NonEmptyText
    events: Entries[Event] = ()


def parse_scope(given: Sequence[str]) -> dict[str, Scalar]:
    """Parse `NAME=VALUE` texts; numbers, true and false are converted.

    Raises:
        UsageError: no `=`, or an empty name or value.
    """
    scope: dict[str, Scalar] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not (name and sign and value):
            raise UsageError(f"'{text}' is not a scope", hint="Expected NAME=VALUE, for example file_system=scratch1.")
        scope[name] = value
        with suppress(ValueError):
            parsed = parse_json(value)
            scope[name] = parsed if isinstance(parsed, (int, float, bool)) else value
    return scope


def event_file_path(system: str) -> Path:
    """Return the path of the site's event file of a system."""
    return settings.site_file("events", system)


def load_events(system: str) -> tuple[Event, ...]:
    """Return the events of a system by date, those of the product and of the site; empty if there is no file.

    Raises:
        InputError: a file is damaged; lists every fault with file, line and field.
    """
    events: list[Event] = []
    for path in settings.all_files("events", system):
        file = read_system_file(path, system, EventFile)
        if file:
            events += file.events
    return _in_zone_of(system, events)


@dataclass(frozen=True)
class RecordedEvents:
    """The valid events of a system by date, and what is wrong with the others, one line each."""

    events: tuple[Event, ...]
    faults: tuple[str, ...] = ()


def read_events(system: str) -> RecordedEvents:
    """Return the valid events of a system, as `load_events`; an entry that is not valid hides no other one.

    Raises:
        InputError: a file is not YAML, or has another structure.
    """
    valid_events: list[Event] = []
    faults: list[str] = []
    for path in settings.all_files("events", system):
        valid = read_valid_entries(path, system, EventFile, {"events": Event})
        faults += valid.faults
        if valid.file is not None:
            valid_events += valid.file.events
    return RecordedEvents(_in_zone_of(system, valid_events), tuple(faults))


def _in_zone_of(system: str, system_events: Iterable[Event]) -> tuple[Event, ...]:
    """Return events by date, with the zone of their system."""
    by_date = sorted(system_events, key=lambda event: event.date)
    zone = system_zone(system)
    for event in by_date:
        event._zone = zone
    return tuple(by_date)


def add_event(system: str, entry: dict[str, Any]) -> Event:
    """Append an event to the file of its system; existing content and comments are unchanged.

    Args:
        entry: fields of `Event`; None and empty values are omitted.

    Raises:
        InputError: not a valid event, or the file is damaged.
    """
    # Nothing is appended to a damaged file.
    load_events(system)
    fields = {field: value for field, value in entry.items() if value}
    return append_entry(event_file_path(system), system, "events", fields, Event, name=f"event of '{system}'")


def set_event_end(system: str, event: Event, until: dt.date) -> Event | None:
    """Set the last day of an event in the file of the site; None if the file no longer has it.

    Args:
        event: as it was recorded.

    Raises:
        InputError: the day is before the first one, or the file is damaged.
    """

    def is_meant(entry: Event) -> bool:
        return (entry.date, entry.kind, entry.title) == (event.date, event.kind, event.title)

    name = f"event of '{system}'"
    return update_entry(event_file_path(system), "events", is_meant, {"until": until}, Event, name=name)


def require_known_system(system: str, systems_in_history: Callable[[], Iterable[str]]) -> None:
    """Reject a misspelt system name, which would start a new file or appear as a machine without events.

    Args:
        systems_in_history: called only if neither systems/ nor reference/events contains the name.

    Raises:
        UsageError: the system is unknown.
    """
    require_system_name(system)
    systems = set(system_names())
    systems.update(name for (name,) in settings.list_files("events"))
    if system in systems:
        return
    systems.update(systems_in_history())
    if system not in systems:
        raise UsageError(f"no system '{system}'", hint=suggest_name(system, sorted(systems)))
