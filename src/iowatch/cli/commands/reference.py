"""`iowatch reference`: published figures, and accepted bandwidths with provenance."""

from __future__ import annotations

import click

from iowatch.cli.output import page, print_json
from iowatch.errors import UsageError


@click.group()
def command() -> None:
    """Published figures, and the accepted bandwidths of each system.

    \b
    Examples:
      iowatch reference show --published                    all sources and tables
      iowatch reference show --published 000 2 --json       seed 000, Table 2
    """


@command.command()
@click.argument("names", nargs=-1, metavar="[SOURCE [TABLE]]")
@click.option("--published", is_flag=True, help="Tables of papers: SOURCE TABLE as printed; none lists them.")
@click.option("--derived", is_flag=True, help="Statements of the papers, computed from their tables.")
@click.option("--long", "long_form", is_flag=True, help="One measurement a row, in our words.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def show(names: tuple[str, ...], published: bool, derived: bool, long_form: bool, as_json: bool) -> None:
    """Show published tables, or what follows from them.

    \b
    Examples:
      iowatch reference show --published
      iowatch reference show --published 001 A.5
      iowatch reference show --published 000 6 --long --json
      iowatch reference show --derived
    """
    from iowatch.reference import published as tables
    from iowatch.reference import show as shown

    if derived:
        facts = shown.derived_facts()
        print_json(facts) if as_json else shown.print_facts(facts, page())
        return
    if not published:
        hint = "iowatch reference show --published [SOURCE [TABLE]], or --derived"
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
