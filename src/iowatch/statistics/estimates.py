"""Estimates of the ratios of a comparison, with confidence intervals and p values.

Bootstrap. Samples of one session share the state of the machine, so sessions are drawn: a draw takes G of the G
sessions with replacement, each with all its samples (the cluster bootstrap; Davison and Hinkley, "Bootstrap Methods
and their Application", 1997, section 3.8: resampling within the groups as well would count the spread inside them
twice). Its quantiles are too narrow for few sessions, because G drawn sessions have only (G-1)/G of the variance and
their spread is itself uncertain. They are widened around the estimate by sqrt(G/(G-1)) and by the ratio of Student's t
to the normal quantile (the expanded percentile interval; Hesterberg, "What Teachers Should Know about the Bootstrap",
The American Statistician 69, 2015), with Welch's degrees of freedom for two sides. tests/statistics and
bench/statistics/compare.py measure the coverage.

Autocorrelation. On a shared file system slow sessions follow slow sessions, and 28 such sessions contain less
information about the next month than 28 independent ones. The variance of a mean grows by V = 1 + 2 (r1 + r2 + ...),
where rk is the autocorrelation at lag k (Bayley and Hammersley, 1946); n sessions are equivalent to n / V independent
ones.

Few sessions do not determine each rk, so only r1 is estimated, from ranks (robust to outliers), and corrected for
the bias of short series (Marriott and Pope, 1954); the decay is assumed: rk = r1 d^(k-1) with d the larger of
r1 and `_AUTOCORRELATION_DECAY`. The r1 of one pair of series is mostly chance. So all pairs of a comparison, measured
on the same machine, give a common r1, shrunk towards 0 by r^2 / (r^2 + 1/N), N sessions; each pair deviates from it as
far as the pairs differ by more than chance (empirical Bayes, James and Stein, 1961). For independent sessions the
result is close to 0. bench/statistics/compare.py measures the effect.

Tests. Rank tests are the default, because they need no assumption about the noise. Their p value cannot fall below
that of complete separation, 2 / C(2n, n) for n sessions per side, which can be too large after the correction for many
pairs, whatever the size of the difference. If the sessions are completely separated, or too few for ranks, Student's
test of the log session medians is used instead. Its assumption of normal noise is conservative: under heavy tails the
test finds fewer differences (bench/statistics/compare.py, `tails`).
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import chain
from math import comb, exp, log, sqrt
from statistics import NormalDist, median

import numpy as np
import scipy  # its modules are loaded when they are used: scipy.special takes a fifth of the start of a command
from numpy.typing import NDArray

from iowatch.statistics import wandering
from iowatch.statistics.constants import Floats
from iowatch.statistics.pairs import NO_INFLATION, ComparisonSettings, RatioEstimate, SideSamples, VarianceInflation

ResampleCounts = NDArray[np.int32]

# Quantiles taken from the draws: 1,000 draws estimate 5 % and 95 % well, and these exclude the far tails
# that a median over few sessions can reach.
_TAIL = 0.05
_TAIL_Z = NormalDist().inv_cdf(1 - _TAIL)


@lru_cache(maxsize=512)
def draw_session_counts(sessions: int, resamples: int, seed: int) -> ResampleCounts:
    """Number of times each session is in each draw: shape (sessions, resamples), columns sum to `sessions`.

    All pairs of a comparison use the same draws, so that pairs measured in the same sessions are drawn together and
    the overall answer includes their dependence.
    """
    rng = np.random.default_rng([seed, sessions])
    drawn = rng.multinomial(sessions, np.full(sessions, 1 / sessions), size=resamples)
    return np.ascontiguousarray(drawn.T, dtype=np.int32)


def bootstrap_medians(values: Floats, session: NDArray[np.intp], counts: ResampleCounts) -> Floats:
    """Median of the pooled samples in each draw.

    Args:
        values: samples, shape (n,).
        session: session index of each sample, shape (n,).
        counts: from `draw_session_counts`, shape (sessions, resamples).

    Returns:
        shape (resamples,); like `numpy.median`, the mean of the two middle samples if their number is even.
    """
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    reached = np.cumsum(counts[session[order]], axis=0, dtype=np.int32)
    total = reached[-1].copy()
    reached *= 2
    low = ranked[np.sum(reached < total, axis=0)]
    high = ranked[np.sum(reached <= total, axis=0)]
    return np.asarray((low + high) / 2, dtype=np.float64)


def interquartile_weights(values: Floats) -> Floats:
    """Weight of each value in their interquartile mean; shape (n,) in and out, the sum is 1."""
    n = len(values)
    inside = np.clip(np.arange(1, n + 1), n / 4, 3 * n / 4)
    weights = np.empty(n)
    weights[np.argsort(values, kind="stable")] = np.diff(inside, prepend=n / 4) / (n / 2)
    return weights


def bootstrap_interquartile_means(values: Floats, counts: ResampleCounts) -> Floats:
    """Interquartile mean of one value per session in each draw: shape (resamples,).

    The interquartile mean is the mean of the middle half of the values; values at the quartiles count in part.
    It is robust to outliers like the median, and its draws are less coarse: intervals over pairs are a tenth narrower
    than those of medians, and cover better.

    Args:
        values: shape (sessions,).
        counts: from `draw_session_counts`, shape (sessions, resamples).
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(counts[order], axis=0, dtype=np.float64)
    total = reached[-1].copy()
    inside = np.clip(reached, total / 4, 3 * total / 4)
    shares = np.diff(inside, axis=0, prepend=total[None, :] / 4)
    return np.asarray(values[order] @ shares / (total / 2), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class EstimateUncertainty:
    """Uncertainty of one estimate: squared standard error and its degrees of freedom."""

    variance: float
    degrees: float

    def plus(self, other: EstimateUncertainty) -> EstimateUncertainty:
        """Uncertainty of the difference of two independent estimates (Welch and Satterthwaite)."""
        total = self.variance + other.variance
        if total == 0:
            return EstimateUncertainty(0.0, min(self.degrees, other.degrees))
        divisor = self.variance**2 / self.degrees + other.variance**2 / other.degrees
        return EstimateUncertainty(total, total**2 / divisor)


def widen_draws(draws: Floats, centre: float, sessions: int, dependence: VarianceInflation) -> Floats:
    """Scale draws of independent sessions to the scatter of an estimate from autocorrelated sessions.

    Args:
        centre: the estimate.
    """
    if dependence.variance == 1:
        return draws
    return np.asarray(centre + (draws - centre) * sqrt(dependence.scale(sessions)))


def uncertainty_from_draws(
    draws: Floats, sessions: int, dependence: VarianceInflation = NO_INFLATION
) -> EstimateUncertainty:
    """Squared standard error of an estimate from its draws (see `widen_draws`) over `sessions` >= 2 sessions."""
    low, high = np.quantile(draws, [_TAIL, 1 - _TAIL])
    variance = ((high - low) / (2 * _TAIL_Z)) ** 2 * sessions / (sessions - 1)
    return EstimateUncertainty(variance, dependence.degrees(sessions))


def expanded_percentile_interval(
    estimate: float, draws: Floats, spread: EstimateUncertainty, level: float
) -> tuple[float, float]:
    """Expanded percentile interval around `estimate`, on the scale of the draws.

    It has the width of Student's interval of `spread` and the asymmetry of the draws.

    Args:
        draws: bootstrap draws of the estimate, shape (resamples,).
        spread: corrected for few sessions (`uncertainty_from_draws`, `EstimateUncertainty.plus`).
        level: confidence level, for example 0.95.
    """
    low, high = np.quantile(draws, [_TAIL, 1 - _TAIL])
    # Both quantiles of a skewed bootstrap may be on one side of the estimate; the interval still contains it.
    below, above = max(0.0, estimate - low), max(0.0, high - estimate)
    if below + above == 0:
        return estimate, estimate
    width = 2 * float(scipy.special.stdtrit(spread.degrees, (1 + level) / 2)) * sqrt(spread.variance)
    return estimate - width * below / (below + above), estimate + width * above / (below + above)


def t_test_p_value(estimate: float, spread: EstimateUncertainty) -> float:
    """Two-sided p value of "the log ratio is 0" by Student's t."""
    if spread.variance == 0:
        return 1.0 if estimate == 0 else 0.0
    return float(2 * scipy.special.stdtr(spread.degrees, -abs(estimate) / sqrt(spread.variance)))


# Share of the sessions of the side with fewer that is enough to compare session by session.
_MIN_SHARED_FRACTION = 0.75
# Fewest sessions per side for any statement about noise; intervals from two sessions span a factor of ten.
MIN_SESSIONS = 3


@dataclass(frozen=True)
class SessionSamples:
    """Samples of one side, by session and as flat arrays.

    Attributes:
        samples: samples of each session, in time order.
        names: of the sessions.
        values: all samples, shape (n,).
        session: session index of each sample, shape (n,).
        medians: median of each session, shape (len(samples),).
    """

    samples: tuple[tuple[float, ...], ...]
    names: tuple[str, ...]
    values: Floats
    session: NDArray[np.intp]
    medians: Floats

    @classmethod
    def of(cls, sessions: Mapping[str, Sequence[float]]) -> SessionSamples:
        """Create from samples by session; no session may be empty."""
        samples = tuple(tuple(values) for values in sessions.values())
        values = np.array(list(chain.from_iterable(samples)), dtype=np.float64)
        session = np.repeat(np.arange(len(samples)), [len(of_session) for of_session in samples])
        # statistics.median, because numpy.median takes 20 µs per call, and 1,000 pairs have 60,000 sessions.
        medians = np.array([median(of_session) for of_session in samples])
        return cls(samples, tuple(sessions), values, session, medians)

    def __len__(self) -> int:
        return len(self.samples)


@dataclass(frozen=True)
class AlignedSides:
    """Both sides of a pair as they are compared; `paired` if they share their sessions."""

    left: SessionSamples
    right: SessionSamples
    paired: bool
    left_out: int = 0

    @property
    def fewest(self) -> int:
        """Number of sessions of the side with fewer."""
        return min(len(self.left), len(self.right))

    @property
    def log_ratios(self) -> Floats:
        """Log ratio right / left of the medians of each shared session; only if `paired`."""
        return np.log(self.right.medians / self.left.medians)


def align_sides(left: SideSamples, right: SideSamples) -> AlignedSides:
    """Align by session if the sides share nearly all sessions, else as two independent samples."""
    shared = [key for key in left.sessions if key in right.sessions]
    fewer = min(len(left.sessions), len(right.sessions))
    if len(shared) < max(MIN_SESSIONS, _MIN_SHARED_FRACTION * fewer):
        return AlignedSides(SessionSamples.of(left.sessions), SessionSamples.of(right.sessions), paired=False)
    shared_left = SessionSamples.of({key: left.sessions[key] for key in shared})
    shared_right = SessionSamples.of({key: right.sessions[key] for key in shared})
    left_out = len(left.sessions) + len(right.sessions) - 2 * len(shared)
    return AlignedSides(shared_left, shared_right, paired=True, left_out=left_out)


@dataclass(frozen=True, slots=True)
class LogLevel:
    """Level of one side (ln), or of the log ratios of paired sides.

    Attributes:
        estimate: from all sessions.
        sessions: their number.
        draws: bootstrap draws of the estimate, shape (resamples,).
    """

    estimate: float
    sessions: int
    draws: Floats


def ratio_of_medians(
    sides: AlignedSides, settings: ComparisonSettings, dependence: VarianceInflation = NO_INFLATION
) -> RatioEstimate:
    """Ratio right / left of the medians of all samples; if paired, interquartile mean of the session ratios.

    Args:
        dependence: variance inflation of the sessions.
    """
    if sides.paired:
        logs = [np.log(sides.left.medians), np.log(sides.right.medians)]
        return _ratio_of_midmeans(logs, True, settings, dependence)
    levels: list[LogLevel] = []
    # The draws of both sides are independent of each other.
    for offset, side in enumerate((sides.left, sides.right)):
        counts = draw_session_counts(len(side), settings.resamples, settings.seed + offset)
        draws = np.log(bootstrap_medians(side.values, side.session, counts))
        levels.append(LogLevel(log(np.median(side.values)), len(side), draws))
    return _estimate_ratio(levels, (levels[0].estimate, levels[1].estimate), settings, dependence)


def ratio_of_maxima(
    sides: AlignedSides, settings: ComparisonSettings, dependence: VarianceInflation = NO_INFLATION
) -> RatioEstimate:
    """Ratio right / left of the typical best repetition per session.

    The maximum of all samples grows with their number and its bootstrap does not converge. So maxima are taken per
    session, over the same number of repetitions on both sides, and the middle half of the sessions is averaged.
    """
    repetitions_left = int(median(map(len, sides.left.samples)))
    repetitions_right = int(median(map(len, sides.right.samples)))
    repetitions = min(repetitions_left, repetitions_right)
    logs: list[Floats] = []
    for side in (sides.left, sides.right):
        logs.append(np.log([_expected_maximum(values, repetitions) for values in side.samples]))
    return _ratio_of_midmeans(logs, sides.paired, settings, dependence)


def _expected_maximum(values: Sequence[float], repetitions: int) -> float:
    """Expected maximum of `repetitions` values drawn without replacement."""
    n = len(values)
    if n <= repetitions:
        return max(values)
    # A value with `below` smaller ones is the maximum if all other repetitions are drawn from those.
    weights = (comb(below, repetitions - 1) / comb(n, repetitions) for below in range(n))
    return sum(weight * value for weight, value in zip(weights, sorted(values), strict=True))


def _ratio_of_midmeans(
    logs: Sequence[Floats], paired: bool, settings: ComparisonSettings, dependence: VarianceInflation
) -> RatioEstimate:
    """Ratio from one log value per session of left and right; if paired, from the differences of the sessions."""
    drawn = [logs[1] - logs[0]] if paired else logs
    weights = [interquartile_weights(values) for values in drawn]
    levels: list[LogLevel] = []
    for offset, (values, weight) in enumerate(zip(drawn, weights, strict=True)):
        counts = draw_session_counts(len(values), settings.resamples, settings.seed + offset)
        draws = bootstrap_interquartile_means(values, counts)
        levels.append(LogLevel(float(weight @ values), len(values), draws))
    # Paired sides have the weights of their differences, so that the quotient of both values is the ratio.
    log_left, log_right = float(weights[0] @ logs[0]), float(weights[-1] @ logs[1])
    return _estimate_ratio(levels, (log_left, log_right), settings, dependence)


def _estimate_ratio(
    levels: Sequence[LogLevel],
    log_values: tuple[float, float],
    settings: ComparisonSettings,
    dependence: VarianceInflation,
) -> RatioEstimate:
    """Ratio right / left of two levels drawn independently, or of one level of paired log ratios.

    Args:
        levels: of left and right, or of the log ratios.
        log_values: of left and right.
    """
    # Right less left; of paired log ratios there is one level, and nothing to subtract.
    *subtracted, last = levels
    centre = last.estimate - sum(level.estimate for level in subtracted)
    values = exp(log_values[0]), exp(log_values[1])
    if min(level.sessions for level in levels) < MIN_SESSIONS:
        return RatioEstimate(exp(centre), values)
    # The uncertainty of each level, and of their difference.
    widened: list[Floats] = []
    uncertainties: list[EstimateUncertainty] = []
    for level in levels:
        draws_of_level = widen_draws(level.draws, level.estimate, level.sessions, dependence)
        widened.append(draws_of_level)
        uncertainties.append(uncertainty_from_draws(draws_of_level, level.sessions, dependence))
    spread = reduce(EstimateUncertainty.plus, uncertainties)
    draws = widened[-1] - sum(widened[:-1])
    # The interval of the ratio, and the scatter of one session per side, from which the sessions needed follow.
    low, high = expanded_percentile_interval(centre, draws, spread, settings.level)
    variance_of_session = sum(
        uncertainty.variance * level.sessions for uncertainty, level in zip(uncertainties, levels, strict=True)
    )
    return RatioEstimate(
        ratio=exp(centre),
        values=values,
        ci=(exp(low), exp(high)),
        spread=sqrt(variance_of_session),
        draws=draws,
        dependence=dependence,
        degrees=spread.degrees,
    )


def widen_to_family(estimate: RatioEstimate, family: int, level: float) -> tuple[float, float] | None:
    """Interval of a ratio that holds together with those of all pairs of a comparison (Bonferroni).

    Student's quantile of 1 - level is replaced by that of (1 - level) / family; the asymmetry stays.

    Args:
        family: number of pairs with an interval, at least 1.
        level: probability with which all intervals contain their ratios, for example 0.95.

    Returns:
        None for an estimate without an interval.
    """
    if estimate.ci is None or estimate.degrees is None:
        return None
    low, high = estimate.ci
    quantile = float(scipy.special.stdtrit(estimate.degrees, (1 + level) / 2))
    quantile_of_family = float(scipy.special.stdtrit(estimate.degrees, 1 - (1 - level) / (2 * family)))
    factor = quantile_of_family / quantile
    below, above = log(estimate.ratio / low), log(high / estimate.ratio)
    return estimate.ratio * exp(-factor * below), estimate.ratio * exp(factor * above)


def draw_pairs_together(
    pairs: Sequence[tuple[AlignedSides, VarianceInflation]], settings: ComparisonSettings
) -> Floats:
    """Bootstrap draws of the log ratio of each pair, in which a session is drawn for all pairs at once.

    The cases of a session share the state of the machine, so the mean over pairs is only as certain as the sessions
    are many, also if some cases miss some sessions. The ratio is that of interquartile means of the sessions' medians.

    Returns:
        shape (pairs, resamples), around 0; NaN where a draw has no session of a side.
    """
    counts_of_session = _draw_named_sessions([sides for sides, _ in pairs], settings)
    draws_of_pairs: list[Floats] = []
    for sides, dependence in pairs:
        # One sample of log ratios, or one sample of log values for each side.
        if sides.paired:
            samples = [(sides.log_ratios, sides.right.names)]
        else:
            samples = [(np.log(side.medians), side.names) for side in (sides.left, sides.right)]
        draws = np.zeros(settings.resamples)
        for values, names in samples:
            counts = np.array([counts_of_session[name] for name in names])
            with np.errstate(invalid="ignore"):
                means = bootstrap_interquartile_means(values, counts)
            estimate = float(interquartile_weights(values) @ values)
            # Right less left.
            draws = widen_draws(means - estimate, 0.0, len(values), dependence) - draws
        draws_of_pairs.append(draws)
    return np.array(draws_of_pairs)


def _draw_named_sessions(pairs: Sequence[AlignedSides], settings: ComparisonSettings) -> dict[str, NDArray[np.int32]]:
    """Number of times each session is in each draw, shape (resamples,); sessions of one or both sides apart."""
    # Names in the order in which they are first seen.
    left: dict[str, None] = {}
    right: dict[str, None] = {}
    for pair in pairs:
        left |= dict.fromkeys(pair.left.names)
        right |= dict.fromkeys(pair.right.names)
    only_left = [name for name in left if name not in right]
    only_right = [name for name in right if name not in left]
    on_both_sides = [name for name in left if name in right]
    counts_of_session: dict[str, NDArray[np.int32]] = {}
    for offset, names in enumerate((only_left, only_right, on_both_sides)):
        if names:
            counts = draw_session_counts(len(names), settings.resamples, settings.seed + offset)
            counts_of_session |= dict(zip(names, counts, strict=True))
    return counts_of_session


# From one year of Edison (24 series, 62 levels of 25 sessions or more): r1 = 0.31, r2 = 0.21, r3 = 0.14, r4 = 0.10.
_AUTOCORRELATION_DECAY = 0.7
_MAX_AUTOCORRELATION = 0.95


def estimate_inflations(sides: Sequence[AlignedSides]) -> list[VarianceInflation]:
    """Variance inflation of the sessions of each pair; `NO_INFLATION` if they are too few for an estimate.

    Args:
        sides: all pairs of one comparison, measured on the same machine.
    """
    inflations = [NO_INFLATION] * len(sides)
    # Autocorrelation of each pair with its number of sessions, and evidence for a moving level, by position.
    autocorrelation_of: dict[int, float] = {}
    sessions_of: dict[int, int] = {}
    evidence_of: dict[int, Floats] = {}
    for members, samples in stack_sessions(sides):
        if min(values.shape[1] for values in samples) >= wandering.MIN_SESSIONS:
            evidence_of |= dict(zip(members, wandering.log_evidence(samples).T, strict=True))
        sessions = sum(values.shape[1] for values in samples)
        weighted = sum(_rank_autocorrelation(values) * values.shape[1] for values in samples)
        for position, autocorrelation in zip(members, np.asarray(weighted) / sessions, strict=True):
            autocorrelation_of[position] = float(autocorrelation)
            sessions_of[position] = sessions
    # What one pair shows is mostly chance: it is shrunk towards what all pairs show.
    if autocorrelation_of:
        r_of_pairs, sessions_of_pairs = np.array([*autocorrelation_of.values()]), np.array([*sessions_of.values()])
        shrunk_of_pairs = _shrink_autocorrelations(r_of_pairs, sessions_of_pairs)
        for position, shrunk in zip(autocorrelation_of, shrunk_of_pairs, strict=True):
            r = min(max(float(shrunk), 0.0), _MAX_AUTOCORRELATION)
            variance = min(1 + 2 * r / (1 - max(r, _AUTOCORRELATION_DECAY)), sides[position].fewest / 2)
            inflations[position] = VarianceInflation(max(1.0, variance), (1 + r * r) / (1 - r * r))
    # A level that moves slowly inflates more than its sessions show.
    for position, share in wandering.wandering_shares(evidence_of).items():
        fast = inflations[position]
        slow = VarianceInflation.of_moving_level(share, sides[position].fewest, fast.spread)
        inflations[position] = max(fast, slow, key=lambda inflation: inflation.variance)
    return inflations


def _shrink_autocorrelations(r: Floats, sessions: Floats) -> Floats:
    """Lag-1 autocorrelation of each pair, shrunk towards the common one, shape (pairs,).

    Args:
        r: estimates, shape (pairs,).
        sessions: number of sessions of each estimate, shape (pairs,).
    """
    mean, chance = float(r.mean()), float(np.mean(1 / sessions))
    common = mean**3 / (mean**2 + chance)
    if len(r) == 1:
        return np.array([common])
    variance_between = float(np.sum((r - mean) ** 2)) / (len(r) - 1)
    # The share of the differences between pairs that is not chance.
    share = 0.0
    if variance_between:
        share = max(0.0, 1 - chance / variance_between)
    return common + (r - mean) * share


def stack_sessions(sides: Sequence[AlignedSides | None]) -> Iterator[tuple[list[int], list[Floats]]]:
    """Group the pairs with enough sessions by their numbers of sessions.

    Yields:
        positions of the pairs, and arrays of shape (pairs, sessions): one of log ratios if they are paired, else two
        of log medians, left and right.
    """
    groups: dict[tuple[bool, int, int], dict[int, AlignedSides]] = defaultdict(dict)
    for index, pair in enumerate(sides):
        if pair is not None and pair.fewest >= MIN_SESSIONS:
            groups[pair.paired, len(pair.left), len(pair.right)][index] = pair
    for (paired, _, _), members in groups.items():
        if paired:
            yield list(members), [np.array([pair.log_ratios for pair in members.values()])]
        else:
            left = np.log([pair.left.medians for pair in members.values()])
            right = np.log([pair.right.medians for pair in members.values()])
            yield list(members), [left, right]


def _rank_autocorrelation(values: Floats) -> Floats:
    """Lag-1 autocorrelation of the ranks of each row, corrected for the bias of short series; 0 for constants.

    Args:
        values: shape (pairs, sessions).
    """
    from scipy import stats

    sessions = values.shape[1]
    ranks = np.asarray(stats.rankdata(values, axis=1)) - (sessions + 1) / 2
    whole = np.sum(ranks**2, axis=1)
    raw = np.sum(ranks[:, 1:] * ranks[:, :-1], axis=1) / np.where(whole > 0, whole, 1)
    return np.where(whole > 0, raw + (1 + 3 * np.clip(raw, 0, 1)) / sessions, 0.0)


# With fewer, the smallest possible p value of ranks is above 0.01 for any data.
MIN_RANK_SUM_SESSIONS = 5  # per side: 2 / C(10, 5) = 0.008
MIN_SIGNED_RANK_PAIRS = 8  # 2 / 2^8 = 0.008
_EXACT_UP_TO = 30
# Smaller differences of logs are rounding errors: constants that differ by less are equal.
_ROUNDING = 1e-12


def rank_sum_p_values(left: Floats, right: Floats) -> Floats:
    """Two-sided p values of the Wilcoxon-Mann-Whitney test, one per row.

    Exact up to 30 sessions per side without ties, else the normal approximation with tie correction.

    Args:
        left: shape (pairs, sessions on the left), one value per session.
        right: shape (pairs, sessions on the right).
    """
    from scipy import stats  # loaded here: it takes 0.5 s, and commands that only display results do not need it

    ordered = np.sort(np.concatenate([left, right], axis=1), axis=1)
    has_ties = np.any(ordered[:, 1:] == ordered[:, :-1], axis=1)
    is_exact = ~has_ties & (max(left.shape[1], right.shape[1]) <= _EXACT_UP_TO)
    p_values = np.ones(len(left))
    for rows, method in ((is_exact, "exact"), (~is_exact, "asymptotic")):
        if rows.any():
            p_values[rows] = stats.mannwhitneyu(right[rows], left[rows], axis=1, method=method).pvalue
    # Constants have no p value.
    return np.nan_to_num(p_values, nan=1.0)


def signed_rank_p_values(differences: Floats) -> Floats:
    """Two-sided p values of Wilcoxon's signed-rank test, one per row; exact up to 30 pairs without ties.

    Args:
        differences: log ratios, shape (pairs, observations).
    """
    from scipy import stats

    sizes = np.sort(np.abs(differences), axis=1)
    has_ties = np.any(sizes[:, 1:] == sizes[:, :-1], axis=1) | (sizes[:, 0] == 0)
    is_exact = ~has_ties & (differences.shape[1] <= _EXACT_UP_TO)
    p_values = np.ones(len(differences))
    for rows, method in ((is_exact, "exact"), (~is_exact, "approx")):
        if rows.any():
            test = stats.wilcoxon(differences[rows], axis=1, zero_method="zsplit", correction=True, method=method)
            p_values[rows] = test.pvalue
    return p_values


def independent_p_values(left: Floats, right: Floats) -> Floats:
    """Two-sided p values of "no difference" between independent sessions, one per row.

    Args:
        left: log medians of sessions, shape (pairs, sessions on the left).
        right: the same for the right side, shape (pairs, sessions on the right).
    """
    student = welch_t_test(left, right)
    if min(left.shape[1], right.shape[1]) < MIN_RANK_SUM_SESSIONS:
        return student
    # Ranks of separated sides cannot tell how far they are apart.
    is_separated = (left.max(axis=1) < right.min(axis=1)) | (right.max(axis=1) < left.min(axis=1))
    ranks = rank_sum_p_values(left, right)
    return np.where(is_separated, np.minimum(ranks, student), ranks)


def paired_p_values(differences: Floats) -> Floats:
    """Two-sided p values of "no difference" between sides measured in the same sessions, one per row.

    Args:
        differences: log ratios, shape (pairs, sessions).
    """
    student = paired_t_test(differences)
    if differences.shape[1] < MIN_SIGNED_RANK_PAIRS:
        return student
    is_separated = np.all(differences > 0, axis=1) | np.all(differences < 0, axis=1)
    ranks = signed_rank_p_values(differences)
    return np.where(is_separated, np.minimum(ranks, student), ranks)


def welch_t_test(left: Floats, right: Floats) -> Floats:
    """P values of Welch's test, one per row; 1 if both sides are the same constant, 0 if they are different ones."""
    from scipy import stats

    constant = (np.ptp(left, axis=1) < _ROUNDING) & (np.ptp(right, axis=1) < _ROUNDING)
    p_values = (np.abs(right[:, 0] - left[:, 0]) < _ROUNDING).astype(np.float64)
    if not constant.all():
        with warnings.catch_warnings():
            # SciPy warns if one side is constant; the variance of the other side still gives a valid test.
            warnings.filterwarnings("ignore", message="Precision loss")
            p_values[~constant] = stats.ttest_ind(right[~constant], left[~constant], axis=1, equal_var=False).pvalue
    return p_values


def paired_t_test(differences: Floats) -> Floats:
    """P values of Student's test of a mean of 0, one per row; constants as in `welch_t_test`."""
    from scipy import stats

    constant = np.ptp(differences, axis=1) < _ROUNDING
    p_values = (np.abs(differences[:, 0]) < _ROUNDING).astype(np.float64)
    if not constant.all():
        p_values[~constant] = stats.ttest_1samp(differences[~constant], 0, axis=1).pvalue
    return p_values


def correct_p_for_autocorrelation(p: float, sessions: Sequence[int], dependence: VarianceInflation) -> float:
    """Correct the p value of a test that assumes independent sessions for autocorrelated sessions.

    The variance of the statistic is larger, and its tail is that of fewer sessions, like in the rank test of trend
    of Hamed and Rao (1998).

    Args:
        sessions: number of sessions of each sample.
    """
    if dependence.variance == 1:
        return p
    t = -float(scipy.special.stdtrit(sum(sessions) - len(sessions), max(p / 2, 1e-30)))
    factor = sum(dependence.scale(count) for count in sessions) / len(sessions)
    degrees = sum(dependence.degrees(count) for count in sessions)
    return max(p, float(2 * scipy.special.stdtr(degrees, -t / sqrt(factor))))
