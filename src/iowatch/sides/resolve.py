"""From the name of a side to its results in the history."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Literal

from iowatch import events
from iowatch.errors import UsageError, near_miss
from iowatch.events import Event
from iowatch.sides.spec import Spec, parse_period
from iowatch.store import History, SeriesFilter
from iowatch.store.results import ResultFilter, ResultRow

Opened = Callable[[], History]
Place = Literal["left", "right"]
_DAY_S = 86_400


def rows(spec: Spec, place: Place, history: Opened, days: int) -> list[ResultRow]:
    """Results in the history that a side names.

    Args:
        place: an event's left side is the time before it, its right side the time after.
        history: opens the history; only called where it is needed.
        days: how many days before and after an event count.

    Raises:
        UsageError: nothing of that name.
        InputError: the events' file is damaged.
    """
    found = list(history().results(_filter(spec, place, history, days)))
    if not found:
        raise UsageError(f"no results for '{spec.text}'", hint=_hint(spec, history()))
    return found


def _filter(spec: Spec, place: Place, history: Opened, days: int) -> ResultFilter:
    if spec.kind == "stack":
        return ResultFilter(SeriesFilter(stack=spec.name))
    if spec.kind == "system":
        return ResultFilter(SeriesFilter(system=spec.name))
    if spec.kind == "session":
        return ResultFilter(session=history().session(spec.name).uuid)
    if spec.kind == "since":
        begin, end = parse_period(spec.name)
        return ResultFilter(since=begin, until=end)
    return _around(spec, place, days)


def _around(spec: Spec, place: Place, days: int) -> ResultFilter:
    """Before an event on the left, after it on the right; neither reaches over the next event of the system."""
    system, event = _event(spec)
    others = [each for each in events.load(system) if each != event]
    series = SeriesFilter(system=system)
    if place == "left":
        begin = max([event.start - days * _DAY_S, *(o.end for o in others if o.end <= event.start)])
        return ResultFilter(series, since=begin, until=event.start)
    end = min([event.end + days * _DAY_S, *(o.start for o in others if o.start >= event.end)])
    return ResultFilter(series, since=event.end, until=end)


def _event(spec: Spec) -> tuple[str, Event]:
    """The event of `SYSTEM/DATE` or, where several are on that day, `SYSTEM/DATE/WORD` with a word of its
    title."""
    system, _, rest = spec.name.partition("/")
    day, _, word = rest.partition("/")
    known = events.load(system)
    try:
        date = dt.date.fromisoformat(day)
    except ValueError:
        raise UsageError(f"'{spec.text}' does not name an event", hint=_events_hint(system, known)) from None
    found = [each for each in known if each.date == date and word.lower() in each.title.lower()]
    if len(found) != 1:
        how = "no event" if not found else f"{len(found)} events"
        raise UsageError(f"{how} for '{spec.text}'", hint=_events_hint(system, known))
    return system, found[0]


def _events_hint(system: str, known: Sequence[Event]) -> str:
    listed = "; ".join(f"{each.date}: {each.title}" for each in known) or "none"
    return f"Expected event:SYSTEM/DATE or event:SYSTEM/DATE/WORD-OF-TITLE. Events of '{system}': {listed}."


def _hint(spec: Spec, history: History) -> str:
    if spec.kind == "system":
        return near_miss(spec.name, history.systems())
    if spec.kind == "stack":
        return near_miss(spec.name, sorted({row.stack for row in history.series()}))
    return "`iowatch history list` shows the sessions."
