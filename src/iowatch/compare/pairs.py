"""Comparing many pairs: estimates, tests, correction, verdicts, the overall answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from iowatch.compare.advice import runs_needed
from iowatch.compare.dependence import dependences
from iowatch.compare.estimate import FEWEST, Nights, Sides, align, ratio_of_maxima, ratio_of_medians
from iowatch.compare.judge import Decision, decide, goodness, threshold, too_few
from iowatch.compare.overall import summarise_all
from iowatch.compare.ranks import benjamini_hochberg, dependent_p, independent_p, paired_p
from iowatch.compare.records import (
    Comparison,
    Estimate,
    Floats,
    Measured,
    Overall,
    Pair,
    Printed,
    Settings,
    Side,
    SideSummary,
)
from iowatch.errors import UsageError

_Statistic = Literal["median", "max", "mean"]
_STATISTICS: tuple[_Statistic, ...] = ("median", "max", "mean")


@dataclass(frozen=True)
class _Worked:
    """A pair with samples on both sides, half way."""

    sides: Sides
    medians: Estimate
    maxima: Estimate


def compare(pairs: Sequence[Pair], settings: Settings | None = None) -> tuple[list[Comparison], Overall]:
    """Judge every pair and all together.

    Args:
        pairs: the same case on both sides; metrics with a better direction.
        settings: how strict.

    Returns:
        the judged pairs in the order given, and the answer over all of them.

    Raises:
        UsageError: a metric of which neither higher nor lower is better.
    """
    chosen = settings or Settings()
    _refuse_neutral(pairs)
    worked = _work(pairs, chosen)
    p_values = _p_values(worked)
    adjusted = _adjust(p_values)
    reach = threshold(adjusted, chosen.alpha)
    compared = [
        _judge(pair, work, p, corrected, reach, chosen)
        for pair, work, p, corrected in zip(pairs, worked, p_values, adjusted, strict=True)
    ]
    return compared, summarise_all(compared, [work.medians if work else None for work in worked], chosen)


def _refuse_neutral(pairs: Sequence[Pair]) -> None:
    neutral = sorted({pair.metric for pair in pairs if goodness(pair.metric) == 0})
    if neutral:
        raise UsageError(
            f"neither higher nor lower is better for {', '.join(neutral)}: no side can be faster",
            hint="--metric chooses others, for example bandwidth or time.",
        )


def _work(pairs: Sequence[Pair], settings: Settings) -> list[_Worked | None]:
    """Estimates of the pairs with samples; all together tell how the machine's nights hang together."""
    aligned = {
        index: align(pair.left, pair.right)
        for index, pair in enumerate(pairs)
        if isinstance(pair.left, Measured) and isinstance(pair.right, Measured)
    }
    found: list[_Worked | None] = [None] * len(pairs)
    sides = list(aligned.values())
    for index, side, dependence in zip(aligned, sides, dependences(sides), strict=True):
        medians = ratio_of_medians(side, settings, dependence)
        found[index] = _Worked(side, medians, ratio_of_maxima(side, settings, dependence))
    return found


def _p_values(worked: Sequence[_Worked | None]) -> list[float | None]:
    """Tests of all pairs, those with the same numbers of nights together."""
    found: list[float | None] = [None] * len(worked)
    groups: dict[tuple[bool, int, int], list[int]] = defaultdict(list)
    for index, work in enumerate(worked):
        if work and work.sides.fewest >= FEWEST:
            groups[work.sides.paired, len(work.sides.left), len(work.sides.right)].append(index)
    for (paired, left, right), members in groups.items():
        works = [work for index in members if (work := worked[index])]
        nights = (left,) if paired else (left, right)
        for index, work, p in zip(members, works, _tested(paired, [work.sides for work in works]), strict=True):
            found[index] = dependent_p(float(p), nights, work.medians.dependence)
    return found


def _tested(paired: bool, sides: Sequence[Sides]) -> Floats:
    if paired:
        return paired_p(np.array([each.log_ratios for each in sides]))
    left, right = (np.log([getattr(each, name).medians for each in sides]) for name in ("left", "right"))
    return independent_p(left, right)


def _adjust(p_values: Sequence[float | None]) -> list[float | None]:
    known = benjamini_hochberg([p for p in p_values if p is not None])
    supply = iter(known)
    return [None if p is None else next(supply) for p in p_values]


def _judge(
    pair: Pair, work: _Worked | None, p: float | None, adjusted: float | None, reach: float, settings: Settings
) -> Comparison:
    if work is None:
        return _without_samples(pair)
    decision = decide(adjusted, work.medians.ci, goodness(pair.metric), settings)
    few = too_few(work.sides)
    return Comparison(
        case=pair.case,
        metric=pair.metric,
        left=_summary(work.sides.left),
        right=_summary(work.sides.right),
        statistic="median",
        ratio=work.medians.ratio,
        ci=work.medians.ci,
        ratio_max=work.maxima.ratio,
        ci_max=work.maxima.ci,
        p=p,
        p_adjusted=adjusted,
        paired=work.sides.paired,
        verdict=decision.verdict if few is None else "not enough data",
        bound=decision.bound if few is None else None,
        runs_needed=runs_needed(work.sides, work.medians, reach, settings),
        reason=_reason(few, decision, work),
        inflation=work.medians.dependence.variance,
    )


# From here on it is told that nights hang together.
_TOLD_INFLATION = 1.2


def _reason(few: str | None, decision: Decision, work: _Worked) -> str:
    if few is not None:
        return few
    sides, inflation = work.sides, work.medians.dependence.variance
    how = f"; {sides.left_out} unshared runs left out" if sides.left_out else ""
    if inflation >= _TOLD_INFLATION:
        how += f"; neighbouring runs are alike: {inflation:.1f} count as one"
    return f"{decision.reason}; compared {'night by night' if sides.paired else 'side by side'}{how}"


def _summary(side: Nights) -> SideSummary:
    values = side.values
    return SideSummary(
        n=len(values),
        max=float(values.max()),
        median=float(np.median(values)),
        mean=float(values.mean()),
        min=float(values.min()),
        runs=len(side),
    )


def _without_samples(pair: Pair) -> Comparison:
    """Printed figures: a ratio, and no statement about noise."""
    left, right = (_printed(side) for side in (pair.left, pair.right))
    shared = [name for name in _STATISTICS if getattr(left, name) and getattr(right, name)]
    statistic = shared[0] if shared else None
    ratio = getattr(right, statistic) / getattr(left, statistic) if statistic else None
    best = right.max / left.max if left.max and right.max else None
    return Comparison(
        case=pair.case,
        metric=pair.metric,
        left=left,
        right=right,
        statistic=statistic,
        ratio=ratio,
        ci=None,
        ratio_max=best,
        ci_max=None,
        p=None,
        p_adjusted=None,
        paired=False,
        verdict="not enough data",
        bound=None,
        runs_needed=None,
        reason="printed figures without samples" if statistic else "no statistic in common",
    )


def _printed(side: Side) -> SideSummary:
    if isinstance(side, Printed):
        return SideSummary(side.n, side.max, side.median, side.mean, side.min, None)
    return _summary(Nights.of(list(side.nights.values())))
