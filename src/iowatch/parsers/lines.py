"""Lines of an output of any size, cleaned of what launchers, terminals and editors add.

Memory stays flat: one block of the output is held at a time. Cleaning works on whole blocks, so that a line
costs little (bench/parsers.py).
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

# All control characters but tab, line feed and escape.
_CONTROLS = bytes({*range(32), 127} - {9, 10, 27})
# Colours and the cursor; titles of windows; character sets (`tput sgr0`); what is left of others.
_ESCAPE = re.compile(rb"\x1b\[[0-?]*[@-~]|\x1b\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|\x1b[()*+][0-9A-Za-z]|\x1b")
# What some editors of Windows put before everything.
_MARK = b"\xef\xbb\xbf"
# `mpirun --tag-output` ("[1,0]<stdout>:") and `srun --label` ("0: ").
_TAG = re.compile(rb"^\[\d+,\d+\]<std(?:out|err|diag)>: ?", re.MULTILINE)
_LABEL = re.compile(rb"^ *\d{1,7}: ", re.MULTILINE)
_FIRST_LABELS = (b"\n0: ", b"\n 0: ", b"\n  0: ", b"\n   0: ", b"\n    0: ")


def open_source(source: Source) -> BinaryIO:
    """A binary stream of text, bytes or a stream."""
    if isinstance(source, str):
        return io.BytesIO(source.encode("utf-8", "replace"))
    return io.BytesIO(source) if isinstance(source, bytes) else source


def clean(block: bytes) -> bytes:
    """Whole lines without launcher labels and control characters."""
    if b"\x1b" in block:
        block = _ESCAPE.sub(b"", block)
    block = block.translate(None, _CONTROLS)
    if b">:" in block:
        block = _TAG.sub(b"", block)
    if _LABEL.match(block) or (b"0: " in block and any(label in block for label in _FIRST_LABELS)):
        block = _LABEL.sub(b"", block)
    return block


def readable(text: str) -> str:
    """Text for people from a line (lines are Latin-1, so that no byte is lost or refused)."""
    return text.encode("latin-1", "replace").decode("utf-8", "replace")


class Lines:
    """The lines of a source.

    Attributes:
        ended: whether the last line ended with a line break (an output that does not was cut off).
        empty: whether nothing but blanks was seen.
        decided: set by a reader for which nothing that follows can change what is believed, as where a second
            run begins; the lines of further blocks are then only inspected.
    """

    def __init__(self, source: Source, inspect: Callable[[bytes], None]) -> None:
        """Args:
        source: text, bytes, or a binary stream that is read once from where it stands.
        inspect: called with every block of whole, cleaned lines (to look for signs of trouble).
        """
        self._stream = open_source(source)
        self._inspect = inspect
        self.ended = True
        self.empty = True
        self.decided = False

    def blocks(self) -> Iterator[bytes]:
        """Blocks of whole lines, cleaned; the last line perhaps cut off."""
        rest, mark = b"", _MARK
        while data := self._stream.read(BLOCK_BYTES):
            data, mark = data.removeprefix(mark), b""
            if len(rest) >= LONGEST_LINE and b"\n" not in data:
                continue
            data = rest + data
            end = data.rfind(b"\n") + 1
            rest = data[end:]
            if end:
                yield self._whole(data[:end])
        if rest:
            self.ended = False
            yield self._whole(rest)

    def _whole(self, data: bytes) -> bytes:
        block = clean(data)
        if self.empty and not block.isspace():
            self.empty = not block
        self._inspect(block)
        return block

    def __iter__(self) -> Iterator[str]:
        """Lines as Latin-1 without trailing blanks, blank ones left out."""
        for block in self.blocks():
            for line in [] if self.decided else block.decode("latin-1").split("\n"):
                if line := line.rstrip():
                    yield line
