"""h5bench under ReFrame: one test per case of `benchmarks/h5bench/suites/`."""

import reframe as rfm
from reframe.core.builtins import parameter

from iowatch.checks.base import BenchmarkCheck, entries


@rfm.simple_test
class H5benchCheck(BenchmarkCheck):
    """One case of h5bench, on every stack that has the program."""

    benchmark = "h5bench"
    entry = parameter(entries("h5bench"))
