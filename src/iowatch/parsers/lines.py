"""Lines of an output of any size, cleaned of what launchers, terminals and editors add.

Memory stays flat: one block of the output is held at a time (docs/parsers.md, "Speed").
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO

Source = str | bytes | BinaryIO

BLOCK_BYTES = 1 << 18
# A longer line is noise; only its beginning is kept, so that one line cannot fill the memory. (A record of our
# benchio has one number a rank on one line.)
LONGEST_LINE = 1 << 24

# `mpirun --tag-output` ("[1,0]<stdout>:") and `srun --label` ("0: ").
_LABEL = re.compile(r"(?:\[\d+,\d+\]<std(?:out|err|diag)>: ?| *\d{1,7}: )")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
_MARK = "[0123456789 "


def open_source(source: Source) -> BinaryIO:
    """A binary stream of text, bytes or a stream."""
    if isinstance(source, str):
        return io.BytesIO(source.encode("utf-8", "replace"))
    return io.BytesIO(source) if isinstance(source, bytes) else source


def clean(line: str) -> str:
    """One line without launcher label, control characters and trailing blanks."""
    if line[:1] in _MARK:
        label = _LABEL.match(line)
        if label is not None:
            line = line[label.end() :]
    if not line.isprintable():
        line = _CONTROL.sub("", line)
    return line.rstrip()


def readable(text: str) -> str:
    """Text for people from a line (lines are Latin-1, so that no byte is lost or refused)."""
    return text.encode("latin-1", "replace").decode("utf-8", "replace")


class Lines:
    """The lines of a source in blocks.

    Attributes:
        ended: whether the last line ended with a line break (an output that does not was cut off).
        empty: whether nothing but blanks was seen.
    """

    def __init__(self, source: Source, inspect: Callable[[str], None]) -> None:
        """Args:
        source: text, bytes, or a binary stream that is read once from where it stands.
        inspect: called with every block of whole lines (to look for signs of trouble).
        """
        self._stream = open_source(source)
        self._inspect = inspect
        self.ended = True
        self.empty = True

    def blocks(self) -> Iterator[list[str]]:
        """Blocks of raw lines (Latin-1, not cleaned), the last one perhaps cut off."""
        rest = ""
        while data := self._stream.read(BLOCK_BYTES):
            text = data.decode("latin-1")
            if len(rest) >= LONGEST_LINE and "\n" not in text:
                continue
            text = rest + text
            end = text.rfind("\n") + 1
            rest = text[end:]
            if end:
                yield self._whole(text[:end])
        if rest:
            self.ended = False
            yield self._whole(rest)

    def _whole(self, text: str) -> list[str]:
        if self.empty and not text.isspace():
            self.empty = False
        self._inspect(text)
        return text.split("\n")

    def __iter__(self) -> Iterator[str]:
        """Cleaned lines, blank ones left out."""
        for block in self.blocks():
            for raw in block:
                if raw and (line := clean(raw)):
                    yield line
