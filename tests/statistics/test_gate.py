"""The decision of a gate: what it needs, what ends it, and what it never does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from iowatch.statistics.gate import NOISE_PAIRS, Gate, GatePair, GateSettings


def quiet_pair(log_gain: float) -> GatePair:
    """A pair whose repetitions are all equal, with a base that is always the same."""
    return GatePair(log_gain, log_gain, 0.0)


def measure(gate: Gate, gains: dict[str, float], noise: float, seed: int, pairs: int = 60) -> int:
    """Record pairs of all open results until the decision; returns their number."""
    rng = np.random.default_rng(seed)
    for pair in range(pairs):
        if gate.decision != "undecided":
            return pair
        for name in gate.open:
            gate.record(name, quiet_pair(math.log(gains[name]) + rng.normal(0, noise)))
    return pairs


@pytest.mark.parametrize(
    ("gains", "decision"),
    [
        ({"write": 1.0, "read": 1.0}, "pass"),
        ({"write": 1.3, "read": 1.0}, "pass"),
        ({"write": 0.97, "read": 0.97}, "pass"),  # real, and within the margin of 10 %
        ({"write": 1.0, "read": 0.88}, "regression"),
    ],
)
def test_decision_depends_on_the_margin(gains: dict[str, float], decision: str) -> None:
    """Ten of ten seeds; the error rates themselves are measured by bench/gate.py."""
    for seed in range(10):
        gate = Gate([*gains])
        measure(gate, gains, 0.02, seed)
        assert gate.decision == decision


def test_nothing_is_decided_before_the_error_rate_allows_it() -> None:
    """0.5 x 1.97^n must reach 1/0.05 = 20 to pass (by hand: 29.2 at n = 6, 14.8 at 5), 1/0.005 = 200 to stop (9)."""
    equal, slower = Gate(["write", "read"]), Gate(["write", "read"])
    assert measure(equal, {"write": 1.0, "read": 1.0}, 1e-6, 1) == 6
    assert measure(slower, {"write": 0.5, "read": 0.5}, 1e-6, 1) == 9


def test_a_decided_result_takes_no_further_pairs() -> None:
    """Otherwise a later look would change a decision whose error rate is spent."""
    gate = Gate(["write"])
    measure(gate, {"write": 1.0}, 0.001, 3)
    for _ in range(50):
        gate.record("write", quiet_pair(math.log(0.5)))
    assert gate.decision == "pass"


def record_noisy(gate: Gate[str], base_noise: float, head_noise: float, pairs: int = NOISE_PAIRS) -> None:
    """Pairs of a quiet result, and of one whose sides have these noises."""
    rng = np.random.default_rng(5)
    for _ in range(pairs):
        gate.record("quiet", quiet_pair(rng.normal(0, 0.005)))
        base, head = rng.normal(0, base_noise), rng.normal(0, head_noise)
        gate.record("noisy", GatePair(head - base, head - base, base))


def test_noise_of_the_base_leaves_out_a_result_and_the_others_decide() -> None:
    """The quiet result is within the margin from its sixth pair on, before the noise of the other one is known.

    Six pairs are the fewest (0.5 x 1.97^6 = 29.2 > 20), because the margin of 5 % is ten times its noise of 0.5 %.
    """
    gate = Gate(["quiet", "noisy"], GateSettings(margin=0.05))
    record_noisy(gate, 0.6, 0.6, NOISE_PAIRS - 1)
    gate.leave_out_hopeless(60)
    # The noise of seven pairs is not trusted yet, so the noisy result is open and prevents a pass.
    assert [result.state for result in gate.results.values()] == ["within", "open"]
    assert gate.decision == "undecided"
    gate = Gate(["quiet", "noisy"], GateSettings(margin=0.05))
    record_noisy(gate, 0.6, 0.6)
    gate.leave_out_hopeless(60)
    assert [result.state for result in gate.results.values()] == ["within", "left out"]
    assert gate.decision == "pass"


def test_noise_of_the_head_alone_leaves_nothing_out() -> None:
    """It is what the head changed: the gate stays undecided, however quiet the other results are."""
    gate = Gate(["quiet", "noisy"], GateSettings(margin=0.05))
    record_noisy(gate, 0.02, 0.6)
    gate.leave_out_hopeless(60)
    assert gate.results["noisy"].is_hopeless(60)
    assert not gate.results["noisy"].is_base_hopeless(60)
    assert gate.results["noisy"].state == "open"
    record_noisy(gate, 0.02, 0.6)
    assert gate.decision != "pass"


def test_a_pass_needs_half_of_the_results() -> None:
    gate = Gate(["write", "read", "other"])
    for name in ("read", "other"):
        gate.leave_out(name)
    measure(gate, {"write": 1.0}, 0.001, 3)
    assert (gate.results["write"].state, gate.decision) == ("within", "undecided")


def test_every_second_run_that_is_five_times_slower_is_erratic() -> None:
    """Levels are equal as long as the medians of a run are; its mean has the stall."""
    gate, rng = Gate(["write"]), np.random.default_rng(7)
    while gate.open and len(gate.results["write"].centre.log_ratios) < 60:
        noise = rng.normal(0, 0.01)
        stall = math.log(5) * rng.integers(2)
        gate.record("write", GatePair(noise, noise - stall, 0.0))
    assert gate.results["write"].state == "erratic"
    assert gate.decision == "regression"


def test_a_head_that_fails_in_some_runs_is_not_within_the_margin() -> None:
    """One failure of the head, none of the base: open, however many pairs without a difference follow."""
    gate = Gate(["write"])
    gate.record_failure("write", of_head=True)
    for _ in range(60):
        gate.record("write", quiet_pair(0.0))
    assert (gate.results["write"].state, gate.decision) == ("open", "undecided")
    gate.leave_out_hopeless(0)
    assert gate.decision == "undecided"


@pytest.mark.parametrize(("failed_heads", "failed_bases"), [(0, 3), (2, 1)])
def test_a_base_that_fails_as_often_excuses_the_head(failed_heads: int, failed_bases: int) -> None:
    """The head may fail up to twice as often, as with stalls (tests/statistics/test_erratic.py)."""
    gate = Gate(["write"])
    for is_head in [True] * failed_heads + [False] * failed_bases:
        gate.record_failure("write", of_head=is_head)
    assert measure(gate, {"write": 1.0}, 1e-6, 1) == 6
    assert gate.decision == "pass"


def test_a_head_that_fails_often_is_erratic() -> None:
    """0.5 x 1.97^n reaches 1 / (0.1 x 0.01) = 1000 at n = 11.2 (by hand): twelve failures, none of the base."""
    gate = Gate(["write"])
    for _ in range(11):
        gate.record_failure("write", of_head=True)
    assert gate.decision == "undecided"
    gate.record_failure("write", of_head=True)
    assert (gate.results["write"].state, gate.decision) == ("erratic", "regression")


def test_only_results_that_are_left_out_decide_nothing() -> None:
    gate = Gate(["write"])
    gate.leave_out("write")
    assert gate.decision == "undecided"
