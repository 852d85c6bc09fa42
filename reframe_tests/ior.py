"""IOR under ReFrame: one test per case of `benchmarks/ior/suites/`."""

import reframe as rfm
from reframe.core.builtins import parameter

from iowatch.checks.base import BenchmarkCheck, entries


@rfm.simple_test
class IorCheck(BenchmarkCheck):
    """One case of IOR, on every stack that has the program."""

    benchmark = "ior"
    entry = parameter(entries("ior"))
