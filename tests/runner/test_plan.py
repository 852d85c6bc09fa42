"""The plan: what runs where, what is not available and why, within the system's limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch.errors import UsageError
from iowatch.runner.plan import make_plan, refuse_beyond_budget
from iowatch.runner.site import Partition, Site
from iowatch.suites import SuiteCase
from iowatch.systems.model import Limits

SITE = Site(
    "here",
    Path("reframe.py"),
    (Partition("work", "slurm", ("gnu", "mpich"), None),),
    {"gnu": frozenset({"mpi", "hdf5"}), "mpich": frozenset({"mpi"})},
)


def case(api: str, ranks: int = 4, nodes: int = 1) -> SuiteCase:
    options = {"api": api, "op": "both", "local": "8x8x8", "ranks": ranks, "nodes": nodes, "repeat": 2}
    return SuiteCase("smoke", "benchio", f"api={api},ranks={ranks}", options, "optional", 60)


def test_a_case_runs_on_every_stack_that_has_its_libraries() -> None:
    plan = make_plan(SITE, [case("posix"), case("hdf5")])
    assert [(run.stack, run.name) for run in plan.runs] == [
        ("gnu", "benchio:api=posix,ranks=4"),
        ("gnu", "benchio:api=hdf5,ranks=4"),
        ("mpich", "benchio:api=posix,ranks=4"),
    ]
    assert [(item.stack, item.missing) for item in plan.unavailable] == [("mpich", ("hdf5",))]
    assert [(item.operation, item.metric) for item in plan.expected()][:2] == [
        ("write", "bandwidth"),
        ("read", "bandwidth"),
    ]
    # 8^3 doubles on 4 ranks: 16 KiB at a time; written and read twice on two stacks by POSIX, on one by HDF5.
    assert plan.file_bytes == 16 * 1024
    assert plan.volume_bytes == 3 * 4 * 16 * 1024


def test_a_case_beyond_the_limits_is_not_available() -> None:
    plan = make_plan(
        SITE, [case("posix"), case("posix", ranks=64, nodes=2)], ["gnu"], Limits(nodes=1, ranks=16)
    )
    assert [run.name for run in plan.runs] == ["benchio:api=posix,ranks=4"]
    assert plan.unavailable[0].beyond == ("2 nodes (limit 1)", "64 ranks (limit 16)")
    assert plan.unavailable[0].reason == "needs 2 nodes (limit 1), 64 ranks (limit 16)"


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (Limits(files=4), ("5 files (limit 4)",)),  # one a rank, and their directory
        (Limits(minutes=1), ("2 minutes (limit 1)",)),
        (Limits(files=5, minutes=2), ()),
    ],
)
def test_files_and_minutes_of_one_case_are_limited(limits: Limits, told: tuple[str, ...]) -> None:
    options = {"api": "posix", "file": "per-process", "op": "write", "ranks": 4}
    long = SuiteCase("smoke", "benchio", "long", options, "optional", 61)
    plan = make_plan(SITE, [case("posix"), long], ["gnu"], limits)
    assert [item.beyond for item in plan.unavailable] == ([told] if told else [])


def test_a_suite_beyond_the_byte_budget_is_refused() -> None:
    with pytest.raises(UsageError, match="byte budget"):
        refuse_beyond_budget(SITE, make_plan(SITE, [case("posix")], ["gnu"]), Limits(total_bytes=1024))


def test_an_unknown_stack_is_told_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="Did you mean 'gnu'"):
        make_plan(SITE, [case("posix")], ["gn"])


def test_a_suite_that_cannot_run_at_all_is_an_error() -> None:
    """Zero runs must not be a green night (ReFrame exits 0 after 'Ran 0/0')."""
    with pytest.raises(UsageError, match="hdf5"):
        make_plan(SITE, [case("hdf5")], ["mpich"])
