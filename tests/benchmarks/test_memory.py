"""Memory stays flat, whatever fills an output: runs one after the other, names or tests without end."""

from __future__ import annotations

import io
import itertools
import string
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from iowatch.benchmarks.registry import PARSER_ERROR, parse_output
from tests.benchmarks.corpus import DATA

MIB = 1 << 20


def again(name: str) -> Callable[[], Iterator[bytes]]:
    """One output, again and again."""
    return lambda: itertools.repeat((DATA / name).read_bytes())


def numbered(head: str, line: str) -> Callable[[], Iterator[bytes]]:
    """A beginning, then lines that count: `{n}` in digits, `{word}` in letters."""

    def lines() -> Iterator[bytes]:
        yield head.encode()
        words = map("".join, itertools.product(string.ascii_letters, repeat=4))
        for n, word in enumerate(words):
            yield line.format(n=n, word=word).encode()

    return lines


IOR = "IOR-4.0.0: MPI Coordinated Test of Parallel I/O\n"
H5BENCH = "=== Benchmark Configuration ===\n"
DRIVER = "2026-11-21 10:00:00,000 h5bench - INFO - "
START = f"{DRIVER}Starting h5bench Suite\n"
OUTPUTS: list[tuple[str, str, Callable[[], Iterator[bytes]]]] = [
    ("ior", "runs", again("ior-3.2.1-posix.txt")),
    ("ior", "documents", again("ior-3.2.1-json.txt")),
    ("mdtest", "runs", again("mdtest-1.9.3.txt")),
    ("benchio", "tables", again("benchio-table.txt")),
    ("h5bench", "programs", again("h5bench-1.6-aligned.txt")),
    ("ior", "tests", numbered(IOR, "TestID              : {n}\n")),
    ("ior", "options", numbered(f"{IOR}Options:\n", "abc {word} : 1\n")),
    ("h5bench", "configuration", numbered(H5BENCH, "Dim_{word}: {n}\n")),
    ("h5bench", "rows of CSV", numbered("metric, value, unit\n", "{word}, {n}, s\n")),
    ("h5bench", "starts", numbered(START, f"{DRIVER}h5bench [{{n}}] - Starting\n")),
    ("h5bench", "errors", numbered(START, f"{DRIVER[:-7]}ERROR - {{word}}\n")),
    ("benchio", "methods", numbered(" Using the following IO methods\n", " mpiio\n")),
]
WHOLE = {"runs", "documents", "tables", "programs"}


def peak_bytes(tool: str, pieces: Iterator[bytes], size: int) -> int:
    """Most memory of Python while `size` bytes are parsed, the output itself not counted."""
    data = bytearray()
    while len(data) < size:
        data += next(pieces)
    stream = io.BytesIO(data)
    tracemalloc.start()
    try:
        output = parse_output(tool, stream)
        assert output.status != "ok"
        assert not str(output.reason).startswith(PARSER_ERROR)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("tool", "what", "pieces"), OUTPUTS, ids=lambda value: value if type(value) is str else "")
def test_more_output_takes_no_more_memory(tool: str, what: str, pieces: Callable[[], Iterator[bytes]]) -> None:
    """Whole runs are long; of short lines as many as fill what is kept at most are few bytes."""
    sizes = (5 * MIB // 2, 5 * MIB) if what in WHOLE else (MIB // 2, 3 * MIB // 2)
    small, large = (peak_bytes(tool, pieces(), size) for size in sizes)
    assert large < small + 2 * MIB, f"{what}: {small / MIB:.1f} MiB, then {large / MIB:.1f} MiB"
    assert large < 40 * MIB
