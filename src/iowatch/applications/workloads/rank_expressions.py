"""Numbers that differ from rank to rank as expressions of the rank (docs/workloads.md, "Description")."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

# Shifts of ranks around the job (`(rank + shift) % ranks`) that are tried.
_MAX_SHIFT = 64
# Most steps of an expression of the rank, as a share of the ranks.
_MOST_STEPS = 1 / 3


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
