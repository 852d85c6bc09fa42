"""Error rates and cost of `iowatch bisect`, on simulated pairs whose noise is that of Edison's nights.

    python bench/bisection.py [--trials 1000] [--only ROW …]

A run has the residual of one night of a series of Edison's year (reference/series/edison) between two changes, scaled
to the noise of the row; consecutive runs have consecutive nights, so that heavy tails, drift and correlation are real.
A trial has eight parts in random order and a budget of 360 pairs (an hour with pairs of ten seconds); rows without
limit have a fifth of the trials.
Printed per row: answers in %, pairs and hybrids besides the ends (median, 90 %), and how often any interval missed.
(Not named after the command: a script `bisect.py` hides the module of Python's library from all scripts beside it.)
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from iowatch.experiments.bisect.search import Bisection, BisectionAnswer, BisectionSettings, Parts

sys.path.insert(0, str(Path(__file__).resolve().parent / "statistics"))
from detect_edison import year

PARTS, PAIRS_PER_HOUR, FEWEST_NIGHTS = 8, 360, 60
SIZE = math.log(1 / 1.15)
Effect = Callable[[Parts], float]
# What the parts of BAD cost, with part 0 and 1 in random places; and the answer that is right.
EFFECTS: dict[str, tuple[Effect, tuple[tuple[int, ...], ...]]] = {
    "one": (lambda on: SIZE * (0 in on), ((0,),)),
    "pair": (lambda on: SIZE * ({0, 1} <= on), ((0, 1),)),
    "two": (lambda on: SIZE * (0.6 * (0 in on) + 0.4 * (1 in on)), ((0,), (1,))),
    "none": (lambda on: 0.0, ()),
}
ROWS = [
    (effect, noise, budget)
    for noise, budget in ((0.03, True), (0.05, True), (0.1, True), (0.2, True), (0.2, False))
    for effect in EFFECTS
]


def pieces() -> list[NDArray[np.float64]]:
    """Residuals (of ln) of Edison's series between their changes, divided by their robust standard deviation."""
    found = []
    for series in year():
        logs = np.log(series.values)
        cuts = [0, *(change.index for change in series.found.changes), len(logs)]
        for start, end in pairwise(cuts):
            piece = logs[start:end] - np.median(logs[start:end])
            spread = 1.4826 * float(np.median(np.abs(piece)))
            if end - start >= FEWEST_NIGHTS and spread > 0:
                found.append(piece / spread)
    return found


def nights(rng: np.random.Generator, known: list[NDArray[np.float64]]) -> Iterator[float]:
    """Consecutive nights of random pieces, each from a random night on."""
    while True:
        piece = known[rng.integers(len(known))]
        yield from piece[rng.integers(len(piece) // 2) :].tolist()


@dataclass(frozen=True)
class Trial:
    """One search: its answer, the number of pairs, and what is true of the parts as they were numbered."""

    answer: BisectionAnswer
    pairs: int
    truth: Effect
    right: tuple[tuple[int, ...], ...]

    @property
    def verdict(self) -> str:
        """The answer in a word."""
        causes = {part for group in self.right for part in group}
        if self.answer.kind == "narrowed" and not causes & set(self.answer.candidates):
            return "narrowed wrongly"
        if self.answer.kind != "found":
            return self.answer.kind
        found = [one.parts for one in self.answer.culprits]
        if {part for group in found for part in group} - causes:
            return "blames a part without effect"
        return "right" if sorted(found) == sorted(self.right) else "some of the parts"

    @property
    def missed(self) -> bool:
        """Whether any interval of a test does not contain the true log ratio."""
        known = ((test.interval, test.request) for test in self.answer.tests)
        return any(not low <= self.truth(of.right) - self.truth(of.left) <= high for (low, high), of in known)

    @property
    def hybrids(self) -> int:
        """Number of stacks that were measured besides GOOD and BAD."""
        stacks = {stack for test in self.answer.tests for stack in (test.request.left, test.request.right)}
        return len(stacks - {frozenset(), frozenset(range(PARTS))})


def search(name: str, noise: float, most: int, seed: int, known: list[NDArray[np.float64]]) -> Trial:
    """One trial of a row."""
    rng = np.random.default_rng(seed)
    effect, causes = EFFECTS[name]
    places = rng.permutation(PARTS)  # the part that is in each place
    runs, done = nights(rng, known), 0
    bisection = Bisection(PARTS, settings=BisectionSettings(most_pairs=4000))

    def truth(on: Parts) -> float:
        return effect(frozenset(int(places[place]) for place in on))

    while (request := bisection.request) is not None and done < most:
        first, second = next(runs) * noise, next(runs) * noise
        coin = 1 if rng.random() < 0.5 else -1
        bisection.record(truth(request.right) - truth(request.left) + coin * (second - first))
        done += 1
    bisection.stop()
    where = np.argsort(places)
    right = tuple(tuple(sorted(int(where[part]) for part in group)) for group in causes)
    return Trial(bisection.answer(), done, truth, right)


def print_row(name: str, noise: float, limited: bool, trials: list[Trial]) -> None:
    """One line per row."""
    answers = Counter(trial.verdict for trial in trials)
    shares = ", ".join(f"{word} {100 * count / len(trials):.1f} %" for word, count in answers.most_common())
    cost, steps = (
        "/".join(f"{value:.0f}" for value in np.percentile(values, [50, 90]))
        for values in ([trial.pairs for trial in trials], [trial.hybrids for trial in trials])
    )
    misses = sum(trial.missed for trial in trials) / len(trials)
    print(
        f"{name:5} noise {100 * noise:2.0f} % {'an hour ' if limited else 'no limit'}: {shares}; pairs {cost}; "
        f"hybrids {steps}; an interval missed in {100 * misses:.1f} %",
        flush=True,
    )


def main() -> None:
    """Print all rows, or those of some effects."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--only", nargs="*", default=[], help="effects, such as one")
    given = parser.parse_args()
    known = pieces()
    print(f"{len(known)} stretches of Edison's year; {given.trials} trials per row", flush=True)
    for name, noise, limited in ROWS:
        if not given.only or name in given.only:
            most = PAIRS_PER_HOUR if limited else 10**9
            count = given.trials if limited else max(1, given.trials // 5)
            print_row(name, noise, limited, [search(name, noise, most, seed, known) for seed in range(count)])


if __name__ == "__main__":
    main()
