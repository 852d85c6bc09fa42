"""The decision of a gate: what it needs, what ends it, and what it never does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from iowatch.statistics.gate import NOISE_PAIRS, Gate, GateSettings


def measure(gate: Gate, gains: dict[str, float], noise: float, seed: int, pairs: int = 60) -> int:
    """Record pairs of all open results until the decision; returns their number."""
    rng = np.random.default_rng(seed)
    for pair in range(pairs):
        if gate.decision != "undecided":
            return pair
        for name in gate.open:
            gate.record(name, math.log(gains[name]) + rng.normal(0, noise))
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
        gate.record("write", math.log(0.5))
    assert gate.decision == "pass"


def test_noise_leaves_out_a_result_and_the_others_decide() -> None:
    gate, rng = Gate(["quiet", "noisy"], GateSettings(margin=0.05)), np.random.default_rng(5)
    for _ in range(NOISE_PAIRS):
        gate.record("quiet", rng.normal(0, 0.005))
        gate.record("noisy", rng.normal(0, 0.6))
    assert [gate.results[name].is_hopeless(60) for name in ("quiet", "noisy")] == [False, True]
    assert gate.decision == "undecided"
    gate.leave_out("noisy")
    assert gate.decision == "pass"


def test_only_results_that_are_left_out_decide_nothing() -> None:
    gate = Gate(["write"])
    gate.leave_out("write")
    assert gate.decision == "undecided"
