"""Damage to real outputs, as caused by transfers, full disks, launchers, editors and manual editing.

Every function takes the output, another output and a random generator, and returns the damaged output.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable

Mutation = Callable[[bytes, bytes, random.Random], bytes]

_NUMBER = re.compile(rb"(?<![\d.])\d+(?:\.\d+)?")
_ALPHANUMERIC = (string.ascii_letters + string.digits).encode()
_DIGIT = re.compile(rb"\d")
_UNIT = re.compile(rb"(?<=\d )[KMGT ](?=i?B)|(?<=[( ])[KMGT](?=i?B\b)")
_LABELS = (
    b"0: ",
    b"[0] ",
    b"[0]",
    b"[1,0]<stdout>:",
    b"[prterun-n1-8748@1,0]<stdout>: ",
    b"Mon Nov 23 01:16:57 2026<stdout>:",
)
_WARNINGS = (
    b"[n1:1234] [[INVALID],0] btl warning: hfi_userinit: assign_context command failed\n",
    b"slurmstepd: info: task 3 has used 98% of its memory\n",
    b'WARNING: The file "/scratch/f" exists already and will be overwritten\n',
    b'Lmod is automatically replacing "cce/15.0.0" with "gcc/11.2.0".\n',
    b"real 0.1\nuser 12.5\nsys 3.25\n",
    b"write 1.0 read 2.0 done\n",
    b"\n \n",
)


def _lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


def _span(data: bytes, pattern: re.Pattern[bytes], rng: random.Random) -> tuple[int, int] | None:
    """One match, chosen without walking through a large output more than once."""
    if not data:
        return None
    start = rng.randrange(len(data))
    match = pattern.search(data, start) or pattern.search(data)
    return match.span() if match else None


def truncate_end(data: bytes, _other: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def truncate_start(data: bytes, _other: bytes, rng: random.Random) -> bytes:
    return data[rng.randrange(len(data) + 1) :]


def lose_lines(data: bytes, _other: bytes, rng: random.Random) -> bytes:
    lines = _lines(data)
    for _ in range(rng.randint(1, 3)):
        if lines:
            del lines[rng.randrange(len(lines))]
    return b"".join(lines)


def lose_block(data: bytes, _other: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start + rng.choice((1, 7, 64, 512, 4096)) :]


def double_lines(data: bytes, _other: bytes, rng: random.Random) -> bytes:
    lines = _lines(data)
    if lines:
        at = rng.randrange(len(lines))
        many = rng.choice((1, 1, 2, 10))
        lines[at:at] = lines[at : at + many]
    return b"".join(lines)


def _shape(line: bytes) -> bytes:
    return re.sub(rb"[-\d.E+ ]+", b"", line.partition(b" : ")[0])


def swap_lines(data: bytes, _other: bytes, rng: random.Random) -> bytes:
    """Swap two lines of different form; a swap of two rows, or of an option of two tests, cannot be detected."""
    lines = _lines(data)
    if len(lines) > 1:
        a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
        if _shape(lines[a]) != _shape(lines[b]):
            lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


def interleave(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Mix in the lines of another run; each keeps its order."""
    mine, theirs = _lines(data), _lines(other)[:400]
    merged: list[bytes] = []
    while mine or theirs:
        source = mine if mine and (not theirs or rng.random() < 0.6) else theirs
        many = rng.randint(1, 6)
        merged += source[:many]
        del source[:many]
    return b"".join(merged)


