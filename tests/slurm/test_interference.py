"""An interference run on a real Slurm of three nodes, whose jobs have whole nodes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from iowatch.store import History
from tests.conftest import ROOT
from tests.slurm.conftest import Cluster

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.capability("experiments.interference")]

IOWATCH = str(ROOT / ".venv" / "bin" / "iowatch")
# Of Debian's packages, as those of the cluster are.
STACK = "system-openmpi"
CASE = "api=posix,file=per-process"


@pytest.fixture
def environment(three_nodes: Cluster, tmp_path: Path) -> dict[str, str]:
    """A repository with a new system for the three nodes."""
    for folder in ("benchmarks", "reframe_tests", "systems/_template"):
        (tmp_path / folder).parent.mkdir(exist_ok=True)
        (tmp_path / folder).symlink_to(ROOT / folder)
    variables = {
        **three_nodes.environment,
        "IOWATCH_ROOT": str(tmp_path),
        "IOWATCH_DB": str(tmp_path / "three.db"),
        # Open MPI refuses to start as root otherwise.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    subprocess.run([IOWATCH, "system", "init", "three"], env=variables, check=True, capture_output=True)
    facts = tmp_path / "systems" / "three" / "system.yaml"
    text = facts.read_text()
    facts.write_text(
        text.replace("limits:\n", "limits:\n  total_bytes: 10g\n").replace("free_bytes: 10g", "free_bytes: 100m")
    )
    return variables


def test_reference_is_on_the_node_of_the_victim(three_nodes: Cluster, environment: dict[str, str]) -> None:
    """Without required nodes level 0 ran on n1, and level 1 on n2 beside an aggressor that had n1."""
    words = [IOWATCH, "interference", f"victim={CASE}", f"aggressor={CASE}", "--system", "three", "--suite", "tiny"]
    # This seed begins with level 0, before there are aggressors.
    words += ["--stack", STACK, "--levels", "0,1", "--pairs", "2", "--seed", "0", "--json"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["run"]["warnings"] == []
    for level in document["levels"]:
        nodes = level["nodes"]
        assert nodes["reference"] == nodes["victim"]
        assert len(nodes["victim"]) == len(nodes["aggressors"]) == 1
        assert nodes["victim"] != nodes["aggressors"]
        assert (nodes["pairs_with_known_nodes"], nodes["pairs_on_other_nodes"]) == (2, 0)
    with History.open(environment["IOWATCH_DB"]) as history:
        runs = history.runs(document["run"]["session"])
    victims = [run for run in runs if not run.name.endswith("-aggressors")]
    assert len(victims) == 4
    assert len({run.facts.nodes for run in victims}) == 1
    assert all(run.facts.document["required_nodes"] == list(run.facts.nodes) for run in victims)
    assert not three_nodes.jobs("PENDING,RUNNING")
