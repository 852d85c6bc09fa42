"""`iowatch import`: import existing outputs into the history."""

from __future__ import annotations

from pathlib import Path

import click

from iowatch.cli import common
from iowatch.core import format_count, parse_time
from iowatch.session.imports import IMPORTED_TOOLS, import_files
from iowatch.site import system_names, system_zone
from iowatch.store import History


@click.command(
    "import",
    epilog="Example: iowatch import benchio results/*.dat --system archer",
    short_help="Import existing outputs into the history.",
)
@click.argument("tool", type=click.Choice(IMPORTED_TOOLS))
@click.argument("files", nargs=-1, required=True, type=common.ANY_PATH)
@common.system_option(required=True)
@click.option(
    "--time",
    "moment",
    help="When it ran, ISO 8601 (in the system's time zone) or epoch seconds [default: the start in benchio's record "
    "or Darshan's log, else from each file's name].",
)
@click.option("--partition", default="default", show_default=True)
@click.option("--stack", default="unknown", show_default=True, help="Name of the stack it ran with.")
@common.history_options
def command(
    tool: str,
    files: tuple[Path, ...],
    system: str,
    moment: str | None,
    partition: str,
    stack: str,
    db: str | None,
    as_json: bool,
) -> int:
    """Import outputs of TOOL into the history; tokio reads the summaries of TOKIO-ABC.

    Importing the same file twice has no further effect. A run that is incomplete or failed is stored as failed
    (exit code 1). A file that is not an output of TOOL, or has no date, is refused (exit code 2). Neither stops the
    others.
    """
    when = parse_time(moment, system_zone(system)) if moment else None
    with History.open(db) as history:
        if system not in (*system_names(), *history.systems()):
            common.print_message(f"note: '{system}' is a new name, neither in systems/ nor in the history")
        done = import_files(history, tool, files, system=system, moment=when, partition=partition, stack=stack)
    for problem in done.troubles:
        common.print_message(f"{problem.file}: {problem.reason}")
    if as_json:
        common.print_json(done.to_json())
    else:
        stored = f"{done.stored} of {format_count(done.files, 'run')} stored"
        common.print_lines(f"{stored}, {done.known} already known, {len(done.troubles)} with problems")
    return max((2 if problem.refused else 1 for problem in done.troubles), default=0)
