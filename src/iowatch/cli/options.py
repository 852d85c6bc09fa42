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
    return click.option(
        "--system", default=default, required=required, show_default=True, help="Name in systems/."
    )


class _Percent(click.ParamType[float]):
    """`5%` or `5`, more than 0 and less than 100; given on as a fraction."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(str(value).strip().removesuffix("%"))
        except ValueError:
            number = 0.0
        if not 0 < number < 100:
            self.fail(f"'{value}' is not between 0% and 100%; expected for example 5%", param, ctx)
        return number / 100


PERCENT = _Percent()
