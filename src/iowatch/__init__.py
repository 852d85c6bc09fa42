"""iowatch: regression and performance monitoring for parallel I/O on HPC systems."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("iowatch")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
