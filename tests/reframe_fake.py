"""A ReFrame configuration for tests of the checks: a stack that claims every benchmark, and no MPI at all."""

import os

site_configuration = {
    "systems": [
        {
            "name": "fake",
            "hostnames": [".*"],
            "modules_system": "nomod",
            "partitions": [
                {
                    "name": "default",
                    "scheduler": "local",
                    "launcher": "local",
                    "environs": ["gnu"],
                    "max_jobs": 1,
                    "extras": {"scratch": os.environ["IOWATCH_SCRATCH"]},
                }
            ],
        }
    ],
    "environments": [{"name": "gnu", "features": ["mpi", "hdf5", "ior", "mdtest", "h5bench"]}],
}
