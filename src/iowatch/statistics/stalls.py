"""Stalls: does an operation that is timed every few minutes take much longer than it usually does at this hour?

Times of operations on a shared file system have a rhythm of day and week, scatter by a factor, and have a heavy tail:
one slow pulse says nothing, and a fixed limit is wrong at noon or at night. So everything is relative to the past of
the same operation, in logarithms:

1. The *usual* time is the median of the pulses of the same hour of the week; of the same hour of the day while there
   are fewer than four weeks; of all hours in the first three days.
2. The *excess* of three successive pulses is the smallest of their ln(time / usual time): all three are slower than
   this. A single slow pulse, or two, have no excess.
3. The *threshold* is the excess that the past of this operation would reach once in two years. Excesses above their
   97th percentile are taken as clusters (a busy hour is one cluster), whose peaks have an exponential tail with mean
   b (in times: a Pareto tail), of which the upper 95 % limit is used. With c clusters in d days, the excess of once in
   D days is

       threshold = 97th percentile + b ln(D c / d)            (peaks over threshold, with shape 0)

   and never below ln 3. A file system whose users cause an hour of slow operations each day has a high threshold, a
   calm one a low one.
4. A stall begins when the excess of the newest three pulses is above the threshold, or when none of the three ended.
   It ends when two of the newest three are back below half of the threshold.

The reference is made of pulses before the day of the pulse that it is used for, so it is the same for all pulses of a
day, and a stall does not enter it while it begins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

PULSES = 3
"""Pulses that a stall needs: with one every ten minutes it is found within half an hour. With two, bursts of a quarter
of an hour, which users cause every day, would be messages."""

HOURS_OF_WEEK = 168

_DAY_S = 86_400
# A longer pause (of the timer, of the node) makes pulses not successive.
_MAX_GAP_S = 3600
# Expected days between two false stalls of one operation. With seven operations about three a year, as far as the tail
# of the future is that of the past; it is not, so the aim of one a month leaves a factor of four.
_RETURN_DAYS = 730.0
# Below it excesses belong to the body of the distribution, above it to the tail. In eight weeks 240 of 8064 pulses are
# above it, in some 100 clusters: enough for the mean of their peaks to within 10 %.
_TAIL_QUANTILE = 0.97
# Standard errors above the mean of the peaks (an exponential mean of n values has the relative error 1 / sqrt(n)).
_UPPER_LIMIT = 1.64
# Excesses that are nearer to each other are one cluster.
_CLUSTER_GAP_S = 2 * 3600
# Mean of the peaks, in ln(time), where the past has almost no scatter: a threshold must not become arbitrarily sharp.
_SMALLEST_TAIL = 0.05
# A factor below it is not worth a message, however calm the past.
_SMALLEST_FACTOR = 3.0
# In the first two weeks the tail is known from a few clusters only.
_YOUNG_DAYS, _YOUNG_FACTOR = 14.0, 10.0
# An operation that still ends within a millisecond stalls nobody: lookups from the client's cache take microseconds,
# and a busy processor makes them ten times slower.
_SMALLEST_TIME_NS = 1_000_000
# Pulses of about a day; with fewer only operations that do not end are a stall.
_FEWEST_PULSES = 100
# The usual time by hour of the day, and by hour of the week.
_DAYS_FOR_HOUR_OF_DAY, _DAYS_FOR_HOUR_OF_WEEK = 3.0, 28.0
# A cell of fewer pulses has the median of all.
_FEWEST_PER_HOUR = 6

Scope = Literal["hour of the week", "hour of the day", "all hours"]
State = Literal["undecided", "usual", "begins", "lasts", "ends"]


@dataclass(frozen=True)
class StallReference:
    """What is usual for one operation.

    Attributes:
        usual: ln(ns) by hour of the week; shape (168,).
        threshold: ln(time / usual time) that a stall exceeds.
        pulses: number of pulses that it was made of.
        scope: what the usual time is the median of.
    """

    usual: Floats
    threshold: float
    pulses: int
    scope: Scope

    def usual_ns(self, hour_of_week: int) -> float:
        """The usual time at an hour of the week."""
        return math.exp(self.usual[hour_of_week])


@dataclass(frozen=True)
class Pulses:
    """Successive pulses of one operation, in order of time; all arrays have the same length.

    Attributes:
        times: epoch seconds.
        hours_of_week: 0 is Monday from 00:00 to 01:00 in the zone of the system.
        levels_ns: time of the operation; of one that did not end at least this.
        ended: whether the operation ended, without an error.
    """

    times: Integers
    hours_of_week: Integers
    levels_ns: Floats
    ended: Flags


@dataclass(frozen=True)
class StallVerdict:
    """What the newest pulses say about an operation.

    Attributes:
        since: time of the first of them, of the first usual one if a stall ends; epoch seconds; 0 if undecided.
        level_ns: their median.
        usual_ns: usual time at this hour; None without a reference.
    """

    state: State
    since: int = 0
    level_ns: float = 0.0
    usual_ns: float | None = None


def make_reference(pulses: Pulses) -> StallReference | None:
    """Return what is usual for an operation; None if the pulses are too few.

    Args:
        pulses: of days before, without those of stalls and of times at which the file system was measured.
    """
    ended = pulses.ended & (pulses.levels_ns > 0)
    times, hours = pulses.times[ended], pulses.hours_of_week[ended]
    if len(times) < _FEWEST_PULSES:
        return None
    log_levels = np.log(pulses.levels_ns[ended])
    days = (times[-1] - times[0]) / _DAY_S
    scope: Scope = "all hours"
    usual = np.full(HOURS_OF_WEEK, np.median(log_levels))
    if days >= _DAYS_FOR_HOUR_OF_WEEK:
        scope = "hour of the week"
        usual = _medians(log_levels, hours, HOURS_OF_WEEK)
    elif days >= _DAYS_FOR_HOUR_OF_DAY:
        scope = "hour of the day"
        usual = np.tile(_medians(log_levels, hours % 24, 24), 7)
    threshold = _return_level(successive_excess(times, log_levels - usual[hours]), times, days)
    smallest = _YOUNG_FACTOR if days < _YOUNG_DAYS else _SMALLEST_FACTOR
    return StallReference(usual, max(threshold, math.log(smallest)), len(times), scope)


def successive_excess(times: Integers, residuals: Floats) -> Floats:
    """Return for each pulse the smallest residual of it and of the pulses just before; -inf after a pause.

    Args:
        times, residuals: of successive pulses, same length.
    """
    excess = np.full(len(times), -math.inf)
    if len(times) < PULSES:
        return excess
    windows = np.lib.stride_tricks.sliding_window_view(residuals, PULSES)
    pauses = np.diff(times) > _MAX_GAP_S
    has_pause = np.lib.stride_tricks.sliding_window_view(pauses, PULSES - 1).any(axis=1)
    excess[PULSES - 1 :] = np.where(has_pause, -math.inf, windows.min(axis=1))
    return excess


def judge_newest(newest: Pulses, reference: StallReference | None, is_stalled: bool) -> StallVerdict:
    """Return whether a stall begins, lasts or ends with the newest pulses.

    Args:
        newest: the newest `PULSES` pulses of an operation.
        is_stalled: whether a stall of this operation has begun and not ended.
    """
    if len(newest.times) < PULSES or bool(np.any(np.diff(newest.times) > _MAX_GAP_S)):
        return StallVerdict("undecided")
    since = int(newest.times[0])
    level_ns = float(np.median(newest.levels_ns))
    usual_ns = None
    if reference is not None:
        usual_ns = reference.usual_ns(int(newest.hours_of_week[0]))
    # Operations that do not end, or end with an error, need no comparison.
    if not newest.ended.any():
        return StallVerdict("lasts" if is_stalled else "begins", since, level_ns, usual_ns)
    if reference is None:
        if is_stalled and newest.ended.all():
            return StallVerdict("ends", since, level_ns)
        return StallVerdict("undecided")
    # A refused operation has no time, and is no better than the slowest.
    levels_ns = np.where(newest.ended | (newest.levels_ns > 0), newest.levels_ns, math.inf)
    residuals = np.log(levels_ns) - reference.usual[newest.hours_of_week]
    if is_stalled:
        is_usual = newest.ended & ((residuals < reference.threshold / 2) | (newest.levels_ns < _SMALLEST_TIME_NS))
        if 2 * np.count_nonzero(is_usual) < PULSES or not newest.ended.all():
            return StallVerdict("lasts", since, level_ns, usual_ns)
        return StallVerdict("ends", int(newest.times[is_usual][0]), level_ns, usual_ns)
    is_slow = float(residuals.min()) > reference.threshold and level_ns >= _SMALLEST_TIME_NS
    return StallVerdict("begins" if is_slow else "usual", since, level_ns, usual_ns)


def _medians(values: Floats, cells: Integers, number: int) -> Floats:
    """Return the median of the values of each cell 0 … number - 1; of all values where a cell has too few."""
    order = np.argsort(cells, kind="stable")
    sorted_values = values[order]
    borders = np.searchsorted(cells[order], np.arange(number + 1))
    medians = np.full(number, np.median(values))
    for cell in range(number):
        of_cell = sorted_values[borders[cell] : borders[cell + 1]]
        if len(of_cell) >= _FEWEST_PER_HOUR:
            medians[cell] = np.median(of_cell)
    return medians


def _return_level(excess: Floats, times: Integers, days: float) -> float:
    """Return the excess that is reached once in `_RETURN_DAYS`, from the tail of earlier ones (see the module)."""
    is_known = np.isfinite(excess)
    excess, times = excess[is_known], times[is_known]
    if len(excess) == 0:
        return 0.0
    tail_begin = float(np.quantile(excess, _TAIL_QUANTILE))
    is_tail = excess > tail_begin
    if not is_tail.any():
        return tail_begin
    # A cluster begins after a pause without excesses; its peak counts once.
    tail_times, tail = times[is_tail], excess[is_tail]
    begins = np.flatnonzero(np.diff(tail_times, prepend=-_CLUSTER_GAP_S) >= _CLUSTER_GAP_S)
    peaks = np.maximum.reduceat(tail, begins)
    # The upper limit of the mean: an event is reported for the first of all operations whose threshold is exceeded, so
    # thresholds that are too low by chance would decide.
    mean_peak = (float(np.mean(peaks)) - tail_begin) * (1 + _UPPER_LIMIT / math.sqrt(len(peaks)))
    mean_peak = max(mean_peak, _SMALLEST_TAIL)
    clusters_in_return_period = len(peaks) * _RETURN_DAYS / max(days, 1.0)
    return tail_begin + mean_peak * math.log(max(clusters_in_return_period, 1.0))
