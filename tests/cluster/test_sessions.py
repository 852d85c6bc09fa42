"""Sessions of a site with several nodes, two unequal partitions and a distributed file system."""

from __future__ import annotations

import json

import pytest

from tests.cluster.site import ClusterSite

pytestmark = pytest.mark.slow


def test_first_session_on_two_unequal_partitions(site: ClusterSite) -> None:
    """Four nodes are asked of a partition of two: not available there, and the session is in order."""
    code, verdict = site.run()
    assert (code, verdict["status"], verdict["failed"], verdict["missing"]) == (0, "ok", [], []), json.dumps(
        verdict, indent=1
    )
    reasons = {entry["reason"] for entry in verdict["unavailable"]}
    assert reasons == {"not available on small (2 nodes)"}
    assert verdict["received"] == 2 * (2 * 3 + 2 * 2)
