"""`iowatch system`: known machines, and the description of a new one."""

from __future__ import annotations

import click

from iowatch.cli import options


@click.group(
    epilog="Example: iowatch system init mycluster",
    short_help="List, show and describe machines.",
)
def command() -> None:
    """List, show and describe machines: the folders of systems/."""


@command.command("list", epilog="Example: iowatch system list")
@options.as_json
def list_(as_json: bool) -> None:
    """List the known systems."""
    from iowatch.cli.output import page, print_json
    from iowatch.systems import load, names
    from iowatch.systems.show import render_list

    systems = [load(name) for name in names()]
    if as_json:
        print_json({"systems": [system.to_json() for system in systems]})
    else:
        render_list(systems, page())


@command.command(epilog="Example: iowatch system show archer")
@click.argument("name")
@options.as_json
def show(name: str, as_json: bool) -> None:
    """Show everything that is known of one system, with its sources."""
    from iowatch.cli.output import page, print_json
    from iowatch.systems import load
    from iowatch.systems.show import render_system

    system = load(name)
    if as_json:
        print_json(system.to_json())
    else:
        render_system(system, page())


@command.command(epilog="Example: iowatch system init mycluster")
@click.argument("name")
@click.option("--scheduler", help="local, slurm, pbs, lsf or flux [default: what is found].")
@click.option("--force", is_flag=True, help="Write over an existing description.")
@options.as_json
def init(name: str, scheduler: str | None, force: bool, as_json: bool) -> None:
    """Write systems/NAME/ from what this machine tells, with comments on what it does not.

    Run it on a login node of the machine to describe, then read both files and complete them.
    """
    from iowatch.cli.output import messages, print_json
    from iowatch.systems.init import write

    written = write(name, scheduler=scheduler, force=force)
    if as_json:
        print_json(written.to_json())
        return
    console = messages()
    for path in written.files:
        console.print(f"wrote {path}", markup=False, soft_wrap=True)
    for gap in written.gaps:
        console.print(f"not found: {gap}", markup=False, soft_wrap=True)
    then = f"Read them, then: iowatch system show {name}; iowatch doctor --system {name}"
    console.print(then, markup=False, soft_wrap=True)
