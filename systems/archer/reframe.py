"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.site.reframe_config import published_configuration

# Scheduler and launcher: the modules pbs and alps of [lawrence2017], section 6. Environment: cray-mpich, parallel HDF5
# and NetCDF. mdtest: [turner2018], section 5.
site_configuration = published_configuration(
    "archer", scheduler="pbs", launcher="alps", features=["mpich", "hdf5", "netcdf4", "mdtest"]
)
