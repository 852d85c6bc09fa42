"""Series by sessions: levels, scatter, and the evidence that series moved (for `iowatch.statistics.panel`)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iowatch.statistics.constants import DAY_S, MAD_TO_SD, Bools, Floats
from iowatch.statistics.method import DetectorSettings
from iowatch.statistics.rules import CONJUNCTION_BITS, Condition, candidate_conditions, condition_coverage
from iowatch.statistics.vocabulary import ParameterVocabulary, Scalar

NEWEST_SESSIONS = 10
"""Sessions in which an event can have begun; older ones are left to the detection in single series."""

LEVEL_OBSERVATIONS, MIN_LEVEL_OBSERVATIONS = 30, 5
"""Observations before a session whose median is the level, and the least number of them."""

PAST_SESSIONS = 400
"""Sessions that are compared; older ones say little about what is usual."""

# A pause of this length, or this time since its first run, ends a session.
_PAUSE_S, _SESSION_S = DAY_S / 3, DAY_S * 2 / 3
# Smallest scatter (ln), that of series without a past, and weight of the median scatter of all series in observations.
_MIN_SCATTER, _USUAL_SCATTER, _PRIOR_OBSERVATIONS = 0.012, 0.1, 10

# Sizes |ln ratio| that a shift may have, so close together that one between two of them has no less evidence, even with
# little noise; and their prior probability: equal for small ones, 7 % for all beyond a factor of 5, because single
# sessions of a few series are that far off on real systems, too. It ends as the density of outliers does, so that the
# deepest fall has evidence as well.
_SIZES = np.exp(np.linspace(math.log(0.06), math.log(9.0), 90))
_SIZE_PRIOR = np.maximum(1 / (1 + (_SIZES / 1.5) ** 3), np.minimum(0.25 / _SIZES, 0.1))
_SIZE_PRIOR /= _SIZE_PRIOR.sum()
# Float64 that fit the cache of a processor with the intermediate arrays of `noise_density`.
_NUMBERS_AT_A_TIME = 1 << 12
# Noise as in single series: t distribution of inliers; width (in units of the scatter) and share below the level of
# outliers. The share of outliers is the same for all series here.
_NOISE = DetectorSettings()
_FREEDOM, _OUTLIER_WIDTH, _OUTLIERS_BELOW = _NOISE.freedom, _NOISE.outlier_spread, _NOISE.outlier_left
_OUTLIERS = 0.1
_T_PEAK = math.gamma((_FREEDOM + 1) / 2) / (math.sqrt(_FREEDOM * math.pi) * math.gamma(_FREEDOM / 2))
# Evidence (nats) of one series is limited to this range, because noise has tails that no model knows.
LEAST_EVIDENCE, MOST_EVIDENCE = -6.0, 12.0

# Probability that a series inside a rule, outside of it, or of a free set moves; cost (nats) of a free set.
_INSIDE, OUTSIDE, FREE, _FREE_COST = 0.93, 0.02, 0.15, 2.0
# A past session is similar with this share of the evidence, and at least this evidence.
_SIMILAR_SHARE, _LEAST_SIMILAR = 0.5, 5.0


@dataclass(frozen=True, slots=True)
class PanelSeries:
    """One series; `steps` are established changes, which are removed.

    Attributes:
        times: epoch seconds, ascending, shape (n,).
        logs: natural logarithm of the performance (higher is better), shape (n,).
        parameters: of the case, and the axes of the series.
        steps: time of the first observation of the new level, and natural logarithm of after / before.
    """

    times: NDArray[np.int64] | Floats
    logs: Floats
    parameters: Mapping[str, Scalar]
    steps: tuple[tuple[float, float], ...] = ()


class PanelTable:
    """Series by sessions, with the level before each session and the scatter of each series.

    Attributes:
        starts: epoch seconds of the first run of each session, shape (T,).
        times, logs: first observation of each series in each session, shape (S, T); NaN without one.
        levels: level before each session and after the last one, shape (S, T + 1).
        scatter: shape (S,).
        vocabulary: prior costs and words of the parameters.
        rules, cover, costs: conditions, coverage (R, S) and cost in nats (R,) of the rules.
    """

    def __init__(self, series: Sequence[PanelSeries], vocabulary: ParameterVocabulary) -> None:
        self.vocabulary = vocabulary
        all_starts = session_starts([np.asarray(observed.times, dtype=np.float64) for observed in series])
        self.starts = all_starts[-PAST_SESSIONS:]
        shape = len(series), len(self.starts)
        self.times, self.logs = np.full(shape, np.nan), np.full(shape, np.nan)
        for i, observed in enumerate(series):
            times = np.asarray(observed.times, dtype=np.float64)
            logs = np.asarray(observed.logs, dtype=np.float64).copy()
            # Established steps are removed: what was before them moves to the level after.
            for step, gain in observed.steps:
                logs[times < step] += gain
            column = np.searchsorted(self.starts, times, side="right") - 1
            is_recent = column >= 0
            # Written in reverse, so that the first observation of a session stays.
            self.times[i, column[is_recent][::-1]] = times[is_recent][::-1]
            self.logs[i, column[is_recent][::-1]] = logs[is_recent][::-1]
        self.levels = _levels_before(self.logs)
        past = self.logs[:, : max(1, self.sessions - NEWEST_SESSIONS)]
        self.scatter = robust_scatter(past - self.levels[:, : past.shape[1]])
        parameters = [observed.parameters for observed in series]
        self.rules, self.cover, self.costs = _candidate_rules(parameters, vocabulary)
        self._past: dict[int, Floats] = {}

    @property
    def sessions(self) -> int:
        """Number of sessions."""
        return len(self.starts)

    @property
    def assessed(self) -> int:
        """Number of newest sessions that an event can have begun in: before each, series need a level."""
        return max(0, min(NEWEST_SESSIONS, self.sessions - MIN_LEVEL_OBSERVATIONS - 1))

    def session_of(self, time: float) -> int:
        """Position of the session that a time belongs to."""
        return int(np.searchsorted(self.starts, time, side="right")) - 1

    def deviations(self, start: int, length: int) -> Floats:
        """Observations of `length` sessions from `start` on, less the level before: shape (S, length)."""
        return self.logs[:, start : start + length] - self.levels[:, start : start + 1]

    def past_windows(self, length: int, rows: Floats | NDArray[np.intp] | slice = slice(None)) -> Floats:
        """All windows of `length` sessions that end before the newest sessions, less the level before each.

        Shape (series, windows, length).
        """
        count = max(0, self.sessions - NEWEST_SESSIONS - length + 1)
        logs = self.logs[rows]
        if count == 0:
            return np.empty((len(logs), 0, length))
        windows = np.lib.stride_tricks.sliding_window_view(logs, length, axis=1)[:, :count]
        return np.asarray(windows - self.levels[rows][:, :count, None])

    def past_evidence(self, length: int) -> Floats:
        """Largest evidence of a group in each past window, shape (2, windows)."""
        if length not in self._past:
            windows = self.past_windows(length)
            measured = np.asarray(np.isfinite(windows).any(axis=2))
            scatter = np.broadcast_to(self.scatter[:, None], measured.shape)
            by_direction: list[Floats] = []
            for evidence in limited_evidence(shift_evidence(windows, scatter)):
                best, _ = self.best_rule(np.where(measured, evidence, 0.0), measured)
                by_direction.append(best)
            self._past[length] = np.asarray(by_direction)
        return self._past[length]

    def best_rule(self, evidence: Floats, measured: Bools) -> tuple[Floats, NDArray[np.intp]]:
        """Evidence of the best group and position of its rule, -1 for a free set; each of shape (windows,).

        Args:
            evidence, measured: shape (S, windows).
        """
        inside = _mixed(evidence, _INSIDE) * measured
        outside = _mixed(evidence, OUTSIDE) * measured
        groups = self.cover @ (inside - outside) + outside.sum(axis=0) - self.costs[:, None]
        free = (_mixed(evidence, FREE) * measured).sum(axis=0) - _FREE_COST
        best = groups.argmax(axis=0)
        top = groups.max(axis=0)
        return np.where(free > top, free, top), np.where(free > top, -1, best)

    def similar_sessions(self, direction: int, evidence: float) -> tuple[int, int]:
        """Past sessions that began with as much evidence as an event's first one, and how many were over in the next.

        Args:
            direction: 0 down, 1 up.
            evidence: of the first session of the event (nats).
        """
        past = self.past_evidence(1)[direction]
        if len(past) <= 2:
            return 0, 0
        least = max(_SIMILAR_SHARE * evidence, _LEAST_SIMILAR)
        # Sessions with as much evidence after one with less.
        begun = np.flatnonzero((past[1:-1] >= least) & (past[:-2] < least)) + 1
        is_over = past[begun + 1] < least / 2
        return len(begun), int(is_over.sum())


def session_starts(times: Sequence[Floats]) -> Floats:
    """First run of each session among the runs of all series: a session ends with a pause, or after its usual time."""
    starts: list[float] = []
    last = -math.inf
    for time in np.unique(np.concatenate(times)):
        if not starts or time - last > _PAUSE_S or time - starts[-1] > _SESSION_S:
            starts.append(float(time))
        last = time
    return np.asarray(starts)


def _levels_before(logs: Floats) -> Floats:
    """Median of the last observations before each session, shape (S, T + 1); NaN after too few observations."""
    levels = np.full((logs.shape[0], logs.shape[1] + 1), np.nan)
    for row, level in zip(logs, levels, strict=True):
        measured = np.flatnonzero(np.isfinite(row))
        if len(measured) < MIN_LEVEL_OBSERVATIONS:
            continue
        # Median of the observations before each observation, and after the last one.
        padded = np.concatenate([np.full(LEVEL_OBSERVATIONS, np.nan), row[measured]])
        windows = np.lib.stride_tricks.sliding_window_view(padded, LEVEL_OBSERVATIONS)
        medians = np.full(len(measured) + 1, np.nan)
        medians[MIN_LEVEL_OBSERVATIONS:] = np.nanmedian(windows[MIN_LEVEL_OBSERVATIONS:], axis=1)
        # A session without an observation has the level of the next observation.
        level[:] = medians[np.searchsorted(measured, np.arange(len(level)))]
    return levels


def robust_scatter(past: Floats) -> Floats:
    """Robust scatter of each series in some sessions, shrunk towards the median of all; shape (S,).

    Args:
        past: observations less the level before, shape (S, sessions); NaN where nothing was measured.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a series without past observations has none
        centre = np.nanmedian(past, axis=1, keepdims=True)
        scatter = MAD_TO_SD * np.nanmedian(np.abs(past - centre), axis=1)
    n = np.isfinite(past).sum(axis=1)
    # The deviation of one or two past observations from their own median says nothing.
    common = _USUAL_SCATTER
    if (n >= MIN_LEVEL_OBSERVATIONS).any():
        common = float(np.median(scatter[np.isfinite(scatter)]))
    scatter = np.where(np.isfinite(scatter), scatter, common)
    shrunk = np.sqrt((n * scatter**2 + _PRIOR_OBSERVATIONS * common**2) / (n + _PRIOR_OBSERVATIONS))
    return np.asarray(np.maximum(shrunk, _MIN_SCATTER))


