"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.site.reframe_config import published_configuration

# The sources name neither scheduler nor launcher. benchio ran with MPI-IO, HDF5 and NetCDF ([lawrence2017], Tables 13
# and 14), mdtest in [turner2018], section 5.
site_configuration = published_configuration(
    "cirrus", scheduler="local", launcher="mpirun", features=["hdf5", "netcdf4", "mdtest"]
)
