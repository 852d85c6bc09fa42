"""ReFrame configuration for dry runs: the machine is known from publications only (system.yaml)."""

from iowatch.site.reframe_config import published_configuration

# Launcher: aprun ([antypas2009], section 6.3); the source names no scheduler. IOR (section 3) and FLASH-IO with HDF5
# (5.2) ran.
site_configuration = published_configuration("franklin", scheduler="local", launcher="alps", features=["ior", "hdf5"])