def _candidate_rules(
    parameters: Sequence[Mapping[str, Scalar]], vocabulary: ParameterVocabulary
) -> tuple[list[tuple[Condition, ...]], Floats, Floats]:
    """Rules of at most two conditions that select different sets of at least two series, the cheapest of each set."""
    derived = [vocabulary.derive(of_case) for of_case in parameters]
    n = len(derived)
    nothing_changed = np.zeros(n, dtype=bool)
    candidates = candidate_conditions(derived, nothing_changed, vocabulary)
    conditions = [condition for condition in candidates if condition.operator in ("=", ">=", "<")]
    cover = condition_coverage(conditions, derived)
    everything = np.ones(n, dtype=bool)
    # By the set of series that a rule selects: its cost in bits, its conditions, and the set.
    cheapest: dict[bytes, tuple[float, tuple[Condition, ...], Bools]] = {everything.tobytes(): (0.0, (), everything)}

    def add(bits: float, rule: tuple[Condition, ...], covered: Bools) -> None:
        key = covered.tobytes()
        if covered.sum() >= 2 and (key not in cheapest or bits < cheapest[key][0]):
            cheapest[key] = bits, rule, covered

    for condition, covered in zip(conditions, cover, strict=True):
        add(condition.bits(vocabulary), (condition,), covered)
    # Pairs of those single conditions that are the cheapest for their set.
    single = [candidate for candidate in cheapest.values() if candidate[1]]
    for position, (bits, (first,), covered) in enumerate(single):
        for other_bits, (second,), other in single[position + 1 :]:
            if first.parameter != second.parameter:
                add(bits + other_bits + CONJUNCTION_BITS, (first, second), covered & other)
    rules = list(cheapest.values())
    costs = np.asarray([bits for bits, _, _ in rules]) * math.log(2)
    return [rule for _, rule, _ in rules], np.asarray([covered for _, _, covered in rules], dtype=np.float64), costs


