"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.site.reframe_config import published_configuration

# The source names neither scheduler nor launcher. benchio ran with MPI-IO ([turner2018], section 5).
site_configuration = published_configuration("thomas", scheduler="local", launcher="mpirun", features=[])
