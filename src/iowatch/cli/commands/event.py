"""`iowatch event`: what happened to a machine, kept in reference/events/."""

from __future__ import annotations

from datetime import datetime
from typing import get_args

import click

from iowatch.cli.common import (
    DATE,
    SuggestingGroup,
    examples,
    json_option,
    print_json,
    print_lines,
    print_message,
    system_option,
)
from iowatch.core import IowatchError
from iowatch.reference import EventKind, current_author, events, parse_scope
from iowatch.store import History


def _systems_in_history() -> list[str]:
    try:
        with History.existing() as history:
            return history.systems()
    except IowatchError:  # no history: only the checkout has systems
        return []


@click.group(cls=SuggestingGroup, epilog=examples("iowatch event list --system franklin"))
def command() -> None:
    """Events of a machine. Stored in reference/events/<system>.yaml; commit that file."""


@command.command(
    "add",
    short_help="Record an event.",
    epilog=examples("iowatch event add 'Lustre 2.15.5' --system local --kind upgrade --date 2026-05-12"),
)
@click.argument("title")
@system_option(required=True)
@click.option("--date", "day", type=DATE, required=True, metavar="YYYY-MM-DD", help="First day, in the system's zone.")
@click.option("--until", type=DATE, metavar="YYYY-MM-DD", help="Last day [default: the same].")
@click.option(
    "--kind", type=click.Choice(get_args(EventKind)), required=True, metavar="KIND",
    help=f"{', '.join(get_args(EventKind))}.",
)  # fmt: skip
@click.option("--details", help="What was done.")
@click.option("--source", help="Source: a ticket, mail or page.")
@click.option("--scope", multiple=True, metavar="NAME=VALUE", help="What it can affect: file_system=scratch1.")
@click.option("--by", help="Author [default: git's user.name].")
@json_option
def add(
    title: str,
    system: str,
    day: datetime,
    until: datetime | None,
    kind: str,
    details: str | None,
    source: str | None,
    scope: tuple[str, ...],
    by: str | None,
    as_json: bool,
) -> None:
    """Record an event; the next update uses it for findings near its date."""
    entry = {
        "date": day.date(),
        "until": until.date() if until else None,
        "kind": kind,
        "title": title,
        "details": details,
        "scope": parse_scope(scope),
        "source": source,
        "by": by or current_author(),
    }
    events.require_known_system(system, _systems_in_history)
    event = events.add_event(system, entry)
    if as_json:
        print_json(event.model_dump(mode="json"))
    else:
        print_lines(f"written to {events.event_file_path(system)}")


@command.command("list", epilog=examples("iowatch event list --system franklin --json"))
@system_option(required=True)
@json_option
def list_(system: str, as_json: bool) -> int:
    """Events of a system by date. Exit code 2 if an entry of the file is not valid; it is skipped, and reported."""
    events.require_known_system(system, _systems_in_history)
    recorded = events.read_events(system)
    system_events = recorded.events
    for fault in recorded.faults:
        print_message(fault)
    exit_code = 2 if recorded.faults else 0
    if as_json:
        print_json({"system": system, "events": [event.model_dump(mode="json") for event in system_events]})
        return exit_code
    for event in system_events:
        period = f"{event.date} to {event.until}" if event.until else f"{event.date}"
        print_lines(f"{period}  {event.kind}: {event.title}")
        print_lines(*(f"    {part.kind}: {part.title}" for part in event.parts))
    if not system_events:
        print_lines(f"no events recorded in {events.event_file_path(system)}")
    return exit_code
