"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.systems.published import configuration

# The source names neither scheduler nor launcher.
site_configuration = configuration("athena", scheduler="local", launcher="mpirun", features=[])
