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
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from iowatch.applications.workloads.divisions import Division, Pieces

# (k, n): k numbers of an action of n ranks.
Places = NDArray[np.int64]
# Rows of places: number of the file, offset and size in bytes; of scattered accesses also their stride.
NUMBER, OFFSET, SIZE, STRIDE = range(4)
PLACE_ROWS = 4

# Longest body of a repeat.
_LONGEST_BODY = 128
# So many nodes that are not folded yet have few patterns; shorter bodies are searched then.
_MANY_NODES, _LONGEST_BODY_OF_MANY = 2_000, 16
# Shifts of ranks around the job (`(rank + shift) % ranks`) that are tried.
_MAX_SHIFT = 64
# Most steps of an expression of the rank, as a share of the ranks.
_MOST_STEPS = 1 / 3
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


def describe_ranks(values: NDArray[np.int64], ranks: Sequence[int]) -> str:
    """Return the expression that gives each of the ranks its value.

    Args:
        values: (n,).
        ranks: n rank numbers in ascending order.

    Returns:
        The first that fits: a number; linear in `rank`; linear in the rank plus a number modulo n; linear in `rank % m`
        and `rank / m`; linear in `rank / k % m` with one bend or step, as where parts differ by one; linear in the rank
        with steps or bends at some ranks, as where a library has put metadata between the parts; else a sum of
        comparisons.
    """
    if (values == values[0]).all():
        return str(int(values[0]))
    numbers = np.asarray(ranks, dtype=np.int64)
    expression = _linear(values, [_Term("rank", numbers)])
    # The other forms are those of a grid of all ranks.
    if expression is None and np.array_equal(numbers, np.arange(len(numbers))):
        expression = _describe_all_ranks(values, numbers)
    if expression is None:
        expression = _stepped(values, numbers)
    if expression is None:
        expression = _sectioned(values, numbers)
    if expression is not None:
        return expression
    # Any values can be listed; a rank that is not compared has 0.
    comparisons: list[str] = []
    for rank, value in zip(ranks, values.tolist(), strict=True):
        if value:
            comparisons.append(f"(rank == {rank}) * {value}")
    return " + ".join(comparisons)


