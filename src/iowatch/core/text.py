"""Tables for the terminal.

Text from outside as text: characters that would reverse or hide the text next to them are shown as such.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text


class PlainTable(Table):
    """A table of text from files, outputs and people: `[vm:4711]` is text and no markup."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def make_table(*columns: str, right: Sequence[str] = ()) -> PlainTable:
    """A table without frames; columns named in `right` are aligned to the right, long texts are folded."""
    result = PlainTable(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        result.add_column(Text(column), justify="right" if column in right else "left", overflow="fold")
    return result


# Overrides, embeddings and isolates reverse the rest of a line, text of the page included; controls and
# separators are nothing that a page can show.
_BIDI_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def escape_bidi_controls(text: str) -> str:
    """The text with a visible sign in the place of every such character."""
    return _BIDI_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def escape_template_value(value: object) -> object:
    """What templates write: texts are plain, everything else (numbers, finished markup) is as it is."""
    return escape_bidi_controls(value) if type(value) is str else value
