"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.systems.published import configuration

# The source names neither scheduler nor launcher. h5bench ran with HDF5 1.10.1 (004).
site_configuration = configuration(
    "marenostrum4", scheduler="local", launcher="mpirun", features=["hdf5", "h5bench"]
)
