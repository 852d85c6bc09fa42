"""benchio, and other MPI programs, on three nodes of a box without iowatch."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cluster.machines import LOGIN, Box
from tests.conftest import ROOT

# As jobs of iowatch do on several nodes (src/iowatch/checks/job.py).
ENVIRONMENT = {"OMPI_MCA_sharedfp": "^lockedfile"}
ALLOCATION = ("salloc", "--quiet", "-N3", "-n6", "--ntasks-per-node=2", "-w", "n2,n3,n4")


def build_benchio(box: Box) -> Path:
    """Build the program of this checkout where all machines see it, and return its path."""
    build = box.directory / "build"
    source = ROOT / "benchmarks" / "benchio"
    for command in (
        ["cmake", "-S", str(source), "-B", str(build), "-DBUILD_TESTING=OFF"],
        ["cmake", "--build", str(build), "--parallel", "2"],
    ):
        subprocess.run(command, check=True, capture_output=True)
    return build / "benchio"


def on_three_nodes(box: Box, *words: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run an MPI program with two ranks on each of three nodes; its exit code is 124 at the time limit."""
    limited = ["timeout", str(seconds), *ALLOCATION, "mpirun", "-np", "6", *words]
    return box.run(LOGIN, *limited, seconds=seconds + 20, environment=ENVIRONMENT, may_fail=True)
