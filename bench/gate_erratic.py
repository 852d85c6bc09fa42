"""Erratic heads and equal builds through `iowatch.statistics.gate`, run by run and repetition by repetition.

    python bench/gate_erratic.py [--trials 60] [--first-seed 1000] [--only heads|equal|rates] [--details]

A gate has ten results of five cases (write and read), seven repetitions per run and 15 minutes; a pair costs the
seconds of its open cases on both sides (as in bench/gate.py). Every row is decided twice from the same seeds: *before*
tests the level only and leaves out what is too noisy; *after* is the gate of the library. The runs of both are equal
until one of them has decided a result.

Heads (a third of the trials each; the affected results are one, both of one case, or all):

- bimodal: half of the runs take five times as long, in all repetitions;
- noisy: half of the performance, and a run has a noise of 40 %;
- stalls: a tenth of the repetitions takes five to ten times as long, or a third of the runs three to six times.

Equal builds: normal noise, heavy tails (Student's t with two degrees of freedom), bursts (a fifth of the time has five
times the noise), drift (a random walk of 2 % per run), stalls on both sides (a twentieth of the repetitions), and the
nights of Edison (bench/bisection.py).
`rates`: how often heads pass whose stalls are rarer or more frequent.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from iowatch.statistics.gate import Gate, GatePair, GateResult, GateSettings

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bisection import nights, pieces

BUDGET_S, TURN_S, CASE_S = 900.0, 1.5, 1.5
RESULTS, REPETITIONS = 10, 7
NOISES = (0.01, 0.02, 0.05)
# A disturbance of the logarithms of a run's performances, in place.
Disturbance = Callable[[np.random.Generator, NDArray[np.float64]], None]


def normal(rng: np.random.Generator) -> Iterator[float]:
    """Independent normal noise."""
    while True:
        yield rng.normal()


def heavy_tails(rng: np.random.Generator) -> Iterator[float]:
    """Student's t with two degrees of freedom, with the quartiles of a normal distribution."""
    while True:
        yield 0.826 * rng.standard_t(2)


def bursts(rng: np.random.Generator) -> Iterator[float]:
    """Stretches of about eight runs with five times the noise, a fifth of the time."""
    while True:
        for _ in range(rng.geometric(1 / 32)):
            yield rng.normal()
        for _ in range(rng.geometric(1 / 8)):
            yield 5 * rng.normal()


def drift(rng: np.random.Generator) -> Iterator[float]:
    """A random walk, and as much independent noise."""
    level = 0.0
    while True:
        level += rng.normal()
        yield level + rng.normal()


def undisturbed(_rng: np.random.Generator, _logs: NDArray[np.float64]) -> None:
    """A head like the base."""


def bimodal(rng: np.random.Generator, logs: NDArray[np.float64]) -> None:
    """Five times slower in half of the runs."""
    if rng.random() < 0.5:
        logs -= math.log(5)


def noisy(rng: np.random.Generator, logs: NDArray[np.float64]) -> None:
    """Half of the performance, with a noise of 40 %."""
    logs += math.log(0.5) + rng.normal(0, 0.4)


def stalling(share: float) -> Disturbance:
    """This share of the repetitions takes five to ten times as long."""

    def disturb(rng: np.random.Generator, logs: NDArray[np.float64]) -> None:
        stalled = rng.random(len(logs)) < share
        logs[stalled] -= np.log(rng.uniform(5, 10, stalled.sum()))

    return disturb


def slow_runs(share: float) -> Disturbance:
    """This share of the runs takes three to six times as long."""

    def disturb(rng: np.random.Generator, logs: NDArray[np.float64]) -> None:
        if rng.random() < share:
            logs -= math.log(rng.uniform(3, 6))

    return disturb


@dataclass
class Machine:
    """Runs of the builds, one stream of noise per case, whose runs are consecutive.

    Attributes:
        kind: name of the noise.
        noise: of a run; a repetition has as much of its own.
    """

    kind: str
    noise: float
    rng: np.random.Generator
    edison: list[NDArray[np.float64]]
    streams: dict[str, Iterator[float]] = field(default_factory=dict)

    def run(self, name: str) -> NDArray[np.float64]:
        """Logarithms of the performance of all repetitions of a run."""
        if name not in self.streams:
            makers = {"heavy tails": heavy_tails, "bursts": bursts, "drift": drift}
            if self.kind == "edison":
                self.streams[name] = nights(self.rng, self.edison)
            else:
                self.streams[name] = makers.get(self.kind, normal)(self.rng)
        logs = self.noise * (next(self.streams[name]) + 0.826 * self.rng.standard_t(4, REPETITIONS))
        if self.kind == "stalls on both sides":
            stalling(0.05)(self.rng, logs)
        return np.asarray(logs)


class LevelGate(Gate[str]):
    """The gate before the noise of both sides was compared (commit 2f12ad14)."""

    def __post_init__(self) -> None:
        share = self.settings.false_alarm / len(self.names)
        self.results = {name: GateResult(self.settings, share) for name in self.names}

    def leave_out_hopeless(self, pairs_left: int) -> None:
        """Leave out whatever is too noisy."""
        for name in self.open:
            if self.results[name].is_hopeless(pairs_left):
                self.leave_out(name)

    @property
    def decision(self):  # type: ignore[no-untyped-def]
        """One result within the margin is enough."""
        states = [result.state for result in self.results.values()]
        if "slower" in states:
            return "regression"
        return "pass" if "within" in states and "open" not in states else "undecided"


