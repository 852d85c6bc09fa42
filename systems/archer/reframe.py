"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.systems.published import configuration

# Scheduler and launcher: the modules pbs and alps of 000, section 6. Environment: cray-mpich, parallel HDF5
# and NetCDF. mdtest: 002, section 5.
site_configuration = configuration(
    "archer", scheduler="pbs", launcher="alps", features=["mpich", "hdf5", "netcdf4", "mdtest"]
)
