"""`iowatch parse`: one output of one tool -> results; nothing is stored."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from iowatch.model import Output

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("tool")
@click.argument("file", type=_FILE)
@click.option("--stderr", type=_FILE, help="What the same run wrote to stderr.")
@click.option("--rc", type=int, help="Its exit code (negative: killed by that signal).")
@click.option("--ranks", type=click.IntRange(min=1), help="MPI processes that were asked for.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
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
    """The verdict first, then one line a result."""
    from rich.markup import escape
    from rich.table import Table

    from iowatch.cli.output import page
    from iowatch.model import summarise
    from iowatch.units import format_number

    console = page()
    console.print(f"{output.tool} {output.version or ''}".rstrip() + f": {output.status}", markup=False)
    if output.reason:
        console.print(output.reason, markup=False)
    table = Table("operation", "metric", "unit", "n", "max", "median", "min", "case", box=None)
    for result in output.results:
        row = summarise(result.samples)
        numbers = (format_number(value) for value in (row.max, row.median, row.min))
        case = " ".join(f"{key}={value}" for key, value in result.case.items())
        table.add_row(result.operation, result.metric, result.unit, str(row.n), *numbers, escape(case))
    if output.results:
        console.print(table)
