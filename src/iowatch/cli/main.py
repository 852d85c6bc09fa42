"""Entry point of `iowatch`: finds the commands, and reports every error as one message and an exit code."""

from __future__ import annotations

import errno
import gc
import importlib
import io
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from iowatch import describe_version
from iowatch.cli import commands
from iowatch.cli.common import examples, reset_log, verbosity_options
from iowatch.core import IowatchError, UsageError, clock, escape_controls, format_time, name_pages, suggest_name
from iowatch.core.plugins import PLUGIN_HINT, Command, Registry, fault_of_plugin

# Commands in `iowatch --help`, by what they are for; first what an administrator of nightly sessions uses. Each has its
# line here, because importing all commands takes seconds. Capabilities and plugins of a site add theirs.
_NIGHT, _SITE, _MEASURE = "Every night", "Set up a site", "Measure"
_ASSESS, _LEARN = "Assess and compare", "Learn"
AREAS = (_NIGHT, _SITE, _MEASURE, _ASSESS, "Experiments", "Applications", _LEARN)
_SUITE_COMMANDS = (
    ("nightly", _NIGHT, "Run a nightly session, build the dashboard and send notices."),
    ("findings", _NIGHT, "What changed, since when, and what the changed cases share."),
    ("review", _NIGHT, "Decide about findings and lost runs."),
    ("event", _NIGHT, "List or record events of a machine."),
    ("dashboard", _NIGHT, "Build or serve the dashboard."),
    ("notify", _NIGHT, "Send notices about findings: chat, mail, issue."),
    ("maintenance", _NIGHT, "Decide after a maintenance whether the system is as fast as before."),
    ("report", _NIGHT, "A quarter of each system on one page."),
    ("init", _SITE, "Write the repository of a site."),
    ("doctor", _SITE, "Show what this machine provides and lacks."),
    ("config", _SITE, "Show all settings in force, with the origin of each."),
    ("system", _SITE, "List, show and describe machines."),
    ("stack", _SITE, "List, show, install and compare stacks of libraries."),
    ("run", _MEASURE, "Run a suite, store its results and assess them."),
    ("pulse", _MEASURE, "Time a few operations every ten minutes; report stalls."),
    ("import", _MEASURE, "Import existing outputs and tables into the history."),
    ("parse", _MEASURE, "Parse one output of a benchmark and validate it."),
    ("darshan", _MEASURE, "Summarise a Darshan log, or show the differences of two."),
    ("history", _ASSESS, "Sessions and series; export; backup."),
    ("detect", _ASSESS, "Print what changed in each series of a file or a system."),
    ("compare", _ASSESS, "Compare two stacks, periods, systems or published tables."),
    ("reference", _ASSESS, "Published figures, and the accepted bandwidths of systems."),
    ("docs", _LEARN, "Open the documentation of this version."),
    ("demo", _LEARN, "Generate example histories and show iowatch's reports."),
    ("completion", _LEARN, "Print the completion script of a shell."),
)


def _module_of(name: str) -> str:
    """The module of a command of the suite; `import` is a keyword, so its module is `import_`."""
    return f"{commands.__name__}.{name}_" if name == "import" else f"{commands.__name__}.{name}"


COMMANDS = Registry(
    Command, [Command(name, area, line, _module_of(name)) for name, area, line in _SUITE_COMMANDS], file=""
)


