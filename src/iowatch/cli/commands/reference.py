"""`iowatch reference`: published figures, and accepted bandwidths with provenance."""

from __future__ import annotations

import click

from iowatch.cli import options
from iowatch.cli.output import messages, page, print_json
from iowatch.errors import UsageError


@click.group()
def command() -> None:
    """Published figures, and the accepted bandwidths of each system.

    \b
    Examples:
      iowatch reference show --published                    all sources and tables
      iowatch reference show --published 000 2 --json       source 000, Table 2
      iowatch reference propose --system local              old against new, as table and diff
      iowatch reference propose --system local --write --why "after the upgrade of 3 May"
      iowatch reference check
    """


@command.command()
@click.argument("names", nargs=-1, metavar="[SOURCE [TABLE]]")
@options.system()
@click.option("--published", is_flag=True, help="Tables of papers: SOURCE TABLE as printed; none lists them.")
@click.option("--derived", is_flag=True, help="Statements of the papers, computed from their tables.")
@click.option("--long", "long_form", is_flag=True, help="One measurement a row, in our words.")
@options.as_json
def show(
    names: tuple[str, ...],
    system: str | None,
    published: bool,
    derived: bool,
    long_form: bool,
    as_json: bool,
) -> None:
    """Show a system's references, published tables, or what follows from these.

    \b
    Examples:
      iowatch reference show --published
      iowatch reference show --published 001 A.5
      iowatch reference show --published 000 6 --long --json
      iowatch reference show --derived
      iowatch reference show --system archer
    """
    from iowatch.reference import published as tables
    from iowatch.reference import show as shown

    if system is not None:
        from iowatch import proposals

        accepted = proposals.accepted(system)
        print_json(accepted) if as_json else shown.print_accepted(accepted, page())
        return
    if derived:
        facts = shown.derived_facts()
        print_json(facts) if as_json else shown.print_facts(facts, page())
        return
    if not published:
        hint = "iowatch reference show --system SYSTEM, --published [SOURCE [TABLE]] or --derived"
        raise UsageError("say what to show", hint=hint)
    if len(names) > 2:
        raise UsageError(f"expected SOURCE and TABLE, got {' '.join(names)}")
    if len(names) < 2:
        listing = shown.listing(names[0] if names else None)
        print_json(listing) if as_json else shown.print_listing(listing, page())
        return
    document = shown.document(names[0], names[1], long_form)
    notes = tables.load(names[0], names[1]).sidecar.notes
    print_json(document) if as_json else shown.print_table(document, page(), notes)


@command.command(epilog='Example: iowatch reference propose --system local --write --why "first fortnight"')
@options.system(required=True)
@click.option("--published", is_flag=True, help="From the published tables instead of the history.")
@click.option("--write", is_flag=True, help="Write the file; without it nothing is changed.")
@click.option("--by", metavar="NAME", help="Who accepts them [default: git's user.name].")
@click.option("--why", metavar="TEXT", default="accepted level", show_default=True, help="For what reason.")
@options.database
@options.as_json
def propose(
    system: str, published: bool, write: bool, by: str | None, why: str, db: str | None, as_json: bool
) -> None:
    """Compute references from the accepted level of each series, at least 7 nights; show what would change."""
    from iowatch import proposals
    from iowatch.reference import show as shown
    from iowatch.review.author import author

    if published:
        change = proposals.from_tables(system)
    else:
        from iowatch.store import History

        with History.existing(db) as history:
            change = proposals.from_history(history, system, by or author(), why)
    if write:
        change.write()
    print_json(change.to_json(written=write)) if as_json else shown.print_change(change, page())
    if not as_json:
        done = f"wrote {change.path}" if write else "nothing written; repeat with --write to accept"
        messages().print(done if change.diff else "nothing to change", markup=False, soft_wrap=True)


@command.command(epilog="Example: iowatch reference check --system local")
@options.system()
@click.option(
    "--renew", is_flag=True, help="Note the published tables as they are now: compared with the papers."
)
@options.database
@options.as_json
def check(system: str | None, renew: bool, db: str | None, as_json: bool) -> int:
    """Validate reference files and published tables; find entries without case and cases without entry."""
    from iowatch import proposals
    from iowatch.reference import digests
    from iowatch.reference import show as shown
    from iowatch.store import History
    from iowatch.store.engine import NoHistoryError

    if renew:
        messages().print(f"wrote {digests.renew()}", markup=False, soft_wrap=True)
    try:
        with History.existing(db) as history:
            remarks = proposals.check_files(history, system)
    except NoHistoryError as error:
        if db is not None:  # a place that somebody named
            raise
        messages().print(f"{error.message}: the files are checked alone", markup=False, soft_wrap=True)
        remarks = proposals.check_files(None, system)
    errors = [remark for remark in remarks if remark.severity == "error"]
    if as_json:
        print_json({"ok": not errors, "remarks": [remark.to_json() for remark in remarks]})
    else:
        shown.print_remarks(remarks, page())
    return 1 if errors else 0
