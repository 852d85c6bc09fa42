"""Published counts of operations: as data, and next to the measured ones in the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch.core import Case, Result, Scalar
from iowatch.reference.published import published_counts
from iowatch.session.verdict import _transfer_counts
from iowatch.store import History
from tests.builders import build_output, build_run, build_session

CASE: dict[str, Scalar] = {"operation": "write", "file": "shared", "collective": True, "ranks": 4}


@pytest.mark.parametrize(("api", "independent"), [("MPIIO", 0), ("HDF5", 6), ("NETCDF4", 10)])
def test_published_counts_of_lawrence2017(api: str, independent: int) -> None:
    """[lawrence2017], section 6, "NetCDF Performance": 24 collective writes; 0, 6 and 10 independent ones."""
    found = published_counts(Case("benchio", {**CASE, "api": api}))
    assert found is not None
    assert (found.collective, found.independent, found.where) == (24, independent, "lawrence2017/text")


@pytest.mark.parametrize(
    ("benchmark", "other"),
    [
        ("ior", {"api": "HDF5"}),
        ("benchio", {"api": "PNETCDF"}),
        ("benchio", {"api": "HDF5", "operation": "read"}),
        ("benchio", {"api": "HDF5", "collective": False}),
    ],
)
def test_other_cases_have_no_published_counts(benchmark: str, other: dict[str, Scalar]) -> None:
    assert published_counts(Case(benchmark, {**CASE, **other})) is None


def test_verdict_has_measured_and_published_counts(tmp_path: Path) -> None:
    case = {name: value for name, value in CASE.items() if name != "operation"} | {"api": "HDF5"}
    counts = tuple(
        Result("write", metric, "1", (value,), case)
        for metric, value in (("collective_count", 4.0), ("independent_count", 7.0))
    )
    with History.open(str(tmp_path / "history.db")) as history:
        history.begin_session(build_session("one", suite="smoke", started_at=1_700_000_000), [])
        run = build_run(
            name="benchio:hdf5", stack="one", started_at=1_700_000_000, output=build_output(*counts, tool="benchio")
        )
        history.record_runs("one", [run])
        (found,) = _transfer_counts(history, history.runs("one"))
    assert (found.collective, found.independent) == (4, 7)
    assert found.printed == "Lawrence et al. 2017: 24 and 6"