class LazyCommandGroup(click.Group):
    """A group whose commands are those of the registry `COMMANDS`; each is imported only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        # Plugins of the site are loaded only for a command that is not one of ours.
        entry = COMMANDS.product_entries.get(cmd_name) or COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry.module), "command", None)
        if not isinstance(command, click.Command):
            raise UsageError(f"{entry.module} defines no click command named `command`")
        _accept_verbosity(command)
        _name_pages(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for area, entries in _commands_by_area().items():
            with formatter.section(area):
                formatter.write_dl([(entry.name, entry.line) for entry in entries])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands without their import, then options."""
        items: list[CompletionItem] = []
        for entries in _commands_by_area().values():
            for entry in entries:
                if entry.name.startswith(incomplete):
                    items.append(CompletionItem(entry.name, help=entry.line))
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS.product_entries and args[0] not in COMMANDS:
            ctx.fail(f"no command '{args[0]}'. {suggest_name(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


def _commands_by_area() -> dict[str, list[Command]]:
    """All commands by the headings of `iowatch --help`; headings that only plugins use come last."""
    by_area: dict[str, list[Command]] = {area: [] for area in AREAS}
    for entry in COMMANDS.values():
        by_area.setdefault(entry.area, []).append(entry)
    return {area: entries for area, entries in by_area.items() if entries}


def _accept_verbosity(command: click.Command) -> None:
    """Accept `--quiet` and `--verbose` behind the name of a command, too, and of its subcommands."""
    if not any(option.name == "quiet" for option in command.params):
        command.params += verbosity_options()
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            _accept_verbosity(subcommand)


def _name_pages(command: click.Command) -> None:
    """In the help of a command and of its subcommands, name pages by the command that opens them (`iowatch docs`)."""
    command.help = name_pages(command.help or "") or None
    for option in command.params:
        if isinstance(option, click.Option):
            option.help = name_pages(option.help or "") or None
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            _name_pages(subcommand)


def walk_commands(ctx: click.Context) -> Iterator[click.Context]:
    """The context of a command, then those of all its subcommands at all depths, in alphabetical order."""
    yield ctx
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            subcommand = ctx.command.get_command(ctx, name)
            assert subcommand is not None
            yield from walk_commands(click.Context(subcommand, ctx, info_name=name))


def _show_version(context: click.Context, _option: click.Parameter, is_given: bool) -> None:
    if is_given and not context.resilient_parsing:
        click.echo(f"iowatch {describe_version()}")
        context.exit()


@click.group(
    cls=LazyCommandGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=list(verbosity_options()),
    epilog=examples("iowatch demo franklin", "iowatch run --system local --suite smoke"),
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
    click.echo(name_pages(escape_controls(text)), err=True)


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
        message = io.StringIO()
        error.show(message)
        _report(message.getvalue().rstrip())
        return 2
    except BrokenPipeError:
        # The reader of stderr closed the pipe; avoids Python's message at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
        return 3
    except OSError as error:
        _report(f"iowatch: {error.strerror or error}: {error.filename or ''}".rstrip(": "))
        return 2 if error.errno == errno.ENAMETOOLONG else 3
    except Exception as error:
        fault = fault_of_plugin(error)
        if fault:
            _report(f"iowatch: plugin: {fault}\n  {PLUGIN_HINT}")
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
    umask = os.environ.get("IOWATCH_UMASK", "")
    if re.fullmatch("[0-7]{1,4}", umask):
        os.umask(int(umask, 8))
    elif umask:
        raise UsageError(f"IOWATCH_UMASK is '{umask}', expected an octal number", hint="For example 022, or unset it.")
    else:
        os.umask(os.umask(0o077) | 0o027)  # a stricter umask of the user stays in force


# Python's 700 lets it look for garbage dozens of times while a command is imported, which finds none: a sixth of the
# time of most commands. Garbage of long commands is still collected.
_OBJECTS_BETWEEN_COLLECTIONS = 100_000


class _Stdout(io.FileIO):
    """The standard output; after its reader closed the pipe (`iowatch findings list | head`) nothing is written.

    The command goes on: its exit code says whether there is a finding, however much of its output was read.
    """

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return len(data)


def _outlive_readers_of_stdout() -> None:
    """Replace `sys.stdout` by one that ends no command when its reader has seen enough."""
    if not isinstance(sys.stdout, io.TextIOWrapper):
        return
    stream = io.BufferedWriter(_Stdout(sys.stdout.fileno(), "wb", closefd=False))
    encoding, is_interactive = sys.stdout.encoding, sys.stdout.isatty()
    sys.stdout = io.TextIOWrapper(stream, encoding, line_buffering=is_interactive)


def main() -> None:
    """Run the command line and exit with its exit code."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    _outlive_readers_of_stdout()
    for stream in (sys.stdout, sys.stderr):  # print `?` for characters that the terminal's encoding does not have
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        restrict_permissions()
        moment = clock.set_clock()
    except UsageError as error:
        _report(f"iowatch: {error}")
        sys.exit(error.exit_code)
    if moment is not None:
        _report(f"iowatch: the clock begins at {format_time(moment)} ({clock.NOW_VARIABLE})")
    sys.exit(_run_command(sys.argv[1:]))
