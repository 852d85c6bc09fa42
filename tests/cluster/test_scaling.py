"""The suite `scaling` on two unequal partitions, cut small, and a node with a slow link among pairs of nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.conftest import ClusterSite
from tests.cluster.machines import Box

pytestmark = pytest.mark.slow

_SCALING = """
format: 1
summary: The suite scaling, cut small
reference: none
time_limit: 90
defaults: {op: both, local: 16x16x16, repeat: 2, ranks-per-node: 1}
matrix:
  - {api: mpiio, file: shared, nodes: [1, all]}
"""
_PAIRS = """
format: 1
summary: The suite scaling, cut small
reference: none
time_limit: 90
defaults: {transfer: 256k, repeat: 3, ranks-per-node: 1}
matrix:
  - {nodes: all}
"""
# Both ends of the link of n3.
_SLOW = ("root", "tbf", "rate", "64mbit", "burst", "64k", "latency", "400ms")


@pytest.fixture
def scaling(site: ClusterSite) -> ClusterSite:
    """The site with both suites; IOR's has four ranks on each node of two cores, and is not available."""
    benchmarks = site.root / "benchmarks"
    (benchmarks / "benchio" / "suites" / "scaling.yaml").write_text(_SCALING)
    pairs = benchmarks / "node_pairs"
    source = pairs.resolve() / "src"
    pairs.unlink()
    (pairs / "suites").mkdir(parents=True)
    (pairs / "src").symlink_to(source)
    (pairs / "suites" / "scaling.yaml").write_text(_PAIRS)
    return site


def _session(site: ClusterSite, *words: str) -> dict[str, Any]:
    done = site.iowatch("run", "--system", "box", "--suite", "scaling", "--json", *words)
    assert done.stdout, done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout)
    assert (verdict["status"], verdict["failed"], verdict["missing"]) == ("ok", [], []), json.dumps(verdict, indent=1)
    return verdict


def _slow_nodes(verdict: dict[str, Any]) -> list[str]:
    return [slow["node"] for run in verdict["slow_messages"] for slow in run["pairs"]["slow_nodes"]]


def test_all_nodes_of_two_partitions_and_a_slow_link(scaling: ClusterSite, box: Box) -> None:
    """On `small` benchio runs on 1 and 2 nodes, node_pairs on 2; on `wide` also on 4."""
    verdict = _session(scaling, "--darshan", "off")
    assert verdict["received"] == 2 * (2 + 3) + 4 * (1 + 2)
    reasons = {entry["reason"] for entry in verdict["unavailable"]}
    assert "not available on small (2 nodes)" in reasons
    assert _slow_nodes(verdict) == []

    assert box._switch is not None
    box._run_outside("tc", "qdisc", "add", "dev", "port-n3", *_SLOW, inside=box._switch)
    box._run_outside("tc", "qdisc", "add", "dev", "eth0", *_SLOW, inside=box.machines["n3"])
    try:
        words = ("--benchmark", "node_pairs", "--case", "nodes=4", "--darshan", "off")
        assert _slow_nodes(_session(scaling, *words)) == ["n3"]
    finally:
        box._run_outside("tc", "qdisc", "del", "dev", "port-n3", "root", inside=box._switch)
        box._run_outside("tc", "qdisc", "del", "dev", "eth0", "root", inside=box.machines["n3"])
