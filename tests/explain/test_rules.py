"""The rule that is found is the rule that was planted; chance is not explained."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from iowatch.explain import Explanation, Observation, explain
from iowatch.model import Scalar

MIB = 2**20


def matrix() -> list[dict[str, Scalar]]:
    """48 cases: three interfaces, two transfer sizes, write and read, two job sizes, two stripings."""
    cases: list[dict[str, Scalar]] = []
    for api, transfer, operation, ranks, stripes in itertools.product(
        ("POSIX", "MPIIO", "HDF5"), (MIB, 1_000_000), ("write", "read"), (64, 256), (1, -1)
    ):
        file = "per-process" if api == "POSIX" else "shared"
        cases.append(
            {
                "benchmark": "ior",
                "api": api,
                "file": file,
                "transfer_bytes": transfer,
                "operation": operation,
                "ranks": ranks,
                "stripe_count": stripes,
                "stack": "one",
            }
        )
    return cases


def explained(changed: list[bool], factor: float = 0.5) -> Explanation:
    return explain(
        [
            Observation(case, is_, math.log(factor) if is_ else 0.0)
            for case, is_ in zip(matrix(), changed, strict=True)
        ]
    )


PLANTED = [
    ({"operation": "read"}, "reads"),
    ({"file": "shared"}, "MPI-IO shared file"),
    ({"api": "HDF5"}, "HDF5"),
    ({"api": "MPIIO", "operation": "write"}, "MPIIO writes"),
    ({"stripe_count": 1}, "with stripe_count = 1"),
    ({"transfer_bytes": 1_000_000}, "unaligned"),
    (
        {"file": "shared", "operation": "read", "transfer_bytes": 1_000_000},
        "unaligned MPI-IO shared file reads",
    ),
    ({"ranks": 256, "operation": "write"}, "writes with ranks = 256"),
]


@pytest.mark.parametrize(("planted", "text"), PLANTED, ids=[text for _, text in PLANTED])
def test_the_planted_rule_is_found_exactly(planted: dict[str, Scalar], text: str) -> None:
    rule = explained([planted.items() <= case.items() for case in matrix()]).rule
    assert rule is not None
    assert (rule.precision, rule.recall) == (1.0, 1.0)
    assert rule.text == text
    assert len(rule.conditions) <= len(planted)


def test_order_of_series_does_not_matter() -> None:
    cases = matrix()
    observations = [Observation(c, c["api"] == "HDF5" and c["operation"] == "read", 0.0) for c in cases]
    shuffled = list(observations)
    np.random.default_rng(7).shuffle(shuffled)
    one, other = explain(observations).rule, explain(shuffled).rule
    assert one is not None
    assert other is not None
    assert one.conditions == other.conditions


def test_a_rule_survives_an_exception_on_each_side_and_names_both() -> None:
    changed = [case["api"] == "HDF5" for case in matrix()]
    inside, outside = changed.index(True), changed.index(False)
    changed[inside], changed[outside] = False, True
    found = explained(changed)
    assert found.rule is not None
    assert found.rule.text == "HDF5"
    assert {(e.member, e.inside) for e in found.exceptions} == {(inside, True), (outside, False)}
    assert (found.rule.changed_in, found.rule.total_in, found.rule.changed_out) == (15, 16, 1)


def test_chance_is_seldom_explained() -> None:
    """Labels drawn at random have no common factor; some of 60 draws find one by chance."""
    stream = np.random.default_rng(11)
    cases = matrix()
    found = 0
    for _ in range(60):
        labels = [bool(x) for x in stream.random(len(cases)) < 0.25]
        found += explained(labels).rule is not None
    assert found <= 7


def test_all_changed_needs_no_condition_and_none_changed_has_no_rule() -> None:
    everything, nothing = explained([True] * 48), explained([False] * 48)
    assert everything.rule is not None
    assert everything.rule.conditions == ()
    assert everything.control is None
    assert nothing.rule is None


def test_what_cannot_be_told_apart_is_said() -> None:
    """In this matrix shared file, MPI-IO and `not POSIX` are the same cases."""
    rule = explained([case["file"] == "shared" for case in matrix()]).rule
    assert rule is not None
    words = {c.words for group in rule.equivalents for c in group} | {c.words for c in rule.conditions}
    assert {"shared file", "MPI-IO", "not POSIX"} <= words


def test_a_parameter_that_a_case_does_not_have_is_never_its_cause() -> None:
    cases: list[dict[str, Scalar]] = [*matrix(), {"benchmark": "mdtest", "operation": "create", "stack": "one"}]
    observations = [Observation(c, c.get("stripe_count") == 1, 0.0) for c in cases]
    rule = explain(observations).rule
    assert rule is not None
    assert (rule.changed_in, rule.total_in) == (24, 24)
