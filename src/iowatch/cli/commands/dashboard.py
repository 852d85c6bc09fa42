"""`iowatch dashboard`: build or serve the static site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from iowatch.cli.common import (
    ANY_PATH,
    database_option,
    history_options,
    print_json,
    print_lines,
    print_message,
    system_option,
)
from iowatch.core import settings
from iowatch.output.dashboard.build import DEFAULT_REPORTS, DEFAULT_SESSIONS, build_site
from iowatch.output.dashboard.serve import make_access, make_server, serve_site
from iowatch.store import History


@click.group(epilog="Example: iowatch dashboard build", short_help="Build or serve the dashboard.")
def command() -> None:
    """Build or serve a static site generated from the history. No server or network is needed to view it."""


@command.command("build", epilog="Example: iowatch dashboard build --output /srv/www/iowatch --zone Europe/London")
@click.option("--output", type=ANY_PATH, help="Where [default: site/ in var/, with --system site-S/].")
@system_option()
@click.option("--zone", help="Time zone of the times on the pages (IANA name) [default: that of the systems].")
@click.option(
    "--sessions", type=click.IntRange(min=1), default=DEFAULT_SESSIONS, show_default=True,
    help="Number of newest sessions per system with full pages; older sessions get a list of runs.",
)  # fmt: skip
@click.option(
    "--reports", type=click.IntRange(min=0), default=DEFAULT_REPORTS, show_default=True,
    help="Number of runs per session before and after a finding with PyDarshan's full report (3 s each).",
)  # fmt: skip
@history_options
def build(
    output: Path | None,
    system: str | None,
    zone: str | None,
    sessions: int,
    reports: int,
    db: str | None,
    as_json: bool,
) -> None:
    """Build the site in a new directory and replace the old one atomically.

    A site of one system (--system) lets many systems be built at the same time.
    """
    place = output or settings.var_directory() / ("site" if system is None else f"site-{system}")
    with History.existing(db) as history:
        built = build_site(history, place, zone, sessions, reports, system=system)
    if as_json:
        print_json({"index": str(built.index), "written": built.written, "kept": built.kept})
    else:
        print_lines(f"Dashboard: {built.index} ({built.written} files written, {built.kept} artefacts kept)")


@command.command("serve", epilog="Examples:\n  iowatch dashboard serve --port 8000\n  iowatch dashboard serve --review")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
@click.option("--site", type=ANY_PATH, help="Directory of the site [default: site/ in var/].")
@click.option("--review", is_flag=True, help="Offer review on the pages: accept, acknowledge, dismiss, note, assign.")
@click.option("--user-header", metavar="NAME", help="Header in which the proxy names the person: X-Remote-User.")
@click.option("--origin", metavar="URL", help="With --user-header: where people open the site.")
@click.option(
    "--trusted-proxy", "proxies", multiple=True, metavar="ADDRESS",
    help="With --user-header: only requests from here are answered [default: loopback].",
)  # fmt: skip
@click.option("--bind", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@database_option
def serve(port: int, site: Path | None, review: bool, bind: str, db: str | None, **sign_on: Any) -> None:
    """Serve the built site on the loopback address; with --review, decisions can be made on the pages.

    They are recorded as by `iowatch review`, and committed where the file is in a git repository.
    """
    place = site or settings.var_directory() / "site"
    access = make_access(place, db, print_message, review=review, **sign_on)
    serve_site(make_server(place, port, access, bind), access, print_message)
