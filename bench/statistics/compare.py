"""Measures the comparison: coverage, false verdicts, autocorrelated observations, few sessions, power at the
recommended number of runs, early stopping, speed.

    python bench/statistics/compare.py [--pairs 4000] [--only TABLE]

TABLE: tails, coverage, wandering, moving, edison, nights, power, ab_run or speed.

The same properties as tests/statistics/test_comparison.py at larger size; figures are in docs/comparison.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from math import log, sqrt
from pathlib import Path

import numpy as np

# In the place of bench/, so that the tests' data can be imported.
sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.comparison.edison import windows  # noqa: E402
from tests.statistics.simulation import (  # noqa: E402
    EDISON,
    NOISE,
    Floats,
    Noise,
    make_common_factor_pairs,
    make_consecutive_pairs,
    make_pairs,
    wandering,
)

from iowatch.core import Case  # noqa: E402
from iowatch.statistics import OverallComparison, Pair, PairComparison, SideSamples, compare_pairs, estimates  # noqa: E402
from iowatch.statistics import wandering as wandering_module  # noqa: E402
from iowatch.statistics.estimates import NO_INFLATION, independent_p_values, paired_p_values  # noqa: E402
from iowatch.statistics.interleaving import AbSchedule, StopRule  # noqa: E402

# sessions left, sessions right, repetitions, same sessions on both sides
LAYOUTS = (
    (3, 3, 10, False), (5, 5, 5, False), (10, 10, 3, False),
    (6, 15, 5, False), (20, 20, 5, False), (30, 30, 1, False),
    (5, 5, 5, True), (10, 10, 3, True), (30, 30, 1, True),
)  # fmt: skip
_CV = sqrt(log(1 + 0.2**2))


def coverage(pairs: int) -> None:
    """Coverage of both intervals, and how often a null pair is called different: as a single pair, and among all."""
    print(f"{pairs} null pairs per row; the standard error of 95 % is {100 * sqrt(0.95 * 0.05 / pairs):.1f} %")
    head = ("noise", "sessions", "reps", "same", "medians", "maxima", "single", "all", "±")
    print("{:<12}{:>9}{:>5}{:>6}{:>9}{:>8}{:>8}{:>7}{:>7}".format(*head))
    for name, noise in NOISE.items():
        for left, right, repetitions, shared in LAYOUTS:
            rng = np.random.default_rng([left, right, repetitions, shared])
            found, overall = compare_pairs(make_pairs(rng, noise, pairs, (left, right), repetitions, 1.0, shared))
            covered = [np.mean([c[0] <= 1 <= c[1] for c in cis if c]) for cis in _intervals(found)]
            single = np.mean(
                [
                    one.p is not None and one.p <= 0.01 and one.ci is not None and not one.ci[0] <= 1 <= one.ci[1]
                    for one in found
                ]
            )
            wrong = (overall.counts["faster"] + overall.counts["slower"]) / pairs
            half = np.median([one.ci[1] - one.ci[0] for one in found if one.ci]) / 2
            print(
                f"{name:<12}{left:>5}+{right:<3}{repetitions:>5}{'yes' if shared else 'no':>6}"
                f"{covered[0]:>9.1%}{covered[1]:>8.1%}{single:>8.2%}{wrong:>7.2%}{half:>7.1%}",
                flush=True,
            )


def _intervals(found: list) -> tuple[list, list]:
    return [one.ci for one in found], [one.ci_max for one in found]


def correlated_observations(number: int) -> None:
    """Null pairs of autocorrelated observations, assumed independent (as before) and as `compare` treats them."""
    print("before | after: coverage, called different, half width; 1 pair or 12 per comparison")
    print(f"{'correlation':<12}{'sessions':>9}{'pairs':>6}{'before':>24}{'after':>24}")
    noises: dict[str, Noise] = {f"{r:g}": wandering(r) for r in (0.0, 0.3, 0.5, 0.7)}
    for name, noise in (noises | {"as Edison": EDISON}).items():
        for sessions in (5, 10, 28, 60):
            for together in (1, 12):
                rng = np.random.default_rng([sessions, together])
                sets = [make_pairs(rng, noise, together, (sessions, sessions), 3) for _ in range(number // together)]
                rows = "".join(f"{_nulls(results):>24}" for results in _both_ways(sets))
                print(f"{name:<12}{sessions:>9}{together:>6}{rows}", flush=True)


def moving_level(number: int) -> None:
    """Null pairs of a slowly moving level (0.97 per session), as before and with its recognition; and a step of 40 %
    on independent sessions, which it must not hide."""
    print("called different: before, after")
    recognised = wandering_module.wandering_shares
    for sessions in (10, 28, 60):
        for together in (1, 12):
            rows = []
            for name, noise, ratio in (("0.97", wandering(0.97), 1.0), ("0", wandering(0.0), 1.4)):
                rng = np.random.default_rng([sessions, together])
                counts = range(number // together)
                apart = [make_pairs(rng, noise, together, (sessions, sessions), 3, ratio) for _ in counts]
                sets = {"apart": apart}
                if ratio == 1:
                    sets["consecutive"] = [make_consecutive_pairs(rng, noise, together, sessions) for _ in counts]
                for kind, made in sets.items():
                    after = _different(made)
                    wandering_module.wandering_shares = lambda _evidence: {}
                    rows.append(f"{name} {kind}: {_different(made):.1%} {after:.1%}")
                    wandering_module.wandering_shares = recognised
            print(f"{sessions} sessions, {together} pairs: {'; '.join(rows)}", flush=True)


def _different(sets: list[list[Pair]]) -> float:
    return float(np.mean([one.verdict in ("faster", "slower") for each in sets for one in compare_pairs(each)[0]]))


def nights(number: int) -> None:
    """Verdict over all of 16 cases with a common factor of 12 % per session, no difference, and a seventh of the runs
    missing; and of adjacent nights of Edison's year."""
    print("sessions per side: called different, no difference; of those with an interval, it contains 1")
    for sessions in (1, 2, 3, 5, 10, 20):
        for shared in (False, True):
            rng = np.random.default_rng([sessions, shared])
            sets = [make_common_factor_pairs(rng, 16, sessions, 0.15, shared) for _ in range(number)]
            print(f"simulated, {'same' if shared else 'other'} sessions, {sessions}: {_overall(sets)}", flush=True)
    for sessions in (1, 2, 3, 5, 7, 14):
        print(f"Edison, {sessions}: {_overall(list(windows(sessions)))}", flush=True)


