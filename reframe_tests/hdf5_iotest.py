"""hdf5_iotest under ReFrame: one test per case of `benchmarks/hdf5_iotest/suites/`."""

import reframe as rfm
from reframe.core.builtins import parameter

from iowatch.checks.base import BenchmarkCheck, entries


@rfm.simple_test
class Hdf5IotestCheck(BenchmarkCheck):
    """One case of hdf5_iotest, on every stack that has the program."""

    benchmark = "hdf5_iotest"
    entry = parameter(entries("hdf5_iotest"))
