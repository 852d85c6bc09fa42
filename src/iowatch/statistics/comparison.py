"""Comparison of many pairs: verdicts, sessions needed, overall answer, and subgroups that differ.

A verdict of faster or slower requires that the rank test rejects and that the interval excludes 1. Each needs
(z_test + z_power)^2 * variance / difference^2 sessions; `sessions needed` is the larger of the two. The variance is
the upper bound of a one-sided 85 % interval (chi-squared), because the first sessions may scatter little by chance and
would then give too few sessions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, hypot, inf, log, sqrt
from statistics import median
from typing import Literal

import numpy as np
import scipy  # its modules are loaded when they are used: scipy.special takes a fifth of the start of a command

from iowatch.statistics import estimates, explanation
from iowatch.statistics.errors import StatisticsError
from iowatch.statistics.pairs import (
    MAX_STATED_RANGE,
    BestValues,
    CaseT,
    ComparedCase,
    ComparisonSettings,
    Floats,
    IntervalBasis,
    OverallComparison,
    Pair,
    PairComparison,
    RatioEstimate,
    ScalingPoint,
    Side,
    SideSamples,
    SideSummary,
    VarianceInflation,
    VerdictKind,
    format_percent,
)
from iowatch.statistics.rules import SeriesResponse
from iowatch.statistics.vocabulary import ParameterVocabulary

AnyComparison = PairComparison[ComparedCase]


def decide_pair_verdict(
    p: float | None, ci: tuple[float, float] | None, sign: int, settings: ComparisonSettings
) -> tuple[VerdictKind, float | None, str]:
    """Return the verdict of a ratio, the x of "no difference above x %" (a fraction), and the reason as text.

    Faster and slower need both: the corrected test rejects, and the interval excludes 1. The interval is needed
    if the spreads of the sides differ, because a rank test can reject for that alone.

    Args:
        p: corrected p value, or None if the pair was not tested.
        ci: interval of right / left, or None.
        sign: direction of the metric: 1 if higher is better, -1 if lower is better.
        settings: alpha, negligible and widest are used.
    """
    if p is None or ci is None:
        return "not enough data", None, "too few sessions to estimate the noise"
    low, high = ci
    # The largest relative difference that the interval contains.
    bound = max(high - 1, 1 - low)
    excludes_1 = not low <= 1 <= high
    if p <= settings.alpha and excludes_1 and bound > settings.negligible:
        is_faster = (low > 1) == (sign > 0)
        return "faster" if is_faster else "slower", None, f"corrected p = {p:.2g}, interval excludes 1"
    # No difference was shown; a narrow interval shows that there is none above its bound.
    interval = f"the {settings.level:.0%} interval"
    if bound <= settings.widest:
        return "no difference", bound, f"{interval} lies within {format_percent(bound)}"
    if high > MAX_STATED_RANGE * low:
        return "not enough data", None, f"{interval} spans more than a factor of {MAX_STATED_RANGE}"
    return "not enough data", None, f"{interval}, {low:.2g} to {high:.2g}, is too wide"


# Standard deviation of ln(value) between sessions of a shared file system, assumed with fewer sessions than
# `estimates.MIN_SESSIONS`.
_ASSUMED_SESSION_SPREAD = 0.15
# Efficiency of the rank tests against Student's under normal noise: 3 / pi (Hodges and Lehmann, 1956).
_RANK_EFFICIENCY = 3 / np.pi
_SPREAD_BOUND_QUANTILE = 0.85
# Future sessions are corrected for autocorrelation, too; this widens the interval of a single pair by 7 % even
# without autocorrelation (bench/statistics/compare.py, `wandering`).
_INTERVAL_WIDENING = 1.07**2
# More nightly sessions than in three years are not a recommendation.
MAX_RUNS_NEEDED = 1_000


def runs_needed(
    sides: estimates.AlignedSides, estimate: RatioEstimate, threshold: float, settings: ComparisonSettings
) -> tuple[int, int]:
    """Total number of sessions per side (or pairs) needed for a verdict, with the measured spread and its upper bound.

    Args:
        estimate: of the median; its spread is the standard deviation of the log ratio at one session per side.
        threshold: p value that the rank test must reach after the correction.
        settings: difference to find, and power.
    """
    spread, dependence = estimate.spread, estimate.dependence
    # Standard deviation of the log ratio between one session of each side.
    if sides.paired:
        noise = float(np.std(sides.log_ratios, ddof=1))
    else:
        noise = hypot(_side_spread(sides.left), _side_spread(sides.right))
    noise *= sqrt(dependence.variance)
    log_difference = log(1 + settings.difference)
    # Ranks are robust to outliers, as medians are; the standard deviation is not, so the smaller spread is used.
    noise_of_ranks = min(noise / sqrt(_RANK_EFFICIENCY), spread or inf)
    for_test = _required_sessions(noise_of_ranks, threshold, log_difference, settings.power)
    for_interval = _required_sessions(spread or noise, 1 - settings.level, log_difference, settings.power)
    expected = max(for_test, for_interval) * _INTERVAL_WIDENING
    # The scatter of so few sessions may be small by chance.
    degrees = _degrees_of_spread(sides, dependence)
    variance_factor = 1.0
    if degrees > 1:
        variance_factor = degrees / float(scipy.special.chdtri(degrees, _SPREAD_BOUND_QUANTILE))
    fewest = estimates.MIN_SIGNED_RANK_PAIRS if sides.paired else estimates.MIN_RANK_SUM_SESSIONS
    return max(fewest, ceil(expected)), max(fewest, ceil(expected * variance_factor))


def _degrees_of_spread(sides: estimates.AlignedSides, dependence: VarianceInflation) -> float:
    """Degrees of freedom of the scatter of log ratios between sessions; of samples with too few sessions."""
    if sides.fewest < estimates.MIN_SESSIONS:
        observed = max(1, len(sides.left.values) + len(sides.right.values) - 2)
    elif sides.paired:
        observed = sides.fewest - 1
    else:
        observed = len(sides.left) + len(sides.right) - 2
    return max(1.0, observed / dependence.spread)


def recommend_runs(
    needed: tuple[int, int], sides: estimates.AlignedSides, difference: float, wanders: bool = False
) -> tuple[int | None, str | None]:
    """Useful total number of sessions per side, and why there is none or why it is only the next step.

    The number needed grows with 1 / log(1 + difference)^2, which gives the difference that a limited number can find.

    Args:
        needed: from `runs_needed`, for `difference`.
        wanders: the level moves slowly, so consecutive sessions add little.
    """
    expected, upper = needed
    if wanders:
        alternately = (
            "more runs one after the other would help little, because the level moves slowly over many runs: measure "
            "both sides alternately (`iowatch run --ab`)"
        )
        return None, alternately
    # Too many by the upper bound of a scatter that is hardly known: a few runs more show the scatter first.
    if upper > MAX_RUNS_NEEDED and sides.fewest < estimates.MIN_RANK_SUM_SESSIONS:
        return estimates.MIN_RANK_SUM_SESSIONS, "a first step: so few runs do not show how much runs differ"
    if expected <= MAX_RUNS_NEEDED:
        return min(upper, MAX_RUNS_NEEDED), None
    # No useful number finds this difference; the most runs that are useful find a larger one.
    findable = exp(log(1 + difference) * sqrt(expected / MAX_RUNS_NEEDED)) - 1
    about = f"{float(f'{expected:.1g}'):,.0f}"
    too_many = (
        f"more runs would not help: runs differ so much that {format_percent(difference)} would need about "
        f"{about} runs per side; {MAX_RUNS_NEEDED:,} runs would find {_format_change(findable)}"
    )
    return None, too_many


def _format_change(fraction: float) -> str:
    """A relative difference as per cent, from 100 % on as a factor."""
    return format_percent(fraction) if fraction < 1 else f"a factor of {1 + fraction:.2g}"


def _side_spread(side: estimates.SessionSamples) -> float:
    """Standard deviation of log session medians; with too few sessions, sample scatter and assumed spread combined."""
    if len(side) >= estimates.MIN_SESSIONS:
        return float(np.std(np.log(side.medians), ddof=1))
    within = float(np.std(np.log(side.values), ddof=1)) if len(side.values) > 1 else _ASSUMED_SESSION_SPREAD
    return hypot(within, _ASSUMED_SESSION_SPREAD)


def _required_sessions(noise: float, p: float, difference: float, power: float) -> float:
    """Sessions for a two-sided test at level p of a mean with standard deviation `noise`."""
    return float(((scipy.special.ndtri(power) - scipy.special.ndtri(p / 2)) * noise / difference) ** 2)


@dataclass(frozen=True, slots=True)
class EstimatedPair:
    """Two sides with samples, and the ratio of their medians."""

    sides: estimates.AlignedSides
    medians: RatioEstimate


_VERDICTS: tuple[VerdictKind, ...] = ("faster", "slower", "no difference", "not enough data")
_SIZE_PARAMETERS = ("ranks", "nodes", "instances")
_MIN_CASES = 3


def summarise_comparison(
    compared: Sequence[AnyComparison], estimated: Sequence[EstimatedPair | None], settings: ComparisonSettings
) -> OverallComparison:
    """Combine the pairs into the overall comparison.

    Args:
        compared: pairs with their verdicts.
        estimated: aligned sides and estimate of the median of each pair, None for a pair without samples; same order.
        settings: the same as for the pairs.
    """
    counts = Counter(pair.verdict for pair in compared)
    combined = _combine_pairs(compared, estimated, settings)
    verdict, bound, reason = decide_pair_verdict(combined.p, combined.ci, 1, settings)
    return OverallComparison(
        counts={verdict: counts[verdict] for verdict in _VERDICTS},
        ratio=combined.ratio,
        ci=combined.ci,
        basis=combined.basis,
        verdict=verdict,
        bound=bound,
        reason=combined.reason or reason,
        runs_needed=combined.runs_needed,
        scaling=scaling_ratios(compared),
        peaks=_best_values(compared),
    )


@dataclass(frozen=True, slots=True)
class _CombinedEstimate:
    """Estimate over all pairs; `reason` replaces that of the verdict, `runs_needed` is per side."""

    ratio: float | None = None
    ci: tuple[float, float] | None = None
    p: float | None = None
    basis: IntervalBasis = "none"
    reason: str = ""
    runs_needed: int | None = None


def _combine_pairs(
    compared: Sequence[AnyComparison], estimated: Sequence[EstimatedPair | None], settings: ComparisonSettings
) -> _CombinedEstimate:
    with_ratio = [pair for pair in compared if pair.ratio is not None]
    logs = np.array([pair_log_gain(pair) for pair in with_ratio])
    if not len(logs):
        return _CombinedEstimate(reason="" if compared else "no pairs")
    # Pairs with enough sessions for an interval decide, if there are any.
    with_interval: list[tuple[AnyComparison, EstimatedPair]] = []
    for pair, estimate in zip(compared, estimated, strict=True):
        if estimate is not None and estimate.medians.ci is not None:
            with_interval.append((pair, estimate))
    if with_interval:
        combined = _combine_over_sessions(with_interval, settings)
        left_out = len(with_ratio) - len(with_interval)
        if not left_out:
            return combined
        few = f"{left_out} of {len(with_ratio)} cases have fewer than {estimates.MIN_SESSIONS} runs per side"
        return replace(combined, reason=f"{few}; without them {_verdict_reason(combined, settings)}")
    runs: list[int] = []
    for pair in with_ratio:
        runs += [side.runs for side in (pair.left, pair.right) if side.runs is not None]
    if runs and min(runs) < estimates.MIN_SESSIONS:
        return _too_few_sessions(with_ratio, exp(logs.mean()), max(runs))
    return _combine_over_cases(logs, settings)


def _verdict_reason(combined: _CombinedEstimate, settings: ComparisonSettings) -> str:
    _, _, reason = decide_pair_verdict(combined.p, combined.ci, 1, settings)
    return reason


def _too_few_sessions(compared: Sequence[AnyComparison], ratio: float, runs: int) -> _CombinedEstimate:
    """No interval and no test: the cases of a session share the state of the machine, however many they are."""
    needed = [pair.runs_needed for pair in compared if pair.runs_needed is not None]
    runs_needed = round(median(needed)) if needed else None
    to_find = ""
    if runs_needed:
        to_find = f", and about {runs_needed} to find a difference of the size asked for"
    reason = (
        f"all cases of a run share the state of the machine, so cases do not replace runs: a verdict over all "
        f"needs at least {estimates.MIN_SESSIONS} runs per side{to_find}"
    )
    return _CombinedEstimate(ratio, reason=reason, runs_needed=runs_needed)


def _combine_over_sessions(
    with_interval: Sequence[tuple[AnyComparison, EstimatedPair]], settings: ComparisonSettings
) -> _CombinedEstimate:
    """Combine pairs that have intervals.

    All pairs are drawn with the same sessions, so the draws of their mean include the dependence between pairs. The
    draws of each pair include the autocorrelation of consecutive sessions.
    """
    centre = float(np.mean([pair_log_gain(pair) for pair, _ in with_interval]))
    signs = np.array([pair.sign for pair, _ in with_interval])
    dependent = [(estimate.sides, estimate.medians.dependence) for _, estimate in with_interval]
    drawn = estimates.draw_pairs_together(dependent, settings)
    draws = centre + np.nanmean(signs[:, None] * drawn, axis=0)
    # The draws have the autocorrelation of the level; that of the scatter is the usual one of the pairs.
    inflation = VarianceInflation(spread=median(dependence.spread for _, dependence in dependent))
    sessions = int(median(sides.fewest for sides, _ in dependent))
    spread = estimates.uncertainty_from_draws(draws, sessions, inflation)
    low, high = estimates.expanded_percentile_interval(centre, draws, spread, settings.level)
    basis: IntervalBasis = "paired sessions" if all(pair.paired for pair, _ in with_interval) else "sessions"
    return _CombinedEstimate(exp(centre), (exp(low), exp(high)), estimates.t_test_p_value(centre, spread), basis)


def _combine_over_cases(logs: Floats, settings: ComparisonSettings) -> _CombinedEstimate:
    """Combine pairs of figures whose sessions are not known: the cases are the sample.

    The result holds for similar cases of the same measurement, not for other sessions.
    """
    n = len(logs)
    centre = float(logs.mean())
    if n < _MIN_CASES:
        return _CombinedEstimate(exp(centre))
    error = float(logs.std(ddof=1)) / n**0.5
    half = float(scipy.special.stdtrit(n - 1, (1 + settings.level) / 2)) * error
    test = estimates.signed_rank_p_values if n >= estimates.MIN_SIGNED_RANK_PAIRS else estimates.paired_t_test
    p = float(test(logs[None, :])[0])
    return _CombinedEstimate(exp(centre), (exp(centre - half), exp(centre + half)), p, "cases")


def pair_log_gain(pair: AnyComparison) -> float:
    """Log of the gain right / left; 0 if the metric has no direction, or without a ratio."""
    if pair.ratio is None:
        return 0.0
    return pair.sign * log(pair.ratio)


def scaling_ratios(compared: Sequence[AnyComparison]) -> Mapping[str, tuple[ScalingPoint, ...]]:
    """Gains by number of ranks, nodes and instances, for each of these parameters with several values."""
    points_of: dict[str, tuple[ScalingPoint, ...]] = {}
    for parameter in _SIZE_PARAMETERS:
        gains_of: dict[int, list[float]] = defaultdict(list)
        for pair in compared:
            value = pair.case.parameters.get(parameter)
            if pair.ratio is not None and isinstance(value, int | float):
                gains_of[int(value)].append(pair_log_gain(pair))
        if len(gains_of) < 2:
            continue
        points: list[ScalingPoint] = []
        for size, gains in sorted(gains_of.items()):
            mean = exp(sum(gains) / len(gains))
            points.append(ScalingPoint(size, len(gains), mean, exp(min(gains)), exp(max(gains))))
        points_of[parameter] = tuple(points)
    return points_of


def _best_values(compared: Sequence[AnyComparison]) -> tuple[BestValues, ...]:
    groups: dict[tuple[str, str, int], list[tuple[float, float]]] = defaultdict(list)
    for pair in compared:
        if pair.sign < 0:
            left, right = pair.left.min, pair.right.min
        else:
            left, right = pair.left.max, pair.right.max
        if left and right:
            operation = str(pair.case.parameters.get("operation", ""))
            groups[operation, pair.metric, pair.sign].append((left, right))
    best_values = []
    for (operation, metric, sign), values in sorted(groups.items()):
        best = min if sign < 0 else max
        left_values, right_values = zip(*values, strict=True)
        best_values.append(BestValues(operation, metric, best(left_values), best(right_values)))
    return tuple(best_values)


_DIRECTIONS: tuple[tuple[Literal["faster", "slower"], int], ...] = (("faster", 1), ("slower", -1))
# With fewer pairs any rule is due to chance.
_MIN_SUBGROUP_PAIRS = 4


@dataclass(frozen=True, slots=True)
class Subgroup:
    """A rule that selects the faster or the slower pairs.

    Attributes:
        rule: as text.
        inside, inside_total: of the pairs that meet the rule, the number of faster (slower) ones, and the total.
        outside, outside_total: the same for the other pairs.
        ratio: gain right / left of the differing pairs that meet the rule (geometric mean).
    """

    direction: Literal["faster", "slower"]
    rule: str
    inside: int
    inside_total: int
    outside: int
    outside_total: int
    ratio: float


def find_subgroups(
    compared: Sequence[AnyComparison], settings: ComparisonSettings, vocabulary: ParameterVocabulary
) -> tuple[Subgroup, ...]:
    """At most one subgroup per direction; empty if no rule separates the pairs.

    Pairs of published figures have no verdict; they count as different beyond `settings.difference`.
    """
    with_ratio = [pair for pair in compared if pair.ratio is not None]
    if len(with_ratio) < _MIN_SUBGROUP_PAIRS:
        return ()
    subgroups: list[Subgroup] = []
    for direction, sign in _DIRECTIONS:
        # The pairs of this verdict are the changed series of an explanation, all others the unchanged ones.
        responses: list[SeriesResponse] = []
        for pair in with_ratio:
            case = {"benchmark": pair.case.benchmark, **pair.case.parameters}
            differs = _difference(pair, settings) == direction
            responses.append(SeriesResponse(case, differs, pair_log_gain(pair)))
        rule = explanation.explain_changes(responses, vocabulary=vocabulary).rule
        if rule is None:
            continue
        # Of the pairs with this verdict those whose ratio has its sign.
        differing = [response.log_ratio for response in responses if response.changed]
        gains = [gain for gain in differing if sign * gain > 0]
        group = Subgroup(
            direction=direction,
            rule=rule.text,
            inside=rule.changed_in,
            inside_total=rule.total_in,
            outside=rule.changed_out,
            outside_total=rule.total_out,
            ratio=exp(sum(gains) / len(gains)),
        )
        subgroups.append(group)
    return tuple(subgroups)


def _difference(pair: AnyComparison, settings: ComparisonSettings) -> Literal["faster", "slower"] | None:
    """Whether the right side of a pair is faster or slower; None without a difference."""
    is_published = pair.p is None and pair.left.runs is None and pair.right.runs is None
    if is_published:
        gain = pair_log_gain(pair)
        if abs(gain) <= log(1 + settings.difference):
            return None
        return "faster" if gain > 0 else "slower"
    if pair.verdict == "faster" or pair.verdict == "slower":
        return pair.verdict
    return None


_Statistic = Literal["median", "max", "mean"]
_STATISTICS: tuple[_Statistic, ...] = ("median", "max", "mean")


def compare_pairs(
    pairs: Sequence[Pair[CaseT]], settings: ComparisonSettings | None = None
) -> tuple[list[PairComparison[CaseT]], OverallComparison]:
    """Compare each pair, and combine all pairs.

    Args:
        pairs: the same case on both sides; the metric has a direction.
        settings: thresholds of the comparison [default: `ComparisonSettings()`].

    Returns:
        the verdicts in the order of `pairs`, and the overall comparison.

    Raises:
        StatisticsError: a metric has no direction.
    """
    settings = settings or ComparisonSettings()
    compared, estimated = _estimate_pairs(pairs, settings)
    return compared, summarise_comparison(compared, estimated, settings)


def compare_groups(
    pairs: Sequence[Pair[CaseT]], groups: Sequence[tuple[Sequence[int], float]], settings: ComparisonSettings
) -> tuple[list[PairComparison[CaseT]], list[OverallComparison]]:
    """Compare each pair, and combine the pairs of each group; a pair may be in several groups.

    Autocorrelation is estimated from all pairs.

    Args:
        pairs: as for `compare_pairs`.
        groups: positions of the pairs of each group, and the confidence level of its interval.

    Returns:
        the verdicts in the order of `pairs`, and the overall comparison of each group.

    Raises:
        StatisticsError: a metric has no direction.
    """
    compared, estimated = _estimate_pairs(pairs, settings)
    of_groups: list[OverallComparison] = []
    for members, level in groups:
        compared_members = [compared[i] for i in members]
        estimated_members = [estimated[i] for i in members]
        of_groups.append(summarise_comparison(compared_members, estimated_members, replace(settings, level=level)))
    return compared, of_groups


def _estimate_pairs(
    pairs: Sequence[Pair[CaseT]], settings: ComparisonSettings
) -> tuple[list[PairComparison[CaseT]], list[EstimatedPair | None]]:
    """Verdict of each pair, and its estimates; None for a pair of published figures."""
    neutral = sorted({pair.metric for pair in pairs if pair.sign == 0})
    if neutral:
        raise StatisticsError(
            f"neither higher nor lower is better for {', '.join(neutral)}: no side can be faster",
            hint="--metric chooses others, for example bandwidth or time.",
        )
    aligned: dict[int, estimates.AlignedSides] = {}
    for position, pair in enumerate(pairs):
        if isinstance(pair.left, SideSamples) and isinstance(pair.right, SideSamples):
            aligned[position] = estimates.align_sides(pair.left, pair.right)
    # The autocorrelation of the sessions is estimated from all pairs together.
    inflations = estimates.estimate_inflations(list(aligned.values()))
    estimated: list[EstimatedPair | None] = [None] * len(pairs)
    for (position, sides), dependence in zip(aligned.items(), inflations, strict=True):
        estimated[position] = EstimatedPair(sides, estimates.ratio_of_medians(sides, settings, dependence))
    p_values, adjusted = _test_pairs(estimated)
    # p value that one more pair must reach to be accepted by Benjamini-Hochberg.
    tested = [p for p in adjusted if p is not None]
    accepted = sum(p <= settings.alpha for p in tested)
    threshold = settings.alpha * min(1.0, (accepted + 1) / max(1, len(tested)))
    family = sum(estimate is not None and estimate.medians.ci is not None for estimate in estimated)
    compared: list[PairComparison[CaseT]] = []
    for pair, estimate, p, corrected in zip(pairs, estimated, p_values, adjusted, strict=True):
        if estimate is None:
            compared.append(_compare_figures(pair))
        else:
            test = _PairTest(p, corrected, threshold, family)
            compared.append(_assess_pair(pair, estimate, test, settings))
    return compared, estimated


@dataclass(frozen=True, slots=True)
class _PairTest:
    """Result of the test of a pair.

    Attributes:
        p, adjusted: p value before and after the correction for the number of pairs; None with too few sessions.
        threshold: p value that one more pair must reach to be accepted.
        family: number of pairs of the comparison that have an interval.
    """

    p: float | None
    adjusted: float | None
    threshold: float
    family: int


def _test_pairs(estimated: Sequence[EstimatedPair | None]) -> tuple[list[float | None], list[float | None]]:
    """P values of the pairs with enough sessions, raw and corrected for the number of pairs.

    The correction of Benjamini and Hochberg (1995) limits the share of false ones among those <= q to q. It is also
    valid for positively dependent pairs, such as cases of one session (Benjamini and Yekutieli, 2001).
    """
    from scipy import stats

    p_values: list[float | None] = [None] * len(estimated)
    sides = [estimate.sides if estimate else None for estimate in estimated]
    for members, samples in estimates.stack_sessions(sides):
        # Paired sessions are one sample of log ratios.
        if len(samples) == 1:
            p_of_members = estimates.paired_p_values(*samples)
        else:
            p_of_members = estimates.independent_p_values(*samples)
        # The tests assume independent sessions.
        sessions = [values.shape[1] for values in samples]
        for position, p in zip(members, p_of_members, strict=True):
            estimate = estimated[position]
            if estimate is not None:
                dependence = estimate.medians.dependence
                p_values[position] = estimates.correct_p_for_autocorrelation(float(p), sessions, dependence)
    # The correction concerns the pairs that were tested.
    tested = [position for position, p in enumerate(p_values) if p is not None]
    adjusted: list[float | None] = [None] * len(estimated)
    if tested:
        corrected = stats.false_discovery_control([p_values[position] for position in tested])
        for position, p in zip(tested, corrected.tolist(), strict=True):
            adjusted[position] = p
    return p_values, adjusted


# From this inflation on, the reason states that sessions are autocorrelated.
_MIN_REPORTED_INFLATION = 1.2


def _assess_pair(
    pair: Pair[CaseT], estimate: EstimatedPair, test: _PairTest, settings: ComparisonSettings
) -> PairComparison[CaseT]:
    """The verdict of a pair with samples."""
    sides, medians = estimate.sides, estimate.medians
    maxima = estimates.ratio_of_maxima(sides, settings, medians.dependence)
    verdict, bound, reason = decide_pair_verdict(test.adjusted, medians.ci, pair.sign, settings)
    # Too few sessions give no verdict, whatever the samples within them say.
    if sides.fewest < estimates.MIN_SESSIONS:
        left, right = len(sides.left), len(sides.right)
        runs = "run" if right == 1 else "runs"
        too_few = f"the noise between sessions cannot be estimated below {estimates.MIN_SESSIONS} per side"
        reason = f"{left} against {right} {runs}: {too_few}"
        verdict, bound = "not enough data", None
    else:
        reason += _describe_sessions(estimate)
    # How many sessions would decide.
    needed_runs = runs_needed(sides, medians, test.threshold, settings)
    wanders = medians.dependence.wandering > 0
    needed, why = recommend_runs(needed_runs, sides, settings.difference, wanders)
    return PairComparison(
        case=pair.case,
        metric=pair.metric,
        sign=pair.sign,
        left=_summarise_side(sides.left),
        right=_summarise_side(sides.right),
        statistic="median",
        ratio=medians.ratio,
        values=medians.values,
        ci=medians.ci,
        ci_simultaneous=estimates.widen_to_family(medians, test.family, settings.level),
        ratio_max=maxima.ratio,
        values_max=maxima.values,
        ci_max=maxima.ci,
        p=test.p,
        p_adjusted=test.adjusted,
        paired=sides.paired,
        verdict=verdict,
        bound=bound,
        runs_needed=needed,
        runs_reason=why,
        reason=reason,
        inflation=medians.dependence.variance,
    )


def _describe_sessions(estimate: EstimatedPair) -> str:
    """How the sessions of a pair were compared, as the end of the reason of its verdict."""
    sides, dependence = estimate.sides, estimate.medians.dependence
    text = "; compared paired by session" if sides.paired else "; compared as independent samples"
    if sides.left_out:
        text += f"; {sides.left_out} sessions without a counterpart excluded"
    if dependence.wandering:
        as_one = min(sides.fewest, dependence.variance)
        text += f"; the level moves slowly over many runs: {as_one:.1f} count as one"
    elif dependence.variance >= _MIN_REPORTED_INFLATION:
        text += f"; consecutive sessions are correlated: {dependence.variance:.1f} count as one"
    return text


def _summarise_side(side: estimates.SessionSamples) -> SideSummary:
    values = side.values
    return SideSummary(
        n=len(values),
        max=float(np.max(values)),
        median=float(np.median(values)),
        mean=float(np.mean(values)),
        min=float(np.min(values)),
        runs=len(side),
    )


def _compare_figures(pair: Pair[CaseT]) -> PairComparison[CaseT]:
    """Compare published figures: a ratio without a statement about noise."""
    left, right = _summary_of(pair.left), _summary_of(pair.right)
    # The first statistic that both sides state.
    statistic = next((name for name in _STATISTICS if getattr(left, name) and getattr(right, name)), None)
    values = (getattr(left, statistic), getattr(right, statistic)) if statistic else None
    best = (left.max, right.max) if left.max and right.max else None
    return PairComparison(
        case=pair.case,
        metric=pair.metric,
        sign=pair.sign,
        left=left,
        right=right,
        statistic=statistic,
        ratio=values[1] / values[0] if values else None,
        values=values,
        ratio_max=best[1] / best[0] if best else None,
        values_max=best,
        verdict="not enough data",
        reason="printed figures without samples" if statistic else "no statistic in common",
    )


def _summary_of(side: Side) -> SideSummary:
    """Published figures as they are, samples summarised."""
    if isinstance(side, SideSummary):
        return side
    return _summarise_side(estimates.SessionSamples.of(side.sessions))
