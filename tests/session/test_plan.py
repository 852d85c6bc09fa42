"""The plan: runs per stack, unavailable cases with reasons, and the limits of the system."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import UsageError
from iowatch.session.plan import check_byte_budget, lacking_features, make_session_plan, require_runs
from iowatch.session.reframe import ReframePartition, ReframeSite
from iowatch.site.system import SystemLimits
from tests.builders import build_suite_case

SITE = ReframeSite(
    "here",
    Path("reframe.py"),
    (ReframePartition("work", "slurm", ("gnu", "mpich"), None),),
    {"gnu": frozenset({"mpi", "hdf5"}), "mpich": frozenset({"mpi"})},
)


def case(api: str, ranks: int = 4, nodes: int = 1) -> SuiteCase:
    return build_suite_case(
        f"api={api},ranks={ranks}", api=api, op="both", local="8x8x8", ranks=ranks, nodes=nodes, repeat=2
    )


def test_case_runs_on_every_stack_that_has_its_libraries() -> None:
    plan = make_session_plan(SITE, [case("posix"), case("hdf5")])
    assert [(run.stack, run.name) for run in plan.runs] == [
        ("gnu", "benchio:api=posix,ranks=4"),
        ("gnu", "benchio:api=hdf5,ranks=4"),
        ("mpich", "benchio:api=posix,ranks=4"),
    ]
    unavailable = [(item.stack, item.reason) for item in plan.unavailable]
    assert unavailable == [("mpich", "the stack does not provide hdf5")]
    assert lacking_features(SITE, plan) == frozenset()  # the other stack has it
    assert lacking_features(SITE, make_session_plan(SITE, [case("hdf5"), case("netcdf4")])) == {"netcdf4"}
    assert [(item.operation, item.metric) for item in plan.expected()][:2] == [
        ("write", "bandwidth"),
        ("read", "bandwidth"),
    ]
    # 8^3 doubles on 4 ranks: 16 KiB each; written and read twice on two stacks by POSIX, on one by HDF5.
    assert plan.file_bytes == 16 * 1024
    assert plan.volume_bytes == 3 * 4 * 16 * 1024


def test_case_beyond_the_limits_is_unavailable() -> None:
    plan = make_session_plan(
        SITE, [case("posix"), case("posix", ranks=64, nodes=2)], ["gnu"], SystemLimits(nodes=1, ranks=16)
    )
    assert [run.name for run in plan.runs] == ["benchio:api=posix,ranks=4"]
    assert plan.unavailable[0].reason == "requires 2 nodes (limit 1), 64 ranks (limit 16)"


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (SystemLimits(files=4), "requires 5 files (limit 4)"),  # one per rank, and their directory
        (SystemLimits(minutes=1), "requires 2 minutes (limit 1)"),
        (SystemLimits(files=5, minutes=2), ""),
    ],
)
def test_files_and_minutes_of_one_case_are_limited(limits: SystemLimits, reason: str) -> None:
    long = build_suite_case("long", time_limit_s=61, api="posix", file="per-process", op="write", ranks=4)
    plan = make_session_plan(SITE, [case("posix"), long], ["gnu"], limits)
    assert [item.reason for item in plan.unavailable] == ([reason] if reason else [])


def test_suite_beyond_the_byte_budget_is_refused() -> None:
    with pytest.raises(UsageError, match="byte budget"):
        check_byte_budget(SITE, make_session_plan(SITE, [case("posix")], ["gnu"]), SystemLimits(total_bytes=1024))


def test_unknown_stack_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="Did you mean 'gnu'"):
        make_session_plan(SITE, [case("posix")], ["gn"])


@pytest.mark.parametrize("stacks", [["gnu", "mpic"], ["mpic", "gnu"]])
def test_misspelt_stack_beside_a_known_one_is_refused(stacks: list[str]) -> None:
    """Ignored, its results would be missing and nobody would notice."""
    with pytest.raises(UsageError, match="mpic") as refused:
        make_session_plan(SITE, [case("posix")], stacks)
    assert "Did you mean 'mpich'?" in str(refused.value)


def test_suite_without_runnable_case_is_an_error() -> None:
    """A session without runs must not succeed (ReFrame exits with 0 after 'Ran 0/0')."""
    with pytest.raises(UsageError, match="hdf5"):
        require_runs(SITE, make_session_plan(SITE, [case("hdf5")], ["mpich"]))
