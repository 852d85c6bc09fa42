"""`iowatch review`: decisions about findings and lost runs, kept in reference/reviews/."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from functools import reduce
from typing import Any

import click

from iowatch.cli.common import DATE, history_options, print_json, print_lines, print_message, system_option
from iowatch.core import UsageError
from iowatch.findings import record_decision
from iowatch.reference import current_author, reviews
from iowatch.session import accepted_plan
from iowatch.store import History


@click.group(
    epilog="Example: iowatch review accept franklin-20090317-up --reason 'CLE 2.1UP01, intended'",
    short_help="Decide about findings and lost runs: accept, dismiss, acknowledge, note, assign, plan.",
)
def command() -> None:
    """Decide about findings and lost runs. Stored in reference/reviews/<system>.yaml; commit that file."""


def _decision_options(*, until_required: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The finding, and the options of each decision about it."""
    options = (
        click.argument("finding", metavar="ID"),
        click.option(
            "--until",
            type=DATE,
            required=until_required,
            metavar="YYYY-MM-DD",
            help="Last day of the decision, in the system's time zone.",
        ),
        click.option("--by", help="Author [default: git's user.name]."),
        history_options,
    )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        return reduce(lambda decorated, option: option(decorated), reversed(options), function)

    return decorate


def _record(db: str | None, finding: str, as_json: bool, until: datetime | None, by: str | None, **entry: Any) -> None:
    fields = {"by": by or current_author(), "until": until.date() if until else None, **entry}
    with History.existing(db) as history:
        found = record_decision(history, finding, fields)
    if as_json:
        print_json(found.to_json())
        return
    decision = entry["decision"]
    stays = f"'{decision}' recorded for {found.id}, which stays"
    is_now = f"{found.id} is now" if found.state == decision else stays
    print_lines(f"{is_now} {found.state}; written to {reviews.review_file_path(found.system)}")


# Subcommand, decision, options of the example, help.
_SUBCOMMANDS = (
    ("accept", "accepted", "--reason 'new striping, intended'",
     "Accept the new level: detection and references start from it."),
    ("dismiss", "dismissed", "--reason 'benchmark was misconfigured'", "Dismiss this finding, and no other."),
    ("acknowledge", "acknowledged", "--reason 'case 4711' --until 2026-12-01",
     "Mark as being handled: suppressed until the given day, then reported again."),
    ("note", "note", "--reason 'vendor asked on 3 May'", "Add a remark without changing the state."),
)  # fmt: skip


def _add_subcommand(name: str, decision: str, example: str, help_text: str) -> None:
    @command.command(name, help=help_text, epilog=f"Example: iowatch review {name} ID {example}")
    @click.option("--reason", required=True, help="Reason, understandable without context.")
    @_decision_options(until_required=decision == "acknowledged")
    def record_decision_of_kind(**given: Any) -> None:
        _record(decision=decision, **given)


for _row in _SUBCOMMANDS:
    _add_subcommand(*_row)


@command.command("assign", epilog="Example: iowatch review assign ID --to 'A. Administrator' --reason 'case 4711'")
@click.option("--to", metavar="NAME", help="The owner, who handles the finding.")
@click.option("--nobody", is_flag=True, help="End the assignment: the finding has no owner.")
@click.option("--reason", help="Reason, if one is needed.")
@_decision_options()
def assign(to: str | None, nobody: bool, **given: Any) -> None:
    """Give a finding an owner. The state does not change."""
    if (to is None) != nobody:
        raise UsageError("expected either --to NAME or --nobody", hint="`--nobody` ends an assignment.")
    _record(decision="unassigned" if nobody else "assigned", to=to, **given)


@command.command(
    "plan",
    short_help="List runs that are not planned any more; with --reason, accept this.",
    epilog="Examples:\n  iowatch review plan --system local\n"
    "  iowatch review plan --system local --suite smoke --reason 'HDF5 moved to stack gnu14'",
)
@system_option(required=True)
@click.option("--suite", help="Only this suite [default: all].")
@click.option("--stack", "stacks", multiple=True, metavar="STACK", help="Only this stack (may be repeated).")
@click.option("--reason", help="Accept the listed losses, for this reason.")
@click.option("--by", help="Author [default: git's user.name].")
@history_options
def plan(
    system: str,
    suite: str | None,
    stacks: tuple[str, ...],
    reason: str | None,
    by: str | None,
    db: str | None,
    as_json: bool,
) -> int:
    """List the runs of earlier sessions that cannot be planned any more; with --reason, accept this.

    They are expected, and absent, in every session until they run again or their loss is accepted. Exit code 1: there
    are losses, and --reason is not given.
    """
    with History.existing(db) as history:
        lost = accepted_plan.losses_by_suite(history, system, suite, stacks, print_message)
    if reason is not None:
        for name, runs in lost.items():
            accepted_plan.accept_losses(system, name, runs, reason, by or current_author())
    if as_json:
        listed = {name: [asdict(run) for run in runs] for name, runs in lost.items()}
        print_json({"system": system, "lost": listed, "accepted": reason is not None})
    else:
        lines = [f"{name}: {run.stack} {run.name}: {run.reason}" for name, runs in lost.items() for run in runs]
        print_lines(*(lines or [f"{system}: everything that earlier sessions expected is planned."]))
        if lines:
            path = reviews.review_file_path(system)
            print_lines(f"Accepted in {path}; commit it." if reason else "Accept these losses with --reason TEXT.")
    return 1 if lost and reason is None else 0
