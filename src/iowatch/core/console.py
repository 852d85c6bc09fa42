"""The console and its tables: what they print controls the terminal only by their own styles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from iowatch.core.text import escape_controls, name_pages


class SafeConsole(Console):
    """A console that escapes controls in everything it prints; only its own styles reach the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, Text):
            escaped = name_pages(escape_controls(renderable.plain))
            # Before it is wrapped; a copy has no styles within the text.
            if escaped != renderable.plain:
                renderable = renderable.blank_copy(escaped)
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else escape_controls(text), style, control)


class PlainTable(Table):
    """A table of text from files, outputs and users: `[vm:4711]` is text, not markup."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        shown: list[RenderableType | None] = []
        for cell in cells:
            shown.append(Text(escape_controls(cell)) if isinstance(cell, str) else cell)
        super().add_row(*shown, **options)


def make_table(*columns: str, right: Sequence[str] = ()) -> PlainTable:
    """Return a table without borders; columns named in `right` are right-aligned, long texts are wrapped."""
    result = PlainTable(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        result.add_column(Text(column), justify="right" if column in right else "left", overflow="fold")
    return result
