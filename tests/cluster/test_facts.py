"""What is recorded of a distributed file system and of each node, and which changes and differences are named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster import gluster
from tests.cluster.site import ClusterSite

pytestmark = pytest.mark.slow

_CASE = "benchio:api=posix,nodes=1,ranks=2"
_CASE_ON_ALL_NODES = "benchio:api=posix,nodes=4,ranks=8"


def covariates_of(site: ClusterSite, session: str) -> dict[str, Any]:
    """The covariates of the first run of a session."""
    shown = site.iowatch("history", "show", session, "--json")
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)["runs"][0]["facts"]["covariates"]


def test_changed_option_of_the_volume_is_named(site: ClusterSite) -> None:
    """The event that could not be seen: write-behind off between two sessions."""
    code, verdict = site.run("--case", _CASE)
    assert code == 0, verdict
    covariates = covariates_of(site, verdict["session"])
    before, after = covariates["before"], covariates["after"]
    assert (before["targets"], before["targets_down"]) == (3, 0)
    # Three repetitions of 2 ranks with 16^3 doubles each, written and read.
    assert after["client_written_bytes"] - before["client_written_bytes"] >= 3 * 2 * 16**3 * 8
    assert after["client_data_ops"] > before["client_data_ops"]
    gluster.set_option(site.box, "performance.write-behind", "off")
    try:
        _, verdict = site.run("--case", _CASE)
    finally:
        gluster.set_option(site.box, "performance.write-behind", "on")
    sentence = "settings of the file system performance/write-behind=off instead of performance/write-behind=on"
    assert any(sentence in problem for problem in verdict["problems"]), verdict["problems"]


def test_node_with_other_mount_options_is_named(site: ClusterSite) -> None:
    """One of four nodes does not keep attributes of files; the others have what a mount has by default."""
    gluster.unmount(site.box, "n3")
    gluster.mount(site.box, "n3", "attribute-timeout=0")
    try:
        _, verdict = site.run("--case", _CASE_ON_ALL_NODES)
    finally:
        gluster.unmount(site.box, "n3")
        gluster.mount(site.box, "n3")
    (differing,) = [nodes for nodes in verdict["differing_nodes"] if nodes["difference"]["fact"] == "mount_options"]
    difference = differing["difference"]
    assert difference["others"] == [{"value": "--attribute-timeout=0", "nodes": ["n3"]}]
    assert difference["usual"]["nodes"] == ["n1", "n2", "n4"]
    # All have the same client.
    assert not [nodes for nodes in verdict["differing_nodes"] if nodes["difference"]["fact"] == "file_system_client"]
    shown = site.iowatch("history", "show", verdict["session"])
    assert "mount options of scratch --attribute-timeout=0 on node n3, none on the other 3 nodes" in shown.stdout
