"""Sequences of accesses to patterns: nested repeats whose offsets are linear in the turn and in the rank.

A `Step` is something that several ranks do once, each at a place of its own; `fold_steps` finds the repeats. Nothing is
lost.
The method is that of ScalaTrace's power regular section descriptors (Noeth et al., 2009), with one vector of places
over all ranks instead of a merge of trees.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from iowatch.applications.workloads.divisions import Division, Pieces
from iowatch.applications.workloads.rank_expressions import describe_ranks

# (k, n): k numbers of an action of n ranks.
Places = NDArray[np.int64]
# Rows of places: number of the file, offset and size in bytes; of scattered accesses also their stride.
NUMBER, OFFSET, SIZE, STRIDE = range(4)
PLACE_ROWS = 4

# Longest body of a repeat.
_LONGEST_BODY = 128
# So many nodes that are not folded yet have few patterns; shorter bodies are searched then.
_MANY_NODES, _LONGEST_BODY_OF_MANY = 2_000, 16


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


@dataclass(frozen=True, eq=False)
class Step:
    """What ranks do once: equal keys mean the same action.

    Attributes:
        key: what is done.
        ranks: who does it, in ascending order.
        places: (k, n) for n ranks: the rows NUMBER, OFFSET, SIZE and STRIDE.
        strides: of each repeat around it, the innermost first: (k, n), added to the places per turn.
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
    steps: list[Step] = []
    for node in nodes:
        steps.extend(node.steps)
    return steps


def _add_strides(node: Node, strides: Iterator[Places]) -> Node:
    """The node with one more stride, that of a new repeat around it, for each of its steps."""
    if isinstance(node, Step):
        return replace(node, strides=(*node.strides, next(strides)))
    body = [_add_strides(inner, strides) for inner in node.body]
    return _build_repeat(node.count, body, node.inner_shapes)


def _add_pauses_of_turn(body: Sequence[Node], turn: Sequence[Node]) -> list[Node]:
    """A body with the pauses of one more turn added."""
    steps_of_turn = iter(_steps_of(turn))
    return [_add_pauses(node, steps_of_turn) for node in body]


def _add_pauses(node: Node, steps_of_turn: Iterator[Step]) -> Node:
    """The node with the pauses of the corresponding steps added; takes as many of them as the node has."""
    if isinstance(node, Step):
        other = next(steps_of_turn)
        return replace(node, seconds=node.seconds + other.seconds, times=node.times + other.times)
    return replace(node, body=tuple(_add_pauses(inner, steps_of_turn) for inner in node.body))


def _extend_repeat(stack: list[Node], length: int) -> Repeat | None:
    """The repeat before the last `length` nodes with one more turn; None if they are none."""
    repeat = stack[-1 - length]
    if not isinstance(repeat, Repeat) or len(repeat.body) != length:
        return None
    turn = stack[-length:]
    for node, inner_shape in zip(turn, repeat.inner_shapes, strict=True):
        if node.shape != inner_shape:
            return None
    for step, step_of_turn in zip(repeat.steps, _steps_of(turn), strict=True):
        expected_places = step.places + repeat.count * step.strides[-1]
        if not np.array_equal(expected_places, step_of_turn.places):
            return None
    return _build_repeat(repeat.count + 1, _add_pauses_of_turn(repeat.body, turn), repeat.inner_shapes)


def _new_repeat(stack: list[Node], length: int) -> Repeat | None:
    """The last two or three blocks of `length` nodes as a repeat; None if they are none.

    Two are enough if all steps with one key move by the same, and if they are more than a single step; three if each
    step moves by the same twice.
    """
    possible = _possible_repeat(stack, length)
    if not possible.is_rigid and not possible.is_thrice:
        return None
    last_turns = [stack[-2 * length : -length], stack[-length:]]
    moves = _moves_between(*last_turns)
    if possible.is_rigid and _is_rigid(last_turns[1], moves):
        return _repeat_of_turns(last_turns, moves)
    if possible.is_thrice:
        turns = [stack[-3 * length : -2 * length], *last_turns]
        if _are_equal(_moves_between(turns[0], turns[1]), moves):
            return _repeat_of_turns(turns, moves)
    return None


@dataclass(frozen=True)
class _PossibleRepeat:
    """Whether the last two blocks of nodes (all steps of a key move by the same), or three, may be a repeat."""

    is_rigid: bool
    is_thrice: bool


