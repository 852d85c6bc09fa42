"""Parser memory does not grow with the output: repeated runs, or an endless number of names or tests."""

from __future__ import annotations

import io
import itertools
import string
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import PARSER_ERROR, parse_output
from tests.benchmarks.corpus import DATA

MIB = 1 << 20


def repeated(name: str) -> Callable[[], Iterator[bytes]]:
    """One output, repeated without end."""
    return lambda: itertools.repeat((DATA / name).read_bytes())


def numbered(head: str, line: str) -> Callable[[], Iterator[bytes]]:
    """A header, then numbered lines: `{n}` in digits, `{word}` in letters."""

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
    ("ior", "runs", repeated("ior-3.2.1-posix.txt")),
    ("ior", "documents", repeated("ior-3.2.1-json.txt")),
    ("mdtest", "runs", repeated("mdtest-1.9.3.txt")),
    ("benchio", "tables", repeated("benchio-table.txt")),
    ("h5bench", "programs", repeated("h5bench-1.6-aligned.txt")),
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
    """Peak Python memory while `size` bytes are parsed, without the output itself."""
    data = bytearray()
    while len(data) < size:
        data += next(pieces)
    stream = io.BytesIO(data)
    tracemalloc.start()
    try:
        output = parse_output(tool, stream, RunContext())
        assert output.status != "ok"
        assert not str(output.reason).startswith(PARSER_ERROR)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize(("tool", "what", "pieces"), OUTPUTS, ids=lambda value: value if type(value) is str else "")
def test_parser_memory_does_not_grow_with_output_size(
    tool: str, what: str, pieces: Callable[[], Iterator[bytes]]
) -> None:
    """Complete runs need larger outputs; for short lines, few bytes reach the maximum that the parser keeps."""
    sizes = (5 * MIB // 2, 5 * MIB) if what in WHOLE else (MIB // 2, 3 * MIB // 2)
    small, large = (peak_bytes(tool, pieces(), size) for size in sizes)
    assert large < small + 2 * MIB, f"{what}: {small / MIB:.1f} MiB, then {large / MIB:.1f} MiB"
    assert large < 40 * MIB
