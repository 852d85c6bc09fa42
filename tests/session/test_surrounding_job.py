"""A session within a job of Slurm: its runs get nodes that the job does not have, or are lost with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch.session.plan import SessionPlan
from iowatch.session.reframe import ReframePartition, ReframeSite
from iowatch.session.surrounding_job import runs_that_wait_for_this_job
from iowatch.site import schedulers
from tests.builders import build_planned_run, build_suite_case

ANSWERS = {
    "scontrol": "n2\n",
    "--partition=small": "small n1 idle 0/2/0/2 (null)\nsmall n2 alloc 2/0/0/2 (null)\n",
    "--partition=login": "login l1 idle 0/2/0/2 (null)\n",
}


def query_slurm(*words: str, timeout_s: float = 10) -> str:
    """Answers of Slurm: the partition has n1 and n2, the job of this process has n2."""
    return ANSWERS["scontrol" if words[0] == "scontrol" else words[-1]]


@pytest.fixture(autouse=True)
def in_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_JOB_ID": "8", "SLURM_JOB_NODELIST": "n2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(schedulers, "query_command", query_slurm)


def reasons_on(queue: str, *access: str) -> dict[int, str]:
    """Why runs on one and on two nodes are lost, by their number of nodes."""
    partition = ReframePartition("work", "slurm", ("gnu",), None, (f"--partition={queue}", *access))
    runs = [
        build_planned_run(build_suite_case(f"nodes={nodes}", nodes=nodes, ranks=2), partition="work")
        for nodes in (1, 2)
    ]
    reasons = runs_that_wait_for_this_job(ReframeSite("big", Path("reframe.py"), (partition,), {}), runs)
    plan = SessionPlan(tuple(runs), ()).without_runs(reasons)
    assert len(plan.runs) + len(plan.lost) == 2
    return {run.case.nodes: reasons[run.key] for run in runs if run.key in reasons}


def test_run_that_needs_a_node_of_this_job_is_lost() -> None:
    """It would wait until this job ends, which waits for it."""
    reason = "the job of this session (8) has n2, which leaves 1 node of work: start iowatch outside of it"
    assert reasons_on("small", "--exclusive") == {2: reason}


def test_other_runs_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reasons_on("small") == {}  # they share the nodes of this job
    assert reasons_on("login", "--exclusive") == {}  # this job is in another partition
    monkeypatch.delenv("SLURM_JOB_ID")
    assert reasons_on("small", "--exclusive") == {}
