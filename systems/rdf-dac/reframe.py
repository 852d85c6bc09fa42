"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.site.reframe_config import published_configuration

# The source names neither scheduler nor launcher. benchio ran with MPI-IO, HDF5 and NetCDF ([lawrence2017], Tables 18
# and 19).
site_configuration = published_configuration(
    "rdf-dac", scheduler="local", launcher="mpirun", features=["hdf5", "netcdf4"]
)
