"""ReFrame configuration of one machine: the settings below describe it; the rest is the same everywhere."""

from pathlib import Path

import iowatch.site.reframe_config  # noqa: F401 - registers the launcher flux-run
from iowatch.core import files
from iowatch.site import load_system
from iowatch.site.reframe_config import reframe_environments
from iowatch.site.schedulers import BLOCKED_REASONS, SCHEDULER_OPTIONS, access_options, with_mpi_types

# settings: begin
# slurm, squeue (Slurm without accounts), pbs (PBS Pro and OpenPBS), lsf, flux (start iowatch inside `flux alloc`), or local for no scheduler.
SCHEDULER = "local"
# Launcher of MPI programs inside a job. None: srun with Slurm, flux run with Flux, mpirun with the others.
LAUNCHER = None
# srun's --mpi type for each MPI (`srun --mpi=list`) where Slurm's MpiDefault is none, for example
# {"openmpi": "pmix", "mpich": "pmi2"}.
MPI_TYPES = {}
# Regular expressions of the login nodes' host names; ReFrame recognises the machine by them.
HOSTNAMES = [".*"]
# lmod, envmod, or nomod where there are no environment modules.
MODULES_SYSTEM = "nomod"
# Additional options of every job, for example ["--account=my-project"].
ACCESS = []
# Queues to use: name for ReFrame, name for the scheduler (None: its default), cores per node, longest job.
PARTITIONS = [{"name": "default", "queue": None, "cores": 1, "time_limit": "60m"}]
# settings: end

_system = load_system(Path(__file__).resolve().parent.name)
_environments = with_mpi_types(reframe_environments(_system.name), MPI_TYPES)


def _partition(settings):
    return {
        "name": settings["name"],
        "scheduler": SCHEDULER_OPTIONS[SCHEDULER].scheduler,
        "launcher": LAUNCHER or SCHEDULER_OPTIONS[SCHEDULER].launcher,
        "access": access_options(SCHEDULER, settings["queue"], ACCESS),
        "environs": [environment["name"] for environment in _environments],
        "sched_options": {"slurm_job_cancel_reasons": BLOCKED_REASONS},
        "max_jobs": 1,  # one job at a time, so that benchmarks do not disturb each other
        "time_limit": settings["time_limit"],
        "processor": {"num_cpus": settings["cores"]},
        "extras": {"scratch": str(_system.scratch_directory()), "queue_minutes": _system.limits.queue_minutes},
    }


site_configuration = {
    "systems": [
        {
            "name": _system.name,
            "descr": _system.title,
            "hostnames": HOSTNAMES,
            "modules_system": MODULES_SYSTEM,
            "prefix": str(files.var_directory() / "reframe"),
            "max_local_jobs": 1,
            "partitions": [_partition(settings) for settings in PARTITIONS],
        }
    ],
    "environments": _environments,
}
