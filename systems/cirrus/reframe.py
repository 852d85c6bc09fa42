"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.systems.published import configuration

# The sources name neither scheduler nor launcher. benchio ran with MPI-IO, HDF5 and NetCDF (000, Tables 13
# and 14), mdtest in 002, section 5.
site_configuration = configuration(
    "cirrus", scheduler="local", launcher="mpirun", features=["hdf5", "netcdf4", "mdtest"]
)
