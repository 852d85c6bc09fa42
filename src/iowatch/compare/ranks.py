"""Tests on nights, many pairs at once, and the correction for many pairs.

Ranks decide: they need no assumption about the noise. Their p value cannot fall below that of complete
separation, 2 / C(2n, n) for n nights a side, which among many pairs may be too large to say anything however
large the difference is. Where the nights are completely separated, and where they are too few for ranks,
Student's test of the nights' log medians goes on from there. Its assumption, normal noise, is safe to make:
under heavy tails it only finds less (bench/compare.py, `tails`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
from scipy import special

from iowatch.compare.records import Dependence, Floats

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
    from scipy import stats  # takes half a second to load, which who only looks need not wait for

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
    from scipy import stats

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


def independent_p(left: Floats, right: Floats) -> Floats:
    """Two-sided p values of "no difference" between independent nights, one a row.

    Args:
        left: log medians of nights, shape (pairs, nights on the left).
        right: the same of the right, shape (pairs, nights on the right).
    """
    found = student(left, right)
    if min(left.shape[1], right.shape[1]) < FEWEST_NIGHTS:
        return found
    separated = (left.max(axis=1) < right.min(axis=1)) | (right.max(axis=1) < left.min(axis=1))
    ranks = rank_sum(left, right)
    return np.where(separated, np.minimum(ranks, found), ranks)


def paired_p(differences: Floats) -> Floats:
    """Two-sided p values of "no difference" between the sides of the same nights, one a row.

    Args:
        differences: log ratios, shape (pairs, nights).
    """
    found = student_paired(differences)
    if differences.shape[1] < FEWEST_PAIRS:
        return found
    separated = np.all(differences > 0, axis=1) | np.all(differences < 0, axis=1)
    ranks = signed_rank(differences)
    return np.where(separated, np.minimum(ranks, found), ranks)


def student(left: Floats, right: Floats) -> Floats:
    """Welch's test, one p value a row; 1 where both sides are the same constant, 0 where they are different
    ones."""
    parts = [side.var(axis=1, ddof=1) / side.shape[1] for side in (left, right)]
    total = parts[0] + parts[1]
    degrees = total**2 / np.maximum(
        sum(part**2 / (side.shape[1] - 1) for part, side in zip(parts, (left, right), strict=True)), 1e-300
    )
    return _student_p(right.mean(axis=1) - left.mean(axis=1), total, degrees)


def student_paired(differences: Floats) -> Floats:
    """Student's test of a mean of 0, one p value a row."""
    nights = differences.shape[1]
    variance = differences.var(axis=1, ddof=1) / nights
    return _student_p(differences.mean(axis=1), variance, np.full(len(differences), nights - 1.0))


def _student_p(difference: Floats, variance: Floats, degrees: Floats) -> Floats:
    # Rounding makes tiny variances of constants; they are none.
    constant = variance <= 1e-24
    t = np.abs(difference) / np.sqrt(np.where(constant, 1.0, variance))
    p = 2 * special.stdtr(np.maximum(degrees, 1.0), -t)
    return np.asarray(np.where(constant, np.abs(difference) <= 1e-12, p), dtype=np.float64)


def dependent_p(p: float, nights: Sequence[int], dependence: Dependence) -> float:
    """The p value of a test that takes nights for independent, made that of nights that hang together.

    The variance of the statistic is larger, and its tail that of fewer nights, as Hamed and Rao (1998) do it
    for a rank test of trend.

    Args:
        nights: of each sample.
    """
    if dependence.variance == 1:
        return p
    t = -float(special.stdtrit(sum(nights) - len(nights), max(p / 2, 1e-30)))
    factor = sum(dependence.scale(count) for count in nights) / len(nights)
    degrees = sum(dependence.degrees(count) for count in nights)
    return max(p, float(2 * special.stdtr(degrees, -t / sqrt(factor))))


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
