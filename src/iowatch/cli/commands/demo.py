"""`iowatch demo`: histories to look at, in a database of their own."""

from __future__ import annotations

from pathlib import Path

import click

from iowatch.cli import options
from iowatch.cli.options import Decorator

_seed = click.option(
    "--seed", default=2009, show_default=True, help="Of the noise; the same seed, the same history."
)


def _database(name: str) -> Decorator:
    return click.option(
        "--db",
        type=click.Path(path_type=Path, dir_okay=False),
        help=f"File to write [default: var/demo-{name}.db].",
    )


@click.group(
    epilog="Example: iowatch demo franklin", short_help="Histories with a story, to see what iowatch says."
)
def command() -> None:
    """Build a demonstration's history in a fresh database and show what iowatch says of it."""


@command.command("franklin", epilog="Example: iowatch demo franklin --db /tmp/franklin.db")
@_database("franklin")
@_seed
@options.as_json
def franklin(db: Path | None, seed: int, as_json: bool) -> int:
    """Franklin in spring 2009, reconstructed from published figures: an upgrade that nobody knew to be one."""
    return _show("franklin", db, seed, as_json)


@command.command("regress", epilog="Example: iowatch demo regress")
@_database("regress")
@_seed
@options.as_json
def regress(db: Path | None, seed: int, as_json: bool) -> int:
    """Two planted faults, a slower NetCDF and a lost striping: what a red finding looks like."""
    return _show("regress", db, seed, as_json)


def _show(name: str, db: Path | None, seed: int, as_json: bool) -> int:
    from iowatch import paths
    from iowatch.cli.output import messages, page, print_json
    from iowatch.demo.build import STORIES, fresh, replay
    from iowatch.findings.text import listing
    from iowatch.findings.text import page as pages
    from iowatch.store import History

    path = db or paths.var() / f"demo-{name}.db"
    fresh(path)
    told, console = STORIES[name], messages()
    story = told.story()
    with History.open(str(path)) as history:
        mornings = []
        for morning in replay(history, story, seed, told.mornings):
            console.print(f"{morning.nights} nights recorded, looked at on {morning.moment:%d %b %Y %H:%M} UTC")
            mornings.append(morning)
    if as_json:
        print_json({"database": str(path), "label": story.label, "mornings": [m.to_json() for m in mornings]})
        return 0
    for morning in mornings:
        page().print(
            f"\n{morning.moment:%d %b %Y}, after {morning.nights} nights ({story.label}):", markup=False
        )
        for line in listing(morning.findings):
            page().print(line, markup=False, soft_wrap=True)
    for finding in mornings[-1].findings:
        if finding.state == "open":
            page().print("")
            for line in pages(finding):
                page().print(line, markup=False, soft_wrap=True)
    page().print(f"\nNext: iowatch findings list --db {path}", markup=False, soft_wrap=True)
    return 0
