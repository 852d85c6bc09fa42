"""A/B runs in one allocation: its detection, the placement of cases, the nodes in the record."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from iowatch.checks.starts import on_every_node
from iowatch.comparison import ComparisonOptions, compare_sides, parse_side
from iowatch.core import MachineError, UsageError
from iowatch.output.comparison import comparison_document, provenance_lines
from iowatch.session import placement as placement_module
from iowatch.session.ab_run import place_in_allocation, salloc_command
from iowatch.session.reframe import ReframePartition, ReframeSite
from iowatch.site import schedulers
from iowatch.site.schedulers import Allocation, current_allocation
from iowatch.site.system import SystemLimits
from iowatch.statistics.interleaving import StopRule
from iowatch.store import History
from tests.builders import build_checked_run, build_planned_run, build_suite_case
from tests.comparison.known_ratios import record

ALLOCATION = Allocation("Slurm", "42", "standard", ("n3", "n4", "n7"))


@pytest.fixture(autouse=True)
def remove_job_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables of a job that may run these tests."""
    for name in list(os.environ):
        if name.startswith(("SLURM_", "PBS_", "LSB_")):
            monkeypatch.delenv(name)


def site(*partitions: ReframePartition) -> ReframeSite:
    return ReframeSite("big", Path("/systems/big/reframe.py"), partitions, {})


def partition(name: str, scheduler: str = "slurm", *access: str) -> ReframePartition:
    return ReframePartition(name, scheduler, ("old", "new"), None, access)


# The allocation


def test_no_allocation_outside_of_a_job() -> None:
    assert current_allocation() is None


def test_slurm_nodes_are_those_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def scontrol(*words: str) -> str:
        asked.append(words)
        return "n3\nn4\nn7\n"

    monkeypatch.setattr(schedulers, "query_command", scontrol)
    facts = {"SLURM_JOB_ID": "42", "SLURM_JOB_PARTITION": "standard", "SLURM_JOB_NODELIST": "n[3-4,7]"}
    for name, value in facts.items():
        monkeypatch.setenv(name, value)
    assert current_allocation() == ALLOCATION
    assert asked == [("scontrol", "show", "hostnames", "n[3-4,7]")]


def test_pbs_and_lsf_list_a_node_once_per_core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("b\nb\na\na\n")
    monkeypatch.setenv("PBS_JOBID", "7.head")
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "nodes"))
    assert current_allocation() == Allocation("PBS", "7.head", None, ("b", "a"))
    monkeypatch.delenv("PBS_JOBID")
    monkeypatch.setenv("LSB_JOBID", "8")
    monkeypatch.setenv("LSB_HOSTS", "c c d d")
    assert current_allocation() == Allocation("LSF", "8", None, ("c", "d"))


def test_job_without_node_list_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PBS_JOBID", "7.head")
    with pytest.raises(MachineError, match="does not report the nodes of its job 7"):
        current_allocation()


# The site in the allocation


def test_partition_of_the_queue_gets_the_local_scheduler() -> None:
    parts = partition("a", "slurm", "--partition=short"), partition("b", "slurm", "-p standard", "--exclusive")
    placement = place_in_allocation(site(*parts), ALLOCATION)
    assert placement.site.partitions == (replace(parts[1], scheduler="local"),)
    assert placement.queued == ()
    assert placement.limits(SystemLimits(nodes=8)).nodes == 3
    assert placement.limits(SystemLimits(nodes=2)).nodes == 2


def test_partition_without_queue_matches_any_allocation() -> None:
    assert place_in_allocation(site(partition("a")), ALLOCATION).allocation == ALLOCATION


def test_local_partitions_are_unchanged_in_an_allocation() -> None:
    placement = place_in_allocation(site(partition("a", "local")), ALLOCATION)
    assert placement.allocation is None
    assert placement.environment() == {}


def test_allocation_of_another_queue_is_refused() -> None:
    with pytest.raises(UsageError, match="queue 'standard', which no partition of 'big'"):
        place_in_allocation(site(partition("a", "slurm", "--partition=short")), ALLOCATION)
    with pytest.raises(UsageError, match="several partitions"):
        place_in_allocation(site(partition("a"), partition("b")), ALLOCATION)


def test_salloc_requests_the_size_of_the_largest_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement_module.shutil, "which", lambda _: "/usr/bin/salloc")
    sizes = [(2, 2), (8, 4), (6, 1)]
    cases = [build_suite_case(ranks=ranks, nodes=nodes) for ranks, nodes in sizes]
    runs = [build_planned_run(case, partition="a", stack="old") for case in cases]
    site_ = site(
        partition("a", "slurm", "--no-requeue", "--partition=standard", "--exclusive"), partition("b", "slurm")
    )
    words = salloc_command(site_, runs, StopRule(budget_s=3600))
    assert words is not None
    assert words[2:] == [
        "--partition=standard", "--exclusive", "--nodes=4", "--ntasks-per-node=6", "--time=70"
    ]  # fmt: skip
    assert salloc_command(site_, [*runs, replace(runs[0], partition="b")], StopRule(pairs=1)) is None
    assert salloc_command(site(partition("a", "pbspro")), runs, StopRule(pairs=1)) is None


# The launchers


