"""`iowatch config`: the settings in force, and the directories of the site and of the product."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.console import Console

from iowatch.cli.common import examples, json_option, print_report
from iowatch.core import make_table, settings


def _render(rows: list[settings.EffectiveSetting], console: Console) -> None:
    console.print(f"site:    {settings.site_root()}", markup=False, soft_wrap=True)
    console.print(f"product: {settings.product_root()}", markup=False, soft_wrap=True)
    table = make_table("setting", "value", "origin", "variable", "meaning")
    for row in rows:
        value = "–" if row.value in (None, "", ()) else str(row.value)
        table.add_row(row.name, value, row.origin, row.variable or "–", row.description)
    console.print(table)


@click.command(epilog=examples("iowatch config --json"))
@json_option
def command(as_json: bool) -> None:
    """Show all settings in force, with the origin of each.

    Precedence: option of a command, environment variable, site.yaml, default.
    """
    rows = settings.effective_settings()
    places = {"site": str(settings.site_root()), "product": str(settings.product_root())}
    document = {**places, "settings": [asdict(row) for row in rows]}
    print_report(as_json, document, lambda console: _render(rows, console))
