"""Tables for the terminal.

External text is never interpreted: characters that would reverse or hide adjacent text are made visible.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text


class PlainTable(Table):
    """A table of text from files, outputs and users: `[vm:4711]` is text, not markup."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def make_table(*columns: str, right: Sequence[str] = ()) -> PlainTable:
    """Return a table without borders; columns named in `right` are right-aligned, long texts are wrapped."""
    result = PlainTable(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        result.add_column(Text(column), justify="right" if column in right else "left", overflow="fold")
    return result


# Overrides, embeddings and isolates reverse the rest of a line, including text of the page; controls and
# separators cannot be displayed.
_BIDI_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def escape_bidi_controls(text: str) -> str:
    """Replace each of these characters by a visible symbol."""
    return _BIDI_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def escape_template_value(value: object) -> object:
    """Return a value as templates write it: texts are escaped; numbers and finished markup are unchanged."""
    return escape_bidi_controls(value) if type(value) is str else value
