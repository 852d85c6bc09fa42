"""The interface of a detection method: settings and observed series in, `Detection` out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from iowatch.statistics.constants import Floats
from iowatch.statistics.errors import StatisticsError

# Name of the detector that is used where none is chosen (`iowatch.statistics.detection`).
DEFAULT_METHOD = "levels"


@dataclass(frozen=True, slots=True)
class DetectorSettings:
    """Prior assumptions and thresholds of the detector.

    Attributes:
        min_observations: series with fewer observations are not assessed.
        confirm_observations: a new level of fewer observations is "suspected", not a change.
        min_effect: smallest step that is reported, in natural logarithm (0.03 is about 3 %).
        penalty, penalty_per_log_observation: evidence (nats) that a step must contribute: the former + the latter
            * ln n.
        short_penalty: additional evidence for a level of few observations; 0 from transient_observations on.
        drift_penalty: evidence that a slope must contribute.
        drift_end_penalty: additional evidence for each end of a slope that is a step within the series.
        drift_share: share of the series that a slope must span; steps explain shorter slopes equally well.
        transient_observations: maximum number of observations of a departure that counts as a transient.
        level_observations, clear_step, level_inliers: a level of at most transient_observations between two others is
            kept if it has at least level_observations, the three levels differ by clear_step spreads, and a share of
            level_inliers of its observations are inliers.
        return_share: largest distance between the levels before and after a transient, as a share of the departure.
        dating_observations: a date is scored by the probability that the step is within this many observations of it.
        dating_slack: dates whose probability is within this share of the best count as equally good.
        dating_away: weight in dating of an observation of a transient, whose observations are correlated.
        freedom: degrees of freedom of the t distribution of inliers.
        outlier_spread: width of the outlier distribution in units of the spread of inliers.
        outlier_left: share of outliers below the level.
        enter_burst, leave_burst: probability per observation to enter, and to leave, a burst of outliers.
        skew: left / right spread of inliers.
        prior_observations: weight of the assumptions above, as a number of observations.
        settled_weights: weights of 1, ln evidence, ln(step / usual scatter), rank distance, share of observations in
            transients, shortness of the shorter level, reversal of the step, uncertainty of a first level.
        newest_weights: weights of 1, ln evidence, ln(step / usual scatter), reversal of the previous step, share of
            observations in transients, uncertainty of a first level, shortness of the series; for a newest level of
            few observations.
        return_observations: number of observations after which the reversal of a step counts 1/e of an immediate one.
        first_observations, young_observations: a first level is certain after first_observations, or in a series of
            young_observations.
        short_observations: a series with fewer observations is short: half of it may be a burst.
        min_confidence: smallest confidence of a reported step.
        floor: smallest assumed spread; steps of quantised or constant values are assessed with it.
        correlation, correlation_observations: assumed lag-1 autocorrelation, and its weight in observations.
        max_thinning: largest factor by which autocorrelation reduces the evidence.
        grid_step, grid_levels: spacing (in spreads) and maximum number of candidate levels.
        passes: number of times that the levels are found; between them the noise is estimated.
    """

    min_observations: int = 7
    confirm_observations: int = 4
    min_effect: float = 0.03
    penalty: float = 1.5
    penalty_per_log_observation: float = 1.0
    short_penalty: float = 8.0
    drift_penalty: float = 5.0
    drift_end_penalty: float = 1.0
    drift_share: float = 0.5
    transient_observations: int = 14
    level_observations: int = 5
    clear_step: float = 6.0
    level_inliers: float = 0.8
    return_share: float = 0.25
    dating_observations: int = 5
    dating_slack: float = 0.01
    dating_away: float = 0.2
    freedom: float = 4.0
    outlier_spread: float = 5.0
    outlier_left: float = 0.8
    enter_burst: float = 0.04
    leave_burst: float = 0.5
    skew: float = 1.2
    prior_observations: float = 10.0
    floor: float = 0.006
    settled_weights: tuple[float, ...] = (-2.23, 0.66, 0.66, 0.52, -3.93, -1.14, -4.19, -1.55)
    newest_weights: tuple[float, ...] = (-5.49, 2.54, 0.31, -3.31, -6.74, -1.65, -3.3)
    return_observations: float = 25.0
    first_observations: float = 30.0
    young_observations: float = 150.0
    short_observations: float = 20.0
    min_confidence: float = 0.63
    correlation: float = 0.1
    correlation_observations: float = 20.0
    max_thinning: float = 1.6
    grid_step: float = 0.35
    grid_levels: int = 96
    passes: int = 3


StepDirection = Literal["up", "down"]
DetectionStatus = Literal["ok", "too few observations", "no data"]


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A step to another level.

    Attributes:
        index, time: first point of the first observation of the new level.
        last_before: time of the last observation before `time`; the step happened between the two.
        ratio: after / before.
        before, after: the levels (typical inliers, not means).
        confidence: share of steps with this score that were real, on real noise, 0 to 1.
        observations: number of observations of the new level.
        suspected: the observations of the new level are too few to confirm it.
        load_share: share of ln(ratio) that goes along with a change of the covariate, 0 to 1; None if none predicts
            the series.
    """

    index: int
    time: float
    last_before: float
    direction: StepDirection
    ratio: float
    before: float
    after: float
    confidence: float
    observations: int
    suspected: bool = False
    load_share: float | None = None