def _overall(sets: list[list[Pair]]) -> str:
    found = [compare_pairs(each)[1] for each in sets]
    verdicts = [one.verdict for one in found]
    covered = [one.ci[0] <= 1 <= one.ci[1] for one in found if one.ci]
    different = (verdicts.count("faster") + verdicts.count("slower")) / len(found)
    inside = f"{np.mean(covered):.1%} of {len(covered)}" if covered else "none"
    return f"{different:.1%}, {verdicts.count('no difference') / len(found):.1%}; {inside}"


def edison(_number: int) -> None:
    """Two periods of Edison's year, all series in which no change was found within them, as one comparison."""
    for days in (14, 28, 56):
        before, after = (_nulls(results) for results in _both_ways(list(windows(days))))
        print(f"{days:>3} days per side: before {before}, after {after}", flush=True)


_Results = list[tuple[list[PairComparison], OverallComparison]]


def _both_ways(sets: list[list[Pair]]) -> tuple[_Results, _Results]:
    """Each set compared with observations assumed independent, and as `compare` does it."""
    whole = estimates.estimate_inflations
    estimates.estimate_inflations = lambda sides: [NO_INFLATION] * len(sides)
    try:
        before = [compare_pairs(each) for each in sets]
    finally:
        estimates.estimate_inflations = whole
    return before, [compare_pairs(each) for each in sets]


def _nulls(results: _Results) -> str:
    found = [one for compared, _ in results for one in compared]
    covered = np.mean([one.ci is not None and one.ci[0] <= 1 <= one.ci[1] for one in found])
    wrong = np.mean([one.verdict in ("faster", "slower") for one in found])
    half = np.median([one.ci[1] - one.ci[0] for one in found if one.ci]) / 2
    return f"{covered:.1%} {wrong:.2%} ±{half:.1%}"


def _twenty_percent(share: float, df: float | None) -> Callable[..., Floats]:
    """Coefficient of variation 20 %, `share` of the variance between sessions; Student's t if `df` is
    given."""

    def draw(rng: np.random.Generator, pairs: int, sessions: int, repetitions: int) -> Floats:
        def noise(shape: tuple[int, ...]) -> Floats:
            return rng.standard_normal(shape) if df is None else rng.standard_t(df, shape) / sqrt(df / (df - 2))

        between = sqrt(share) * noise((pairs, sessions, 1))
        return np.asarray(_CV * (between + sqrt(1 - share) * noise((pairs, sessions, repetitions))))

    return draw


def power(pairs: int) -> None:
    """How often a true 10 % difference is found with the number of runs that a first comparison
    recommends."""
    print("share between sessions, tails, repetitions, runs of the first comparison: recommended, found")
    for share in (0.0, 0.5, 1.0):
        for df in (None, 3.0):
            for repetitions in (1, 5):
                for first in (3, 5, 10, 20):
                    _power_row(share, df, repetitions, first, pairs)


