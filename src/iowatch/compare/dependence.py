"""Nights that hang together: how many independent ones they are worth.

A shared file system wanders: a slow night is followed by slow ones, and 28 such nights say less about the
next month than 28 independent ones. The variance of a mean grows by V = 1 + 2 (r1 + r2 + ...), where rk is the
autocorrelation at a distance of k nights (Bayley and Hammersley, 1946); n nights are worth n / V.

Few nights do not tell rk one by one, so only r1 is estimated, of ranks, which outliers cannot fool, and without
the bias of short series (Marriott and Pope, 1954); the decay is assumed: rk = r1 d^(k-1) with d the larger of
r1 and `_DECAY`. What one pair of series says of r1 is mostly chance. So all pairs of a comparison, which were
measured on the same machine, tell a common r1, shrunk towards 0 by r^2 / (r^2 + 1/N), N nights; and each pair
deviates from it as far as the pairs differ by more than chance (empirical Bayes, James and Stein, 1961). With
independent nights next to nothing is left of it. bench/compare.py measures what this gives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from iowatch.compare.estimate import FEWEST, Sides
from iowatch.compare.records import Dependence, Floats

# Of Edison's year (24 series, 62 levels of 25 nights or more): r1 = 0.31, r2 = 0.21, r3 = 0.14, r4 = 0.10.
_DECAY = 0.7
_HIGHEST = 0.95


def dependences(sides: Sequence[Sides]) -> list[Dependence]:
    """How the nights of each pair hang together; not at all where they are too few for any statement.

    Args:
        sides: of all pairs of one comparison, which were measured on the same machine.
    """
    measured = _measured(sides)
    found = [Dependence()] * len(sides)
    if measured:
        r, nights = (np.array(column, dtype=np.float64) for column in zip(*measured.values(), strict=True))
        for index, lag_one in zip(measured, _shrunk(r, nights), strict=True):
            found[index] = _dependence(float(lag_one), sides[index].fewest)
    return found


def _shrunk(r: Floats, nights: Floats) -> Floats:
    """What is believed of each pair's autocorrelation of neighbours.

    Args:
        r: as estimated, of N nights each; both of shape (pairs,).
    """
    mean, chance = float(r.mean()), float(np.mean(1 / nights))
    common = mean**3 / (mean**2 + chance)
    if len(r) == 1:
        return np.array([common])
    apart = float(np.sum((r - mean) ** 2)) / (len(r) - 1)
    return common + (r - mean) * max(0.0, 1 - chance / apart if apart else 0.0)


def _dependence(lag_one: float, nights: int) -> Dependence:
    r = min(max(lag_one, 0.0), _HIGHEST)
    variance = min(1 + 2 * r / (1 - max(r, _DECAY)), nights / 2)
    return Dependence(max(1.0, variance), (1 + r * r) / (1 - r * r))


def _measured(sides: Sequence[Sides]) -> dict[int, tuple[float, int]]:
    """Autocorrelation of neighbours, and of how many nights, of pairs with enough nights, by their position.

    Those with the same numbers of nights are worked on together.
    """
    groups: dict[tuple[bool, int, int], list[int]] = defaultdict(list)
    for index, side in enumerate(sides):
        if side.fewest >= FEWEST:
            groups[side.paired, len(side.left), len(side.right)].append(index)
    found: dict[int, tuple[float, int]] = {}
    for (paired, left, right), members in groups.items():
        chosen = [sides[index] for index in members]
        if paired:
            parts = [np.array([side.log_ratios for side in chosen])]
        else:
            parts = [np.array([getattr(side, name).medians for side in chosen]) for name in ("left", "right")]
        nights = left if paired else left + right
        together = np.asarray(sum(_lag_one(part) * part.shape[1] for part in parts)) / nights
        found |= {index: (float(r), nights) for index, r in zip(members, together, strict=True)}
    return found


def _lag_one(values: Floats) -> Floats:
    """Autocorrelation of neighbours' ranks, one a row, without the bias of short series; 0 of constants.

    Args:
        values: shape (pairs, nights).
    """
    from scipy import stats

    nights = values.shape[1]
    ranks = np.asarray(stats.rankdata(values, axis=1)) - (nights + 1) / 2
    whole = np.sum(ranks**2, axis=1)
    raw = np.sum(ranks[:, 1:] * ranks[:, :-1], axis=1) / np.where(whole > 0, whole, 1)
    return np.where(whole > 0, raw + (1 + 3 * np.clip(raw, 0, 1)) / nights, 0.0)
