"""Whether the head of a gate is erratic: far slower than usual in some of its runs, and more often so than the base.

The level of a head can be that of the base while every tenth of its runs takes five times as long; no test of a median
finds that. So pairs are counted in which one side is *far* slower than the other, by more than four standard deviations
of a pair and more than a least distance. Between equal builds a coin decides which of both sides that is, whatever the
noise is (heavy tails, bursts, drift), so the pairs far apart are fair bets of `iowatch.statistics.sequential`: the head
is *erratic* when its side loses too many of them. Pairs that are not far apart cost no evidence.

The distance that counts as far must not depend on the coin. For the first pairs it is computed from all of them
without their signs; for each later pair, from the pairs before it. Pairs with a slow head are counted from the level of
the head's better runs, so that a build that is slower by the same amount in every run is not erratic; this counts
fewer of them, and only makes the test more careful.

Few pairs cannot prove that a head is erratic. Until then it is *suspected* as soon as it is far slower clearly more
often than the base, and it is *cleared* when the pairs since then reject that it is far slower in `ERRATIC_SHARE` of
its runs.

A run that fails where the other one of its pair works is far slower, however small the noise is. A head that fails
clearly more often than the base is not cleared: a failure is no noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from iowatch.statistics.sequential import log_betting_evidence

# Share of the pairs, more than of the base, in which an erratic head is far slower. With half of it, clearing a
# suspected head takes twice the pairs; with twice of it, a head that stalls in every third run is cleared.
ERRATIC_SHARE = 0.2
# Standard deviations of a pair beyond which it is far apart: of normal noise 1 in 16,000 is, of the first six pairs
# more, as they show the deviation roughly. With twice as many, only stalls far beyond the noise count; with half as
# many, every result is suspected by its noise (bench/gate_erratic.py).
_FAR_DEVIATIONS = 4.0
# Pairs whose common distance is computed from all of them: as many as a gate measures before its first decision. With
# twice as many, a decision after six pairs would not see their stalls.
_FIRST_PAIRS = 6
# The lower quartile of |x| of a standard normal x: a scale that holds while three of four pairs are far apart.
_LOWER_QUARTILE = 0.3186
# A head is suspected if it is far slower this many times as often as the base. With twice of it, one slow base
# hides a head that is slow in half of its runs; with half of it, every machine that stalls leaves gates undecided.
_SUSPICIOUS_RATIO = 2
# The noise of a mean is at most this much larger than that of the level. With twice of it, stalls in most runs of a
# noisy machine are taken for noise; with half of it, the means of equal builds are far apart by their noise.
_MEAN_TO_LEVEL = 1.5
# Stakes of the bets that clear a suspected head, with their weights; all below the one that can lose everything
# (1 / 0.8). The large stake clears it after 19 pairs that are not far apart, the small ones where both sides stall.
_CLEARING_STAKES = np.array([0.25, 0.5, 1.0])
_CLEARING_WEIGHTS = np.array([0.1, 0.2, 0.7])
_MOST_CLEARING_PAIRS = 200


@dataclass
class ErraticTest:
    """Pairs in which one side is far slower, in the order in which they were measured.

    Attributes:
        error: probability that a head is called erratic although both builds are equal, however often it is asked.
        missed: probability that a suspected head is cleared although it is far slower in `ERRATIC_SHARE` of its runs.
        least_distance: least log ratio of a pair that is far apart.
        log_gains: ln(head / base) of the mean performance of each run, stalls included.
        level_gains: the same of the medians of their repetitions, which contain no rare stalls.
        scores: per pair 1 if the head is far slower, -1 if the base is, else 0; before the first pairs are complete
            only those of failures.
        failed_heads, failed_bases: number of pairs in which only this side failed.
    """

    error: float
    missed: float
    least_distance: float
    log_gains: list[float] = field(default_factory=list)
    level_gains: list[float] = field(default_factory=list)
    scores: list[int] = field(default_factory=list)
    failed_heads: int = 0
    failed_bases: int = 0
    _suspected_since: int | None = None

    def add(self, log_gain: float, level_gain: float) -> None:
        """Add a pair."""
        if len(self.log_gains) >= _FIRST_PAIRS:
            self.scores.append(self._score(log_gain, self._distance()))
        self.log_gains.append(log_gain)
        self.level_gains.append(level_gain)
        if len(self.log_gains) == _FIRST_PAIRS:
            distance = self._distance()
            self.scores += [self._score(gain, distance) for gain in self.log_gains]
        self._note_suspicion()

    def add_failure(self, *, of_head: bool) -> None:
        """Add a pair in which only one side failed; it has no log gain."""
        if of_head:
            self.failed_heads += 1
        else:
            self.failed_bases += 1
        self.scores.append(1 if of_head else -1)
        self._note_suspicion()

    def _note_suspicion(self) -> None:
        """Only pairs after the suspicion can clear the head: those before it were selected by it."""
        has_first_pairs = len(self.log_gains) >= _FIRST_PAIRS
        if has_first_pairs and self._suspected_since is None and self._is_slow_more_often:
            self._suspected_since = len(self.scores)

    @property
    def slow_heads(self) -> int:
        """Number of pairs in which the head works and is far slower."""
        return self.scores.count(1) - self.failed_heads

    @property
    def slow_bases(self) -> int:
        """Number of pairs in which the base works and is far slower."""
        return self.scores.count(-1) - self.failed_bases

    @property
    def is_erratic(self) -> bool:
        """Whether the head is far slower more often than by chance."""
        return log_betting_evidence(np.array(self.scores, dtype=np.float64)) >= math.log(1 / self.error)

    @property
    def is_suspected(self) -> bool:
        """Whether the head fails, or is far slower and not cleared, clearly more often than the base."""
        if self.failed_heads > _SUSPICIOUS_RATIO * self.failed_bases:
            return True
        return self._is_slow_more_often and self.clearing_pairs() > 0

    @property
    def _is_slow_more_often(self) -> bool:
        """Whether the head is far slower, failures included, clearly more often than the base."""
        return self.scores.count(1) > _SUSPICIOUS_RATIO * self.scores.count(-1)

    def clearing_pairs(self) -> int:
        """Further pairs, none far apart, that clear a suspected head; 0 if it is cleared or not suspected."""
        if self._suspected_since is None:
            return 0
        # Bets against "far slower in `ERRATIC_SHARE` more pairs than the base": their mean is at most 1 if it is true.
        log_evidence = np.log(_CLEARING_WEIGHTS)
        for score in self.scores[self._suspected_since :]:
            log_evidence += np.log1p(_CLEARING_STAKES * (ERRATIC_SHARE - score))
        growth = np.log1p(_CLEARING_STAKES * ERRATIC_SHARE)
        for pairs in range(_MOST_CLEARING_PAIRS):
            if np.logaddexp.reduce(log_evidence + pairs * growth) >= math.log(1 / self.missed):
                return pairs
        return _MOST_CLEARING_PAIRS

    def _distance(self) -> float:
        """Log ratio beyond which a pair is far apart, from all pairs so far without their signs."""
        # A head that stalls in most of its runs makes the means noisy, but not the levels.
        deviation = min(_deviation(self.log_gains), _MEAN_TO_LEVEL * _deviation(self.level_gains))
        return max(self.least_distance, _FAR_DEVIATIONS * deviation)

    def _score(self, log_gain: float, distance: float) -> int:
        """Which side of a pair is far slower; the head must be so compared with the level of its better runs, too."""
        head_level = min(0.0, float(np.quantile(self.level_gains, 0.75)))
        if log_gain < head_level - distance:
            return 1
        if log_gain > distance:
            return -1
        return 0


def _deviation(log_gains: list[float]) -> float:
    """Standard deviation of log gains around 0, from the smaller ones."""
    return float(np.quantile(np.abs(log_gains), 0.25)) / _LOWER_QUARTILE
