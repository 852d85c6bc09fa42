"""`iowatch event`: what happened to a machine, kept in reference/events/."""

from __future__ import annotations

from datetime import datetime

import click

from iowatch.cli import options

_KINDS = (
    "maintenance",
    "upgrade",
    "software",
    "configuration",
    "hardware",
    "network",
    "workload",
    "outage",
    "other",
)
_DAY = click.DateTime(formats=["%Y-%m-%d"])


def _check_known(system: str) -> None:
    """A misspelt name must not begin a file, or be a machine on which nothing happened."""
    from iowatch import events
    from iowatch.errors import IowatchError, UsageError, near_miss
    from iowatch.store import History
    from iowatch.systems import names

    path = events.path_of(system)
    known = {*names(), *(file.stem for file in path.parent.glob("*.yaml"))}
    if system in known:
        return
    try:
        with History.existing() as history:
            known |= set(history.systems())
    except IowatchError:
        pass  # no history: what the checkout knows must do
    if system not in known:
        raise UsageError(f"no system '{system}'", hint=near_miss(system, sorted(known)))


@click.group(
    epilog="Example: iowatch event list --system franklin", short_help="What happened to the machine, and when."
)
def command() -> None:
    """Events of a machine. They live in reference/events/<system>.yaml: commit them."""


@command.command(
    "add", epilog="Example: iowatch event add 'Lustre 2.15.5' --system local --kind upgrade --date 2026-05-12"
)
@click.argument("title")
@options.system(required=True)
@click.option("--date", "day", type=_DAY, required=True, metavar="YYYY-MM-DD", help="First day, UTC.")
@click.option("--until", type=_DAY, metavar="YYYY-MM-DD", help="Last day, UTC [default: the same].")
@click.option("--kind", type=click.Choice(_KINDS), required=True)
@click.option("--details", help="What was done.")
@click.option("--source", help="Where it is written down: a ticket, a mail, a page.")
@click.option("--scope", multiple=True, metavar="NAME=VALUE", help="What it can act on: file_system=scratch1.")
@click.option("--by", help="Who writes it down [default: git's user.name].")
@options.as_json
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
) -> int:
    """Record an event; findings near its date take it up at the next update."""
    from iowatch import events
    from iowatch.cli.output import page, print_json
    from iowatch.events.scope import parse_scope
    from iowatch.review.author import author

    entry = {
        "date": day.date(),
        "until": until.date() if until else None,
        "kind": kind,
        "title": title,
        "details": details,
        "scope": parse_scope(scope),
        "source": source,
        "by": by or author(),
    }
    _check_known(system)
    event = events.add(system, entry)
    if as_json:
        print_json(event.model_dump(mode="json"))
    else:
        page().print(f"written to {events.path_of(system)}", markup=False, soft_wrap=True)
    return 0


@command.command("list", epilog="Example: iowatch event list --system franklin --json")
@options.system(required=True)
@options.as_json
def list_(system: str, as_json: bool) -> int:
    """Events of a system by date."""
    from iowatch import events
    from iowatch.cli.output import page, print_json

    _check_known(system)
    found = events.load(system)
    if as_json:
        print_json({"system": system, "events": [event.model_dump(mode="json") for event in found]})
        return 0
    for event in found:
        span = f"{event.date} to {event.until}" if event.until else f"{event.date}"
        page().print(f"{span}  {event.kind}: {event.title}", markup=False, soft_wrap=True)
        for part in event.parts:
            page().print(f"    {part.kind}: {part.title}", markup=False, soft_wrap=True)
    if not found:
        page().print(f"no events recorded in {events.path_of(system)}", markup=False, soft_wrap=True)
    return 0
