"""Options that several commands share, defined once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

database = click.option(
    "--db", metavar="PATH|URL", help="The history [default: IOWATCH_DB, or var/iowatch.db of the checkout]."
)

as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout and nothing else.")


def system(default: str | None = None, required: bool = False) -> Decorator:
    """`--system S`; where it has no default, None means every system."""
    return click.option("--system", default=default, required=required, show_default=True, help="Name in systems/.")