@dataclass(frozen=True)
class Trial:
    """One gate: its decision, seconds of measuring, and number of results by state."""

    decision: str
    seconds: float
    states: Counter[str]


def decide(gate: Gate[str], machine: Machine, disturb: Disturbance, affected: set[str]) -> Trial:
    """Decide one gate."""
    used = 0.0
    while gate.decision == "undecided":
        cases = sorted({int(name) // 2 for name in gate.open})
        cost = 2 * (TURN_S + CASE_S * len(cases))
        if not cases or used + cost > BUDGET_S:
            break
        used += cost
        is_base_first = machine.rng.random() < 0.5
        for case in cases:
            for name in (str(2 * case), str(2 * case + 1)):
                first, second = machine.run(name), machine.run(name)
                base, head = (first, second) if is_base_first else (second, first)
                if name in affected:
                    disturb(machine.rng, head)
                gate.record(name, pair_of(base, head))
        gate.leave_out_hopeless(int((BUDGET_S - used) / (2 * (TURN_S + CASE_S))))
    return Trial(gate.decision, used, Counter(result.state for result in gate.results.values()))


def pair_of(base: NDArray[np.float64], head: NDArray[np.float64]) -> GatePair:
    """The pair of two runs, as `iowatch gate` makes it."""
    mean_gain = math.log(np.mean(np.exp(-base)) / np.mean(np.exp(-head)))
    return GatePair(float(np.median(head) - np.median(base)), mean_gain, float(np.median(base)))


def both_ways(
    kind: str, noise: float, seed: int, disturb: Disturbance, affected: set[str], edison: list[NDArray[np.float64]]
) -> tuple[Trial, Trial]:
    """The same builds on the same kind of machine with the same seed, decided before and after."""
    trials = []
    for gate_class in (LevelGate, Gate):
        machine = Machine(kind, noise, np.random.default_rng(seed), edison)
        gate = gate_class([str(number) for number in range(RESULTS)], GateSettings())
        trials.append(decide(gate, machine, disturb, affected))
    before, after = trials
    return before, after


AFFECTED = ({"0"}, {"0", "1"}, {str(number) for number in range(RESULTS)})
HEADS: dict[str, tuple[Disturbance, ...]] = {
    "bimodal": (bimodal,),
    "noisy -50 %": (noisy,),
    "rare stalls": (stalling(0.1), slow_runs(1 / 3)),
}
KINDS = ("normal", "heavy tails", "bursts", "drift", "stalls on both sides", "edison")
RATES = {
    **{f"stalls in {share:.0%} of repetitions": stalling(share) for share in (0.02, 0.05, 0.1, 0.2)},
    **{f"slow in {share:.0%} of runs": slow_runs(share) for share in (0.05, 0.1, 0.2, 0.33, 0.5)},
}


def print_row(title: str, trials: list[tuple[Trial, Trial]], details: bool) -> None:
    """Print the decisions before and after."""
    for number, label in enumerate(("before", "after")):
        decisions = Counter(pair[number].decision for pair in trials)
        counts = ", ".join(f"{word} {decisions[word]}" for word in ("pass", "regression", "undecided"))
        minutes = np.percentile([pair[number].seconds / 60 for pair in trials], [50, 90])
        states: Counter[str] = Counter()
        for pair in trials:
            states += pair[number].states
        shares = ", ".join(f"{state} {count}" for state, count in states.most_common()) if details else ""
        print(f"{title:28} {label:6} of {len(trials)}: {counts}; minutes {minutes[0]:.1f}/{minutes[1]:.1f}; {shares}",
              flush=True)  # fmt: skip


def main() -> None:
    """Print all rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=60, help="erratic heads, or equal builds per noise")
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--only", choices=("heads", "equal", "rates"))
    parser.add_argument("--noise", type=float, nargs="*", default=NOISES)
    parser.add_argument("--details", action="store_true")
    options = parser.parse_args()
    edison = pieces()
    seeds = range(options.first_seed, options.first_seed + options.trials)
    if options.only in (None, "heads"):
        everything: list[tuple[Trial, Trial]] = []
        for head, disturbances in HEADS.items():
            trials = []
            for number, seed in enumerate(seeds[: math.ceil(options.trials / len(HEADS))]):
                disturb = disturbances[number % len(disturbances)]
                affected, noise = AFFECTED[number % len(AFFECTED)], options.noise[number // 3 % len(options.noise)]
                kind = KINDS[number % 4]
                trials.append(both_ways(kind, noise, seed, disturb, affected, edison))
            print_row(head, trials, options.details)
            everything += trials
        print_row("all heads", everything, options.details)
    if options.only in (None, "equal"):
        everything = []
        for kind in KINDS:
            trials = []
            for number, seed in enumerate(seeds):
                noise = options.noise[number % len(options.noise)]
                trials.append(both_ways(kind, noise, seed, undisturbed, set(), edison))
            print_row(f"equal, {kind}", trials, options.details)
            everything += trials
        print_row("all equal builds", everything, options.details)
    if options.only == "rates":
        for title, disturb in RATES.items():
            trials = []
            for number, seed in enumerate(seeds):
                trials.append(both_ways("normal", 0.02, seed, disturb, AFFECTED[number % 2], edison))
            print_row(title, trials, options.details)


if __name__ == "__main__":
    main()
