"""Covariates: the table, and the value per run. Expected values follow from the definitions of the kinds."""

from __future__ import annotations

import math
from typing import Any

import pytest

from iowatch.core import COVARIATES, covariate_label, get_covariate, run_covariates


def facts(before: dict[str, Any], after: dict[str, Any], seconds: float = 4.0) -> dict[str, Any]:
    return {"covariates": {"before": {"time_s": 100.0, **before}, "after": {"time_s": 100.0 + seconds, **after}}}


@pytest.mark.parametrize(
    ("name", "before", "after", "expected"),
    [
        ("load_1m", 2.5, 9.0, 2.5),  # a state: the value before, which the run did not cause
        ("processes_blocked", 3, 1, 1.0),  # one moment: two of them were gone after the run
        ("client_written_bytes", 1000, 5000, 1000.0),  # a counter: 4,000 in 4 s
        ("client_written_bytes", 5000, 1000, None),  # it was reset
        ("used_bytes", 5000, 1000, -1000.0),  # a stock may fall
        ("prometheus:ost_ops", 17, 99, 17.0),
        ("target_fill:OST0001", 80.0, 80.0, None),  # shown only
        ("load_1m", "high", 1.0, None),
        ("load_1m", True, 1.0, None),
        ("load_1m", math.inf, 1.0, None),
        ("unknown", 1.0, 1.0, None),
    ],
)
def test_value_per_run(name: str, before: Any, after: Any, expected: float | None) -> None:
    found = run_covariates(facts({name: before}, {name: after}))
    assert found == ({} if expected is None else {name: expected})


def test_counter_needs_both_sides_and_time() -> None:
    assert run_covariates(facts({"network_errors": 3}, {})) == {}
    assert run_covariates(facts({"network_errors": 3}, {"network_errors": 5}, seconds=0.0)) == {}
    assert run_covariates(facts({"network_errors": 3}, {"network_errors": 3})) == {"network_errors": 0.0}


def test_averages_of_an_import() -> None:
    found = run_covariates({"fs_ave_mds_cpu": 12.5, "jobsdb_concurrent_jobs": 300, "command": "ior"})
    assert found == {"fs_ave_mds_cpu": 12.5, "jobsdb_concurrent_jobs": 300.0}


@pytest.mark.parametrize("damaged", [None, [], "text", {"before": None}, {"before": [1]}, {"after": {"load_1m": 1}}])
def test_damaged_facts_have_no_covariates(damaged: Any) -> None:
    assert run_covariates({"covariates": damaged}) == {}


def test_labels_and_units() -> None:
    assert covariate_label("target_fill:OST0001") == "fill of the target OST0001"
    assert covariate_label("new_one") == "new_one"
    assert {get_covariate("prometheus:x"), get_covariate("x")} == {COVARIATES["prometheus"], None}
    assert COVARIATES["client_wait_s"].run_unit == "s/s"
    assert COVARIATES["load_1m"].run_unit == ""
