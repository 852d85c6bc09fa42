"""`iowatch dashboard`: build or serve the static site."""

from __future__ import annotations

from pathlib import Path

import click

from iowatch.cli import options


@click.group(epilog="Example: iowatch dashboard build", short_help="The morning page: build or serve it.")
def command() -> None:
    """A static site made from the history; it needs no server and no network."""


@command.command(
    "build", epilog="Example: iowatch dashboard build --output /srv/www/iowatch --zone Europe/London"
)
@click.option("--output", type=click.Path(path_type=Path), help="Where [default: site/ in var/].")
@click.option(
    "--zone",
    help="Time zone of the pages (IANA name) [default: that of system.yaml (`timezone`), else UTC].",
)
@click.option(
    "--nights",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="Newest nights of each system with all that their runs left; older ones have a list of their runs.",
)
@click.option(
    "--reports",
    type=click.IntRange(min=0),
    default=24,
    show_default=True,
    help="Runs of a night with Darshan's timeline and full report; each takes seconds, once.",
)
@options.database
@options.as_json
def build(
    output: Path | None, zone: str | None, nights: int, reports: int, db: str | None, as_json: bool
) -> None:
    """Build the site beside the old one and switch at once.

    Only pages with news are made anew.
    """
    from iowatch import paths
    from iowatch.cli.output import page, print_json
    from iowatch.dashboard.build import build as build_site
    from iowatch.store import History

    with History.existing(db) as history:
        built = build_site(history, output or paths.var() / "site", zone, nights, reports)
    if as_json:
        print_json({"index": str(built.index), "written": built.written, "kept": built.kept})
    else:
        page().print(
            f"Dashboard: {built.index} ({built.written} files written, {built.kept} unchanged)",
            markup=False,
            soft_wrap=True,
        )


@command.command("serve", epilog="Example: iowatch dashboard serve --port 8000")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
@click.option("--site", type=click.Path(path_type=Path), help="Which site [default: site/ in var/].")
def serve(port: int, site: Path | None) -> None:
    """Serve the built site on the loopback address."""
    from iowatch import paths
    from iowatch.cli.output import messages
    from iowatch.dashboard.serve import serve as serve_site

    serve_site(site or paths.var() / "site", port, lambda text: messages().print(text, markup=False))