@dataclass(frozen=True, slots=True)
class ObservationSpan:
    """Consecutive observations: position of the first and of the last point, and their times."""

    index: int
    time: float
    last_index: int
    last_time: float


@dataclass(frozen=True, slots=True)
class Transient(ObservationSpan):
    """Observations away from a level that then returned; `ratio` is observations / level."""

    direction: StepDirection
    ratio: float
    observations: int


@dataclass(frozen=True, slots=True)
class Drift(ObservationSpan):
    """A slow trend; `ratio` is level at the end / level at the start."""

    direction: StepDirection
    ratio: float


@dataclass(frozen=True, slots=True)
class DetectedLevel(ObservationSpan):
    """Observations at one level; `observations` excludes transients, `value` is in the unit of the input."""

    value: float
    observations: int


@dataclass(frozen=True, slots=True)
class Adjustment:
    """The covariate whose variation was removed from a series before detection.

    Attributes:
        covariate: its name.
        explained: share of the variance between consecutive observations that it predicts in time blocks that were
            not used to estimate its effect, 0 to 1.
    """

    covariate: str
    explained: float


@dataclass(frozen=True, slots=True)
class Detection:
    """Result of the detection in one series; every tuple is in time order.

    Attributes:
        n: number of points in the series.
        status: `no data`, `too few observations`, or `ok`; an empty `changes` means "no change" only with `ok`.
        noise: relative scatter of inliers (0.05 is 5 %); None without data.
        suspected: the newest observations differ, but are too few to confirm a change; never an alarm.
        method: name of the detector.
        adjustment: the covariate that the series was adjusted for; None if none predicts it.
        added_since: time (epoch seconds) of the first observation that was added to the last level without a new
            estimate, because it is within the noise (`extend_detection`); None if all observations were assessed.
    """

    n: int
    status: DetectionStatus
    noise: float | None = None
    changes: tuple[ChangePoint, ...] = ()
    suspected: tuple[ChangePoint, ...] = ()
    transients: tuple[Transient, ...] = ()
    drifts: tuple[Drift, ...] = ()
    levels: tuple[DetectedLevel, ...] = ()
    method: str = DEFAULT_METHOD
    adjustment: Adjustment | None = None
    added_since: float | None = None

    @property
    def steps(self) -> tuple[ChangePoint, ...]:
        """Confirmed changes, then suspected ones."""
        return self.changes + self.suspected

    def to_json(self) -> dict[str, Any]:
        """One series of `iowatch detect --json`, as stored in the history; times in ISO 8601."""
        document = _times_to_text(asdict(self))
        for name in _RECORDS:
            document[name] = [_times_to_text(record) for record in document[name]]
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Detection:
        """Create a detection from the output of `to_json`; times are rounded to seconds.

        Raises:
            TypeError: a key is missing or unknown.
        """
        fields = _times_from_text(document)
        for name, record_class in _RECORDS.items():
            fields[name] = tuple(record_class(**_times_from_text(record)) for record in document[name])
        adjustment = document.get("adjustment")
        fields["adjustment"] = adjustment and Adjustment(**adjustment)
        return cls(**fields)


