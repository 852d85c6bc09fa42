"""`iowatch workload`: descriptions of applications' I/O, and how they are made from Darshan logs."""

from __future__ import annotations

import re
from pathlib import Path

import click

from iowatch.benchmarks.workloads import format_description
from iowatch.cli.common import ANY_PATH, OUTPUT_FILE, print_message
from iowatch.core import UsageError, files
from iowatch.darshan import describe_workload


@click.group(
    epilog="Example: iowatch workload from-darshan run.darshan -o solver.yaml",
    short_help="Applications' I/O as benchmarks: describe, compare, measure.",
)
def command() -> None:
    """Workloads: descriptions of an application's I/O that benchio runs."""


@command.command("from-darshan", epilog="Example: iowatch workload from-darshan run.darshan -o solver.yaml")
@click.argument("log", type=ANY_PATH)
@click.option("-o", "--output", type=OUTPUT_FILE, required=True, help="The description to write (NAME.yaml).")
@click.option("--phases", type=click.IntRange(1), metavar="N", help="Divide it at the N - 1 longest pauses "
              "[default: where another file is used, or writing follows reading].")  # fmt: skip
@click.option("--name", help="Name of the workload [default: that of the output].")
def from_darshan(log: Path, output: Path, phases: int | None, name: str | None) -> None:
    """Describe the I/O of a traced application.

    With DXT (DXT_ENABLE_IO_TRACE=1) the order, places, sizes and pauses of all accesses; without it what the
    counters say. What the description does not have is printed, and is in the file. It contains no path, user
    or host of the log.
    """
    title = name or re.sub("[^a-z0-9-]+", "-", output.stem.lower()).strip("-")
    if not re.fullmatch("[a-z][a-z0-9-]{0,63}", title):
        raise UsageError(
            f"'{title}' is not a name of a workload", hint="Use --name with small letters, digits and '-'."
        )
    description, losses = describe_workload(log, title, phases)
    files.write_atomically(output, format_description(description))
    for loss in losses:
        print_message(f"not described: {loss}")
    print_message(f"wrote {output}")
