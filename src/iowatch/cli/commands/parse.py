"""`iowatch parse`: one output of one tool -> results; nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from iowatch.cli.common import INPUT_FILE, examples, json_option, print_report
from iowatch.core import Output, PlainTable, format_number, summarise_samples
from iowatch.darshan import parse_tool_file, parsed_tools


@click.command(epilog=examples("iowatch parse ior ior.out --stderr ior.err --rc 0 --ranks 64 --json"))
@click.argument("tool", type=click.Choice(parsed_tools()), metavar="TOOL")
@click.argument("file", type=INPUT_FILE)
@click.option("--stderr", type=INPUT_FILE, help="File with the stderr of the same run.")
@click.option("--rc", type=int, help="Its exit code (negative: killed by that signal).")
@click.option("--ranks", type=click.IntRange(min=1), help="Requested number of MPI processes.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, tool: str, file: Path, stderr: Path | None, rc: int | None, ranks: int | None, as_json: bool
) -> None:
    """Parse one output of TOOL and validate it.

    TOOL is one of {tools}.

    The output alone often hides a failure; add what else the run wrote (--stderr, --rc) and what was requested
    (--ranks). Exit code 1: the run failed or its output is incomplete.
    """
    output = parse_tool_file(tool, file, stderr=stderr, rc=rc, ranks=ranks)
    print_report(as_json, output.to_json(), lambda console: _print_output(output, console))
    ctx.exit(0 if output.status == "ok" else 1)


command.help = str(command.help).format(tools=", ".join(parsed_tools()))


def _print_output(output: Output, console: Console) -> None:
    """The verdict first, then what all results share, then one line per result."""
    console.print(f"{output.tool} {output.version or ''}".rstrip() + f": {output.status}", markup=False)
    if output.reason:
        console.print(output.reason, markup=False)
    if output.results:
        first_case, *other_cases = [dict(result.case) for result in output.results]
        shared = {}
        for name, value in first_case.items():
            if all(case.get(name) == value for case in other_cases):
                shared[name] = value
        console.print(f"case: {_format_case(shared)}", markup=False)
        console.print(_result_table(output, set(shared)))


def _format_case(case: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in case.items())


def _result_table(output: Output, shared: set[str]) -> Table:
    table = PlainTable("operation", "metric", "unit", "n", "max", "median", "min", "", box=None)
    for result in output.results:
        summary = summarise_samples(result.samples)
        numbers = [format_number(value) for value in (summary.max, summary.median, summary.min)]
        differing = {name: value for name, value in result.case.items() if name not in shared}
        table.add_row(result.operation, result.metric, result.unit, str(summary.n), *numbers, _format_case(differing))
    return table
