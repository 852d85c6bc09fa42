"""One cluster in a box for all tests of this folder, and a site of iowatch on it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster import gluster, slurm
from tests.cluster.machines import LOGIN, Box, booted
from tests.conftest import ROOT

_PROGRAMS = ("unshare", "nsenter", "ip", "mpicc", "mpirun", *slurm.PROGRAMS, *gluster.PROGRAMS)
_PACKAGES = "slurm-wlm slurmdbd mariadb-server munge glusterfs-server glusterfs-client iproute2"
# Ranks yield, because machines of a box share two cores; root is the only account.
# UCX, which MPICH uses, takes all machines of a box for one host and tries its shared memory.
_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "UCX_TLS": "tcp,self",
}
_PARTITIONS = [
    {"name": "small", "queue": "small", "cores": 2, "time_limit": "5m"},
    {"name": "wide", "queue": "wide", "cores": 2, "time_limit": "5m"},
]
_NODES = """nodes:
- {name: small, count: 2, cores: 2, source: tests/cluster/slurm.py}
- {name: wide, count: 4, cores: 2, source: tests/cluster/slurm.py}
"""
_SUITE = """
format: 1
summary: Two interfaces on one, two and four nodes
reference: none
time_limit: 90
defaults: {op: both, file: shared, local: 16x16x16, repeat: 3}
matrix:
  - {api: [posix, mpiio], nodes: 1, ranks: 2}
  - {api: [posix, mpiio], nodes: 2, ranks: 4}
  - {api: [posix, mpiio], nodes: 4, ranks: 8}
"""


def _missing() -> str | None:
    """Return why no cluster can be started here; None if it can."""
    if os.getuid() != 0:
        return "needs root: its machines are namespaces"
    absent = [name for name in _PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"needs {', '.join(absent)} (Debian: {_PACKAGES})"
    if not Path("/dev/fuse").exists():
        return "needs /dev/fuse"
    return None


@pytest.fixture(scope="session")
def box() -> Iterator[Box]:
    """A running cluster: Slurm with accounting on four nodes, GlusterFS on three servers."""
    reason = _missing()
    if reason is not None:
        pytest.skip(reason)
    directory = Path(tempfile.mkdtemp(prefix="iowatch-box-", dir="/var/tmp"))
    directory.chmod(0o755)
    kept = [path for path in (ROOT,) if path.is_relative_to("/tmp")]
    try:
        with booted(directory, kept) as cluster:
            cluster.environment.update(_MPI)
            gluster.start_gluster(cluster)
            slurm.start_slurm(cluster)
            yield cluster
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class ClusterSite:
    """A site of iowatch on the login node, which measures the distributed file system."""

    box: Box
    root: Path
    var: Path
    environment: Mapping[str, str]

    def iowatch(self, *words: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "iowatch", *words]
        return self.box.run(LOGIN, *command, seconds=seconds, environment=self.environment, may_fail=True)

    def add_system(self, name: str, **settings: object) -> None:
        """Describe the same machine a second time, with other settings in its reframe.py."""
        original, copy = self.root / "systems" / "box", self.root / "systems" / name
        copy.mkdir()
        text = (original / "reframe.py").read_text()
        (copy / "reframe.py").write_text(with_settings(text, settings))
        facts = (original / "system.yaml").read_text()
        (copy / "system.yaml").write_text(facts.replace("name: box", f"name: {name}"))

    def run(self, *words: str) -> tuple[int, dict[str, object]]:
        """Run a session; return exit code and verdict."""
        done = self.iowatch("run", "--system", "box", "--suite", "nodes", "--json", *words)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="session")
def site(box: Box) -> ClusterSite:
    root, var = box.directory / "site", box.directory / "var"
    system, suites = root / "systems" / "box", root / "benchmarks" / "benchio" / "suites"
    for directory in (system, suites):
        directory.mkdir(parents=True)
    for name in ("reference", "reframe_tests", "spack.yaml"):
        (root / name).symlink_to(ROOT / name)
    for path in (ROOT / "benchmarks").iterdir():
        if path.name != "benchio":
            (root / "benchmarks" / path.name).symlink_to(path)
    for path in (ROOT / "benchmarks" / "benchio").iterdir():
        if path.name != "suites":
            (root / "benchmarks" / "benchio" / path.name).symlink_to(path)
    (suites / "nodes.yaml").write_text(_SUITE)
    _write_system(system, gluster.mount_directory(box))
    environment = {"IOWATCH_ROOT": str(root), "IOWATCH_VAR": str(var), "PYTHONPATH": str(ROOT / "src")}
    return ClusterSite(box, root, var, environment)


def with_settings(text: str, settings: Mapping[str, object]) -> str:
    """A reframe.py with other values of its settings."""
    for setting, value in settings.items():
        text, count = re.subn(rf"^{setting} = .*$", f"{setting} = {value!r}", text, flags=re.MULTILINE)
        assert count == 1, setting
    return text


def _write_system(directory: Path, scratch: Path) -> None:
    """The template with Slurm, two partitions and the distributed file system."""
    template = ROOT / "systems" / "_template"
    text = (template / "reframe.py").read_text()
    text = with_settings(text, {"SCHEDULER": "slurm", "PARTITIONS": _PARTITIONS, "LAUNCHER": "mpirun"})
    (directory / "reframe.py").write_text(text)
    facts = (template / "system.yaml").read_text()
    facts = facts.replace("name: template", "name: box").replace("free_bytes: 10g", "free_bytes: 1m")
    facts = facts.replace("scratch: ${IOWATCH_VAR}/scratch", f"scratch: {scratch}")
    facts = facts.replace("nodes: []", _NODES)
    (directory / "system.yaml").write_text(facts)
