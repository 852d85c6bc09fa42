"""ReFrame configuration of one machine: the settings below describe it; the rest is the same everywhere."""

from iowatch.site.reframe_config import system_configuration

# settings: begin
# slurm, squeue (Slurm without accounts), pbs (PBS Pro and OpenPBS), lsf, flux (start iowatch inside `flux alloc`), or
# local for no scheduler.
SCHEDULER = "local"
# Launcher of MPI programs inside a job. None: srun with Slurm, flux run with Flux, mpirun with the others.
LAUNCHER = None
# Without a scheduler: nodes on which mpirun starts programs by ssh; `ssh n1 true` must ask for nothing.
HOSTS = []
# srun's --mpi type for each MPI (`srun --mpi=list`) where Slurm's MpiDefault is none, for example
# {"openmpi": "pmix", "mpich": "pmi2"}.
MPI_TYPES = {}
# Regular expressions of the login nodes' host names; ReFrame recognises the machine by them.
HOSTNAMES = [".*"]
# lmod, envmod, or nomod where there are no environment modules.
MODULES_SYSTEM = "nomod"
# Additional options of every job, for example ["--account=my-project"].
ACCESS = []
# Queues to use: name for ReFrame, name for the scheduler (None: its default), cores per node, longest job. Behind a
# scheduler the cores, and `count` of the nodes of that name in system.yaml, are limits of cases; None: not known.
PARTITIONS = [{"name": "default", "queue": None, "cores": None, "time_limit": "60m"}]
# settings: end

site_configuration = system_configuration(
    __file__,
    scheduler=SCHEDULER,
    launcher=LAUNCHER,
    mpi_types=MPI_TYPES,
    hostnames=HOSTNAMES,
    modules_system=MODULES_SYSTEM,
    access=ACCESS,
    partitions=PARTITIONS,
    hosts=HOSTS,
)
