"""Names of cases: which are accepted, and what a wrong one is answered with."""

from __future__ import annotations

import pytest

from iowatch.benchmarks.case_names import names_of_run, near_misses, require_case_names
from iowatch.core import UsageError

RUNS = [f"benchio:api={api},pattern=disjoint,transfer=4k" for api in ("mpiio", "hdf5", "netcdf4", "pnetcdf")]


def test_a_case_is_named_with_its_benchmark_or_without() -> None:
    assert names_of_run("benchio:api=hdf5,file=shared#3-left") == {
        "benchio:api=hdf5,file=shared",
        "api=hdf5,file=shared",
    }
    assert names_of_run("mdtest") == {"mdtest"}
    require_case_names(["mdtest", RUNS[0], "api=hdf5,pattern=disjoint,transfer=4k"], [*RUNS, "mdtest"], owner="",
                       listing="")  # fmt: skip


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("hdf5", [RUNS[1]]),
        ("transfer=4k,api=hdf5", [RUNS[1]]),
        ("benchio:api=hdf", [RUNS[1]]),
        ("benchio:api=hdf6,pattern=disjoint,transfer=4k", [RUNS[1]]),
        ("api=", RUNS[:3]),
        ("ior:nonsense", []),
        ("", []),
    ],
)
def test_only_near_names_are_proposed(name: str, near: list[str]) -> None:
    """Near are those that contain all words of the name, then those that are spelled similarly; three at most."""
    assert near_misses(name, RUNS) == near
    with pytest.raises(UsageError, match="suite 'gate' has no case") as caught:
        require_case_names([name], RUNS, owner="suite 'gate'", listing="iowatch run --dry-run")
    assert "`iowatch run --dry-run` lists" in str(caught.value.hint)
    assert len(str(caught.value)) < 300
