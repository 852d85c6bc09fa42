"""ReFrame inside an allocation: every case on the same nodes of it, one after the other, without a queue.

`iowatch run --ab` writes a configuration that calls `configuration`; what a system's `reframe.py` says of its
environments, modules and variables stays as it is, only scheduler and launcher are others.
"""

from __future__ import annotations

import math
import os
import runpy
from pathlib import Path
from typing import Any

from reframe.core.backends import register_launcher
from reframe.core.launchers import JobLauncher

# Names of the allocation's nodes with commas between them.
NODES = "IOWATCH_NODES"


class _Within(JobLauncher):  # type: ignore[misc]
    """Starts a case on the first nodes of the allocation, as many as it asks for."""

    def placed(self, job: Any) -> list[str]:
        """The nodes of a case."""
        tasks = job.num_tasks or 1
        return os.environ[NODES].split(",")[: math.ceil(tasks / (job.num_tasks_per_node or tasks))]


@register_launcher("srun-within")
class SrunWithin(_Within):
    """`srun` with the size and the nodes of a case: the allocation may be larger."""

    def command(self, job: Any) -> list[str]:
        """The launcher's command line for one job of ReFrame."""
        nodes = self.placed(job)
        words = ["srun", f"--ntasks={job.num_tasks or 1}", f"--nodes={len(nodes)}"]
        words += [f"--ntasks-per-node={job.num_tasks_per_node}"] if job.num_tasks_per_node else []
        return [*words, f"--nodelist={','.join(nodes)}"]


@register_launcher("mpirun-within")
class MpirunWithin(_Within):
    """`mpirun` with a file of hosts, each as often as it has ranks: Open MPI and Hydra both read it so."""

    def command(self, job: Any) -> list[str]:
        """The launcher's command line for one job of ReFrame; writes the file beside the job's script."""
        tasks = job.num_tasks or 1
        nodes = [node for node in self.placed(job) for _ in range(job.num_tasks_per_node or tasks)]
        hosts = Path(job.workdir).absolute() / "hosts"
        hosts.write_text("".join(f"{node}\n" for node in nodes[:tasks]), encoding="utf-8")
        return ["mpirun", "-np", str(tasks), "-machinefile", str(hosts)]


# Others (aprun, jsrun, …) know their allocation, and fill its nodes from the first.
_LAUNCHERS = {
    **dict.fromkeys(("srun", "srunalloc"), "srun-within"),
    **dict.fromkeys(("mpirun", "mpiexec", "mpirun-openmpi", "mpirun-intelmpi"), "mpirun-within"),
}


def configuration(path: str, system: str, partition: str) -> dict[str, Any]:
    """ReFrame's configuration for one partition of a system from inside an allocation of it.

    Args:
        path: of the system's `reframe.py`.
    """
    found: dict[str, Any] = runpy.run_path(path)["site_configuration"]
    described = next(entry for entry in found["systems"] if entry["name"] == system)
    kept = next(entry for entry in described["partitions"] if entry["name"] == partition)
    launcher = kept["launcher"]
    inside = {
        **{name: value for name, value in kept.items() if name not in ("access", "sched_options")},
        "scheduler": "local",
        "launcher": _LAUNCHERS.get(launcher, launcher),
        "max_jobs": 1,
    }
    one = {**described, "partitions": [inside], "max_local_jobs": 1}
    return {**found, "systems": [one]}
