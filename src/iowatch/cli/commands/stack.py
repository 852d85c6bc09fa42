"""`iowatch stack`: the pinned libraries of a system."""

from __future__ import annotations

import click

from iowatch.cli.common import (
    SuggestingGroup,
    examples,
    json_option,
    print_json,
    print_message,
    print_report,
    system_option,
)
from iowatch.cli.completion import complete_stack
from iowatch.site import show
from iowatch.site.stack import install as stack_install
from iowatch.site.stack import load as stacks
from iowatch.site.stack import records as stack


@click.group(cls=SuggestingGroup, epilog=examples("iowatch stack diff netcdf-4.3.3.1 netcdf-4.4.0"))
def command() -> None:
    """List, show, install and compare stacks: the pinned libraries that benchmarks run with."""


@command.command("list", epilog=examples("iowatch stack list --system local"))
@system_option(default="local")
@json_option
def list_stacks(system: str, as_json: bool) -> None:
    """List the stacks of a system, usable ones first."""
    system_stacks = stacks.discover_stacks(system)
    document = {"stacks": [described.to_json() for described in system_stacks]}
    print_report(as_json, document, lambda console: show.render_stack_list(system_stacks, console))


@command.command("show", epilog=examples("iowatch stack show system-openmpi"))
@click.argument("name", shell_complete=complete_stack)
@system_option(default="local")
@json_option
def show_stack(name: str, system: str, as_json: bool) -> None:
    """Show every part of a stack. NAME may also be the path of a spack.lock or stack.json."""
    described = stacks.load_stack(name, system)
    print_report(as_json, described.to_json(), lambda console: show.render_stack(described, console))


@command.command(
    short_help="Build a stack from its lock.", epilog=examples("iowatch stack install reference --bootstrap")
)
@click.argument("name", shell_complete=complete_stack)
@system_option(default="local")
@click.option("--bootstrap", is_flag=True, help="Clone the pinned Spack if SPACK_ROOT and PATH provide none.")
@click.option("--concretize", is_flag=True, help="Concretize on this machine instead of using the committed lock.")
@click.option(
    "--where-possible", is_flag=True,
    help="--bootstrap, and --concretize if needed; without network or mirror print one line and exit 0.",
)  # fmt: skip
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Parallel compile jobs [default: Spack's].")
@json_option
def install(
    name: str, system: str, bootstrap: bool, concretize: bool, where_possible: bool, jobs: int | None, as_json: bool
) -> None:
    """Build a stack from its lock; write the activate.sh and stack.json that jobs use without Spack."""
    built: stack_install.InstalledStack | stack_install.NotInstalled
    if where_possible:
        built = stack_install.install_where_possible(name, system, jobs=jobs)
    else:
        built = stack_install.install_stack(name, system, bootstrap=bootstrap, concretize=concretize, jobs=jobs)
    if isinstance(built, stack_install.NotInstalled):
        print_message(f"the stack {name} was not built: {built.reason}")
        if as_json:
            print_json({"directory": None, "stack": None, "reason": built.reason})
    elif as_json:
        print_json({"directory": str(built.directory), "stack": built.stack.to_json()})
    else:
        print_message(f"{name} is ready: . {built.directory / 'activate.sh'}")


@command.command(epilog=examples("iowatch stack diff netcdf-4.3.3.1 netcdf-4.4.0"))
@click.argument("left", shell_complete=complete_stack)
@click.argument("right", shell_complete=complete_stack)
@system_option(default="local")
@json_option
def diff(left: str, right: str, system: str, as_json: bool) -> None:
    """Show the differences between two stacks or lock files."""
    result = stack.diff_stacks(stacks.load_stack(left, system), stacks.load_stack(right, system))
    print_report(as_json, result.to_json(), lambda console: show.render_stack_diff(result, console))
