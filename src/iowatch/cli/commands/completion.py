"""`iowatch completion`: the script that completes commands, options and names in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from iowatch.cli.common import examples


@click.command(
    epilog=examples(
        'eval "$(iowatch completion bash)"', "iowatch completion fish > ~/.config/fish/completions/iowatch.fish"
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, options, and the names of systems, suites, stacks, benchmarks and findings. Put the first
    example (with the name of your shell) into .bashrc or .zshrc.
    """
    chosen = get_completion_class(shell)
    assert chosen is not None  # the names are click's
    click.echo(chosen(ctx.find_root().command, {}, "iowatch", "_IOWATCH_COMPLETE").source())
