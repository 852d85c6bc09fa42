"""Estimates of the ratios of a comparison, with confidence intervals and p values.

Samples of one session share what happened on the machine that session, so sessions are what is drawn: a draw takes G
of the G sessions with replacement, each with all its samples (the cluster bootstrap; Davison and Hinkley,
"Bootstrap Methods and their Application", 1997, section 3.8: resampling within the groups as well would count
the spread inside them twice). Its quantiles are too narrow when sessions are few, because G drawn sessions show
only (G-1)/G of the variance and their spread is itself uncertain; they are moved away from the estimate by
sqrt(G/(G-1)) and by Student's t over the normal quantile, as the expanded percentile interval does (Hesterberg,
"What Teachers Should Know about the Bootstrap", The American Statistician 69, 2015), with Welch's degrees of
freedom for two sides. tests/stats and bench/compare.py measure the coverage.

Ratios of medians and of maxima of one pair, from sessions of samples.

Autocorrelated sessions: how many independent ones they are worth.

A shared file system wanders: a slow session is followed by slow ones, and 28 such sessions contain less
information about the next month than 28 independent ones. The variance of a mean grows by V = 1 + 2 (r1 + r2 + ...),
where rk is the autocorrelation at a distance of k sessions (Bayley and Hammersley, 1946); n sessions are worth n / V.

Few sessions do not determine each rk, so only r1 is estimated, of ranks (robust to outliers), and without
the bias of short series (Marriott and Pope, 1954); the decay is assumed: rk = r1 d^(k-1) with d the larger of
r1 and `_AUTOCORRELATION_DECAY`. What one pair of series shows of r1 is mostly chance. So all pairs of a
comparison, measured on the same machine, give a common r1, shrunk towards 0 by r^2 / (r^2 + 1/N), N sessions; each pair
deviates from it as far as the pairs differ by more than chance (empirical Bayes, James and Stein, 1961). With
independent sessions next to nothing is left of it. bench/compare.py measures what this gives.

Tests on sessions, many pairs at once, and the correction for many pairs.

Ranks decide: they need no assumption about the noise. Their p value cannot fall below that of complete
separation, 2 / C(2n, n) for n sessions a side, which among many pairs may be too large to say anything however
large the difference is. Where the sessions are completely separated, and where they are too few for ranks,
Student's test of the sessions' log medians goes on from there. Its assumption, normal noise, is safe to make:
under heavy tails it only finds less (bench/compare.py, `tails`).
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import comb, exp, log, sqrt
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy import special

from iowatch.stats.pairs import NO_INFLATION, ComparisonSettings, Floats, RatioEstimate, SideSamples, VarianceInflation

ResampleCounts = NDArray[np.int32]

# The quantiles read from the draws: 5 % and 95 % are estimated well by 1,000 draws, and ignore the far tails
# that a median over few sessions can jump to.
_TAIL = 0.05
_TAIL_Z = float(special.ndtri(1 - _TAIL))


@lru_cache(maxsize=512)
def draw_session_counts(sessions: int, resamples: int, seed: int) -> ResampleCounts:
    """How often each session is in each draw: shape (sessions, resamples), columns sum to `sessions`.

    The same for every pair of a comparison, so that pairs measured in the same sessions are drawn together and
    their dependence carries over to the overall answer.
    """
    rng = np.random.default_rng([seed, sessions])
    drawn = rng.multinomial(sessions, np.full(sessions, 1 / sessions), size=resamples)
    return np.ascontiguousarray(drawn.T, dtype=np.int32)


def bootstrap_medians(values: Floats, session: NDArray[np.intp], counts: ResampleCounts) -> Floats:
    """Median of the pooled samples in each draw.

    Args:
        values: samples, shape (n,).
        session: index of each sample's session, shape (n,).
        counts: from `draw_counts`, shape (sessions, resamples).

    Returns:
        shape (resamples,); as `numpy.median`, the mean of the two middle samples where they are two.
    """
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    reached = np.cumsum(counts[session[order]], axis=0, dtype=np.int32)
    total = reached[-1].copy()
    reached *= 2
    low = ranked[np.sum(reached < total, axis=0)]
    high = ranked[np.sum(reached <= total, axis=0)]
    return np.asarray((low + high) / 2, dtype=np.float64)


def bootstrap_interquartile_means(values: Floats, counts: ResampleCounts) -> Floats:
    """Interquartile mean in each draw of values of which each is a session: shape (resamples,).

    The mean of the middle half of the values, those at the quartiles counted in part.

    As deaf to outliers as a median needs to be, and its draws are not as coarse: intervals over pairs are a
    tenth narrower, and cover better, than those of medians.

    Args:
        values: shape (sessions,).
        counts: from `draw_counts`, shape (sessions, resamples).
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
        """Of the difference of two independent estimates (Welch and Satterthwaite)."""
        total = self.variance + other.variance
        if total == 0:
            return EstimateUncertainty(0.0, min(self.degrees, other.degrees))
        parts = self.variance**2 / self.degrees + other.variance**2 / other.degrees
        return EstimateUncertainty(total, total**2 / parts)


