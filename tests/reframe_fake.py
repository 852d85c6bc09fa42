"""A ReFrame configuration for tests of the checks: a stack with every benchmark as a feature, and no MPI."""

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