def _power_row(share: float, df: float | None, repetitions: int, first: int, pairs: int) -> None:
    rng = np.random.default_rng([int(10 * share), int(df or 0), repetitions, first])
    noise, asked, found = _twenty_percent(share, df), [], []
    for pair in make_pairs(rng, noise, pairs, (first, first), repetitions, 1.1):
        asked.append(min(compare_pairs([pair])[0][0].runs_needed or 3000, 3000))
        repeated = make_pairs(rng, noise, 4, (asked[-1], asked[-1]), repetitions, 1.1)
        found += [compare_pairs([each])[0][0].verdict == "faster" for each in repeated]
    tails = "normal" if df is None else f"t{df:.0f}"
    print(
        f"{share:>4.0%} {tails:>7} {repetitions:>3} {first:>4}: "
        f"{np.median(asked):>5.0f} ({min(asked)}–{max(asked)}) {np.mean(found):>7.1%}",
        flush=True,
    )


def ab_run(pairs: int) -> None:
    """A/A runs that stop when the interval is narrow: coverage, verdicts, pairs used."""
    for name, noise in NOISE.items():
        for half_width in (0.05, 0.1):
            rng = np.random.default_rng(7)
            results = [_simulate_ab_run(rng, noise, half_width, seed) for seed in range(pairs)]
            covered = np.mean([one.ci is not None and one.ci[0] <= 1 <= one.ci[1] for one in results])
            same = np.mean([one.verdict == "no difference" for one in results])
            used = np.median([one.left.runs or 0 for one in results])
            print(
                f"{name:<12} ±{half_width:.0%}: coverage {covered:.1%}, no difference {same:.1%}, pairs {used:.0f}",
                flush=True,
            )


def _simulate_ab_run(
    rng: np.random.Generator, noise: Callable[..., Floats], half_width: float, seed: int
) -> PairComparison:
    schedule = AbSchedule(StopRule(half_width=half_width, most=300), seed=seed)
    samples: dict[str, dict[str, tuple[float, ...]]] = {"left": {}, "right": {}}
    for turn in schedule.turns():
        values = np.exp(noise(rng, 1, 1, 3)).ravel().tolist()
        schedule.record(turn, {"case": values}, 1.0)
        if not turn.warm_up:
            samples[turn.side][str(turn.pair)] = tuple(values)
    pair = Pair(Case("ior", {}), "bandwidth", SideSamples(samples["left"]), SideSamples(samples["right"]), sign=1)
    return compare_pairs([pair])[0][0]


def speed(_pairs: int) -> None:
    """1,000 pairs x 30 samples per side."""
    for left, right, repetitions, shared in (
        (3, 3, 10, False),
        (10, 10, 3, False),
        (30, 30, 1, False),
        (30, 30, 1, True),
    ):
        made = make_pairs(np.random.default_rng(1), NOISE["normal"], 1000, (left, right), repetitions, 1.0, shared)
        began, worked = time.perf_counter(), time.process_time()
        compare_pairs(made)
        print(
            f"1000 pairs, {left} sessions x {repetitions}{' shared' if shared else ''}: "
            f"{time.perf_counter() - began:.2f} s, {time.process_time() - worked:.2f} s of processor",
            flush=True,
        )


def tails(pairs: int) -> None:
    """How often null pairs fall below small p values, as multiples of the nominal share; at most 1 is expected."""
    levels = (1e-2, 1e-3, 1e-4)
    for name, noise in NOISE.items():
        for left, right, repetitions in ((3, 3, 5), (5, 5, 3), (6, 20, 3), (10, 10, 3)):
            rng = np.random.default_rng([left, right])
            sides = [np.median(noise(rng, pairs, sessions, repetitions), axis=2) for sessions in (left, right)]
            rows = {"independent": independent_p_values(*sides)}
            if left == right:
                rows["paired"] = paired_p_values(sides[1] - sides[0])
            for kind, p in rows.items():
                shares = "".join(f"{np.mean(p <= level) / level:>7.2f}" for level in levels)
                print(f"{name:<12}{left:>4}+{right:<3}{kind:<12}{shares}", flush=True)


PARTS = {
    "tails": tails, "coverage": coverage, "wandering": correlated_observations, "moving": moving_level,
    "edison": edison, "nights": nights, "power": power,
    "ab_run": ab_run, "speed": speed,
}  # fmt: skip


def main() -> None:
    """Run the chosen parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=0, help="simulated pairs per row")
    parser.add_argument("--only", choices=PARTS)
    arguments = parser.parse_args()
    sizes = {
        "tails": 100_000,
        "coverage": 4000,
        "wandering": 1200,
        "moving": 600,
        "nights": 300,
        "power": 60,
        "ab_run": 300,
    }
    for name, part in PARTS.items():
        if arguments.only in (None, name):
            print(f"\n{name}: {part.__doc__}")
            part(arguments.pairs or sizes.get(name, 0))


if __name__ == "__main__":
    main()