def _mixed(evidence: Floats, probability: float) -> Floats:
    """Log likelihood ratio of "moved with this probability" against "did not move"."""
    return np.asarray(np.logaddexp(math.log(probability) + evidence, math.log(1 - probability)))


def noise_density(deviations: Floats, scatter: Floats) -> Floats:
    """Density of the noise (up to 1 / scatter): inliers of a t distribution, and wide outliers, mostly below."""
    z = deviations / scatter
    base = 1 + z * z / _FREEDOM
    # The power (freedom + 1) / 2 of the base is 2.5 for a freedom of 4: this is faster than a general power.
    inliers = _T_PEAK / (base * base * np.sqrt(base))
    side = np.where(z < 0, 2 * _OUTLIERS_BELOW, 2 * (1 - _OUTLIERS_BELOW))
    outliers = side / (math.pi * _OUTLIER_WIDTH * (1 + (z / _OUTLIER_WIDTH) ** 2))
    return np.asarray((1 - _OUTLIERS) * inliers + _OUTLIERS * outliers)


def shift_evidence(deviations: Floats, scatter: Floats) -> Floats:
    """Log likelihood ratio (nats) of a shift down, and up, of unknown size against none: shape (2, …).

    Args:
        deviations: observations less the level, shape (…, sessions), NaN where nothing was measured.
        scatter: shape (…).
    """
    scatter = scatter[..., None]
    still = noise_density(deviations, scatter)
    # As many sizes at a time as fit the cache: most panels are small, and the calls would take longer than the work.
    step = max(1, _NUMBERS_AT_A_TIME // max(1, deviations.size))
    by_direction = []
    for sign in (-1.0, 1.0):
        likelihood = np.zeros(())
        for begin in range(0, len(_SIZES), step):
            sizes, priors = _SIZES[begin : begin + step], _SIZE_PRIOR[begin : begin + step]
            likelihood = likelihood + _shifted_likelihood(deviations, scatter, still, sign * sizes, priors)
        by_direction.append(likelihood)
    return np.asarray(np.log(np.asarray(by_direction)))


def _shifted_likelihood(deviations: Floats, scatter: Floats, still: Floats, shifts: Floats, priors: Floats) -> Floats:
    """Likelihood of shifts with these priors relative to none, added up: shape (…)."""
    columns = (len(shifts), *(1,) * deviations.ndim)
    # Ratios of densities are multiplied, not their logarithms added: one logarithm instead of one per size.
    ratios = np.nanprod(noise_density(deviations - shifts.reshape(columns), scatter) / still, axis=-1)
    return np.asarray(np.tensordot(priors, ratios, axes=1))


def limited_evidence(evidence: Floats) -> Floats:
    """Evidence of single series (nats) within the limits that noise of unknown tails allows."""
    return np.asarray(np.clip(evidence, LEAST_EVIDENCE, MOST_EVIDENCE))
