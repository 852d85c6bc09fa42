"""Bisection on simulated pairs: the parts planted are the parts named, and intervals hold at every look."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from iowatch.experiments.bisect.search import Bisection, BisectionSettings, Parts
from iowatch.statistics.sequential import NoiseScale, SequentialCentre, expected_pairs, fewest_pairs

SLOWER = math.log(1 / 1.15)
Effect = Callable[[Parts], float]


def search(
    effect: Effect,
    parts: int = 8,
    *,
    noise: float = 0.02,
    seed: int = 1,
    usable: Effect | None = None,
    most: int = 2000,
) -> Bisection:
    """A search on pairs whose log ratios have Student's t with three degrees of freedom."""
    rng = np.random.default_rng(seed)
    bisection = Bisection(parts, lambda hybrid: usable is None or bool(usable(hybrid)))
    while (request := bisection.request) is not None and most > 0:
        bisection.record(effect(request.right) - effect(request.left) + noise * rng.standard_t(3))
        most -= 1
    bisection.stop()
    return bisection


@pytest.mark.parametrize("culprit", range(5))
def test_the_part_that_costs_is_named_with_its_share(culprit: int) -> None:
    answer = search(lambda on: SLOWER * (culprit in on), parts=5).answer()
    (found,) = answer.culprits
    assert (answer.kind, found.parts, found.kind, answer.candidates) == ("found", (culprit,), "single", ())
    assert found.share_interval[0] < 1 < found.share_interval[1]
    assert found.test.interval[0] < SLOWER < found.test.interval[1]
    hybrids = {test.request.right for test in answer.tests} - {frozenset(range(5))}
    assert len(hybrids) <= 4  # three halvings of five parts, and the part alone


def test_gains_are_found_as_costs_are() -> None:
    (found,) = search(lambda on: -SLOWER * (3 in on)).answer().culprits
    assert (found.parts, found.test.result) == ((3,), "like BAD")


def test_pairs_that_a_test_has_are_not_needed_again() -> None:
    """First the pairs without which nothing can be decided, then a fifth more, at least three."""
    rng = np.random.default_rng(1)
    bisection = Bisection(4)
    fewest = bisection.pairs_needed()
    needed_by_count: dict[int, int] = {}
    for count in range(1, 61):
        # A noise far above the difference: the test of the whole difference is not decided.
        bisection.record(float(rng.normal(0, 0.5)))
        needed_by_count[count] = bisection.pairs_needed()
    assert fewest > 6
    assert needed_by_count[2] == fewest - 2
    assert needed_by_count[fewest - 1] == needed_by_count[fewest] == 3
    assert needed_by_count[60] == 12


@pytest.mark.parametrize("pair", [{0, 7}, {2, 3}, {5, 6}])
def test_parts_that_cost_only_together_are_named_together(pair: set[int]) -> None:
    (found,) = search(lambda on: SLOWER * (pair <= on)).answer().culprits
    assert (found.parts, found.kind) == (tuple(sorted(pair)), "together")


def test_two_culprits_have_their_shares() -> None:
    effect = {1: 0.6 * SLOWER, 6: 0.4 * SLOWER}
    answer = search(lambda on: sum(effect.get(part, 0.0) for part in on), noise=0.01).answer()
    assert {one.parts for one in answer.culprits} == {(1,), (6,)}
    for one in answer.culprits:
        low, high = one.share_interval
        assert low < effect[one.parts[0]] / SLOWER < high
        assert one.kind == "single"


def test_part_that_costs_behind_a_gain_is_found() -> None:
    """A whole difference of 15 % with a loss of 32 % and a gain: both are named, in either order."""
    effect = {2: 2 * SLOWER, 5: -SLOWER}
    answer = search(lambda on: sum(effect.get(part, 0.0) for part in on), noise=0.01).answer()
    assert {one.parts for one in answer.culprits} == {(2,), (5,)}


def test_part_without_effect_is_not_named_with_two_halves() -> None:
    """Seeds in which a part without effect is kept on before the second half is found; without a check it is named."""
    for seed in (15, 61):
        halves = search(lambda on: 0.5 * SLOWER * len(on & {1, 6}), noise=0.05, seed=seed).answer()
        assert {part for one in halves.culprits for part in one.parts} <= {1, 6}


def test_no_difference_ends_the_search_with_its_bound() -> None:
    answer = search(lambda _: 0.0).answer()
    assert (answer.kind, len(answer.tests), answer.culprits) == ("no difference", 1, ())
    assert answer.bound is not None
    assert 0 < answer.bound <= 0.05


def test_parts_that_no_usable_hybrid_separates_are_named_together() -> None:
    answer = search(lambda on: SLOWER * (3 in on), usable=lambda on: (3 in on) == (4 in on)).answer()
    (found,) = answer.culprits
    assert (found.parts, found.kind) == ((3, 4), "inseparable")
    assert all((3 in test.request.right) == (4 in test.request.right) for test in answer.tests if test.pairs)


