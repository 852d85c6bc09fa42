"""Rank tests on nights, many pairs at once, and the correction for many pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special, stats

from iowatch.compare.records import Floats

# Below these the smallest p value that ranks can give is above 0.01 whatever the data say.
FEWEST_NIGHTS = 5  # a side: 2 / C(10, 5) = 0.008
FEWEST_PAIRS = 8  # 2 / 2^8 = 0.008
_EXACT_UP_TO = 30


def rank_sum(left: Floats, right: Floats) -> Floats:
    """Two-sided p values of the Wilcoxon-Mann-Whitney test, one a row.

    Exact up to 30 nights a side without ties, else the normal approximation with tie correction.

    Args:
        left: shape (pairs, nights on the left), one value a night.
        right: shape (pairs, nights on the right).
    """
    both = np.sort(np.concatenate([left, right], axis=1), axis=1)
    exact = ~np.any(both[:, 1:] == both[:, :-1], axis=1) & (max(left.shape[1], right.shape[1]) <= _EXACT_UP_TO)
    found = np.ones(len(left))
    for rows, method in ((exact, "exact"), (~exact, "asymptotic")):
        if rows.any():
            found[rows] = stats.mannwhitneyu(right[rows], left[rows], axis=1, method=method).pvalue
    return np.nan_to_num(found, nan=1.0)


def signed_rank(differences: Floats) -> Floats:
    """Two-sided p values of Wilcoxon's signed-rank test, one a row; exact up to 30 pairs without ties.

    Args:
        differences: log ratios, shape (pairs, nights).
    """
    sizes = np.sort(np.abs(differences), axis=1)
    ties = np.any(sizes[:, 1:] == sizes[:, :-1], axis=1) | (sizes[:, 0] == 0)
    nights = differences.shape[1]
    ranks = np.asarray(stats.rankdata(np.abs(differences), axis=1))
    positive = (
        np.where(differences > 0, ranks, 0).sum(axis=1) + np.where(differences == 0, ranks, 0).sum(axis=1) / 2
    )
    total = nights * (nights + 1) / 2
    smaller = np.minimum(positive, total - positive)
    found = _normal_p(total / 2 - smaller, (ranks**2).sum(axis=1) / 4)
    exact = ~ties & (nights <= _EXACT_UP_TO)
    if exact.any():
        tail = np.cumsum(_signed_rank_counts(nights)) / 2.0**nights
        found[exact] = np.minimum(1.0, 2 * tail[smaller[exact].astype(int)])
    return found


def _normal_p(distance: Floats, variance: Floats) -> Floats:
    """With the continuity correction of half a rank."""
    z = np.maximum(distance - 0.5, 0) / np.sqrt(np.maximum(variance, 1e-300))
    return np.asarray(np.minimum(1.0, 2 * special.ndtr(-z)), dtype=np.float64)


def _signed_rank_counts(nights: int) -> Floats:
    """How many of the 2^n sign patterns give each sum of positive ranks 0 … n(n+1)/2."""
    ways = np.zeros(nights * (nights + 1) // 2 + 1)
    ways[0] = 1
    for rank in range(1, nights + 1):
        ways[rank:] = ways[rank:] + ways[:-rank]
    return ways


def smallest_p(nights: int, paired: bool) -> float:
    """The smallest p value that ranks can give with this many nights a side (or pairs)."""
    return float(2.0 ** (1 - nights)) if paired else float(2 / special.binom(2 * nights, nights))


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values: at most the share q of those <= q are false (Benjamini and Hochberg, 1995).

    Valid also when pairs are positively dependent, as cases of the same nights are (Benjamini and Yekutieli,
    2001).
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)
    scaled = p[order] * len(p) / np.arange(1, len(p) + 1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return [float(value) for value in adjusted]
