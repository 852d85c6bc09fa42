"""Entry point of `iowatch`: finds the commands, and turns every error into one message and an exit code."""

from __future__ import annotations

import errno
import importlib
import io
import os
import pkgutil
import sys
from collections.abc import Sequence

import click

from iowatch import __version__
from iowatch.cli import commands
from iowatch.errors import IowatchError, near_miss


def _module_name(command: str) -> str:
    """`import` is a keyword, so its module is `import_`."""
    return f"{command}_" if command == "import" else command


def _readable(command: click.Command) -> click.Command:
    """Examples that can be copied, whole sentences in lists: click wraps the one and cuts the other."""
    if command.epilog and not command.epilog.startswith("\b"):
        command.epilog = f"\b\n{command.epilog}"
    if command.help and not command.short_help:
        first = " ".join(command.help.split("\n\n")[0].split())
        command.short_help = first.split(". ")[0].rstrip(".") + "."
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            _readable(subcommand)
    return command


class CommandFolder(click.Group):
    """A group whose commands are the modules of `iowatch.cli.commands`, imported only when used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(m.name.rstrip("_") for m in pkgutil.iter_modules(commands.__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{commands.__name__}.{_module_name(cmd_name)}")
        return _readable(module.command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            ctx.fail(f"no command '{args[0]}'. {near_miss(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


@click.group(cls=CommandFolder, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="iowatch")
def iowatch() -> None:
    """Watch parallel I/O performance on HPC systems: run, keep, judge, explain, show.

    \b
    Exit codes: 0 fine, 1 a finding or a failed check, 2 wrong use or bad input, 3 something broke.
    """


def _tell(error: IowatchError) -> int:
    click.echo(f"iowatch: {error}", err=True)
    return error.exit_code


def _run(arguments: Sequence[str]) -> int:
    try:
        outcome = iowatch.main(list(arguments), prog_name="iowatch", standalone_mode=False)
    except IowatchError as error:
        return _tell(error)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.Abort:
        click.echo("iowatch: interrupted", err=True)
        return 3
    except click.ClickException as error:
        error.show()
        return 2
    except BrokenPipeError:
        # The reader went away (`iowatch … | head`): not an error of ours; keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        click.echo(f"iowatch: {error.strerror or error}: {error.filename or ''}".rstrip(": "), err=True)
        return 2 if error.errno == errno.ENAMETOOLONG else 3
    except Exception as error:
        click.echo(
            f"iowatch: internal error: {error!r}\n  Please report it; IOWATCH_DEBUG=1 shows where.", err=True
        )
        return 3
    return outcome if isinstance(outcome, int) else 0


def _speak_any_locale() -> None:
    """A character that the terminal's encoding lacks is a `?`, not the end of the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def main() -> None:
    """Run the command line and leave with its exit code."""
    _speak_any_locale()
    if os.environ.get("IOWATCH_DEBUG"):
        iowatch.main(prog_name="iowatch")
    sys.exit(_run(sys.argv[1:]))