def test_skipped_hybrid_is_not_requested_again() -> None:
    bisection = Bisection(4)
    skipped = None
    while (request := bisection.request) is not None:
        assert request.right != skipped
        if skipped is None and request.right != frozenset(range(4)):
            skipped = request.right
            bisection.skip()
            continue
        bisection.record(SLOWER * ((0 in request.right) - (0 in request.left)))
    answer = bisection.answer()
    assert [one.parts for one in answer.culprits] == [(0,)]
    assert [test.request.right for test in answer.tests if test.result == "not usable"] == [skipped]


def test_repeated_pairs_lead_to_the_same_place() -> None:
    """An interrupted search goes on from its pairs."""
    rng = np.random.default_rng(5)
    first, pairs, requests = Bisection(8), [], []
    for _ in range(70):
        assert first.request is not None
        requests.append(first.request)
        pairs.append(SLOWER * ((6 in first.request.right) - (6 in first.request.left)) + rng.normal(0, 0.05))
        first.record(pairs[-1])
    second = Bisection(8)
    for request, pair in zip(requests, pairs, strict=True):
        assert second.request == request
        second.record(pair)
    assert second.request == first.request
    assert second.answer() == first.answer()


def test_stopped_search_names_the_parts_that_are_left() -> None:
    answer = search(lambda on: SLOWER * (5 in on), most=25).answer()
    assert answer.kind == "narrowed"
    assert 5 in answer.candidates
    assert len(answer.candidates) == 4
    assert search(lambda on: SLOWER * (5 in on), most=4).answer().kind == "undecided"
    assert Bisection(8).answer().whole is None


def test_estimate_of_pairs_grows_with_noise() -> None:
    quiet, noisy = Bisection(8), Bisection(8)
    assert quiet.pairs_left() == quiet.planned_tests() * fewest_pairs(0.05 / 2 / 6 / 2)
    rng = np.random.default_rng(1)
    for _ in range(8):
        quiet.record(SLOWER + rng.normal(0, 0.02))
        noisy.record(SLOWER + rng.normal(0, 0.2))
    assert noisy.pairs_left() > 5 * quiet.pairs_left()


def test_intervals_hold_at_every_look_with_heavy_tails_and_drift() -> None:
    """The true value is rejected after any of 60 pairs in at most 5 % of 150 series; nominal 5 %, fixed sample 1 in 3.

    Runs have Student's t with 1.5 degrees of freedom (no variance) and drift by a noise per run; a coin orders a pair.
    """
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(150):
        centre = SequentialCentre(NoiseScale())
        for turn in range(60):
            first, second = rng.standard_t(1.5, 2) + np.array([2 * turn, 2 * turn + 1])
            centre.add(0.5 + (second - first if rng.random() < 0.5 else first - second))
            if centre.is_above(0.5, 0.025) or centre.is_below(0.5, 0.025):
                missed += 1
                break
    assert missed <= 0.05 * 150


def test_interval_ends_are_where_the_decisions_change() -> None:
    centre = SequentialCentre(NoiseScale())
    for value in np.random.default_rng(4).normal(0.2, 0.05, 25):
        centre.add(float(value))
    low, high = centre.interval(0.01)
    assert low < 0.2 < high
    assert centre.is_above(low - 1e-4, 0.005)
    assert not centre.is_above(low + 1e-4, 0.005)
    assert centre.is_below(high + 1e-4, 0.005)
    assert not centre.is_below(high - 1e-4, 0.005)
    assert centre.estimate == pytest.approx(0.2, abs=0.03)


def test_nothing_is_decided_with_fewer_pairs_than_the_fewest() -> None:
    centre = SequentialCentre(NoiseScale())
    for _ in range(fewest_pairs(0.005) - 1):
        centre.add(1.0)
    assert not centre.is_above(0, 0.005)
    assert centre.interval(0.01) == (-math.inf, math.inf)
    centre.add(1.0)
    assert centre.is_above(0, 0.005)


def test_expected_pairs_are_those_of_normal_noise() -> None:
    """Mean of 40 simulated tests at a distance of one standard deviation."""
    rng = np.random.default_rng(6)
    counts = []
    for _ in range(40):
        centre = SequentialCentre(NoiseScale())
        while not centre.is_above(0, 0.005):
            centre.add(float(rng.normal(1, 1)))
        counts.append(len(centre.log_ratios))
    assert expected_pairs(1.0, 1.0, 0.005) == pytest.approx(np.mean(counts), rel=0.35)


def test_settings_move_the_thresholds() -> None:
    strict = BisectionSettings(negligible=0.5)
    bisection = Bisection(2, settings=strict)
    while bisection.request is not None:
        bisection.record(SLOWER)
    assert bisection.answer().kind == "no difference"