def insert_line_in_line(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Insert a line of another process within a line."""
    at = rng.randrange(len(data) + 1)
    lines = _lines(other) or [b"x\n"]
    return data[:at] + rng.choice((rng.choice(lines), rng.choice(_WARNINGS))) + data[at:]


def lose_digit(data: bytes, _other: bytes, rng: random.Random) -> bytes:
    span = _span(data, _DIGIT, rng)
    return data if span is None else data[: span[0]] + data[span[1] :]


def change_digit(data: bytes, _other: bytes, rng: random.Random) -> bytes:
    span = _span(data, _DIGIT, rng)
    return data if span is None else data[: span[0]] + rng.choice(b"0123456789").to_bytes() + data[span[1] :]


def change_unit(data: bytes, _other: bytes, rng: random.Random) -> bytes:
    """Replace the prefix of a unit."""
    span = _span(data, _UNIT, rng)
    return data if span is None else data[: span[0]] + rng.choice((b"K", b"M", b"G", b"T", b"")) + data[span[1] :]


def label_lines(data: bytes, _other: bytes, rng: random.Random) -> bytes:
    """Add the label of a launcher to each line."""
    label = rng.choice(_LABELS)
    return b"".join(label + line for line in _lines(data))


def double_block(data: bytes, _other: bytes, rng: random.Random) -> bytes:
    """Repeat lines, or the whole output, directly or at the end."""
    lines = _lines(data)
    start = rng.randrange(len(lines) + 1)
    block = lines[start : start + rng.choice((20, 50, len(lines)))]
    at = rng.choice((start, len(lines)))
    return b"".join([*lines[:at], *block, *lines[at:]])


def double_digit(data: bytes, _other: bytes, rng: random.Random) -> bytes:
    span = _span(data, _DIGIT, rng)
    return data if span is None else data[: span[1]] + data[span[0] :]


def impossible_number(data: bytes, _other: bytes, rng: random.Random) -> bytes:
    """Replace a number by an impossible one."""
    span = _span(data, _NUMBER, rng)
    if span is None:
        return data
    word = rng.choice((b"nan", b"-nan", b"inf", b"-inf", b"NaN", b"Infinity", b"****", b"1e400", b"-1"))
    return data[: span[0]] + word + data[span[1] :]


def huge_number(data: bytes, _other: bytes, rng: random.Random) -> bytes:
    span = _span(data, _NUMBER, rng)
    if span is None:
        return data
    return data[: span[0]] + rng.choice((b"9" * 7, b"9" * 30, b"9" * 400, b"1e30")) + data[span[0] :]


def decimal_comma(data: bytes, _other: bytes, rng: random.Random) -> bytes:
    comma = re.compile(rb"(?<=\d)\.(?=\d)")
    return comma.sub(b",", data, count=rng.choice((0, 0, 1, 5)))


def insert_warnings(data: bytes, _other: bytes, rng: random.Random) -> bytes:
    lines = _lines(data)
    for _ in range(rng.choice((1, 3, 50))):
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(_WARNINGS))
    return b"".join(lines)


def noise(data: bytes, _other: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    # A single letter or digit among options or numbers is another option or number, not noise.
    junk = rng.randbytes(rng.choice((1, 3, 40, 5000))).translate(None, _ALPHANUMERIC)
    return data[:at] + junk + data[at + rng.choice((0, len(junk))) :]


def concatenate(data: bytes, other: bytes, rng: random.Random) -> bytes:
    return rng.choice((data + other, other + data, data + data))


def several_mutations(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Apply several mutations to one output."""
    for _ in range(rng.randint(2, 4)):
        data = rng.choice(SINGLE_MUTATIONS)(data, other, rng)
    return data


SINGLE_MUTATIONS: tuple[Mutation, ...] = (
    *(
        truncate_end,
        truncate_start,
        lose_lines,
        lose_block,
        double_lines,
        swap_lines,
        insert_line_in_line,
        lose_digit,
        impossible_number,
        double_block,
    ),
    *(huge_number, decimal_comma, insert_warnings, noise),
)
# An added digit can often not be detected: the number is printed only once.
UNDETECTABLE: tuple[Mutation, ...] = (double_digit,)
# Other digits or units give other numbers, which must be refused if they are wrong by more than 1 %.
OTHER_NUMBERS: tuple[Mutation, ...] = (change_digit, change_unit)
MUTATIONS: tuple[Mutation, ...] = (
    *SINGLE_MUTATIONS,
    truncate_end,
    lose_digit,
    interleave,
    concatenate,
    several_mutations,
    label_lines,
    *UNDETECTABLE,
    *(change_digit, change_digit, change_digit, change_digit, change_unit, change_unit),
)
