"""The paper's table (Antypas and Uselton, CUG 2009, sections 3 and 5) as labels, and the expected explanation."""

from __future__ import annotations

import math

import pytest

from iowatch.statistics import Explanation, SeriesResponse
from tests.statistics.storage import explain_changes, possible_cause, rank_causes

DAY = 86400
BEFORE, AFTER = 100 * DAY, 101 * DAY


def response(
    benchmark: str, operation: str, api: str, ratio: float, *, file: str = "shared", transfer: int | None = None
) -> SeriesResponse:
    parameters = {"benchmark": benchmark, "operation": operation, "api": api, "file": file}
    more = {"transfer_bytes": transfer} if transfer else {}
    return SeriesResponse({**parameters, **more}, ratio > 1.2, math.log(ratio))


OBSERVATIONS = [
    *(
        response("ior", operation, "POSIX", 1.0, file="per-process", transfer=transfer)
        for operation in ("write", "read")
        for transfer in (2**20, 10**6)
    ),
    response("ior", "write", "MPIIO", 3.0, transfer=2**20),
    response("ior", "write", "MPIIO", 3.0, transfer=10**6),
    response("ior", "read", "MPIIO", 1.0, transfer=2**20),
    response("ior", "read", "MPIIO", 51.0, transfer=10**6),
    response("madbench2", "run", "POSIX", 1.0, file="per-process"),
    response("madbench2", "run", "MPIIO", 4.0),
    response("flash", "write", "HDF5", 2.5),
    response("flash", "read", "HDF5", 14.0),
    response("s3d", "write", "POSIX", 5.2, file="per-process"),
]


@pytest.fixture(scope="module")
def found() -> Explanation:
    return explain_changes(OBSERVATIONS)


def test_common_factor_is_the_shared_file_with_mpiio(found: Explanation) -> None:
    assert found.rule is not None
    assert found.rule.text == "MPI-IO shared file"
    assert (found.rule.changed_in, found.rule.total_in) == (6, 7)
    assert (found.rule.changed_out, found.rule.total_out) == (1, 6)


def test_subgroups_of_different_size_are_separated(found: Explanation) -> None:
    sizes = {m.label: round(m.ratio, 1) for m in found.magnitudes}
    assert sizes["unaligned reads (ior)"] == 51.0
    assert sizes["HDF5 reads (flash)"] == 14.0
    assert sizes["writes (flash, ior)"] == pytest.approx(2.8, abs=0.1)


def test_control_group_and_exceptions_are_named(found: Explanation) -> None:
    assert found.control is not None
    assert found.control.label == "POSIX file per process"
    assert (found.control.unchanged, found.control.total) == (5, 6)
    outside, inside = found.exceptions
    assert (outside.inside, outside.name) == (False, "s3d write POSIX file per process")
    assert (inside.inside, inside.name) == (True, "ior read MPI-IO shared file transfer 1 MiB")


def test_load_ranks_below_software_because_of_the_control_group(found: Explanation) -> None:
    likely_causes = [
        possible_cause("load falls", "workload", "workload", BEFORE, AFTER),
        possible_cause(
            "links return", "maintenance", "hardware", BEFORE, AFTER, {}, (("contradicts", "no congestion"),)
        ),
        possible_cause("upgrade", "maintenance", "software", BEFORE, AFTER),
        possible_cause("shutdown", "outage", "outage", BEFORE - 17 * DAY, BEFORE - 16 * DAY),
    ]
    causes = rank_causes(likely_causes, BEFORE, AFTER, OBSERVATIONS, found)
    assert [c.name for c in causes] == ["upgrade", "load falls", "links return"]
    load = causes[1]
    assert any("POSIX file per process did not change" in text for text in load.speaks_against)
    assert any("s3d" in text for text in load.speaks_for)
    assert "no congestion" in causes[2].speaks_against


def test_event_after_the_change_ranks_lower(found: Explanation) -> None:
    likely_causes = [
        possible_cause("the day before", "other", "other", BEFORE - 2 * DAY, BEFORE - DAY),
        possible_cause("the day after", "other", "other", AFTER + DAY, AFTER + 2 * DAY),
    ]
    causes = rank_causes(likely_causes, BEFORE, AFTER, OBSERVATIONS, found)
    assert [c.when for c in causes] == ["1 day before the change", "1 day after the change"]
    assert causes[0].score > 2 * causes[1].score


def test_event_with_matching_scope_ranks_first(found: Explanation) -> None:
    likely_causes = [
        possible_cause("HDF5 only", "software", "software", BEFORE, AFTER, {"api": "HDF5"}),
        possible_cause("MPI-IO", "software", "software", BEFORE, AFTER, {"mpiio": True}),
    ]
    causes = rank_causes(likely_causes, BEFORE, AFTER, OBSERVATIONS, found)
    assert causes[0].name == "MPI-IO"
    assert "2 of 7 changed series lie in its scope (api HDF5)" in causes[1].speaks_against
