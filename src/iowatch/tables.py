"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text


class Plain(Table):
    """A table of words from files, outputs and people: `[vm:4711]` is text and no markup."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def table(*columns: str, right: Sequence[str] = ()) -> Plain:
    """A table without frames; columns named in `right` are aligned to the right, long words are folded."""
    result = Plain(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        result.add_column(Text(column), justify="right" if column in right else "left", overflow="fold")
    return result
