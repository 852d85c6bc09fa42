"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.site.reframe_config import published_configuration

# The source names neither scheduler nor launcher. benchio with MPI-IO and mdtest ran ([turner2018], section 5).
site_configuration = published_configuration("peta4-skylake", scheduler="local", launcher="mpirun", features=["mdtest"])
