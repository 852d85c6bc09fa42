"""Changes that are no step between two levels: noise that grows, and a level that alternates with a lower one.

The detector of levels (docs/detection.md) explains both as outliers or as short levels, so that neither is a change.
Here is asked what the observations since a date have that those before it had not:

- more noise: consecutive ones differ more, by ranks (Mann and Whitney, 1947); steps and slow trends hardly do so;
- bad observations: more of them are far below the level of before, while the others stayed at it (Fisher's exact test).

Both assess the newest observations: a pattern that is over is not reported. docs/detection-scores.md has what they find
and how often they find something in noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from iowatch.statistics.constants import LEAST_SCATTER, MAD_TO_SD, Bools, Floats

# Observations before a date that show what is usual, at least and at most. With half as many, false reports double;
# with twice as many, a new system waits for months.
_LEAST_BEFORE, _MOST_BEFORE = 20, 60
# Observations since a date, at least: fewer cannot show a share of bad ones, or noise.
_LEAST_SINCE = 10
# More noise: least ratio of the scatters and least scatter since the date (of ln), and least z of the ranks. The ratio
# is what a person sees at once in a diagram; with twice the z, noise must last for two months to be reported.
_NOISE_RATIO, _NOISE_SCATTER, _NOISE_Z = 3.0, 0.1, 4.5
# A bad observation is below the level by so many scatters, and by this share of the performance.
_BAD_SCATTERS, _BAD_SHARE = 5.0, 0.2
# Bad observations since the date: least number, least number of times that they began again, and least and largest
# share. Fewer beginnings are spells; a larger share is a new level with good outliers.
_LEAST_BAD, _LEAST_BEGINNINGS, _LEAST_BAD_SHARE, _MOST_BAD_SHARE = 5, 4, 0.15, 0.85
# Largest probability of so many beginnings by chance at a date, and largest share of bad ones before / since it.
_CHANCE, _MOST_SHARE_BEFORE = 1e-3, 0.25
# The good observations since the date are within so many scatters, or this part of the level (of ln), of it.
_GOOD_SCATTERS, _GOOD_DISTANCE = 2.0, 0.1


@dataclass(frozen=True, slots=True)
class NoiseIncrease:
    """More noise since a date; scatters are standard deviations of ln, estimated by median distances.

    Attributes:
        index: first observation with more noise.
        before, since: scatter.
        observations: number since the date.
        chance: probability of such ranks without a change, for this one date.
    """

    index: int
    before: float
    since: float
    observations: int
    chance: float


@dataclass(frozen=True, slots=True)
class Alternation:
    """A level that alternates with a lower one since a date.

    Attributes:
        index: first bad observation.
        level, bad_level: ln of the level of before, and of the bad observations (their median).
        bad, observations: number of bad ones among those since the date.
        bad_before, observations_before: the same of those before the date.
        chance: probability that bad ones begin so often without a change, for this one date.
    """

    index: int
    level: float
    bad_level: float
    bad: int
    observations: int
    bad_before: int
    observations_before: int
    chance: float


def find_noise_increase(logs: Floats) -> NoiseIncrease | None:
    """Return the date from which on a series has more noise until now; None if there is none.

    Args:
        logs: ln of the observations, in order of time, shape (n,).
    """
    if len(logs) < _LEAST_BEFORE + _LEAST_SINCE + 1:
        return None
    # Distances of each observation from the one before it: of independent noise, as large as from the level.
    distances = np.abs(np.diff(logs)) / math.sqrt(2)
    n = len(distances)
    # Rank sums of the distances since each possible date, as z of Mann and Whitney's test.
    ranks = _mean_ranks(distances)
    dates = np.arange(_LEAST_BEFORE, n - _LEAST_SINCE + 1)
    since = n - dates
    rank_sums = np.cumsum(ranks[::-1])[::-1][dates]
    expected = since * (n + 1) / 2
    deviation = np.sqrt(since * dates * (n + 1) / 12)
    z_values = (rank_sums - expected) / deviation
    best = int(np.argmax(z_values))
    if z_values[best] < _NOISE_Z:
        return None
    date = int(dates[best])
    before = max(LEAST_SCATTER, _scatter(distances[max(0, date - _MOST_BEFORE) : date]))
    scatter = _scatter(distances[date:])
    # It must not be over: the newest observations have that noise, too.
    newest = _scatter(distances[-_LEAST_SINCE:])
    if min(scatter, newest) < max(_NOISE_RATIO * before, _NOISE_SCATTER):
        return None
    # The first distance leads to the first observation with more noise.
    return NoiseIncrease(date + 1, before, scatter, n - date, _normal_tail(float(z_values[best])))


def find_alternation(logs: Floats) -> Alternation | None:
    """Return the date from which on a level alternates with a lower one until now; None if there is none.

    Args:
        logs: ln of the performance of the observations (more is better), in order of time, shape (n,).
    """
    best: Alternation | None = None
    for date in _possible_beginnings(logs):
        alternation = _assess_alternation(logs, date)
        if alternation is not None and (best is None or alternation.chance < best.chance):
            best = alternation
    return best


def _possible_beginnings(logs: Floats) -> list[int]:
    """Observations that are far below those just before them, and have enough others before and after."""
    last = len(logs) - _LEAST_SINCE
    if last < _LEAST_BEFORE:
        return []
    # Median of the observations just before each possible date: those of window i begin at i.
    windows = np.lib.stride_tricks.sliding_window_view(logs[:last], _LEAST_BEFORE)
    levels_before = np.median(windows, axis=1)
    dates = np.arange(_LEAST_BEFORE, last + 1)
    is_below = logs[dates] < levels_before + math.log(1 - _BAD_SHARE)
    return [int(date) for date in dates[is_below]]


def _assess_alternation(logs: Floats, date: int) -> Alternation | None:
    """The alternation that begins at a date; None if the observations since then are not like one."""
    before, since = logs[max(0, date - _MOST_BEFORE) : date], logs[date:]
    level = float(np.median(before))
    scatter = max(LEAST_SCATTER, _scatter(np.abs(before - level)))
    limit = level - max(_BAD_SCATTERS * scatter, -math.log(1 - _BAD_SHARE))
    is_bad, was_bad = since < limit, before < limit
    bad, bad_before = int(is_bad.sum()), int(was_bad.sum())
    # Bad and good observations alternate, up to now.
    share, share_before = bad / len(since), bad_before / len(before)
    if not is_bad[0] or bad < _LEAST_BAD or not _LEAST_BAD_SHARE <= share <= _MOST_BAD_SHARE:
        return None
    if _count_beginnings(is_bad) < _LEAST_BEGINNINGS or share_before > _MOST_SHARE_BEFORE * share:
        return None
    newest = math.ceil(3 / share)
    if not is_bad[-newest:].any():
        return None
    # The good ones stayed at the level of before: otherwise the level moved, or there is more noise.
    good = since[~is_bad]
    usual = max(_GOOD_SCATTERS * scatter, _GOOD_DISTANCE)
    if abs(float(np.median(good)) - level) > usual or _scatter(np.abs(good - level)) > usual:
        return None
    # Bad observations come in spells, so what counts is how often a good one was followed by a bad one.
    beginnings, beginnings_before = _count_beginnings(is_bad), _count_beginnings(was_bad)
    trials = beginnings + int((~is_bad).sum())
    trials_before = beginnings_before + int((~was_bad).sum())
    chance = _fisher_chance(beginnings, trials, beginnings_before, trials_before)
    if chance > _CHANCE:
        return None
    bad_level = float(np.median(since[is_bad]))
    return Alternation(date, level, bad_level, bad, len(since), bad_before, len(before), chance)


def _count_beginnings(is_bad: Bools) -> int:
    """How often bad observations follow good ones, with the first one."""
    begins = is_bad.copy()
    begins[1:] &= ~is_bad[:-1]
    return int(begins.sum())


# Written here and not taken from scipy.stats, whose import takes half a second: every list of findings may need them.


def _mean_ranks(values: Floats) -> Floats:
    """Ranks from 1 on, shape (n,); equal values have the mean of their ranks."""
    _, position, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean_rank_of_value = np.cumsum(counts) - (counts - 1) / 2
    return np.asarray(mean_rank_of_value[position], dtype=np.float64)


def _normal_tail(z: float) -> float:
    """Probability of more than z standard deviations above the mean."""
    return math.erfc(z / math.sqrt(2)) / 2


def _fisher_chance(hits: int, trials: int, other_hits: int, other_trials: int) -> float:
    """Fisher's exact test: probability of so many hits or more in these trials, if both sides had the same rate."""
    all_hits, all_trials = hits + other_hits, trials + other_trials
    ways = 0
    for count in range(hits, min(trials, all_hits) + 1):
        ways += math.comb(all_hits, count) * math.comb(all_trials - all_hits, trials - count)
    return ways / math.comb(all_trials, trials)


def _scatter(distances: Floats) -> float:
    """Standard deviation of normal noise with this median distance."""
    return MAD_TO_SD * float(np.median(distances))
