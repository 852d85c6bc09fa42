"""Names of nodes as one text, in the way of Slurm's host lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

_NUMBERED = re.compile(r"(.*?)([0-9]+)", re.DOTALL)
_PART = re.compile(r"([^,\[\]]+)(?:\[([0-9,-]+)\])?(?:,|$)")


def fold(names: Sequence[str]) -> str:
    """Names of nodes as Slurm writes them: n1, n2, n3, n7 is `n[1-3,7]`; a last number is folded, nothing else.

    `unfold` gives the names back in their order unless they have commas or brackets: compare.
    """
    return ",".join(_folded(prefix, list(alike)) for prefix, alike in groupby(map(_parted, names), _prefix))


def unfold(text: str) -> tuple[str, ...]:
    """The names of `fold`."""
    return tuple(name for part in _PART.finditer(text) for name in _unfolded(part[1], part[2]))


def _parted(name: str) -> tuple[str, str]:
    numbered = _NUMBERED.fullmatch(name)
    return (numbered[1], numbered[2]) if numbered else (name, "")


def _prefix(parted: tuple[str, str]) -> tuple[str, bool]:
    return parted[0], bool(parted[1])


def _folded(prefix: tuple[str, bool], alike: Sequence[tuple[str, str]]) -> str:
    numbers = [number for _, number in alike]
    if not prefix[1] or len(numbers) == 1:
        return ",".join(name + number for name, number in alike)
    return f"{prefix[0]}[{','.join(_ranges(numbers))}]"


def _ranges(numbers: Sequence[str]) -> Iterator[str]:
    """Numbers of one width that follow each other become `first-last`."""
    keyed = enumerate(numbers)
    for _, run in groupby(keyed, key=lambda pair: (len(pair[1]), int(pair[1]) - pair[0])):
        found = [number for _, number in run]
        yield found[0] if len(found) == 1 else f"{found[0]}-{found[-1]}"


def _unfolded(prefix: str, ranges: str | None) -> Iterator[str]:
    if ranges is None:
        yield prefix
        return
    for one in ranges.split(","):
        first, _, last = one.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield f"{prefix}{number:0{len(first)}d}"
