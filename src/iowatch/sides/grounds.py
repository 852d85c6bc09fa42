"""What a comparison rests on: when and on which nodes each side was measured, and what its libraries were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from iowatch.compare import Measured, Pair
from iowatch.errors import InputError
from iowatch.sides.entries import Entry, Fact
from iowatch.stacks.diff import StackDiff, diff
from iowatch.stacks.model import from_json


class Known(Protocol):
    """What the history knows beside results."""

    def contents(self, numbers: Sequence[int]) -> Mapping[int, Mapping[str, Any]]:
        """`stack.json` by the numbers of contents."""

    def nodes(self, numbers: Sequence[int]) -> Mapping[int, tuple[str, ...]]:
        """Nodes by the numbers of runs; runs of which none are known are left out."""


@dataclass(frozen=True)
class Ground:
    """One side: runs (nights) used, start of the first and the last (epoch s), names of its stacks.

    Attributes:
        contents: numbers, in the history, of what its stacks consisted of.
        rebuilt: whether a stack consisted of something else in some of these runs than in others.
        nodes: all that some of its runs used, as far as they are known.
    """

    runs: int
    first: int
    last: int
    stacks: tuple[str, ...]
    contents: tuple[int, ...]
    rebuilt: bool
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grounds:
    """Both sides; None for files of tables, which have no runs.

    Attributes:
        libraries: what differs between the libraries; None where either side's are not known, or are several.
        elsewhere: of the runs that are compared with each other night by night, and whose nodes are known, how
            many had other nodes than their counterpart, and of how many; None where there are none.
    """

    left: Ground | None
    right: Ground | None
    libraries: StackDiff | None
    elsewhere: tuple[int, int] | None = None


def grounds(pairs: Sequence[Pair], entries: Sequence[tuple[Entry, Entry]], known: Known | None) -> Grounds:
    """What the pairs rest on.

    Args:
        entries: what each of `pairs` was made of.
        known: the history; None where neither side is of one.
    """
    lefts = [(pair.left, entry) for pair, (entry, _) in zip(pairs, entries, strict=True)]
    rights = [(pair.right, entry) for pair, (_, entry) in zip(pairs, entries, strict=True)]
    nodes = _nodes([*lefts, *rights], known)
    left, right = _ground(lefts, nodes), _ground(rights, nodes)
    return Grounds(left, right, _libraries(left, right, known), _elsewhere(lefts, rights, nodes))


_Sides = Sequence[tuple[object, Entry]]
_Nodes = Mapping[int, tuple[str, ...]]


def _nodes(sides: _Sides, known: Known | None) -> _Nodes:
    numbers = {number for one in sides for fact in _facts(*one) if (number := fact.number) is not None}
    return known.nodes(sorted(numbers)) if known is not None and numbers else {}


def _facts(side: object, entry: Entry) -> Iterator[Fact]:
    """Runs of the nights that are compared."""
    if isinstance(side, Measured):
        for night in side.nights:
            yield from entry.facts.get(night, ())


def _ground(sides: _Sides, nodes: _Nodes) -> Ground | None:
    nights = {night for side, _ in sides if isinstance(side, Measured) for night in side.nights}
    facts = {fact for one in sides for fact in _facts(*one)}
    stacks = {
        tuple(entry.axes.get(name, "") for name in ("stack", "system", "partition"))
        for side, entry in sides
        if isinstance(side, Measured)
    }
    if not facts:
        return None
    times = [fact.time for fact in facts]
    contents = {fact.content for fact in facts if fact.content is not None}
    called = tuple(sorted({stack for stack, *_ in stacks if stack}))
    used = {node for fact in facts for node in nodes.get(fact.number or 0, ())}
    return Ground(
        runs=len(nights),
        first=min(times),
        last=max(times),
        stacks=called,
        contents=tuple(sorted(contents)),
        rebuilt=len(contents) > len(stacks),
        nodes=tuple(sorted(used)),
    )


def _elsewhere(lefts: _Sides, rights: _Sides, nodes: _Nodes) -> tuple[int, int] | None:
    """Runs of the same night and case on both sides, and those of them that had other nodes."""
    apart = known = 0
    for (left, one), (right, other) in zip(lefts, rights, strict=True):
        if isinstance(left, Measured) and isinstance(right, Measured):
            for night in left.nights.keys() & right.nights.keys():
                used = [
                    {n for f in entry.facts.get(night, ()) for n in nodes.get(f.number or 0, ())}
                    for entry in (one, other)
                ]
                known += all(used)
                apart += all(used) and used[0] != used[1]
    return (apart, known) if known else None


def _libraries(left: Ground | None, right: Ground | None, known: Known | None) -> StackDiff | None:
    if known is None or not left or not right or not len(left.contents) == len(right.contents) == 1:
        return None
    documents = known.contents([*left.contents, *right.contents])
    try:
        stacks = [from_json(documents[one.contents[0]], "history") for one in (left, right)]
    except InputError:
        return None
    return diff(stacks[0], stacks[1]) if stacks[0].parts and stacks[1].parts else None
