"""`iowatch system`: known machines, and the description of a new one."""

from __future__ import annotations

import sys
from typing import Any

import click

from iowatch.cli.common import (
    SuggestingGroup,
    examples,
    json_option,
    print_json,
    print_message,
    print_report,
    show_errors_only,
)
from iowatch.cli.completion import complete_system
from iowatch.site import show, system


@click.group(cls=SuggestingGroup, epilog=examples("iowatch system init mycluster"))
def command() -> None:
    """List, show and describe machines: the folders of systems/."""


@command.command("list", epilog=examples("iowatch system list"))
@json_option
def list_systems(as_json: bool) -> None:
    """List the known systems."""
    systems = [system.load_system(name) for name in system.system_names()]
    document = {"systems": [described.to_json() for described in systems]}
    print_report(as_json, document, lambda console: show.render_system_list(systems, console))


@command.command("show", epilog=examples("iowatch system show archer"))
@click.argument("name", shell_complete=complete_system)
@json_option
def show_system(name: str, as_json: bool) -> None:
    """Show all facts of one system, with their sources."""
    described = system.load_system(name)
    print_report(as_json, described.to_json(), lambda console: show.render_system(described, console))


@command.command(
    "init", short_help="Describe this machine as a new system.", epilog=examples("iowatch system init mycluster")
)
@click.argument("name")
@click.option("--scheduler", help="local, slurm, pbs, lsf or flux [default: detected].")
@click.option("--scratch", metavar="DIR", help="Where benchmarks write; measures its file system.")
@click.option("--account", metavar="A", help="Account of the jobs, or options of the scheduler that begin with '-'.")
@click.option("--partition", "partitions", metavar="P", multiple=True, help="Partition to measure; may be repeated.")
@click.option("--timezone", metavar="ZONE", help="For example Europe/Berlin [default: of this machine].")
@click.option("--title", help="Shown on pages [default: NAME].")
@click.option("--no-input", is_flag=True, help="Ask nothing, as without a terminal.")
@click.option("--no-verify", is_flag=True, help="Submit no jobs.")
@click.option("--force", is_flag=True, help="Overwrite an existing description.")
@json_option
def init_system(
    name: str, scheduler: str | None, no_input: bool, no_verify: bool, force: bool, as_json: bool, **given: Any
) -> int:
    """Write systems/NAME/ from the facts of this machine; ask what is not found, and verify each answer.

    Run it on a login node. On a terminal it submits one small job per partition; otherwise only for given answers.
    """
    from iowatch.site import init

    ask: init.AskCallback | None = None
    if is_interactive() and not no_input and not as_json:
        ask = _ask
    if as_json:
        show_errors_only()
    written = init.write_system(
        name, init.Answers(**given), scheduler=scheduler, force=force, ask=ask, submit=not no_verify
    )
    if as_json:
        print_json(written.to_json())
        return int(written.refused)
    for word, texts in (
        ("wrote", written.files),
        (f"wrote --system {name} into", written.recipes),
        ("not verified:", written.unverified),
        ("not found:", written.gaps),
    ):
        for text in texts:
            print_message(f"{word} {text}")
    print_message("Next:")
    for line, purpose in written.commands:
        print_message(f"  {line:<50}  # {purpose}")
    return int(written.refused)


def is_interactive() -> bool:
    """Whether a person can answer questions."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _say_nothing(_text: str) -> None:
    pass


def _ask(question: str, default: str) -> str:
    return str(click.prompt(question, default=default, show_default=bool(default), err=True))
