"""Whether one build is slower than another by more than a margin: a sequential decision over several results.

Each result (a case with an operation) has two one-sided tests on the same pairs (`iowatch.statistics.sequential`):

- "within the margin" rejects that the head's performance is at or below (1 - margin) of the base's. All results must
  be within it for the gate to pass, so a regression passes with at most the error rate of its own test: an
  intersection-union test (Berger, Technometrics 24, 1982), without a correction for the number of results.
- "slower" rejects that there is no difference. One such result stops the gate, so the results share the error rate.

Both may be looked at after every pair. A difference between none and the margin is decided by whichever test ends
first; of two that end with the same pair, "within the margin" counts.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from iowatch.statistics.sequential import NoiseScale, SequentialCentre, expected_pairs, fewest_pairs

GateDecision = Literal["pass", "regression", "undecided"]
GateState = Literal["within", "slower", "open", "left out"]
# Pairs after which the noise of a result is known well enough to see that it cannot be decided in time.
NOISE_PAIRS = 8
# A result is left out only if it needs this many times the pairs that fit: `NOISE_PAIRS` show the noise roughly.
_HOPELESS = 2


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


@dataclass
class GateResult:
    """One result of a gate: its pairs, in their order, and its state.

    Attributes:
        centre: log gains ln(head / base) of the performance; below 0 the head is slower.
        state: `open` until it is decided; `left out` if it cannot be decided in time.
    """

    settings: GateSettings
    false_alarm: float
    centre: SequentialCentre = field(default_factory=lambda: SequentialCentre(NoiseScale()))
    state: GateState = "open"

    @property
    def _limit(self) -> float:
        return math.log1p(-self.settings.margin)

    @property
    def noise(self) -> float:
        """Robust standard deviation of the log gain of a pair; 0 with fewer than three pairs."""
        return self.centre.scale.estimate(self.centre.log_ratios)

    def record(self, log_gain: float) -> None:
        """Add a pair, and decide if that is possible now."""
        self.centre.add(log_gain)
        if self.centre.is_above(self._limit, self.settings.missed):
            self.state = "within"
        elif self.centre.is_below(0.0, self.false_alarm):
            self.state = "slower"

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
        if len(self.centre.log_ratios) < NOISE_PAIRS:
            return False
        needed = expected_pairs(-self._limit, self.noise, self.settings.missed)
        return needed > _HOPELESS * (len(self.centre.log_ratios) + pairs_left)

    def pairs_left(self) -> int:
        """Estimated number of further pairs until a decision, from the estimate so far; at least 1."""
        if not self.centre.log_ratios:
            return fewest_pairs(self.settings.missed)
        gain = self.centre.estimate
        within = expected_pairs(gain - self._limit, self.noise, self.settings.missed)
        slower = expected_pairs(-gain, self.noise, self.false_alarm)
        return max(1, min(within, slower) - len(self.centre.log_ratios))


K = TypeVar("K", bound=Hashable)


@dataclass
class Gate(Generic[K]):
    """All results of a gate.

    Use: measure a pair of every result in `open`, `record` it, until `decision` is not "undecided" or time is up.

    Attributes:
        names: of the results.
    """

    names: Sequence[K]
    settings: GateSettings = field(default_factory=GateSettings)
    results: dict[K, GateResult] = field(init=False)

    def __post_init__(self) -> None:
        share = self.settings.false_alarm / max(1, len(self.names))
        self.results = {name: GateResult(self.settings, share) for name in self.names}

    @property
    def open(self) -> tuple[K, ...]:
        """Names of the results that are not decided."""
        return tuple(name for name, result in self.results.items() if result.state == "open")

    def record(self, name: K, log_gain: float) -> None:
        """Add a pair of a result; ignored if it is decided, so that its error rates hold."""
        if self.results[name].state == "open":
            self.results[name].record(log_gain)

    def leave_out(self, name: K) -> None:
        """Exclude an open result from the decision."""
        self.results[name].state = "left out"

    @property
    def decision(self) -> GateDecision:
        """`regression` as soon as one result is slower; `pass` if all that are not left out are within the margin."""
        states = [result.state for result in self.results.values()]
        if "slower" in states:
            return "regression"
        return "pass" if "within" in states and "open" not in states else "undecided"
