"""Fair runs: order, warm-up, when they stop; and that stopping does not spoil the interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from iowatch.compare import Measured, Pair, Settings, compare
from iowatch.compare.fair import Schedule, Turn, Until
from iowatch.errors import UsageError
from iowatch.model import Case

Measure = Callable[[Turn], float]


def run(schedule: Schedule, measure: Measure, seconds: float = 1.0) -> list[Turn]:
    turns = []
    for turn in schedule.turns():
        turns.append(turn)
        schedule.record(turn, {"case": [measure(turn)]}, seconds)
    return turns


def test_each_pair_has_both_sides_and_blocks_have_both_orders() -> None:
    turns = run(Schedule(Until(pairs=10), seed=1), lambda _: 1.0)
    counted = turns[2:]
    assert Counter(turn.pair for turn in counted) == dict.fromkeys(range(1, 11), 2)
    for start in range(0, len(counted), 4):
        first, second, third, fourth = (turn.side for turn in counted[start : start + 4])
        assert {first, second} == {"left", "right"}
        assert (third, fourth) == (second, first)


def test_the_order_is_random_and_repeatable() -> None:
    orders = [[t.side for t in run(Schedule(Until(pairs=8), seed=s), lambda _: 1.0)] for s in (1, 1, 2, 3, 4)]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) > 1


def test_warm_ups_come_first_and_do_not_count() -> None:
    schedule = Schedule(Until(pairs=8), seed=3, warm_ups=2)
    turns = run(schedule, lambda turn: 1e9 if turn.warm_up else 5.0)
    assert [turn.warm_up for turn in turns] == [True] * 4 + [False] * 16
    assert schedule.half_widths() == {"case": 0.0}
    assert schedule.stopped == "pairs"


def test_a_steady_drift_of_the_machine_cancels() -> None:
    samples: dict[str, dict[str, tuple[float, ...]]] = {"left": {}, "right": {}}
    clock = iter(range(1000))
    schedule = Schedule(Until(pairs=20), seed=4)
    for turn in schedule.turns():
        value = 1000 * np.exp(-0.01 * next(clock))
        schedule.record(turn, {"case": [value]}, 1.0)
        if not turn.warm_up:
            samples[turn.side][str(turn.pair)] = (value,)
    pair = Pair(Case("ior", {}), "bandwidth", Measured(samples["left"]), Measured(samples["right"]))
    (one,), _ = compare([pair])
    assert one.ratio == pytest.approx(1.0, abs=0.006)
    assert one.verdict == "no difference"


def test_the_budget_ends_a_run_before_it_is_over() -> None:
    schedule = Schedule(Until(half_width=0.0001, budget_s=50), seed=5)
    rng = np.random.default_rng(5)
    turns = run(schedule, lambda _: float(rng.uniform(1, 2)), seconds=4.0)
    assert schedule.stopped == "budget"
    assert len(turns) * 4 <= 50


def test_noise_needs_more_pairs_than_quiet() -> None:
    lengths = []
    for sigma in (0.01, 0.2):
        rng = np.random.default_rng(6)
        schedule = Schedule(Until(half_width=0.05), seed=6)
        lengths.append(len(run(schedule, lambda _, s=sigma, r=rng: float(np.exp(s * r.standard_normal())))))
        assert schedule.stopped == "interval"
    assert lengths[0] == 2 + 2 * 10  # 8 pairs for the rank test, and one more block that agrees
    assert lengths[1] > 3 * lengths[0]


def test_a_case_without_samples_on_one_side_never_counts_as_narrow() -> None:
    schedule = Schedule(Until(half_width=0.05, most=30), seed=7)
    for turn in schedule.turns():
        samples = {"good": [1.0]} | ({"lost": [1.0]} if turn.side == "left" else {})
        schedule.record(turn, samples, 1.0)
    assert schedule.stopped == "most"


@pytest.mark.parametrize("wrong", [{}, {"pairs": 0}, {"half_width": 0.0}, {"half_width": 5.0}])
def test_an_end_that_is_none_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Until(**wrong)  # type: ignore[arg-type]


def test_the_same_stack_against_itself_is_no_difference() -> None:
    """A/A runs that stop by themselves: >= 95 of 100 say "no difference", and the interval covers 1."""
    verdicts, covered = [], []
    for seed in range(100):
        rng = np.random.default_rng([8, seed])
        schedule = Schedule(Until(half_width=0.1, most=200), seed=seed, settings=Settings(resamples=300))
        samples: dict[str, dict[str, tuple[float, ...]]] = {"left": {}, "right": {}}
        for turn in schedule.turns():
            value = float(np.exp(0.1 * rng.standard_t(3)))
            schedule.record(turn, {"case": [value]}, 1.0)
            if not turn.warm_up:
                samples[turn.side][str(turn.pair)] = (value,)
        pair = Pair(Case("ior", {}), "bandwidth", Measured(samples["left"]), Measured(samples["right"]))
        (one,), _ = compare([pair])
        verdicts.append(one.verdict)
        covered.append(one.ci is not None and one.ci[0] <= 1 <= one.ci[1])
    assert verdicts.count("no difference") >= 95
    assert sum(covered) >= 89  # 93 aimed at, less two standard errors of 2.2
