"""Sequences of accesses to patterns: nested repeats whose offsets are linear in the turn and in the rank.

A `Step` is something that several ranks do once, each at a place of its own; `fold_steps` finds the repeats, and
`describe_ranks` the expression (docs/workloads.md, "Description") that gives each rank its number. Nothing is lost.
The method is that of ScalaTrace's power regular section descriptors (Noeth et al., 2009), with one vector of places
over all ranks instead of a merge of trees.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from iowatch.applications.workloads.divisions import Division, Pieces

Places = NDArray[np.int64]

# Longest body of a repeat.
_WINDOW = 128
# What is still so long has few patterns; shorter bodies are searched then.
_LONG, _SHORT_WINDOW = 2_000, 16
# Ranks whose numbers follow no rule are listed one by one up to this many.
_MAX_LISTED_RANKS = 128


class Key(NamedTuple):
    """What an action does, without its places.

    Attributes:
        verb: as in a description; `compute` for a pause.
        file: its name in the description.
        mode: of `create` and `open`; None for the default.
        scatter: number of accesses and step of the order in which they are scattered over their range; None otherwise.
        division: of the array of which each rank accesses a part, or the pieces of each rank; None: bytes in a row.
        viewed: whether these bytes in a row are accessed through a file view.
        short: whether a read may reach behind the end of the file.
    """

    verb: str
    file: str = ""
    collective: bool = False
    mode: str | None = None
    scatter: tuple[int, int] | None = None
    division: Division | Pieces | None = None
    viewed: bool = False
    short: bool = False

    @property
    def is_row(self) -> bool:
        """Whether it reads or writes bytes in a row, at a place that a `stride` can move."""
        return self.verb in _TRANSFERS and self.scatter is None and self.division is None and not self.viewed


_TRANSFERS = ("read", "write")
# Rows of `Step.places`.


@dataclass(frozen=True, eq=False)
class Step:
    """What ranks do once: equal keys mean the same action.

    Attributes:
        key: what is done.
        ranks: who does it, in ascending order.
        places: (k, n) for n ranks: k numbers of the action, for example number of the file, offset, size.
        strides: of each repeat around it, the innermost first: (k, n), added per turn.
        seconds, times: total of a pause, and of how many.
    """

    key: Key
    ranks: tuple[int, ...]
    places: Places
    strides: tuple[Places, ...] = ()
    seconds: float = 0.0
    times: int = 1

    @cached_property
    def shape(self) -> int:
        """Equal for steps that differ in their places only."""
        return hash((self.key, self.ranks, *(stride.tobytes() for stride in self.strides)))

    @cached_property
    def head(self) -> tuple[int, ...]:
        """The places of the first rank."""
        return tuple(self.places[:, 0].tolist())

    @property
    def steps(self) -> tuple[Step, ...]:
        """Itself: the steps of a body are read in the same way as those of a repeat."""
        return (self,)


@dataclass(frozen=True, eq=False)
class Repeat:
    """`count` turns of a body; the outermost stride of each of its steps is that of this repeat."""

    count: int
    body: tuple[Node, ...]
    shape: int = field(default=0, repr=False)
    inner_shapes: tuple[int, ...] = field(default=(), repr=False)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """All steps of the body, in order."""
        return tuple(step for node in self.body for step in node.steps)


Node = Step | Repeat


def _build_repeat(count: int, body: Sequence[Node], inner_shapes: tuple[int, ...]) -> Repeat:
    return Repeat(count, tuple(body), hash((count, *(node.shape for node in body))), inner_shapes)


def _steps_of(nodes: Sequence[Node]) -> list[Step]:
    return [step for node in nodes for step in node.steps]


def _add_strides(node: Node, strides: Iterator[Places]) -> Node:
    """The node with one more stride, that of a new repeat around it, for each of its steps."""
    if isinstance(node, Step):
        return replace(node, strides=(*node.strides, next(strides)))
    return _build_repeat(node.count, [_add_strides(inner, strides) for inner in node.body], node.inner_shapes)


def _add_pauses(node: Node, others: Iterator[Step]) -> Node:
    """The node with the pauses of the corresponding steps added."""
    if isinstance(node, Step):
        other = next(others)
        return replace(node, seconds=node.seconds + other.seconds, times=node.times + other.times)
    body = tuple(_add_pauses(inner, others) for inner in node.body)
    return replace(node, body=body)


def _extended(stack: list[Node], length: int) -> Repeat | None:
    """The repeat before the last `length` nodes with one more turn, if they are one."""
    repeat = stack[-1 - length]
    if not isinstance(repeat, Repeat) or len(repeat.body) != length:
        return None
    turn = stack[-length:]
    if any(node.shape != shape for node, shape in zip(turn, repeat.inner_shapes, strict=True)):
        return None
    pairs = zip(repeat.steps, _steps_of(turn), strict=True)
    if not all(np.array_equal(old.places + repeat.count * old.strides[-1], new.places) for old, new in pairs):
        return None
    body = [*map(_add_pauses, repeat.body, _split(repeat.body, _steps_of(turn)))]
    return _build_repeat(repeat.count + 1, body, repeat.inner_shapes)


def _split(nodes: Sequence[Node], steps: Sequence[Step]) -> Iterator[Iterator[Step]]:
    """The steps that correspond to each node."""
    at = 0
    for node in nodes:
        yield iter(steps[at : at + len(node.steps)])
        at += len(node.steps)


def _folded(stack: list[Node], length: int) -> Repeat | None:
    """The last two or three blocks of `length` nodes as a repeat, if they are one.

    Two are enough if all steps with one key move by the same, and if they are more than a single step; three if each
    step moves by the same twice. The places of the first rank, the last step first, refute nearly all.
    """
    rigid, thrice = length > 1 or isinstance(stack[-1], Repeat), len(stack) >= 3 * length
    moves: dict[tuple[Key, tuple[int, ...]], tuple[int, ...]] = {}
    for at in range(1, length + 1):
        last, before = stack[-at], stack[-at - length]
        third = stack[-at - 2 * length] if thrice else before
        thrice = thrice and third.shape == before.shape
        if last.shape != before.shape:
            return None
        for c, b, a in zip(last.steps, before.steps, third.steps if thrice else before.steps, strict=True):
            move = tuple(map(operator.sub, c.head, b.head))
            rigid = rigid and moves.setdefault((c.key, c.ranks), move) == move
            thrice = thrice and move == tuple(map(operator.sub, b.head, a.head))
        if not (rigid or thrice):
            return None
    turns = [stack[-2 * length : -length], stack[-length:]]
    shifts = _shifts(*turns)
    if rigid and _is_rigid(turns[1], shifts):
        return _repeat_of(turns, shifts)
    turns = [stack[-3 * length : -2 * length], *turns]
    return _repeat_of(turns, shifts) if thrice and _is_equal(_shifts(*turns[:2]), shifts) else None


def _shifts(left: Sequence[Node], right: Sequence[Node]) -> list[Places]:
    return [b.places - a.places for a, b in zip(_steps_of(left), _steps_of(right), strict=True)]


def _is_equal(left: Sequence[Places], right: Sequence[Places]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def _is_rigid(nodes: Sequence[Node], shifts: Sequence[Places]) -> bool:
    first: dict[tuple[Key, tuple[int, ...]], Places] = {}
    keys = [(step.key, step.ranks) for step in _steps_of(nodes)]
    return all(np.array_equal(first.setdefault(key, shift), shift) for key, shift in zip(keys, shifts, strict=True))


def _repeat_of(turns: Sequence[Sequence[Node]], shifts: list[Places]) -> Repeat:
    body = list(turns[0])
    for turn in turns[1:]:
        body = [*map(_add_pauses, body, _split(body, _steps_of(turn)))]
    strides = iter(shifts)
    shapes = tuple(node.shape for node in turns[0])
    return _build_repeat(len(turns), [_add_strides(node, strides) for node in body], shapes)


def _reduce(stack: list[Node]) -> bool:
    """Replace the end of the stack by a repeat; False if there is none."""
    window = _WINDOW if len(stack) < _LONG else _SHORT_WINDOW
    for length in range(1, min(window, len(stack) - 1) + 1):
        if longer := _extended(stack, length):
            stack[-1 - length :] = [longer]
            return True
        if 2 * length <= len(stack) and stack[-1].shape == stack[-1 - length].shape and (new := _folded(stack, length)):
            stack[-new.count * length :] = [new]
            return True
    return False


def repeat_step(step: Step, count: int, stride: Places) -> Repeat:
    """Return `count` turns of a step, each `stride` (k, n) behind the one before."""
    times = replace(step, strides=(*step.strides, stride), times=count)
    return _build_repeat(count, [times], (step.shape,))


def fold_steps(nodes: Sequence[Node]) -> list[Node]:
    """Return the same in fewer nodes: repeats, nested where possible. Time: proportional to the number of nodes."""
    stack: list[Node] = []
    for node in nodes:
        stack.append(node)
        while _reduce(stack):
            pass
    return stack


def describe_ranks(values: NDArray[np.int64], ranks: Sequence[int]) -> str:
    """Return the expression that gives each of the ranks its value.

    Args:
        values: (n,).
        ranks: n rank numbers in ascending order.

    Returns:
        The first that fits: a number; linear in `rank`; linear in the rank plus a number modulo n; linear in `rank % m`
        and `rank / m`; linear in `rank / k % m` with one bend or step, as where parts differ by one; else a sum of
        comparisons.
    """
    numbers = np.asarray(ranks, dtype=np.int64)
    if (values == values[0]).all():
        return str(int(values[0]))
    if found := _linear(values, [("rank", numbers)]):
        return found
    n = len(numbers)
    if np.array_equal(numbers, np.arange(n)):
        for shift in (1, n - 1, *range(2, min(n - 1, 64))):
            if found := _linear(values, [(f"((rank + {shift}) % {n})", (numbers + shift) % n)]):
                return found
        for m in (m for m in range(2, n) if n % m == 0):
            if found := _linear(values, [(f"(rank % {m})", numbers % m), (f"(rank / {m})", numbers // m)]):
                return found
        if found := _bent(values):
            return found
    rows = [f"(rank == {rank}) * {value}" for rank, value in zip(ranks, values.tolist(), strict=True) if value]
    return " + ".join(rows)


def _linear(values: NDArray[np.int64], parts: Sequence[tuple[str, NDArray[np.int64]]]) -> str | None:
    """`a + b * x + c * y` if all values are exactly that, with whole numbers; None otherwise."""
    rest, terms = values.copy(), list[tuple[int, str]]()
    for text, x in parts:
        # Where the other parts do not move, this one's factor is a difference of two values.
        others = [other for name, other in parts if name != text]
        same = np.all([other == other[0] for other in others], axis=0) if others else np.ones(len(x), dtype=bool)
        moved = np.flatnonzero(same & (x != x[0]))
        if not len(moved):
            return None
        factor, remainder = divmod(int(values[moved[0]] - values[0]), int(x[moved[0]] - x[0]))
        if remainder:
            return None
        rest = rest - factor * x
        terms.append((factor, text))
    return _sum(int(rest[0]), terms) if (rest == rest[0]).all() else None


def _sum(first: int, terms: Iterable[tuple[int, str]]) -> str:
    texts = [f"{factor} * {text}" if factor != 1 else text for factor, text in terms if factor]
    return " + ".join([*([str(first)] if first or not texts else []), *texts]).replace("+ -", "- ")


def _bent(values: NDArray[np.int64]) -> str | None:
    """Values of all ranks that follow from one of their places in a grid of ranks; None if they do not."""
    n = len(values)
    for inner in (m for m in range(1, n) if n % m == 0):
        for places in (m for m in range(n // inner, 1, -1) if n // inner % m == 0):
            if not values[inner - 1] == values[0] == values[inner * places % n]:
                continue
            own = values[: inner * places : inner]
            if np.array_equal(np.tile(np.repeat(own, inner), n // inner // places), values):
                x = "rank" + (f" / {inner}" if inner > 1 else "") + (f" % {places}" if inner * places < n else "")
                if found := _bend(own, x):
                    return found
    return None


def _bend(values: NDArray[np.int64], x: str) -> str | None:
    """`a + b * x + c * min(x, k)` or `a + b * (x < k)`; None if it is neither."""
    steps = np.diff(values)
    jumps, bends = np.flatnonzero(steps), np.flatnonzero(np.diff(steps))
    if len(jumps) == 1:
        return _sum(int(values[-1]), [(int(values[0] - values[-1]), f"({x} < {jumps[0] + 1})")])
    if len(bends) > 1:
        return None
    more = [(int(steps[0] - steps[-1]), f"min({x}, {at + 1})") for at in bends]
    return _sum(int(values[0]), [(int(steps[-1]), x if x == "rank" else f"({x})"), *more])


def count_numbers(nodes: Sequence[Node]) -> int:
    """How many numbers a description of the nodes has, about: what `limit` of a description counts."""
    total = 0
    for node in nodes:
        if isinstance(node, Repeat):
            total += 1 + count_numbers(node.body)
        else:
            total += sum(_terms(row, node.ranks) for matrix in (node.places, *node.strides) for row in matrix)
    return total


def _terms(values: NDArray[np.int64], ranks: Sequence[int]) -> int:
    if (values == values[0]).all():
        return 1
    text = describe_ranks(values, ranks)
    return text.count("rank") if "==" in text else 2


def select_ranks(ranks: Sequence[int], among: Sequence[int]) -> str | list[int] | None:
    """Return the `ranks` of an action of some ranks among those of its file; None for all of them."""
    chosen = set(ranks)
    if chosen >= set(among):
        return None
    if len(chosen) == 1:
        return f"rank == {ranks[0]}"
    low, high = min(chosen), max(chosen)
    if chosen == {rank for rank in among if rank >= low}:
        return f"rank >= {low}"
    if chosen == {rank for rank in among if rank <= high}:
        return f"rank <= {high}"
    step = ranks[1] - ranks[0]
    if step > 1 and chosen == {rank for rank in among if rank % step == ranks[0] % step}:
        return f"rank % {step} == {ranks[0] % step}"
    return list(ranks)
