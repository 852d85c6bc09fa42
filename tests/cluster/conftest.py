"""One cluster in a box for all tests of this folder, and a site of iowatch on it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import gluster, slurm
from tests.cluster.machines import Box
from tests.cluster.site import ClusterSite, make_site, running_cluster

_PROGRAMS = ("unshare", "setpriv", "nsenter", "ip", "mpicc", "mpirun", *slurm.PROGRAMS, *gluster.PROGRAMS)
_PACKAGES = "slurm-wlm slurmdbd mariadb-server munge glusterfs-server glusterfs-client iproute2"
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
    try:
        with running_cluster(directory) as cluster:
            yield cluster
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def site(box: Box) -> ClusterSite:
    return make_site(box, {"benchio": _SUITE})
