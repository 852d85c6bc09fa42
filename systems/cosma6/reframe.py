"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.site.reframe_config import published_configuration

# The source names neither scheduler nor launcher. benchio ran with MPI-IO only ([lawrence2017], Tables 16 and 17).
site_configuration = published_configuration("cosma6", scheduler="local", launcher="mpirun", features=[])
