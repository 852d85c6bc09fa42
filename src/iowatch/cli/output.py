"""What every command prints the same way."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
from rich.console import Console


def print_json(document: Any) -> None:
    """One JSON document on stdout and nothing else; refuses NaN, which is not JSON."""
    escaped = (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
    click.echo(json.dumps(document, indent=2, ensure_ascii=escaped, allow_nan=False))


def messages() -> Console:
    """The console for progress and messages: stderr."""
    return Console(stderr=True, highlight=False)


def page() -> Console:
    """The console for results for people: stdout; as wide as needed where it is not a terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)