def _describe_all_ranks(values: NDArray[np.int64], ranks: NDArray[np.int64]) -> str | None:
    """The expression of values of the ranks 0 to n - 1 that are not linear; None if none of the forms fits."""
    n = len(ranks)
    for shift in (1, n - 1, *range(2, min(n - 1, _MAX_SHIFT))):
        expression = _linear(values, [_Term(f"((rank + {shift}) % {n})", (ranks + shift) % n)])
        if expression is not None:
            return expression
    for m in _divisors(n)[1:-1]:
        grid = [_Term(f"(rank % {m})", ranks % m), _Term(f"(rank / {m})", ranks // m)]
        expression = _linear(values, grid)
        if expression is not None:
            return expression
    return _bent(values)


@cache
def _divisors(n: int) -> tuple[int, ...]:
    """All divisors of a number, 1 and itself among them, in ascending order."""
    return tuple(divisor for divisor in range(1, n + 1) if n % divisor == 0)


@dataclass(frozen=True)
class _Term:
    """A part of an expression, and its value on each rank, (n,)."""

    text: str
    values: NDArray[np.int64]


def _linear(values: NDArray[np.int64], terms: Sequence[_Term]) -> str | None:
    """`a + b * x + c * y` if all values are exactly that, with whole numbers; None otherwise."""
    remainders = values.copy()
    factors: list[tuple[int, str]] = []
    for term in terms:
        # Where the other terms do not move, this one's factor is a difference of two values.
        is_alone = term.values != term.values[0]
        for other in terms:
            if other is not term:
                is_alone &= other.values == other.values[0]
        moved = np.flatnonzero(is_alone)
        if not len(moved):
            return None
        rank = moved[0]
        value_difference = int(values[rank] - values[0])
        term_difference = int(term.values[rank] - term.values[0])
        factor, remainder = divmod(value_difference, term_difference)
        if remainder:
            return None
        remainders = remainders - factor * term.values
        factors.append((factor, term.text))
    # What the terms do not explain must be the constant.
    constant = remainders[0]
    if not (remainders == constant).all():
        return None
    return _sum(int(constant), factors)


def _sum(constant: int, factors: Iterable[tuple[int, str]]) -> str:
    """The text of a constant plus products; what is 0 is left out."""
    products = []
    for factor, text in factors:
        if factor == 1:
            products.append(text)
        elif factor:
            products.append(f"{factor} * {text}")
    if constant or not products:
        products.insert(0, str(constant))
    return " + ".join(products).replace("+ -", "- ")


def _bent(values: NDArray[np.int64]) -> str | None:
    """Values of all ranks that follow from one of their places in a grid of ranks; None if they do not."""
    n = len(values)
    for inner in _divisors(n)[:-1]:
        for places in reversed(_divisors(n // inner)[1:]):
            if not values[inner - 1] == values[0] == values[inner * places % n]:
                continue
            # One value for each place along the dimension; `inner` ranks follow each other at the same place.
            values_of_places = values[: inner * places : inner]
            values_of_grid = np.tile(np.repeat(values_of_places, inner), n // inner // places)
            if not np.array_equal(values_of_grid, values):
                continue
            grid_position = "rank"
            if inner > 1:
                grid_position += f" / {inner}"
            if inner * places < n:
                grid_position += f" % {places}"
            expression = _bend(values_of_places, grid_position)
            if expression is not None:
                return expression
    return None


def _bend(values: NDArray[np.int64], x: str) -> str | None:
    """`a + b * x + c * min(x, k)` or `a + b * (x < k)`; None if it is neither."""
    steps = np.diff(values)
    jumps = np.flatnonzero(steps)
    if len(jumps) == 1:
        height = int(values[0] - values[-1])
        return _sum(int(values[-1]), [(height, f"({x} < {jumps[0] + 1})")])
    bends = np.flatnonzero(np.diff(steps))
    if len(bends) > 1:
        return None
    slope = int(steps[-1])
    factors = [(slope, x if x == "rank" else f"({x})")]
    for bend in bends:
        factors.append((int(steps[0] - steps[-1]), f"min({x}, {bend + 1})"))
    return _sum(int(values[0]), factors)


def _stepped(values: NDArray[np.int64], ranks: NDArray[np.int64]) -> str | None:
    """`a + b * rank + c * ((rank >= r) + (rank >= s) + …)` if there are few steps; None otherwise."""
    # The factor of the rank is the most frequent one between neighbours.
    factors, remainders = np.divmod(np.diff(values), np.diff(ranks))
    whole_factors = factors[remainders == 0]
    if not len(whole_factors):
        return None
    candidates, frequencies = np.unique(whole_factors, return_counts=True)
    slope = candidates[frequencies.argmax()]

    # What is left is constant between the steps.
    rest = values - slope * ranks
    steps = np.diff(rest)
    first_of_step = np.flatnonzero(steps)
    if len(first_of_step) > _MOST_STEPS * len(ranks):
        return None
    ranks_of_height: dict[int, list[int]] = {}
    for position in first_of_step.tolist():
        ranks_of_height.setdefault(int(steps[position]), []).append(int(ranks[position + 1]))
    terms = [(int(slope), "rank")]
    for height, step_ranks in ranks_of_height.items():
        comparisons = " + ".join(f"(rank >= {rank})" for rank in step_ranks)
        terms.append((height, f"({comparisons})" if len(step_ranks) > 1 else comparisons))
    return _sum(int(rest[0]), terms)


def _sectioned(values: NDArray[np.int64], ranks: NDArray[np.int64]) -> str | None:
    """`a + b * rank + c * max(0, rank - r) + …`: sections with a factor each, if these are few; None otherwise."""
    if len(ranks) < 3 or (np.diff(ranks) != 1).any():
        return None
    slopes = np.diff(values)
    changes = np.diff(slopes)
    bends = np.flatnonzero(changes)
    if len(bends) > _MOST_STEPS * len(ranks):
        return None
    factors = [(int(slopes[0]), "rank")]
    for bend in bends.tolist():
        factors.append((int(changes[bend]), f"max(0, rank - {int(ranks[bend + 1])})"))
    return _sum(int(values[0] - slopes[0] * ranks[0]), factors)


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


def select_ranks(ranks: Sequence[int], among: Sequence[int]) -> str | list[int] | None:
    """Return the `ranks` of an action of some ranks among those of its file; None for all of them."""
    members = set(ranks)
    if members >= set(among):
        return None
    if len(members) == 1:
        return f"rank == {ranks[0]}"
    low, high = min(members), max(members)
    if members == {rank for rank in among if rank >= low}:
        return f"rank >= {low}"
    if members == {rank for rank in among if rank <= high}:
        return f"rank <= {high}"
    step = ranks[1] - ranks[0]
    if step > 1 and members == {rank for rank in among if rank % step == ranks[0] % step}:
        return f"rank % {step} == {ranks[0] % step}"
    return list(ranks)
