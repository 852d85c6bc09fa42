"""What is added to every command: help that fits one screen, global options, completion of names."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import click
from click.shell_completion import CompletionItem

SCREEN_LINES, SCREEN_COLUMNS = 24, 80
_LOG = logging.getLogger("iowatch")


def first_sentence(text: str) -> str:
    """The first sentence of a help text, on one line."""
    return " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".") + "."


def _set_level(ctx: click.Context, option: click.Parameter, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        _LOG.setLevel(logging.ERROR if option.name == "quiet" else logging.DEBUG)


def _print_full_help(ctx: click.Context, option: click.Parameter, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        click.echo(full_help(ctx))
        ctx.exit()


def full_help(ctx: click.Context) -> str:
    """The whole help of the context's command: all paragraphs, all options, each command of a group with its line."""
    return click.Command.get_help(ctx.command, ctx)  # not the `get_help` of the object


def global_options() -> list[click.Option]:
    """Options of `iowatch` that every command accepts as well."""
    flag = partial(click.Option, is_flag=True, expose_value=False, is_eager=True)
    return [
        flag(["-q", "--quiet"], callback=_set_level, help="Results and errors only: no progress, no messages."),
        flag(["-v", "--verbose"], callback=_set_level, help="Also programs started, files written, the history."),
        flag(["--help-all"], callback=_print_full_help, help="Show all options and details, and exit."),
    ]


_GLOBAL = frozenset(option.name for option in global_options())


def prepare_command(command: click.Command) -> click.Command:
    """Add to a command and its subcommands what all commands have; a prepared command is left as it is."""
    if command.params and command.params[-1].name in _GLOBAL:
        return command
    _take_examples(command)
    if command.help and not command.short_help:
        command.short_help = first_sentence(command.help)
    for parameter in command.params:
        if parameter.name in _NAMES:
            parameter.shell_complete = partial(_complete, parameter.name)  # type: ignore[method-assign]
    command.params += global_options()
    # On the object: a class of ours would have to be named in the decorator of every command.
    command.get_help = partial(_first_screen, command)  # type: ignore[method-assign]
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            prepare_command(subcommand)
    return command


def _take_examples(command: click.Command) -> None:
    """Make the examples of a command its epilog, on lines of their own that fit 80 columns and can be copied."""
    text, found, examples = inspect.cleandoc(command.help or "").rpartition("\n\n\b\nExample")
    if found:
        command.help, command.epilog = text, f"Example{examples}"
    if command.epilog and not command.epilog.startswith("\b"):
        lines = re.sub(r"^Example: ", "Example:\n  ", command.epilog).split("\n")
        command.epilog = "\b\n" + "\n".join(map(_fold_example, lines))  # click does not wrap what follows \b


def _fold_example(line: str) -> str:
    folded, width = "", 0
    for part in re.split(r" (?=--)", line):
        fits = width + len(part) < SCREEN_COLUMNS - 4  # behind click's indentation and before a backslash
        folded += part if not folded else f" {part}" if fits else f" \\\n      {part}"
        width = width + len(part) + 1 if fits else len(part) + 6
    return folded


def _first_screen(command: click.Command, ctx: click.Context) -> str:
    """The help of a command in 24 lines if possible; later paragraphs and options are left to --help-all."""
    options = [one for one in command.get_params(ctx) if isinstance(one, click.Option) and one.name not in _GLOBAL]
    options.sort(key=lambda one: not one.required)
    rows = [record for one in options if (record := one.get_help_record(ctx))]
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    least = {1: 0}  # paragraphs after the first are worth less than the sixth option
    extents = (
        (texts, count)
        for texts in range(len(paragraphs), 0, -1)
        for count in range(len(rows), min(len(rows), least.get(texts, 6)) - 1, -1)
    )
    screen = ""
    for texts, count in extents:
        screen = _render(command, ctx, paragraphs[:texts], rows[:count])
        if len(screen.splitlines()) <= SCREEN_LINES:
            break
    return screen


def _render(
    command: click.Command, ctx: click.Context, paragraphs: Sequence[str], rows: Sequence[tuple[str, str]]
) -> str:
    formatter = ctx.make_formatter()
    command.format_usage(ctx, formatter)
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text("\n\n".join(paragraphs))
    if rows:
        with formatter.section("Options"):
            formatter.write_dl(rows)
    if isinstance(command, click.Group):
        command.format_commands(ctx, formatter)
    formatter.write_paragraph()
    formatter.write_text(f"All options and details: {ctx.command_path} --help-all")
    command.format_epilog(ctx, formatter)
    return formatter.getvalue().rstrip("\n")


def _systems(ctx: click.Context) -> Iterable[str]:
    from iowatch.site import system_names

    return system_names()


def _suites(ctx: click.Context) -> Iterable[str]:
    from iowatch.benchmarks.suites import suite_names

    return suite_names()


def _stacks(ctx: click.Context) -> Iterable[str]:
    from iowatch.site import discover_stacks

    return [stack.name for stack in discover_stacks(ctx.params.get("system") or "local")]


def _systems_or_stacks(ctx: click.Context) -> Iterable[str]:
    """The argument NAME of `iowatch system …` and `iowatch stack …`."""
    finder = {"system": _systems, "stack": _stacks}.get(ctx.parent.info_name or "" if ctx.parent else "")
    return finder(ctx) if finder else ()


def _benchmarks(ctx: click.Context) -> Iterable[str]:
    from iowatch.benchmarks.registry import benchmark_names

    return benchmark_names()


def _findings(ctx: click.Context) -> Iterable[str]:
    from iowatch.store import History, read

    # Not `history.findings`, which waits for a database that is unavailable: somebody is typing.
    with History.existing(ctx.params.get("db")) as history, history.reading() as connection:
        return [row.id for row in read.load_finding_rows(connection, None)]


# What an option or argument of this name takes, in every command.
_NAMES = {
    "system": _systems,
    "suite": _suites,
    "stack": _stacks,
    "stacks": _stacks,
    "ab": _stacks,
    "benchmark": _benchmarks,
    "benchmarks": _benchmarks,
    "finding": _findings,
    "name": _systems_or_stacks,
    "left": _systems_or_stacks,
    "right": _systems_or_stacks,
}


def _complete(parameter: str, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    try:
        return [CompletionItem(name) for name in _NAMES[parameter](ctx) if name.startswith(incomplete)]
    except Exception:  # whatever is wrong, a message would appear within the line that somebody types
        return []


def walk_commands(ctx: click.Context) -> Iterator[click.Context]:
    """The context of a command, then those of all its subcommands at all depths, in the order of the help."""
    yield ctx
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            subcommand = ctx.command.get_command(ctx, name)
            assert subcommand is not None
            yield from walk_commands(click.Context(subcommand, ctx, info_name=name))
