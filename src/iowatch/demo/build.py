"""Builds a demonstration's history in a database of its own, and shows what iowatch says of it on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from iowatch.demo import franklin, regress
from iowatch.demo.generator import Story, nights
from iowatch.errors import InputError
from iowatch.findings import Finding, update
from iowatch.store import History
from iowatch.units import format_time

_MORNING = time(6)


@dataclass(frozen=True)
class Morning:
    """What iowatch said on one morning (UTC), with the nights until then."""

    moment: datetime
    nights: int
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "moment": format_time(self.moment),
            "nights": self.nights,
            "findings": [finding.to_json() for finding in self.findings],
        }


@dataclass(frozen=True)
class Demonstration:
    """A story and the days on whose mornings it is worth looking at."""

    story: Callable[[], Story]
    mornings: tuple[date, ...]


STORIES = {
    "franklin": Demonstration(franklin.story, (franklin.MAINTENANCE + timedelta(days=1),)),
    "regress": Demonstration(
        regress.story,
        (regress.STACK_REBUILT + timedelta(days=5), regress.STRIPING_RESET + timedelta(days=5)),
    ),
}


def fresh(path: Path) -> None:
    """Make room for a new demonstration at `path`; only an older demonstration is replaced.

    Raises:
        InputError: there is a history that holds measurements.
    """
    if path.exists():
        with History.open(str(path)) as history:
            measured = [s for s in history.sessions() if s.origin != "demo"]
        if measured:
            raise InputError(
                f"{path} holds {len(measured)} sessions that are no demonstration; it is left alone",
                hint="--db names another file.",
            )
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def replay(history: History, story: Story, seed: int, mornings: tuple[date, ...]) -> Iterator[Morning]:
    """Record the story night by night, and look at it on some mornings and at its end.

    Args:
        mornings: days on whose mornings to look; the end of the story follows by itself.
    """
    ends = [*mornings, story.last + timedelta(days=1)]
    recorded = 0
    pending = nights(story, seed)
    ready = next(pending, None)
    for end in ends:
        moment = datetime.combine(end, _MORNING, UTC)
        while ready is not None and ready.session.started_at < moment.timestamp():
            history.begin_session(ready.session, ready.expected)
            history.record_runs(ready.session.uuid, ready.runs)
            history.end_session(ready.session.uuid, "ok", ready.session.started_at + 3600)
            recorded += 1
            ready = next(pending, None)
        yield Morning(moment, recorded, tuple(update(history, story.system, moment)))
