"""hpcc under ReFrame: one test per case of `benchmarks/hpcc/suites/`."""

import reframe as rfm
from reframe.core.builtins import parameter

from iowatch.checks.base import BenchmarkCheck, entries


@rfm.simple_test
class HpccCheck(BenchmarkCheck):
    """One case of hpcc, on every stack that has the program."""

    benchmark = "hpcc"
    entry = parameter(entries("hpcc"))
