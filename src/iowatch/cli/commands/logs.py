"""`iowatch logs`: the Darshan logs of all jobs of a system."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from iowatch.cli.common import ANY_PATH, json_option, print_json, print_lines, print_message, system_option
from iowatch.session.log_intake import add_logs, dask_workers
from iowatch.site import system_names


@click.group(
    epilog="Example: iowatch logs add /darshan/2026/11 --system local",
    short_help="Darshan logs of all jobs: who moves how much, which applications changed.",
)
def command() -> None:
    """Darshan logs of all jobs of a system (docs/fleet.md)."""


@command.command("add", epilog="Example: iowatch logs add /darshan/2026/11 --system local --workers 2")
@click.argument("directory", type=ANY_PATH)
@system_option(required=True)
@click.option("--scheduler", metavar="ADDRESS", help="A running Dask scheduler [default: workers on this host].")
@click.option("--workers", type=click.IntRange(1), help="Workers on this host [default: one per core].")
@json_option
def add(directory: Path, system: str, scheduler: str | None, workers: int | None, as_json: bool) -> None:
    """Add the Darshan logs below DIRECTORY that are new; each is counted once, whatever its name.

    Damaged and foreign files are counted by reason and stop nothing. After an interruption the same command continues.
    """
    if system not in system_names():
        print_message(f"note: '{system}' is not in systems/, so file systems have the names of their types")
    summary = add_logs(directory, system, partial(dask_workers, scheduler, workers), report=print_message)
    print_json(summary.to_json()) if as_json else print_lines(*summary.format_lines())
