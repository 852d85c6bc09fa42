"""The command line as a contract: help with an example, exit codes, one message and no traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

from iowatch.cli.main import iowatch


def commands() -> list[tuple[str, ...]]:
    """All commands and subcommands."""
    context = click.Context(iowatch)
    found: list[tuple[str, ...]] = []
    for name in iowatch.list_commands(context):
        command = iowatch.get_command(context, name)
        assert command is not None
        found.append((name,))
        if isinstance(command, click.Group):
            found += [(name, sub) for sub in command.list_commands(context)]
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_has_help_with_an_example(cli: Callable[..., Result], words: tuple[str, ...]) -> None:
    result = cli(*words, "--help")
    assert result.exit_code == 0
    assert "Example" in result.output
    assert f"iowatch {words[0]}" in result.output


WRONG = [
    (("nonsense",), 2, "no command"),
    (("dashbord",), 2, "Did you mean 'dashboard'?"),
    (("run", "--suite", "smok"), 2, "Did you mean 'smoke'?"),
    (("run", "--system", "locl"), 2, "locl"),
    (("run", "--system", "franklin"), 2, "franklin"),
    (("import", "ioor", "x", "--system", "local"), 2, "ioor"),
    (("history", "show", "nowhere"), 2, "no history at"),
    (("history", "list", "--db", "/proc/x/y.db"), 2, "no history at sqlite:////proc/x/y.db"),
]


@pytest.mark.parametrize(("words", "code", "told"), WRONG, ids=[" ".join(w) for w, _, _ in WRONG])
def test_wrong_use_is_one_message_and_its_exit_code(
    cli: Callable[..., Result], var: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    result = cli(*words)
    assert result.exit_code == code
    assert told in result.output
    assert "Traceback" not in result.output
