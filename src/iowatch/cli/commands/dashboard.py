"""`iowatch dashboard`: build or serve the static site."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from iowatch.cli.common import (
    ANY_PATH,
    SuggestingGroup,
    database_option,
    engine_options,
    examples,
    history_options,
    print_json,
    print_lines,
    print_message,
    system_option,
)
from iowatch.core import MachineError, UsageError, format_count, settings
from iowatch.output.dashboard.build import DEFAULT_REPORTS, DEFAULT_SESSIONS, BuildOptions, build_site
from iowatch.output.dashboard.serve import ServeOptions, serve_dashboard
from iowatch.store import History


@click.group(cls=SuggestingGroup, epilog=examples("iowatch dashboard build"))
def command() -> None:
    """Build or serve a static site generated from the history. No server or network is needed to view it."""


@command.command(
    "build",
    short_help="Build the site and replace the old one.",
    epilog=examples("iowatch dashboard build --output /srv/www/iowatch --zone Europe/London"),
)
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
@click.option(
    "--each-system", is_flag=True,
    help="A site per system, and one page with all systems; --output is their directory [default: sites/ in var/].",
)  # fmt: skip
@engine_options
@history_options
def build(
    output: Path | None,
    system: str | None,
    zone: str | None,
    sessions: int,
    reports: int,
    each_system: bool,
    workers: int | None,
    scheduler: str | None,
    db: str | None,
    as_json: bool,
) -> int:
    """Build the site in a new directory and replace the old one atomically.

    With --each-system one task per system builds its site, in processes of this host or on the workers of a Dask
    scheduler. A system that fails is reported and keeps its older site; exit code 2 or 3.
    """
    if each_system:
        if system is not None:
            raise UsageError("--each-system is for all systems, not for one", hint="Leave out --system.")
        options = BuildOptions(zone=zone, sessions=sessions, reports=reports)
        sites = output or settings.var_directory() / "sites"
        return _build_each_system(db, sites, options, workers, scheduler, as_json)
    if workers or scheduler:
        raise UsageError("--workers and --scheduler need --each-system")
    if output is None:
        output = settings.var_directory() / ("site" if system is None else f"site-{system}")
    options = BuildOptions(zone=zone, sessions=sessions, reports=reports, system=system)
    with History.existing(db) as history:
        built = build_site(history, output, options)
    if as_json:
        print_json({"index": str(built.index), "written": built.written, "kept": built.kept})
    else:
        print_lines(f"Dashboard: {built.index} ({built.written} files written, {built.kept} artefacts kept)")
    return 0


def _build_each_system(
    db: str | None, output: Path, options: BuildOptions, workers: int | None, scheduler: str | None, as_json: bool
) -> int:
    # Half a second of imports, which one site does not need.
    from iowatch.output.dashboard.each_system import build_sites
    from iowatch.session import systems
    from iowatch.session.workers import choose_engine

    with History.existing(db) as history:
        names = history.systems()
    start = time.perf_counter()
    sites = build_sites(db, names, output, options, choose_engine(names, workers, scheduler))
    index = output / "index.html"
    for message in systems.format_faults(sites):
        print_message(message)
    if as_json:
        print_json({"index": str(index), "systems": [asdict(site) for site in sites]})
    else:
        built = sum(site.fault is None for site in sites)
        number = f"{built} of {format_count(len(sites), 'site')} built in {time.perf_counter() - start:.0f} s"
        print_lines(f"Dashboards: {index} ({number})")
    return max((site.exit_code for site in sites), default=0)


@command.command(
    "serve",
    short_help="Serve the built site on the loopback address.",
    epilog=examples("iowatch dashboard serve --port 8000", "iowatch dashboard serve --review"),
)
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
def serve(site: Path | None, db: str | None, **options: Any) -> None:
    """Serve the built site on the loopback address; with --review, decisions can be made on the pages.

    They are recorded as by `iowatch review`, and committed where the file is in a git repository.
    """
    serve_options = ServeOptions(database=db, **options)
    directory = site or settings.var_directory() / "site"
    if not serve_options.review:
        serve_dashboard(directory, serve_options)
        return
    try:
        # Flask and waitress are an extra, which only this server needs.
        from iowatch.output.dashboard import review_server
    except ModuleNotFoundError as error:
        raise MachineError(f"--review needs {error.name}", hint="pip install 'iowatch[review]'") from error
    review_server.serve_review(directory, serve_options)
