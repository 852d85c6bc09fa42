"""benchio on three nodes of a distributed file system that is mounted with its usual options."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch.benchmarks.registry import parse_output_file
from iowatch.core import NODE_TIMES_FACT, NodeTimes
from iowatch.findings import slow_nodes_of_run
from tests.cluster import gluster
from tests.cluster.machines import Box
from tests.cluster.programs import build_benchio, on_three_nodes

pytestmark = pytest.mark.slow

_STARTS = 3


@pytest.fixture(scope="module")
def benchio(box: Box) -> Path:
    return build_benchio(box)


@pytest.mark.parametrize("api", ["posix", "mpiio", "hdf5", "netcdf4", "pnetcdf"])
def test_repetitions_on_default_mounts(box: Box, benchio: Path, api: str) -> None:
    """Each node reads what another one wrote; the same names were absent, old, or waited for before."""
    options = ["--op", "both", "--local", "32x32x32", "--repeat", "4", "--verify", "--quiet"]
    for _ in range(_STARTS):
        done = on_three_nodes(box, str(benchio), "--api", api, "--dir", str(gluster.mount_directory(box)), *options)
        assert done.returncode == 0, done.stderr
        assert "all as written" in done.stdout


def test_directory_that_only_one_node_has(box: Box, benchio: Path) -> None:
    done = on_three_nodes(box, str(benchio), "--api", "posix", "--dir", "/dev/shm", "--local", "8x8x8")
    assert done.returncode != 0
    assert "checking that all nodes see the same files of /dev/shm/benchio-" in done.stderr
    assert "/dev/shm is tmpfs (tmpfs), mounted with rw," in done.stderr


def test_node_with_a_slow_link_is_named(box: Box, benchio: Path) -> None:
    """A file per process, so that no rank waits for another one: the times of its node have what the link costs."""
    record = box.directory / "slow-link.json"
    options = ["--api", "posix", "--file", "per-process", "--sync=end", "--local", "64x64x64", "--repeat", "4"]
    limit = ["tbf", "rate", "40mbit", "burst", "64kb", "latency", "100ms"]
    box.run("n3", "tc", "qdisc", "add", "dev", "eth0", "root", *limit)
    try:
        directory = str(gluster.mount_directory(box))
        done = on_three_nodes(box, str(benchio), *options, "--dir", directory, "--json", str(record))
    finally:
        box.run("n3", "tc", "qdisc", "del", "dev", "eth0", "root")
    assert done.returncode == 0, done.stderr
    facts = parse_output_file("benchio", record, ranks=6).facts
    (slow,) = slow_nodes_of_run(NodeTimes(**facts[NODE_TIMES_FACT]["write"]))
    assert (slow.node, slow.other_nodes) == ("n3", 2)
