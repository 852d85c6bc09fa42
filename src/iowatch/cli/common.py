"""Options that several commands share, and output that has the same form in all commands."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iowatch.cli.completion import complete_benchmark, complete_stack, complete_system
from iowatch.core import escape_json_controls, special_file_kind, suggest_name

if TYPE_CHECKING:
    from rich.console import Console

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class SuggestingGroup(click.Group):
    """A group of commands that names those it has, if a person calls another one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the words name."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            ctx.fail(f"no command '{args[0]}'. {suggest_name(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


database_option = click.option(
    "--db", metavar="PATH|URL", help="The history [default: the setting `database`; see `iowatch config`]."
)

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout and nothing else.")


# Which runs: options of commands that measure.
stacks_option = click.option(
    "--stack",
    "stacks",
    shell_complete=complete_stack,
    multiple=True,
    metavar="STACK",
    help="Only this stack (may be repeated).",
)
benchmarks_option = click.option(
    "--benchmark",
    "benchmarks",
    shell_complete=complete_benchmark,
    multiple=True,
    metavar="NAME",
    help="Only cases of this (may be repeated).",
)
cases_option = click.option(
    "--case",
    "cases",
    multiple=True,
    metavar="NAME",
    help="Only this case, as `iowatch run --dry-run` lists it (may be repeated).",
)
file_systems_option = click.option(
    "--file-system",
    "file_systems",
    multiple=True,
    metavar="NAME",
    help="Only on this file system of system.yaml, or all (may be repeated) [default: those of the suite].",
)


def history_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--db` and `--json`: options of most commands that read the history."""
    return database_option(json_option(command))


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--workers` and `--scheduler` of commands with one task per system (`iowatch.session.workers.choose_engine`)."""
    workers = click.option("--workers", type=click.IntRange(1), help="Processes on this host [default: one per core].")
    scheduler = click.option(
        "--scheduler", metavar="ADDRESS", help="A running Dask scheduler, for workers on other hosts."
    )
    return workers(scheduler(command))


def system_option(default: str | None = None, required: bool = False) -> Decorator:
    """`--system S`; without a default, None means all systems."""
    # click takes an explicit `default=None` as a value, and an option that has one is never missing.
    given: dict[str, Any] = {} if default is None else {"default": default, "show_default": True}
    return click.option(
        "--system", required=required, help="Name in systems/.", shell_complete=complete_system, **given
    )


def examples(*commands: str) -> str:
    """Return the epilog of a command: its examples, which click does not wrap because of the `\\b`."""
    title = "Example:" if len(commands) == 1 else "Examples:"
    return "\n".join(["\b", title, *(f"  {command}" for command in commands)])


def verbosity_options() -> list[click.Option]:
    """Options of `iowatch` that every command accepts as well."""
    flag = partial(click.Option, is_flag=True, expose_value=False, is_eager=True, callback=_set_level)
    return [
        flag(["-q", "--quiet"], help="Results and errors only: no progress, no messages."),
        flag(["-v", "--verbose"], help="Also programs started, files written, the history."),
    ]


def _set_level(ctx: click.Context, option: click.Parameter, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        if option.name == "quiet":
            show_errors_only()
        else:
            _LOG.setLevel(logging.DEBUG)


class _PercentType(click.ParamType[float]):
    """`5%` or `5`, more than 0 and less than 100; given on as a fraction."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(str(value).strip().removesuffix("%"))
        except ValueError:
            number = 0.0
        if not 0 < number < 100:
            self.fail(f"'{value}' is not between 0% and 100%; expected for example 5%", param, ctx)
        return number / 100


PERCENT = _PercentType()


class _OutputFileType(click.Path):
    """A file to write, which may exist: no device or pipe, and in a directory that exists."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(str(super().convert(value, param, ctx)))
        kind = special_file_kind(path)
        if kind is not None:
            self.fail(f"'{path}' is {kind}; expected a file", param, ctx)
        if not path.absolute().parent.is_dir():
            self.fail(f"directory '{path.parent}' does not exist; `mkdir -p {path.parent}` creates it", param, ctx)
        return path


OUTPUT_FILE = _OutputFileType(dir_okay=False, path_type=Path)
INPUT_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
ANY_PATH = click.Path(path_type=Path)
DATE = click.DateTime(formats=["%Y-%m-%d"])


def format_json(document: Any, *, escaped: bool = False) -> str:
    """A JSON document as text; refuses NaN, which is not JSON."""
    return escape_json_controls(json.dumps(document, indent=2, ensure_ascii=escaped, allow_nan=False))


def print_json(document: Any) -> None:
    """One JSON document on stdout and nothing else."""
    click.echo(format_json(document, escaped=(sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")))


def print_report(as_json: bool, document: Any, render: Callable[[Console], None]) -> None:
    """The result of a command: the document with `--json`, else what `render` prints for people."""
    if as_json:
        print_json(document)
    else:
        render(stdout_console())


def print_lines(*lines: str) -> None:
    """Lines of text for people on stdout, unwrapped and without markup."""
    console = stdout_console()
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def terminal_width() -> int | None:
    """Letters in a line of the terminal that stdout is; None for a pipe or a file, where lines may have any length."""
    from iowatch.core import SafeConsole

    console = SafeConsole()
    return console.width if console.is_terminal else None


_LOG = logging.getLogger("iowatch")


class _StderrHandler(logging.Handler):
    """Log records on stderr, unwrapped and without markup; stderr is looked up for each."""

    def emit(self, record: logging.LogRecord) -> None:
        from iowatch.core import SafeConsole

        SafeConsole(stderr=True, highlight=False).print(self.format(record), markup=False, emoji=False, soft_wrap=True)


def reset_log() -> None:
    """Print messages again after a command with `--quiet` or `--verbose`, which change the level of the logger."""
    _LOG.setLevel(logging.INFO)


_LOG.addHandler(_StderrHandler())
_LOG.propagate = False
reset_log()


def show_errors_only() -> None:
    """Print no messages and no progress until the end of the command."""
    _LOG.setLevel(logging.ERROR)


def print_message(text: str) -> None:
    """A message or progress on stderr; none with `--quiet`."""
    _LOG.info("%s", text)


def has_display() -> bool:
    """Whether a browser can open a window: not in a session by SSH, in a container, or below a scheduler."""
    if not sys.stdout.isatty():
        return False
    return bool(sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def stdout_console() -> Console:
    """The console for results for people: stdout; as wide as needed where it is not a terminal."""
    from iowatch.core import SafeConsole  # rich takes a third of the time of `iowatch --help`

    console = SafeConsole(highlight=False, emoji=False)
    if console.is_terminal:
        return console
    return SafeConsole(highlight=False, emoji=False, width=200)
