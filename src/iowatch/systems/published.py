"""ReFrame configuration of machines known from publications: for dry runs and imports, never to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iowatch import paths
from iowatch.systems.load import load
from iowatch.systems.model import System


def _processor(system: System) -> dict[str, int]:
    """What the sources say of the first kind of node, in ReFrame's words."""
    node = system.nodes[0]
    known = {"num_cpus": node.cores, "num_sockets": node.sockets}
    return {name: value for name, value in known.items() if value is not None}


def configuration(name: str, *, scheduler: str, launcher: str, features: Sequence[str]) -> dict[str, Any]:
    """ReFrame's `site_configuration` of a retired system: one partition, one environment `published`.

    No host name matches, so that ReFrame takes the system only by name (`--system`), never by where it runs.

    Args:
        name: the system.
        scheduler, launcher: as its sources name them; `local` and `mpirun` where they do not.
        features: what the published measurements ran with, in the words of `Stack.features`.
    """
    system = load(name)
    partition = {
        "name": "default",
        "scheduler": scheduler,
        "launcher": launcher,
        "environs": ["published"],
        "processor": _processor(system),
        "extras": {"scratch": f"/retired/{name}"},
    }
    return {
        "systems": [
            {
                "name": name,
                "descr": system.title,
                "hostnames": ["^$"],
                "modules_system": "nomod",
                "prefix": str(paths.var() / "reframe"),
                "partitions": [partition],
            }
        ],
        "environments": [
            {
                "name": "published",
                "features": ["mpi", *features],
                "extras": {"stack": "published", "versions": {}},
            }
        ],
    }
