"""Every parser needs time in proportion to the length of its input, whatever the input contains.

Each output is made longer in three ways: by one long line without blanks, by many equal lines, by many copies of the
whole. An input that takes unusually long is measured with half of its size, too: a parser that is quadratic needs four
times as long for the double, and some hundred times as long as others for these sizes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from iowatch.benchmarks import hints, registry
from iowatch.benchmarks.parsing import OutputBuilder, RunContext
from iowatch.benchmarks.registry import parse_output
from iowatch.benchmarks.time_limit import TimeLimitError, limited_time
from iowatch.core import InputError, parse_size
from tests.benchmarks.corpus import DATA, outputs


def tool_of(path: Path) -> str:
    """The benchmark whose output a file is, by the beginning of its name."""
    return path.name.partition("-")[0]


# One output of each benchmark, then the others.
_FIRST_OF_TOOL = {tool_of(path): path for path in sorted(DATA.iterdir(), reverse=True)}
OUTPUTS = [*_FIRST_OF_TOOL.values(), *sorted({*DATA.iterdir()} - {*_FIRST_OF_TOOL.values()})]
# Bytes of a long line, repetitions of a line, and bytes of copies of an output. A quadratic search of this line takes
# more than a second, a linear one some milliseconds.
LINE_BYTES, LINES, COPIES_BYTES = 1 << 16, 4000, 1 << 18
# Seconds of processor time from which an input is unusual, and how much longer the double size may take then.
UNUSUAL_S, MOST_TIMES = 0.5, 3.0
# What may begin, join or end the words, numbers, options, quotes, brackets and labels that parsers search.
FILLINGS = ["-", "a", "1", "=", ",", "(", "[", ".", '"', "\t", " ", "a=", "1.", "1 ", "a ", "_", "<", "\x1b[", "[1] "]
FILLINGS += ["ncmpi_", "mca_", "walltime ", "WARNING: ", "key = a value ", "00:00", "a: ", "write "]
# Of the ways to make a captured output longer one in so many is tried: there are hundreds of these outputs.
GROWTH_STEP = 42
Make = Callable[[int], bytes]


@dataclass(frozen=True)
class Growth:
    """How an output is made longer: `make` returns it with a size, the largest of which is `size`."""

    name: str
    make: Make
    size: int


def _with_long_line(output: bytes, position: int, filling: bytes) -> Make:
    """The output with a text of a number of bytes at a position; it is a word, or joins the words beside it."""
    return lambda size: output[:position] + (filling * size)[:size] + output[position:]


def _with_lines(output: bytes, line: bytes) -> Make:
    position = output.find(line)
    return lambda count: output[:position] + (line + b"\n") * count + output[position:]


def growths(output: bytes) -> Iterator[Growth]:
    """All ways to make an output longer."""
    middle, end = output.find(b" ", len(output) // 2), output.rfind(b"\n", 0, len(output) - 1)
    third = output.find(b"\n", len(output) // 3) + 1
    for filling in FILLINGS:
        for position in (middle, third, end):
            make = _with_long_line(output, position, filling.encode())
            yield Growth(f"{filling!r} at {position}", make, LINE_BYTES)
    # Lines of each form once: forms differ in more than their digits.
    lines = {re.sub(rb"\d+", b"0", line): line for line in output.split(b"\n")}
    for line in [*lines.values()][:: max(1, len(lines) // 12)]:
        yield Growth(f"lines {line[:60]!r}", _with_lines(output, line), LINES)
    # Some captured outputs are empty.
    copies = max(2, COPIES_BYTES // max(1, len(output)))
    yield Growth("copies", lambda count: output * count, copies)


def seconds(parse: Callable[[bytes], object], text: bytes) -> float:
    """Processor time of one call; the limit of a session ends a hopeless one."""
    begin = time.process_time()
    parse(text)
    return time.process_time() - begin


def superlinear(parse: Callable[[bytes], object], growth: Growth) -> str | None:
    """What is wrong with the time of a parser for an input that grows; None if it is in proportion to its size."""
    whole_s = seconds(parse, growth.make(growth.size))
    if whole_s < UNUSUAL_S:
        return None
    # What else the machine does only adds to times: the shortest of three is that of the parser.
    half_s = min(seconds(parse, growth.make(growth.size // 2)) for _ in range(3))
    whole_s = min(seconds(parse, growth.make(growth.size)) for _ in range(3))
    if whole_s < max(UNUSUAL_S, MOST_TIMES * half_s):
        return None
    return f"{growth.name}: {half_s:.2f} s for half of the size, {whole_s:.2f} s for the whole"


@pytest.mark.slow_after(len(_FIRST_OF_TOOL))
@pytest.mark.parametrize("path", OUTPUTS, ids=lambda path: path.name)
def test_time_to_parse_is_in_proportion_to_the_length(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "PARSING_LIMIT_S", 10.0)

    def parse(text: bytes) -> object:
        return parse_output(tool_of(path), text, RunContext(fresh=True))

    output = path.read_bytes()
    faults = [fault for growth in growths(output) if (fault := superlinear(parse, growth))]
    assert faults == []


@pytest.mark.slow
def test_time_to_parse_captured_outputs_is_in_proportion_to_the_length() -> None:
    """Those that were captured from many versions, each with some of the fillings; together they have all."""
    faults: list[str] = []
    for number, (tool, path) in enumerate(outputs()):
        output = path.read_bytes()[:COPIES_BYTES]

        def parse(text: bytes, tool: str = tool) -> object:
            return parse_output(tool, text, RunContext(fresh=True))

        for growth in [*growths(output)][number % GROWTH_STEP :: GROWTH_STEP]:
            fault = superlinear(parse, growth)
            if fault is not None:
                faults.append(f"{path}: {fault}")
    assert faults == []


def test_every_benchmark_has_an_output_here() -> None:
    """A new parser is examined, too."""
    assert {tool_of(path) for path in OUTPUTS} == {*registry.BENCHMARKS}


@pytest.mark.parametrize("filling", FILLINGS)
def test_hints_and_sizes_are_read_in_proportion_to_their_length(filling: str) -> None:
    """What checks search beside the parsers: lines of hints of MPI-IO, and sizes."""

    def read(text: bytes) -> object:
        line = text.decode()
        with suppress(InputError):
            parse_size(line)
        return hints.read_hints([line, f"key = cb_nodes value = {line}x", f" romio_cb_write = {line} x"])

    for start in ("key = cb_nodes value = a", "1", "File: a info: "):
        make = _with_long_line(f"{start}x".encode(), len(start), filling.encode())
        assert superlinear(read, Growth(start, make, LINE_BYTES)) is None


def _never_ends(builder: OutputBuilder, *_: object) -> None:
    """A regular expression that tries all ways to divide a line."""
    builder.version = str(re.fullmatch("(a*)*b", "a" * 60))


def test_a_parser_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any session, also without a budget: the output is incomplete, with the reason, and the session goes on."""
    monkeypatch.setattr(registry, "PARSING_LIMIT_S", 0.2)
    benchmark = replace(registry.BENCHMARKS["ior"], parse=_never_ends)
    monkeypatch.setattr(registry, "get_benchmark", lambda _name: benchmark)
    begin = time.process_time()
    output = parse_output("ior", b"x", RunContext())
    assert time.process_time() - begin < 5
    assert (output.status, output.results) == ("incomplete", ())
    assert output.reason is not None
    assert "not read within 0 s of processor time" in output.reason


def test_code_that_catches_all_exceptions_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a plugin may."""

    def never_ends() -> None:
        while True:
            try:
                sum(range(1000))
            except Exception:
                continue

    with pytest.raises(TimeLimitError), limited_time(0.1):
        never_ends()
    # Nothing is left that would stop what follows.
    begin = time.process_time()
    while time.process_time() - begin < 0.3:
        sum(range(1000))
