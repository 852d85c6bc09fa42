"""What a comparison rests on: when each side was measured, and what its libraries were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iowatch.compare import Measured, Pair
from iowatch.errors import InputError
from iowatch.sides.entries import Entry
from iowatch.stacks.diff import StackDiff, diff
from iowatch.stacks.model import from_json

Documents = Callable[[Sequence[int]], Mapping[int, Mapping[str, Any]]]


@dataclass(frozen=True)
class Ground:
    """One side: runs (nights) used, start of the first and the last (epoch s), names of its stacks.

    Attributes:
        contents: numbers, in the history, of what its stacks consisted of.
        rebuilt: whether a stack consisted of something else in some of these runs than in others.
    """

    runs: int
    first: int
    last: int
    stacks: tuple[str, ...]
    contents: tuple[int, ...]
    rebuilt: bool


@dataclass(frozen=True)
class Grounds:
    """Both sides; None for files of tables, which have no runs.

    Attributes:
        libraries: what differs between the libraries; None where either side's are not known, or are several.
    """

    left: Ground | None
    right: Ground | None
    libraries: StackDiff | None


def grounds(
    pairs: Sequence[Pair], entries: Sequence[tuple[Entry, Entry]], documents: Documents | None
) -> Grounds:
    """What the pairs rest on.

    Args:
        entries: what each of `pairs` was made of.
        documents: reads contents of stacks (`stack.json`) by their numbers; None without a history.
    """
    left = _ground((pair.left, entry) for pair, (entry, _) in zip(pairs, entries, strict=True))
    right = _ground((pair.right, entry) for pair, (_, entry) in zip(pairs, entries, strict=True))
    return Grounds(left, right, _libraries(left, right, documents))


def _ground(sides: Iterator[tuple[object, Entry]]) -> Ground | None:
    nights: set[str] = set()
    facts: set[tuple[int, int | None]] = set()
    stacks: set[tuple[str, ...]] = set()
    for side, entry in sides:
        if isinstance(side, Measured):
            nights |= side.nights.keys()
            facts.update(*(entry.facts.get(night, ()) for night in side.nights))
            stacks.add(tuple(entry.axes.get(name, "") for name in ("stack", "system", "partition")))
    if not facts:
        return None
    times = [time for time, _ in facts]
    contents = {content for _, content in facts if content is not None}
    called = tuple(sorted({stack for stack, *_ in stacks if stack}))
    rebuilt = len(contents) > len(stacks)
    return Ground(len(nights), min(times), max(times), called, tuple(sorted(contents)), rebuilt)


def _libraries(left: Ground | None, right: Ground | None, documents: Documents | None) -> StackDiff | None:
    if documents is None or not left or not right or not len(left.contents) == len(right.contents) == 1:
        return None
    known = documents([*left.contents, *right.contents])
    try:
        stacks = [from_json(known[one.contents[0]], "history") for one in (left, right)]
    except InputError:
        return None
    return diff(stacks[0], stacks[1]) if stacks[0].parts and stacks[1].parts else None
