"""`iowatch review`: decisions about findings and lost runs, kept in reference/reviews/."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from iowatch.cli.common import (
    DATE,
    Decorator,
    SuggestingGroup,
    examples,
    history_options,
    print_json,
    print_lines,
    stacks_option,
    system_option,
)
from iowatch.cli.completion import complete_finding, complete_suite
from iowatch.core import UsageError
from iowatch.findings import record_decision
from iowatch.output.finding_document import printed_finding
from iowatch.output.review_actions import REVIEW_ACTIONS, ReviewAction
from iowatch.output.text.problems import describe_run
from iowatch.reference import current_author, events, reviews
from iowatch.session import accepted_plan, continuity, fact_comparison, ledger
from iowatch.store import History


@click.group(
    cls=SuggestingGroup, epilog=examples("iowatch review accept franklin-20090317-up --reason 'CLE 2.1UP01, intended'")
)
def command() -> None:
    """Decide about findings and lost runs. Stored in reference/reviews/<system>.yaml; commit that file."""


_OPTIONS: dict[str, Callable[[bool], Decorator]] = {
    "to": lambda _: click.option("--to", metavar="NAME", help="The owner, who handles the finding."),
    "reason": lambda required: click.option(
        "--reason", required=required, help="Reason, understandable without context."
    ),
    "until": lambda required: click.option(
        "--until",
        type=DATE,
        required=required,
        metavar="YYYY-MM-DD",
        help="Last day of the decision, in the system's time zone.",
    ),
}
_NOBODY = click.option("--nobody", is_flag=True, help="End the assignment: the finding has no owner.")


def _record(db: str | None, finding: str, as_json: bool, until: datetime | None, by: str | None, **entry: Any) -> None:
    fields = {"by": by or current_author(), "until": until.date() if until else None, **entry}
    with History.existing(db) as opened:
        reviewed = record_decision(opened, finding, fields)
    if as_json:
        print_json(printed_finding(reviewed))
        return
    decision = entry["decision"]
    if reviewed.state == decision:
        sentence = f"{reviewed.id} is now {reviewed.state}"
    else:
        sentence = f"'{decision}' recorded for {reviewed.id}, which stays {reviewed.state}"
    print_lines(f"{sentence}; written to {reviews.review_file_path(reviewed.system)}")


def _add_subcommand(action: ReviewAction) -> None:
    fields = [_OPTIONS[field](field in action.required) for field in (*action.required, *action.optional)]
    if action.decision == "assigned":
        fields.insert(1, _NOBODY)

    def record(nobody: bool = False, **entry: Any) -> None:
        if nobody != (entry.get("to") is None) and action.decision == "assigned":
            raise UsageError("expected either --to NAME or --nobody", hint="`--nobody` ends an assignment.")
        _record(decision="unassigned" if nobody else action.decision, **entry)

    by = click.option("--by", help="Author [default: git's user.name].")
    options: list[Decorator] = [
        click.argument("finding", shell_complete=complete_finding, metavar="ID"),
        *fields,
        by,
        history_options,
    ]
    function: Callable[..., Any] = record
    for option in reversed(options):
        function = option(function)
    example = f"iowatch review {action.name} ID {action.example}"
    line = action.help.partition(":")[0].removesuffix(".") + "."
    command.command(action.name, help=action.help, short_help=line, epilog=examples(example))(function)


for _action in REVIEW_ACTIONS:
    _add_subcommand(_action)


@command.command(
    "plan",
    short_help="List lost runs and changed facts of runs; with --reason, accept this.",
    epilog=examples(
        "iowatch review plan --system local",
        "iowatch review plan --system local --suite smoke --reason 'HDF5 moved to stack gnu14'",
    ),
)
@system_option(required=True)
@click.option("--suite", shell_complete=complete_suite, help="Only this suite [default: all].")
@stacks_option
@click.option("--reason", help="Accept what is listed, for this reason.")
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

    They are expected, and absent, in every session until they run again or their loss is accepted. Listed, too, are
    facts of runs that differ from the last accepted session: launcher, variables of MPI, program, nice value, file
    system. Exit code 1: something is listed, and --reason is not given.
    """
    with History.existing(db) as opened:
        lost = accepted_plan.losses_by_suite(opened, system, suite, stacks)
        differences = fact_comparison.current_differences(opened, system, suite, stacks)
    if reason is not None:
        author = by or current_author()
        for name, runs in lost.items():
            accepted_plan.accept_losses(system, name, runs, reason, author)
        fact_comparison.accept_differences(system, differences, reason, author)
    if as_json:
        listed = {name: [asdict(run) for run in runs] for name, runs in lost.items()}
        facts = [asdict(difference) for difference in differences]
        print_json({"system": system, "lost": listed, "facts": facts, "accepted": reason is not None})
    elif not lost and not differences:
        print_lines(f"{system}: everything that earlier sessions expected is planned.")
    else:
        partitions: set[str] = set()
        for runs in lost.values():
            partitions.update(run.partition for run in runs)
        with_partition = len(partitions) > 1
        for name, runs in lost.items():
            print_lines(*(f"{name}: {describe_run(run.key, with_partition)}: {run.reason}" for run in runs))
        print_lines(*fact_comparison.describe_differences(differences))
        if reason:
            print_lines(f"Accepted in {reviews.review_file_path(system)}; commit it.")
        else:
            print_lines("Accept this with --reason TEXT.")
    is_open = bool(lost or differences) and reason is None
    return 1 if is_open else 0


@command.command(
    "history",
    short_help="List sessions that the history lost; with --reason, accept this.",
    epilog=examples(
        "iowatch review history --system local",
        "iowatch review history --system local --reason 'restored from the backup of 3 May'",
    ),
)
@system_option(required=True)
@click.option("--reason", help="Accept the listed losses, for this reason.")
@click.option("--by", help="Author [default: git's user.name].")
@history_options
def history(system: str, reason: str | None, by: str | None, db: str | None, as_json: bool) -> int:
    """List the sessions that the history lacks or that were changed in it; with --reason, accept this.

    They are those that this checkout ran, and those that later sessions in the history name. Each session reports them
    until their loss is accepted. Exit code 1: there are some, and --reason is not given.
    """
    with History.existing(db) as opened:
        # A history that was lost has no system: this checkout may know its sessions.
        events.require_known_system(system, lambda: [*opened.systems(), *ledger.systems_in_ledger()])
        lost = continuity.find_lost_sessions(opened, system)
    if reason is not None and lost.uuids:
        continuity.accept_lost_sessions(lost, reason, by or current_author())
    if as_json:
        print_json({"system": system, "lost": list(lost.uuids), "accepted": reason is not None})
    elif not lost.uuids:
        print_lines(f"{system}: the history has all sessions that are known.")
    else:
        print_lines(*continuity.describe_lost_sessions(lost))
        if reason:
            print_lines(f"Accepted in {reviews.review_file_path(system)}; commit it.")
    return 1 if lost.uuids and reason is None else 0
