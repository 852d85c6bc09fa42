"""Interleaved runs: the order in which two stacks, or the levels of an interference run, alternate, and when to stop.

Both stacks run in one allocation, on the same nodes and in the same directory, in pairs of one run per side in
random order; two pairs form a block with both orders (ABBA or BAAB), so that a steady drift of the machine cancels.
The first run of each side is a warm-up and is discarded. `compare_pairs` receives each pair as a session with equal
keys on both sides, so the comparison is paired. With more sides (the levels), a pair is one run of each in random
order, the next one has the reverse order, and every side is compared with the first, the reference.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

import numpy as np

from iowatch.statistics.errors import StatisticsError
from iowatch.statistics.estimates import (
    MIN_SIGNED_RANK_PAIRS,
    AlignedSides,
    align_sides,
    estimate_inflations,
    ratio_of_medians,
)
from iowatch.statistics.pairs import ComparisonSettings, SideSamples

SideName = Literal["left", "right"]
StopReason = Literal["pairs", "interval", "budget", "bytes", "most", "decided"]
_SIDES: tuple[SideName, SideName] = ("left", "right")

# Number of consecutive blocks after which every interval must be narrow. Stopping at the first narrow interval selects
# intervals that are narrow by chance, and their coverage is too low; bench/statistics/compare.py measures the coverage.
_NARROW_CHECKS_TO_STOP = 2

# Pairs in one start of ReFrame, which takes two seconds: while it runs, nobody learns more, and a kill ends them.
_BATCH_PAIRS, _BATCH_S = 8, 60.0


@dataclass(frozen=True, slots=True)
class AbTurn:
    """One execution of all cases on one side; `pair` counts from 1 and is 0 for the warm-up."""

    pair: int
    side: str

    @property
    def warm_up(self) -> bool:
        """Whether the results of this turn are discarded."""
        return self.pair == 0


@dataclass(frozen=True, slots=True)
class StopRule:
    """Conditions that end an interleaved A/B run; the first one that is met applies.

    Attributes:
        pairs: number of pairs, or None.
        half_width: every interval extends at most this far from its ratio (0.05 is 5 %), or None.
        budget_s: seconds; a pair that would exceed them is not started, or None.
        most: maximum number of pairs, in any case.
    """

    pairs: int | None = None
    half_width: float | None = None
    budget_s: float | None = None
    most: int = 500

    def __post_init__(self) -> None:
        if self.pairs is None and self.half_width is None and self.budget_s is None:
            raise StatisticsError("an interleaved run needs a stop rule", hint="--pairs N, --until-ci 5% or a budget.")
        if self.pairs is not None and self.pairs < 1:
            raise StatisticsError(f"{self.pairs} pairs cannot be run", hint="At least 1; 8 for a verdict.")
        if self.half_width is not None and not 0 < self.half_width < 1:
            raise StatisticsError("the interval must be between 0 and 100 %", hint="For example --until-ci 5%")


@dataclass
class AbSchedule:
    """The turns of one interleaved run.

    Use:
        for turn in schedule.turns(): run it; schedule.record(turn, samples, seconds)

    Attributes:
        until: stop rule.
        seed: of the order; stored with the session so that the order can be reproduced.
        warm_ups: discarded turns per side at the start.
        sides: the first one is the reference of the others.
        stopped: reason why the turns ended, or None while they continue.
        session: where the results are, once it has started.
    """

    until: StopRule
    seed: int
    warm_ups: int = 1
    settings: ComparisonSettings = field(default_factory=ComparisonSettings)
    sides: Sequence[str] = _SIDES
    stopped: StopReason | None = None
    session: str = ""
    _samples: dict[str, dict[str, dict[str, tuple[float, ...]]]] = field(default_factory=dict)
    _seconds: list[float] = field(default_factory=list)
    _narrow: int = 0

    def turns(self) -> Iterator[AbTurn]:
        """Yield turns until the stop rule is met; call `record` for each turn before requesting the next."""
        return chain.from_iterable(self.batches(most=1))

    def batches(self, most: int = _BATCH_PAIRS) -> Iterator[tuple[AbTurn, ...]]:
        """Yield turns of several pairs at once; call `record` for each of them before requesting the next batch.

        A batch has the pairs of a minute, at least one and at most `most`, or a block if intervals decide about the
        end. The order of the turns does not depend on batches.
        """
        most = min(most, 2) if self.until.half_width is not None else most
        rng = np.random.default_rng(self.seed)
        for _ in range(self.warm_ups):
            yield tuple(AbTurn(0, side) for side in self.random_block(rng))
        done, order = 0, tuple(self.sides)
        while True:
            self.stopped = self._stop(done)
            if self.stopped is not None:
                return
            batch: list[AbTurn] = []
            for planned in range(self.fitting_pairs(done, most)):
                # Two pairs are a block: the second one has the reverse order.
                is_second_of_block = (done + planned) % 2 == 1
                order = order[::-1] if is_second_of_block else self.random_block(rng)
                batch += (AbTurn(done + planned + 1, side) for side in order)
            yield tuple(batch)
            done += len(batch) // len(self.sides)

    def run_names(self) -> Collection[str] | None:
        """Names of the runs of the batch that was yielded last; None for all of the plan."""
        return None

    def fitting_pairs(self, done: int, most: int) -> int:
        """How many of these pairs one batch can have after those done: at least 1."""
        for planned in range(1, most):
            is_long = (planned + 1) * len(self.sides) * self._turn_s() > _BATCH_S
            if is_long or self._stop(done, planned) is not None:
                return planned
        return most

    def record(self, turn: AbTurn, samples: Mapping[str, Sequence[float]], seconds: float) -> None:
        """Record the samples of a turn.

        Args:
            samples: samples of the headline metric by a key of the case, the same key on both sides; failed cases
                are absent.
            seconds: duration of the whole turn.
        """
        self._seconds.append(seconds)
        if turn.warm_up:
            return
        for key, values in samples.items():
            sides = self._samples.setdefault(key, {side: {} for side in self.sides})
            if values and min(values) > 0:
                sides[turn.side][str(turn.pair)] = tuple(values)

    def half_widths(self) -> dict[str, float]:
        """Half width of the interval of each case and side other than the reference, as a fraction of its ratio.

        The key is that of the case, with more than two sides followed by the side; with too few pairs it is absent.
        """
        paired: dict[str, AlignedSides] = {}
        reference, *others = self.sides
        for key, samples in self._samples.items():
            for other in others:
                if not samples[reference] or not samples[other]:
                    continue
                aligned = align_sides(SideSamples(samples[reference]), SideSamples(samples[other]))
                if aligned.paired:
                    name = key if len(others) == 1 else f"{key} {other}"
                    paired[name] = aligned
        # The autocorrelation of the pairs is estimated from all cases together.
        half_widths: dict[str, float] = {}
        for key, dependence in zip(paired, estimate_inflations(list(paired.values())), strict=True):
            estimate = ratio_of_medians(paired[key], self.settings, dependence)
            if estimate.ci is not None:
                low, high = estimate.ci
                half_widths[key] = max(high / estimate.ratio - 1, 1 - low / estimate.ratio)
        return half_widths

    def left_s(self, done: int) -> float | None:
        """Estimated remaining seconds after `done` pairs; None without a number of pairs or a budget."""
        ends: list[float] = []
        if self.until.pairs is not None:
            ends.append((self.until.pairs - done) * len(self.sides) * self._turn_s())
        if self.until.budget_s is not None:
            ends.append(self.until.budget_s - sum(self._seconds))
        if not ends:
            return None
        return max(0.0, min(ends))

    def _turn_s(self) -> float:
        """Usual seconds of a turn."""
        return float(np.median(self._seconds)) if self._seconds else 0.0

    def _stop(self, done: int, planned: int = 0) -> StopReason | None:
        """Why no further pair is started after those done and those planned in the same batch."""
        until = self.until
        if until.pairs is not None and done + planned >= until.pairs:
            return "pairs"
        if done + planned >= until.most:
            return "most"
        needed_s = (planned + 1) * len(self.sides) * self._turn_s()
        if until.budget_s is not None and sum(self._seconds) + needed_s > until.budget_s:
            return "budget"
        # Intervals are looked at after whole blocks, once there are enough pairs.
        is_after_block = not planned and done % 2 == 0 and done >= MIN_SIGNED_RANK_PAIRS
        if until.half_width is not None and is_after_block:
            widths = self.half_widths()
            expected = len(self._samples) * (len(self.sides) - 1)
            is_narrow = 0 < len(widths) == expected and max(widths.values()) <= until.half_width
            self._narrow = self._narrow + 1 if is_narrow else 0
            if self._narrow >= _NARROW_CHECKS_TO_STOP:
                return "interval"
        return None

    def random_block(self, rng: np.random.Generator) -> tuple[str, ...]:
        """All sides in random order."""
        if len(self.sides) == 2:  # the order of earlier A/B runs with the same seed
            return tuple(self.sides if rng.random() < 0.5 else self.sides[::-1])
        return tuple(rng.permutation(self.sides).tolist())
