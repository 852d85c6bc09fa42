"""Entry point of `iowatch`: finds the commands, and reports every error as one message and an exit code."""

from __future__ import annotations

import ast
import errno
import gc
import importlib
import io
import logging
import os
import pkgutil
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from iowatch import describe_version
from iowatch.cli import commands
from iowatch.cli.common import reset_log
from iowatch.cli.help import first_sentence, global_options, prepare_command
from iowatch.core import IowatchError, UsageError, escape_controls, suggest_name


def _module_name(command: str) -> str:
    """`import` is a keyword, so its module is `import_`."""
    return f"{command}_" if command == "import" else command


def _read_short_help(command: str) -> str:
    """The line of a command in `iowatch --help`, from its source: importing all commands takes seconds."""
    files = (Path(folder, f"{_module_name(command)}.py") for folder in commands.__path__)
    file = next(file for file in files if file.is_file())
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    function = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "command"), None)
    if function is None:
        return f"(no command: {file} defines no function `command`)"
    keywords = [word for node in function.decorator_list if isinstance(node, ast.Call) for word in node.keywords]
    given = next((word.value for word in keywords if word.arg == "short_help"), None)
    return str(ast.literal_eval(given)) if given else first_sentence(ast.get_docstring(function) or "")


# Commands in `iowatch --help`, by what they are used for. A command that is absent here is listed under "Other".
AREAS = {
    "Set up": ("init", "doctor", "config", "system", "stack"),
    "Measure": ("run", "nightly", "import", "parse", "logs", "darshan", "workload"),
    "What changed": ("findings", "detect", "review", "event"),
    "Compare": ("compare", "gate", "reproduce", "bisect", "advise", "reference"),
    "Report": ("history", "dashboard", "notify"),
    "Try and learn": ("demo", "completion", "man"),
}


class LazyCommandGroup(click.Group):
    """A group whose commands are the modules of `iowatch.cli.commands`, imported only when used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(m.name.rstrip("_") for m in pkgutil.iter_modules(commands.__path__))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _read_short_help(name)) for name in self.list_commands(ctx)])

    def get_help(self, ctx: click.Context) -> str:
        """The names of all commands by area; `--help-all` has a line per command."""
        formatter, names = ctx.make_formatter(), self.list_commands(ctx)
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text((self.help or "").split("\n\n")[0])
        rows = [(area, ", ".join(name for name in AREAS[area] if name in names)) for area in AREAS]
        other = ", ".join(sorted(set(names).difference(*AREAS.values())))
        with formatter.section("Commands"):
            formatter.write_dl([*rows, *([("Other", other)] if other else [])])
        click.Command.format_options(self, ctx, formatter)
        self.format_epilog(ctx, formatter)
        return formatter.getvalue().rstrip("\n")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands without their import, then options."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=_read_short_help(name)) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{commands.__name__}.{_module_name(cmd_name)}")
        return prepare_command(module.command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            ctx.fail(f"no command '{args[0]}'. {suggest_name(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


def _show_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(f"iowatch {describe_version()}")
        context.exit()


@click.group(
    cls=LazyCommandGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=list(global_options()),
    epilog="\b\nExamples:\n  iowatch demo franklin\n  iowatch run --system local --suite smoke",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and the commit.",
)
def iowatch() -> None:
    """Monitor parallel I/O performance on HPC systems: run benchmarks, store results, detect and explain changes.

    Exit codes: 0 success, 1 a finding or a failed check, 2 wrong use or bad input, 3 an internal or system error,
    4 (only `gate`) undecided.
    """


def _report(text: str) -> None:
    """A message on stderr; it may quote names of files and outputs."""
    click.echo(escape_controls(text), err=True)


def _run_command(arguments: Sequence[str]) -> int:
    reset_log()
    try:
        outcome = iowatch.main(list(arguments), prog_name="iowatch", standalone_mode=False)
    except IowatchError as error:
        _report(f"iowatch: {error}")
        return error.exit_code
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.Abort:
        _report("iowatch: interrupted")
        return 3
    except click.ClickException as error:
        error.show(shown := io.StringIO())
        _report(shown.getvalue().rstrip())
        return 2
    except BrokenPipeError:
        # The reader closed the pipe (`iowatch … | head`): no error; avoids Python's message at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        _report(f"iowatch: {error.strerror or error}: {error.filename or ''}".rstrip(": "))
        return 2 if error.errno == errno.ENAMETOOLONG else 3
    except Exception as error:
        from iowatch.core import plugins  # pydantic with it: `iowatch --help` has no use for a tenth of a second

        if fault := plugins.fault_of_plugin(error):
            _report(f"iowatch: plugin: {fault}\n  {plugins.PLUGIN_HINT}")
            return 2
        logging.getLogger("iowatch").debug("traceback of the internal error:", exc_info=error)
        _report(f"iowatch: internal error: {error!r}\n  Please report it, with the traceback that --verbose prints.")
        return 3
    return outcome if isinstance(outcome, int) else 0


def restrict_permissions() -> None:
    """Let only the owner and the group read new files, and only the owner write them; `IOWATCH_UMASK` overrides it.

    Outputs and Darshan logs hold paths, user names and command lines.

    Raises:
        UsageError: `IOWATCH_UMASK` is not an octal number.
    """
    chosen = os.environ.get("IOWATCH_UMASK", "")
    if re.fullmatch("[0-7]{1,4}", chosen):
        os.umask(int(chosen, 8))
    elif chosen:
        raise UsageError(f"IOWATCH_UMASK is '{chosen}', expected an octal number", hint="For example 022, or unset it.")
    else:
        os.umask(os.umask(0o077) | 0o027)  # a stricter umask of the user stays in force


# Python's 700 lets it look for garbage dozens of times while a command is imported, which finds none: a sixth of the
# time of most commands. Garbage of long commands is still collected.
_OBJECTS_BETWEEN_COLLECTIONS = 100_000


def main() -> None:
    """Run the command line and exit with its exit code."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    for stream in (sys.stdout, sys.stderr):  # print `?` for characters that the terminal's encoding does not have
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        restrict_permissions()
    except UsageError as error:
        _report(f"iowatch: {error}")
        sys.exit(error.exit_code)
    sys.exit(_run_command(sys.argv[1:]))
