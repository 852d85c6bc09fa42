"""`iowatch darshan`: what a Darshan log says about a run, and what changed between two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from iowatch.cli import options
from iowatch.errors import InputError

if TYPE_CHECKING:
    from iowatch.darshan import Reader, Trace

_LOG = click.Path(path_type=Path)
_OUT = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("logs", metavar="LOG [LOG_B]", nargs=-1, required=True, type=_LOG)
@options.as_json
@click.option("--html", type=_OUT, help="Write PyDarshan's full report to this file.")
@click.option("--timeline", type=_OUT, help="Draw what each rank did when (FILE.png or FILE.svg).")
@click.option("--privacy", type=click.Choice(["keep", "hash", "drop"]), default="keep", show_default=True,
              help="What becomes of user names and paths.")  # fmt: skip
@click.pass_context
def command(
    ctx: click.Context,
    logs: tuple[Path, ...],
    as_json: bool,
    html: Path | None,
    timeline: Path | None,
    privacy: str,
) -> None:
    """Summarise a Darshan log, or say what changed from LOG to LOG_B.

    Exit code 1: a log is partial (some of it is missing or damaged, the rest is shown); 2: it is unreadable.

    \b
    Example:
      iowatch darshan run.darshan --timeline run.png
      iowatch darshan before.darshan after.darshan --json
    """
    from iowatch.darshan import Reader

    if len(logs) > 2:
        raise click.UsageError("one log to summarise, or two to compare")
    with Reader() as reader:
        traces = _read(reader, logs, privacy, as_json)
        _write_pictures(reader, logs, html, timeline, privacy)
    _show_summary(traces[0], as_json) if len(logs) == 1 else _show_diff(traces, as_json)
    ctx.exit(0 if all(trace.status == "ok" for trace in traces) else 1)


def _read(reader: Reader, logs: tuple[Path, ...], privacy: str, as_json: bool) -> list[Trace]:
    from iowatch.cli.output import print_json
    from iowatch.darshan import Trace, read_trace
    from iowatch.darshan.privacy import hide

    try:
        return [hide(read_trace(log, reader), privacy) for log in logs]
    except InputError as error:
        if as_json:
            print_json(Trace("unreadable", error.message).to_json())
        raise


def _write_pictures(
    reader: Reader, logs: tuple[Path, ...], html: Path | None, timeline: Path | None, privacy: str
) -> None:
    from iowatch.darshan.report import write_report
    from iowatch.darshan.timeline import write_timeline

    if html is not None:
        write_report(logs, html, reader, privacy)
    if timeline is not None:
        write_timeline(logs, timeline, reader, privacy)


def _show_summary(trace: Trace, as_json: bool) -> None:
    from iowatch.cli.output import page, print_json
    from iowatch.darshan.hints import hints
    from iowatch.darshan.text import render

    if as_json:
        print_json({**trace.to_json(), "hints": [hint.to_json() for hint in hints(trace)]})
        return
    console = page()
    for part in render(trace):
        console.print(part)


def _show_diff(traces: list[Trace], as_json: bool) -> None:
    from iowatch.cli.output import page, print_json
    from iowatch.darshan.diff import compare

    difference = compare(*traces)
    if as_json:
        print_json(difference.to_json())
        return
    console = page()
    for line in difference.lines():
        console.print(line, markup=False)
