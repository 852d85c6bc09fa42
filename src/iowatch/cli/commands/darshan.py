"""`iowatch darshan`: the summary of a Darshan log, or the differences between two."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from iowatch.cli.common import ANY_PATH, OUTPUT_FILE, examples, json_option, print_json, print_lines, print_report
from iowatch.core import InputError
from iowatch.darshan import (
    DarshanReader,
    Trace,
    anonymise_trace,
    derive_hints,
    diff_traces,
    read_trace,
    render_trace,
    write_pydarshan_report,
    write_timeline,
)


@click.command(
    epilog=examples(
        "iowatch darshan run.darshan --timeline run.png", "iowatch darshan before.darshan after.darshan --json"
    )
)
@click.argument("logs", metavar="LOG [LOG_B]", nargs=-1, required=True, type=ANY_PATH)
@json_option
@click.option("--html", type=OUTPUT_FILE, help="Write PyDarshan's full report to this file.")
@click.option("--timeline", type=OUTPUT_FILE, help="Draw reads and writes per rank over time (FILE.png or FILE.svg).")
@click.option("--privacy", type=click.Choice(["keep", "hash", "drop"]), default="keep", show_default=True,
              help="How to treat user names and paths.")  # fmt: skip
@click.pass_context
def command(
    ctx: click.Context, logs: tuple[Path, ...], as_json: bool, html: Path | None, timeline: Path | None, privacy: str
) -> None:
    """Summarise a Darshan log, or show the differences between LOG and LOG_B.

    Exit code 1: a log is partial (some of it is missing or damaged, the rest is shown); 2: it is unreadable.
    """
    if len(logs) > 2:
        raise click.UsageError("one log to summarise, or two to compare")
    with DarshanReader() as reader:
        try:
            traces = [anonymise_trace(read_trace(log, reader), privacy) for log in logs]
        except InputError as error:
            if as_json:
                print_json(Trace("unreadable", error.message).to_json())
            raise
        if html is not None:
            write_pydarshan_report(logs, html, reader, privacy)
        if timeline is not None:
            write_timeline(logs, timeline, reader, privacy)
    if len(logs) == 1:
        hints = [hint.to_json() for hint in derive_hints(traces[0])]
        print_report(as_json, {**traces[0].to_json(), "hints": hints}, lambda console: _print_trace(traces[0], console))
    else:
        difference = diff_traces(*traces)
        if as_json:
            print_json(difference.to_json())
        else:
            print_lines(*difference.format_lines())
    ctx.exit(0 if all(trace.status == "ok" for trace in traces) else 1)


def _print_trace(trace: Trace, console: Console) -> None:
    for table_or_line in render_trace(trace):
        console.print(table_or_line)
