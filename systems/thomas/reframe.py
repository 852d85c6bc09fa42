"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.systems.published import configuration

# The source names neither scheduler nor launcher. benchio ran with MPI-IO (002, section 5).
site_configuration = configuration("thomas", scheduler="local", launcher="mpirun", features=[])
