"""Sizes by subgroup: splits the changed series until ratios within a group are alike, and names the groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from iowatch.explain.conditions import Condition, Parameters, candidates, words
from iowatch.explain.records import Magnitude
from iowatch.explain.rules import covers

# Ratios within a factor of 1.5 of each other are told as one number.
_ALIKE = math.log(1.5)
_MOST_GROUPS = 6


def magnitudes(
    derived: Sequence[Parameters], log_ratios: NDArray[np.float64], members: Sequence[int]
) -> tuple[Magnitude, ...]:
    """Groups of `members` with similar ratios, largest effect first.

    Args:
        derived: parameters of every case.
        log_ratios: shape (n,), natural logarithms of after / before of every case.
        members: positions of the cases to describe.
    """
    if not members:
        return ()
    inside = [derived[m] for m in members]
    ratios = log_ratios[list(members)]
    conditions = candidates(inside, np.ones(len(inside), dtype=bool))
    cover = covers(conditions, inside)
    groups = _split(_by_operation(inside, ratios), ratios, conditions, cover)
    programs = [str(parameters.get("benchmark", "")) for parameters in inside]
    made = [_magnitude(group, ratios, members, conditions, cover, programs) for group in groups]
    return tuple(sorted(made, key=lambda m: -abs(math.log(m.ratio))))


def _by_operation(inside: Sequence[Parameters], ratios: NDArray[np.float64]) -> list[NDArray[np.intp]]:
    """All in one where the ratios are alike; else writes, reads and so on apart: that is how people ask."""
    operations = np.asarray([str(parameters.get("operation")) for parameters in inside])
    if np.ptp(ratios) <= _ALIKE:
        return [np.arange(len(inside))]
    return [np.flatnonzero(operations == one) for one in np.unique(operations)]


def _split(
    start: list[NDArray[np.intp]],
    ratios: NDArray[np.float64],
    conditions: list[Condition],
    cover: NDArray[np.bool_],
) -> list[NDArray[np.intp]]:
    """Splits the group with the widest ratios, again and again, where a condition explains its width."""
    done: list[NDArray[np.intp]] = []
    work = list(start)
    while work:
        work.sort(key=lambda g: float(np.ptp(ratios[g])))
        group = work.pop()
        best = _best_split(group, ratios, conditions, cover)
        if best is None or len(done) + len(work) + 2 > _MOST_GROUPS:
            done.append(group)
        else:
            work += [group[best], group[~best]]
    return done


def _best_split(
    group: NDArray[np.intp], ratios: NDArray[np.float64], conditions: list[Condition], cover: NDArray[np.bool_]
) -> NDArray[np.bool_] | None:
    """The condition that takes most variance away, cheaper ones preferred; None where ratios are alike."""
    inside = ratios[group]
    if np.ptp(inside) <= _ALIKE:
        return None
    best, best_value = None, 0.0
    spread = float(np.var(inside)) * len(inside)
    for condition, row in zip(conditions, cover[:, group], strict=True):
        if row.all() or not row.any():
            continue
        rest = sum(float(np.var(part)) * len(part) for part in (inside[row], inside[~row]))
        # Of conditions that explain about as much, the more meaningful one.
        value = (spread - rest) / spread - 0.05 * condition.bits
        if value > best_value:
            best, best_value = row, value
    return best


def _magnitude(
    group: NDArray[np.intp],
    ratios: NDArray[np.float64],
    members: Sequence[int],
    conditions: list[Condition],
    cover: NDArray[np.bool_],
    programs: Sequence[str],
) -> Magnitude:
    inside = ratios[group]
    return Magnitude(
        label=_with_benchmarks(_label(group, conditions, cover), group, programs),
        ratio=float(np.exp(inside.mean())),
        lowest=float(np.exp(inside.min())),
        highest=float(np.exp(inside.max())),
        members=tuple(int(members[g]) for g in group),
    )


def _with_benchmarks(label: str, group: NDArray[np.intp], programs: Sequence[str]) -> str:
    """`HDF5 reads (flash)` where the changed series are of several benchmarks and the group is of one or
    two."""
    mine = sorted({programs[g] for g in group} - {""})
    telling = len(set(programs)) > 1 and 0 < len(mine) <= 2 and not any(name in label for name in mine)
    return f"{label} ({', '.join(mine)})" if label and telling else label


def _label(group: NDArray[np.intp], conditions: list[Condition], cover: NDArray[np.bool_]) -> str:
    """The cheapest one or two conditions that select exactly the group, or what its members share."""
    wanted = np.zeros(cover.shape[1], dtype=bool)
    wanted[group] = True
    if wanted.all():
        return ""
    holding = [p for p in range(len(conditions)) if cover[p][wanted].all()]
    options: list[tuple[float, tuple[int, ...]]] = []
    for size in (1, 2):
        for chosen in combinations(holding, size):
            if (cover[list(chosen)].all(axis=0) == wanted).all():
                options.append((sum(conditions[p].bits for p in chosen), chosen))
    if options:
        return words([conditions[p] for p in min(options)[1]])
    telling = [conditions[p] for p in holding if conditions[p].operator == "=" and not cover[p].all()]
    return f"other {words(telling[:2])}" if telling else "others"
