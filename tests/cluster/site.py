"""A site of iowatch on the login node of a cluster in a box, which measures the distributed file system."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import gluster, slurm
from tests.cluster.machines import LOGIN, Box, booted
from tests.conftest import ROOT

SYSTEM = "box"
# Ranks yield, because machines of a box share two cores; root is the only account.
_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
PARTITIONS = (
    {"name": "small", "queue": "small", "cores": 2, "time_limit": "5m"},
    {"name": "wide", "queue": "wide", "cores": 2, "time_limit": "5m"},
)
_NODE_COUNTS = {"small": 2, "wide": 4}


@contextmanager
def running_cluster(directory: Path) -> Iterator[Box]:
    """Start Slurm with accounting on four nodes and GlusterFS on three servers; end all of it.

    Args:
        directory: of all that the cluster writes, not below /tmp.
    """
    kept = [path for path in (ROOT,) if path.is_relative_to("/tmp")]
    with booted(directory, kept) as box:
        box.environment.update(_MPI)
        gluster.start_gluster(box)
        slurm.start_slurm(box)
        yield box


@dataclass(frozen=True)
class ClusterSite:
    """A site's repository and its directory `var`.

    Attributes:
        suite: name of the suite that its sessions run.
    """

    box: Box
    root: Path
    var: Path
    environment: Mapping[str, str]
    suite: str

    def iowatch(
        self, *words: str, seconds: float = 300, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of iowatch on the login node; it may fail."""
        command = [sys.executable, "-m", "iowatch", *words]
        variables = {**self.environment, **(environment or {})}
        return self.box.run(LOGIN, *command, seconds=seconds, environment=variables, may_fail=True)

    def add_system(self, name: str, **settings: object) -> None:
        """Describe the same machine a second time, with other settings in its reframe.py."""
        original, copy = self.root / "systems" / SYSTEM, self.root / "systems" / name
        copy.mkdir()
        text = (original / "reframe.py").read_text()
        (copy / "reframe.py").write_text(with_settings(text, settings))
        facts = (original / "system.yaml").read_text()
        (copy / "system.yaml").write_text(facts.replace(f"name: {SYSTEM}", f"name: {name}"))

    def run(self, *words: str, now: str = "", seconds: float = 300) -> tuple[int, dict[str, object]]:
        """Run a session; return exit code and verdict.

        Args:
            now: time at which it begins; by default that of the machine.
            seconds: time limit.
        """
        # The launcher of a cluster's other MPI does not work between these machines.
        options = ["run", "--system", SYSTEM, "--suite", self.suite, "--stack", "system-openmpi", "--json", *words]
        done = self.iowatch(*options, seconds=seconds, environment={"IOWATCH_NOW": now})
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)


def make_site(
    box: Box, suites: Mapping[str, str], name: str = "nodes", partitions: tuple[Mapping[str, object], ...] = PARTITIONS
) -> ClusterSite:
    """Write the repository of a site.

    Args:
        suites: text of the suite `name` of each benchmark that has one.
        partitions: as in the site's reframe.py.
    """
    root, var = box.directory / "site", box.directory / "var"
    (root / "benchmarks").mkdir(parents=True)
    for shared in ("reference", "reframe_tests", "spack.yaml"):
        (root / shared).symlink_to(ROOT / shared)
    for benchmark in (ROOT / "benchmarks").iterdir():
        if benchmark.name not in suites:
            (root / "benchmarks" / benchmark.name).symlink_to(benchmark)
            continue
        directory = root / "benchmarks" / benchmark.name
        (directory / "suites").mkdir(parents=True)
        for path in benchmark.iterdir():
            if path.name != "suites":
                (directory / path.name).symlink_to(path)
        (directory / "suites" / f"{name}.yaml").write_text(suites[benchmark.name])
    _write_system(root / "systems" / SYSTEM, gluster.mount_directory(box), partitions)
    environment = {"IOWATCH_ROOT": str(root), "IOWATCH_VAR": str(var), "PYTHONPATH": str(ROOT / "src")}
    return ClusterSite(box, root, var, environment, name)


def with_settings(text: str, settings: Mapping[str, object]) -> str:
    """Return the text of a reframe.py with other values of its settings."""
    for setting, value in settings.items():
        text, count = re.subn(rf"^{setting} = .*$", f"{setting} = {value!r}", text, flags=re.MULTILINE)
        assert count == 1, setting
    return text


def _write_system(directory: Path, scratch: Path, partitions: tuple[Mapping[str, object], ...]) -> None:
    """The template with Slurm, its partitions and the distributed file system."""
    directory.mkdir(parents=True)
    template = ROOT / "systems" / "_template"
    text = (template / "reframe.py").read_text()
    text = with_settings(text, {"SCHEDULER": "slurm", "PARTITIONS": list(partitions), "LAUNCHER": "mpirun"})
    (directory / "reframe.py").write_text(text)
    facts = (template / "system.yaml").read_text()
    facts = facts.replace("name: template", f"name: {SYSTEM}").replace("free_bytes: 10g", "free_bytes: 1m")
    facts = facts.replace("scratch: ${IOWATCH_VAR}/scratch", f"scratch: {scratch}")
    nodes = "nodes:\n"
    for partition in partitions:
        name = str(partition["name"])
        nodes += f"- {{name: {name}, count: {_NODE_COUNTS[name]}, cores: 2, source: tests/cluster/slurm.py}}\n"
    facts = facts.replace("nodes: []\n", nodes)
    (directory / "system.yaml").write_text(facts)
