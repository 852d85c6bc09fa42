"""What the lists of `compare.html` offer: stacks, months and events of each system, and systems."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from iowatch.core import local_day
from iowatch.reference import Event
from iowatch.site import system_zone
from iowatch.store import StackUse

# Months of a system in a list, the newest; a year. Twice as many would be a list that nobody reads to its end.
_MAX_MONTHS = 12
_MAX_EVENTS = 10


@dataclass(frozen=True, slots=True)
class SideOption:
    """An entry of a list: the side as `iowatch compare` takes it, and how the list shows it."""

    text: str
    label: str


@dataclass(frozen=True, slots=True)
class SideGroup:
    """Entries of a list below a heading."""

    label: str
    options: tuple[SideOption, ...]


@dataclass(frozen=True)
class ListedSystem:
    """What the lists need of a system.

    Attributes:
        stacks: names, the most recently used first.
        starts: of its sessions, epoch seconds.
    """

    name: str
    stacks: tuple[str, ...]
    starts: tuple[int, ...]
    events: tuple[Event, ...] = ()


def last_uses(uses: Iterable[StackUse]) -> dict[str, int]:
    """Time of the last run of each stack (epoch seconds), by its name; a name may have had several contents."""
    last_use: dict[str, int] = {}
    for use in uses:
        last_use[use.name] = max(use.last, last_use.get(use.name, 0))
    return last_use


def stack_side(stack: str, system: str) -> str:
    """The side of a stack of one system, as `iowatch compare` takes it."""
    return f"stack:{stack},system={system}"


def side_groups(systems: Sequence[ListedSystem]) -> list[SideGroup]:
    """Groups of the lists: the systems, then stacks, months and events of each of them; empty groups are left out.

    Of a single system, a stack or a month without a second one is left out as well: nothing can be compared with it.
    """
    groups: list[SideGroup] = []
    least = 2 if len(systems) == 1 else 1
    if len(systems) > 1:
        names = [SideOption(f"system:{system.name}", system.name) for system in systems]
        groups.append(SideGroup("systems", tuple(names)))
    for system in systems:
        # A closed list shows its entry without the heading.
        suffix = f" on {system.name}" if len(systems) > 1 else ""
        stacks = [SideOption(stack_side(stack, system.name), f"{stack}{suffix}") for stack in system.stacks]
        months = list(_months(system, suffix))
        for name, options in (("stacks", stacks), ("months", months)):
            if len(options) >= least:
                groups.append(SideGroup(f"{name} of {system.name}", tuple(options)))
        groups.append(SideGroup(f"events of {system.name} (choose one on both sides)", tuple(_events(system))))
    return [group for group in groups if group.options]


def listed_sides(groups: Sequence[SideGroup]) -> set[str]:
    """The sides of all entries of the lists, as `iowatch compare` takes them."""
    sides: set[str] = set()
    for group in groups:
        sides.update(option.text for option in group.options)
    return sides


def preselected_sides(groups: Sequence[SideGroup]) -> dict[str, str]:
    """The sides that the lists show first, by the name of the list: the two newest of a group, the newest on the right.

    Empty texts where no group has two; a list then shows its first entry.
    """
    for group in groups:
        if len(group.options) > 1:
            return {"left": group.options[1].text, "right": group.options[0].text}
    return {"left": "", "right": ""}


def _months(system: ListedSystem, suffix: str) -> Iterator[SideOption]:
    """The newest months with sessions, in the zone of the system."""
    zone = system_zone(system.name)
    first_days = {local_day(start, zone).replace(day=1) for start in system.starts}
    for first_day in sorted(first_days, reverse=True)[:_MAX_MONTHS]:
        # The day before the first of the next month.
        next_month = (first_day + dt.timedelta(days=31)).replace(day=1)
        last_day = next_month - dt.timedelta(days=1)
        yield SideOption(f"since:{first_day}..{last_day},system={system.name}", f"{first_day:%Y-%m}{suffix}")


def _events(system: ListedSystem) -> Iterator[SideOption]:
    """The newest events: the same one on both sides is compared before and after."""
    newest_first = sorted(system.events, key=lambda event: event.start, reverse=True)
    dates = [event.date for event in newest_first]
    for event in newest_first[:_MAX_EVENTS]:
        name = f"{system.name}/{event.date}"
        # Several events of a day are distinguished by their title; a comma would begin a filter.
        if dates.count(event.date) > 1:
            if "," in event.title:
                continue
            name += f"/{event.title}"
        yield SideOption(f"event:{name}", f"{event.date}: {event.title}")
