"""Commands and import formats that a plugin of a site adds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.core import plugins

COMMAND = """
import click
from iowatch.core.plugins import Command

HELLO = Command("hello", "Our site", "Greet the operators.", __name__)


@click.command()
@click.option("--times", default=1)
def command(times):
    click.echo("hello " * times)
"""
FORMAT = """
from pathlib import Path
from iowatch.core.plugins import ImportFormat

OURS = ImportFormat("our-table", Path(__file__).with_name("our-table.yaml"))
"""
MAP = """
title: nights of our own script
time: {column: t, format: epoch}
benchmark: ior
case: {operation: write}
values:
  - {column: v, unit: MiB/s}
"""


@pytest.fixture
def add(tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Write a file into `plugins/` of a site."""
    (tmp_path / "site.yaml").write_text("title: ours\n")
    (tmp_path / "plugins").mkdir()
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path))

    def write(name: str, text: str) -> None:
        (tmp_path / "plugins" / name).write_text(text)
        plugins.forget_plugins()

    return write


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> object:
    yield
    monkeypatch.undo()
    plugins.forget_plugins()


def test_command_of_a_plugin_is_listed_and_runs(add: Callable[[str, str], None], cli: Callable[..., Result]) -> None:
    add("hello.py", COMMAND)
    shown = cli("--help")
    assert "Our site:" in shown.stdout
    assert "hello" in shown.stdout.partition("Our site:")[2].split("\n")[1]
    done = cli("hello", "--times", "2")
    assert (done.exit_code, done.stdout.split()) == (0, ["hello", "hello"])


def test_format_of_a_plugin_is_imported(
    add: Callable[[str, str], None], cli: Callable[..., Result], tmp_path: Path
) -> None:
    add("formats.py", FORMAT)
    add("our-table.yaml", MAP)
    table = tmp_path / "nights.csv"
    table.write_text("t,v\n1700000000,1000.5\n1700086400,1001.5\n")
    done = cli("import", "csv", table, "--map", "our-table", "--system", "local")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("2 of 2 runs stored")
