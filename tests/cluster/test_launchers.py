"""Launchers besides mpirun in jobs of Slurm, which the other tests use: srun, and mpirun over ssh without a scheduler.

MPICH is on one node only: its UCX takes all machines of a box for one host and tries its shared memory, and with
UCX_TLS=tcp,self one run in twelve did not come back from MPI_Finalize.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from iowatch.store import History
from tests.cluster import ssh
from tests.cluster.machines import LOGIN
from tests.cluster.site import ClusterSite

pytestmark = pytest.mark.slow

_SUITE = """
format: 1
summary: MPI-IO on one and two nodes
reference: none
time_limit: 60
defaults: {op: both, file: shared, local: 16x16x16, repeat: 2}
matrix:
  - {api: mpiio, nodes: 1, ranks: 2}
  - {api: mpiio, nodes: 2, ranks: 4}
"""
_WIDE = [{"name": "wide", "queue": "wide", "cores": 2, "time_limit": "5m"}]


@pytest.fixture(scope="module", autouse=True)
def suite(site: ClusterSite) -> None:
    (site.root / "benchmarks" / "benchio" / "suites" / "launchers.yaml").write_text(_SUITE)


def run_case(site: ClusterSite, system: str, stack: str, nodes: int) -> tuple[str, tuple[str, ...]]:
    """Run the case with a stack on so many nodes; return the command of the launcher, and the nodes."""
    words = ["--suite", "launchers", "--stack", stack, "--case", f"nodes={nodes},ranks={2 * nodes}", "--json"]
    done = site.iowatch("run", "--system", system, *words, seconds=120)
    assert done.stdout, done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout)
    assert (verdict["failed"], verdict["missing"]) == ([], [])
    # The run writes and reads; benchio itself reports the ranks that took part.
    assert (done.returncode, verdict["received"]) == (0, 2)
    with History.open(str(site.var / "iowatch.db")) as history:
        (run,) = history.runs(history.sessions(system)[0].uuid)
    return run.facts.reframe["launcher"], run.facts.nodes


def test_srun_with_the_interface_of_each_mpi(site: ClusterSite) -> None:
    """PMIx for Debian's Open MPI, which has no PMI2; PMI2 for its MPICH, which has no PMIx."""
    listed = site.box.run(LOGIN, "srun", "--mpi=list")
    assert {"pmix", "pmi2"} <= set((listed.stdout + listed.stderr).split())
    site.add_system("by-srun", PARTITIONS=_WIDE, LAUNCHER=None, MPI_TYPES={"openmpi": "pmix", "mpich": "pmi2"})
    assert run_case(site, "by-srun", "system-openmpi", 2) == ("srun", ("n1", "n2"))
    assert run_case(site, "by-srun", "system-mpich", 1) == ("srun", ("n1",))


@pytest.mark.skipif(ssh.find_sshd() is None, reason="needs sshd (Debian: openssh-server)")
def test_mpirun_over_ssh_without_a_scheduler(site: ClusterSite) -> None:
    client = str(ssh.start_ssh(site.box))
    local = [{"name": "default", "queue": None, "cores": None, "time_limit": "5m"}]
    site.add_system("by-ssh", SCHEDULER="local", PARTITIONS=local, LAUNCHER=None, HOSTS=["n3", "n4"])
    # As ~/.ssh/config for a person.
    site.box.environment["OMPI_MCA_plm_rsh_agent"] = client
    try:
        launcher, nodes = run_case(site, "by-ssh", "system-openmpi", 2)
    finally:
        del site.box.environment["OMPI_MCA_plm_rsh_agent"]
    assert nodes == ("n3", "n4")
    assert launcher.startswith("mpirun -np 4 -machinefile hosts bash ")
