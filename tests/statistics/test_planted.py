"""How often a planted rule is found; figures of more trials: `python bench/findings.py rules`."""

from __future__ import annotations

import math

import numpy as np
import pytest

from iowatch.core import Scalar
from iowatch.findings import CASE_PARAMETERS
from iowatch.output.text.explanations import format_equivalents
from iowatch.statistics import Explanation, SeriesResponse
from iowatch.statistics.rules import Condition
from tests.statistics.planted import MIB, cases, trial
from tests.statistics.storage import explain_changes, possible_cause, rank_causes

TRIALS = 30
DAY = 86_400


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("size", "wrong", "missing", "least"),
    [
        (1, 0.0, 0.0, 30),
        (2, 0.0, 0.0, 30),
        (3, 0.0, 0.0, 28),
        (1, 0.05, 0.3, 27),
        (2, 0.05, 0.3, 25),
        (3, 0.05, 0.3, 16),
    ],
)
def test_planted_rules_are_found(size: int, wrong: float, missing: float, least: int) -> None:
    """96 cases; the bounds are the results of 100 trials, less two standard deviations of 30."""
    stream = np.random.default_rng([17, size, int(100 * wrong)])
    found = [trial(96, size, wrong, missing, stream) for _ in range(TRIALS)]
    assert sum(f.same for f in found) >= least
    assert all(f.longer == 0 for f in found if f.same)


def explained(known: list[dict[str, Scalar]], changed: list[bool]) -> Explanation:
    pairs = zip(known, changed, strict=True)
    return explain_changes([SeriesResponse(c, is_, math.log(0.5) if is_ else 0.0) for c, is_ in pairs])


@pytest.mark.parametrize(
    ("ranks", "limit"),
    [((16, 64, 256), 64), ((16, 64, 256, 1024), 256), (tuple(range(1, 101)), 37)],
    ids=["two of three", "two of four", "of a hundred"],
)
def test_ordered_numbers_are_reported_as_a_threshold(ranks: tuple[int, ...], limit: int) -> None:
    known: list[dict[str, Scalar]] = [
        {"benchmark": "ior", "operation": operation, "api": api, "ranks": n}
        for n in ranks
        for operation in ("write", "read")
        for api in ("POSIX", "MPIIO", "HDF5")
    ]
    rule = explained(known, [int(str(c["ranks"])) >= limit for c in known]).rule
    assert rule is not None
    assert rule.conditions == (Condition("ranks", ">=", (limit,)),)
    assert rule.text == f"with ranks >= {limit}"


def test_sizes_have_thresholds_and_values_of_an_enumeration_are_in_order() -> None:
    known: list[dict[str, Scalar]] = [
        {"benchmark": "ior", "operation": operation, "transfer_bytes": size, "file_system": name}
        for operation in ("write", "read")
        for size in (MIB, 2 * MIB, 16 * MIB, 64 * MIB)
        for name in ("scratch1", "scratch2")
    ]
    large = explained(known, [int(str(c["transfer_bytes"])) >= 16 * MIB for c in known]).rule
    ends = explained(known, [c["transfer_bytes"] in (2 * MIB, 64 * MIB) for c in known]).rule
    assert large is not None
    assert ends is not None
    assert large.text == "with transfer_bytes >= 16 MiB"
    assert ends.text == "with transfer_bytes in 2 MiB, 64 MiB"


def test_named_stripe_counts_have_no_order() -> None:
    """-1 is all targets and 0 the default: `stripe_count < 4` would be wrong for both."""
    known: list[dict[str, Scalar]] = [
        {"benchmark": "ior", "operation": operation, "ranks": n, "stripe_count": stripes}
        for operation in ("write", "read")
        for n in (16, 64, 256)
        for stripes in (-1, 0, 1, 4)
    ]
    rule = explained(known, [c["stripe_count"] in (-1, 0) for c in known]).rule
    assert rule is not None
    texts = [c.words(CASE_PARAMETERS) for c in (*rule.conditions, *(c for group in rule.equivalents for c in group))]
    assert not [words for words in texts if ">" in words or "<" in words]