def widen_draws(draws: Floats, centre: float, sessions: int, dependence: VarianceInflation) -> Floats:
    """Draws of independent sessions, made to scatter as an estimate of autocorrelated sessions does.

    Args:
        centre: the estimate.
    """
    if dependence.variance == 1:
        return draws
    return np.asarray(centre + (draws - centre) * sqrt(dependence.scale(sessions)))


def uncertainty_from_draws(
    draws: Floats, sessions: int, dependence: VarianceInflation = NO_INFLATION
) -> EstimateUncertainty:
    """Squared standard error of an estimate from its draws (`widened`) over `sessions` >= 2 sessions."""
    low, high = np.quantile(draws, [_TAIL, 1 - _TAIL])
    variance = ((high - low) / (2 * _TAIL_Z)) ** 2 * sessions / (sessions - 1)
    return EstimateUncertainty(variance, dependence.degrees(sessions))


def expanded_percentile_interval(
    estimate: float, draws: Floats, spread: EstimateUncertainty, level: float
) -> tuple[float, float]:
    """Expanded percentile interval around `estimate`, on the scale of the draws.

    As wide as Student's interval of `spread`, as lopsided as the draws.

    Args:
        draws: bootstrap draws of the estimate, shape (resamples,).
        spread: corrected for few sessions (`spread_of`, `Spread.plus`).
        level: of confidence, for example 0.95.
    """
    low, high = np.quantile(draws, [_TAIL, 1 - _TAIL])
    # A skewed bootstrap may have both quantiles on one side of the estimate; the interval still holds it.
    below, above = max(0.0, estimate - low), max(0.0, high - estimate)
    if below + above == 0:
        return estimate, estimate
    width = 2 * float(special.stdtrit(spread.degrees, (1 + level) / 2)) * sqrt(spread.variance)
    return estimate - width * below / (below + above), estimate + width * above / (below + above)


def t_test_p_value(estimate: float, spread: EstimateUncertainty) -> float:
    """Two-sided p value of "the log ratio is 0" by Student's t."""
    if spread.variance == 0:
        return 1.0 if estimate == 0 else 0.0
    return float(2 * special.stdtr(spread.degrees, -abs(estimate) / sqrt(spread.variance)))


_MIN_SHARED_FRACTION = 0.75  # of the sessions of the side that has fewer: enough to compare session by session
MIN_SESSIONS = 3  # per side, for any statement about noise; two give intervals of a factor of ten


@dataclass(frozen=True)
class SessionSamples:
    """One side's samples by session, and flat with the session of each.

    Attributes:
        samples: of each session, in time order.
        values: all samples, shape (n,).
        session: index of each sample's session, shape (n,).
        medians: of each session, shape (len(samples),).
    """

    samples: tuple[tuple[float, ...], ...]
    values: Floats
    session: NDArray[np.intp]
    medians: Floats

    @classmethod
    def of(cls, samples: Sequence[Sequence[float]]) -> SessionSamples:
        """From samples by session, none empty."""
        kept = tuple(tuple(values) for values in samples)
        values = np.array([value for session in kept for value in session], dtype=np.float64)
        session = np.repeat(np.arange(len(kept)), [len(session) for session in kept])
        # statistics.median: numpy's costs 20 µs a call, and there are 60,000 sessions in a thousand pairs.
        return cls(kept, values, session, np.array([median(session) for session in kept]))

    def __len__(self) -> int:
        return len(self.samples)


@dataclass(frozen=True)
class AlignedSides:
    """Both sides of a pair as they are compared; paired where they share their sessions."""

    left: SessionSamples
    right: SessionSamples
    paired: bool
    left_out: int = 0

    @property
    def fewest(self) -> int:
        """Sessions of the side that has fewer."""
        return min(len(self.left), len(self.right))

    @property
    def log_ratios(self) -> Floats:
        """Of each shared session, the log of right's median over left's; only where paired."""
        return np.log(self.right.medians / self.left.medians)


