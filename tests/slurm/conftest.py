"""A real Slurm on this machine for these tests: systems/slurm-local, with a separate `var/` and separate ports."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT

_PROGRAMS = ("munged", "slurmctld", "slurmd", "mpicc")


@dataclass(frozen=True)
class Cluster:
    """A running cluster. `hang`: a job that starts while this file exists waits until the file is removed.

    Attributes:
        node: its name, or those of all nodes.
    """

    var: Path
    hang: Path
    node: str
    environment: dict[str, str]

    def query(self, *words: str) -> str:
        """Output of a command of Slurm."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def jobs(self, state: str) -> list[str]:
        """Numbers of the jobs in a state that ReFrame submitted."""
        listed = self.query("squeue", "--noheader", "--format=%i|%j", f"--states={state}").splitlines()
        return [line.split("|")[0] for line in listed if line.split("|")[1].startswith("rfm_")]

    def ended(self) -> list[dict[str, str]]:
        """Records of ReFrame's jobs that ended, in the order of their numbers (jobcomp/filetxt)."""
        path = self.var / "slurm-local" / "jobs.log"
        lines = path.read_text().splitlines() if path.exists() else []
        records = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]
        return sorted((r for r in records if r["Name"].startswith("rfm_")), key=lambda r: int(r["JobId"]))


def wait_until(condition: Callable[[], object], seconds: float) -> None:
    """Wait for a condition of another process, with a timeout."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def one_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Workers of pytest-xdist take turns: their clusters would share the ports and munge."""
    workers = tmp_path_factory.getbasetemp().parent
    with (workers / "slurm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def cluster(one_at_a_time: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node, started once per file; each test restores the state of the node."""
    node = subprocess.run(["hostname", "-s"], capture_output=True, text=True, check=True).stdout.strip()
    with started_cluster(tmp_path_factory.mktemp("slurm"), node) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three_nodes(one_at_a_time: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Nodes n1 to n3, started once per file."""
    with started_cluster(tmp_path_factory.mktemp("slurm"), "n1 n2 n3") as cluster:
        yield cluster


@contextmanager
def started_cluster(directory: Path, nodes: str) -> Iterator[Cluster]:
    """A cluster of these nodes, which needs root and the programs of Slurm."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}; as root on Debian, ci/setup --dev installs them")
    if os.getuid() != 0:
        pytest.skip("needs root to start a Slurm")
    var, hang = directory / "var", directory / "hang"
    # Every job's bash reads it first: a job that hangs, as on an unresponsive file system.
    waiting = directory / "waiting.sh"
    waiting.write_text(f'while [ -n "$SLURM_JOB_ID" ] && [ -e {hang} ]; do sleep 0.2; done\n')
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("IOWATCH_", "SLURM_"))},
        "IOWATCH_VAR": str(var),
        "IOWATCH_SLURM_PORT": os.environ.get("IOWATCH_SLURM_PORT", "26817"),
        "SLURM_CONF": str(var / "slurm-local" / "slurm.conf"),
        "IOWATCH_SLURM_NODES": nodes,
        "BASH_ENV": str(waiting),
    }
    program = str(ROOT / "systems" / "slurm-local" / "cluster")
    try:
        started = subprocess.run(
            [program, "start"], env=environment, capture_output=True, text=True, check=False, timeout=90
        )
        assert started.returncode == 0, started.stderr
        yield Cluster(var, hang, nodes, environment)
    finally:
        hang.unlink(missing_ok=True)
        subprocess.run([program, "stop"], env=environment, check=False, timeout=90)
