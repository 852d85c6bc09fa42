"""The schema of `reference/events/<system>.yaml`: what happened to a machine, and what is known about it."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from iowatch.model import Scalar
from iowatch.yamlfile import Closed, Entries

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Kind = Literal[
    "maintenance",
    "upgrade",
    "software",
    "configuration",
    "hardware",
    "network",
    "workload",
    "outage",
    "other",
]


class Evidence(Closed):
    """What people found out about an event as a cause: it speaks for it or against it."""

    verdict: Literal["supports", "contradicts"]
    text: Text
    source: Text | None = None


class Part(Closed):
    """One of several things that were done in one event."""

    kind: Kind
    title: Text
    scope: dict[str, Scalar] = Field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()


class Event(Closed):
    """One event.

    Attributes:
        date, until: first and last day, UTC; one day where `until` is absent.
        scope: case parameters or axes that it could act on (`file_system: scratch1`); empty: the whole system.
        parts: where several things were done at once, each of them is a possible cause of its own.
        by: who wrote it down.
    """

    date: dt.date
    until: dt.date | None = None
    kind: Kind
    title: Text
    details: Text | None = None
    scope: dict[str, Scalar] = Field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    parts: tuple[Part, ...] = ()
    source: Text | None = None
    by: Text | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Event:
        if self.until is not None and self.until < self.date:
            raise ValueError(f"'until' ({self.until}) is before 'date' ({self.date})")
        return self

    @property
    def start(self) -> int:
        """Epoch seconds of the first day's beginning."""
        return int(dt.datetime.combine(self.date, dt.time(), dt.UTC).timestamp())

    @property
    def end(self) -> int:
        """Epoch seconds of the last day's end."""
        following = (self.until or self.date) + dt.timedelta(days=1)
        return int(dt.datetime.combine(following, dt.time(), dt.UTC).timestamp())


class EventFile(Closed):
    """The whole file."""

    system: Text
    events: Entries[Event] = ()
