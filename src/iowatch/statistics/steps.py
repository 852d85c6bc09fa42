"""From the segments of a path to transients, accepted steps, drifts, and the records that report them.

Each rule shortens the list of segments. Two small logistic models give the confidence in a step: one for settled
levels, and one for a newest level of few observations, which may be a burst of outliers. docs/weights.md
describes how their weights were found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from iowatch.statistics.constants import Floats
from iowatch.statistics.logistic import expit
from iowatch.statistics.method import (
    ChangePoint,
    DetectedLevel,
    Detection,
    DetectorSettings,
    Drift,
    ObservedSeries,
    StepDirection,
    Transient,
)
from iowatch.statistics.segments import Segment, SeriesFit, inlier_probability, negative_log_likelihood

# Confidence of a suspicion by the newest observations alone, which no model rates.
_SUSPICION_CONFIDENCE = 0.25

# Most distance between the means of the halves of a level, in standard errors: as usual for a mean. Without a limit a
# level is found within every fifth gradual change (bench/statistics/staircases.py); the limit is for white noise.
_MOST_RISE = 3.0
# Residuals (in spreads) beyond this count as this, so that one outlier does not tilt the level of few observations.
_MOST_RESIDUAL = 3.0


@dataclass(frozen=True, slots=True)
class StepFeatures:
    """What the confidence in a step depends on.

    Attributes:
        values: in the order of the weights; empty for a step below `min_effect` or without evidence.
        is_newest: whether the level is the newest one and short, so that the other model rates it.
    """

    values: tuple[float, ...]
    is_newest: bool


@dataclass(frozen=True, slots=True, order=True)
class Departure:
    """Observations first … end-1 away from a level: a transient by ln(ratio), or a slope that rises by it."""

    first: int
    end: int
    log_ratio: float


def step_confidences(series: SeriesFit, segments: list[Segment]) -> list[float]:
    """Confidence (0 to 1) in the step before each segment except the first, by logistic regression on its features.

    A step that is below `min_effect`, or for which nothing speaks, has no features and the confidence 0.
    """
    settings = series.settings
    confidences: list[float] = []
    for features in step_features(series, segments):
        if not features.values:
            confidences.append(0.0)
            continue
        weights = settings.newest_weights if features.is_newest else settings.settled_weights
        log_odds = sum(weight * value for weight, value in zip(weights, features.values, strict=True))
        confidences.append(expit(log_odds))
    return confidences


def step_features(series: SeriesFit, segments: list[Segment]) -> list[StepFeatures]:
    """Features of the step before each segment except the first."""
    settings = series.settings
    levels = np.repeat([segment.level for segment in segments], [segment.end - segment.first for segment in segments])
    scatter = np.abs(series.logs - levels)
    # Features that all steps of a series have in common.
    share_away = float(series.away.mean())
    shortness_of_series = max(0.0, 1 - len(series.logs) / settings.short_observations)
    reversals = step_reversals(segments, settings.return_observations)
    all_features: list[StepFeatures] = []
    for (before, after), reversal in zip(pairwise(segments), reversals, strict=True):
        _, evidence = series.common(before, after)
        step = abs(after.level - before.level)
        is_newest = after is segments[-1] and after.observation_count <= settings.transient_observations
        if step < settings.min_effect or evidence <= 0:
            all_features.append(StepFeatures((), is_newest))
            continue
        values: tuple[float, ...]
        first_uncertainty = 0.0
        if before is segments[0]:
            first_uncertainty = first_level_uncertainty(before, len(series.logs), settings)
        # Steps are in units of the 80 % quantile of the scatter, bursts included; a newest level is not known well
        # enough to contribute.
        usual_scatter = max(float(np.quantile(scatter[: after.first] if is_newest else scatter, 0.8)), 1e-3)
        strength = (1.0, _log(evidence, 3, 80), _log(step / usual_scatter, 0.05, 50))
        if is_newest:
            values = (*strength, reversal, share_away, first_uncertainty, shortness_of_series)
        else:
            distance = rank_distance(before.logs, after.logs)
            shorter = min(before.observation_count, after.observation_count)
            shortness = max(0.0, 1 - shorter / settings.transient_observations)
            values = (*strength, distance, share_away, shortness, reversal, first_uncertainty)
        all_features.append(StepFeatures(values, is_newest))
    return all_features


def first_level_uncertainty(first: Segment, observations: int, settings: DetectorSettings) -> float:
    """Uncertainty of a first level, 0 to 1: high if the level has few observations and the series is short.

    A short series does not determine the depth and length of its bursts.
    """
    few = max(0.0, 1 - first.observation_count / settings.first_observations)
    return few * max(0.0, 1 - observations / settings.young_observations)


def step_reversals(segments: list[Segment], scale: float) -> list[float]:
    """How far an adjacent step leads back to the level before each step, 0 to 1, reduced for a long level between both.

    A step back that is twice as large as the step ends as far from that level as before: 0.

    If a level returns soon, the departure was a burst rather than a lasting change, even if the burst is too long or
    the return too inexact for a transient.

    Args:
        scale: number of observations between the two steps at which a reversal counts 1/e.
    """
    steps = [after.level - before.level for before, after in pairwise(segments)]
    reversals = [0.0] * len(steps)
    for i, (first, second) in enumerate(pairwise(steps)):
        between = segments[i + 1]
        faded = math.exp(-(between.end - between.first) / scale)
        # Each of two adjacent steps may reverse the other one.
        for k, step in ((i, first), (i + 1, second)):
            if step:
                reversals[k] = max(reversals[k], (1 - abs(first + second) / abs(step)) * faded)
    return reversals


def _log(value: float, low: float, high: float) -> float:
    """ln of a value that is limited to a range."""
    return math.log(min(max(value, low), high))


def rank_distance(a: Floats, b: Floats) -> float:
    """|z| of the Mann-Whitney test of two samples; ties count half.

    Not `scipy.stats.mannwhitneyu`, which takes 2,800 microseconds per call; this function takes 6, and it is called
    for every step considered.
    """
    n, m = len(a), len(b)
    if not n or not m:
        return 0.0
    ordered = np.sort(a)
    wins = np.searchsorted(ordered, b, side="left") + np.searchsorted(ordered, b, side="right")
    return abs(float(wins.sum()) / 2 - n * m / 2) / math.sqrt(n * m * (n + m + 1) / 12)


def refine_segments(series: SeriesFit, segments: list[Segment], price: float) -> tuple[list[Segment], list[Departure]]:
    """Lasting levels, and transients in time order, of a path."""
    segments, transients = extract_transients(series, segments, price)
    segments = drop_weak_steps(series, segments, price)
    segments, short_transients = extract_short_segments(series, segments)
    # Levels that are longer now may have transients between them.
    segments, later_transients = extract_transients(series, segments, price)
    segments = drop_weak_steps(series, segments, price)
    segments = drop_doubtful_steps(series, segments)
    return segments, sorted(transients + short_transients + later_transients)


@dataclass(frozen=True, slots=True, order=True)
class _CandidateTransient:
    """Segments first … last that depart from the common level (ln) of their neighbours, the best one in order first.

    Attributes:
        length: number of segments, less one.
        evidence: against the common level of the neighbours (nats).
    """

    length: int
    evidence: float
    first: int
    last: int
    level: float


def extract_transients(
    series: SeriesFit, segments: list[Segment], price: float
) -> tuple[list[Segment], list[Departure]]:
    """Extract short departures after which the level returns, the shortest and clearest first."""
    transients: list[Departure] = []
    while True:
        best = min(_candidate_transients(series, segments, price), default=None)
        if best is None:
            return segments, transients
        departed = segments[best.first : best.last + 1]
        depth = float(np.mean([segment.level for segment in departed])) - best.level
        transient = Departure(departed[0].first, departed[-1].end, depth)
        transients.append(transient)
        series.away[transient.first : transient.end] = True
        # The neighbours are one segment now, which the transient is no part of.
        before, after = segments[best.first - 1], segments[best.last + 1]
        whole = series.segment(before.first, after.end, best.level)
        segments = [*segments[: best.first - 1], whole, *segments[best.last + 2 :]]


def _candidate_transients(series: SeriesFit, segments: list[Segment], price: float) -> Iterator[_CandidateTransient]:
    """Yield runs of up to three segments on one side of the common level of their neighbours."""
    settings, spread = series.settings, float(series.noise.spread)
    for first in range(1, len(segments) - 1):
        for last in range(first, min(first + 3, len(segments) - 1)):
            if segments[last].end - segments[first].first > settings.transient_observations:
                break
            before, after = segments[first - 1], segments[last + 1]
            level, evidence = series.common(before, after)
            depths = [segment.level - level for segment in segments[first : last + 1]]
            is_on_one_side = min(depths) > 0 or max(depths) < 0
            # The level after it is nearly that of before, and no step between the two is worth its penalty.
            near = max(settings.return_share * max(np.abs(depths)), 0.5 * spread)
            has_returned = evidence < price and abs(after.level - before.level) < near
            if is_on_one_side and has_returned:
                yield _CandidateTransient(last - first, evidence, first, last, level)


def extract_short_segments(series: SeriesFit, segments: list[Segment]) -> tuple[list[Segment], list[Departure]]:
    """Extract segments too short for a level: bursts between two levels, and a first level of few observations.

    A short segment between the levels of its neighbours belongs to the step between them and is merged with the
    nearer one, unless it is a level by itself. The last segment may be short, and so may the one before it, because too
    few observations follow.
    """
    transients: list[Departure] = []
    while True:
        short: list[int] = []
        for i in range(len(segments) - 1):
            if _is_too_short(segments, i, series.settings) and not is_level_of_staircase(series, segments, i):
                short.append(i)
        if not short:
            return segments, transients
        # The shortest first: without it its neighbours may be long enough.
        i = min(short, key=lambda position: segments[position].observation_count)
        segment, after = segments[i], segments[i + 1]
        before = segments[i - 1] if i else segments[1]
        # Between the levels of its neighbours it is a part of the step between them.
        is_between = (segment.level - before.level) * (after.level - segment.level) > 0
        if i and is_between:
            _, evidence_before = series.common(before, segment)
            _, evidence_after = series.common(segment, after)
            nearer = i - 1 if evidence_before < evidence_after else i
            segments = _merge_with_next(series, segments, nearer)
            continue
        # Else it is a transient. Its observations are no part of the next level, which begins with them.
        depths = (segment.level - before.level, segment.level - after.level)
        transients.append(Departure(segment.first, segment.end, min(depths, key=abs)))
        series.away[segment.first : segment.end] = True
        longer = series.segment(segment.first, after.end, after.level)
        segments = [*segments[:i], longer, *segments[i + 2 :]]


def _is_too_short(segments: list[Segment], i: int, settings: DetectorSettings) -> bool:
    """Whether segment i, which is not the last one, is too short for a level."""
    if i == 0:
        return segments[0].observation_count < settings.confirm_observations
    most = settings.transient_observations
    # The segment before a short last one may be short, too.
    is_settled = i < len(segments) - 2 or segments[-1].observation_count > most // 2
    return segments[i].end - segments[i].first <= most and is_settled


def is_level_of_staircase(series: SeriesFit, segments: list[Segment], i: int) -> bool:
    """Whether the short segment i is a level by itself between two others.

    The three levels must be clearly different, and its observations must scatter around one level: the outliers of a
    burst, and the observations of a gradual change, each have a value of their own.
    """
    settings = series.settings
    if not 0 < i < len(segments) - 1 or segments[i].observation_count < settings.level_observations:
        return False
    before, middle, after = segments[i - 1 : i + 2]
    clear_step = settings.clear_step * float(series.noise.spread)
    for first, second in ((before, middle), (middle, after), (before, after)):
        if abs(second.level - first.level) < clear_step:
            return False
    residuals = middle.logs - middle.level
    if inlier_probability(residuals, series.noise, settings).mean() < settings.level_inliers:
        return False
    # The halves of a gradual change are at different levels.
    limited = np.clip(residuals / float(series.noise.spread), -_MOST_RESIDUAL, _MOST_RESIDUAL)
    half = len(limited) // 2
    rise = abs(float(limited[-half:].mean() - limited[:half].mean()))
    standard_error = math.sqrt(2 / half)
    return rise <= _MOST_RISE * standard_error


def _merge_with_next(series: SeriesFit, segments: list[Segment], i: int) -> list[Segment]:
    """Merge segments i and i + 1."""
    before, after = segments[i : i + 2]
    level, _ = series.common(before, after)
    return [*segments[:i], series.segment(before.first, after.end, level), *segments[i + 2 :]]


def evidence_surpluses(series: SeriesFit, segments: list[Segment], price: float) -> list[float]:
    """Evidence (nats) above the penalty for the step before each segment except the first.

    The penalty increases if the level before or after is short, because bursts of outliers are short. The newest
    level is exempt, so that changes are reported early. The evidence of a step below `min_effect` is 0.
    """
    settings = series.settings
    surpluses = []
    for before, after in pairwise(segments):
        observations = before.observation_count
        if after is not segments[-1]:
            observations = min(observations, after.observation_count)
        shortness = max(0.0, 1 - observations / settings.transient_observations)
        evidence = 0.0
        if abs(after.level - before.level) >= settings.min_effect:
            _, evidence = series.common(before, after)
        surpluses.append(evidence - price - settings.short_penalty * shortness)
    return surpluses


def drop_weak_steps(series: SeriesFit, segments: list[Segment], price: float) -> list[Segment]:
    """Merge segments, the weakest step first, until every step contributes its penalty."""
    while len(segments) > 1:
        surpluses = evidence_surpluses(series, segments, price)
        if min(surpluses) >= 0:
            break
        segments = _merge_with_next(series, segments, int(np.argmin(surpluses)))
    return segments


def drop_doubtful_steps(series: SeriesFit, segments: list[Segment]) -> list[Segment]:
    """Merge segments, the step of lowest confidence first, until every step reaches `min_confidence`."""
    while len(segments) > 1:
        confidences = step_confidences(series, segments)
        if min(confidences) >= series.settings.min_confidence:
            break
        segments = remove_step(series, segments, int(np.argmin(confidences)))
    return segments


def remove_step(series: SeriesFit, segments: list[Segment], i: int) -> list[Segment]:
    """Remove the step between segments i and i + 1.

    A few observations at the start are not merged into the next level, because they are no evidence for it: they are
    marked as away from it (in `series.away`).
    """
    first, second = segments[:2]
    most = series.settings.transient_observations
    is_short_start = i == 0 and first.observation_count <= most < second.observation_count
    if not is_short_start:
        return _merge_with_next(series, segments, i)
    series.away[first.first : first.end] = True
    return [series.segment(first.first, second.end, second.level), *segments[2:]]


def extract_drifts(series: SeriesFit, segments: list[Segment], price: float) -> tuple[list[Segment], list[Departure]]:
    """Replace runs of steps in one direction by a slope if the slope fits the observations better."""
    drifts: list[Departure] = []
    i = 1
    while i < len(segments):
        # Last segment of the run of steps in one direction that starts with the step before segment i.
        last, sign = i, np.sign(segments[i].level - segments[i - 1].level)
        while last + 1 < len(segments) and np.sign(segments[last + 1].level - segments[last].level) == sign:
            last += 1
        slope = _best_slope(series, segments, i, last, price)
        if slope is None:
            i = last + 1
            continue
        # The segments of the slope are one level in the middle of it.
        sloping = segments[slope.first : slope.last + 1]
        drifts.append(Departure(sloping[0].first, sloping[-1].end, slope.rise))
        level = float(np.median(np.concatenate([segment.logs for segment in sloping])))
        merged = series.segment(sloping[0].first, sloping[-1].end, level)
        segments = [*segments[: slope.first], merged, *segments[slope.last + 1 :]]
        i = slope.first + 1
    return segments, drifts


@dataclass(frozen=True, slots=True)
class _Slope:
    """Segments first … last that a straight line fits better than steps, and its rise over all of them (ln)."""

    first: int
    last: int
    rise: float


def _best_slope(series: SeriesFit, segments: list[Segment], i: int, last: int, price: float) -> _Slope | None:
    """The longest part of a run of steps that a slope fits better.

    Args:
        i, last: the run has the steps before the segments i … last.
        price: evidence (nats) that a step must contribute.
    """
    settings = series.settings
    # Every part of the run, as positions of its first and last segment; the longest part is tried first.
    runs: list[tuple[int, int]] = []
    for first_step in range(i, last + 1):
        runs += [(first_step - 1, last_step) for last_step in range(first_step, last + 1)]
    for first, end in sorted(runs, key=lambda run: run[0] - run[1]):
        sloping = segments[first : end + 1]
        if sloping[-1].end - sloping[0].first < settings.drift_share * len(series.logs):
            continue
        # The slope is fitted to all observations of these segments but those of transients.
        observations = np.arange(sloping[0].first, sloping[-1].end)
        is_used = ~series.away[observations]
        used = observations[is_used]
        cost, slope = fit_slope(series, used.astype(float), series.logs[used])
        # A slope costs its penalty, and each of its ends that is a step within the series costs more.
        inner_ends = (first > 0) + (end < len(segments) - 1)
        cost_of_slope = cost + settings.drift_penalty + inner_ends * settings.drift_end_penalty
        cost_of_steps = sum(segment.cost for segment in sloping) + (end - first) * price
        if cost_of_slope < cost_of_steps:
            return _Slope(first, end, slope * len(observations))
    return None


def fit_slope(series: SeriesFit, observations: Floats, logs: Floats, rounds: int = 12) -> tuple[float, float]:
    """Negative log likelihood of the most likely straight line, and its slope (ln) per observation."""
    x = (observations - observations.mean()) / max(1.0, float(np.ptp(observations)))
    # Start with the line through the medians of the first and the last third.
    third = max(1, len(x) // 3)
    run = float(x[-third:].mean() - x[:third].mean())
    slope = float(np.median(logs[-third:]) - np.median(logs[:third])) / max(run, 1e-9)
    middle = float(np.median(logs - slope * x))
    noise, freedom = series.noise, series.settings.freedom
    # Weighted least squares: outliers, of the t distribution and of bursts, count less.
    for _ in range(rounds):
        residuals = logs - slope * x - middle
        spread = np.where(residuals < 0, noise.left, noise.right)
        weight = (freedom + 1) / (freedom + (residuals / spread) ** 2) / spread**2
        weight = weight * inlier_probability(residuals, noise, series.settings) + 1e-9
        centre, mean = np.average(x, weights=weight), np.average(logs, weights=weight)
        products = (weight * (x - centre) * (logs - mean)).sum()
        squares = (weight * (x - centre) ** 2).sum()
        slope = float(products / (squares + 1e-12))
        middle = float(mean - slope * centre)
    cost = float(negative_log_likelihood(logs - slope * x - middle, noise, series.settings).sum())
    return cost, slope / max(1.0, float(np.ptp(observations)))


def date_step(series: SeriesFit, before: Segment, after: Segment) -> int:
    """First observation of the new level: the most likely one among those whose neighbourhood is most probable.

    Observations of transients have a small weight: with weight 0, all observations of a burst next to the step would
    be equally likely, and the date could fall into the burst.
    """
    observations = slice(before.first, after.end)
    logs = series.logs[observations]
    # Evidence of each observation for the new level instead of the one before.
    gain = negative_log_likelihood(logs - before.level, series.noise, series.settings)
    gain -= negative_log_likelihood(logs - after.level, series.noise, series.settings)
    gain[series.away[observations]] *= series.settings.dating_away
    # Relative probability of each date, and of those around it.
    score = -np.cumsum(gain)[:-1]
    probability = np.exp(score - score.max())
    half = series.settings.dating_observations
    sums = np.convolve(probability, np.ones(2 * half + 1))[half : half + len(probability)]
    likely = np.flatnonzero(sums >= (1 - series.settings.dating_slack) * sums.max())
    return before.first + 1 + int(likely[probability[likely].argmax()])


def redate_segments(series: SeriesFit, segments: list[Segment]) -> list[Segment]:
    """The same levels with each border moved to the date of its step."""
    edges = [0]
    for before, after in pairwise(segments):
        # Every segment keeps an observation at least.
        date = date_step(series, before, after)
        edges.append(min(max(date, edges[-1] + 1), after.end - 1))
    edges.append(len(series.logs))
    dated: list[Segment] = []
    for segment, (first, end) in zip(segments, pairwise(edges), strict=True):
        logs = series.logs[first:end][~series.away[first:end]]
        dated.append(Segment(first, end, segment.level, segment.cost, logs))
    return dated


def make_detection(
    observed: ObservedSeries,
    series: SeriesFit,
    segments: list[Segment],
    transients: list[Departure],
    drifts: list[Departure],
) -> Detection:
    """Build the detection of one series.

    Args:
        observed: the assessed observations, and the positions of their points.
        segments: accepted levels, dated.
        transients: in time order.
        drifts: slopes, in time order.
    """
    settings = series.settings
    # A step between each two consecutive levels.
    steps: list[ChangePoint] = []
    confidences = step_confidences(series, segments)
    for (before, after), confidence in zip(pairwise(segments), confidences, strict=True):
        step = _Step(before.level, after.level, after.first, after.end, confidence)
        steps.append(_change_point(observed, step, settings))
    suspected = [change for change in steps if change.suspected]
    # Without a short newest level, the newest observations may be the beginning of one.
    newest = _newest_departure(series, segments[-1])
    if not suspected and newest is not None:
        first, level = newest
        step = _Step(segments[-1].level, level, first, len(observed.times), _SUSPICION_CONFIDENCE)
        suspected = [replace(_change_point(observed, step, settings), suspected=True)]
    # The levels, in the unit of the values, without the observations of transients.
    levels: list[DetectedLevel] = []
    for segment in segments:
        span = _span(observed, segment.first, segment.end)
        value, observations = math.exp(segment.level), segment.observation_count
        levels.append(DetectedLevel(**span, value=value, observations=observations))
    bursts: list[Transient] = []
    for burst in transients:
        bursts.append(Transient(**_departure_fields(observed, burst), observations=burst.end - burst.first))
    return Detection(
        n=observed.points,
        status="ok",
        noise=float(series.noise.spread),
        changes=tuple(change for change in steps if not change.suspected),
        suspected=tuple(suspected),
        transients=tuple(bursts),
        drifts=tuple(Drift(**_departure_fields(observed, slope)) for slope in drifts),
        levels=tuple(levels),
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """A step from one level to another.

    Attributes:
        before, after: the levels (ln).
        first, end: position of the first observation of the new level, and of the first one after it.
        confidence: 0 to 1.
    """

    before: float
    after: float
    first: int
    end: int
    confidence: float


def _change_point(observed: ObservedSeries, step: _Step, settings: DetectorSettings) -> ChangePoint:
    """A step as it is reported: in points, times and the unit of the values."""
    observations = step.end - step.first
    return ChangePoint(
        index=int(observed.firsts[step.first]),
        time=float(observed.times[step.first]),
        last_before=float(observed.times[step.first - 1]),
        direction=_step_direction(step.after - step.before),
        ratio=math.exp(step.after - step.before),
        before=math.exp(step.before),
        after=math.exp(step.after),
        confidence=step.confidence,
        observations=observations,
        suspected=observations < settings.confirm_observations,
    )


def _span(observed: ObservedSeries, first: int, end: int) -> dict[str, Any]:
    """Fields of an `ObservationSpan`.

    Args:
        first, end: position of the first observation, and of the first one after the last.
    """
    return {
        "index": int(observed.firsts[first]),
        "time": float(observed.times[first]),
        "last_index": int(observed.firsts[end]) - 1,
        "last_time": float(observed.times[end - 1]),
    }


def _departure_fields(observed: ObservedSeries, departure: Departure) -> dict[str, Any]:
    """Fields of a `Transient` or `Drift`."""
    return {
        **_span(observed, departure.first, departure.end),
        "direction": _step_direction(departure.log_ratio),
        "ratio": math.exp(departure.log_ratio),
    }


def _step_direction(log_ratio: float) -> StepDirection:
    return "up" if log_ratio > 0 else "down"


def _newest_departure(series: SeriesFit, last: Segment) -> tuple[int, float] | None:
    """First observation and level (ln) of the newest observations if all are far on one side of the last level."""
    residuals = series.logs - last.level
    spread = series.noise.left if residuals[-1] < 0 else series.noise.right
    far = max(3 * float(spread), series.settings.min_effect)
    sign = 1 if residuals[-1] > 0 else -1
    first = len(residuals)
    while first - 1 > last.first and sign * residuals[first - 1] > far:
        first -= 1
    if first == len(residuals):
        return None
    ordered = sorted(residuals[first:])
    return first, last.level + float(ordered[len(ordered) // 2])
