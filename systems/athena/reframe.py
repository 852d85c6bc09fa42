"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.site.reframe_config import published_configuration

# The source names neither scheduler nor launcher.
site_configuration = published_configuration("athena", scheduler="local", launcher="mpirun", features=[])
