"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.systems.published import configuration

# The source names no scheduler. IOR ran with POSIX, MPI-IO, HDF5 and NetCDF-4 on Open MPI (001, Table 4.1).
site_configuration = configuration(
    "hamburg", scheduler="local", launcher="mpirun", features=["openmpi", "hdf5", "netcdf4", "ior"]
)
