"""The plan: runs per stack, unavailable cases with reasons, and the limits of the system."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import UsageError
from iowatch.session.plan import check_byte_budget, lacking_features, make_session_plan, require_runs
from iowatch.session.reframe import ReframePartition, ReframeSite
from iowatch.site.schedulers import PartitionLimits, partition_limits
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


@pytest.mark.parametrize(
    ("options", "lacking", "reason"),
    [
        ({"benchmark": "ior", "api": "hdf5"}, "ior-without-hdf5", "this ior has no HDF5 interface"),
        ({"benchmark": "ior", "api": "mpiio"}, "ior-without-mpiio", "this ior has no MPI-IO interface"),
        ({"benchmark": "mdtest"}, "ior-without-mdtest-posix", "this mdtest has no POSIX interface"),
        (
            {"benchmark": "benchio", "api": "netcdf4"},
            "benchio-without-netcdf",
            "this benchio has no netCDF-4 interface",
        ),
        (
            {"benchmark": "h5bench", "op": "write-read"},
            "h5bench-without-h5bench_read",
            "this h5bench has no program h5bench_read",
        ),
    ],
)
def test_case_that_the_build_of_its_program_lacks_is_unavailable(
    options: dict[str, str], lacking: str, reason: str
) -> None:
    """The stack has the library: Spack's and upstream's default build of IOR has no HDF5 all the same."""
    features = {"mpi", "hdf5", "netcdf4", "ior", "mdtest", "h5bench", lacking}
    site = replace(SITE, features={"gnu": frozenset(features), "mpich": frozenset(features - {lacking})})
    plan = make_session_plan(site, [build_suite_case(**options)])
    assert [(case.stack, case.reason) for case in plan.unavailable] == [("gnu", reason)]
    assert [run.stack for run in plan.runs] == ["mpich"]


def test_library_that_the_stack_does_not_have_is_the_reason() -> None:
    site = replace(SITE, features={"gnu": frozenset({"mpi", "ior", "ior-without-hdf5"}), "mpich": frozenset()})
    (unavailable, _) = make_session_plan(site, [build_suite_case(benchmark="ior", api="hdf5")]).unavailable
    assert unavailable.reason == "the stack does not provide hdf5"


def test_case_beyond_the_limits_is_unavailable() -> None:
    plan = make_session_plan(
        SITE, [case("posix"), case("posix", ranks=64, nodes=2)], ["gnu"], SystemLimits(nodes=1, ranks=16)
    )
    assert [run.name for run in plan.runs] == ["benchio:api=posix,ranks=4"]
    assert plan.unavailable[0].reason == "requires 2 nodes (limit 1), 64 ranks (limit 16)"


def test_feature_whose_probe_does_not_answer_stays_expected() -> None:
    """Nothing that is absent is green: in the first session, too."""
    silent = "`h5pcc -showconfig` did not answer within 20 s, twice"
    site = replace(
        SITE, features={"gnu": frozenset({"mpi"}), "mpich": frozenset()}, unanswered={"gnu": {"hdf5": silent}}
    )
    unknown, absent = make_session_plan(site, [case("hdf5")]).unavailable
    assert unknown.reason == f"it is not known whether the stack provides hdf5: {silent}"
    assert [result.operation for result in unknown.expected] == ["write", "read"]
    assert (absent.reason, absent.expected) == ("the stack does not provide hdf5, mpi", ())
    # What is certainly absent is not expected, whatever else is unknown.
    (certain, _) = make_session_plan(
        replace(site, features={"gnu": frozenset(), "mpich": frozenset()}), [case("hdf5")]
    ).unavailable
    assert (certain.reason, certain.expected) == ("the stack does not provide mpi", ())


def unequal_site() -> ReframeSite:
    """Two partitions, as `cluster.sh` of a real test cluster had them: one node of two cores, four nodes of four."""
    fat = ReframePartition("fat", "slurm", ("gnu",), None, limits=PartitionLimits(nodes=1, cores=2))
    compute = ReframePartition("compute", "slurm", ("gnu",), None, limits=PartitionLimits(nodes=4, cores=4))
    return ReframeSite("here", Path("reframe.py"), (fat, compute), {"gnu": frozenset({"mpi"})})


def test_case_that_does_not_fit_a_partition_is_unavailable_there() -> None:
    cases = [case("posix", ranks=2), case("posix", ranks=4), case("posix", ranks=4, nodes=2), case("posix", ranks=8)]
    plan = make_session_plan(unequal_site(), cases)
    assert [(run.partition, run.name, run.case.nodes) for run in plan.runs] == [
        ("fat", "benchio:api=posix,ranks=2", 1),
        ("compute", "benchio:api=posix,ranks=2", 1),
        ("compute", "benchio:api=posix,ranks=4", 1),
        ("compute", "benchio:api=posix,ranks=4", 2),
    ]
    assert [(item.partition, item.name, item.reason) for item in plan.unavailable] == [
        ("fat", "benchio:api=posix,ranks=4", "not available on fat (2 cores per node)"),
        ("fat", "benchio:api=posix,ranks=4", "not available on fat (1 node)"),
        ("fat", "benchio:api=posix,ranks=8", "not available on fat (2 cores per node)"),
        ("compute", "benchio:api=posix,ranks=8", "not available on compute (4 cores per node)"),
    ]
    assert plan.has_several_partitions
    assert not make_session_plan(SITE, cases).has_several_partitions


@pytest.mark.parametrize(
    ("scheduler", "nodes", "cores", "limits"),
    [
        ("slurm", 2, 4, PartitionLimits(2, 4)),
        ("pbspro", None, None, PartitionLimits()),
        # Without a scheduler an MPI starts more ranks than there are cores: the suite `smoke` on two cores.
        ("local", None, 2, PartitionLimits()),
    ],
)
def test_limits_of_a_partition(scheduler: str, nodes: int | None, cores: int | None, limits: PartitionLimits) -> None:
    assert partition_limits(scheduler, nodes, cores) == limits


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
