"""`iowatch review`: decisions about findings, kept in reference/reviews/."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from iowatch.cli import options

_UNTIL = click.DateTime(formats=["%Y-%m-%d"])


@click.group(
    epilog="Example: iowatch review accept franklin-20090317-up --reason 'CLE 2.1UP01, intended'",
    short_help="Decide about findings: accept, dismiss, acknowledge, note.",
)
def command() -> None:
    """Decide about findings. Decisions live in reference/reviews/<system>.yaml: commit them."""


def _arguments(until: bool) -> Callable[[Callable[..., int]], Callable[..., int]]:
    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        added: list[Callable[[Any], Any]] = [
            options.as_json,
            options.database,
            click.option("--by", help="Who decides [default: git's user.name]."),
            click.option(
                "--until", type=_UNTIL, required=until, metavar="YYYY-MM-DD", help="Last day on which it holds."
            ),
            click.option("--reason", required=True, help="Why; whoever reads it next year was not there."),
            click.argument("finding", metavar="ID"),
        ]
        for decorator in added:
            function = decorator(function)
        return function

    return decorate


def _decide(
    decision: str,
    finding: str,
    reason: str,
    until: datetime | None,
    by: str | None,
    db: str | None,
    as_json: bool,
) -> int:
    from iowatch import review
    from iowatch.cli.output import page, print_json
    from iowatch.findings import find, update
    from iowatch.review.author import author
    from iowatch.store import History
    from iowatch.units import utc_now

    with History.existing(db) as history:
        found = find(history, finding)
        entry = {
            "finding": found.id,
            "decision": decision,
            "by": by or author(),
            "reason": reason,
            "date": utc_now().date(),
            "until": until.date() if until else None,
        }
        review.decide(found.system, entry)
        update(history, found.system, tell=False)
        found = find(history, found.id)
    if as_json:
        print_json(found.to_json())
    else:
        page().print(
            f"{found.id} is now {found.state}; written to {review.path_of(found.system)}",
            markup=False,
            soft_wrap=True,
        )
    return 0


@command.command("accept", epilog="Example: iowatch review accept ID --reason 'new striping, intended'")
@_arguments(until=False)
def accept(**given: Any) -> int:
    """The new level is the normal one: detection and references start from it."""
    return _decide("accepted", **given)


@command.command("dismiss", epilog="Example: iowatch review dismiss ID --reason 'benchmark was misconfigured'")
@_arguments(until=False)
def dismiss(**given: Any) -> int:
    """Not worth a look: silences exactly this finding."""
    return _decide("dismissed", **given)


@command.command(
    "acknowledge", epilog="Example: iowatch review acknowledge ID --reason 'case 4711' --until 2026-12-01"
)
@_arguments(until=True)
def acknowledge(**given: Any) -> int:
    """Somebody is at it: quiet until the given day, then it comes back."""
    return _decide("acknowledged", **given)


@command.command("note", epilog="Example: iowatch review note ID --reason 'vendor asked on 3 May'")
@_arguments(until=False)
def note(**given: Any) -> int:
    """A remark that changes nothing."""
    return _decide("note", **given)
