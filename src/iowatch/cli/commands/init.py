"""`iowatch init`: the repository of a site."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from iowatch.cli.common import ANY_PATH, examples, print_lines
from iowatch.site import repository


@click.command(epilog=examples("iowatch init ~/iowatch-site --timezone Europe/Berlin"))
@click.argument("directory", type=ANY_PATH)
@click.option("--title", help="Title of the pages.")
@click.option(
    "--timezone", help="Zone of times that people type or read, as Europe/Berlin [default: that of this machine]."
)
def command(directory: Path, title: str | None, timezone: str | None) -> None:
    """Write the repository of a site: its settings, and folders for systems, suites, stacks, events and reviews.

    iowatch's own files stay in its package, so that a new version never conflicts with the site's files.
    """
    written = repository.write_site(directory, title=title, timezone=timezone)
    print_lines(
        f"wrote {len(written)} files in {directory}; next:", f"    cd {shlex.quote(str(directory))} && git init"
    )
    print_lines("    iowatch system init NAME", "    iowatch doctor --system NAME")
