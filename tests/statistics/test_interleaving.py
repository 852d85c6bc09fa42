"""Interleaved A/B runs: order, warm-up, stop rules; and the coverage of the interval after a sequential stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from iowatch.core import Case
from iowatch.statistics import ComparisonSettings, Pair, SideSamples, StatisticsError, compare_pairs
from iowatch.statistics.interleaving import AbSchedule, AbTurn, StopRule

Measure = Callable[[AbTurn], float]


def run(schedule: AbSchedule, measure: Measure, seconds: float = 1.0) -> list[AbTurn]:
    turns = []
    for turn in schedule.turns():
        turns.append(turn)
        schedule.record(turn, {"case": [measure(turn)]}, seconds)
    return turns


def test_each_pair_has_both_sides_and_blocks_have_both_orders() -> None:
    turns = run(AbSchedule(StopRule(pairs=10), seed=1), lambda _: 1.0)
    counted = turns[2:]
    assert Counter(turn.pair for turn in counted) == dict.fromkeys(range(1, 11), 2)
    for start in range(0, len(counted), 4):
        first, second, third, fourth = (turn.side for turn in counted[start : start + 4])
        assert {first, second} == {"left", "right"}
        assert (third, fourth) == (second, first)


def test_batches_have_the_order_of_single_turns_and_end_where_they_end() -> None:
    """One turn takes 5 s: after the warm-up a batch has six pairs (60 s); seven pairs are two batches."""
    single = run(AbSchedule(StopRule(pairs=7), seed=3), lambda _: 1.0, seconds=5.0)
    schedule, sizes = AbSchedule(StopRule(pairs=7), seed=3), []
    together: list[AbTurn] = []
    for batch in schedule.batches():
        sizes.append(len(batch))
        together += batch
        for turn in batch:
            schedule.record(turn, {"case": [1.0]}, 5.0)
    assert together == single
    assert sizes == [2, 12, 2]
    by_interval = AbSchedule(StopRule(half_width=0.1, budget_s=1000), seed=3)
    assert [len(batch) for batch, _ in zip(by_interval.batches(), range(3), strict=False)] == [2, 4, 4]


def test_several_sides_are_compared_with_the_first() -> None:
    """Levels: each pair has every side once, the next one in reverse order; a drift of the machine cancels."""
    clock = iter(range(1000))
    factors = {"0": 1.0, "1": 0.5, "4": 0.25}
    schedule = AbSchedule(StopRule(pairs=20), seed=4, sides=("0", "1", "4"))
    turns = run(schedule, lambda turn: 1000 * factors[turn.side] * np.exp(-0.01 * next(clock)))
    orders = [[turn.side for turn in turns if turn.pair == pair] for pair in range(1, 21)]
    assert all(sorted(order) == ["0", "1", "4"] for order in orders)
    assert all(second == first[::-1] for first, second in zip(orders[::2], orders[1::2], strict=True))
    assert len({tuple(order) for order in orders}) > 2
    widths = schedule.half_widths()
    assert set(widths) == {"case 1", "case 4"}
    assert max(widths.values()) < 0.02
    assert schedule.left_s(10) == 10 * 3


def test_every_side_must_be_narrow() -> None:
    """The last side has no interval, because it never has a result: the run ends by its number of pairs."""
    schedule = AbSchedule(StopRule(pairs=30, half_width=0.1), seed=4, sides=("0", "1", "2"))
    for turn in schedule.turns():
        schedule.record(turn, {} if turn.side == "2" else {"case": [5.0]}, 1.0)
    assert schedule.stopped == "pairs"


def test_order_is_random_and_repeatable() -> None:
    orders = [[t.side for t in run(AbSchedule(StopRule(pairs=8), seed=s), lambda _: 1.0)] for s in (1, 1, 2, 3, 4)]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) > 1


def test_warm_ups_are_first_and_excluded() -> None:
    schedule = AbSchedule(StopRule(pairs=8), seed=3, warm_ups=2)
    turns = run(schedule, lambda turn: 1e9 if turn.warm_up else 5.0)
    assert [turn.warm_up for turn in turns] == [True] * 4 + [False] * 16
    assert schedule.half_widths() == {"case": 0.0}
    assert schedule.stopped == "pairs"


def test_drift_of_the_machine_cancels() -> None:
    samples: dict[str, dict[str, tuple[float, ...]]] = {"left": {}, "right": {}}
    clock = iter(range(1000))
    schedule = AbSchedule(StopRule(pairs=20), seed=4)
    for turn in schedule.turns():
        value = 1000 * np.exp(-0.01 * next(clock))
        schedule.record(turn, {"case": [value]}, 1.0)
        if not turn.warm_up:
            samples[turn.side][str(turn.pair)] = (value,)
    pair = Pair(Case("ior", {}), "bandwidth", SideSamples(samples["left"]), SideSamples(samples["right"]), sign=1)
    (one,), _ = compare_pairs([pair])
    assert one.ratio == pytest.approx(1.0, abs=0.006)
    assert one.verdict == "no difference"


def test_ab_run_ends_within_the_budget() -> None:
    schedule = AbSchedule(StopRule(half_width=0.0001, budget_s=50), seed=5)
    rng = np.random.default_rng(5)
    turns = run(schedule, lambda _: float(rng.uniform(1, 2)), seconds=4.0)
    assert schedule.stopped == "budget"
    assert len(turns) * 4 <= 50


def test_noisy_runs_need_more_pairs() -> None:
    lengths = []
    for sigma in (0.01, 0.2):
        rng = np.random.default_rng(6)
        schedule = AbSchedule(StopRule(half_width=0.05), seed=6)
        lengths.append(len(run(schedule, lambda _, s=sigma, r=rng: float(np.exp(s * r.standard_normal())))))
        assert schedule.stopped == "interval"
    assert lengths[0] == 2 + 2 * 10  # 8 pairs for the rank test, and one block for confirmation
    assert lengths[1] > 3 * lengths[0]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_half_width_is_that_of_the_farther_end(sign: float) -> None:
    """The interval is that of `compare_pairs` for the pairs, without the warm-up; skewed noise makes it asymmetric."""
    samples: dict[str, dict[str, tuple[float, ...]]] = {"left": {}, "right": {}}
    schedule, rng = AbSchedule(StopRule(pairs=12), seed=9), np.random.default_rng(9)
    for turn in schedule.turns():
        value = float(np.exp(sign * 0.3 * rng.exponential()))
        schedule.record(turn, {"case": [1e6 if turn.warm_up and turn.side == "left" else value]}, 1.0)
        if not turn.warm_up:
            samples[turn.side][str(turn.pair)] = (value,)
    pair = Pair(Case("ior", {}), "bandwidth", SideSamples(samples["left"]), SideSamples(samples["right"]), sign=1)
    (one,), _ = compare_pairs([pair])
    assert one.ratio is not None
    assert one.ci is not None
    ends = sorted(abs(end / one.ratio - 1) for end in one.ci)
    assert ends[1] > 1.05 * ends[0]
    assert schedule.half_widths() == {"case": pytest.approx(ends[1])}


def test_case_without_samples_on_one_side_prevents_the_interval_stop() -> None:
    schedule = AbSchedule(StopRule(half_width=0.05, most=30), seed=7)
    last = 0
    for turn in schedule.turns():
        last = turn.pair
        samples = {"good": [1.0]} | ({"lost": [1.0]} if turn.side == "left" else {})
        schedule.record(turn, samples, 1.0)
    assert (schedule.stopped, last) == ("most", 30)


@pytest.mark.parametrize("wrong", [{}, {"pairs": 0}, {"half_width": 0.0}, {"half_width": 5.0}])
def test_invalid_stop_rule_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(StatisticsError):
        StopRule(**wrong)  # type: ignore[arg-type]


@pytest.mark.slow
def test_stack_compared_with_itself_shows_no_difference() -> None:
    """A/A runs with a stop rule: >= 95 of 100 report "no difference", and the interval covers 1."""
    verdicts, covered = [], []
    for seed in range(100):
        rng = np.random.default_rng([8, seed])
        schedule = AbSchedule(StopRule(half_width=0.1, most=200), seed=seed, settings=ComparisonSettings(resamples=300))
        samples: dict[str, dict[str, tuple[float, ...]]] = {"left": {}, "right": {}}
        for turn in schedule.turns():
            value = float(np.exp(0.1 * rng.standard_t(3)))
            schedule.record(turn, {"case": [value]}, 1.0)
            if not turn.warm_up:
                samples[turn.side][str(turn.pair)] = (value,)
        pair = Pair(Case("ior", {}), "bandwidth", SideSamples(samples["left"]), SideSamples(samples["right"]), sign=1)
        (one,), _ = compare_pairs([pair])
        verdicts.append(one.verdict)
        covered.append(one.ci is not None and one.ci[0] <= 1 <= one.ci[1])
    assert verdicts.count("no difference") >= 95
    assert sum(covered) >= 89  # target 93, less two standard errors of 2.2


def test_remaining_time_is_that_of_remaining_pairs_or_budget() -> None:
    """Executions of 3 s, two per pair: after 4 of 10 pairs and a warm-up of both sides 30 s are used."""
    schedules = [
        AbSchedule(until, seed=1)
        for until in (StopRule(pairs=10), StopRule(budget_s=50), StopRule(pairs=10, budget_s=50))
    ]
    for schedule in schedules:
        turns = schedule.turns()
        for _ in range(10):
            schedule.record(next(turns), {"case": [1.0]}, 3.0)
    assert [schedule.left_s(4) for schedule in schedules] == [36, 20, 20]
    assert AbSchedule(StopRule(half_width=0.1), seed=1).left_s(4) is None


@pytest.mark.parametrize(("budget_s", "turns"), [(29.9, 8), (30.0, 10)])
def test_pair_starts_only_if_both_executions_fit_the_budget(budget_s: float, turns: int) -> None:
    """Executions of 3 s: warm-ups 6 s, then 6 s per pair."""
    assert len(run(AbSchedule(StopRule(budget_s=budget_s), seed=2), lambda _: 1.0, seconds=3.0)) == turns
