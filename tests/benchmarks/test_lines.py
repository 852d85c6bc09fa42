"""Cleaning of lines: additions of launchers and terminals are removed, and memory stays bounded."""

from __future__ import annotations

import io

import pytest

from iowatch.benchmarks.parsing import BLOCK_BYTES, MAX_LINE_BYTES, CleanLines, decode_for_display


def _lines(source: str | bytes) -> list[str]:
    return list(CleanLines(source, lambda block: None))


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        (b"[1,0]<stdout>:write 1\n", "write 1"),
        (b"[1,12]<stderr>: write 1\n", "write 1"),
        (b"Mon Nov 23 01:16:57 2026[1,0]<stdout>:   write 1\n[1,0]<stdout>:end\n", "   write 1"),
        (b"[prterun-n1-8748@1,0]<stdout>:    write 1\n", "   write 1"),
        (b"[0]    write 1\n[0] \n[0]    read\n", "   write 1"),
        (b"[0]   write [0]1\n[0]\n[0]end\n", "   write 1"),
        (b"[0] write [1] 1\n", "write [1] 1"),
        (b"[1] 4711\nwrite\nread\n", "[1] 4711"),
        (b"0: write 1\n", "write 1"),
        (b"  3: write 1\r\n", "write 1"),
        (b"\x00write\x07 1\x1b[0m  \n", "write 1"),
        (b"\x1b]0;job 7\x07write\x1b(B\x1b[m 1\x1b[38;5;2m\n", "write 1"),
        (b"\xef\xbb\xbfwrite 1\n", "write 1"),
        (b"11/20/2026 12:20:40: Process 0\n", "11/20/2026 12:20:40: Process 0"),
        (b"\tapi = POSIX\n", "\tapi = POSIX"),
    ],
)
def test_launcher_prefixes_and_escapes_are_removed(raw: bytes, cleaned: str) -> None:
    assert _lines(raw)[0] == cleaned


def test_bytes_that_are_not_utf8_are_kept_and_displayable() -> None:
    (line,) = _lines(b"path /scratch/\xff\xfe\n")
    assert line.encode("latin-1").endswith(b"\xff\xfe")
    assert decode_for_display(line) == "path /scratch/��"
    assert decode_for_display(_lines("é".encode())[0]) == "é"


def test_lines_across_block_boundaries_are_complete() -> None:
    text = "".join(f"line {n} {'x' * (n % 97)}\n" for n in range(20_000))
    assert len(text) > 3 * BLOCK_BYTES
    assert _lines(text) == [line.rstrip() for line in text.rstrip("\n").split("\n")]


def test_endless_line_is_truncated() -> None:
    class Endless(io.RawIOBase):
        left = 3 * MAX_LINE_BYTES

        def read(self, size: int = -1) -> bytes:
            size = min(size, self.left)
            self.left -= size
            return b"x" * size

    lines = CleanLines(Endless(), lambda block: None)
    assert [len(line) for line in lines] == [MAX_LINE_BYTES]
    assert not lines.ended


@pytest.mark.parametrize(("text", "ended", "empty"), [("", True, True), (" \n\n", True, True), ("a", False, False)])
def test_last_line_without_newline_is_detected(text: str, ended: bool, empty: bool) -> None:
    lines = CleanLines(text, lambda block: None)
    assert len(list(lines)) == (not empty)
    assert (lines.ended, lines.empty) == (ended, empty)