def align_sides(left: SideSamples, right: SideSamples) -> AlignedSides:
    """Compare session by session where the sides share nearly all sessions, else as two independent samples."""
    shared = [key for key in left.sessions if key in right.sessions]
    fewer = min(len(left.sessions), len(right.sessions))
    if len(shared) < max(MIN_SESSIONS, _MIN_SHARED_FRACTION * fewer):
        first, second = (SessionSamples.of([*side.sessions.values()]) for side in (left, right))
        return AlignedSides(first, second, paired=False)
    first, second = (SessionSamples.of([side.sessions[key] for key in shared]) for side in (left, right))
    out = len(left.sessions) + len(right.sessions) - 2 * len(shared)
    return AlignedSides(first, second, paired=True, left_out=out)


LogLevel = tuple[float, int, Floats]
"""The log level of one side: estimate, number of sessions, and its draws."""


def ratio_of_medians(
    sides: AlignedSides, settings: ComparisonSettings, dependence: VarianceInflation = NO_INFLATION
) -> RatioEstimate:
    """Right's median over left's: of all samples; where paired, the interquartile mean of the sessions' ratios.

    Args:
        dependence: the autocorrelation of its sessions.
    """
    if sides.paired:
        return _ratio_of_midmeans([sides.log_ratios], settings, dependence)
    levels = []
    for offset, side in enumerate((sides.left, sides.right)):
        counts = draw_session_counts(len(side), settings.resamples, settings.seed + offset)
        draws = np.log(bootstrap_medians(side.values, side.session, counts))
        levels.append((log(np.median(side.values)), len(side), draws))
    return _estimate_ratio(levels, settings, dependence)


def ratio_of_maxima(
    sides: AlignedSides, settings: ComparisonSettings, dependence: VarianceInflation = NO_INFLATION
) -> RatioEstimate:
    """The ratio of what the best repetition of a session typically reaches.

    The maximum of all samples grows with their number and its bootstrap does not converge, so the maxima are
    taken per session, of the same number of repetitions on both sides, and the middle half of the sessions is
    averaged.
    """
    both = (sides.left, sides.right)
    repetitions = min(int(median(map(len, side.samples))) for side in both)
    logs = [np.log([_expected_maximum(values, repetitions) for values in side.samples]) for side in both]
    return _ratio_of_midmeans([logs[1] - logs[0]] if sides.paired else logs, settings, dependence)


def _expected_maximum(values: Sequence[float], repetitions: int) -> float:
    """Of so many of the values drawn without replacement."""
    n = len(values)
    if n <= repetitions:
        return max(values)
    # The value with `below` smaller ones is the maximum when the other repetitions come from those.
    weights = (comb(below, repetitions - 1) / comb(n, repetitions) for below in range(n))
    return sum(weight * value for weight, value in zip(weights, sorted(values), strict=True))


def _ratio_of_midmeans(
    logs: Sequence[Floats], settings: ComparisonSettings, dependence: VarianceInflation
) -> RatioEstimate:
    """Of one value per session: the log ratio where sessions are paired, else the log level of left and of right."""
    levels = []
    for offset, values in enumerate(logs):
        counts = draw_session_counts(len(values), settings.resamples, settings.seed + offset)
        # Drawing each session once gives the estimate.
        centre = bootstrap_interquartile_means(values, np.ones((len(values), 1), dtype=np.int32))[0]
        levels.append((float(centre), len(values), bootstrap_interquartile_means(values, counts)))
    return _estimate_ratio(levels, settings, dependence)


def _estimate_ratio(
    levels: Sequence[LogLevel], settings: ComparisonSettings, dependence: VarianceInflation
) -> RatioEstimate:
    """Right's level over left's, the sessions of both drawn independently; or one level, of the paired log ratios."""
    centre = levels[-1][0] - sum(level for level, _, _ in levels[:-1])
    if min(sessions for _, sessions, _ in levels) < MIN_SESSIONS:
        return RatioEstimate(exp(centre))
    widened = [widen_draws(draws, level, sessions, dependence) for level, sessions, draws in levels]
    parts = [uncertainty_from_draws(draws, n, dependence) for draws, (_, n, _) in zip(widened, levels, strict=True)]
    spread = reduce(EstimateUncertainty.plus, parts)
    draws = widened[-1] - sum(widened[:-1])
    low, high = expanded_percentile_interval(centre, draws, spread, settings.level)
    noise = sqrt(sum(part.variance * n for part, (_, n, _) in zip(parts, levels, strict=True)))
    return RatioEstimate(exp(centre), (exp(low), exp(high)), noise, draws, dependence)


