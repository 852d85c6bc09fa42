"""ReFrame configuration of the local machine: no scheduler, `mpirun` of the stack of each case.

The environments are the stacks found on this machine: one for each MPI of the operating system, and every Spack
stack that `iowatch stack install --system local` installed. Their `activate.sh` puts the right `mpirun` and
`mpicc` on PATH and lets Open MPI start more ranks than there are cores.
"""

import os

from iowatch.core import settings
from iowatch.site import load_system
from iowatch.site.reframe_config import reframe_environments

_system = load_system("local")
_environments = reframe_environments(_system.name)

site_configuration = {
    "systems": [
        {
            "name": _system.name,
            "descr": _system.title,
            "hostnames": [".*"],
            "modules_system": "nomod",
            "prefix": str(settings.var_directory() / "reframe"),
            "max_local_jobs": 1,  # bandwidth is measured exclusively
            "partitions": [
                {
                    "name": "default",
                    "descr": "this machine",
                    "scheduler": "local",
                    "launcher": "mpirun",
                    "max_jobs": 1,
                    "environs": [environment["name"] for environment in _environments],
                    "processor": {"num_cpus": os.cpu_count() or 1},
                    "extras": {"scratch": str(_system.scratch_directory())},
                }
            ],
        }
    ],
    "environments": _environments,
}