def test_condition_on_one_of_many_values_has_a_high_cost() -> None:
    """Labels drawn at random over 50 job sizes with 2 operations: both of one size changed in 1 draw of 3."""
    known: list[dict[str, Scalar]] = [
        {"benchmark": "ior", "operation": operation, "ranks": n, "total_bytes": n << 30}
        for n in range(1, 51)
        for operation in ("write", "read")
    ]
    stream = np.random.default_rng(1)
    draws = [[bool(x) for x in stream.random(len(known)) < 0.1] for _ in range(40)]
    assert sum(explained(known, labels).rule is not None for labels in draws) <= 3


def test_equivalent_parameters_are_both_reported() -> None:
    """All runs on scratch1 were on partition cpu: the line names both, the page states that either fits."""
    stream = np.random.default_rng(3)
    known = [{**c, "partition": "cpu" if c["file_system"] == "scratch1" else "gpu"} for c in cases(64, stream)]
    rule = explained(known, [c["partition"] == "cpu" and c["operation"] == "read" for c in known]).rule
    assert rule is not None
    assert rule.text == "scratch1 cpu reads"
    assert list(format_equivalents(rule)) == ["these data do not distinguish 'scratch1' from: cpu"]


def test_two_causes_of_one_day_are_two_common_factors() -> None:
    """A stack and a file system change on the same day; one more changed series fits neither."""
    known = cases(128, np.random.default_rng(5))
    slow = [c["api"] == "NETCDF4" and c["operation"] == "write" and c["stack"] == "new" for c in known]
    full = [c["file_system"] == "scratch1" and c["file"] == "per-process" for c in known]
    changed = [one or other for one, other in zip(slow, full, strict=True)]
    odd = changed.index(False)
    changed[odd] = True
    found = explained(known, changed)
    assert found.rule is not None
    assert found.second is not None
    assert {found.rule.text, found.second.text} == {"scratch1 file per process", "new NetCDF-4 writes"}
    assert (found.rule.precision, found.second.precision) == (1.0, 1.0)
    assert [e.member for e in found.exceptions] == [odd]
    assert found.control is not None
    assert found.control.unchanged == len(known) - sum(changed)
    sized = {m for one in (*found.magnitudes, *found.second_magnitudes) for m in one.members}
    assert sized == {i for i, is_ in enumerate(changed) if is_ and i != odd}


def test_random_changes_outside_a_rule_rarely_give_a_second_rule() -> None:
    stream = np.random.default_rng(6)
    second = 0
    for _ in range(30):
        known = cases(64, stream)
        labels = [c["file"] == "shared" or bool(stream.random() < 0.15) for c in known]
        second += explained(known, labels).second is not None
    assert second <= 4


def test_cause_is_assessed_with_the_common_factor_that_it_fits() -> None:
    """A new netcdf-c and a full scratch1 on one day; a scheduler change the day before explains neither better."""
    known = cases(128, np.random.default_rng(5))
    slow = [c["api"] == "NETCDF4" and c["operation"] == "write" for c in known]
    full = [c["file_system"] == "scratch1" and c["file"] == "per-process" for c in known]
    changed = [one or other for one, other in zip(slow, full, strict=True)]
    seen = [SeriesResponse(c, is_, math.log(0.5) * is_) for c, is_ in zip(known, changed, strict=True)]
    causes = rank_causes(
        [
            possible_cause("scheduler", "software", "software", 0, 1),
            possible_cause("netcdf-c", "upgrade", "upgrade", 2 * DAY, 2 * DAY, {"api": "NETCDF4"}),
            possible_cause("full", "configuration", "configuration", 2 * DAY, 2 * DAY, {"file_system": "scratch1"}),
            possible_cause("other", "upgrade", "upgrade", 2 * DAY, 2 * DAY, {"api": "MPIIO"}),
        ],
        last_before=DAY,
        first_after=2 * DAY,
        observations=seen,
        explanation=explain_changes(seen),
    )
    assert {c.name for c in causes[:2]} == {"netcdf-c", "full"}
    assert [c.name for c in causes[2:]] == ["scheduler", "other"]
    texts = next(c for c in causes if c.name == "netcdf-c").speaks_for
    assert f"{sum(slow)} of {sum(slow)} changed series of NetCDF-4 writes lie in its scope (api NETCDF4)" in texts
