"""Search for the shortest rule: the conjunction that makes the labels cheapest to write down.

The score of a rule is its description length in bits: the prior cost of its conditions plus the cost of the
labels inside and outside of it, each with its own unknown share of changed series (marginal likelihood of a
uniform prior, 1 / ((n + 1) C(n, k)); Rissanen's and MacKay's two-part code). It weighs precision, recall and
brevity with one currency and needs no threshold: a rule that saves nothing is not stated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from iowatch.explain.conditions import Condition, Parameters, candidates, words
from iowatch.explain.records import Rule

_MOST_CONDITIONS = 3
_BEAM = 40
# Bits that a rule has to save beyond its cost, and bits that each condition after the first costs for the many
# conjunctions that were looked at. So 48 series with labels drawn at random get a rule in 2 to 9 of 100 draws
# (tests/explain); without them in 17.
_LEAST_SAVING = 2.0
_CONJUNCTION_BITS = 0.75
# A choice among so many values of a parameter is in the price of the condition.
_FEW_VALUES = 4


@dataclass(frozen=True)
class _Found:
    bits: float
    conditions: tuple[int, ...]
    cover: NDArray[np.bool_]


def _label_bits(changed: NDArray[np.float64], total: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bits of writing down which of `total` are the `changed`: log2 of (n + 1) C(n, k)."""
    choose = gammaln(total + 1) - gammaln(changed + 1) - gammaln(total - changed + 1)
    return np.asarray((choose + np.log(total + 1)) / np.log(2), dtype=np.float64)


def covers(conditions: Sequence[Condition], derived: Sequence[Parameters]) -> NDArray[np.bool_]:
    """Which condition holds for which case: shape (conditions, cases)."""
    table = [[condition.holds(parameters) for parameters in derived] for condition in conditions]
    return np.asarray(table, dtype=bool).reshape(len(conditions), len(derived))


def _costs(conditions: Sequence[Condition]) -> NDArray[np.float64]:
    """Bits of each condition; of a parameter with many values the choice among them costs, too."""
    values = Counter(c.parameter for c in conditions if c.operator == "=")
    return np.asarray([c.bits + max(0.0, np.log2(values[c.parameter] / _FEW_VALUES)) for c in conditions])


def _distinct(cover: NDArray[np.bool_], costs: NDArray[np.float64]) -> NDArray[np.intp]:
    """Positions of the conditions that a search needs: one, the cheapest, of each different cover."""
    seen: dict[bytes, int] = {}
    for position in np.argsort(costs, kind="stable"):
        row = cover[position]
        if row.any() and not row.all():
            seen.setdefault(row.tobytes(), int(position))
    return np.asarray(sorted(seen.values()), dtype=np.intp)


def _score(cover: NDArray[np.bool_], changed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Bits of the labels for each row of `cover`; infinite where the change is not more frequent inside."""
    inside = cover.sum(axis=1).astype(float)
    hit = (cover & changed).sum(axis=1).astype(float)
    outside, missed = len(changed) - inside, changed.sum() - hit
    bits = _label_bits(hit, inside) + _label_bits(missed, outside)
    return np.where(hit * outside > missed * inside, bits, np.inf)


def _grow(
    parents: Sequence[_Found],
    chosen: NDArray[np.intp],
    costs: NDArray[np.float64],
    cover: NDArray[np.bool_],
    changed: NDArray[np.bool_],
) -> list[_Found]:
    """Children of each parent by one more condition, the cheapest of each different cover."""
    grown: dict[bytes, _Found] = {}
    for parent in parents:
        rows = cover[chosen] & parent.cover
        more = costs[list(parent.conditions)].sum() + _CONJUNCTION_BITS * len(parent.conditions)
        bits = _score(rows, changed) + more + costs[chosen]
        for position in np.argsort(bits, kind="stable")[:_BEAM]:
            row, total = rows[position], float(bits[position])
            known = grown.get(row.tobytes())
            new = not (row == parent.cover).all()
            if np.isfinite(total) and new and (known is None or total < known.bits - 1e-9):
                grown[row.tobytes()] = _Found(total, (*parent.conditions, int(chosen[position])), row)
    return sorted(grown.values(), key=lambda f: f.bits)[:_BEAM]


def find_rule(derived: Sequence[Parameters], changed: NDArray[np.bool_]) -> Rule | None:
    """The shortest rule of at most three conditions, or None where no rule is better than none.

    Args:
        derived: parameters of each case, as `conditions.derive` gives them.
        changed: shape (n,), which of them changed.
    """
    if not changed.any():
        return None
    if changed.all():
        return Rule((), (), len(changed), len(changed), 0, 0, "all cases")
    conditions = candidates(derived, changed)
    cover = covers(conditions, derived)
    costs = _costs(conditions)
    chosen = _distinct(cover, costs)
    everything = _Found(0.0, (), np.ones(len(changed), dtype=bool))
    best: _Found | None = None
    beam = [everything]
    for _ in range(_MOST_CONDITIONS):
        beam = _grow(beam, chosen, costs, cover, changed)
        if beam and (best is None or beam[0].bits < best.bits):
            best = beam[0]
    none_bits = float(_label_bits(np.array([changed.sum()], float), np.array([len(changed)], float))[0])
    if best is None or best.bits > none_bits - _LEAST_SAVING:
        return None
    return _rule(best, conditions, cover, changed)


def _rule(
    found: _Found, conditions: list[Condition], cover: NDArray[np.bool_], changed: NDArray[np.bool_]
) -> Rule:
    kept = sorted(found.conditions)
    equivalents = []
    for position in kept:
        others = cover[[p for p in kept if p != position]].all(axis=0)
        same = ((cover & others) == found.cover).all(axis=1)
        equivalents.append(tuple(c for p, c in enumerate(conditions) if same[p] and p not in kept))
    stated = tuple(conditions[p] for p in kept)
    inside, hit = int(found.cover.sum()), int((found.cover & changed).sum())
    return Rule(
        conditions=stated,
        equivalents=tuple(equivalents),
        changed_in=hit,
        total_in=inside,
        changed_out=int(changed.sum()) - hit,
        total_out=len(changed) - inside,
        text=words(_told(stated, equivalents)),
    )


# One concept is said once: MPI-IO and `api != POSIX` are the same remark.
_CONCEPT = {"mpiio": "interface", "api": "interface", "transfer_bytes": "transfer", "aligned": "transfer"}
_TOLD_BITS = 1.3


def _told(stated: Sequence[Condition], equivalents: Sequence[Sequence[Condition]]) -> list[Condition]:
    """The rule's conditions and those equivalents that a person would name with them."""
    told = list(stated)
    for group in equivalents:
        for condition in group:
            concepts = {_CONCEPT.get(c.parameter, c.parameter) for c in told}
            mine = _CONCEPT.get(condition.parameter, condition.parameter)
            if condition.bits <= _TOLD_BITS and mine not in concepts:
                told.append(condition)
    return told
