"""Sessions whose nodes or jobs fail: a node without power, a drained node, a requeued job; sessions within a job."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from iowatch.core import Result
from iowatch.store import History, RunRow
from tests.cluster import gluster, slurm
from tests.cluster.machines import LOGIN, Box, wait_until
from tests.cluster.site import ClusterSite

pytestmark = pytest.mark.slow

# The long case runs until something ends it: 20,000 repetitions take an hour here.
_SUITE = """
format: 1
summary: A long case on all nodes, and short ones
reference: none
time_limit: 240
defaults: {op: write, api: posix, file: shared, local: 16x16x16, repeat: 3}
matrix:
  - {nodes: 4, ranks: 8, repeat: 20000}
  - {nodes: 4, ranks: 8}
  - {nodes: 2, ranks: 4}
"""
_LONG, _FOUR_NODES, _TWO_NODES = "repeat=20000,nodes=4,ranks=8", "repeat=3,nodes=4,ranks=8", "repeat=3,nodes=2,ranks=4"


@pytest.fixture(scope="module", autouse=True)
def suite(site: ClusterSite) -> None:
    (site.root / "benchmarks" / "benchio" / "suites" / "faults.yaml").write_text(_SUITE)


def run_command(*cases: str, system: str = "box") -> list[str]:
    """The command of a session of some cases."""
    words = ["run", "--system", system, "--suite", "faults", "--stack", "system-openmpi", "--json"]
    for case in cases:
        words += ["--case", case]
    return words


@contextmanager
def started(site: ClusterSite, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command of iowatch on the login node, which is ended with the block at the latest."""
    command = ["env", f"--chdir={site.root}", sys.executable, "-m", "iowatch", *words]
    process = subprocess.Popen(
        site.box.command(LOGIN, *command),
        env={**os.environ, **site.box.environment, **site.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            # nsenter, which is `process`, does not hand signals over.
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                os.kill(int(child), signal.SIGTERM)
        process.communicate(timeout=60)


def verdict_of(process: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    """The verdict of a session that must end within some seconds."""
    stdout, stderr = process.communicate(timeout=seconds)
    assert stdout, stderr
    verdict: dict[str, Any] = json.loads(stdout)
    assert verdict["exit_code"] == process.returncode
    return verdict


def reasons(verdict: dict[str, Any]) -> dict[str, str]:
    """Why runs failed or are missing, by run; the name of the benchmark is left out."""
    problems = [*verdict["failed"], *verdict["missing"]]
    return {problem["run"].partition(":")[2]: problem["reason"] for problem in problems}


def last_run(site: ClusterSite, system: str) -> tuple[RunRow, list[Result]]:
    """The newest run of a system, with its results."""
    with History.open(str(site.var / "iowatch.db")) as history:
        session = history.sessions(system)[0]
        (run,) = history.runs(session.uuid)
        return run, [result for _, result in history.run_results(run.id)]


def query(box: Box, *words: str) -> str:
    return box.run(LOGIN, *words).stdout.strip()


def running_job(box: Box, nodes: str) -> str:
    """The number of the job that runs on these nodes; empty if there is none."""
    for line in query(box, "squeue", "--noheader", "--states=RUNNING", "--format=%i %N").splitlines():
        job, _, job_nodes = line.partition(" ")
        if job_nodes == nodes:
            return job
    return ""


def rank_count(box: Box, node: str) -> int:
    """How many ranks of benchio are on a node."""
    done = box.run(node, "pgrep", "--count", "--exact", "benchio", may_fail=True)
    return int(done.stdout or 0)


@contextmanager
def without_power(box: Box, node: str) -> Iterator[None]:
    """A node loses its power; after the block it boots, mounts the file system, and runs jobs again."""
    box.machines[node].stop()
    try:
        yield
    finally:
        box.add(node)
        gluster.mount(box, node)
        slurm.rejoin_node(box, node)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        # mpirun runs on the first node of the job: it loses the connection to the others before Slurm does.
        pytest.param("n4", r"the node does not respond: ' *Remote daemon: [^']* on node n4'", id="other-node"),
        # With the first node the job's script is gone, and only Slurm can say why.
        pytest.param("n1", r"state NODE_FAIL, .*nodes n\[1-4\], failed node n1", id="first-node"),
    ],
)
def test_node_without_power(site: ClusterSite, node: str, reason: str) -> None:
    box = site.box
    with started(site, *run_command(_LONG, _FOUR_NODES)) as process:
        wait_until(lambda: running_job(box, "n[1-4]"), 60, "job on four nodes")
        wait_until(lambda: rank_count(box, node), 30, f"benchio on {node}")
        with without_power(box, node):
            verdict = verdict_of(process, 150)
    assert (verdict["status"], verdict["exit_code"], verdict["received"]) == ("incomplete", 1, 0)
    texts = reasons(verdict)
    assert set(texts) == {_LONG, _FOUR_NODES}
    assert_matches(reason, texts[_LONG])
    # The next case needs the node, too.
    assert_matches(rf"blocked due to reason: ReqNodeNotAvail, UnavailableNodes:{node}", texts[_FOUR_NODES])
    # The session after it is in order, and nothing of the first is left.
    with started(site, *run_command(_FOUR_NODES)) as process:
        verdict = verdict_of(process, 90)
    assert (verdict["exit_code"], verdict["received"], reasons(verdict)) == (0, 1, {})


def assert_matches(pattern: str, text: str) -> None:
    assert re.search(pattern, text), text


def test_case_that_needs_a_drained_node_is_not_waited_for(site: ClusterSite) -> None:
    """While other jobs run Slurm says `Resources`; when it says what is wrong, the others have been measured."""
    box = site.box
    query(box, "scontrol", "update", "nodename=n4", "state=drain", "reason=disk")
    try:
        other = query(box, "sbatch", "--parsable", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=sleep 10")
        with started(site, *run_command(_FOUR_NODES, _TWO_NODES)) as process:
            verdict = verdict_of(process, 90)
    finally:
        query(box, "scancel", other)
        query(box, "scontrol", "update", "nodename=n4", "state=resume")
    # The case on two nodes is measured on both partitions.
    assert (verdict["status"], verdict["exit_code"], verdict["received"]) == ("incomplete", 1, 2)
    ((run, text),) = reasons(verdict).items()
    assert run == _FOUR_NODES
    assert_matches("ReqNodeNotAvail, UnavailableNodes:n4", text)


@pytest.fixture(scope="module")
def requeueing(site: ClusterSite) -> str:
    """The same system with jobs that Slurm may start again."""
    site.add_system("requeueing", ACCESS=["--requeue"])
    return "requeueing"


def test_requeued_job_has_only_the_results_of_its_last_start(site: ClusterSite, requeueing: str) -> None:
    box = site.box
    with started(site, *run_command(_FOUR_NODES, system=requeueing)) as process:
        wait_until(lambda: running_job(box, "n[1-4]"), 60, "job on four nodes")
        job = running_job(box, "n[1-4]")
        query(box, "scontrol", "requeue", job)
        wait_until(lambda: not running_job(box, "n[1-4]"), 30, "requeue")
        # Slurm would start it again after two minutes.
        wait_until(lambda: "JobState=PENDING" in query(box, "scontrol", "show", "job", job), 30, "job in the queue")
        query(box, "scontrol", "update", f"jobid={job}", "starttime=now")
        verdict = verdict_of(process, 120)
    assert (verdict["exit_code"], verdict["received"], reasons(verdict)) == (0, 1, {})
    run, (result,) = last_run(site, requeueing)
    assert len(result.samples) == 3
    # Accounting has what ended the first start.
    assert run.facts.machine["requeued"].startswith("1, after ")


def test_session_in_a_task_of_an_array(site: ClusterSite) -> None:
    """Its jobs are jobs of their own; what needs the node of the task would wait for the end of the session."""
    output = {name: site.root / f"array.{name}" for name in ("out", "err", "rc")}
    variables = [f"export {name}={shlex.quote(value)}" for name, value in site.environment.items()]
    command = shlex.join([sys.executable, "-m", "iowatch", *run_command(_TWO_NODES)])
    # A task that Slurm started again after a failed node.
    script = ["#!/bin/bash", f"cd {site.root}", *variables, "export SLURM_RESTART_COUNT=3"]
    script += [f"{command} > {output['out']} 2> {output['err']}", f"echo $? > {output['rc']}"]
    path = site.root / "array.sh"
    path.write_text("\n".join(script) + "\n")
    resources = ["--partition=small", "--nodelist=n2", "--ntasks-per-node=1", "--cpus-per-task=2", "--mem-per-cpu=100"]
    query(site.box, "sbatch", "--array=7", *resources, "--output=/dev/null", str(path))
    wait_until(output["rc"].exists, 120, "the session of the task")
    verdict = json.loads(output["out"].read_text())
    assert (verdict["exit_code"], verdict["received"]) == (1, 1), output["err"].read_text()
    ((run, reason),) = reasons(verdict).items()
    assert run == _TWO_NODES
    assert_matches(r"the job of this session \(\d+\) has n2, which leaves 1 node of small", reason)
    # The other one ran on two other nodes of the larger partition, with two ranks on each, in its first start.
    measured, (result,) = last_run(site, "box")
    assert len(measured.facts.nodes) == 2
    assert "n2" not in measured.facts.nodes
    assert result.case["ranks"] == 4
    assert "requeued" not in measured.facts.machine


def test_runs_of_a_comparison_are_on_the_nodes_of_their_allocation(site: ClusterSite) -> None:
    """The job's shell is on the login node."""
    words = ["run", "--system", "box", "--suite", "faults", "--case", _TWO_NODES, "--json"]
    words += ["--ab", "system-openmpi", "system-openmpi", "--pairs", "2"]
    allocation = ["salloc", "--quiet", "--partition=wide", "--ntasks=4", "--ntasks-per-node=2", "--nodelist=n3,n4"]
    done = site.box.run(
        LOGIN,
        *[*allocation, sys.executable, "-m", "iowatch", *words],
        seconds=200,
        environment=site.environment,
        directory=site.root,
        may_fail=True,
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)["measured"]
    assert measured["left"]["nodes"] == measured["right"]["nodes"] == ["n3", "n4"]
