"""Records of a comparison of two sides: samples, settings, estimates and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from iowatch.core import Case

Floats = NDArray[np.float64]
VerdictKind = Literal["slower", "faster", "no difference", "not enough data"]
IntervalBasis = Literal["sessions", "paired sessions", "cases", "none"]


@dataclass(frozen=True)
class SideSamples:
    """Samples of one side.

    Attributes:
        sessions: samples in the metric's unit by session, in time order; > 0 and finite, none empty. The key names
            what was measured at the same time (a session, or one pair of an A/B run): equal keys on both sides
            are compared with each other.
    """

    sessions: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class SideSummary:
    """Summary of one side; `runs` counts sessions, `n` samples.

    None where it was not printed: samples of a published table are not known, nor its sessions.
    """

    n: int | None = None
    max: float | None = None
    median: float | None = None
    mean: float | None = None
    min: float | None = None
    runs: int | None = None


Side = SideSamples | SideSummary


@dataclass(frozen=True)
class Pair:
    """The same case on both sides; `case` has the differing axis taken out."""

    case: Case
    metric: str
    left: Side
    right: Side


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    """How strict a comparison is.

    Attributes:
        level: of the confidence intervals.
        alpha: share of wrong "faster" and "slower" that is accepted among those reported (Benjamini-Hochberg), and
            so also the most that a pair without a difference can get.
        difference: relative difference that should not be missed; the advice on more runs is about it.
        widest: a "no difference above x %" is only reported up to this x; beyond it there is not enough data.
        negligible: a difference that lies within this on the whole interval is none, however certain it is.
        power: probability with which `difference` should be found when the advice is followed.
        resamples: bootstrap draws.
        seed: of the bootstrap; the same data give the same answer.
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
    """Variance inflation by autocorrelation: this many sessions are worth one independent session.

    Attributes:
        variance: about the level that they measure.
        spread: about how much they vary.
    """

    variance: float = 1.0
    spread: float = 1.0

    def scale(self, sessions: int) -> float:
        """By how much a squared standard error is larger than that of independent sessions.

        Autocorrelated sessions also scatter less around their own mean, by (n - V) / (n - 1).
        """
        return self.variance * (sessions - 1) / (sessions - self.variance)

    def degrees(self, sessions: float) -> float:
        """Degrees of freedom of a variance measured in so many sessions.

        At least three where there are as many: with fewer no difference is ever certain, however large, and
        sessions that look as dependent as that are mostly a trend.
        """
        return max(min(sessions - 1, 3.0), sessions / self.spread - 1)


NO_INFLATION = VarianceInflation()


@dataclass(frozen=True, slots=True)
class RatioEstimate:
    """A ratio right/left with its interval.

    Attributes:
        ratio: right divided by left.
        ci: confidence interval of the ratio, or None where the sessions are too few.
        spread: standard deviation of the log ratio that one session per side leaves open, or None.
        draws: log ratios of the bootstrap, shape (resamples,), or None.
        dependence: the autocorrelation of its sessions.
    """

    ratio: float
    ci: tuple[float, float] | None = None
    spread: float | None = None
    draws: Floats | None = None
    dependence: VarianceInflation = NO_INFLATION


@dataclass(frozen=True, kw_only=True)
class PairComparison:
    """One pair with its verdict.

    Attributes:
        statistic: of which `ratio` is the ratio: `median`, or `max` or `mean` for printed tables.
        ratio: right / left; above 1 is faster where higher is better, slower where lower is better.
        ci: its confidence interval, or None.
        ratio_max, ci_max: the same of what the best of a session's repetitions typically reaches.
        p, p_adjusted: of the rank test, before and after the correction for many pairs.
        paired: sessions were compared one by one, as both sides were measured in the same ones.
        verdict: the decision; `bound` is the x of "no difference above x %", as a fraction.
        runs_needed: sessions per side, in all, at which `ComparisonSettings.difference` would be found.
        inflation: this many autocorrelated sessions are worth one independent session; 1: no autocorrelation.
        reason: in words, what the verdict rests on or what is missing.
    """

    case: Case
    metric: str
    left: SideSummary
    right: SideSummary
    statistic: Literal["median", "max", "mean"] | None
    ratio: float | None
    ci: tuple[float, float] | None = None
    ratio_max: float | None = None
    ci_max: tuple[float, float] | None = None
    p: float | None = None
    p_adjusted: float | None = None
    paired: bool = False
    verdict: VerdictKind
    bound: float | None = None
    runs_needed: int | None = None
    reason: str
    inflation: float = 1.0

    @property
    def words(self) -> str:
        """The verdict as the JSON contract has it: `slower`, `no difference above 3 %`, …"""
        return self.verdict if self.bound is None else f"no difference above {format_percent(self.bound)}"


def format_percent(fraction: float) -> str:
    """A fraction as per cent, rounded up to a tenth below ten and to a whole above: `3.2 %`, `14 %`."""
    step = 0.1 if fraction < 0.1 else 1.0
    digits = max(0.0, np.ceil(fraction * 100 / step - 1e-9) * step)
    return f"{digits:.1f} %" if step < 1 and digits != round(digits) else f"{digits:.0f} %"


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """How the sides compare at one number of ranks or nodes; ratios of goodness (above 1: right is faster)."""

    value: int
    pairs: int
    ratio: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class BestValues:
    """The best value of each side over all pairs of one metric and operation, and how right's compares."""

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
        counts: pairs by verdict.
        ratio: geometric mean over pairs of how many times as fast right is as left.
        ci: its interval.
        basis: what the interval treats as the sample: sessions (joint bootstrap over all pairs) or, where samples
            are not known, the cases themselves.
        verdict, bound, reason: as of a pair.
        scaling: by parameter (`ranks`, `nodes`, `instances`), ascending.
        peaks: of each operation and metric.
    """

    counts: Mapping[VerdictKind, int]
    ratio: float | None
    ci: tuple[float, float] | None
    basis: IntervalBasis
    verdict: VerdictKind
    bound: float | None
    reason: str
    scaling: Mapping[str, tuple[ScalingPoint, ...]] = field(default_factory=dict)
    peaks: tuple[BestValues, ...] = ()

    @property
    def words(self) -> str:
        """The verdict in the words of a pair's."""
        return self.verdict if self.bound is None else f"no difference above {format_percent(self.bound)}"
