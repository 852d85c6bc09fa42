"""From the segments of a path to transients, accepted steps, drifts, and the records that report them.

Each rule shortens the list of segments. Two small logistic models give the confidence in a step: one for settled
levels, and one for a newest level of few observations, which may be a burst of outliers. docs/weights.md
describes how their weights were found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iowatch.statistics.method import (
    ChangePoint,
    DetectedLevel,
    Detection,
    DetectorSettings,
    Drift,
    Floats,
    StepDirection,
    Transient,
)
from iowatch.statistics.segments import Segment, SeriesFit, inlier_probability, negative_log_likelihood

StepFeatures = tuple[float, ...]


def step_confidences(series: SeriesFit, segments: list[Segment]) -> list[float]:
    """Confidence (0 to 1) in the step before each segment except the first; 0 for steps below `min_effect`."""
    settings = series.settings
    found = []
    for features, newest in step_features(series, segments):
        weights = settings.newest_weights if newest else settings.settled_weights
        odds = sum(w * x for w, x in zip(weights, features, strict=True)) if features else -math.inf
        found.append(1 / (1 + math.exp(-odds)) if odds > -700 else 0.0)
    return found


def step_features(series: SeriesFit, segments: list[Segment]) -> list[tuple[StepFeatures, bool]]:
    """Features of each step, in the order of the weights, and whether its level is the newest one and short.

    A step below `min_effect`, or without evidence, has no features.
    """
    scatter = np.abs(series.logs - np.repeat([s.level for s in segments], [s.end - s.first for s in segments]))
    few, away = series.settings.transient_observations, float(series.away.mean())
    found: list[tuple[StepFeatures, bool]] = []
    reversals = step_reversals(segments, series.settings.return_observations)
    short = max(0.0, 1 - len(series.logs) / series.settings.short_observations)
    for (before, after), reversal in zip(pairwise(segments), reversals, strict=True):
        _, evidence = series.common(before, after)
        step = abs(after.level - before.level)
        newest = after is segments[-1] and after.observation_count <= few
        first_uncertainty = (
            first_level_uncertainty(before, len(series.logs), series.settings) if before is segments[0] else 0.0
        )
        if step < series.settings.min_effect or evidence <= 0:
            found.append(((), newest))
            continue
        # Steps are in units of the 80 % quantile of the scatter, bursts included.
        usual_scatter = max(float(np.quantile(scatter[: after.first] if newest else scatter, 0.8)), 1e-3)
        strength = (1.0, _log(evidence, 3, 80), _log(step / usual_scatter, 0.05, 50))
        if newest:
            found.append(((*strength, reversal, away, first_uncertainty, short), True))
        else:
            distance = rank_distance(before.logs, after.logs)
            shortness = max(0.0, 1 - min(before.observation_count, after.observation_count) / few)
            found.append(((*strength, distance, away, shortness, reversal, first_uncertainty), False))
    return found


def first_level_uncertainty(first: Segment, observations: int, settings: DetectorSettings) -> float:
    """Uncertainty of a first level, 0 to 1: high if the level has few observations and the series is short.

    A short series does not determine the depth and length of its bursts.
    """
    few = max(0.0, 1 - first.observation_count / settings.first_observations)
    return few * max(0.0, 1 - observations / settings.young_observations)


def step_reversals(segments: list[Segment], scale: float) -> list[float]:
    """Share of each step that an adjacent step reverses, 0 to 1, reduced for a long level between the two.

    If a level returns soon, the departure was a burst rather than a lasting change, even if the burst is too long or
    the return too inexact for a transient.

    Args:
        scale: number of observations between the two steps at which a reversal counts 1/e.
    """
    steps = [after.level - before.level for before, after in pairwise(segments)]
    found = [0.0] * len(steps)
    for i, (first, second) in enumerate(pairwise(steps)):
        between = segments[i + 1]
        faded = math.exp(-(between.end - between.first) / scale)
        for k, step in ((i, first), (i + 1, second)):
            if step:
                found[k] = max(found[k], (1 - abs(first + second) / abs(step)) * faded)
    return found


def _log(value: float, low: float, high: float) -> float:
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


# first observation, end, ln(ratio)
Excursion = tuple[int, int, float]


def refine_segments(series: SeriesFit, segments: list[Segment], price: float) -> tuple[list[Segment], list[Excursion]]:
    """Lasting levels, and transients in time order, of a path."""
    segments, excursions = extract_transients(series, segments, price)
    segments = drop_weak_steps(series, segments, price)
    segments, excursions = extract_short_segments(series, segments, excursions)
    segments, more = extract_transients(series, segments, price)
    segments = drop_weak_steps(series, segments, price)
    return drop_doubtful_steps(series, segments), sorted(excursions + more)


def extract_transients(
    series: SeriesFit, segments: list[Segment], price: float
) -> tuple[list[Segment], list[Excursion]]:
    """Extract short departures after which the level returns, the shortest and clearest first."""
    excursions = []
    while departures := sorted(_candidate_transients(series, segments, price)):
        _, _, i, j, level = departures[0]
        first, end = segments[i].first, segments[j].end
        depth = float(np.mean([s.level for s in segments[i : j + 1]])) - level
        excursions.append((first, end, depth))
        series.away[first:end] = True
        whole = series.segment(segments[i - 1].first, segments[j + 1].end, level)
        segments = [*segments[: i - 1], whole, *segments[j + 2 :]]
    return segments, excursions


def _candidate_transients(
    series: SeriesFit, segments: list[Segment], price: float
) -> Iterator[tuple[int, float, int, int, float]]:
    """Yield runs i … j of up to three segments on one side of the common level of their neighbours."""
    settings, spread = series.settings, float(series.noise.spread)
    for i in range(1, len(segments) - 1):
        for j in range(i, min(i + 3, len(segments) - 1)):
            if segments[j].end - segments[i].first > settings.transient_observations:
                break
            before, after = segments[i - 1], segments[j + 1]
            level, evidence = series.common(before, after)
            depths = [s.level - level for s in segments[i : j + 1]]
            one_side = min(depths) > 0 or max(depths) < 0
            near = max(settings.return_share * max(np.abs(depths)), 0.5 * spread)
            if one_side and evidence < price and abs(after.level - before.level) < near:
                yield j - i, evidence, i, j, level


def extract_short_segments(
    series: SeriesFit, segments: list[Segment], excursions: list[Excursion]
) -> tuple[list[Segment], list[Excursion]]:
    """Extract segments too short for a level: bursts between two levels, and a first level of few observations.

    A short segment between the levels of its neighbours belongs to the step between them and is merged with the
    nearer one. The last segment may be short, and so may the one before it, because too few observations follow.
    """
    excursions = list(excursions)
    while short := [i for i in range(len(segments) - 1) if _is_too_short(segments, i, series.settings)]:
        i = min(short, key=lambda k: segments[k].observation_count)
        this = segments[i]
        before, after = segments[i - 1] if i else segments[1], segments[i + 1]
        if i and (this.level - before.level) * (after.level - this.level) > 0:
            nearer = i - 1 if series.common(before, this)[1] < series.common(this, after)[1] else i
            segments = _merge_with_next(series, segments, nearer)
            continue
        depths = (this.level - before.level, this.level - after.level)
        excursions.append((this.first, this.end, min(depths, key=abs)))
        series.away[this.first : this.end] = True
        segments = [*segments[:i], series.segment(this.first, after.end, after.level), *segments[i + 2 :]]
    return segments, excursions


def _is_too_short(segments: list[Segment], i: int, settings: DetectorSettings) -> bool:
    if i == 0:
        return segments[0].observation_count <= settings.confirm_observations
    most = settings.transient_observations
    settled = i < len(segments) - 2 or segments[-1].observation_count > most // 2
    return segments[i].end - segments[i].first <= most and settled


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
    found = []
    for i, (before, after) in enumerate(pairwise(segments)):
        lasts = i == len(segments) - 2
        observations = before.observation_count if lasts else min(before.observation_count, after.observation_count)
        short = max(0.0, 1 - observations / settings.transient_observations)
        small = abs(after.level - before.level) < settings.min_effect
        evidence = 0.0 if small else series.common(before, after)[1]
        found.append(evidence - price - settings.short_penalty * short)
    return found


def drop_weak_steps(series: SeriesFit, segments: list[Segment], price: float) -> list[Segment]:
    """Merge segments, the weakest step first, until every step contributes its penalty."""
    while len(segments) > 1 and min(surpluses := evidence_surpluses(series, segments, price)) < 0:
        segments = _merge_with_next(series, segments, int(np.argmin(surpluses)))
    return segments


def drop_doubtful_steps(series: SeriesFit, segments: list[Segment]) -> list[Segment]:
    """Merge segments, the step of lowest confidence first, until every step reaches `min_confidence`."""
    least = series.settings.min_confidence
    while len(segments) > 1 and min(confidences := step_confidences(series, segments)) < least:
        segments = remove_step(series, segments, int(np.argmin(confidences)))
    return segments


def remove_step(series: SeriesFit, segments: list[Segment], i: int) -> list[Segment]:
    """Remove the step between segments i and i + 1.

    A few observations at the start are not merged into the next level, because they are no evidence for it: they are
    marked as away from it (in `series.away`).
    """
    first, second = segments[:2]
    if i > 0 or not first.observation_count <= series.settings.transient_observations < second.observation_count:
        return _merge_with_next(series, segments, i)
    series.away[first.first : first.end] = True
    return [series.segment(first.first, second.end, second.level), *segments[2:]]


def extract_drifts(series: SeriesFit, segments: list[Segment], price: float) -> tuple[list[Segment], list[Excursion]]:
    """Replace runs of steps in one direction by a slope if the slope fits the observations better."""
    drifts = []
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
        first, end, rise = slope
        drifts.append((segments[first].first, segments[end].end, rise))
        whole = segments[first : end + 1]
        level = float(np.median(np.concatenate([s.logs for s in whole])))
        merged = series.segment(whole[0].first, whole[-1].end, level)
        segments = [*segments[:first], merged, *segments[end + 1 :]]
        i = first + 1
    return segments, drifts


def _best_slope(
    series: SeriesFit, segments: list[Segment], i: int, last: int, price: float
) -> tuple[int, int, float] | None:
    """First and last segment, and rise (ln), of the longest part of a run that a slope fits better than its steps."""
    parts = [(a - 1, b) for a in range(i, last + 1) for b in range(a, last + 1)]
    for first, end in sorted(parts, key=lambda part: part[0] - part[1]):
        whole = segments[first : end + 1]
        if whole[-1].end - whole[0].first < series.settings.drift_share * len(series.logs):
            continue
        observations = np.arange(whole[0].first, whole[-1].end)
        counts = ~series.away[observations]
        cost, slope = fit_slope(series, observations[counts].astype(float), series.logs[observations[counts]])
        steps = sum(s.cost for s in whole) + (end - first) * price
        inner_ends = (first > 0) + (end < len(segments) - 1)
        if cost + series.settings.drift_penalty + inner_ends * series.settings.drift_end_penalty < steps:
            return first, end, slope * len(observations)
    return None


def fit_slope(series: SeriesFit, observations: Floats, logs: Floats, rounds: int = 12) -> tuple[float, float]:
    """Negative log likelihood of the most likely straight line, and its slope (ln) per observation."""
    x = (observations - observations.mean()) / max(1.0, float(np.ptp(observations)))
    third = max(1, len(x) // 3)
    run = float(x[-third:].mean() - x[:third].mean())
    slope = float(np.median(logs[-third:]) - np.median(logs[:third])) / max(run, 1e-9)
    middle = float(np.median(logs - slope * x))
    noise, freedom = series.noise, series.settings.freedom
    for _ in range(rounds):
        residuals = logs - slope * x - middle
        spread = np.where(residuals < 0, noise.left, noise.right)
        weight = (freedom + 1) / (freedom + (residuals / spread) ** 2) / spread**2
        weight = weight * inlier_probability(residuals, noise, series.settings) + 1e-9
        centre, mean = np.average(x, weights=weight), np.average(logs, weights=weight)
        slope = float((weight * (x - centre) * (logs - mean)).sum() / ((weight * (x - centre) ** 2).sum() + 1e-12))
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
    gain = negative_log_likelihood(logs - before.level, series.noise, series.settings)
    gain -= negative_log_likelihood(logs - after.level, series.noise, series.settings)
    gain[series.away[observations]] *= series.settings.dating_away
    score = -np.cumsum(gain)[:-1]
    chance = np.exp(score - score.max())
    half = series.settings.dating_observations
    sums = np.convolve(chance, np.ones(2 * half + 1))[half : half + len(chance)]
    likely = np.flatnonzero(sums >= (1 - series.settings.dating_slack) * sums.max())
    return before.first + 1 + int(likely[chance[likely].argmax()])


def redate_segments(series: SeriesFit, segments: list[Segment]) -> list[Segment]:
    """The same levels with each border moved to the date of its step."""
    edges = [0]
    for before, after in pairwise(segments):
        edges.append(min(max(date_step(series, before, after), edges[-1] + 1), after.end - 1))
    edges.append(len(series.logs))
    return [
        Segment(first, end, s.level, s.cost, series.logs[first:end][~series.away[first:end]])
        for s, (first, end) in zip(segments, pairwise(edges), strict=True)
    ]


def make_detection(
    times: Floats,
    firsts: NDArray[np.int64],
    series: SeriesFit,
    segments: list[Segment],
    excursions: list[Excursion],
    drifts: list[Excursion],
) -> Detection:
    """Build the detection of one series.

    Args:
        times: epoch seconds of the assessed observations, shape (n,).
        firsts: position of the first point of each observation among all points in time order, then the number of
            points; shape (n + 1,).
        segments: accepted levels, dated.
        excursions, drifts: transients and slopes.
    """

    def span(first: int, end: int) -> dict[str, Any]:
        return {
            "index": int(firsts[first]),
            "time": float(times[first]),
            "last_index": int(firsts[end]) - 1,
            "last_time": float(times[end - 1]),
        }

    def departure(first: int, end: int, log_ratio: float) -> dict[str, Any]:
        return {**span(first, end), "direction": _step_direction(log_ratio), "ratio": math.exp(log_ratio)}

    def change(before: float, after: float, first: int, observations: int, confidence: float) -> ChangePoint:
        return ChangePoint(
            index=int(firsts[first]),
            time=float(times[first]),
            last_before=float(times[first - 1]),
            direction=_step_direction(after - before),
            ratio=math.exp(after - before),
            before=math.exp(before),
            after=math.exp(after),
            confidence=confidence,
            observations=observations,
            suspected=observations < series.settings.confirm_observations,
        )

    steps = [
        change(before.level, after.level, after.first, after.end - after.first, confidence)
        for (before, after), confidence in zip(pairwise(segments), step_confidences(series, segments), strict=True)
    ]
    suspected = [step for step in steps if step.suspected]
    if not suspected and (newest := _newest_departure(series, segments[-1])) is not None:
        first, level = newest
        newest_step = change(segments[-1].level, level, first, len(times) - first, _SUSPICION_CONFIDENCE)
        suspected = [replace(newest_step, suspected=True)]
    return Detection(
        n=int(firsts[-1]),
        status="ok",
        noise=float(series.noise.spread),
        changes=tuple(step for step in steps if not step.suspected),
        suspected=tuple(suspected),
        transients=tuple(Transient(**departure(*one), observations=one[1] - one[0]) for one in excursions),
        drifts=tuple(Drift(**departure(*one)) for one in drifts),
        levels=tuple(
            DetectedLevel(**span(s.first, s.end), value=math.exp(s.level), observations=s.observation_count)
            for s in segments
        ),
    )


def _step_direction(log_ratio: float) -> StepDirection:
    return "up" if log_ratio > 0 else "down"


_SUSPICION_CONFIDENCE = 0.25


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
    return first, last.level + float(sorted(residuals[first:])[(len(residuals) - first) // 2])