# Of Edison's year (24 series, 62 levels of 25 sessions or more): r1 = 0.31, r2 = 0.21, r3 = 0.14, r4 = 0.10.
_AUTOCORRELATION_DECAY = 0.7
_MAX_AUTOCORRELATION = 0.95


def estimate_inflations(sides: Sequence[AlignedSides]) -> list[VarianceInflation]:
    """The autocorrelation of the sessions of each pair; none where they are too few for any statement.

    Args:
        sides: of all pairs of one comparison, which were measured on the same machine.
    """
    found = [NO_INFLATION] * len(sides)
    measured: dict[int, tuple[float, int]] = {}
    for members, parts in stack_sessions(sides):
        sessions = sum(part.shape[1] for part in parts)
        together = np.asarray(sum(_rank_autocorrelation(part) * part.shape[1] for part in parts)) / sessions
        measured |= {index: (float(r), sessions) for index, r in zip(members, together, strict=True)}
    if measured:
        columns = zip(*measured.values(), strict=True)
        for index, shrunk in zip(measured, _shrink_autocorrelations(*map(np.array, columns)), strict=True):
            r = min(max(float(shrunk), 0.0), _MAX_AUTOCORRELATION)
            variance = min(1 + 2 * r / (1 - max(r, _AUTOCORRELATION_DECAY)), sides[index].fewest / 2)
            found[index] = VarianceInflation(max(1.0, variance), (1 + r * r) / (1 - r * r))
    return found


def _shrink_autocorrelations(r: Floats, sessions: Floats) -> Floats:
    """What is assumed of each pair's autocorrelation of neighbours.

    Args:
        r: as estimated, of N sessions each; both of shape (pairs,).
    """
    mean, chance = float(r.mean()), float(np.mean(1 / sessions))
    common = mean**3 / (mean**2 + chance)
    if len(r) == 1:
        return np.array([common])
    apart = float(np.sum((r - mean) ** 2)) / (len(r) - 1)
    return common + (r - mean) * max(0.0, 1 - chance / apart if apart else 0.0)


def stack_sessions(sides: Sequence[AlignedSides | None]) -> Iterator[tuple[list[int], list[Floats]]]:
    """Pairs with enough sessions, those with the same numbers of sessions together.

    Yields:
        positions of the pairs, and arrays of shape (pairs, sessions): their log ratios where they are paired,
        else the log medians of the left and of the right.
    """
    groups: dict[tuple[bool, int, int], dict[int, AlignedSides]] = defaultdict(dict)
    for index, side in enumerate(sides):
        if side is not None and side.fewest >= MIN_SESSIONS:
            groups[side.paired, len(side.left), len(side.right)][index] = side
    for (paired, _, _), members in groups.items():
        ratios = [np.array([side.log_ratios for side in members.values()])] if paired else []
        medians = [] if paired else [(side.left.medians, side.right.medians) for side in members.values()]
        yield list(members), ratios or [np.log(column) for column in zip(*medians, strict=True)]


def _rank_autocorrelation(values: Floats) -> Floats:
    """Autocorrelation of neighbours' ranks, one per row, without the bias of short series; 0 of constants.

    Args:
        values: shape (pairs, sessions).
    """
    from scipy import stats

    sessions = values.shape[1]
    ranks = np.asarray(stats.rankdata(values, axis=1)) - (sessions + 1) / 2
    whole = np.sum(ranks**2, axis=1)
    raw = np.sum(ranks[:, 1:] * ranks[:, :-1], axis=1) / np.where(whole > 0, whole, 1)
    return np.where(whole > 0, raw + (1 + 3 * np.clip(raw, 0, 1)) / sessions, 0.0)


# Below these the smallest p value that ranks can give is above 0.01 whatever the data say.
MIN_RANK_SUM_SESSIONS = 5  # per side: 2 / C(10, 5) = 0.008
MIN_SIGNED_RANK_PAIRS = 8  # 2 / 2^8 = 0.008
_EXACT_UP_TO = 30
# Differences of logs up to here are rounding: constants that differ by less are equal.
_ROUNDING = 1e-12


