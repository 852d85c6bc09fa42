"""`iowatch reference`: published figures, and accepted bandwidths with provenance."""

from __future__ import annotations

from dataclasses import asdict

import click

from iowatch.cli.common import (
    SuggestingGroup,
    examples,
    history_options,
    json_option,
    print_message,
    print_report,
    system_option,
)
from iowatch.core import UsageError
from iowatch.findings import MIN_OBSERVATIONS, proposals
from iowatch.reference import current_author, show
from iowatch.store import History, NoHistoryError


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        "iowatch reference show --published lawrence2017 2   # Table 2",
        "iowatch reference propose --system local            # old and new values",
        "iowatch reference check",
    ),
)
def command() -> None:
    """Published figures, and the accepted bandwidths of each system."""


@command.command(
    "show",
    epilog=examples(
        "iowatch reference show --published",
        "iowatch reference show --published bartz2014 A.5",
        "iowatch reference show --published lawrence2017 6 --long --json",
        "iowatch reference show --system archer",
    ),
)
@click.argument("names", nargs=-1, metavar="[SOURCE [TABLE]]")
@system_option()
@click.option("--published", is_flag=True, help="Tables of papers; SOURCE is a key or a number.")
@click.option("--long", "long_form", is_flag=True, help="One measurement per row, in iowatch's terms.")
@json_option
def show_references(
    names: tuple[str, ...], system: str | None, published: bool, long_form: bool, as_json: bool
) -> None:
    """Show the references of a system, or published tables."""
    if system is not None:
        accepted = show.references_with_peak(system)
        print_report(as_json, accepted, lambda console: show.print_references(accepted, console))
        return
    if not published:
        hint = "iowatch reference show --system SYSTEM or --published [SOURCE [TABLE]]"
        raise UsageError("expected --system or --published", hint=hint)
    if len(names) > 2:
        raise UsageError(f"expected SOURCE and TABLE, got {' '.join(names)}")
    if len(names) < 2:
        listing = show.list_published_tables(*names)
        print_report(as_json, listing, lambda console: show.print_table_list(listing, console))
        return
    source, table = names
    shown = show.show_published_table(source, table, long_form)
    print_report(
        as_json, shown.document, lambda console: show.print_published_table(shown.document, console, shown.notes)
    )


@command.command(
    help="Compute references from the accepted level of each series, from at least "
    f"{MIN_OBSERVATIONS} observations; show what would change.",
    short_help="Compute references from accepted levels.",
    epilog=examples('iowatch reference propose --system local --write --why "first two weeks"'),
)
@system_option(required=True)
@click.option("--write", is_flag=True, help="Write the file; without it nothing is changed.")
@click.option("--by", metavar="NAME", help="Name of the approver [default: git's user.name].")
@click.option("--why", metavar="TEXT", default="accepted level", show_default=True, help="Reason.")
@history_options
def propose(system: str, write: bool, by: str | None, why: str, db: str | None, as_json: bool) -> None:
    with History.existing(db) as history:
        change = proposals.propose_from_history(history, system, by or current_author(), why)
    if write:
        change.write()
    print_report(as_json, change.to_json(written=write), lambda console: show.print_proposals(change, console))
    if not as_json:
        done = f"wrote {change.path}" if write else "nothing written; repeat with --write to accept"
        print_message(done if change.diff else "nothing to change")


@command.command(
    short_help="Validate reference files and published tables.",
    epilog=examples("iowatch reference check --system local"),
)
@system_option()
@history_options
def check(system: str | None, db: str | None, as_json: bool) -> int:
    """Validate reference files and published tables; find entries without case and cases without entry."""
    try:
        with History.existing(db) as history:
            remarks = proposals.check_reference_files(history, system)
    except NoHistoryError as error:
        if db is not None:  # a path that the user gave
            raise
        print_message(f"{error.message}: only the files are checked")
        remarks = proposals.check_reference_files(None, system)
    errors = [remark for remark in remarks if remark.severity == "error"]
    document = {"ok": not errors, "remarks": [asdict(remark) for remark in remarks]}
    print_report(as_json, document, lambda console: show.print_remarks(remarks, console))
    return 1 if errors else 0