_NO_REPEAT = _PossibleRepeat(is_rigid=False, is_thrice=False)


def _possible_repeat(stack: list[Node], length: int) -> _PossibleRepeat:
    """What a repeat of `length` nodes may be by the places of the first rank, compared from the last step on.

    This refutes nearly all candidates before the places of all ranks are compared.
    """
    may_be_rigid = length > 1 or isinstance(stack[-1], Repeat)
    may_be_thrice = len(stack) >= 3 * length
    move_of_key: dict[tuple[Key, tuple[int, ...]], tuple[int, ...]] = {}
    for distance in range(1, length + 1):
        last = stack[-distance]
        before = stack[-distance - length]
        if last.shape != before.shape:
            return _NO_REPEAT
        two_before = before
        if may_be_thrice:
            two_before = stack[-distance - 2 * length]
            may_be_thrice = two_before.shape == before.shape
        # Any node of the same shape has as many steps; it is not compared then.
        if not may_be_thrice:
            two_before = before
        for step, step_before, step_two_before in zip(last.steps, before.steps, two_before.steps, strict=True):
            move = tuple(map(operator.sub, step.head, step_before.head))
            if may_be_rigid:
                may_be_rigid = move_of_key.setdefault((step.key, step.ranks), move) == move
            if may_be_thrice:
                may_be_thrice = move == tuple(map(operator.sub, step_before.head, step_two_before.head))
        if not may_be_rigid and not may_be_thrice:
            return _NO_REPEAT
    return _PossibleRepeat(may_be_rigid, may_be_thrice)


def _moves_between(turn: Sequence[Node], next_turn: Sequence[Node]) -> list[Places]:
    """By how much the places of each step differ."""
    steps = zip(_steps_of(turn), _steps_of(next_turn), strict=True)
    return [next_step.places - step.places for step, next_step in steps]


def _are_equal(left: Sequence[Places], right: Sequence[Places]) -> bool:
    return all(map(np.array_equal, left, right))


def _is_rigid(nodes: Sequence[Node], moves: Sequence[Places]) -> bool:
    """Whether all steps of the same key and ranks move by the same."""
    move_of_key: dict[tuple[Key, tuple[int, ...]], Places] = {}
    for step, move in zip(_steps_of(nodes), moves, strict=True):
        if not np.array_equal(move_of_key.setdefault((step.key, step.ranks), move), move):
            return False
    return True


def _repeat_of_turns(turns: Sequence[Sequence[Node]], moves: list[Places]) -> Repeat:
    """The turns as one repeat; `moves` are those from each turn to the next."""
    body = list(turns[0])
    for turn in turns[1:]:
        body = _add_pauses_of_turn(body, turn)
    strides = iter(moves)
    inner_shapes = tuple(node.shape for node in turns[0])
    return _build_repeat(len(turns), [_add_strides(node, strides) for node in body], inner_shapes)


def _fold_end(stack: list[Node]) -> bool:
    """Replace the end of the stack by a repeat; False if there is none."""
    longest_body = _LONGEST_BODY if len(stack) < _MANY_NODES else _LONGEST_BODY_OF_MANY
    for length in range(1, min(longest_body, len(stack) - 1) + 1):
        repeat = _extend_repeat(stack, length)
        if repeat is not None:
            stack[-1 - length :] = [repeat]
            return True
        if 2 * length <= len(stack) and stack[-1].shape == stack[-1 - length].shape:
            repeat = _new_repeat(stack, length)
            if repeat is not None:
                stack[-repeat.count * length :] = [repeat]
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
        # A new repeat may be a turn of a larger one.
        while _fold_end(stack):
            pass
    return stack


def count_numbers(nodes: Sequence[Node]) -> int:
    """How many numbers a description of the nodes has, about: what `limit` of a description counts."""
    total = 0
    for node in nodes:
        if isinstance(node, Repeat):
            total += 1 + count_numbers(node.body)
            continue
        for matrix in (node.places, *node.strides):
            total += sum(_count_numbers_of(row, node.ranks) for row in matrix)
    return total


def _count_numbers_of(values: NDArray[np.int64], ranks: Sequence[int]) -> int:
    """How many numbers the expression of one value per rank has, about."""
    if (values == values[0]).all():
        return 1
    expression = describe_ranks(values, ranks)
    if any(word in expression for word in ("==", ">=", "max")):
        return expression.count("rank")
    return 2
