"""`iowatch parse`: one output of one tool -> results; nothing is stored."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from iowatch.cli import options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from iowatch.model import Output

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("tool")
@click.argument("file", type=_FILE)
@click.option("--stderr", type=_FILE, help="What the same run wrote to stderr.")
@click.option("--rc", type=int, help="Its exit code (negative: killed by that signal).")
@click.option("--ranks", type=click.IntRange(min=1), help="MPI processes that were asked for.")
@options.as_json
@click.pass_context
def command(
    ctx: click.Context,
    tool: str,
    file: Path,
    stderr: Path | None,
    rc: int | None,
    ranks: int | None,
    as_json: bool,
) -> None:
    """Read one output of TOOL (benchio, ior, mdtest, h5bench, darshan) and judge it.

    The output alone often hides a failure; give what else the run left (--stderr, --rc) and what was asked
    for (--ranks). Exit code 1: the run failed or its output is incomplete.

    \b
    Example:
      iowatch parse ior ior.out --stderr ior.err --rc 0 --ranks 64 --json
    """
    from iowatch.parsers import parse_file

    output = parse_file(tool, file, stderr=stderr, rc=rc, ranks=ranks)
    _print_json(output) if as_json else _print_page(output)
    ctx.exit(0 if output.status == "ok" else 1)


def _print_json(output: Output) -> None:
    from iowatch.cli.output import print_json

    print_json(output.to_json())


def _print_page(output: Output) -> None:
    """The verdict first, then what all results share, then one line a result."""
    from iowatch.cli.output import page

    console = page()
    console.print(f"{output.tool} {output.version or ''}".rstrip() + f": {output.status}", markup=False)
    if output.reason:
        console.print(output.reason, markup=False)
    if output.results:
        cases = [dict(result.case) for result in output.results]
        shared = {name: value for name, value in cases[0].items() if all(c.get(name) == value for c in cases)}
        console.print(f"case: {_words(shared)}", markup=False)
        console.print(_table(output, set(shared)))


def _words(case: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in case.items())


def _table(output: Output, shared: set[str]) -> Table:
    from iowatch.model import summarise
    from iowatch.tables import Plain
    from iowatch.units import format_number

    table = Plain("operation", "metric", "unit", "n", "max", "median", "min", "", box=None)
    for result in output.results:
        row = summarise(result.samples)
        numbers = (format_number(value) for value in (row.max, row.median, row.min))
        own = {name: value for name, value in result.case.items() if name not in shared}
        table.add_row(result.operation, result.metric, result.unit, str(row.n), *numbers, _words(own))
    return table