def rank_sum_p_values(left: Floats, right: Floats) -> Floats:
    """Two-sided p values of the Wilcoxon-Mann-Whitney test, one per row.

    Exact up to 30 sessions per side without ties, else the normal approximation with tie correction.

    Args:
        left: shape (pairs, sessions on the left), one value per session.
        right: shape (pairs, sessions on the right).
    """
    from scipy import stats  # takes half a second to load, which who only looks need not wait for

    both = np.sort(np.concatenate([left, right], axis=1), axis=1)
    exact = ~np.any(both[:, 1:] == both[:, :-1], axis=1) & (max(left.shape[1], right.shape[1]) <= _EXACT_UP_TO)
    found = np.ones(len(left))
    for rows, method in ((exact, "exact"), (~exact, "asymptotic")):
        if rows.any():
            found[rows] = stats.mannwhitneyu(right[rows], left[rows], axis=1, method=method).pvalue
    return np.nan_to_num(found, nan=1.0)


def signed_rank_p_values(differences: Floats) -> Floats:
    """Two-sided p values of Wilcoxon's signed-rank test, one per row; exact up to 30 pairs without ties.

    Args:
        differences: log ratios, shape (pairs, observations).
    """
    from scipy import stats

    sizes = np.sort(np.abs(differences), axis=1)
    ties = np.any(sizes[:, 1:] == sizes[:, :-1], axis=1) | (sizes[:, 0] == 0)
    exact = ~ties & (differences.shape[1] <= _EXACT_UP_TO)
    found = np.ones(len(differences))
    for rows, method in ((exact, "exact"), (~exact, "approx")):
        if rows.any():
            test = stats.wilcoxon(differences[rows], axis=1, zero_method="zsplit", correction=True, method=method)
            found[rows] = test.pvalue
    return found


def independent_p_values(left: Floats, right: Floats) -> Floats:
    """Two-sided p values of "no difference" between independent sessions, one per row.

    Args:
        left: log medians of sessions, shape (pairs, sessions on the left).
        right: the same of the right, shape (pairs, sessions on the right).
    """
    found = welch_t_test(left, right)
    if min(left.shape[1], right.shape[1]) < MIN_RANK_SUM_SESSIONS:
        return found
    separated = (left.max(axis=1) < right.min(axis=1)) | (right.max(axis=1) < left.min(axis=1))
    ranks = rank_sum_p_values(left, right)
    return np.where(separated, np.minimum(ranks, found), ranks)


def paired_p_values(differences: Floats) -> Floats:
    """Two-sided p values of "no difference" between the sides of the same sessions, one per row.

    Args:
        differences: log ratios, shape (pairs, sessions).
    """
    found = paired_t_test(differences)
    if differences.shape[1] < MIN_SIGNED_RANK_PAIRS:
        return found
    separated = np.all(differences > 0, axis=1) | np.all(differences < 0, axis=1)
    ranks = signed_rank_p_values(differences)
    return np.where(separated, np.minimum(ranks, found), ranks)


def welch_t_test(left: Floats, right: Floats) -> Floats:
    """P values of Welch's test, one per row; 1 where both sides are the same constant, 0 where they differ."""
    from scipy import stats

    constant = (np.ptp(left, axis=1) < _ROUNDING) & (np.ptp(right, axis=1) < _ROUNDING)
    found = (np.abs(right[:, 0] - left[:, 0]) < _ROUNDING).astype(np.float64)
    if not constant.all():
        with warnings.catch_warnings():
            # SciPy warns where one of the sides is a constant; the other side's variance counts all the same.
            warnings.filterwarnings("ignore", message="Precision loss")
            found[~constant] = stats.ttest_ind(right[~constant], left[~constant], axis=1, equal_var=False).pvalue
    return found


def paired_t_test(differences: Floats) -> Floats:
    """P values of Student's test of a mean of 0, one per row; of constants as `welch_t_test`."""
    from scipy import stats

    constant = np.ptp(differences, axis=1) < _ROUNDING
    found = (np.abs(differences[:, 0]) < _ROUNDING).astype(np.float64)
    if not constant.all():
        found[~constant] = stats.ttest_1samp(differences[~constant], 0, axis=1).pvalue
    return found


def correct_p_for_autocorrelation(p: float, sessions: Sequence[int], dependence: VarianceInflation) -> float:
    """The p value of a test that takes sessions for independent, made that of autocorrelated sessions.

    The variance of the statistic is larger, and its tail that of fewer sessions, as Hamed and Rao (1998) do it
    for a rank test of trend.

    Args:
        sessions: of each sample.
    """
    if dependence.variance == 1:
        return p
    t = -float(special.stdtrit(sum(sessions) - len(sessions), max(p / 2, 1e-30)))
    factor = sum(dependence.scale(count) for count in sessions) / len(sessions)
    degrees = sum(dependence.degrees(count) for count in sessions)
    return max(p, float(2 * special.stdtr(degrees, -t / sqrt(factor))))
