"""The comparison of many pairs: verdicts, sessions needed, the overall answer, and subgroups that differ.

For a verdict of faster or slower the rank test must reject, and the interval must exclude 1. Each needs
(z_test + z_power)^2 * variance / difference^2 sessions; `sessions needed` is the larger of both. The variance is the
upper bound of a one-sided 85 % interval (chi-squared), because a quiet start by chance would ask for too little.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, hypot, inf, log, sqrt
from typing import Literal

import numpy as np
from scipy import special

from iowatch.core import METRICS, UsageError, get_metric
from iowatch.stats import estimates, explanation
from iowatch.stats.pairs import (
    BestValues,
    ComparisonSettings,
    Floats,
    IntervalBasis,
    OverallComparison,
    Pair,
    PairComparison,
    RatioEstimate,
    ScalingPoint,
    SideSamples,
    SideSummary,
    VarianceInflation,
    VerdictKind,
    format_percent,
)
from iowatch.stats.rules import SeriesResponse


def decide_pair_verdict(
    p: float | None, ci: tuple[float, float] | None, sign: int, settings: ComparisonSettings
) -> tuple[VerdictKind, float | None, str]:
    """Verdict of a ratio, the x of "no difference above x %" (a fraction), and the reason in words.

    Faster and slower need both: the corrected test rejects, and the interval excludes 1. The interval
    protects where the sides' spreads differ, which rank tests mistake for a difference.

    Args:
        p: corrected p value, or None where there is none.
        ci: interval of right / left, or None.
        sign: of the metric, 1 where higher is better and -1 where lower is.
        settings: with alpha, negligible and widest.
    """
    if p is None or ci is None:
        return "not enough data", None, "too few sessions to estimate the noise"
    low, high = ci
    bound = max(high - 1, 1 - low)
    if p <= settings.alpha and not low <= 1 <= high and bound > settings.negligible:
        faster = (low > 1) == (sign > 0)
        return "faster" if faster else "slower", None, f"corrected p = {p:.2g}, interval excludes 1"
    if bound <= settings.widest:
        return "no difference", bound, f"the {settings.level:.0%} interval lies within {format_percent(bound)}"
    return "not enough data", None, f"the interval reaches {format_percent(bound)} from 1"


# Standard deviation between sessions of a shared file system, assumed (in the log) where too few were measured.
_ASSUMED_SESSION_SPREAD = 0.15
# Efficiency of the rank tests against Student's under normal noise: 3 / pi (Hodges and Lehmann, 1956).
_RANK_EFFICIENCY = 3 / np.pi
# Sessions below which a measured spread between sessions is no estimate.
_FEW_SESSIONS = 3
_SPREAD_BOUND_QUANTILE = 0.85
# The runs to come are corrected for autocorrelation, too; without any, that still widens the interval of a
# single pair by 7 % (bench/compare.py, `wandering`).
_INTERVAL_WIDENING = 1.07**2
MAX_RUNS_NEEDED = 100_000


def runs_needed(
    sides: estimates.AlignedSides, estimate: RatioEstimate, threshold: float, settings: ComparisonSettings
) -> int:
    """Sessions per side (or pairs), in all.

    Args:
        estimate: of the median; its spread is what one session per side leaves open.
        threshold: p value that the rank test must reach after the correction.
        settings: with the difference to find and the power.
    """
    spread, dependence = estimate.spread, estimate.dependence
    counted = len(sides.left) + len(sides.right) - 2
    if sides.fewest < _FEW_SESSIONS:  # single samples stand in
        counted = max(1, len(sides.left.values) + len(sides.right.values) - 2)
    elif sides.paired:
        counted = sides.fewest - 1
    degrees = max(1.0, counted / dependence.spread)
    # Standard deviation of the log ratio between one session of each side.
    spreads = hypot(_side_spread(sides.left), _side_spread(sides.right))
    noise = (float(np.std(sides.log_ratios, ddof=1)) if sides.paired else spreads) * sqrt(dependence.variance)
    wanted = log(1 + settings.difference)
    # Ranks shrug off outliers as medians do, so that a wild standard deviation is not theirs.
    rank = _required_sessions(min(noise / sqrt(_RANK_EFFICIENCY), spread or inf), threshold, wanted, settings.power)
    width = _required_sessions(spread or noise, 1 - settings.level, wanted, settings.power)
    doubt = degrees / float(special.chdtri(degrees, _SPREAD_BOUND_QUANTILE)) if degrees > 1 else 1.0
    fewest = estimates.MIN_SIGNED_RANK_PAIRS if sides.paired else estimates.MIN_RANK_SUM_SESSIONS
    return min(MAX_RUNS_NEEDED, max(fewest, ceil(max(rank, width) * doubt * _INTERVAL_WIDENING)))


def _side_spread(side: estimates.SessionSamples) -> float:
    """Between session medians; with too few, a first guess: samples vary as much, and sessions as is assumed."""
    if len(side) >= _FEW_SESSIONS:
        return float(np.std(np.log(side.medians), ddof=1))
    within = float(np.std(np.log(side.values), ddof=1)) if len(side.values) > 1 else _ASSUMED_SESSION_SPREAD
    return hypot(within, _ASSUMED_SESSION_SPREAD)


def _required_sessions(noise: float, p: float, difference: float, power: float) -> float:
    """Of a two-sided test at level p of a mean with standard deviation `noise`."""
    return float(((special.ndtri(power) - special.ndtri(p / 2)) * noise / difference) ** 2)


_VERDICTS: tuple[VerdictKind, ...] = ("faster", "slower", "no difference", "not enough data")
_SIZE_PARAMETERS = ("ranks", "nodes", "instances")
_MIN_CASES = 3


def summarise_comparison(
    compared: Sequence[PairComparison], medians: Sequence[RatioEstimate | None], settings: ComparisonSettings
) -> OverallComparison:
    """Combine pairs.

    Args:
        compared: pairs with their verdicts.
        medians: estimate of the median of each pair, None where there are no samples; same order.
        settings: as of the pairs.
    """
    counts = Counter(one.verdict for one in compared)
    ratio, ci, p, basis = _combine_pairs(compared, medians, settings)
    verdict, bound, reason = decide_pair_verdict(p, ci, 1, settings)
    return OverallComparison(
        counts={verdict: counts[verdict] for verdict in _VERDICTS},
        ratio=ratio,
        ci=ci,
        basis=basis,
        verdict=verdict,
        bound=bound,
        reason=reason if compared else "no pairs",
        scaling=scaling_ratios(compared),
        peaks=_best_values(compared),
    )


_CombinedEstimate = tuple[float | None, tuple[float, float] | None, float | None, IntervalBasis]


def _combine_pairs(
    compared: Sequence[PairComparison], medians: Sequence[RatioEstimate | None], settings: ComparisonSettings
) -> _CombinedEstimate:
    logs = np.array([pair_log_gain(one) for one in compared if one.ratio is not None])
    if not len(logs):
        return None, None, None, "none"
    drawn = [
        (one, METRICS[one.metric].sign * found.draws, found.dependence.spread)
        for one, found in zip(compared, medians, strict=True)
        if found is not None and found.draws is not None
    ]
    if drawn and len(drawn) == len(logs):
        return _combine_over_sessions(logs, drawn, settings)
    return _combine_over_cases(logs, settings)


def _combine_over_sessions(
    logs: Floats, drawn: Sequence[tuple[PairComparison, Floats, float]], settings: ComparisonSettings
) -> _CombinedEstimate:
    """All pairs were drawn with the same sessions, so the draws of their mean carry their dependence on each
    other; the autocorrelation of neighbouring sessions is in the draws of each."""
    centre = float(logs.mean())
    draws = np.mean([each for _, each, _ in drawn], axis=0)
    together = VarianceInflation(spread=float(np.median([spread for *_, spread in drawn])))
    sessions = min(side.runs or 1 for one, *_ in drawn for side in (one.left, one.right))
    spread = estimates.uncertainty_from_draws(draws, sessions, together)
    low, high = estimates.expanded_percentile_interval(centre, draws, spread, settings.level)
    paired = all(one.paired for one, *_ in drawn)
    basis: IntervalBasis = "paired sessions" if paired else "sessions"
    return exp(centre), (exp(low), exp(high)), estimates.t_test_p_value(centre, spread), basis


def _combine_over_cases(logs: Floats, settings: ComparisonSettings) -> _CombinedEstimate:
    """Without samples the cases are the sample: an answer about cases like these, not about other sessions."""
    n = len(logs)
    centre = float(logs.mean())
    if n < _MIN_CASES:
        return exp(centre), None, None, "none"
    error = float(logs.std(ddof=1)) / n**0.5
    half = float(special.stdtrit(n - 1, (1 + settings.level) / 2)) * error
    test = estimates.signed_rank_p_values if n >= estimates.MIN_SIGNED_RANK_PAIRS else estimates.paired_t_test
    p = float(test(logs[None, :])[0])
    return exp(centre), (exp(centre - half), exp(centre + half)), p, "cases"


def pair_log_gain(one: PairComparison) -> float:
    """Log of how many times as fast right is as left; 0 where the metric has no better direction."""
    return METRICS[one.metric].log_gain(one.ratio) if one.ratio is not None else 0.0


def scaling_ratios(compared: Sequence[PairComparison]) -> Mapping[str, tuple[ScalingPoint, ...]]:
    """Ratios by each parameter of size that takes several values."""
    found = {}
    for axis in _SIZE_PARAMETERS:
        groups: dict[int, list[float]] = defaultdict(list)
        for one in compared:
            value = one.case.parameters.get(axis)
            if one.ratio is not None and isinstance(value, int | float):
                groups[int(value)].append(pair_log_gain(one))
        if len(groups) > 1:
            found[axis] = tuple(
                ScalingPoint(value, len(gains), exp(sum(gains) / len(gains)), exp(min(gains)), exp(max(gains)))
                for value, gains in sorted(groups.items())
            )
    return found


def _best_values(compared: Sequence[PairComparison]) -> tuple[BestValues, ...]:
    groups: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for one in compared:
        name = METRICS[one.metric].best_bound("min", "max")
        best = getattr(one.left, name), getattr(one.right, name)
        if best[0] and best[1]:
            groups[str(one.case.parameters.get("operation", "")), one.metric].append(best)
    found = []
    for (operation, name), values in sorted(groups.items()):
        best_of = METRICS[name].best
        found.append(BestValues(operation, name, *(best_of(side) for side in zip(*values, strict=True))))
    return tuple(found)


_DIRECTIONS: tuple[tuple[Literal["faster", "slower"], int], ...] = (("faster", 1), ("slower", -1))
_MIN_SUBGROUP_PAIRS = 4  # pairs: below, any rule is chance


@dataclass(frozen=True, slots=True)
class Subgroup:
    """A rule for the pairs that are faster, or for those that are slower.

    Attributes:
        rule: in words.
        inside, inside_total: pairs that meet the rule: how many are faster (slower), and of how many.
        outside, outside_total: the same of the other pairs.
        ratio: how many times as fast right is as left over the pairs inside that differ (geometric mean).
    """

    direction: Literal["faster", "slower"]
    rule: str
    inside: int
    inside_total: int
    outside: int
    outside_total: int
    ratio: float


def find_subgroups(compared: Sequence[PairComparison], settings: ComparisonSettings) -> tuple[Subgroup, ...]:
    """At most one rule for each direction; none where no rule separates them.

    Pairs of printed figures have no verdict; they count as different beyond `settings.difference`.
    """
    usable = [one for one in compared if one.ratio is not None]
    if len(usable) < _MIN_SUBGROUP_PAIRS:
        return ()
    gains = [pair_log_gain(one) for one in usable]
    cases = [{"benchmark": one.case.benchmark, **one.case.parameters} for one in usable]
    found = []
    for direction, sign in _DIRECTIONS:
        changed = [_is_difference(one, settings) == direction for one in usable]
        rule = explanation.explain_changes(list(map(SeriesResponse, cases, changed, gains))).rule
        if rule is None:
            continue
        inside = [gain for gain, differs in zip(gains, changed, strict=True) if differs and sign * gain > 0]
        group = Subgroup(
            direction=direction,
            rule=rule.text,
            inside=rule.changed_in,
            inside_total=rule.total_in,
            outside=rule.changed_out,
            outside_total=rule.total_out,
            ratio=exp(sum(inside) / len(inside)),
        )
        found.append(group)
    return tuple(found)


def _is_difference(one: PairComparison, settings: ComparisonSettings) -> str | None:
    if one.p is None and one.left.runs is None and one.right.runs is None:
        gain = pair_log_gain(one)
        large = abs(gain) > log(1 + settings.difference)
        return None if not large else "faster" if gain > 0 else "slower"
    return one.verdict if one.verdict in ("faster", "slower") else None


_Statistic = Literal["median", "max", "mean"]
_STATISTICS: tuple[_Statistic, ...] = ("median", "max", "mean")
# Sides with samples, and the ratio of their medians.
_EstimatedPair = tuple[estimates.AlignedSides, RatioEstimate]


def compare_pairs(
    pairs: Sequence[Pair], settings: ComparisonSettings | None = None
) -> tuple[list[PairComparison], OverallComparison]:
    """Compare every pair, and all together.

    Args:
        pairs: the same case on both sides; metrics with a better direction.
        settings: how strict.

    Returns:
        the verdicts in the order given, and the answer over all of them.

    Raises:
        UsageError: a metric of which neither higher nor lower is better.
    """
    chosen = settings or ComparisonSettings()
    neutral = sorted({pair.metric for pair in pairs if get_metric(pair.metric).sign == 0})
    if neutral:
        raise UsageError(
            f"neither higher nor lower is better for {', '.join(neutral)}: no side can be faster",
            hint="--metric chooses others, for example bandwidth or time.",
        )
    worked: list[_EstimatedPair | None] = [None] * len(pairs)
    aligned = {
        index: estimates.align_sides(pair.left, pair.right)
        for index, pair in enumerate(pairs)
        if isinstance(pair.left, SideSamples) and isinstance(pair.right, SideSamples)
    }
    # All pairs together give the autocorrelation of the machine's sessions.
    inflations = estimates.estimate_inflations(list(aligned.values()))
    for (index, sides), dependence in zip(aligned.items(), inflations, strict=True):
        worked[index] = sides, estimates.ratio_of_medians(sides, chosen, dependence)
    p_values, adjusted = _test_pairs(worked)
    # The p value that one more pair must reach for Benjamini-Hochberg to accept it.
    known = [p for p in adjusted if p is not None]
    reach = chosen.alpha * min(1.0, (sum(p <= chosen.alpha for p in known) + 1) / max(1, len(known)))
    compared = [
        _assess_pair(pair, work, p, corrected, reach, chosen) if work else _compare_figures(pair)
        for pair, work, p, corrected in zip(pairs, worked, p_values, adjusted, strict=True)
    ]
    return compared, summarise_comparison(compared, [work[1] if work else None for work in worked], chosen)


def _test_pairs(worked: Sequence[_EstimatedPair | None]) -> tuple[list[float | None], list[float | None]]:
    """P values of the pairs with enough sessions, and those corrected for many pairs.

    The correction of Benjamini and Hochberg (1995): at most the share q of those <= q are false. It is valid also when
    pairs are positively dependent, as cases of the same session are (Benjamini and Yekutieli, 2001).
    """
    from scipy import stats

    found: list[float | None] = [None] * len(worked)
    for members, parts in estimates.stack_sessions([work[0] if work else None for work in worked]):
        p_values = estimates.paired_p_values(*parts) if len(parts) == 1 else estimates.independent_p_values(*parts)
        sessions = [part.shape[1] for part in parts]
        for index, p in zip(members, p_values, strict=True):
            if work := worked[index]:
                found[index] = estimates.correct_p_for_autocorrelation(float(p), sessions, work[1].dependence)
    known = [p for p in found if p is not None]
    adjusted = iter(stats.false_discovery_control(known).tolist() if known else ())
    return found, [None if p is None else next(adjusted) for p in found]


# From here on the reason states that sessions are autocorrelated.
_MIN_REPORTED_INFLATION = 1.2


def _assess_pair(
    pair: Pair,
    work: _EstimatedPair,
    p: float | None,
    adjusted: float | None,
    reach: float,
    settings: ComparisonSettings,
) -> PairComparison:
    sides, medians = work
    maxima = estimates.ratio_of_maxima(sides, settings, medians.dependence)
    inflation = medians.dependence.variance
    verdict, bound, reason = decide_pair_verdict(adjusted, medians.ci, METRICS[pair.metric].sign, settings)
    if sides.fewest < estimates.MIN_SESSIONS:
        left, right = len(sides.left), len(sides.right)
        runs = f"{left} run{'s' * (left != 1)} on the left, {right} on the right"
        reason = f"{runs}: the noise between sessions cannot be estimated below {estimates.MIN_SESSIONS} a side"
        verdict, bound = "not enough data", None
    else:
        reason += f"; compared {'paired by session' if sides.paired else 'as independent samples'}"
        if sides.left_out:
            reason += f"; {sides.left_out} sessions without a counterpart excluded"
        if inflation >= _MIN_REPORTED_INFLATION:
            reason += f"; consecutive sessions are correlated: {inflation:.1f} count as one"
    return PairComparison(
        case=pair.case,
        metric=pair.metric,
        left=_summarise_side(sides.left),
        right=_summarise_side(sides.right),
        statistic="median",
        ratio=medians.ratio,
        ci=medians.ci,
        ratio_max=maxima.ratio,
        ci_max=maxima.ci,
        p=p,
        p_adjusted=adjusted,
        paired=sides.paired,
        verdict=verdict,
        bound=bound,
        runs_needed=runs_needed(sides, medians, reach, settings),
        reason=reason,
        inflation=inflation,
    )


def _summarise_side(side: estimates.SessionSamples) -> SideSummary:
    n, runs = len(side.values), len(side)
    most, middle, mean, least = (float(of(side.values)) for of in (np.max, np.median, np.mean, np.min))
    return SideSummary(n=n, max=most, median=middle, mean=mean, min=least, runs=runs)


def _compare_figures(pair: Pair) -> PairComparison:
    """Printed figures: a ratio, and no statement about noise."""
    left, right = (
        side
        if isinstance(side, SideSummary)
        else _summarise_side(estimates.SessionSamples.of(list(side.sessions.values())))
        for side in (pair.left, pair.right)
    )
    statistic = next((name for name in _STATISTICS if getattr(left, name) and getattr(right, name)), None)
    ratio = getattr(right, statistic) / getattr(left, statistic) if statistic else None
    best = right.max / left.max if left.max and right.max else None
    return PairComparison(
        case=pair.case,
        metric=pair.metric,
        left=left,
        right=right,
        statistic=statistic,
        ratio=ratio,
        ratio_max=best,
        verdict="not enough data",
        reason="printed figures without samples" if statistic else "no statistic in common",
    )
