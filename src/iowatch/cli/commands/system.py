"""`iowatch system`: known machines, and the description of a new one."""

from __future__ import annotations

import click

from iowatch.cli.common import json_option, print_json, print_message, print_report
from iowatch.site import init, show, system


@click.group(epilog="Example: iowatch system init mycluster", short_help="List, show and describe machines.")
def command() -> None:
    """List, show and describe machines: the folders of systems/."""


@command.command("list", epilog="Example: iowatch system list")
@json_option
def list_systems(as_json: bool) -> None:
    """List the known systems."""
    known = [system.load_system(name) for name in system.system_names()]
    document = {"systems": [one.to_json() for one in known]}
    print_report(as_json, document, lambda console: show.render_system_list(known, console))


@command.command("show", epilog="Example: iowatch system show archer")
@click.argument("name")
@json_option
def show_system(name: str, as_json: bool) -> None:
    """Show all facts of one system, with their sources."""
    found = system.load_system(name)
    print_report(as_json, found.to_json(), lambda console: show.render_system(found, console))


@command.command("init", epilog="Example: iowatch system init mycluster")
@click.argument("name")
@click.option("--scheduler", help="local, slurm, pbs, lsf or flux [default: detected].")
@click.option("--force", is_flag=True, help="Overwrite an existing description.")
@json_option
def init_system(name: str, scheduler: str | None, force: bool, as_json: bool) -> None:
    """Write systems/NAME/ from the facts detected on this machine, with comments for missing ones.

    Run it on a login node of the machine to describe, then read both files and complete them.
    """
    written = init.write_system(name, scheduler=scheduler, force=force)
    if as_json:
        print_json(written.to_json())
        return
    for text in (*(f"wrote {path}" for path in written.files), *(f"not found: {gap}" for gap in written.gaps)):
        print_message(text)
    print_message(f"Read them, then: iowatch system show {name}; iowatch doctor --system {name}")
