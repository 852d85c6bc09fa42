"""`iowatch stack`: the pinned libraries of a system."""

from __future__ import annotations

import click

from iowatch.cli import options


@click.group(
    epilog="Example: iowatch stack diff netcdf-4.3.3.1 netcdf-4.4.0",
    short_help="List, show, install and compare stacks of libraries.",
)
def command() -> None:
    """List, show, install and compare stacks: the pinned libraries that benchmarks run with."""


@command.command("list", epilog="Example: iowatch stack list --system local")
@options.system(default="local")
@options.as_json
def list_(system: str, as_json: bool) -> None:
    """List the stacks of a system, usable ones first."""
    from iowatch.cli.output import page, print_json
    from iowatch.stacks import discover
    from iowatch.stacks.show import render_list

    stacks = discover(system)
    if as_json:
        print_json({"stacks": [stack.to_json() for stack in stacks]})
    else:
        render_list(stacks, page())


@command.command(epilog="Example: iowatch stack show system-openmpi")
@click.argument("name")
@options.system(default="local")
@options.as_json
def show(name: str, system: str, as_json: bool) -> None:
    """Show every part of a stack. NAME may also be the path of a spack.lock or stack.json."""
    from iowatch.cli.output import page, print_json
    from iowatch.stacks import load
    from iowatch.stacks.show import render_stack

    stack = load(name, system)
    if as_json:
        print_json(stack.to_json())
    else:
        render_stack(stack, page())


@command.command(epilog="Example: iowatch stack install reference --bootstrap")
@click.argument("name")
@options.system(default="local")
@click.option("--bootstrap", is_flag=True, help="Clone the pinned Spack where SPACK_ROOT and PATH have none.")
@click.option("--concretize", is_flag=True, help="Resolve versions here instead of taking the committed lock.")
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Parallel compile jobs [default: Spack's].")
@options.as_json
def install(name: str, system: str, bootstrap: bool, concretize: bool, jobs: int | None, as_json: bool) -> None:
    """Build a stack from its lock; write the activate.sh and stack.json that jobs use without Spack."""
    from iowatch.cli.output import messages, print_json
    from iowatch.stacks.install import install as build

    console = messages()
    stack, directory = build(
        name,
        system,
        bootstrap=bootstrap,
        concretize=concretize,
        jobs=jobs,
        say=lambda text: console.print(text, markup=False, soft_wrap=True),
    )
    if as_json:
        print_json({"directory": str(directory), "stack": stack.to_json()})
    else:
        console.print(f"{name} is ready: . {directory / 'activate.sh'}", markup=False, soft_wrap=True)


@command.command(epilog="Example: iowatch stack diff netcdf-4.3.3.1 netcdf-4.4.0")
@click.argument("left")
@click.argument("right")
@options.system(default="local")
@options.as_json
def diff(left: str, right: str, system: str, as_json: bool) -> None:
    """Tell what differs between two stacks, also where they are only lock files."""
    from iowatch.cli.output import page, print_json
    from iowatch.stacks import load
    from iowatch.stacks.diff import diff as compare
    from iowatch.stacks.show import render_diff

    result = compare(load(left, system), load(right, system))
    if as_json:
        print_json(result.to_json())
    else:
        render_diff(result, page())
