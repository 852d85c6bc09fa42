"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.systems.published import configuration

# The source names neither scheduler nor launcher. benchio ran with MPI-IO only (000, Table 20).
site_configuration = configuration("jasmin", scheduler="local", launcher="mpirun", features=[])
