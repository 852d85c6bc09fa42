"""What a client of a distributed file system tells about it: settings, counters and targets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster import gluster
from tests.cluster.conftest import ClusterSite

pytestmark = pytest.mark.slow

_CASE = "benchio:api=posix,nodes=1"


def covariates_of(site: ClusterSite, session: str) -> dict[str, Any]:
    """The covariates of the first run of a session."""
    shown = site.iowatch("history", "show", session, "--run", "1", "--json")
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)["facts"]["covariates"]


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
