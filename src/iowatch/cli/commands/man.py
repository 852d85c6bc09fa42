"""`iowatch man`: manual pages, made from the help of the commands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from iowatch.cli.common import ANY_PATH, print_message
from iowatch.cli.help import walk_commands
from iowatch.core import format_count, write_atomically


@click.command(epilog="Example:\n  iowatch man ~/.local/share/man/man1 && man iowatch-run")
@click.argument("directory", type=ANY_PATH)
@click.pass_context
def command(ctx: click.Context, directory: Path) -> None:
    """Write a manual page per command to a directory."""
    pages = {found.command_path.replace(" ", "-"): _manual_page(found) for found in walk_commands(ctx.find_root())}
    for name, text in pages.items():
        write_atomically(directory / f"{name}.1", text)
    print_message(f"{format_count(len(pages), 'page')} written to {directory}")


def _manual_page(ctx: click.Context) -> str:
    """The page of a command in the macros of man(7)."""
    shown, name = ctx.command, ctx.command_path.replace(" ", "-")
    usage = " ".join(shown.collect_usage_pieces(ctx))
    lines = [f'.TH {name.upper()} 1 "" iowatch', ".SH NAME", f"{name} \\- {_escape(shown.get_short_help_str(500))}"]
    lines += [".SH SYNOPSIS", f".B {_escape(ctx.command_path)}", _escape(usage), ".SH DESCRIPTION"]
    for paragraph in inspect.cleandoc(shown.help or "").split("\n\n"):
        lines += [".PP", _escape(" ".join(paragraph.split()))]
    lines += _definitions("OPTIONS", [record for one in shown.get_params(ctx) if (record := one.get_help_record(ctx))])
    if isinstance(shown, click.Group):
        subcommands = [(sub, shown.get_command(ctx, sub)) for sub in shown.list_commands(ctx)]
        lines += _definitions("COMMANDS", [(sub, one.get_short_help_str(500)) for sub, one in subcommands if one])
    if shown.epilog:
        examples = re.sub(r"^\x08\nExamples?:\n", "", shown.epilog)
        lines += [".SH EXAMPLES", ".nf", *(_escape(line) for line in examples.splitlines()), ".fi"]
    return "\n".join(lines) + "\n"


def _definitions(title: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    yield from [f".SH {title}"] if rows else []
    for term, text in rows:
        yield from (".TP", f".B {_escape(term)}", _escape(text))


def _escape(text: str) -> str:
    """Text as roff reads it: ASCII, backslashes and minus signs as such, no line that begins with a control."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in escaped)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
