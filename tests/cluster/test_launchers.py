"""The same two cases with each launcher: mpirun and srun in jobs of Slurm, mpirun over ssh without a scheduler."""

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
summary: POSIX and MPI-IO on two nodes
reference: none
time_limit: 60
defaults: {op: both, file: shared, local: 16x16x16, repeat: 2}
matrix:
  - {api: [posix, mpiio], nodes: 2, ranks: 4}
"""
_WIDE = [{"name": "wide", "queue": "wide", "cores": 2, "time_limit": "5m"}]


@pytest.fixture(scope="module", autouse=True)
def suite(site: ClusterSite) -> None:
    (site.root / "benchmarks" / "benchio" / "suites" / "launchers.yaml").write_text(_SUITE)


def run_session(site: ClusterSite, system: str) -> tuple[list[str], set[tuple[str, ...]]]:
    """Run the cases with both MPIs; return the commands of the launcher, and the nodes of the runs."""
    done = site.iowatch("run", "--system", system, "--suite", "launchers", "--json", seconds=120)
    assert done.stdout, done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout)
    assert (verdict["failed"], verdict["missing"]) == ([], [])
    # Two cases with Open MPI and MPICH, which write and read; benchio itself reports the ranks that took part.
    assert (done.returncode, verdict["received"]) == (0, 8)
    with History.open(str(site.var / "iowatch.db")) as history:
        runs = history.runs(history.sessions(system)[0].uuid)
    launchers = {run.facts.reframe["launcher"] for run in runs}
    return sorted(launchers), {tuple(run.facts.nodes) for run in runs}


def test_mpirun_in_a_job(site: ClusterSite) -> None:
    site.add_system("by-mpirun", PARTITIONS=_WIDE)
    assert run_session(site, "by-mpirun") == (["mpirun -np 4"], {("n1", "n2")})


def test_srun_with_the_interface_of_each_mpi(site: ClusterSite) -> None:
    """PMIx for Debian's Open MPI, which has no PMI2; PMI2 for its MPICH, which has no PMIx."""
    listed = site.box.run(LOGIN, "srun", "--mpi=list")
    assert {"pmix", "pmi2"} <= set((listed.stdout + listed.stderr).split())
    site.add_system("by-srun", PARTITIONS=_WIDE, LAUNCHER=None, MPI_TYPES={"openmpi": "pmix", "mpich": "pmi2"})
    assert run_session(site, "by-srun") == (["srun"], {("n1", "n2")})


@pytest.mark.skipif(ssh.find_sshd() is None, reason="needs sshd (Debian: openssh-server)")
def test_mpirun_over_ssh_without_a_scheduler(site: ClusterSite) -> None:
    client = str(ssh.start_ssh(site.box))
    local = [{"name": "default", "queue": None, "cores": None, "time_limit": "5m"}]
    site.add_system("by-ssh", SCHEDULER="local", PARTITIONS=local, LAUNCHER=None, HOSTS=["n3", "n4"])
    # As ~/.ssh/config for a person.
    variables = {"OMPI_MCA_plm_rsh_agent": client, "HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": client}
    site.box.environment.update(variables)
    try:
        launchers, nodes = run_session(site, "by-ssh")
    finally:
        for name in variables:
            del site.box.environment[name]
    assert nodes == {("n3", "n4")}
    assert [launcher.partition(" bash ")[0] for launcher in launchers] == ["mpirun -np 4 -machinefile hosts"]
