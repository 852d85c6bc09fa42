"""Whether one build is slower than another by more than a margin: a sequential decision over several results.

Each result (a case with an operation) has two one-sided tests on the same pairs (`iowatch.statistics.sequential`):

- "within the margin" rejects that the head's performance is at or below (1 - margin) of the base's. All results must
  be within it for the gate to pass, so a regression passes with at most the error rate of its own test: an
  intersection-union test (Berger, Technometrics 24, 1982), without a correction for the number of results.
- "slower" rejects that there is no difference. One such result stops the gate, so the results share the error rate.

A third one compares the noise of both sides (`iowatch.statistics.erratic`): a head that is far slower or fails in some
of its runs, more often than the base by chance, is stopped as well, and is not within the margin while it is suspected.

All may be looked at after every pair. A difference between none and the margin is decided by whichever test ends
first; of two that end with the same pair, "within the margin" counts.

A result that the time cannot decide is left out only if the base alone is as noisy: then it is the machine. If only the
pairs are noisy, it is the head, and the result stays open.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

import numpy as np

from iowatch.statistics.constants import MAD_TO_SD
from iowatch.statistics.erratic import ErraticTest
from iowatch.statistics.sequential import NoiseScale, SequentialCentre, expected_pairs, fewest_pairs

GateDecision = Literal["pass", "regression", "undecided"]
GateState = Literal["within", "slower", "erratic", "open", "left out"]
# Pairs after which the noise of a result is known well enough to see that it cannot be decided in time.
NOISE_PAIRS = 8
# A result is left out only if it needs this many times the pairs that fit: `NOISE_PAIRS` show the noise roughly.
_HOPELESS = 2
# The noise of the base counts as that of the pairs up to this factor below it: seven differences of consecutive runs
# show it roughly. With twice of it, a head with three times the noise of a noisy base is left out; with half of it, one
# of two equal builds stays open by chance.
_BASE_NOISE_FACTOR = 1.5
# Share of `false_alarm` for erratic heads, the rest is for slower ones. With twice of it, "slower" takes one more pair
# with some numbers of results.
_ERRATIC_ALARM_SHARE = 0.1
# Margins that a run must be slower than the other one of its pair to be far slower. With twice of it, a run that
# lasts 1.4 times as long is usual; with half of it, as many are far slower as differ by the margin.
_FAR_MARGINS = 2.0
# Share of the results that must take part in a pass. With twice of it, one noisy result prevents every decision.
LEAST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class GateSettings:
    """What a gate decides, and how often it may be wrong.

    Attributes:
        margin: share of the performance that may be lost; 0.1 is 10 %.
        missed: probability that a regression of at least the margin passes.
        false_alarm: probability that a head without any difference is stopped, all results together.
    """

    margin: float = 0.10
    missed: float = 0.05
    false_alarm: float = 0.01


@dataclass(frozen=True, slots=True)
class GatePair:
    """What a pair of runs measured of one result. Logarithms of the performance: below 0 the head is slower.

    Attributes:
        log_gain: ln(head / base) of the medians of the repetitions.
        log_mean_gain: ln(head / base) of the performance over all repetitions together, stalls included; None if only
            the level is tested.
        log_base: ln of the base's performance; None as above.
    """

    log_gain: float
    log_mean_gain: float | None = None
    log_base: float | None = None


@dataclass
class GateResult:
    """One result of a gate: its pairs, in their order, and its state.

    Attributes:
        centre: log gains ln(head / base) of the performance; below 0 the head is slower.
        erratic: the comparison of the noise of both sides; None tests the level only.
        log_bases: ln of the base's performance per pair, as far as it is given.
        state: `open` until it is decided; `left out` if it cannot be decided in time.
    """

    settings: GateSettings
    false_alarm: float
    centre: SequentialCentre = field(default_factory=lambda: SequentialCentre(NoiseScale()))
    erratic: ErraticTest | None = None
    log_bases: list[float] = field(default_factory=list)
    state: GateState = "open"

    @property
    def _limit(self) -> float:
        return math.log1p(-self.settings.margin)

    @property
    def noise(self) -> float:
        """Robust standard deviation of the log gain of a pair; 0 with fewer than three pairs."""
        return self.centre.scale.estimate(self.centre.log_ratios)

    @property
    def base_noise(self) -> float:
        """Noise of a pair of the base with itself, from its consecutive runs; 0 with fewer than three of them."""
        if len(self.log_bases) < 3:
            return 0.0
        return MAD_TO_SD * float(np.median(np.abs(np.diff(self.log_bases))))

    @property
    def is_suspected(self) -> bool:
        """Whether the head was far slower, or failed, more often than the base, and is neither erratic nor cleared."""
        return self.erratic is not None and self.erratic.is_suspected

    def record(self, pair: GatePair) -> None:
        """Add a pair, and decide if that is possible now."""
        self.centre.add(pair.log_gain)
        if pair.log_base is not None:
            self.log_bases.append(pair.log_base)
        if self.erratic is not None and pair.log_mean_gain is not None:
            self.erratic.add(pair.log_mean_gain, pair.log_gain)
        # A suspected head is measured further, whatever its level is.
        is_within = self.centre.is_above(self._limit, self.settings.missed)
        if self.erratic is not None and self.erratic.is_erratic:
            self.state = "erratic"
        elif is_within and not self.is_suspected:
            self.state = "within"
        elif not is_within and self.centre.is_below(0.0, self.false_alarm):
            self.state = "slower"

    def record_failure(self, *, of_head: bool) -> None:
        """Add a pair in which only one side failed, and decide if that is possible now."""
        if self.erratic is None:
            return
        self.erratic.add_failure(of_head=of_head)
        if self.erratic.is_erratic:
            self.state = "erratic"

    def interval(self) -> tuple[float, float]:
        """Interval of the log gain; ends may be infinite.

        Each end misses with at most the rate of a missed regression, so a result within the margin has its lower end
        above it.
        """
        return self.centre.interval(2 * self.settings.missed)

    def is_hopeless(self, pairs_left: int) -> bool:
        """Whether far more pairs are needed than fit, even without a difference: it depends on the noise only.

        Not with fewer than `NOISE_PAIRS` pairs, which do not show the noise.
        """
        return self._is_too_noisy(self.noise, pairs_left)

    def is_base_hopeless(self, pairs_left: int) -> bool:
        """Whether this would also be so if both sides were the base: then the noise is not the head's."""
        return not self.is_suspected and self._is_too_noisy(_BASE_NOISE_FACTOR * self.base_noise, pairs_left)

    def _is_too_noisy(self, noise: float, pairs_left: int) -> bool:
        if len(self.centre.log_ratios) < NOISE_PAIRS:
            return False
        needed = expected_pairs(-self._limit, noise, self.settings.missed)
        return needed > _HOPELESS * (len(self.centre.log_ratios) + pairs_left)

    def pairs_left(self) -> int:
        """Estimated number of further pairs until a decision, from the estimate so far; at least 1."""
        if not self.centre.log_ratios:
            return fewest_pairs(self.settings.missed)
        gain = self.centre.estimate
        within = expected_pairs(gain - self._limit, self.noise, self.settings.missed)
        slower = expected_pairs(-gain, self.noise, self.false_alarm)
        level_pairs = min(within, slower) - len(self.centre.log_ratios)
        clearing_pairs = 0
        if self.erratic is not None and self.is_suspected:
            clearing_pairs = self.erratic.clearing_pairs()
        return max(1, level_pairs, clearing_pairs)