@dataclass(frozen=True)
class ReframeJob:
    """What launchers use of a job of ReFrame, whose class needs a scheduler: a stand-in for that program."""

    num_tasks: int
    num_tasks_per_node: int
    workdir: str
    launcher: object = None
    nodelist: tuple[str, ...] = ()


def test_every_case_gets_the_first_nodes_of_the_allocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from iowatch.site.reframe_config import MpirunInAllocation, SrunInAllocation

    monkeypatch.setenv("IOWATCH_NODES", "n3,n4,n7")
    asked = ReframeJob(5, 3, str(tmp_path))
    assert SrunInAllocation().command(asked) == [
        "srun", "--ntasks=5", "--nodes=2", "--ntasks-per-node=3", "--nodelist=n3,n4"
    ]  # fmt: skip
    words = MpirunInAllocation().command(asked)
    assert words == ["mpirun", "-np", "5", "-machinefile", str(tmp_path / "hosts")]
    assert (tmp_path / "hosts").read_text().split() == ["n3", "n3", "n3", "n4", "n4"]


def test_nodes_of_a_case_are_those_of_its_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ReFrame only knows the host of the job's shell, which `salloc` leaves on the login node."""
    from iowatch.checks.base import nodes_of_job
    from iowatch.site.reframe_config import MpirunInAllocation, SrunInAllocation

    monkeypatch.setenv("IOWATCH_NODES", "n3,n4,n7")
    for launcher in (MpirunInAllocation(), SrunInAllocation()):
        job = ReframeJob(3, 2, str(tmp_path), launcher, nodelist=("login",))
        assert nodes_of_job(job, "local") == ["n3", "n4"]


def test_page_caches_are_dropped_on_the_nodes_of_the_case() -> None:
    """`salloc` leaves the job's shell on the login node, whose page cache does not contain the file."""

    def before(in_allocation: bool, nodes: int) -> list[str]:
        run = build_checked_run(options={"nodes": nodes}, launcher="srun", places_tasks=in_allocation)
        return on_every_node(run, "drop 'a b'")

    everywhere = ["srun sh -c 'drop '\"'\"'a b'\"'\"'' >> prepare.out 2>> prepare.err"]
    assert before(True, 1) == before(True, 2) == before(False, 2) == everywhere
    assert before(False, 1) == ["drop 'a b'"]


def test_reframe_configuration_in_an_allocation(tmp_path: Path) -> None:
    from iowatch.site.reframe_config import allocation_configuration

    path = tmp_path / "reframe.py"
    path.write_text(
        "site_configuration = {'systems': [{'name': 'other'}, {'name': 'big', 'modules_system': 'lmod',"
        " 'partitions': [{'name': 'a', 'launcher': 'aprun'}, {'name': 'b', 'scheduler': 'slurm',"
        " 'launcher': 'srun', 'access': ['--exclusive'], 'environs': ['old'], 'time_limit': '60m'}]}],"
        " 'environments': [{'name': 'old'}]}"
    )
    found = allocation_configuration(str(path), "big", "b")
    (system,) = found["systems"]
    assert (system["modules_system"], system["max_local_jobs"]) == ("lmod", 1)
    assert system["partitions"] == [
        {"name": "b", "scheduler": "local", "launcher": "srun-within", "environs": ["old"], "max_jobs": 1,
         "time_limit": "60m"}
    ]  # fmt: skip
    assert found["environments"] == [{"name": "old"}]
    assert allocation_configuration(str(path), "big", "a")["systems"][0]["partitions"][0]["launcher"] == "aprun"


# Nodes in the comparison


def pairs_on(history: History, nodes: dict[str, list[list[str]]]) -> tuple[dict[str, object], str]:
    """An A/B run whose executions used `nodes` of each side."""
    for side, turns in nodes.items():
        for pair, used in enumerate(turns, 1):
            facts = {"pair": pair, "side": side, "nodes": used}
            suffix = f"#{pair}{side}"
            record(history, "ab_run", {2: (100.0 + pair,)}, stack=side, facts=facts, suffix=suffix)  # type: ignore[arg-type]
    sides = [parse_side(f"session:ab_run,side={side}") for side in ("left", "right")]
    outcome = compare_sides(sides[0], sides[1], lambda: history, ComparisonOptions())
    message = [line for line in provenance_lines(outcome) if line.startswith("Nodes: ")]
    return comparison_document(outcome)["measured"], "\n".join(message)


def test_different_nodes_of_the_sides_are_reported(history: History) -> None:
    document, message = pairs_on(
        history, {"left": [["n1", "n2"]] * 3, "right": [["n1", "n2"], ["n2", "n3"], ["n2", "n1"]]}
    )
    assert message == "Nodes: 1 of 3 runs had other nodes than their counterparts."
    assert document["on_other_nodes"] == {"runs": 1, "of": 3}
    assert document["right"]["nodes"] == ["n1", "n2", "n3"]  # type: ignore[index]


def test_same_nodes_of_all_runs_are_reported(history: History) -> None:
    _, message = pairs_on(history, {"left": [["n1", "n2"]] * 3, "right": [["n1", "n2"]] * 3})
    assert message == "Nodes: n[1-2] on both sides, the same for every pair of runs."


def test_unknown_nodes_are_not_reported(history: History) -> None:
    document, message = pairs_on(history, {"left": [[]] * 3, "right": [["n1"]] * 3})
    assert message == ""
    assert document["on_other_nodes"] is None
