"""Records of a comparison of two sides: samples, settings, estimates and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np

from iowatch.statistics.constants import Floats
from iowatch.statistics.vocabulary import Scalar

VerdictKind = Literal["slower", "faster", "no difference", "not enough data"]
IntervalBasis = Literal["sessions", "paired sessions", "cases", "none"]
# Of a slowly moving level: lag-1 autocorrelation per session.
SLOW_AUTOCORRELATION = 0.97
# An interval whose ends have a larger ratio states nothing, and its ends are not printed.
MAX_STATED_RANGE = 100


class ComparedCase(Protocol):
    """What was measured on both sides."""

    @property
    def benchmark(self) -> str:
        """Name of the program."""

    @property
    def parameters(self) -> Mapping[str, Scalar]:
        """Parameters of the case by name; `operation` is one of them."""


CaseT = TypeVar("CaseT", bound=ComparedCase)
CaseT_co = TypeVar("CaseT_co", bound=ComparedCase, covariant=True)


@dataclass(frozen=True)
class SideSamples:
    """Samples of one side.

    Attributes:
        sessions: samples in the unit of the metric by session, in time order; > 0 and finite, no session empty. The
            key identifies samples measured at the same time (a session, or one pair of an A/B run): equal keys on
            both sides are compared with each other.
    """

    sessions: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class SideSummary:
    """Summary of one side.

    A value is None if it was not published: the samples and sessions of a published table are not known.

    Attributes:
        n: number of samples.
        max, median, mean, min: of all samples, in the unit of the metric.
        runs: number of sessions.
    """

    n: int | None = None
    max: float | None = None
    median: float | None = None
    mean: float | None = None
    min: float | None = None
    runs: int | None = None


Side = SideSamples | SideSummary


@dataclass(frozen=True)
class Pair(Generic[CaseT_co]):
    """The same case on both sides.

    Attributes:
        case: without the axis in which the sides differ.
        metric: its name, for display and to group pairs.
        left, right: samples, or the summary that was published.
        sign: direction of the metric: 1 if higher is better, -1 if lower is better, 0 if neither.
    """

    case: CaseT_co
    metric: str
    left: Side
    right: Side
    sign: int


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    """Thresholds of a comparison.

    Attributes:
        level: confidence level of the intervals.
        alpha: accepted share of false "faster" and "slower" verdicts among those reported (Benjamini-Hochberg), and
            so also the largest probability of such a verdict for a pair without a difference.
        difference: relative difference that should be detected; `runs_needed` refers to it.
        widest: "no difference above x %" is only reported up to this x; above it there is not enough data.
        negligible: if the whole interval lies within this relative difference, it counts as no difference, however
            certain it is.
        power: probability of detecting `difference` with `runs_needed` sessions.
        resamples: number of bootstrap draws.
        seed: of the bootstrap; the same data give the same result.
    """

    level: float = 0.95
    alpha: float = 0.01
    difference: float = 0.10
    widest: float = 0.25
    negligible: float = 0.01
    power: float = 0.9
    resamples: int = 1000
    seed: int = 20090317


@dataclass(frozen=True, slots=True)
class VarianceInflation:
    """Variance inflation by autocorrelation: number of sessions equivalent to one independent session.

    Attributes:
        variance: for the estimate of a level.
        spread: for the estimate of a variance.
        wandering: share of the variance between sessions that a slowly moving level has, 0 to 1; 0 if there is none.
    """

    variance: float = 1.0
    spread: float = 1.0
    wandering: float = 0.0

    @classmethod
    def of_moving_level(cls, share: float, sessions: int, spread: float) -> VarianceInflation:
        """Inflation of a slowly moving level; `variance` is that of `sessions` sessions.

        Args:
            share: of the variance between sessions, 0 to 1.
            sessions: number of sessions of the side with fewer.
            spread: inflation of the estimate of a variance.
        """
        # Only the share that moves is inflated.
        variance = 1 + share * (_slow_inflation(sessions) - 1)
        return cls(variance=variance, spread=spread, wandering=share)

    def scale(self, sessions: int) -> float:
        """Factor by which a squared standard error is larger than that of independent sessions.

        It includes that autocorrelated sessions scatter less around their own mean, by (n - V) / (n - 1).
        """
        variance = self.variance
        # That of a moving level depends on the number of sessions.
        if self.wandering:
            variance = VarianceInflation.of_moving_level(self.wandering, sessions, self.spread).variance
        return variance * (sessions - 1) / (sessions - variance)

    def degrees(self, sessions: float) -> float:
        """Degrees of freedom of a variance estimated from `sessions` sessions.

        At least three if the sessions permit: with fewer, no difference is significant, however large, and such a
        strong apparent autocorrelation is mostly a trend.
        """
        independent_sessions = sessions / self.spread
        fewest_degrees = min(sessions - 1, 3.0)
        return max(fewest_degrees, independent_sessions - 1)


NO_INFLATION = VarianceInflation()


def _slow_inflation(sessions: int) -> float:
    """Variance inflation of the mean of so many sessions by rk = `SLOW_AUTOCORRELATION`^k (Bayley and Hammersley)."""
    r = SLOW_AUTOCORRELATION
    of_many_sessions = (1 + r) / (1 - r)
    # Few sessions do not see the slowest changes.
    missing_of_few = 2 * r * (1 - r**sessions) / (sessions * (1 - r) ** 2)
    return of_many_sessions - missing_of_few


@dataclass(frozen=True, slots=True)
class RatioEstimate:
    """A ratio right/left with its interval.

    Attributes:
        ratio: right divided by left.
        values: value of each side; `ratio` is their quotient.
        ci: confidence interval of the ratio, or None with too few sessions.
        spread: standard deviation of the log ratio of one session per side, or None.
        draws: log ratios of the bootstrap, shape (resamples,), or None.
        dependence: variance inflation of the sessions.
        degrees: degrees of freedom of the standard error behind `ci`, or None without one.
    """

    ratio: float
    values: tuple[float, float]
    ci: tuple[float, float] | None = None
    spread: float | None = None
    draws: Floats | None = None
    dependence: VarianceInflation = NO_INFLATION
    degrees: float | None = None


@dataclass(frozen=True, kw_only=True)
class PairComparison(Generic[CaseT_co]):
    """One pair with its verdict.

    Attributes:
        case, metric, sign: as in `Pair`.
        statistic: statistic of which `ratio` is the ratio: `median`, or `max` or `mean` for published tables.
        ratio: right / left; above 1 is faster if higher is better, slower if lower is better.
        values: value of each side; `ratio` is their quotient. With `paired`, not the median of all samples, but the
            geometric mean of the sessions' medians over the middle half of the sessions by ratio.
        ci: confidence interval of `ratio`, or None.
        ci_simultaneous: wider interval of `ratio`; those of all pairs hold together at the same level.
        ratio_max, values_max, ci_max: the same for the typical best repetition per session.
        p, p_adjusted: p value of the rank test, before and after the correction for the number of pairs.
        paired: sessions were compared one by one, because both sides were measured in the same sessions.
        verdict: the decision; `bound` is the x of "no difference above x %", as a fraction.
        runs_needed: total number of sessions per side at which `ComparisonSettings.difference` would be detected; None
            if that number is not useful.
        runs_reason: why there is no number, or why it is a first estimate, as text.
        inflation: number of autocorrelated sessions equivalent to one independent session; 1: no autocorrelation.
        reason: evidence for the verdict, or missing data, as text.
    """

    case: CaseT_co
    metric: str
    sign: int
    left: SideSummary
    right: SideSummary
    statistic: Literal["median", "max", "mean"] | None
    ratio: float | None
    values: tuple[float, float] | None = None
    ci: tuple[float, float] | None = None
    ci_simultaneous: tuple[float, float] | None = None
    ratio_max: float | None = None
    values_max: tuple[float, float] | None = None
    ci_max: tuple[float, float] | None = None
    p: float | None = None
    p_adjusted: float | None = None
    paired: bool = False
    verdict: VerdictKind
    bound: float | None = None
    runs_needed: int | None = None
    runs_reason: str | None = None
    reason: str
    inflation: float = 1.0

    @property
    def basis(self) -> str:
        """What `values` are: `median`, `paired medians`, or the statistic of published figures."""
        if self.paired:
            return "paired medians"
        return self.statistic or "median"

    @property
    def words(self) -> str:
        """The verdict as in the JSON contract: `slower`, `no difference above 3 %`, …"""
        return _verdict_words(self.verdict, self.bound)


def _verdict_words(verdict: VerdictKind, bound: float | None) -> str:
    """A verdict, with its bound where it has one."""
    if bound is None:
        return verdict
    return f"no difference above {format_percent(bound)}"


def format_percent(fraction: float) -> str:
    """A fraction as per cent, rounded up to a tenth below ten and to a whole above: `3.2 %`, `14 %`."""
    step = 0.1 if fraction < 0.1 else 1.0
    # Up, so that "above 3.2 %" is true; but not for the rounding error of a number that is a multiple of the step.
    steps = np.ceil(fraction * 100 / step - 1e-9)
    percent = max(0.0, steps * step)
    has_tenths = step < 1 and percent != round(percent)
    if has_tenths:
        return f"{percent:.1f} %"
    return f"{percent:.0f} %"


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """Gains right / left at one number of ranks or nodes (above 1: right is faster)."""

    value: int
    pairs: int
    ratio: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class BestValues:
    """The best value of each side over all pairs of one metric and operation."""

    operation: str
    metric: str
    left: float
    right: float

    @property
    def ratio(self) -> float:
        """Right / left."""
        return self.right / self.left


@dataclass(frozen=True)
class OverallComparison:
    """All pairs together.

    Attributes:
        counts: number of pairs by verdict.
        ratio: gain right / left, geometric mean over pairs.
        ci: confidence interval of `ratio`.
        basis: the sample of the interval: sessions (joint bootstrap over all pairs) or, for printed figures, the cases
            themselves; `none` if a side has fewer than three sessions.
        verdict, bound, reason: as in `PairComparison`.
        runs_needed: total number of sessions per side for a verdict, if a side has fewer than three; else None.
        scaling: by parameter (`ranks`, `nodes`, `instances`), ascending.
        peaks: best values of each operation and metric.
    """

    counts: Mapping[VerdictKind, int]
    ratio: float | None
    ci: tuple[float, float] | None
    basis: IntervalBasis
    verdict: VerdictKind
    bound: float | None
    reason: str
    runs_needed: int | None = None
    scaling: Mapping[str, tuple[ScalingPoint, ...]] = field(default_factory=dict)
    peaks: tuple[BestValues, ...] = ()

    @property
    def words(self) -> str:
        """The verdict as in `PairComparison.words`."""
        return _verdict_words(self.verdict, self.bound)
