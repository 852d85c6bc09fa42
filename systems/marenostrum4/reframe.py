"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.site.reframe_config import published_configuration

# The source names neither scheduler nor launcher. h5bench ran with HDF5 1.10.1 ([azcarate-mn4]).
site_configuration = published_configuration(
    "marenostrum4", scheduler="local", launcher="mpirun", features=["hdf5", "h5bench"]
)
