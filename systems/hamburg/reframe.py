"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.site.reframe_config import published_configuration

# The source names no scheduler. IOR ran with POSIX, MPI-IO, HDF5 and NetCDF-4 on Open MPI ([bartz2014], Table 4.1).
site_configuration = published_configuration(
    "hamburg", scheduler="local", launcher="mpirun", features=["openmpi", "hdf5", "netcdf4", "ior"]
)
