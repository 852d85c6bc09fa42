"""`iowatch import`: results measured elsewhere or earlier into the history."""

from __future__ import annotations

from pathlib import Path

import click

from iowatch.cli import options


@click.command(
    "import",
    epilog="Example: iowatch import benchio results/*.dat --system archer",
    short_help="Results measured elsewhere or earlier -> history.",
)
@click.argument("tool")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.system(required=True)
@click.option(
    "--time", "moment", help="When it ran, ISO 8601 or epoch seconds [default: from each file's name]."
)
@click.option("--partition", default="default", show_default=True)
@click.option("--stack", default="unknown", show_default=True, help="Name of the stack it ran with.")
@options.database
@options.as_json
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
    """Take outputs of TOOL (benchio, ior, mdtest, h5bench, tokio) into the history.

    The same file imported twice counts once. A file that is incomplete, failed or has no date is told, and does
    not stop the others.
    """
    from iowatch.cli.output import messages, page, print_json
    from iowatch.imports import import_files
    from iowatch.store import History
    from iowatch.systems import names
    from iowatch.units import counted, parse_time

    when = parse_time(moment) if moment else None
    console = messages()
    with History.open(db) as history:
        if system not in (*names(), *history.systems()):
            console.print(
                f"note: '{system}' is a new name, neither in systems/ nor in the history", markup=False
            )
        done = import_files(history, tool, files, system=system, moment=when, partition=partition, stack=stack)
    for trouble in done.troubles:
        console.print(f"{trouble.file}: {trouble.reason}", markup=False, soft_wrap=True)
    if as_json:
        print_json(done.to_json())
    else:
        page().print(
            f"{done.stored} of {counted(done.files, 'run')} stored, {done.known} known already, "
            f"{len(done.troubles)} with trouble",
            markup=False,
        )
    return 1 if done.troubles else 0
