"""A new system on a real Slurm: `system init`, and every MPI of the machine runs through `srun`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.slurm.conftest import Cluster

pytestmark = pytest.mark.end_to_end
IOWATCH = str(ROOT / ".venv" / "bin" / "iowatch")


def test_new_slurm_system_runs_a_suite(cluster: Cluster, tmp_path: Path) -> None:
    """Debian's Slurm has no default for MPI: without `MPI_TYPES` no rank of Open MPI starts."""
    for folder in ("benchmarks", "reframe_tests", "systems/_template"):
        (tmp_path / folder).parent.mkdir(exist_ok=True)
        (tmp_path / folder).symlink_to(ROOT / folder)
    environment = {**cluster.environment, "IOWATCH_ROOT": str(tmp_path), "IOWATCH_DB": str(tmp_path / "new.db")}

    def iowatch(*words: str) -> str:
        done = subprocess.run([IOWATCH, *words], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    iowatch("system", "init", "new-one")
    facts = tmp_path / "systems" / "new-one" / "system.yaml"
    facts.write_text(facts.read_text().replace("free_bytes: 10g", "free_bytes: 100m"))
    verdict = iowatch("run", "--system", "new-one", "--suite", "tiny")
    assert "tiny on new-one: OK" in verdict
    assert "system-" in verdict
