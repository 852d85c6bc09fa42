"""ReFrame configuration of a one-node Slurm on this machine (`systems/slurm-local/cluster start`)."""

from iowatch.core import settings
from iowatch.site import load_system
from iowatch.site.reframe_config import reframe_environments
from iowatch.site.schedulers import BLOCKED_REASONS

_system = load_system("slurm-local")
_environments = reframe_environments(_system.name)

site_configuration = {
    "systems": [
        {
            "name": _system.name,
            "descr": _system.title,
            # The same machine as `local`: chosen by name only.
            "hostnames": ["^$"],
            "modules_system": "nomod",
            "prefix": str(settings.var_directory() / "reframe"),
            "partitions": [
                {
                    "name": "default",
                    "descr": "the node itself",
                    # Polls with squeue: this cluster keeps no accounts, which ReFrame's `slurm` would ask for.
                    "scheduler": "squeue",
                    "launcher": "mpirun",
                    # Not --exclusive: several cases fit, and iowatch has to keep them apart.
                    "access": ["--no-requeue", "--partition=node"],
                    # With one node the last is plain, too; on a larger machine such a job may only wait.
                    "sched_options": {
                        "slurm_job_cancel_reasons": [*BLOCKED_REASONS, "Nodes required for job are DOWN"]
                    },
                    "max_jobs": 1,  # bandwidth is measured exclusively
                    # The cluster claims more cores than there are: ranks that wait must yield to others.
                    "env_vars": [["OMPI_MCA_mpi_yield_when_idle", "1"]],
                    "environs": [environment["name"] for environment in _environments],
                    "processor": {"num_cpus": _system.limits.ranks_per_node},
                    "extras": {
                        "scratch": str(_system.scratch_directory()),
                        "queue_minutes": _system.limits.queue_minutes,
                    },
                }
            ],
        }
    ],
    "environments": _environments,
}