_RECORDS: Mapping[str, Callable[..., Any]] = {
    "changes": ChangePoint,
    "suspected": ChangePoint,
    "transients": Transient,
    "drifts": Drift,
    "levels": DetectedLevel,
}


# Fields that are epoch seconds in records, and ISO 8601 in JSON.
_TIMES = ("time", "last_time", "last_before", "added_since")


def _times_to_text(record: Mapping[str, Any]) -> dict[str, Any]:
    with_text = dict(record)
    for name in _TIMES:
        if with_text.get(name):
            with_text[name] = _format_time(with_text[name])
    return with_text


def _format_time(epoch_s: float) -> str:
    """ISO 8601 in UTC to the second, ending in Z."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _times_from_text(record: Mapping[str, Any]) -> dict[str, Any]:
    with_times = dict(record)
    for name in _TIMES:
        if with_times.get(name):
            with_times[name] = datetime.fromisoformat(with_times[name]).timestamp()
    return with_times


class ObservedSeries:
    """A validated series as observations in time order, without those before `since`.

    Points with the same time are samples of one observation; its value is their median.

    Attributes:
        points: number of points of the whole series.
        times, logs: epoch seconds and ln of the value of each observation, shape (n,).
        firsts: position in time order of the first point of each observation, then `points`; shape (n + 1,).
    """

    def __init__(self, number: int, times: ArrayLike, values: ArrayLike, since: float | None) -> None:
        moments, measured = _check_series(number, times, values)
        order = np.lexsort((measured, moments))
        moments, logs = moments[order], np.log(measured[order])
        # Points with the same time are one observation.
        starts = np.flatnonzero(np.diff(moments, prepend=-np.inf) > 0)
        if len(starts) < len(moments):
            logs = np.array([np.median(samples) for samples in np.split(logs, starts[1:])])
        skipped = 0
        if since is not None:
            skipped = int(np.searchsorted(moments[starts], since, side="left"))
        self.points = len(moments)
        self.times: Floats = moments[starts][skipped:]
        self.logs: Floats = logs[skipped:]
        self.firsts: NDArray[np.int64] = np.append(starts, len(moments))[skipped:]


def _check_series(number: int, times: ArrayLike, values: ArrayLike) -> tuple[Floats, Floats]:
    """Times and values as arrays.

    Raises:
        StatisticsError: shapes differ, or a time or value is not finite, or a value is not positive.
    """
    moments, measured = np.asarray(times, dtype=float), np.asarray(values, dtype=float)
    if moments.ndim != 1 or moments.shape != measured.shape:
        shapes = f"times have shape {moments.shape}, values {measured.shape}"
        raise StatisticsError(f"series {number}: {shapes}; expected the same (n,)")
    is_usable = np.isfinite(moments) & np.isfinite(measured) & (measured > 0)
    wrong = np.flatnonzero(~is_usable)
    if len(wrong):
        i = int(wrong[0])
        point = f"series {number}, point {i}: time {moments[i]}, value {measured[i]}"
        raise StatisticsError(
            f"{point}; expected finite numbers and a value > 0", hint="Leave out what was not measured."
        )
    return moments, measured


@dataclass(frozen=True, slots=True)
class Detector:
    """A method to detect changes.

    Attributes:
        name: by which it is chosen, for example `iowatch detect --method NAME`.
        version: changes whenever the result of the same series may change; part of the key of stored detections.
        detect: function from series with at least `min_observations` observations each to their detections, in the
            same order.
    """

    name: str
    version: str
    detect: Callable[[Sequence[ObservedSeries], DetectorSettings], list[Detection]]
