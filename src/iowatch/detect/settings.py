"""The constants of the detector, the same for every series and machine; docs/detection.md explains them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """What is assumed before a series is seen.

    Attributes:
        min_nights: fewer nights are not judged at all.
        confirm_nights: a new level of fewer nights is "suspected", not a change.
        min_effect: smallest step that is reported, in natural logarithm (0.03 is about 3 %).
        penalty, penalty_per_log_night: evidence (nats) that a step must bring: penalty + per_log_night * ln n.
        short_penalty: further evidence for a level of few nights; falls to none at transient_nights.
        drift_penalty: evidence that a slope must bring.
        drift_share: share of the series that a slope must span; steps explain shorter ones as well.
        transient_nights: a departure of at most this many nights that comes back is a transient.
        return_share: how near it must come back, as a share of the departure.
        dating_nights: a date is judged by the chance that the step is within so many nights of it.
        dating_slack: dates whose chance is within this share of the best count as equally good.
        dating_away: what a night of a transient weighs in dating; its nights hang together.
        freedom: degrees of freedom of the t distribution of good nights.
        bad_spread: width of bad nights in units of the spread of good nights.
        bad_left: share of bad nights below the level.
        enter_bad, leave_bad: probability a night to fall into, and out of, a spell of bad nights.
        skew: left over right spread of good nights.
        prior_nights: how many nights of data the assumptions above weigh.
        settled_weights: of 1, ln evidence, ln(step / usual scatter), rank distance, share of nights in
            transients, shortness of the shorter level, how far the step is undone, how unproven a first
            level is.
        newest_weights: of 1, ln evidence, ln(step / usual scatter), how far the step undoes the one before,
            share of nights in transients, how unproven a first level is, how short the history is; for a
            newest level of few nights.
        return_nights: nights after which a step that is undone counts 1/e of one undone at once.
        first_nights, young_nights: a first level is proven after so many nights, and in a series of so many.
        short_nights: a history of fewer nights is short: a spell may be half of it.
        min_confidence: least confidence of a reported step.
        floor: smallest spread believed; steps of quantised or constant values are judged against it.
        correlation, correlation_nights: lag-1 autocorrelation assumed, and the nights that it weighs.
        max_thinning: most that autocorrelation may thin out the evidence.
        grid_step, grid_levels: spacing (in spreads) and largest number of candidate levels.
        passes: levels and noise are estimated in turn; the share of the penalty that steps cost each time.
    """

    min_nights: int = 7
    confirm_nights: int = 4
    min_effect: float = 0.03
    penalty: float = 1.5
    penalty_per_log_night: float = 1.0
    short_penalty: float = 8.0
    drift_penalty: float = 5.0
    drift_share: float = 0.5
    transient_nights: int = 14
    return_share: float = 0.25
    dating_nights: int = 5
    dating_slack: float = 0.01
    dating_away: float = 0.2
    freedom: float = 4.0
    bad_spread: float = 5.0
    bad_left: float = 0.8
    enter_bad: float = 0.04
    leave_bad: float = 0.5
    skew: float = 1.2
    prior_nights: float = 10.0
    floor: float = 0.006
    settled_weights: tuple[float, ...] = (-2.05, 0.53, 0.51, 0.53, -5.18, -0.76, -3.44, -1.99)
    newest_weights: tuple[float, ...] = (-5.36, 2.54, 0.31, -3.31, -6.74, -1.65, -3.3)
    return_nights: float = 25.0
    first_nights: float = 30.0
    young_nights: float = 150.0
    short_nights: float = 20.0
    min_confidence: float = 0.63
    correlation: float = 0.1
    correlation_nights: float = 20.0
    max_thinning: float = 1.6
    grid_step: float = 0.35
    grid_levels: int = 96
    passes: tuple[float, ...] = (1.0, 1.0, 1.0)
