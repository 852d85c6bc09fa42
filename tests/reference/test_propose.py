"""References from observations: properties of the bounds, proposals, remarks of the audit."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iowatch.core import InputError
from iowatch.reference.bandwidth import Provenance, Reference, References
from iowatch.reference.policy import MeasuredSeries, audit_references
from iowatch.reference.propose import (
    ProposalLevel,
    ReferenceFileChange,
    compute_bounds,
    entry_from_level,
    make_proposals,
)

TODAY = dt.date(2026, 6, 1)
VERSIONS = {"openmpi": "4.1.4", "hdf5": "1.10.8"}


def _level(values: list[float], **changed: Any) -> ProposalLevel:
    level = ProposalLevel("BenchioCheck", "here:default", "stack-a", "api=MPIIO,ranks=4", "write_bandwidth", "MiB/s",
                  True, tuple(values), ("first", "last"), VERSIONS)  # fmt: skip
    return replace(level, **changed)


def _observations(seed: int, n: int, scatter: float = 0.05) -> np.ndarray[Any, Any]:
    return 1000 * np.exp(np.random.default_rng(seed).normal(0, scatter, n))


@pytest.mark.parametrize("n", [7, 14, 30, 60])
def test_later_observations_are_rarely_outside_the_bounds(n: int) -> None:
    """Normal scatter on a logarithmic scale, 400 levels: below 1 % of later observations, also with a short history."""
    outside = 0
    for seed in range(400):
        observations = _observations(seed, n + 10)
        found = compute_bounds(list(observations[:n]))
        later = observations[n:] / found.value - 1
        outside += int(((later < found.low) | (later > found.high)).sum())
    assert outside / 4000 < 0.01


@pytest.mark.parametrize("n", [14, 60])
def test_loss_of_half_is_outside_the_bounds(n: int) -> None:
    """With 5 % scatter; one level in a hundred may have a larger sample scatter."""
    found = [compute_bounds(list(_observations(seed, n))) for seed in range(100)]
    assert sum(f.low <= -0.5 for f in found) <= 1


def test_one_outlier_does_not_move_the_level() -> None:
    steady, disturbed = list(_observations(1, 30)), [*_observations(1, 29), 10.0]
    assert compute_bounds(disturbed).value == pytest.approx(compute_bounds(steady).value, rel=0.02)
    assert compute_bounds(disturbed).low == pytest.approx(compute_bounds(steady).low, rel=0.3)


@given(st.lists(st.floats(1, 1e6), min_size=7, max_size=40), st.floats(0.001, 1000))
def test_bounds_are_relative_and_contain_the_level(values: list[float], factor: float) -> None:
    found, scaled = compute_bounds(values), compute_bounds([v * factor for v in values])
    assert -0.9901 < found.low < 0 < found.high
    assert scaled.low == pytest.approx(found.low, rel=1e-6)
    assert scaled.value == pytest.approx(found.value * factor, rel=1e-6)
    if len(values) < 20:
        lowest, highest = min(values) / found.value - 1, max(values) / found.value - 1
        assert found.low <= max(lowest, -0.99) + 1e-9
        assert found.high >= highest - 1e-9


@pytest.mark.parametrize("values", [[1.0] * 6, [1.0] * 6 + [0.0], [1.0] * 6 + [float("nan")]])
def test_too_few_or_impossible_observations_are_refused(values: list[float]) -> None:
    with pytest.raises(InputError):
        compute_bounds(values)


def test_entry_has_provenance() -> None:
    entry = entry_from_level(_level(list(_observations(2, 9))), TODAY, "me", "first two weeks")
    expected = Provenance(statistic="median of maxima", n=9, spread=entry.provenance.spread, date=TODAY,
                          origin=["first", "last"], by="me", why="first two weeks",
                          versions=VERSIONS)  # fmt: skip
    assert entry.provenance == expected
    assert entry.lower is not None
    assert entry.upper is not None
    assert entry.lower < entry.value < entry.upper
    times = entry_from_level(_level([1.0] * 7, higher_is_better=False), TODAY, "me", "x")
    assert times.provenance.statistic == "median of minima"


def _references(*entries: Reference) -> References:
    return References("here", Path("here.yaml"), entries)


def _only(references: References, level: ProposalLevel) -> str:
    (proposal,) = make_proposals(references, [level], TODAY, "me", "x").proposals
    return proposal.kind


def test_proposal_is_new_changed_or_the_same() -> None:
    level = _level(list(_observations(3, 20)))
    entry = entry_from_level(level, TODAY, "me", "x")
    assert _only(_references(), level) == "new"
    assert _only(_references(entry), level) == "same"
    assert _only(_references(entry), _level(list(_observations(4, 20)))) == "same"
    assert _only(_references(entry), _level(list(2 * _observations(3, 20)))) == "changed"
    assert _only(_references(replace(entry, low=None)), level) == "changed"
    assert _only(_references(entry), replace(level, versions={**VERSIONS, "hdf5": "1.14.0"})) == "changed"


def test_six_observations_give_a_reason_instead_of_a_reference() -> None:
    level = _level([1.0] * 6, note="a change on 2026-05-25 is not reviewed")
    proposed = make_proposals(_references(), [level], TODAY, "me", "x")
    assert proposed.proposals == ()
    assert proposed.left_out == (
        "stack-a write_bandwidth api=MPIIO,ranks=4: 6 observations at the accepted level, 7 needed "
        "(a change on 2026-05-25 is not reviewed)",
    )


def test_case_that_cannot_be_a_key_is_left_out() -> None:
    for case in ("", "pattern=two words", "chunk=[1,2]"):
        proposed = make_proposals(_references(), [_level(list(_observations(5, 8)), case=case)], TODAY, "me", "x")
        assert proposed.proposals == ()
        assert "its case cannot be written" in proposed.left_out[0]


def test_file_change_shows_and_writes_new_entries(tmp_path: Path) -> None:
    found = make_proposals(_references(), [_level(list(_observations(5, 8)))], TODAY, "me", "x").proposals
    change = ReferenceFileChange("here", tmp_path / "here.yaml", "", found)
    assert change.diff.startswith("--- a/here.yaml\n+++ b/here.yaml\n")
    assert not change.path.exists()
    change.write()
    again = ReferenceFileChange("here", change.path, change.path.read_text(), (replace(found[0], kind="same"),))
    assert again.diff == ""


MEASURED = MeasuredSeries(
    "default", "stack-a", {"api": "MPIIO", "ranks": 4, "operation": "write"}, "write", "bandwidth", VERSIONS
)
ENTRY = entry_from_level(_level(list(_observations(6, 9))), TODAY, "me", "x")


def _remarks(entry: Reference, *measured: MeasuredSeries, today: dt.date = TODAY) -> list[tuple[str, str]]:
    found = audit_references(_references(entry), ["BenchioCheck"], measured, today)
    return [(remark.severity, remark.text) for remark in found]


def test_audit_of_a_good_entry_has_no_remarks() -> None:
    assert _remarks(ENTRY, MEASURED) == []
    assert _remarks(ENTRY) == []


@pytest.mark.parametrize(
    ("entry", "measured", "days", "severity", "remark"),
    [
        (replace(ENTRY, check="BenchoCheck"), [MEASURED], 0, "error", "no check is called 'BenchoCheck'. Did you"),
        (replace(ENTRY, stack="stack-b"), [MEASURED], 0, "warning", "no case uses write_bandwidth of stack-b"),
        (ENTRY, [MEASURED], 366, "warning", "write_bandwidth is of 2026-06-01"),
        (replace(ENTRY, low=None, high=None), [MEASURED], 0, "warning", "has no bounds and cannot fail"),
        (ENTRY, [replace(MEASURED, versions={"hdf5": "1.14.3"})], 0, "warning", "hdf5 1.10.8 before, 1.14.3 now"),
    ],
)
def test_audit_reports_problems_of_an_entry(
    entry: Reference, measured: list[MeasuredSeries], days: int, severity: str, remark: str
) -> None:
    remarks = _remarks(entry, *measured, today=TODAY + dt.timedelta(days=days))
    assert any(s == severity and remark in text for s, text in remarks), remarks


def test_case_without_entry_is_noted_only_if_a_file_exists() -> None:
    other = replace(MEASURED, case={"api": "POSIX"})
    assert audit_references(_references(ENTRY), ["BenchioCheck"], [MEASURED, other], TODAY) == []
    existing = References("here", Path(__file__), (ENTRY,))
    (remark,) = audit_references(existing, ["BenchioCheck"], [MEASURED, other], TODAY)
    assert (remark.severity, remark.text) == ("note", "no reference: stack-a write api=POSIX")