K = TypeVar("K", bound=Hashable)


@dataclass
class Gate(Generic[K]):
    """All results of a gate.

    Use: measure a pair of every result in `open`, `record` it, `leave_out_hopeless`, until `decision` is not
    "undecided" or time is up.

    Attributes:
        names: of the results.
    """

    names: Sequence[K]
    settings: GateSettings = field(default_factory=GateSettings)
    results: dict[K, GateResult] = field(init=False)

    def __post_init__(self) -> None:
        # The results share the probability of a false alarm, and so do both reasons to stop.
        share = self.settings.false_alarm / max(1, len(self.names))
        least_distance = -_FAR_MARGINS * math.log1p(-self.settings.margin)
        self.results = {}
        for name in self.names:
            erratic = ErraticTest(_ERRATIC_ALARM_SHARE * share, self.settings.missed, least_distance)
            self.results[name] = GateResult(self.settings, (1 - _ERRATIC_ALARM_SHARE) * share, erratic=erratic)

    @property
    def open(self) -> tuple[K, ...]:
        """Names of the results that are not decided."""
        return tuple(name for name, result in self.results.items() if result.state == "open")

    def record(self, name: K, pair: GatePair) -> None:
        """Add a pair of a result; ignored if it is decided, so that its error rates hold."""
        if self.results[name].state == "open":
            self.results[name].record(pair)

    def record_failure(self, name: K, *, of_head: bool) -> None:
        """Add a pair of a result in which only one side failed; ignored if the result is decided."""
        if self.results[name].state == "open":
            self.results[name].record_failure(of_head=of_head)

    def leave_out(self, name: K) -> None:
        """Exclude an open result from the decision."""
        self.results[name].state = "left out"

    def leave_out_hopeless(self, pairs_left: int) -> None:
        """Exclude the open results that the time cannot decide because the base alone is too noisy.

        What they take would be lost to the others. A result whose pairs are noisy although the base is not stays open.

        Args:
            pairs_left: of one result that fit into the time.
        """
        for name in self.open:
            result = self.results[name]
            if result.is_hopeless(pairs_left) and result.is_base_hopeless(pairs_left):
                self.leave_out(name)

    @property
    def decision(self) -> GateDecision:
        """What the states of the results decide.

        `regression` as soon as one result is slower or erratic; `pass` if none is open, and at least `LEAST_SHARE` of
        the results are within the margin.
        """
        states = [result.state for result in self.results.values()]
        if "slower" in states or "erratic" in states:
            return "regression"
        is_measured = "open" not in states and states.count("within") >= max(1, LEAST_SHARE * len(states))
        return "pass" if is_measured else "undecided"
