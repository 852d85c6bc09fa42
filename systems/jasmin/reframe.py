"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.site.reframe_config import published_configuration

# The source names neither scheduler nor launcher. benchio ran with MPI-IO only ([lawrence2017], Table 20).
site_configuration = published_configuration("jasmin", scheduler="local", launcher="mpirun", features=[])
